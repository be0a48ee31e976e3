"""Partitions of Dask collections: checked once, parked or read again, and mapped to rows that
can be summed.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from dpconvex.core.memory_rows import MemoryRows, writable_memory_view
from dpconvex.core.person_identifiers import exact_identifiers
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import RowMap, SourceChangedError, Sums, is_partitioned
from dpconvex.core.summation import pairwise_summation
from dpconvex.engine.dask.schedule import ScheduledPartition
from dpconvex.engine.dask.spill import SpilledArray, SpilledLabels, SpilledNonZeros, SpillFile
from dpconvex.engine.sparse_rows import NonZeroRows, rows_in_memory
from dpconvex.system.lazy_imports import dask, nw

MOST_LABELS = 1000  # beyond it a target is taken for something else than labels
# Column names that no table has by chance.
_TARGET = "target of dpconvex "
_POSITION = "position of the target of dpconvex "
_LENGTHS = (
    "Found input variables with inconsistent numbers of samples: every partition of the X and y "
    "given to {owner} must have as many rows as the other. Take both from one dataframe."
)
_DROP = (
    "drop such rows only with neighbors='add_or_remove_one', where the number of rows is private."
)
_FINITE = (
    " given to {owner} must be finite numbers. Got NaN or infinity instead. Fill in public values; "
    + _DROP
)
_PROBLEMS = {
    "X not finite": "The X" + _FINITE,
    "y not finite": "The y" + _FINITE,
    "missing label": "The labels given to {owner} must all be there. Got missing ones instead. "
    f"Give them a public label; {_DROP}",
    "not numbers": "The X and y given to {owner} must be numbers. Got text or other values "
    "instead. Encode text with public categories, for instance "
    "OneHotEncoder(categories=[...]).",
    "width": "All partitions of the X given to {owner} must have the same number of columns. Got "
    "others instead.",
    "lengths": _LENGTHS,
    "not labels": "Unknown label type: continuous. The target given to {owner} must hold labels: "
    f"all whole numbers or all text, at most {MOST_LABELS} different ones. Got "
    "others instead.",
}

# Kinds of arrays of numpy that are read cell by cell where invalid rows are ignored: a single cell
# makes objects, text, bytes or complex numbers of all.
CELLWISE = "OUSTc"
_TRUTH = {"true": 1.0, "false": 0.0}

Mark = tuple[Any, ...]  # fingerprint by which a partition is known when it is read again
Pair = tuple[Any, Any]  # features and target
Call = Callable[[MemoryRows], Any]
Reweigh = Callable[[MemoryRows], MemoryRows]


def delayed_partitions(X: Any, y: Any, owner: str, beside: Any = None) -> tuple[list[Any], int]:
    """Return partitions as delayed pairs (features, target), or triples with a column `beside`,
    and the width of X.
    """
    for name, data in (("X", X), ("y", y)):
        if not is_partitioned(data):
            raise TypeError(
                f"The X and y given to {owner} must both be Dask collections. Got an {name} that "
                "is not. Use dask.array.from_array with the chunks of the other one."
            )
    if getattr(X, "ndim", 2) != 2 or getattr(y, "ndim", 1) != 1:
        raise ValueError(
            f"The X and y given to {owner} must have shapes (n_samples, n_features) and "
            "(n_samples,). Got other numbers of dimensions instead."
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
            # In one frame, because Dask merges partitions of a single column on its own terms. Dask
            # joins them by index: a target that met several rows, or none, would not be one
            # record's.
            joined = [y] if beside is None else [y, beside]
            whole = X
            for number, column in enumerate(joined):
                position = column.map_partitions(_positions_from_end, meta=(_POSITION, "i8"))
                whole = whole.assign(
                    **{_TARGET + str(number): column, _POSITION + str(number): position}
                )
            split = dask.delayed(_split_joined_partition, pure=True)
            return [split(part, len(joined)) for part in whole.to_delayed()], width
    # Arrays as they are: optimised one by one, each would do again what both are made from.
    parts, targets, *others = (
        np.ravel(data.to_delayed(optimize_graph=not hasattr(data, "rechunk"))).tolist()
        for data in (X, y, *([] if beside is None else [beside]))
    )
    if len(parts) != len(targets):
        raise ValueError(
            f"The X and y given to {owner} must have the same partitions. Got {len(parts)} and "
            f"{len(targets)} instead. Take both from one dataframe, or repartition."
        )
    join = dask.delayed(_tuple, pure=True)
    return [join(*every) for every in zip(parts, targets, *others, strict=True)], width


def _positions_from_end(target: Any) -> Any:
    """Return the distance of every target of a partition from its end: 0 for the last one."""
    return target.to_frame().assign(**{_POSITION: np.arange(len(target))[::-1]})[_POSITION]


def _split_joined_partition(part: Any, joined: int) -> tuple[Any, ...]:
    """Return a partition's features and the joined columns; columns of no rows, refused, unless
    rows own theirs.
    """
    columns = []
    for number in range(joined):
        own = np.array_equal(part[_POSITION + str(number)].to_numpy(), np.arange(len(part))[::-1])
        column = part[_TARGET + str(number)]
        columns.append(column if own else column.iloc[:0])
    names = [name + str(number) for name in (_TARGET, _POSITION) for number in range(joined)]
    return part.drop(columns=names), *columns


def _tuple(*parts: Any) -> tuple[Any, ...]:
    return parts


def _read_partition_features(part: Any) -> Any:
    """Return a partition's features, float32 where all of them are, else float64; of sparse
    blocks their non-zeros.
    """
    if issparse(part):
        if part.dtype.kind not in "biuf":
            raise TypeError("not numbers")
        return NonZeroRows.of(part)
    if hasattr(part, "dtypes"):
        kinds = list(part.dtypes)
        single = len(part.columns) > 0 and all(kind == np.float32 for kind in kinds)
        if any(getattr(kind, "kind", "O") not in "biufO" for kind in kinds):
            raise TypeError("not numbers")
        if all(isinstance(kind, np.dtype) and kind.kind == "f" for kind in kinds):
            values = part.to_numpy()
        else:  # missing values of other types become NaN
            values = part.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)
    else:
        values = np.asarray(part)
        single = values.dtype == np.float32
    if values.dtype.kind not in "biufO":
        raise TypeError("not numbers")
    dtype = np.float32 if single else np.float64
    if not (values.flags.c_contiguous or values.flags.f_contiguous):
        return np.array(values, dtype=dtype, order="C")
    return writable_memory_view(np.asarray(values, dtype=dtype))


def read_partition_pair(
    pair: Pair, clean: PartitionTargets | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return features and target of a partition as arrays; with `clean` no value is wrong."""
    if clean is None:
        return _read_partition_features(pair[0]), np.asarray(pair[1])
    return _read_partition_features(partition_objects_to_numbers(pair[0])), exact_identifiers(
        pair[1]
    )


