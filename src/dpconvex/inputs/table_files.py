"""CSV and Parquet files: opened, read by a schema, written, and cut into pieces for tables larger
than memory.

No message quotes a value of the data. Column names are shown only if the user wrote them: the first
line of a file without a header is data. CSV lines are parsed in :mod:`dpconvex.inputs.csv_reader`.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import gzip
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpconvex.inputs import InputError, csv_reader
from dpconvex.inputs.schema import (
    MOST_COLUMNS,
    Schema,
    SchemaDate,
    SchemaFlag,
    SchemaNumber,
    shown_name,
    source_column,
)
from dpconvex.system.atomic_files import write_file_atomically
from dpconvex.system.lazy_imports import dask, dd, np, pd, pl

PARQUET = (".parquet", ".pq")
_COUNT_HINT = "`dpconvex bounds check` counts, for your eyes only, what the schema cannot read."
MOST_ROWS = 1 << 18  # of a piece, so that all cores have something to do
FEWEST_BYTES = 1 << 20  # of a CSV piece
# Of a CSV file that is read with all of its columns: cells that it may have in any case, and cells
# for each field that its lines have.
MOST_EMPTY_CELLS = 1 << 24
MOST_CELLS_PER_FIELD = 16
COPIES = 6  # of a piece in memory at its worst: file, table, encoded table, array and checks
BASE = 1 << 29  # bytes that the program needs itself
TARGET = "the target"  # column of a piece
# What a program that reads text may take for the end of a line: more than our reader does, which
# cuts at a line feed alone, since these files are for others as well.
_LINE_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")


def table_file_format(path: Path) -> str:
    """Return "csv" or "parquet" from the file's name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in csv_reader.PACKED
    last = suffixes[-2 if packed else -1] if len(suffixes) > packed else ""
    if last in csv_reader.CSV or (packed and suffixes[-1] == ".zip"):
        return "csv"
    if last in PARQUET and not packed:
        return "parquet"
    raise InputError(
        f"The file {path.name!r} must end with .csv, .tsv or .parquet; a .csv or .tsv may end "
        "with .gz or .zip."
    )


def check_table_file(path: Path) -> None:
    """Raise if there is no such file, or nothing in it."""
    if not path.is_file():
        raise InputError(f"The data file {str(path)!r} is not a file.")
    if path.stat().st_size == 0:
        raise InputError(f"The data file {path.name!r} is empty.")


@contextlib.contextmanager
def hide_file_values(path: Path | None) -> Iterator[None]:
    """Replace the error of a reader of files, which may quote data, by one that does not."""
    what = "The data" if path is None else f"The file {path.name!r}"
    try:
        yield
    except InputError:
        raise
    except (pl.exceptions.PolarsError, UnicodeError, ValueError, OverflowError):
        reason = "damaged, or no Parquet file" if path and path.suffix in PARQUET else "damaged"
        raise InputError(f"{what} cannot be read. Most likely it is {reason}.") from None
    except OSError as error:
        if error.errno is not None:
            raise
        # What pyarrow makes of pages that it cannot unpack.
        raise InputError(f"{what} cannot be read: it is damaged.") from None
    except BaseException as error:
        # A panic of polars' compiled code is a BaseException of its own module.
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what} cannot be read: it is damaged.") from None


def require_file_columns(names: Sequence[object], wanted: Sequence[str], what: str) -> None:
    """Raise if wanted columns are not among the names of a table; they are shown, because the
    user named them.
    """
    known = set(names)
    absent = [name for name in wanted if name not in known]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        alike = absent[0].strip().lower() in {str(name).strip().lower() for name in names}
        hint = (
            " It has one that differs in capital letters or spaces: write it as the file does."
            if alike
            else ""
        )
        raise InputError(f"{what} has no column {absent[0]!r}{more}.{hint}")


