r"""A handle on the rows of two classes: counts, sums and second moments around a released centre.

Pairs of rows are ranked by moments of their classes; no query below looks at a pair. What a row adds depends on that
row, its label and earlier answers alone, and is shortened here to length 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.coordinates import row_lengths
from dpconvex.core.queries import pack_symmetric, unpack_symmetric
from dpconvex.core.release import Answers, finite_numbers, positive_number
from dpconvex.engine.blocks import placed_rows
from dpconvex.engine.rows import Sums
from dpconvex.objectives.pairwise import PairwiseObjective
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import CertificateError
from dpconvex.privacy.noise import NoiseSource
from dpconvex.types import Array

__all__ = ["PrivateClasses", "shortened"]


class PrivateClasses:
    """A handle on labelled rows without a constant.

    Parameters
    ----------
    objective : PairwiseObjective
        Holds the rows of both classes.
    certificate : Certificate
        Which questions may be asked, how often, and with which noise.
    noise : NoiseSource
        Where noise comes from.

    Notes
    -----
    Privacy: as for :class:`~dpconvex.core.release.PrivateRows`; a record that changes its label replaces one row of one
    class by one of the other, so that every sum below moves by at most twice what a row adds.
    """

    def __init__(self, objective: PairwiseObjective, certificate: Certificate, noise: NoiseSource) -> None:
        self.bounds, self.terms = certificate.bounds, certificate.noise
        self._rows, self._answers = objective, Answers(certificate.noise, noise)
        self._lengths: tuple[bytes, Array] | None = None

    @property
    def _half(self) -> float:
        """Half of the records, by which counts are centred where some may be ignored; exact."""
        return sum(self._rows.counts) / 2 if self.bounds.ignored_rows else 0.0

    def count_all(self, name: str) -> float:
        """Return how many records are not ignored, plus noise."""
        term = self._answers.claim(name, ("count",))
        return float(self._answers.release(term, [sum(self._rows.counts)])[0])

    def count_positive(self, name: str) -> float:
        """Return how many records are positive, less half of them where some may be ignored, plus noise."""
        term = self._answers.claim(name, ("count",))
        return float(self._answers.release(term, [self._rows.counts[0] - self._half])[0])

    def count_shorter(self, name: str, centre: ArrayLike, matrix: ArrayLike, point: float) -> float:
        """Return how many records have ``||matrix (x - centre)||`` below a point, plus noise.

        Less half of the records where some may be ignored.
        """
        term = self._answers.claim(name, ("count",))
        centre, matrix = self._frame(centre, matrix)
        key = centre.tobytes() + matrix.tobytes()
        if self._lengths is None or self._lengths[0] != key:

            def length(block: Array) -> Array:
                return row_lengths(placed_rows(block - centre, matrix))

            self._lengths = key, self._rows.each_row(length)
        below = float(np.count_nonzero(self._lengths[1] < float(point)))
        return float(self._answers.release(term, [below - self._half])[0])

    def row_sum(
        self, name: str, centre: ArrayLike, matrix: ArrayLike, radius: float, weights: tuple[float, float] = (1.0, 1.0)
    ) -> Array:
        """Return ``sum_i w_i u_i`` with rows u in units of the radius, no longer than 1, plus noise.

        Weights are those of negative and of positive records, within [-1, 1].
        """
        term = self._answers.claim(name, ("vector",), self.bounds.n_features)
        centre, matrix = self._frame(centre, matrix)
        radius = positive_number(radius) / term.bound
        negative, positive = np.clip(finite_numbers(weights, 2), -1.0, 1.0)

        def part(block: Array, y: Array, w: Array) -> Sums:
            short = shortened(placed_rows(block - centre, matrix), radius) * term.bound
            return (np.where(y > 0, positive, negative) @ short,)

        (total,) = self._rows.sum(part)
        return self._answers.release(term, total)

    def second_moments(self, name: str, centre: ArrayLike, radius: float) -> Array:
        """Return ``sum_i u_i u_i^T`` plus noise, u rows less the centre in units of the radius, no longer than 1."""
        size = self.bounds.n_features
        term = self._answers.claim(name, ("second moments",), size * (size + 1) // 2)
        if term.bound != 1:
            raise CertificateError(f"The certificate's {name!r} is not for vectors of length 1.")
        place, radius = finite_numbers(centre, size), positive_number(radius)

        def part(block: Array, y: Array, w: Array) -> Sums:
            short = shortened(block - place, radius)
            return (short.T @ short,)

        (total,) = self._rows.sum(part)
        packed = self._answers.release(term, pack_symmetric(np.asarray(total)))
        return unpack_symmetric(packed, size)

    def _frame(self, centre: ArrayLike, matrix: ArrayLike) -> tuple[Array, Array]:
        size = self.bounds.n_features
        square = finite_numbers(matrix)
        if square.shape != (size, size):
            raise ValueError("The question needs a square matrix of all columns.")
        return finite_numbers(centre, size), np.ascontiguousarray(square.T)


def shortened(block: Array, radius: float) -> Array:
    """Return rows in units of the radius, no longer than 1."""
    return np.asarray(block / np.maximum(row_lengths(block), radius)[:, None])
