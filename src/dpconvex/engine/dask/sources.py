"""Where the rows of a partition come from, and how they become rows that can be summed."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.engine.dask.partitions import Clean, SpilledNonZeros, fingerprint, read_pair
from dpconvex.engine.dask.schedule import Recipe
from dpconvex.engine.dask.spill import SpilledArray, SpilledLabels, release_pages
from dpconvex.engine.failures import SourceChangedError
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.nonzero_arrays import NonZeros
from dpconvex.engine.passes import Survey
from dpconvex.engine.rows import RowMap
from dpconvex.engine.sparse import rows_in_memory
from dpconvex.engine.summation_order import accumulate
from dpconvex.engine.votes import Votes
from dpconvex.types import Array

__all__ = ["Call", "Change", "Mapping", "Source", "add_up", "quiet", "run_here", "run_source"]

Reweigh = Callable[[MemoryRows], MemoryRows]
Call = Callable[[MemoryRows], Any]


@dataclass(frozen=True)
class Change:
    """A change of weights that workers know again by its name."""

    function: Reweigh
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, rows: MemoryRows) -> MemoryRows:
        """Return the same rows with changed weights."""
        return self.function(rows)


@dataclass(frozen=True)
class Source:
    """Where the rows of one partition come from.

    Attributes
    ----------
    rows : int
        How many there are.
    mark : tuple
        By which the rows are known when they are read again.
    number : int
        Of the partition in its table.
    pair : Delayed
        Features and target, from their source.
    recipe : Recipe or None
        How threads of this process compute the pair without looking at other partitions.
    X, y : SpilledArray, SpilledLabels or None
        Where they were parked.
    weights : SpilledArray or None
        Weights that replace those of the row map.
    pending : tuple of Change
        Changes of weights that are applied anew in every pass.
    notes : dict
        What passes in this process found out about the rows, by row map and order in memory.
    opened : dict
        Parked rows whose mapped targets are parked, too, by the name of the mapping.
    votes : Votes or None
        What the rows count for, in the memory of this process.
    """

    rows: int
    mark: tuple[Any, ...]
    number: int
    pair: Any = None
    recipe: Recipe | None = None
    X: SpilledArray | SpilledNonZeros | None = None
    y: SpilledArray | SpilledLabels | None = None
    weights: SpilledArray | None = None
    pending: tuple[Change, ...] = ()
    notes: dict[tuple[RowMap, bool], Survey] = field(default_factory=dict, compare=False)
    opened: dict[str, MemoryRows] = field(default_factory=dict, compare=False)
    votes: Votes | None = None

    @property
    def spilled(self) -> bool:
        """Whether the rows lie in the spill file."""
        return self.X is not None

    @property
    def at_hand(self) -> bool:
        """Whether this process gets at the rows without Dask's scheduler."""
        return self.spilled or self.recipe is not None

    def open(self, mapping: Mapping, cores: int = 1) -> MemoryRows:
        """Return the rows, parked ones or new ones from their source, to be summed by `cores` threads."""
        if self.X is None or self.y is None:
            assert self.recipe is not None
            rows = mapping.source_rows(self.recipe.compute(), self.mark, self.pending, cores)
        else:
            rows = self.opened.get(mapping.name) or self._parked(mapping, cores)
            if self.weights is not None:
                rows = rows.with_weights(self.weights.open())
            for change in self.pending:
                rows = change(rows)
        rows.survey = self.notes.get((mapping.row_map, rows.by_columns))
        return rows if self.votes is None else rows.with_votes(self.votes)

    def holds(self, pair: tuple[Any, Any], clean: Clean | None) -> bool:
        """Whether features and target that were read now are those of this partition, row by row."""
        try:
            X, y = read_pair(pair, clean)
            y = y if clean is None else clean(X, y)
        except (TypeError, ValueError, OverflowError):
            return False
        if self.X is None or self.y is None:
            return fingerprint(X, y) == self.mark
        if isinstance(self.y, SpilledLabels):
            kept = self.y.labels[self.y.codes.open()]
        else:
            kept, y = self.y.open(), np.asarray(y, dtype=np.float64)
        parts = zip(_arrays(self.X.open()), _arrays(X), strict=True)
        return _equal(kept, y) and all(_equal(mine, other) for mine, other in parts)

    def _parked(self, mapping: Mapping, cores: int) -> MemoryRows:
        """Return parked rows; their mapped targets are parked for later passes where there is room."""
        assert self.X is not None
        if isinstance(self.y, SpilledLabels):
            y = self.y.open(mapping.encoded)
        else:
            assert self.y is not None
            y = mapping.encoded(self.y.open())
        rows = mapping.rows(self.X.open(), y, cores=cores)
        # Pages of sparse rows go only when their map is closed.
        targets = self.X.file.write(rows.targets) if isinstance(self.X, SpilledArray) else None
        if targets is not None:
            rows.targets = targets.open()
            self.opened[mapping.name] = rows
        return rows

    def close(self, rows: MemoryRows) -> None:
        """Remember what a pass found out, numbers per row only where they can be parked; let pages go."""
        survey, key = rows.survey, (rows.row_map, rows.by_columns)
        # A survey of given weights knows nothing of those that the row map gives.
        if survey is not None and not rows.own_weights and key not in self.notes:
            parked = [_park(self.X, numbers) for numbers in (survey.weights, survey.factors)]
            if all(there for there, _ in parked):
                self.notes[key] = Survey(survey.plain, parked[0][1], parked[1][1])
        rows.forget_survey()
        for name in ("source", "targets"):
            release_pages(getattr(rows, name))


