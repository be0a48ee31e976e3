r"""Output perturbation: noise enters after solving.

Minimise ``F`` with any solver, certify the point it returns, and release the point plus noise that
hides the sensitivity of the minimiser. Kinked losses are minimised through their Moreau envelope,
which has the loss's own Lipschitz constant: the envelope's objective is the one whose minimiser is
released, so its sensitivity is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpconvex.core import certificate as certificates
from dpconvex.core.bounds import Bounds
from dpconvex.core.calibration import calibrated_release_scale
from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.checks import check_number, parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import Guarantee, compose_guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.losses import Huber, Pinball
from dpconvex.losses.scaled_and_clamped import piecewise_linear_shape
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    check_mechanism_slope,
    check_mechanism_solver,
    is_pure,
)
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.objective import Objective
from dpconvex.privacy.bounds.ranking import PairwiseBounds, TopRankBounds
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import RobustBounds
from dpconvex.releases.perturbed_minimiser import PerturbedMinimiser, exact_minimiser
from dpconvex.risk.excess_risk import (
    RESIDUAL_SCALES,
    Prescription,
    classifier_prescription,
    mean_excess,
    quantile_excess,
    reference_moment,
    rounded_up,
)
from dpconvex.risk.pair_penalties import pair_penalty
from dpconvex.risk.structured_risk import structured_minimiser_excess
from dpconvex.risk.tilted_and_robust_penalties import top_rank_penalty, with_best_penalty
from dpconvex.smoothing import Kernel, convolve_vector
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.solvers.black_box import Method

GAP = "solver_gap"
RADIUS = "release_radius"
THRESHOLD = "threshold"

# Released coefficients below this many standard deviations of the noise are set to zero against a
# linf adversary, who takes ``radius |coefficient|`` from the margin for each of them: noise on
# useless columns costs as much as signal.
_THRESHOLD = 2.0
# Candidates of prescriptions, in mapped units.
_QUANTILE_ALPHAS = np.geomspace(1e-7, 10.0, 161)
_NARROW = 0.05  # bandwidth in units of the operator norm, where the noise does not depend on it
_HUBER_WIDTH = 0.25  # of means in forecasts, in half ranges of the target
# a Huber loss has less curvature than the square of the closed form; read off 107 simulations
_HUBER_FACTOR = 1.6


@dataclass(frozen=True)
class OutputSettings:
    """What a run of output perturbation uses; its certificate states the same as plain data."""

    kinked: bool = False  # whether a kinked loss is solved as it is, to a certified gap
    radius: float | None = None
    threshold: float = 0.0  # in standard deviations of the noise; 0 keeps all coefficients


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
    carries: ClassVar[Carries] = Carries(
        bounds=(Bounds,), weights=True, people=True, ignored_rows=True, problems=True
    )
    fits: ClassVar[frozenset[str]] = frozenset(
        {"quantiles", "means", "classes", "rates", "ranking", "matrices", "risk measures"}
    )
    takes_partitions: ClassVar[bool] = True
    noise_enters: ClassVar[str] = "noise is added to the finished coefficients"
    method: ClassVar[str] = (
        "The best coefficients were computed exactly, with a penalty that keeps any one record "
        "from moving them far. Random noise, large enough to hide such a move, was then added to "
        "them."
    )
    quantities: ClassVar[dict[str, str]] = {"release": "coefficients"}

    @classmethod
    def calibrate(
        cls, bounds: Bounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        r"""Derive the noise of output perturbation from the sensitivity of the certified minimiser.

        Gaussian DP: ``std = sensitivity / mu``; (epsilon, delta): the same with the largest ``mu``
        that implies it; pure epsilon: l2-Laplace of scale ``sensitivity / epsilon``. Each of k
        problems on the same data (one class against the rest) gets ``mu / sqrt(k)`` or
        ``epsilon / k``.
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

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Compose the releases of the minimisers, each as sensitive as the stated tolerance makes
        it.
        """
        bounds = certificate.bounds
        gap = certificate.parameters.get(GAP)
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
        release = certificate.term(
            "release", moved, bounds.dimension, "coefficients", tolerance=stated
        )
        gaussian = release.distribution == "gaussian"
        compose = (
            certificates.compose_certified_gaussian
            if gaussian
            else certificates.compose_certified_pure
        )
        proven = compose([release])
        law = "Gaussian" if gaussian else "l2-Laplace"
        relation = bounds.relation.replace("_", "-")
        theorem = f"{law} output perturbation, {relation}, {solved}"
        return CertificateProof(compose_guarantee(proven, certificate.problems), theorem)

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide penalty and smoothing by the smallest predicted risk, where the user left them
        open.
        """
        if isinstance(request.bounds, StructuredBounds):
            return self._prepare_matrices(request)
        if request.task == "risk measures":
            return self._prepare_risk_measure(request)
        if isinstance(request.bounds, PairwiseBounds):
            alpha = request.alpha
            if alpha is None:
                alpha = pair_penalty(request.bounds, request.guarantee)
            return self.decide(request, replace(request.bounds, alpha=alpha))
        if isinstance(request.bounds.loss, Pinball):
            return self._prepare_quantile(request)
        bounds = replace(request.bounds, loss=request.smooth_loss or request.bounds.loss)
        if request.task == "means":
            alpha = request.alpha
            if alpha is None:
                alpha = linear_preset(bounds, request.guarantee, radius=1.0).alpha
            return self.decide(request, replace(bounds, alpha=alpha))
        chosen = classifier_prescription(
            self.calibrate, bounds, request.guarantee, {"problems": request.problems}, request.alpha
        )
        bounds = replace(bounds, alpha=chosen.alpha)
        return self.decide(request, bounds, predicted_risk=chosen.excess_risk)

    @staticmethod
    def prescribe_quantile(
        level: float,
        kernel: Kernel | None,
        bounds: LinearBounds,
        guarantee: Guarantee,
        alpha: float | None = None,
        bandwidth: float | None = None,
    ) -> Prescription:
        """Return the penalty of the smallest predicted risk for a quantile, which is not
        smoothed.
        """
        return output_prescription(level, bounds, guarantee, alpha)

    def _prepare_quantile(self, request: FitRequest) -> FitDecision:
        plain = request.bounds.loss
        bandwidth = request.bandwidth
        chosen = self.prescribe_quantile(
            plain.quantile, request.kernel, request.bounds, request.guarantee, request.alpha
        )
        loss = request.smoothed(plain, bandwidth)
        bounds = replace(request.bounds, loss=loss, alpha=chosen.alpha)
        return self.decide(request, bounds, bandwidth=bandwidth, predicted_risk=chosen.excess_risk)

    def _prepare_matrices(self, request: FitRequest) -> FitDecision:
        kernel = request.kernel
        assert kernel is not None
        chosen = structured_output_prescription(
            kernel, request.bounds, request.guarantee, request.alpha, request.bandwidth
        )
        loss = request.smoothed(request.bounds.loss, chosen.bandwidth)
        bounds = replace(request.bounds, loss=loss, alpha=chosen.alpha)
        return self.decide(
            request, bounds, bandwidth=chosen.bandwidth, predicted_risk=chosen.excess_risk
        )

    def _prepare_risk_measure(self, request: FitRequest) -> FitDecision:
        bounds = request.bounds
        alpha = request.alpha
        if isinstance(bounds, TopRankBounds) and alpha is not None:
            return self.decide(request, replace(bounds, alpha=alpha))
        unit = _noise_per_sensitivity(bounds, request.guarantee, request.problems)
        if isinstance(bounds, TopRankBounds):
            return self.decide(request, replace(bounds, alpha=top_rank_penalty(bounds, unit)))
        against_linf = isinstance(bounds, RobustBounds) and bounds.norm == "linf"
        parameters = {THRESHOLD: _THRESHOLD} if against_linf else {}
        return self.decide(request, with_best_penalty(bounds, unit, alpha), parameters)

    def decide(
        self,
        request: FitRequest,
        bounds: Any,
        parameters: Parameters | None = None,
        **more: Any,
    ) -> FitDecision:
        """Return the decision, with the settings of this object for the run."""
        threshold = (parameters or {}).get(THRESHOLD, 0.0)
        radius = None if self.radius is None else float(self.radius)
        settings = OutputSettings(self.gap is not None, radius, threshold)
        return super().decide(request, bounds, parameters, settings=settings, **more)

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

    def stated_settings(self, certificate: Certificate) -> OutputSettings:
        """Return the settings that a certificate states, as the object that a run takes."""
        stated = certificate.parameters
        return OutputSettings(GAP in stated, stated.get(RADIUS), stated.get(THRESHOLD, 0.0))

    def _run(
        self,
        objective: Objective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
        settings: OutputSettings,
    ) -> Array:
        minimiser = PerturbedMinimiser(objective, certificate, noise)
        released = minimiser.release(self.solver, settings.kinked)
        radius = settings.radius
        if radius is not None:  # a projection of what was released: no privacy cost
            released = released * min(1.0, radius / max(float(np.linalg.norm(released)), 1e-300))
        if not settings.threshold:
            return released
        # Small coefficients, the intercept apart, are set to zero: post-processing as well.
        spread = certificate.noise["release"].coordinate_std
        small = np.abs(released) < settings.threshold * spread
        small[: int(certificate.bounds.fit_intercept)] = False
        return np.where(small, 0.0, released)

    def minimise(self, objective: Objective, certificate: Certificate) -> Array:
        """Return the exact certified point that noise is added to: private."""
        return exact_minimiser(objective, certificate, self.solver, GAP in certificate.parameters)

    @classmethod
    def coefficient_noise(cls, certificate: Certificate) -> tuple[float, bool] | None:
        """Return the standard deviation of the released noise, which is exact."""
        return certificate.noise["release"].coordinate_std, True


