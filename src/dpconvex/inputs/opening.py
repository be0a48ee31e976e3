"""Opening CSV and Parquet files, packed or not, in any encoding, without a data value in any message.

Every CSV column is text, because error messages of readers quote what they could not read. Column
names are shown only if the user wrote them: the first line of a file without a header is data. What
separates fields is seen in the header, and an encoding in a byte-order mark or in what the user
says: guessing it from the rows would let one of them decide how all others are read.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import mmap
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpconvex.inputs.errors import InputError
from dpconvex.inputs.schema import FileFormat
from dpconvex.whole_files import write_whole

if TYPE_CHECKING:
    import polars as pl

CSV, PARQUET, PACKED = (".csv", ".tsv"), (".parquet", ".pq"), (".gz", ".zip")
LONGEST_NAME = 1000
DELIMITERS = ",;\t|"
_FIRST_BYTES = 1 << 16  # that the header is looked for in
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def table_format(path: Path) -> str:
    """Return "csv" or "parquet" from the file's name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in PACKED
    last = suffixes[-2 if packed else -1] if len(suffixes) > packed else ""
    if last in CSV or (packed and suffixes[-1] == ".zip"):
        return "csv"
    if last in PARQUET and not packed:
        return "parquet"
    raise InputError(
        f"The file {path.name!r} must end with .csv, .tsv or .parquet; a .csv or .tsv may end with .gz or .zip."
    )


def check_file(path: Path) -> None:
    """Raise if there is no such file, or nothing in it."""
    if not path.is_file():
        raise InputError(f"The data file {str(path)!r} is not a file.")
    if path.stat().st_size == 0:
        raise InputError(f"The data file {path.name!r} is empty.")


@dataclass(frozen=True)
class OpenTable:
    """A table that is about to be read: its rows, its usable columns, and how a CSV file separates fields."""

    rows: pl.LazyFrame
    names: list[str]
    delimiter: str = ","
    content: bytes | None = None  # of a CSV file that had to be unpacked or decoded
    encoding: str | None = None  # that the user says
    lenient: bool = False  # whether lines that cannot be read are read nevertheless

    def read(self, path: Path, wanted: list[str], least: int = 0) -> pl.DataFrame:
        """Return the wanted columns; missing ones are named, because the user named them."""
        absent = [name for name in wanted if name not in self.names]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            alike = absent[0].strip().lower() in {name.strip().lower() for name in self.names}
            hint = (
                " It has one that differs in capital letters or spaces: write it as the file does."
                if alike
                else ""
            )
            raise InputError(f"The data file has no column {absent[0]!r}{more}.{hint}")
        try:
            with without_values(path, self.encoding):
                table = self.rows.select(wanted).collect()
        except InputError:
            if not self.lenient:
                raise
            table = _read_anyhow(path, self.content, self.delimiter).select(wanted)
        if table.height < least:
            raise InputError("The data file has no rows.")
        return table


def _read_anyhow(path: Path, content: bytes | None, delimiter: str) -> pl.DataFrame:
    """Return a CSV file whose quotes do not match as text, by a reader that refuses nothing below the header."""
    import polars as pl

    content = path.read_bytes() if content is None else content
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""))
    csv.field_size_limit(2**31 - 1)
    with without_values(path):
        header, *records = csv.reader(lines, delimiter=delimiter)
    _check_header(header)
    return pl.DataFrame(
        {
            name: pl.Series(
                [(record[place] if place < len(record) else "") or None for record in records],
                dtype=pl.String,
            )
            for place, name in enumerate(header)
            if name.strip()  # an index column has no name; it cannot be asked for
        }
    )


def open_table(path: Path, file: FileFormat | None = None, every_line: bool = False) -> OpenTable:
    """Return the table and the names of its columns that can be used.

    With ``every_line`` lines of a CSV file that hold nothing are rows as well, and lines that cannot be read do not end
    the reading.
    """
    import polars as pl

    file = file or FileFormat()
    kind = table_format(path)
    check_file(path)
    path = path.resolve()
    with without_values(path, file.encoding):
        if kind == "parquet":
            lazy = pl.scan_parquet(path, glob=False)
            return OpenTable(lazy, lazy.collect_schema().names())
        content = _decoded(path, file.encoding, lossy=every_line)
        source: Any = path if content is None else io.BytesIO(content)
        delimiter = file.delimiter or _delimiter(path, content)
        options: dict[str, Any] = {"infer_schema": False, "glob": False, "separator": delimiter}
        if every_line:
            options |= {"encoding": "utf8-lossy", "truncate_ragged_lines": True}
    try:
        with without_values(path, file.encoding):
            header = pl.scan_csv(source, has_header=False, n_rows=1, **options).collect()
            source = path if content is None else io.BytesIO(content)
            lazy = pl.scan_csv(source, **options)
            if not every_line:
                lazy = lazy.filter(pl.any_horizontal(pl.all().is_not_null()))
            found = lazy.collect_schema().names()
    except InputError:
        if not every_line:
            raise
        table = _read_anyhow(path, content, delimiter)
        return OpenTable(table.lazy(), table.columns, delimiter, content)
    names = [name or "" for name in header.row(0)] if header.height else []
    _check_header(names)
    # An index column has no name; it cannot be asked for.
    usable = [name for name, shown in zip(found, names, strict=False) if shown.strip()]
    return OpenTable(lazy, usable, delimiter, content, file.encoding, every_line)


