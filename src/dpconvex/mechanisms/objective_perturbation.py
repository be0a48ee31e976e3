r"""Objective perturbation: noise enters before solving.

Draw ``b``, minimise ``F(theta) + <b, theta> / n`` to a certified gradient norm, and release the
point with a little noise that pays for the distance to the exact minimiser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpconvex.core import certificate as certificates
from dpconvex.core.bounds import Bounds
from dpconvex.core.calibration import calibrated_release_scale, gaussian_mu
from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import (
    ApproxDP,
    Guarantee,
    PureDP,
    compose_guarantee,
    guarantee_per_problem,
)
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.losses import Pinball
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    check_mechanism_slope,
    check_mechanism_solver,
    loss_name,
    mechanism_with_word,
)
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.objective import ExtendedObjective
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import RobustBounds
from dpconvex.privacy.linear_terms import (
    linear_term_delta,
    linear_term_epsilon,
    linear_term_scale,
)
from dpconvex.privacy.objective_perturbation_calibration import objective_perturbation_scale
from dpconvex.releases.perturbed_minimiser import PerturbedMinimiser
from dpconvex.risk.excess_risk import (
    RESIDUAL_SCALES,
    Prescription,
    classifier_prescription,
    mean_excess,
    perturbation_noise_stds,
    quantile_excess,
    reference_moment,
    rounded_up,
)
from dpconvex.risk.structured_risk import SQUARE_COEFFICIENT, structured_minimiser_excess
from dpconvex.smoothing import Kernel, convolve, convolve_vector
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.solvers.black_box import Method

# Share of epsilon and of delta that pays for stopping short of the exact minimiser.
RELEASE_SHARE = 0.01

# Candidates of prescriptions, in mapped units.
_NO_CURVATURE = 1e9  # penalty over curvature at which the curvature costs no epsilon worth naming
_LARGEST_EPSILON = 30.0  # beyond it a larger curvature ratio only costs digits of the minimiser
_BANDWIDTHS = np.geomspace(1e-3, 3.0, 48)
_LEVEL_PULLS = np.linspace(0.2, 1.0, 9)  # from near the median to the wanted quantile
_LEVEL_DIGITS = 6
_MATRIX_BANDWIDTHS = np.geomspace(0.01, 10.0, 31)
_MATRIX_RATIOS = np.geomspace(0.1, 8.0, 10)  # curvature ratios, in units of `_usual_ratio`
_NARROW = 0.05  # bandwidth in units of the operator norm where the noise does not depend on it


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
    carries: ClassVar[Carries] = Carries(
        bounds=(LinearBounds, RobustBounds, StructuredBounds),
        weights=True,
        people=True,
        ignored_rows=True,
        problems=True,
    )
    fits: ClassVar[frozenset[str]] = frozenset({"quantiles", "classes", "rates", "matrices"})
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (PureDP, ApproxDP)
    takes_partitions: ClassVar[bool] = True
    noise_enters: ClassVar[str] = "noise is added to the objective before it is minimised"
    method: ClassVar[str] = (
        "Random noise was added to the problem itself, and the noisy problem was solved exactly. "
        "Its solution is published."
    )
    quantities: ClassVar[dict[str, str]] = {
        "objective": "linear term of the objective",
        "release": "coefficients",
    }

    @classmethod
    def calibrate(
        cls, bounds: Bounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        r"""Derive the two noise terms of objective perturbation.

        Several problems on the same data (one class against the rest) share the budget by basic
        composition.
        """
        check_perturbable_objective(bounds)
        problems = parameters.get("problems", 1)
        return objective_perturbation_noise(bounds, guarantee_per_problem(guarantee, problems))

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Add the costs of the linear term, by its theorem, and of the release noise; over all
        problems.
        """
        check_perturbable_objective(certificate.bounds)
        certificate.check_terms("objective", "release")
        return prove_perturbed_objective(certificate)

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide penalty and smoothing by the smallest predicted risk, where the user left them
        open.
        """
        if isinstance(request.bounds, StructuredBounds):
            return self._prepare_matrices(request)
        if isinstance(request.bounds.loss, Pinball):
            return self._prepare_quantile(request)
        bounds = replace(request.bounds, loss=request.smooth_loss or request.bounds.loss)
        chosen = classifier_prescription(
            self.calibrate, bounds, request.guarantee, {"problems": request.problems}, request.alpha
        )
        bounds = replace(bounds, alpha=chosen.alpha)
        return self.decide(request, bounds, predicted_risk=chosen.excess_risk)

    @staticmethod
    def prescribe_quantile(
        level: float,
        kernel: Kernel,
        bounds: LinearBounds,
        guarantee: Guarantee,
        alpha: float | None = None,
        bandwidth: float | None = None,
    ) -> Prescription:
        """Return penalty, bandwidth and level of the smallest predicted risk for a quantile."""
        return objective_prescription(level, kernel, bounds, guarantee, alpha, bandwidth)

    def _prepare_quantile(self, request: FitRequest) -> FitDecision:
        alpha = request.alpha
        bandwidth = request.bandwidth
        kernel = request.kernel
        level = request.bounds.loss.quantile
        predicted = math.inf
        assert kernel is not None
        if alpha is None or bandwidth is None:
            chosen = self.prescribe_quantile(
                level, kernel, request.bounds, request.guarantee, alpha, bandwidth
            )
            alpha = chosen.alpha
            bandwidth = chosen.bandwidth
            level = chosen.level or level
            predicted = chosen.excess_risk
        loss = request.smoothed(Pinball(level), bandwidth)
        bounds = replace(request.bounds, loss=loss, alpha=alpha)
        return self.decide(request, bounds, bandwidth=bandwidth, predicted_risk=predicted)

    def _prepare_matrices(self, request: FitRequest) -> FitDecision:
        alpha = request.alpha
        bandwidth = request.bandwidth
        kernel = request.kernel
        predicted = math.inf
        assert kernel is not None
        if alpha is None or bandwidth is None or request.bounds.loss.link is not None:
            chosen = structured_objective_prescription(
                kernel, request.bounds, request.guarantee, alpha, bandwidth
            )
            alpha = chosen.alpha
            bandwidth = chosen.bandwidth
            predicted = chosen.excess_risk
        loss = request.smoothed(request.bounds.loss, bandwidth)
        bounds = replace(request.bounds, loss=loss, alpha=alpha)
        return self.decide(request, bounds, bandwidth=bandwidth, predicted_risk=predicted)

    def adapted_to(self, request: FitRequest) -> PrivateMechanism:
        """Return objective perturbation for the records of a request: pairs have one of their
        own.
        """
        kind = mechanism_with_word(self.word, request.task)
        if kind is None or isinstance(self, kind) or not issubclass(kind, ObjectivePerturbation):
            return self
        return kind(self.solver)

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
        return PerturbedMinimiser(objective, certificate, noise).release(self.solver)

    @classmethod
    def may_smooth_level(cls, level: float, quantile: float) -> bool:
        """Return whether a run may smooth the loss of a level for a quantile: of one nearer 1/2,
        where a wide bandwidth moves the quantile.
        """
        return may_be_level(level, quantile)

    @classmethod
    def matrix_target_limit(cls, certificate: Certificate, settings: object) -> float:
        """Return the public bound to which targets of matrices are clamped."""
        linear_norm = certificate.noise["objective"].norm_upper_bound
        bounds = certificate.bounds
        return float(bounds.target_reach(linear_norm / bounds.n_samples))

    @classmethod
    def coefficient_noise(cls, certificate: Certificate) -> tuple[float, bool] | None:
        """Return an upper bound: the minimiser moves by at most ``||b|| / (n alpha)``."""
        bounds = certificate.bounds
        if not bounds.alpha > 0:
            return None
        whole = certificate.noise["objective"].coordinate_std * math.sqrt(bounds.dimension)
        moved = whole / (bounds.n_samples * bounds.alpha)
        return math.hypot(moved, certificate.noise["release"].coordinate_std), False


@lru_cache(maxsize=256)
def objective_prescription(
    quantile: float,
    kernel: Kernel,
    bounds: LinearBounds,
    guarantee: Guarantee,
    alpha: float | None = None,
    bandwidth: float | None = None,
) -> Prescription:
    """Prescribe penalty, bandwidth and level of the smallest predicted excess risk for objective
    perturbation.

    Parameters
    ----------
    quantile, kernel : float, Kernel
        The loss to be smoothed.
    bounds, guarantee : LinearBounds, PureDP or ApproxDP
        Public facts, of which ``loss`` and ``alpha`` are ignored, and the budget.
    alpha, bandwidth : float, optional
        Fixed by the user, in mapped units; a fixed bandwidth also fixes the level at ``quantile``.
    """
    n = bounds.n_samples
    plain = replace(bounds, loss=convolve(Pinball(quantile), kernel, 1.0), alpha=1.0)
    curvature = plain.smoothness  # at bandwidth 1; inversely proportional to it
    # With next to no curvature every offered guarantee has its noise: others are refused here, by
    # the mechanism.
    ObjectivePerturbation.calibrate(replace(plain, alpha=_NO_CURVATURE * curvature), guarantee, {})
    widths = _BANDWIDTHS if bandwidth is None else np.array([float(bandwidth)])
    pulls = _LEVEL_PULLS if bandwidth is None else np.ones(1)
    levels = 0.5 + pulls * (quantile - 0.5)
    slopes = np.maximum(levels, 1 - levels) / max(quantile, 1 - quantile)

    def stds_at(ratios: Array) -> Array:
        """Return both kinds of noise at each curvature ratio; that of coefficients for a
        bandwidth of 1.
        """
        facts = [replace(plain, alpha=float(penalty)) for penalty in curvature / (n * ratios)]
        calibrate = ObjectivePerturbation.calibrate
        return np.array([perturbation_noise_stds(calibrate, each, guarantee) for each in facts])

    if alpha is None:
        # A grid of curvature ratios: the noise depends on alpha and bandwidth through their product
        # only.
        epsilon = guarantee.epsilon(guarantee.delta(math.inf))
        ratios = np.expm1(np.geomspace(1e-4, 0.9, 40) * 0.99 * min(epsilon, _LARGEST_EPSILON))
        stds = stds_at(ratios)
        alphas = curvature / (n * np.outer(widths, ratios))
        noises = np.broadcast_to(stds[:, 0] / n, alphas.shape)
        releases = np.outer(widths, stds[:, 1])
    else:
        alphas = np.full((len(widths), 1), alpha)
        stds = stds_at(curvature / (n * alpha * widths))
        noises = stds[:, :1] / n
        releases = widths[:, None] * stds[:, 1:]
    usable = np.isfinite(noises)
    require_usable_prescription(bool(usable.any()), "bandwidth fits this alpha")
    noise, release = (
        np.where(usable, each, 1.0)[..., None, None] * slopes[:, None]
        for each in (noises, releases)
    )
    excess = quantile_excess(
        quantile,
        bounds.dimension,
        reference_moment(bounds),
        RESIDUAL_SCALES,
        alpha=alphas[..., None, None],
        gradient_std=noise,
        release_std=release,
        bandwidth=widths[:, None, None, None],
        kernel=kernel,
        level=levels[:, None],
    )
    score = np.where(usable[..., None], mean_excess(excess), np.inf)
    i, j, k = np.unravel_index(np.argmin(score), score.shape)
    return Prescription(
        alpha=rounded_up(float(alphas[i, j])) if alpha is None else alpha,
        excess_risk=float(score[i, j, k]),
        bandwidth=rounded_up(float(widths[i])) if bandwidth is None else bandwidth,
        level=round(float(levels[k]), _LEVEL_DIGITS),
    )


def require_usable_prescription(found: bool, what: str) -> None:
    """Raise unless objective perturbation has noise for one of the penalties and bandwidths that
    were tried.
    """
    if not found:
        raise ValueError(
            f"No {what}: the curvature of the smoothed loss costs more than epsilon. Use a larger "
            "alpha or bandwidth, or leave them to None."
        )


def may_be_level(level: float, quantile: float) -> bool:
    """Return whether :func:`objective_prescription` may smooth the loss of this level for a
    quantile.
    """
    ends = 0.5 + _LEVEL_PULLS[[0, -1]] * (quantile - 0.5)
    return bool(
        ends.min() <= level + 10.0**-_LEVEL_DIGITS and level - 10.0**-_LEVEL_DIGITS <= ends.max()
    )


def _usual_ratio(guarantee: Guarantee) -> float:
    """Return the curvature ratio from which on the noise of objective perturbation grows
    visibly.
    """
    delta = guarantee.delta(math.inf)
    epsilon = guarantee.epsilon(delta)
    return epsilon / (8 * math.log(1 / delta)) if delta > 0 else 0.1 * epsilon


def _smooth_bounds(
    bounds: StructuredBounds, kernel: Kernel, width: float, guarantee: Guarantee
) -> StructuredBounds:
    """Return the facts of the smoothed loss, or raise where objective perturbation does not
    offer a guarantee.
    """
    smooth = replace(bounds, loss=convolve_vector(bounds.loss, kernel, width), alpha=1.0)
    # Next to no curvature has noise for all others.
    ObjectivePerturbation.calibrate(
        replace(smooth, alpha=_NO_CURVATURE * smooth.smoothness), guarantee, {}
    )
    return smooth


def _structured_objective_noise(
    smooth: StructuredBounds, ratio: float, guarantee: Guarantee
) -> float:
    """Return the noise per coordinate of the sum at one curvature ratio, infinite where none
    suffices.
    """
    share = 1 - RELEASE_SHARE
    delta = guarantee.delta(math.inf)
    epsilon = share * guarantee.epsilon(delta)
    try:
        if delta > 0:
            std = objective_perturbation_scale(
                epsilon, share * delta, 1.0, ratio, smooth.rank, smooth.neighbors
            )
        else:
            records = 2 if smooth.neighbors == "replace_one" else 1
            left = epsilon - math.log1p(ratio)
            std = records * math.sqrt(smooth.dimension + 1) / left if left > 0 else math.inf
    except ValueError:
        return math.inf
    return std * smooth.lipschitz


@lru_cache(maxsize=256)
def structured_objective_prescription(
    kernel: Kernel,
    bounds: StructuredBounds,
    guarantee: Guarantee,
    alpha: float | None = None,
    bandwidth: float | None = None,
) -> Prescription:
    """Return penalty and bandwidth with the smallest predicted risk for objective perturbation.

    ``bounds`` has the kinked loss; ``alpha`` and ``bandwidth`` are fixed by the user or None.
    """
    if bounds.loss.link is not None:
        return _structured_link_prescription(kernel, bounds, guarantee, alpha, bandwidth)
    unit = bounds.operator_norm
    smooth = _smooth_bounds(bounds, kernel, unit, guarantee)
    widths = _MATRIX_BANDWIDTHS * unit if bandwidth is None else np.array([bandwidth])
    curvatures = smooth.smoothness * unit / widths
    if alpha is None:
        ratios = np.broadcast_to(
            _MATRIX_RATIOS * _usual_ratio(guarantee), (len(widths), len(_MATRIX_RATIOS))
        )
        alphas = curvatures[:, None] / (bounds.n_samples * ratios)
    else:
        alphas = np.full((len(widths), 1), alpha)
        ratios = (curvatures / (bounds.n_samples * alpha))[:, None]
    known = {
        float(ratio): _structured_objective_noise(smooth, float(ratio), guarantee)
        for ratio in np.unique(ratios)
    }
    noises = np.vectorize(lambda ratio: known[float(ratio)])(ratios) / bounds.n_samples
    usable = np.isfinite(noises)
    require_usable_prescription(bool(usable.any()), "bandwidth fits this alpha")
    # In units of U the loss has curvature c v / S and gradients of size U: alpha and noise follow.
    noise = np.where(usable, noises, 1.0)[..., None] / unit
    score = structured_minimiser_excess(
        bounds, kernel, widths[:, None, None] / unit, alphas[..., None] / unit, noise, 0.0
    )
    score = np.where(usable, score, np.inf)
    i, j = np.unravel_index(int(np.argmin(score)), score.shape)
    return Prescription(
        alpha=rounded_up(float(alphas[i, j])) if alpha is None else alpha,
        excess_risk=float(score[i, j]),
        bandwidth=rounded_up(float(widths[i])) if bandwidth is None else bandwidth,
    )


def _structured_link_prescription(
    kernel: Kernel,
    bounds: StructuredBounds,
    guarantee: Guarantee,
    alpha: float | None,
    bandwidth: float | None,
) -> Prescription:
    """Return penalty and bandwidth of objective perturbation for a loss with a link."""
    # The reference population has rows of the link with second moment v = link_norm^2 / d along
    # every direction and a typical curvature of half the largest, so that a coefficient of square
    # 1/2 errs by (alpha^2 / 2 + noise^2) / (v c + alpha)^2 per direction.
    link = bounds.loss.link
    assert link is not None
    width = rounded_up(_NARROW * bounds.operator_norm) if bandwidth is None else bandwidth
    smooth = _smooth_bounds(bounds, kernel, width, guarantee)
    v = bounds.link_norm**2 / bounds.n_features
    curvature = v * float(link.smoothness) / 2
    base = smooth.smoothness / bounds.n_samples
    tried = (
        [alpha]
        if alpha is not None
        else list(base / (_usual_ratio(guarantee) * np.geomspace(0.01, 8, 24)))
    )
    found = []
    for candidate in map(float, tried):
        noise = _structured_objective_noise(smooth, base / candidate, guarantee) / bounds.n_samples
        if math.isfinite(noise):
            error = (
                v
                * bounds.n_features
                * (candidate**2 * SQUARE_COEFFICIENT + noise**2)
                / (curvature + candidate) ** 2
            )
            found.append(Prescription(candidate, error, width))
    require_usable_prescription(bool(found), "penalty of those tried fits")
    best = min(found, key=lambda each: each.excess_risk)
    return best if alpha is not None else replace(best, alpha=rounded_up(best.alpha))
