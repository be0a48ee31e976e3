"""How much of the default's error is bias, and how much is noise: table by table and budget by
budget.

A private fit errs in two ways. Limits of rows and slopes, too few rounds, floors and shrinkage keep
it away from the fit without privacy even if no noise is drawn; noise adds the rest. The first part
can be measured alone: the same plan is run on the same rows with all noise switched off. The switch
is in this module, and never in the library: it replaces
:meth:`dpconvex.core.private_rows.PrivateAnswers.release`, through which every answer of a default
fit passes.

For each table, task and epsilon ``python -m benchmarks.balance`` fits

- with all noise, as users do (``noisy``);
- without any noise, and the plan unchanged (``silent``);
- with ``--queries``, without the noise of one kind of query at a time (``no NAME``).

It reports the excess ``(loss - reference) / (constant - reference)``: 0 is the fit without privacy
(its penalty chosen by cross-validation), 1 is the best constant. Means and standard errors are over
seeds, which are paired: a seed is one split of the table, and one stream of noise. The share of
``mu^2`` that each query takes is the plan's.

Options: ``--tables``, ``--tasks``, ``--half tuning|blind|all``, ``--epsilon``, ``--seeds``,
``--rows``, ``--queries``, ``--out file.jsonl`` (records are appended, those that it has are kept),
``--page file.md``, ``--jobs``.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks import Measurement
from benchmarks.consistent import model_of, mu_of, prediction_loss, references, survival_chances
from benchmarks.tables import OUTCOMES, TABLES, Split, chosen
from dpconvex.core.private_rows import PrivateAnswers

Array = NDArray[np.float64]
Record = dict[str, Any]

EPSILONS = (0.1, 0.3, 1.0, 4.0, 20.0, 100.0, 1000.0)
SEEDS = 5
NOISY = "noisy"
SILENT = "silent"


@contextmanager
def without_noise(query: str | None) -> Iterator[None]:
    """Answer without noise: the queries of this name, or all of them for None."""
    honest = PrivateAnswers.release

    def release(answers: PrivateAnswers, term: Any, exact: ArrayLike) -> Array:
        names = [name for name, each in answers.terms.items() if each is term]
        if query is None or query in names:
            return np.array(exact, dtype=np.float64).ravel()
        return honest(answers, term, exact)

    with mock.patch.object(PrivateAnswers, "release", release):
        yield


def fitted_loss(task: str, epsilon: float, split: Split, seed: int) -> tuple[float, Any]:
    """Return the test loss of a default fit, and its certificate."""
    y = split.y_train
    if task == "hazard":  # an event within its period, or censored at the end of one
        y = np.where(y % 2 == 1, y / 2, -y / 2)
    model = model_of(task, epsilon, split, seed).fit(split.X_train, y)
    if task == "hazard":
        scores = survival_chances(model.predict_survival(split.X_test))
    elif task in OUTCOMES:
        scores = model.predict_proba(split.X_test)
    elif task in ("logistic", "svm", "auc"):
        scores = model.decision_function(split.X_test)
    else:
        scores = model.predict(split.X_test)
    found = prediction_loss(task, split.y_test, np.asarray(scores, dtype=np.float64))
    return found, model.certificate_


def shares(certificate: Any) -> dict[str, float]:
    """Return the share of ``mu^2`` that each query of a plan takes."""
    spent = {
        name: term.releases * (term.sensitivity / term.scale) ** 2
        for name, term in certificate.noise.items()
    }
    total = sum(spent.values())
    return {name: value / total for name, value in spent.items()}


@dataclass(frozen=True)
class Cell:
    """The fits of one seed of one table, task and budget."""

    table: str
    task: str
    epsilon: float
    seed: int
    rows: int | None
    queries: bool

    @property
    def key(self) -> str:
        """What the records of the cell are known by."""
        return json.dumps([self.table, self.task, self.epsilon, self.seed, self.rows])

    def records(self) -> list[Record]:
        """Fit with noise, without noise, and without that of each query if they are asked for."""
        table = TABLES[self.table]
        split = table.load(self.seed, self.rows)
        reference, constant = references(table, self.task, self.seed, split)
        found: list[Record] = []

        def add(kind: str, loss: float, **more: Any) -> None:
            excess = (loss - reference) / (constant - reference)
            found.append({"key": self.key, "kind": kind, "excess": excess, **more})

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seed = 1000 * self.seed + 7
            loss, certificate = fitted_loss(self.task, self.epsilon, split, seed)
            plan = shares(certificate)
            size = len(split.y_train) * mu_of(self.epsilon) / (split.X_train.shape[1] + 1)
            add(NOISY, loss, shares=plan, size=size, constant=constant / reference)
            with without_noise(None):
                add(SILENT, fitted_loss(self.task, self.epsilon, split, seed)[0])
            for name in plan if self.queries else ():
                with without_noise(name):
                    add(f"no {name}", fitted_loss(self.task, self.epsilon, split, seed)[0])
        return found


def records_of(cell: Cell) -> list[Record]:
    """Return the records of a cell, in a process of its own."""
    return cell.records()


def measured(cells: list[Cell], out: Path | None, jobs: int) -> list[Record]:
    """Carry out the cells that a file does not have yet, and append their records to it."""
    known: list[Record] = []
    if out is not None and out.is_file():
        known = [json.loads(line) for line in out.read_text().splitlines()]
    done = {record["key"] for record in known}
    left = [cell for cell in cells if cell.key not in done]
    wanted = {cell.key for cell in cells}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(records_of, cell) for cell in left]):
            new = future.result()
            known += new
            if out is not None:
                with out.open("a") as file:
                    file.writelines(json.dumps(record) + "\n" for record in new)
            cell = json.loads(new[0]["key"])
            noisy, silent = new[0]["excess"], new[1]["excess"]
            print(*cell, f"noisy {noisy:.3f} silent {silent:.3f}", flush=True)
    return [record for record in known if record["key"] in wanted]


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean over seeds, and its standard error."""
    found = np.array(list(values))
    error = found.std(ddof=1) / math.sqrt(found.size) if found.size > 1 else math.nan
    return float(found.mean()), float(error)


