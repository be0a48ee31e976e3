r"""Sensitivities of candidates' scores: of sums over rows, and of the area under the ROC curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpconvex.core.calibration import check_neighbors
from dpconvex.core.checks import check_count, check_number, parameter_error

RELATIONS = ("replace_one", "replace_one_keeping_label", "add_or_remove_one")


def _check_relation(neighbors: str) -> None:
    if neighbors not in RELATIONS:
        check_neighbors(neighbors, "a score")


@dataclass(frozen=True)
class RowScoreBounds:
    """Public facts of a score that is the sum of one number per row, each clipped to
    ``[low, high]``.

    It is counted in units of ``high - low`` above ``low``, the worst number: a row adds between 0
    and 1.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            allowed = "a finite number, low below high"
            object.__setattr__(
                self, name, check_number(name, "RowScore", value, allowed, -1e300, 1e300)
            )
        if not 0 < self.high - self.low < math.inf:
            raise parameter_error(
                "low", "RowScore", "below 'high'", f"{self.low!r} and {self.high!r}"
            )

    def sensitivity(self, neighbors: str) -> Fraction:
        """Return how far the score moves when one record changes: 1, whether it is replaced,
        added or removed.
        """
        _check_relation(neighbors)
        return Fraction(1)

    def directions(self, neighbors: str) -> int:
        """Return in how many directions scores can move at once: a record that is added lowers
        none of them.
        """
        _check_relation(neighbors)
        return 1 if neighbors == "add_or_remove_one" else 2


@dataclass(frozen=True)
class AUCScoreBounds:
    r"""Public facts of the score ``(1 / (max(p, m+) max(q, m-))) sum over pairs of 1[s_i > s_j] +
    1[s_i = s_j] / 2``.

    ``p`` and ``q`` are the private numbers of positive and negative validation rows. A positive row
    is in at most q pairs, so replacing it by another positive one moves the score by
    ``q / (max(p, m+) max(q, m-)) <= 1 / m+``. Adding one divides the old pairs by more as well;
    both together stay within ``1 / m+``. If a label flips, with ``p <= m+`` and ``q >= m-``, the
    row's pairs take ``1 / m+`` and the others' divisor, which grows from q to ``q + 1``, takes up
    to ``(p - 1) / (m+ (q + 1))``:

        same label, or add or remove max(1 / m+, 1 / m-) labels may flip max(1 / m+ + (1 - 1 / m+) /
        (m- + 1), 1 / m- + (1 - 1 / m-) / (m+ + 1))

    In the other cases of a flip (both counts above their bounds, or both below) the score moves by
    less.

    ``min_positive`` and ``min_negative`` are public lower bounds m+, m- on the class counts among
    the validation rows; data that have fewer are protected all the same.
    """

    min_positive: int
    min_negative: int

    def __post_init__(self) -> None:
        for name in ("min_positive", "min_negative"):
            check_count(name, "AUCScore", getattr(self, name), 1)

    def sensitivity(self, neighbors: str) -> Fraction:
        """Bound how far the AUC score moves when one record changes."""
        _check_relation(neighbors)
        positive = Fraction(1, self.min_positive)
        negative = Fraction(1, self.min_negative)
        if neighbors != "replace_one":
            return max(positive, negative)
        return max(
            positive + (1 - positive) / (self.min_negative + 1),
            negative + (1 - negative) / (self.min_positive + 1),
        )

    def directions(self, neighbors: str) -> int:
        """Return in how many directions scores can move at once: an added record can raise one
        and lower another.
        """
        _check_relation(neighbors)
        return 2


ScoreBounds = RowScoreBounds | AUCScoreBounds
