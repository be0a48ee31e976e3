r"""Expected maxima of affine functions under a normal shift, as compiled integrals over lines.

Along independent directions (:func:`expected_max_integral`), group k contributes
``max(rise_k x + high_k, -fall_k x + low_k)`` at ``x = t_k + h v_k``, the ``v_k`` independent and
standard normal, and the floor contributes a constant. With ``F(s)`` the probability that the
maximum is at most s, a product over groups of differences of normal distribution functions,

    E max = L + int_L^U (1 - F(s)) ds,

where only the tails of the normal law beyond ``reach`` are left out. Derivatives in ``t`` are
integrals of the same products.

In two or three dimensions (:func:`facet_integral_sums`) let v be standard normal around u, in units
of the bandwidth, and take a facet at signed distance d from u. The density is the divergence of a
radial field, so the probability of a cell is a sum over its facets, and of a facet over its edges.
With an edge at signed distance e within the plane of the facet and s the position along it,

    plane: d int (1 - exp(-(d^2 + s^2) / 2)) / (2 pi (d^2 + s^2)) ds over the facet, space: d int e
    (E(d) - E(R)) / (4 pi (e^2 + s^2)) ds + d E(d) arc / (4 pi) over each edge,

``E(r) = erf(r / sqrt 2) / r``, ``R^2 = d^2 + e^2 + s^2``. The integrands are entire functions of s;
beyond ``reach``, where E(R) is 1/R and the exponential is 0 to 7e-14, they have closed integrals.
Value and Hessian need the density on the facet, ``pdf(d)`` times the normal measure of a segment or
of a polygon, whose line integral is that of the plane. Imported lazily: numba takes a while to
load.
"""

import math

import numba
import numpy as np
from scipy.special import ndtr

from dpconvex.types import Array

_ROOT_HALF = math.sqrt(0.5)
_PEAK = 1.0 / math.sqrt(2.0 * math.pi)


@numba.njit(inline="always")
def _cdf(x: float) -> float:
    return 0.5 * math.erfc(-x * _ROOT_HALF)


@numba.njit(inline="always")
def _pdf(x: float) -> float:
    return _PEAK * math.exp(-0.5 * x * x)


# Distribution function and density on a grid; between its points Taylor's series of degree 5, good
# to 1e-16, costs a fraction of the error function.
_GRID = 64.0
_LARGEST = 9
_POINTS = np.arange(-_LARGEST * 64, _LARGEST * 64 + 1) / _GRID
_CDF_TABLE = ndtr(_POINTS)
_PDF_TABLE = _PEAK * np.exp(-0.5 * _POINTS**2)


@numba.njit(inline="always")
def _integral_cdf_and_pdf(x: float) -> tuple[float, float]:
    """Return distribution function and density at ``|x| < 9``."""
    index = math.floor(x * _GRID + 0.5)
    a = index / _GRID
    e = x - a
    entry = index + _LARGEST * 64
    peak = _PDF_TABLE[entry]
    a2 = a * a
    h2 = a2 - 1.0  # Hermite polynomials: the derivatives of the density
    h3 = a * (a2 - 3.0)
    h4 = a2 * (a2 - 6.0) + 3.0
    h5 = a * (a2 * (a2 - 10.0) + 15.0)
    slope = 1.0 + e * (-a + e * (h2 / 2 + e * (-h3 / 6 + e * (h4 / 24 - e * h5 / 120))))
    area = 1.0 + e * (-a / 2 + e * (h2 / 6 + e * (-h3 / 24 + e * (h4 / 120 - e * h5 / 720))))
    return _CDF_TABLE[entry] + peak * e * area, peak * slope


