"""What each stage and constant of the default private fit brings: switched off or moved, one at a
time.

Variants patch the modules of :mod:`dpconvex.fit` in the running process, and fit the same rows with
the same seeds as the fit as it is. The budget of a stage that is switched off goes to the others.
What is reported is the loss of the variant over that of the fit as it is (of rankings 1 - AUC), the
geometric mean over the cells of :mod:`benchmarks.tables` that a variant concerns, for the tuning
and the blind half and by budget: above 1 the stage helps. Both fits draw the same noise, release by
release, so that ratios are known better than losses are; the standard error is that of paired
differences between seeds, for these tables.

``python -m benchmarks ablation`` is a quick form: few small cells, stages only.
``python -m benchmarks.ablation`` runs all, with ``--out file.jsonl`` (written fit by fit) and
``--page docs/evidence/ablation.md`` (writes the page). Options: ``--stages`` names, ``stages``,
``constants`` or a constant's name; ``--cells table:task`` or ``table:task:rows``, or ``all``;
``--half``, ``--epsilon``, ``--seeds 4``, ``--jobs``; ``--resume`` keeps what the file holds of the
same default fit; ``--report FILE...`` measures nothing and reports what files hold.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import textwrap
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.stats import t as student

from benchmarks import Measurement
from benchmarks._ablation_variants import FACTORS, MOVED, STAGES, VARIANTS, Change
from benchmarks.consistent import private_loss
from benchmarks.tables import TABLES, chosen
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex_reproduction.fingerprint import STORED, fingerprint, made_with

Record = dict[str, Any]

AS_IS = "as is"
DEFAULT = json.loads(STORED.read_text(encoding="utf-8"))["fingerprint"]
EPSILONS = (0.1, 0.3, 1.0, 4.0, 20.0)
BANDS = {"0.1-0.3": (0.0, 0.5), "1-4": (0.5, 8.0), "20-100": (8.0, math.inf)}  # of epsilon
HALVES = ("blind", "tuning")
CELLS: tuple[tuple[str, str, int | None], ...] = (
    ("ijcnn1", "logistic", 60_000),
    ("ijcnn1", "svm", 20_000),
    ("satimage", "logistic", None),
    ("dummies-labels", "logistic", 10_000),
    ("rare", "auc", None),
    ("wages", "median", None),
    ("counts", "upper", None),
    ("counts-large", "linear", None),
    ("dummies-values", "linear", 20_000),
    ("heavy-labels", "logistic", None),
    ("bank", "svm", 10_000),
    ("adult", "auc", 10_000),
    ("bike", "median", None),
    ("gifts", "upper", None),
    ("wealth", "linear", None),
)
QUICK = (
    ("satimage", "logistic", None),
    ("rare", "auc", None),
    ("wages", "median", None),
    ("counts", "upper", None),
    ("counts-large", "linear", None),
)
MATTERS = 0.01  # of the loss
# measured before they went, of sources 8e2c376f: seeds 0 and 1 of all cells, 2 of the first four
WENT = (
    "Two stages went after a first run, of 2 seeds on most tables: moments raised to what the "
    "typical length says (blind half without it 1.000 ± 0.000), and noise of the moments taken "
    "for an error of gradients (0.996 ± 0.002; 0.988 ± 0.004 at 0.1-0.3). That choice looked at "
    "the blind half, so for it this half is not blind."
)
LEVEL = 0.01  # of two-sided tests and intervals; of one of many cells its share


# -------------------------------------------------------------------------------------------------
# Fits
# -------------------------------------------------------------------------------------------------


@contextmanager
def otherwise(changes: Iterable[Change]) -> Iterator[None]:
    """Have attributes changed for a while; those that are not there are an error."""
    with ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(patch.object(owner, name, value))
        yield


@contextmanager
def noise_by_name() -> Iterator[None]:
    """Give every release a seed of its own, by its name and number: variants draw the same noise
    for the others.
    """
    claim = PrivateAnswers.claim

    def claimed(self: PrivateAnswers, name: str, *more: Any, **others: Any) -> Any:
        term = claim(self, name, *more, **others)
        if "base" not in vars(self):
            vars(self)["base"] = int(self.noise.generator.integers(2**62))
        key = [vars(self)["base"], zlib.crc32(name.encode()), self.used[name]]
        self.noise.generator = np.random.default_rng(key)
        return term

    with patch.object(PrivateAnswers, "claim", claimed):
        yield


class Cell(NamedTuple):
    """A table, a task, and the number of rows; None for all."""

    table: str
    task: str
    rows: int | None = None

    def __str__(self) -> str:
        return f"{self.table}, {self.task}"


@dataclass(frozen=True)
class Job:
    """All fits of one cell and seed."""

    cell: Cell
    seed: int
    epsilons: tuple[float, ...]
    variants: tuple[str, ...]
    known: frozenset[tuple[Any, ...]] = frozenset()

    def records(self) -> Iterator[Record]:
        """Fit and measure as is and in every variant that concerns the task."""
        split = None
        cell = self.cell
        names = [name for name in self.variants if cell.task in VARIANTS[name].tasks]
        for epsilon in self.epsilons if names else ():
            for name in (AS_IS, *names):
                if (name, *cell, self.seed, epsilon) in self.known:
                    continue
                split = split or TABLES[cell.table].load(self.seed, cell.rows)
                start = time.perf_counter()
                loss = math.nan
                error = ""
                changes = [] if name == AS_IS else VARIANTS[name].changes()
                try:
                    with noise_by_name(), otherwise(changes):
                        loss = private_loss(cell.task, epsilon, split, 1000 * self.seed + 7)
                    error = "" if math.isfinite(loss) else "not finite"
                except Exception as problem:
                    error = f"{type(problem).__name__}: {problem}"
                yield {
                    "variant": name,
                    "table": cell.table,
                    "task": cell.task,
                    "rows": cell.rows,
                    "half": TABLES[cell.table].half,
                    "seed": self.seed,
                    "epsilon": epsilon,
                    "loss": loss,
                    "seconds": round(time.perf_counter() - start, 3),
                    "error": error,
                    "default": DEFAULT,
                }


def identity(record: Record) -> tuple[Any, ...]:
    return tuple(record[key] for key in ("variant", "table", "task", "rows", "seed", "epsilon"))


def place(record: Record) -> Cell:
    return Cell(record["table"], record["task"], record["rows"])


def all_of(job: Job) -> list[Record]:
    return list(job.records())


def carried_out(jobs: list[Job], workers: int) -> Iterator[Record]:
    """Yield the records of all jobs, in order with one worker and as they come with more."""
    if workers == 1:
        for job in jobs:
            yield from job.records()
        return
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for done in as_completed([pool.submit(all_of, job) for job in jobs]):
            yield from done.result()


def read(paths: Iterable[Path]) -> list[Record]:
    """Read records, the last one of a kind."""
    kept: dict[tuple[Any, ...], Record] = {}
    for path in paths:
        for text in path.read_text().splitlines():
            record = json.loads(text)
            kept[identity(record)] = record
    return list(kept.values())


# -------------------------------------------------------------------------------------------------
# Ratios
# -------------------------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """A geometric mean of loss ratios, its relative standard error, the number of fits, and
    degrees of freedom.
    """

    value: float
    error: float
    fits: int
    freedom: float = math.nan

    @property
    def number(self) -> str:
        """The number alone."""
        return f"{self.value:.3f}" if self.fits else "–"

    @property
    def text(self) -> str:
        """The number with its error."""
        return self.number + (f" ± {self.error:.3f}" if math.isfinite(self.error) else "")

    def limits(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the ends of an interval by Student's law; everything where one seed tells no
        error.
        """
        if not math.isfinite(self.error):
            return 0.0, math.inf
        reach = min(float(student.isf(level / 2, self.freedom)) * self.error / self.value, 500.0)
        return self.value * math.exp(-reach), self.value * math.exp(reach)

    def above(self, level: float = LEVEL) -> bool:
        """Whether the loss is surely larger, and by so much that it matters."""
        return self.value >= 1 + MATTERS and self.limits(level)[0] > 1

    def below(self, level: float = LEVEL) -> bool:
        """Whether it is surely smaller, and by so much that it matters."""
        return self.seems_below and self.limits(level)[1] < 1

    @property
    def seems_below(self) -> bool:
        """Whether it is smaller by so much that it matters, sure or not: few seeds make nothing
        sure.
        """
        return self.value <= 1 - MATTERS


