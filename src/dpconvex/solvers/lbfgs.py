"""Limited-memory BFGS for many coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpconvex.objectives.objective import Objective
from dpconvex.solvers.centred import solve_around_best
from dpconvex.solvers.descent import Certifying, Descent, State
from dpconvex.solvers.newton import Newton, newton_steps
from dpconvex.solvers.pairs import Pairs
from dpconvex.solvers.solution import ConvergenceError, Solution, Solver
from dpconvex.types import Array

__all__ = ["LBFGS", "default_solver"]


NEWTON_DIM = 500  # above, a Hessian costs more than the gradients it saves
DENSE_DIM = 4000  # a dense Hessian of this size still fits (128 MB) and factorises in seconds


@dataclass(frozen=True)
class LBFGS(Certifying[Objective]):
    """Limited-memory BFGS with certified gradient norm, for many coefficients.

    Directions are ``-B^{-1} gradient`` with B built from the last `memory` pairs on top of the
    diagonal of the Hessian, scaled to the latest pair. Every step decreases F sufficiently, which
    gives convergence from any point. Where this is slow (curvature that changes by orders of
    magnitude) and a dense Hessian fits in memory, Newton steps finish the work.

    Parameters
    ----------
    memory : int, default=20
        Number of pairs.
    max_iterations : int, default=20_000
        Limit on the steps.
    newton : bool, default=True
        Whether Newton steps finish the work; not where a Hessian is only approximate.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex.engine.memory import MemoryRows
    >>> from dpconvex.engine.rows import RowMap
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.objectives import EmpiricalObjective
    >>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
    >>> objective = EmpiricalObjective(rows, Logistic(), alpha=0.1)
    >>> solution = LBFGS().solve(objective, np.zeros(objective.dim), 1e-8)
    >>> bool(solution.gradient_norm <= 1e-8)
    True
    """

    memory: int = 20
    max_iterations: int = 20_000
    newton: bool = True

    needs: ClassVar[tuple[str, ...]] = ("gradient", "value_and_gradient", "rounding_allowance")

    def _search(self, objective: Objective, descent: Descent, point: Array) -> Solution:
        dense = self.newton and objective.dim <= DENSE_DIM and hasattr(objective, "hessian")
        try:
            state = descent.evaluate(point, with_value=True)
            state = self._iterate(descent, state, 300 if dense else self.max_iterations)
            if dense:
                newton_steps(descent, state, self.max_iterations)
        except ConvergenceError:
            pass
        return solve_around_best(self, descent)

    def _iterate(self, descent: Descent, state: State, limit: int) -> State:
        pairs = Pairs(self.memory)
        diagonal = _diagonal(descent.objective, state.point)
        for _ in range(limit):
            descent.iterations += 1
            metric = diagonal * pairs.scaling(diagonal)
            direction = pairs.direction(state.gradient, partial(_divide, metric))
            if not float(direction @ state.gradient) < 0:
                pairs.clear()
                direction = -state.gradient / diagonal
            new, step = descent.search(state, direction, with_value=True)
            if step == 0.0:
                if not len(pairs):
                    return state
                # The pairs misled the search: start again from the curvature here.
                pairs.clear()
                diagonal = _diagonal(descent.objective, state.point)
                continue
            pairs.add(new.point - state.point, new.gradient - state.gradient)
            state = new
        return state


def _divide(metric: Array, vector: Array) -> Array:
    return vector / metric


def _diagonal(objective: Objective, point: Array) -> Array:
    """Diagonal of the Hessian, floored: a column without curvature here may find some later."""
    if not hasattr(objective, "hessian_diagonal"):
        return np.ones(objective.dim)
    diagonal = objective.hessian_diagonal(point)
    return np.asarray(np.maximum(diagonal, 1e-6 * diagonal.max()))


def default_solver(dim: int) -> Solver[Objective]:
    """Return `Newton` for up to 500 coefficients, `LBFGS` beyond.

    Examples
    --------
    >>> default_solver(20)
    Newton(sample_rows=20000, max_iterations=2000)
    """
    return Newton() if dim <= NEWTON_DIM else LBFGS()
