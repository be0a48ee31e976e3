r"""Phased methods: every record is used in one phase, and every phase is released with noise of its own.

Phase i gets ``n_i = n / 2^i`` records, drawn by a permutation that is independent of the data, starts from the released
point of the phase before and is anchored to it ever more firmly (``step_i = step / decay^i``). Two data sets that
differ in one record differ in one phase: what earlier phases release is the same, later phases only process what
that phase released. So every phase may spend the whole budget, and nothing is composed. This holds for any assignment
fixed independently of the data, hence for a random one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_number
from dpconvex.mechanisms.gradient import total_mu
from dpconvex.mechanisms.mechanism import check_objective
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    CertificateError,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.certificates.terms import NoiseTerm, gaussian_total
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, per_problem
from dpconvex.privacy.noise import NoiseSource

Array = NDArray[np.float64]

_UNIT = 2.0**-53
_RADIUS = 100.0  # released points are projected on this ball by default: far beyond sensible mapped coefficients
_FEWEST = 8  # records in the last phase by default
_ASSIGNMENT = "random permutation"


@dataclass(frozen=True)
class Phase:
    """One phase, from public facts.

    Attributes
    ----------
    records : int
        ``n_i``.
    step : float
        ``step / decay^i``.
    """

    records: int
    step: float


def phase_names(phases: list[Phase]) -> list[str]:
    """Return what the phases' noise terms are called."""
    return [f"phase {i}" for i in range(1, len(phases) + 1)]


def _checked_radius(radius: Any, owner: str) -> float:
    return check_number(
        "radius", owner, radius, "a finite number above 0", 0, math.inf, low_open=True
    )


def phases_of(n_samples: int, settings: Mapping[str, Any]) -> list[Phase]:
    """Return the phases that the settings stand for."""
    count, step, decay = settings["phases"], settings["step_size"], settings["decay"]
    if type(count) is not int or not 1 <= count < n_samples.bit_length():
        raise ValueError(f"The number of phases must be from 1 to log2 of the rows. Got {count!r}.")
    check_number("step_size", "phases_of", step, "a number above 0", 0, math.inf, low_open=True)
    check_number("decay", "phases_of", decay, "a finite number of at least 1", 1, math.inf)
    return [Phase(n_samples >> i, step / decay**i) for i in range(1, count + 1)]