def page(records: list[Record]) -> str:
    """Return the page: excess with and without noise, what each query's noise costs, and shares."""
    by_cell: dict[tuple[str, str], dict[float, dict[str, list[Record]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for record in records:
        table, task, epsilon, _, _ = json.loads(record["key"])
        by_cell[table, task][epsilon][record["kind"]].append(record)
    budgets = sorted({json.loads(record["key"])[2] for record in records})
    lines = [
        "# Bias and noise of the default",
        "",
        "Excess of the test loss over that of a fit without privacy, in units of what columns",
        "bring over the best constant: 0 is the fit without privacy, 1 the constant. Each cell:",
        "with noise / with all noise switched off and the plan unchanged, means over seeds, with",
        "the standard error of the first in brackets. Made by",
        "`python -m benchmarks.balance --page docs/evidence/balance.md`.",
        "",
        "| table | task | " + " | ".join(f"ε = {e:g}" for e in budgets) + " |",
        "|---|---|" + "---|" * len(budgets),
    ]
    for (table, task), cells in sorted(by_cell.items()):
        row = []
        for epsilon in budgets:
            kinds = cells.get(epsilon, {})
            if NOISY not in kinds:
                row.append("")
                continue
            noisy, error = mean_and_error(each["excess"] for each in kinds[NOISY])
            silent, _ = mean_and_error(each["excess"] for each in kinds[SILENT])
            row.append(f"{noisy:.3f} / {silent:.3f} ({error:.3f})")
        lines.append(f"| {table} | {task} | " + " | ".join(row) + " |")
    lines += ["", "## What the noise of one query costs", ""]
    lines += ["Excess with noise, less the excess without the noise of that query alone.", ""]
    lines += list(query_lines(by_cell))
    return "\n".join(lines) + "\n"


def query_lines(by_cell: Any) -> Iterator[str]:
    """Yield the table of what each query's noise costs, beside its share of the budget."""
    yield "| table | task | ε | query | share of μ² | cost of its noise |"
    yield "|---|---|---|---|---|---|"
    for (table, task), cells in sorted(by_cell.items()):
        for epsilon, kinds in sorted(cells.items()):
            noisy = {record["key"]: record for record in kinds[NOISY]}
            for kind in sorted(name for name in kinds if name.startswith("no ")):
                name = kind.removeprefix("no ")
                costs = [
                    noisy[record["key"]]["excess"] - record["excess"] for record in kinds[kind]
                ]
                share = np.mean([each["shares"].get(name, 0.0) for each in noisy.values()])
                cost, error = mean_and_error(costs)
                yield (
                    f"| {table} | {task} | {epsilon:g} | {name} | {share:.3f} | "
                    f"{cost:+.3f} ± {error:.3f} |"
                )


def run(seeds: int = 2, epsilons: tuple[float, ...] = (1.0, 20.0)) -> Iterator[Measurement]:
    """Yield the excess of least squares with noise; the detail says what is left without it."""
    for table, tasks in chosen(tasks=["linear"]):
        for task in tasks:
            for epsilon in epsilons:
                cells = [Cell(table.name, task, epsilon, k, None, False) for k in range(seeds)]
                records = [record for cell in cells for record in cell.records()]
                noisy, silent = (
                    mean_and_error(r["excess"] for r in records if r["kind"] == kind)[0]
                    for kind in (NOISY, SILENT)
                )
                name = f"{table.name}, {task}, eps={epsilon:g}"
                yield Measurement(name, noisy, detail=f"without noise {silent:.3f}")


def main(words: list[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balance")
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--half", choices=["tuning", "blind", "all"], default="all")
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--queries", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(words)
    cells = [
        Cell(table.name, task, epsilon, seed, options.rows, options.queries)
        for seed in range(options.seeds)
        for table, tasks in chosen(options.tables, options.tasks, options.half)
        for task in tasks
        for epsilon in options.epsilon
    ]
    text = page(measured(cells, options.out, options.jobs))
    if options.page is not None:
        options.page.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
