r"""Algorithm 1 with its step found on the data, as the paper runs it, and many noise draws at a
time.

The paper says that a backtracking line search chooses the step, and no more. Read here as the usual
one on the cost that is minimised: in each iteration the step starts at 4 and is halved until the
smoothed cost falls by ``step ||G||^2 / 2`` along the gradient G of truncated rows, noise left out;
the noisy gradient is then followed with that step. Nothing pays for these looks at the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.losses import Pinball
from dpconvex.smoothing import GaussianKernel, convolve
from dpconvex_reproduction.newsvendor_gdp.algorithm import (
    STEPS,
    TRUNCATION,
    paper_bandwidth,
    truncated_rows,
)

__all__ = ["FIRST_STEP", "HALVINGS", "line_search_descent"]

Array = NDArray[np.float64]

FIRST_STEP = 4.0
HALVINGS = 12  # the step that is taken when no longer one lowers the cost: 0.001


def line_search_descent(
    rows: Array,
    demand: Array,
    quantile: float,
    stds: ArrayLike,
    rng: np.random.Generator,
    *,
    start: ArrayLike = 0.0,
    steps: int = STEPS,
    truncation: float = TRUNCATION,
    bandwidth: float | None = None,
    shared_noise: bool = True,
) -> Array:
    """Run the algorithm once per noise level, steps searched on the data.

    Parameters
    ----------
    rows : array of shape (n, p)
        Rows with their constant column.
    demand : array of shape (n,)
        Demand.
    quantile : float
        Service level.
    stds : array of shape (runs,)
        Noise added to the SUM of gradients, per run.
    rng : Generator
        Source of the noise.
    start : float or array of shape (p,)
        First iterate.
    steps, truncation, bandwidth : int, float, float
        T, B and h; the printed ones by default.
    shared_noise : bool
        Whether all runs scale the same standard normal draws.

    Returns
    -------
    array of shape (runs, p)
        Last iterates, intercept first.
    """
    n, dimension = rows.shape
    width = paper_bandwidth(quantile, n, dimension) if bandwidth is None else bandwidth
    loss = convolve(Pinball(quantile), GaussianKernel(), width)
    truncated = truncated_rows(rows, truncation)
    levels = np.asarray(stds, dtype=np.float64)[:, None]
    beta = np.zeros((len(levels), dimension)) + np.asarray(start)

    def cost(points: Array) -> Array:
        return np.asarray(np.asarray(loss.value(demand, points @ rows.T)).mean(axis=1))

    for _ in range(steps):
        gradient = np.asarray(loss.gradient(demand, beta @ rows.T)) @ truncated / n
        now = cost(beta)
        squared = (gradient**2).sum(axis=1)
        step = np.full(len(beta), FIRST_STEP)
        waiting = np.arange(len(beta))
        for _ in range(HALVINGS):
            tried = step[waiting]
            there = cost(beta[waiting] - tried[:, None] * gradient[waiting])
            waiting = waiting[there > now[waiting] - tried * squared[waiting] / 2]
            if not len(waiting):
                break
            step[waiting] /= 2
        draws = rng.standard_normal(dimension if shared_noise else beta.shape)
        beta = beta - step[:, None] * (gradient + levels * draws / n)
    return np.asarray(beta)
