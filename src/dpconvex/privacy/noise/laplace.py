r"""l2-Laplace vectors, rounded to whole multiples of a grid.

``b = scale R u`` with R of law Gamma(d, 1) and u uniform on the sphere has density proportional to
``exp(-||b|| / scale)``. Both come from ideal normals: ``u = Z / ||Z||``, and R is half the sum of squares of 2d others.
Normals are drawn to 128 binary digits after the point and the rest is integer arithmetic, so that ``b / grid`` is known
to ``2^-128 * (ratio R / ||Z||) * d``: with ratio below 2^23 and d up to 10^4 it is rounded to another integer than the
ideal number with probability below 1e-25. What is left is the failure of three normals per coordinate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .words import Words

__all__ = ["rounded_l2_laplace"]


def rounded_l2_laplace(words: Words, ratio: float, size: int) -> NDArray[np.int64]:
    """Return an l2-Laplace vector of scale `ratio`, rounded to integers.

    Parameters
    ----------
    words : Words
        Where randomness comes from.
    ratio : float
        Scale in units of the grid.
    size : int
        Dimension.
    """
    from .normal import normal_digits

    drawn = normal_digits(words, 3 * size)
    direction, others = drawn[:size], drawn[size:]
    # All in units of 2^-128: radius is ratio * R, norm is ||Z||.
    numerator, denominator = ratio.as_integer_ratio()
    radius = numerator * sum(z * z for z in others) // (denominator << 129)
    norm = math.isqrt(sum(z * z for z in direction))
    half = norm << 127  # of 2^128 ||Z||: quotients are rounded to the nearest integer
    return np.array([(radius * z + half) // (2 * half) for z in direction], dtype=np.int64)
