r"""Sets in which an adversary may move a row, by their smoothed support functions.

An adversary who may add any v of ``radius S`` takes ``radius sup_{v in S} v . c`` from the margin,
c the coefficients without the intercept. S is symmetric, so that both labels lose alike. Smoothed
over a width w:

- ``"l2"``: ``sqrt(||c||^2 + w^2) - w``
- ``"linf"``: ``sum_j sqrt(c_j^2 + w^2) - w``; ``"box"`` with half-widths r_j:
  ``sum_j r_j (sqrt(c_j^2 + w^2) - w)``
- ``"hull"`` of the vectors ``+-v_k``: ``w log mean_k cosh(v_k . c / w)``; ``"l1"`` is that of the
  unit vectors. Any convex set may be given by (an outer polytope of) its extreme points, which
  :func:`hull_of` finds.

All are convex, even, 0 at 0 and at most the support function; gradients are at most ``length`` long
and turn by at most ``curvature / w`` (a hull's Hessian is ``1/w`` times a covariance of its
vectors).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np

from dpconvex.core.checks import parameter_error
from dpconvex.types import Array

Shape = tuple[float, ...] | tuple[tuple[float, ...], ...]


def _vertices(norm: str, shape: Shape | None, size: int) -> Array:
    return np.eye(size) if norm == "l1" else np.array(shape, dtype=np.float64)


def adversary_set_length(norm: str, size: int, shape: Shape | None = None) -> float:
    """Return the largest Euclidean norm of a vector of the set: of its support function's
    gradients, too.
    """
    if norm == "linf":
        return math.sqrt(size)
    if norm in ("l2", "l1"):
        return 1.0
    lengths = np.linalg.norm(np.array(shape, dtype=np.float64), axis=-1)
    return float(np.max(lengths)) * (1 + 1e-15)


def smoothed_adversary_support(
    coefficients: Array, norm: str, width: float, shape: Shape | None = None
) -> tuple[float, Array, Array]:
    """Return the smoothed support function of a set at the coefficients, its gradient and its
    Hessian.
    """
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
        return sum(
            (size * ((square + width**2).sqrt() - width) for size, square in parts), Decimal(0)
        )
    if norm == "l2":
        return (sum(squares, Decimal(0)) + width**2).sqrt() - width
    vectors = _vertices(norm, shape, len(coefficients)).tolist()
    total = Decimal(0)
    for vector in vectors:
        end = (
            sum((Decimal(v) * c for v, c in zip(vector, coefficients, strict=True)), Decimal(0))
            / width
        )
        total += (end.exp() + (-end).exp()) / 2
    return width * (total / len(vectors)).ln()


def hull_of(support_point: Callable[[Array], Array], size: int, directions: int = 500) -> Shape:
    """Return the ``shape`` of an adversary's hull inside a convex set that is given by its support
    points.

    Nothing of the callable has to be trusted: its values at public directions (the axes, and random
    ones of a fixed seed) are the vectors of the hull, which certificates state. The hull lies
    inside the set, and fills it as directions become dense: for three columns 500 of them leave
    some percent, for many columns much more.

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
        raise parameter_error(
            "directions", "hull_of", "between the number of columns and 1000", repr(directions)
        )
    # Public directions, the same ones always: no noise.
    drawn = np.random.default_rng(0).normal(size=(directions - size, size))
    points = [np.asarray(support_point(c), np.float64) for c in np.vstack([np.eye(size), drawn])]
    if any(point.shape != (size,) or not np.isfinite(point).all() for point in points):
        raise ValueError(
            f"The 'support_point' parameter of hull_of must return {size} finite numbers. Got "
            "something else instead."
        )
    return tuple(tuple(point.tolist()) for point in points)
