"""What the bounds of every linear model share: one record, its influence weight and its intercept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpconvex.checks import check_count
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.description import Facts, RecordLoss

__all__ = ["LinearRecord"]


@dataclass(frozen=True)
class LinearRecord(Bounds):
    r"""Public facts of one record of a linear model, influence weight and intercept included.

    A record's features have norm at most ``max_norm`` (enforced by clipping to the feature bounds) and the record is
    weighted by ``w = min(1, row_norm / ||x||)``. With ``c = 1`` for a fitted intercept and 0 otherwise,

        lipschitz  = slope * sqrt(c + min(row_norm, max_norm)^2)
        smoothness = curvature * sup w (c + ||x||^2)

    where the supremum is ``max(c + U^2, c U / X + U X)`` for ``U = row_norm <= X = max_norm`` and ``c + X^2``
    otherwise. Rows that are shortened to ``row_norm`` instead are described by ``max_norm = row_norm``.

    Parameters
    ----------
    n_samples : int
        Public number of rows (nominal under add-or-remove-one).
    n_features : int
        Number of columns, the intercept excluded.
    loss : Loss
        Pointwise loss in mapped units; its ``lipschitz`` and ``smoothness`` are slope and curvature above.
    row_norm, max_norm : float
        Influence bound U and the largest norm X of a row, intercept excluded.
    fit_intercept : bool
        Whether rows carry a constant 1. The intercept is penalised like every coefficient.
    alpha : float
        Strength of the penalty ``(alpha/2) ||theta||^2``.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.
    people : bool
        Whether a record is a person whose rows share one vote: ``n_samples`` is the number of people, and what a person
        contributes lies in the convex hull of what single rows contribute. How many rows there are is private.
    rows_per_person : int
        How many rows a person has at most, where each of them has a vote of its own: so many records change at once.
        ``n_samples`` is the number of rows, or of people times this number.
    weighted_rows : bool
        Whether a row may count less than a whole one, down to 0.
    """

    n_samples: int
    n_features: int
    loss: RecordLoss
    row_norm: float
    max_norm: float
    fit_intercept: bool = True
    alpha: float = 0.0
    neighbors: str = "replace_one"
    people: bool = field(default=False, kw_only=True)
    rows_per_person: int = field(default=1, kw_only=True)
    weighted_rows: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._check_shared()
        owner = type(self).__name__
        check_count("n_features", owner, self.n_features, 1)
        check_count("rows_per_person", owner, self.rows_per_person, 1)
        if self.people and self.rows_per_person > 1:
            raise ValueError(
                f"The 'rows_per_person' parameter of {owner} must be 1 where the rows of a person share one vote. "
                f"Got {self.rows_per_person!r} instead."
            )
        if getattr(self.loss, "kind", None) not in ("residual", "margin"):
            raise TypeError(
                f"The 'loss' parameter of {owner} must be a loss of one margin, of kind 'residual' or 'margin'. "
                f"Got {type(self.loss).__name__} instead."
            )
        self._check_positive("row_norm", "max_norm")

    @property
    def dimension(self) -> int:
        """Number of coefficients, a fitted intercept included."""
        return self.n_features + self.fit_intercept

    @property
    def lipschitz(self) -> float:
        """``slope * sqrt(c + min(U, X)^2)``."""
        return float(self.loss.lipschitz) * self.row_norm_with_intercept

    @property
    def row_norm_with_intercept(self) -> float:
        """``sup w ||(1, x)|| = sqrt(c + min(U, X)^2)``: the weighted row, intercept included."""
        return math.sqrt(self.fit_intercept + min(self.row_norm, self.max_norm) ** 2)

    @property
    def row_facts(self) -> Facts:
        """What mapped rows must be like."""
        return {
            "n_features": self.n_features,
            "fit_intercept": self.fit_intercept,
            "row_norm": min(self.row_norm, self.max_norm),
            "max_norm": self.max_norm,
            "own_weights": False,
        }

    @property
    def curvature_factor(self) -> float:
        """``sup w (c + ||x||^2)``, attained at one end of ``[U, X]`` because it is convex there."""
        limit, largest = self.row_norm, self.max_norm
        if largest <= limit:
            return self.fit_intercept + largest**2
        at_largest = self.fit_intercept * limit / largest + limit * largest
        return max(self.fit_intercept + limit**2, at_largest)

    @property
    def smoothness(self) -> float:
        """``curvature * sup w (c + ||x||^2)``."""
        return float(self.loss.smoothness) * self.curvature_factor
