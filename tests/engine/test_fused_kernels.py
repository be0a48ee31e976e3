"""Passes over raw rows: what a row gives depends on that row alone, bit by bit, and is right."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from dpconvex.core import fused_kernels, summation
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.queries import QuerySlope
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import RowMap
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball, ReLU, Squared
from dpconvex.smoothing import LogisticKernel, convolve

NO_INDICES = np.empty(0, np.int64)
#: Every number of columns up to two whole vectors of the widest lanes and more, and some beyond.
COLUMNS = [*range(1, 21), 31, 33, 50, 53, 64, 127]
SLOPES = {
    "logistic": QuerySlope(Logistic(), -0.5),
    "pinball": QuerySlope(Pinball(0.9), 0.4),
    "smooth pinball": QuerySlope(convolve(Pinball(0.9), LogisticKernel(), 0.3), 0.4),
    "smooth hinge": QuerySlope(convolve(Hinge(), LogisticKernel(), 0.2), weighting="square"),
    "hinge": QuerySlope(Hinge()),
    "relu": QuerySlope(ReLU(), weighting="clip"),
    "absolute": QuerySlope(Absolute(), limit=0.5),
    "huber": QuerySlope(Huber(0.7), weighting="clip"),
    "squared": QuerySlope(Squared(), limit=1.5),
}


def row_map(columns: int, rng: np.random.Generator) -> RowMap:
    """Return the map of columns whose bounds contain 0, or lie far away from it."""
    low = np.where(np.arange(columns) % 3 == 1, 1900.0, -2.0)
    high = low + rng.uniform(1.0, 200.0, columns)
    return RowMap.from_bounds(columns, (low, high))


def table(rows: int, columns: int, seed: int = 0):
    rng = np.random.default_rng([seed, rows, columns])
    mapping = row_map(columns, rng)
    low = np.array(mapping.low)
    high = np.array(mapping.high)
    X = low + (high - low) * rng.uniform(-0.1, 1.1, (rows, columns))
    y = rng.choice([-1.0, 1.0], rows) * rng.choice([1.0, 1.0, 0.3], rows)
    return mapping, X, y, rng


def margins_of(raw, mapping, theta, indices=NO_INDICES, first=0, count=None):
    low, high, shift, scale = (
        np.array(numbers) for numbers in (mapping.low, mapping.high, mapping.shift, mapping.scale)
    )
    rows = len(indices) or len(raw)
    out = np.empty(rows - first if count is None else count)
    steps = scale * theta[1:]
    fused_kernels.raw_margins(raw, indices, first, low, high, shift, steps, float(theta[0]), out)
    return out


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("columns", COLUMNS)
def test_a_margin_depends_on_its_own_row_alone(columns, dtype):
    """Other places, neighbours, numbers of rows, tails and shifted buffers change no bit of it."""
    mapping, X, _, rng = table(37, columns)
    X = X.astype(dtype)
    theta = rng.normal(size=columns + 1)
    alone = np.array([margins_of(row[None], mapping, theta)[0] for row in X])
    exact = (
        theta[0]
        + ((np.clip(X.astype(float), mapping.low, mapping.high) - mapping.shift) * mapping.scale)
        @ theta[1:]
    )
    assert alone == pytest.approx(exact, rel=1e-12, abs=1e-12)
    order = rng.permutation(37)
    assert np.array_equal(margins_of(X[order].copy(), mapping, theta), alone[order])
    assert np.array_equal(margins_of(X, mapping, theta, order), alone[order])
    for rows in range(1, 20):
        assert np.array_equal(margins_of(X[:rows], mapping, theta), alone[:rows])
    memory = np.empty(X.nbytes + 64, np.uint8)
    for offset in range(0, 64, X.itemsize):
        moved = memory[offset : offset + X.nbytes].view(dtype).reshape(X.shape)
        moved[:] = X
        assert np.array_equal(margins_of(moved, mapping, theta), alone)


@pytest.mark.parametrize("columns", [1, 3, 17, 50])
def test_sums_are_the_same_for_every_layout_and_number_of_threads(columns, monkeypatch):
    """Column-major, strided and read-only tables are brought to the one layout of the kernels."""
    monkeypatch.setattr(summation, "BLOCK_BYTES", 8 * columns * 100)
    monkeypatch.setattr("dpconvex.core.memory_rows.ROW_MAJOR_BYTES", 0)
    mapping, X, y, rng = table(1033, columns)
    theta = rng.normal(size=columns + 1)
    weights = rng.uniform(size=1033)
    strided = np.zeros((1033, 2 * columns))
    strided[:, ::2] = X
    locked = X.copy()
    locked.flags.writeable = False
    layouts = [X, np.asfortranarray(X), strided[:, ::2], np.repeat(X, 2, axis=0)[::2], locked]
    slope = SLOPES["smooth pinball"]
    found = [
        MemoryRows(layout, y, mapping, weights=weights, threads=threads).combine(theta, slope)[0]
        for layout in layouts
        for threads in (1, 2, 3)
    ]
    for each in found[1:]:
        assert np.array_equal(each, found[0])


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("variant", ["rows", "parts", "weights", "ignored"])
def test_fused_sums_are_those_of_mapped_rows(name, variant, monkeypatch):
    """Against the loss's own slope times mapped rows, in extended precision."""
    monkeypatch.setattr(summation, "BLOCK_BYTES", 8 * 7 * 90)
    mapping, X, y, rng = table(1500, 6)
    theta = rng.normal(size=7)
    weights = rng.uniform(size=1500)
    counted = RowWeights(rng.integers(0, 2**20, 1500) / 2.0**20, 1500)
    if variant == "ignored":
        X[::5] = np.nan
        y[::5] = np.nan
    rows = MemoryRows(X, y, mapping, weights=weights)
    if variant == "weights":
        rows = rows.with_row_weights(counted)
    if variant == "parts":
        rows = rows.part(700)
    slope = SLOPES[name]
    assert slope.formula is not None
    (found,) = rows.combine(theta, slope)
    mapped, targets, _ = rows.mapped()
    own = rows.weights if rows.ignored is None else np.where(rows.ignored, 0.0, rows.weights)
    (multiples,) = slope(targets, mapped @ theta, own)
    if variant == "weights":
        multiples = multiples * counted.values
    terms = multiples[:, None].astype(np.longdouble) * mapped
    size = float(np.abs(terms).sum())
    assert found == pytest.approx(np.asarray(terms.sum(axis=0), float), abs=1e-14 * size)


