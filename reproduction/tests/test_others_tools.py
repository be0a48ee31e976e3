"""Other people's tools on our numbers and fits, the scale model, fingerprints of the default,
figures.
"""

import json
import math
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dpconvex import DPLinearRegression, DPLogisticRegression
from dpconvex.cli import main
from dpconvex.core.calibration import gaussian_mu
from dpconvex.fit.constants import SHARES
from dpconvex_reproduction import canaries, evidence, fingerprint, numbers, scale
from dpconvex_reproduction.drawing import (
    ERRORS,
    MOST_LINES,
    OTHERS,
    OURS,
    WIDEST,
    curves,
    finish,
    panels,
    readable_axis,
    save_figure,
)
from dpconvex_reproduction.pages import markdown_table
from dpconvex_reproduction.peers.environments import PeerEnvironment
from dpconvex_reproduction.progress import shown_progress
from dpconvex_reproduction.runner import Progress, run_studies

DOCS = Path(__file__).parents[2] / "docs"


def test_both_accountants_know_the_gaussian_mechanism_and_half_of_its_noise():
    releases = [(2 / gaussian_mu(1.0, 1e-6), 4)]
    assert numbers.accounting_epsilon(releases) == pytest.approx(1.0, rel=1e-3)
    assert 1.0 < numbers.opendp_epsilon(releases) < 1.15  # zCDP is looser
    assert numbers.accounting_epsilon([(1 / gaussian_mu(1.0, 1e-6), 4)]) > 2


def test_a_certificate_is_worth_what_it_says_and_half_of_its_noise_is_caught():
    only = ((DPLinearRegression, {"target_bounds": (0.0, 1.0)}, ("auto",)),)
    with mock.patch.object(numbers, "_ESTIMATORS", only):
        (line,) = numbers.certificate_numbers()
    assert line["agrees"]
    assert line["half is caught"]
    assert line["dp-accounting"] == pytest.approx(1.0, rel=1e-3)
    assert line["OpenDP"] > line["dp-accounting"]


def test_phases_are_apart():
    model = DPLogisticRegression(
        epsilon=1.0, delta=1e-6, feature_bounds=(0, 1), mechanism="phased-erm"
    )
    lists = numbers._gaussian_releases(model.certify(n_samples=10_000, n_features=5))
    assert len(lists) > 1
    assert all(len(releases) == 1 for releases in lists)


@pytest.mark.slow
def test_every_certificate_agrees(tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "numbers", "--out", str(tmp_path / "numbers.md")])
    assert ended.value.code == 0
    page = (tmp_path / "numbers.md").read_text()
    assert "17 of 22 certificates can be compared: 17 agree to a thousandth" in page
    assert "half of the noise is caught in 17. 5 of objective perturbation cannot (" in page


def test_a_sabotaged_build_draws_less_noise_than_it_states():
    from dpconvex.core.noise_source import NoiseSource

    with canaries.less_noise(0.01):
        quiet = NoiseSource(0).gaussian(1.0, 2000)
    # Six standard deviations of the estimate are 10 % (false alarm 2e-9).
    assert np.std(quiet) == pytest.approx(0.01, rel=0.1)
    assert np.std(NoiseSource(0).gaussian(1.0, 2000)) == pytest.approx(1.0, rel=0.1)


def test_scores_tell_a_sabotaged_build_from_an_honest_one(monkeypatch):
    kind, settings = canaries.CASES["DPLogisticRegression, output"]
    with canaries.less_noise(1e-6):
        inside, outside = canaries.many_fit_scores(kind, settings, 10)
    assert inside.min() > outside.max()
    asked = {}

    def answer(self, worker, arrays, requests):
        asked.update(arrays=arrays, requests=requests)
        assert worker.is_file()
        return {"epsilon": np.array([0.2, 0.0, 3.0, 0.1])}

    monkeypatch.setattr(PeerEnvironment, "python", lambda self: "python")
    monkeypatch.setattr(PeerEnvironment, "ask", answer)
    (row,) = canaries.attack(5, {"output": canaries.CASES["DPLogisticRegression, output"]})
    assert row["claim survives"]
    assert row["sabotage is caught"]
    assert [request["one_run"] for request in asked["requests"]] == [False, True] * 2
    lengths = [
        len(asked["arrays"][request["in"]]) + len(asked["arrays"][request["out"]])
        for request in asked["requests"]
    ]
    assert lengths == [10, 40, 10, 40]


def canary_row(name, many, one):
    found = {"estimator, mechanism": name, "claimed epsilon": 1.0, "sabotaged, many fits": many}
    return {**found, "sabotaged, one fit": one, "sabotage is caught": max(many, one) > 1.0}


