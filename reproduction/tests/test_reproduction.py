"""The runner resumes, survives failing cells and runs each study once; pages say what was found."""

import lzma
import os
import re
import shutil
from dataclasses import replace

import pytest

from dpconvex.inputs import InputError
from dpconvex_reproduction.exhibit import Check, Exhibit, Study, select, summarise
from dpconvex_reproduction.pages import Outcome, known_outcomes, write_exhibit, write_index
from dpconvex_reproduction.runner import (
    Results,
    Work,
    _costs,
    _kind,
    _measure,
    affordable,
    cheap,
    run_studies,
)


def cells(quick):
    return [{"n": n, "seed": seed} for n in (10, 20) for seed in range(2 if quick else 4)]


def measure(cell):
    if cell["seed"] == 3 and os.environ.get("FAIL_THE_LAST_SEED"):
        raise ValueError("no luck")
    return [{**cell, "algorithm": "mean", "variant": "paper", "risk": cell["seed"] / cell["n"]}]


STUDY = Study("toy/means", cells, measure)
NEEDS_DATA = Study("toy/data", cells, measure, data=("a9a.npz",))


@pytest.fixture
def here(monkeypatch):
    """Measure in this process and in the order of the cells."""

    def run(batch, workers, end):
        for study, cell in batch:
            end(study, cell, _measure(study.measure, cell))

    monkeypatch.setattr("dpconvex_reproduction.runner._run_batch", run)


def exhibit(study=STUDY, draw=None):
    return Exhibit(
        paper="toy",
        label="Figure 1",
        title="means",
        claim="Risk falls with n (section 0).",
        studies=(study,),
        table=lambda rows: summarise(rows, ["n", "algorithm", "variant"], "risk"),
        judge=lambda rows: [
            Check("falls", True, "because"),
            Check("a pipe | in a text", False, "0 of 1"),
            Check("ours", True, "yes", about="dpconvex"),
        ],
        draw=draw,
    )


def test_a_full_run_goes_on_from_a_quick_one(tmp_path):
    seen = []
    quick = run_studies([STUDY, STUDY], tmp_path, quick=True, jobs=2, report=seen.append)
    assert len(quick.rows["toy/means"]) == 4
    assert [p.done for p in seen] == [1, 2, 3, 4]
    seen.clear()
    full = run_studies([STUDY], tmp_path, jobs=1, report=seen.append)
    assert [(p.done, p.total) for p in seen] == [(5, 8), (6, 8), (7, 8), (8, 8)]
    assert [row["seed"] for row in select(full.rows["toy/means"], n=20)] == [0, 1, 2, 3]
    again = run_studies([STUDY], tmp_path, quick=True, jobs=1)  # what is known is not shown in part
    assert again.rows == full.rows


@pytest.mark.parametrize("of_default", [True, False])
def test_cells_of_another_default_are_run_again(of_default, tmp_path, monkeypatch):
    """A page of today has no number of yesterday's default; cells that name their own code are
    kept.
    """
    study = replace(STUDY, of_default=of_default)
    run_studies([study], tmp_path, quick=True, jobs=1)
    other = tmp_path / "fingerprint.json"
    other.write_text('{"fingerprint": "another"}', encoding="utf-8")
    monkeypatch.setattr("dpconvex_reproduction.runner.STORED", other)
    ran = []
    run_studies([study], tmp_path, quick=True, jobs=1, report=ran.append)
    assert len(ran) == (4 if of_default else 0)


def test_equal_cells_are_run_once(tmp_path, here):
    twice = replace(STUDY, cells=lambda quick: cells(quick) + cells(quick))
    seen = []
    results = run_studies([twice], tmp_path, report=seen.append)
    assert (seen[-1].done, seen[-1].total) == (8, 8)
    assert len(results.rows[STUDY.name]) == results.work[STUDY.name].full == 8


def test_a_data_set_that_is_named_twice_is_compared_once(monkeypatch, capsys):
    from dpconvex_reproduction.bench.command import main

    def refuse(plan):
        raise ValueError(f"Only {plan.data}.")

    monkeypatch.setattr("dpconvex_reproduction.bench.run.study", refuse)
    with pytest.raises(SystemExit):
        main(["toy", "toy"])
    assert "Only ('toy',)." in capsys.readouterr().err


