"""Phased methods: a minimiser or a pass per phase, every record in one phase.

The proof is in :mod:`dpconvex.privacy.bounds.phases`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpconvex.core import certificate as certificates
from dpconvex.core.calibration import calibrated_release_scale
from dpconvex.core.certificate import (
    Certificate,
    CertificateCalibration,
    CertificateProof,
    Parameters,
)
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import GaussianDP, Guarantee, PureDP, guarantee_per_problem
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.noise_source import NoiseSource
from dpconvex.fit.fit_plan import gaussian_budget
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    check_mechanism_records,
    check_mechanism_slope,
    is_pure,
)
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy.bounds import phases as phase_bounds
from dpconvex.privacy.bounds.phases import Phase
from dpconvex.releases.perturbed_minimiser import release_phased_minimisers
from dpconvex.types import Array

# released points are projected on this ball by default: far beyond sensible mapped coefficients
_RADIUS = 100.0
_FEWEST = 8  # records in the last phase by default


def phased_effective_mu(guarantee: Guarantee, dimension: int, owner: str) -> float:
    """Return the mu of Gaussian noise as large as a guarantee's: for pure epsilon
    ``epsilon / sqrt(d + 1)``.
    """
    if is_pure(guarantee):
        return guarantee.epsilon(0.0) / math.sqrt(dimension + 1)
    return gaussian_budget(guarantee, owner)


@dataclass(frozen=True)
class Phased(PrivateMechanism):
    """The public parameters and the run of both phased methods."""

    step_size: float | None = None
    phases: int | None = None
    decay: float = 4.0
    radius: float = _RADIUS
    name: ClassVar[str]
    hides_number: ClassVar[bool] = False  # whether there is a proof for a private number of rows

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        raise NotImplementedError

    def settings(self, bounds: LinearBounds, guarantee: Guarantee) -> Facts:
        """Return the public parameters of a phased run, all chosen."""
        owner = type(self).__name__
        most = int(math.log2(bounds.n_samples)) if bounds.n_samples > 1 else 0
        if most < 1:
            raise ValueError(f"{owner} needs at least 2 rows. Got {bounds.n_samples} instead.")
        if self.phases is None:
            count = max(1, min(most, int(math.log2(max(2.0, bounds.n_samples / _FEWEST)))))
        else:
            count = check_count("phases", owner, self.phases, 1, most)
        positive = "a finite number above 0"
        step = self._default_step(bounds, guarantee) if self.step_size is None else self.step_size
        return {
            "phases": int(count),
            "step_size": check_number(
                "step_size", owner, step, positive, 0, math.inf, low_open=True
            ),
            "decay": check_number(
                "decay", owner, self.decay, "a finite number of at least 1", 1, math.inf
            ),
            "radius": phase_bounds.checked_radius(self.radius, owner),
            "assignment": phase_bounds.assignment_for(bounds.neighbors),
        }

    def _chosen(self, bounds: LinearBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault(self.name, self.settings(bounds, guarantee))
        return parameters

    def _run(
        self,
        objective: EmpiricalObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        return release_phased_minimisers(objective, certificate, noise)


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

    Notes
    -----
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under
    replace-one and add-or-remove-one, every record in one phase at most
    (:mod:`dpconvex.privacy.bounds.phases`). Public: number of rows, nominal under
    add-or-remove-one, bounds, loss and the parameters above. Convex losses of bounded slope; kinked
    ones are solved through their Moreau envelope, as in output perturbation.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import GaussianDP, LinearBounds
    >>> bounds = LinearBounds(1024, 2, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> certificate = PhasedERM(step_size=0.1).certify(bounds, GaussianDP(0.5))
    >>> len(certificate.noise), round(certificate.noise["phase 1"]["std"], 6)
    (7, 0.070711)
    >>> round(PhasedSGD(step_size=0.1).certify(bounds, GaussianDP(0.5)).noise["phase 1"]["std"], 6)
    0.141421
    """

    name: ClassVar[str] = "phased-erm"
    hides_number: ClassVar[bool] = True

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        mu = phased_effective_mu(guarantee, bounds.dimension, "PhasedERM")
        return (
            min(4 / math.sqrt(bounds.n_samples), 2 * mu / (3 * math.sqrt(bounds.dimension)))
            / bounds.lipschitz
        )


@dataclass(frozen=True)
class PhasedSGD(Phased):
    r"""Pass once over the records of each phase, average the iterates and release them with noise.

    Parameters
    ----------
    step_size : float, optional
        ``step`` in mapped units, by default ``min(4 / sqrt(n), mu / (3 sqrt(d))) / L``, at most
        what keeps steps contractive, ``2 decay / (smoothness + alpha)``.
    phases, decay, radius : optional
        As for :class:`PhasedERM`.

    Notes
    -----
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under
    replace-one, every record in one step of one phase. Not under add-or-remove-one: an exact pass
    would move by at most ``2 L step_i`` there, too (``L step_i`` by the step more, and as much
    because the average is over one iterate more), but the rounding errors of its steps add up, and
    no public number bounds how many there are. Public: number of rows, bounds, loss and the
    parameters above. Convex losses of bounded slope and curvature.
    """

    name: ClassVar[str] = "phased-sgd"

    def wanted_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        """Return the step to take where the loss can be smoothed to suit it."""
        if self.step_size is not None:
            return self.step_size
        mu = phased_effective_mu(guarantee, bounds.dimension, "PhasedSGD")
        return (
            min(4 / math.sqrt(bounds.n_samples), mu / (3 * math.sqrt(bounds.dimension)))
            / bounds.lipschitz
        )

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        curvature = bounds.smoothness + bounds.alpha
        largest = 2 * self.decay / curvature if math.isfinite(curvature) else math.inf
        return min(self.wanted_step(bounds, guarantee), largest * (1 - 1e-12))