def output_prescription(
    quantile: float, bounds: LinearBounds, guarantee: Guarantee, alpha: float | None = None
) -> Prescription:
    """Prescribe the penalty of the smallest predicted excess for output perturbation of the plain
    pinball loss.

    Parameters
    ----------
    quantile, bounds, guarantee, alpha
        As for objective perturbation; GaussianDP is offered too.
    """
    alphas = _QUANTILE_ALPHAS if alpha is None else np.array([float(alpha)])
    stds = _release_stds(replace(bounds, loss=Pinball(quantile)), guarantee, alphas)[:, None]
    facts = quantile, bounds.dimension, reference_moment(bounds), RESIDUAL_SCALES
    score = mean_excess(quantile_excess(*facts, alpha=alphas[:, None], release_std=stds))
    best = int(np.argmin(score))
    return Prescription(
        rounded_up(float(alphas[best])) if alpha is None else alpha,
        float(score[best]),
        level=quantile,
    )


def _release_stds(bounds: LinearBounds, guarantee: Guarantee, alphas: Array) -> Array:
    """Return the noise per coefficient of output perturbation, for each penalty."""
    facts = [replace(bounds, alpha=float(alpha)) for alpha in alphas]
    return np.array(
        [
            OutputPerturbation.calibrate(each, guarantee, {}).noise["release"].coordinate_std
            for each in facts
        ]
    )


