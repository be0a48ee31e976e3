"""Weights of rows, and the people behind the rows.

A row weight multiplies everything that a row adds to a sum, a count or a moment. Weights of one person sum to at most
1, so what a person contributes is a mean of what its rows contribute, or less: no longer than the longest of them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from dpconvex.engine.rows import RowIndices
from dpconvex.types import Array

Tags = npt.NDArray[np.uint64]

#: Tag of rows that name nobody; no identifier has it.
NOBODY = np.uint64(2**64 - 1)

_FINEST = 40  # bits of the grid of row weights where records are few
_DIGITS = 52  # of a sum of row weights that is exact
_LOOKUP_ROWS = 1 << 20  # rows whose weights are looked up at a time
_FAST = {int: np.int64, float: np.float64}
_PLAIN = {bool, int, float, str, bytes}  # of which equal ones have one tag
_WHOLE = re.compile(r"([+-]?)0*(\d+)", re.ASCII)
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
_MOST_DIGITS = 600  # of a whole number: Python refuses to read longer ones


@dataclass(frozen=True)
class RowWeights:
    """One number per row between 0 and 1, and the people behind the rows.

    Attributes
    ----------
    values : array of shape (n_rows,)
        What each row counts for; those of one record sum to at most 1.
    records : int
        Public number of records: people, or rows where every row is a record of its own.
    tags : array of shape (n_rows,), optional
        Of the person behind each row: a public function of its identifier, evenly spread over 64 bits; `NOBODY`
        where it names nobody. None where every row is a record of its own.

    Notes
    -----
    Privacy: values, tags and the number of rows of a person are private; `records` is public.
    """

    values: Array
    records: int
    tags: Tags | None = None

    def take(self, rows: npt.NDArray[np.integer]) -> RowWeights:
        """Return the weights of some rows, chosen for speed alone: the number of records is scaled."""
        return self.part(rows, max(1, round(self.records * rows.size / max(1, self.values.size))))

    def part(self, rows: npt.NDArray[np.integer] | slice, records: int) -> RowWeights:
        """Return the weights of the rows of a part of so many records."""
        return RowWeights(self.values[rows], records, None if self.tags is None else self.tags[rows])

    def rows_in_part(self, records: int) -> RowIndices:
        """Return which rows belong to a part of about `records` people.

        Whether a person is in the part follows from its tag and public numbers, never from other people: replacing one
        person changes what one person contributes to sums over the part.
        """
        assert self.tags is not None, "rows that are records of their own"
        limit = np.uint64(min(2**64 - 1, records * 2**64 // max(1, self.records)))
        return np.flatnonzero(self.tags < limit)

    def _rows_by_person(self) -> tuple[RowIndices, RowIndices]:
        """Return rows of positive weight sorted by person, and where each person's begin, with their number at the end.

        As many people as there are records: those without a weight have no rows. Their order follows from their tags:
        nothing but a uniformly random choice among all of them may use it.
        """
        assert self.tags is not None, "rows that are records of their own"
        positive = np.flatnonzero(self.values > 0)
        order = positive[np.argsort(self.tags[positive], kind="stable")]
        starts = _first_of_each(self.tags[order])
        nobody = np.full(max(0, self.records - starts.size), order.size)
        return order, np.concatenate([starts, nobody, [order.size]])

    def rows_of_people(self, people: RowIndices) -> RowIndices:
        """Return all rows of some people, numbered from 0 to ``records - 1``."""
        order, starts = self._rows_by_person()
        counts = starts[people + 1] - starts[people]
        first = np.repeat(starts[people] - np.cumsum(counts) + counts, counts)
        return np.asarray(order[first + np.arange(counts.sum())])

    def one_row_each(self, people: RowIndices, generator: np.random.Generator) -> tuple[RowIndices, Array]:
        """Return a random row of each of some people, and what it counts for: on average what all of them do.

        One of the m rows of positive weight, each as likely, times m: between 0 and 1. People without one count
        nothing.
        """
        order, starts = self._rows_by_person()
        counts = starts[people + 1] - starts[people]
        drawn = starts[people] + (generator.random(people.size) * counts).astype(np.int64)
        present = counts > 0
        rows = np.zeros(people.size, dtype=np.int64)
        rows[present] = order[drawn[present]]
        return rows, np.where(present, np.minimum(self.values[rows] * counts, 1.0), 0.0)


def _first_of_each(ordered: Tags) -> RowIndices:
    """Return where each tag begins in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: ordered.size])


def join_row_weights(parts: Sequence[RowWeights]) -> RowWeights | None:
    """Return the weights of consecutive parts of one table; None for none."""
    if not parts:
        return None
    tags = None if parts[0].tags is None else _concatenate_views([part.tags for part in parts])
    return RowWeights(_concatenate_views([part.values for part in parts]), parts[0].records, tags)


