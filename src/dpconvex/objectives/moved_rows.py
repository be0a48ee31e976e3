"""What robust objectives have in common: an adversary who moves every row within a set, and what it costs a score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dpconvex.engine.rows import Rows
from dpconvex.losses.interface import Loss
from dpconvex.objectives.adversary_sets import Shape, Support, check_support, set_reach, smoothed_support
from dpconvex.objectives.objective import OverRows
from dpconvex.types import Array

__all__ = ["OverMovedRows"]


class OverMovedRows(OverRows):
    """An objective over rows that an adversary moves by ``radius`` times a set, the intercept apart.

    Parameters
    ----------
    rows, loss, alpha, divisor
        As for :class:`~dpconvex.objectives.objective.OverRows`.
    radius : float
        How far the adversary moves a row, in mapped units.
    norm : {"l2", "linf", "l1", "box", "hull", "own"}
        Norm in which the radius is meant, or the set that it multiplies
        (:mod:`~dpconvex.objectives.adversary_sets`).
    width : float
        Width of the smoothing of the set's support function M.
    shape : tuple, optional
        Half-widths of a box, vectors of a hull, or ``(reach, bend)`` of a set of one's own.
    support : callable, optional
        Smooth support function of a set of one's own, tried by
        :func:`~dpconvex.objectives.adversary_sets.check_support`. The guarantee rests on its two constants.
    """

    kind: ClassVar[str]  # what a certificate says the objective is

    def __init__(
        self,
        rows: Rows,
        loss: Loss,
        alpha: float,
        radius: float,
        norm: str = "l2",
        width: float = 0.01,
        divisor: float | None = None,
        shape: Shape | None = None,
        support: Support | None = None,
    ) -> None:
        super().__init__(rows, loss, alpha, divisor)
        self.radius, self.width = float(radius), float(width)
        self.norm, self.shape, self.support = norm, shape, support
        self._lead = int(rows.row_map.fit_intercept)
        if support is not None:
            reach, bend = shape or (0.0, 0.0)
            check_support(support, self.dim - self._lead, reach, bend)  # type: ignore[arg-type]

    @property
    def public_facts(self) -> dict[str, object]:
        """What the certificate of a release must say about this objective, too."""
        own = {"radius": self.radius, "norm": self.norm, "width": self.width, "shape": self.shape}
        return {**self._facts(self.kind), **own}

    @property
    def _unit_reach(self) -> float:
        """``sup ||gradient of M||``."""
        return set_reach(self.norm, self.dim - self._lead, self.shape)

    @property
    def adversary_reach(self) -> float:
        """``radius sup ||gradient of M||``."""
        return self.radius * self._unit_reach

    @property
    def gradient_bound(self) -> float:
        """Upper bound of the gradient norm of the mean of losses, ``(n/N) lipschitz (w||x~|| + reach)``."""
        reach = self.rows.row_map.weighted_norm + self.adversary_reach
        return float(self._share * self.loss.lipschitz * reach)

    def _adversary(self, theta: Array) -> tuple[float, Array, Array]:
        """Return by how much the adversary moves a score at most, with gradient and Hessian in theta."""
        taken, slope, bend = smoothed_support(theta[self._lead :], self.norm, self.width, self.shape, self.support)
        gradient, hessian = np.zeros(self.dim), np.zeros((self.dim, self.dim))
        gradient[self._lead :] = slope
        hessian[self._lead :, self._lead :] = bend
        return self.radius * taken, self.radius * gradient, self.radius * hessian
