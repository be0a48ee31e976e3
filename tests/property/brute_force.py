"""Brute force over neighbours: few records, one of which is exchanged or left out, and how far a
minimiser moves.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import (
    AdversarialObjective,
    AdversarialResidualObjective,
    CostlyAdversaryObjective,
    EmpiricalObjective,
    TiltedObjective,
    WorstShareObjective,
)
from dpconvex.privacy import GaussianDP, LinearBounds, RobustBounds, TiltedBounds


@st.composite
def drawn_records(draw, losses, most=4):
    """Return a loss and rows and targets of one record more than a data set has.

    Values are corners, where sensitivities are attained, and values beyond the bounds, which are
    clipped.
    """
    loss = draw(st.sampled_from(losses))
    n = draw(st.integers(1, most))
    d = draw(st.integers(1, 2))
    value = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
    target = st.sampled_from([-1.0, 1.0]) if loss.kind == "margin" else value
    X = np.array([[draw(value) for _ in range(d)] for _ in range(n + 1)])
    return loss, X, np.array([draw(target) for _ in range(n + 1)])


def certified(kind, loss, n, d, row_norm=1.0, fit_intercept=True, gap=None, **facts):
    """Return a map of rows, and the certificate of bounds of a kind; its noise is the
    minimiser's sensitivity.
    """
    row_map = RowMap.from_bounds(d, (-1.0, 1.0), row_norm, fit_intercept)
    bounds = kind(n, d, loss, row_norm, row_map.max_norm, fit_intercept, **facts)
    return row_map, OutputPerturbation(gap=gap).certify(bounds, GaussianDP(1.0))


def objective_of(bounds, X, y, row_map):
    """Return the objective that bounds are about."""
    rows = MemoryRows(X, y, row_map, threads=1)
    facts = (bounds.loss, bounds.alpha)
    if isinstance(bounds, LinearBounds):
        return EmpiricalObjective(rows, *facts, divisor=bounds.n_samples)
    if isinstance(bounds, TiltedBounds):
        return TiltedObjective(rows, *facts, bounds.tilt, bounds.coef_bound, bounds.wall)
    if not isinstance(bounds, RobustBounds):
        return WorstShareObjective(rows, *facts, bounds.share, bounds.width, bounds.n_samples)
    if bounds.cost is not None:
        return CostlyAdversaryObjective(rows, *facts, bounds.cost)
    kind = AdversarialResidualObjective if bounds.residual else AdversarialObjective
    adversary = {"norm": bounds.norm, "width": bounds.width, "shape": bounds.shape}
    return kind(rows, *facts, bounds.radius, divisor=bounds.n_samples, **adversary)


def minimiser(X, y, row_map, certificate):
    """Return what noise is added to; an empty data set has the minimiser 0."""
    if len(X) == 0:
        return np.zeros(certificate.bounds.dimension)
    return OutputPerturbation().minimise(
        objective_of(certificate.bounds, X, y, row_map), certificate
    )


def check_move(X, y, row_map, certificate):
    """Assert that the minimiser moves by no more than the noise where the first record is
    replaced, or removed.
    """
    added = certificate.bounds.neighbors != "replace_one"
    parts = (slice(None) if added else slice(0, -1), slice(1, None))
    first, second = (minimiser(X[part], y[part], row_map, certificate) for part in parts)
    assert np.linalg.norm(first - second) <= certificate.noise["release"]["std"] * (1 + 1e-9)


def numeric_gradient(F, theta, step=1e-6):
    """Return differences of an objective in place of its gradient."""
    return [
        (F.value(theta + step * e) - F.value(theta - step * e)) / (2 * step) for e in np.eye(F.dim)
    ]
