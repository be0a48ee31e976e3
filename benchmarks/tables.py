"""A registry of tables with public bounds, real and generated, on which the default fits are
measured.

Half of the tables were looked at while the default was made (``"tuning"``), the others are blind.
Bounds are known ranges, or the range of a scaling upstream; those of generated tables are rounded
and wider than what is drawn.

``python -m benchmarks tables`` prints rows, columns and what is known of the target, and measures
nothing else.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks import Measurement
from dpconvex_reproduction.datasets import (
    Dataset,
    load_a9a,
    load_adult,
    load_bank_campaign,
    load_bike,
    load_census_wages,
    load_covtype,
    load_http,
    load_ijcnn1,
    load_satimage,
    load_skin,
)

__all__ = [
    "CLASSIFICATION",
    "LEVELS",
    "OUTCOMES",
    "RATES",
    "REGRESSION",
    "TABLES",
    "Split",
    "Table",
    "chosen",
]

Array = NDArray[np.float64]
Bounds = tuple[Array, Array]
Draw = Callable[[np.random.Generator, int], tuple[Array, Array]]

CLASSIFICATION = ("logistic", "svm", "auc")
REGRESSION = ("median", "upper", "linear")
LEVELS = {"median": 0.5, "upper": 0.9}
RATES = {"poisson": 1.0, "tweedie": 1.5, "gamma": 2.0}  # powers of the variance
OUTCOMES = ("classes", "ordinal", "hazard")  # whose targets are numbers of outcomes, from 0 on
TEST_SHARE = 0.2
MOST_TEST_ROWS = 50_000
GENERATED_TEST_ROWS = 40_000


class Split(NamedTuple):
    """Training and test rows with their public bounds; labels are -1 and +1."""

    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array
    feature_bounds: Bounds
    target_bounds: tuple[float, float] | None


def widened(low: Array, high: Array, factor: float) -> Bounds:
    """Return bounds that are wider by a factor: around 0 where they contain it, else around
    their centre.
    """
    centre = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)
    return centre + factor * (low - centre), centre + factor * (high - centre)


@dataclass(frozen=True)
class Table:
    """Rows of one kind, the tasks that they serve, and public bounds.

    Attributes
    ----------
    name : str
        Without blanks.
    half : str
        "tuning" or "blind".
    tasks : tuple of str
        Of "logistic", "svm" and "auc" for labels, of "median", "upper" (the 0.9 quantile) and
        "linear" for numbers, of "poisson", "gamma" and "tweedie" for those of at least 0;
        "classes", "ordinal" or "hazard" for outcomes.
    read : callable or None
        Loads real data.
    draw : callable or None
        ``draw(rng, n)`` returns X and y of generated data.
    rows : int
        Number of training rows of generated data, the most training rows of real ones.
    bounds : pair
        Feature bounds of generated data, numbers or one per column.
    target : pair or None
        Target bounds of generated data.
    skewed : bool
        Whether squares of the target are ruled by a few rows, so that a mean may cost more.
    separable : bool
        Whether labels are nearly a function of the features, so that any noise costs a large part
        of a small loss.
    """

    name: str
    half: str
    tasks: tuple[str, ...]
    read: Callable[[], Dataset] | None = None
    draw: Draw | None = None
    rows: int = 200_000
    bounds: tuple[float | list[float], float | list[float]] = (0.0, 1.0)
    target: tuple[float, float] | None = None
    skewed: bool = False
    separable: bool = False

    @property
    def generated(self) -> bool:
        """Whether any number of rows can be had."""
        return self.draw is not None

    def load(self, seed: int, rows: int | None = None, bounds_factor: float = 1.0) -> Split:
        """Return the training and test rows of a seed, with their bounds.

        Parameters
        ----------
        seed : int
            Of the split of real data, of the draw of generated ones; test rows do not depend on
            ``rows``.
        rows : int or None
            Number of training rows, of real data at most as many as there are.
        bounds_factor : float
            Widens all bounds.
        """
        X, y, X_test, y_test, low, high, target = (
            self._draw_rows(seed, rows) if self.draw is not None else self._split_rows(seed, rows)
        )
        if target is not None:
            bottom, top = widened(np.array(target[0]), np.array(target[1]), bounds_factor)
            target = float(bottom), float(top)
        return Split(X, y, X_test, y_test, widened(low, high, bounds_factor), target)

    def _draw_rows(
        self, seed: int, rows: int | None
    ) -> tuple[Array, Array, Array, Array, Array, Array, tuple[float, float] | None]:
        assert self.draw is not None
        key = zlib.crc32(self.name.encode())
        X, y = self.draw(np.random.default_rng([seed, key, 0]), rows or self.rows)
        X_test, y_test = self.draw(np.random.default_rng([seed, key, 1]), GENERATED_TEST_ROWS)
        width = np.ones(X.shape[1])
        low, high = (np.asarray(bound, dtype=np.float64) * width for bound in self.bounds)
        return X, y, X_test, y_test, low, high, self.target

    def _split_rows(
        self, seed: int, rows: int | None
    ) -> tuple[Array, Array, Array, Array, Array, Array, tuple[float, float] | None]:
        X, y, (low, high), target = _pooled(self.name)
        order = np.random.default_rng([seed, 5]).permutation(len(y))
        tested = min(round(TEST_SHARE * len(y)), MOST_TEST_ROWS)
        test = order[:tested]
        train = order[tested : tested + min(rows or self.rows, self.rows)]
        return (
            X[train].astype(np.float64),
            y[train],
            X[test].astype(np.float64),
            y[test],
            low,
            high,
            target,
        )


@lru_cache(maxsize=3)
def _pooled(
    name: str,
) -> tuple[NDArray[np.floating[Any]], Array, Bounds, tuple[float, float] | None]:
    """Return all rows of a data set, its own test part included."""
    read = TABLES[name].read
    assert read is not None
    data = read()
    X = data.X
    y = np.asarray(data.y, dtype=np.float64)
    if data.X_test is not None and data.y_test is not None:
        X = np.concatenate([X, data.X_test])
        y = np.concatenate([y, data.y_test])
    if TABLES[name].tasks == ("classes",):
        y = np.unique(y, return_inverse=True)[1].astype(np.float64)
    elif data.target_bounds is None and TABLES[name].tasks[0] not in OUTCOMES:
        y = np.where(y == y.max(), 1.0, -1.0)
    return X, y, data.feature_bounds, data.target_bounds


def _folder() -> str:
    return os.environ.get("DPCONVEX_DATA") or "../shared/data"


def _labels(rng: np.random.Generator, margins: Array) -> Array:
    return np.where(rng.random(len(margins)) < expit(margins), 1.0, -1.0)


def wealth(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw net worth of households: lognormal assets without debts of their own; a fifth is
    below 0.
    """
    age = rng.integers(25, 65, n)
    years = np.clip(np.rint(rng.normal(13, 2.8, n)), 1, 18)
    income = np.exp(10.4 + 0.04 * (years - 13) + 0.55 * rng.standard_normal(n))
    size = 1 + rng.poisson(1.8, n).clip(0, 12)
    married = rng.random(n) < 0.6
    plan = rng.random(n) < expit(0.7 * np.log(income / 33_000) - 0.6)
    home = rng.random(n) < expit(0.05 * (age - 40) + 0.8 * np.log(income / 33_000) + 0.4)
    centre = 8.0 + 0.03 * (age - 45) + 1.1 * np.log(income / 33_000) + 0.7 * home + 0.6 * plan
    assets = np.exp(centre + rng.standard_normal(n))
    debts = (rng.random(n) < 0.6) * np.exp(8.0 + 0.9 * rng.standard_normal(n))
    X = np.column_stack([age, years, income, size, married, plan, home]).astype(float)
    return X, assets - debts


