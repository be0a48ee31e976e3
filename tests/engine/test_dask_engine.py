"""Fused kernels and the Dask engine against plain formulas, on tiny data."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.dask.spill import SpillFile
from dpconvex.losses import Hinge, Huber, Logistic, Pinball
from dpconvex.losses.scaled_and_clamped import ClampedTargetLoss
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.empirical import EmpiricalSlope
from dpconvex.smoothing import GaussianKernel, LogisticKernel, convolve

SMOOTH = convolve(Pinball(0.7), LogisticKernel(), 0.3)
LOSSES = [
    SMOOTH,
    ClampedTargetLoss(SMOOTH, 0.4),
    convolve(Hinge(), LogisticKernel(), 0.5),
    Logistic(),
    convolve(Pinball(0.2), GaussianKernel(), 0.3),
    Huber(0.5),
]
MAPS = {
    "plain": RowMap.from_bounds(7, (-9.0, 9.0)),
    "clipped": RowMap.from_bounds(7, (-1.0, 1.5)),
    "shifted": RowMap.from_bounds(7, (0.5, 2.0)),
    "weighted": RowMap.from_bounds(7, (-2.0, 2.0), row_norm=0.9),
    "shortened": RowMap(7, 1.5),
    "no intercept": RowMap.from_bounds(7, (-2.0, 2.0), fit_intercept=False),
}


def make_rows(row_map, order, dtype, loss, threads=2, n=40_000):
    rng = np.random.default_rng(3)
    X = np.array(rng.normal(size=(n, 7)), dtype=dtype, order=order)
    y = rng.normal(size=n) if loss.kind == "residual" else rng.choice([-1.0, 1.0], n)
    # Not cached in mapped form, and more than a block: the path of data that is large.
    rows = MemoryRows(X, y, row_map, threads=threads, cache=False)
    assert not rows.small
    return rows


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__ + loss.kind)
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(("order", "dtype"), [("C", "float64"), ("F", "float64"), ("C", "float32")])
def test_gradient_is_the_sum_over_mapped_rows(loss, name, order, dtype):
    rows = make_rows(MAPS[name], order, dtype, loss)
    theta = np.linspace(-1, 1, rows.dim)
    block, y, w = rows.mapped()
    expected = (w * loss.gradient(y, block @ theta)) @ block
    (found,) = rows.combine(theta, EmpiricalSlope(loss))
    allowance = 1e-13 * np.abs(block).sum(axis=0)
    assert (np.abs(found - expected) <= allowance).all()


@pytest.mark.parametrize("loss", [SMOOTH, Logistic()], ids=["residual", "margin"])
def test_own_weights(loss):
    rows = make_rows(MAPS["weighted"], "C", "float64", loss)
    other = rows.reweighted(lambda block, w: 0.25 + 0.5 * w)
    block, y, w = rows.mapped()
    theta = np.linspace(-1, 1, rows.dim)
    slopes = loss.gradient(y, block @ theta)
    expected = ((0.25 + 0.5 * w) * slopes) @ block
    np.testing.assert_allclose(other.combine(theta, EmpiricalSlope(loss))[0], expected, rtol=1e-11)


def test_threads_do_not_change_a_bit():
    theta = np.linspace(-1, 1, 8)
    for function in (EmpiricalSlope(SMOOTH), lambda y, z, w: (w * np.tanh(z - y),)):
        sums = [
            make_rows(MAPS["weighted"], "C", "float64", SMOOTH, threads).combine(theta, function)[0]
            for threads in (1, 3)
        ]
        np.testing.assert_array_equal(*sums)


def test_missing_values_fall_on_the_lower_bound():
    X = np.zeros((40_000, 7))
    X[5, 2] = np.nan
    X[6, 3] = np.inf
    filled = X.copy()
    filled[5, 2] = -2.0
    filled[6, 3] = 2.0
    theta = np.linspace(-1, 1, 8)
    sums = [
        MemoryRows(table, np.ones(40_000), MAPS["weighted"], cache=cache).combine(
            theta, EmpiricalSlope(SMOOTH)
        )[0]
        for table in (X, filled)
        for cache in (False, True)
    ]
    for other in sums[1:]:
        np.testing.assert_allclose(other, sums[0], rtol=1e-12)


def test_certified_bounds_hold_for_the_gradient():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 7))
    y = rng.normal(size=40_000)
    rows = MemoryRows(X, y, MAPS["shifted"], cache=False)
    objective = EmpiricalObjective(rows, convolve(Pinball(0.7), LogisticKernel(), 1e-3), 1e-3)
    theta = rng.normal(size=8)
    exact, error = objective.refined_gradient(theta)
    distance = np.linalg.norm(objective.gradient(theta) - exact)
    assert distance <= objective.rounding_allowance(theta) + error


def test_spill_file_is_bounded_and_gives_back_what_it_took():
    file = SpillFile(3 * 65536)
    first = file.write(np.arange(6000, dtype=np.float32).reshape(-1, 3))
    second = file.write(np.array([1, 2], dtype=np.int64))
    np.testing.assert_array_equal(first.open(), np.arange(6000, dtype=np.float32).reshape(-1, 3))
    np.testing.assert_array_equal(second.open(), [1, 2])
    assert file.write(np.zeros(100_000)) is None
    assert file.write(np.array(["text"])) is None
    assert file.used <= file.limit


class TestDaskRows:
    @pytest.fixture
    def pair(self):
        da = pytest.importorskip("dask.array")
        from dpconvex.engine.dask.rows_and_table import DaskTable

        rng = np.random.default_rng(5)
        X = rng.normal(size=(1000, 7))
        y = rng.normal(size=1000)
        table = DaskTable(da.from_array(X, chunks=(301, 4)), da.from_array(y, chunks=77), "test")
        return table, MemoryRows(X, y, MAPS["weighted"], 0.5, 2.0)

    def test_offers_what_memory_rows_offer(self, pair):
        table, memory = pair
        rows = table.rows(MAPS["weighted"], None, 0.5, 2.0)
        theta = np.linspace(-1, 1, 8)
        assert (rows.n_rows, rows.dim) == (1000, 8)
        assert rows.mean_target_size == pytest.approx(memory.mean_target_size, rel=1e-14)
        for one, other in ((rows, memory), (rows.reweighted(_halved), memory.reweighted(_halved))):
            for call in (
                lambda data: data.combine(theta, EmpiricalSlope(SMOOTH)),
                lambda data: data.sum(lambda block, y, w: (block.T @ (block * w[:, None]), y @ w)),
                lambda data: data.subsample(50).mapped(),
                lambda data: data.part(150).mapped(),
                lambda data: (data.counter(lambda y, w: y * w)(0.1),),
                lambda data: data.take(np.array([999, 3, 500, 3])).mapped(),
            ):
                for mine, theirs in zip(call(one), call(other), strict=True):
                    np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-11)

    def test_data_does_not_travel_with_functions(self, pair):
        table, _ = pair
        rows = table.rows(MAPS["weighted"])
        sent = pickle.dumps(rows)
        assert len(sent) < 2000
        assert pickle.loads(sent).n_rows == 1000

    @pytest.mark.parametrize("shared", [False, True])
    def test_partitions_with_work_in_common_are_left_to_dask(self, shared):
        """Work that several partitions need is done once in a pass, by whichever way that takes."""
        import dask
        import dask.array as da

        from dpconvex.engine.dask.rows_and_table import DaskTable
        from dpconvex.engine.dask.schedule import schedule_separately

        made = []

        def make(seed):
            made.append(seed)
            return np.random.default_rng(seed).normal(size=(6, 8))

        whole = [dask.delayed(make)(seed) for seed in range(2)]
        if shared:
            parts = [part[half] for part in whole for half in (slice(0, 3), slice(3, 6))]
            shape = (3, 8)
        else:
            parts = whole
            shape = (6, 8)
        data = da.concatenate([da.from_delayed(part, shape, float) for part in parts])
        X = data[:, :7]
        y = data[:, 7]
        assert (schedule_separately(list(X.to_delayed().ravel())) is None) == shared
        with dask.config.set({"dpconvex.spill-limit": 0, "scheduler": "threads"}):
            rows = DaskTable(X, y, "test").rows(MAPS["plain"])
            assert sorted(made) == [0, 1]
            (total,) = rows.sum(lambda block, y, w: (block.sum(0),))
            assert sorted(made) == [0, 0, 1, 1]
        expected = np.concatenate([make(seed) for seed in range(2)])[:, :7]
        memory = MemoryRows(expected, np.zeros(12), MAPS["plain"])
        np.testing.assert_allclose(total, memory.mapped()[0].sum(0), rtol=1e-12, atol=1e-12)

    def test_one_partition_uses_all_cores_and_gives_the_same_bits(self):
        import dask
        import dask.array as da

        from dpconvex.engine.dask.rows_and_table import DaskTable

        rows = make_rows(MAPS["weighted"], "F", "float32", SMOOTH)
        X = rows.raw
        y = rows.targets
        theta = np.linspace(-1, 1, 8)
        expected = rows.combine(theta, EmpiricalSlope(SMOOTH))[0]
        for limit in (0, "1 GB"):
            with dask.config.set({"dpconvex.spill-limit": limit}):
                table = DaskTable(da.from_array(X, -1), da.from_array(y, -1), "test")
                other = table.rows(MAPS["weighted"])
                for _ in range(2):  # the second pass knows what the first one found out
                    (found,) = other.combine(theta, EmpiricalSlope(SMOOTH))
                    np.testing.assert_allclose(found, expected, rtol=1e-12)


def _halved(block, w):
    return 0.5 * w


def test_a_partition_says_nothing_of_void_rows():
    """On a worker no estimator silences numpy: weights of void rows divide by 0."""
    from dpconvex.engine.dask.partitions import PartitionMap, fingerprint, run_on_partition_source

    X = np.ones((3, 2))
    y = np.array([1.0, np.nan, 1.0])
    mapping = PartitionMap(RowMap.from_bounds(2, (-1.0, 1.0)), None, 0.0, 1.0, None)

    def inverse(block, w):
        return 1.0 / np.linalg.norm(block[:, 1:], axis=1)

    pending = [lambda rows: rows.reweighted(inverse)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (total,) = run_on_partition_source(
            lambda rows: rows.sum_targets(lambda y, w, v: (y.size,)),
            mapping,
            fingerprint(X, y),
            pending,
            (X, y),
        )
    assert total == 3


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=70), st.integers(0, 9))
def test_sums_have_the_same_bits_whoever_holds_the_partitions(owners, seed):
    from dpconvex.core.summation import pairwise_summation
    from dpconvex.engine.dask.cluster import GROUP, add_cluster_groups, add_cluster_neighbours

    values = np.random.default_rng(seed).normal(size=(len(owners), 2)) ** 5
    groups = [values[i : i + GROUP] for i in range(0, len(values), GROUP)]
    expected = [pairwise_summation((value.copy(),) for value in group)[0] for group in groups]
    blocks = []
    for owner in range(3):
        mine = [i for i, other in enumerate(owners) if other == owner]
        blocks += add_cluster_neighbours((i, 1, (values[i].copy(),)) for i in mine)
    assert sum(size for _, size, _ in blocks) == len(owners)
    found = [sums[0] for sums in add_cluster_groups(sorted(blocks, key=lambda block: block[0]))]
    np.testing.assert_array_equal(found, expected)


def test_a_fingerprint_tells_orders_types_and_labels():
    from dpconvex.engine.dask.partitions import fingerprint

    X = np.arange(12.0).reshape(6, 2)
    y = np.array(["a", "b"] * 3, dtype=object)
    others = [
        (X[::-1].copy(), y),
        (X, y[::-1].copy()),
        (X[:5], y[:5]),
        (X.astype(np.float32), y),
        (X.reshape(3, 4), y),
        (X, y.astype("U1")),
        (np.where(X == 3, 3 + 1e-15, X), y),
    ]
    marks = {fingerprint(*pair) for pair in [(X, y), *others]}
    assert len(marks) == 1 + len(others)
    assert fingerprint(X.copy(), y.copy()) == fingerprint(X, y)
    assert fingerprint(np.asfortranarray(X), y) == fingerprint(np.asfortranarray(X), y)
