"""Write an exhibit: its numbers as CSV, its figure, a page with the verdict; and the index of
all of them.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpconvex_reproduction.catalogue import cited, left_out_in_words
from dpconvex_reproduction.drawing import save_figure
from dpconvex_reproduction.exhibit import Check, Exhibit, Row
from dpconvex_reproduction.fingerprint import made_with
from dpconvex_reproduction.outputs import INDEX_TITLE, write_output
from dpconvex_reproduction.runner import Results, Work
from dpconvex_reproduction.standing import LEGEND

__all__ = [
    "Outcome",
    "exhibit_files",
    "index_files",
    "known_outcomes",
    "markdown_table",
    "write_exhibit",
    "write_index",
]

#: The lines of the index, beside the packed cells: they go where the pages go.
_MEMORY = Path("cells") / "index.json"


@dataclass(frozen=True)
class Outcome:
    """What became of an exhibit: the verdict's words, its checks, and why it was not run if it
    was not.
    """

    exhibit: Exhibit
    verdict: str
    checks: tuple[Check, ...] = ()
    work: Work = field(default_factory=Work)
    reason: str = ""

    def share(self, about: str) -> str:
        """Return how many checks hold, e.g. ``"3 of 4"``; empty without checks."""
        counted = [check for check in self.checks if check.about == about]
        return f"{sum(check.holds for check in counted)} of {len(counted)}" if counted else ""


def _verdict(checks: Sequence[Check]) -> str:
    claims = [check.holds for check in checks if check.about == "paper"]
    if not claims:
        return "measured"
    if all(claims):
        return "matches"
    return "matches in part" if any(claims) else "does not match"


def _verdict_in_words(outcome: Outcome) -> str:
    """Return whose statements were compared with the numbers, and how many hold."""
    paper = outcome.share("paper")
    ours = outcome.share("dpconvex")
    if paper:
        return f"{paper} claims of the paper hold in these numbers" + (
            f", and {ours} statements of ours." if ours else "."
        )
    return (
        f"No paper claims anything of it; {ours} statements of ours hold in these numbers."
        if ours
        else ""
    )


_VARIANTS = {
    "paper": "what the paper prints",
    "sound": "the same algorithm with noise that a proof covers",
    "dpconvex": "our default",
    "not private": "a fit without noise",
}
_MEASURES = {
    "std": "the standard deviation of single runs",
    "error": "the standard error of the mean",
    "low": "the lower end of a 95 % interval for the mean",
    "high": "its upper end",
}


def _columns_in_words(table: Sequence[Row]) -> str:
    """Return what the variants and the measures of a table are."""
    names = set(_columns(table))
    said = [f"`{name}` is {words}" for name, words in _MEASURES.items() if name in names]
    if any(name.startswith("± ") for name in names):
        said.append("`±` is the standard error of the mean before it")
    found = {row.get("variant") for row in table}
    if found & {"paper", "sound"}:
        said = [f"`{name}` is {words}" for name, words in _VARIANTS.items() if name in found] + said
    text = ", ".join(said)
    return text[:1].upper() + text[1:] + "." if text else ""


def _word(value: Any) -> str:
    """Return a number or a text for a cell of a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return every key, without those that say nothing: no cell failed."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    return [n for n in names if not (n == "failed" and not any(row.get(n) for row in rows))]


def markdown_table(rows: Sequence[Row], shown: int | None = None) -> list[str]:
    """Return a table of rows, as lines of Markdown."""
    if not rows:
        return ["(no rows)"]
    names = _columns(rows)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_word(row.get(n)) for n in names) + " |" for row in rows[:shown]]
    return lines


