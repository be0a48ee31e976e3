"""Noise of a random linear term that is added to an objective, for every kind of public bounds."""

from __future__ import annotations

import math

from dpconvex.core.bounds import Bounds
from dpconvex.privacy import objective_perturbation_calibration as calibration


def linear_term_scale(bounds: Bounds, epsilon: float, delta: float) -> float:
    """Return the scale of ``b`` that the bounds ask for.

    It is that of Gaussian noise, or of l2-Laplace noise where delta is 0.
    """
    if not bounds.sums_records:
        owner = type(bounds).__name__
        raise ValueError(
            "Objective perturbation needs a mean over records. Use OutputPerturbation with "
            f"{owner}."
        )
    form = bounds.trace_form
    if form is not None:
        lipschitz, ratio, neighbors, moved, rank = form
        if delta > 0:
            return calibration.trace_objective_scale(epsilon, delta, lipschitz, ratio, neighbors)
        return calibration.trace_objective_laplace_scale(epsilon, moved, ratio, rank)
    if delta > 0:
        return calibration.objective_perturbation_scale(
            epsilon,
            delta,
            bounds.lipschitz,
            bounds.curvature_ratio,
            rank=bounds.rank,
            neighbors=bounds.neighbors,
        )
    _check_rank(bounds)
    return calibration.objective_perturbation_laplace_scale(
        epsilon, bounds.lipschitz, bounds.curvature_ratio, neighbors=bounds.neighbors
    )


def linear_term_delta(bounds: Bounds, epsilon: float, scale: float) -> float:
    """Return delta of Gaussian ``b`` of this scale."""
    form = bounds.trace_form
    if form is not None:
        lipschitz, ratio, neighbors, _, _ = form
        return calibration.trace_objective_delta(epsilon, lipschitz / scale, ratio, neighbors)
    return calibration.objective_perturbation_delta(
        epsilon, bounds.lipschitz / scale, bounds.curvature_ratio, bounds.rank, bounds.neighbors
    )


def linear_term_epsilon(bounds: Bounds, scale: float) -> float:
    """Bound epsilon of l2-Laplace ``b`` of this scale.

    In trace form it is ``Gamma / scale + k log(1 + kappa / k)``.
    """
    form = bounds.trace_form
    if form is not None:
        _, ratio, _, moved, rank = form
        return moved / scale + rank * math.log1p(ratio / rank)
    _check_rank(bounds)
    return calibration.objective_perturbation_epsilon(
        scale, bounds.lipschitz, bounds.curvature_ratio, bounds.neighbors
    )


def _check_rank(bounds: Bounds) -> None:
    if bounds.rank != 1:
        raise ValueError(
            "Pure epsilon-DP by objective perturbation needs a generalised linear model "
            f"(rank 1). Got rank={bounds.rank} instead. Use delta above 0."
        )
