"""How a raw row becomes a bounded row: public facts only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.memory import MemoryRows

__all__ = ["Partial", "Places", "Raw", "RowFunction", "RowMap", "Rows", "Sums", "VoteFunction"]

Places = npt.NDArray[np.int64]
Raw = npt.NDArray[Any]  # rows as they were given: of any real dtype
#: What a function gives for a block of rows, and a pass for all of them: arrays, numbers, whatever can be added.
Sums = tuple[Any, ...]
#: The same while it is being added up.
Partial = list[Any]
#: Of a block of rows, or of their margins, with targets and weights.
RowFunction = Callable[[Array, Array, Array], Sums]
#: Of a block of rows with targets, weights and votes.
VoteFunction = Callable[[Array, Array, Array, Array], Sums]
Influence = Literal["weight", "shorten"]

# In units of the influence bound: where columns without bounds are clipped when rows are weighted, if they are taken to
# be of order 1, and if their size is found privately.
CLIP_LIMIT, RAW_FARTHEST = 10.0, 2.0**40


@dataclass(frozen=True)
class RowMap:
    """Map raw rows to bounded rows ``x~ = (1, x)`` with influence weights, from public facts.

    ``x = (clip(raw, low, high) - shift) * scale``, then with ``U = row_norm``:
    ``influence="weight"`` keeps x and weights the record's whole loss by ``w = min(1, U/||x||)``;
    ``influence="shorten"`` replaces x by ``x * min(1, U/||x||)`` and has ``w = 1``. The constant
    column stands in front and does not count in ``||x||``.

    Parameters
    ----------
    n_features : int
        Number of raw columns.
    row_norm : float
        The influence bound U, in mapped units, without the intercept.
    fit_intercept : bool, default=True
        Whether a constant column is put in front.
    influence : {"weight", "shorten"}, default="shorten"
        How long rows are bounded.
    low, high : sequence of float, optional
        Bounds per raw column; None means no clipping (but for 1e140, where squares overflow).
    shift, scale : sequence of float, optional
        Affine map per raw column, 0 and 1 by default.

    Notes
    -----
    Privacy: every field must be public. The norm is rounded up before it is compared with U, so
    ``w ||x~|| <= sqrt(1 + U^2)`` holds for the mapped numbers exactly.

    Examples
    --------
    >>> row_map = RowMap.from_bounds(2, ([0.0, 10.0], [4.0, 20.0]), row_norm=None)
    >>> row_map.shift, row_map.scale
    ((0.0, 15.0), (0.25, 0.2))
    >>> round(row_map.max_norm, 6)
    1.414214
    """

    n_features: int
    row_norm: float
    fit_intercept: bool = True
    influence: Influence = "shorten"
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    shift: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.n_features < 1:
            raise ValueError(
                f"The 'n_features' parameter of RowMap must be at least 1. Got {self.n_features!r} instead."
            )
        if not (self.row_norm > 0 and math.isfinite(self.row_norm)):
            raise ValueError(
                f"The 'row_norm' parameter of RowMap must be positive and finite. Got {self.row_norm!r} instead."
            )
        if self.influence not in ("weight", "shorten"):
            raise ValueError(
                f"The 'influence' parameter of RowMap must be 'weight' or 'shorten'. Got {self.influence!r} instead."
            )
        if (self.low is None) != (self.high is None):
            raise ValueError(
                "The 'low' and 'high' parameters of RowMap must be given together. Got only one of them instead."
            )
        object.__setattr__(self, "row_norm", float(self.row_norm))
        self._fill("low", None)
        self._fill("high", None)
        self._fill("shift", 0.0)
        self._fill("scale", 1.0)
        if self.low is not None and self.high is not None:
            finite = all(map(math.isfinite, self.low)) and all(map(math.isfinite, self.high))
            if not finite or any(a > b for a, b in zip(self.low, self.high, strict=True)):
                raise ValueError(
                    "The bounds of RowMap must be finite with low <= high in every column. Got other bounds instead."
                )

    def _fill(self, name: str, default: float | None) -> None:
        values = getattr(self, name)
        if values is None and default is None:
            return
        filled = np.broadcast_to(np.asarray(default if values is None else values, dtype=np.float64), self.n_features)
        object.__setattr__(self, name, tuple(float(value) for value in filled))

    @classmethod
    def from_bounds(
        cls,
        n_features: int,
        feature_bounds: tuple[npt.ArrayLike, npt.ArrayLike] | None,
        row_norm: float | None = None,
        fit_intercept: bool = True,
    ) -> RowMap:
        """Build the map from public feature bounds.

        A column whose bounds contain 0 is divided by ``max(|low|, |high|)`` (zero stays zero);
        the others are centred to [-1, 1]; a column of width zero is mapped to 0. Without bounds
        nothing is clipped and long rows are shortened.

        Parameters
        ----------
        n_features : int
            Number of raw columns.
        feature_bounds : pair (low, high) or None
            Scalars or one value per column.
        row_norm : float, optional
            The influence bound U; ``sqrt(n_features)`` with bounds and 1 without by default.
        fit_intercept : bool, default=True
            Whether a constant column is put in front.

        Returns
        -------
        RowMap
            With ``influence="weight"`` if bounds are given, else ``"shorten"``.
        """
        if feature_bounds is None:
            return cls(n_features, 1.0 if row_norm is None else row_norm, fit_intercept)
        low, high = (np.broadcast_to(np.asarray(bound, dtype=np.float64), n_features) for bound in feature_bounds)
        holds_zero = (low <= 0) & (high >= 0)
        shift = np.where(holds_zero, 0.0, low / 2 + high / 2)
        reach = np.where(holds_zero, np.maximum(np.abs(low), np.abs(high)), high / 2 - low / 2)
        scale = np.divide(1.0, reach, out=np.zeros(n_features), where=reach > 0)
        return cls(
            n_features,
            math.sqrt(n_features) if row_norm is None else row_norm,
            fit_intercept,
            "weight",
            tuple(low.tolist()),
            tuple(high.tolist()),
            tuple(shift.tolist()),
            tuple(scale.tolist()),
        )

    def weighted(self, clip_limit: float = CLIP_LIMIT) -> RowMap:
        """Return the map that weights rows where this one, for want of bounds, shortens them.

        Columns are then clipped at a multiple of the influence bound, so that lengths stay finite; a row keeps its
        direction and margin up to there.
        """
        if self.low is not None:
            return self
        most = tuple([clip_limit * self.row_norm] * self.n_features)
        least = tuple(-bound for bound in most)
        return replace(self, influence="weight", low=least, high=most)

    @property
    def dim(self) -> int:
        """Number of coefficients, intercept included."""
        return self.n_features + int(self.fit_intercept)

    @property
    def max_norm(self) -> float:
        """Public bound X of ``||x||`` after clipping and mapping (inf without bounds)."""
        if self.low is None or self.high is None:
            return math.inf
        shift, scale = np.array(self.shift), np.array(self.scale)
        ends = np.abs((np.array([self.low, self.high]) - shift) * scale).max(axis=0)
        return math.sqrt(math.fsum(float(end) ** 2 for end in ends))

    @property
    def weighted_norm(self) -> float:
        """Public bound of ``w ||x~||``: ``sqrt(1 + min(U, X)^2)``, without the 1 if no intercept."""
        return math.hypot(float(self.fit_intercept), min(self.row_norm, self.max_norm))

    @property
    def weighted_square(self) -> float:
        """Public bound of ``w ||x~||^2``, the factor between loss curvature and theta curvature.

        With c = 1 (0 without intercept): ``max(c + U^2, c U/X + U X)`` for weighted rows with
        ``X >= U``, else ``c + min(U, X)^2``.
        """
        constant, reach, bound = float(self.fit_intercept), self.max_norm, self.row_norm
        inside = constant + min(bound, reach) ** 2
        if self.influence == "shorten" or reach <= bound:
            return inside
        return max(inside, bound * (constant / reach + reach))

    @property
    def diameter(self) -> float:
        """Public bound on the distance of two mapped rows that are shortened, the constant column apart.

        Of opposite corners of the box of the bounds, or twice the norm bound. Mapped columns contain 0, so a shortened
        row stays in the box.
        """
        if self.low is None or self.high is None:
            return 2 * self.row_norm
        widths = (np.array(self.high) - np.array(self.low)) * np.array(self.scale)
        return min(2 * self.row_norm, math.sqrt(math.fsum(float(w) ** 2 for w in widths)))

    @property
    def public_facts(self) -> dict[str, float]:
        """What a certificate must say about mapped rows: their influence bound and their largest norm."""
        influence = min(self.row_norm, self.max_norm)
        return {
            "n_features": self.n_features,
            "fit_intercept": bool(self.fit_intercept),
            "row_norm": influence,
            "max_norm": influence if self.influence == "shorten" else self.max_norm,
        }

    def to_user_units(
        self, theta: npt.ArrayLike, target_shift: float = 0.0, target_scale: float = 1.0
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Turn coefficients of mapped rows and targets into (coef, intercept) in raw units.

        With ``t = (y - target_shift) * target_scale``: ``coef = theta_x * scale / target_scale``,
        ``intercept = (theta_0 - sum(theta_x * scale * shift)) / target_scale + target_shift``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        lead = int(self.fit_intercept)
        slopes = theta[lead:] * np.array(self.scale)
        constant = theta[0] if lead else 0.0
        intercept = (constant - slopes @ np.array(self.shift)) / target_scale + target_shift
        return slopes / target_scale, float(intercept)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-ready values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> RowMap:
        """Rebuild from `to_dict`."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**values)


