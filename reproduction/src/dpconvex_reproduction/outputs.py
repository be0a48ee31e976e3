"""Files in folders that users name: a run writes its own, and no others.

A file is written if there is none of its name, or if the one that is there is ours. Pages say with
which default they were made, tables of fits and kept cells have our columns, figures say what drew
them, and a table or figure belongs to the page beside it. Everything that a run writes is checked
before its first fit, and once more when it is written. Links are not followed.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from dpconvex.inputs import InputError
from dpconvex.system.atomic_files import write_file_atomically, write_new_file
from dpconvex_reproduction.fingerprint import page_fingerprint

__all__ = [
    "FIGURE_MARK",
    "INDEX_TITLE",
    "append_output",
    "check_outputs",
    "is_ours",
    "remove_output",
    "write_output",
]

#: First line of the list of all exhibits.
INDEX_TITLE = "# Tables and figures of the five papers, run again"
#: What drew a figure, as its file says.
FIGURE_MARK = "dpconvex reproduce"
_LARGEST_PAGE = 2**26  # bytes
_BEGINNING = 4096  # bytes in which a mark stands
_COLUMNS = {"data", "task", "method", "setting", "ours", "code", "relation", "epsilon", "guarantee"}
_CELL = (b'{"source": "', b'{"cell": {')


def is_ours(path: Path) -> bool:
    """Whether a file was written by a run like this one.

    Parameters
    ----------
    path : Path
        A regular file.
    """
    has_mark = _MARKS.get(path.suffix.lower(), _is_page)
    with contextlib.suppress(OSError, ValueError, lzma.LZMAError, EOFError):
        return has_mark(path)
    return False


def check_outputs(files: Iterable[Path], root: Path) -> None:
    """Raise if a run could not write one of its files, or would replace a file that is not ours.

    Parameters
    ----------
    files : iterable of Path
        Everything that the run may write.
    root : Path
        The folder that the user named, in which all files are. It may be a link, and nothing below
        it.

    Raises
    ------
    InputError
        It names the file or folder.
    """
    if root.exists() and not root.is_dir():
        raise InputError(f"The folder {str(root)!r} is a file. Name another one with --out.")
    above = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    if not os.access(above, os.W_OK):
        raise InputError(f"The folder {str(above)!r} cannot be written.")
    for path in files:
        for folder in path.relative_to(root).parents:
            inside = root / folder
            if folder.name and (inside.is_symlink() or (inside.exists() and not inside.is_dir())):
                raise _foreign(inside)
        _check_output(path)


def write_output(path: Path, content: bytes) -> None:
    """Write a file of a run, whole or not at all, where there is none or one of ours.

    Raises
    ------
    InputError
        If another file is there.
    """
    _check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        write_file_atomically(path, content)
        return
    try:
        write_new_file(path, content)
    except FileExistsError:
        raise _foreign(path) from None


def append_output(path: Path, text: str) -> None:
    """Append to a file of a run, or begin it; a link in its place is not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8") as file:
        file.write(text)


def remove_output(path: Path) -> None:
    """Remove a file of an earlier run, or raise if it is not ours."""
    _check_output(path)
    path.unlink(missing_ok=True)


def _check_output(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not (path.is_file() and is_ours(path))):
        raise _foreign(path)


def _foreign(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} is there, was not written by `dpconvex reproduce`, and is kept. Name "
        "another folder with --out, or move it away."
    )


def _page_text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LARGEST_PAGE).decode("utf-8")


def _is_page(path: Path) -> bool:
    text = _page_text(path)
    made = (line for line in text.splitlines() if line.startswith(("Made at ", "Measured at ")))
    return text.startswith(f"{INDEX_TITLE}\n") or any(map(page_fingerprint, made))


def _is_beside_page(path: Path) -> bool:
    """Whether a page of ours of the same name, or the folder's, is beside a table or a figure."""
    pages = (path.with_suffix(".md"), path.parent / "index.md")
    return any(page.is_file() and _is_page(page) for page in pages)


def _is_figure(path: Path) -> bool:
    with path.open("rb") as file:
        begin = file.read(_BEGINNING)
    marked = begin.startswith(b"\x89PNG\r\n\x1a\n") and FIGURE_MARK.encode() in begin
    return marked or _is_beside_page(path)


def _is_table_of_fits(path: Path) -> bool:
    import polars as pl

    try:
        return set(pl.read_parquet_schema(path)) >= _COLUMNS
    except pl.exceptions.PolarsError:
        return False


def _are_cells(path: Path) -> bool:
    """Whether a file holds finished cells, of which the first may be half written."""
    packed = path.suffix.lower() == ".xz"
    with path.open("rb") as file, lzma.LZMAFile(file) if packed else file as cells:
        begin = cells.read(_BEGINNING)
    return not begin or begin.startswith(_CELL)


def _are_packed_cells(path: Path) -> bool:
    """Whether a compressed file holds finished cells, or is what Git LFS has in place of them."""
    with path.open("rb") as file:
        begin = file.read(_BEGINNING)
    return begin.startswith(b"version https://git-lfs") or _are_cells(path)


def _is_memory(path: Path) -> bool:
    lines = json.loads(_page_text(path))
    return isinstance(lines, dict) and all(
        isinstance(line, dict) and "verdict" in line for line in lines.values()
    )


#: By the ending of a file; others are pages.
_MARKS: dict[str, Callable[[Path], bool]] = {
    ".png": _is_figure,
    ".csv": _is_beside_page,
    ".parquet": _is_table_of_fits,
    ".jsonl": _are_cells,
    ".xz": _are_packed_cells,
    ".json": _is_memory,
}
