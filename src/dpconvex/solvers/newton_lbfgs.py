"""Newton's method for few coefficients and limited-memory BFGS for many, both with BFGS pairs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dpconvex.objectives.objective import ExtendedObjective, Objective, offers
from dpconvex.solvers.certified_descent import (
    CertifiedDescent,
    CertifiedSolver,
    ConvergenceError,
    DescentCertified,
    DescentState,
    Solution,
)
from dpconvex.types import Array


class BFGSPairs(deque[tuple[Array, Array, float]]):
    """The last few (step, change of gradient) pairs of a run."""

    def add(self, step: Array, change: Array) -> None:
        """Remember a pair if its curvature is positive beyond rounding."""
        curvature = float(step @ change)
        if curvature > 1e-14 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self.append((step, change, curvature))

    def scaling(self, diagonal: Array) -> float:
        """Return ``<change, D^{-1} change> / <step, change>`` of the last pair, which fits D to
        it; 1 if none.
        """
        if not self:
            return 1.0
        _, change, curvature = self[-1]
        return float(change @ (change / diagonal)) / curvature

    def direction(self, gradient: Array, solve: Callable[[Array], Array]) -> Array:
        """Return the L-BFGS direction ``-B^{-1} gradient`` by two loops; `solve` inverts the
        initial metric.
        """
        vector = -gradient
        coefficients = []
        for step, change, curvature in reversed(self):
            coefficient = float(step @ vector) / curvature
            vector = vector - coefficient * change
            coefficients.append(coefficient)
        vector = solve(vector)
        for (step, change, curvature), coefficient in zip(
            self, reversed(coefficients), strict=True
        ):
            vector = vector + (coefficient - float(change @ vector) / curvature) * step
        return vector


Metric = Callable[[Array], Array]


@dataclass(frozen=True)
class Newton(CertifiedSolver[Objective]):
    """Damped Newton method with certified gradient norm, for up to a few hundred coefficients.

    Steps are ``-B^{-1} gradient``, where B is a Hessian plus the BFGS pairs seen since it was
    computed; a new Hessian is computed when progress slows. On large data the first Hessian and the
    start come from a subsample, so that a handful of passes over all rows suffice. Where the
    objective is nearly piecewise linear, curvature says little about the way to the minimum: the
    solver follows the minimisers of a smoothed loss, with shrinking width, and ends with Newton
    steps whose decrease of F is enforced. Those converge from any point.

    Parameters
    ----------
    sample_rows : int, default=20_000
        Size of the subsample; it is used when the data has at least 4 times as many rows.
    max_iterations : int, default=2000
        Limit on the enforced steps.
    """

    sample_rows: int = 20_000
    max_iterations: int = 2000

    needs: ClassVar[tuple[str, ...]] = (
        "gradient",
        "value_and_gradient",
        "hessian",
        "rounding_allowance",
    )

    def _search(self, objective: Objective, descent: CertifiedDescent, point: Array) -> Solution:
        metric = None
        try:
            if offers(objective, "subsample") and objective.n_rows >= 4 * self.sample_rows:
                point, metric = self._warm_newton_start(objective, point)
            newton_steps(descent, descent.evaluate(point), self.max_iterations, metric)
        except ConvergenceError:
            pass
        return descent.solve_around_best(self)

    def _warm_newton_start(
        self, objective: ExtendedObjective, point: Array
    ) -> tuple[Array, Metric]:
        """Start Newton's method at a subsample's minimiser, up to its own sampling error, and
        keep its Hessian.
        """
        small = objective.subsample(self.sample_rows)
        sampling_error = 0.03 * objective.gradient_bound / math.sqrt(self.sample_rows)
        descent = CertifiedDescent(small, math.inf)
        state = descent.evaluate_uncertified(point)
        descent.tolerance = min(sampling_error, 0.01 * state.norm)
        try:
            point = _newton_iterations(descent, state, 15).point
        except DescentCertified as found:
            point = found.solution.point
        return point, _factor_newton_hessian(small.hessian(point))


def newton_steps(
    descent: CertifiedDescent,
    state: DescentState,
    max_iterations: int,
    metric: Metric | None = None,
) -> None:
    """Run plain steps, then steps along shrinking widths, then `max_iterations` steps with
    enforced decrease.
    """
    state = _newton_iterations(descent, state, 30, metric)
    if offers(descent.objective, "smoothed"):
        for ratio in (0.2, 0.6):
            state = _follow_newton_widths(
                descent, descent.objective, _best_newton_state(descent, state), ratio
            )
            state = _newton_iterations(descent, state, 30)
    state = descent.evaluate(_best_newton_state(descent, state).point, with_value=True)
    _newton_iterations(descent, state, max_iterations, with_value=True)


def _newton_iterations(
    descent: CertifiedDescent,
    state: DescentState,
    limit: int,
    metric: Metric | None = None,
    with_value: bool = False,
) -> DescentState:
    """Take up to `limit` Newton-like steps; return early when they stop helping."""
    # A given metric comes from a subsample: the costly full Hessian is then computed only if a step
    # fails to halve the gradient.
    slow = 0.05 if metric is None else 0.5
    pairs = BFGSPairs(maxlen=20)
    damped = 0
    for _ in range(limit):
        descent.iterations += 1
        fresh = metric is None
        if metric is None:
            metric = _factor_newton_hessian(
                cast(ExtendedObjective, descent.objective).hessian(state.point)
            )
            pairs.clear()
        direction = pairs.direction(state.gradient, metric)
        new, step = descent.line_search(state, direction, with_value)
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


def _follow_newton_widths(
    descent: CertifiedDescent, objective: ExtendedObjective, state: DescentState, ratio: float
) -> DescentState:
    """Follow the minimisers of the smoothed loss, from wide to the loss's own width."""
    point = state.point
    width = objective.margin_scale(point)
    while width > 0.5 * objective.kink_width:
        stage = CertifiedDescent(objective.smoothed(width), 1e-6 * objective.gradient_bound)
        try:
            point = _newton_iterations(stage, stage.evaluate(point), 10).point
        except DescentCertified as found:
            point = found.solution.point
        except ConvergenceError:
            # A stage only shows the way: what it cannot certify does not matter.
            point = _best_newton_state(stage, state).point
        descent.iterations += stage.iterations
        width *= ratio
    return descent.evaluate(point)