Gaps = dict[Cell, dict[float, dict[int, float]]]  # log ratios by cell, epsilon and seed


def gaps(records: list[Record]) -> dict[str, Gaps]:
    """Return log ratios of losses to those of the fit as is, by variant."""
    plain = {
        identity(r)[1:]: r["loss"] for r in records if r["variant"] == AS_IS and not r["error"]
    }
    found: dict[str, Gaps] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for record in records:
        before = plain.get(identity(record)[1:])
        if record["variant"] != AS_IS and before and record["loss"] > 0 and not record["error"]:
            cell = place(record)
            gap = math.log(record["loss"] / before)
            found[record["variant"]][cell][record["epsilon"]][record["seed"]] = gap
    return found


def ratio(found: Gaps, half: str = "", band: str = "", only: Cell | None = None) -> Ratio:
    """Return the mean over cells, each with its mean over budgets and seeds; errors are those
    between seeds.
    """
    low, high = BANDS.get(band, (0.0, math.inf))
    means = []
    variances = []
    free = []
    fits = 0
    for cell, budgets in found.items():
        if (half and TABLES[cell.table].half != half) or only not in (None, cell):
            continue
        seeds: dict[int, list[float]] = defaultdict(list)
        for epsilon, by_seed in budgets.items():
            for seed, gap in by_seed.items():
                if low < epsilon <= high:
                    seeds[seed].append(gap)
        each = np.array([np.mean(several) for several in seeds.values()])
        if each.size:
            fits += sum(map(len, seeds.values()))
            means.append(each.mean())
            variances.append(each.var(ddof=1) / each.size if each.size > 1 else math.nan)
            free.append(each.size - 1)
    if not means:
        return Ratio(math.nan, math.nan, 0)
    value = math.exp(float(np.mean(means)))
    total = float(np.sum(variances))
    freedom = float(sum(free))
    if total > 0:  # Satterthwaite's: few where one cell has most of the variance
        parts = [v**2 / k for v, k in zip(variances, free, strict=True) if k and v > 0]
        freedom = total**2 / math.fsum(parts)
    return Ratio(value, value * math.sqrt(total) / len(means), fits, freedom)


