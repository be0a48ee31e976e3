r"""The Gaussian-DP newsvendor paper's Algorithm 1 as printed, for comparison.

``beta <- beta - (step / n) (sum_i (K((x_i . beta - d_i) / h) - tau) x_i min(1, B / ||x_i||) + sigma
g)``, ten times from 0, the last iterate returned; K the normal distribution function and g standard
normal. The noise ``sigma = ceil(2 max(tau, 1 - tau) B sqrt(T) / mu)`` is right. The paper finds its
step by a line search on the data, which nothing pays for: here the step is a parameter, and
comparisons may take the best one in hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpconvex.core.calibration import calibrated_release_scale
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.losses import Pinball

__all__ = [
    "STEPS",
    "TRUNCATION",
    "algorithm_1",
    "calibrated_std",
    "noise_std",
    "paper_bandwidth",
    "true_mu",
    "truncated_rows",
]

Array = NDArray[np.float64]

STEPS = 10
TRUNCATION = 2.0


def noise_std(
    quantile: float, mu: float, steps: int = STEPS, truncation: float = TRUNCATION
) -> float:
    """Return ``sigma = ceil(2 max(tau, 1 - tau) B sqrt(T) / mu)``, added to the SUM of gradients.

    Examples
    --------
    >>> noise_std(0.5, 0.9), noise_std(0.25, 0.3)
    (8.0, 32.0)
    """
    slope = max(quantile, 1 - quantile)
    return float(math.ceil(2 * slope * truncation * math.sqrt(steps) / mu))


def _sensitivity(quantile: float, truncation: float, neighbors: str) -> float:
    """Return how far the SUM of gradients moves with one record, the constant being one of the
    truncated columns.
    """
    facts = LinearBounds(
        n_samples=1,
        n_features=1,
        loss=Pinball(quantile),
        row_norm=truncation,
        max_norm=truncation,
        fit_intercept=False,
        neighbors=neighbors,
    )
    return facts.gradient_sum_sensitivity()


def calibrated_std(
    quantile: float, mu: float, steps: int = STEPS, truncation: float = TRUNCATION
) -> float:
    """Return the noise on the SUM of gradients that spends exactly mu under replace-one: the
    printed one, not rounded.

    Examples
    --------
    >>> round(calibrated_std(0.5, 0.9), 4)
    7.0273
    """
    sensitivity = _sensitivity(quantile, truncation, "replace_one")
    return calibrated_release_scale(mu / math.sqrt(steps), sensitivity, 1)


def true_mu(
    quantile: float,
    std: float,
    neighbors: str = "replace_one",
    steps: int = STEPS,
    truncation: float = TRUNCATION,
) -> float:
    """Return the Gaussian DP level ``sqrt(T) sensitivity / std`` of the algorithm with public step
    sizes.

    Examples
    --------
    >>> round(true_mu(0.5, noise_std(0.5, 0.9)), 4)
    0.7906
    """
    return math.sqrt(steps) * _sensitivity(quantile, truncation, neighbors) / std


def truncated_rows(rows: Array, truncation: float = TRUNCATION) -> Array:
    """Return rows shortened to norm B, the constant column included."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * np.minimum(1.0, truncation / lengths))


def paper_bandwidth(quantile: float, n_samples: int, dimension: int) -> float:
    """Return ``h = sqrt(tau (1 - tau)) ((p + log n) / n)^(2/5)``, p with the intercept.

    Examples
    --------
    >>> round(paper_bandwidth(0.5, 400, 5), 4)
    0.1187
    """
    rate = (dimension + math.log(n_samples)) / n_samples
    return math.sqrt(quantile * (1 - quantile)) * math.pow(rate, 0.4)


def algorithm_1(
    X: Array,
    demand: Array,
    quantile: float,
    mu: float,
    step_sizes: Sequence[float],
    rng: np.random.Generator,
    steps: int = STEPS,
    truncation: float = TRUNCATION,
    bandwidth: float | None = None,
    std: float | None = None,
) -> Array:
    """Run the algorithm once per step size, with the same noise for all of them.

    Parameters
    ----------
    X : array of shape (n, p - 1)
        Features of unit variance; a constant is put in front.
    demand : array of shape (n,)
        Demand.
    quantile, mu : float
        Service level and Gaussian DP budget.
    step_sizes : sequence of float
        Candidates; a private run has one, chosen without the data.
    rng : Generator
        Source of the noise.
    steps, truncation, bandwidth : int, float, float
        T, B and h; the printed ones by default.
    std : float
        Noise added to the SUM of gradients; the printed one by default.

    Returns
    -------
    array of shape (number of step sizes, p)
        Coefficients, intercept first.
    """
    rows = np.column_stack([np.ones(len(demand)), X])
    n, dimension = rows.shape
    width = paper_bandwidth(quantile, n, dimension) if bandwidth is None else bandwidth
    scale = noise_std(quantile, mu, steps, truncation) if std is None else std
    truncated = truncated_rows(rows, truncation)
    rates = np.asarray(step_sizes, dtype=np.float64)[:, None] / n
    beta = np.zeros((len(rates), dimension))
    for _ in range(steps):
        slopes = ndtr((beta @ rows.T - demand) / width) - quantile
        beta = beta - rates * (slopes @ truncated + scale * rng.standard_normal(dimension))
    return beta
