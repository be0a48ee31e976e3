r"""Expected maxima of affine functions under a normal shift in two or three dimensions, as compiled line integrals.

Let v be standard normal around u, in units of the bandwidth, and take a facet at signed distance d from u. The density
is the divergence of a radial field, so the probability of a cell is a sum over its facets, and of a facet over its
edges. With an edge at signed distance e within the plane of the facet and s the position along it,

    plane:  d int (1 - exp(-(d^2 + s^2) / 2)) / (2 pi (d^2 + s^2)) ds                          over the facet,
    space:  d int e (E(d) - E(R)) / (4 pi (e^2 + s^2)) ds + d E(d) arc / (4 pi)                over each edge,

``E(r) = erf(r / sqrt 2) / r``, ``R^2 = d^2 + e^2 + s^2``. The integrands are entire functions of s; beyond ``reach``,
where E(R) is 1/R and the exponential is 0 to 7e-14, they have closed integrals. Value and Hessian need the density on
the facet, ``pdf(d)`` times the normal measure of a segment or of a polygon, whose line integral is that of the plane.
Imported lazily: numba takes a while to load.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from dpconvex.types import Array

__all__ = ["facet_sums"]


_ROOT_HALF = math.sqrt(0.5)
_PEAK = 1.0 / math.sqrt(2.0 * math.pi)
_SMALL = 0.02  # of e^2 + s^2: below it differences lose digits and a series is used
_T, _W = np.polynomial.legendre.leggauss(32)
_T, _W = 0.5 * (_T + 1.0), 0.5 * _W * math.sqrt(2.0 / math.pi)


@numba.njit(inline="always")
def _cdf(x: float) -> float:
    return 0.5 * math.erfc(-x * _ROOT_HALF)


@numba.njit(inline="always")
def _shell(r: float) -> float:
    """``erf(r / sqrt 2) / r``."""
    if abs(r) < 1e-4:
        return 2.0 * _PEAK * (1.0 - r * r / 6.0)
    return math.erf(r * _ROOT_HALF) / r


@numba.njit
def _moments(d: float, out: Array) -> None:
    """``sqrt(2/pi) int_0^1 t^(2k) exp(-d^2 t^2 / 2) dt``: the derivatives of E in the square of its argument."""
    for k in range(out.size):
        out[k] = 0.0
    for i in range(_T.size):
        square = _T[i] * _T[i]
        weight = _W[i] * math.exp(-0.5 * d * d * square)
        for k in range(out.size):
            out[k] += weight
            weight *= square


@numba.njit(inline="always")
def _disc(x: float) -> float:
    """``(1 - exp(-x / 2)) / x``."""
    if x < 1e-8:
        return 0.5 - 0.125 * x
    return -math.expm1(-0.5 * x) / x


@numba.njit
def _far_disc(e: float, low: float, high: float) -> float:
    """``int e / (e^2 + s^2) ds``."""
    if e == 0.0:
        return 0.0
    return math.atan(high / e) - math.atan(low / e)


@numba.njit(inline="always")
def _turn(d: float, e: float, s: float) -> float:
    """``atan(d s / (e R))``."""
    if math.isinf(s):
        return math.atan(d / e) if s > 0 else -math.atan(d / e)
    return math.atan(d * s / (e * math.sqrt(d * d + e * e + s * s)))


@numba.njit
def _far_shell(d: float, e: float, low: float, high: float) -> float:
    """``d int e (E(d) - 1/R) / (e^2 + s^2) ds``."""
    if e == 0.0:
        return 0.0
    return d * _shell(d) * _far_disc(e, low, high) - (_turn(d, e, high) - _turn(d, e, low))


@numba.njit
def _edge(
    d: float, e: float, low: float, high: float, reach: float, panel: float, nodes: Array, weights: Array,
    moments: Array, space: bool,
) -> tuple[float, float]:  # fmt: skip
    """Return ``2 pi`` times the plane's integral, and ``4 pi`` times that of space with its factor d, over one edge.

    The first is that of distance e: in the plane the caller passes its d as e.
    """
    disc, shell = 0.0, 0.0
    near_disc, near_shell = e * e < reach * reach, d * d + e * e < reach * reach
    left, right = max(low, -reach), min(high, reach)
    if not near_disc or left >= right:
        disc = _far_disc(e, low, high)
    if space and (not near_shell or left >= right):
        shell = _far_shell(d, e, low, high)
    if not near_disc or left >= right:
        return disc, shell
    if low < left:
        disc += _far_disc(e, low, left)
        if space and near_shell:
            shell += _far_shell(d, e, low, left)
    if right < high:
        disc += _far_disc(e, right, high)
        if space and near_shell:
            shell += _far_shell(d, e, right, high)
    panels = math.ceil((right - left) / panel)
    half = 0.5 * (right - left) / panels
    own = _shell(d)
    for p in range(panels):
        middle = left + (2 * p + 1) * half
        for q in range(nodes.size):
            s = middle + half * nodes[q]
            weight = half * weights[q]
            x = e * e + s * s
            disc += weight * e * _disc(x)
            if space and near_shell:
                if x < _SMALL:
                    total, factor = 0.0, 0.5
                    for k in range(1, moments.size):
                        total += factor * moments[k]
                        factor *= -0.5 * x / (k + 1)
                else:
                    total = (own - _shell(math.sqrt(d * d + x))) / x
                shell += weight * d * e * total
    return disc, shell


@numba.njit(nogil=True, cache=True)
def facet_sums(
    x: Array, scale: Array, normals: Array, places: Array, jumps: Array, arcs: Array, edges: Array,
    reach: float, panel: float, nodes: Array, weights: Array,
    slopes: Array, constants: Array, heights: Array, bends: Array,
) -> None:  # fmt: skip
    """Add up what facets contribute to every record, in units of the bandwidth.

    Parameters
    ----------
    x, scale : arrays of shape (n, r) and (n,)
        Positions, and the factor by which the facets are stretched, both in units of the bandwidth.
    normals, places, jumps, arcs, edges : arrays
        See :class:`~dpconvex.losses.facets.Facets`.
    reach, panel : float
        Deviations kept by the rule, and largest length of a panel.
    nodes, weights : arrays
        Gauss-Legendre rule on [-1, 1].
    slopes, constants, heights, bends : arrays of shape (n, r), (n,), (n,), (n, r, r)
        Results: the mean slope less its value at infinity, the mean offset likewise (of unstretched facets),
        ``sum jump pdf(d) measure``, and the Hessian times the bandwidth.
    """
    n, size = x.shape
    count = len(places)
    moments = np.empty(8)
    for i in range(n):
        for a in range(size):
            slopes[i, a] = 0.0
            for b in range(size):
                bends[i, a, b] = 0.0
        constants[i] = 0.0
        heights[i] = 0.0
        start = 0
        for f in range(count):
            d = places[f] * scale[i]
            for a in range(size):
                d -= normals[f, a] * x[i, a]
            flux, measure = 0.0, 0.0
            if size == 2:
                position = normals[f, 0] * x[i, 1] - normals[f, 1] * x[i, 0]
                low = edges[f, 5] * scale[i] if not math.isinf(edges[f, 5]) else edges[f, 5]
                high = edges[f, 6] * scale[i] if not math.isinf(edges[f, 6]) else edges[f, 6]
                low, high = low - position, high - position
                disc, _ = _edge(0.0, d, low, high, reach, panel, nodes, weights, moments, False)
                flux = disc / (2.0 * math.pi)
                if d * d < 1600.0:
                    # From the side of the smaller tail: no digits are lost far away.
                    measure = _cdf(-low) - _cdf(-high) if low > 0 else _cdf(high) - _cdf(low)
            else:
                near = d * d < reach * reach
                if near:
                    _moments(d, moments)
                flux = d * _shell(d) * arcs[f]
                measure = arcs[f]
                while start < len(edges) and edges[start, 0] == f:
                    e = edges[start, 4] * scale[i]
                    position = 0.0
                    for a in range(3):
                        b, c = (a + 1) % 3, (a + 2) % 3
                        along = normals[f, b] * edges[start, 1 + c] - normals[f, c] * edges[start, 1 + b]
                        e -= edges[start, 1 + a] * x[i, a]
                        position += along * x[i, a]
                    low, high = edges[start, 5], edges[start, 6]
                    low = (low * scale[i] if not math.isinf(low) else low) - position
                    high = (high * scale[i] if not math.isinf(high) else high) - position
                    disc, shell = _edge(d, e, low, high, reach, panel, nodes, weights, moments, True)
                    flux += shell
                    measure += disc
                    start += 1
                flux /= 4.0 * math.pi
                measure /= 2.0 * math.pi
            density = _PEAK * math.exp(-0.5 * d * d) * measure if d * d < 1600.0 else 0.0
            constants[i] += places[f] * jumps[f] * flux
            heights[i] += jumps[f] * density
            for a in range(size):
                slopes[i, a] -= jumps[f] * normals[f, a] * flux
                for b in range(size):
                    bends[i, a, b] += jumps[f] * density * normals[f, a] * normals[f, b]