def changed(found: Gaps, half: str) -> float:
    """Return the share of fits of a half that a variant changes at all."""
    every = [
        gap != 0
        for cell, budgets in found.items()
        if TABLES[cell.table].half == half
        for by_seed in budgets.values()
        for gap in by_seed.values()
    ]
    return float(np.mean(every)) if every else 0.0


def largest(found: Gaps, half: str) -> tuple[Cell, str, Ratio] | None:
    """Return the cell and band where a stage surely brings most; None where it brings nothing."""
    every = [
        (cell, band, ratio(found, half, band, cell))
        for cell in found
        for band in BANDS
        if TABLES[cell.table].half == half
    ]
    every = [each for each in every if each[2].fits]
    every = [each for each in every if each[2].above(LEVEL / len(every))]
    return max(every, key=lambda each: each[2].value, default=None)


def lines(records: list[Record]) -> Iterator[str]:
    """Yield one line per variant."""
    found = gaps(records)
    bands = "".join(f" {band:<16}" for band in BANDS)
    yield f"{'':<36} {'':<7} {'changed':<7} {'all':<16}{bands} largest"
    for name in VARIANTS:
        shown = name
        for half in HALVES if name in found else ():
            numbers = [ratio(found[name], half, band) for band in ("", *BANDS)]
            if not numbers[0].fits:
                continue
            most = largest(found[name], half)
            share = f"{changed(found[name], half):.0%}"
            where = "" if most is None else f"{most[2].text} ({most[0]}, {most[1]})"
            texts = " ".join(f"{number.text:<16}" for number in numbers)
            yield f"{shown:<36} {half:<7} {share:<7} {texts} {where}".rstrip()
            shown = ""
    wrong = [record for record in records if record["error"]]
    for name in dict.fromkeys(record["variant"] for record in wrong):
        errors = [record["error"] for record in wrong if record["variant"] == name]
        yield f"{name}: {len(errors)} fits failed, {errors[0]}"