def test_a_failing_cell_is_reported_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIL_THE_LAST_SEED", "1")
    failed = run_studies([STUDY], tmp_path, jobs=1)
    assert len(failed.failures["toy/means"]) == 2
    assert len(failed.rows["toy/means"]) == 6
    outcome = write_exhibit(exhibit(), failed, tmp_path)
    assert outcome.verdict == "matches in part"
    assert "2 cells failed" in (tmp_path / "toy/figure-1.md").read_text()
    monkeypatch.delenv("FAIL_THE_LAST_SEED")
    assert not run_studies([STUDY], tmp_path, jobs=1).failures


def test_a_killed_run_leaves_a_readable_store(tmp_path):
    run_studies([STUDY], tmp_path, quick=True, jobs=1)
    store = tmp_path / "toy--means.jsonl"
    store.write_text(store.read_text()[:-20])
    seen = []
    results = run_studies([STUDY], tmp_path, quick=True, jobs=1, report=seen.append)
    assert len(seen) == 1
    assert len(results.rows["toy/means"]) == 4
    run_studies(
        [STUDY], tmp_path, quick=True, jobs=1, report=seen.append
    )  # what followed the half line is readable
    assert len(seen) == 1


def test_another_machine_goes_on_with_packed_cells(tmp_path, monkeypatch):
    here = tmp_path / "here"
    there = tmp_path / "there"
    packed = tmp_path / "pages" / "cells"
    monkeypatch.setattr("dpconvex_reproduction.runner.now", lambda: "commit first on Monday")
    quick = run_studies([STUDY], here, quick=True, jobs=1, packed=packed)
    (file,) = packed.iterdir()
    before = file.read_bytes()
    monkeypatch.setattr("dpconvex_reproduction.runner.now", lambda: "commit second on Tuesday")
    seen = []
    again = run_studies([STUDY], there, quick=True, jobs=1, packed=packed, report=seen.append)
    assert not seen
    assert again.rows == quick.rows
    assert file.read_bytes() == before
    full = run_studies([STUDY], there, jobs=1, packed=packed, report=seen.append)
    assert len(seen) == 4
    assert full.measured == {"toy/means": {"commit first on Monday", "commit second on Tuesday"}}
    write_exhibit(exhibit(), full, tmp_path / "pages")
    page = (tmp_path / "pages/toy/figure-1.md").read_text()
    assert "Measured at commit first on Monday, commit second on Tuesday. Made at " in page
    assert "Single runs: [toy--means.jsonl.xz](../cells/toy--means.jsonl.xz)." in page
    run_studies([STUDY], there, quick=True, jobs=1, packed=packed, fresh=True, report=seen.append)
    assert len(seen) == 8


@pytest.mark.parametrize("left", [b"", b"version https://git-lfs.github.com/spec/v1\n", None])
def test_a_damaged_packed_file_is_named(left, tmp_path, here):
    run_studies([STUDY], tmp_path / "here", packed=tmp_path)
    file = tmp_path / "toy--means.jsonl.xz"
    file.write_bytes(file.read_bytes()[:-9] if left is None else left)
    with pytest.raises(InputError, match=r"toy--means\.jsonl\.xz .* delete it"):
        run_studies([STUDY], tmp_path / "there", packed=tmp_path)
    file.unlink()
    assert len(run_studies([STUDY], tmp_path / "there", packed=tmp_path).rows[STUDY.name]) == 8


def test_a_run_that_is_killed_while_it_packs_leaves_what_was_packed(tmp_path, here, monkeypatch):
    def full_disk(draft, target):
        raise OSError(28, "No space left on device")

    run_studies([STUDY], tmp_path / "here", quick=True, packed=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full_disk)
        with pytest.raises(OSError, match="No space"):
            run_studies([STUDY], tmp_path / "here", packed=tmp_path)
    seen = []
    run_studies([STUDY], tmp_path / "there", quick=True, packed=tmp_path, report=seen.append)
    assert not seen


