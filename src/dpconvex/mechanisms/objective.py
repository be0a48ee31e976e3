r"""Objective perturbation: noise enters before solving.

Draw ``b``, minimise ``F(theta) + <b, theta> / n`` to a certified gradient norm, and release the point
with a little noise that pays for the distance to the exact minimiser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.bounds import Bounds
from dpconvex.privacy.calibration import (
    exact_gaussian_std,
    gaussian_mu,
    objective_perturbation_laplace_scale,
    objective_perturbation_scale,
)
from dpconvex.privacy.certificate import Calibration, Certificate, calibrates
from dpconvex.privacy.guarantees import ApproxDP, Guarantee, PureDP, per_problem
from dpconvex.privacy.noise import FLOATING_POINT, NoiseSource

from .mechanism import check_objective

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
    if not bounds.alpha > 0:
        raise ValueError(
            "ObjectivePerturbation needs alpha above 0: its proof needs strong convexity in every coordinate. "
            f"Got alpha={bounds.alpha!r} instead."
        )


def largest_noise(term: Mapping[str, Any]) -> float:
    """Return a public bound that the norm of a noise term's draw exceeds with probability below 1e-17.

    ``std (sqrt(d) + 9)`` for a Gaussian, ``scale (2 d + 80)`` for l2-Laplace noise, whose norm is a Gamma(d) variable.
    """
    size = term["dimension"]
    if term["distribution"] == "gaussian":
        return float(term["std"] * (math.sqrt(size) + 9))
    return float(term["scale"] * (2 * size + 80))


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
    dimension = bounds.dimension
    facts = (bounds.lipschitz, bounds.curvature_ratio)
    relation = bounds.neighbors.replace("_", "-")
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        epsilon, delta = guarantee.epsilon_bound, guarantee.delta_bound
        keep = 1 - RELEASE_SHARE
        std = objective_perturbation_scale(
            keep * epsilon, keep * delta, *facts, rank=bounds.rank, neighbors=bounds.neighbors
        )
        # ||b|| exceeds std (sqrt(d) + 9) with probability below 1e-17.
        tolerance = bounds.solver_tolerance(std * (math.sqrt(dimension) + 9) / bounds.n_samples)
        mu = gaussian_mu(RELEASE_SHARE * epsilon, RELEASE_SHARE * delta)
        release = exact_gaussian_std(mu, 2 * tolerance / bounds.alpha, dimension)
        noise = {
            "objective": {"distribution": "gaussian", "std": std, "added_to": "sum"},
            "release": {"distribution": "gaussian", "std": release, "added_to": "coefficients"},
        }
        family = "GLM two-sided profile" if bounds.rank == 1 else "Rényi and chi profiles"
        theorem = f"Gaussian objective perturbation, {relation}, {family}"
    elif isinstance(guarantee, (PureDP, ApproxDP)):
        if bounds.rank != 1:
            raise ValueError(
                "Pure epsilon-DP by objective perturbation needs a generalised linear model (rank 1). "
                f"Got rank={bounds.rank} instead. Use delta above 0."
            )
        epsilon = guarantee.epsilon_bound
        scale = objective_perturbation_laplace_scale(
            (1 - RELEASE_SHARE) * epsilon, *facts, neighbors=bounds.neighbors
        )
        # A Gamma(d) variable exceeds 2 d + 80 with probability below 1e-17.
        tolerance = bounds.solver_tolerance(scale * (2 * dimension + 80) / bounds.n_samples)
        release = 2 * tolerance / (bounds.alpha * RELEASE_SHARE * epsilon)
        noise = {
            "objective": {"distribution": "l2-laplace", "scale": scale, "added_to": "sum"},
            "release": {
                "distribution": "l2-laplace",
                "scale": release,
                "added_to": "coefficients",
            },
        }
        theorem = f"l2-Laplace objective perturbation, {relation}, GLM"
    else:
        raise ValueError(
            f"ObjectivePerturbation offers PureDP and ApproxDP. Got {guarantee!r} instead. "
            "Give epsilon and delta, or use a mechanism that offers Gaussian DP."
        )
    for term in noise.values():
        term["dimension"] = dimension
    return Calibration(theorem, noise, tolerance, FLOATING_POINT)


@dataclass(frozen=True)
class ObjectivePerturbation:
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

    def certify(
        self,
        bounds: Bounds,
        guarantee: Guarantee,
        parameters: Mapping[str, Any] | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate from public facts."""
        from dpconvex.solvers.black_box import check_solver

        check_solver(self.solver, "ObjectivePerturbation")
        return Certificate.issue(self.name, bounds, guarantee, parameters, seeded)

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Any = None,
        record: dict[str, Any] | None = None,
    ) -> NDArray[np.float64]:
        """Return the minimiser of the perturbed objective, with the noise that pays for its inexactness."""
        from dpconvex.solvers import certified_point
        from dpconvex.solvers.clamped import with_clamped_targets

        check_objective(objective, certificate)
        noise = NoiseSource.of(rng)
        terms = certificate.noise
        tilt = noise.draw(terms["objective"]) / certificate.bounds.n_samples
        # The clamp knows a public bound on the noise and never the noise: theta must determine b.
        limit = largest_noise(terms["objective"]) / certificate.bounds.n_samples
        tilted = with_clamped_targets(objective, certificate.bounds, limit).with_linear(tilt)
        start = np.zeros(tilt.size)
        point = certified_point(self.solver, tilted, start, certificate.solver_tolerance)
        return noise.add(point, terms["release"])
