r"""l2-Laplace vectors, rounded to whole multiples of a grid.

``b = scale R u`` with R of law Gamma(d, 1) and u uniform on the sphere has density proportional to
``exp(-||b|| / scale)``. Both come from ideal normals: ``u = Z / ||Z||``, and R is half the sum of squares of 2d others.
Normals are drawn to 192 binary digits after the point, the rest is integer arithmetic between a lower and an upper end,
and where these leave the nearest integer open, further digits are drawn. What is left is the failure of three normals
per coordinate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.noise.random_words import Words

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
    from dpconvex.privacy.noise.normal import normal_digits

    signs, drawn = normal_digits(words, 3 * size)
    bits = 192
    while True:
        low, high = (_rounded(drawn, ratio, size, bits, upper) for upper in (0, 1))
        if low == high:
            break
        further = words.take(3 * size).tolist()
        drawn = [(z << 64) + word for z, word in zip(drawn, further, strict=True)]
        bits += 64
    cells = [-cell if sign else cell for sign, cell in zip(signs[:size], low, strict=True)]
    return np.array(cells, dtype=np.int64)


def _rounded(drawn: list[int], ratio: float, size: int, bits: int, upper: int) -> list[int]:
    """Return ``round(ratio R |z| / ||Z||)`` with every rounding, of digits too, downwards (0) or upwards (1).

    The first `size` of the sizes z, all in units of ``2^-bits``, give the direction and the others R.
    """
    direction, others = drawn[:size], drawn[size:]
    squares = sum((z + upper) ** 2 for z in others)  # 2 R, in units of 2^-2 bits
    norm = math.isqrt(sum((z + 1 - upper) ** 2 for z in direction)) + 1 - upper
    if norm == 0:
        return [-1] * size  # no upper end: more digits
    numerator, denominator = ratio.as_integer_ratio()
    whole = (denominator * norm) << (2 * bits + 1)
    # floor(v + 1/2); v stays below the upper end, so that an end on an edge counts as before it.
    factor, half, unit = 2 * numerator * squares, whole - upper, 2 * whole
    return [(factor * (z + upper) + half) // unit for z in direction]