def test_packed_cells_of_other_code_stay_until_as_many_are_done(tmp_path, here, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.done == 3:
            raise Stopped

    def go(**options):
        run_studies([STUDY], tmp_path / "runs", packed=tmp_path, **options)
        return file.read_bytes()

    file = tmp_path / "toy--means.jsonl.xz"
    before = go()
    other = tmp_path / "fingerprint.json"
    other.write_text('{"fingerprint": "another"}', encoding="utf-8")
    monkeypatch.setattr("dpconvex_reproduction.runner.STORED", other)
    with pytest.raises(Stopped):
        go(report=stop)
    assert go(quick=True) == before
    after = go()
    assert len(lzma.decompress(after).splitlines()) == 8
    assert after != before


def test_measured_times_stay_on_their_machine(tmp_path, here):
    """Else ours and a rival's times, which a page divides, would come from two machines."""
    timed = replace(STUDY, timed=True)
    packed = tmp_path / "pages/cells"
    run_studies([timed], tmp_path / "here", packed=packed)
    assert not packed.exists()
    run_studies([STUDY], tmp_path / "here", packed=packed)
    assert len(list(packed.iterdir())) == 1
    seen = []
    results = run_studies([timed], tmp_path / "there", packed=packed, report=seen.append)
    assert len(seen) == 8
    write_exhibit(exhibit(timed), results, tmp_path / "pages")
    assert "Single runs" not in (tmp_path / "pages/toy/figure-1.md").read_text()


def test_what_an_interrupted_full_run_did_is_shown(tmp_path):
    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.done == 6:
            raise Stopped

    with pytest.raises(Stopped):
        run_studies([STUDY], tmp_path, jobs=1, report=stop)
    quick = run_studies([STUDY], tmp_path, quick=True, jobs=1)
    assert quick.work["toy/means"].done > 4
    assert len(quick.rows["toy/means"]) == quick.work["toy/means"].done


def test_cells_that_differ_in_their_seeds_alone_cost_the_same():
    cells = [{"n": n, "seeds": [k, k + 1]} for n in (10, 1000) for k in range(10)]
    done = [
        {"cell": cells[0], "seconds": 1.0},
        {"cell": cells[1], "seconds": 3.0},
        {"cell": cells[10], "seconds": 50.0},
    ]
    assert _costs(done, cells) == 10 * 2.0 + 10 * 50.0
    assert _costs(done, [{"n": 7}]) == 18.0  # nothing of its kind: the mean
    assert _costs([], cells) == 0.0


@pytest.mark.parametrize("name", ["auc-erm/objective", "peers/logistic", "quantile-sco/times"])
def test_a_full_run_has_more_repeats_and_no_other_kinds_of_cells(name):
    from dpconvex_reproduction.catalogue import find

    study = next(
        study
        for exhibit in find(name.partition("/")[0])
        for study in exhibit.studies
        if study.name == name
    )
    quick, full = ({_kind(cell) for cell in study.cells(part)} for part in (True, False))
    assert quick == full


def test_a_study_is_packed_as_soon_as_it_ends(tmp_path):
    """A machine that goes away in the middle of a run takes only the studies under way with it."""
    later = replace(STUDY, name="toy/later")
    packed = tmp_path / "cells"
    ended = set()
    seen = []

    def look(progress):
        if progress.study_done == progress.study_total:
            ended.add(progress.study.replace("/", "--") + ".jsonl.xz")
        seen.append({file.name for file in packed.glob("*")} == ended)

    run_studies([STUDY, later], tmp_path / "runs", quick=True, jobs=1, packed=packed, report=look)
    assert seen == 8 * [True]
    assert len(ended) == 2


def test_missing_data_are_named_on_the_page(tmp_path, monkeypatch):
    monkeypatch.delenv("DPCONVEX_DATA", raising=False)
    results = run_studies([NEEDS_DATA], tmp_path, quick=True)
    outcome = write_exhibit(exhibit(NEEDS_DATA), results, tmp_path)
    assert outcome.verdict == "not run"
    assert "DPCONVEX_DATA" in (tmp_path / "toy/figure-1.md").read_text()


def test_pages_hold_claim_numbers_and_verdict(tmp_path):
    from dpconvex_reproduction.drawing import curves, finish, panels

    def draw(rows, figure):
        axes = panels(figure, 1)
        curves(axes[0, 0], rows, "n", "risk")
        finish(figure, axes)

    results = run_studies([STUDY], tmp_path / "runs", quick=True, jobs=1)
    outcome = write_exhibit(exhibit(draw=draw), results, tmp_path)
    page = (tmp_path / "toy/figure-1.md").read_text()
    assert "Risk falls with n" in page
    assert "a pipe \\| in a text" in page
    assert "| 10 | mean | paper | 0.05 |" in page
    assert (tmp_path / "toy/figure-1.png").stat().st_size > 1000
    lines = (tmp_path / "toy/figure-1.csv").read_text().splitlines()
    assert lines[0] == "n,algorithm,variant,risk,std,error,repeats"
    index = write_index([outcome], tmp_path).read_text()
    line = (
        "| [Figure 1](toy/figure-1.md) | means | matches in part | 1 of 2 | 1 of 1 | 50% | 1 s "
        "of one core |"
    )
    assert line in index
    assert (
        "Not run: Table 1 (formulas of kernels) and Table 3 (notation) of quantile-sco; " in index
    )
    # A later run of something else keeps what stands there.
    other = Outcome(
        replace(outcome.exhibit, paper="other"), "matches", outcome.checks, Work(8, 8, 600.0, 600.0)
    )
    index = write_index([other], tmp_path).read_text()
    assert line in index
    other = (
        "| [Figure 1](other/figure-1.md) | means | matches | 1 of 2 | 1 of 1 | all | 10 "
        "minutes of one core |"
    )
    assert other in index


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        (
            ("sound", "dpconvex", "paper"),
            "Lines: dotted is `paper`, dashed is `sound`, thick and blue is `dpconvex`.",
        ),
        (("paper",), None),
        (("dpconvex", "not private"), None),
    ],
)
def test_pages_say_what_the_styles_of_lines_mean(variants, words, tmp_path):
    from dpconvex_reproduction.drawing import curves, finish, panels

    def draw(rows, figure):
        axes = panels(figure, 2)
        for ax in axes[0]:
            curves(ax, [{**row, "variant": name} for row in rows for name in variants], "n", "risk")
        finish(figure, axes)

    results = run_studies([STUDY], tmp_path / "runs", quick=True, jobs=1)
    write_exhibit(exhibit(draw=draw), results, tmp_path)
    page = (tmp_path / "toy/figure-1.md").read_text()
    if words is None:
        assert "Lines: " not in page
    else:
        assert f"(figure-1.png)\n\n{words}\n" in page