def test_an_attack_that_catches_no_sabotage_is_said_to_have_no_power():
    blind = canaries.what_is_caught(
        [canary_row("a", 3.0, 0.0), canary_row("b", 0.9, 0.0), canary_row("c", 0.0, 1.0)]
    )
    assert (
        "With one fit the auditor catches none of 3 sabotaged builds. It has no power at this size"
        in blind
    )
    assert (
        "neither attack in 2 of 3 cases: b; c. There a claim that survives has not been tested."
        in blind
    )
    seeing = canaries.what_is_caught([canary_row("a", 3.0, 0.0), canary_row("b", 0.9, 1.1)])
    assert (
        seeing
        == "With one fit the auditor catches 1 of 2 sabotaged builds. Many fits or one catch "
        "every sabotaged build."
    )


def test_the_canaries_page_has_the_table_and_what_is_caught(tmp_path, monkeypatch):
    rows = [
        {**canary_row("a", 3.0, 0.0), "claim survives": True},
        {**canary_row("b", 0.9, 0.0), "claim survives": True},
    ]
    monkeypatch.setattr(canaries, "attack", lambda runs, cases: rows)
    monkeypatch.setattr(fingerprint, "fingerprint", lambda: "0" * 12)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "canaries", "--out", str(tmp_path / "page.md")])
    assert ended.value.code == 0
    lines = (tmp_path / "page.md").read_text().splitlines()
    table = markdown_table(rows)
    assert lines[lines.index(table[0]) :][: len(table) + 2] == [
        *table,
        "",
        canaries.what_is_caught(rows),
    ]
    assert fingerprint.page_fingerprint("\n".join(lines)) == "0" * 12


@pytest.mark.skipif(not DOCS.is_dir(), reason="the pages are not at hand")
def test_the_stored_page_says_of_its_table_what_is_caught():
    page = (DOCS / "evidence" / "canaries.md").read_text(encoding="utf-8")
    head, _, *lines = [
        line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")
    ]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    assert {row["estimator, mechanism"] for row in rows} == set(canaries.CASES)
    numbers = (
        "claimed epsilon",
        "many fits prove",
        "one fit proves",
        "sabotaged, many fits",
        "sabotaged, one fit",
    )
    for row in rows:
        row |= {name: float(row[name]) for name in numbers}
        row |= {name: row[name] == "yes" for name in ("claim survives", "sabotage is caught")}
        claimed = row["claimed epsilon"]
        honest = numbers[1:3]
        sabotaged = numbers[3:]
        assert row["claim survives"] == (max(row[name] for name in honest) <= claimed)
        assert row["sabotage is caught"] == (max(row[name] for name in sabotaged) > claimed)
    assert canaries.what_is_caught(rows) in page.splitlines()


def test_without_jax_privacy_the_reason_is_given(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "canaries", "--out", str(tmp_path / "page.md")])
    assert ended.value.code == 2
    assert "jax-privacy is not installed" in " ".join(capsys.readouterr().err.split())


def test_a_cluster_is_faster_until_it_waits():
    pace = scale.Pace(0.5, 1e-6)
    passes = {"vector": 20, "second moments": 1}
    minutes = [
        sum(scale.predicted_seconds(pace, passes, 10**9, 100, scale.Cluster(workers)).values())
        for workers in (10, 100, 1000)
    ]
    assert minutes == sorted(minutes, reverse=True)
    parts = scale.predicted_seconds(pace, passes, 10**9, 100, scale.Cluster(10))
    assert parts["reading"] == pytest.approx(10**9 * 100 * 4 / (10 * 2.5e8))
    assert parts["passing"] == pytest.approx(10**9 * 1e-6 / (10 * 8 * 0.6))
    assert parts["waiting"] >= 0.5 + 21 * 0.05


def test_the_scale_page_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "time_fit", lambda name, rows, columns, repeats=3: 0.1 + 1e-6 * rows)
    monkeypatch.setattr(fingerprint, "fingerprint", lambda: "0" * 12)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "scale", "--quick", "--out", str(tmp_path / "scale.md")])
    assert ended.value.code == 0
    page = (tmp_path / "scale.md").read_text()
    assert "measured over predicted is 1.00 to 1.00" in page
    assert page.count("| logistic |") == 5


def test_fits_of_the_fingerprint_repeat_and_a_change_of_the_default_is_seen():
    first = fingerprint.default_fits()
    assert fingerprint.agree(first, fingerprint.default_fits())
    with mock.patch.dict(SHARES, columns=2 * SHARES["columns"]):
        changed = fingerprint.default_fits()
    assert not fingerprint.agree(first, changed)
    assert fingerprint._digest(first) != fingerprint._digest(changed)


