"""Cells of the benchmark, their measurement, and the one Parquet file of results."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import log_loss, mean_pinball_loss, r2_score, roc_auc_score

from dpconvex_reproduction.bench import problems
from dpconvex_reproduction.bench.method import (
    ADD_OR_REMOVE,
    REPLACE,
    Budget,
    Method,
    checked_guarantee,
    checked_scores,
    without_test_rows,
)
from dpconvex_reproduction.bench.methods import digest, find_methods, unknown_name
from dpconvex_reproduction.bench.problems import DATA, BenchProblem, load_problem, problem_names
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.fingerprint import fingerprint, now
from dpconvex_reproduction.outputs import write_output
from dpconvex_reproduction.peers import problems as splits

__all__ = [
    "DELTA",
    "EPSILONS",
    "Plan",
    "code_of",
    "measure",
    "merged",
    "metrics",
    "study",
    "write_parquet",
]

EPSILONS = (0.1, 0.5, 1.0, 4.0)
DELTA = 1e-6
_BLOCK = 5  # seeds that one cell covers
_MOST_CERTAIN = 30.0  # log-odds beyond it count as it: nobody's log loss is infinite


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes
    ----------
    data : tuple of str
        Data sets.
    task : str or None
        One task, or all.
    methods : tuple of str
        Names; empty for all.
    files : tuple of str
        Files with methods of one's own.
    epsilons : tuple of float
        Budgets, each at delta 1e-6.
    seeds : int
        Fits of every method and setting.
    rows : int or None
        Training rows, for a try.
    """

    data: tuple[str, ...]
    task: str | None = None
    methods: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = EPSILONS
    seeds: int = 5
    rows: int | None = None

    def cells(self) -> list[Cell]:
        """Return one cell for every problem, method, relation, budget and block of five seeds.

        Our models are run under their default, one row replaced, and under each relation that a
        chosen peer has; a peer under the first that it states and under those that are the only
        ones of another.
        """
        known = find_methods(self.files)
        unknown = sorted({*self.methods} - {*known})
        if unknown:
            raise ValueError(unknown_name(unknown[0], known))
        chosen = {name: known[name] for name in (self.methods or known)}
        codes = {name: code_of(method, place) for name, (method, place) in chosen.items()}
        found: list[Cell] = []
        for data in self.data:
            for task in problem_names(data, self.task):
                problem = load_problem(data, task, self.rows)
                able = {name: pair for name, pair in chosen.items() if _suits(pair[0], problem)}
                asked = self._relations([method for method, _ in able.values()])
                for name, (method, place) in able.items():
                    more = {REPLACE} if method.ours else set()
                    for relation in [r for r in method.relations if r in asked | more] or [""] * (
                        not method.relations
                    ):
                        found += [
                            {
                                "data": data,
                                "task": task,
                                "rows": self.rows,
                                "method": name,
                                "place": place,
                                "relation": relation,
                                "epsilon": epsilon,
                                "seeds": [start, min(start + _BLOCK, self.seeds)],
                                "code": codes[name],
                            }
                            for epsilon in (self.epsilons if relation else (None,))
                            for start in range(0, self.seeds if relation else 1, _BLOCK)
                        ]
        return found

    @staticmethod
    def _relations(methods: Sequence[Method]) -> set[str]:
        """Return the relations that are run: each peer's own, and the first one of ours where
        there is no peer.
        """
        single = [method.relations[0] for method in methods if method.relations and not method.ours]
        return set(single) or {ADD_OR_REMOVE}


def _suits(method: Method, problem: BenchProblem) -> bool:
    """Whether a method says that it can be run on a problem; its code may be the user's."""
    try:
        return bool(method.suits(problem))
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"suits of the method '{method.name}' failed: {type(error).__name__}: {error}"
        ) from error


@functools.cache
def _common_code() -> str:
    """Return a digest of what every fit depends on: the problems, their splits and how scores
    are measured.
    """
    parts = [inspect.getsource(part) for part in (problems, splits, metrics)]
    return hashlib.sha256("".join([*parts, f"{_MOST_CERTAIN}"]).encode()).hexdigest()[:6]


def code_of(method: Method, place: str) -> str:
    """Return digests of all code behind a method's fits: if one changes, they are run again.

    Parameters
    ----------
    method : Method
        Which.
    place : str
        Its module, or its file.
    """
    return f"{_common_code()}-{digest(place)}" + (f"-{fingerprint()}" if method.ours else "")


@functools.cache
def _made() -> str:
    """Return the commit and the day of this process, which has loaded the code as it was when it
    began.
    """
    return now()