def linear_preset(bounds: LinearBounds, guarantee: Guarantee, radius: float) -> Prescription:
    r"""Prescribe the penalty of output perturbation that minimises a dimension-free bound on the
    excess risk.

    A record sees the noise through its own row only, so noise of standard deviation t per
    coordinate adds at most ``beta t^2 / 2`` (smooth losses: beta bounds the trace of a record's
    Hessian) and at most ``L t sqrt(2/pi)`` to the expected loss; the penalty adds
    ``alpha radius^2 / 2`` against the best coefficients in the ball. The paper's bounds have a
    factor d or sqrt(d) in the place of these.

    Parameters
    ----------
    bounds, guarantee : LinearBounds, PureDP, ApproxDP or GaussianDP
        Public facts of any linear model, of which ``alpha`` is ignored, and the budget.
    radius : float
        Public norm of the coefficients to compete with.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP
    >>> bounds = LinearBounds(100_000, 20, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> linear_preset(bounds, ApproxDP(1.0, 1e-6), radius=2.0).alpha
    0.00155
    """
    alphas = np.geomspace(1e-8, 10.0, 400)
    stds = _release_stds(bounds, guarantee, alphas)
    noise = bounds.lipschitz * stds * math.sqrt(2 / math.pi)
    if math.isfinite(bounds.smoothness):
        noise = np.minimum(noise, bounds.smoothness * stds**2 / 2)
    risks = alphas * radius**2 / 2 + noise
    best = int(np.argmin(risks))
    return Prescription(rounded_up(float(alphas[best])), float(risks[best]))