@dataclass(frozen=True)
class _Phased:
    """What the two phased methods share: their public parameters, and how a run goes through the phases."""

    step_size: float | None = None
    phases: int | None = None
    decay: float = 4.0
    radius: float = _RADIUS
    noise: str = "exact"
    name: ClassVar[str]

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        raise AttributeError

    def settings(self, bounds: LinearBounds, guarantee: Guarantee) -> dict[str, Any]:
        """Return the public parameters of a run, all chosen."""
        owner = type(self).__name__
        total_mu(guarantee, owner)  # refuses a guarantee that Gaussian noise cannot give
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
            "radius": _checked_radius(self.radius, owner),
            "noise": self.noise,
            "assignment": _ASSIGNMENT,
        }  # fmt: skip

    def certify(
        self,
        bounds: LinearBounds,
        guarantee: Guarantee,
        parameters: Mapping[str, Any] | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate from public facts."""
        chosen = dict(parameters or {})
        chosen.setdefault(self.name, self.settings(bounds, guarantee))
        return Certificate.issue(self.name, bounds, guarantee, chosen, seeded)

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Any = None,
        record: dict[str, Any] | None = None,
    ) -> Array:
        """Return the released point of the last phase."""
        check_objective(objective, certificate)
        noise = NoiseSource.of(rng)
        radius = certificate.parameters[self.name]["radius"]
        order = noise.generator.permutation(objective.rows.n_rows)
        point, start = np.zeros(certificate.bounds.dimension), 0
        phases = phases_of(certificate.bounds.n_samples, certificate.parameters[self.name])
        for phase, name in zip(phases, phase_names(phases), strict=True):
            term = certificate.noise[name]
            chosen = order[start : start + phase.records]
            start += phase.records
            exact = self._solve(objective, certificate, phase, term.tolerance, chosen, point)
            point = noise.add(exact, term)
            # A projection of what was released: no privacy cost.
            point = point * min(1.0, radius / max(float(np.linalg.norm(point)), 1e-300))
        return point

    def _solve(
        self,
        objective: Any,
        certificate: Certificate,
        phase: Phase,
        tolerance: float,
        chosen: Any,
        start: Array,
    ) -> Array:
        raise AttributeError


def _check(bounds: LinearBounds, owner: str) -> None:
    if bounds.neighbors != "replace_one":
        raise ValueError(
            f"{owner} needs neighbors='replace_one': the sizes of its phases follow from the number of rows, which is "
            f"private otherwise. Got {bounds.neighbors!r} instead. Use 'objective', 'output' or 'gradient'."
        )
    if not math.isfinite(bounds.lipschitz):
        raise ValueError(
            f"{owner} needs a loss of bounded slope, but {type(bounds.loss).__name__} has lipschitz=inf. "
            "Use Huber(width) in its place."
        )


def _terms(
    bounds: LinearBounds,
    guarantee: Guarantee,
    settings: Mapping[str, Any],
    owner: str,
    parts: list[tuple[Phase, float, float]],
) -> dict[str, NoiseTerm]:
    """Return the noise of phases with the given sensitivities and tolerances."""
    mu = total_mu(guarantee, owner)
    noise = {}
    names = phase_names([part[0] for part in parts])
    for name, (phase, sensitivity, tolerance) in zip(names, parts, strict=True):
        std = released_scale(mu, sensitivity, bounds.dimension)
        if settings["noise"] == "published":
            std = _published(bounds, guarantee, phase, std, owner)
        noise[name] = NoiseTerm(
            "gaussian", std, sensitivity, bounds.dimension, "coefficients", tolerance=tolerance
        )
    return noise


def _disjoint(
    certificate: Certificate, name: str, owner: str, sensitivity: Callable[[Phase, float], float]
) -> GaussianDP:
    """Return what disjoint phases give: the largest ``mu`` of any of them, over all problems."""
    bounds, settings = certificate.bounds, certificate.parameters[name]
    certificate.check_bounds(LinearBounds, several=True)
    _check(bounds, owner)
    _checked_radius(settings["radius"], owner)
    if settings["assignment"] != _ASSIGNMENT:
        raise CertificateError(f"Records must be assigned to phases by a {_ASSIGNMENT}.")
    phases = phases_of(bounds.n_samples, settings)
    names = phase_names(phases)
    certificate.check_terms(*names)
    largest = 0.0
    for label, phase in zip(names, phases, strict=True):
        tolerance = certificate.noise[label].tolerance
        moved = sensitivity(phase, tolerance)
        term = certificate.term(label, moved, bounds.dimension, "coefficients", tolerance=tolerance)
        largest = max(largest, gaussian_total([term]).mu)
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


@calibrates("phased-erm")
def calibrate_phased_erm(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Mapping[str, Any]
) -> Calibration:
    r"""Derive the noise of every phase from the sensitivity of its certified minimiser.

    Phase i minimises ``(1/n_i) sum f + (alpha/2) ||theta||^2 + ||theta - theta_prev||^2 / (step_i n_i)``, which is
    ``s``-strongly convex with ``s = alpha + 2 / (step_i n_i)``: the sensitivity is ``2 L / (s n_i) + 2 t / s``, and
    ``L step_i + t step_i n_i`` without a penalty, t the tolerance on the norm of the gradient.
    """
    _check(bounds, "PhasedERM")
    guarantee = per_problem(guarantee, parameters.get("problems", 1))
    settings = parameters["phased-erm"]
    parts = []
    for phase in phases_of(bounds.n_samples, settings):
        local = _local_bounds(bounds, phase)
        tolerance = _tolerance(local, settings["radius"])
        parts.append((phase, local.minimiser_sensitivity(tolerance), tolerance))
    noise = _terms(bounds, guarantee, settings, "PhasedERM", parts)
    return Calibration(noise, max(part[2] for part in parts))


@proves("phased-erm")
def prove_phased_erm(certificate: Certificate) -> Proof:
    """Return what the phases give, each with the sensitivity of a minimiser of its stated tolerance."""
    bounds = certificate.bounds
    certificate.check_tolerance()

    def moved(phase: Phase, tolerance: float) -> float:
        if not 2.0**-53 * bounds.lipschitz <= tolerance <= certificate.solver_tolerance:
            raise CertificateError("A phase's tolerance cannot be certified.")
        return _local_bounds(bounds, phase).minimiser_sensitivity(tolerance)

    theorem = (
        "Gaussian output perturbation of disjoint phases, replace-one, certified gradient norms"
    )
    return Proof(_disjoint(certificate, "phased-erm", "PhasedERM", moved), theorem)


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
    return max(usual, 256 * 2 * _UNIT * (local.alpha + curvature) * radius)


@dataclass(frozen=True)
class PhasedERM(_Phased):
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
    Privacy: Gaussian DP and (epsilon, delta)-DP under replace-one, every record in one phase. Public: number of rows,
    bounds, loss and the parameters above. Convex losses of bounded slope; kinked ones are solved through their Moreau
    envelope, as in output perturbation.

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

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        mu = total_mu(guarantee, "PhasedERM")
        rate = min(4 / math.sqrt(bounds.n_samples), 2 * mu / (3 * math.sqrt(bounds.dimension)))
        return rate / bounds.lipschitz

    def _solve(
        self,
        objective: Any,
        certificate: Certificate,
        phase: Phase,
        tolerance: float,
        chosen: Any,
        start: Array,
    ) -> Array:
        from dpconvex.objectives import EmpiricalObjective
        from dpconvex.objectives.clamped import with_clamped_targets
        from dpconvex.smoothing import moreau
        from dpconvex.solvers import default_solver

        local = _local_bounds(certificate.bounds, phase)
        loss = objective.loss
        if not math.isfinite(loss.smoothness):
            loss = moreau(loss, local.envelope_smoothness())
        anchor = 2 / (phase.step * phase.records)
        problem = EmpiricalObjective(
            objective.rows.take(chosen), loss, local.alpha, linear=-anchor * start
        )
        tilt = anchor * certificate.parameters[self.name]["radius"]
        problem = with_clamped_targets(problem, replace(local, loss=loss), tilt)
        return default_solver(start.size).solve(problem, start, tolerance).point


@calibrates("phased-sgd")
def calibrate_phased_sgd(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Mapping[str, Any]
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
    _check(bounds, "PhasedSGD")
    guarantee = per_problem(guarantee, parameters.get("problems", 1))
    settings = parameters["phased-sgd"]
    curvature = bounds.smoothness + bounds.alpha
    if not math.isfinite(curvature):
        loss = type(bounds.loss).__name__
        raise ValueError(
            f"PhasedSGD needs a smooth loss, but {loss} has smoothness=inf. Use convolve({loss}(...), kernel, "
            f"bandwidth), moreau({loss}(...), smoothness) or PhasedERM()."
        )
    parts = [
        (phase, _pass_sensitivity(bounds, settings, phase), 0.0)
        for phase in phases_of(bounds.n_samples, settings)
    ]
    return Calibration(_terms(bounds, guarantee, settings, "PhasedSGD", parts))


def _pass_sensitivity(bounds: LinearBounds, settings: Mapping[str, Any], phase: Phase) -> float:
    """Return ``2 L step`` and what rounding adds, or raise where steps do not contract."""
    curvature = bounds.smoothness + bounds.alpha
    if not phase.step * curvature <= 2:
        raise ValueError(
            f"The 'step_size' parameter of PhasedSGD must be at most {settings['decay'] * 2 / curvature:.4g} here: "
            "beyond, a step can take two points further apart. "
            f"Got {settings['step_size']!r} instead. Use a smaller step or a wider bandwidth."
        )
    # Every step rounds by at most a few units of the largest coefficient it can meet, in both runs.
    radius = _checked_radius(settings["radius"], "PhasedSGD")
    reach = radius + phase.records * phase.step * bounds.lipschitz
    rounding = 2 * phase.records * _UNIT * (2 * bounds.dimension + 30) * reach
    return 2 * bounds.lipschitz * phase.step + rounding


@proves("phased-sgd")
def prove_phased_sgd(certificate: Certificate) -> Proof:
    """Return what the phases give, each with the sensitivity of one contractive pass."""
    bounds, settings = certificate.bounds, certificate.parameters["phased-sgd"]

    def moved(phase: Phase, tolerance: float) -> float:
        if tolerance:
            raise CertificateError("Nothing is solved in a pass: its tolerance must be 0.")
        return _pass_sensitivity(bounds, settings, phase)

    proven = _disjoint(certificate, "phased-sgd", "PhasedSGD", moved)
    return Proof(proven, "Gaussian noise on one contractive pass per disjoint phase, replace-one")


@dataclass(frozen=True)
class PhasedSGD(_Phased):
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
    Privacy: Gaussian DP and (epsilon, delta)-DP under replace-one, every record in one step of one phase. Public:
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
        mu = total_mu(guarantee, "PhasedSGD")
        rate = min(4 / math.sqrt(bounds.n_samples), mu / (3 * math.sqrt(bounds.dimension)))
        return rate / bounds.lipschitz

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        curvature = bounds.smoothness + bounds.alpha
        largest = 2 * self.decay / curvature if math.isfinite(curvature) else math.inf
        return min(self.wanted_step(bounds, guarantee), largest * (1 - 1e-12))

    def _solve(
        self,
        objective: Any,
        certificate: Certificate,
        phase: Phase,
        tolerance: float,
        chosen: Any,
        start: Array,
    ) -> Array:
        from dpconvex.mechanisms.compiled_slopes import compile_slope
        from dpconvex.mechanisms.stochastic_loop import run_one_pass

        rows, targets, weights = objective.rows.take(chosen).mapped()
        alpha, step = certificate.bounds.alpha, phase.step
        theta, total = start.copy(), np.zeros_like(start)
        compiled = compile_slope(objective.loss)
        if compiled is not None:
            order = np.arange(len(targets))
            run_one_pass(order, rows, targets, weights, compiled, theta, total, step, alpha)
        else:  # a loss of the user's own: the same steps, not compiled
            for row, target, weight in zip(rows, targets, weights, strict=True):
                slope = float(objective.loss.gradient(target, row @ theta))
                theta = theta - step * (weight * slope * row + alpha * theta)
                total += theta
        return total / len(targets)
