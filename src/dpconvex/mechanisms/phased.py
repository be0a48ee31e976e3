"""Phased methods, whose records are in one phase each: what they share. Why: :mod:`dpconvex.privacy.bounds.phases`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_number
from dpconvex.core.perturbed_minimiser import release_phases
from dpconvex.mechanisms.gradient_settings import total_mu
from dpconvex.mechanisms.mechanism import PrivateMechanism, check_one_each
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.bounds.phases import (
    Phase,
    assignment_for,
    checked_radius,
    phase_names,
    phases_of,
)
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    CertificateError,
    Parameters,
)
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
    return isinstance(guarantee, PureDP) or (
        isinstance(guarantee, ApproxDP) and guarantee.delta_bound == 0
    )


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
        self,
        objective: EmpiricalObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
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
        noise[name] = NoiseTerm(
            law, std, sensitivity, bounds.dimension, "coefficients", tolerance=tolerance
        )
    return Calibration(noise, max(tolerance for _, _, tolerance in parts))


def disjoint_phases(
    certificate: Certificate, kind: type[Phased], sensitivity: Callable[[Phase, float], float]
) -> GaussianDP | PureDP:
    """Return what disjoint phases give: the largest ``mu``, or epsilon, of any of them, over all problems."""
    bounds, settings, owner = (
        certificate.bounds,
        certificate.parameters[kind.name],
        kind.__name__,
    )
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


def _published(
    bounds: LinearBounds, guarantee: Guarantee, phase: Phase, needed: float, owner: str
) -> float:
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