def test_pages_that_are_older_than_the_default_are_listed(tmp_path, monkeypatch, capsys):
    stored = json.loads(fingerprint.STORED.read_text())["fingerprint"]
    monkeypatch.setattr(fingerprint, "fingerprint", lambda: stored)
    new, old = (
        f"# page\n\n{fingerprint.made_with()}\n",
        "Made long ago, fingerprint of the default 000000000000.\n",
    )
    pages = {
        "new.md": new,
        "old.md": old,
        "older.md": "# page\n",
        "index.md": "# all pages\n",
        "a/index.md": new,
        "b/index.md": old,
        "c/index.md": "# numbers\n",
    }
    for folder in ("pages", "evidence"):
        for name, text in pages.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(text)
    assert fingerprint.stale_pages(tmp_path / "pages") == [
        "b/index.md",
        "c/index.md",
        "old.md",
        "older.md",
    ]
    (tmp_path / "pages" / "index.md").write_text(old)
    assert (
        fingerprint.stale_pages(tmp_path / "pages")[2] == "index.md"
    )  # a mark must be today's even where none need be
    (tmp_path / "evidence" / "index.md").write_text(
        "Pages name the fingerprint of the default they were made with.\n"
    )
    (tmp_path / "evidence" / "cost.md").write_text("# page\n")
    (tmp_path / "evidence" / "scale.md").write_text(old)
    assert fingerprint.stale_pages(tmp_path / "evidence") == [
        "b/index.md",
        "c/index.md",
        "old.md",
        "older.md",
        "scale.md",
    ]
    fingerprint.main([str(tmp_path / "pages"), str(tmp_path / "evidence")])
    assert "10 pages are older than the default." in capsys.readouterr().out


def test_the_stored_fingerprint_is_that_of_the_code():
    """Refresh with `python -m dpconvex_reproduction fingerprint --write`, and run the pages that
    are then listed.
    """
    stored = json.loads(fingerprint.STORED.read_text())
    assert fingerprint.agree(stored["fits"], fingerprint.default_fits())
    assert stored["fingerprint"] == fingerprint._digest(stored["fits"])


@pytest.mark.skipif(not DOCS.is_dir(), reason="the pages are not at hand")
@pytest.mark.parametrize("folder", ["reproduction", "evidence"])
def test_no_page_is_older_than_the_default(folder):
    assert fingerprint.stale_pages(DOCS / folder) == [], "run these pages again"


@pytest.mark.skipif(not DOCS.is_dir(), reason="the pages are not at hand")
def test_pages_without_a_fingerprint_have_stored_tables_or_no_numbers():
    compared = {Path(page).name for page in evidence.PAGES if page.startswith("docs/evidence/")}
    assert set(fingerprint.WITHOUT_MARK["evidence"]) == {"index.md", "papers.md"} | compared
    assert all(
        (DOCS / "evidence" / name).is_file() for name in fingerprint.WITHOUT_MARK["evidence"]
    )


def runs_of(algorithm, variant, level):
    return [
        {"algorithm": algorithm, "variant": variant, "n": n, "loss": level / n}
        for n in (10, 100, 1000)
        for _ in range(2)
    ]


def test_ours_has_a_colour_of_its_own_and_names_stand_at_the_ends():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    assert OURS not in OTHERS
    rows = [
        *runs_of("theirs", "paper", 1.0),
        *runs_of("theirs", "sound", 1.0),
        *runs_of("model", "dpconvex", 1.0),
    ]
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = panels(figure, 2)
    for ax in axes.flat:
        curves(ax, rows, "n", "loss")
        ax.set(xscale="log", yscale="log")
    finish(figure, axes)
    lines = axes[0, 0].get_lines()
    assert [line.get_color() == OURS for line in lines] == [False, False, True]
    assert len({line.get_marker() for line in lines}) == 3
    first, second, ours = ((line.get_zorder(), -line.get_linewidth()) for line in lines)
    assert ours < first < second  # the lower, the thicker: equal lines do not hide each other
    names = [text for text in axes[0, 1].texts if text.get_text()]
    assert {text.get_text() for text in names} == {"theirs, paper", "theirs, sound", "model"}
    heights = sorted(text.xy[1] for text in names)
    assert all(b - a > 0.01 for a, b in pairwise(heights))
    assert not figure.legends
    figure.canvas.draw()
    assert "100" in [label.get_text() for label in axes[0, 0].get_xticklabels()]