def counts(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw numbers of arrests: seven of ten are 0, variance above the mean."""
    convicted = np.where(rng.random(n) < 0.5, 0.0, rng.random(n))
    sentence = np.where(rng.random(n) < 0.85, 0.0, rng.gamma(1.0, 12.0, n)).clip(0, 120)
    months = np.where(rng.random(n) < 0.95, 0.0, rng.integers(1, 13, n))
    quarters = rng.choice(5, n, p=[0.3, 0.15, 0.12, 0.13, 0.3]).astype(float)
    income = np.where(quarters > 0, rng.gamma(1.5, 45.0, n), 0.0).clip(0, 1000)
    group = rng.random(n) < 0.16
    other = rng.random(n) < 0.22
    rate = -0.65 - 0.4 * convicted - 0.1 * months - 0.05 * quarters - 0.006 * income
    rate = rate + 0.55 * group + 0.45 * other + 0.002 * sentence
    y = rng.poisson(np.exp(rate) * rng.gamma(1.5, 1 / 1.5, n)).astype(float)
    columns = [convicted, sentence, months, quarters, income, group, other]
    return np.column_stack(columns).astype(float), y


def gifts(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw gifts to a charity: three of five are 0, the others have a Pareto tail of index 2.5."""
    mailings = rng.integers(0, 5, n)
    weeks = rng.gamma(2.0, 25.0, n).clip(0, 250)
    share = rng.random(n)
    earlier = rng.gamma(1.2, 15.0, n).clip(0, 300)
    answered = rng.random(n) < share
    gives = expit(-2.2 + 2.4 * share + 0.25 * mailings - 0.01 * weeks + 0.8 * answered)
    size = (2 + 1.2 * earlier + 2 * mailings) * (1 + rng.pareto(2.5, n)) * 0.6
    X = np.column_stack([mailings, weeks, share, earlier, answered]).astype(float)
    return X, np.where(rng.random(n) < gives, size, 0.0)


def rare(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 10))
    return X, _labels(rng, -5.35 + X @ [1.0, 0.7, -0.6, 0.4, 0.3, 0, 0, 0, 0, -0.2])


