"""Small tables and their neighbours: odd values, uneven people, weights, invalid rows, several
ways to hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from dpconvex.core.person_identifiers import person_tags

# Around multiples of 4 and 8, where kernels for several rows at a time leave some over.
SIZES = (3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 24, 25, 31, 32, 33, 40)
VARIANTS = ["rows", "people", "weights", "sparse", "dask", "ignored"]
VALUES = ["ordinary", "zero", "tiny", "huge", "mirrored", "flipped", "bounds"]
LOW = -1.0
HIGH = 1.0


@dataclass(frozen=True)
class Table:
    """What a fit is given."""

    X: object
    y: object
    sample_weight: object = None
    groups: object = None

    def given(self) -> tuple[tuple[object, object], dict[str, object]]:
        more = {"sample_weight": self.sample_weight, "groups": self.groups}
        return (self.X, self.y), {name: value for name, value in more.items() if value is not None}


@dataclass
class Record:
    """The rows of one record: one, or those of a person."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    order: np.ndarray  # where the rows stand among those of others
    name: int


_PARTS = ("X", "y", "weights", "order")


class Family:
    """A table and its neighbours, drawn by a seed.

    Parameters
    ----------
    fit : fits.Fit
        Says what is predicted ("number", "label", "kept label", "three labels", "sign" or
        "matrix"), what is offered, how many rows a person may have that nobody names, and whether
        records are drawn by their places: one then keeps its place and name, and one more comes
        last.
    variant : str
        How the data are held, one of `VARIANTS`.
    relation : {"replace_one", "add_or_remove_one"}
        Which tables are neighbours.
    seed : int
        Of everything.
    columns : pair of int
        Fewest and most.
    sizes : tuple of int
        Numbers of records, one of which is taken.
    """

    def __init__(
        self,
        fit: Any,
        variant: str,
        relation: str,
        seed: int,
        columns: tuple[int, int],
        sizes: tuple[int, ...] = SIZES,
    ) -> None:
        self.rng = np.random.default_rng([seed, VARIANTS.index(variant), relation == "replace_one"])
        self.fit = fit
        self.variant = variant
        self.adds = relation == "add_or_remove_one"
        self.columns = int(self.rng.integers(columns[0], columns[1] + 1))
        self.size = int(self.rng.choice(sizes))
        also = self.rng.random(3) < 0.3  # in people and partitions, of what is offered
        mixed = variant in ("people", "dask")
        self.people = variant == "people" or bool(
            variant == "dask" and "people" in fit.variants and also[0]
        )
        self.weighted = variant == "weights" or bool(
            mixed and "weights" in fit.variants and also[1]
        )
        self.invalid = variant == "ignored" or bool(mixed and "ignored" in fit.variants and also[2])
        self.several = (1, 1, 2, 3, 6) if self.people else range(1, fit.rows_each + 1)
        self.layout = str(self.rng.choice(["C", "F"])), str(self.rng.choice(["f8", "f8", "f4"]))
        self.names = _spread_names(self.rng)
        self.values = [*VALUES, "invalid"] if self.invalid else VALUES
        self.records = [self._record(self._value(), name) for name in self.names[: self.size]]

    def _value(self) -> str:
        return "ordinary" if self.rng.random() < 0.6 else str(self.rng.choice(self.values))

    def _record(self, value: str, name: int, like: Record | None = None) -> Record:
        rng = self.rng
        rows = int(rng.choice(self.several))
        if like is not None and not self.people and not self.adds:
            rows = len(like.y)  # how many rows there are is public
        X = rng.uniform(LOW, HIGH, (rows, *self._shape))
        y = self._targets(rows)
        if like is not None and value in ("mirrored", "flipped"):
            X = np.repeat(like.X[:1], rows, axis=0) * (-1 if value == "mirrored" else 1)
            y = self._flipped(np.repeat(like.y[:1], rows, axis=0)) if value == "flipped" else y
        fixed = {"zero": 0.0, "tiny": 5e-324, "huge": 1e300, "bounds": HIGH}.get(value)
        if fixed is not None:
            X = fixed * rng.choice([-1.0, 1.0], X.shape)
            if self.fit.target in ("number", "matrix") and rng.random() < 0.7:
                y = fixed * rng.choice([-1.0, 1.0], y.shape)
        if value == "invalid":
            odd = rng.choice([np.nan, np.inf, -np.inf])
            if rng.random() < 0.5:
                X.reshape(rows, -1)[:, int(rng.integers(X[0].size))] = odd
            else:  # another label is none
                y[...] = odd if self.fit.target in ("number", "matrix") else rng.choice([odd, 7.0])
        if self.variant == "sparse":
            X = np.where(rng.random(X.shape) < 0.4, 0.0, X)
        weights = rng.choice([1.0, 0.5, 0.1, 1.0] + [0.0, 5e-324] * (not self.fit.in_place), rows)
        return Record(X, y, weights, rng.random(rows), name)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (2, self.columns) if self.fit.target == "matrix" else (self.columns,)

    @property
    def _labels(self) -> int:
        return 3 if self.fit.target == "three labels" else 2

    def _targets(self, rows: int) -> np.ndarray:
        if self.fit.target in ("number", "matrix"):
            return self.rng.uniform(-2, 2, (rows, *self._shape[:-1]))
        labels = self.rng.integers(0, self._labels, rows).astype(float)
        return 2 * labels - 1 if self.fit.target == "sign" else labels

    def _flipped(self, y: np.ndarray) -> np.ndarray:
        if self.fit.target in ("number", "matrix", "sign"):
            return -y
        with np.errstate(invalid="ignore"):
            return (y + 1) % self._labels

    def put_targets(self, targets: Callable[[np.ndarray], np.ndarray]) -> None:
        """Give every record a long row, and the targets that a function of its rows says."""
        for record in self.records:
            record.X = np.copysign(1 - np.abs(record.X).clip(0, 1) / 8, record.X)
            record.y = targets(record.X)

    def table(self) -> Table:
        """Return D."""
        return self._held(self.records)

    def neighbour(self) -> Table:
        """Return a neighbour of D: one record is another one, or one more or less."""
        rng = self.rng
        records = list(self.records)
        in_place = self.fit.in_place
        place = int(rng.integers(len(records)))
        old = records[place]
        named = old.name if not self.adds and (in_place or rng.random() < 0.5) else self.names[-1]
        new = self._record(str(rng.choice(self.values)), named, like=old)
        if self.adds and in_place:
            new.order[:] = 1.0
            records.append(new)
        elif self.adds and rng.random() < 0.4:
            del records[place]
        elif self.adds:
            records.insert(place, new)
        else:
            if not self.people:
                new.order = old.order
            if self.fit.target == "kept label":
                new.y = np.where(np.isnan(new.y), new.y, old.y)
            records[place] = new
        return self._held(records)

    def _held(self, records: list[Record]) -> Table:
        none = replace(
            self.records[0], **{part: getattr(self.records[0], part)[:0] for part in _PARTS}
        )
        X, y, weights, order = (
            np.concatenate([getattr(record, part) for record in [none, *records]])
            for part in _PARTS
        )
        names = np.repeat(
            [none.name, *(r.name for r in records)], [0, *(len(r.y) for r in records)]
        )
        if self.people or self.fit.rows_each > 1:
            X, y, weights, names = (
                part[np.argsort(order, kind="stable")] for part in (X, y, weights, names)
            )
        layout, dtype = self.layout
        if dtype == "f4":
            X = np.clip(X, -3e38, 3e38)
        with np.errstate(under="ignore"):
            X = np.array(X, dtype=dtype, order=layout)
        table = Table(X, y, weights if self.weighted else None, names if self.people else None)
        if self.variant == "sparse":
            return Table(scipy.sparse.csr_array(X), y, table.sample_weight, table.groups)
        return _partitioned(table) if self.variant == "dask" else table


def _spread_names(rng: np.random.Generator) -> list[int]:
    """Return identifiers of people, the last of which is last in the order of their tags."""
    names = rng.permutation(10_000)[:200]
    tags = person_tags(names)
    last = int(np.argmax(tags))
    return [*np.delete(names, last).tolist(), int(names[last])]


def _partitioned(table: Table) -> Table:
    """Return the table in partitions of 5 rows: one row more changes which rows are together."""
    import dask.array as da

    def parts(array):
        if array is None:
            return None
        return da.from_array(array, chunks=(5, *array.shape[1:]))

    return Table(parts(table.X), parts(table.y), parts(table.sample_weight), parts(table.groups))
