"""Rows of which only the non-zeros are stored, as compiled kernels take them, and rows of any kind put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from dpconvex.engine.arrays import writable_view
from dpconvex.engine.rows import Places

__all__ = ["NonZeros", "stack_rows"]


@dataclass(frozen=True, eq=False)
class NonZeros:
    """Rows by their non-zeros, sorted by column, every column once.

    Attributes
    ----------
    indptr, columns, values : array
        Where each row begins among the values, the columns of these and the values themselves, float32 or float64.
    shape : tuple of int
        Number of rows and of columns.
    """

    indptr: Places
    columns: npt.NDArray[np.uint32]
    values: npt.NDArray[Any]
    shape: tuple[int, int]

    @classmethod
    def of(cls, X: Any) -> NonZeros:
        """Return the non-zeros of a matrix or array of scipy of any format; of canonical CSR nothing is copied."""
        if isinstance(X, NonZeros):
            return X
        from dpconvex.engine.nonzeros import is_canonical

        found = X if getattr(X, "format", None) == "csr" else X.tocsr()
        # Flags of a matrix may say what is not so, and kernels that followed a column beyond the last one would read,
        # and write, what is none of theirs.
        if not is_canonical(found.indptr, found.indices, found.data.size, found.shape[1]):
            found = found.copy()
            found.check_format(full_check=True)
            found.has_canonical_format = False
            found.sum_duplicates()
        values = found.data
        if values.dtype.kind != "f" or values.dtype.itemsize not in (4, 8):
            values = values.astype(np.float64)
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        indptr, columns, values = (
            writable_view(np.ascontiguousarray(array, dtype=dtype))
            for array, dtype in ((found.indptr, np.int64), (found.indices, np.int32), (values, values.dtype))
        )
        shape = (int(found.shape[0]), int(found.shape[1]))
        return cls(indptr, columns.view(np.uint32), values, shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.indptr.nbytes + self.columns.nbytes + self.values.nbytes

    @property
    def ndim(self) -> int:
        """2: rows and columns."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the values."""
        return self.values.dtype

    @property
    def parts(self) -> tuple[Places, npt.NDArray[np.uint32], npt.NDArray[Any]]:
        """The three arrays, as kernels take them."""
        return self.indptr, self.columns, self.values

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: npt.NDArray[np.integer[Any]]) -> NonZeros:
        counts = np.diff(self.indptr)[places]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        chosen = np.repeat(self.indptr[:-1][places] - indptr[:-1], counts) + np.arange(indptr[-1])
        shape = (len(counts), self.shape[1])
        return NonZeros(indptr, self.columns[chosen], self.values[chosen], shape)

    def finite_rows(self) -> npt.NDArray[np.bool_]:
        """Return which rows hold finite numbers only."""
        wrong = np.flatnonzero(~np.isfinite(self.values))
        valid = np.ones(self.shape[0], dtype=np.bool_)
        valid[np.searchsorted(self.indptr, wrong, side="right") - 1] = False
        return valid

    def to_scipy(self) -> csr_array:
        """Return the same as an array of scipy."""
        parts = (self.values, self.columns.view(np.int32), self.indptr)
        return csr_array(parts, shape=self.shape)


def stack_rows(parts: Sequence[Any]) -> Any:
    """Return arrays of rows one below the other; non-zeros, if any of them are."""
    if not any(isinstance(part, NonZeros) for part in parts):
        return np.concatenate(parts)
    parts = [part if isinstance(part, NonZeros) else NonZeros.of(csr_array(part)) for part in parts]
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    return NonZeros(
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.values for part in parts]),
        (len(counts), parts[0].shape[1]),
    )
