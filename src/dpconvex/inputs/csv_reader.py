"""CSV files: bytes are cut at line ends before anything else, and each line by itself becomes a
row.

No quote, no byte of another encoding and no field too many changes how another line is read. Lines
without quotes are split all at once, the others are parsed one by one, and both ways give the same
cells. Every cell is text, because the type that a column seems to have depends on all of its rows.
The format is public: the header, a byte-order mark and the user say it.
"""

from __future__ import annotations

import codecs
import contextlib
import enum
import gzip
import importlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from dpconvex.inputs import InputError
from dpconvex.system.lazy_imports import np, pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

CSV = (".csv", ".tsv")
PACKED = (".gz", ".zip")
DELIMITERS = ",;\t|"
LONGEST_NAME = 1000
MOST_MISSING_WORDS = 1000  # of a schema: every column is compared with all of them
_LONGEST_HEADER = 1 << 24  # bytes
_BLOCK = 1 << 24  # bytes that are read at a time
#: Spellings of a missing value, unless such a word is declared as a category.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")
# Encodings of several bytes a sign: nothing but a line end holds its byte, and lines can be decoded
# one by one.
_MULTIBYTE_ENCODINGS = (
    "ascii",
    "utf-8",
    "utf-8-sig",
    "big5",
    "big5hkscs",
    "cp932",
    "cp949",
    "cp950",
    "euc_jp",
    "euc_jis_2004",
    "euc_jisx0213",
    "euc_kr",
    "gb18030",
    "gb2312",
    "gbk",
    "johab",
    "shift_jis",
    "shift_jis_2004",
    "shift_jisx0213",
)


