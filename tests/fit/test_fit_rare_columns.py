"""Columns that noise hides: flags that few records have, or none, beside numbers far from their
bounds.
"""

import numpy as np
import pytest

from dpconvex import DPLinearRegression, DPLogisticRegression, DPQuantileRegressor

SHARES = np.array([0.0, 0.002, 0.03, 0.4])


def table(n, seed):
    """Return flags and three normal numbers, and a linear signal of the last flag and of the
    numbers.
    """
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.random((n, 4)) < SHARES, rng.normal(size=(n, 3))])
    return X, X @ [0, 0, 0, 0.5, 0.5, -0.3, 0.2], rng


@pytest.mark.parametrize("kind", [DPLinearRegression, DPLogisticRegression, DPQuantileRegressor])
@pytest.mark.parametrize(("n", "epsilon", "most"), [(2000, 1.0, 25.0), (10_000, 100.0, 8.0)])
def test_coefficients_of_hidden_flags_stay_small(kind, n, epsilon, most):
    """Bounds of numbers are 100 times too wide: in units of a pooled histogram flags had 380 at
    epsilon 1, 15 at 100.

    Of 60 fits of every case the largest coefficients of the empty flag were 8.0 at epsilon 1, and
    4.6 at 100.
    """
    ends = np.array([1, 1, 1, 1, 300, 300, 300])
    for seed in range(4):
        X, signal, rng = table(n, seed)
        facts = {
            "feature_bounds": (np.where(ends > 1, -ends, 0), ends),
            "epsilon": epsilon,
            "delta": 1e-6,
        }
        if kind is DPLogisticRegression:
            y = np.where(rng.random(n) < 1 / (1 + np.exp(-signal)), 1, -1)
        else:
            y = signal + rng.normal(size=n)
            facts = {**facts, "target_bounds": (-10, 10)}
        found = np.ravel(kind(random_state=seed, **facts).fit(X, y).coef_)
        assert np.abs(found[0]) < most
        assert np.abs(found[:3]).max() < max(most, 25.0)
