"""Which mechanism maximises the AUC, and with which penalty: decided from public facts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dpconvex.fit.config import total_mu
from dpconvex.losses import PairHinge, PairLogistic, PairSquared, PairSquaredHinge
from dpconvex.mechanisms import (
    Moments,
    NoisyGradientDescent,
    ObjectivePerturbation,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
)
from dpconvex.mechanisms.pairwise import ADDED, LONGEST, WIDEST, calibrate_pairwise_objective
from dpconvex.planning.forecast_quantile import rounded_up
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.bounds.pairwise import PairwiseBounds
from dpconvex.privacy.calibration import gaussian_mu
from dpconvex.privacy.guarantees import GaussianDP

__all__ = ["PAIR_LOSSES", "choose_auc_mechanism", "default_penalty", "missing_penalty", "resolve_pair_loss"]

PAIR_LOSSES = ("logistic", "natural-logistic", "hinge", "squared", "squared-hinge")
_MECHANISMS = ("auto", "moments", "objective", "output", "gradient")
_WIDTH = 0.5  # of the hinge's rounded kink, in units of the score difference
_SCORE_NOISE = 0.05  # scores of rows at the bound may be off by this much, in units of the loss's argument
_COUNTABLE = 600  # rows times epsilon from which on a count of half the rows is telling
# Records per coefficient that noise leaves, n mu / (d + 1), from which on a descent outdoes the moments.
_RECORDS = 4.0


def resolve_pair_loss(loss: Any, bandwidth: float | None, owner: str) -> Any:
    """Return the smooth pairwise loss that a name or object stands for."""
    named = {
        "logistic": PairLogistic("2"),
        "natural-logistic": PairLogistic("e"),
        "hinge": PairHinge(bandwidth or _WIDTH),
        "squared": PairSquared(),
        "squared-hinge": PairSquaredHinge(),
    }
    if isinstance(loss, str) and loss in named:
        return named[loss]
    own = (PairLogistic, PairHinge, PairSquared, PairSquaredHinge)
    if isinstance(loss, own) and math.isfinite(loss.smoothness):
        return loss
    raise ValueError(
        f"The 'loss' parameter of {owner} must be one of {list(PAIR_LOSSES)} or a smooth pairwise loss of "
        f"dpconvex.losses. Got {loss!r} instead."
    )


def _delta(guarantee: Any) -> float:
    """Return delta, 0 for pure epsilon-DP."""
    return float(getattr(guarantee, "delta_bound", 0.0))


def _noise_norm(bounds: PairwiseBounds, guarantee: Any) -> float:
    """Return the typical norm of noise that hides the change of F's gradient."""
    gamma, size = bounds.gradient_sensitivity, bounds.dimension
    if isinstance(guarantee, GaussianDP):
        return gamma * math.sqrt(size) / guarantee.mu
    if _delta(guarantee) > 0:
        mu = gaussian_mu(guarantee.epsilon_bound, _delta(guarantee))
        return gamma * math.sqrt(size) / mu
    return gamma * size / guarantee.epsilon_bound


def default_penalty(bounds: PairwiseBounds, guarantee: Any) -> float:
    r"""Return the penalty of objective and output perturbation.

    ``alpha = 20 U ||noise||``: noise moves the score of no row by more than 1/20. The direction is what counts for
    the AUC, and a large penalty only makes it more like the difference of the class means. Objective perturbation
    also needs a small change of the Hessian's trace, ``kappa <= epsilon / 10`` or ``epsilon / (8 log(1 / delta))``.
    """
    alpha = 1.0
    for _ in range(60):  # losses of unbounded slope: the slope on the minimisers' ball depends on alpha
        facts = replace(bounds, alpha=alpha)
        alpha = facts.row_norm * _noise_norm(facts, guarantee) / _SCORE_NOISE
    if isinstance(guarantee, GaussianDP):
        kappa = math.inf
    elif _delta(guarantee) > 0:
        kappa = guarantee.epsilon_bound / (8 * math.log(1 / _delta(guarantee)))
    else:
        kappa = guarantee.epsilon_bound / 10
    return max(alpha, replace(bounds, alpha=1.0).curvature_ratio / min(kappa, 0.5))