@numba.njit(nogil=True, cache=True)
def expected_max_integral(
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
    """Fill value (n,), and for ``order`` 1 and 2 gradient (n, K) and Hessian (n, K, K) in ``t``, of
    every record.

    Positions ``t`` (n, K) and floors (n,) are the records'; lines (K,) those of the groups, where a
    slope of 0 says there is none. ``reach`` normal deviations are kept on each side; ``panel`` is
    the largest length of a panel in deviations of the slowest group; nodes and weights are a
    Gauss-Legendre rule on [-1, 1].
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
        gradient[i] = 0.0
        hessian[i] = 0.0
        for k in range(groups):
            left = t[i, k] - reach * h
            right = t[i, k] + reach * h
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
                    above = 1.0
                    density = 0.0
                    turn = 0.0
                    if rise[k] > 0.0:
                        r = ((s - high[k]) / rise[k] - t[i, k]) / h
                        if r <= -reach:
                            above = 0.0
                        elif r < reach:  # beyond it the distribution function is 1
                            above, density = _integral_cdf_and_pdf(r)
                            turn = r * density
                    if fall[k] > 0.0:
                        r = ((low[k] - s) / fall[k] - t[i, k]) / h
                        if r >= reach:
                            above -= 1.0
                        elif r > -reach:
                            below, edge = _integral_cdf_and_pdf(r)
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


_SMALL = 0.02  # of e^2 + s^2: below it differences lose digits and a series is used
_T, _W = np.polynomial.legendre.leggauss(32)
_T = 0.5 * (_T + 1.0)
_W = 0.5 * _W * math.sqrt(2.0 / math.pi)


@numba.njit(inline="always")
def _erf_over_radius(r: float) -> float:
    """``erf(r / sqrt 2) / r``."""
    if abs(r) < 1e-4:
        return 2.0 * _PEAK * (1.0 - r * r / 6.0)
    return math.erf(r * _ROOT_HALF) / r


@numba.njit
def _gaussian_ball_integrals(d: float, out: Array) -> None:
    """``sqrt(2/pi) int_0^1 t^(2k) exp(-d^2 t^2 / 2) dt``: the derivatives of E in the square of
    its argument.
    """
    for k in range(out.size):
        out[k] = 0.0
    for i in range(_T.size):
        square = _T[i] * _T[i]
        weight = _W[i] * math.exp(-0.5 * d * d * square)
        for k in range(out.size):
            out[k] += weight
            weight *= square


@numba.njit(inline="always")
def _one_minus_exp_over(x: float) -> float:
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
def _corner_angle(d: float, e: float, s: float) -> float:
    """``atan(d s / (e R))``."""
    if math.isinf(s):
        return math.atan(d / e) if s > 0 else -math.atan(d / e)
    return math.atan(d * s / (e * math.sqrt(d * d + e * e + s * s)))


@numba.njit
def _far_shell(d: float, e: float, low: float, high: float) -> float:
    """``d int e (E(d) - 1/R) / (e^2 + s^2) ds``."""
    if e == 0.0:
        return 0.0
    return d * _erf_over_radius(d) * _far_disc(e, low, high) - (
        _corner_angle(d, e, high) - _corner_angle(d, e, low)
    )


@numba.njit
def _edge_integrals(
    d: float,
    e: float,
    low: float,
    high: float,
    reach: float,
    panel: float,
    nodes: Array,
    weights: Array,
    moments: Array,
    space: bool,
) -> tuple[float, float]:
    """Return ``2 pi`` times the plane's integral, and ``4 pi`` times that of space with its
    factor d, over one edge.
    """
    # The first is that of distance e: in the plane the caller passes its d as e.
    disc = 0.0
    shell = 0.0
    near_disc = e * e < reach * reach
    near_shell = d * d + e * e < reach * reach
    left = max(low, -reach)
    right = min(high, reach)
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
    own = _erf_over_radius(d)
    for p in range(panels):
        middle = left + (2 * p + 1) * half
        for q in range(nodes.size):
            s = middle + half * nodes[q]
            weight = half * weights[q]
            x = e * e + s * s
            disc += weight * e * _one_minus_exp_over(x)
            if space and near_shell:
                if x < _SMALL:
                    total = 0.0
                    factor = 0.5
                    for k in range(1, moments.size):
                        total += factor * moments[k]
                        factor *= -0.5 * x / (k + 1)
                else:
                    total = (own - _erf_over_radius(math.sqrt(d * d + x))) / x
                shell += weight * d * e * total
    return disc, shell


@numba.njit(nogil=True, cache=True)
def facet_integral_sums(
    x: Array,
    scale: Array,
    normals: Array,
    offsets: Array,
    jumps: Array,
    arcs: Array,
    edges: Array,
    reach: float,
    panel: float,
    nodes: Array,
    weights: Array,
    slopes: Array,
    constants: Array,
    heights: Array,
    bends: Array,
) -> None:
    """Add up the contributions of facets to every record, in units of the bandwidth.

    Positions ``x`` (n, r) and factors ``scale`` (n,) on the facets
    (:class:`~dpconvex.losses.max_affine.MaxAffineFacets`) are in units of the bandwidth. Results:
    ``slopes`` (n, r), the mean slope less its value at infinity; ``constants`` (n,), the mean
    offset likewise (of unscaled facets); ``heights`` (n,), ``sum jump pdf(d) measure``; ``bends``
    (n, r, r), the Hessian times the bandwidth.
    """
    n, size = x.shape
    count = len(offsets)
    moments = np.empty(8)
    for i in range(n):
        slopes[i] = 0.0
        bends[i] = 0.0
        constants[i] = 0.0
        heights[i] = 0.0
        start = 0
        for f in range(count):
            d = offsets[f] * scale[i]
            for a in range(size):
                d -= normals[f, a] * x[i, a]
            flux = 0.0
            measure = 0.0
            if size == 2:
                position = normals[f, 0] * x[i, 1] - normals[f, 1] * x[i, 0]
                low = edges[f, 5] * scale[i] if not math.isinf(edges[f, 5]) else edges[f, 5]
                high = edges[f, 6] * scale[i] if not math.isinf(edges[f, 6]) else edges[f, 6]
                low = low - position
                high = high - position
                disc, _ = _edge_integrals(
                    0.0, d, low, high, reach, panel, nodes, weights, moments, False
                )
                flux = disc / (2.0 * math.pi)
                if d * d < 1600.0:
                    # From the side of the smaller tail: no digits are lost far away.
                    measure = _cdf(-low) - _cdf(-high) if low > 0 else _cdf(high) - _cdf(low)
            else:
                near = d * d < reach * reach
                if near:
                    _gaussian_ball_integrals(d, moments)
                flux = d * _erf_over_radius(d) * arcs[f]
                measure = arcs[f]
                while start < len(edges) and edges[start, 0] == f:
                    e = edges[start, 4] * scale[i]
                    position = 0.0
                    for a in range(3):
                        b = (a + 1) % 3
                        c = (a + 2) % 3
                        along = (
                            normals[f, b] * edges[start, 1 + c]
                            - normals[f, c] * edges[start, 1 + b]
                        )
                        e -= edges[start, 1 + a] * x[i, a]
                        position += along * x[i, a]
                    low = edges[start, 5]
                    high = edges[start, 6]
                    low = (low * scale[i] if not math.isinf(low) else low) - position
                    high = (high * scale[i] if not math.isinf(high) else high) - position
                    disc, shell = _edge_integrals(
                        d, e, low, high, reach, panel, nodes, weights, moments, True
                    )
                    flux += shell
                    measure += disc
                    start += 1
                flux /= 4.0 * math.pi
                measure /= 2.0 * math.pi
            density = _PEAK * math.exp(-0.5 * d * d) * measure if d * d < 1600.0 else 0.0
            constants[i] += offsets[f] * jumps[f] * flux
            heights[i] += jumps[f] * density
            for a in range(size):
                slopes[i, a] -= jumps[f] * normals[f, a] * flux
                for b in range(size):
                    bends[i, a, b] += jumps[f] * density * normals[f, a] * normals[f, b]
