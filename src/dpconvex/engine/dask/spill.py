"""Arrays parked in one nameless temporary file of bounded size, and read back as memory maps."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.engine.sparse_rows import NonZeroRows
from dpconvex.system.lazy_imports import dask

CHUNK = 1 << 24  # written in pieces, so that a slow disk does not hold a whole partition twice


def configured_spill_limit() -> int | None:
    """Return ``dask.config`` setting ``dpconvex.spill-limit`` in bytes, None if it is not set."""
    limit = dask.config.get("dpconvex.spill-limit", None)
    return None if limit is None else int(dask.utils.parse_bytes(limit))


def default_spill_limit(folder: str | None = None) -> int:
    """Return half of the free space where temporary files live, in bytes."""
    return shutil.disk_usage(folder or tempfile.gettempdir()).free // 2


@dataclass(frozen=True)
class SpilledArray:
    """An array in C order in a spill file, which stays open as long as anything in it is needed."""

    file: SpillFile
    offset: int  # its first byte, a multiple of the page size
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def open(self) -> npt.NDArray[Any]:
        """Open a spilled array as a private memory map, whose pages are in memory only while it
        is used.
        """
        length = int(np.prod(self.shape)) * self.dtype.itemsize
        # A private map is writable, like any other array: compiled kernels need no second version.
        mapped = mmap.mmap(
            self.file.descriptor, length, access=mmap.ACCESS_COPY, offset=self.offset
        )
        if hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_SEQUENTIAL)
        return np.frombuffer(mapped, dtype=self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class SpilledLabels:
    """Labels of any kind, stored as their positions in a short list of distinct ones."""

    labels: npt.NDArray[Any]
    codes: SpilledArray

    def open(self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return ``function(labels)``, which turns each label into a number of its own, row by
        row.
        """
        return np.asarray(function(self.labels)[self.codes.open()])


@dataclass(frozen=True)
class SpilledNonZeros:
    """Non-zeros of a partition in a spill file; arrays of no values lie nowhere."""

    indptr: SpilledArray
    columns: SpilledArray | None
    values: SpilledArray | None
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def open(self) -> NonZeroRows:
        """Return the non-zeros, as private memory maps."""
        columns = np.empty(0, np.uint32) if self.columns is None else self.columns.open()
        values = np.empty(0, self.dtype) if self.values is None else self.values.open()
        return NonZeroRows(self.indptr.open(), columns, values, self.shape)


class SpillFile:
    """A temporary file of at most `limit` bytes without a name: nobody can open it, and it ends
    with the process.
    """

    def __init__(self, limit: int, folder: str | None = None) -> None:
        self.limit = int(limit)
        self.used = 0
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - open as long as it is used
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)

    @property
    def descriptor(self) -> int:
        """Number of the open file."""
        return self._file.fileno()

    def write(self, array: npt.NDArray[Any]) -> SpilledArray | None:
        """Spill an array of plain numbers to disk; None if it would exceed the limit or the
        disk.
        """
        if array.size == 0 or array.dtype.kind not in "biuf":
            return None
        array = np.ascontiguousarray(array)
        pages = -(-array.nbytes // mmap.ALLOCATIONGRANULARITY)
        with self._lock:
            offset = self.used
            end = self.used + pages * mmap.ALLOCATIONGRANULARITY
            if end > self.limit:
                return None
            self.used = end
        content = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        try:
            # The space is claimed first: a map of a file that is too short kills the process.
            os.posix_fallocate(self.descriptor, offset, end - offset)
            position = 0
            while position < array.nbytes:
                position += os.pwrite(
                    self.descriptor, content[position : position + CHUNK], offset + position
                )
        except OSError:  # a full disk: the data is read from its source instead
            return None
        return SpilledArray(self, offset, array.shape, array.dtype)

    def write_labels(self, y: npt.NDArray[Any], labels: npt.NDArray[Any]) -> SpilledLabels | None:
        """Store labels as positions among the sorted distinct ones; None if there is no room."""
        codes = self.write(np.searchsorted(labels, y).astype(np.int16))
        return None if codes is None else SpilledLabels(labels, codes)

    def write_rows(self, X: Any) -> SpilledArray | SpilledNonZeros | None:
        """Spill dense rows or non-zeros to disk; None if there is no room."""
        if not isinstance(X, NonZeroRows):
            return self.write(X)
        indptr, columns, values = (self.write(part) for part in X.parts)
        if indptr is None or (X.values.size and (columns is None or values is None)):
            return None
        return SpilledNonZeros(indptr, columns, values, X.shape, X.dtype)