def _concatenate_views(parts: Sequence[Any]) -> Any:
    """Return arrays one after the other: the one that all of them are views of, if they are."""
    whole = parts[0].base
    size = sum(part.size for part in parts)
    if whole is not None and whole.size == size and all(part.base is whole for part in parts):
        return whole
    return np.concatenate(parts)


def round_to_grid(values: Array, most_records: int) -> Array:
    """Round weights down to a public grid on which sums of as many of them as there are records at most are exact.

    A count that is a sum of such numbers has no rounding error, whatever the order of addition.
    """
    bits = min(_FINEST, _DIGITS - math.ceil(math.log2(max(2, most_records))))
    rounded = np.ldexp(values, bits)
    np.floor(rounded, out=rounded)
    return np.asarray(np.ldexp(rounded, -bits, out=rounded))


def equal_person_weights(tags: Tags) -> tuple[int, Array]:
    """Return the number of people and ``1 / m`` for each row of somebody with m rows; 0 for rows that name nobody."""
    ordered = np.sort(tags)
    ordered = ordered[: np.searchsorted(ordered, NOBODY)]  # the largest tag there is
    starts = _first_of_each(ordered)
    found, counts = ordered[starts], np.diff(np.append(starts, ordered.size))
    del ordered
    shares = np.append(1.0 / counts, 0.0)
    values = np.empty(tags.size)
    for start in range(0, tags.size, _LOOKUP_ROWS):  # little memory beside the result
        part = slice(start, start + _LOOKUP_ROWS)
        values[part] = shares[np.searchsorted(found, tags[part])]
    return found.size, values


def limit_rows_per_person(tags: Tags, rows: int) -> Array:
    """Return 1 for at most so many rows of every person, and 0 for its others and for rows that name nobody.

    Which ones follows from the person's tag and the order of its own rows, never from other people's.
    """
    order = np.argsort(tags, kind="stable")
    ordered = tags[order]
    starts = _first_of_each(ordered)
    own = np.arange(tags.size) - np.repeat(starts, np.diff([*starts, tags.size]))
    with np.errstate(over="ignore"):
        drawn = _mix_identifier_bits(ordered + _mix_identifier_bits(own.astype(np.uint64)))
    by_person = np.lexsort((drawn, ordered))  # people stay where they are
    chosen = np.zeros(tags.size)
    chosen[order[by_person]] = own < rows
    chosen[tags == NOBODY] = 0.0
    return chosen


def exact_values(column: Any) -> npt.NDArray[Any]:
    """Return a column as an array in which no value changes what another one is.

    Numpy would make text of numbers next to text, and floats of whole numbers next to a missing one, which rounds those
    beyond 2^53. So lists, and columns of other libraries that may hold missing values, become objects cell by cell.
    Arrays, and columns of pandas with a type of numpy, are what their maker made of them.
    """
    if isinstance(column, Sequence) and not isinstance(column, (str, bytes)):
        kinds = set(map(type, column))
        try:  # a faster way to the same values, where all are of one kind
            return np.array(column, _FAST[kinds.pop()]) if len(kinds) == 1 else _object_array(column)
        except (KeyError, OverflowError):
            return _object_array(column)
    if not isinstance(column, np.ndarray) and getattr(column, "shape", ())[1:] == (1,):
        column = _only_column(column)
    dtype = getattr(column, "dtype", getattr(column, "type", None))
    if dtype is None or isinstance(dtype, np.dtype) or not hasattr(column, "__getitem__"):
        return np.asarray(column)
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):  # of pandas: floats beside NaN
        codes = np.asarray(getattr(column, "cat", column).codes)
        return _object_array([*dtype.categories.tolist(), None])[codes]
    listed = next((n for n in ("to_pylist", "to_list", "tolist") if hasattr(column, n)), None)
    if listed is None:
        return np.asarray(column)
    kind, missing = np.asarray(column[:0]).dtype.kind, getattr(column, "null_count", None)
    missing = missing() if callable(missing) else missing
    if kind == "f" or (kind in "biu" and missing == 0):  # a faster way to the same values
        return np.asarray(column)
    return _object_array(getattr(column, listed)())


def _only_column(frame: Any) -> Any:
    """Return the column of a dataframe of pandas, polars or pyarrow that has one; anything else as it is."""
    if hasattr(frame, "iloc"):
        return frame.iloc[:, 0]
    if hasattr(frame, "to_series"):
        return frame.to_series()
    return frame.column(0) if hasattr(frame, "column") else frame