def _check_phased_bounds(bounds: LinearBounds, kind: type[Phased]) -> None:
    """Raise unless phases have a proof: a loss of bounded slope, and for a pass a public number
    of rows.
    """
    owner = kind.__name__
    if bounds.neighbors != "replace_one" and not kind.hides_number:
        raise ValueError(
            f"{owner} needs neighbors='replace_one': how much its steps round depends on their "
            f"number, which is private otherwise. Got {bounds.neighbors!r} instead. Use "
            "'phased-erm', 'objective', 'output' or 'gradient'."
        )
    check_mechanism_records(bounds, owner)
    check_mechanism_slope(bounds, owner)


def _phased_run_sensitivity(
    kind: type[Phased],
    bounds: LinearBounds,
    settings: Parameters,
    phase: Phase,
    tolerance: float | None = None,
) -> tuple[float, float]:
    """Return how far one record moves a phase's point, and the solver's tolerance: a usual one
    where None is given.
    """
    if kind is PhasedSGD:
        if tolerance:
            raise certificates.CertificateError(
                "Nothing is solved in a pass: its tolerance must be 0."
            )
        return phase_bounds.phase_pass_sensitivity(bounds, settings, phase), 0.0
    local = phase_bounds.anchored_phase_bounds(bounds, phase)
    if tolerance is None:
        tolerance = phase_bounds.anchored_phase_tolerance(local, settings["radius"])
    return local.minimiser_sensitivity(tolerance), tolerance


@certificates.calibrates("phased-erm")
@certificates.calibrates("phased-sgd")
def calibrate_phased(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> CertificateCalibration:
    """Derive the noise of all phases, each of which may spend the whole budget."""
    kind = PhasedSGD if PhasedSGD.name in parameters else PhasedERM
    owner = kind.__name__
    settings = parameters[kind.name]
    _check_phased_bounds(bounds, kind)
    guarantee = guarantee_per_problem(guarantee, parameters.get("problems", 1))
    law = "l2-laplace" if is_pure(guarantee) else "gaussian"
    budget = phased_effective_mu(guarantee, 0, owner)
    phases = phase_bounds.phases_of(bounds.n_samples, settings)
    noise = {}
    for name, phase in zip(phase_bounds.phase_names(phases), phases, strict=True):
        sensitivity, tolerance = _phased_run_sensitivity(kind, bounds, settings, phase)
        std = calibrated_release_scale(budget, sensitivity, bounds.dimension)
        size = bounds.dimension
        noise[name] = certificates.CertifiedNoise(
            law, std, sensitivity, size, "coefficients", tolerance=tolerance
        )
    return CertificateCalibration(noise, max(term.tolerance for term in noise.values()))


@certificates.proves("phased-erm")
@certificates.proves("phased-sgd")
def prove_phased(certificate: Certificate) -> CertificateProof:
    """Return the guarantee of disjoint phases: the largest ``mu``, or epsilon, of any of them, over
    all problems.

    A phase has the sensitivity of a minimiser of its stated tolerance, or of one contractive pass.
    """
    kind = PhasedSGD if certificate.mechanism == PhasedSGD.name else PhasedERM
    bounds = certificate.bounds
    settings = certificate.parameters[kind.name]
    theorem = "noise on one contractive pass per disjoint phase, replace-one"
    if kind is PhasedERM:
        certificate.check_tolerance()
        relation = bounds.relation.replace("_", "-")
        theorem = f"output perturbation of disjoint phases, {relation}, certified gradient norms"
    certificate.check_bounds(LinearBounds, several=True)
    _check_phased_bounds(bounds, kind)
    phase_bounds.checked_radius(settings["radius"], kind.__name__)
    assignment = phase_bounds.assignment_for(bounds.neighbors)
    if settings["assignment"] != assignment:
        raise certificates.CertificateError(f"Records must be assigned to phases by {assignment}.")
    phases = phase_bounds.phases_of(bounds.n_samples, settings)
    names = phase_bounds.phase_names(phases)
    certificate.check_terms(*names)
    pure = certificate.noise[names[0]].distribution == "l2-laplace"
    largest = 0.0
    total = certificates.compose_certified_pure if pure else certificates.compose_certified_gaussian
    for label, phase in zip(names, phases, strict=True):
        stated = certificate.noise[label].tolerance
        if (
            kind is PhasedERM
            and not 2.0**-53 * bounds.lipschitz <= stated <= certificate.solver_tolerance
        ):
            raise certificates.CertificateError("A phase's tolerance cannot be certified.")
        moved, _ = _phased_run_sensitivity(kind, bounds, settings, phase, stated)
        term = certificate.term(label, moved, bounds.dimension, "coefficients", tolerance=stated)
        if (term.distribution == "l2-laplace") is not pure:
            raise certificates.CertificateError("The phases' noise must have one law.")
        given = total([term])
        largest = max(largest, given.epsilon_bound if isinstance(given, PureDP) else given.mu)
    if pure:
        return CertificateProof(PureDP(largest * certificate.problems), f"l2-Laplace {theorem}")
    return CertificateProof(
        GaussianDP(largest * math.sqrt(certificate.problems)), f"Gaussian {theorem}"
    )
