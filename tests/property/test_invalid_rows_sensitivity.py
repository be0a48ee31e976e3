"""Records of weight 0, as invalid rows that are ignored are, never beat a claimed sensitivity.

NaN as a target marks such a record. Each bound that had to change is shown to be beaten without the
change.
"""

import itertools
import math
from dataclasses import replace

import coupled_runs as coupled
import numpy as np
import pytest
from coupled_runs import problems
from hypothesis import given, settings
from hypothesis import strategies as st
from test_auc_sensitivity import LOSSES, PLACES, SLOPES, Replay

from dpconvex.core.queries import Query, QueryStatistic
from dpconvex.core.row_weights import RowWeights
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.dask.partitions import PartitionTargets, partition_numbers
from dpconvex.engine.dask.rows_and_table import DaskTable
from dpconvex.losses import Logistic, PairLogistic
from dpconvex.mechanisms import Moments, OutputPerturbation, PairwiseObjectivePerturbation
from dpconvex.objectives import AdversarialObjective, PairwiseObjective, TiltedObjective
from dpconvex.privacy import GaussianDP, LinearBounds, PairwiseBounds, PureDP, TiltedBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import RobustBounds
from dpconvex.releases.perturbed_minimiser import LONGEST, WIDEST

PROFILE = settings(max_examples=60, derandomize=True, deadline=None)


@given(problem=problems(), void=st.sampled_from([(0,), (1,), (-1,), (0, -1), (1, -1)]))
@PROFILE
def test_coupled_descent_spends_at_most_the_budget(problem, void):
    """Sums, counts and moments of data sets in which a record becomes invalid, or another one
    is.
    """
    loss, X, y, mu, public = problem
    n = len(y) - 1
    d = X.shape[1]
    row_map, bounds, certificate = coupled.facts(loss, n, d, mu, **public, void=True)
    assert "mass" in certificate.noise
    y = y.copy()
    y[list(void)] = np.nan
    rows = [0, n, *range(2, n)] if public["neighbors"] == "replace_one" else slice(None)
    ratios, spent = coupled.differences(
        (X[:-1], y[:-1]), (X[rows], y[rows]), bounds, row_map, certificate
    )
    assert max(ratios.values()) <= 1 + 1e-9
    assert spent <= mu * (1 + 1e-9)


def in_memory(y, votes):
    rows = MemoryRows(np.zeros((len(y), 1)), y, RowMap(1, 1.0), threads=1)
    return rows if votes is None else rows.with_row_weights(votes)


def in_partitions(y, votes):
    da = pytest.importorskip("dask.array")
    table = DaskTable(
        da.zeros((len(y), 1), chunks=(2, 1)),
        da.from_array(np.array(y), chunks=2),
        "test",
        clean=PartitionTargets(partition_numbers),
    )
    return table.rows(RowMap(1, 1.0), row_weights=votes)