@dataclass(frozen=True)
class OpenTableFile:
    """A table that is about to be read: its usable columns, and the layout of a CSV file."""

    path: Path
    names: list[str]
    layout: csv_reader.CSVLayout | None = None

    def read(
        self,
        wanted: list[str],
        least: int = 0,
        every_line: bool = False,
    ) -> pl.DataFrame:
        """Return the wanted columns of the open table file.

        With ``every_line`` each line of a CSV file is a row, whatever it holds. Otherwise blank
        lines are no rows, and lines that cannot be read are an error.
        """
        rows = self.read_rows(wanted)
        table = rows.cells
        if self.layout is not None and not every_line:
            table = _usable_file_rows(rows, self.path, self.layout)
        if table.height < least:
            raise InputError("The data file has no rows.")
        return table

    def read_rows(self, wanted: list[str]) -> csv_reader.CSVRows:
        """Return the wanted columns of every line of the file, and the problem of each line."""
        require_file_columns(self.names, wanted, "The data file")
        with hide_file_values(self.path):
            if self.layout is not None:
                return self.layout.read(self.path, wanted)
            table = pl.scan_parquet(self.path, glob=False).select(wanted).collect()
        return csv_reader.CSVRows(table, np.zeros(table.height, dtype=np.uint8))

    def check_filled(self) -> None:
        """Raise if the lines of a CSV file lack nearly all fields: a table of all columns would
        take far more memory than the file. For commands without a guarantee, as it depends on all
        lines.
        """
        if self.layout is None:
            return
        with hide_file_values(self.path):
            lines, fields = self.layout.count_fields(self.path)
        cells = lines * len(self.names)
        if cells > MOST_EMPTY_CELLS and cells > MOST_CELLS_PER_FIELD * fields:
            raise InputError(
                f"The file {self.path.name!r} has lines that lack nearly all of the fields that "
                "its header names, so that the table would hold nothing but missing values. Write "
                "the header of the columns that it has."
            )


def _usable_file_rows(
    rows: csv_reader.CSVRows, path: Path, layout: csv_reader.CSVLayout
) -> pl.DataFrame:
    """Return the rows of a CSV file that are not blank, or raise if a line cannot be read."""
    if np.isin(rows.problems, csv_reader.UNREADABLE).any():
        raise csv_reader.unreadable_csv_lines(path, layout)
    return rows.cells.filter(pl.Series(rows.problems != csv_reader.CSVLineProblem.BLANK))


def open_table_file(path: Path, file: csv_reader.CSVFormat | None = None) -> OpenTableFile:
    """Return a table and the names of its columns that can be used; an index column has no name."""
    kind = table_file_format(path)
    check_table_file(path)
    path = path.resolve()
    with hide_file_values(path):
        if kind == "parquet":
            layout = None
            names = pl.scan_parquet(path, glob=False).collect_schema().names()
        else:
            layout = csv_reader.read_csv_layout(path, file or csv_reader.CSVFormat())
            names = [name for name in layout.names if name.strip()]
    if len(names) > MOST_COLUMNS:
        raise InputError(f"The file {path.name!r} must have at most {MOST_COLUMNS:,} columns.")
    return OpenTableFile(path, names, layout)


def check_file_holds_types(table: pl.DataFrame, path: Path) -> None:
    """Raise if the format of a file cannot hold a column of the table, by its type."""
    if table_file_format(path) == "parquet":
        return
    for name, kind in table.schema.items():
        if kind.is_nested() or kind in (pl.Binary, pl.Duration, pl.Object):
            raise InputError(
                f"The column {shown_name(name)} cannot be written to {path.name!r}: a CSV file has "
                "no lists, structs, durations or bytes. Write a .parquet file instead."
            )


