"""AUC fits on Dask collections: pairs across partitions, the coefficients of the in-memory fit."""

import numpy as np
import pytest
from partitions import assert_same_fit, in_partitions
from sklearn.base import clone

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from dpconvex import DPAUCClassifier  # noqa: E402
from dpconvex.core.summation import spread_indices  # noqa: E402
from dpconvex.engine import MemoryRows, RowMap  # noqa: E402
from dpconvex.engine.dask.rows_and_table import DaskTable  # noqa: E402
from dpconvex.losses import PairHinge, PairLogistic, PairSquared, PairSquaredHinge  # noqa: E402
from dpconvex.objectives import PairwiseObjective, PartitionedPairwiseObjective, pairwise_objective  # noqa: E402
from dpconvex.privacy import Ledger  # noqa: E402
from dpconvex.releases.perturbed_minimiser import certified_minimiser  # noqa: E402
from dpconvex.solvers import ConvergenceError, Newton  # noqa: E402

N = 2400
CHUNKS = (900, 0, 1, 1000, 499)
COUNTS = {"min_positive": 500, "min_negative": 500}


def make_table(columns=3, seed=2):
    """Rows whose first partition holds no positive record."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, columns))
    y = X[:, 0] - 2 * X[:, 1] + rng.normal(size=N) > 0
    order = np.argsort(y, kind="stable")
    order[900:] = rng.permutation(order[900:])
    return X[order], y[order]


def in_chunks(array):
    return in_partitions(array, CHUNKS)


def assert_same(fitted, expected):
    assert_same_fit(fitted, expected)
    assert set(fitted.released_) == set(expected.released_)
    for name, value in expected.released_.items():
        np.testing.assert_allclose(fitted.released_[name], value, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "mechanism"),
    [
        ({}, "gradient"),  # the default
        ({"mechanism": "moments"}, "moments"),
        ({"delta": 0.0, **COUNTS}, "auc-objective"),  # pure, the row length found first
        ({"mechanism": "objective", "row_norm": 2.0, "alpha": 0.5, **COUNTS}, "auc-objective"),
        ({"delta": 0.0, "loss": "squared", **COUNTS}, "output"),
        ({"mechanism": "output", "loss": "hinge", "alpha": 0.1, **COUNTS}, "output"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_same_coefficients_as_in_memory(settings, mechanism):
    X, y = make_table()
    model = DPAUCClassifier(epsilon=30.0, feature_bounds=(-4, 4), random_state=5, **settings)
    expected = clone(model).fit(X, y)
    assert expected.certificate_.mechanism == mechanism
    assert_same(model.fit(in_chunks(X), in_chunks(y)), expected)


LOSSES = [PairLogistic(), PairHinge(0.5), PairSquared(), PairSquaredHinge()]


def both_objectives(X, y, loss):
    row_map = RowMap.from_bounds(X.shape[1], None, 2.0, fit_intercept=False)
    target = np.where(y, 1.0, -1.0)
    rows = DaskTable(in_chunks(X), in_chunks(target), "test").rows(row_map)
    linear = np.linspace(-0.1, 0.2, X.shape[1])
    whole = PairwiseObjective(
        MemoryRows(X, target, row_map), None, loss, 0.01, 1, 2000, linear, row_norm=2.0
    )
    parts = PartitionedPairwiseObjective(rows, loss, 0.01, 1, 2000, linear, row_norm=2.0)
    return whole, parts


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("size", [1.0, 50.0, 1e6])
def test_value_gradient_and_hessian_are_those_of_the_whole(loss, size):
    whole, parts = both_objectives(*make_table(), loss)
    w = size * np.array([0.5, -0.3, 0.2])
    assert parts.counts == whole.counts
    assert parts.divisor == whole.divisor
    np.testing.assert_allclose(parts.value(w), whole.value(w), rtol=1e-11)
    slack = 2 * whole.rounding_allowance(w)
    np.testing.assert_allclose(parts.gradient(w), whole.gradient(w), rtol=0, atol=slack)
    value, gradient = parts.value_and_gradient(w)
    assert value == parts.value(w)
    np.testing.assert_array_equal(gradient, parts.gradient(w))
    np.testing.assert_allclose(parts.hessian(w), whole.hessian(w), rtol=1e-10)
    assert parts.rounding_allowance(w) >= whole.rounding_allowance(w)


@pytest.mark.parametrize("loss", LOSSES[:2], ids=lambda loss: type(loss).__name__)
def test_changed_rows_and_samples_are_those_of_the_whole(loss):
    whole, parts = both_objectives(*make_table(), loss)
    w = np.array([1.0, -1.0, 0.5])
    parts.gradient(w)  # what is remembered of the old rows must not be used for the new ones
    parts.hessian(w)
    first, second = (
        objective.with_rows(lambda block: block[:, ::-1] / 3, 1.0, alpha=0.2)
        for objective in (whole, parts)
    )
    np.testing.assert_allclose(second.gradient(w), first.gradient(w), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(second.hessian(w), first.hessian(w), rtol=1e-10)
    small = first.subsample(101)
    same = second.subsample(101)
    np.testing.assert_array_equal(small.positives, same.positives)
    np.testing.assert_array_equal(small.negatives, same.negatives)
    assert small.n_rows == 101
    np.testing.assert_allclose(small.value(w), first.value(w), rtol=0.2)


def test_samples_hold_both_classes_however_rare_one_is(monkeypatch):
    X, y = make_table()
    y[:] = False
    y[[17, 2000]] = True
    whole, parts = both_objectives(X, y, PairLogistic())
    assert parts.subsample(50).counts == (2, 48)
    monkeypatch.setattr(pairwise_objective, "_SAMPLE", 600)
    w = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(parts.hessian(w), whole.hessian(w), rtol=0.3, atol=0.01)


@pytest.mark.parametrize("missing", [True, False])
def test_a_class_without_records_adds_nothing(missing):
    X, _ = make_table()
    for loss in LOSSES:
        _, parts = both_objectives(X, np.full(N, missing), loss)
        w = np.ones(3)
        assert parts.value(w) == pytest.approx(0.005 * 3 + parts.linear.sum())
        np.testing.assert_allclose(parts.gradient(w), 0.01 * w + parts.linear)


@pytest.mark.filterwarnings("ignore")  # a closing cluster leaves open sockets behind
def test_on_a_cluster_the_ledger_is_charged_once(tmp_path):
    distributed = pytest.importorskip("distributed")
    X, y = make_table()
    settings = {"epsilon": 30.0, "feature_bounds": (-4, 4), "random_state": 5, **COUNTS}
    ledger = Ledger(tmp_path / "ledger.db", epsilon=500.0, delta=0.1)
    with (
        distributed.LocalCluster(
            n_workers=1, processes=True, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        model = DPAUCClassifier(mechanism="objective", **settings)
        expected = clone(model).fit(X, y)
        assert_same(model.set_params(ledger=ledger).fit(in_chunks(X), in_chunks(y)), expected)
        whole, parts = both_objectives(X, y, PairHinge(0.5))
        w = np.array([0.5, -0.3, 0.2])
        np.testing.assert_allclose(parts.gradient(w), whole.gradient(w), rtol=1e-10)
    assert len(ledger.entries()) == 1


def test_a_sample_that_misses_a_direction_cannot_make_a_solve_fail(monkeypatch):
    """Rows outside the sample carry the second feature, so the sampled Hessian knows nothing of
    it.
    """
    monkeypatch.setattr(pairwise_objective, "_SAMPLE", 200)
    n = 1200
    y = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    X = np.zeros((n, 2))
    X[:, 0] = np.random.default_rng(0).uniform(-0.5, 0.5, n)
    taken = np.concatenate([side + k * (n // 2) for k, side in enumerate(_sampled_positions(y))])
    hidden = np.setdiff1d(np.arange(n), taken)
    X[hidden, 1] = 0.8 * y[hidden]
    table = DaskTable(da.from_array(X, chunks=(500, 2)), da.from_array(y, chunks=500), "t")
    rows = table.rows(RowMap.from_bounds(2, None, 1.0, fit_intercept=False))
    tilt = 1e-4 * np.array([3.0, 2.0])
    settings = {"linear": tilt, "row_norm": 1.0}
    partitioned = PartitionedPairwiseObjective(rows, PairLogistic("e"), 1e-4, **settings)
    memory = PairwiseObjective(X, y > 0, PairLogistic("e"), 1e-4, **settings)
    with pytest.raises(ConvergenceError):
        Newton(max_iterations=50).solve(partitioned, np.zeros(2), 2e-10)
    found, wanted = (
        certified_minimiser(None, o, np.zeros(2), 2e-10) for o in (partitioned, memory)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def _sampled_positions(y):
    halves = int(np.sum(y > 0)), int(np.sum(y < 0))
    return [spread_indices(count, 100) for count in halves]
