"""Reading CSV and Parquet: declared columns to numbers, without a data value in any message.

Every CSV column is read as text and turned into numbers here, because error messages of readers
quote what they could not read. Column names are shown only if the user wrote them: the first line
of a file without a header is data.
"""

from __future__ import annotations

import contextlib
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpconvex.inputs.columns import Columns
from dpconvex.inputs.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

CSV, PARQUET = (".csv",), (".parquet", ".pq")
LONGEST_NAME = 1000
_EMPTY_RECORD = re.compile(rb"\n,+\r?(?:\n|\Z)")


def table_format(path: Path) -> str:
    """Return "csv" or "parquet" from the file's name."""
    suffix = path.suffix.lower()
    if suffix in CSV:
        return "csv"
    if suffix in PARQUET:
        return "parquet"
    raise InputError(f"The file {path.name!r} must end with .csv or .parquet.")


def check_file(path: Path) -> None:
    """Raise if there is no such file."""
    if not path.is_file():
        raise InputError(f"The data file {str(path)!r} is not a file.")


def read_feature_file(path: Path, columns: Columns) -> pl.DataFrame:
    """Return the features of a table, one float column per name in ``columns.names``."""
    return _encode(_read(path, [*columns.features, *columns.categories]), columns)


def read_training_file(
    path: Path,
    columns: Columns,
    labels: bool = False,
    kind: str | None = None,
    ignored: bool = False,
    least: int = 1,
) -> tuple[pl.DataFrame, pl.Series]:
    """Return features and target of a table; a target of labels is as `label_column` says.

    With ``ignored`` what cannot be read is missing instead of refused; ``least`` is the smallest number of rows.
    """
    wanted = [*columns.features, *columns.categories, columns.target]
    table = _read(path, wanted, least, every_line=ignored)
    if not ignored and table_format(path) == "csv":
        with without_values(path), path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with content:
                refuse_empty_records(content)
    name = columns.target
    if labels:
        target = label_column(table, name, kind, ignored)
    else:
        target = _numbers(table, name, ignored)
    return _encode(table, columns, ignored), target


def read_column(path: Path, name: str, ignored: bool = False) -> np.ndarray:
    """Return one column of a table as text, None where it is missing: identifiers of people, row by row."""
    import polars as pl

    table = _read(path, [name], 0, every_line=ignored)
    with without_values(path):
        text = table[name].cast(pl.String, strict=False).str.strip_chars()
        return np.array([value or None for value in text.to_list()], dtype=object)


def refuse_empty_records(content: bytes | mmap.mmap) -> None:
    """Raise if a line below the header of a CSV file holds separators alone.

    A blank line is no record. One of separators is, and must not be dropped: the number of rows is public.
    """
    if _EMPTY_RECORD.search(content):
        raise InputError(
            "The data file has a row in which every field is empty. Remove it or fill it in, or use "
            "--invalid-rows ignore."
        )


