r"""Objective perturbation: noise enters before solving.

Draw ``b``, minimise ``F(theta) + <b, theta> / n`` to a certified gradient norm, and release the point
with a little noise that pays for the distance to the exact minimiser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.bounds.robust import RobustBounds
from dpconvex.privacy.bounds.structured import StructuredBounds
from dpconvex.privacy.calibration import (
    gaussian_mu,
    objective_perturbation_delta,
    objective_perturbation_epsilon,
    objective_perturbation_laplace_scale,
    objective_perturbation_scale,
    released_scale,
)
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, Proof, calibrates, proves
from dpconvex.privacy.certificates.terms import NoiseTerm, gaussian_total, pure_total
from dpconvex.privacy.guarantees import ApproxDP, Guarantee, PureDP, per_problem, together
from dpconvex.privacy.noise import NoiseSource

# Share of epsilon and of delta that pays for stopping short of the exact minimiser.
RELEASE_SHARE = 0.01


def check_smooth(bounds: Bounds) -> None:
    """Raise unless objective perturbation's proof applies: a smooth loss and a penalty on every coordinate."""
    if not math.isfinite(bounds.smoothness):
        loss = type(getattr(bounds, "loss", None)).__name__
        raise ValueError(
            f"ObjectivePerturbation needs a smooth loss, but {loss} has smoothness=inf. "
            f"Use convolve({loss}(...), kernel, bandwidth) or OutputPerturbation()."
        )
    if not math.isfinite(bounds.lipschitz):
        loss = type(getattr(bounds, "loss", None)).__name__
        raise ValueError(
            f"ObjectivePerturbation needs a loss of bounded slope, but {loss} has lipschitz=inf. "
            "Use Huber(width) in its place."
        )
    if getattr(bounds, "cost", None) is not None:
        raise ValueError(
            "ObjectivePerturbation needs slopes that are bounded everywhere, but with a cost they are known only where "
            "minimisers without noise lie. Use a radius or OutputPerturbation()."
        )
    if not bounds.alpha > 0:
        raise ValueError(
            "ObjectivePerturbation needs alpha above 0: its proof needs strong convexity in every coordinate. "
            f"Got alpha={bounds.alpha!r} instead."
        )


@calibrates("objective")
def calibrate_objective(
    bounds: Bounds, guarantee: Guarantee, parameters: Mapping[str, Any]
) -> Calibration:
    r"""Derive the two noise terms of objective perturbation.

    99 % of the budget goes to ``b``. The other 1 % pays for the solver: with ``||gradient of F|| <= t`` at the
    returned point, two neighbours' points lie within ``2 t / alpha`` of what the exact minimisers allow. Several
    problems on the same data (one class against the rest) share the budget by basic composition.
    """
    check_smooth(bounds)
    guarantee = per_problem(guarantee, parameters.get("problems", 1))
    facts = (bounds.lipschitz, bounds.curvature_ratio)
    keep = 1 - RELEASE_SHARE
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        epsilon, delta = guarantee.epsilon_bound, guarantee.delta_bound
        law, budget = "gaussian", gaussian_mu(RELEASE_SHARE * epsilon, RELEASE_SHARE * delta)
        scale = objective_perturbation_scale(
            keep * epsilon, keep * delta, *facts, rank=bounds.rank, neighbors=bounds.neighbors
        )
    elif isinstance(guarantee, (PureDP, ApproxDP)):
        if bounds.rank != 1:
            raise ValueError(
                "Pure epsilon-DP by objective perturbation needs a generalised linear model (rank 1). "
                f"Got rank={bounds.rank} instead. Use delta above 0."
            )
        epsilon = guarantee.epsilon_bound
        law, budget = "l2-laplace", RELEASE_SHARE * epsilon
        scale = objective_perturbation_laplace_scale(
            keep * epsilon, *facts, neighbors=bounds.neighbors
        )
    else:
        raise ValueError(
            f"ObjectivePerturbation offers PureDP and ApproxDP. Got {guarantee!r} instead. "
            "Give epsilon and delta, or use a mechanism that offers Gaussian DP."
        )
    tilt = NoiseTerm(law, scale, bounds.gradient_sum_sensitivity(), bounds.dimension, "sum")
    tolerance = bounds.solver_tolerance(tilt.largest / bounds.n_samples)
    return Calibration(
        {
            "objective": tilt,
            "release": release_term(bounds, tilt, bounds.n_samples, tolerance, budget),
        },
        tolerance,
    )


def inexactness(bounds: Bounds, tilt: NoiseTerm, divisor: int, tolerance: float) -> float:
    r"""Return how far apart the inexactness of two solved problems can take what the theorem is about.

    ``2 (t + (g sqrt(d) / 2 + 2^-52 B) / divisor) / alpha``: a point with ``||gradient of F|| <= t`` lies within
    ``t / alpha`` of the minimiser; and the theorem is about an ideal tilt, from which the tilt on the grid g differs by
    at most ``g sqrt(d) / 2``, and its division by a few roundings of a number of norm at most B.
    """
    rounding = tilt.drawn_grid * math.sqrt(tilt.dimension) / 2 + 2.0**-52 * tilt.largest
    return 2 * (tolerance + rounding / divisor) / bounds.alpha