def write_exhibit(exhibit: Exhibit, results: Results, folder: Path) -> Outcome:
    """Write ``<slug>.csv``, ``<slug>.png`` and ``<slug>.md`` into the paper's folder.

    Parameters
    ----------
    exhibit : Exhibit
        What to write.
    results : Results
        Rows of its studies; of several, those of a quick run alone unless all were run in full.
    folder : Path
        Root of all pages.

    Returns
    -------
    Outcome
        For the index.
    """
    place = folder / exhibit.paper
    page = place / f"{exhibit.slug}.md"
    names = [study.name for study in exhibit.studies]
    results = results.together(names)
    made = made_with(sorted(set().union(*(results.measured.get(name, ()) for name in names))))
    source = [f"Paper: {words}", ""] if (words := cited(exhibit.paper)) else []
    head = [
        f"# {exhibit.paper}, {exhibit.label}: {exhibit.title}",
        "",
        *source,
        exhibit.claim,
        "",
        made,
        "",
    ]
    missing = [results.skipped[name] for name in names if name in results.skipped]
    rows = [row for name in names for row in results.rows.get(name, [])]
    failures = [message for name in names for message in results.failures.get(name, [])]
    if missing or (not rows and exhibit.studies):
        verdict = "not run"
        reason = missing[0] if missing else "Every cell failed."
        _write_page(page, [*head, f"**Not run.** {reason}", *_failed(failures)])
        return Outcome(exhibit, verdict, reason=reason)
    table = exhibit.table(rows)
    checks = tuple(exhibit.judge(rows))
    verdict = _verdict(checks)
    outcome = Outcome(exhibit, verdict, checks, sum((results.work[name] for name in names), Work()))
    lines = [*head, f"**Verdict: {verdict}.** {_verdict_in_words(outcome)}".rstrip(), ""]
    if checks:
        lines += markdown_table(
            [
                {
                    "whose claim": check.about,
                    "statement": check.statement,
                    "holds": check.holds,
                    "evidence": check.evidence,
                }
                for check in checks
            ]
        )
        lines.append("")
        if any(" of " in check.evidence and "ratio of means" in check.evidence for check in checks):
            lines += [LEGEND, ""]
    if exhibit.draw is not None:
        draw = exhibit.draw
        styles = save_figure(place / f"{exhibit.slug}.png", lambda figure: draw(rows, figure))
        lines += [f"![{exhibit.label}: {exhibit.title}]({exhibit.slug}.png)", ""]
        lines += [styles, ""] if styles else []
    if exhibit.privacy is not None:
        lines += ["## Privacy", ""]
        lines += markdown_table([vars(line) for line in exhibit.privacy()])
        lines.append("")
    if exhibit.notes:
        lines += ["## How it was run", "", exhibit.notes, ""]
    lines += ["## Numbers", ""]
    if exhibit.studies:
        lines += [_repeats_in_words(outcome.work), ""]
    if explained := _columns_in_words(table):
        lines += [explained, ""]
    lines += [*markdown_table(table, exhibit.shown), ""]
    more = len(table) - exhibit.shown
    rest = f" ({more} more lines there)" if more > 0 else ""
    kept = _cells_kept([study.name for study in exhibit.studies if not study.timed], folder)
    lines += [f"All of them: [{exhibit.slug}.csv]({exhibit.slug}.csv){rest}.{kept}"]
    lines += _failed(failures)
    # The page first: a table beside it is thereby known to be ours.
    _write_page(page, ["\n".join(lines).rstrip(), ""])
    write_output(place / f"{exhibit.slug}.csv", _csv_content(table))
    return outcome


def exhibit_files(exhibit: Exhibit, folder: Path) -> list[Path]:
    """Return the files that :func:`write_exhibit` may write.

    Parameters
    ----------
    exhibit : Exhibit
        What to write.
    folder : Path
        Root of all pages.
    """
    endings = ("md", "csv", *(() if exhibit.draw is None else ("png",)))
    return [folder / exhibit.paper / f"{exhibit.slug}.{ending}" for ending in endings]


def index_files(folder: Path) -> list[Path]:
    """Return the files that :func:`write_index` writes.

    Parameters
    ----------
    folder : Path
        Root of all pages.
    """
    return [folder / "index.md", folder / _MEMORY]


def _write_page(page: Path, lines: Sequence[str]) -> None:
    # Messages of others may hold halves of signs.
    write_output(page, "\n".join(lines).encode("utf-8", "backslashreplace"))


def _cells_kept(names: Sequence[str], folder: Path) -> str:
    """Return links to the single runs of these studies."""
    files = [f"{name.replace('/', '--')}.jsonl.xz" for name in names]
    links = [f"[{file}](../cells/{file})" for file in files if (folder / "cells" / file).is_file()]
    return f" Single runs: {', '.join(links)}." if links else ""


