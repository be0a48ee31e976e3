"""Line search along descent directions, certified at every point it touches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dpconvex.engine.threads import single_threaded_blas
from dpconvex.objectives.objective import Objective, can_refine
from dpconvex.solvers.solution import ConvergenceError, Solution
from dpconvex.types import Array

__all__ = ["Certified", "Certifying", "Descent", "State", "check_start_point", "require"]

Asked = TypeVar("Asked", bound=Objective, contravariant=True)


@dataclass(frozen=True)
class State:
    """A point, its gradient and, where a line search asked for it, its value.

    `error` bounds the rounding error of the gradient where that is known to matter.
    """

    point: Array
    gradient: Array
    value: float | None = None
    error: float = 0.0
    norm: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", float(np.linalg.norm(self.gradient)))


# Not an error: it carries the answer out of nested loops.
class Certified(Exception):
    """The search is over: a point with a certified gradient norm was met."""

    def __init__(self, solution: Solution) -> None:
        super().__init__()
        self.solution = solution


class Descent:
    """Evaluations of one objective, each of which ends the search if it certifies.

    Parameters
    ----------
    objective : Objective
        Offers ``gradient``, ``value_and_gradient`` and ``rounding_allowance``.
    tolerance : float
        Certified gradient norm to reach.
    """

    def __init__(self, objective: Objective, tolerance: float) -> None:
        self.objective = objective
        self.tolerance = tolerance
        self.iterations = 0
        self.best: State | None = None
        self._first_norm = 0.0
        self._refused = 0

    def evaluate(self, point: Array, with_value: bool = False) -> State:
        """Evaluate and raise `Certified` if the gradient norm at `point` is small enough."""
        state = self.evaluate_uncertified(point, with_value)
        if not math.isfinite(state.norm):
            return state
        self._first_norm = max(self._first_norm, state.norm)
        if state.norm <= self.tolerance or state.norm <= self.noise(state):
            state = self.certify(state)
        if self.best is None or state.norm < self.best.norm:
            self.best = state
        return state

    def evaluate_uncertified(self, point: Array, with_value: bool = False) -> State:
        """Evaluate without asking for a certificate."""
        if with_value:
            value, gradient = self.objective.value_and_gradient(point)
            return State(point, gradient, value)
        return State(point, self.objective.gradient(point))

    def certify(self, state: State) -> State:
        """Raise `Certified` if computed norm plus rounding allowance is within the tolerance.

        If the general allowance is too coarse and the objective offers ``refined_gradient``, that
        is tried next, and the state returned holds the refined gradient to go on with.
        """
        allowance = self.objective.rounding_allowance(state.point)
        state = State(state.point, state.gradient, state.value, allowance)
        bound = self._bound(state, allowance)
        refinable = can_refine(self.objective)
        if bound > self.tolerance and can_refine(self.objective):
            gradient, allowance = self.objective.refined_gradient(state.point)
            state = State(state.point, gradient, state.value, allowance)
            bound = self._bound(state, allowance)
        if bound <= self.tolerance:
            raise Certified(Solution(state.point, bound, self.iterations))
        improved = self.best is None or state.norm < 0.9 * self.best.norm
        self._refused = 0 if improved else self._refused + 1
        # Where gradients can be refined there is a better way to go on than trying again.
        if self._refused > (8 if refinable else 40):
            raise self.failure()
        return state

    @staticmethod
    def _bound(state: State, allowance: float) -> float:
        # The norm itself is computed with relative error below (dim + 4) roundings.
        return state.norm * (1 + (state.point.size + 4) * 2.0**-52) + allowance

    def noise(self, state: State) -> float:
        """Bound of the rounding error of the gradient, or 0 where the gradient is far larger."""
        if state.norm > 1e-5 * self._first_norm:
            return 0.0
        return float(self.objective.rounding_allowance(state.point))

    def search(self, state: State, direction: Array, with_value: bool) -> tuple[State, float]:
        """Find a step along `direction` by the slope of F along it.

        F is convex, so its slope along the line is monotone: a step whose end slope is at most
        half the initial one (in size, on the far side) has passed no more than a little beyond the
        line's minimum, and bracketing always succeeds. No difference of values is needed, hence no
        loss of digits near the minimum. With values, sufficient decrease is asked for too, which
        makes the iteration converge from anywhere.

        Returns
        -------
        (State, float)
            The new state and the step taken.
        """
        initial = float(state.gradient @ direction)
        if not initial < -state.error * float(np.linalg.norm(direction)):
            # Slopes along this line are all rounding error: the full step is as good as any.
            return self.evaluate(state.point + direction, with_value), 1.0
        low, low_slope, high, high_slope = 0.0, initial, math.inf, math.inf
        step, closest, nearest = 1.0, state, math.inf
        closest_step = 0.0
        for trial in range(80):
            new = self.evaluate(state.point + step * direction, with_value)
            slope = float(new.gradient @ direction)
            if not math.isfinite(slope):
                slope = math.inf
            enough = self._decreased(state, new, step * initial) if with_value else True
            overshoot = 0.9 if with_value else 0.5
            if 0.9 * initial <= slope <= -overshoot * initial and enough:
                return new, step
            if abs(slope) < nearest and (slope <= 0 or enough):
                closest, nearest, closest_step = new, abs(slope), step
            if slope < 0 and enough:
                low, low_slope = step, slope
            else:
                high, high_slope = step, slope
            if high == math.inf:
                secant = low * initial / (initial - low_slope) if low_slope > initial else math.inf
                step = min(max(secant, 2 * step), 100 * step)
                continue
            width = high - low
            if width <= 1e-15 * high:
                break
            if trial % 3 < 2 and 0 < high_slope < math.inf:
                step = low - low_slope * width / (high_slope - low_slope)
                step = min(max(step, low + 0.05 * width), high - 0.05 * width)
            else:
                step = math.sqrt(low * high) if low > 0.01 * high else low + 0.1 * width
        return closest, closest_step

    @staticmethod
    def _decreased(old: State, new: State, predicted: float) -> bool:
        """Sufficient decrease, up to the rounding error of the two values."""
        if old.value is None or new.value is None:
            return True
        rounding = 1e-13 * (abs(old.value) + abs(new.value))
        return new.value <= old.value + 0.05 * predicted + rounding

    def failure(self) -> ConvergenceError:
        """Return the error for a search that ended without a certificate."""
        return ConvergenceError(
            f"No point with a certified gradient norm of at most {self.tolerance:.3g} was found. "
            "Use a larger tolerance, alpha or bandwidth: below the rounding error of the sums "
            "nothing can be certified."
        )


def require(objective: Objective, solver: str, names: tuple[str, ...]) -> None:
    """Raise if the objective lacks a method the solver needs, naming it."""
    missing = [name for name in names if not hasattr(objective, name)]
    if missing:
        raise TypeError(
            f"{solver} needs an objective with {', '.join(missing)}, but {type(objective).__name__} does not offer it."
        )
    if not math.isfinite(getattr(objective, "smoothness", 0.0)):
        raise ValueError(
            f"{solver} needs a smooth loss, but this objective has smoothness=inf. Use "
            "convolve(loss, kernel, bandwidth) or moreau(loss, smoothness)."
        )
    if not objective.strong_convexity > 0:
        raise ValueError(
            f"{solver} needs a strongly convex objective. Use alpha > 0: without it the minimiser may not exist."
        )


def check_start_point(objective: Objective, start: npt.ArrayLike, tolerance: float, solver: str) -> Array:
    """Return the start as a new float64 array of the right shape."""
    point = np.array(start, dtype=np.float64)
    if point.shape != (objective.dim,):
        raise ValueError(
            f"The 'start' parameter of {solver}.solve must have shape ({objective.dim},). "
            f"Got shape {point.shape} instead."
        )
    if not tolerance > 0:
        raise ValueError(f"The 'tolerance' parameter of {solver}.solve must be positive. Got {tolerance!r} instead.")
    return point


class Certifying(Generic[Asked]):
    """What solvers of smooth objectives share: the checks, and a search that ends where a gradient is certified."""

    needs: ClassVar[tuple[str, ...]] = ("gradient", "rounding_allowance")

    def solve(self, objective: Asked, start: npt.ArrayLike, tolerance: float) -> Solution:
        """Minimise `objective` until the certified gradient norm is at most `tolerance`.

        Parameters
        ----------
        objective : EmpiricalObjective or alike
            Offers what the solver `needs`, and ``strong_convexity > 0``.
        start : array of shape (dim,)
            Where to begin.
        tolerance : float
            In mean form, like the objective.

        Returns
        -------
        Solution
            The point, and the certified gradient norm at that very point.

        Raises
        ------
        ConvergenceError
            If the tolerance is below what float64 sums can certify, or if the limit on the steps is reached.
        """
        owner = type(self).__name__
        require(objective, owner, self.needs)
        point = check_start_point(objective, start, tolerance, owner)
        descent = Descent(objective, tolerance)
        with single_threaded_blas():
            try:
                return self._search(objective, descent, point)
            except Certified as found:
                return found.solution

    def _search(self, objective: Asked, descent: Descent, point: Array) -> Solution:
        """Go on until `Certified` is raised, or give up or return another solution."""
        raise AttributeError(f"{type(self).__name__} does not say how it searches.")