def release_term(
    bounds: Bounds, tilt: NoiseTerm, divisor: int, tolerance: float, budget: float
) -> NoiseTerm:
    """Return the noise that pays for :func:`inexactness`, with a budget of mu or epsilon by the tilt's law."""
    moved = inexactness(bounds, tilt, divisor, tolerance)
    scale = released_scale(budget, moved, tilt.dimension)
    law, size = tilt.distribution, tilt.dimension
    return NoiseTerm(law, scale, moved, size, "coefficients", tolerance=tolerance)


@proves("objective")
def prove_objective(certificate: Certificate) -> Proof:
    """Add what the tilt costs, by its theorem, and what the release noise costs; over all problems."""
    bounds, problems = certificate.bounds, certificate.problems
    certificate.check_bounds(LinearBounds, RobustBounds, StructuredBounds, several=True)
    check_smooth(bounds)
    certificate.check_terms("objective", "release")
    tolerance = certificate.check_tolerance()
    size = bounds.dimension
    tilt = certificate.term("objective", bounds.gradient_sum_sensitivity(), size, "sum")
    moved = inexactness(bounds, tilt, bounds.n_samples, tolerance)
    release = certificate.term("release", moved, size, "coefficients", tolerance=tolerance)
    relation = bounds.neighbors.replace("_", "-")
    facts = (bounds.curvature_ratio, bounds.rank, bounds.neighbors)
    if tilt.distribution == "gaussian":
        family = "GLM two-sided profile" if bounds.rank == 1 else "Rényi and chi profiles"
        proven = tilted_delta(
            certificate.guarantee,
            problems,
            release,
            lambda epsilon: objective_perturbation_delta(
                epsilon, bounds.lipschitz / tilt.scale, *facts
            ),
        )
        return Proof(proven, f"Gaussian objective perturbation, {relation}, {family}")
    if bounds.rank != 1:
        raise ValueError("Pure epsilon-DP by objective perturbation needs rank 1.")
    tilted = objective_perturbation_epsilon(
        tilt.scale, bounds.lipschitz, bounds.curvature_ratio, bounds.neighbors
    )
    proven = PureDP(tilted + pure_total([release]).epsilon_bound)
    return Proof(together(proven, problems), f"l2-Laplace objective perturbation, {relation}, GLM")


def tilted_delta(
    claim: Guarantee, problems: int, release: NoiseTerm, delta_at: Callable[[float], float]
) -> Guarantee:
    """Return the (epsilon, delta) of ``problems`` runs at the claim's epsilon: delta of the tilt plus of the release.

    The release gets the share of epsilon that its noise was made for; every share gives a valid bound.
    """
    if not isinstance(claim, ApproxDP):
        raise ValueError("Gaussian objective perturbation proves (epsilon, delta)-DP only.")
    epsilon = claim.epsilon_bound / problems
    spent = gaussian_total([release]).delta(RELEASE_SHARE * epsilon)
    delta = delta_at((1 - RELEASE_SHARE) * epsilon) + spent
    return together(ApproxDP(epsilon, min(delta, 1 - 2.0**-53)), problems)


@dataclass(frozen=True)
class ObjectivePerturbation(PrivateMechanism):
    r"""Minimise a randomly tilted objective: ``F(theta) + <b, theta> / n``.

    Parameters
    ----------
    solver : Solver, str or callable, optional
        As for :class:`OutputPerturbation`: its answer is certified at the point returned and polished where it stopped
        short. By default Newton's method up to about 500 coefficients and L-BFGS beyond.

    Notes
    -----
    Privacy: (epsilon, delta)-DP with Gaussian ``b`` and pure epsilon-DP with l2-Laplace ``b``, under replace-one or
    add-or-remove-one. Public: the number of rows (nominal under add-or-remove-one), dimensions, bounds, alpha and the
    loss. The loss must be convex with bounded slope and curvature, and every coordinate penalised.
    """

    solver: Any = None
    name: ClassVar[str] = "objective"

    def _chosen(
        self, bounds: Any, guarantee: Guarantee, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        from dpconvex.solvers.black_box import check_solver

        check_solver(self.solver, "ObjectivePerturbation")
        return parameters

    def _run(
        self, objective: Any, certificate: Certificate, noise: NoiseSource, record: dict[str, Any]
    ) -> NDArray[np.float64]:
        """Return the minimiser of the perturbed objective, with the noise that pays for its inexactness."""
        from dpconvex.objectives.clamped import with_clamped_targets
        from dpconvex.solvers import certified_point

        terms = certificate.noise
        tilt = noise.draw(terms["objective"]) / certificate.bounds.n_samples
        # The clamp knows a public bound on the noise and never the noise: theta must determine b.
        limit = terms["objective"].largest / certificate.bounds.n_samples
        tilted = with_clamped_targets(objective, certificate.bounds, limit).with_linear(tilt)
        start = np.zeros(tilt.size)
        point = certified_point(self.solver, tilted, start, certificate.solver_tolerance)
        return noise.add(point, terms["release"])
