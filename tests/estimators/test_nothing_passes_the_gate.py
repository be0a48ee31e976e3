"""All that is released follows from numbers that came out of the gate: coefficients, intercepts and
`released_`.

Where value and noise meet, the value is dropped. What a fit then releases, bit by bit, how often it
asks for noise and of which size, must be the same on two data sets that have nothing but their
shape in common. The same fits with the value left in differ, so the comparison can fail. DP-SGD
draws in floating point, as its certificate says, and is not here.
"""

import numpy as np
import pytest

from dpconvex import (
    DPAUCClassifier,
    DPLinearSVC,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    DPPiecewiseLinear,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPRobustRegressor,
    DPTiltedClassifier,
    DPTiltedRegressor,
    DPTopRankClassifier,
)
from dpconvex.core import noise_source
from dpconvex.preprocessing import DPQuantileBounds
from dpconvex.releases.exponential_choices import ExponentialChoices
from dpconvex.selection import DPSelect

ROWS = 64
COLUMNS = 3
OUTPUTS = 2
RNG = np.random.default_rng(0)
PUBLIC = {"feature_bounds": (-1, 1), "random_state": 0}
TARGETS = {**PUBLIC, "target_bounds": (-1, 1)}
TWO = {**PUBLIC, "classes": [0, 1]}
THREE = {**PUBLIC, "classes": [0, 1, 2]}
ADDED = {"neighbors": "add_or_remove_one", "nominal_samples": 50}
PURE = {"epsilon": 2.0, "delta": 0.0}

FITS = {
    **{
        f"quantile {mechanism}": DPQuantileRegressor(0.8, mechanism=mechanism, **TARGETS)
        for mechanism in ("auto", "objective", "output", "gradient", "phased-erm", "phased-sgd")
    },
    "quantile pure objective": DPQuantileRegressor(0.8, mechanism="objective", **PURE, **TARGETS),
    "quantile pure output": DPQuantileRegressor(mechanism="output", **PURE, **TARGETS),
    "quantile, unknown number of rows": DPQuantileRegressor(
        mechanism="gradient", **ADDED, **TARGETS
    ),
    "newsvendor": DPNewsvendor(3.0, 1.0, **TARGETS),
    **{
        f"logistic {mechanism}": DPLogisticRegression(mechanism=mechanism, **TWO)
        for mechanism in ("auto", "objective", "output", "gradient", "phased-erm", "phased-sgd")
    },
    "logistic, three classes": DPLogisticRegression(mechanism="objective", coef_bound=0.5, **THREE),
    "support vectors": DPLinearSVC(**TWO),
    **{
        f"ranking {mechanism}": DPAUCClassifier(
            mechanism=mechanism, min_positive=10, min_negative=10, **TWO
        )
        for mechanism in ("moments", "objective", "output", "gradient")
    },
    "ranking, labels public": DPAUCClassifier(mechanism="output", label_private=False, **TWO),
    "tilted classifier": DPTiltedClassifier(**TWO),
    "tilted regressor": DPTiltedRegressor(**TARGETS),
    "worst share": DPTiltedRegressor(share=0.2, **TARGETS),
    "top of a list": DPTopRankClassifier(20, **TWO),
    "robust l2": DPRobustClassifier(0.1, "l2", **PURE, **TWO),
    "robust regression": DPRobustRegressor(**TARGETS),
    "robust linf": DPRobustClassifier(0.1, "linf", **TWO),
    "median objective": DPMedian(mechanism="objective", random_state=0),
    "median gradient": DPMedian(mechanism="gradient", random_state=0),
    "piecewise linear": DPPiecewiseLinear(random_state=0),
    **{
        f"select {strategy}": DPSelect(
            DPLogisticRegression(mechanism="output", feature_bounds=(-1, 1), classes=[0, 1]),
            {"alpha": [0.1, 1.0]},
            strategy=strategy,
            random_state=0,
        )
        for strategy in ("exponential", "repeat")
    },
    "bounds": DPQuantileBounds((-1, 1), random_state=0),
}


def data_sets(model, name):
    """Two data sets that have their shape in common, and nothing else."""
    spread = RNG.uniform(-1, 1, (ROWS, COLUMNS))
    narrow = np.full((ROWS, COLUMNS), 0.37) + 1e-3 * RNG.standard_normal((ROWS, COLUMNS))
    if isinstance(model, (DPMedian, DPPiecewiseLinear)):
        matrices = [RNG.normal(0, size, (ROWS, OUTPUTS, COLUMNS)) for size in (1.0, 0.01)]
        return [(A, RNG.normal(3, 1, (ROWS, OUTPUTS))) for A in matrices]
    if "classes" in getattr(model, "estimator", model).get_params():
        classes = 3 if "three" in name else 2
        few = np.zeros(ROWS, dtype=int)
        few[:12] = 1
        return [(spread, np.arange(ROWS) % classes), (narrow, few)]
    return [(spread, spread[:, 0]), (narrow, np.full(ROWS, -0.9))]


def flattened(value):
    if isinstance(value, dict):
        return [x for name in sorted(value) for x in flattened(value[name])]
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in flattened(part)]
    return np.ravel(value).tolist()


def everything(model):
    """All numbers that a fit gives out."""
    model = getattr(model, "_chosen", model)
    names = ("coef_", "intercept_", "released_", "low_", "high_")
    return {name: flattened(getattr(model, name)) for name in names if hasattr(model, name)}


@pytest.mark.parametrize("name", FITS)
def test_only_the_gate_lets_numbers_through(name, monkeypatch):
    from sklearn.base import clone

    first, second = data_sets(FITS[name], name)
    found = [everything(clone(FITS[name]).fit(*data)) for data in (first, second)]
    assert found[0] != found[1]

    asked = []

    def without_value(value, noise, grid):
        cells = noise / grid
        assert np.array_equal(cells, np.rint(cells))
        asked.append((np.shape(value), grid))
        return noise.reshape(np.shape(value))

    def any_choice(self, scores, spread, counts=None):
        asked.append((len(scores), spread, self._epsilon))
        return 1

    monkeypatch.setattr(noise_source, "_add_noise_on_grid", without_value)

    def any_points(self, values, levels, low, high):
        asked.append((len(values), *levels, low, high, self._epsilon))
        return [low + (high - low) * self._noise.words.below(2**30) / 2**30 for _ in levels]

    monkeypatch.setattr(ExponentialChoices, "_draw", any_choice)
    monkeypatch.setattr(ExponentialChoices, "quantiles", any_points)
    results = []
    questions = []
    for data in (first, second):
        model = clone(FITS[name]).fit(*data)
        results.append(everything(model))
        questions.append(asked.copy())
        asked.clear()
        stated = getattr(model, "_chosen", model).certificate_.noise
        if not isinstance(model, (DPQuantileBounds, DPSelect)):
            grids = {term.grid for term in stated.values()}
            assert {grid for _, grid in questions[-1]} <= grids
    assert results[0] == results[1]
    assert all(np.isfinite(numbers).all() for numbers in results[0].values())
    assert questions[0] == questions[1] != []
