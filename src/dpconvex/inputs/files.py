"""Features and target of a file, by a schema, without a data value in any message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpconvex.inputs.delimited import LineProblem
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.opening import open_table, table_format, without_values
from dpconvex.inputs.schema import Date, FileFormat, Flag, Number, Schema, shown_name

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

COUNTED = "`dpconvex bounds check` counts, for your eyes only, what the schema cannot read."


def read_feature_file(path: Path, schema: Schema, kept: list[str] | None = None) -> tuple[np.ndarray, pl.DataFrame]:
    """Return the features of a table as an array, and further columns as they are (all of them for None)."""
    opened = open_table(path, schema.file)
    wanted = opened.names if kept is None else kept
    # A line that cannot be read is a row without values; text that is kept must be in the right encoding.
    table = opened.read(list(dict.fromkeys([*schema.inputs, *wanted])), least=1, refused=(LineProblem.UNDECODED,))
    return encode_table(table, schema, typed=table_format(path) == "parquet"), table.select(wanted)


def read_training_file(
    path: Path,
    schema: Schema,
    labels: bool = False,
    kind: str | None = None,
    ignored: bool = False,
    least: int = 1,
    person: str | None = None,
) -> tuple[pl.DataFrame, pl.Series, np.ndarray | None]:
    """Return features and target of a table, and whose each row is; a target of labels is as `label_column` says.

    With ``ignored`` what cannot be read is missing instead of refused; ``least`` is the smallest number of rows.
    """
    import polars as pl

    assert schema.target is not None
    name = schema.target.name
    more = [] if person is None else [person]
    table = open_table(path, schema.file).read(
        list(dict.fromkeys([*schema.inputs, name, *more])), least, every_line=ignored
    )
    if labels:
        target = label_column(table, name, kind, ignored, schema)
    else:
        target = _target_numbers(table, name, schema.file, ignored)
    rows = encode_table(table, schema, table_format(path) == "parquet", refused=not ignored)
    people = None if person is None else read_identifiers(table[person], schema.file)
    return pl.DataFrame(rows, schema=schema.names, orient="row"), target, people


def read_identifiers(column: pl.Series, file: FileFormat) -> np.ndarray:
    """Return identifiers of people, None where one is missing; a type that names nobody is refused."""
    import polars as pl

    from dpconvex.inputs.cells import identifiers_of

    kind = column.dtype
    dates = kind == pl.Date or kind == pl.Datetime
    text = kind in (pl.String, pl.Categorical, pl.Enum, pl.Binary)
    if not (text or dates or _is_number(kind)):
        raise InputError(f"The column {column.name!r} must hold identifiers: whole numbers, text or dates.")
    with without_values(None):
        return identifiers_of(column, file.missing)


def encode_table(table: pl.DataFrame, schema: Schema, typed: bool = False, refused: bool = False) -> np.ndarray:
    """Return the rows of ``X``.

    Parameters
    ----------
    table : DataFrame
        With the schema's columns.
    schema : Schema
        What they become.
    typed : bool
        Whether the file itself says what its columns hold; a column of a wrong type is then refused.
    refused : bool
        Whether rows that a missing value makes invalid are refused; else they hold NaN.
    """
    import numpy as np

    from dpconvex.inputs.cells import cells_of
    from dpconvex.inputs.encoding import encode, invalid_columns, to_array

    if typed:
        _check_types(table, schema)
    with without_values(None):
        cells = {name: cells_of(table[name]) for name in schema.inputs}
        rows = to_array(encode(schema, cells))
    if refused and np.isnan(rows).any():
        name = invalid_columns(schema, cells)[0]
        column = next(column for column in schema.columns if column.name == name)
        what = {Number: "finite numbers", Flag: "its two words", Date: "dates of its format"}
        raise InputError(
            f"The column {name!r} must hold {what.get(type(column), 'a value in every row')} only. It has missing "
            'values or others: give it a rule in the schema, like missing = "indicator", or use '
            f"--invalid-rows ignore.{_comma_hint(schema.file, isinstance(column, Number))} {COUNTED}"
        )
    return rows


def _comma_hint(file: FileFormat, numbers: bool) -> str:
    """Return how numbers with a decimal comma are read, where the schema does not say so."""
    return ' Decimal commas need decimal = "," in [file].' if numbers and file.decimal != "," else ""


def _check_types(table: pl.DataFrame, schema: Schema) -> None:
    """Raise if a column's declared type cannot hold what the schema says.

    A single missing value makes whole numbers floats where pandas writes the file, and all missing have no type.
    """
    import polars as pl

    for column in schema.columns:
        kind = table.schema[column.name]
        text = kind in (pl.String, pl.Categorical, pl.Enum, pl.Null)
        if isinstance(column, Number) and not (text or _is_number(kind)):
            raise InputError(f"The column {column.name!r} must hold numbers.")
        if isinstance(column, Date) and not (text or kind.is_temporal() or kind.is_numeric()):
            raise InputError(f"The column {column.name!r} must hold dates.")


def encode_piece(
    table: pl.DataFrame, schema: Schema, labels: str | None, ignored: bool = False, typed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return features and target of a piece of a table as arrays, float32 where all numbers are.

    ``labels`` is None for a target of numbers, "whole" for labels that are whole numbers, or "text".
    """
    import numpy as np
    import polars as pl

    assert schema.target is not None
    single = not schema.interactions and all(
        isinstance(column, Number)
        and (column.transform, column.knots, column.missing.rule) == ("clip", (), "row")
        and table.schema[column.name] == pl.Float32
        for column in schema.columns
    )
    features = encode_table(table, schema, typed, refused=not ignored)
    if single:  # what lies within the bounds loses nothing on the way back, and half of the memory is saved
        features = features.astype(np.float32)
    name = schema.target.name
    if labels is None:
        return features, _target_numbers(table, name, schema.file, ignored).to_numpy()
    target = label_column(table, name, labels, ignored, schema).to_numpy()
    return features, target.astype(object) if labels == "text" or ignored else target