def fingerprint(X: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Any, ...]:
    """Return shapes, types and checksums by which a partition that is read again is known:
    private, as its rows are.
    """
    return tuple((part.shape, part.dtype.str, _partition_checksum(part)) for part in (X, y))


def _partition_checksum(values: Any) -> int:
    if isinstance(values, NonZeroRows):
        return hash(tuple(_partition_checksum(part) for part in values.parts))
    if values.dtype.kind == "O":  # labels; objects have no bytes of their own
        return zlib.crc32("\0".join(map(repr, values.ravel())).encode(errors="surrogatepass"))
    values = values if values.flags.c_contiguous else values.T
    content = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return zlib.crc32(content)


def partition_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return an array as float64, NaN where an object or a text is no number.

    Every cell is read by itself: text means the number that is written there, or the truth value
    that readers of files make 1 or 0 of where nothing else stands in its column.
    """
    if values.dtype.kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    if values.dtype.kind in "mM":  # whose objects may be whole numbers
        return np.full(values.shape, math.nan)
    cells = values.astype(object).ravel()
    return np.array([partition_number(cell) for cell in cells], dtype=np.float64).reshape(
        values.shape
    )


def partition_number(value: Any) -> float:
    """Return one object as a number, NaN if it is none, whatever it does when it is asked."""
    if type(value) is float:
        return value
    try:
        if isinstance(value, np.ndarray):  # whose only cell, if it has no axes, is a number
            if value.ndim or np.ma.getmaskarray(value).any():
                return math.nan
            value = value[()]
        if isinstance(value, (np.datetime64, np.timedelta64)):
            return math.nan
        if isinstance(value, (complex, np.complexfloating)):
            return float(value.real) if value.imag == 0 else math.nan
        if isinstance(value, str):
            truth = _TRUTH.get(str.strip(value).lower())
            if truth is not None:
                return truth
        return float(value)
    except Exception:  # an error would tell of this record
        return math.nan


def partition_objects_to_numbers(part: Any) -> Any:
    """Return a partition, array or dataframe whose objects and text are numbers, NaN where they
    are none.

    Columns of other types stay as they are. One cell that is no number may be why its column is
    text, so that text is read cell by cell like objects.
    """
    if isinstance(part, np.ndarray):
        return partition_numbers(part) if part.dtype.kind in CELLWISE else part
    frame = nw.from_native(part, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return part
    pandas = frame.implementation.is_pandas_like()
    plain = dict(part.dtypes.items()) if pandas else {}
    cellwise = [
        name
        for name, kind in frame.schema.items()
        if kind in cellwise_column_types() or (pandas and _is_read_alone(plain[name]))
    ]
    if not cellwise:
        return part
    read = {name: partition_numbers(exact_identifiers(part[name])) for name in cellwise}
    if pandas:
        part = part.copy(deep=False)
        for name, numbers in read.items():
            part[name] = numbers
        return part
    kind = frame.implementation
    columns = [
        nw.new_series(name, numbers, nw.Float64, backend=kind) for name, numbers in read.items()
    ]
    return frame.with_columns(*columns).to_native()


def cellwise_column_types() -> tuple[Any, ...]:
    """Return the types of a dataframe's columns that are read cell by cell: text, categories,
    objects, and columns without any value.
    """
    return nw.String, nw.Categorical, nw.Enum, nw.Object, nw.Unknown


def _is_read_alone(kind: Any) -> bool:
    """Return whether a column of pandas of this type holds objects, decimal numbers for instance,
    complex numbers, or numbers that are not all stored.
    """
    sparse = hasattr(kind, "subtype") and hasattr(kind, "fill_value")
    return sparse or getattr(kind, "kind", "O") in "Oc"


@dataclass(frozen=True)
class PartitionTargets:
    """Targets as float64 in which NaN marks the rows that are invalid, whatever is wrong with
    them.
    """

    # Makes floats of a target, NaN of other values: of numbers, or of labels the position in the
    # label set.
    encode: Callable[[npt.NDArray[Any]], npt.NDArray[np.float64]]

    def __call__(self, X: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the marked targets of rows X, of floats or of sparse ones."""
        if issparse(X) or isinstance(X, NonZeroRows):
            valid = NonZeroRows.of(X).finite_rows()
        else:
            # Sums find most of the trouble without a second array; rows whose sum overflows are
            # examined one by one.
            with np.errstate(all="ignore"):
                valid = np.isfinite(X.sum(axis=1))
            suspects = np.flatnonzero(~valid)
            valid[suspects] = np.isfinite(X[suspects]).all(axis=1)
        targets = self.encode(y)
        return np.where(valid & np.isfinite(targets), targets, np.nan)


