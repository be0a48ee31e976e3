"""What phased methods share: a minimiser or a pass per phase, every record in one phase.

The proof is in :mod:`dpconvex.privacy.bounds.phases`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpconvex.core import certificate as certificates
from dpconvex.core.calibration import calibrated_release_scale
from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import GaussianDP, Guarantee, PureDP, guarantee_per_problem
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.fit.fit_plan import gaussian_budget
from dpconvex.losses import Pinball
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    check_mechanism_records,
    check_mechanism_slope,
    is_pure,
)
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy.bounds import phases as phase_bounds
from dpconvex.privacy.bounds.phases import Phase, PhaseSettings
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
    """The public parameters, the noise, the proof and the run of both phased methods.

    A method says what a phase releases: how far one record moves it (``_phase_sensitivity``), and
    by which theorem (``_theorem``).
    """

    step_size: float | None = None
    phases: int | None = None
    decay: float = 4.0
    radius: float = _RADIUS
    carries: ClassVar[Carries] = Carries(
        weights=True, people=True, ignored_rows=True, problems=True
    )
    fits: ClassVar[frozenset[str]] = frozenset({"quantiles", "classes"})
    noise_enters: ClassVar[str] = "noise is added to the coefficients after every phase"
    hides_number: ClassVar[bool] = False  # whether there is a proof for a private number of rows
    one_pass: ClassVar[bool] = False  # whether a phase reads its records once, and solves nothing

    @classmethod
    def _phase_sensitivity(
        cls,
        bounds: LinearBounds,
        settings: PhaseSettings,
        phase: Phase,
        tolerance: float | None = None,
    ) -> tuple[float, float]:
        """Return how far one record moves a phase's point, and the solver's tolerance: a usual one
        where None is given.
        """
        raise NotImplementedError

    @classmethod
    def _theorem(cls, certificate: Certificate) -> str:
        """Return the theorem of a certificate, without the law of its noise."""
        raise NotImplementedError

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        raise NotImplementedError

    def _smoothing(self, request: FitRequest, bounds: LinearBounds) -> float | None:
        """Return the bandwidth over which a quantile's loss is smoothed, or None."""
        return request.bandwidth

    @classmethod
    def calibrate(
        cls, bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        """Derive the noise of all phases, each of which may spend the whole budget."""
        owner = cls.__name__
        settings = PhaseSettings.read(parameters[cls.name])
        cls._check_bounds(bounds)
        guarantee = guarantee_per_problem(guarantee, parameters.get("problems", 1))
        law = "l2-laplace" if is_pure(guarantee) else "gaussian"
        budget = phased_effective_mu(guarantee, 0, owner)
        phases = phase_bounds.phases_of(bounds.n_samples, settings)
        noise = {}
        for name, phase in zip(phase_bounds.phase_names(phases), phases, strict=True):
            sensitivity, tolerance = cls._phase_sensitivity(bounds, settings, phase)
            std = calibrated_release_scale(budget, sensitivity, bounds.dimension)
            size = bounds.dimension
            noise[name] = certificates.CertifiedNoise(
                law, std, sensitivity, size, "coefficients", tolerance=tolerance
            )
        return CertificateCalibration(noise, max(term.tolerance for term in noise.values()))

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Return the guarantee of disjoint phases: the largest ``mu``, or epsilon, of any of them,
        over all problems.

        A phase has the sensitivity of a minimiser of its stated tolerance, or of one contractive
        pass.
        """
        bounds = certificate.bounds
        settings = PhaseSettings.read(certificate.parameters[cls.name])
        theorem = cls._theorem(certificate)
        cls._check_bounds(bounds)
        phase_bounds.checked_radius(settings.radius, cls.__name__)
        assignment = phase_bounds.assignment_for(bounds.neighbors)
        if settings.assignment != assignment:
            raise certificates.CertificateError(
                f"Records must be assigned to phases by {assignment}."
            )
        phases = phase_bounds.phases_of(bounds.n_samples, settings)
        names = phase_bounds.phase_names(phases)
        certificate.check_terms(*names)
        pure = certificate.noise[names[0]].distribution == "l2-laplace"
        largest = 0.0
        compose = certificates.compose_certified_gaussian
        if pure:
            compose = certificates.compose_certified_pure
        for label, phase in zip(names, phases, strict=True):
            stated = certificate.noise[label].tolerance
            least = 2.0**-53 * bounds.lipschitz
            if not cls.one_pass and not least <= stated <= certificate.solver_tolerance:
                raise certificates.CertificateError("A phase's tolerance cannot be certified.")
            moved, _ = cls._phase_sensitivity(bounds, settings, phase, stated)
            term = certificate.term(
                label, moved, bounds.dimension, "coefficients", tolerance=stated
            )
            if (term.distribution == "l2-laplace") is not pure:
                raise certificates.CertificateError("The phases' noise must have one law.")
            given = compose([term])
            largest = max(largest, given.epsilon_bound if isinstance(given, PureDP) else given.mu)
        if pure:
            return CertificateProof(PureDP(largest * certificate.problems), f"l2-Laplace {theorem}")
        return CertificateProof(
            GaussianDP(largest * math.sqrt(certificate.problems)), f"Gaussian {theorem}"
        )

    @classmethod
    def _check_bounds(cls, bounds: LinearBounds) -> None:
        """Raise unless phases have a proof: a loss of bounded slope, and for a pass a public number
        of rows.
        """
        owner = cls.__name__
        if bounds.neighbors != "replace_one" and not cls.hides_number:
            raise ValueError(
                f"{owner} needs neighbors='replace_one': how much its steps round depends on their "
                f"number, which is private otherwise. Got {bounds.neighbors!r} instead. Use "
                "'phased-erm', 'objective', 'output' or 'gradient'."
            )
        check_mechanism_records(bounds, owner)
        check_mechanism_slope(bounds, owner)

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide phases and steps, and of quantiles the smoothing that steps need."""
        bounds = replace(request.bounds, alpha=request.alpha or 0.0)
        guarantee = request.guarantee
        bandwidth = None
        if isinstance(bounds.loss, Pinball):
            bandwidth = self._smoothing(request, bounds)
            bounds = replace(bounds, loss=request.smoothed(bounds.loss, bandwidth))
        else:
            bounds = replace(bounds, loss=request.smooth_loss or bounds.loss)
            guarantee = guarantee_per_problem(guarantee, request.problems)
        settings = self.settings(bounds, guarantee)
        return self.decide(
            request, bounds, {self.name: settings.stated()}, settings=settings, bandwidth=bandwidth
        )

    def settings(self, bounds: LinearBounds, guarantee: Guarantee) -> PhaseSettings:
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
        return PhaseSettings(
            phases=int(count),
            step_size=check_number("step_size", owner, step, positive, 0, math.inf, low_open=True),
            decay=check_number(
                "decay", owner, self.decay, "a finite number of at least 1", 1, math.inf
            ),
            radius=phase_bounds.checked_radius(self.radius, owner),
            assignment=phase_bounds.assignment_for(bounds.neighbors),
        )

    def _chosen(self, bounds: LinearBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        if self.name not in parameters:
            parameters[self.name] = self.settings(bounds, guarantee).stated()
        return parameters

    def stated_settings(self, certificate: Certificate) -> PhaseSettings:
        """Return the settings that a certificate states, as the object that a run takes."""
        return PhaseSettings.read(certificate.parameters[self.name])

    def _run(
        self,
        objective: EmpiricalObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
        settings: PhaseSettings,
    ) -> Array:
        return release_phased_minimisers(objective, certificate, noise, settings, self.one_pass)
