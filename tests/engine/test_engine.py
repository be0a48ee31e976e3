"""Rows: the public map, its bounds, and sums that do not depend on threads."""

import json
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.core import memory_rows, summation
from dpconvex.core.dense_kernels import map_dense_rows
from dpconvex.core.queries import QueryFactor, QuerySlope
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.summation import most_summation_additions, part_indices
from dpconvex.core.threads import in_threads, single_threaded_blas
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Hinge, Logistic, Pinball
from dpconvex.objectives.empirical import EmpiricalSlope
from dpconvex.smoothing import (
    EpanechnikovKernel,
    GaussianKernel,
    LaplacianKernel,
    LogisticKernel,
    UniformKernel,
    convolve,
)


def naive_map(X, row_map):
    X = np.asarray(X, dtype=np.float64)
    if row_map.low is not None:
        X = np.clip(X, row_map.low, row_map.high)
    x = (X - np.array(row_map.shift)) * np.array(row_map.scale)
    factor = np.minimum(1.0, row_map.row_norm / np.maximum(np.linalg.norm(x, axis=1), 1e-300))
    weights = np.ones(len(x))
    if row_map.influence == "shorten":
        x = x * factor[:, None]
    else:
        weights = factor
    if row_map.fit_intercept:
        x = np.column_stack([np.ones(len(x)), x])
    return x, weights


BOUNDS = ([-1.0, 0.0, 2.0, -3.0, 5.0], [1.0, 2.0, 4.0, 0.0, 5.0])


@pytest.mark.parametrize("influence", ["weight", "shorten"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, bool])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
@pytest.mark.parametrize("bounded", [True, False])
def test_map_matches_naive_numpy(influence, fit_intercept, dtype, order, bounded):
    rng = np.random.default_rng(1)
    X = (4 * rng.normal(size=(301, 5))).astype(dtype)
    if order == "strided":
        X = np.repeat(X, 2, axis=1)[:, ::2]
    else:
        X = np.asarray(X, order=order)
    fields = RowMap.from_bounds(5, BOUNDS if bounded else None, 0.8, fit_intercept).to_dict()
    row_map = RowMap.from_dict({**fields, "influence": influence})
    rows, targets, weights = MemoryRows(X, np.arange(301), row_map, 1.0, 0.5).mapped()
    expected_rows, expected_weights = naive_map(X, row_map)
    np.testing.assert_allclose(rows, expected_rows, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-13)
    np.testing.assert_array_equal(targets, (np.arange(301) - 1.0) * 0.5)
    assert (weights < 1).any() or influence == "shorten"


def test_from_bounds_follows_the_rule_per_column():
    row_map = RowMap.from_bounds(5, BOUNDS)
    assert row_map.shift == (0.0, 0.0, 3.0, 0.0, 5.0)
    assert row_map.scale == (1.0, 0.5, 1.0, 1 / 3, 0.0)
    assert row_map.row_norm == math.sqrt(5)
    assert row_map.influence == "weight"
    assert row_map.max_norm == pytest.approx(2.0)  # four columns reach 1, the fifth is constant
    free = RowMap.from_bounds(5, None)
    assert (free.row_norm, free.influence, free.low) == (1.0, "shorten", None)
    assert free.max_norm == math.inf


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("row_norm", [0.3, 1.0, 1.9, 5.0])
@pytest.mark.parametrize("bounded", [True, False])
def test_public_bounds_hold_and_are_reached(fit_intercept, row_norm, bounded):
    """A bound that was off by 1 % either way would fail."""
    row_map = RowMap.from_bounds(5, BOUNDS if bounded else None, row_norm, fit_intercept)
    rng = np.random.default_rng(2)
    scale = rng.choice([0.1, 1.0, 100.0], size=(4000, 1))
    corners = np.array(BOUNDS)[rng.integers(0, 2, size=(4000, 5)), np.arange(5)]
    X = np.vstack([scale * rng.normal(size=(4000, 5)), corners])
    grid = np.linspace(0, 2, 4000)[:, None] * np.array([1.0, 1, 0, -1, 0]) + [0, 0, 3, 0, 5]
    X = np.vstack([X, grid])
    rows, _, weights = MemoryRows(X, np.zeros(len(X)), row_map).mapped()
    lengths = np.linalg.norm(rows, axis=1)
    for bound, reached in [
        (row_map.weighted_norm, (weights * lengths).max()),
        (row_map.weighted_square, (weights * lengths**2).max()),
    ]:
        assert reached <= bound * (1 + 1e-14)
        assert reached >= 0.99 * bound


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from(["weight", "shorten"]),
    st.floats(1e-3, 1e3),
)
def test_influence_never_exceeds_the_bound_in_exact_arithmetic(values, influence, row_norm):
    row_map = RowMap(3, row_norm, True, influence)
    rows, _, weights = MemoryRows(np.array(values), np.zeros(len(values)), row_map).mapped()
    assert np.isfinite(rows).all()
    for row, weight in zip(rows, weights, strict=True):
        squares = sum(Fraction(float(value)) ** 2 for value in row[1:])
        assert Fraction(float(weight)) ** 2 * squares <= Fraction(row_norm) ** 2


