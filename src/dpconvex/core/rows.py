"""Interface of the engines, and the public map from a raw row to a bounded row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dpconvex.core.checks import parameter_error
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.core.memory_rows import MemoryRows

RowIndices = npt.NDArray[np.int64]
RawRows = npt.NDArray[Any]  # rows as they were given: of any real dtype
#: What a function gives for a block of rows, and a pass for all of them: arrays, numbers, whatever
#: can be added.
Sums = tuple[Any, ...]
#: The same while it is being added up.
Partial = list[Any]
#: Of a block of rows, or of their margins, with targets and influence weights.
RowFunction = Callable[[Array, Array, Array], Sums]
#: Of a block of rows with targets, influence weights and row weights.
WeightedRowFunction = Callable[[Array, Array, Array, Array], Sums]
Influence = Literal["weight", "shorten"]

#: Where columns without bounds are clipped when rows are weighted, in units of the influence bound:
#: if they are taken to be of order 1, and if their size is found privately.
CLIP_LIMIT = 10.0
RAW_CLIP_LIMIT = 2.0**40


class EngineError(RuntimeError):
    """The rows cannot be summed to the end; the message says what happened, and nothing about
    the rows.
    """


class ClusterLostError(EngineError):
    """The cluster has no scheduler or no workers any more."""


class SourceChangedError(EngineError):
    """A partition is not what it was when it was checked."""

    def __init__(
        self,
        message: str = "The data changed during the fit: a partition that was read again is not "
        "the one that was checked first. Read from sources that stay as they are, "
        "and give the same numbers every time.",
    ) -> None:
        super().__init__(message)


def is_partitioned(data: object) -> bool:
    """Return whether data is a Dask collection, without importing Dask."""
    return type(data).__module__.split(".")[0] == "dask"


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
        for name, allowed, right in (
            ("n_features", "at least 1", self.n_features >= 1),
            ("row_norm", "positive and finite", 0 < self.row_norm < math.inf),
            ("influence", "'weight' or 'shorten'", self.influence in ("weight", "shorten")),
        ):
            if not right:
                raise parameter_error(name, "RowMap", allowed, repr(getattr(self, name)))
        if (self.low is None) != (self.high is None):
            raise ValueError(
                "The 'low' and 'high' parameters of RowMap must be given together. Got only one "
                "of them instead."
            )
        object.__setattr__(self, "row_norm", float(self.row_norm))
        for name, default in (("low", None), ("high", None), ("shift", 0.0), ("scale", 1.0)):
            given = getattr(self, name)
            values = default if given is None else given
            if values is not None:
                columns = np.broadcast_to(np.asarray(values, dtype=np.float64), self.n_features)
                object.__setattr__(self, name, tuple(columns.tolist()))
        if self.low is not None and self.high is not None:
            finite = all(map(math.isfinite, (*self.low, *self.high)))
            if not finite or any(a > b for a, b in zip(self.low, self.high, strict=True)):
                raise ValueError(
                    "The bounds of RowMap must be finite with low <= high in every column. Got "
                    "other bounds instead."
                )

    @classmethod
    def from_bounds(
        cls,
        n_features: int,
        feature_bounds: tuple[npt.ArrayLike, npt.ArrayLike] | None,
        row_norm: float | None = None,
        fit_intercept: bool = True,
    ) -> RowMap:
        """Build the map of rows from public feature bounds.

        A column whose bounds contain 0 is divided by ``max(|low|, |high|)`` (zero stays zero); the
        others are centred to [-1, 1]; a column of width zero is mapped to 0. Long rows are
        weighted, and `row_norm` is ``sqrt(n_features)`` by default. Without bounds nothing is
        clipped, long rows are shortened, and `row_norm` is 1 by default.
        """
        if feature_bounds is None:
            return cls(n_features, 1.0 if row_norm is None else row_norm, fit_intercept)
        low, high = (
            np.broadcast_to(np.asarray(bound, dtype=np.float64), n_features)
            for bound in feature_bounds
        )
        holds_zero = (low <= 0) & (high >= 0)
        shift = np.where(holds_zero, 0.0, low / 2 + high / 2)
        half_width = np.where(holds_zero, np.maximum(np.abs(low), np.abs(high)), high / 2 - low / 2)
        scale = np.divide(1.0, half_width, out=np.zeros(n_features), where=half_width > 0)
        norm = math.sqrt(n_features) if row_norm is None else row_norm
        columns = (tuple(column.tolist()) for column in (low, high, shift, scale))
        return cls(n_features, norm, fit_intercept, "weight", *columns)

    def weighted(self, clip_limit: float = CLIP_LIMIT) -> RowMap:
        """Return the map that weights rows where this one, for want of bounds, shortens them.

        Columns are then clipped at a multiple of the influence bound, so that lengths stay finite;
        a row keeps its direction and margin up to there.
        """
        if self.low is not None:
            return self
        limits = (clip_limit * self.row_norm,) * self.n_features
        return replace(self, influence="weight", low=tuple(-limit for limit in limits), high=limits)

    @property
    def dim(self) -> int:
        """Number of coefficients, intercept included."""
        return self.n_features + int(self.fit_intercept)

    @property
    def max_norm(self) -> float:
        """Public bound X of ``||x||`` after clipping and mapping (inf without bounds)."""
        if self.low is None or self.high is None:
            return math.inf
        shift = np.array(self.shift)
        scale = np.array(self.scale)
        ends = np.abs((np.array([self.low, self.high]) - shift) * scale).max(axis=0)
        return math.sqrt(math.fsum(float(end) ** 2 for end in ends))

    @property
    def weighted_norm(self) -> float:
        """Public bound of ``w ||x~||``: ``sqrt(1 + min(U, X)^2)``, without the 1 if no
        intercept.
        """
        return math.hypot(float(self.fit_intercept), min(self.row_norm, self.max_norm))

    @property
    def weighted_square(self) -> float:
        """Public bound of a row's ``w ||x~||^2``, the factor between loss curvature and theta
        curvature.

        With c = 1 (0 without intercept): ``max(c + U^2, c U/X + U X)`` for weighted rows with
        ``X >= U``, else ``c + min(U, X)^2``.
        """
        constant = float(self.fit_intercept)
        longest = self.max_norm
        bound = self.row_norm
        inside = constant + min(bound, longest) ** 2
        if self.influence == "shorten" or longest <= bound:
            return inside
        return max(inside, bound * (constant / longest + longest))

    @property
    def diameter(self) -> float:
        """Public bound on the distance of two mapped rows that are shortened, the constant column
        apart.

        Of opposite corners of the box of the bounds, or twice the norm bound. Mapped columns
        contain 0, so a shortened row stays in the box.
        """
        if self.low is None or self.high is None:
            return 2 * self.row_norm
        widths = (np.array(self.high) - np.array(self.low)) * np.array(self.scale)
        return min(2 * self.row_norm, math.sqrt(math.fsum(float(w) ** 2 for w in widths)))

    @property
    def public_facts(self) -> dict[str, float]:
        """What a certificate must say about mapped rows: their influence bound and their largest
        norm.
        """
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
        return slopes / target_scale, float(
            (constant - slopes @ np.array(self.shift)) / target_scale + target_shift
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON-ready values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> RowMap:
        """Rebuild from `to_dict`."""
        values: Any = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return cls(**values)


class Rows(Protocol):
    """Sums over mapped rows, and parts of the rows, as every engine offers them.

    A row has influence weights ``w``, which the row map gives or a fit replaces, and row weights
    ``v``, what it counts for: 1, or less where rows are weighted or several are of one person.
    """

    n_rows: int
    dim: int
    row_map: RowMap

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of: people, or the rows themselves."""

    @property
    def has_row_weights(self) -> bool:
        """Whether rows may count for less than a whole one."""

    @property
    def has_people(self) -> bool:
        """Whether several rows may be of one person."""

    @property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets."""

    @property
    def own_weights(self) -> bool:
        """Whether influence weights were given that take the place of those of the row map."""

    @property
    def additions(self) -> int:
        """Bound on the number of roundings any one term of `sum` passes through."""

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows."""

    def sum_weighted(self, function: WeightedRowFunction) -> Sums:
        """Add ``function(block, y, w, v)`` over all blocks of rows."""

    def combine(self, theta: Array, function: RowFunction) -> Sums:
        """Add ``m_i x~_i`` with ``(m, *further sums) = function(y, z, w)``."""

    def with_labels(self) -> Rows:
        """Return the same rows with mapped targets clipped to [-1, 1]."""

    def subsample(self, rows: int) -> Rows:
        """Return about `rows` rows, spread over the data."""

    def part(self, rows: int) -> Rows:
        """Return exactly `rows` rows, spread over the data; or those of about so many people."""

    def take(self, indices: RowIndices) -> MemoryRows:
        """Return the given rows in memory."""

    def reweighted(self, function: Callable[[Array, Array], Array]) -> Rows:
        """Return the same rows with weights ``function(block, w)``, computed once."""

    def rescaled(self, function: Callable[[Array], Array]) -> Rows:
        """Return the same rows with weights ``function(weights)``."""

    def predicted(self, theta: Array) -> Rows:
        """Return the same rows with their margins in place of weights."""

    def sum_targets(self, function: RowFunction) -> Sums:
        """Add ``function(y, w, v)`` over targets, given weights and row weights."""

    def counter(
        self, function: Callable[[Array, Array], Array], level: float = 0.0
    ) -> Callable[[float], float]:
        """Return a function of a point: the row weights of rows whose number ``function(y, w)`` is
        below it.

        Less ``level`` times all row weights.
        """
