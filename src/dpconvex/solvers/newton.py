"""Damped Newton method, warm-started on part of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpconvex.objectives.objective import Curved, Objective, Sampled, Widened, can_sample, can_widen
from dpconvex.solvers.centred import solve_around_best
from dpconvex.solvers.descent import Certified, Certifying, Descent, State
from dpconvex.solvers.pairs import Pairs
from dpconvex.solvers.solution import ConvergenceError, Solution
from dpconvex.types import Array

__all__ = ["Newton", "newton_steps"]

Metric = Callable[[Array], Array]


@dataclass(frozen=True)
class Newton(Certifying[Objective]):
    """Damped Newton method with certified gradient norm, for up to a few hundred coefficients.

    Steps are ``-B^{-1} gradient``, where B is a Hessian plus the BFGS pairs seen since it was
    computed; a new Hessian is computed when progress slows. On large data the first Hessian and
    the start come from a subsample, so that a handful of passes over all rows suffice.

    If the objective is so nearly piecewise linear that its curvature says little about the way to
    the minimum, the solver follows the minimisers of a widened loss, with shrinking width, and
    ends with Newton steps whose decrease of F is enforced. Those converge from any point on every
    strongly convex function with Lipschitz gradient.

    Parameters
    ----------
    sample_rows : int, default=20_000
        Size of the subsample; it is used when the data has at least 4 times as many rows.
    max_iterations : int, default=2000
        Limit on the enforced steps.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex.engine.memory import MemoryRows
    >>> from dpconvex.engine.rows import RowMap
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.objectives import EmpiricalObjective
    >>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
    >>> objective = EmpiricalObjective(rows, Logistic(), alpha=0.1)
    >>> solution = Newton().solve(objective, np.zeros(objective.dim), 1e-8)
    >>> bool(solution.gradient_norm <= 1e-8)
    True
    """

    sample_rows: int = 20_000
    max_iterations: int = 2000

    needs: ClassVar[tuple[str, ...]] = ("gradient", "value_and_gradient", "hessian", "rounding_allowance")

    def _search(self, objective: Objective, descent: Descent, point: Array) -> Solution:
        metric = None
        try:
            if can_sample(objective) and objective.n_rows >= 4 * self.sample_rows:
                point, metric = self._warm_start(objective, point)
            newton_steps(descent, descent.evaluate(point), self.max_iterations, metric)
        except ConvergenceError:
            pass
        return solve_around_best(self, descent)

    def _warm_start(self, objective: Sampled, point: Array) -> tuple[Array, Metric]:
        """Minimise over a subsample, up to its own sampling error, and keep its Hessian."""
        small = objective.subsample(self.sample_rows)
        sampling_error = 0.03 * objective.gradient_bound / math.sqrt(self.sample_rows)
        descent = Descent(small, math.inf)
        state = descent.evaluate_uncertified(point)
        descent.tolerance = min(sampling_error, 0.01 * state.norm)
        try:
            point = _iterate(descent, state, 15).point
        except Certified as found:
            point = found.solution.point
        return point, _factor(small.hessian(point))


def newton_steps(descent: Descent, state: State, max_iterations: int, metric: Metric | None = None) -> None:
    """Run plain steps, then steps along shrinking widths, then steps with enforced decrease.

    Ends by `Certified`; returns only if `max_iterations` enforced steps were not enough.
    """
    state = _iterate(descent, state, 30, metric)
    if can_widen(descent.objective):
        for ratio in (0.2, 0.6):
            state = _follow_widths(descent, descent.objective, _best(descent, state), ratio)
            state = _iterate(descent, state, 30)
    state = descent.evaluate(_best(descent, state).point, with_value=True)
    _iterate(descent, state, max_iterations, with_value=True)


def _iterate(
    descent: Descent, state: State, limit: int, metric: Metric | None = None, with_value: bool = False
) -> State:
    """Take up to `limit` Newton-like steps; return early when they stop helping.

    A metric handed in comes from a subsample: the full Hessian is then dear, and is computed only
    if a step fails to cut the gradient by half.
    """
    slow = 0.05 if metric is None else 0.5
    pairs = Pairs(20)
    damped = 0
    for _ in range(limit):
        descent.iterations += 1
        fresh = metric is None
        if metric is None:
            metric = _factor(cast(Curved, descent.objective).hessian(state.point))
            pairs.clear()
        direction = pairs.direction(state.gradient, metric)
        new, step = descent.search(state, direction, with_value)
        if step == 0.0 and fresh:
            return state
        damped += step < 0.1
        if damped >= 5 and not with_value:
            return new
        if step < 0.5 or not new.norm <= slow * state.norm:
            metric = None
        else:
            pairs.add(new.point - state.point, new.gradient - state.gradient)
        state = new
    return state


def _follow_widths(descent: Descent, objective: Widened, state: State, ratio: float) -> State:
    """Follow the minimisers of the widened loss, from wide to the loss's own width."""
    point = state.point
    width = objective.margin_size(point)
    while width > 0.5 * objective.kink_width:
        stage = Descent(objective.widened(width), 1e-6 * objective.gradient_bound)
        try:
            point = _iterate(stage, stage.evaluate(point), 10).point
        except Certified as found:
            point = found.solution.point
        except ConvergenceError:
            # A stage only shows the way: what it cannot certify does not matter.
            point = _best(stage, state).point
        descent.iterations += stage.iterations
        width *= ratio
    return descent.evaluate(point)


def _best(descent: Descent, state: State) -> State:
    return state if descent.best is None else descent.best


def _factor(hessian: Array) -> Metric:
    """Return the map ``v -> hessian^{-1} v`` by Cholesky's method.

    Rounding can make a nearly singular Hessian indefinite; the smallest shift that cures it only
    shortens the step.
    """
    trace = float(np.trace(hessian))
    shift = 0.0
    while True:
        try:
            factor = cho_factor(hessian + shift * np.eye(len(hessian)), lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            shift = max(100 * shift, 1e-15 * trace)
            continue
        return lambda vector: np.asarray(cho_solve(factor, vector, check_finite=False))