@dataclass(frozen=True)
class PartitionFacts:
    """Findings of the check of a partition: counts and flags, never values."""

    rows: int
    problem: str | None = None  # key of an error message
    X: SpilledArray | SpilledNonZeros | None = None
    y: SpilledArray | SpilledLabels | None = None
    labels: npt.NDArray[Any] | None = None  # the distinct ones
    mark: Mark = ()
    owner: str | None = None  # the worker of a cluster that holds it, None if it had no room

    @staticmethod
    def require(facts: Sequence[PartitionFacts], owner: str, least: int = 1) -> None:
        """Raise if any partition has a problem, or if there are fewer rows than the least
        number, 0 or 1.
        """
        problems = {fact.problem for fact in facts if fact.problem}
        if problems:
            raise ValueError(_PROBLEMS[min(problems)].format(owner=owner))
        if sum(fact.rows for fact in facts) < least:
            raise ValueError(
                f"Found array with 0 sample(s) while a minimum of 1 is required by {owner}."
            )


def check_partition(
    pair: Pair,
    width: int,
    numeric: bool,
    spill: SpillFile | None,
    clean: PartitionTargets | None = None,
    reread: bool = False,
) -> PartitionFacts:
    """Check one partition, and park it in the spill file if there is one with room for it.

    With `clean` no value is wrong: the target is parked with NaN for invalid rows. A partition that
    is not parked, or may be read again all the same (`reread`), is marked.
    """
    try:
        X, y = read_partition_pair(pair, clean)
        source = X, y
        if numeric:
            if y.dtype.kind not in ("biuf" + CELLWISE if clean is not None else "biufO"):
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
        # Known again by what is used of it: how an invalid object looks may differ whenever it is
        # read.
        source = X, (y := clean(X, y))
    elif not _all_finite(X):
        return PartitionFacts(0, "X not finite")
    elif y.dtype.kind == "f" and not _all_finite(y):
        return PartitionFacts(0, "y not finite" if numeric else "missing label")
    elif not numeric:
        if y.dtype.kind == "O" and any(label is None or label != label for label in y):
            return PartitionFacts(0, "missing label")
        labels = _distinct_partition_labels(y)
        if labels is None:
            return PartitionFacts(0, "not labels")
    facts = PartitionFacts(len(X), labels=labels)
    if spill is not None:
        kept_y = spill.write(y) if labels is None else spill.write_labels(y, labels)
        kept_X = None if kept_y is None else spill.write_rows(X)
        facts = facts if kept_X is None else replace(facts, X=kept_X, y=kept_y)
    return replace(facts, mark=fingerprint(*source)) if reread or facts.X is None else facts


