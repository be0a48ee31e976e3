"""``dpconvex split``."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import DelimiterOption, EncodingOption, JsonOption, LineBreaksOption
from dpconvex.cli.outputs import check_output
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.opening import check_file, open_table, table_format, write_table
from dpconvex.inputs.schema import FileFormat
from dpconvex.inputs.schema_parsing import check_delimiter, check_encoding

if TYPE_CHECKING:
    import numpy as np
    import polars as pl


def register_commands(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(split)


@reports_errors
def split(
    data: Annotated[Path, typer.Argument(help="CSV (also .gz or .zip) or Parquet file.")],
    train: Annotated[Path, typer.Option(help="Where to write the rows to fit on.")],
    test: Annotated[Path, typer.Option(help="Where to write the rows to judge by.")],
    seed: Annotated[int, typer.Option(help="Public seed: it may be published.")],
    share: Annotated[float, typer.Option(help="Share of the rows to judge by.")] = 0.25,
    by: Annotated[
        str | None, typer.Option(help="Column that decides, such as a person: its rows stay together.")
    ] = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    line_breaks: LineBreaksOption = False,
    json_: JsonOption = False,
) -> None:
    """Split a table into rows to fit on and rows to judge by, whatever the rows hold.

    Places of rows decide, by a public seed: a record that is replaced stays on its side, and both sides have the same
    number of rows. With --by the value of a column decides, each by itself, so that a record that joins or leaves moves
    no other; how many rows each side has then depends on these values.
    """
    if not 0 < share < 1:
        raise InputError(f"The option --share must be between 0 and 1. Got {share!r} instead.")
    for path in (data, train, test):
        table_format(path)
    check_file(data)
    check_output(train, "rows to fit on", {"data": data})
    check_output(test, "rows to judge by", {"data": data, "rows to fit on": train})
    file = FileFormat(
        None if delimiter is None else check_delimiter(delimiter),
        None if encoding is None else check_encoding(encoding),
        line_breaks=line_breaks,
    )
    import polars as pl

    with progress(f"Splitting {data.name}"):
        opened = open_table(data, file)
        if by is not None and by not in opened.names:
            raise InputError(f"The data file has no column {by!r}.")
        table = opened.read(opened.names, least=2)
        if by is not None and table.schema[by].is_nested():
            raise InputError(f"The column {by!r} must hold words, numbers or dates.")
        chosen = pl.Series(by_place(table.height, seed, share) if by is None else by_value(table[by], seed, share))
        # What reads the whole table reads its parts.
        written = file if opened.layout is None else replace(file, delimiter=opened.layout.delimiter)
        write_table(table.filter(~chosen), train, written)
        write_table(table.filter(chosen), test, written)
    judged = int(chosen.sum())
    counts = {"train_rows": table.height - judged, "test_rows": judged}
    if json_:
        print_json({"train": str(train), "test": str(test), "seed": seed, **counts})
    else:
        console().print(f"Written to {train}: {counts['train_rows']:,} rows; to {test}: {judged:,} rows", markup=False)


def by_place(rows: int, seed: int, share: float) -> np.ndarray:
    """Return which rows are to judge by: a fixed number of places, drawn with the seed."""
    import numpy as np

    entropy = int.from_bytes(hashlib.sha256(f"split {seed}".encode()).digest()[:16])
    chosen = np.zeros(rows, dtype=bool)
    count = min(rows - 1, max(1, round(share * rows)))
    chosen[np.random.default_rng(entropy).permutation(rows)[:count]] = True
    return chosen


def by_value(column: pl.Series, seed: int, share: float) -> np.ndarray:
    """Return which rows are to judge by: each value decides by its own hash with the seed."""
    import numpy as np

    from dpconvex.engine.votes import canonical_identifier, exact_values

    @lru_cache(None, typed=True)
    def judged(value: Hashable) -> bool:
        name = canonical_identifier(value)  # the same however a person is written
        word = f"split {seed} {value if name is None else name}"
        digest = hashlib.sha256(word.encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest[:8]) < share * 2**64

    values = exact_values(column).tolist()
    return np.array([judged(value) for value in values], dtype=bool)
