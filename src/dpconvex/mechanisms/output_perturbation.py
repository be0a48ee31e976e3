r"""Output perturbation: noise enters after solving.

Minimise ``F`` with any solver, certify the point it returns, and release the point plus noise that
hides the sensitivity of the minimiser. Kinked losses are minimised through their Moreau envelope,
which has the loss's own Lipschitz constant: the envelope's objective is the one whose minimiser is
released, so its sensitivity is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpconvex.core import certificate as certificates
from dpconvex.core.bounds import Bounds
from dpconvex.core.calibration import calibrated_release_scale
from dpconvex.core.certificate import (
    Certificate,
    CertificateCalibration,
    CertificateProof,
    Parameters,
)
from dpconvex.core.checks import check_number, parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import Guarantee, compose_guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.noise_source import NoiseSource
from dpconvex.losses.scaled_and_clamped import piecewise_linear_shape
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    check_mechanism_slope,
    check_mechanism_solver,
    is_pure,
)
from dpconvex.objectives.objective import Objective
from dpconvex.releases.perturbed_minimiser import PerturbedMinimiser, exact_minimiser
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.solvers.black_box import Method

GAP = "solver_gap"
RADIUS = "release_radius"


def check_output_perturbable(bounds: Bounds) -> None:
    """Raise unless output perturbation's proof applies: bounded slope and a penalty."""
    check_mechanism_slope(bounds, "OutputPerturbation")
    if not bounds.alpha > 0:
        raise ValueError(
            "OutputPerturbation needs alpha above 0: without strong convexity one record can "
            f"move the minimiser anywhere. Got alpha={bounds.alpha!r} instead. Give alpha, or "
            "take it from dpconvex.planning.linear_preset for an objective that is only convex."
        )


def _output_solver_tolerance(bounds: Bounds, gap: float | None = None) -> float:
    """Return the gradient norm that float64 certifies; for a kinked loss, on its Moreau envelope
    for this gap.
    """
    if math.isfinite(bounds.smoothness):
        return bounds.solver_tolerance()
    if not isinstance(bounds, LinearBounds):
        raise ValueError(
            f"OutputPerturbation needs a smooth loss with {type(bounds).__name__}. Smooth it by "
            "convolution first."
        )
    if gap is None:
        return bounds.envelope_tolerance(bounds.envelope_smoothness())
    # Four times the first curvature: the solver may have to raise it.
    return bounds.envelope_tolerance(4 * float(bounds.loss.lipschitz) ** 2 / gap)


def _check_output_gap(bounds: Bounds, gap: object) -> float:
    """Return a gap that can be certified, or raise."""
    allowed = "a finite number above 0"
    gap = check_number("gap", "OutputPerturbation", gap, allowed, 0, math.inf, low_open=True)
    least = _smallest_output_gap(bounds)
    if gap < least:
        allowed = (
            f"at least {least:.3g} here: less cannot be certified in float64 for every data set"
        )
        raise parameter_error("gap", "OutputPerturbation", allowed, repr(gap))
    return gap


def _check_output_radius(radius: object) -> None:
    """Raise unless this is None or a radius to project on."""
    if radius is not None:
        allowed = "None or a finite number above 0"
        check_number("radius", "OutputPerturbation", radius, allowed, 0, math.inf, low_open=True)


def _smallest_output_gap(bounds: Bounds) -> float:
    """Return a gap that float64 can certify whatever the data, from public facts.

    A gap g is sought at envelope curvature ``b = slope^2 / g`` with a gradient norm of
    ``sqrt(alpha g / 2)``, which must exceed what can be resolved at that curvature.
    """
    gap = 1e-14 * bounds.lipschitz
    for _ in range(400):
        if _output_solver_tolerance(bounds, gap) <= math.sqrt(bounds.alpha * gap / 2):
            return gap
        gap *= 1.25
    return math.inf


@certificates.calibrates("output")
def calibrate_output_perturbation(
    bounds: Bounds, guarantee: Guarantee, parameters: Parameters
) -> CertificateCalibration:
    r"""Derive the noise of output perturbation from the sensitivity of the certified minimiser.

    Gaussian DP: ``std = sensitivity / mu``; (epsilon, delta): the same with the largest ``mu`` that
    implies it; pure epsilon: l2-Laplace of scale ``sensitivity / epsilon``. Each of k problems on
    the same data (one class against the rest) gets ``mu / sqrt(k)`` or ``epsilon / k``.
    """
    check_output_perturbable(bounds)
    gap = parameters.get(GAP)
    if gap is None:
        tolerance = _output_solver_tolerance(bounds)
        sensitivity = bounds.minimiser_sensitivity(tolerance)
    else:
        gap = _check_output_gap(bounds, gap)
        tolerance = math.sqrt(2 * bounds.alpha * gap)  # the same distance to the minimiser
        sensitivity = bounds.minimiser_sensitivity(gap=gap)
    dimension = bounds.dimension
    problems = parameters.get("problems", 1)
    if is_pure(guarantee):
        law = "l2-laplace"
        budget = guarantee.epsilon_bound / problems
    else:
        law = "gaussian"
        budget = guarantee.as_gaussian().mu / math.sqrt(problems)
    scale = calibrated_release_scale(budget, sensitivity, dimension)
    release = certificates.CertifiedNoise(
        law, scale, sensitivity, dimension, "coefficients", tolerance=tolerance
    )
    return CertificateCalibration({"release": release}, tolerance)


