"""Phased methods: a minimiser or a pass per phase, every record in one. Why: :mod:`dpconvex.privacy.bounds.phases`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_number
from dpconvex.core.perturbed_minimiser import release_phases
from dpconvex.fit.config import total_mu
from dpconvex.mechanisms.mechanism import PrivateMechanism, check_one_each
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.bounds.phases import (
    Phase,
    anchored_bounds,
    anchored_tolerance,
    assignment_for,
    checked_radius,
    pass_sensitivity,
    phase_names,
    phases_of,
)
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, CertificateError, Parameters, Proof, calibrates, proves
from dpconvex.privacy.certificates.terms import NoiseTerm, gaussian_total, pure_total
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, per_problem
from dpconvex.privacy.noise import NoiseSource

_RADIUS = 100.0  # released points are projected on this ball by default: far beyond sensible mapped coefficients
_FEWEST = 8  # records in the last phase by default


def effective_mu(guarantee: Guarantee, dimension: int, owner: str) -> float:
    """Return the mu of Gaussian noise as large as a guarantee's: for pure epsilon ``epsilon / sqrt(d + 1)``."""
    if is_pure(guarantee):
        return guarantee.epsilon(0.0) / math.sqrt(dimension + 1)
    return total_mu(guarantee, owner)


def is_pure(guarantee: Guarantee) -> bool:
    """Return whether a guarantee has no delta and is not Gaussian: phases then get l2-Laplace noise."""
    return isinstance(guarantee, PureDP) or (isinstance(guarantee, ApproxDP) and guarantee.delta_bound == 0)