def _arrays(X: Any) -> tuple[npt.NDArray[Any], ...]:
    return tuple(X.parts) if isinstance(X, NonZeros) else (X,)


def _equal(mine: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f")


def _park(place: SpilledArray | SpilledNonZeros | None, numbers: Array | None) -> tuple[bool, Array | None]:
    """Return whether one number per row could be parked next to the rows, and where it lies."""
    if numbers is None:
        return True, None
    found = place.file.write(numbers) if isinstance(place, SpilledArray) else None
    return found is not None, None if found is None else found.open()


@dataclass(frozen=True)
class Mapping:
    """How rows and targets of a partition become `MemoryRows`."""

    row_map: RowMap
    target: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None
    target_shift: float
    target_scale: float
    clean: Clean | None = None
    labels: bool = False
    name: str = field(default_factory=lambda: uuid.uuid4().hex)  # by which workers know it again

    def with_labels(self) -> Mapping:
        """Return the mapping whose targets are labels."""
        return replace(self, labels=True, name=uuid.uuid4().hex)

    def source_rows(
        self, pair: tuple[Any, Any], mark: tuple[Any, ...], pending: Iterable[Reweigh] = (), cores: int = 1
    ) -> MemoryRows:
        """Return the mapped rows of one partition as it comes from its source, if it is the one that was checked."""
        try:
            X, y = read_pair(pair, self.clean)
            y = y if self.clean is None else self.clean(X, y)
        except (TypeError, ValueError, OverflowError):
            raise SourceChangedError from None
        if fingerprint(X, y) != mark:
            raise SourceChangedError
        return self.rows(X, self.encoded(y), None, pending, cores)

    def encoded(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return targets or labels as the numbers that the fit is about, each of which depends on one of them."""
        return y if self.target is None else self.target(y)

    def rows(self, X: Any, y: Any, weights: Any = None, pending: Iterable[Reweigh] = (), cores: int = 1) -> MemoryRows:
        """Return the mapped rows of one partition, invalid ones marked, of encoded targets."""
        rows = rows_in_memory(
            X, y, self.row_map, self.target_shift, self.target_scale, threads=cores, keep=False, weights=weights
        )
        if self.labels:
            rows = rows.with_labels()
        for change in pending:
            rows = change(rows)
        return rows


@contextmanager
def quiet() -> Iterator[None]:
    """Say nothing of numbers: a worker's log must not tell what a row holds."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def run_source(
    call: Call, mapping: Mapping, mark: tuple[Any, ...], pending: Iterable[Reweigh], pair: tuple[Any, Any]
) -> tuple[Any, ...] | None:
    """Work on one partition where Dask has it; None if it changed, since workers log what an error was about."""
    with quiet():
        try:
            return tuple(call(mapping.source_rows(pair, mark, pending)))
        except SourceChangedError:
            return None


def run_here(call: Call, mapping: Mapping, source: Source, cores: int = 1) -> tuple[Any, ...]:
    """Work on one partition that is at hand."""
    rows = source.open(mapping, cores)
    found = tuple(call(rows))
    source.close(rows)
    return found


def add_up(parts: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the sums of a group of partitions; None if one of them changed."""
    return None if any(part is None for part in parts) else tuple(accumulate(parts))
