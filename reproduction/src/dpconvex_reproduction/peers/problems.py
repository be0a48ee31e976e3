"""The real data of the comparison: one public split each, and the public map that every method
sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine import RowMap
from dpconvex_reproduction.datasets import (
    Dataset,
    load_a9a,
    load_bank_campaign,
    load_bike,
    load_census_wages,
    load_covtype,
    load_ijcnn1,
)

__all__ = ["CLASSIFICATION", "DELTA", "EPSILONS", "QUANTILES", "REGRESSION", "Problem", "load"]

Array = NDArray[np.float64]

DELTA = 1e-6
EPSILONS = (0.1, 0.5, 1.0, 2.0)
QUANTILES = (0.5, 0.9)

#: Rows of a large file that take part, drawn once with a fixed seed: a public choice, for time.
_MOST_ROWS = 80_000
_TEST_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Problem:
    """Training and test rows of one data set, with its public facts.

    Attributes
    ----------
    name : str
        Name of the data set.
    X, y, X_test, y_test : array
        As the loader gives them; labels are -1 and +1, the larger one of the file being +1.
    feature_bounds : (array, array)
        Public bounds per column.
    target_bounds : (float, float) or None
        Public range of a regression target.
    row_norm : float
        Public bound on the norm of a mapped row without the constant, from what the columns are.
    """

    name: str
    X: NDArray[Any]
    y: Array
    X_test: NDArray[Any]
    y_test: Array
    feature_bounds: tuple[Array, Array]
    target_bounds: tuple[float, float] | None
    row_norm: float

    def mapped(self, X: NDArray[Any]) -> Array:
        """Return rows ``(clip(raw, low, high) - shift) * scale`` by the map that dpconvex
        derives from the bounds.
        """
        row_map = RowMap.from_bounds(X.shape[1], self.feature_bounds)
        low, high = self.feature_bounds
        return np.asarray(
            (np.clip(X, low, high) - np.array(row_map.shift)) * np.array(row_map.scale), dtype=float
        )

    def with_constant(self, X: NDArray[Any]) -> Array:
        """Return mapped rows with a constant in front, ``(1, x)``."""
        rows = self.mapped(X)
        return np.concatenate([np.ones((len(rows), 1)), rows], axis=1)

    @property
    def target_map(self) -> tuple[float, float]:
        """Shift and scale that take the public target range to [-1, 1]; labels stay as they are."""
        if self.target_bounds is None:
            return 0.0, 1.0
        low, high = self.target_bounds
        return (low + high) / 2, 2 / (high - low)


# A row of k columns in [-1, 1] of which a block of indicators has a single one is no longer than
# sqrt(k') with k' the number of columns and blocks. This tells diffprivlib more than our own
# estimators are told, which know bounds alone.
_SOURCES: dict[str, tuple[Callable[..., Dataset], int, str]] = {
    "a9a": (load_a9a, 14, "a9a.npz"),  # 14 attributes, each a block
    "bank_campaign": (load_bank_campaign, 20, "bank_campaign.npz"),  # 10 numbers, 10 blocks
    "ijcnn1": (load_ijcnn1, 13, "ijcnn1.npz"),  # a block of 10 and 12 numbers
    "covtype": (load_covtype, 12, "covtype.npz"),  # 10 numbers, 2 blocks
    "bike": (load_bike, 12, "bike_hour.csv.gz"),
    "bike, indicators": (partial(load_bike, one_hot=True), 12, "bike_hour.csv.gz"),
    "census_wages": (load_census_wages, 3, "census2000_wages.csv.gz"),
}
CLASSIFICATION = ("a9a", "bank_campaign", "ijcnn1", "covtype")
REGRESSION = ("bike", "bike, indicators", "census_wages")


def files(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the data files behind these problems."""
    return tuple(dict.fromkeys(_SOURCES[name][2] for name in names))


@lru_cache(maxsize=1)
def load(name: str) -> Problem:
    """Load a data set and split it, once for all methods and seeds.

    The file's own test part where it has one; otherwise a quarter of the rows, drawn with a fixed
    seed. Of covtype 80,000 rows take part.

    Parameters
    ----------
    name : str
        A member of :data:`CLASSIFICATION` or :data:`REGRESSION`.
    """
    loader, attributes, _ = _SOURCES[name]
    data = loader()
    return split(data, name, attributes**0.5)


def split(data: Dataset, name: str, row_norm: float) -> Problem:
    """Return training and test rows of a data set."""
    y = data.y.astype(np.float64)
    X = data.X
    y_test = data.y_test
    X_test = data.X_test
    if X_test is None or y_test is None:
        order = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
        tested = round(_TEST_SHARE * len(order))
        X_test = X[order[:tested]]
        y_test = y[order[:tested]]
        X = X[order[tested:]]
        y = y[order[tested:]]
    y_test = y_test.astype(np.float64)
    if data.target_bounds is None:
        top = y.max()
        y = np.where(y == top, 1.0, -1.0)
        y_test = np.where(y_test == top, 1.0, -1.0)
    return Problem(name, X, y, X_test, y_test, data.feature_bounds, data.target_bounds, row_norm)