def test_pages_and_index_name_the_paper_they_run(tmp_path):
    from dpconvex_reproduction.catalogue import PAPERS, TITLES

    assert TITLES.keys() == PAPERS.keys() - {"peers"}
    results = run_studies([STUDY], tmp_path / "runs", quick=True, jobs=1)
    outcomes = [
        write_exhibit(replace(exhibit(), paper=paper), results, tmp_path) for paper in PAPERS
    ]
    index = write_index(outcomes, tmp_path).read_text()
    for paper, (authors, title) in TITLES.items():
        head = (tmp_path / paper / "figure-1.md").read_text().splitlines()[:3]
        assert head == [f"# {paper}, Figure 1: means", "", f"Paper: *{title}*, {authors}."]
        assert f"## {paper}\n\n*{title}*, {authors}.\n\n|" in index
    assert (tmp_path / "peers" / "figure-1.md").read_text().splitlines()[
        2
    ] == "Risk falls with n (section 0)."
    assert "## peers\n\n|" in index


def test_the_index_goes_where_the_pages_go(tmp_path):
    first, later = (
        Outcome(replace(exhibit(), paper=paper), "matches") for paper in ("first", "later")
    )
    pages = tmp_path / "pages"
    clone = tmp_path / "clone"
    write_index([first], pages)
    assert {file.name for file in pages.iterdir()} == {"index.md", "cells"}
    shutil.copytree(pages, clone)
    assert "(first/figure-1.md)" in write_index([later], clone).read_text()
    # Older runs kept it with cells that are not copied.
    (pages / "runs").mkdir()
    (pages / "cells/index.json").rename(pages / "runs/index.json")
    assert "(first/figure-1.md)" in write_index([later], pages).read_text()
    (pages / "runs/index.json").unlink()
    assert known_outcomes(pages).keys() == {"first/figure-1", "later/figure-1"}


def test_studies_that_are_affordable_are_run_in_full(tmp_path):
    cheap = replace(STUDY, name="toy/cheap")
    dear = replace(STUDY, name="toy/dear")
    quick = run_studies([cheap, dear], tmp_path, quick=True, jobs=1)
    assert {name: (work.done, work.full) for name, work in quick.work.items()} == {
        "toy/cheap": (4, 8),
        "toy/dear": (4, 8),
    }
    work = {"toy/cheap": Work(4, 8, 5.0, 10.0), "toy/dear": Work(4, 8, 50.0, 100.0)}
    apart = [["toy/cheap"], ["toy/dear"], ["toy/dear"]]
    assert affordable(work, apart, 109.0) == {"toy/cheap"}
    assert affordable(work, apart, 110.0) == set(work)
    # What is done counts: the aim is the same after an interruption.
    assert affordable({**work, "toy/cheap": Work(8, 8, 10.0, 10.0)}, apart, 109.0) == {"toy/cheap"}
    # What never ended in a row cannot be judged.
    assert affordable({"toy/failed": Work(0, 8, 0.0, 0.0)}, [["toy/failed"]], 1.0) == set()
    results = run_studies([cheap, dear], tmp_path, quick=True, jobs=1, full={"toy/cheap"})
    assert [results.work[study.name].done for study in (cheap, dear)] == [8, 4]