def _decoded(path: Path, encoding: str | None, lossy: bool) -> bytes | None:
    """Return a CSV file as UTF-8, or None if it is so already."""
    packed = path.suffix.lower() in PACKED
    with path.open("rb") as file:
        start = file.read(4)
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    plain = encoding is None or encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")
    if not packed and plain and marked != "utf-16":
        return None
    raw = _unpacked(path) if packed else path.read_bytes()
    marked = next((name for mark, name in _MARKS.items() if raw.startswith(mark)), None)
    name = encoding or marked or "utf-8"
    if name == "utf-8" and marked is None and not lossy:
        return raw  # polars refuses what is not
    text = raw.decode(
        "utf-8-sig" if plain and marked == "utf-8-sig" else name, "replace" if lossy else "strict"
    )
    return text.removeprefix("\ufeff").encode("utf-8", "replace")


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a packed file; an archive must hold one table."""
    try:
        if path.suffix.lower() == ".gz":
            return gzip.decompress(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            tables = [
                name
                for name in archive.namelist()
                if name.lower().endswith(CSV) and not name.startswith("__MACOSX/")
            ]
            if len(tables) != 1:
                raise InputError(f"The archive {path.name!r} must hold one .csv or .tsv file.")
            return archive.read(tables[0])
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError):
        raise InputError(
            f"The file {path.name!r} cannot be unpacked: it is damaged or locked."
        ) from None


def _delimiter(path: Path, content: bytes | None) -> str:
    """Return what separates the fields of the header: the sign that separates most."""
    if content is None:
        with path.open("rb") as file:
            content = file.read(_FIRST_BYTES)
    lines = content[:_FIRST_BYTES].decode("utf-8", "replace").splitlines(keepends=True)

    def fields(sign: str) -> int:
        try:
            return len(next(csv.reader(lines, delimiter=sign), []))
        except csv.Error:
            return 0

    return max(DELIMITERS, key=fields)


def _check_header(names: list[str]) -> None:
    problem = "The first line of the CSV file must hold the names of the columns"
    if any(_looks_like_number(name) for name in names):
        raise InputError(f"{problem}, but it holds a number. Add a header.")
    for name in names:
        if len(name) > LONGEST_NAME or not name.isprintable() or "\ufffd" in name:
            raise InputError(
                f"{problem}, as text in UTF-8 that can be printed; say --encoding for another encoding."
            )
    named = [name for name in names if name]
    if len(set(named)) < len(named):
        raise InputError(f"{problem}, each once, but a name is repeated.")


def _looks_like_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.strip().lower() not in ("nan", "inf", "infinity")


def write_table(table: pl.DataFrame, path: Path, file: FileFormat | None = None) -> None:
    """Write a table in the format of the file's name, separated and encoded as ``file`` says."""
    file = file or FileFormat()
    if table_format(path) == "parquet":
        written = io.BytesIO()
        table.write_parquet(written)
        write_whole(path, written.getvalue())
        return
    if path.suffix.lower() == ".zip":
        raise InputError(f"The file {path.name!r} must not end with .zip to be written.")
    kind = next(suffix for suffix in map(str.lower, path.suffixes[::-1]) if suffix in CSV)
    separator = file.delimiter or ("\t" if kind == ".tsv" else ",")
    text = table.write_csv(separator=separator).encode(file.encoding or "utf-8")
    write_whole(path, gzip.compress(text) if path.suffix.lower() == ".gz" else text)


@contextlib.contextmanager
def csv_content(path: Path, opened: OpenTable) -> Iterator[bytes | mmap.mmap]:
    """Give the bytes of a CSV file."""
    if opened.content is not None:
        yield opened.content
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        yield content


def refuse_empty_records(content: bytes | mmap.mmap, delimiter: str = ",") -> None:
    """Raise if a line below the header of a CSV file holds separators alone.

    A blank line is no record. One of separators is, and must not be dropped: the number of rows is public.
    """
    sign = re.escape(delimiter.encode())
    if re.search(rb"\n" + sign + rb"+\r?(?:\n|\Z)", content):
        raise InputError(
            "The data file has a row in which every field is empty. Remove it or fill it in; a fit may use "
            "--invalid-rows ignore instead."
        )


def _reasons(path: Path | None, encoding: str | None) -> str:
    if path is not None and path.suffix.lower() in PARQUET:
        return "Most likely it is damaged, or no Parquet file."
    rows = "its rows are of different lengths, by a quote or a delimiter"
    if encoding is not None:
        return f"Most likely {rows}. Else it is not in {encoding}, or damaged."
    return (
        "Most likely it is not in UTF-8: say --encoding cp1252, for instance, which spreadsheets write. "
        f"Else {rows}, or it is damaged."
    )


@contextlib.contextmanager
def without_values(path: Path | None, encoding: str | None = None) -> Iterator[None]:
    """Replace a reader's error, which may quote data, by one that does not.

    The likeliest reason is named by the encoding that the user says: which one it is depends on the rows.
    """
    import polars as pl

    what = "The data" if path is None else f"The file {path.name!r}"
    try:
        yield
    except InputError:
        raise
    except (pl.exceptions.PolarsError, UnicodeError, ValueError, OverflowError):
        raise InputError(f"{what} cannot be read. {_reasons(path, encoding)}") from None
    except BaseException as error:
        # A panic of polars' compiled code is a BaseException of its own module.
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what} cannot be read: it is damaged.") from None
