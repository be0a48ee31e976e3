"""One partition of a Dask collection: what it must be, and how it becomes arrays."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from dpconvex.engine.arrays import writable_view
from dpconvex.engine.dask.spill import SpilledArray, SpilledLabels, SpillFile
from dpconvex.engine.nonzero_arrays import NonZeros
from dpconvex.engine.votes import exact_values

__all__ = [
    "Clean",
    "PartitionFacts",
    "SpilledNonZeros",
    "as_features",
    "as_target",
    "check_partition",
    "delayed_parts",
    "fingerprint",
    "loosen",
    "numbers_or_missing",
    "read_pair",
    "valid_rows",
]


MOST_LABELS = 1000  # beyond it a target is taken for something else than labels


def delayed_parts(X: Any, y: Any, owner: str, beside: Any = None) -> tuple[list[Any], int]:
    """Return the partitions as delayed pairs (features, target), and the number of features.

    With a further column `beside`, of the kind and with the partitions of X, triples: what stands in one row comes from
    one reading of the source.
    """
    import dask

    for name, data in (("X", X), ("y", y)):
        if type(data).__module__.split(".")[0] != "dask":
            raise TypeError(
                f"The X and y given to {owner} must both be Dask collections. Got an {name} that is not. "
                "Use dask.array.from_array with the chunks of the other one."
            )
    if getattr(X, "ndim", 2) != 2 or getattr(y, "ndim", 1) != 1:
        raise ValueError(
            f"The X and y given to {owner} must have shapes (n_samples, n_features) and (n_samples,). "
            "Got other numbers of dimensions instead."
        )
    if hasattr(X, "rechunk"):
        width = int(X.shape[1])
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        if hasattr(y, "rechunk") and not np.isnan(X.chunks[0] + y.chunks[0]).any():
            if sum(X.chunks[0]) != sum(y.chunks[0]):
                raise ValueError(_LENGTHS.format(owner=owner))
            y = y.rechunk((X.chunks[0],))
    else:
        width = len(X.columns)
        if hasattr(y, "to_frame") and X.npartitions == y.npartitions:
            # In one frame, because Dask merges partitions of a single column on its own terms.
            # Dask joins them by index: a target that met several rows, or none, would not be one record's.
            joined = [y] if beside is None else [y, beside]
            whole = X
            for number, column in enumerate(joined):
                place = column.map_partitions(_places, meta=(_PLACE, "i8"))
                whole = whole.assign(**{_TARGET + str(number): column, _PLACE + str(number): place})
            split = dask.delayed(_split, pure=True)
            return [split(part, len(joined)) for part in whole.to_delayed()], width
    # Arrays as they are: optimised one by one, each would do again what both are made from.
    parts, targets, *others = (
        np.ravel(data.to_delayed(optimize_graph=not hasattr(data, "rechunk"))).tolist()
        for data in (X, y, *([] if beside is None else [beside]))
    )
    if len(parts) != len(targets):
        raise ValueError(
            f"The X and y given to {owner} must have the same partitions. "
            f"Got {len(parts)} and {len(targets)} instead. Take both from one dataframe, or repartition."
        )
    row = dask.delayed(_row, pure=True)
    return [row(*every) for every in zip(parts, targets, *others, strict=True)], width


# Column names that no table has by chance.
_TARGET, _PLACE = "target of dpconvex ", "place of the target of dpconvex "


def _places(target: Any) -> Any:
    """Return the distance of every target of a partition from its end: 0 for the last one."""
    return target.to_frame().assign(**{_PLACE: np.arange(len(target))[::-1]})[_PLACE]


def _split(part: Any, joined: int) -> tuple[Any, ...]:
    """Return features and what was joined to them; columns of no rows, which are refused, unless rows own theirs."""
    columns = []
    for number in range(joined):
        own = np.array_equal(part[_PLACE + str(number)].to_numpy(), np.arange(len(part))[::-1])
        column = part[_TARGET + str(number)]
        columns.append(column if own else column.iloc[:0])
    names = [name + str(number) for name in (_TARGET, _PLACE) for number in range(joined)]
    return part.drop(columns=names), *columns


def _row(*parts: Any) -> tuple[Any, ...]:
    return parts


_LENGTHS = (
    "Found input variables with inconsistent numbers of samples: every partition of the X and y given "
    "to {owner} must have as many rows as the other. Take both from one dataframe."
)


def as_features(part: Any) -> Any:
    """Return a partition's features row by row or column by column, float32 where all of them are, else float64.

    Of sparse blocks, their non-zeros.
    """
    if issparse(part):
        if part.dtype.kind not in "biuf":
            raise TypeError("not numbers")
        return NonZeros.of(part)
    if isinstance(part, np.ndarray):
        single = part.dtype == np.float32
        values = part
    elif hasattr(part, "dtypes"):
        single = len(part.columns) > 0 and all(kind == np.float32 for kind in part.dtypes)
        text = [kind for kind in part.dtypes if getattr(kind, "kind", "O") not in "biufO"]
        if text:
            raise TypeError("not numbers")
        dtype = np.float32 if single else np.float64
        if all(isinstance(kind, np.dtype) and kind.kind == "f" for kind in part.dtypes):
            values = part.to_numpy()
        else:  # missing values of other types become NaN
            values = part.to_numpy(dtype=dtype, na_value=np.nan)
    else:
        values = np.asarray(part)
        single = values.dtype == np.float32
    if values.dtype.kind not in "biufO":
        raise TypeError("not numbers")
    dtype = np.float32 if single else np.float64
    if not (values.flags.c_contiguous or values.flags.f_contiguous):
        return np.array(values, dtype=dtype, order="C")
    return writable_view(np.asarray(values, dtype=dtype))


def as_target(part: Any) -> npt.NDArray[Any]:
    """Return a partition's target as a one-dimensional array of numbers or labels."""
    return np.asarray(part)