def write_table_file(
    table: pl.DataFrame,
    path: Path,
    file: csv_reader.CSVFormat | None = None,
    blank_lines: bool = False,
    write: Callable[[bytes], None] | None = None,
) -> None:
    """Write a table in the format of the file's name, separated and encoded as ``file`` says.

    Every row of a CSV file is one line, whatever its text holds. A line is blank only where
    ``blank_lines`` allows it: some readers take no row for one, ours among them. ``write`` takes
    the content of a file whose name is reserved.
    """
    write = write or functools.partial(write_file_atomically, path)
    file = file or csv_reader.CSVFormat()
    check_file_holds_types(table, path)
    if table_file_format(path) == "parquet":
        written = io.BytesIO()
        table.write_parquet(written)
        write(written.getvalue())
        return
    if path.suffix.lower() == ".zip":
        raise InputError(f"The file {path.name!r} must not end with .zip to be written.")
    kind = next(
        suffix for suffix in map(str.lower, path.suffixes[::-1]) if suffix in csv_reader.CSV
    )
    separator = file.delimiter or ("\t" if kind == ".tsv" else ",")
    lines = _csv_lines(table, separator)
    if not blank_lines:
        lines = [line if line.strip() else f'"{line}"' for line in lines]
    encoding = file.encoding or "utf-8"
    try:
        text = "".join(f"{line}\n" for line in lines).encode(encoding)
    except UnicodeEncodeError:
        raise InputError(
            f"The file {path.name!r} must be written in an encoding that has all signs of the "
            f"table. Got {encoding} instead. Say --encoding utf-8, or write Parquet."
        ) from None
    write(gzip.compress(text) if path.suffix.lower() == ".gz" else text)


def _csv_lines(table: pl.DataFrame, separator: str) -> list[str]:
    """Return the lines of a CSV file, one for the header and one for each row."""
    names = [_LINE_BREAK.sub(" ", name) for name in table.columns]
    if len(set(names)) < len(names):
        raise InputError(
            "The names of the columns must differ in more than line breaks, which a CSV file "
            "cannot hold. Rename them, or write Parquet."
        )
    words = (pl.String, pl.Categorical, pl.Enum)
    table = table.with_columns(
        pl.col(name)
        .cast(pl.String)
        .str.replace_all(_LINE_BREAK.pattern, " ")
        .replace("", None)  # an empty field and none at all are the same to a reader of CSV
        for name, dtype in table.schema.items()
        if dtype in words
    )
    text = table.write_csv(separator=separator, include_header=False)
    lines = text.removesuffix("\n").split("\n") if table.height else []
    if len(lines) != table.height:
        raise InputError(
            "The table has columns of a type whose text may hold line breaks, which a CSV file "
            "cannot hold. Write Parquet."
        )
    if table.width == 1:  # nothing in such a file says what separates its fields
        lines = [line if line.startswith('"') else _quoted_field(line) for line in lines]
    return [separator.join(_quoted_field(name, separator) for name in names), *lines]


def _quoted_field(field: str, separator: str = "") -> str:
    """Return a field of a CSV file, in quotes if it holds a quote or a sign that may separate
    fields.
    """
    signs = f'{csv_reader.DELIMITERS}{separator}"'
    doubled = field.replace('"', '""')
    return f'"{doubled}"' if any(sign in field for sign in signs) else field


def read_feature_file(
    path: Path, schema: Schema, further: list[str]
) -> tuple[np.ndarray, pl.DataFrame]:
    """Return the features of a table as an array, and further columns as they are.

    A line of a CSV file that cannot be read is a row without values: all of its features are NaN,
    whatever the schema says of missing ones. Blank lines are no rows.
    """
    opened = open_table_file(path, schema.file)
    found = opened.read_rows(list(dict.fromkeys([*schema.inputs, *further])))
    lines = found.problems != csv_reader.CSVLineProblem.BLANK
    table = found.cells.filter(pl.Series(lines))
    if not table.height:
        raise InputError("The data file has no rows.")
    if opened.layout is None:
        _check_file_types(table, schema)
    rows = _encode_file_features(table, schema, refused=False)
    rows[np.isin(found.problems[lines], csv_reader.UNREADABLE)] = np.nan
    return rows, table.select(further)


