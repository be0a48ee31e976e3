"""The fit without privacy: the smoothed cost minimised by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import GaussianKernel, convolve
from dpconvex.solvers import Newton
from dpconvex_reproduction.newsvendor_gdp.algorithm import paper_bandwidth

__all__ = ["smoothed_fit"]

Array = NDArray[np.float64]

# Rows as they are: far longer than any here. The penalty makes the minimiser unique and moves it by
# less than 1e-5.
_LONG = 1e6
_PENALTY = 1e-7
_TOLERANCE = 1e-8


def smoothed_fit(X: Array, demand: Array, quantile: float, unit: float = 1.0) -> Array:
    """Return the minimiser of the cost with the paper's kernel and bandwidth, intercept first.

    Parameters
    ----------
    X : array of shape (n, p - 1)
        Features; standardised here, which leaves the minimiser where it is.
    demand : array of shape (n,)
        Demand; standardised too.
    quantile : float
        Service level.
    unit : float
        What the bandwidth is in units of.
    """
    n, features = X.shape
    centre = X.mean(axis=0)
    spread = X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    middle = float(demand.mean())
    scale = float(demand.std())
    rows = MemoryRows((X - centre) / spread, demand, RowMap(features, _LONG), middle, 1 / scale)
    width = paper_bandwidth(quantile, n, features + 1) * unit / scale
    loss = convolve(Pinball(quantile), GaussianKernel(), width)
    objective = EmpiricalObjective(rows, loss, _PENALTY)
    theta = Newton().solve(objective, np.zeros(rows.dim), _TOLERANCE).point * scale
    slopes = theta[1:] / spread
    return np.concatenate([[theta[0] + middle - centre @ slopes], slopes])
