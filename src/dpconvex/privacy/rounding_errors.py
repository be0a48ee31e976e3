r"""Rounding errors of sums over rows in floating point, bounded for every data set of so many rows.

Two neighbouring data sets differ by one record, but the rounding errors of two sums differ everywhere. With error at
most e in each, sums whose exact values are no more than ``sensitivity`` apart are computed no more than
``sensitivity + 2 e`` apart.
"""

import math

UNIT = 2.0**-53
# Roundings of one term before it is added: the shift, the scale and the shortening of a coordinate, the weight and the
# slope of its record, and twice as many in reserve.
_TERM = 12
# Products below the range of floating-point numbers lose their digits: far less than this each.
_UNDERFLOW = 1e-300
# Rows that rounding is paid for where people are summed, whose number of rows is private: more than any machine reads.
MANY_ROWS = 2**40


def most_summed_rows(n_samples: int, neighbors: str) -> int:
    """Return for how many rows rounding is paid: ten times a nominal number, at least 2 million, if it is private."""
    return n_samples if neighbors == "replace_one" else max(10 * n_samples, 2_000_000)


def summation_rounding_error(
    n_rows: int, dimension: int, largest_term: float, additions: int | None = None, people: bool = False
) -> float:
    r"""Bound the norm of the rounding error of a sum over rows.

    A term passes through at most ``k`` roundings: within a block of rows in any order (BLAS may choose), then
    pairwise over blocks, runs and partitions (`dpconvex.engine.summation.most_summation_additions`). The computed sum
    is the exact sum of terms each changed by a relative error of at most ``k u / (1 - k u)`` per coordinate, ``u =
    2^-53``, so that the error has norm at most ``k u / (1 - k u) n_rows largest_term``.

    ``largest_term`` bounds the norm of one record's contribution, and ``dimension`` is the length of a mapped row, on
    which the length of blocks depends. ``additions`` are those that a term passes through at most, where sums are not
    formed by the engine. With ``people``, ``n_rows`` counts people whose rows have weight 1 together: terms are as
    large together, but there may be ``MANY_ROWS`` of them.

    Privacy: contributions are what the sum adds, multiples ``m_i x_i`` of rows with ``m_i`` as computed. How accurate
    ``m_i`` is does not matter to a sensitivity, as long as it follows from the record and public numbers and keeps
    its bound.
    """
    terms = MANY_ROWS if people else n_rows
    relative = relative_rounding_error(terms, dimension, additions, mapped=False)
    return n_rows * relative * largest_term + terms * math.sqrt(dimension) * _UNDERFLOW


def relative_rounding_error(n_rows: int, dimension: int, additions: int | None = None, mapped: bool = True) -> float:
    """Bound the error of a sum over rows, and of its product with a matrix if `mapped`, relative to the terms' norms.

    ``k u / (1 - k u)`` for the k roundings of a term, rounded up; infinite where no digits are left. Norms are those of
    rows that were mapped by the same matrix, and err as their products do. `additions` are those that a term passes
    through at most, where sums are not formed by the engine.
    """
    from dpconvex.engine.summation import most_summation_additions

    added = most_summation_additions(n_rows, dimension) if additions is None else additions
    roundings = added + _TERM + (2 * (dimension + 1) if mapped else 0)
    if roundings * UNIT > 0.5:
        return math.inf
    return roundings * UNIT / (1 - roundings * UNIT) * (1 + 1e-12)
