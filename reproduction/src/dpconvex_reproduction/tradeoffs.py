r"""Products of trade-off functions, ``f (x) g``, and the Gaussian DP limit of mini-batch SGD.

A trade-off function f gives the least type II error at each type I error. It is that of a uniform
law against one of density ``-f'``; the product of two is the trade-off function of both pairs
together (newsvendor-gdp, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Tradeoff = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def tradeoff_product(
    f: Tradeoff, g: Tradeoff, type_one: float, points: int = 1500
) -> tuple[float, float]:
    """Return numbers between which ``(f (x) g)(type_one)`` lies.

    Chords of f and g on an even grid lie above them, chords moved by one cell to the left below.
    Each has finitely many likelihood ratios, and the best test rejects the largest of their
    products first (Neyman and Pearson).

    Parameters
    ----------
    f, g : callable
        Trade-off functions of arrays: convex, falling, at most ``1 - type_one``.
    type_one : float
        Type I error.
    points : int
        Cells of the grid; the answer's width falls with their number.
    """
    grid = np.arange(points + 1) / points
    ends = []
    for moved in (1, 0):
        ratios = []
        masses = []
        lost = 0.0
        for function in (f, g):
            values = function(np.minimum(grid + moved / points, 1.0))
            ratios.append(np.diff(values) * -points)
            masses.append(-np.diff(values))
            lost += (1 - lost) * (
                1 - float(values[0])
            )  # under the second law alone: always rejected
        product = np.outer(*ratios).ravel()
        order = np.argsort(-product, kind="stable")
        power = np.cumsum(np.outer(*masses).ravel()[order])
        error = np.arange(1, order.size + 1) / points**2
        ends.append(
            max(
                0.0,
                1 - lost - float(np.interp(type_one, np.append(0.0, error), np.append(0.0, power))),
            )
        )
    return ends[0], ends[1]


def sgd_limit_mu(rate: float, steps: int, multiplier: float) -> float:
    r"""Return the mu of Gaussian DP that mini-batch SGD tends to as ``rate sqrt(steps)`` stays and
    steps grow.

    ``rate sqrt(2 T (e^{1/s^2} Phi(1.5/s) + 3 Phi(-0.5/s) - 2))`` with s the standard deviation over
    the sensitivity: ``rate^2 T`` times the variance of a step's likelihood ratio. A limit, not a
    certificate: at any finite number of steps the true trade-off function may lie on either side.
    What is certified is :mod:`dpconvex.privacy.subsampling`, and NoisySGD offers no Gaussian DP.

    Parameters
    ----------
    rate, steps, multiplier : float, int, float
        Share of the records in a batch, number of steps, and s.

    Examples
    --------
    >>> round(sgd_limit_mu(1e-3, 10**6, 4.0), 4)
    0.278
    """
    inverse = 1 / multiplier
    second = math.exp(inverse**2) * ndtr(1.5 * inverse) + 3 * ndtr(-0.5 * inverse) - 2
    return float(rate * math.sqrt(2 * steps * second))
