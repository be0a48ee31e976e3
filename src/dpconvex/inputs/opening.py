"""Opening CSV and Parquet files without a data value in any message.

Column names are shown only if the user wrote them: the first line of a file without a header is data. How CSV files are
read is in :mod:`dpconvex.inputs.delimited`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpconvex.inputs.delimited import CSV, PACKED, Layout, LineProblem, TableRows, read_layout, unreadable
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.schema import MOST_COLUMNS, FileFormat
from dpconvex.whole_files import write_whole

if TYPE_CHECKING:
    import polars as pl

PARQUET = (".parquet", ".pq")
#: What makes a line unreadable.
FAULTS = (LineProblem.OPEN_QUOTE, LineProblem.LONG, LineProblem.UNDECODED)


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
    """A table that is about to be read: its usable columns, and how a CSV file is written."""

    path: Path
    names: list[str]
    layout: Layout | None = None

    def read(
        self, wanted: list[str], least: int = 0, every_line: bool = False, refused: tuple[LineProblem, ...] = FAULTS
    ) -> pl.DataFrame:
        """Return the wanted columns; missing ones are named, because the user named them.

        With ``every_line`` each line of a CSV file is a row, whatever it holds. Otherwise blank lines are no rows, and
        lines with a problem that is ``refused`` are an error.
        """
        rows = self.read_rows(wanted)
        table = rows.cells
        if self.layout is not None and not every_line:
            table = usable_rows(rows, self.path, self.layout, refused)
        if table.height < least:
            raise InputError("The data file has no rows.")
        return table

    def read_rows(self, wanted: list[str]) -> TableRows:
        """Return the wanted columns of every line, and the problem of each line."""
        import numpy as np
        import polars as pl

        known = set(self.names)
        absent = [name for name in wanted if name not in known]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            alike = absent[0].strip().lower() in {name.strip().lower() for name in self.names}
            hint = " It has one that differs in capital letters or spaces: write it as the file does." if alike else ""
            raise InputError(f"The data file has no column {absent[0]!r}{more}.{hint}")
        with without_values(self.path):
            if self.layout is not None:
                return self.layout.read(self.path, wanted)
            table = pl.scan_parquet(self.path, glob=False).select(wanted).collect()
        return TableRows(table, np.zeros(table.height, dtype=np.uint8))


def usable_rows(rows: TableRows, path: Path, layout: Layout, refused: tuple[LineProblem, ...] = FAULTS) -> pl.DataFrame:
    """Return the rows of a CSV file that are not blank, or raise if a line has a problem that is refused."""
    import numpy as np
    import polars as pl

    if np.isin(rows.problems, refused).any():
        raise unreadable(path, layout)
    blank = rows.problems == LineProblem.BLANK
    return rows.cells.filter(pl.Series(~blank)) if blank.any() else rows.cells


def open_table(path: Path, file: FileFormat | None = None) -> OpenTable:
    """Return a table and the names of its columns that can be used; an index column has no name."""
    import polars as pl

    kind = table_format(path)
    check_file(path)
    path = path.resolve()
    with without_values(path):
        if kind == "parquet":
            layout, names = None, pl.scan_parquet(path, glob=False).collect_schema().names()
        else:
            layout = read_layout(path, file or FileFormat())
            names = [name for name in layout.names if name.strip()]
    if len(names) > MOST_COLUMNS:
        raise InputError(f"The file {path.name!r} must have at most {MOST_COLUMNS:,} columns.")
    return OpenTable(path, names, layout)


def write_table(table: pl.DataFrame, path: Path, file: FileFormat | None = None) -> None:
    """Write a table in the format of the file's name, separated and encoded as ``file`` says."""
    import polars as pl

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
    # An empty field and none at all are the same to a reader of CSV.
    table = table.with_columns(pl.col(pl.String).replace("", None))
    text = table.write_csv(separator=separator).encode(file.encoding or "utf-8")
    write_whole(path, gzip.compress(text) if path.suffix.lower() == ".gz" else text)


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
        reason = "damaged, or no Parquet file" if path and path.suffix in PARQUET else "damaged"
        raise InputError(f"{what} cannot be read. Most likely it is {reason}.") from None
    except BaseException as error:
        # A panic of polars' compiled code is a BaseException of its own module.
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what} cannot be read: it is damaged.") from None