@certificates.proves("output")
def prove_output_perturbation(certificate: Certificate) -> CertificateProof:
    """Compose the releases of the minimisers, each as sensitive as the stated tolerance makes
    it.
    """
    bounds = certificate.bounds
    gap = certificate.parameters.get(GAP)
    certificate.check_bounds(Bounds, several=True)
    check_output_perturbable(bounds)
    certificate.check_terms("release")
    tolerance = certificate.check_tolerance()
    solved = "certified gradient norm"
    if gap is not None:
        solved = "certified gap"
        # A gap is worth this gradient norm: the same distance to the minimiser.
        tolerance = max(tolerance, math.sqrt(2 * bounds.alpha * _check_output_gap(bounds, gap)))
    elif not math.isfinite(bounds.smoothness):
        solved = "certified gradient norm on a Moreau envelope"
    _check_output_radius(certificate.parameters.get(RADIUS))
    moved = bounds.minimiser_sensitivity(tolerance)
    stated = certificate.solver_tolerance
    release = certificate.term("release", moved, bounds.dimension, "coefficients", tolerance=stated)
    gaussian = release.distribution == "gaussian"
    total = (
        certificates.compose_certified_gaussian if gaussian else certificates.compose_certified_pure
    )
    proven = total([release])
    law = "Gaussian" if gaussian else "l2-Laplace"
    relation = bounds.relation.replace("_", "-")
    theorem = f"{law} output perturbation, {relation}, {solved}"
    return CertificateProof(compose_guarantee(proven, certificate.problems), theorem)


@dataclass(frozen=True)
class OutputPerturbation(PrivateMechanism):
    r"""Release ``argmin F`` plus noise; the minimiser comes from any solver.

    Parameters
    ----------
    solver : Solver, str or callable, optional
        An object with ``solve(objective, start, tolerance)``, a callable of these arguments that
        returns a point, or the name of a method of ``scipy.optimize.minimize``. Its answer is
        certified at the point returned and polished where it stopped short. By default Newton's
        method up to about 500 coefficients and L-BFGS beyond.
    gap : float, optional
        Public accuracy ``F(theta) - min F`` to stop at, for solvers that are slow to finish, such
        as subgradient methods: ``2 sqrt(2 gap / alpha)`` is added to the sensitivity, and a kinked
        loss is solved as it is. By default gradients are made so small that they cost no noise
        worth mentioning.
    radius : float, optional
        Public bound on the norm of the coefficients; what is released is projected on it.

    Notes
    -----
    Privacy: Gaussian DP and (epsilon, delta)-DP with exact Gaussian noise, pure epsilon-DP with
    l2-Laplace noise, under replace-one or add-or-remove-one. Public: the number of rows (nominal
    under add-or-remove-one), dimensions, bounds, alpha, the loss, gap and radius. The loss must be
    convex with bounded slope; kinks are fine. What a solver does, errors included, depends on
    private data: an error is caught and the default solver takes over, so try your own solver on
    public data with :class:`dpconvex.solvers.BlackBox` first. Targets that no admissible prediction
    can come near are clamped to a public limit, which keeps the sums exact enough to certify the
    minimiser. A clamped record has another loss of the same slope and curvature, so the proof holds
    for it as well.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import GaussianDP, LinearBounds
    >>> bounds = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.01)
    >>> certificate = OutputPerturbation().certify(bounds, GaussianDP(0.5))
    >>> round(certificate.noise["release"]["std"], 5)
    0.56569
    """

    solver: Method | None = None
    gap: float | None = None
    radius: float | None = None
    name: ClassVar[str] = "output"

    def _chosen(self, bounds: Any, guarantee: Guarantee, parameters: Facts) -> Facts:
        check_mechanism_solver(self.solver, "OutputPerturbation")
        if self.gap is not None:
            parameters[GAP] = self.gap
        if self.radius is not None:
            _check_output_radius(self.radius)
            parameters[RADIUS] = float(self.radius)
        if not math.isfinite(bounds.smoothness) and piecewise_linear_shape(bounds.loss) is None:
            raise TypeError(
                "OutputPerturbation needs a smooth or piecewise-linear loss, but "
                f"{type(bounds.loss).__name__} is neither. Write it as KinkedLoss(knots, slopes), "
                "or declare its smoothness."
            )
        return parameters

    def _run(
        self, objective: Objective, certificate: Certificate, noise: NoiseSource, record: Facts
    ) -> Array:
        minimiser = PerturbedMinimiser(objective, certificate, noise)
        released = minimiser.release(self.solver, GAP in certificate.parameters)
        radius = certificate.parameters.get(RADIUS)
        if radius is not None:  # a projection of what was released: no privacy cost
            released = released * min(1.0, radius / max(float(np.linalg.norm(released)), 1e-300))
        return released

    def minimise(self, objective: Objective, certificate: Certificate) -> Array:
        """Return the exact certified point that noise is added to: private."""
        return exact_minimiser(objective, certificate, self.solver, GAP in certificate.parameters)
