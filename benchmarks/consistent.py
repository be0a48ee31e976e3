"""Whether the default gets better with budget and rows, meets the fit without privacy, and never
blows up.

Test loss of every default estimator on the tables of :mod:`benchmarks.tables`, next to that of the
fit without privacy on the same rows (penalty by cross-validation) and of the best constant.
``python -m benchmarks.consistent MODE``:

- ``budgets``: loss over that without privacy by epsilon, for AUC the difference. RISES where a
  larger budget has a larger loss than the one before it, CREEPS where the rise takes several
  budgets, ABOVE where the loss at epsilon 100 and from 5,000 rows on is not that without privacy.
- ``rows``: the same by the number of rows at epsilon 1.
- ``bounds``: loss with bounds 10, 100 and 1000 times as wide over that with the bounds as they are.
- ``blowups``: many fits of small tables; none may lose more than twice what a constant does.
- ``report FILE...`` prints such lines from files, ``compare OLD NEW`` the ratio of mean losses per
  cell.

Options: ``--tables``, ``--tasks``, ``--half``, ``--epsilon``, ``--seeds 8`` or ``--seeds 3 5`` (3
and 4), ``--rows``, ``--factors``, ``--out file.jsonl``, ``--resume`` (keeps what the file holds),
``--label``, ``--jobs``. References are kept in ``/tmp/dpconvex_reference_cache``. Only public
estimators are used: ``PYTHONPATH=other/src`` measures another version.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_ndtr, softmax
from sklearn.linear_model import TweedieRegressor
from sklearn.metrics import mean_tweedie_deviance, roc_auc_score

from benchmarks import Measurement
from benchmarks.tables import LEVELS, OUTCOMES, RATES, TABLES, Split, Table, chosen
from dpconvex import (
    DPAUCClassifier,
    DPDiscreteHazard,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPOrdinalRegression,
    DPQuantileRegressor,
    DPTweedieRegressor,
)
from dpconvex.losses import DiscreteHazard, ProportionalOdds, Softmax

Array = NDArray[np.float64]
Record = dict[str, Any]

DELTA = 1e-6
EPSILONS = (0.3, 1.0, 4.0, 20.0, 100.0, 1000.0)
ROWS = (500, 2000, 10_000, 50_000, 200_000)
FACTORS = (1.0, 10.0, 100.0, 1000.0)
BLOWUPS = (
    ("wealth", "linear", 1000),
    ("wealth", "median", 500),
    ("counts", "linear", 2700),
    ("gifts", "linear", 2000),
    ("gifts", "upper", 1000),
    ("bike", "upper", 500),
    ("normal", "linear", 500),
    ("dummies-values", "linear", 4000),
    ("adult", "logistic", 2000),
    ("heavy-labels", "logistic", 500),
)
CACHE = Path("/tmp/dpconvex_reference_cache")
VERSION = 1  # of the references
PENALTIES = (1e-3, 1.0, 10.0, 100.0, 1000.0)
FOLDS = 5
MOST_CHECKED = 20_000  # rows that choose a penalty


# -------------------------------------------------------------------------------------------------
# Without privacy
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kinked:
    """The loss ``slope u + width log(1 + exp(-u / width))`` of ``u = offset + sign * score``,
    summed.

    Logistic loss with width 1; in the limit of no width the hinge with ``u = y score - 1`` and the
    pinball loss with ``u = y - score`` and the level as slope.
    """

    rows: Array
    offset: Array | float
    sign: Array | float
    slope: float
    penalty: Array

    def value(self, theta: Array, width: float) -> float:
        """Return the sum of losses and the penalty."""
        u = self.offset + self.sign * (self.rows @ theta)
        loss = self.slope * u + width * np.logaddexp(0, -u / width)
        return float(loss.sum() + 0.5 * np.sum(self.penalty * theta**2))

    def newton(self, theta: Array, width: float, steps: int = 40) -> Array:
        """Return the minimiser by damped Newton steps."""
        value = self.value(theta, width)
        for _ in range(steps):
            chance = expit(-(self.offset + self.sign * (self.rows @ theta)) / width)
            slopes = self.sign * (self.slope - chance)
            gradient = slopes @ self.rows + self.penalty * theta
            weights = chance * (1 - chance) / width
            hessian = (self.rows * weights[:, None]).T @ self.rows + np.diag(self.penalty)
            hessian += np.eye(len(theta)) * (1e-9 * np.trace(hessian) / len(theta) + 1e-12)
            step = np.linalg.solve(hessian, gradient)
            decrease = float(gradient @ step)
            length = 1.0
            if decrease < 1e-9 * (1 + abs(value)):
                break
            while length > 1e-6:
                tried = self.value(theta - length * step, width)
                if tried <= value - 1e-4 * length * decrease:
                    break
                length /= 2
            else:
                break
            theta = theta - length * step
            value = tried
        return theta


def solved(task: str, rows: Array, y: Array, penalty: float, start: Array | None = None) -> Array:
    """Return coefficients without privacy, that of the constant first and without a penalty."""
    penalties = np.full(rows.shape[1], penalty)
    penalties[0] = 0.0
    if task == "linear":
        products = rows.T @ rows + np.diag(penalties + 1e-9 * len(rows))
        return np.asarray(np.linalg.solve(products, rows.T @ y))
    theta = np.zeros(rows.shape[1]) if start is None else start
    if task == "logistic":
        return Kinked(rows, 0.0, y, 0.0, penalties).newton(theta, 1.0)
    if task == "svm":
        problem = Kinked(rows, -1.0, y, 0.0, penalties)
    else:
        problem = Kinked(rows, y, -1.0, LEVELS[task], penalties)
    widths = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003) if start is None else (0.03, 0.01, 0.003)
    for width in widths:
        theta = problem.newton(theta, width)
    return theta


def outcome_chances(task: str, z: Array) -> Array:
    """Return the likelihood of every outcome, a column each, at margins of a row each."""
    if task == "classes":
        return np.asarray(softmax(z, axis=0).T)
    if task == "ordinal":
        return np.diff(expit(z), axis=0, prepend=0.0, append=1.0).T
    return survival_chances(np.cumprod(1 - expit(z), axis=0).T)


def survival_chances(survival: Array) -> Array:
    """Return the likelihoods of censoring after each number of periods, and of events in them,
    in turn.
    """
    before = np.column_stack([np.ones(len(survival)), survival])
    found = np.repeat(before, 2, axis=1)[:, :-1]
    found[:, 1::2] -= survival
    return found


def outcome_scores(task: str, rows: Array, y: Array, test: Array, penalty: float) -> Array:
    """Return likelihoods of test rows by the fit without privacy; the first column of rows is
    the constant.
    """
    most = int(y.max())
    kinds = {
        "classes": Softmax(most + 1),
        "ordinal": ProportionalOdds(most),
        "hazard": DiscreteHazard((most + 1) // 2),
    }
    loss = kinds[task]
    size = rows.shape[1]
    m = loss.margins
    separate = task == "classes"

    def margins(p: Array, Z: Array) -> Array:
        return np.asarray(p.reshape(m, size) @ Z.T if separate else p[:m, None] + Z[:, 1:] @ p[m:])

    def value(p: Array) -> tuple[float, Array]:
        z = margins(p, rows)
        penalties = np.full(p.size, penalty)
        penalties[slice(0, None, size) if separate else slice(0, m)] = 0.0
        chances = np.maximum(outcome_chances(task, z)[np.arange(len(y)), y.astype(int)], 1e-300)
        s = loss.slopes(y, z)
        gradient = (
            (s @ rows).ravel()
            if separate
            else np.concatenate([s.sum(axis=1), s.sum(axis=0) @ rows[:, 1:]])
        )
        total = -np.log(chances).sum() + 0.5 * np.sum(penalties * p**2)
        return float(total) / len(y), (gradient + penalties * p) / len(y)

    start = np.zeros(loss.coefficients(size))
    if not separate:
        start[:m] = np.linspace(-1, 1, m) if task == "ordinal" else -1.0
    found = minimize(
        value, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 4000}
    )
    return outcome_chances(task, margins(found.x, test))


def prediction_loss(task: str, y: Array, scores: Array) -> float:
    """Return the mean loss of scores; of log odds for the logistic task, of likelihoods for
    outcomes.
    """
    if task in OUTCOMES:
        return float(-np.log(np.maximum(scores[np.arange(len(y)), y.astype(int)], 1e-12)).mean())
    if task == "logistic":
        return float(np.logaddexp(0, -y * scores).mean())
    if task == "svm":
        return float(np.maximum(0, 1 - y * scores).mean())
    if task == "auc":
        return 1 - float(roc_auc_score(y > 0, scores))
    if task in RATES:
        return float(mean_tweedie_deviance(y, scores, power=RATES[task]))
    rest = y - scores
    if task == "linear":
        return float(np.mean(rest**2))
    return float(np.mean(np.maximum(LEVELS[task] * rest, (LEVELS[task] - 1) * rest)))


def plain_scores(task: str, split: Split) -> tuple[Array, float]:
    """Return scores of the test rows by the fit without privacy, and its penalty; for AUC by
    logistic regression.
    """
    X, y, X_test, _ = split[:4]
    solving = "logistic" if task == "auc" else task
    used = X.std(axis=0) > 0
    centre = X[:, used].mean(axis=0)
    spread = X[:, used].std(axis=0)

    def mapped(Z: Array) -> Array:
        return np.column_stack([np.ones(len(Z)), (Z[:, used] - centre) / spread])

    if task in OUTCOMES:
        return outcome_scores(task, mapped(X), y, mapped(X_test), 1.0), 1.0
    if task in RATES:  # with next to no penalty: rows are many
        plain = TweedieRegressor(
            power=RATES[task], link="log", alpha=1e-6, solver="newton-cholesky", max_iter=1000
        )
        return np.asarray(plain.fit(mapped(X)[:, 1:], y).predict(mapped(X_test)[:, 1:])), 1e-6
    middle = 0.0
    unit = 1.0
    if split.target_bounds is not None:
        middle = float(np.quantile(y, LEVELS.get(task, 0.5)) if task in LEVELS else y.mean())
        unit = float(np.abs(y - middle).mean() if task in LEVELS else y.std()) or 1.0
    rows = mapped(X)
    targets = (y - middle) / unit
    some = np.random.default_rng(0).permutation(len(y))[:MOST_CHECKED]
    fold = np.arange(len(some)) % FOLDS
    risks = np.zeros(len(PENALTIES))
    for k in range(FOLDS):
        fitted = some[fold != k]
        checked = some[fold == k]
        theta: Array | None = None
        for j, penalty in reversed(list(enumerate(PENALTIES))):
            theta = solved(solving, rows[fitted], targets[fitted], penalty, theta)
            risks[j] += prediction_loss(solving, targets[checked], rows[checked] @ theta)
    penalty = PENALTIES[int(np.argmin(risks))]
    theta = solved(solving, rows, targets, penalty)
    return np.asarray(middle + unit * (mapped(X_test) @ theta)), penalty


def constant_loss(task: str, split: Split) -> float:
    """Return the test loss of the best constant of the training rows."""
    y = split.y_train
    if task == "auc":
        return 0.5
    if task in OUTCOMES:
        nothing = np.ones((len(y), 1)), y, np.ones((len(split.y_test), 1))
        return prediction_loss(task, split.y_test, outcome_scores(task, *nothing, 0.0))
    if task == "logistic":
        share = np.clip(np.mean(y > 0), 0.5 / len(y), 1 - 0.5 / len(y))
        score = float(np.log(share / (1 - share)))
    elif task == "svm":
        score = 1.0 if np.mean(y > 0) > 0.5 else -1.0
    else:
        score = float(
            y.mean() if task == "linear" or task in RATES else np.quantile(y, LEVELS[task])
        )
    return prediction_loss(task, split.y_test, np.full(len(split.y_test), score))


def references(table: Table, task: str, seed: int, split: Split) -> tuple[float, float]:
    """Return the losses without privacy and of a constant, from the cache where they are there."""
    rows = len(split.y_train)
    mark = zlib.crc32(np.ascontiguousarray(split.y_train).tobytes())
    mark = zlib.crc32(np.ascontiguousarray(split.X_train[:1000]).tobytes(), mark)
    mark = zlib.crc32(np.ascontiguousarray(split.y_test).tobytes(), mark)

    def place(kind: str) -> Path:
        return CACHE / f"{table.name}-{kind}-{seed}-{rows}-{mark:08x}-{VERSION}.json"

    if not place(task).exists():
        start = time.perf_counter()
        scores, penalty = plain_scores(task, split)
        seconds = time.perf_counter() - start
        CACHE.mkdir(parents=True, exist_ok=True)
        for kind in ("logistic", "auc") if task in ("logistic", "auc") else (task,):
            loss = prediction_loss(kind, split.y_test, scores)
            constant = constant_loss(kind, split)
            found = {"loss": loss, "penalty": penalty, "constant": constant, "seconds": seconds}
            draft = place(kind).with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(found))
            draft.replace(place(kind))
    kept = json.loads(place(task).read_text())
    return float(kept["loss"]), float(kept["constant"])


# -------------------------------------------------------------------------------------------------
# With privacy
# -------------------------------------------------------------------------------------------------


def model_of(task: str, epsilon: float, split: Split, seed: int) -> Any:
    """Return the default estimator of a task: budget, bounds and seed are all that it is told."""
    shared: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "feature_bounds": split.feature_bounds,
        "random_state": seed,
    }
    outcomes = range(int(split.y_train.max()) + 1)
    if task == "hazard":
        return DPDiscreteHazard(range(1, len(outcomes) // 2 + 1), **shared)
    if task in OUTCOMES:
        kind = DPOrdinalRegression if task == "ordinal" else DPLogisticRegression
        return kind(classes=[float(each) for each in outcomes], **shared)
    if task in LEVELS:
        return DPQuantileRegressor(LEVELS[task], target_bounds=split.target_bounds, **shared)
    if task in RATES:
        return DPTweedieRegressor(RATES[task], target_bounds=split.target_bounds, **shared)
    if task == "linear":
        return DPLinearRegression(target_bounds=split.target_bounds, **shared)
    kinds: dict[str, Any] = {
        "logistic": DPLogisticRegression,
        "svm": DPLinearSVC,
        "auc": DPAUCClassifier,
    }
    return kinds[task](classes=[-1.0, 1.0], **shared)


def private_loss(task: str, epsilon: float, split: Split, seed: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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
    return prediction_loss(task, split.y_test, np.asarray(scores, dtype=np.float64))


@dataclass(frozen=True)
class Job:
    """All fits on the rows of one seed of one table."""

    mode: str
    table: str
    tasks: tuple[str, ...]
    seed: int
    epsilons: tuple[float, ...]
    rows: int | None = None
    factors: tuple[float, ...] = (1.0,)
    label: str = ""
    known: frozenset[tuple[Any, ...]] = frozenset()

    def records(self) -> Iterator[Record]:
        """Fit and measure, one record per fit; an error is a record without a loss."""
        table = TABLES[self.table]
        for factor in self.factors:
            split: Split | None = None
            for task in self.tasks:
                for epsilon in self.epsilons:
                    if (self.table, task, self.seed, epsilon, self.rows, factor) in self.known:
                        continue
                    split = split or table.load(self.seed, self.rows, factor)
                    yield self.record(table, task, epsilon, factor, split)

    def record(
        self, table: Table, task: str, epsilon: float, factor: float, split: Split
    ) -> Record:
        """Fit and measure once."""
        if self.mode == "blowups":
            reference = math.nan
            constant = constant_loss(task, split)
        else:
            reference, constant = references(table, task, self.seed, split)
        start = time.perf_counter()
        loss = math.nan
        error = ""
        try:
            loss = private_loss(task, epsilon, split, 1000 * self.seed + 7)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        return {
            "label": self.label,
            "mode": self.mode,
            "table": self.table,
            "half": table.half,
            "task": task,
            "seed": self.seed,
            "epsilon": epsilon,
            "asked": self.rows,
            "rows": len(split.y_train),
            "factor": factor,
            "loss": loss,
            "reference": reference,
            "constant": constant,
            "seconds": round(time.perf_counter() - start, 3),
            "error": error,
        }


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


def mu_of(epsilon: float, delta: float = DELTA) -> float:
    """Return the mu of Gaussian DP that gives (epsilon, delta)."""

    def excess(mu: float) -> float:
        first = float(log_ndtr(-epsilon / mu + mu / 2))
        second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
        return first + math.log1p(-math.exp(min(second - first, -1e-15))) - math.log(delta)

    return float(brentq(excess, 1e-3 * min(1.0, epsilon), 10 + 2 * math.sqrt(2 * epsilon)))


# -------------------------------------------------------------------------------------------------
# What is said of the records
# -------------------------------------------------------------------------------------------------


def rises(before: Array, after: Array) -> bool:
    """Whether paired losses rise by more than 1 % and by more than 3.5 standard errors of their
    differences.
    """
    gaps = after - before
    error = gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    return bool(gaps.mean() > max(0.01 * abs(before.mean()), 3.5 * error))


def above(table: Table, task: str, loss: float, reference: float) -> bool:
    """Whether a loss at epsilon 100 is not that without privacy."""
    if table.separable:
        return False
    if task == "auc":
        return loss - reference > 0.001
    allowed = 1.01 if table.skewed and task == "linear" else 1.005
    return loss > allowed * reference and loss - reference > 0.002


def by_cell(
    records: Iterable[Record], key: str
) -> dict[tuple[str, str], dict[float, list[Record]]]:
    """Group records by table and task, and within by a key such as epsilon."""
    found: dict[tuple[str, str], dict[float, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        found[record["table"], record["task"]][record[key]].append(record)
    return found


def losses_of(records: list[Record], name: str = "loss") -> dict[int, float]:
    return {record["seed"]: record[name] for record in records if not math.isnan(record["loss"])}


def paired(before: list[Record], after: list[Record]) -> tuple[Array, Array]:
    """Return the losses of the seeds that both have."""
    first = losses_of(before)
    second = losses_of(after)
    seeds = [seed for seed in first if seed in second]
    return np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds])


def excess(task: str, loss: float, reference: float) -> str:
    return f"{loss - reference:+9.4f}" if task == "auc" else f"{loss / reference:9.4f}"


def line(mode: str, name: str, task: str, cells: dict[float, list[Record]]) -> str:
    """Return what one table and task show: losses over those without privacy, and flags."""
    key, letter = {"rows": ("rows", "n"), "bounds": ("factor", "x")}.get(mode, ("epsilon", "eps"))
    table = TABLES[name]
    points = sorted(cells)
    flags = []
    parts = []
    for k, point in enumerate(points):
        records = cells[point]
        wrong = [record["error"] for record in records if record["error"]]
        if wrong:
            flags.append(f"ERROR {letter}={point:g} ({len(wrong)}x {wrong[0][:60]})")
        losses = losses_of(records)
        plain = losses_of(records, "reference")
        if not losses:
            parts.append("      nan")
            continue
        loss = np.mean(list(losses.values()))
        reference = np.mean(list(plain.values()))
        if mode == "bounds":
            start, wide = paired(cells[points[0]], records)
            parts.append(f"{wide.mean() / start.mean():9.4f}" if len(start) else "      nan")
            if k and len(start) and rises(start, wide):
                flags.append(f"RISES x={point:g}")
            continue
        parts.append(excess(task, float(loss), float(reference)))
        if k:
            before, after = paired(cells[points[k - 1]], records)
            if len(before) and rises(before, after):
                flags.append(f"RISES {letter}={point:g}")
            for earlier in points[: k - 1]:
                before, after = paired(cells[earlier], records)
                if len(before) and rises(before, after):
                    flags.append(f"CREEPS {letter}={earlier:g}-{point:g}")
                    break
        size = min(record["rows"] for record in records)
        at = mode == "budgets" and point == 100 and size >= 5000
        if at and above(table, task, float(loss), float(reference)):
            flags.append("ABOVE")
    every = [record for records in cells.values() for record in records]
    reference = np.mean([record["reference"] for record in every])
    constant = np.mean([record["constant"] for record in every])
    sizes = f"n={max(record['rows'] for record in every)}" if key != "rows" else ""
    where = " ".join(f"{point:g}:{part.strip()}" for point, part in zip(points, parts, strict=True))
    seeds = len({record["seed"] for record in every})
    start_of = f"{name:<15} {task:<9} {table.half:<7} {sizes:<9} seeds={seeds:<2}"
    const = f"{constant - reference:+.4f}" if task == "auc" else f"{constant / reference:.4f}"
    return f"{start_of} plain {reference:<10.5g} constant {const:<8} {where}  {' '.join(flags)}"


def blowup_line(name: str, task: str, cells: dict[float, list[Record]]) -> str:
    parts = []
    flags = []
    for epsilon in sorted(cells):
        records = cells[epsilon]
        wrong = sum(bool(record["error"]) for record in records)
        over = np.array(
            [r["loss"] / r["constant"] for r in records if not r["error"]] or [math.nan]
        )
        # Each by the constant's loss on the same test rows: heavy tails make whole test sets
        # costly.
        many = int(np.count_nonzero(~(over <= 2)))
        middle = np.median(over)
        top = over.max()
        parts.append(
            f"{epsilon:g}: {many}/{len(over)} blow up, median {middle:.3f}, worst {top:.3f}"
        )
        flags += [f"BLOWUP eps={epsilon:g}"] * (many > 0)
        flags += [f"ERROR eps={epsilon:g} ({wrong}x)"] * (wrong > 0)
    rows = max(record["rows"] for records in cells.values() for record in records)
    return (
        f"{name:<15} {task:<9} n={rows:<6} of a constant's loss {'; '.join(parts)}  "
        f"{' '.join(flags)}"
    )


KEYS = {"budgets": "epsilon", "rows": "rows", "bounds": "factor", "blowups": "epsilon"}


def lines(records: list[Record]) -> Iterator[str]:
    """Yield one line per mode, table and task; with several budgets, for rows and bounds also
    one per budget.
    """
    for mode, key in KEYS.items():
        of_mode = [record for record in records if record["mode"] == mode]
        budgets = sorted({record["epsilon"] for record in of_mode})
        groups = [(None, of_mode)] if key == "epsilon" else []
        if key != "epsilon":
            groups = [(e, [r for r in of_mode if r["epsilon"] == e]) for e in budgets]
        for epsilon, group in groups:
            for (name, task), cells in by_cell(group, key).items():
                text = (
                    blowup_line(name, task, cells)
                    if mode == "blowups"
                    else line(mode, name, task, cells)
                )
                yield text if epsilon is None else f"eps={epsilon:<5g} {text}"


def read(paths: Iterable[Path]) -> list[Record]:
    """Read records, the last one of a kind."""
    kept: dict[tuple[Any, ...], Record] = {}
    for path in paths:
        for text in path.read_text().splitlines():
            record = json.loads(text)
            kept[record["label"], record["mode"], *identity(record)] = record
    return list(kept.values())


def identity(record: Record) -> tuple[Any, ...]:
    return tuple(record[k] for k in ("table", "task", "seed", "epsilon", "asked", "factor"))


def compared(old: list[Record], new: list[Record]) -> Iterator[str]:
    """Yield the ratio of mean losses per cell over the fits that both have, for AUC the
    difference of losses.
    """
    earlier = {(record["mode"], *identity(record)): record for record in old}
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for record in new:
        before = earlier.get((record["mode"], *identity(record)))
        if before is not None and not (before["error"] or record["error"]):
            place = [record[k] for k in ("mode", "table", "task", "asked", "factor", "epsilon")]
            cell = tuple(place)
            found[cell].append((before["loss"], record["loss"]))
    last = None
    text = ""
    for cell, values in found.items():
        mode, name, task, asked, factor, epsilon = cell
        first, second = np.array(values).T
        gaps = second - first
        error = gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        sure = abs(gaps.mean()) > 3 * error and len(gaps) > 1
        scale = 1.0 if task == "auc" else first.mean()
        change = gaps.mean() / scale + (0.0 if task == "auc" else 1.0)
        number = f"{change:+.4f}" if task == "auc" else f"{change:.4f}"
        if cell[:5] != last:
            if text:
                yield text
            last = cell[:5]
            where = f" n={asked}" * (asked is not None) + f" x{factor:g}" * (factor != 1)
            text = f"{mode:<8} {name:<15} {task:<9}{where:<12}"
        mark = "" if not sure else "-" if gaps.mean() < 0 else "+"
        text += f" {epsilon:g}: {number}{mark}"
    if text:
        yield text


# -------------------------------------------------------------------------------------------------
# Running
# -------------------------------------------------------------------------------------------------


def planned(options: argparse.Namespace, known: frozenset[tuple[Any, ...]]) -> list[Job]:
    """Return the jobs of a mode, the first seed of all tables first."""
    mode = options.mode
    jobs = []
    tables = chosen(options.tables, options.tasks, options.half)
    first, last = ([0, *options.seeds] if len(options.seeds) == 1 else options.seeds)[:2]
    for seed in range(first, last):
        if mode == "blowups":
            for name, task, rows in BLOWUPS:
                if any(name == table.name and task in tasks for table, tasks in tables):
                    epsilons = tuple(options.epsilon or (0.3, 1.0))
                    jobs.append(
                        Job(mode, name, (task,), seed, epsilons, rows, (1.0,), options.label, known)
                    )
            continue
        for table, tasks in tables:
            sizes: list[int | None] = [None]
            epsilons = tuple(options.epsilon or EPSILONS)
            factors: tuple[float, ...] = (1.0,)
            if mode == "rows" or options.rows:
                sizes = list(options.rows or ROWS)
            if mode == "rows":
                epsilons = tuple(options.epsilon or (1.0,))
                most = 10**9 if table.generated else len(table.load(seed).y_train)
                sizes = [size for size in sizes if size is not None and size <= most]
            for size in sizes:
                if mode == "bounds":
                    n = size or len(table.load(seed).y_train)
                    factors = tuple(options.factors)
                    wanted = options.epsilon or (1.0, 4.0)
                    epsilons = tuple(e for e in wanted if n * mu_of(e) >= 100)
                jobs.append(
                    Job(
                        mode, table.name, tasks, seed, epsilons, size, factors, options.label, known
                    )
                )
    return jobs


def measured(options: argparse.Namespace, say: Callable[[str], None]) -> list[Record]:
    """Carry out the jobs of a mode, write every record at once, and say a line when its last
    record is there.
    """
    known: list[Record] = []
    if options.out is not None and options.resume and options.out.exists():
        known = [
            record
            for record in read([options.out])
            if record["label"] == options.label and record["mode"] == options.mode
        ]
    marks = frozenset(identity(record) for record in known)
    jobs = planned(options, marks)
    left: dict[tuple[str, str], int] = defaultdict(int)
    for job in jobs:
        for task in job.tasks:
            left[job.table, task] += sum(
                (job.table, task, job.seed, epsilon, job.rows, factor) not in marks
                for epsilon in job.epsilons
                for factor in job.factors
            )
    found = list(known)
    file = options.out.open("a" if options.resume else "w") if options.out is not None else None
    for record in carried_out(jobs, options.jobs):
        found.append(record)
        if file is not None:
            file.write(json.dumps(record) + "\n")
            file.flush()
        cell = record["table"], record["task"]
        left[cell] -= 1
        if not left[cell]:
            for text in lines([r for r in found if (r["table"], r["task"]) == cell]):
                say(text)
    if file is not None:
        file.close()
    return found


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consistent")
    modes = ["budgets", "rows", "bounds", "blowups", "report", "compare"]
    parser.add_argument("mode", nargs="?", choices=modes, default="budgets")
    parser.add_argument("files", nargs="*", type=Path, help="of report and compare")
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--half", choices=["tuning", "blind", "all"], default="all")
    parser.add_argument("--epsilon", nargs="+", type=float)
    parser.add_argument("--seeds", nargs="+", type=int, help="how many, or from and to")
    parser.add_argument("--rows", nargs="+", type=int)
    parser.add_argument("--factors", nargs="+", type=float, default=list(FACTORS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--label", default="")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(words)
    options.seeds = options.seeds or ([200] if options.mode == "blowups" else [8])
    return options


def run(seeds: int = 2) -> Iterator[Measurement]:
    """Yield the loss at epsilon 100 over that without privacy, of AUC how much is missing."""
    cells_of = [(table.name, task) for table, tasks in chosen() for task in tasks]
    for name, task in cells_of:
        words = ["--tables", name, "--tasks", task, "--seeds", str(seeds), "--epsilon", "1", "100"]
        records = measured(arguments(["budgets", *words]), lambda text: None)
        cells = by_cell(records, "epsilon")[name, task]
        table = TABLES[name]
        found = cells[100.0]
        loss = float(np.mean([record["loss"] for record in found]))
        plain = float(np.mean([record["reference"] for record in found]))
        bar: float | None = 1.01 if table.skewed and task == "linear" else 1.005
        value = loss / plain
        if task == "auc":
            value = loss - plain
            bar = 0.001
        elif table.separable or found[0]["rows"] < 5000:
            bar = None
        elif loss - plain <= 0.002:
            bar = max(value, 1.005)
        detail = line("budgets", name, task, cells).split("plain")[1].strip()
        yield Measurement(f"{name}, {task}, eps=100", value, bar, detail=f"{table.half}; {detail}")


def main() -> None:
    options = arguments()
    if options.mode == "report":
        for text in lines(read(options.files)):
            print(text)
    elif options.mode == "compare":
        old, new = options.files
        for text in compared(read([old]), read([new])):
            print(text)
    else:
        measured(options, lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()