def separable(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 8))
    return X, _labels(rng, 15 * (X @ [1.0, -0.8, 0.6, 0.4, 0.3, 0, 0, -0.5] + 0.3))


def _dummies(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    chance = 1 / np.arange(1, 11)
    found = rng.choice(10, (n, 10), p=chance / chance.sum())
    X = np.zeros((n, 100))
    X[np.arange(n)[:, None], 10 * np.arange(10) + found] = 1
    return X, X @ np.random.default_rng(3).standard_normal(100)


def dummy_labels(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X, signal = _dummies(rng, n)
    return X, _labels(rng, 0.5 * signal - 0.3)


def dummy_values(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X, signal = _dummies(rng, n)
    return X, 10 + signal + 3 * rng.standard_normal(n)


def normal(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 20))
    return X, 2 + X @ np.linspace(-0.5, 0.5, 20) + rng.standard_normal(n)


def heavy_labels(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_t(2.5, (n, 6))
    return X, _labels(rng, -0.5 + np.clip(X, -8, 8) @ [0.8, -0.5, 0.4, 0.2, 0, 0])


def heavy_values(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_t(2.5, (n, 6))
    return X, 1 + X @ [0.8, -0.5, 0.4, 0.2, 0, 0] + rng.standard_t(4, n)


def schooling(hazard: bool) -> Dataset:
    """Return what adults' schooling tells: its level in five steps, or when it ended.

    As survival, a record of somebody below 25 is censored at the level that was reached: studies
    may go on. Levels are learned with hours of work and income, their ends with age, sex, race and
    country alone, which come before them.
    """
    adult = load_adult(folder=_folder())
    age, years, hours = (
        adult.raw[name].astype(float) for name in ("age", "education_num", "hours_per_week")
    )
    flags = [("sex", "Male"), ("native_country", "United-States")]
    flags += [("race", race) for race in ("Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo")]
    if not hazard:
        flags.append(("income", ">50K"))
    columns = [
        age,
        *(adult.raw[name] == word for name, word in flags),
        *([] if hazard else [hours]),
    ]
    low = np.zeros(len(columns))
    high = np.ones(len(columns))
    low[0] = 17
    high[0] = 90
    high[-1] = 1 if hazard else 99
    # To the 11th grade, 12th, school left with a diploma, college, a first degree, a higher one.
    ended = 2.0 * np.searchsorted((8, 9, 10, 12, 13), years) + (age >= 25)
    y = ended if hazard else np.searchsorted((8, 9, 12, 13), years).astype(float)
    return replace(
        adult,
        X=np.column_stack(columns).astype(float),
        y=y,
        feature_bounds=(low, high),
        X_test=None,
        y_test=None,
    )


def levels(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw seven ordered levels, the outer ones rare."""
    X = rng.normal(size=(n, 5)).clip(-8, 8)
    margins = X @ [1.0, -0.7, 0.4, 0.0, 0.0] + rng.logistic(size=n)
    return X, np.searchsorted([-4.0, -2.0, -0.5, 0.5, 2.0, 4.5], margins).astype(float)


def lifetimes(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw outcomes of six periods: exponential times whose hazards are proportional, censored
    at random.
    """
    X = rng.normal(size=(n, 5)).clip(-8, 8)
    time = rng.exponential(5 * np.exp(-X @ [0.8, -0.5, 0.3, 0.0, 0.0]))
    end = rng.uniform(0, 9, n)
    event = np.minimum(np.floor(time), 6)
    survived = np.minimum(np.floor(end), 6)
    return X, np.where((time <= end) & (event < 6), 2 * event + 1, 2 * np.minimum(survived, event))


def linear_table(name: str) -> Dataset:
    """Return one of eight small regressions, scaled upstream, with bounds of that scaling.

    A column's bound is its largest size over both parts, which the scaling made public.
    """
    with np.load(f"{_folder()}/uci_linear/{name}.npz") as file:
        X, y, X_test, y_test = (file[key].astype(np.float64) for key in ("X", "y", "Xt", "yt"))
    largest = np.maximum(np.abs(np.vstack([X, X_test])).max(axis=0), 1e-9)
    return Dataset(
        name=name,
        X=X,
        y=y,
        feature_names=tuple(f"x{number}" for number in range(X.shape[1])),
        target_name="y",
        description="A regression of the UCI repository, scaled upstream.",
        source="UCI Machine Learning Repository",
        licence="CC BY 4.0",
        feature_bounds=(-largest, largest),
        target_bounds=(-1.0, 1.0),
        X_test=X_test,
        y_test=y_test,
    )


_LINEAR = {
    "tuning": ("airfoil", "crime", "parkinsons", "wine"),
    "blind": ("concrete", "elevators", "energy", "pol"),
}
_WEALTH = ([18.0, 0, 0, 1, 0, 0, 0], [100.0, 20, 500_000, 20, 1, 1, 1])
_COUNTS = ([0.0] * 7, [1.0, 240, 12, 4, 1000, 1, 1])
_GIFTS = ([0.0] * 5, [5.0, 500, 1, 500, 1])

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("adult", "tuning", CLASSIFICATION, lambda: load_adult(folder=_folder())),
        Table("a9a", "tuning", ("logistic", "auc"), lambda: load_a9a(folder=_folder())),
        Table("ijcnn1", "blind", CLASSIFICATION, lambda: load_ijcnn1(folder=_folder())),
        Table("bank", "tuning", ("logistic", "svm"), lambda: load_bank_campaign(folder=_folder())),
        Table(
            "covtype", "blind", ("logistic",), lambda: load_covtype(folder=_folder()), rows=100_000
        ),
        Table("bike", "tuning", (*REGRESSION, "poisson"), lambda: load_bike(folder=_folder())),
        Table(
            "wages", "blind", (*REGRESSION, "gamma"), lambda: load_census_wages(folder=_folder())
        ),
        Table("http", "tuning", ("auc",), lambda: load_http(folder=_folder()), rows=100_000),
        Table("skin", "tuning", ("logistic",), lambda: load_skin(folder=_folder())),
        Table("satimage", "blind", ("logistic", "auc"), lambda: load_satimage(folder=_folder())),
        Table(
            "wealth",
            "tuning",
            REGRESSION,
            draw=wealth,
            rows=9000,
            bounds=_WEALTH,
            target=(-2e5, 1.5e6),
            skewed=True,
        ),
        Table(
            "counts",
            "blind",
            ("upper", "linear", "poisson"),
            draw=counts,
            rows=2700,
            bounds=_COUNTS,
            target=(0, 30),
            skewed=True,
        ),
        Table(
            "counts-large",
            "blind",
            ("upper", "linear", "poisson"),
            draw=counts,
            rows=20_000,
            bounds=_COUNTS,
            target=(0, 30),
            skewed=True,
        ),
        Table(
            "gifts",
            "tuning",
            (*REGRESSION, "tweedie"),
            draw=gifts,
            rows=10_000,
            bounds=_GIFTS,
            target=(0, 4000),
            skewed=True,
        ),
        Table("rare", "blind", ("logistic", "auc"), draw=rare, rows=20_000, bounds=(-8, 8)),
        Table(
            "separable",
            "tuning",
            ("logistic", "svm"),
            draw=separable,
            rows=10_000,
            bounds=(-8, 8),
            separable=True,
        ),
        Table("dummies-labels", "blind", ("logistic",), draw=dummy_labels, rows=40_000),
        Table(
            "dummies-values",
            "blind",
            ("linear",),
            draw=dummy_values,
            rows=40_000,
            target=(-50, 50),
        ),
        Table(
            "normal",
            "tuning",
            REGRESSION,
            draw=normal,
            rows=10_000,
            bounds=(-8, 8),
            target=(-20, 20),
        ),
        Table(
            "heavy-labels",
            "tuning",
            ("logistic", "svm"),
            draw=heavy_labels,
            rows=10_000,
            bounds=(-100, 100),
        ),
        Table(
            "heavy-values",
            "tuning",
            REGRESSION,
            draw=heavy_values,
            rows=10_000,
            bounds=(-100, 100),
            target=(-100, 100),
        ),
        Table(
            "satimage-6",
            "blind",
            ("classes",),
            lambda: load_satimage(folder=_folder(), binary=False),
        ),
        Table(
            "covtype-7",
            "blind",
            ("classes",),
            lambda: load_covtype(folder=_folder(), binary=False),
            rows=20_000,
        ),
        Table("school-level", "blind", ("ordinal",), lambda: schooling(hazard=False)),
        Table("school-end", "blind", ("hazard",), lambda: schooling(hazard=True)),
        Table("levels", "blind", ("ordinal",), draw=levels, rows=20_000, bounds=(-8, 8)),
        Table("lifetimes", "blind", ("hazard",), draw=lifetimes, rows=20_000, bounds=(-8, 8)),
        *(
            Table(name, half, ("linear",), partial(linear_table, name))
            for half, names in _LINEAR.items()
            for name in names
        ),
    )
}


def chosen(
    names: list[str] | None = None, tasks: list[str] | None = None, half: str = "all"
) -> list[tuple[Table, tuple[str, ...]]]:
    """Return the tables with these names and of this half, each with those of the tasks that it
    serves.
    """
    found = []
    for name in names or TABLES:
        if name not in TABLES:
            raise SystemExit(f"There is no table {name!r}; there are {', '.join(TABLES)}.")
        table = TABLES[name]
        kept = tuple(task for task in table.tasks if tasks is None or task in tasks)
        if kept and half in ("all", table.half):
            found.append((table, kept))
    return found


def run() -> Iterator[Measurement]:
    for table in TABLES.values():
        X, y, X_test, y_test, (low, high), target = table.load(0)
        outside = float(np.mean(np.clip(X, low, high) != X))
        detail = f"{table.half}; {X.shape[1]} columns, {len(y_test)} test rows, "
        detail += f"{outside:.2g} of X outside its bounds, "
        if table.tasks[0] in OUTCOMES:
            detail += f"{int(y.max()) + 1} outcomes"
        elif target is None:
            detail += f"{np.mean(y > 0):.3g} positive"
        else:
            rows, test = (np.column_stack([np.ones(len(Z)), Z]) for Z in (X, X_test))
            theta = np.linalg.lstsq(rows, y, rcond=None)[0]
            explained = 1 - np.mean((y_test - test @ theta) ** 2) / np.var(y_test)
            detail += (
                f"R2 {explained:.3f}, zeros {np.mean(y == 0):.2f}, below 0 {np.mean(y < 0):.2f}, "
            )
            detail += f"target {y.min():g} to {y.max():g} in {target}"
        yield Measurement(f"{table.name}, rows", len(y), detail=detail)
