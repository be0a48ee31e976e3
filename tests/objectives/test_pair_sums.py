"""Sums over all pairs agree with direct summation, whatever the scores, in linear memory."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy.special import expit

from dpconvex.losses import PairHinge, PairLogistic, PairSquared, PairSquaredHinge
from dpconvex.objectives import PairwiseObjective, pair_sums
from dpconvex.objectives.pair_sums import (
    logistic_pair_cross,
    logistic_pair_sums,
    quadratic_pair_sums,
)

rng = np.random.default_rng(0)
SCORES = {
    "random": (rng.normal(1, 2, 700), rng.normal(0, 2, 900)),
    "tied": (rng.integers(-2, 3, 500) * 1.0, rng.integers(-2, 3, 600) * 1.0),
    "one value": (np.zeros(100), np.zeros(50)),
    "clustered": (
        np.r_[rng.normal(0, 1e-6, 500), rng.normal(60, 1, 300)],
        np.r_[rng.normal(0, 1e-6, 500), rng.normal(-200, 3, 300)],
    ),
    "apart": (rng.normal(100, 1, 300), rng.normal(-100, 1, 300)),
    "heavy tails": (30 * rng.standard_cauchy(1000), 30 * rng.standard_cauchy(900)),
    "wide": (rng.uniform(-3e4, 3e4, 900), rng.uniform(-3e4, 3e4, 900)),
    "extreme": (
        np.r_[rng.normal(0, 1, 500), 1e8, -1e8, 3e15, 1e20, -1e20],
        np.r_[rng.normal(0, 1, 500), 1e8, -1e6, 1e12, 500.0],
    ),
}


def close(found, exact, tolerance=1e-10):
    """Every sum has a small error relative to itself, wherever it does not underflow."""
    found = np.asarray(found)
    exact = np.asarray(exact, dtype=np.longdouble)
    seen = np.abs(exact) > 1e-290
    assert np.all(np.abs(found - exact)[seen] <= tolerance * np.abs(exact[seen]))
    assert np.all(np.abs(found[~seen]) <= 1e-280)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("swapped", [False, True])
def test_logistic_sums_equal_direct_ones(name, swapped):
    targets, sources = SCORES[name][::-1] if swapped else SCORES[name]
    t = targets[:, None] - sources[None, :]
    close(logistic_pair_sums(targets, sources), expit(t).astype(np.longdouble).sum(1))
    softplus = np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t)))
    close(logistic_pair_sums(targets, sources, "value"), softplus.astype(np.longdouble).sum(1))


@pytest.mark.parametrize("name", ["random", "tied", "clustered", "heavy tails"])
def test_cells_and_direct_summation_agree(name, monkeypatch):
    """Both ways are exercised on the same scores, so that the cheaper one may be chosen freely."""
    targets, sources = SCORES[name]
    results = []
    for pays in (True, False):
        monkeypatch.setattr(pair_sums, "_pair_cells_pay", lambda near, far, pays=pays: pays)
        results.append([logistic_pair_sums(targets, sources, kind) for kind in ("slope", "value")])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


@pytest.mark.parametrize("loss", [PairHinge(0.3), PairHinge(0), PairSquared(), PairSquaredHinge()])
@pytest.mark.parametrize("name", SCORES)
def test_piece_sums_equal_direct_ones(loss, name):
    s, t = SCORES[name]
    difference = s[:, None] - t[None, :]
    pieces = loss.piecewise_quadratic
    for kind in ("value", "slope"):
        direct = getattr(loss, kind)(difference).astype(np.longdouble)
        for found, exact, size in (
            (quadratic_pair_sums(s, t, pieces, kind), direct.sum(1), np.abs(direct).sum(1)),
            (
                quadratic_pair_sums(t, s, pieces, kind, mirrored=True),
                direct.sum(0),
                np.abs(direct).sum(0),
            ),
        ):
            # The direct value of a far difference is itself a difference of large numbers.
            slack = 1e-15 * np.abs(difference).max() ** 2 if kind == "value" else 0.0
            assert np.all(np.abs(found - exact) <= 1e-10 * size + slack + 1e-12)


def test_hessian_parts_equal_direct_ones():
    s, t = SCORES["random"]
    rows = rng.normal(size=(len(s), 3)), rng.normal(size=(len(t), 3))
    k = expit(s[:, None] - t[None, :]) * expit(t[None, :] - s[:, None])
    ahead, behind, cross = logistic_pair_cross(s, rows[0], t, rows[1])
    np.testing.assert_allclose(ahead, k.sum(1), rtol=1e-9)
    np.testing.assert_allclose(behind, k.sum(0), rtol=1e-9)
    np.testing.assert_allclose(cross, rows[0].T @ k @ rows[1], rtol=1e-9, atol=1e-9)


def test_empty_classes_sum_to_nothing():
    assert logistic_pair_sums(np.zeros(0), np.ones(3)).size == 0
    assert not logistic_pair_sums(np.ones(3), np.zeros(0)).any()
    assert not quadratic_pair_sums(np.ones(3), np.zeros(0), PairSquared().piecewise_quadratic).any()


@pytest.mark.parametrize("spread", [2.0, 1e5])
def test_memory_is_linear(spread):
    """A table of pairs would take 16 GB; what is used is a few vectors."""
    s = spread * rng.normal(size=20_000)
    t = spread * rng.normal(size=100_000)
    logistic_pair_sums(s[:10], t[:10])
    tracemalloc.start()
    logistic_pair_sums(s, t)
    logistic_pair_sums(t, s)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * 8 * (s.size + t.size)


def test_many_equal_terms_stay_within_the_allowance():
    """Equal terms round alike, so that errors of a plain running sum add up."""
    n = 10**6
    X = np.concatenate([[[1.0]], np.full((n, 1), -1.0)])
    objective = PairwiseObjective(X, np.arange(n + 1) == 0, PairLogistic("e"), 1e-9, row_norm=1.0)
    w = np.array([0.3])
    exact = -2 / (1 + math.exp(0.6)) + 1e-9 * 0.3
    assert abs(float(objective.gradient(w)[0]) - exact) <= 0.2 * objective.rounding_allowance(w)


def test_running_sums_pass_through_few_roundings():
    from dpconvex.objectives.pair_sums import _blocked_pair_sums

    for count in (0, 1, 1023, 1024, 5000, 200_000):
        terms = np.full(count, np.longdouble(0.1))
        exact = np.arange(1, count + 1) * np.longdouble(0.1)
        found = np.empty_like(terms)
        _blocked_pair_sums(terms, found)
        error = np.abs(found - exact)
        assert np.all(error <= 600 * np.finfo(np.longdouble).eps * exact)