def _repeats_in_words(work: Work) -> str:
    """Return how much of a full run this is, and what all of it would take."""
    if work.done >= work.full:
        return f"A full run: {_cells(work.full)}, {_minutes(work.seconds)}."
    return (
        f"Fewer repeats than in a full run, {work.done} of {_cells(work.full)} in "
        f"{_minutes(work.seconds)}, with standard errors beside the means. A full run takes about "
        f"{_minutes(work.full_seconds)}."
    )


def _share_of_repeats(work: Work) -> str:
    """Return a word for the index."""
    if not work.full:
        return ""
    return "all" if work.done >= work.full else f"{work.done / work.full:.0%}"


def _cells(count: int) -> str:
    return f"{count} cell{'s' * (count != 1)}"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s of one core"
    return f"{seconds / 60:.0f} minutes of one core"


def _failed(failures: Sequence[str]) -> list[str]:
    if not failures:
        return []
    return ["", f"{len(failures)} cells failed, the first with:", "", "```", failures[0], "```", ""]


def _csv_content(rows: Sequence[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _columns(rows), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def known_outcomes(folder: Path) -> dict[str, dict[str, str]]:
    """Return the lines of the index by exhibit, of all runs in a folder.

    Parameters
    ----------
    folder : Path
        Root of all pages.
    """
    for memory in (
        folder / _MEMORY,
        folder / "runs" / "index.json",
    ):  # the second as older runs left it
        if memory.is_file():
            lines: dict[str, dict[str, str]] = json.loads(memory.read_text(encoding="utf-8"))
            return lines
    return {}


def write_index(outcomes: Iterable[Outcome], folder: Path) -> Path:
    """Write ``index.md``: every exhibit with its verdict, those of earlier runs in the same folder
    too.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Of this run.
    folder : Path
        Root of all pages.

    Returns
    -------
    Path
        The page.
    """
    memory = folder / _MEMORY
    known = known_outcomes(folder)
    new = {}
    for outcome in outcomes:
        exhibit = outcome.exhibit
        new[exhibit.name] = {
            "": f"[{exhibit.label}]({exhibit.name}.md)",
            "what": exhibit.title,
            "verdict": outcome.verdict,
            "paper's claims that hold": outcome.share("paper"),
            "ours that hold": outcome.share("dpconvex"),
            "repeats": _share_of_repeats(outcome.work),
            "a full run": _minutes(outcome.work.full_seconds) if outcome.work.full else "",
        }
    # A run of everything has the order of the catalogue.
    known = new if known.keys() <= new.keys() else known | new
    write_output(memory, (json.dumps(known, indent=2) + "\n").encode())
    counts: dict[str, int] = {}
    for entry in known.values():
        counts[entry["verdict"]] = counts.get(entry["verdict"], 0) + 1
    lines = [
        INDEX_TITLE,
        "",
        "Each page has the paper's claim, our numbers for the algorithm as printed (`paper`), "
        "soundly calibrated (`sound`) and our default (`dpconvex`) on the same data and seeds, "
        "the privacy each truly has, and a verdict computed from the numbers. Written by "
        "`dpconvex reproduce`; `--quick` runs fewer repeats, and the last columns say which "
        "share of them was run and what all of them take. A page *matches* if every claim of the "
        "paper that it lists holds in the numbers, *in part* if some do; *measured* if no paper "
        "claims anything. "
        + ", ".join(f"{verdict}: {count}" for verdict, count in sorted(counts.items()))
        + ".",
        "",
        "These are the papers' tables and figures with numbers or curves, and what else they "
        f"measure. Not run: {left_out_in_words()}. Tests of the formulas are listed in "
        "`docs/evidence/papers.md`.",
        "",
    ]
    for paper in dict.fromkeys(name.partition("/")[0] for name in known):
        lines += [f"## {paper}", ""]
        if words := cited(paper):
            lines += [words, ""]
        lines += markdown_table([known[name] for name in known if name.startswith(f"{paper}/")])
        lines.append("")
    page = folder / "index.md"
    _write_page(page, lines)
    return page