def test_studies_of_one_exhibit_are_run_in_full_together_or_not():
    work = {"a": Work(4, 8, 5.0, 10.0), "b": Work(4, 8, 30.0, 55.0), "c": Work(0, 8)}
    assert cheap(work, [["a", "b"]]) == set()
    assert cheap(work, [["a"], ["a", "b"]]) == {"a"}
    assert cheap(work, [["a", "b"]], 65.0) == {"a", "b"}
    assert affordable(work, [["a", "b"]], 64.0) == set()
    assert affordable(work, [["a"], ["a", "b"]], 65.0) == {"a", "b"}  # the first counts once
    assert affordable(work, [["a", "c"]], 1000.0) == set()
    assert affordable(work, [["a", "skipped"]], 1000.0) == set()


def test_an_exhibit_compares_studies_with_the_same_repeats(tmp_path, here):
    """One study was run in full for another page, or by a run that was interrupted before it
    came to the other.
    """
    ours = STUDY
    rival = replace(STUDY, name="toy/rival")
    both = replace(exhibit(), label="Figure 2", studies=(ours, rival))
    results = run_studies([ours, rival], tmp_path / "runs", quick=True, full={ours.name})
    assert results.work[ours.name].done == 8
    alone, together = (write_exhibit(each, results, tmp_path) for each in (exhibit(), both))
    assert (alone.work.done, alone.work.full) == (8, 8)
    assert (together.work.done, together.work.full) == (8, 16)
    assert (
        "| 20 | mean | paper | 0.025 | 0.02887 | 0.01443 | 4 |"
        in (tmp_path / "toy/figure-2.md").read_text()
    )
    results = run_studies([ours, rival], tmp_path / "runs")
    assert write_exhibit(both, results, tmp_path).work.done == 16


def test_cells_that_failed_do_not_hide_those_that_ended(tmp_path, here, monkeypatch):
    monkeypatch.setenv("FAIL_THE_LAST_SEED", "1")
    both = replace(exhibit(), studies=(STUDY, replace(STUDY, name="toy/rival")))
    outcome = write_exhibit(both, run_studies(both.studies, tmp_path / "runs"), tmp_path)
    assert outcome.work.done == 12


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (Work(4, 8, 100.0, 240.0), "4 of 8 cells in 2 minutes of one core.*about 4 minutes of"),
        (Work(1, 1, 3.0, 3.0), "^A full run: 1 cell, 3 s of one core.$"),
    ],
)
def test_pages_say_what_a_full_run_takes(work, words, tmp_path):
    rows = [{"n": 10, "algorithm": "mean", "variant": "paper", "risk": 0.1}]
    results = Results({STUDY.name: rows}, {}, {}, {STUDY.name: work})
    write_exhibit(exhibit(), results, tmp_path)
    assert re.search(words, (tmp_path / "toy/figure-1.md").read_text(), re.M)


def test_means_leave_out_what_failed():
    rows = [{"n": 1, "risk": 1.0}, {"n": 1, "risk": float("nan")}, {"n": 1}]
    (line,) = summarise(rows, ["n"], "risk")
    assert (line["risk"], line["repeats"], line["failed"]) == (1.0, 1, 1)


def test_numbered_tables_and_figures_are_run_or_named_as_left_out():
    """Of every paper the numbers from 1 on have no gap and none is on both lists."""
    from dpconvex_reproduction.catalogue import LEFT_OUT, PAPERS, exhibits

    for paper in PAPERS:
        labels = [exhibit.label for exhibit in exhibits(paper)] + list(LEFT_OUT.get(paper, ()))
        for kind in ("Figure", "Table"):
            numbers = sorted(
                int(label.split()[1]) for label in labels if re.fullmatch(f"{kind} [0-9]+", label)
            )
            assert numbers == list(range(1, len(numbers) + 1)), (paper, kind)


def test_unknown_names_list_the_known():
    from dpconvex_reproduction.catalogue import find

    with pytest.raises(ValueError, match="There are: all, quantile-sco"):
        find("nothing")