def metrics(
    problem: BenchProblem, scores: NDArray[np.float64], probabilities: bool
) -> dict[str, float]:
    """Return what test scores are worth."""
    y = problem.y_test
    if problem.task == "linear":
        return {"r2": float(r2_score(y, scores))}
    if problem.task == "quantile":
        return {
            "pinball": float(mean_pinball_loss(y, scores, alpha=float(problem.quantile or 0.5)))
        }
    found = {"auc": float(roc_auc_score(y, scores))}
    if probabilities:
        odds = expit(np.clip(scores, -_MOST_CERTAIN, _MOST_CERTAIN))
        found |= {
            "log_loss": float(log_loss(y > 0, odds)),
            "accuracy": float(np.mean(np.where(scores > 0, 1.0, -1.0) == y)),
        }
    return found


def measure(cell: Cell) -> list[Row]:
    """Fit every setting and seed of a cell and score them on the test rows."""
    known = find_methods(
        () if "/" not in cell["place"] and not cell["place"].endswith(".py") else (cell["place"],)
    )
    method, _ = known[cell["method"]]
    problem = load_problem(cell["data"], cell["task"], cell["rows"])
    private = cell["epsilon"] is not None
    budget = Budget(cell["epsilon"] if private else 1.0, DELTA, cell["relation"] or ADD_OR_REMOVE)
    requests = [
        (setting, budget, seed)
        for setting in method.settings
        for seed in range(*cell["seeds"] if private else (1,))
    ]
    stated = checked_guarantee(method, method.guarantee(without_test_rows(problem), budget))
    rows: list[Row] = []
    for (setting, _, seed), (scores, seconds) in zip(
        requests, method.run(problem, requests), strict=True
    ):
        scores = checked_scores(method, problem, scores, f"setting '{setting}', seed {seed}")
        rows.append(
            {
                "data": cell["data"],
                "task": cell["task"],
                "method": method.name,
                "setting": setting,
                "settings": len(method.settings),
                "ours": method.ours,
                "code": cell["code"],
                "made": _made(),
                "most_rows": cell["rows"],
                "relation": cell["relation"],
                "epsilon": cell["epsilon"],
                "delta": DELTA if private else None,
                "seed": seed,
                "train_rows": len(problem.y),
                "columns": problem.X.shape[1],
                "seconds": seconds,
                "guarantee": stated,
                **metrics(problem, scores, method.probabilities),
            }
        )
    return rows


def study(plan: Plan) -> Study:
    """Return the plan as a study, so that an interrupted run goes on where it stopped."""
    cells = plan.cells()

    def listed(quick: bool) -> list[Cell]:
        return cells

    return Study("bench", listed, measure, of_default=False)


_FIT = ("data", "task", "method", "setting", "relation", "epsilon", "seed")


def merged(rows: Sequence[Row], path: Path, plan: Plan) -> tuple[list[Row], list[str]]:
    """Return these fits with those of earlier runs that stand in a file, and which methods' fits
    are left out.

    What is kept are fits of as many training rows by the code as it is now, that were not run
    again.

    Parameters
    ----------
    rows : sequence of dict
        Fits of this run.
    path : Path
        Results of earlier runs; none if there is no such file.
    plan : Plan
        Its training rows and files with methods of one's own.

    Returns
    -------
    rows : list of dict
        In the order of data sets, tasks and methods.
    left_out : list of str
        A line for each method whose earlier fits are not among them.
    """
    import polars as pl

    if not path.is_file():
        return list(rows), []
    known = find_methods(plan.files)
    again = {tuple(row[key] for key in _FIT) for row in rows}
    kept = []
    left_out = {}
    codes: dict[str, str] = {}
    for row in pl.read_parquet(path).to_dicts():
        if tuple(row[key] for key in _FIT) in again:
            continue
        name = row["method"]
        if name not in known:
            left_out[name] = (
                f"{name}: not among the methods of this run; fits of an earlier run are left out"
            )
            continue
        if row["data"] not in DATA:
            left_out[name] = (
                f"{name}: there is no data set '{row['data']}' now; its earlier fits are left out"
            )
            continue
        if name not in codes:
            codes[name] = code_of(*known[name])
        if row.get("code") != codes[name] or row.get("most_rows") != plan.rows:
            words = "of other code" if row.get("code") != codes[name] else "of other rows"
            left_out[name] = f"{name}: fits of an earlier run were {words} and are left out"
            continue
        kept.append({key: value for key, value in row.items() if value is not None or key in _KEPT})
    order = {name: number for number, name in enumerate(known)}
    places = {data: number for number, data in enumerate(DATA)}
    every = sorted(
        [*rows, *kept], key=lambda row: (places[row["data"]], row["task"], order[row["method"]])
    )
    return every, list(left_out.values())


#: Columns that a fit has even where they are empty.
_KEPT = ("epsilon", "delta", "most_rows")


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write the results, a row for every fit, one column per metric, where no file of others is."""
    import polars as pl

    columns: dict[str, list[Any]] = {
        name: [] for name in dict.fromkeys(key for row in rows for key in row)
    }
    for row in rows:
        for name, values in columns.items():
            values.append(row.get(name))
    written = BytesIO()
    pl.DataFrame(columns, strict=False).write_parquet(written)
    write_output(path, written.getvalue())