class Rows(Protocol):
    """What an engine offers: sums over mapped rows, and a part of the rows."""

    n_rows: int
    dim: int
    row_map: RowMap

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of: people who vote by their rows, or the rows themselves."""

    @property
    def voted(self) -> bool:
        """Whether rows may count for less than a whole one."""

    @property
    def people_vote(self) -> bool:
        """Whether several rows may be of one person."""

    @property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets."""

    @property
    def own_weights(self) -> bool:
        """Whether weights were given that take the place of those of the row map."""

    @property
    def additions(self) -> int:
        """Bound on the number of roundings any one term of `sum` passes through."""

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows."""

    def sum_votes(self, function: VoteFunction) -> Sums:
        """Add ``function(block, y, w, v)`` over all blocks of rows, v their votes."""

    def combine(self, theta: Array, function: RowFunction) -> Sums:
        """Add ``m_i x~_i`` with ``(m, *further sums) = function(y, z, w)``."""

    def with_labels(self) -> Rows:
        """Return the same rows with mapped targets clipped to [-1, 1]."""

    def subsample(self, rows: int) -> Rows:
        """Return about `rows` rows, spread over the data."""

    def part(self, rows: int) -> Rows:
        """Return exactly `rows` rows, in short stretches spread over the data; or those of about so many people."""

    def take(self, indices: Places) -> MemoryRows:
        """Return the given rows in memory."""

    def reweighted(self, function: Callable[[Array, Array], Array]) -> Rows:
        """Return the same rows with weights ``function(block, w)``, computed once."""

    def rescaled(self, function: Callable[[Array], Array]) -> Rows:
        """Return the same rows with weights ``function(weights)``."""

    def predicted(self, theta: Array) -> Rows:
        """Return the same rows with their margins in place of weights."""

    def sum_targets(self, function: RowFunction) -> Sums:
        """Add ``function(y, w, v)`` over stretches of targets, weights and votes."""

    def counter(self, function: Callable[[Array, Array], Array], level: float = 0.0) -> Callable[[float], float]:
        """Return a function of a point: the votes of rows whose number ``function(y, w)`` is below it.

        Less ``level`` times all votes.
        """
