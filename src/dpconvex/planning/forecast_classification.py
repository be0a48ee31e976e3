r"""Predicted risk of private linear classification, from public facts, and the penalty that minimises it.

Data are replaced by a reference population in mapped units: an intercept and ``d`` features of second moment
``v = r U^2 / d`` (``U`` the influence bound, ``r`` unknown: 1/4, 1/16 and 1/64 are tried), margins of variance 2, and a
loss whose mean curvature is 0.15. The perturbed, penalised minimiser errs in each coordinate by
``(alpha theta + noise) / (0.15 v + alpha)``; the excess risk is half the curvature times the variance of the error in
the margin.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpconvex.fit.config import gradient_noise, plan_fit, total_mu
from dpconvex.planning.forecast_descent import MARGINS, records_left
from dpconvex.planning.forecast_logistic import logistic_constant_excess, logistic_excess
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import Parameters, calibrate
from dpconvex.privacy.guarantees import GaussianDP, Guarantee

CURVATURE = 0.15
_MARGIN_VARIANCE = 2.0
SPREADS = np.array([1 / 4, 1 / 16, 1 / 64])
_ALPHAS = np.geomspace(1e-7, 10.0, 49)


def penalty_for(
    mechanism: str, bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters, alpha: float | None = None
) -> tuple[float, float]:
    """Return the penalty with the smallest predicted risk, and that risk.

    Parameters
    ----------
    mechanism : {"objective", "output"}
        How noise enters.
    bounds : LinearBounds
        Public facts; ``alpha`` in it is ignored.
    guarantee : Guarantee
        Budget.
    parameters : dict
        The mechanism's public parameters.
    alpha : float, optional
        Fixed by the user.
    """
    alphas = _ALPHAS if alpha is None else np.array([alpha])
    stds = np.array([_noise(mechanism, bounds, guarantee, parameters, float(a)) for a in alphas])
    risks = _excess(bounds, alphas, *stds.T)
    best = int(np.argmin(risks))
    if not math.isfinite(risks[best]):
        if isinstance(guarantee, GaussianDP):  # not every mechanism offers it, and then says so
            calibrate(mechanism, replace(bounds, alpha=float(alphas[-1])), guarantee, parameters)
        remedy = "Give a larger budget." if alpha is None else "Use a larger alpha, or None."
        raise ValueError(
            "No penalty fits this budget: the curvature of the loss costs more than epsilon. "
            f"Got alpha={alpha!r}. {remedy}"
        )
    chosen = float(f"{alphas[best]:.3g}") if alpha is None else alpha
    return chosen, float(risks[best])


def predicted_gradient_risk(
    bounds: LinearBounds, guarantee: Guarantee, settings: Parameters, problems: int, intercept: float = 1.0
) -> float:
    """Return the predicted excess risk of the private fit, in whose coordinates features have unit second moments.

    Parameters
    ----------
    bounds, guarantee, settings : LinearBounds, Guarantee, mapping
        Public facts, budget, and :meth:`NoisyGradientDescent.settings`.
    problems : int
        How many fits share the budget.
    intercept : float
        Mean of the best margins.
    """
    mu = total_mu(guarantee, "NoisyGradientDescent") / math.sqrt(problems)
    plan = plan_fit(bounds, mu, settings)
    noise, records = gradient_noise(plan, bounds, mu), records_left(plan, bounds)
    excess = logistic_excess(bounds.n_samples, bounds.n_features, 1.0, gradient_std=noise, intercept=intercept)
    constant = logistic_constant_excess(intercept)
    return float(MARGINS.excess(excess, constant, records, bounds.dimension))


def _noise(
    mechanism: str, bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters, alpha: float
) -> tuple[float, float]:
    """Return the noise per coordinate of the mean gradient and of the coefficients; infinite where none suffices."""
    try:
        noise = calibrate(mechanism, replace(bounds, alpha=alpha), guarantee, parameters).noise
    except ValueError:
        return math.inf, math.inf

    def size(name: str) -> float:
        return noise[name].spread if name in noise else 0.0

    return size("objective") / bounds.n_samples, size("release")


def _excess(
    bounds: LinearBounds, alphas: np.ndarray, gradient_stds: np.ndarray, release_stds: np.ndarray
) -> np.ndarray:
    """Return the predicted excess risk for each penalty, as a geometric mean over feature spreads."""
    influence = min(bounds.row_norm, bounds.max_norm)
    moments = SPREADS * influence**2 / bounds.n_features
    alpha, v = alphas[:, None], moments[None, :]
    std, release = gradient_stds[:, None], release_stds[:, None]
    size = _MARGIN_VARIANCE / (bounds.n_features * v)  # squared coefficient of one feature

    def error(v: np.ndarray, size: np.ndarray | float) -> np.ndarray:
        bias = v * alpha**2 * size / (CURVATURE * v + alpha) ** 2
        spread = std**2 / (CURVATURE * v + alpha) ** 2 + release**2
        return bias + v * spread

    with np.errstate(invalid="ignore", over="ignore"):
        total = bounds.n_features * error(v, size) + error(np.ones_like(v), 1.0)
        risk = np.exp(np.log(CURVATURE / 2 * total).mean(axis=1))
    return np.where(np.isfinite(gradient_stds + release_stds), risk, np.inf)
