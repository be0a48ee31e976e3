r"""Sets in which an adversary may move a row, by their smoothed support functions.

An adversary who may add any v of ``radius S`` takes ``radius sup_{v in S} v . c`` from the margin, c the coefficients
without the intercept. S is symmetric, so that both labels lose alike. Smoothed over a width w:

- ``"l2"``: ``sqrt(||c||^2 + w^2) - w``
- ``"linf"``: ``sum_j sqrt(c_j^2 + w^2) - w``; ``"box"`` with half-widths r_j: ``sum_j r_j (sqrt(c_j^2 + w^2) - w)``
- ``"hull"`` of the vectors ``+-v_k``: ``w log mean_k cosh(v_k . c / w)``; ``"l1"`` is that of the unit vectors. Any
  convex set may be given by (an outer polytope of) its extreme points, which :func:`hull_of` finds.
- ``"own"``: a smooth support function of one's own, :data:`Support`, with two constants that are declared and trusted.

All are convex, even, 0 at 0 and at most the support function; gradients are at most ``length`` long and turn by at most
``curvature / w`` (a hull's Hessian is ``1/w`` times a covariance of its vectors).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np

from dpconvex.checks import parameter_error
from dpconvex.types import Array

Shape = tuple[float, ...] | tuple[tuple[float, ...], ...]
#: Coefficients to the value, the gradient and the Hessian of a smooth support function.
Support = Callable[[Array], tuple[float, Array, Array]]

_PROBES = 64  # public directions on which a support function of one's own is tried


def _vertices(norm: str, shape: Shape | None, size: int) -> Array:
    return np.eye(size) if norm == "l1" else np.array(shape, dtype=np.float64)


def adversary_set_length(norm: str, size: int, shape: Shape | None = None) -> float:
    """Return the largest Euclidean norm of a vector of the set: of its support function's gradients, too."""
    if norm == "linf":
        return math.sqrt(size)
    if norm in ("l2", "l1"):
        return 1.0
    if norm == "own":
        return float(shape[0])  # type: ignore[index, arg-type]
    lengths = np.linalg.norm(np.array(shape, dtype=np.float64), axis=-1)
    return float(np.max(lengths)) * (1 + 1e-15)


def smoothed_adversary_support(
    coefficients: Array, norm: str, width: float, shape: Shape | None = None, support: Support | None = None
) -> tuple[float, Array, Array]:
    """Return the smoothed support function of a set at the coefficients, its gradient and its Hessian."""
    if norm == "own":
        if support is None:
            raise ValueError("The 'support' parameter must be a callable for norm='own'. Got None instead.")
        value, slope, hessian = support(coefficients)
        return float(value), np.asarray(slope, float), np.asarray(hessian, float)
    if norm in ("linf", "box"):
        sizes = np.ones(coefficients.size) if shape is None else np.array(shape, dtype=np.float64)
        root = np.hypot(coefficients, width)
        # sqrt(c^2 + w^2) - w without cancellation
        value = float(np.sum(sizes * coefficients**2 / (root + width)))
        return value, sizes * coefficients / root, np.diag(sizes * width**2 / root**3)
    if norm == "l2":
        length = math.hypot(float(np.linalg.norm(coefficients)), width)
        value = float(coefficients @ coefficients) / (length + width)
        slope = coefficients / length
        return value, slope, (np.eye(coefficients.size) - np.outer(slope, slope)) / length
    vectors = _vertices(norm, shape, coefficients.size)
    ends = vectors @ coefficients / width
    # log cosh without overflow, and weights relative to the largest.
    logs = np.abs(ends) + np.log1p(np.exp(-2 * np.abs(ends))) - math.log(2)
    largest = float(logs.max())
    weights = np.exp(logs - largest)
    value = width * (largest + math.log(float(weights.mean())))
    weights /= weights.sum()
    turned = np.tanh(ends)
    slope = vectors.T @ (weights * turned)
    hessian = (vectors.T * weights) @ vectors - np.outer(slope, slope)
    return value, slope, hessian / width


def exact_adversary_support(
    coefficients: list[Decimal], norm: str, width: Decimal, shape: Shape | None = None
) -> Decimal:
    """Return the support function of an adversary's set in the current decimal context."""
    squares = [c**2 for c in coefficients]
    if norm in ("linf", "box"):
        sizes = [Decimal(1)] * len(squares) if shape is None else [Decimal(r) for r in shape]  # type: ignore[arg-type]
        parts = zip(sizes, squares, strict=True)
        return sum((size * ((square + width**2).sqrt() - width) for size, square in parts), Decimal(0))
    if norm == "l2":
        return (sum(squares, Decimal(0)) + width**2).sqrt() - width
    vectors = _vertices(norm, shape, len(coefficients)).tolist()
    total = Decimal(0)
    for vector in vectors:
        end = sum((Decimal(v) * c for v, c in zip(vector, coefficients, strict=True)), Decimal(0)) / width
        total += (end.exp() + (-end).exp()) / 2
    return width * (total / len(vectors)).ln()


