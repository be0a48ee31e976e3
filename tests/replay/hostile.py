"""Answers that no noise gives, and settings of fits at the ends of what is allowed.

Whatever a fit is told, it ends in a model or in the one error that says so: what it has paid for is
lost otherwise, and an error of arithmetic would tell an observer what was released.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from replaying import Replay
from scipy.sparse import csr_array
from transcript import Transcript, listening

import dpconvex as dp
from dpconvex.fit.plausible_answers import ReleasedNumbersError

KINDS = (
    "zero",
    "smallest",
    "huge",
    "plus",
    "minus",
    "largest",
    "alternating",
    "any size",
    "edge",
    "still",
    "mirrored",
    "far",
    "one number",
    "sorted",
    "noise",
    "mixed",
)


class Hostile:
    """Answers of one kind, or of all of them in turn."""

    def __init__(self, seed: int, kind: str | None = None) -> None:
        self.rng = np.random.default_rng([seed, 17])
        self.kind = kind or str(self.rng.choice(KINDS))
        self.asked = 0

    def __call__(self, value: np.ndarray, scale: float) -> np.ndarray | None:
        rng = self.rng
        kind = self.kind
        self.asked += 1
        if kind == "mixed":
            kind = str(rng.choice([*KINDS[:-1], "honest", "honest", "honest"]))
        value = np.asarray(value, dtype=np.float64)
        signs = rng.choice([-1.0, 1.0], value.shape)
        sizes = {
            "smallest": 5e-324,
            "huge": 1e300,
            "largest": np.finfo(np.float64).max,
            "any size": 2.0 ** float(rng.integers(-1000, 1000)),
            "far": 2.0**20 * scale,
        }
        if kind == "honest":
            return None
        if kind in sizes:
            return sizes[kind] * signs
        if kind in ("plus", "minus", "alternating"):
            sign = -1.0 if kind == "minus" or (kind == "alternating" and self.asked % 2) else 1.0
            return np.full(value.shape, sign * 1e300)
        if kind == "noise":
            return rng.standard_normal(value.shape) * scale * 10.0 ** float(rng.integers(-2, 4))
        if kind == "sorted":
            drawn = np.sort(rng.standard_normal(value.size)).reshape(value.shape)
            return drawn * scale * 10.0 ** float(rng.integers(-3, 6))
        if kind == "one number":
            lie = np.zeros(value.shape)
            lie.flat[int(rng.integers(value.size))] = rng.choice([-1, 1]) * 10.0 ** float(
                rng.integers(0, 300)
            )
            return lie
        return {
            "zero": 0.0 * value,
            "edge": np.rint(2 * value) / 2,
            "still": value,
            "mirrored": -value,
        }[kind]


def check_outcome(fit: Callable[[], Any], liar: Hostile) -> bool:
    """Fit with hostile answers; return whether a model came of it, after a check of all it shows.

    Nothing but the catalogued error and a refusal before the first question may be raised, and no
    warning but those about privacy, which are said before the charge.
    """
    with ExitStack() as stack:
        transcript = stack.enter_context(listening(Transcript(liar=liar, seed=0)))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dp.PrivacyWarning)
        said = ""
        found = None
        try:
            found = fit()
        except ReleasedNumbersError as error:
            said = str(error)
        except (ValueError, TypeError):
            assert not transcript.questions, "an error after the charge"
        if found is None:
            assert not said or said.startswith(str(ReleasedNumbersError()))
            return False
        for path, numbers in _numbers(vars(found), ""):
            # Curves have no score, and intervals are infinite where no threshold was enough.
            known = path.endswith(("threshold_", "score_"))
            assert known or np.isfinite(numbers).all(), path
        if getattr(found, "inference", False):
            assert np.isfinite(found.confidence_interval()).all()
            found.coefficient_table()
        if hasattr(found, "summary"):
            assert str(found.summary())
    return True


def _numbers(value: Any, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield all released numbers of a fitted estimator."""
    if isinstance(value, dict):
        for name, part in value.items():
            if path or str(name).endswith("_"):
                yield from _numbers(part, f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _numbers(part, path)
    elif isinstance(value, (float, np.floating, np.ndarray)):
        numbers = np.asarray(value)
        if numbers.dtype.kind == "f":
            yield path, numbers


def replayed(name: str, relation: str, variant: str, seed: int) -> Callable[[], Any]:
    """Return a fit of the matrix of replays, on a small table of its own."""
    pairs = Replay(name, relation, variant, seed)
    table = pairs.family.table()
    return lambda: pairs._fitted(table)


REGRESSIONS = ("DPQuantileRegressor", "DPNewsvendor", "DPLinearRegression")
RATES = ("DPPoissonRegressor", "DPGammaRegressor", "DPTweedieRegressor")
LABELS = ("DPLogisticRegression", "DPLinearSVC", "DPOrdinalRegression", "DPAUCClassifier")
INTERVALS = ("DPQuantileRegressor", "DPLinearRegression", "DPLogisticRegression", *RATES[:2])
UNITS = (1.0, 1.0, 1.0, 1e-90, 1e90, 1e5, 1e-5)


def at_the_ends(seed: int) -> Callable[[], Any]:
    """Return a default fit with settings, sizes, units and budgets at the ends of what is
    allowed.
    """
    rng = np.random.default_rng([seed, 5])

    def chance(share: float) -> bool:
        return bool(rng.random() < share)

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    name = one_of(*REGRESSIONS, *RATES, *LABELS, "DPDiscreteHazard")
    n = one_of(1, 2, 3, 10, 60, 400)
    d = one_of(1, 2, 5, 30)
    unit = one_of(*UNITS)
    target = one_of(*(UNITS if name in REGRESSIONS else (1.0, 1e-5, 1e5)))
    X = rng.uniform(-1, 1, (n, d)) * one_of(0.0, 1.0, 1.0, 1.0)
    X = np.where(rng.random(X.shape) < one_of(0.0, 0.9), 0.0, X)
    y = rng.normal(size=n) * one_of(0.0, 1.0, 1.0) * target
    public: dict[str, Any] = {"random_state": seed, "mu": 10.0 ** float(rng.integers(-8, 7))}
    public["feature_bounds"] = one_of(None, (-unit, unit), (-unit, unit), (0.5 * unit, 2 * unit))
    if name in REGRESSIONS:
        public["target_bounds"] = one_of(
            None, (-3 * target, 3 * target), (0.01 * target, 3 * target)
        )
    if name in RATES:
        public["target_bounds"] = one_of(None, (0.01 * target, 3 * target))
        y = np.abs(y)
    if name in LABELS:
        several = {"DPOrdinalRegression": (3, 12), "DPAUCClassifier": (2,)}.get(name, (2, 3, 12))
        classes = one_of(*several)
        y = rng.integers(0, classes, n)
        public["classes"] = list(range(classes))
        if chance(0.2):
            public["class_weight"] = {0: 0.1}
    if name == "DPDiscreteHazard":
        public["horizons"] = one_of([1.0], [0.1, 0.5, 1.0, 2.0], [k / 10 for k in range(1, 30)])
    elif name not in ("DPOrdinalRegression", "DPAUCClassifier"):
        public["fit_intercept"] = chance(0.7)
    if name == "DPQuantileRegressor":
        levels = tuple(k / 20 for k in range(1, 20))
        public["quantile"] = one_of(0.5, 0.9, 1e-8, (0.1, 0.5, 0.9), (0.5,), levels)
    if name == "DPNewsvendor" and chance(0.4):
        y = np.column_stack([y, y])
    if name in INTERVALS and chance(0.3):
        public |= {"inference": True, "mu": one_of(1e3, 1e5)}
    else:
        if chance(0.3):
            public["alpha"] = 10.0 ** float(rng.integers(-10, 10))
        if chance(0.2):
            public["coef_bound"] = 10.0 ** float(rng.integers(-5, 5))
        if name in ("DPQuantileRegressor", "DPNewsvendor") and chance(0.3):
            public["bandwidth"] = 10.0 ** float(rng.integers(-3, 3)) * target
        if name in INTERVALS and d >= 5 and chance(0.2):
            public["smooth"] = [(0, 4, 10.0 ** float(rng.integers(-5, 10)))]
    if chance(0.3):
        public |= {"neighbors": "add_or_remove_one", "nominal_samples": one_of(1, n, 1000)}
    if chance(0.2):
        public["rows_per_person"] = 2
    given: dict[str, Any] = {}
    if chance(0.2):
        given["sample_weight"] = rng.choice([0.0, 0.5, 1.0], n)
    if name != "DPDiscreteHazard" and chance(0.2):
        given["groups"] = rng.integers(0, max(1, n // 2), n)
    rows: Any = X * unit
    if chance(0.3):
        public["invalid_rows"] = "ignore"
        rows = np.where(rng.random(X.shape) < 0.05, np.nan, rows)
    elif not given and chance(0.2):
        rows = csr_array(rows)
    return lambda: getattr(dp, name)(**public).fit(rows, y, **given)


@contextmanager
def parts_of_few_rows(monkeypatch: Any) -> Iterator[None]:
    """Let geometry and early rounds use a part of the rows of small tables, too."""
    from dpconvex.fit import constants

    with monkeypatch.context() as patch:
        patch.setattr(constants, "GEOMETRY_ROWS", (6.0, 6.0))
        patch.setattr(constants, "EARLY_ROWS", (6.0, 0.0))
        yield