@dataclass(frozen=True)
class CSVFormat:
    """Format of a CSV file; None where the header and a byte-order mark say it."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = MISSING_WORDS
    rows: int | None = None  # the public number of records, of whatever kind the file is


def parse_csv_format(table: Mapping[str, Any]) -> CSVFormat:
    """Return the format that the table ``[file]`` of a schema declares, or raise."""
    allowed = [item.name for item in fields(CSVFormat)]
    if not set(table) <= set(allowed):
        raise InputError(f"The schema's [file] may have {allowed} only.")
    values = dict(table)
    delimiter = values.get("delimiter")
    decimal = values.get("decimal", ".")
    if "delimiter" in values:
        check_csv_delimiter(delimiter)
    if "encoding" in values:
        check_csv_encoding(values["encoding"])
    if decimal not in (".", ",", "1,234.5") or (decimal == "," and delimiter == ","):
        raise InputError(
            'The schema\'s decimal in [file] must be ".", "," or "1,234.5" (commas set off '
            "thousands), and not the delimiter."
        )
    if "missing" in values:
        words = values["missing"]
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise InputError('The schema\'s missing in [file] must be a list like ["NA", "?"].')
        if len(words) > MOST_MISSING_WORDS:
            raise InputError(
                f"The schema's missing in [file] must have at most {MOST_MISSING_WORDS:,} words."
            )
        values["missing"] = ("", *(word.strip() for word in words if word.strip()))
    rows = values.get("rows", 1)
    if type(rows) is not int or not 1 <= rows < 2**53:
        raise InputError(
            "The schema's rows in [file] must be a whole number of at least 1, the public number "
            "of records."
        )
    return CSVFormat(**values)


def check_csv_delimiter(value: object) -> str:
    """Return the sign that separates fields, or raise."""
    if value == "\\t":
        value = "\t"
    if (
        not isinstance(value, str)
        or len(value) != 1
        or not (value.isascii() and value not in '"\r\n')
    ):
        raise InputError('The delimiter must be one sign, like ";" or "\\t".')
    return value


def check_csv_encoding(value: object) -> str:
    """Return the name of an encoding of text whose lines can be read one by one, or raise."""
    if not isinstance(value, str) or not _is_stateless_csv(value):
        raise InputError(
            'The encoding must be one that Python knows, like "utf-8" or "latin-1", in which '
            "each line can be read by itself and ends with the byte of a line feed: not UTF-16, "
            "UTF-7, HZ or ISO 2022. Write the file in UTF-8."
        )
    return value


def _is_stateless_csv(encoding: str) -> bool:
    try:
        name = codecs.lookup(encoding).name
        module = importlib.import_module(f"encodings.{name.replace('-', '_')}")
    except (LookupError, ValueError, ImportError):
        return False
    return name in _MULTIBYTE_ENCODINGS or (
        "decoding_table" in vars(module) and "\n".encode(name) == b"\n"
    )


class CSVLineProblem(enum.IntEnum):
    """Why a line of a CSV file is no row like others; all cells of a line that cannot be read are
    missing.
    """

    NONE = 0
    BLANK = 1
    OPEN_QUOTE = 2
    LONG = 3  # more fields than the header
    UNDECODED = 4  # bytes that the encoding does not have


#: Problems that make a line unreadable: it is a row without any value.
UNREADABLE = (CSVLineProblem.OPEN_QUOTE, CSVLineProblem.LONG, CSVLineProblem.UNDECODED)


class CSVRows(NamedTuple):
    """Columns of text, and the problem of every row."""

    cells: pl.DataFrame
    problems: NDArray[np.uint8]


@dataclass(frozen=True)
class CSVLayout:
    """Format of a CSV file: the names of its fields, their delimiter, and the byte at which the
    rows begin.
    """

    names: tuple[str, ...]
    delimiter: str
    encoding: str
    start: int

    def read(self, path: Path, wanted: list[str]) -> CSVRows:
        """Return the wanted columns of all lines below the header."""
        with open_csv_bytes(path) as file:
            file.read(self.start)
            found = [self.read_block(block, wanted) for block in read_csv_blocks(file)]
        if not found:
            return self.read_block(b"", wanted)
        return CSVRows(
            pl.concat([rows.cells for rows in found]),
            np.concatenate([rows.problems for rows in found]),
        )

    def count_fields(self, path: Path) -> tuple[int, int]:
        """Return the number of lines below the header, and about how many fields they have."""
        lines = 0
        fields = 0
        with open_csv_bytes(path) as file:
            file.read(self.start)
            for block in read_csv_blocks(file):
                ends = block.count(b"\n") + (not block.endswith(b"\n"))
                lines += ends
                fields += ends + block.count(self.delimiter.encode())
        return lines, fields

    def read_block(self, block: bytes, wanted: list[str]) -> CSVRows:
        """Return the wanted columns of whole lines; the last one may lack its line end."""
        lines, undecoded = self._decode_lines(block)
        return self._parse_lines(lines.str.strip_suffix("\r"), undecoded, wanted)

    def _decode_lines(self, block: bytes) -> tuple[pl.Series, NDArray[np.bool_]]:
        """Return lines of a CSV file as text, and which of them hold bytes that the encoding
        does not have.
        """
        whole = block.removesuffix(b"\n")
        if block and self.encoding == "utf-8":
            # A line end is part of no other sign: to decode all lines at once is to decode each of
            # them.
            with contextlib.suppress(UnicodeDecodeError):
                lines = pl.Series([whole.decode()]).str.split("\n").explode()
                return lines, np.zeros(len(lines), dtype=bool)
        decoded = [_decode_csv_line(line, self.encoding) for line in whole.split(b"\n") if block]
        texts = pl.Series([text for text, _ in decoded], dtype=pl.String)
        return texts, np.array([failed for _, failed in decoded], dtype=bool)

    def _parse_lines(
        self, lines: pl.Series, undecoded: NDArray[np.bool_], wanted: list[str]
    ) -> CSVRows:
        """Return the wanted fields of lines of a CSV file, and the problem of each line."""
        problems = np.where(undecoded, CSVLineProblem.UNDECODED, CSVLineProblem.NONE).astype(
            np.uint8
        )
        problems[(lines == "").to_numpy()] = CSVLineProblem.BLANK
        # Which bytes stood there cannot be known, and so nothing of such a line is read.
        lines = lines.set(pl.Series(undecoded), None)
        quoted = lines.str.contains('"', literal=True).fill_null(False)
        if quoted.any():
            # Quotes around a whole field without a delimiter or a quote in it may as well be
            # absent.
            sign = rf"\x{{{ord(self.delimiter):x}}}"
            field = rf'(?:"[^"{sign}]*"|[^"{sign}]*)'
            simple = quoted & lines.str.contains(f"^{field}(?:{sign}{field})*$")
            lines = lines.str.replace_all('"', "", literal=True).zip_with(simple, lines)
            quoted = quoted & ~simple
        unquoted, long = self._split_unquoted_csv(lines.filter(~quoted), wanted)
        here = np.flatnonzero(~quoted.to_numpy())
        there = np.flatnonzero(quoted.to_numpy())
        problems[here[long]] = CSVLineProblem.LONG
        if not len(there):
            return CSVRows(unquoted, problems)
        one_by_one, faults = self._parse_quoted_csv(lines.filter(quoted).to_list(), wanted)
        problems[there] = np.where(faults, faults, problems[there])
        order = np.argsort(np.concatenate([here, there]))
        return CSVRows(pl.concat([unquoted, one_by_one])[order], problems)

    def _indices(self, wanted: list[str]) -> dict[str, int]:
        known = {name: index for index, name in enumerate(self.names)}
        return {name: known[name] for name in wanted}

    def _split_unquoted_csv(
        self, lines: pl.Series, wanted: list[str]
    ) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
        """Return the fields of CSV lines without quotes, and which lines have too many."""
        indices = self._indices(wanted)
        delimiters = lines.str.count_matches(self.delimiter, literal=True).fill_null(0).to_numpy()
        long = delimiters >= len(self.names)
        if long.any():
            lines = lines.set(pl.Series(long), None)
        # One field more than is wanted: the last one holds what follows it.
        most = max(indices.values(), default=0) + 1
        # Lines are split together with lines of about as many fields: beside a line of 100,000
        # fields, a line of two would otherwise take as much time and memory.
        sizes = np.frexp(np.minimum(delimiters, most).astype(np.float64))[1]
        sizes[long] = -1
        parts = []
        places = []
        for size in np.unique(sizes).tolist():
            here = np.flatnonzero(sizes == size)
            alike = lines if len(here) == len(lines) else lines[here]
            splits = 0 if size < 0 else min(most, 1 << size)
            parts.append(_split_alike_csv(alike, self.delimiter, splits, indices))
            places.append(here)
        if len(parts) < 2:
            whole = parts[0] if parts else _split_alike_csv(lines, self.delimiter, 0, indices)
            return whole, long
        return pl.concat(parts)[np.argsort(np.concatenate(places))], long

    def _parse_quoted_csv(
        self, lines: list[str], wanted: list[str]
    ) -> tuple[pl.DataFrame, NDArray[np.uint8]]:
        """Return the fields of CSV lines with quotes, and what is wrong with each line."""
        rows = []
        faults = np.zeros(len(lines), dtype=np.uint8)
        for number, line in enumerate(lines):
            found = split_csv_fields(line, self.delimiter)
            if found is None or len(found) > len(self.names):
                faults[number] = CSVLineProblem.OPEN_QUOTE if found is None else CSVLineProblem.LONG
                found = []
            rows.append(found)
        cells = {}
        for name, index in self._indices(wanted).items():
            cells[name] = pl.Series(
                [row[index] if index < len(row) else None for row in rows], dtype=pl.String
            )
        return pl.DataFrame(cells), faults


def _split_alike_csv(
    lines: pl.Series, delimiter: str, splits: int, indices: Mapping[str, int]
) -> pl.DataFrame:
    """Return the fields of these indices of CSV lines that are split at so many places at most;
    of no place the fields are missing.
    """
    missing = pl.Series([None], dtype=pl.String).new_from_index(0, len(lines))
    # All at once: to take one field out of the split lines takes time for every field.
    found = lines.str.split_exact(delimiter, splits).struct.unnest().get_columns() if splits else []
    return pl.DataFrame(
        {name: found[index] if index < len(found) else missing for name, index in indices.items()}
    )


def split_csv_fields(line: str, delimiter: str) -> list[str] | None:
    """Return the fields of one line, None if its quotes do not match."""
    # Quotes open at the start of a field. Between them everything belongs to the field; two of them
    # stand for one.
    parts = line.split('"')
    if len(parts) % 2 == 0:
        return None
    fields = []
    pieces: list[str] = []  # of the last field; joined once, since each joining copies all of it
    last = len(parts) - 1
    for index, part in enumerate(parts):
        if index % 2:
            pieces.append(part)
        elif not part and 0 < index < last:
            pieces.append('"')
        else:
            rest, *more = part.split(delimiter)
            pieces.append(rest)
            if more:
                fields.append("".join(pieces))
                fields += more[:-1]
                pieces = [more[-1]]
            if index < last and (more or index == 0) and pieces[-1].strip():
                return None  # a quote in the middle of a field
    return [*fields, "".join(pieces)]


def _decode_csv_line(line: bytes, encoding: str) -> tuple[str, bool]:
    try:
        return line.decode(encoding), False
    except UnicodeDecodeError:
        return line.decode(encoding, "replace"), True


def read_csv_blocks(file: IO[bytes], size: int = _BLOCK) -> Iterator[bytes]:
    """Give the rest of a file in blocks of whole lines."""
    while block := file.read(size):
        yield block if block.endswith(b"\n") else block + file.readline()


@contextlib.contextmanager
def open_csv_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a CSV file, packed or not; an archive must hold one table."""
    suffix = path.suffix.lower()
    if suffix not in PACKED:
        with path.open("rb") as file:
            yield file
        return
    try:
        if suffix == ".gz":
            with gzip.open(path) as packed:
                yield packed  # type: ignore[misc]
            return
        with zipfile.ZipFile(path) as archive:
            listed = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
            tables = [name for name in listed if name.lower().endswith(CSV)]
            if len(tables) != 1:
                raise InputError(f"The archive {path.name!r} must hold one .csv or .tsv file.")
            with archive.open(tables[0]) as member:
                yield member
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError):
        raise InputError(
            f"The file {path.name!r} cannot be unpacked: it is damaged or locked."
        ) from None


