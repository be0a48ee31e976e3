"""Large tables in memory are ranked where they lie: the sums of the copied ones, in less memory."""

import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

from dpconvex import DPAUCClassifier, DPLogisticRegression
from dpconvex.core import memory_rows, summation
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import PairHinge, PairLogistic, PairSquared, PairSquaredHinge
from dpconvex.objectives import PairwiseObjective, PartitionedPairwiseObjective

N = 2000
D = 3
LOSSES = [PairLogistic(), PairHinge(0.5), PairSquared(), PairSquaredHinge()]


def make_table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return X, X[:, 0] + 0.5 * rng.normal(size=N) > 0.3


@pytest.fixture
def large(monkeypatch):
    """Let these tables count as large: several blocks, mapped anew in every pass."""
    monkeypatch.setattr(memory_rows, "CACHE_BYTES", 0)
    monkeypatch.setattr(summation, "BLOCK_BYTES", 1 << 13)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_sums_are_those_of_copied_rows(loss, size, large):
    X, y = make_table()
    target = np.where(y, 1.0, -1.0)
    target[::17] = np.nan  # void rows
    row_map = RowMap.from_bounds(D, None, 2.0, fit_intercept=False)
    rows = MemoryRows(X, target, row_map)
    assert not rows.small
    facts = (loss, 0.01, 1, 1500, np.linspace(-0.1, 0.2, D))
    whole = PairwiseObjective(rows, None, *facts, row_norm=2.0)
    parts = PartitionedPairwiseObjective(rows, *facts, row_norm=2.0)
    w = size * np.array([0.5, -0.3, 0.2])
    assert parts.counts == whole.counts
    np.testing.assert_allclose(parts.value(w), whole.value(w), rtol=1e-11)
    slack = 2 * whole.rounding_allowance(w)
    np.testing.assert_allclose(parts.gradient(w), whole.gradient(w), rtol=0, atol=slack)
    np.testing.assert_allclose(parts.hessian(w), whole.hessian(w), rtol=1e-10)
    (found,), (expected,) = (o.sum(lambda b, y, w: (y @ b,)) for o in (parts, whole))
    np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "moments"},
        {"mechanism": "objective"},
        {"mechanism": "objective", "delta": 0.0},
        {"mechanism": "output", "alpha": 0.1},
        {"mechanism": "output", "loss": "hinge", "alpha": 0.1},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_large_table_has_the_coefficients_of_a_small_one(settings, dtype, monkeypatch):
    X, y = make_table()
    X = X.astype(dtype)
    counts = {"min_positive": 300, "min_negative": 300}
    model = DPAUCClassifier(
        epsilon=30.0, feature_bounds=(-4, 4), random_state=5, **counts, **settings
    )
    expected = clone(model).fit(X, y)
    monkeypatch.setattr(memory_rows, "CACHE_BYTES", 0)
    monkeypatch.setattr(summation, "BLOCK_BYTES", 1 << 13)
    found = model.fit(X, y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-5)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (DPAUCClassifier, {"mechanism": "moments"}),
        (DPAUCClassifier, {"mechanism": "objective"}),
        (DPAUCClassifier, {"mechanism": "output"}),
        (DPAUCClassifier, {"mechanism": "output", "loss": "hinge"}),
        (DPLogisticRegression, {"mechanism": "phased-erm"}),
        (DPLogisticRegression, {"mechanism": "phased-sgd"}),
    ],
    ids=str,
)
def test_no_fit_copies_the_rows(kind, settings):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((220_000, 20))
    y = X[:, 0] > 0
    assert not MemoryRows(X, X[:, 0], RowMap.from_bounds(20, None)).small
    model = kind(feature_bounds=(-5, 5), random_state=0, **settings)
    clone(model).fit(X[:3000], y[:3000])  # what is imported and compiled does not count
    tracemalloc.start()
    try:
        model.fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.75 * X.nbytes  # numbers per row; a copy would be 1