def encode_piece(
    table: pl.DataFrame, columns: Columns, labels: str | None, ignored: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return features and target of a piece of a table as arrays, float32 where all numbers are.

    ``labels`` is None for a target of numbers, "whole" for labels that are whole numbers, or "text".
    """
    import polars as pl

    single = not columns.categories and all(
        table.schema[name] == pl.Float32 for name in columns.features
    )
    encoded = _encode(table, columns, ignored)
    if single:  # nothing is lost on the way back, and half of the memory is saved
        encoded = encoded.cast(pl.Float32)
    features = encoded.to_numpy(order="c")
    if labels is None:
        return features, _numbers(table, columns.target, ignored).to_numpy()
    target = label_column(table, columns.target, labels, ignored).to_numpy()
    return features, target.astype(object) if labels == "text" or ignored else target


def read_types(path: Path) -> dict[str, str]:
    """Return the columns' names and types ("number" or "text"), and nothing else."""
    import polars as pl

    lazy, names = open_table(path)
    with without_values(path):
        if table_format(path) == "parquet":
            schema = lazy.collect_schema()
            return {name: "number" if _is_number(schema[name]) else "text" for name in names}
        table = lazy.select(names).collect()
    types = {}
    for name in names:
        column = table[name]
        lost = column.str.strip_chars().cast(pl.Float64, strict=False).null_count()
        types[name] = "number" if lost == column.null_count() else "text"
    return types


def write_predictions(predictions: np.ndarray, path: Path) -> None:
    """Write one column, ``prediction``, in the order of the rows."""
    import polars as pl

    table = pl.DataFrame({"prediction": predictions})
    if table_format(path) == "csv":
        table.write_csv(path)
    else:
        table.write_parquet(path)


def open_table(path: Path, every_line: bool = False) -> tuple[pl.LazyFrame, list[str]]:
    """Return the table and the names of its columns that can be used.

    With ``every_line`` lines of a CSV file that hold nothing are rows as well.
    """
    import polars as pl

    kind = table_format(path)
    check_file(path)
    path = path.resolve()
    with without_values(path):
        if kind == "parquet":
            lazy = pl.scan_parquet(path, glob=False)
            return lazy, lazy.collect_schema().names()
        options: dict[str, bool] = {"infer_schema": False, "glob": False}
        header = pl.scan_csv(path, has_header=False, n_rows=1, **options).collect()
        lazy = pl.scan_csv(path, **options)
        if not every_line:
            lazy = lazy.filter(pl.any_horizontal(pl.all().is_not_null()))
        found = lazy.collect_schema().names()
    names = [name or "" for name in header.row(0)] if header.height else []
    _check_header(names)
    # An index column has no name; it cannot be asked for.
    return lazy, [name for name, shown in zip(found, names, strict=False) if shown.strip()]


def _check_header(names: list[str]) -> None:
    problem = "The first line of the CSV file must hold the names of the columns"
    if any(sign in name for name in names for sign in ";|\t"):
        raise InputError(f"{problem}, separated by commas.")
    if any(_looks_like_number(name) for name in names):
        raise InputError(f"{problem}, but it holds a number. Add a header.")
    for name in names:
        if len(name) > LONGEST_NAME or not name.isprintable() or "\ufffd" in name:
            raise InputError(f"{problem}, as text in UTF-8 that can be printed.")
    named = [name for name in names if name]
    if len(set(named)) < len(named):
        raise InputError(f"{problem}, each once, but a name is repeated.")


def _looks_like_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.strip().lower() not in ("nan", "inf", "infinity")


def _read(path: Path, wanted: list[str], least: int = 1, every_line: bool = False) -> pl.DataFrame:
    """Return the wanted columns; missing ones are named, because the user named them."""
    lazy, names = open_table(path, every_line)
    absent = [name for name in wanted if name not in names]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise InputError(f"The data file has no column {absent[0]!r}{more}.")
    with without_values(path):
        table = lazy.select(wanted).collect()
    if table.height < least:
        raise InputError("The data file has no rows.")
    return table


def _encode(table: pl.DataFrame, columns: Columns, ignored: bool = False) -> pl.DataFrame:
    import polars as pl

    encoded = [_numbers(table, name, ignored) for name in columns.features]
    for name, items in columns.categories.items():
        with without_values(None):
            text = table[name].cast(pl.String).str.strip_chars()
            encoded += [
                (text == item).fill_null(False).cast(pl.Float64).alias(f"{name}={item}")
                for item in items
            ]
    return pl.DataFrame(encoded)


def _numbers(table: pl.DataFrame, name: str, ignored: bool = False) -> pl.Series:
    """Return a column as finite floats, or raise an error that names the column only.

    With ``ignored`` everything else is NaN.
    """
    import polars as pl

    column = table[name]
    if column.dtype != pl.String and not _is_number(column.dtype):
        raise InputError(f"The column {name!r} must hold numbers.")
    with without_values(None):
        if column.dtype == pl.String:
            column = column.str.strip_chars()
        numbers = column.cast(pl.Float64, strict=False).alias(name)
        if ignored:
            return numbers.fill_null(float("nan"))
        usable = numbers.null_count() == 0 and bool(numbers.is_finite().all())
    if not usable:
        raise InputError(
            f"The column {name!r} must hold finite numbers only. It has missing values, text or "
            "infinite numbers: fill them in, or declare the column in [categories]."
        )
    return numbers


def label_column(
    table: pl.DataFrame, name: str, kind: str | None = None, ignored: bool = False
) -> pl.Series:
    """Return a column of labels: whole numbers where all of them are, else text.

    Parameters
    ----------
    table : DataFrame
        The table, or a piece of it.
    name : str
        The column.
    kind : {"whole", "text"}, optional
        What the labels are, where it is known; without it, numbers that are not whole are refused, because the labels
        of a target become public and measurements are no labels.
    ignored : bool
        Whether what is no label of this kind is missing instead of refused.
    """
    import polars as pl

    column = table[name]
    words = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    if not words and not _is_number(column.dtype):
        raise InputError(f"The column {name!r} must hold labels: whole numbers or text.")
    with without_values(None):
        text = column.cast(pl.String).str.strip_chars()
        if ignored:
            return text if kind == "text" else _whole_or_missing(text)
        missing = text.null_count() > 0 or bool((text == "").any())
        whole = text.cast(pl.Int64, strict=False)
        numbers = text.cast(pl.Float64, strict=False)
        if not words:
            missing = missing or bool(numbers.is_nan().any())
        measured = bool((numbers.is_finite() & (numbers != numbers.round())).any())
        if whole.null_count() and not numbers.null_count() and bool((numbers.abs() < 2**53).all()):
            whole = whole if measured else numbers.cast(pl.Int64)
    if missing:
        raise InputError(f"The column {name!r} must hold a label in every row.")
    if kind == "text":
        return text
    if kind == "whole":
        if whole.null_count():
            raise InputError(f"The column {name!r} must hold the labels of --classes only.")
        return whole
    if measured:
        raise InputError(
            f"The column {name!r} must hold labels: whole numbers or text. It has other numbers: choose a task that "
            "fits numbers, or name the labels with --classes."
        )
    return whole if whole.null_count() == 0 else text


def _whole_or_missing(text: pl.Series) -> pl.Series:
    """Return the whole numbers of a column of text, written with or without a decimal point, as objects."""
    import polars as pl

    whole = text.cast(pl.Int64, strict=False)
    numbers = text.cast(pl.Float64, strict=False)
    exact = numbers.is_finite() & (numbers == numbers.round()) & (numbers.abs() < 2**53)
    found = whole.zip_with(
        whole.is_not_null(), numbers.set(~exact.fill_null(False), None).cast(pl.Int64)
    )
    # Not floats, which cannot hold all whole numbers, and not numpy's integers, which know nothing missing.
    return pl.Series(text.name, found.to_list(), dtype=pl.Object)


def _is_number(dtype: pl.DataType) -> bool:
    import polars as pl

    return bool(dtype.is_numeric() or dtype == pl.Boolean)


@contextlib.contextmanager
def without_values(path: Path | None) -> Iterator[None]:
    """Replace a reader's error, which may quote data, by one that does not."""
    import polars as pl

    what = "The data" if path is None else f"The file {path.name!r}"
    try:
        yield
    except InputError:
        raise
    except (pl.exceptions.PolarsError, UnicodeError, ValueError, OverflowError):
        raise InputError(
            f"{what} cannot be read: it is empty, damaged, not in UTF-8, or has rows of different "
            "lengths."
        ) from None
    except BaseException as error:
        # A panic of polars' compiled code is a BaseException of its own module.
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what} cannot be read: it is damaged.") from None