def read_csv_layout(path: Path, file: CSVFormat) -> CSVLayout:
    """Return how a CSV file is written, from its first line and from what the user says."""
    with open_csv_bytes(path) as source:
        start = source.read(_LONGEST_HEADER)
    encoding = codecs.lookup(file.encoding or "utf-8").name.removesuffix("-sig")
    line, end, _ = start.partition(b"\n")
    problem = "The first line of the CSV file must hold the names of the columns"
    try:
        header = line.decode(encoding).removeprefix("\ufeff").removesuffix("\r")
    except UnicodeDecodeError:
        header = "\ufffd"
    if "\r" in header:
        raise InputError(
            f"{problem} and end with LF or CRLF. Here CR stands in it, which old programs end "
            "lines with. Write the file with other line ends."
        )
    if not end and len(start) == _LONGEST_HEADER:
        raise InputError(f"{problem}, and be shorter than {_LONGEST_HEADER >> 20} MiB.")
    delimiter = file.delimiter or max(
        DELIMITERS, key=lambda sign: len(split_csv_fields(header, sign) or ())
    )
    names = split_csv_fields(header, delimiter)
    if names is None:
        raise InputError(f"{problem}, with quotes that end on it. Mend the quotes of the header.")
    named = [name for name in names if name.strip()]
    garbled = any(
        len(name) > LONGEST_NAME or not name.isprintable() or "\ufffd" in name for name in names
    )
    unreadable = (
        f"as text in {encoding.upper()} that can be printed; say --encoding for another encoding."
    )
    faults = {
        "but it holds a number. Add a header.": any(_is_csv_number(name) for name in names),
        unreadable: garbled,
        "but it is blank. Add a header.": not named,
        "each once, but a name is repeated.": len(set(named)) < len(named),
    }
    for fault, found in faults.items():
        if found:
            raise InputError(f"{problem}, {fault}")
    return CSVLayout(tuple(names), delimiter, encoding, len(line) + len(end))