# -------------------------------------------------------------------------------------------------
# The page
# -------------------------------------------------------------------------------------------------


def table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def wrapped(text: str) -> str:
    """Break a paragraph into lines; tables are left as they are."""
    if text.startswith("|"):
        return text
    later = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text, 118, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def enumerated(names: list[str]) -> str:
    return "; ".join(names) if names else "none"


def page(records: list[Record]) -> Iterator[str]:
    """Yield the lines of the page."""
    found = gaps(records)
    cells = {place(r): r["half"] for r in records}
    budgets = sorted({record["epsilon"] for record in records})
    numbers = [len({r["seed"] for r in records if place(r) == cell}) for cell in cells]
    seeds = (
        f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
    )
    bands = [band for band, (low, high) in BANDS.items() if any(low < e <= high for e in budgets)]
    moved = [name for name in MOVED if any(f"{name}, {word}" in found for word in FACTORS)]

    yield "# What each stage brings"
    yield ""
    yield made_with()
    yield ""
    yield (
        "The default fit, and the same fit with one of its stages switched off"
        + (" or one of its constants halved or doubled" if moved else "")
        + ". Numbers are the test loss of the variant over that of the fit as it is (of "
        "rankings 1 - AUC), the geometric mean over tables, budgets and seeds, with a "
        "standard error: above 1 the stage helps. The budget of a stage that is switched off "
        "goes to the others, and both fits see the same rows and draw the same noise, "
        "release by release; errors are between seeds, for these tables. A variant is "
        "measured on the tasks that it can change, whether or not it changes anything at a "
        "given budget."
    )
    yield ""
    for half in HALVES:
        shown = []
        for cell in (cell for cell, of in cells.items() if of == half):
            size = f" of {cell.rows:,} rows" if cell.rows else ""
            shown.append(f"{cell}{size} ({gain(records, cell):.2f})")
        unseen = (
            "not looked at while the fit was made, but for the stages that went, and ijcnn1 and "
            "wages for an earlier form of it"
        )
        what = {"blind": unseen, "tuning": "looked at"}[half]
        yield f"- {half} half ({what}): {'; '.join(shown)}"
    yield (
        f"- epsilon {', '.join(f'{e:g}' for e in budgets)} with delta = 1e-6, one record "
        f"replaced, {seeds} seeds of rows and noise"
    )
    yield ""
    yield (
        "In brackets after a table: the loss of the fit as it is at the smallest budget over "
        "that at the largest. Where it is near 1 there is little that any stage could bring."
    )
    yield ""
    yield (
        f"`python -m benchmarks.ablation{'' if moved else ' --stages stages'} --page "
        "docs/evidence/ablation.md` measures anew and writes this page; these are "
        f"{len(records):,} fits, {sum(record['seconds'] for record in records) / 60:.0f} minutes "
        "of one core without the reading of tables. `python -m benchmarks ablation` is a quick "
        "form."
        + (
            ""
            if moved
            else " Without `--stages` it halves and doubles constants, too, which was not done "
            "here."
        )
    )
    yield ""
    yield "## Stages"
    yield ""
    yield from verdict(found)
    yield ""
    yield WENT
    yield ""
    yield (
        "The last column is the table and budget of the blind half where a stage brings most, if "
        f"it surely brings {MATTERS:.0%} or more there."
    )
    yield ""
    names = [stage.name for stage in STAGES if stage.name in found]

    def row(name: str) -> list[str]:
        of = found[name]
        most = largest(of, "blind")
        where = "" if most is None else f"{most[2].value:.3f}, {most[0]}, {most[1]}"
        by_budget = [ratio(of, "blind", band).text for band in bands]
        halves = [ratio(of, half).text for half in HALVES]
        return [name, VARIANTS[name].text, *halves, *by_budget, where]

    head = ["stage", "without it", "blind", "tuning", *(f"blind, {band}" for band in bands), "most"]
    yield from table(head, (row(name) for name in names))
    if moved:
        yield from constants(found, moved, bands)
    failed = [record for record in records if record["error"]]
    if failed:
        yield ""
        counted = {r["variant"]: 0 for r in failed}
        for record in failed:
            counted[record["variant"]] += 1
        listed = ", ".join(f"{name} {number}" for name, number in counted.items())
        yield f"Fits that failed and are not in the numbers: {listed}."


