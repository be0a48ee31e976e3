"""Sums of rates' slopes: no neighbour moves an answer by more than its query says, whatever is
asked.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import Query, QueryFactor, QuerySlope, QueryStatistic
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.core.row_weights import RowWeights
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Tweedie
from dpconvex.privacy import LinearBounds, NoiseSource

ROWS = 60
COLUMNS = 2
SIZE = 3
STATED = Tweedie(1.0, -12.0, 2.8, 8.0)
LOSSES = [
    STATED,
    Tweedie(1.5, -12.0, 2.8, 8.0),
    Tweedie(2.0, -30.0, 2.0, 1e3),
    Tweedie(2.0, -59.0, 59.0, 1e25),
]
QUERIES = {
    "vector": Query("vector", 1.0, SIZE),
    "moments": Query.moments(SIZE),
    "bins": Query("histogram", 1, 5),
}
#: Far beyond all bounds, subnormal, at the ends of floating-point numbers.
TARGETS = (0.0, -1e300, 1e300, 5e-324, 8.0, 1e-308, 1e16)
MARGINS = (0.0, 1e-320, -50.0, 50.0, 1e90, -1e90)


def unproven(bounds, terms):
    """Return bounds and terms of any noise, which no guarantee has to follow from."""
    return SimpleNamespace(bounds=bounds, noise=terms, verify=lambda: None)


class Silence(NoiseSource):
    """Only rounds to the grid: what is left is what noise would hide."""

    def __init__(self):
        super().__init__(0)

    def gaussian(self, std, size):
        return np.zeros(size)


def handle(X, y, neighbors, people=None):
    bounds = LinearBounds(
        ROWS,
        COLUMNS,
        STATED,
        np.sqrt(2),
        np.sqrt(2),
        neighbors=neighbors,
        people=people is not None,
    )
    terms = {
        name: replace(query.calibrated_noise(bounds, 1.0), releases=10**6)
        for name, query in QUERIES.items()
    }
    rows = MemoryRows(X, y, RowMap.from_bounds(COLUMNS, (-1, 1)), threads=1)
    if people is not None:
        shares = 1 / np.bincount(people)[people]
        rows = rows.with_row_weights(RowWeights(shares, people.max() + 1, people.astype(np.uint64)))
    return PrivateRows([rows], unproven(bounds, terms), Silence())


def pairs(seed, neighbors, people):
    """Yield two neighbouring tables: a row, or all rows of a person, replaced by the worst ones,
    or left out.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (ROWS, COLUMNS))
    y = rng.choice([*TARGETS, 1.0, 2.0, 3.0], ROWS)
    groups = np.arange(ROWS) // 3 if people else None
    changed = np.arange(3 if people else 1)
    kept = np.setdiff1d(np.arange(ROWS), changed)
    if neighbors == "add_or_remove_one":
        other = X[kept], y[kept], None if groups is None else groups[kept] - 1
    else:
        moved = X.copy()
        targets = y.copy()
        moved[changed] = rng.choice([-1.0, 1.0], COLUMNS)
        targets[changed] = rng.choice(TARGETS)
        other = moved, targets, groups
    return (X, y, groups), other


def questions(rng):
    """Yield name and question: slopes with and without limits, factors, bins of slopes; at any
    coefficients.
    """
    loss = LOSSES[int(rng.integers(len(LOSSES)))]
    theta = np.array([rng.choice(MARGINS), *rng.uniform(-3, 3, COLUMNS)])
    frame = Coordinates(np.diag(10.0 ** rng.integers(-3, 4, SIZE)), 1)
    limit = float(rng.choice([np.inf, 1.0, 1e-9, 1e9]))
    weighting = str(rng.choice(["weight", "square", "clip"]))
    unit = float(10.0 ** rng.integers(-3, 4))
    slope = QuerySlope(loss, float(rng.choice([0.0, 0.3])), weighting, limit=limit)
    yield "vector", lambda rows: rows.slope_sum("vector", theta, slope, frame, unit) / unit
    for kind in ("slope", "curvature"):
        most = float(rng.choice([np.inf, 1.0, 1e-6]))
        factor = QueryFactor(kind, loss, float(rng.choice([0.0, 1.0, 1e9])), "square", most)
        yield (
            "moments",
            lambda rows, factor=factor: rows.second_moments("moments", frame, unit, factor, theta),
        )
    edges = np.sort(rng.normal(0, 2, 4))
    statistic = QueryStatistic("slope", theta, loss=loss)
    yield "bins", lambda rows: rows.histogram("bins", statistic, edges)


def norm(answer):
    """The norm that noise is calibrated to: that of a matrix counts every entry."""
    return float(np.linalg.norm(answer))


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
def test_no_neighbour_moves_an_answer_by_more_than_its_query_says(neighbors, people):
    worst = dict.fromkeys(QUERIES, 0.0)
    for seed in range(60):
        first, second = (
            handle(*table[:2], neighbors, table[2]) for table in pairs(seed, neighbors, people)
        )
        for name, ask in questions(np.random.default_rng([seed, 1])):
            moved = norm(np.asarray(ask(first)) - np.asarray(ask(second)))
            worst[name] = max(worst[name], moved / QUERIES[name].sensitivity(first.bounds))
    assert max(worst.values()) <= 1.0
    assert worst["vector"] > 0.4
    assert worst["bins"] > 0.9


def test_a_slope_that_forgets_its_limit_is_seen(monkeypatch):
    """What the test above would catch: slopes that are not clipped to what rows were shortened
    for.
    """
    monkeypatch.setattr(
        QuerySlope, "__call__", lambda self, y, z, w: (w * self.loss.gradient(y, z),)
    )
    with pytest.raises(AssertionError):
        test_no_neighbour_moves_an_answer_by_more_than_its_query_says("replace_one", False)


@pytest.mark.parametrize("limit", [0.0, -1.0, 1e-200, float("-inf")])
def test_limits_that_are_none_are_refused(limit):
    rows = handle(*pairs(0, "replace_one", False)[0][:2], "replace_one")
    with pytest.raises(ValueError, match="must be bounded"):
        rows.slope_sum(
            "vector", np.zeros(SIZE), QuerySlope(STATED, limit=limit), Coordinates(np.eye(SIZE), 1)
        )


class Looking(Tweedie):
    """A loss of the caller's, which would be shown rows."""

    def gradient(self, y, z):
        raise AssertionError("a function of the caller saw rows")


def test_losses_of_the_caller_are_refused():
    rows = handle(*pairs(0, "replace_one", False)[0][:2], "replace_one")
    own = Looking(1.0, -1.0, 1.0, 1.0)
    with pytest.raises(TypeError, match="loss of dpconvex"):
        rows.histogram("bins", QueryStatistic("slope", np.zeros(SIZE), loss=own), np.arange(4.0))
    with pytest.raises(ValueError, match="need a loss"):
        rows.histogram("bins", QueryStatistic("slope", np.zeros(SIZE)), np.arange(4.0))


def test_counts_of_two_losses_are_not_mixed_up():
    """Values of the last question are kept: those of another loss are others."""
    rows = handle(*pairs(0, "replace_one", False)[0][:2], "replace_one")
    theta = np.array([0.5, 0.0, 0.0])
    ask = [
        rows.count("vector", QueryStatistic("slope", theta, loss=loss), 0.9)
        for loss in (STATED, LOSSES[2])
    ]
    alone = handle(*pairs(0, "replace_one", False)[0][:2], "replace_one")
    assert ask[1] == alone.count("vector", QueryStatistic("slope", theta, loss=LOSSES[2]), 0.9)