def _is_csv_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.strip().lower() not in ("nan", "inf", "infinity")


def csv_problem_texts(layout: CSVLayout) -> dict[CSVLineProblem, tuple[str, str]]:
    """Return the text and the remedy of each problem of lines, from public facts."""
    commas = "quote fields that hold the delimiter, or say --delimiter"
    if layout.delimiter == ",":
        commas = (
            'quote fields with commas; for decimal commas separate fields by ";" and say '
            'decimal = ","'
        )
    encoding = "say --encoding, for instance cp1252, which spreadsheets write"
    return {
        CSVLineProblem.OPEN_QUOTE: (
            "quotes that do not match",
            "write fields that hold line breaks as Parquet",
        ),
        CSVLineProblem.LONG: (f"more fields than the {len(layout.names)} of the header", commas),
        CSVLineProblem.UNDECODED: (f"bytes that are not {layout.encoding.upper()}", encoding),
    }


def count_csv_problems(problems: NDArray[np.uint8], layout: CSVLayout) -> list[str]:
    """Return how many lines have which problem: private, for the holder of the rows."""
    found = []
    for problem, (what, remedy) in csv_problem_texts(layout).items():
        count = int((problems == problem).sum())
        if count:
            found.append(
                f"{count:,} {'line has' if count == 1 else 'lines have'} {what}: {remedy}."
            )
    return found


def unreadable_csv_lines(path: Path, layout: CSVLayout) -> InputError:
    """Return an error that names every reason: which of them holds depends on the rows."""
    reasons = "; ".join(f"{what} ({remedy})" for what, remedy in csv_problem_texts(layout).values())
    return InputError(
        f"The file {path.name!r} has lines that cannot be read, for one of these reasons: "
        f"{reasons}. `dpconvex bounds check` counts each, for your eyes only. A fit may use "
        "--invalid-rows ignore instead."
    )
