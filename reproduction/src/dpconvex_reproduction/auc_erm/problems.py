"""The paper's data sets as problems: bounded rows, labels, a test part, and what is public about
them.

Features are brought to [-1, 1] by public bounds and rows longer than 1 are shortened to 1, so that
any two rows are at most 2 apart: the normalisation of the work whose procedure the paper follows
(its reference 4). The paper does not state its own diameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import PairLogistic, PairSquared
from dpconvex.objectives import PairwiseObjective
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex_reproduction.datasets import load_http, load_ijcnn1, load_satimage

__all__ = ["DIAMETER", "FACTS", "FOLDS", "LOSSES", "SOURCES", "Facts", "Problem", "area", "problem"]

Array = NDArray[np.float64]

ROW_NORM = 1.0
DIAMETER = 2.0
FOLDS = 10  # section 6.1
_TEST_SHARE = 5  # a file without a test part gives every fifth row of a fixed permutation
LOSSES: dict[str, Any] = {"logistic": PairLogistic("2"), "least squares": PairSquared()}


@dataclass(frozen=True)
class Facts:
    """What is known of a training part: its counts, and the lower bounds that are taken to be
    public.
    """

    positive: int
    negative: int
    features: int
    min_positive: int
    min_negative: int

    @property
    def rows(self) -> int:
        """Number of training rows."""
        return self.positive + self.negative

    @property
    def delta(self) -> float:
        """``1 / n^2``, the paper's choice."""
        return 1 / self.rows**2

    def bounds(
        self,
        loss: Any,
        penalty: float,
        counts: tuple[int, int] | None = None,
        label_private: bool = True,
    ) -> PairwiseBounds:
        """Return the public facts of a fit, or those with other lower bounds on the class
        counts.
        """
        least = (self.min_positive, self.min_negative) if counts is None else counts
        return PairwiseBounds(
            self.rows,
            self.features,
            loss,
            ROW_NORM,
            DIAMETER,
            *least,
            label_private=label_private,
            alpha=penalty,
        )


#: Counts of the training parts (checked when data are read) and lower bounds, rounded down so that
#: folds keep them.
FACTS = {
    "ijcnn1": Facts(4_853, 45_137, 22, 4_000, 40_000),
    "satimage": Facts(2_512, 1_923, 36, 2_000, 1_500),
    "http": Facts(1_787, 452_211, 3, 1_500, 400_000),
}


@dataclass(frozen=True, eq=False)
class Problem:
    """Bounded training and test rows with labels.

    Attributes
    ----------
    rows, test_rows : array
        Rows of norm at most 1.
    positive, test_positive : array of bool
        Labels.
    facts : Facts
        Counts and public lower bounds.
    """

    rows: Array
    positive: NDArray[np.bool_]
    test_rows: Array
    test_positive: NDArray[np.bool_]
    facts: Facts

    def score(self, coefficients: Array) -> float:
        """Return the AUC on the test part."""
        return area(self.test_rows @ coefficients, self.test_positive)

    def objective(self, loss: Any, keep: NDArray[np.bool_] | None = None) -> PairwiseObjective:
        """Return the pairwise objective of all training rows, or of some; its penalty is set by
        whoever solves it.

        Its normaliser keeps to the public lower bounds on the class counts, as certificates
        require.
        """
        chosen = slice(None) if keep is None else keep
        return PairwiseObjective(
            self.rows[chosen],
            self.positive[chosen],
            loss,
            1.0,
            self.facts.min_positive,
            self.facts.min_negative,
            row_norm=ROW_NORM,
        )

    def folds(self) -> list[NDArray[np.bool_]]:
        """Return which rows are held out, fold by fold."""
        place = np.random.default_rng(len(self.rows)).permutation(len(self.rows)) % FOLDS
        return [place == fold for fold in range(FOLDS)]


def area(scores: Array, positive: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve; ties count half.

    Examples
    --------
    >>> area(np.array([3.0, 1.0, 2.0, 1.0]), np.array([True, True, False, False]))
    0.625
    """
    ahead = scores[positive]
    behind = np.sort(scores[~positive])
    below = np.searchsorted(behind, ahead, "left").sum()
    not_above = np.searchsorted(behind, ahead, "right").sum()
    return float((below + not_above) / (2 * ahead.size * behind.size))


def _bounded(X: Array, data: Any) -> Array:
    low, high = (np.asarray(bound, dtype=float) for bound in data.feature_bounds)
    shift = (low + high) / 2
    scale = 2 / (high - low)
    inside = (np.abs(low) <= 1) & (np.abs(high) <= 1)  # within [-1, 1] already: left as they are
    shift[inside] = 0.0
    scale[inside] = 1.0
    row_map = RowMap(
        X.shape[1], ROW_NORM, False, "shorten", tuple(low), tuple(high), tuple(shift), tuple(scale)
    )
    return np.asarray(MemoryRows(X, np.zeros(len(X)), row_map).mapped()[0])


def _prepare(data: Any) -> Problem:
    rows = _bounded(data.X, data)
    positive = data.y == data.y.max()
    if data.X_test is not None:
        test = _bounded(data.X_test, data), data.y_test == data.y.max()
    else:
        held = np.random.default_rng(0).permutation(len(rows)) % _TEST_SHARE == 0
        test = rows[held], positive[held]
        rows = rows[~held]
        positive = positive[~held]
    facts = FACTS[data.name]
    counts = int(positive.sum()), int((~positive).sum())
    if counts != (facts.positive, facts.negative):
        raise ValueError(
            f"The training part of {data.name} has other class counts than were noted."
        )
    return Problem(rows, positive, *test, facts)


#: Where a problem comes from, by name, in the paper's order.
SOURCES: dict[str, Callable[[], Problem]] = {
    "ijcnn1": lambda: _prepare(load_ijcnn1()),
    "satimage": lambda: _prepare(load_satimage()),
    "http": lambda: _prepare(load_http()),
}


@lru_cache(maxsize=2)
def problem(name: str) -> Problem:
    """Return a problem by name; read once in a process."""
    return SOURCES[name]()
