"""Phased empirical risk: an anchored problem per phase, solved to certified accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import Places
from dpconvex.losses.interface import PointwiseLoss
from dpconvex.mechanisms.phased import (
    UNIT,
    Phase,
    Phased,
    disjoint_phases,
    effective_mu,
    phase_noise,
)
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    CertificateError,
    Parameters,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.guarantees import Guarantee, PureDP

Array = NDArray[np.float64]


@calibrates("phased-erm")
def calibrate_phased_erm(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    r"""Derive the noise of every phase from the sensitivity of its certified minimiser.

    Phase i minimises ``(1/n_i) sum f + (alpha/2) ||theta||^2 + ||theta - theta_prev||^2 / (step_i n_i)``, which is
    ``s``-strongly convex with ``s = alpha + 2 / (step_i n_i)``: the sensitivity is ``2 L / (s n_i) + 2 t / s``, and
    ``L step_i + t step_i n_i`` without a penalty, t the tolerance on the norm of the gradient. Half of the first term
    where a record is added or removed: the phase's sum is divided by the nominal ``n_i``.
    """
    radius = parameters[PhasedERM.name]["radius"]

    def moved(phase: Phase) -> tuple[float, float]:
        local = _local_bounds(bounds, phase)
        tolerance = _tolerance(local, radius)
        return local.minimiser_sensitivity(tolerance), tolerance

    return phase_noise(PhasedERM, bounds, guarantee, parameters, moved)


@proves("phased-erm")
def prove_phased_erm(certificate: Certificate) -> Proof:
    """Return what the phases give, each with the sensitivity of a minimiser of its stated tolerance."""
    bounds = certificate.bounds
    certificate.check_tolerance()

    def moved(phase: Phase, tolerance: float) -> float:
        if not 2.0**-53 * bounds.lipschitz <= tolerance <= certificate.solver_tolerance:
            raise CertificateError("A phase's tolerance cannot be certified.")
        return _local_bounds(bounds, phase).minimiser_sensitivity(tolerance)

    proven = disjoint_phases(certificate, PhasedERM, moved)
    law = "l2-Laplace" if isinstance(proven, PureDP) else "Gaussian"
    relation = bounds.relation.replace("_", "-")
    theorem = f"{law} output perturbation of disjoint phases, {relation}, certified gradient norms"
    return Proof(proven, theorem)


def _local_bounds(bounds: LinearBounds, phase: Phase) -> LinearBounds:
    anchor = 2 / (phase.step * phase.records)
    return replace(bounds, n_samples=phase.records, alpha=bounds.alpha + anchor)


def _tolerance(local: LinearBounds, radius: float) -> float:
    """Return a tolerance that float64 can certify around a released point of norm up to ``radius``.

    The usual tolerance, or what a few roundings of such a point change in the gradient.
    """
    if math.isfinite(local.smoothness):
        usual, curvature = local.solver_tolerance(), local.smoothness
    else:
        smooth = local.envelope_smoothness()
        usual, curvature = local.envelope_tolerance(smooth), smooth * local.curvature_factor
    return max(usual, 256 * 2 * UNIT * (local.alpha + curvature) * radius)


@dataclass(frozen=True)
class PhasedERM(Phased):
    r"""Solve an anchored problem per phase to certified accuracy and release it with noise.

    Parameters
    ----------
    step_size : float, optional
        ``step`` in mapped units, ``min(4 / sqrt(n), 2 mu / (3 sqrt(d))) / L`` by default.
    phases : int, optional
        Number of phases; by default until a phase has 8 records left.
    decay : float, default=4
        ``step_i = step / decay^i``.
    radius : float, default=100
        Released points are projected on this ball.
    noise : {"exact", "published"}
        The noise that the sensitivity needs, or ``4 L step_i sqrt(ln(1/delta)) / epsilon`` as printed, refused where
        it is too small.

    Notes
    -----
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under replace-one and
    add-or-remove-one, every record in one phase at most (:mod:`dpconvex.mechanisms.phased`). Public: number of rows,
    nominal under add-or-remove-one, bounds, loss and the parameters above. Convex losses of bounded slope; kinked ones
    are solved through their Moreau envelope, as in output perturbation.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import GaussianDP, LinearBounds
    >>> bounds = LinearBounds(1024, 2, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> certificate = PhasedERM(step_size=0.1).certify(bounds, GaussianDP(0.5))
    >>> len(certificate.noise), round(certificate.noise["phase 1"]["std"], 6)
    (7, 0.070711)
    """

    name: ClassVar[str] = "phased-erm"
    hides_number: ClassVar[bool] = True

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        mu = effective_mu(guarantee, bounds.dimension, "PhasedERM")
        rate = min(4 / math.sqrt(bounds.n_samples), 2 * mu / (3 * math.sqrt(bounds.dimension)))
        return rate / bounds.lipschitz

    def _solve(
        self,
        objective: EmpiricalObjective,
        certificate: Certificate,
        phase: Phase,
        tolerance: float,
        chosen: Places,
        start: Array,
        generator: np.random.Generator,
    ) -> Array:
        from dpconvex.objectives.clamped_targets import with_clamped_targets
        from dpconvex.smoothing import moreau
        from dpconvex.solvers import default_solver

        local = _local_bounds(certificate.bounds, phase)
        loss = cast(PointwiseLoss, objective.loss)
        if not math.isfinite(loss.smoothness):
            loss = moreau(loss, local.envelope_smoothness())
        anchor = 2 / (phase.step * phase.records)
        rows = cast(MemoryRows, objective.rows)  # those of other engines are refused before
        held = rows.take_records(chosen) if rows.people_vote else rows.chosen(chosen)
        problem = EmpiricalObjective(
            held, loss, local.alpha, divisor=phase.records, linear=-anchor * start
        )
        tilt = anchor * certificate.parameters[self.name]["radius"]
        problem = with_clamped_targets(problem, replace(local, loss=loss), tilt)
        return default_solver(start.size).solve(problem, start, tolerance).point