def read_training_file(
    path: Path,
    schema: Schema,
    labels: bool = False,
    kind: str | None = None,
    ignored: bool = False,
    least: int = 1,
    person: str | None = None,
) -> tuple[pl.DataFrame, pl.Series, np.ndarray | None]:
    """Return features, target and people of a file of at least ``least`` rows; refuse what is
    unread, or ignore it.
    """
    wanted = [*_training_columns(schema), *([] if person is None else [person])]
    table = open_table_file(path, schema.file).read(
        list(dict.fromkeys(wanted)), least, every_line=ignored
    )
    rows, target = _encode_training_file(
        table, schema, labels, kind, ignored, table_file_format(path) == "parquet"
    )
    people = None if person is None else read_people_file(table[person], schema.file)
    return pl.DataFrame(rows, schema=schema.names, orient="row"), target, people


def _training_columns(schema: Schema) -> list[str]:
    assert schema.target is not None
    events = [] if schema.target.event is None else [schema.target.event]
    return list(dict.fromkeys([*schema.inputs, schema.target.name, *events]))


def _encode_training_file(
    table: pl.DataFrame, schema: Schema, labels: bool, kind: str | None, ignored: bool, typed: bool
) -> tuple[np.ndarray, pl.Series]:
    """Return features and target of a table; ``typed`` says that the file declares the types of
    its columns.
    """
    assert schema.target is not None
    name = schema.target.name
    if typed:
        _check_file_types(table, schema)
    if labels:
        target = read_table_file_labels(table, name, kind, ignored, schema)
    else:
        numbers = schema.target.transformed(_read_file_target(table, name, schema.file, ignored))
        if schema.target.event is not None:  # of records that were censored, times are below 0
            events = _read_file_target(table, schema.target.event, schema.file, ignored)
            times = np.abs(numbers)
            numbers = np.where(events > 0, times, np.where(events <= 0, -times, np.nan))
        target = pl.Series(name, numbers)
    return _encode_file_features(table, schema, refused=not ignored), target


def read_people_file(column: pl.Series, file: csv_reader.CSVFormat) -> np.ndarray:
    """Return a file's identifiers of people, None where one is missing; a type that names nobody
    is refused.
    """
    from dpconvex.inputs.cells import read_identifier_cells

    kind = column.dtype
    dates = kind == pl.Date or kind == pl.Datetime
    text = kind in (pl.String, pl.Categorical, pl.Enum, pl.Binary)
    if not (text or dates or _is_number(kind)):
        raise InputError(
            f"The column {column.name!r} must hold identifiers: whole numbers, text or dates."
        )
    with hide_file_values(None):
        return read_identifier_cells(column, file.missing)


def _encode_file_features(table: pl.DataFrame, schema: Schema, refused: bool) -> np.ndarray:
    """Return the rows ``X`` of a file; rows that a missing value makes invalid hold NaN, or are
    refused.
    """
    from dpconvex.inputs.cells import read_cells
    from dpconvex.inputs.column_encoding import (
        encode_columns,
        encoded_array,
        invalid_encoded_columns,
    )

    with hide_file_values(None):
        cells = {name: read_cells(table[name]) for name in schema.inputs}
        rows = encoded_array(encode_columns(schema, cells))
    if refused and np.isnan(rows).any():
        column = invalid_encoded_columns(schema, cells)[0]
        what = {
            SchemaNumber: "finite numbers",
            SchemaFlag: "its two words",
            SchemaDate: "dates of its format",
        }
        wanted = what.get(type(column), "a value in every row")
        hint = _comma_hint(schema.file) if isinstance(column, SchemaNumber) else ""
        raise InputError(
            f"The column {source_column(column)!r} must hold {wanted} only. It has missing values "
            'or others: give it a rule in the schema, like missing = "indicator", or use '
            f"--invalid-rows ignore.{hint} {_COUNT_HINT}"
        )
    return rows


def _comma_hint(file: csv_reader.CSVFormat) -> str:
    return (
        ""
        if file.decimal != "."
        else ' Commas need decimal = "," in [file], or "1,234.5" for thousands.'
    )