def _distinct_partition_labels(y: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Return the distinct labels of a partition; None if they are not labels or too many."""
    if y.dtype.kind == "f" and not (y == np.round(y)).all():
        return None
    try:
        labels = np.unique(y)
    except TypeError:  # numbers beside text
        return None
    return labels if labels.size <= MOST_LABELS else None


def _all_finite(values: Any) -> bool:
    values = values.values if isinstance(values, NonZeroRows) else values
    # One sum finds most of the trouble without a second array; each value is examined only if the
    # sum overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


@dataclass(frozen=True)
class Partition:
    """Source of the rows of one partition."""

    rows: int
    mark: Mark
    number: int  # of the partition in its table
    pair: Any = None  # delayed features and target, from their source
    graph: ScheduledPartition | None = (
        None  # computes the pair in this process without other partitions
    )
    X: SpilledArray | SpilledNonZeros | None = None  # parked features
    y: SpilledArray | SpilledLabels | None = None  # parked target
    weights: SpilledArray | None = None  # replace those of the row map
    pending: tuple[Reweigh, ...] = ()  # changes of weights that are applied anew in every pass
    row_weights: RowWeights | None = None  # in the memory of this process

    @property
    def at_hand(self) -> bool:
        """Whether this process gets at the rows without Dask's scheduler."""
        return self.X is not None or self.graph is not None

    def open(self, mapping: PartitionMap, cores: int = 1) -> MemoryRows:
        """Return the partition's rows, parked ones or new ones from their source, to be summed
        by `cores` threads.
        """
        if self.X is None or self.y is None:
            assert self.graph is not None
            rows = mapping.source_rows(self.graph.compute(), self.mark, self.pending, cores)
        else:
            y = (
                self.y.open(mapping.encoded)
                if isinstance(self.y, SpilledLabels)
                else mapping.encoded(self.y.open())
            )
            rows = mapping.rows(self.X.open(), y, cores)
            if self.weights is not None:
                rows = rows.with_weights(self.weights.open())
            for change in self.pending:
                rows = change(rows)
        return rows if self.row_weights is None else rows.with_row_weights(self.row_weights)

    def holds(self, pair: Pair, clean: PartitionTargets | None) -> bool:
        """Return whether features and target that were read now are those of this partition, row
        by row.
        """
        try:
            X, y = read_partition_pair(pair, clean)
            y = y if clean is None else clean(X, y)
        except (TypeError, ValueError, OverflowError):
            return False
        if self.X is None or self.y is None:
            return fingerprint(X, y) == self.mark
        if isinstance(self.y, SpilledLabels):
            kept = self.y.labels[self.y.codes.open()]
        else:
            kept = self.y.open()
            y = np.asarray(y, dtype=np.float64)
        return _same_values(kept, y) and _same_values(self.X.open(), X)


def _same_values(mine: Any, other: Any) -> bool:
    """Whether two arrays, or the non-zeros of two matrices, are equal, NaN to NaN."""
    if isinstance(mine, NonZeroRows) and isinstance(other, NonZeroRows):
        return all(_same_values(*parts) for parts in zip(mine.parts, other.parts, strict=True))
    if isinstance(mine, NonZeroRows) or isinstance(other, NonZeroRows):
        return False
    return np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f")


@dataclass(frozen=True)
class PartitionMap:
    """Map from rows and targets of a partition to `MemoryRows`."""

    row_map: RowMap
    target: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None
    target_shift: float
    target_scale: float
    clean: PartitionTargets | None = None
    target_range: tuple[float, float] | None = None  # mapped targets are clipped to it

    def source_rows(
        self, pair: Pair, mark: Mark, pending: Iterable[Reweigh] = (), cores: int = 1
    ) -> MemoryRows:
        """Return the mapped rows of one partition as it comes from its source, if it is the one
        that was checked.
        """
        try:
            X, y = read_partition_pair(pair, self.clean)
            y = y if self.clean is None else self.clean(X, y)
        except (TypeError, ValueError, OverflowError):
            raise SourceChangedError from None
        if fingerprint(X, y) != mark:
            raise SourceChangedError
        rows = self.rows(X, self.encoded(y), cores)
        for change in pending:
            rows = change(rows)
        return rows

    def encoded(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return targets or labels as the numbers that the fit is about, each of which depends
        on one of them.
        """
        return y if self.target is None else self.target(y)

    def rows(self, X: Any, y: Any, cores: int = 1) -> MemoryRows:
        """Return the mapped rows of one partition, invalid ones marked, of encoded targets."""
        shift = self.target_shift
        scale = self.target_scale
        rows = rows_in_memory(X, y, self.row_map, shift, scale, threads=cores, cache=False)
        return rows if self.target_range is None else rows.with_clipped_targets(*self.target_range)


@contextmanager
def quiet() -> Iterator[None]:
    """Say nothing of numbers: a worker's log must not tell what a row holds."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def run_on_partition_source(
    call: Call, mapping: PartitionMap, mark: Mark, pending: Iterable[Reweigh], pair: Pair
) -> Sums | None:
    """Work on one partition where Dask has it; None if it changed, since workers log what an
    error was about.
    """
    with quiet():
        try:
            return tuple(call(mapping.source_rows(pair, mark, pending)))
        except SourceChangedError:
            return None


def run_here(
    call: Call, mapping: PartitionMap, partition: Partition, cores: int = 1
) -> tuple[Any, ...]:
    """Work on one partition that is at hand."""
    return tuple(call(partition.open(mapping, cores)))


def add_partitions(parts: Sequence[Any]) -> Sums | None:
    """Return the sums of a group of partitions; None if one of them changed."""
    return None if any(part is None for part in parts) else tuple(pairwise_summation(parts))