def constants(found: dict[str, Gaps], moved: list[str], bands: list[str]) -> Iterator[str]:
    """Yield the lines of the section on constants."""
    yield ""
    yield "## Constants"
    yield ""
    yield from moved_verdict(found)
    yield ""

    def moved_row(name: str) -> list[str]:
        both = [found.get(f"{name}, {word}", {}) for word in FACTORS]
        halves = [ratio(of, half).text for half in HALVES for of in both]
        by_budget = [" / ".join(ratio(of, "blind", band).number for band in bands) for of in both]
        marked = re.sub("[A-Z_]{4,}", r"`\g<0>`", name)
        return [marked, MOVED[name][0], *halves, *by_budget]

    by = " / ".join(bands)
    head = [
        "constant",
        "what it is",
        "blind, half",
        "blind, double",
        "tuning, half",
        "tuning, double",
        f"blind, half: {by}",
        f"blind, double: {by}",
    ]
    yield from table(head, (moved_row(name) for name in moved))


def gain(records: list[Record], cell: Cell) -> float:
    """Return the loss of the fit as is at the smallest budget over that at the largest,
    geometric means.
    """
    losses: dict[float, list[float]] = defaultdict(list)
    for record in records:
        if place(record) == cell and record["variant"] == AS_IS and not record["error"]:
            losses[record["epsilon"]].append(math.log(record["loss"]))
    if not losses:
        return math.nan
    return math.exp(float(np.mean(losses[min(losses)]) - np.mean(losses[max(losses)])))