def _check_file_types(table: pl.DataFrame, schema: Schema) -> None:
    """Raise if a column of a Parquet file has a type that the schema cannot read."""
    from dpconvex.inputs.column_types import check_column_types

    check_column_types(schema, {name: table[name] for name in table.columns})
    for column in schema.columns:
        kind = table.schema[source_column(column)]
        text = kind in (pl.String, pl.Categorical, pl.Enum, pl.Null)
        if isinstance(column, SchemaNumber) and not (text or _is_number(kind)):
            raise InputError(f"The column {source_column(column)!r} must hold numbers.")
        if isinstance(column, SchemaDate) and not (text or kind.is_temporal() or kind.is_numeric()):
            raise InputError(f"The column {column.name!r} must hold dates.")


def _read_file_target(
    table: pl.DataFrame, name: str, file: csv_reader.CSVFormat, ignored: bool = False
) -> np.ndarray:
    from dpconvex.inputs.cells import read_cells

    column = table[name]
    if column.dtype not in (pl.String, pl.Null) and not _is_number(column.dtype):
        raise InputError(f"The column {name!r} must hold numbers.")
    with hide_file_values(None):
        numbers = read_cells(column).as_numbers(file.decimal)
    if not ignored and np.isnan(numbers).any():
        raise InputError(
            f"The column {name!r} must hold finite numbers only. It has missing values, text or "
            "infinite numbers: use a task that fits labels, or --invalid-rows "
            f"ignore.{_comma_hint(file)} {_COUNT_HINT}"
        )
    return numbers


def read_table_file_labels(
    table: pl.DataFrame,
    name: str,
    kind: str | None = None,
    ignored: bool = False,
    schema: Schema | None = None,
) -> pl.Series:
    """Read a table file's column of labels, "whole" or "text"; of no kind: whole numbers where all
    of them are.

    Of no kind, other numbers are refused: labels become public, and measurements are no labels.
    With ``ignored`` other cells are missing instead of refused. Text is matched with the schema's
    classes, so that ``1.0`` is the class ``1``.
    """
    from dpconvex.inputs.cells import read_cells
    from dpconvex.inputs.column_encoding import encode_labels

    column = table[name]
    words = column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null)
    if not words and not _is_number(column.dtype):
        raise InputError(f"The column {name!r} must hold labels: whole numbers or text.")
    classes = None if schema is None or schema.target is None else schema.target.classes
    with hide_file_values(None):
        text = column.cast(pl.String).str.strip_chars()
        declared = text
        if classes is not None and schema is not None:  # null where a label means none of them
            labels = encode_labels(read_cells(text), classes, schema.file.decimal)
            declared = pl.Series(text.name, labels.tolist(), dtype=pl.String)
        if ignored:
            return declared if kind == "text" else _whole_table_file_labels(declared)
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
        if declared.null_count():
            shown = ", ".join(map(shown_name, classes[:10])) + (
                ", ..." if len(classes) > 10 else ""
            )
            raise InputError(
                f"The column {name!r} must hold the classes of the schema's [target] only: "
                f"{shown}. It has other labels: write the classes as the file does, or use "
                f"--invalid-rows ignore if few rows differ. {_COUNT_HINT}"
            )
        return declared if kind == "text" else declared.cast(pl.Int64)
    if kind == "text":
        return text
    if kind == "whole":
        if whole.null_count():
            raise InputError(f"The column {name!r} must hold the labels of --classes only.")
        return whole
    if measured:
        raise InputError(
            f"The column {name!r} must hold labels: whole numbers or text. It has other numbers: "
            "choose a task that fits numbers, or name the labels with --classes."
        )
    return whole if whole.null_count() == 0 else text