def _target_numbers(table: pl.DataFrame, name: str, file: FileFormat, ignored: bool = False) -> pl.Series:
    """Return a target as finite floats, or raise an error that names the column only.

    With ``ignored`` everything else is NaN.
    """
    import numpy as np
    import polars as pl

    from dpconvex.inputs.cells import cells_of

    column = table[name]
    if column.dtype not in (pl.String, pl.Null) and not _is_number(column.dtype):
        raise InputError(f"The column {name!r} must hold numbers.")
    with without_values(None):
        numbers = cells_of(column).as_numbers(file.decimal)
    if not ignored and np.isnan(numbers).any():
        raise InputError(
            f"The column {name!r} must hold finite numbers only. It has missing values, text or "
            "infinite numbers: use a task that fits labels, or --invalid-rows ignore."
            f"{_comma_hint(file, True)} {COUNTED}"
        )
    return pl.Series(name, numbers)


def label_column(
    table: pl.DataFrame, name: str, kind: str | None = None, ignored: bool = False, schema: Schema | None = None
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
    schema : Schema, optional
        Whose classes text is matched with, so that ``1.0`` is the class ``1``.
    """
    import polars as pl

    column = table[name]
    words = column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null)
    if not words and not _is_number(column.dtype):
        raise InputError(f"The column {name!r} must hold labels: whole numbers or text.")
    with without_values(None):
        text = column.cast(pl.String).str.strip_chars()
        classes = None if schema is None or schema.target is None else schema.target.classes
        decimal = "." if schema is None else schema.file.decimal
        if ignored:
            known = text if classes is None else _meant(text, classes, decimal)
            return known if kind == "text" else _whole_or_missing(known)
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
    if kind is not None and classes is not None:
        text = _declared_labels(text, classes, decimal)
        return text if kind == "text" else text.cast(pl.Int64)
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


def _declared_labels(text: pl.Series, classes: tuple[str, ...], decimal: str) -> pl.Series:
    """Return the class of the schema that each label means, or raise an error that names the classes only."""
    found = _meant(text, classes, decimal)
    if found.null_count():
        shown = ", ".join(map(shown_name, classes[:10])) + (", ..." if len(classes) > 10 else "")
        raise InputError(
            f"The column {text.name!r} must hold the classes of the schema's [target] only: {shown}. It has other "
            f"labels: write the classes as the file does, or use --invalid-rows ignore if few rows differ. {COUNTED}"
        )
    return found


def _meant(text: pl.Series, classes: tuple[str, ...], decimal: str) -> pl.Series:
    """Return the class of the schema that each label means, null where it means none."""
    import polars as pl

    from dpconvex.inputs.cells import cells_of
    from dpconvex.inputs.encoding import labels_of

    found = labels_of(cells_of(text), classes, decimal).tolist()
    return pl.Series(text.name, found, dtype=pl.String)


def _whole_or_missing(text: pl.Series) -> pl.Series:
    """Return the whole numbers of a column of text, written with or without a decimal point, as objects."""
    import polars as pl

    whole = text.cast(pl.Int64, strict=False)
    numbers = text.cast(pl.Float64, strict=False)
    exact = numbers.is_finite() & (numbers == numbers.round()) & (numbers.abs() < 2**53)
    found = whole.zip_with(whole.is_not_null(), numbers.set(~exact.fill_null(False), None).cast(pl.Int64))
    # Not floats, which cannot hold all whole numbers, and not numpy's integers, which know nothing missing.
    return pl.Series(text.name, found.to_list(), dtype=pl.Object)


def _is_number(dtype: pl.DataType) -> bool:
    import polars as pl

    return bool(dtype.is_numeric() or dtype == pl.Boolean)