@pytest.mark.parametrize("engine", [in_memory, in_partitions])
@pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 1 / 3])
@pytest.mark.parametrize("people", [False, True])
def test_centred_counts_of_all_neighbours(level, people, engine):
    """Four records below, at and above a point, or ignored: every replacement, and every one
    that leaves.
    """
    kinds = (0.0, 1.0, 2.0, np.nan)
    records = 3 if engine is in_partitions else 4

    def count(y):
        votes = None
        if people:  # of two rows each, the second of which is always valid
            y = np.ravel(np.column_stack([y, np.ones(len(y))]))
            tags = np.repeat(np.arange(len(y) // 2, dtype=np.uint64), 2)
            votes = RowWeights(np.full(len(y), 0.5), len(y) // 2, tags)
        return engine(y, votes).counter(lambda y, w: y, level)(1.0)

    found = {y: count(np.array(y)) for y in itertools.product(kinds, repeat=records)}
    fewer = {y: count(np.array(y)) for y in itertools.product(kinds, repeat=records - 1)}
    most_replaced = most_removed = 0.0
    for y, here in found.items():
        assert here == pytest.approx(_centred(y, level, people), abs=1e-12)
        for kind in kinds:
            most_replaced = max(most_replaced, abs(here - found[(kind, *y[1:])]))
        most_removed = max(most_removed, abs(here - fewer[y[1:]]))
    whole = 0.5 if people else 1.0  # of a person one row is the same on both sides
    allowed = Query("count").sensitivity(
        LinearBounds(4, 1, Logistic(), 1.0, 1.0, ignored_rows=True)
    )
    assert whole * 0.999 < most_replaced <= whole * allowed
    assert most_removed <= max(level, 1 - level) * allowed


def _centred(y, level, people):
    """The definition, record by record."""
    total = 0.0
    for value in y:
        rows = [value, 1.0] if people else [value]
        total += sum((row < 1.0) - level for row in rows if not math.isnan(row)) / len(rows)
    return total


@pytest.mark.parametrize("sort", ["octaves", "targets", "tails", "labels", "mass"])
def test_histograms_leave_ignored_rows_out(sort):
    """An ignored row is in no bin, so that it moves one of them where a valid row takes its
    place.
    """
    seen = []
    for y in ([0.3, 0.6, np.nan], [0.3, 0.6, 0.9], [0.3, 0.6]):
        rows = MemoryRows(np.full((len(y), 1), 0.5), y, RowMap(1, 1.0), threads=1)
        bounds = LinearBounds(3, 1, Logistic(), 1.0, 1.0, ignored_rows=True)
        ask = coupled.silent_rows(
            rows,
            bounds,
            octaves=Query("histogram", 1, 33),
            bins=Query("histogram", 1, 5),
            labels=Query("count"),
            mass=Query("count"),
        )
        edges = [0.0, 0.4, 0.7, 2.0]
        if sort == "octaves":
            seen.append(ask.column_octaves("octaves", 0, 16))
        elif sort == "targets":
            seen.append(ask.histogram("bins", QueryStatistic("target"), edges))
        elif sort == "tails":
            seen.append(ask.histogram("bins", QueryStatistic("residual", np.zeros(2)), edges))
        elif sort == "labels":
            seen.append(np.array([ask.count("labels", QueryStatistic("label"), -0.5, 0.5)]))
        else:
            seen.append(np.array([ask.count("mass", QueryStatistic("target"), np.inf)]))
    ignored, valid, without = seen
    assert np.array_equal(ignored, without)
    assert np.abs(valid - ignored).sum() == (0.5 if sort == "labels" else 1.0)


def tilted_minimiser(X, y, row_map, certificate):
    bounds = certificate.bounds
    objective = TiltedObjective(
        MemoryRows(X, y, row_map, threads=1), bounds.loss, bounds.alpha, bounds.tilt
    )
    return OutputPerturbation().minimise(objective, certificate)


@PROFILE
@given(
    st.integers(0, 10_000),
    st.integers(1, 6),
    st.sampled_from([0.3, 2.0, 20.0]),
    st.sampled_from([0.0, 1.0, 8.0]),
    st.sampled_from([0.5, 2.0]),
)
def test_tilted_minimisers_with_invalid_rows(seed, n, alpha, tilt, row_norm):
    rng = np.random.default_rng(seed)
    row_map = RowMap.from_bounds(1, (-1.0, 1.0), row_norm)
    facts = (n, 1, Logistic(), row_norm, row_map.max_norm)
    bounds = TiltedBounds(*facts, alpha=alpha, tilt=tilt, ignored_rows=True)
    certificate = OutputPerturbation().certify(bounds, GaussianDP(1.0))
    X = rng.choice([-1.0, 0.0, 1.0], (n + 1, 1))
    y = rng.choice([-1.0, 1.0, np.nan], n + 1)
    first = tilted_minimiser(X[:-1], y[:-1], row_map, certificate)
    second = tilted_minimiser(X[1:], y[1:], row_map, certificate)
    assert np.linalg.norm(first - second) <= certificate.noise["release"]["std"] * (1 + 1e-9)


def test_a_tilted_range_without_zero_is_beaten():
    """One valid record among invalid ones: its loss exceeds theirs, 0, by far more than losses
    of records differ.
    """
    n = 1000
    alpha = 50.0
    tilt = 10.0
    row_map = RowMap.from_bounds(1, (-1.0, 1.0), 1.0)
    plain = TiltedBounds(n, 1, Logistic(), 1.0, 1.0, alpha=alpha, tilt=tilt)
    bounds = replace(plain, ignored_rows=True)
    certificate = OutputPerturbation().certify(bounds, GaussianDP(1.0))
    X = np.ones((n, 1))
    y = np.full(n, np.nan)
    found = []
    for label in (-1.0, 1.0):
        y[0] = label
        found.append(tilted_minimiser(X, y, row_map, certificate))
    moved = np.linalg.norm(found[0] - found[1])
    assert moved > 50 * plain.minimiser_sensitivity()
    assert 0.4 * bounds.minimiser_sensitivity() < moved <= bounds.minimiser_sensitivity()


@PROFILE
@given(st.integers(0, 10_000), st.sampled_from(["l2", "linf"]), st.sampled_from([0.2, 1.0, 3.0]))
def test_robust_gradients_with_an_invalid_row(seed, norm, row_norm):
    rng = np.random.default_rng(seed)
    row_map = RowMap.from_bounds(2, (-1.0, 1.0), row_norm)
    bounds = RobustBounds(
        2, 2, Logistic(), row_norm, row_map.max_norm, alpha=0.1, radius=0.5, norm=norm
    )
    X = rng.choice([-1.0, 0.5, 1.0], (3, 2))
    theta = rng.normal(size=3) * 5
    y = np.array([1.0, rng.choice([-1.0, 1.0]), np.nan])
    sums = [
        2
        * AdversarialObjective(
            MemoryRows(X[rows], y[rows], row_map, threads=1), Logistic(), 0.0, 0.5, norm
        ).gradient(theta)
        for rows in ([0, 1], [0, 2])
    ]
    assert np.linalg.norm(sums[0] - sums[1]) <= bounds.gradient_sum_sensitivity() * (1 + 1e-9)


KINDS = (1.0, -1.0, np.nan)  # positive, negative, and in no class


def of_three_kinds(X, y, flips=True):
    """Yield every data set in which one record is replaced, invalid ones included on both sides."""
    for i, place, label in itertools.product(range(len(X)), PLACES[::2], KINDS):
        if not flips and label * y[i] < 0:
            continue
        other = X.copy()
        labels = y.copy()
        other[i] = place
        labels[i] = label
        yield other, labels


def pairs(X, y, bounds):
    longest = bounds.row_norm
    rows = MemoryRows(X, y, RowMap(2, longest, fit_intercept=False), threads=1)
    least = (bounds.min_positive, bounds.min_negative)
    return PairwiseObjective(rows, None, bounds.loss, bounds.alpha, *least, row_norm=longest)


@st.composite
def three_kinds(draw, most=6):
    n = draw(st.integers(1, most))
    X = PLACES[[draw(st.integers(0, len(PLACES) - 1)) for _ in range(n)]]
    y = np.array([draw(st.sampled_from(KINDS)) for _ in range(n)])
    return X, y, (draw(st.integers(1, 4)), draw(st.integers(1, 4))), draw(st.booleans())


@PROFILE
@given(three_kinds(), st.sampled_from(LOSSES))
def test_pairwise_gradients_and_traces(case, loss):
    X, y, least, label_private = case
    bounds = PairwiseBounds(len(X), 2, loss, 1.0, None, *least, label_private, alpha=1.0)
    here = pairs(X, y, bounds)
    trace = bounds.curvature_ratio * bounds.alpha * (1 + 1e-9) + 1e-9
    for other in of_three_kinds(X, y, label_private):
        there = pairs(*other, bounds)
        for w in SLOPES:
            moved = np.linalg.norm(here.gradient(w) - there.gradient(w))
            assert moved <= bounds.gradient_sensitivity * (1 + 1e-9)
        change = np.linalg.eigvalsh(here.hessian(SLOPES[3]) - there.hessian(SLOPES[3]))
        assert np.maximum(change, 0).sum() <= trace
        assert np.maximum(-change, 0).sum() <= trace


def test_an_invalid_row_is_in_no_pair_and_no_count():
    bounds = PairwiseBounds(5, 2, LOSSES[0], 1.0, None, 1, 1, alpha=1.0)
    y = np.array([1.0, -1.0, np.nan, 1.0, np.nan])
    all_of_them = pairs(PLACES[:5], y, bounds)
    valid = pairs(PLACES[[0, 1, 3]], y[[0, 1, 3]], bounds)
    assert all_of_them.counts == valid.counts == (2, 1)
    assert np.array_equal(all_of_them.gradient(SLOPES[3]), valid.gradient(SLOPES[3]))
    nothing = pairs(PLACES[:2], np.array([np.nan, np.nan]), bounds)
    assert nothing.value(SLOPES[3]) == 0.5 * float(SLOPES[3] @ SLOPES[3])


@pytest.mark.parametrize("seed", range(3))
def test_every_pairwise_release_keeps_to_its_sensitivity(seed):
    rng = np.random.default_rng(seed)
    n = 9
    X = rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-2, 0, size=(n, 1))
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    y = rng.choice(KINDS, n)
    bounds = PairwiseBounds(n, 2, PairLogistic("e"), 1.0, None, 2, 3, ignored_rows=True)
    mechanism = Moments()
    certificate = mechanism.certify(bounds, GaussianDP(3.0))
    replay = Replay()
    mechanism.release(pairs(X, y, bounds), certificate, replay)
    replay.restart()
    for other in of_three_kinds(X, y):
        mechanism.release(pairs(*other, bounds), certificate, replay)
        for name, moved in replay.moves(certificate.noise):
            assert moved <= certificate.noise[name]["sensitivity"] * (1 + 1e-9)
        replay.restart()


def test_counts_of_row_lengths_change_by_at_most_one():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(9, 2)) / 5
    y = rng.choice(KINDS, 9)
    bounds = PairwiseBounds(9, 2, PairLogistic("e"), 1.0, None, 2, 3, alpha=1e3, ignored_rows=True)
    mechanism = PairwiseObjectivePerturbation()
    certificate = mechanism.certify(bounds, PureDP(1.0), {LONGEST: 2.0, WIDEST: 4.0})
    replay = Replay()
    given = replace(bounds, row_norm=2.0, diameter=4.0)  # before a unit of length is found
    mechanism.release(pairs(X, y, given), certificate, replay)
    replay.restart()
    for other in of_three_kinds(X, y):
        mechanism.release(pairs(*other, given), certificate, replay)
        for name, moved in replay.moves(certificate.noise):
            assert name != "lengths" or moved <= 1
        replay.restart()
