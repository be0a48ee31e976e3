"""Tables of README and docs/evidence are those that the command writes from stored results."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dpconvex.cli import main
from dpconvex_reproduction import evidence
from dpconvex_reproduction.bench.methods import find_methods
from dpconvex_reproduction.bench.page import write_page
from dpconvex_reproduction.bench.run import code_of, write_parquet

ROOT = Path(__file__).parents[2]
FACTS = {
    "data": "adult",
    "task": "logistic",
    "relation": "add_or_remove_one",
    "settings": 1,
    "setting": "",
}
FACTS |= {"train_rows": 4000, "columns": 9, "delta": 1e-6, "guarantee": "stated", "seconds": 0.1}


def fits(method, ours, epsilon, *losses, **changed):
    return [
        {
            **FACTS,
            "method": method,
            "ours": ours,
            "epsilon": epsilon,
            "seed": seed,
            "log_loss": loss,
            "accuracy": 0.8,
        }
        | changed
        for seed, loss in enumerate(losses)
    ]


RESULTS = {
    "fits": [
        *fits("dpconvex", True, 0.1, 0.50, 0.52),
        *fits("dpconvex", True, 1.0, 0.30, 0.31),
        *fits("peer", False, 0.1, 0.30, 0.31),
        *fits("peer", False, 1.0, 0.50, 0.51),
        *fits("other", False, 1.0, 0.45, 0.46),
        *fits("exact, not private", False, None, 0.25, relation=""),
        *fits("scikit-learn, not private", False, None, 0.25, relation=""),
        *fits("constant, not private", False, None, 0.65, relation=""),
        *fits("dpconvex", True, 0.1, 0.52, 0.54, relation="replace_one"),
        *fits("dpconvex", True, 1.0, 0.32, 0.34, relation="replace_one"),
        *fits("alone", False, 1.0, 0.90, 0.91, relation="replace_one"),
    ],
    "coverage": [{"percent": 93.5}],
    "speed": [
        {
            "name": "a fit",
            "value": 0.4,
            "bar": 0.5,
            "at_most": True,
            "passed": True,
            "detail": "0.2 / 0.5",
        },
        {
            "name": "memory",
            "value": 1.4,
            "bar": 1.3,
            "at_most": True,
            "passed": False,
            "detail": "",
        },
    ],
}


def test_tables_say_what_fits_are_worth():
    cost = "\n".join(evidence.cost_table(RESULTS))
    # Of the default's own relation, one record replaced.
    assert (
        "| data | training rows | columns | task | a constant | ε = 0.1 | ε = 1 | without privacy |"
        in cost
    )
    assert "| adult † | 4,000 | 9 | logistic, log loss | 0.650 | 0.530 | 0.330 | 0.250 |" in cost
    best = evidence.best_peers_table(RESULTS)
    assert [line.split("|")[1].strip() for line in best[2:]] == [
        "loss",
        "win",
    ]  # losses first, and no contest of one
    assert "| 0.305 | 0.455 | other |" in best[3]  # the better of two
    more = "one row more or less"
    replaced = "one row replaced"
    assert evidence.peers_table(RESULTS)[2:] == [
        f"| peer | 1 | 0 | 0 | 1 | logistic | 1 | {more} |",
        f"| other | 0 | 0 | 0 | 1 | logistic | 1 | {more} |",
        f"| alone | 0 | 0 | 0 | 1 | logistic | 1 | {replaced} |",
    ]
    assert evidence.losses_in_short(RESULTS) == [
        "- adult †, logistic: peer at ε = 0.1 (log loss 0.305, ours 0.51)"
    ]
    assert evidence.losses_in_short({"fits": []}) == ["No peer is clearly better anywhere."]
    words = " ".join(evidence.in_short(RESULTS))
    # 0.33 and 0.53 of what lies between 0.25 and 0.65.
    assert "On 1 tasks of 1 public tables" in words
    assert "lose 20.0 % in the median and at most 20 % of what" in words
    assert "70.0 % in the median and at most 70 % at ε = 0.1 (one record replaced" in words
    assert "best of 2 private methods" in words
    assert "worse in 1, too close to tell in 0 (the other is ahead in 0), better in 1." in words
    assert "93.5 %" in evidence.coverage_sentence(RESULTS)[0]
    speed = evidence.speed_table(RESULTS)
    assert "missed" not in speed[2]
    assert "missed" in speed[3]


def test_ties_in_which_a_peer_is_ahead_come_first():
    rows = [
        *fits("dpconvex", True, 1.0, 0.30, 0.31, 0.32),
        *fits("level behind", False, 1.0, 0.31, 0.32, 0.31),
        *fits("level ahead", False, 1.0, 0.29, 0.33, 0.30),
        *fits("clearly ahead", False, 1.0, 0.01, 0.02, 0.01),
        *fits("one seed", False, 1.0, 0.5),
    ]
    counts = [
        [part.strip() for part in line.split("|")[1:6]]
        for line in evidence.peers_table({"fits": rows})[2:]
    ]
    assert counts == [
        ["clearly ahead", "1", "0", "0", "0"],
        ["level ahead", "0", "1", "0", "0"],
        ["level behind", "0", "0", "1", "0"],
        ["one seed", "0", "0", "0", "0"],
    ]


def test_times_name_their_machine_and_what_ran_beside(tmp_path):
    machine = {
        "processor": "Z80",
        "cores": 4,
        "python": "3.12",
        "packages": {"numpy": "2.0", "scikit-learn": "1.7"},
    }
    machine["made"] = "commit a on 2026-01-01"
    for busy, words in (
        (0.1, "kept at most 0.1 of 4 cores busy: next to"),
        (1.9, "1.9 of 4 cores busy: seconds are"),
    ):
        (tmp_path / evidence.SPEED).parent.mkdir(parents=True, exist_ok=True)
        content = {
            "machine": {**machine, "busy": busy, "busy at the end": 0.05},
            "measurements": RESULTS["speed"],
        }
        (tmp_path / evidence.SPEED).write_text(json.dumps(content))
        results = evidence.load_results(tmp_path)
        assert results["speed"] == RESULTS["speed"]
        page = "<!-- evidence: speed machine -->\n<!-- end of evidence -->\n"
        said = " ".join(evidence.filled(page, results).split())
        assert (
            "Measured at commit a on 2026-01-01 on 4 cores of a machine with the processor Z80"
            in said
        )
        assert "with Python 3.12, NumPy 2.0 and scikit-learn 1.7." in said
        assert words in said
    assert evidence.TABLES["growth machine"](results) == ["(no rows)"]
    # Of a system that does not tell, or a run that was stopped before its end.
    for unknown in ({"busy": math.nan, "busy at the end": 0.0}, {"busy": 0.0}):
        said = " ".join(evidence.machine_sentences({"speed machine": [machine | unknown]}))
        assert "Whether other work ran beside is not known." in said


def test_the_command_writes_them_and_only_them(tmp_path, capsys):
    for name in (*evidence.PAGES, evidence.BENCH):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            "before\n<!-- evidence: peers -->\n| 7 |\n<!-- end of evidence -->\nafter\n"
        )
    (tmp_path / evidence.BENCH).unlink()
    write_parquet(RESULTS["fits"], tmp_path / evidence.BENCH)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "evidence", "--root", str(tmp_path)])
    assert ended.value.code == 0, capsys.readouterr().err
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "| alone | 0 | 0 | 0 | 1 |" in page
    assert "| 7 |" not in page
    (tmp_path / "README.md").write_text("<!-- evidence: weather -->\n<!-- end of evidence -->")
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "evidence", "--root", str(tmp_path)])
    assert ended.value.code == 2
    assert "no table 'weather'" in capsys.readouterr().err


@pytest.mark.parametrize("name", evidence.PAGES)
def test_pages_have_the_numbers_of_the_stored_runs(name):
    results = evidence.load_results(ROOT)
    assert results["fits"]
    assert results["speed"]
    page = (ROOT / name).read_text(encoding="utf-8")
    blocks = [found[1] for found in evidence._BLOCK.findall(page)]
    assert blocks
    assert len(blocks) == page.count(
        "<!-- evidence: "
    )  # a block with a slip in its marks would be passed over
    assert evidence.filled(page, results) == page, "run `dpconvex reproduce evidence`"


def test_every_stored_result_is_on_a_page():
    """Growth in rows and columns is measured on demand; what is stored must be shown."""
    pages = "".join((ROOT / name).read_text(encoding="utf-8") for name in evidence.PAGES)
    shown = {found[1] for found in evidence._BLOCK.findall(pages)}
    assert shown == {
        name
        for name in evidence.TABLES
        if (ROOT / evidence.GROWTH).is_file() or "growth" not in name
    }


def test_the_page_of_the_benchmark_has_the_numbers_of_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("dpconvex_reproduction.bench.page.save_figure", lambda *drawn: None)
    monkeypatch.setattr("dpconvex_reproduction.bench.page.made_with", lambda measured: "")
    written = write_page(evidence.load_results(ROOT)["fits"], tmp_path).read_text(encoding="utf-8")
    stored = (
        (ROOT / evidence.BENCH)
        .with_name("index.md")
        .read_text(encoding="utf-8")
        .partition("\n## Not here")[0]
    )
    made = next(
        line for line in stored.splitlines() if line.startswith(("Made at ", "Measured at "))
    )
    assert stored.replace(made, "").split() == written.split(), "run `dpconvex reproduce bench`"


def test_stored_fits_are_of_todays_default_and_of_todays_methods():
    """Numbers of other code would stand under a page of today; peers that are no part of this
    package have none.
    """
    fits = evidence.load_results(ROOT)["fits"]
    known = find_methods()
    codes = {(row["method"], row["code"]) for row in fits}
    wanted = {(name, code_of(*known[name])) for name, _ in codes}
    assert codes == wanted, "run `dpconvex reproduce bench` with these methods"
