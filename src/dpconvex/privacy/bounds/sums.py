"""Sensitivities of what noisy descent on a linear model releases: sums over rows, computed in floating point."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.privacy.bounds.record import LinearRecord
from dpconvex.privacy.summation import (
    MANY_ROWS,
    most_summed_rows,
    relative_sum_error,
    summation_error,
)

__all__ = ["LinearSums"]


@dataclass(frozen=True)
class LinearSums(LinearRecord):
    """Public facts of a linear model whose gradients, moments and counts are summed over rows.

    Parameters
    ----------
    n_samples, n_features, loss, row_norm, max_norm, fit_intercept, alpha, neighbors
        As in :class:`LinearRecord`.
    void_rows : bool
        Whether a record may have weight 0, as invalid rows that are ignored have.
    """

    void_rows: bool = False

    def split_sensitivity(
        self, influence: float | None = None, least_weight: float | None = None
    ) -> tuple[float, float]:
        r"""Return the sensitivities of the two parts of the gradient SUM at a fixed theta.

        With slopes ``c'`` in ``[low, high]``, ``middle = (low + high) / 2`` and ``half = (high - low) / 2``, a record's
        gradient is a part with slopes within ``half`` of 0, which moves with theta, and the constant part
        ``middle w x`` (times ``y`` for margin losses). With ``R = sqrt(c + U^2)``:

        - moving part: ``2 half R`` under replace-one, ``half R`` under add-or-remove-one;
        - constant part: ``|middle| R`` under add-or-remove-one; under replace-one ``2 |middle| R`` for margin losses,
          whose labels may flip, and ``|middle| sqrt(c (1 - w_min)^2 + 4 U^2)`` for residual losses, where two records
          share the sign of their constant.

        Parameters
        ----------
        influence : float, optional
            Influence bound U in the coordinates that are used; the rows' own by default.
        least_weight : float, optional
            Smallest weight ``w_min`` a record can have in these coordinates; 0 whatever is given with ``void_rows`` or
            ``weighted_rows``. Where people vote a record is a mean of such rows, and its weight a mean of theirs.

        Returns
        -------
        tuple of two floats
            Of the moving and of the constant part.
        """
        if influence is None:
            influence = min(self.row_norm, self.max_norm)
        if least_weight is None:
            least_weight = min(1.0, self.row_norm / self.max_norm)
        if self.void_rows or self.weighted_rows:
            least_weight = 0.0
        low, high = self.loss.slope_range
        middle, half = abs(low + high) / 2, (high - low) / 2
        reach, many = math.sqrt(self.fit_intercept + influence**2), self.rows_per_person
        if self.neighbors == "add_or_remove_one":
            return many * half * reach, many * middle * reach
        if self.loss.kind == "margin":
            return many * 2 * half * reach, many * 2 * middle * reach
        constant = math.sqrt(self.fit_intercept * (1 - least_weight) ** 2 + 4 * influence**2)
        return many * 2 * half * reach, many * middle * constant

    def gradient_sensitivity(self, clip: float, slope: float) -> float:
        r"""Return the sensitivity of a sum of gradients whose norms are at most ``slope * clip``.

        A record contributes ``s u`` with ``|s| <= slope`` and ``|s| ||u|| <= slope * clip``, whether it was weighted by
        ``min(1, clip / ||u||)`` or its slope was limited to ``slope * clip / ||u||``: in both cases the norm of what it
        contributes is at most ``slope * clip``, whatever its row, target or label. Two records differ by at most twice
        that (replace-one; attained by one row with opposite slopes), one record adds at most that (add-or-remove-one).
        Sums are formed in the rows' own coordinates and then mapped: :meth:`rounding_share` pays for that.

        Parameters
        ----------
        clip : float
            Bound on the length of a weighted row, in the unit of the coordinates that are used.
        slope : float
            Largest size of a slope.
        """
        return (
            self.rows_per_person * self.changed_records * slope * clip * (1 + self.rounding_share())
        )

    def given_sensitivities(self) -> tuple[float, float]:
        """Return those of :meth:`split_sensitivity` in coordinates with an influence bound of ``sqrt(n_features)``."""
        moving, constant = self.split_sensitivity(math.sqrt(self.n_features))
        more = 1 + self.rounding_share()
        return moving * more, constant * more

    def rounding_share(self) -> float:
        r"""Return what rounding of a mapped sum of gradients may add to its sensitivity, relative to it.

        A thousandth, or what cannot be avoided: see :meth:`most_cancellation`.
        """
        return max(1e-3, 1 / self._digits())

    def most_cancellation(self) -> float:
        r"""Return how large ``K = || |M| |M^-1| ||`` may be for a map M that is applied to sums of gradients.

        A sum errs, coordinate by coordinate, by at most ``e = k u / (1 - k u)`` times the sum of the terms' sizes, and
        so does its product with M. A record contributes ``x = M^-1 u`` with ``||u|| <= c``, so the terms' sizes, mapped
        by ``|M|``, have norm at most ``K c``, and the computed sum of n records errs by at most ``n e K c``. Two
        neighbours' sums move apart by twice that, which is at most ``rounding_share()`` of ``records c`` for
        ``K <= rounding_share() records / (2 n e)``.
        """
        return self.rounding_share() * self._digits()

    def _digits(self) -> float:
        """Return ``records / (2 n e)``, for every number of rows that rounding is paid for."""
        records = most_summed_rows(self.n_samples, self.neighbors)
        rows = MANY_ROWS if self.people else records
        return self.changed_records / (2 * records * relative_sum_error(rows, self.dimension))

    def moment_sensitivity(self) -> float:
        r"""Return the Frobenius sensitivity of a computed ``sum_i v_i v_i^T`` with ``||v_i|| <= 1``.

        ``||v v^T - u u^T||^2 = ||v||^4 + ||u||^4 - 2 (v . u)^2 <= 2``, attained by orthogonal unit vectors, so
        ``sqrt(2)`` under replace-one; one record adds ``||v||^2 <= 1``. Rounding comes on top, on either side.
        """
        records = most_summed_rows(self.n_samples, self.neighbors)
        error = summation_error(records, self.dimension, 1.0, votes=self.people)
        return self.rows_per_person * math.sqrt(self.changed_records) + 2 * error

    def histogram_sensitivity(self, histograms: int = 1) -> float:
        """Return the l2 sensitivity of histograms in each of which every record is in at most one bin.

        Replacing a record takes 1 from a bin and adds 1 to another in each of ``k`` histograms: ``sqrt(2 k)``; adding
        or removing one changes a single bin of each: ``sqrt(k)``.
        """
        return self.rows_per_person * math.sqrt(self.changed_records * histograms)

    def count_sensitivity(self) -> float:
        r"""Return the sensitivity of a number of records: 1 under both relations, or as many as change at once.

        Where rows may be ignored, counts are centred: ``sum_i v_i (1[...] - level)``, to which a record adds
        ``-level``, 0 or ``1 - level``. Two of these differ by 1 at most, and none exceeds 1. Counts of votes are exact;
        their product with ``level`` and the difference are rounded once each, by ``2^-53`` of all records at most.
        """
        rounding = most_summed_rows(self.n_samples, self.neighbors) * 2.0**-51
        return self.rows_per_person * (1.0 + (rounding if self.void_rows else 0.0))