def verdict(found: dict[str, Gaps]) -> Iterator[str]:
    """Yield what stays and why: from what is measured on the blind half alone."""
    groups: dict[str, list[str]] = defaultdict(list)
    compared = 0
    for stage in STAGES:
        if not ratio(found.get(stage.name, {}), "blind").fits:
            continue
        numbers = [(band, ratio(found[stage.name], "blind", band)) for band in ("", *BANDS)]
        numbers = [(band, number) for band, number in numbers if number.fits]
        compared += len(numbers)
        helps = [(band, number) for band, number in numbers if number.above()]
        harms = [(band, number) for band, number in numbers if number.seems_below]
        cell = largest(found[stage.name], "blind")
        band, number = max(numbers, key=lambda each: each[1].limits()[1])
        why = f"; {stage.reason}" if stage.reason else ""
        if helps:
            band, number = max(helps, key=lambda each: each[1].value)
            groups["band"].append(f"{stage.name} ({located(number, band)})")
        elif cell is not None:
            groups["cell"].append(f"{stage.name} ({located(cell[2], f'{cell[0]}, {cell[1]}')})")
        elif number.limits()[1] >= 1 + MATTERS:
            groups["open"].append(f"{stage.name} ({located(number, band)}{why})")
        elif not harms:
            groups["little"].append(f"{stage.name}{f' ({stage.reason})' if stage.reason else ''}")
        if harms:
            sure = [each for each in harms if each[1].below()]
            band, number = min(sure or harms, key=lambda each: each[1].value)
            groups["harm" if sure else "doubt"].append(f"{stage.name} ({located(number, band)})")
    yield (
        f"A stage stays if it brings {MATTERS:.0%} somewhere on the blind half: over all budgets "
        f"or in one of their bands. Sure is what is so at a level of {LEVEL:.0%}, by Student's "
        f"law and for each of {compared} comparisons alone, so that about "
        f"{compared * LEVEL / 2:.1f} of them would seem to help by chance."
    )
    yield ""
    yield f"- These surely bring {MATTERS:.0%}: {enumerated(groups['band'])}."
    yield (
        "- These surely do on one table, but not in the mean over tables: "
        f"{enumerated(groups['cell'])}."
    )
    yield (
        f"- These surely bring less than {MATTERS:.0%} in every band: "
        f"{enumerated(groups['little'])}."
    )
    yield (
        f"- These may bring {MATTERS:.0%} or nothing, and so many seeds do not tell (the band "
        f"that tells least): {enumerated(groups['open'])}."
    )
    yield (
        f"- Without these the fit is surely better in some band, by {MATTERS:.0%} or more: "
        f"{enumerated(groups['harm'])}."
    )
    yield (
        f"- Without these it was better by {MATTERS:.0%} or more in some band, and so many seeds "
        f"do not tell whether by chance: {enumerated(groups['doubt'])}."
    )


def located(number: Ratio, where: str) -> str:
    return f"{number.text} at {where}" if where else number.text


