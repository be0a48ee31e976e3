r"""Objective perturbation: noise enters before solving.

Draw ``b``, minimise ``F(theta) + <b, theta> / n`` to a certified gradient norm, and release the
point with a little noise that pays for the distance to the exact minimiser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpconvex.core import certificate as certificates
from dpconvex.core.bounds import Bounds
from dpconvex.core.calibration import calibrated_release_scale, gaussian_mu
from dpconvex.core.certificate import (
    Certificate,
    CertificateCalibration,
    CertificateProof,
    Parameters,
)
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import (
    ApproxDP,
    Guarantee,
    PureDP,
    compose_guarantee,
    guarantee_per_problem,
)
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.noise_source import NoiseSource
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    check_mechanism_slope,
    check_mechanism_solver,
    loss_name,
)
from dpconvex.objectives.objective import ExtendedObjective
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import RobustBounds
from dpconvex.privacy.linear_terms import (
    linear_term_delta,
    linear_term_epsilon,
    linear_term_scale,
)
from dpconvex.releases.perturbed_minimiser import PerturbedMinimiser
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.solvers.black_box import Method

# Share of epsilon and of delta that pays for stopping short of the exact minimiser.
RELEASE_SHARE = 0.01


def check_perturbable_objective(bounds: Bounds) -> None:
    """Raise unless objective perturbation's proof applies: a smooth loss and a penalty on every
    coordinate.
    """
    if not math.isfinite(bounds.smoothness):
        loss = loss_name(bounds)
        raise ValueError(
            f"ObjectivePerturbation needs a smooth loss, but {loss} has smoothness=inf. "
            f"Use convolve({loss}(...), kernel, bandwidth) or OutputPerturbation()."
        )
    check_mechanism_slope(bounds, "ObjectivePerturbation")
    if isinstance(bounds, RobustBounds) and bounds.cost is not None:
        raise ValueError(
            "ObjectivePerturbation needs slopes that are bounded everywhere, but with a cost "
            "they are known only where minimisers without noise lie. Use a radius or "
            "OutputPerturbation()."
        )
    if not bounds.alpha > 0:
        raise ValueError(
            "ObjectivePerturbation needs alpha above 0: its proof needs strong convexity in "
            f"every coordinate. Got alpha={bounds.alpha!r} instead."
        )


@certificates.calibrates("objective")
def calibrate_objective_perturbation(
    bounds: Bounds, guarantee: Guarantee, parameters: Parameters
) -> CertificateCalibration:
    r"""Derive the two noise terms of objective perturbation.

    Several problems on the same data (one class against the rest) share the budget by basic
    composition.
    """
    check_perturbable_objective(bounds)
    return objective_perturbation_noise(
        bounds, guarantee_per_problem(guarantee, parameters.get("problems", 1))
    )


def objective_perturbation_noise(
    bounds: Bounds, guarantee: Guarantee, search_share: float = 0.0
) -> CertificateCalibration:
    r"""Return the noise of the linear term and of the release.

    99 % of the budget goes to ``b``, less the share that is ``search_share`` with before. The other
    1 % pays for the solver: with ``||gradient of F|| <= t`` at the returned point, two neighbours'
    points lie within ``2 t / alpha`` of what the exact minimisers allow.
    """
    epsilon, delta = perturbation_budget_share(guarantee, 1 - RELEASE_SHARE - search_share)
    law = "gaussian" if delta else "l2-laplace"
    scale = linear_term_scale(bounds, epsilon, delta)
    form, divisor, moved = bounds.linear_term_form
    linear = certificates.CertifiedNoise(law, scale, moved, bounds.dimension, form)
    tolerance = bounds.solver_tolerance(linear.norm_upper_bound / divisor)
    short = bounds.linear_term_inexactness(
        linear.effective_grid, linear.norm_upper_bound, tolerance
    )
    size = linear.dimension
    scale = calibrated_release_scale(
        perturbation_release_budget(guarantee, RELEASE_SHARE, law), short, size
    )
    release = certificates.CertifiedNoise(
        law, scale, short, size, "coefficients", tolerance=tolerance
    )
    return CertificateCalibration({"objective": linear, "release": release}, tolerance)


def perturbation_budget_share(guarantee: Guarantee, share: float) -> tuple[float, float]:
    """Return a share of epsilon and of delta, which is 0 for pure epsilon-DP."""
    if isinstance(guarantee, ApproxDP):
        return share * guarantee.epsilon_bound, share * guarantee.delta_bound
    if isinstance(guarantee, PureDP):
        return share * guarantee.epsilon_bound, 0.0
    raise ValueError(
        f"Objective perturbation offers PureDP and ApproxDP. Got {guarantee!r} instead. "
        "Give epsilon and delta, or use a mechanism that offers Gaussian DP."
    )


def perturbation_release_budget(guarantee: Guarantee, share: float, law: str) -> float:
    """Return a share of the budget as mu for Gaussian noise, or as epsilon for l2-Laplace noise."""
    epsilon, delta = perturbation_budget_share(guarantee, share)
    return gaussian_mu(epsilon, delta) if law == "gaussian" else epsilon


@certificates.proves("objective")
def prove_objective_perturbation(certificate: Certificate) -> CertificateProof:
    """Add the costs of the linear term, by its theorem, and of the release noise; over all
    problems.
    """
    certificate.check_bounds(LinearBounds, RobustBounds, StructuredBounds, several=True)
    check_perturbable_objective(certificate.bounds)
    certificate.check_terms("objective", "release")
    return prove_perturbed_objective(certificate)


def prove_perturbed_objective(
    certificate: Certificate,
    search_share: float = 0.0,
    counts: Sequence[certificates.CertifiedNoise] = (),
) -> CertificateProof:
    """Compose the linear term, the release and the counts of a search before them.

    With Gaussian noise each gets its share of the claim's epsilon; every share gives a valid bound.
    """
    bounds = certificate.bounds
    problems = certificate.problems
    claim = certificate.guarantee
    tolerance = certificate.check_tolerance()
    size = bounds.dimension
    form, _, moved = bounds.linear_term_form
    linear = certificate.term("objective", moved, size, form)
    short = bounds.linear_term_inexactness(
        linear.effective_grid, linear.norm_upper_bound, tolerance
    )
    release = certificate.term("release", short, size, "coefficients", tolerance=tolerance)
    gaussian = linear.distribution == "gaussian"
    what, family = bounds.linear_term_theorem(gaussian)
    law = "Gaussian" if gaussian else "l2-Laplace"
    theorem = f"{law} objective {what}, {bounds.relation.replace('_', '-')}, {family}"
    if not gaussian:
        spent = certificates.compose_certified_pure([release, *counts]).epsilon_bound
        total = PureDP(linear_term_epsilon(bounds, linear.scale) + spent)
        return CertificateProof(compose_guarantee(total, problems), theorem)
    if not isinstance(claim, ApproxDP):
        raise ValueError("Gaussian objective perturbation proves (epsilon, delta)-DP only.")
    epsilon = claim.epsilon_bound / problems
    delta = linear_term_delta(bounds, (1 - RELEASE_SHARE - search_share) * epsilon, linear.scale)
    delta += certificates.compose_certified_gaussian([release]).delta(RELEASE_SHARE * epsilon)
    if counts:
        delta += certificates.compose_certified_gaussian(counts).delta(search_share * epsilon)
    return CertificateProof(
        compose_guarantee(ApproxDP(epsilon, min(delta, 1 - 2.0**-53)), problems), theorem
    )


@dataclass(frozen=True)
class ObjectivePerturbation(PrivateMechanism):
    r"""Minimise an objective with a random linear term: ``F(theta) + <b, theta> / n``.

    Parameters
    ----------
    solver : Solver, str or callable, optional
        As for :class:`OutputPerturbation`.

    Notes
    -----
    Privacy: (epsilon, delta)-DP with Gaussian ``b`` and pure epsilon-DP with l2-Laplace ``b``,
    under replace-one or add-or-remove-one. Public: the number of rows (nominal under
    add-or-remove-one), dimensions, bounds, alpha and the loss. The loss must be convex with bounded
    slope and curvature, and every coordinate penalised.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP, LinearBounds
    >>> bounds = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.01)
    >>> certificate = ObjectivePerturbation().certify(bounds, ApproxDP(1.0, 1e-6))
    >>> round(certificate.noise["objective"]["std"], 2)
    13.07
    """

    solver: Method | None = None
    name: ClassVar[str] = "objective"

    def _chosen(self, bounds: Bounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        check_mechanism_solver(self.solver, type(self).__name__)
        return parameters

    def _run(
        self,
        objective: ExtendedObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        minimiser = PerturbedMinimiser(objective, certificate, noise)
        self._measure_pairs(minimiser, certificate, record)
        return minimiser.release(self.solver)

    def _measure_pairs(
        self, minimiser: PerturbedMinimiser, certificate: Certificate, record: Facts
    ) -> None:
        """Bring rows to the certificate's units, where they are not in them."""
