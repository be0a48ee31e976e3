"""Tables larger than memory: files cut into pieces that are read one by one, through Dask.

A piece goes through the same conversions and checks as a whole table, so that no message quotes a
value of the data.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpconvex.inputs.delimited import PACKED, Layout, line_end
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.files import encode_piece, label_column
from dpconvex.inputs.opening import open_table, table_format, usable_rows, without_values
from dpconvex.inputs.schema import Schema

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import polars as pl

MOST_ROWS = 1 << 18  # of a piece, so that all cores have something to do
FEWEST_BYTES = 1 << 20  # of a CSV piece
COPIES = 6  # of a piece in memory at its worst: file, table, encoded table, array and checks
BASE = 1 << 29  # bytes that the program needs itself


@dataclass(frozen=True)
class Piece:
    """Part of a file: row groups of a Parquet file, or whole lines of a CSV file from one byte to another."""

    path: str
    first: int
    last: int
    layout: Layout | None = None


@dataclass(frozen=True)
class Plan:
    """The pieces of all files, and how many may be worked on at the same time."""

    pieces: tuple[Piece, ...]
    threads: int


def matching_files(pattern: Path) -> list[Path]:
    """Return the files that a name or pattern stands for, all CSV or all Parquet, in order."""
    if pattern.is_file():
        return [pattern]
    found = sorted(Path(name) for name in glob.glob(str(pattern), recursive=True))
    if not found:
        raise InputError(f"There is no file {str(pattern)!r}.")
    for path in found:
        table_format(path)
    return found


def plan_pieces(files: list[Path], schema: Schema, memory_limit: int, threads: int) -> Plan:
    """Cut the files into pieces of which `threads` fit into memory at the same time."""
    if schema.file.line_breaks:
        raise InputError(
            "The schema's line_breaks in [file] must be false with --engine dask, which reads pieces of a file. Use "
            "Parquet."
        )
    wanted = _wanted(schema)
    width = len(schema.names) + 1
    room = max(memory_limit - BASE, memory_limit // 4)
    pieces: list[Piece] = []
    largest = 1
    for path in files:
        if path.suffix.lower() in PACKED:
            raise InputError(
                f"The file {path.name!r} must not be packed: --engine dask reads pieces of it. Unpack it first."
            )
        opened = open_table(path, schema.file)
        known = set(opened.names)
        absent = [name for name in wanted if name not in known]
        if absent:
            raise InputError(f"A data file has no column {absent[0]!r}.")
        if opened.layout is not None:
            size = max(FEWEST_BYTES, min(1 << 25, room // (2 * COPIES * threads)))
            pieces += _csv_pieces(path, size, opened.layout)
            continue
        rows = max(1, min(MOST_ROWS, room // (8 * width * COPIES * threads)))
        found, longest = _parquet_pieces(path, rows)
        pieces += found
        largest = max(largest, longest)
    needed = 8 * width * COPIES * largest
    if needed > room:
        raise InputError(
            "A row group of the Parquet files has too many rows for the memory limit. "
            "Raise --memory-limit, or write the files with smaller row groups."
        )
    return Plan(tuple(pieces), max(1, min(threads, room // needed)))


def _parquet_pieces(path: Path, rows: int) -> tuple[list[Piece], int]:
    """Return runs of row groups of about `rows` rows, and the length of the longest run."""
    from pyarrow import parquet

    with without_values(path):
        metadata = parquet.ParquetFile(path).metadata
        lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    pieces, first, count, longest = [], 0, 0, 0
    for group, length in enumerate(lengths):
        if count and count + length > rows:
            pieces.append(Piece(str(path), first, group))
            first, count = group, 0
        count += length
        longest = max(longest, count)
    return [*pieces, Piece(str(path), first, len(lengths))], longest


def _csv_pieces(path: Path, size: int, layout: Layout) -> list[Piece]:
    """Return stretches of about `size` bytes that end with a line."""
    pieces, start, end = [], layout.start, path.stat().st_size
    with path.open("rb") as file:
        while start < end:
            stop = line_end(file, min(start + size, end), layout.newline)
            pieces.append(Piece(str(path), start, stop, layout))
            start = stop
    return pieces or [Piece(str(path), start, start, layout)]


def _read_piece(piece: Piece, wanted: list[str], every_line: bool = False) -> pl.DataFrame:
    import polars as pl

    path = Path(piece.path)
    with without_values(path):
        if piece.layout is None:
            from pyarrow import parquet

            groups = list(range(piece.first, piece.last))
            table = parquet.ParquetFile(path).read_row_groups(groups, columns=wanted)
            return pl.DataFrame(pl.from_arrow(table)).select(wanted)
        with path.open("rb") as file:
            file.seek(piece.first)
            rows = piece.layout.read_block(file.read(piece.last - piece.first), wanted)
        return rows.cells if every_line else usable_rows(rows, path, piece.layout)


def _wanted(schema: Schema) -> list[str]:
    """Return the table's columns that a fit reads."""
    assert schema.target is not None
    return list(dict.fromkeys([*schema.inputs, schema.target.name]))


def load_piece(piece: Piece, schema: Schema, labels: str | None, ignored: bool = False) -> pd.DataFrame:
    """Return a piece as a pandas table of encoded features and the target."""
    import pandas as pd

    table = _read_piece(piece, _wanted(schema), every_line=ignored)
    typed = table_format(Path(piece.path)) == "parquet"
    features, target = encode_piece(table, schema, labels, ignored, typed)
    frame = pd.DataFrame(features, columns=schema.names)
    frame[TARGET] = target
    return frame


TARGET = "the target"


def _whole_labels(piece: Piece, target: str) -> bool:
    """Whether all labels of a piece are whole numbers."""
    table = _read_piece(piece, [target])
    return bool(table.height == 0 or label_column(table, target).dtype.is_integer())


def read_file_partitions(
    plan: Plan, schema: Schema, labels: bool = False, kind: str | None = None, ignored: bool = False
) -> tuple[dd.DataFrame, dd.Series]:
    """Return features and target of all pieces as a Dask dataframe and series.

    Labels are of the ``kind`` "whole" or "text"; where it is not known, all pieces are looked at. With ``ignored``
    what cannot be read is missing instead of refused.
    """
    import dask
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    if labels and kind is None:
        look = dask.delayed(_whole_labels, pure=False)
        assert schema.target is not None
        whole = dask.compute(*[look(piece, schema.target.name) for piece in plan.pieces])
        kind = "whole" if all(whole) else "text"
    meta = pd.DataFrame(np.empty((0, len(schema.names))), columns=schema.names)
    dtype: type = np.int64 if kind == "whole" and not ignored else object if kind else float
    meta[TARGET] = np.empty(0, dtype=dtype)
    frame = dd.from_map(
        functools.partial(load_piece, schema=schema, labels=kind, ignored=ignored),
        list(plan.pieces),
        meta=meta,
        enforce_metadata=False,  # float32 stays float32
    )
    return frame[schema.names], frame[TARGET]


@contextlib.contextmanager
def dask_cluster_for_files(address: str | None, threads: int) -> Iterator[None]:
    """Run Dask on a cluster if an address is given, otherwise in `threads` threads."""
    import dask

    if address is None:
        with dask.config.set(scheduler="threads", num_workers=threads):
            yield
        return
    from distributed import Client

    try:
        client = Client(address, timeout="20s")
    except (OSError, ValueError):
        raise InputError(f"There is no Dask scheduler at {address!r}.") from None
    with client:
        yield


def memory_bytes(text: str | None) -> int:
    """Return a memory limit in bytes, half of the machine's memory by default."""
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