def test_margins_in_place_of_weights_are_those_of_mapped_rows():
    mapping, X, y, rng = table(500, 9)
    X[::7] = np.nan
    y[::7] = np.nan
    theta = rng.normal(size=10)
    rows = MemoryRows(X, y, mapping)
    mapped, _, _ = rows.mapped()
    assert rows.predicted(theta).weights == pytest.approx(mapped @ theta, rel=1e-11, abs=1e-11)


def test_cells_that_are_missing_fall_on_the_lower_bound():
    mapping = RowMap.from_bounds(2, ([-1.0, 3.0], [1.0, 5.0]))
    theta = np.array([0.5, 2.0, 4.0])
    cells = np.array([[np.nan, np.nan], [np.inf, np.inf], [-np.inf, -np.inf]])
    assert margins_of(cells, mapping, theta).tolist() == [-5.5, 6.5, -5.5]


def test_sigmoids_in_lanes_have_the_stated_error():
    rng = np.random.default_rng(0)
    u = np.concatenate(
        [
            rng.normal(0, 1, 1500),
            rng.normal(0, 30, 1500),
            rng.uniform(-708, 708, 1500),
            [0.0, -0.0, 1e-300, -1e-300, 745.0, -745.0, 1e300, -1e300, np.inf, -np.inf],
        ]
    )
    out = np.empty(u.size)
    fused_kernels.lane_sigmoids(u, u.size, out, np.empty(u.size))
    with mpmath.workprec(200):
        for argument, value in zip(u, out, strict=True):
            limited = mpmath.mpf(max(-708.0, min(float(argument), 1e5)))
            exact = 1 / (1 + mpmath.exp(-limited))
            assert abs(mpmath.mpf(float(value)) / exact - 1) < mpmath.mpf(2) ** -48


@pytest.mark.parametrize("bounds", [([-1e200], [1e200]), ([-1e-200], [1e-200]), ([0.0], [1e141])])
def test_columns_of_extreme_width_are_mapped_first(bounds):
    """Sums of their raw values would overflow, or lose their digits."""
    mapping = RowMap.from_bounds(1, bounds)
    X = np.array([[bounds[0][0]], [bounds[1][0]], [bounds[1][0] / 2]])
    rows = MemoryRows(X, np.ones(3), mapping, weights=np.ones(3))
    (found,) = rows.combine(np.array([0.0, 1.0]), SLOPES["squared"])
    mapped, targets, _ = rows.mapped()
    (multiples,) = SLOPES["squared"](targets, mapped[:, 1], np.ones(3))
    assert found == pytest.approx(multiples @ mapped)
