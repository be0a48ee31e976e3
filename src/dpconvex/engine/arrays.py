"""Arrays as compiled kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["native_rows", "writable_view"]


class _Exposed:
    """The memory of an array, said to be writable."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        place, _ = array.__array_interface__["data"]
        self._owner = array  # as long as a view lives
        self.__array_interface__ = {**array.__array_interface__, "data": (place, False)}


def writable_view(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of numbers as one of the type of writable arrays, without a copy.

    For numba, arrays that are read-only are of another type, for which every kernel would be compiled once more: for
    seconds. No kernel writes to its rows; whoever does so through this view writes to memory that may be protected.
    """
    return array if array.flags.writeable else np.asarray(_Exposed(array))


def native_rows(X: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return rows as float32 or float64, native, of the type of writable arrays; copied only if they are not."""
    raw = np.asarray(X)
    if raw.dtype.kind != "f" or raw.dtype.itemsize not in (4, 8):
        raw = raw.astype(np.float64)
    if not raw.dtype.isnative:
        raw = raw.astype(raw.dtype.newbyteorder("="))
    return writable_view(raw)
