"""Penalties of objectives over pairs of records, from public facts."""

import math
from dataclasses import replace

from dpconvex.core.calibration import gaussian_mu
from dpconvex.core.guarantees import GaussianDP, Guarantee
from dpconvex.privacy.bounds.ranking import PairwiseBounds

_SCORE_NOISE = (
    0.05  # scores of rows at the bound may be off by this much, in units of the loss's argument
)


def _pairwise_perturbation_noise_norm(bounds: PairwiseBounds, guarantee: Guarantee) -> float:
    """Return the typical norm of noise that hides the change of F's gradient."""
    gamma = bounds.gradient_sensitivity
    size = bounds.dimension
    if isinstance(guarantee, GaussianDP):
        return gamma * math.sqrt(size) / guarantee.mu
    delta = guarantee.delta(math.inf)
    if delta > 0:
        return gamma * math.sqrt(size) / gaussian_mu(guarantee.epsilon_bound, delta)
    return gamma * size / guarantee.epsilon_bound


def pair_penalty(bounds: PairwiseBounds, guarantee: Guarantee) -> float:
    """Return the penalty for mechanisms that perturb an objective of pairs, or its minimiser."""
    # alpha = 20 U ||noise||: noise moves the score of no row by more than 1/20. The direction is
    # what counts for the AUC, and a large penalty only makes it more like the difference of the
    # class means. Objective perturbation also needs a small change of the Hessian's trace, kappa <=
    # epsilon / 10 or epsilon / (8 log(1 / delta)).
    alpha = 1.0
    for _ in range(
        60
    ):  # losses of unbounded slope: the slope on the minimisers' ball depends on alpha
        facts = replace(bounds, alpha=alpha)
        alpha = facts.row_norm * _pairwise_perturbation_noise_norm(facts, guarantee) / _SCORE_NOISE
    kappa = 0.5
    if not isinstance(guarantee, GaussianDP):
        delta = guarantee.delta(math.inf)
        kappa = min(0.5, guarantee.epsilon_bound / (8 * math.log(1 / delta) if delta > 0 else 10))
    return max(alpha, replace(bounds, alpha=1.0).curvature_ratio / kappa)