def _best_newton_state(descent: CertifiedDescent, state: DescentState) -> DescentState:
    return state if descent.best is None else descent.best


def _factor_newton_hessian(hessian: Array) -> Metric:
    """Return the map ``v -> hessian^{-1} v`` by Cholesky's method."""
    # Rounding can make a nearly singular Hessian indefinite; the smallest shift that cures it only
    # shortens the step.
    trace = float(np.trace(hessian))
    shift = 0.0
    while True:
        try:
            factor = cho_factor(
                hessian + shift * np.eye(len(hessian)), lower=True, check_finite=False
            )
        except np.linalg.LinAlgError:
            shift = max(100 * shift, 1e-15 * trace)
            continue
        return lambda vector: np.asarray(cho_solve(factor, vector, check_finite=False))


NEWTON_DIM = 500  # above, a Hessian costs more than the gradients it saves
DENSE_DIM = 4000  # a dense Hessian of this size still fits (128 MB) and factorises in seconds


@dataclass(frozen=True)
class LBFGS(CertifiedSolver[Objective]):
    """Limited-memory BFGS with certified gradient norm, for many coefficients.

    Directions are ``-B^{-1} gradient`` with B built from the last `memory` pairs on top of the
    diagonal of the Hessian, scaled to the latest pair. Every step decreases F sufficiently, which
    gives convergence from any point. Where this is slow and a dense Hessian fits in memory, Newton
    steps finish the work.

    Parameters
    ----------
    memory : int, default=20
        Number of pairs.
    max_iterations : int, default=20_000
        Limit on the steps.
    newton : bool, default=True
        Whether Newton steps finish the work; not where a Hessian is only approximate.
    """

    memory: int = 20
    max_iterations: int = 20_000
    newton: bool = True

    needs: ClassVar[tuple[str, ...]] = ("gradient", "value_and_gradient", "rounding_allowance")

    def _search(self, objective: Objective, descent: CertifiedDescent, point: Array) -> Solution:
        dense = self.newton and objective.dim <= DENSE_DIM and hasattr(objective, "hessian")
        try:
            state = descent.evaluate(point, with_value=True)
            state = self._iterate_lbfgs(descent, state, 300 if dense else self.max_iterations)
            if dense:
                newton_steps(descent, state, self.max_iterations)
        except ConvergenceError:
            pass
        return descent.solve_around_best(self)

    def _iterate_lbfgs(
        self, descent: CertifiedDescent, state: DescentState, limit: int
    ) -> DescentState:
        pairs = BFGSPairs(maxlen=self.memory)
        diagonal = _lbfgs_hessian_diagonal(descent.objective, state.point)
        for _ in range(limit):
            descent.iterations += 1
            direction = pairs.direction(
                state.gradient, _divide_by(diagonal * pairs.scaling(diagonal))
            )
            if not float(direction @ state.gradient) < 0:
                pairs.clear()
                direction = -state.gradient / diagonal
            new, step = descent.line_search(state, direction, with_value=True)
            if step == 0.0:
                if not pairs:
                    return state
                # The pairs misled the search: start again from the curvature here.
                pairs.clear()
                diagonal = _lbfgs_hessian_diagonal(descent.objective, state.point)
                continue
            pairs.add(new.point - state.point, new.gradient - state.gradient)
            state = new
        return state


def _divide_by(diagonal: Array) -> Metric:
    return lambda vector: vector / diagonal


def _lbfgs_hessian_diagonal(objective: Objective, point: Array) -> Array:
    """Diagonal of the Hessian, floored: a column without curvature here may find some later."""
    if not hasattr(objective, "hessian_diagonal"):
        return np.ones(objective.dim)
    diagonal = objective.hessian_diagonal(point)
    return np.asarray(np.maximum(diagonal, 1e-6 * diagonal.max()))


def newton_or_lbfgs(dim: int) -> Newton | LBFGS:
    """Return `Newton` for up to 500 coefficients, `LBFGS` beyond."""
    return Newton() if dim <= NEWTON_DIM else LBFGS()