def test_many_lines_have_a_legend():
    from matplotlib.figure import Figure

    figure = Figure()
    axes = panels(figure, 1)
    curves(
        axes[0, 0],
        [row for k in range(MOST_LINES + 2) for row in runs_of(f"a{k}", "paper", 1.0)],
        "n",
        "loss",
    )
    finish(figure, axes)
    assert figure.legends


def test_a_band_on_a_logarithmic_axis_stays_above_0_and_says_what_it_is():
    from matplotlib.figure import Figure

    rows = [
        {"algorithm": "a", "variant": "paper", "n": n, "loss": loss}
        for n in (10, 100)
        for loss in (0.0, 1.0)
    ]
    figure = Figure()
    axes = panels(figure, 1)
    axes[0, 0].set(xscale="log", yscale="log")
    curves(axes[0, 0], rows, "n", "loss")  # mean and standard error are equal
    assert axes[0, 0].collections[0].get_paths()[0].vertices[:, 1].min() > 0
    finish(figure, axes, note=ERRORS)
    assert ERRORS in [text.get_text() for text in figure.texts]
    assert figure.get_size_inches()[0] <= WIDEST


def test_lines_of_one_kind_differ_and_ends_out_of_sight_have_arrows():
    from matplotlib.figure import Figure

    rows = [
        row
        for name in ("one", "two")
        for kind in ("dpconvex", "not private")
        for row in runs_of(name, kind, 1.0)
    ]
    rows += [row for name in ("a", "b") for row in runs_of(name, "sound", 1.0)]
    figure = Figure()
    axes = panels(figure, 4)
    for ax in axes.flat:
        ax.set_yscale("log")
        curves(ax, rows, "n", "loss")
        readable_axis(ax, (10, 11, 100_000), "n")
    axes[0, -1].set_ylim(0.01, 1)
    finish(figure, axes)
    dashes = [
        (line.get_color(), str(line._unscaled_dash_pattern)) for line in axes[0, 0].get_lines()
    ]
    assert len(set(dashes)) == len(dashes)
    assert len({pattern for _, pattern in dashes}) == len(
        dashes
    )  # equal dashes begin at different places
    assert all(text.get_text().endswith(" ↓") for text in axes[0, -1].texts)
    assert [label.get_text() for label in axes[0, 0].get_xticklabels()] == ["10", "", "100k"]
    assert figure.get_size_inches()[0] == pytest.approx(WIDEST)


def test_a_first_colour_by_number_is_no_blue(tmp_path):
    seen = []
    save_figure(
        tmp_path / "figure.png",
        lambda figure: seen.append(figure.subplots().plot([0, 1], "C0-")[0]),
    )
    from matplotlib.colors import to_hex

    assert to_hex(seen[0].get_color()) == OTHERS[0]


def noisy_cell(cell):
    import warnings

    sum(range(3_000_000))  # a few hundredths of a second, which processor times show
    warnings.warn(
        f"above 1/n = {1 / (100 * (cell['k'] + 1)):.2g}: the same for every cell",
        UserWarning,
        stacklevel=1,
    )
    return [{"k": cell["k"]}]


def test_a_log_says_what_is_done_and_left_and_each_warning_once(tmp_path, monkeypatch, capsys):
    from dpconvex_reproduction.exhibit import Study
    from dpconvex_reproduction.runner import _measure

    rows, seconds, failure, said = _measure(noisy_cell, {"k": 1})
    assert (rows, failure, said) == (
        [{"k": 1}],
        "",
        ["UserWarning: above 1/n = 0.005: the same for every cell"],
    )
    assert 0 < seconds < 60
    study = Study("bench", lambda quick: [{"k": k} for k in range(3)], noisy_cell)

    def here(batch, workers, end):
        for each, cell in batch:
            end(each, cell, _measure(each.measure, cell))

    monkeypatch.setattr("dpconvex_reproduction.runner._run_batch", here)
    with shown_progress() as report:
        results = run_studies([study], tmp_path, report=report)
    printed = capsys.readouterr().err
    assert printed.count("the same for every cell") == 1
    assert "3 of 3 cells (100 %)" in printed
    assert "bench: 3 of 3" in printed
    # The numbers in a warning do not make it another one.
    assert results.warnings == {"UserWarning: above 1/n = 0.01: the same for every cell": 3}


def test_progress_estimates_what_is_left():
    assert "about 4 left" in Progress(3, 12, "peers/svm", 1, 4, 90.0, 270.0).words()


def test_tables_of_markdown_have_every_key():
    assert markdown_table([{"a": 1.0}, {"b": math.nan}]) == [
        "| a | b |",
        "|---|---|",
        "| 1 |  |",
        "|  |  |",
    ]