def output_squares_excess(
    bounds: LinearBounds, guarantee: Guarantee, moment: float, scales: Array
) -> Array:
    """Return the relative excess squared error of output perturbation, at each residual scale."""
    bounds = replace(bounds, loss=Huber(_HUBER_WIDTH))
    alpha = linear_preset(bounds, guarantee, radius=1.0).alpha
    (std,) = _release_stds(bounds, guarantee, np.array([alpha]))
    moments = np.array([1.0, *[moment] * bounds.n_features])
    shrunk = alpha / (moments + alpha)
    added = float(moments @ shrunk**2 / bounds.dimension + std**2 * moments.sum())
    return bounds.dimension / bounds.n_samples + _HUBER_FACTOR * added / scales**2


@lru_cache(maxsize=256)
def structured_output_prescription(
    kernel: Kernel,
    bounds: StructuredBounds,
    guarantee: Guarantee,
    alpha: float | None = None,
    bandwidth: float | None = None,
) -> Prescription:
    """Return penalty and bandwidth of output perturbation; noise does not depend on the
    bandwidth, which is small.
    """
    unit = bounds.operator_norm
    width = rounded_up(_NARROW * unit) if bandwidth is None else bandwidth
    smooth = replace(bounds, loss=convolve_vector(bounds.loss, kernel, width), alpha=1.0)
    tried = np.geomspace(1e-4, 10.0, 41) * smooth.lipschitz if alpha is None else np.array([alpha])
    stds = []
    for candidate in tried:
        facts = replace(smooth, alpha=float(candidate))
        term = OutputPerturbation.calibrate(facts, guarantee, {}).noise["release"]
        stds.append(
            term.scale
            * (1.0 if term.distribution == "gaussian" else math.sqrt(bounds.dimension + 1))
        )
    noise = 0.0, np.array(stds)[:, None]
    scores = structured_minimiser_excess(
        bounds, kernel, np.array(width / unit), tried[:, None] / unit, *noise
    )
    best = int(np.argmin(scores))
    return Prescription(
        rounded_up(float(tried[best])) if alpha is None else alpha, float(scores[best]), width
    )


def _noise_per_sensitivity(bounds: Any, guarantee: Guarantee, problems: int) -> float:
    """Return the noise per coefficient for a sensitivity of 1: it is proportional to the
    sensitivity.
    """
    facts = replace(bounds, alpha=100.0)  # no cost of interest is too small for it
    calibration = OutputPerturbation.calibrate(facts, guarantee, {"problems": problems})
    moved = facts.minimiser_sensitivity(calibration.solver_tolerance)
    return float(calibration.noise["release"].coordinate_std / moved)
