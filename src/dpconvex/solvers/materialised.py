"""Mapped rows in one piece, for methods that visit records one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpconvex.engine.sparse import SparseRows
from dpconvex.losses.interface import Loss
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.clamped_targets import ClampedTarget
from dpconvex.types import Array

__all__ = ["Records", "materialise"]


@dataclass(frozen=True)
class Records:
    """Rows, targets and weights ``n w_i / N`` of an objective, so that F is a plain mean over n.

    ``F(theta) = (1/n) sum_i weights_i loss(y_i, rows_i . theta) + (alpha/2) ||theta||^2 + <b, theta>``.
    """

    rows: Array
    targets: Array
    weights: Array
    loss: Loss
    alpha: float
    linear: Array

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.targets)

    def slopes(self, theta: Array, chosen: slice | npt.NDArray[np.int64] = slice(None)) -> Array:
        """Weighted slopes ``weights_i loss'(y_i, rows_i . theta)`` of the chosen records."""
        margins = self.rows[chosen] @ theta
        slopes = self.loss.gradient(self.targets[chosen], margins)
        return np.asarray(self.weights[chosen] * slopes)


def materialise(objective: EmpiricalObjective, solver: str) -> Records:
    """Return all records of an objective in memory, or raise if it cannot be seen record by record."""
    rows = getattr(objective, "rows", None)
    mapped = None if isinstance(rows, SparseRows) else getattr(rows, "mapped", None)
    if mapped is None:
        raise TypeError(
            f"{solver} visits records one by one, but {type(objective).__name__} offers none in memory "
            "with all their zeros. Use Newton() or LBFGS()."
        )
    block, targets, weights = mapped()
    if isinstance(objective.loss, ClampedTarget):
        targets = objective.loss.clamp(targets)
    return Records(
        block,
        targets,
        weights * (objective.n_rows / objective.divisor),
        objective.loss,
        objective.alpha,
        objective.linear,
    )
