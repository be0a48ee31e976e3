"""Identifiers of people: columns read cell by cell, and tags of 64 bits that say which rows are
of one person.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

Tags = npt.NDArray[np.uint64]
#: Tag of rows that name nobody; no identifier has it.
NOBODY = np.uint64(2**64 - 1)
_FAST = {int: np.int64, float: np.float64}
_PLAIN = {bool, int, float, str, bytes}  # of which equal ones have one tag
# There is one way only to part a run of digits: a pattern with two takes the square of its length.
_WHOLE = re.compile(r"([+-]?)(?=\d)0*+(\d*+)", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?((\d++(\.\d*+)?|\.\d++)(e[+-]?\d++)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE
)
_MOST_DIGITS = 600  # of a whole number: Python refuses to read longer ones


def exact_identifiers(column: Any) -> npt.NDArray[Any]:
    """Return a column as an array in which no value changes what another one is."""
    # Numpy would make text of numbers next to text, and floats of whole numbers next to a missing
    # one, which rounds those beyond 2^53. So lists, and columns of other libraries that may hold
    # missing values, become objects cell by cell. Arrays, and columns of pandas with a type of
    # numpy, are what their maker made of them.
    if isinstance(column, np.ma.MaskedArray) and column.dtype.names is None:
        return _unmasked_identifiers(column)
    if isinstance(column, Sequence) and not isinstance(column, (str, bytes)):
        kinds = set(map(type, column))
        try:  # a faster way to the same values, where all are of one kind
            return (
                np.array(column, _FAST[kinds.pop()])
                if len(kinds) == 1
                else _identifier_objects(column)
            )
        except (KeyError, OverflowError):
            return _identifier_objects(column)
    if not isinstance(column, np.ndarray) and getattr(column, "shape", ())[1:] == (1,):
        column = _identifier_column(column)
    dtype = getattr(column, "dtype", getattr(column, "type", None))
    if dtype is None or isinstance(dtype, np.dtype) or not hasattr(column, "__getitem__"):
        return np.asarray(column)
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):  # of pandas: floats beside NaN
        codes = np.asarray(getattr(column, "cat", column).codes)
        return np.asarray(_identifier_objects([*dtype.categories.tolist(), None])[codes])
    listed = next((n for n in ("to_pylist", "to_list", "tolist") if hasattr(column, n)), None)
    if listed is None:
        return np.asarray(column)
    kind = _array_kind(column)
    missing = getattr(column, "null_count", None)
    missing = missing() if callable(missing) else missing
    if kind == "f" or (kind in "biu" and missing == 0):  # a faster way to the same values
        return np.asarray(column)
    return _identifier_objects(getattr(column, listed)())


def _unmasked_identifiers(column: np.ma.MaskedArray[Any, Any]) -> npt.NDArray[Any]:
    """Return a masked array as objects, None for what is masked."""
    cells = _identifier_objects(list(np.asarray(column.data).ravel()))
    cells[np.ma.getmaskarray(column).ravel()] = None
    return cells.reshape(column.shape)


def _array_kind(column: Any) -> str:
    """Return the kind of the array that a column of another library becomes, by its type alone."""
    try:
        return str(np.asarray(column[:0]).dtype.kind)
    except Exception:  # a type that numpy does not have, such as whole numbers of 128 bits
        return "O"


def _identifier_column(frame: Any) -> Any:
    """Return the column of a dataframe of pandas, polars or pyarrow that has one; anything else
    as it is.
    """
    if hasattr(frame, "iloc"):
        return frame.iloc[:, 0]
    if hasattr(frame, "to_series"):
        return frame.to_series()
    return frame.column(0) if hasattr(frame, "column") else frame


def _identifier_objects(values: Sequence[Any]) -> npt.NDArray[Any]:
    cells = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        cells[position] = value
    return cells


def person_tags(identifiers: npt.NDArray[Any]) -> Tags:
    """Return 64 evenly spread bits for each row's person, and `NOBODY` for rows that name
    nobody.
    """
    # What a tag follows from is the cell's canonical form alone (canonical_identifier), whatever
    # the type of its column and whatever stands in other rows. Whole numbers are mixed by a
    # bijection of 64 bits; text and longer numbers are hashed. People whose tags agree, by a chance
    # of 2^-64 for each pair, count as one and are protected together.
    kind = identifiers.dtype.kind
    if kind in "iu":
        return _named(mix_identifier_bits(identifiers.astype(np.int64).view(np.uint64)))
    if kind == "f":
        whole = np.floor(identifiers) == identifiers
        whole &= np.abs(identifiers) < _first_rounded(identifiers.dtype)
        numbers = np.where(whole, identifiers, 0).astype(np.int64)
        return np.where(whole, person_tags(numbers), NOBODY)
    if kind == "M":  # whatever the unit
        times = identifiers.astype("datetime64[us]")
        return np.where(np.isnat(times), NOBODY, person_tags(times.view(np.int64)))
    known: dict[tuple[type, Any], tuple[int, bool] | None] = {}
    tags = np.full(identifiers.size, NOBODY)
    whole = np.zeros(identifiers.size, np.bool_)
    named = np.ones(identifiers.size, np.bool_)
    for row, value in enumerate(identifiers.tolist()):
        key = (type(value), value) if is_hashed_evenly(value) else None
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
    tags[whole] = mix_identifier_bits(tags[whole])
    tags[named] = _named(tags[named])
    return tags


def is_hashed_evenly(value: object) -> bool:
    """Whether few values of a plain type share a hash: longer numbers can be made to share one,
    and each of them would then be compared with all others.
    """
    if type(value) not in _PLAIN:
        return False
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def _named(tags: Tags) -> Tags:
    """Return the tags of identifiers; the one that would have that of nobody shares the tag
    below.
    """
    return np.minimum(tags, NOBODY - np.uint64(1))


def _first_rounded(dtype: np.dtype[Any]) -> float:
    """Return the power of two from which on a type of floats, or float64, does not hold all
    whole numbers.
    """
    return 2.0 ** min(53, np.finfo(dtype).nmant + 1)


def _identifier_bits(value: Any) -> tuple[int, bool] | None:
    """Return 64 bits of one identifier, and whether they are a number's and have yet to be
    mixed; None for nobody.
    """
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
    """Return whom a cell names: a whole number or text, the same for every way to write it; None
    for nobody.

    - A whole number of at most 600 digits is itself. Text without the spaces around it, or bytes of
      text, that is written as a number is that number: ``7``, ``7.0``, ``"7"``, ``"007"`` and
      ``"7e0"`` are one person.
    - A float, or text that is written as one, is a whole number below 2^53 (of narrower types:
      below the first that they round), or it names nobody: what stood there before rounding cannot
      be known.
    - Truth values are the words true and false, in any capitals. Other text is itself.
    - A time is its microsecond, in UTC if it has a zone.
    - Everything else names nobody: what is missing, empty text, ``"nan"``, infinity, objects of
      other kinds.
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
        if (whole := _WHOLE.fullmatch(value)) is not None:
            sign, digits = whole.groups()
            return int(f"{sign}0{digits}") if len(digits) <= _MOST_DIGITS else None
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


def mix_identifier_bits(numbers: Tags) -> Tags:
    """Mix the bits of whole numbers (the finaliser of splitmix64, a bijection)."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