def test_missing_value_falls_on_the_lower_bound():
    row_map = RowMap.from_bounds(1, (-2.0, 4.0))
    rows, _, _ = MemoryRows(np.array([[np.nan]]), np.zeros(1), row_map).mapped()
    assert rows[0, 1] == -0.5


def test_coefficients_in_user_units_predict_the_same():
    rng = np.random.default_rng(3)
    bounds = ([-1.0, 0.0, 2.0, -3.0, 5.0], [1.0, 2.0, 4.0, 0.0, 7.0])
    row_map = RowMap.from_bounds(5, bounds)
    theta = rng.normal(size=6)
    coef, intercept = row_map.to_user_units(theta, target_shift=3.0, target_scale=0.25)
    X = rng.uniform(*bounds, size=(50, 5))
    rows, _, _ = MemoryRows(X, np.zeros(50), row_map).mapped()
    np.testing.assert_allclose(X @ coef + intercept, rows @ theta / 0.25 + 3.0)
    no_intercept = RowMap.from_bounds(5, bounds, fit_intercept=False)
    coef, intercept = no_intercept.to_user_units(theta[1:])
    np.testing.assert_allclose(X @ coef + intercept, rows[:, 1:] @ theta[1:])


def test_row_map_survives_json_and_hashing():
    row_map = RowMap.from_bounds(5, BOUNDS, 0.8)
    again = RowMap.from_dict(json.loads(json.dumps(row_map.to_dict())))
    assert again == row_map
    assert hash(again) == hash(row_map)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"n_features": 0, "row_norm": 1.0}, "n_features"),
        ({"n_features": 2, "row_norm": 0.0}, "row_norm"),
        ({"n_features": 2, "row_norm": math.inf}, "row_norm"),
        ({"n_features": 2, "row_norm": 1.0, "influence": "clip"}, "influence"),
        ({"n_features": 2, "row_norm": 1.0, "low": (0.0, 0.0)}, "low"),
        ({"n_features": 2, "row_norm": 1.0, "low": (1.0, 0.0), "high": (0.0, 1.0)}, "bounds"),
    ],
)
def test_row_map_refuses_bad_facts(arguments, name):
    with pytest.raises(ValueError, match=name):
        RowMap(**arguments)


def test_shapes_are_checked():
    row_map = RowMap(2, 1.0)
    with pytest.raises(ValueError, match=r"\(n, 2\)"):
        MemoryRows(np.zeros((4, 3)), np.zeros(4), row_map)
    with pytest.raises(ValueError, match="'y'"):
        MemoryRows(np.zeros((4, 2)), np.zeros(3), row_map)


def test_sums_over_no_rows_are_zero():
    rows = MemoryRows(np.zeros((0, 2)), np.zeros(0), RowMap(2, 1.0))
    squares, sums, count = rows.sum(moments)
    assert squares.shape == (3, 3)
    assert not squares.any()
    assert not sums.any()
    assert count == 0
    assert rows.mean_target_size == 0
    assert len(rows.reweighted(lambda block, w: w).weights) == 0


def moments(block, y, w):
    return block.T @ block, (w * y) @ block, len(y)