def _whole_table_file_labels(text: pl.Series) -> pl.Series:
    """Return the whole numbers of a file's column of text, with or without a decimal point, as
    objects.
    """
    whole = text.cast(pl.Int64, strict=False)
    numbers = text.cast(pl.Float64, strict=False)
    exact = numbers.is_finite() & (numbers == numbers.round()) & (numbers.abs() < 2**53)
    found = whole.zip_with(
        whole.is_not_null(), numbers.set(~exact.fill_null(False), None).cast(pl.Int64)
    )
    # Not floats, which cannot hold all whole numbers, and not numpy's integers, which know nothing
    # missing.
    return pl.Series(text.name, found.to_list(), dtype=pl.Object)


def _is_number(dtype: pl.DataType) -> bool:
    return bool(dtype.is_numeric() or dtype == pl.Boolean)


@dataclass(frozen=True)
class FilePiece:
    """Part of a file: row groups of a Parquet file, or whole lines of a CSV file from one byte
    to another.
    """

    path: str
    first: int
    last: int
    layout: csv_reader.CSVLayout | None = None

    def read(self, wanted: list[str], every_line: bool = False) -> pl.DataFrame:
        """Return the wanted columns, by the rules of `OpenTableFile.read`."""
        path = Path(self.path)
        with hide_file_values(path):
            if self.layout is None:
                from pyarrow import parquet

                groups = list(range(self.first, self.last))
                table = parquet.ParquetFile(path).read_row_groups(groups, columns=wanted)
                return pl.DataFrame(pl.from_arrow(table)).select(wanted)
            with path.open("rb") as file:
                file.seek(self.first)
                rows = self.layout.read_block(file.read(self.last - self.first), wanted)
            return rows.cells if every_line else _usable_file_rows(rows, path, self.layout)


def matching_files(pattern: Path) -> list[Path]:
    """Return the files that a name or pattern stands for, all CSV or all Parquet, in order."""
    if pattern.is_file():
        return [pattern]
    found = sorted(Path(name) for name in glob.glob(str(pattern), recursive=True))
    if not found:
        raise InputError(f"There is no file {str(pattern)!r}.")
    for path in found:
        table_file_format(path)
    return found


