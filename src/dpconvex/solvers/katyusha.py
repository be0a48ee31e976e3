"""Katyusha: accelerated variance-reduced stochastic gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.objectives import EmpiricalObjective
from dpconvex.solvers.descent import Certifying, Descent
from dpconvex.solvers.materialised import Records, materialise
from dpconvex.solvers.solution import ConvergenceError, Solution
from dpconvex.types import Array

__all__ = ["Katyusha"]


@dataclass(frozen=True)
class Katyusha(Certifying[EmpiricalObjective]):
    r"""Accelerated stochastic gradients with variance reduction (Allen-Zhu 2017), in mini-batches.

    An epoch takes the full gradient at a snapshot and then ``m = 2 n / batch_size`` steps with
    gradients corrected by it, pulled half-way towards the snapshot. With per-record smoothness
    ``beta`` and ``tau = min(sqrt(m alpha / (3 beta)), 1/2)`` a gap is reached in about
    ``(n + sqrt(n beta / alpha)) log(1/gap)`` visits of a record. The penalty and the linear term
    are handled by their exact proximal step.

    Parameters
    ----------
    batch_size : int, default=32
        Records per step. The analysis is that of one record; more only lessen the variance.
    max_epochs : int, default=2000
        Limit on the passes over snapshots.
    seed : int, default=0
        Which records are visited. Not a privacy matter: the point returned is certified.

    Notes
    -----
    Of an :class:`EmpiricalObjective` with a smooth loss, ``alpha > 0`` and rows in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex.engine.memory import MemoryRows
    >>> from dpconvex.engine.rows import RowMap
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.objectives import EmpiricalObjective
    >>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
    >>> objective = EmpiricalObjective(rows, Logistic(), alpha=0.1)
    >>> solution = Katyusha().solve(objective, np.zeros(objective.dim), 1e-8)
    >>> bool(solution.gradient_norm <= 1e-8)
    True
    """

    batch_size: int = 32
    max_epochs: int = 2000
    seed: int = 0

    def _search(self, objective: EmpiricalObjective, descent: Descent, point: Array) -> Solution:
        self._run(descent, materialise(objective, "Katyusha"), point)
        raise ConvergenceError(
            f"Katyusha took {self.max_epochs} epochs without a certificate. Use Newton(), a larger alpha or a "
            "larger tolerance."
        )

    def _run(self, descent: Descent, records: Records, point: Array) -> None:
        alpha, count = records.alpha, records.count
        batch = min(self.batch_size, count)
        steps = max(1, 2 * count // batch)
        squares = records.weights * np.einsum("ij,ij->i", records.rows, records.rows)
        beta = max(records.loss.smoothness * float(squares.max()), 1e-12)
        pull = min(math.sqrt(steps * alpha / (3 * beta)), 0.5)
        step = 1 / (3 * pull * beta)
        growth = 1 + step * alpha
        rng = np.random.default_rng(self.seed)
        snapshot = fast = slow = point
        for _ in range(self.max_epochs):
            descent.iterations += 1
            gradient = descent.evaluate(snapshot).gradient - alpha * snapshot
            anchors = records.slopes(snapshot)
            total, weight, mass = np.zeros_like(point), 1.0, 0.0
            visited = rng.integers(0, count, (steps, batch))
            for chosen in visited:
                here = pull * fast + 0.5 * snapshot + (0.5 - pull) * slow
                change = records.slopes(here, chosen) - anchors[chosen]
                direction = gradient + change @ records.rows[chosen] / batch
                fast = (fast - step * direction) / growth
                slow = (3 * beta * here - direction) / (3 * beta + alpha)
                total, mass, weight = total + weight * slow, mass + weight, weight * growth
            snapshot = total / mass
