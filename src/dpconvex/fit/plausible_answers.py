"""Answers of the trusted core, kept within what records and noise can give.

A sum over n records is no longer than n times what one of them adds, and noise is no longer than a
hundred standard deviations: what lies beyond has a probability below ``1e-2000``. A fit clips
answers there, so that its numbers neither overflow nor vanish, whatever it is told. All of it is
post-processing, and no answer that noise gives is changed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.bounds import Bounds
from dpconvex.core.certificate import CertifiedNoise
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import (
    QueryFactor,
    QueryScore,
    QuerySlope,
    QuerySlopes,
    QueryStatistic,
)
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.types import Array

_MOST_STDS = 100.0  # of noise
_MOST_RECORDS = 1e12  # where their number is private
# Of units, radii and limits, and of their reciprocals: the core refuses those beyond 1e100.
_FARTHEST = 1e90


class ReleasedNumbersError(ValueError):
    """The released numbers of a fit lie where no model can be computed from them."""

    def __init__(
        self,
        message: str = "No model can be computed from the numbers that were released: they lie "
        "where noise practically never leads.",
    ) -> None:
        super().__init__(message)


def plausible_answer(
    answer: ArrayLike, term: CertifiedNoise, bounds: Bounds, unit: float = 1.0
) -> Array:
    """Return an answer clipped to what all records and the noise of a term can give.

    A record adds less than the term's sensitivity, in units of ``unit``.
    """
    counted = bounds.relation == "replace_one"
    records = float(bounds.n_samples) if counted else _MOST_RECORDS
    most = unit * (records * term.sensitivity + _MOST_STDS * term.coordinate_std)
    return np.asarray(np.clip(np.nan_to_num(np.asarray(answer, np.float64)), -most, most))


def _plausible_unit(unit: float) -> float:
    """Return a unit, radius or limit of a question that the core answers."""
    number = float(unit)
    return min(max(number, 1 / _FARTHEST), _FARTHEST) if number == number else 1.0


class PlausibleAnswers:
    """The handle on private rows as a fit holds it: every answer is one that records can give.

    It has the questions, bounds and terms of :class:`~dpconvex.core.private_rows.PrivateRows`.
    """

    def __init__(self, rows: PrivateRows) -> None:
        self._rows = rows
        self.bounds = rows.bounds
        self.terms = rows.terms

    def target(self, number: int) -> PlausibleAnswers:
        """Return the handle on the same rows with another of their targets."""
        return PlausibleAnswers(self._rows.target(number))

    def part(self, rows: int) -> PlausibleAnswers:
        """Return the handle on a part of the records."""
        return PlausibleAnswers(self._rows.part(rows))

    def count(
        self, name: str, statistic: QueryStatistic, point: float, level: float = 0.0
    ) -> float:
        """Return a noisy count, see :meth:`PrivateRows.count`."""
        return float(self._clipped(name, self._rows.count(name, statistic, point, level)))

    def histogram(
        self, name: str, statistic: QueryStatistic, edges: ArrayLike, by_label: bool = False
    ) -> Array:
        """Return a noisy histogram, see :meth:`PrivateRows.histogram`.

        Edges that overflow, or of which two are equal, have no bins: any others are as good.
        """
        ends = np.asarray(edges, dtype=np.float64)
        if not (np.isfinite(ends).all() and (np.diff(ends) > 0).all()):
            ends = np.linspace(-1.0, 1.0, ends.size)
        return self._clipped(name, self._rows.histogram(name, statistic, ends, by_label))

    def column_octaves(self, name: str, max_octave: int, octaves: int) -> Array:
        """Return noisy octaves of columns, see :meth:`PrivateRows.column_octaves`."""
        return self._clipped(name, self._rows.column_octaves(name, max_octave, octaves))

    def slope_sum(
        self,
        name: str,
        theta: ArrayLike,
        slope: QuerySlope,
        coordinates: Coordinates,
        unit: float = 1.0,
    ) -> Array:
        """Return a noisy sum of slopes, see :meth:`PrivateRows.slope_sum`."""
        unit = _plausible_unit(unit)
        found = self._rows.slope_sum(name, theta, slope, coordinates, unit)
        return self._clipped(name, found, unit)

    def slopes_sum(
        self,
        name: str,
        thetas: ArrayLike,
        slopes: QuerySlopes,
        coordinates: Coordinates,
        unit: float = 1.0,
    ) -> Array:
        """Return noisy sums of several slopes, see :meth:`PrivateRows.slopes_sum`."""
        unit = _plausible_unit(unit)
        found = self._rows.slopes_sum(name, thetas, slopes, coordinates, unit)
        return self._clipped(name, found, unit)

    def second_moments(
        self,
        name: str,
        coordinates: Coordinates,
        radius: float,
        factor: QueryFactor | None = None,
        theta: ArrayLike | None = None,
    ) -> Array:
        """Return noisy second moments, see :meth:`PrivateRows.second_moments`."""
        radius = _plausible_unit(radius)
        found = self._rows.second_moments(name, coordinates, radius, factor, theta)
        return self._clipped(name, found)

    def limited_sum(self, name: str, score: QueryScore) -> float:
        """Return a noisy sum of scores, see :meth:`PrivateRows.limited_sum`."""
        score = replace(score, limit=_plausible_unit(score.limit))
        return float(self._clipped(name, self._rows.limited_sum(name, score)))

    def _clipped(self, name: str, answer: ArrayLike, unit: float = 1.0) -> Array:
        return plausible_answer(answer, self.terms[name], self.bounds, unit)