def read_pair(pair: tuple[Any, Any], clean: Clean | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return features and target of a partition as arrays; with `clean` no value is wrong."""
    if clean is None:
        return as_features(pair[0]), as_target(pair[1])
    return as_features(loosen(pair[0])), exact_values(pair[1])


def fingerprint(X: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Any, ...]:
    """Return shapes, types and checksums by which a partition that is read again is known: private, as its rows are."""
    return tuple((part.shape, part.dtype.str, _checksum(part)) for part in (X, y))


def _checksum(values: Any) -> int:
    if isinstance(values, NonZeros):
        return hash(tuple(_checksum(part) for part in values.parts))
    if values.dtype.kind == "O":  # labels; objects have no bytes of their own
        return zlib.crc32("\0".join(map(repr, values.ravel())).encode(errors="surrogatepass"))
    values = values if values.flags.c_contiguous else values.T
    content = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return zlib.crc32(content)


def numbers_or_missing(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return an array as float64, NaN where an object is no number."""
    if values.dtype.kind != "O":
        return np.asarray(values, dtype=np.float64)
    found = [_number_or_missing(value) for value in values.ravel()]
    return np.array(found, dtype=np.float64).reshape(values.shape)


def _number_or_missing(value: Any) -> float:
    if isinstance(value, (np.ndarray, np.complexfloating)):  # of which numpy would warn
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def loosen(part: Any) -> Any:
    """Return an array or table of pandas whose objects are numbers, NaN where they are none; others as they are."""
    if isinstance(part, np.ndarray):
        return numbers_or_missing(part) if part.dtype.kind == "O" else part
    if not (hasattr(part, "dtypes") and hasattr(part, "assign")):
        return part
    objects = [name for name, kind in part.dtypes.items() if getattr(kind, "char", "") == "O"]
    if objects:
        part = part.copy(deep=False)
        for name in objects:
            part[name] = numbers_or_missing(part[name].to_numpy())
    return part


def valid_rows(X: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows of an array of floats, or of sparse ones, hold finite numbers only."""
    if issparse(X) or isinstance(X, NonZeros):
        return NonZeros.of(X).finite_rows()
    # Sums find most of the trouble without a second array; rows whose sum overflows are looked at one by one.
    with np.errstate(all="ignore"):
        valid = np.isfinite(X.sum(axis=1))
    suspects = np.flatnonzero(~valid)
    valid[suspects] = np.isfinite(X[suspects]).all(axis=1)
    return np.asarray(valid)


@dataclass(frozen=True)
class Clean:
    """Targets as float64 in which NaN marks the rows that are invalid, whatever is wrong with them.

    Parameters
    ----------
    encode : callable
        Makes floats of a target, NaN of what is no target: of numbers, or of labels the position in the label set.
    """

    encode: Callable[[npt.NDArray[Any]], npt.NDArray[np.float64]]

    def __call__(self, X: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the marked targets of rows X."""
        targets = self.encode(y)
        return np.where(valid_rows(X) & np.isfinite(targets), targets, np.nan)


@dataclass(frozen=True)
class PartitionFacts:
    """What checking a partition found: counts and flags, never values.

    Attributes
    ----------
    rows : int
        Number of rows.
    problem : str or None
        Key of the error message.
    X, y : SpilledArray, SpilledLabels or None
        Where the partition was parked.
    labels : array or None
        Distinct labels where the target holds labels.
    mark : tuple
        By which the partition is known when it is read again.
    """

    rows: int
    problem: str | None = None
    X: SpilledArray | SpilledNonZeros | None = None
    y: SpilledArray | SpilledLabels | None = None
    labels: npt.NDArray[Any] | None = None
    mark: tuple[Any, ...] = ()

    @staticmethod
    def require(facts: Sequence[PartitionFacts], owner: str, least: int = 1) -> None:
        """Raise if any partition has a problem, or if there are fewer rows than the least number, 0 or 1."""
        problems = {fact.problem for fact in facts if fact.problem}
        if problems:
            raise ValueError(_PROBLEMS[min(problems)].format(owner=owner))
        if sum(fact.rows for fact in facts) < least:
            raise ValueError(f"Found array with 0 sample(s) while a minimum of 1 is required by {owner}.")


_FINITE = (
    "The {name} given to {{owner}} must be finite numbers. Got NaN or infinity instead. Fill them with public "
    "values; drop such rows only with neighbors='add_or_remove_one', where the number of rows is private."
)
_PROBLEMS = {
    "X not finite": _FINITE.format(name="X"),
    "y not finite": _FINITE.format(name="y"),
    "missing label": "The labels given to {owner} must all be there. Got missing ones instead. Give them a public "
    "label; drop their rows only with neighbors='add_or_remove_one', where the number of rows is private.",
    "not numbers": "The X and y given to {owner} must be numbers. Got text or other values instead. "
    "Encode text with public categories, for instance OneHotEncoder(categories=[...]).",
    "width": "All partitions of the X given to {owner} must have the same number of columns. Got others instead.",
    "lengths": _LENGTHS,
    "not labels": "Unknown label type: continuous. The target given to {owner} must hold labels: all whole numbers or "
    f"all text, at most {MOST_LABELS} different ones. Got others instead.",
}


def check_partition(
    pair: tuple[Any, Any],
    width: int,
    numeric: bool,
    spill: SpillFile | None,
    clean: Clean | None = None,
    reread: bool = False,
) -> PartitionFacts:
    """Check one partition, and park it in the spill file if there is one with room for it.

    With `clean` no value is wrong: the target is parked with NaN for invalid rows. A partition that is not parked, or
    may be read again all the same (`reread`), is marked.
    """
    try:
        X, y = read_pair(pair, clean)
        source = X, y
        if numeric:
            if y.dtype.kind not in "biufO":
                return PartitionFacts(0, "not numbers")
            y = y if clean is not None else y.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        return PartitionFacts(0, "not numbers")
    if y.shape != (len(X),):
        return PartitionFacts(0, "lengths")
    if len(X) == 0:
        return PartitionFacts(0)
    if X.ndim != 2 or X.shape[1] != width:
        return PartitionFacts(0, "width")
    labels = None
    if clean is not None:
        # Known again by what is used of it: how an invalid object looks may differ whenever it is read.
        source = X, (y := clean(X, y))
    elif not _all_finite(X):
        return PartitionFacts(0, "X not finite")
    elif y.dtype.kind == "f" and not _all_finite(y):
        return PartitionFacts(0, "y not finite" if numeric else "missing label")
    elif not numeric:
        if y.dtype.kind == "O" and any(_missing(label) for label in y):
            return PartitionFacts(0, "missing label")
        labels = distinct_labels(y)
        if labels is None:
            return PartitionFacts(0, "not labels")
    facts = _parked(X, y, spill, labels)
    return replace(facts, mark=fingerprint(*source)) if reread or facts.X is None else facts


def _parked(
    X: npt.NDArray[Any], y: npt.NDArray[Any], spill: SpillFile | None, labels: npt.NDArray[Any] | None
) -> PartitionFacts:
    """Park a partition that passed all checks, if there is room."""
    facts = PartitionFacts(len(X), labels=labels)
    if spill is None:
        return facts
    kept_y: SpilledArray | SpilledLabels | None
    if labels is None:
        kept_y = spill.write(y)
    else:
        codes = spill.write(np.searchsorted(labels, y).astype(np.int16))
        kept_y = None if codes is None else SpilledLabels(labels, codes)
    kept_X = None if kept_y is None else _write_rows(X, spill)
    return facts if kept_X is None else replace(facts, X=kept_X, y=kept_y)


@dataclass(frozen=True)
class SpilledNonZeros:
    """Where the non-zeros of a partition lie in a spill file; arrays of no values lie nowhere."""

    indptr: SpilledArray
    columns: SpilledArray | None
    values: SpilledArray | None
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def file(self) -> SpillFile:
        """The file, kept open as long as anything in it is needed."""
        return self.indptr.file

    def open(self) -> NonZeros:
        """Return the non-zeros, as private memory maps."""
        columns = np.empty(0, np.uint32) if self.columns is None else self.columns.open()
        values = np.empty(0, self.dtype) if self.values is None else self.values.open()
        return NonZeros(self.indptr.open(), columns, values, self.shape)


def _write_rows(X: Any, spill: SpillFile) -> SpilledArray | SpilledNonZeros | None:
    """Park rows; None if there is no room."""
    if not isinstance(X, NonZeros):
        return spill.write(X)
    indptr, columns, values = (spill.write(part) for part in X.parts)
    if indptr is None or (X.values.size and (columns is None or values is None)):
        return None
    return SpilledNonZeros(indptr, columns, values, X.shape, X.dtype)


def distinct_labels(y: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Return the distinct labels of a partition; None if they are not labels or too many."""
    if y.dtype.kind == "f" and not (y == np.round(y)).all():
        return None
    try:
        labels = np.unique(y)
    except TypeError:  # numbers beside text
        return None
    return labels if labels.size <= MOST_LABELS else None


def _all_finite(values: Any) -> bool:
    values = values.values if isinstance(values, NonZeros) else values
    # One sum finds most of the trouble without a second array; only sums that overflow look closer.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def _missing(label: Any) -> bool:
    return label is None or label != label