@dataclass(frozen=True)
class Phased(PrivateMechanism):
    """What the two phased methods share: their public parameters, and how a run goes through the phases."""

    step_size: float | None = None
    phases: int | None = None
    decay: float = 4.0
    radius: float = _RADIUS
    noise: str = "exact"
    name: ClassVar[str]
    hides_number: ClassVar[bool] = False  # whether there is a proof for a private number of rows

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        raise AttributeError

    def settings(self, bounds: LinearBounds, guarantee: Guarantee) -> Facts:
        """Return the public parameters of a run, all chosen."""
        owner = type(self).__name__
        most = int(math.log2(bounds.n_samples)) if bounds.n_samples > 1 else 0
        if most < 1:
            raise ValueError(f"{owner} needs at least 2 rows. Got {bounds.n_samples} instead.")
        if self.phases is None:
            count = max(1, min(most, int(math.log2(max(2.0, bounds.n_samples / _FEWEST)))))
        else:
            count = self.phases
            whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
            if not whole or not 1 <= count <= most:
                raise ValueError(
                    f"The 'phases' parameter of {owner} must be None or an integer from 1 to log2 of the number of "
                    f"rows, {most} here. Got {count!r} instead."
                )
        positive = "a finite number above 0"
        step = self._default_step(bounds, guarantee) if self.step_size is None else self.step_size
        if self.noise not in ("exact", "published"):
            raise ValueError(
                f"The 'noise' parameter of {owner} must be 'exact' or 'published'. Got {self.noise!r} instead."
            )
        return {
            "phases": int(count),
            "step_size": check_number("step_size", owner, step, positive, 0, math.inf, low_open=True),
            "decay": check_number("decay", owner, self.decay, "a finite number of at least 1", 1, math.inf),
            "radius": checked_radius(self.radius, owner),
            "noise": self.noise,
            "assignment": assignment_for(bounds.neighbors),
        }  # fmt: skip

    def _chosen(self, bounds: LinearBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault(self.name, self.settings(bounds, guarantee))
        return parameters

    def _run(
        self, objective: EmpiricalObjective, certificate: Certificate, noise: NoiseSource, record: Facts
    ) -> NDArray[np.float64]:
        """Return the released point of the last phase."""
        return release_phases(objective, certificate, noise)


def check_bounds(bounds: LinearBounds, kind: type[Phased]) -> None:
    """Raise unless phases have a proof: a loss of bounded slope, and for a pass a public number of rows."""
    owner = kind.__name__
    if bounds.neighbors != "replace_one" and not kind.hides_number:
        raise ValueError(
            f"{owner} needs neighbors='replace_one': how much its steps round depends on their number, which is "
            f"private otherwise. Got {bounds.neighbors!r} instead. Use 'phased-erm', 'objective', 'output' or "
            "'gradient'."
        )
    check_one_each(bounds, owner)
    if not math.isfinite(bounds.lipschitz):
        raise ValueError(
            f"{owner} needs a loss of bounded slope, but {type(bounds.loss).__name__} has lipschitz=inf. "
            "Use Huber(width) in its place."
        )


def phase_noise(
    kind: type[Phased],
    bounds: LinearBounds,
    guarantee: Guarantee,
    parameters: Parameters,
    moved: Callable[[Phase], tuple[float, float]],
) -> Calibration:
    """Return the noise of all phases; ``moved`` gives the sensitivity of one and the tolerance that it rests on."""
    owner, settings = kind.__name__, parameters[kind.name]
    check_bounds(bounds, kind)
    guarantee = per_problem(guarantee, parameters.get("problems", 1))
    phases = phases_of(bounds.n_samples, settings)
    parts = [(phase, *moved(phase)) for phase in phases]
    pure = is_pure(guarantee)
    law, budget = "l2-laplace" if pure else "gaussian", effective_mu(guarantee, 0, owner)
    noise = {}
    for name, (phase, sensitivity, tolerance) in zip(phase_names(phases), parts, strict=True):
        std = released_scale(budget, sensitivity, bounds.dimension)
        if settings["noise"] == "published":
            std = _published(bounds, guarantee, phase, std, owner)
        noise[name] = NoiseTerm(law, std, sensitivity, bounds.dimension, "coefficients", tolerance=tolerance)
    return Calibration(noise, max(tolerance for _, _, tolerance in parts))


def disjoint_phases(
    certificate: Certificate, kind: type[Phased], sensitivity: Callable[[Phase, float], float]
) -> GaussianDP | PureDP:
    """Return what disjoint phases give: the largest ``mu``, or epsilon, of any of them, over all problems."""
    bounds, settings, owner = (certificate.bounds, certificate.parameters[kind.name], kind.__name__)
    certificate.check_bounds(LinearBounds, several=True)
    check_bounds(bounds, kind)
    checked_radius(settings["radius"], owner)
    assignment = assignment_for(bounds.neighbors)
    if settings["assignment"] != assignment:
        raise CertificateError(f"Records must be assigned to phases by {assignment}.")
    phases = phases_of(bounds.n_samples, settings)
    names = phase_names(phases)
    certificate.check_terms(*names)
    pure, largest = certificate.noise[names[0]].distribution == "l2-laplace", 0.0
    total = pure_total if pure else gaussian_total
    for label, phase in zip(names, phases, strict=True):
        tolerance = certificate.noise[label].tolerance
        moved = sensitivity(phase, tolerance)
        term = certificate.term(label, moved, bounds.dimension, "coefficients", tolerance=tolerance)
        if (term.distribution == "l2-laplace") is not pure:
            raise CertificateError("The phases' noise must have one law.")
        given = total([term])
        largest = max(largest, given.epsilon_bound if isinstance(given, PureDP) else given.mu)
    if pure:
        return PureDP(largest * certificate.problems)
    return GaussianDP(largest * math.sqrt(certificate.problems))


def _published(bounds: LinearBounds, guarantee: Guarantee, phase: Phase, needed: float, owner: str) -> float:
    """Return ``4 L step_i sqrt(ln(1/delta)) / epsilon``, as printed, if it suffices."""
    if not isinstance(guarantee, ApproxDP):
        raise ValueError(
            f"{owner} has published noise for ApproxDP only. Got {guarantee!r} instead. Use noise='exact'."
        )
    epsilon, delta = guarantee.epsilon_bound, guarantee.delta_bound
    std = 4 * bounds.lipschitz * phase.step * math.sqrt(math.log(1 / delta)) / epsilon
    if std < needed:
        raise ValueError(
            f"The published noise of {owner}, {std:.4g}, is less than the {needed:.4g} that epsilon={epsilon:g} and "
            f"delta={delta:g} need. Use noise='exact'."
        )
    return std


@calibrates("phased-erm")
def calibrate_phased_erm(bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    """Derive the noise of every phase from the sensitivity of its certified minimiser."""
    radius = parameters[PhasedERM.name]["radius"]

    def moved(phase: Phase) -> tuple[float, float]:
        local = anchored_bounds(bounds, phase)
        tolerance = anchored_tolerance(local, radius)
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
        return anchored_bounds(bounds, phase).minimiser_sensitivity(tolerance)

    proven = disjoint_phases(certificate, PhasedERM, moved)
    law = "l2-Laplace" if isinstance(proven, PureDP) else "Gaussian"
    relation = bounds.relation.replace("_", "-")
    theorem = f"{law} output perturbation of disjoint phases, {relation}, certified gradient norms"
    return Proof(proven, theorem)


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
    add-or-remove-one, every record in one phase at most (:mod:`dpconvex.privacy.bounds.phases`). Public: number of
    rows, nominal under add-or-remove-one, bounds, loss and the parameters above. Convex losses of bounded slope; kinked
    ones are solved through their Moreau envelope, as in output perturbation.

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


@calibrates("phased-sgd")
def calibrate_phased_sgd(bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    """Derive the noise of every phase from the stability of one pass of gradient steps."""

    def moved(phase: Phase) -> tuple[float, float]:
        return pass_sensitivity(bounds, parameters[PhasedSGD.name], phase), 0.0

    return phase_noise(PhasedSGD, bounds, guarantee, parameters, moved)


@proves("phased-sgd")
def prove_phased_sgd(certificate: Certificate) -> Proof:
    """Return what the phases give, each with the sensitivity of one contractive pass."""
    bounds, settings = certificate.bounds, certificate.parameters["phased-sgd"]

    def moved(phase: Phase, tolerance: float) -> float:
        if tolerance:
            raise CertificateError("Nothing is solved in a pass: its tolerance must be 0.")
        return pass_sensitivity(bounds, settings, phase)

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
