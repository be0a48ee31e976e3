"""Tables whose residuals lie on the edges of what is counted: one bit of a margin decides.

Where answers do not depend on the data, neither do the points theta at which margins are taken, nor
the points that residuals are counted below. So a first fit tells both, and the targets of a second
are put on one of those edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from dpconvex.core import dense_kernels
from dpconvex.core.block_products import block_margins
from dpconvex.core.memory_rows import MemoryRows

_PRODUCTS = dense_kernels.dense_vector_products
_COUNTER = MemoryRows.counter


class Deaf:
    """Answers that do not depend on what is asked, but for its size: noise, or so much that it
    looks like more.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 13])
        self.size = float(self.rng.choice([1.0, 10.0, 100.0]))

    def __call__(self, value: np.ndarray, scale: float) -> np.ndarray:
        return self.size * scale * self.rng.standard_normal(value.shape)


@contextmanager
def watched_edges() -> Iterator[list[tuple[np.ndarray, float]]]:
    """Collect every theta at which margins are taken, with every point that residuals are
    counted below there.
    """
    found: list[tuple[np.ndarray, float]] = []

    def products(block, theta, out):
        found.append((np.array(theta), 0.0))
        return _PRODUCTS(block, theta, out)

    def counter(rows, function, level=0.0):
        below = _COUNTER(rows, function, level)
        last = found[-1][0] if found else None

        def count(point):
            if last is not None:
                found.append((last, float(point)))
            return below(point)

        return count

    with (
        mock.patch.object(dense_kernels, "dense_vector_products", products),
        mock.patch.object(MemoryRows, "counter", counter),
    ):
        yield found


def on_edge(X: np.ndarray, theta: np.ndarray, point: float) -> np.ndarray:
    """Return targets whose residuals at theta are exactly that point, or as near as floating
    point comes.
    """
    rows = np.clip(X, -1.0, 1.0)
    if theta.size == X.shape[1] + 1:
        rows = np.column_stack([np.ones(len(X)), rows])
    margins = block_margins(np.ascontiguousarray(rows, dtype=np.float64), theta)
    targets = margins + point
    for _ in range(3):
        off = (targets - margins) - point
        targets = np.where(
            off == 0, targets, np.nextafter(targets, np.where(off > 0, -np.inf, np.inf))
        )
    return targets