@pytest.mark.parametrize("kept", [True, False])
def test_sums_are_bitwise_the_same_for_every_number_of_threads(kept, monkeypatch):
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1 << 14)
    if not kept:
        monkeypatch.setattr("dpconvex.core.memory_rows.CACHE_BYTES", 0)
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30_001, 7))
    y = rng.normal(size=30_001)
    row_map = RowMap.from_bounds(7, (-2, 2), 1.5)
    results = [MemoryRows(X, y, row_map, threads=k).sum(moments) for k in (1, 2, 3, 7)]
    x, weights = naive_map(X, row_map)
    np.testing.assert_allclose(results[0][0], x.T @ x, rtol=1e-12)
    np.testing.assert_allclose(results[0][1], (weights * y) @ x, rtol=1e-9)
    for second, first, count in results:
        assert count == 30_001
        np.testing.assert_array_equal(second, results[0][0])
        np.testing.assert_array_equal(first, results[0][1])


def multiples(y, z, w):
    return w * np.tanh(y - z), np.array([z.sum(), w.sum()])


@pytest.mark.parametrize("influence", ["weight", "shorten"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("row_norm", [0.8, 5.0])
def test_combined_rows_match_naive_numpy(
    influence, fit_intercept, dtype, order, row_norm, monkeypatch
):
    """Mapping on the fly gives what the stored rows give, whatever the number of threads."""
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr("dpconvex.core.memory_rows.CACHE_BYTES", 0)
    rng = np.random.default_rng(6)
    X = np.asarray(4 * rng.normal(size=(2003, 5)), dtype=dtype, order=order)
    y = rng.normal(size=2003)
    fields = RowMap.from_bounds(5, BOUNDS, row_norm, fit_intercept).to_dict()
    row_map = RowMap.from_dict({**fields, "influence": influence})
    theta = rng.normal(size=row_map.dim)
    x, w = naive_map(X, row_map)
    m, (margins, weights) = multiples(y, x @ theta, w)
    results = [MemoryRows(X, y, row_map, threads=k).combine(theta, multiples) for k in (1, 3)]
    np.testing.assert_allclose(results[0][0], m @ x, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(results[0][1], [margins, weights], rtol=1e-11)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_additions_bound_the_longest_chain(monkeypatch):
    """Rows in a block, blocks in a run, runs: the three levels of the sum."""
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1)
    rows = MemoryRows(np.zeros((64 * 1000, 1)), np.zeros(64_000), RowMap(1, 1.0))
    assert rows.block_rows == 64
    assert rows.additions == 64 + 16 + 4 + 6
    assert rows.additions <= most_summation_additions(64_000, 2)


def test_subsample_is_spread_and_repeatable():
    X = np.arange(1000.0)[:, None]
    rows = MemoryRows(X, X[:, 0], RowMap(1, 1e9), target_shift=5.0, target_scale=2.0)
    first = rows.subsample(100)
    second = rows.subsample(100)
    taken = first.mapped()[1] / 2.0 + 5.0
    np.testing.assert_array_equal(taken, second.mapped()[1] / 2.0 + 5.0)
    np.testing.assert_array_equal(taken // 10, np.arange(100))  # one from every stretch of ten
    assert len(set(taken % 10)) > 5  # not the same place in each
    assert rows.subsample(5000).n_rows == 1000


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("n", "rows"), [(12, 4), (1000, 999), (9_000, 5_003), (30_000, 12_345)])
def test_a_part_of_the_rows_is_read_where_it_lies(n, rows, order, monkeypatch):
    """Sums, margins, weights and counts over a part are those over a copy of the same rows."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 5))
    y = rng.normal(size=n)
    y[::7] = np.nan  # ignored rows
    row_map = RowMap.from_bounds(5, (-1.5, 1.0), 0.9)
    whole = MemoryRows(np.asarray(X, order=order), y, row_map)
    places = part_indices(n, rows)
    assert len(set(places)) == rows
    assert np.all(np.diff(places) > 0)
    assert places[-1] < n
    theta = rng.normal(size=6)
    slope = EmpiricalSlope(Logistic())
    for cache in (1 << 25, 0):
        monkeypatch.setattr("dpconvex.core.memory_rows.CACHE_BYTES", cache)
        monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1 << 14)
        for data in (whole, whole.reweighted(lambda block, w: w / (1 + block[:, 1] ** 2))):
            part = data.part(rows)
            copied = data.take(places)
            assert (part.n_rows, part.dim) == (rows, 6)
            np.testing.assert_array_equal(part.raw, copied.raw)
            for call in (
                lambda one: one.mapped(),
                lambda one: one.sum(moments),
                lambda one: one.combine(theta, slope),
                lambda one: one.combine(theta, lambda y, z, w: (w * np.tanh(z - y),)),
                lambda one: (one.predicted(theta).weights,),
                lambda one: one.sum_targets(lambda y, w, v: (y @ w,)),
                lambda one: (one.counter(lambda y, w: y * w)(0.1),),
                lambda one: one.take(np.array([3, 1])).mapped(),
            ):
                for mine, theirs in zip(call(part), call(copied), strict=True):
                    np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)
    assert whole.part(n + 5) is whole


def test_rows_can_be_pickled():
    rows = MemoryRows(np.ones((3, 2)), np.ones(3), RowMap(2, 1.0))
    rows.sum(moments)
    again = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(again.sum(moments)[0], rows.sum(moments)[0])


def test_blas_threads_are_restored_after_nested_use():
    from threadpoolctl import ThreadpoolController

    blas = ThreadpoolController().select(user_api="blas")

    def threads():
        return [lib.get_num_threads() for lib in blas.lib_controllers]

    before = threads()
    with single_threaded_blas():
        assert set(threads()) == {1}
        with single_threaded_blas():
            pass
        assert set(threads()) == {1}
    assert threads() == before


def test_blas_has_one_thread_inside_workers_whoever_set_the_limit_before():
    """Measured as counts in the workers themselves: after a fit in the main thread, and from a
    thread of its own.
    """
    from threadpoolctl import ThreadpoolController

    blas = ThreadpoolController().select(user_api="blas")

    def count(block, y, w):
        return (np.array([max(lib.get_num_threads() for lib in blas.lib_controllers)]),)

    rows = MemoryRows(np.zeros((50_000, 20)), np.zeros(50_000), RowMap(20, 1.0), threads=2)
    blocks = rows._blocks
    assert blocks > 1

    def set_and_forget():
        # What users do; threadpoolctl then ignores all other threads.
        blas.limit(limits=2).restore_original_limits()

    for start in (set_and_forget, lambda: rows.sum(count), lambda: None):
        start()
        before = [lib.get_num_threads() for lib in blas.lib_controllers]
        assert rows.sum(count)[0] == blocks
        with ThreadPoolExecutor(2) as others:
            found = [others.submit(rows.sum, count) for _ in range(4)]
            assert [one.result()[0] for one in found] == [blocks] * 4
        assert [lib.get_num_threads() for lib in blas.lib_controllers] == before


def test_workers_are_shared_and_do_alone_what_they_ask_of_others():
    """Else a fit inside a fit would wait for its own threads."""

    def name(_):
        return threading.current_thread().name

    first, second = (set(in_threads(name, range(50), 2)) for _ in range(2))
    assert len(first | second) <= 2
    assert threading.current_thread().name not in first
    inside = list(in_threads(lambda _: (name(0), set(in_threads(name, range(9), 2))), range(4), 2))
    assert all(names == {outer} for outer, names in inside)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_that_is_forked_during_a_fit_begins_anew():
    """Threads that hold the lock, or limit BLAS, are not in the child: it neither waits for them
    nor stays limited.
    """
    script = """
import os, threading, numpy as np
from threadpoolctl import ThreadpoolController
from dpconvex.engine import threads
def counts():
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [each.num_threads for each in found]
np.ones((9, 9)) @ np.ones((9, 9))
before = counts()
with threads.single_threaded_blas():
    threads._lock.acquire()  # as another thread may
    child = os.fork()
    if child == 0:
        alone = counts() == before
        with threads.single_threaded_blas():
            total = sum(threads.in_threads(int, range(10), 2))
        os._exit(0 if alone and total == 45 and counts() == before else 1)
    threads._lock.release()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert (
        subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=120).returncode == 0
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_read_only_rows_and_columns_need_no_kernels_of_their_own(dtype, tmp_path):
    """Every new type of an array would be compiled for seconds."""
    from dpconvex.core.dense_kernels import dense_vector_products

    theta = np.ones(4)
    row_map = RowMap.from_bounds(3, (-1.0, 1.0), row_norm=1.0)
    given = np.random.default_rng(0).normal(size=(40_000, 3))
    known = set()
    sums = []
    for order in "CF":
        X = np.array(given, dtype=dtype, order=order)
        np.save(tmp_path / "X.npy", X)
        frozen = X.copy(order="K")
        frozen.flags.writeable = False
        for rows in (X, frozen, np.load(tmp_path / "X.npy", mmap_mode="r")):
            held = MemoryRows(rows, np.ones(40_000), row_map, cache=False)
            sums.append(held.combine(theta, lambda y, z, w: (w * np.tanh(z),))[0])
            held.sum(lambda block, y, w: (w.sum(),))
            known.add(
                tuple(len(kernel.signatures) for kernel in (map_dense_rows, dense_vector_products))
            )
            assert len(known) == 1
            assert np.shares_memory(held.raw, rows)
        assert not frozen.flags.writeable
    np.testing.assert_array_equal(sums, [sums[0]] * 6)


def test_chosen_rows_are_read_where_they_lie(monkeypatch):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(900, 4))
    y = rng.normal(size=900)
    row_map = RowMap.from_bounds(4, (-1.5, 1.5), 1.2)
    indices = rng.permutation(900)[:500]
    expected = MemoryRows(X, y, row_map).take(np.sort(indices)).mapped()
    monkeypatch.setattr(memory_rows, "CACHE_BYTES", 0)
    monkeypatch.setattr(summation, "BLOCK_BYTES", 1 << 12)
    chosen = MemoryRows(X, y, row_map).chosen(indices)
    assert np.shares_memory(chosen._raw, X)
    for found, wanted in zip(chosen.mapped(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    theta = np.linspace(-1, 1, 5)
    (found,) = chosen.combine(theta, lambda y, z, w: (w * (y - z),))
    rows, targets, weights = expected
    np.testing.assert_allclose(found, (weights * (targets - rows @ theta)) @ rows, rtol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kept", [0, 1 << 25])
def test_a_rows_margin_has_the_same_bits_whoever_stands_before_it(order, kept, monkeypatch):
    """Another row more or less moves rows to other places of blocks and tiles, or changes how
    rows are kept.
    """
    rng = np.random.default_rng(8)
    X = rng.normal(size=(3001, 11))
    y = np.ones(3001)
    X[::400] *= 9  # beyond the bounds
    theta = rng.normal(size=12)
    row_map = RowMap.from_bounds(11, (-3.0, 3.0))
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1 << 14)
    whole = MemoryRows(np.asarray(X, order=order), y, row_map).predicted(theta).weights
    monkeypatch.setattr("dpconvex.core.memory_rows.CACHE_BYTES", kept)
    for first in (1, 2, 3, 7):
        fewer = MemoryRows(np.asarray(X[first:], order=order), y[first:], row_map)
        np.testing.assert_array_equal(fewer.predicted(theta).weights, whole[first:])


@pytest.mark.parametrize("columns", [3, 11, 16, 17, 40])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mapped_row_has_the_same_bits_wherever_arrays_lie_in_memory(order, columns):
    """Compilers leave vector lanes where an array that is read ends just before the one that is
    written.
    """
    rng = np.random.default_rng(columns)
    arena = np.empty(600)
    size = 2 * (columns + 1)
    out = arena[200 : 200 + size].reshape(2, -1)
    weights = arena[200 + size : 202 + size]

    def mapped(*given):
        map_dense_rows(
            given[0], np.arange(2), *given[1:], 1, 1.0, False, order == "F", out, weights
        )
        return np.append(out.ravel(), weights)

    for _ in range(20):
        X = rng.normal(size=(2, columns))
        inputs = [X.T.copy() if order == "F" else X]
        inputs += [np.full(columns, number) for number in (-9.0, 9.0, 0.1, 0.7)]
        expected = mapped(*inputs)
        for moved, values in enumerate(inputs):
            for gap in range(80):
                near = arena[200 - gap - values.size : 200 - gap].reshape(values.shape)
                near[...] = values
                given = [near if place == moved else each for place, each in enumerate(inputs)]
                np.testing.assert_array_equal(mapped(*given), expected)


@pytest.mark.parametrize("influence", ["weight", "shorten"])
def test_a_mapped_row_has_the_same_bits_in_either_order_and_alone(influence):
    """One row of a table that lies column by column looks like one that lies row by row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 37))
    y = np.zeros(100)
    row_map = RowMap(37, 3.0, influence=influence)
    whole = MemoryRows(X, y, row_map).mapped()
    for order in "CF":
        for rows in (slice(0, 100), slice(0, 2), slice(0, 1), slice(5, 6)):
            table = np.asarray(X[rows], order=order)
            found = MemoryRows(table, y[rows], row_map).mapped()
            for part, each in zip(found, whole, strict=True):
                np.testing.assert_array_equal(part, each[rows])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("influence", ["weight", "shorten"])
@pytest.mark.parametrize("kind", ["kinked", "smooth", "clipped"])
def test_what_a_row_adds_has_the_same_bits_whoever_else_is_there(kind, influence, dtype):
    """With weight 0 for all others a sum is what one row adds: in tables of any size, order and
    neighbours.
    """
    rng = np.random.default_rng(2)
    columns = 13
    row = 17
    X = rng.uniform(-1, 1, size=(4000, columns)).astype(dtype)
    y = rng.choice([-1.0, 1.0], 4000)
    theta = rng.normal(size=columns + 1)
    fields = RowMap.from_bounds(columns, (-3.0, 3.0), 1.5).to_dict()
    row_map = RowMap.from_dict({**fields, "influence": influence})
    slope = {
        "kinked": EmpiricalSlope(Pinball(0.3)),
        "smooth": EmpiricalSlope(Logistic()),
        "clipped": QuerySlope(Logistic(), weighting="clip"),
    }[kind]

    def adds(X, y, given):
        rows = MemoryRows(X, y, row_map, threads=1)
        if given:
            rows = rows.with_weights(np.where(np.arange(len(X)) == row, 0.7, 0.0))
        else:  # ignored rows
            rows = MemoryRows(X, np.where(np.arange(len(X)) == row, y, np.nan), row_map, threads=1)
        return rows.combine(theta, slope)[0]

    far = X.copy()
    far[:row:3] *= 9  # beyond the bounds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1 << 14)
        for given in (True, False)[: 1 if kind == "clipped" else 2]:
            expected = adds(X, y, given)
            assert np.abs(expected).max() > 0
            for kept in (0, 1 << 25):
                patch.setattr("dpconvex.core.memory_rows.CACHE_BYTES", kept)
                for table in (X, far):
                    for size in (row + 1, row + 2, 70, 4000):
                        for order in "CF":
                            part = np.asarray(table[:size], order=order)
                            found = adds(part, y[:size], given)
                            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_multiples_have_the_same_bits_whoever_stands_before_a_row(weighted):
    """A quantile's slope jumps where a margin is the target: rows on it must not all jump when
    one comes or goes.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 11))
    y = np.ones(60)
    theta = rng.normal(size=12)

    def margins(first, last):
        seen = []
        ones = y[first:last]
        rows = MemoryRows(X[first:last], ones, RowMap(11, 1.0)).with_weights(ones)
        if weighted:
            rows = rows.with_row_weights(RowWeights(ones, last - first))
        rows.combine(theta, lambda y, z, w: (seen.append(z.copy()) or w,))
        return seen[0]

    whole = margins(0, 60)
    for first in range(9):
        for last in range(first + 1, 21):
            np.testing.assert_array_equal(margins(first, last), whole[first:last])


@pytest.mark.parametrize(
    "kernel", [GaussianKernel, LogisticKernel, UniformKernel, EpanechnikovKernel, LaplacianKernel]
)
def test_a_slope_has_the_same_bits_wherever_its_record_stands(kernel):
    """Engines take slopes of whole blocks: vector lanes and what is left of them must round
    alike.
    """
    rng = np.random.default_rng(4)
    y = rng.choice([-1.0, 1.0], 700)
    z = 3 * rng.normal(size=700)
    w = rng.random(700)
    for loss in (
        Logistic(),
        convolve(Pinball(0.3), kernel(), 0.2),
        convolve(Hinge(), kernel(), 0.2),
    ):
        for slope in (
            QuerySlope(loss),
            QuerySlope(loss, weighting="clip"),
            QueryFactor("curvature", loss),
        ):
            whole = np.atleast_2d(slope(y, z, w))[0]
            for first in range(17):
                for size in (1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 500):
                    part = slice(first, first + size)
                    np.testing.assert_array_equal(
                        np.atleast_2d(slope(y[part], z[part], w[part]))[0], whole[part]
                    )


def test_a_part_of_no_rows_sums_to_nothing_whatever_the_size_of_the_table():
    """A phase of a private number of rows may be empty: that must not end a fit of many rows."""
    for n in (10, 300_000):
        rows = MemoryRows(np.ones((n, 15)), np.zeros(n), RowMap(15, 1.0))
        empty = rows.chosen(np.array([], dtype=np.int64))
        (total,) = empty.sum(lambda block, y, w: (block.sum(axis=0),))
        np.testing.assert_array_equal(total, np.zeros(rows.dim))


def test_kept_blocks_serve_rows_with_and_without_weights_of_their_own():
    """The same rows with other weights share mapped blocks; whoever comes first, the row map's
    weights are right.
    """
    rng = np.random.default_rng(5)
    X = 3 * rng.standard_normal((300, 4))
    y = rng.standard_normal(300)
    row_map = RowMap(4, 2.0, influence="weight")
    expected = MemoryRows(X, y, row_map).weights
    assert expected.min() < 1
    rows = MemoryRows(X, y, row_map)
    given = rows.with_weights(np.full(300, 0.5))
    assert given.mapped()[2].tolist() == [0.5] * 300  # maps first
    assert np.array_equal(rows.weights, expected)
    assert rows.mapped()[0].tobytes() == given.mapped()[0].tobytes()
    sent = pickle.loads(pickle.dumps(given))
    assert sent.mapped()[0].tobytes() == given.mapped()[0].tobytes()
    assert (
        len(pickle.dumps(given)) < 1.5 * (X.nbytes + y.nbytes + 300 * 8) + 5000
    )  # mapped rows are not sent


def test_a_part_of_a_wide_table_keeps_a_few_of_its_blocks(monkeypatch):
    """As many as fit beside what every row has: sums are the same, also where no block or every
    block is kept.
    """
    rng = np.random.default_rng(9)
    X = rng.normal(size=(8000, 40))
    y = rng.normal(size=8000)
    monkeypatch.setattr(summation, "BLOCK_BYTES", 1 << 14)
    sums = []
    for kept in (0, 1 << 17, memory_rows.CACHE_BYTES):
        monkeypatch.setattr(memory_rows, "CACHE_BYTES", kept)
        whole = MemoryRows(X, y, RowMap.from_bounds(40, (-1.5, 1.5), 2.0), cache=True)
        monkeypatch.setattr(whole, "small", False)
        part = whole.part(5000)
        few = len(part._kept.blocks)
        assert few == 0 if not kept else 0 < few < part._blocks
        assert part._kept.memory.nbytes <= X.nbytes // 7 - 32 * len(X)
        sums += [part.combine(np.ones(41), lambda y, z, w: (w * np.tanh(z),))[0] for _ in range(2)]
    np.testing.assert_array_equal(sums, [sums[0]] * 6)


def test_kept_blocks_are_never_read_while_they_are_mapped(monkeypatch):
    """A second thread that asks for a block waits until it is mapped; without the lock it reads
    what is not clipped.
    """
    X = np.full((200, 3), 50.0)
    rows = MemoryRows(X, np.zeros(200), RowMap(3, 1e3, low=(-1.0,) * 3, high=(1.0,) * 3), threads=1)
    mapping = threading.Event()
    original = memory_rows.MemoryRows._map_rows

    def slow(self, span, buffer=None):
        found = original(self, span, buffer)
        kept = found[0].copy()
        found[0][:] = 50.0  # as a kernel may leave it on its way
        mapping.set()
        time.sleep(0.2)
        found[0][:] = kept
        return found

    monkeypatch.setattr(memory_rows.MemoryRows, "_map_rows", slow)
    first = threading.Thread(target=rows.mapped)
    first.start()
    mapping.wait(10)
    second = rows.with_weights(np.ones(200)).mapped()[0]
    first.join()
    assert np.abs(second).max() <= 1


@pytest.mark.parametrize("clip", [False, True])
def test_limited_slopes_are_those_of_arrays(clip):
    """Bit by bit what one array operation after another gives; a NaN is 0 and infinities are
    limited.
    """
    from dpconvex.core.block_products import limit_slopes

    rng = np.random.default_rng(6)
    slopes = np.concatenate(
        [3 * rng.standard_normal(1000), [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310]]
    )
    weights = np.abs(rng.standard_normal(slopes.size))
    weights[:2] = 0.0, 1e-300
    for largest in (1e-100, 0.5, 1.0, 1e100):
        limit = largest * weights if clip else largest
        expected = np.clip(np.nan_to_num(slopes), -limit, limit)
        expected = expected if clip else weights * expected
        assert limit_slopes(slopes, largest, weights, clip).tobytes() == expected.tobytes()