def split_files(
    files: list[Path], schema: Schema, memory_limit: int, threads: int
) -> tuple[list[FilePiece], int]:
    """Cut files into pieces; return also how many of them, at most `threads`, fit into memory at
    the same time.
    """
    row_bytes = 8 * (len(schema.names) + 1) * COPIES
    room = max(memory_limit - BASE, memory_limit // 4)
    pieces: list[FilePiece] = []
    largest = 1
    for path in files:
        if path.suffix.lower() in csv_reader.PACKED:
            raise InputError(
                f"The file {path.name!r} must not be packed: --engine dask reads pieces of it. "
                "Unpack it first."
            )
        opened = open_table_file(path, schema.file)
        require_file_columns(opened.names, _training_columns(schema), "A data file")
        if opened.layout is not None:
            size = max(FEWEST_BYTES, min(1 << 25, room // (2 * COPIES * threads)))
            pieces += _split_csv_file(path, size, opened.layout)
            continue
        found, longest = _split_parquet_file(
            path, max(1, min(MOST_ROWS, room // (row_bytes * threads)))
        )
        pieces += found
        largest = max(largest, longest)
    needed = row_bytes * largest
    if needed > room:
        raise InputError(
            "A row group of the Parquet files has too many rows for the memory limit. "
            "Raise --memory-limit, or write the files with smaller row groups."
        )
    return pieces, max(1, min(threads, room // needed))


def _split_parquet_file(path: Path, rows: int) -> tuple[list[FilePiece], int]:
    """Return runs of a Parquet file's row groups of about `rows` rows, and the length of the
    longest run.
    """
    from pyarrow import parquet

    with hide_file_values(path):
        metadata = parquet.ParquetFile(path).metadata
        lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    pieces = []
    first = 0
    count = 0
    longest = 0
    for group, length in enumerate(lengths):
        if count and count + length > rows:
            pieces.append(FilePiece(str(path), first, group))
            first = group
            count = 0
        count += length
        longest = max(longest, count)
    return [*pieces, FilePiece(str(path), first, len(lengths))], longest


def _split_csv_file(path: Path, size: int, layout: csv_reader.CSVLayout) -> list[FilePiece]:
    pieces = []
    start = layout.start
    end = path.stat().st_size
    with path.open("rb") as file:
        while start < end:
            file.seek(min(start + size, end))
            file.readline()  # to the first byte after the next line end, or after the file
            stop = file.tell()
            pieces.append(FilePiece(str(path), start, stop, layout))
            start = stop
    return pieces or [FilePiece(str(path), start, start, layout)]


def load_file_piece(
    piece: FilePiece, schema: Schema, kind: str | None, ignored: bool = False
) -> pd.DataFrame:
    """Return a piece as a pandas table of encoded features and target; ``kind`` is that of
    labels, None for numbers.
    """
    table = piece.read(_training_columns(schema), every_line=ignored)
    typed = table_file_format(Path(piece.path)) == "parquet"
    features, column = _encode_training_file(table, schema, kind is not None, kind, ignored, typed)
    single = not schema.interactions and all(
        isinstance(column, SchemaNumber)
        and (column.transform, column.knots, column.missing.rule) == ("clip", (), "row")
        and table.schema[source_column(column)] == pl.Float32
        for column in schema.columns
    )
    # Numbers within the bounds lose nothing as float32, and half of the memory is saved.
    frame = pd.DataFrame(features.astype(np.float32) if single else features, columns=schema.names)
    target = column.to_numpy()
    frame[TARGET] = (
        target.astype(object) if kind == "text" or (ignored and kind is not None) else target
    )
    return frame


def _has_whole_labels(piece: FilePiece, target: str) -> bool:
    table = piece.read([target])
    return bool(table.height == 0 or read_table_file_labels(table, target).dtype.is_integer())


def read_file_partitions(
    pieces: Sequence[FilePiece],
    schema: Schema,
    labels: bool = False,
    kind: str | None = None,
    ignored: bool = False,
) -> tuple[dd.DataFrame, dd.Series]:
    """Return features and target of a file's pieces for Dask; all are read where the kind of
    labels is not known.
    """
    if labels and kind is None:
        has_whole_labels = dask.delayed(_has_whole_labels, pure=False)
        assert schema.target is not None
        whole = dask.compute(*[has_whole_labels(piece, schema.target.name) for piece in pieces])
        kind = "whole" if all(whole) else "text"
    meta = pd.DataFrame(np.empty((0, len(schema.names))), columns=schema.names)
    dtype: type = np.int64 if kind == "whole" and not ignored else object if kind else float
    meta[TARGET] = np.empty(0, dtype=dtype)
    load = functools.partial(load_file_piece, schema=schema, kind=kind, ignored=ignored)
    frame = dd.from_map(
        load, list(pieces), meta=meta, enforce_metadata=False
    )  # float32 stays float32
    return frame[schema.names], frame[TARGET]


@contextlib.contextmanager
def dask_cluster_for_files(address: str | None, threads: int) -> Iterator[None]:
    """Run Dask on a cluster if an address is given, otherwise in `threads` threads."""
    if address is None:
        with dask.config.set(scheduler="threads", num_workers=threads):
            yield
        return
    from distributed import Client

    try:
        client = Client(address, timeout="20s")
    except (OSError, ValueError):
        raise InputError(f"There is no Dask scheduler at {address!r}.") from None
    try:
        yield
    finally:
        # What was fitted is paid for, however the cluster is left.
        with contextlib.suppress(Exception):
            client.close()


def file_memory_limit(text: str | None) -> int:
    """Return how many bytes of a file may be in memory, half of the machine's by default."""
    if text is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    from dask.utils import parse_bytes

    try:
        limit = int(parse_bytes(text))
    except ValueError:
        limit = 0
    if limit <= 0:
        raise InputError(f"The memory limit must be like '2 GB'. Got {text!r} instead.")
    return limit
