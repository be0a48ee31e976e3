"""Which declared word a cell means: a category, a class, or a word of a flag.

A cell is matched by its text; if that is no declared word, by the number, truth value or time that the text stands
for. So ``01``, ``1`` and ``1.0`` are one category, in columns of text and of numbers alike, and a reader that gives a
column another type because of one value in it changes no other row. Numbers are compared as float64: that is what
readers make of whole numbers, even beyond ``2**53``, once a value in their column is missing.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpconvex.inputs.cells import Cell, number_word
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.schema import Category, Flag, Schema, shown_name

__all__ = ["Declared", "Meaning", "check_words", "is_no_number", "iso_time", "meaning"]

# One way only to part a run of digits: a pattern with two takes the square of a long cell's length.
_POINT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.I)
_COMMA = re.compile(r"([+-]?)(\d{1,3}(?:\.\d{3})+|\d*)(?:,(\d*))?((?:[eE][+-]?\d+)?)", re.ASCII)
_KINDS = {"number": "number as float64", "truth": "truth value", "time": "time"}
_TRUTH = {"true": 1.0, "false": 0.0}


class Meaning(NamedTuple):
    """What a cell stands for, apart from its text; None where it stands for none."""

    number: float | None
    truth: float | None
    time: np.datetime64 | None


def meaning(cell: Cell, decimal: str = ".") -> Meaning:
    """Return what a cell stands for; the decimal sign is that of text."""
    number, time = cell.number, cell.time
    if cell.text is not None:
        number = _number(cell.text, decimal)
    word = cell.text if number is None else number_word(number)
    if word is not None:
        time = iso_time(word)
    truth = None if cell.text is None else _TRUTH.get(cell.text.lower())
    return Meaning(number, truth, time)


def _number(text: str, decimal: str) -> float | None:
    """Return the number that a text is, by the decimal sign or else by a point."""
    if decimal == ",":
        parts = _COMMA.fullmatch(text)
        if parts is not None:
            sign, whole, rest, power = parts.groups()
            pointed = f"{sign}{whole.replace('.', '')}.{rest or ''}{power}"
            text = pointed if _POINT.fullmatch(pointed) else text
    return float(text) if _POINT.fullmatch(text) else None


def iso_time(word: str) -> np.datetime64 | None:
    """Return the second that a text in ISO 8601 says, as the clock on the wall showed it, None for other text."""
    try:
        found = datetime.datetime.fromisoformat(word)
    except (ValueError, OverflowError):
        return None
    return np.datetime64(found.replace(tzinfo=None, microsecond=0), "s")


class Declared:
    """Words of a schema, and the place of the one that a cell means.

    Where several mean the same, the first is taken; schemas refuse such words (`check_words`).
    """

    def __init__(self, words: Sequence[str], decimal: str = ".") -> None:
        self.decimal = decimal
        self._texts: dict[str, int] = {}
        self._numbers: dict[float, int] = {}
        self._truths: dict[float, int] = {}
        self._times: dict[np.datetime64, int] = {}
        for place, word in enumerate(words):
            self._texts.setdefault(word, place)
            number, truth, time = meaning(Cell(text=word), decimal)
            if number is not None:
                self._numbers.setdefault(number, place)
            if truth is not None:
                self._truths.setdefault(truth, place)
            if time is not None:
                self._times.setdefault(time, place)

    def find(self, cell: Cell) -> int | None:
        """Return the place of the word that a cell means, None if it means none."""
        if cell.text is not None and cell.text in self._texts:
            return self._texts[cell.text]
        number, truth, time = meaning(cell, self.decimal)
        # A reader may make numbers of truth values: 1 is true where no word is 1, and the other way round.
        for known, key in (
            (self._numbers, number),
            (self._truths, truth),
            (self._truths, number),
            (self._numbers, truth),
        ):
            if key is not None and key in known:
                return known[key]
        return None if time is None else self._times.get(time)


def check_words(schema: Schema) -> None:
    """Raise if a column has two words that its type would have to tell apart, like ``01`` and ``1``."""
    decimal = schema.file.decimal
    listed = [(item.name, item.values) for item in schema.columns if isinstance(item, Category)]
    if schema.target is not None and schema.target.classes is not None:
        listed.append((schema.target.name, schema.target.classes))
    for name, words in listed:
        _check_apart(name, [(word, word) for word in words], decimal)
    for column in schema.columns:
        if isinstance(column, Flag):
            sides = [*((word, "true") for word in column.true), *((word, "false") for word in column.false)]
            _check_apart(column.name, sides, decimal)


def _check_apart(name: str, words: list[tuple[str, str]], decimal: str) -> None:
    """Raise if two words that are not for the same thing have the same meaning."""
    seen: dict[tuple[str, object], tuple[str, str]] = {}
    for word, purpose in words:
        for kind, value in meaning(Cell(text=word), decimal)._asdict().items():
            if value is None:
                continue
            first, before = seen.setdefault((kind, value), (word, purpose))
            if before != purpose:
                raise InputError(
                    f"In the schema, the words of {shown_name(name)} must differ in whatever type a reader gives the "
                    f"column. Got {shown_name(first)} and {shown_name(word)} instead, which are one {_KINDS[kind]}. "
                    "Declare one of them: it stands for both."
                )


def is_no_number(cell: Cell) -> bool:
    """Return whether a cell is missing: nothing, an infinite number, or the word ``nan``."""
    if cell.text is not None:
        number = _number(cell.text, ".")
        return cell.text.lower() == "nan" or (number is not None and not math.isfinite(number))
    return cell.time is None and (cell.number is None or not math.isfinite(cell.number))
