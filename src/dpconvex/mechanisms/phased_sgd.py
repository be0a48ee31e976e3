"""Phased stochastic descent: one contractive pass per phase."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import Places
from dpconvex.engine.summation_order import block_rows
from dpconvex.mechanisms.phased import (
    UNIT,
    Phase,
    Phased,
    checked_radius,
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


@calibrates("phased-sgd")
def calibrate_phased_sgd(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    r"""Derive the noise of every phase from the stability of one pass of gradient steps.

    Sensitivity ``2 L step_i``, plus a bound on rounding. Proof: a step ``theta - e (grad f + alpha theta)`` with f
    convex and b-smooth and ``e <= 2 / (b + alpha)`` never takes two points further apart, since with ``g`` the
    difference of the gradients of the convex (b + alpha)-smooth function ``f + (alpha/2) ||.||^2`` and D that of the
    points ``<g, D> >= ||g||^2 / (b + alpha)``, so
    ``||D - e g||^2 = ||D||^2 - 2 e <g, D> + e^2 ||g||^2 <= ||D||^2 - e (2 / (b + alpha) - e) ||g||^2 <= ||D||^2``.
    Two data sets that differ in the record of step t share all iterates up to t; step t takes them apart by at most
    ``e ||grad f - grad f'|| <= 2 L e``; later steps use the same records and do not increase that. Every iterate, and
    so every average of iterates, moves by at most ``2 L e``.
    """

    def moved(phase: Phase) -> tuple[float, float]:
        return _pass_sensitivity(bounds, parameters[PhasedSGD.name], phase), 0.0

    return phase_noise(PhasedSGD, bounds, guarantee, parameters, moved)


def _pass_sensitivity(bounds: LinearBounds, settings: Parameters, phase: Phase) -> float:
    """Return ``2 L step`` and what rounding adds, or raise where steps do not contract."""
    curvature = bounds.smoothness + bounds.alpha
    if not math.isfinite(curvature):
        loss = type(bounds.loss).__name__
        raise ValueError(
            f"PhasedSGD needs a smooth loss, but {loss} has smoothness=inf. Use convolve({loss}(...), kernel, "
            f"bandwidth), moreau({loss}(...), smoothness) or PhasedERM()."
        )
    if not phase.step * curvature <= 2:
        raise ValueError(
            f"The 'step_size' parameter of PhasedSGD must be at most {settings['decay'] * 2 / curvature:.4g} here: "
            "beyond, a step can take two points further apart. "
            f"Got {settings['step_size']!r} instead. Use a smaller step or a wider bandwidth."
        )
    # Every step rounds by at most a few units of the largest coefficient it can meet, in both runs.
    radius = checked_radius(settings["radius"], "PhasedSGD")
    reach = radius + phase.records * phase.step * bounds.lipschitz
    rounding = 2 * phase.records * UNIT * (2 * bounds.dimension + 30) * reach
    return 2 * bounds.lipschitz * phase.step + rounding


@proves("phased-sgd")
def prove_phased_sgd(certificate: Certificate) -> Proof:
    """Return what the phases give, each with the sensitivity of one contractive pass."""
    bounds, settings = certificate.bounds, certificate.parameters["phased-sgd"]

    def moved(phase: Phase, tolerance: float) -> float:
        if tolerance:
            raise CertificateError("Nothing is solved in a pass: its tolerance must be 0.")
        return _pass_sensitivity(bounds, settings, phase)

    proven = disjoint_phases(certificate, PhasedSGD, moved)
    law = "l2-Laplace" if isinstance(proven, PureDP) else "Gaussian"
    return Proof(proven, f"{law} noise on one contractive pass per disjoint phase, replace-one")


@dataclass(frozen=True)
class PhasedSGD(Phased):
    r"""Pass once over the records of each phase, average the iterates and release them with noise.

    Parameters
    ----------
    step_size : float, optional
        ``step`` in mapped units, by default ``min(4 / sqrt(n), mu / (3 sqrt(d))) / L``, at most what keeps steps
        contractive, ``2 decay / (smoothness + alpha)``.
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
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under replace-one, every
    record in one step of one phase. Not under add-or-remove-one: an exact pass would move by at most ``2 L step_i``
    there, too (``L step_i`` by the step more, and as much because the average is over one iterate more), but
    the rounding errors of its steps add up, and no public number bounds how many there are. Public:
    number of rows, bounds, loss and the parameters above. Convex losses of bounded slope and curvature.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import GaussianDP, LinearBounds
    >>> bounds = LinearBounds(1024, 2, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> certificate = PhasedSGD(step_size=0.1).certify(bounds, GaussianDP(0.5))
    >>> round(certificate.noise["phase 1"]["std"], 6)
    0.141421
    """

    name: ClassVar[str] = "phased-sgd"

    def wanted_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        """Return the step to take where the loss can be smoothed to suit it."""
        if self.step_size is not None:
            return self.step_size
        mu = effective_mu(guarantee, bounds.dimension, "PhasedSGD")
        rate = min(4 / math.sqrt(bounds.n_samples), mu / (3 * math.sqrt(bounds.dimension)))
        return rate / bounds.lipschitz

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        curvature = bounds.smoothness + bounds.alpha
        largest = 2 * self.decay / curvature if math.isfinite(curvature) else math.inf
        return min(self.wanted_step(bounds, guarantee), largest * (1 - 1e-12))

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
        from dpconvex.mechanisms.stochastic_loop import run_one_sgd_pass
        from dpconvex.smoothing.compiled_slopes import compile_slope

        alpha, step = certificate.bounds.alpha, phase.step
        theta, total = start.copy(), np.zeros_like(start)
        compiled = compile_slope(objective.loss)
        few = block_rows(
            start.size
        )  # at a time: mapped rows may have far more numbers than given ones
        for first in range(0, chosen.size, few):
            part = cast(MemoryRows, objective.rows)
            records = part.one_row_each(chosen[first : first + few], generator).mapped()
            if compiled is not None:
                order = np.arange(len(records[1]))
                run_one_sgd_pass(order, *records, compiled, theta, total, step, alpha)
                continue
            for row, target, weight in zip(*records, strict=True):
                # A loss of the user's own: the same steps, not compiled.
                slope = float(objective.loss.gradient(target, row @ theta))
                theta = theta - step * (weight * slope * row + alpha * theta)
                total += theta
        return total / chosen.size