def missing_penalty(bounds: PairwiseBounds, guarantee: Any) -> float:
    r"""Return what must be added to the penalty before objective perturbation of pairs can be private at all.

    0 where noise suffices. Otherwise what makes the curvature ratio ``epsilon / (8 log(1 / delta))``, or for pure
    epsilon the ratio at which the Jacobian takes half of epsilon, ``d (exp(epsilon / (2 d)) - 1)``: the Delta of
    Algorithm 2 of the AUC paper, from public facts and with counts that are bounds. The certificate states it.
    """
    try:
        calibrate_pairwise_objective(bounds, guarantee, {})
        return 0.0
    except ValueError:
        if isinstance(guarantee, GaussianDP):
            raise
    if _delta(guarantee) > 0:
        ratio = min(0.5, guarantee.epsilon_bound / (8 * math.log(1 / _delta(guarantee))))
    else:
        size = bounds.dimension
        ratio = size * math.expm1(min(guarantee.epsilon_bound, 50.0 * size) / (2 * size))
    needed = rounded_up(replace(bounds, alpha=1.0).curvature_ratio / ratio)
    return max(0.0, needed - bounds.alpha)


def choose_auc_mechanism(
    mechanism: Any,
    bounds: PairwiseBounds,
    single: LinearBounds,
    guarantee: Any,
    alpha: float | None,
    find_length: bool,
    owner: str,
) -> tuple[Any, PairwiseBounds | LinearBounds, dict[str, Any]]:
    """Return the mechanism, the facts it certifies, and parameters of its own.

    ``bounds`` are the facts of pairs and ``single`` those of single records, along whose logistic loss noisy gradient
    descent goes: a ranking by the odds of a label has the largest AUC.

    With ``find_length`` and no alpha given, objective perturbation first finds a typical length of rows, if the budget
    suffices to count half of the rows; bounds and alpha are then in units of that length.

    ``"auto"``: with pure epsilon objective perturbation (output perturbation if the loss has no bounded slope);
    otherwise noisy gradient descent, or the moments for least squares and where noise leaves few records.
    """
    pure = not isinstance(guarantee, GaussianDP) and _delta(guarantee) == 0
    steep = not math.isfinite(float(bounds.loss.lipschitz))
    if isinstance(mechanism, str) and mechanism == "auto":
        if pure:
            mechanism = "output" if steep else "objective"
        else:
            records = single.n_samples * total_mu(guarantee, owner) / single.dimension
            few = steep or records < _RECORDS
            mechanism = "moments" if few and bounds.neighbors == "replace_one" else "gradient"
    if isinstance(mechanism, str):
        named: dict[str, Any] = {
            "moments": Moments(),
            "objective": PairwiseObjectivePerturbation(),
            "output": OutputPerturbation(),
            "gradient": NoisyGradientDescent(),
        }
        found = named.get(mechanism)
    elif isinstance(mechanism, ObjectivePerturbation):
        found = PairwiseObjectivePerturbation(mechanism.solver)
    else:
        ours = (Moments, NoisyGradientDescent, OutputPerturbation)
        found = mechanism if isinstance(mechanism, ours) else None
    if found is None:
        raise ValueError(
            f"The 'mechanism' parameter of {owner} must be one of {list(_MECHANISMS)} or a mechanism object of these "
            f"kinds. Got {mechanism!r} instead."
        )
    if isinstance(found, NoisyGradientDescent):
        settings = {**found.settings(), "ranking": True}
        return found, replace(single, alpha=alpha or 0.0), {"gradient": settings}
    own: dict[str, Any] = {}
    if isinstance(found, PairwiseObjectivePerturbation) and find_length and alpha is None:
        epsilon = float(getattr(guarantee, "epsilon_bound", 0.0))
        if bounds.n_samples * epsilon >= _COUNTABLE:
            own = {LONGEST: bounds.row_norm, WIDEST: bounds.distance}
            bounds = replace(bounds, row_norm=1.0, diameter=2.0)
    penalised = isinstance(found, (OutputPerturbation, PairwiseObjectivePerturbation))
    if isinstance(found, Moments) and bounds.neighbors != "replace_one":
        raise ValueError(
            f"The 'mechanism' parameter of {owner} must not be 'moments' under add_or_remove_one: their sensitivities "
            "are known for a replaced record. Use 'gradient', 'objective' or 'output'."
        )
    if alpha is None:
        alpha = default_penalty(bounds, guarantee) if penalised else 0.0
    elif isinstance(found, PairwiseObjectivePerturbation):
        added = missing_penalty(replace(bounds, alpha=alpha), guarantee)
        if added > 0:
            own, alpha = {**own, ADDED: added}, alpha + added
    return found, replace(bounds, alpha=alpha), own
