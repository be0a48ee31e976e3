r"""Predicted excess risk of penalised, perturbed logistic regression in a reference population, by quadrature.

Features are normal with standard deviation ``spread``, the best margins ``m`` normal with mean 1 (the intercept, unless
a share of labels says otherwise) and variance 2. The penalised minimiser shrinks the intercept to ``a0`` and the
coefficients by ``a1``, which solve

    E[(sigma(m^) - sigma(m))] + alpha a0 = 0,    E[(sigma(m^) - sigma(m)) f] + alpha a1 ||theta||^2 = 0,

``f`` the margin without its mean and ``m^ = a0 + a1 f``. Noise and sampling then spread ``m^`` by a normal error, and
the excess risk is the mean Kullback-Leibler divergence between the two predictions: unlike a quadratic it does not blow
up with the error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit

from dpconvex.types import Array

__all__ = ["CONSTANT_EXCESS", "MARGIN_VARIANCE", "intercept_for", "logistic_constant_excess", "logistic_excess"]


MARGIN_VARIANCE = 2.0
_NODES, _WEIGHTS = hermegauss(31)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_FEATURES = math.sqrt(MARGIN_VARIANCE) * _NODES


def logistic_constant_excess(intercept: float = 1.0) -> float:
    """Return the excess of the best constant prediction, in nats, where the best margins have this mean.

    Examples
    --------
    >>> round(logistic_constant_excess(), 2), round(logistic_constant_excess(intercept_for(0.03)), 2)
    (0.14, 0.03)
    """
    best = expit(intercept + _FEATURES)
    share = float(_WEIGHTS @ best)  # of positive labels
    gap = best * np.log(best / share) + (1 - best) * np.log((1 - best) / (1 - share))
    return float(_WEIGHTS @ gap)


#: Excess of the best constant prediction in the reference population.
CONSTANT_EXCESS = logistic_constant_excess()


def logistic_excess(
    n_samples: int,
    n_features: int,
    spread: float,
    alpha: float = 0.0,
    gradient_std: float = 0.0,
    release_std: float = 0.0,
    reached: float = 1.0,
    intercept: float = 1.0,
) -> float:
    """Return the predicted excess of the mean logistic loss over the best linear model's.

    Parameters
    ----------
    n_samples, n_features : int
        Rows, and columns without the intercept.
    spread : float
        Standard deviation of one mapped feature.
    alpha : float
        Penalty.
    gradient_std, release_std : float
        Standard deviation of the noise per coordinate of the MEAN gradient, and of the released coefficients.
    reached : float
        Share of the gradient noise's effect that the minimiser shows; below 1 for a descent that stops early.
    intercept : float
        Mean of the best margins; :func:`intercept_for` finds that of a share of positive labels.

    Returns
    -------
    float
        In nats per record; sampling error included.

    Examples
    --------
    >>> round(logistic_excess(100_000, 9, 0.25) * 2 * 100_000 / 10, 1)
    1.0
    """
    v = spread**2
    size = MARGIN_VARIANCE / v  # squared norm of the coefficients
    best = expit(intercept + _FEATURES)
    a0, a1 = _shrink(alpha, size, intercept)
    predicted = expit(a0 + a1 * _FEATURES)
    curvature = float(_WEIGHTS @ (predicted * (1 - predicted)))
    slopes = float(_WEIGHTS @ (best * (1 - best) + (predicted - best) ** 2)) / n_samples
    error = 0.0
    for moment, count in ((1.0, 1), (v, n_features)):
        response = reached * gradient_std**2 + moment * slopes
        error += count * moment * (response / (curvature * moment + alpha) ** 2 + release_std**2)
    spread_out = a0 + a1 * _FEATURES[:, None] + math.sqrt(error) * _NODES[None, :]
    divergence = _entropy_gap(best[:, None], spread_out)
    return float(_WEIGHTS @ divergence @ _WEIGHTS)


def intercept_for(share: float) -> float:
    """Return the mean of the best margins for which this share of labels is positive, by bisection.

    Examples
    --------
    >>> abs(intercept_for(0.5)) < 1e-6
    True
    """
    low, high = -40.0, 40.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        below = float(_WEIGHTS @ expit(middle + _FEATURES)) < share
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def _shrink(alpha: float, size: float, intercept: float = 1.0) -> tuple[float, float]:
    """Solve for the factors by which the penalty shrinks intercept and coefficients, by damped Newton steps."""
    if alpha == 0:
        return intercept, 1.0
    point = np.array([0.5, 0.5])
    best = expit(intercept + _FEATURES)
    design = np.stack([np.ones_like(_FEATURES), _FEATURES])
    penalty = alpha * np.array([1.0, size])
    for _ in range(100):
        predicted = expit(point @ design)
        gradient = design @ (_WEIGHTS * (predicted - best)) + penalty * point
        hessian = (design * (_WEIGHTS * predicted * (1 - predicted))) @ design.T + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        point = point - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-12:
            break
    return float(point[0]), float(point[1])


def _entropy_gap(best: Array, margins: Array) -> Array:
    """Return the divergence of predictions with these margins from the best probabilities."""
    loss = np.logaddexp(0.0, -margins) + (1 - best) * margins
    entropy = -best * np.log(best) - (1 - best) * np.log1p(-best)
    return np.asarray(loss - entropy)
