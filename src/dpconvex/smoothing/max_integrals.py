r"""Expected maxima of a few independent normal shifts, as compiled one-dimensional integrals.

Group k contributes ``max(rise_k x + high_k, -fall_k x + low_k)`` at ``x = t_k + h v_k``, the ``v_k`` independent and
standard normal, and the floor contributes a constant. With ``F(s)`` the probability that the maximum is at most s, a
product over groups of differences of normal distribution functions,

    E max = L + int_L^U (1 - F(s)) ds,

where only the tails of the normal law beyond ``reach`` are left out. Derivatives in ``t`` are integrals of the same
products.
Imported lazily: numba takes a while to load.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from scipy.special import ndtr

from dpconvex.types import Array

__all__ = ["expected_max"]


_ROOT_HALF = math.sqrt(0.5)
_PEAK = 1.0 / math.sqrt(2.0 * math.pi)


@numba.njit(inline="always")
def _cdf(x: float) -> float:
    return 0.5 * math.erfc(-x * _ROOT_HALF)


@numba.njit(inline="always")
def _pdf(x: float) -> float:
    return _PEAK * math.exp(-0.5 * x * x)


# Distribution function and density on a grid; between its points Taylor's series of degree 5, good to 1e-16, costs a
# fraction of the error function.
_GRID, _LARGEST = 64.0, 9
_POINTS = np.arange(-_LARGEST * 64, _LARGEST * 64 + 1) / _GRID
_CDF_TABLE = ndtr(_POINTS)
_PDF_TABLE = _PEAK * np.exp(-0.5 * _POINTS**2)


@numba.njit(inline="always")
def _both(x: float) -> tuple[float, float]:
    """Return distribution function and density at ``|x| < 9``."""
    index = math.floor(x * _GRID + 0.5)
    a = index / _GRID
    e = x - a
    place = index + _LARGEST * 64
    peak = _PDF_TABLE[place]
    a2 = a * a
    h2 = a2 - 1.0  # Hermite polynomials: the derivatives of the density
    h3 = a * (a2 - 3.0)
    h4 = a2 * (a2 - 6.0) + 3.0
    h5 = a * (a2 * (a2 - 10.0) + 15.0)
    slope = 1.0 + e * (-a + e * (h2 / 2 + e * (-h3 / 6 + e * (h4 / 24 - e * h5 / 120))))
    area = 1.0 + e * (-a / 2 + e * (h2 / 6 + e * (-h3 / 24 + e * (h4 / 120 - e * h5 / 720))))
    return _CDF_TABLE[place] + peak * e * area, peak * slope


@numba.njit(nogil=True, cache=True)
def expected_max(
    t: Array,
    floor: Array,
    rise: Array,
    high: Array,
    fall: Array,
    low: Array,
    bandwidth: float,
    reach: float,
    panel: float,
    nodes: Array,
    weights: Array,
    order: int,
    value: Array,
    gradient: Array,
    hessian: Array,
) -> None:
    """Fill value, and for ``order`` 1 and 2 gradient and Hessian in ``t``, of every record.

    Parameters
    ----------
    t, floor : arrays of shape (n, K) and (n,)
        Positions and floors.
    rise, high, fall, low : arrays of shape (K,)
        Lines of the groups; a slope of 0 says there is none.
    bandwidth, reach, panel : float
        h; normal deviations kept on each side; largest length of a panel in deviations of the slowest group.
    nodes, weights : arrays
        Gauss-Legendre rule on [-1, 1].
    order : {0, 1, 2}
        How many derivatives.
    value, gradient, hessian : arrays of shape (n,), (n, K), (n, K, K)
        Results.
    """
    n, groups = t.shape
    h = bandwidth
    lower = np.empty(groups)
    upper = np.empty(groups)
    active = np.empty(groups, np.int64)
    mass = np.empty(groups)
    slope = np.empty(groups)
    bend = np.empty(groups)
    for i in range(n):
        start = floor[i]
        stop = floor[i]
        for k in range(groups):
            gradient[i, k] = 0.0
            for j in range(groups):
                hessian[i, k, j] = 0.0
            left, right = t[i, k] - reach * h, t[i, k] + reach * h
            if rise[k] > 0.0 and fall[k] > 0.0:
                bottom = (low[k] - high[k]) / (rise[k] + fall[k])
                bottom = min(max(bottom, left), right)
                lower[k] = max(rise[k] * bottom + high[k], low[k] - fall[k] * bottom)
                upper[k] = max(rise[k] * right + high[k], low[k] - fall[k] * left)
            elif rise[k] > 0.0:
                lower[k] = rise[k] * left + high[k]
                upper[k] = rise[k] * right + high[k]
            else:
                lower[k] = low[k] - fall[k] * right
                upper[k] = low[k] - fall[k] * left
            start = max(start, lower[k])
            stop = max(stop, upper[k])
        count = 0
        slowest = math.inf
        for k in range(groups):
            if upper[k] >= start:
                active[count] = k
                count += 1
                if rise[k] > 0.0:
                    slowest = min(slowest, rise[k])
                if fall[k] > 0.0:
                    slowest = min(slowest, fall[k])
        if count == 0:
            value[i] = floor[i]
            continue
        if count == 1 and floor[i] <= lower[active[0]]:
            k = active[0]
            x = t[i, k]
            if rise[k] > 0.0 and fall[k] > 0.0:
                jump = rise[k] + fall[k]
                z = (x - (low[k] - high[k]) / jump) / h
                if z > 0.0:  # from the side where the smoothed loss is nearly linear
                    tail = h * (_pdf(z) - z * _cdf(-z))
                    value[i] = rise[k] * x + high[k] + jump * tail
                    gradient[i, k] = rise[k] - jump * _cdf(-z)
                else:
                    tail = h * (_pdf(z) + z * _cdf(z))
                    value[i] = low[k] - fall[k] * x + jump * tail
                    gradient[i, k] = jump * _cdf(z) - fall[k]
                hessian[i, k, k] = jump * _pdf(z) / h
            elif rise[k] > 0.0:
                value[i] = rise[k] * x + high[k]
                gradient[i, k] = rise[k]
            else:
                value[i] = low[k] - fall[k] * x
                gradient[i, k] = -fall[k]
            continue
        panels = max(1, math.ceil((stop - start) / (panel * h * slowest)))
        half = 0.5 * (stop - start) / panels
        total = 0.0
        for p in range(panels):
            middle = start + (2 * p + 1) * half
            for q in range(nodes.size):
                s = middle + half * nodes[q]
                weight = half * weights[q]
                product = 1.0
                for c in range(count):
                    k = active[c]
                    above, density, turn = 1.0, 0.0, 0.0
                    if rise[k] > 0.0:
                        r = ((s - high[k]) / rise[k] - t[i, k]) / h
                        if r <= -reach:
                            above = 0.0
                        elif r < reach:  # beyond it the distribution function is 1
                            above, density = _both(r)
                            turn = r * density
                    if fall[k] > 0.0:
                        r = ((low[k] - s) / fall[k] - t[i, k]) / h
                        if r >= reach:
                            above -= 1.0
                        elif r > -reach:
                            below, edge = _both(r)
                            above -= below
                            density -= edge
                            turn -= r * edge
                    mass[c] = above
                    slope[c] = density / h
                    bend[c] = turn / (h * h)
                    product *= above
                total += weight * (1.0 - product)
                if order == 0:
                    continue
                for c in range(count):
                    others = 1.0
                    for e in range(count):
                        if e != c:
                            others *= mass[e]
                    k = active[c]
                    gradient[i, k] += weight * others * slope[c]
                    if order < 2:
                        continue
                    hessian[i, k, k] += weight * others * bend[c]
                    for d in range(c):
                        rest = 1.0
                        for e in range(count):
                            if e != c and e != d:
                                rest *= mass[e]
                        hessian[i, k, active[d]] -= weight * rest * slope[c] * slope[d]
        value[i] = start + total
        for c in range(count):
            for d in range(c):
                hessian[i, active[d], active[c]] = hessian[i, active[c], active[d]]
