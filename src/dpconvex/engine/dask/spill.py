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

__all__ = ["SpillFile", "SpilledArray", "SpilledLabels", "default_spill_limit", "release_pages"]

CHUNK = 1 << 24  # written in pieces, so that a slow disk does not hold a whole partition twice


def default_spill_limit(folder: str | None = None) -> int:
    """Return half of the free space where temporary files live, in bytes."""
    return shutil.disk_usage(folder or tempfile.gettempdir()).free // 2


@dataclass(frozen=True)
class SpilledArray:
    """Where an array lies in a spill file.

    Attributes
    ----------
    file : SpillFile
        The file, kept open as long as anything in it is needed.
    offset : int
        First byte, a multiple of the page size.
    shape, dtype : tuple, numpy dtype
        What is stored there, in C order.
    """

    file: SpillFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def open(self) -> npt.NDArray[Any]:
        """Return the array as a private memory map, unmapped when it is no longer used.

        Pages are resident only while the map lives, or until `release_pages`, so a pass over many arrays needs the
        memory of those it is working on.
        """
        length = int(np.prod(self.shape)) * self.dtype.itemsize
        # A private map is writable, like any other array: compiled kernels need no second version.
        mapped = mmap.mmap(self.file.descriptor, length, access=mmap.ACCESS_COPY, offset=self.offset)
        if hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_SEQUENTIAL)
        return np.frombuffer(mapped, dtype=self.dtype).reshape(self.shape)


def release_pages(array: npt.NDArray[Any]) -> None:
    """Let the pages of an opened array go; they are read again when they are asked for."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):
        owner.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class SpilledLabels:
    """Labels of any kind, stored as their positions in a short list of distinct ones."""

    labels: npt.NDArray[Any]
    codes: SpilledArray

    def open(self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return ``function(labels)``, which turns each label into a number of its own, row by row."""
        return function(self.labels)[self.codes.open()]


class SpillFile:
    """An uncompressed temporary file without a name, of at most `limit` bytes.

    The file has no name in the file system: nobody else can open it, and it vanishes with the
    process, however that ends.

    Parameters
    ----------
    limit : int
        Bound on the size in bytes.
    folder : str, optional
        Where the file lives, the system's temporary folder by default.
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
        """Store an array of plain numbers; None if it would exceed the limit or the disk."""
        if array.size == 0 or array.dtype.kind not in "biuf":
            return None
        array = np.ascontiguousarray(array)
        pages = -(-array.nbytes // mmap.ALLOCATIONGRANULARITY)
        with self._lock:
            offset, end = self.used, self.used + pages * mmap.ALLOCATIONGRANULARITY
            if end > self.limit:
                return None
            self.used = end
        content = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        try:
            # The space is claimed first: a map of a file that is too short kills the process.
            os.posix_fallocate(self.descriptor, offset, end - offset)
            position = 0
            while position < array.nbytes:
                piece = content[position : position + CHUNK]
                position += os.pwrite(self.descriptor, piece, offset + position)
        except OSError:  # a full disk: the data is read from its source instead
            return None
        return SpilledArray(self, offset, array.shape, array.dtype)