def moved_verdict(found: dict[str, Gaps]) -> Iterator[str]:
    """Yield which constants matter, and which ones tables would rather have elsewhere."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in MOVED:
        numbers = [
            (word, band, ratio(found.get(f"{name}, {word}", {}), "blind", band))
            for word in FACTORS
            for band in ("", *BANDS)
        ]
        numbers = [each for each in numbers if each[2].fits]
        if not numbers:
            continue
        ends = [number.limits() for _, _, number in numbers]
        if any(number.above() for _, _, number in numbers):
            groups["costs"].append(name)
        elif all(low > 1 - MATTERS and high < 1 + MATTERS for low, high in ends):
            groups["flat"].append(name)
        else:
            groups["open"].append(name)
        better = [each for each in numbers if each[2].seems_below]
        if better:
            sure = [each for each in better if each[2].below()]
            word, band, number = min(sure or better, key=lambda each: each[2].value)
            groups["better" if sure else "doubt"].append(
                f"{name}, {word} ({located(number, band)})"
            )
    yield (
        "Constants were chosen with the tuning half in sight. On the blind half, with the same "
        "meaning of sure:"
    )
    yield ""
    yield f"- A factor of 2 surely costs {MATTERS:.0%} somewhere: {enumerated(groups['costs'])}."
    yield (
        f"- A factor of 2 either way surely changes less than {MATTERS:.0%} in every band: "
        f"{enumerated(groups['flat'])}."
    )
    yield f"- So many seeds do not tell: {enumerated(groups['open'])}."
    yield f"- Surely better by {MATTERS:.0%} elsewhere: {enumerated(groups['better'])}."
    yield (
        f"- Better by {MATTERS:.0%} elsewhere, and so many seeds do not tell whether by chance: "
        f"{enumerated(groups['doubt'])}."
    )


# -------------------------------------------------------------------------------------------------
# Running
# -------------------------------------------------------------------------------------------------


def wanted_variants(names: list[str] | None) -> tuple[str, ...]:
    """Return the variants that words name: stages, constants, a stage, a constant, or one of its
    two moves.
    """
    found = []
    for word in names or ["stages", "constants"]:
        fitting = [
            name
            for name, variant in VARIANTS.items()
            if word in (name, variant.constant, "constants" if variant.constant else "stages")
        ]
        if not fitting:
            raise SystemExit(f"There is no variant {word!r}; there are {', '.join(VARIANTS)}.")
        found += fitting
    return tuple(dict.fromkeys(found))


def wanted_cells(words: list[str] | None, half: str) -> list[Cell]:
    """Return cells of a half, by words ``table:task`` or ``table:task:rows``, or all there are."""
    cells = [Cell(*each) for each in CELLS]
    if words == ["all"]:
        cells = [Cell(table.name, task) for table, tasks in chosen() for task in tasks]
    elif words:
        cells = []
        for word in words:
            name, task, *rows = word.split(":")
            if name not in TABLES or task not in TABLES[name].tasks:
                raise SystemExit(f"There is no cell {word!r}.")
            cells.append(Cell(name, task, int(rows[0]) if rows else None))
    return [cell for cell in cells if half in ("all", TABLES[cell.table].half)]


def measured(options: argparse.Namespace, say: Callable[[str], None]) -> list[Record]:
    """Carry out all fits, the first seed of all cells first, and write every record at once."""
    known: list[Record] = []
    if options.out is not None and options.resume and options.out.exists():
        known = [record for record in read([options.out]) if record["default"] == DEFAULT]
    marks = frozenset(identity(record) for record in known)
    names = wanted_variants(options.stages)
    jobs = [
        Job(cell, seed, tuple(options.epsilon), names, marks)
        for seed in range(options.seeds)
        for cell in wanted_cells(options.cells, options.half)
    ]
    found = list(known)
    start = time.perf_counter()
    file = options.out.open("a" if options.resume else "w") if options.out is not None else None
    last = None
    for record in carried_out(jobs, options.jobs):
        found.append(record)
        if file is not None:
            file.write(json.dumps(record) + "\n")
            file.flush()
        if last != (record["seed"], place(record)):
            last = record["seed"], place(record)
            say(f"{time.perf_counter() - start:7.0f} s, seed {last[0]}: {last[1]}")
    if file is not None:
        file.close()
    return found


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation")
    parser.add_argument(
        "--stages", nargs="+", help="names, 'stages' or 'constants'; all by default"
    )
    parser.add_argument("--cells", nargs="+", help="table:task, table:task:rows, or all")
    parser.add_argument("--half", choices=["tuning", "blind", "all"], default="all")
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", type=Path, help="is written from what was measured")
    parser.add_argument("--report", nargs="+", type=Path, help="files to report; nothing is fitted")
    return parser.parse_args(words)


def run(seeds: int = 2) -> Iterator[Measurement]:
    """Yield the loss without each stage over that of the fit as it is, on few small cells at
    epsilon 1.
    """
    cells = [f"{name}:{task}" for name, task, _ in QUICK]
    words = ["--stages", "stages", "--epsilon", "1", "--seeds", str(seeds), "--cells", *cells]
    found = gaps(measured(arguments(words), lambda text: None))
    for stage in STAGES:
        value = ratio(found[stage.name])
        detail = f"{value.text}, {value.fits} fits: {stage.text}"
        yield Measurement(f"without {stage.name}, eps=1", value.value, detail=detail)


def main() -> None:
    options = arguments()
    if fingerprint() != DEFAULT:
        raise SystemExit(
            "The default fit has changed: `dpconvex reproduce fingerprint --write` first."
        )
    if options.report:
        records = read(options.report)
    else:
        records = measured(options, lambda text: print(text, flush=True))
    for text in lines(records):
        print(text)
    if {record["default"] for record in records} != {DEFAULT}:
        raise SystemExit("Some of these fits are of another default: no page is written.")
    if options.page is not None:
        options.page.write_text("\n".join(map(wrapped, page(records))) + "\n")


if __name__ == "__main__":
    main()