def _object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return an array of the objects in a list, whatever they are."""
    cells = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        cells[position] = value
    return cells


def person_tags(identifiers: npt.NDArray[Any]) -> Tags:
    """Return 64 evenly spread bits for each row's person, and `NOBODY` for rows that name nobody.

    What a tag follows from is the cell's canonical form alone (`canonical_identifier`), whatever the type of its column
    and whatever stands in other rows. Whole numbers are mixed by a bijection of 64 bits; text and longer numbers are
    hashed. People whose tags agree, by a chance of 2^-64 for each pair, count as one and are protected together.
    """
    kind = identifiers.dtype.kind
    if kind in "iu":
        return _named(_mix_identifier_bits(identifiers.astype(np.int64).view(np.uint64)))
    if kind == "f":
        whole = np.floor(identifiers) == identifiers
        whole &= np.abs(identifiers) < _first_rounded(identifiers.dtype)
        numbers = np.where(whole, identifiers, 0).astype(np.int64)
        return np.where(whole, person_tags(numbers), NOBODY)
    if kind == "M":  # whatever the unit
        times = identifiers.astype("datetime64[us]")
        return np.where(np.isnat(times), NOBODY, person_tags(times.view(np.int64)))
    known: dict[tuple[type, Any], tuple[int, bool] | None] = {}
    tags, whole = np.full(identifiers.size, NOBODY), np.zeros(identifiers.size, np.bool_)
    named = np.ones(identifiers.size, np.bool_)
    for row, value in enumerate(identifiers.tolist()):
        key = (type(value), value) if type(value) in _PLAIN else None
        if key is not None and key in known:  # not by value alone: True equals 1, and is a word
            found = known[key]
        else:
            found = _identifier_bits(value)
            if key is not None:
                known[key] = found
        if found is None:
            named[row] = False
        else:
            tags[row], whole[row] = found
    tags[whole] = _mix_identifier_bits(tags[whole])
    tags[named] = _named(tags[named])
    return tags


def _named(tags: Tags) -> Tags:
    """Return the tags of identifiers; the one that would have that of nobody shares the tag below."""
    return np.minimum(tags, NOBODY - np.uint64(1))


def _first_rounded(dtype: np.dtype[Any]) -> float:
    """Return the power of two from which on a type of floats, or float64, does not hold all whole numbers."""
    return 2.0 ** min(53, np.finfo(dtype).nmant + 1)


def _identifier_bits(value: Any) -> tuple[int, bool] | None:
    """Return 64 bits of one identifier, and whether they are a number's and have yet to be mixed; None for nobody."""
    content = canonical_identifier(value)
    if content is None:
        return None
    if isinstance(content, int):
        if -(2**63) <= content < 2**64:  # as arrays of whole numbers are mixed
            return content % 2**64, True
        content = f"number:{content:x}"
    else:
        content = f"text:{content}"
    text = content.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"), False


def canonical_identifier(value: Any) -> int | str | None:
    """Return whom a cell names: a whole number or text, the same for every way to write it; None for nobody.

    - A whole number of at most 600 digits is itself. Text without the spaces around it, or bytes of text, that is
      written as a number is that number: ``7``, ``7.0``, ``"7"``, ``"007"`` and ``"7e0"`` are one person.
    - A float, or text that is written as one, is a whole number below 2^53 (of narrower types: below the first that
      they round), or it names nobody: what stood there before rounding cannot be known.
    - Truth values are the words true and false, in any capitals. Other text is itself.
    - A time is its microsecond, in UTC if it has a zone.
    - Everything else names nobody: what is missing, empty text, ``"nan"``, infinity, objects of other kinds.
    """
    try:
        return _identifier_content(value)
    except Exception:  # whatever an object does when it is looked at: an error would tell of it
        return None


def _identifier_content(value: Any) -> int | str | None:
    if isinstance(value, np.timedelta64):  # a kind of whole number to numpy
        return None
    if isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    elif isinstance(value, (bool, np.bool_, UUID)):
        value = str(value)
    if isinstance(value, str):
        value = str.__str__(value).rstrip("\0").strip()  # arrays of text end with zeros
        if (digits := _WHOLE.fullmatch(value)) is not None:
            return int("".join(digits.groups())) if len(digits[2]) <= _MOST_DIGITS else None
        if not _NUMBER.fullmatch(value):
            lower = value.lower()
            return (lower if lower in ("true", "false") else value) or None
        value = float(value)
    if isinstance(value, (int, np.integer)):
        return int(value) if abs(int(value)) < 10**_MOST_DIGITS else None
    if isinstance(value, (float, np.floating)):
        exact = abs(float(value)) < _first_rounded(np.dtype(type(value)))
        return int(value) if exact and int(value) == value else None
    if isinstance(value, Decimal):
        short = value.is_finite() and value.adjusted() < _MOST_DIGITS
        return int(value) if short and int(value) == value else None
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, (dt.date, np.datetime64)):
        moment = np.asarray(value, dtype="datetime64[us]")
        return None if np.isnat(moment) else int(moment.astype(np.int64)) % 2**64
    return None


def _mix_identifier_bits(numbers: Tags) -> Tags:
    """Mix the bits of whole numbers (the finaliser of splitmix64, a bijection)."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