def check_support(support: Support, size: int, length: float, curvature: float) -> None:
    """Try the support function of an adversary's own set on public directions; raise where it contradicts itself.

    At 64 fixed directions c, short and long: numbers are finite; ``M(0) = 0``; ``M(-c) = M(c) >= 0``; ``M(2c) >= 2
    M(c)`` with equality in the long run (the support function itself is positively homogeneous); the midpoint of two
    directions has at most their mean; gradients are no longer than ``length`` and those of differences; Hessians have
    eigenvalues between 0 and ``curvature``. A function that passes may still be wrong elsewhere: the guarantee rests on
    convexity and on the two constants, which a certificate states as the ``shape`` of ``norm="own"``.

    Parameters
    ----------
    support : callable
        ``c -> (M(c), gradient, Hessian)``.
    size : int
        Number of columns.
    length, curvature : float
        The largest length of a gradient and the largest eigenvalue of a Hessian, as declared.

    Examples
    --------
    An ellipsoid with half-axes 1 and 2, smoothed over 0.01:

    >>> axes, width = np.array([1.0, 2.0]), 0.01
    >>> def ellipsoid(c):
    ...     root = np.sqrt((axes * c) @ (axes * c) + width**2)
    ...     slope = axes**2 * c / root
    ...     return root - width, slope, np.diag(axes**2) / root - np.outer(slope, slope) / root
    >>> check_support(ellipsoid, 2, length=2.0, curvature=400.0)
    >>> check_support(ellipsoid, 2, length=1.0, curvature=400.0)
    Traceback (most recent call last):
    ValueError: The 'support' parameter must have gradients no longer than the declared 1.0. Got a longer one instead.
    """
    rng = np.random.default_rng(0)  # public directions, the same ones always: no noise
    probes = rng.normal(size=(_PROBES, size)) * np.geomspace(1e-3, 1e3, _PROBES)[:, None]

    def require(true: object, what: str) -> None:
        if not bool(true):
            raise ValueError(f"The 'support' parameter must {what} instead.")

    def ask(c: Array) -> tuple[float, Array, Array]:
        value, slope, hessian = support(c.copy())
        slope, hessian = np.asarray(slope, np.float64), np.asarray(hessian, np.float64)
        fits = slope.shape == (size,) and hessian.shape == (size, size)
        require(fits, f"return a number, {size} and {size} x {size} numbers. Got other shapes")
        whole = np.isfinite(value) and np.isfinite(slope).all() and np.isfinite(hessian).all()
        require(whole, "be finite. Got infinities or no numbers")
        return float(value), slope, hessian

    require(abs(ask(np.zeros(size))[0]) <= 1e-12, "be 0 at 0. Got another value")
    before = probes[-1]
    for c in probes:
        value, slope, hessian = ask(c)
        scale = length * float(np.linalg.norm(c)) + 1e-12
        require(value >= -1e-9 * scale, "never be negative. Got a negative value")
        require(abs(ask(-c)[0] - value) <= 1e-9 * scale, "be even: the set is symmetric. Got another value at -c")
        require(ask(2 * c)[0] >= 2 * value - 1e-9 * scale, "be convex. Got less than twice at 2 c")
        far = 1e6 * c / float(np.linalg.norm(c))
        homogeneous = abs(ask(2 * far)[0] / 2 - ask(far)[0]) <= 1e-3 * length * 1e6
        require(homogeneous, "grow in proportion far away. Got another growth")
        middle = ask(0.5 * (c + before))[0]
        require(middle <= 0.5 * (value + ask(before)[0]) + 1e-9 * scale, "be convex. Got more in a middle")
        short = float(np.linalg.norm(slope)) <= length * (1 + 1e-9)
        require(short, f"have gradients no longer than the declared {length}. Got a longer one")
        step = 1e-5 * float(np.linalg.norm(c))
        ends = [ask(c + step * e)[0] - ask(c - step * e)[0] for e in np.eye(size)]
        error = float(np.linalg.norm(np.array(ends) / (2 * step) - slope))
        right = error <= 1e-4 * length + curvature * step
        require(right, "have the gradient it returns. Got another one by differences")
        eigenvalues = np.linalg.eigvalsh(0.5 * (hessian + hessian.T))
        curved = -1e-6 * curvature <= eigenvalues[0] and eigenvalues[-1] <= curvature * (1 + 1e-9)
        require(curved, f"have Hessians between 0 and the declared {curvature}. Got another one")
        before = c


def hull_of(support_point: Callable[[Array], Array], size: int, directions: int = 500) -> Shape:
    """Return the ``shape`` of an adversary's hull inside a convex set that is given by its support points.

    Nothing of the callable has to be trusted: its values at public directions (the axes, and random ones of a fixed
    seed) are the vectors of the hull, which certificates state. The hull lies inside the set, and fills it as
    directions become dense: for three columns 500 of them leave some percent, for many columns much more.

    Parameters
    ----------
    support_point : callable
        ``c -> v``, a point of the set with the largest ``v . c``.
    size : int
        Number of columns.
    directions : int, default=500
        At most 1000.

    Examples
    --------
    >>> axes = np.array([1.0, 2.0])
    >>> shape = hull_of(lambda c: axes**2 * c / np.linalg.norm(axes * c), 2, 100)
    >>> value, _, _ = smoothed_adversary_support(np.array([3.0, 2.0]), "hull", 1e-4, shape)
    >>> round(value, 2)  # of the ellipse: 5
    5.0
    """
    if not size <= directions <= 1000:
        raise parameter_error("directions", "hull_of", "between the number of columns and 1000", repr(directions))
    # Public directions, the same ones always: no noise.
    drawn = np.random.default_rng(0).normal(size=(directions - size, size))
    points = [np.asarray(support_point(c), np.float64) for c in np.vstack([np.eye(size), drawn])]
    if any(point.shape != (size,) or not np.isfinite(point).all() for point in points):
        raise ValueError(
            f"The 'support_point' parameter of hull_of must return {size} finite numbers. Got something else instead."
        )
    return tuple(tuple(point.tolist()) for point in points)
