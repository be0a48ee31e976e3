"""Solutions with a certified gradient norm, and the line search that all smooth solvers share.

Every point that the search evaluates ends it if its gradient norm, rounding included, is within the
tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from dpconvex.core.threads import single_threaded_blas
from dpconvex.objectives.objective import UNIT, CentredObjective, Objective, offers
from dpconvex.types import Array

ObjectiveType = TypeVar("ObjectiveType", contravariant=True)
SmoothObjective = TypeVar("SmoothObjective", bound=Objective, contravariant=True)


class ConvergenceError(RuntimeError):
    """No point with a certified gradient norm within the tolerance was found."""


@dataclass(frozen=True)
class Solution:
    """A minimiser with a certificate.

    Attributes
    ----------
    point : array of shape (dim,)
        The approximate minimiser.
    gradient_norm : float
        Upper bound of the exact gradient norm AT `point`: the computed norm plus the objective's
        rounding allowance. Never above the tolerance asked for. For a kinked objective it is
        ``sqrt(2 strong_convexity gap)``: in both cases the minimiser lies within
        ``gradient_norm / strong_convexity`` of `point`.
    iterations : int
        Steps taken (a private number).
    gap : float or None
        Upper bound of ``F(point) - min F`` where that is what was certified (kinked objectives).
    """

    point: Array
    gradient_norm: float
    iterations: int
    gap: float | None = None


@runtime_checkable
class Solver(Protocol[ObjectiveType]):
    """A certified minimiser of strongly convex objectives of the type that is its parameter."""

    def solve(self, objective: ObjectiveType, start: npt.ArrayLike, tolerance: float) -> Solution:
        """Return a point whose certified gradient norm is at most `tolerance`.

        Kinked objectives: a point whose certified gap is at most
        ``tolerance^2 / (2 strong_convexity)``.
        """


@dataclass(frozen=True)
class DescentState:
    """A point, its gradient, its value if asked for, and a bound of the gradient's rounding
    error if it matters.
    """

    point: Array
    gradient: Array
    value: float | None = None
    error: float = 0.0
    norm: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", float(np.linalg.norm(self.gradient)))


# Not an error: it carries the answer out of nested loops.
class DescentCertified(Exception):
    """The search is over: a point with a certified gradient norm was met."""

    def __init__(self, solution: Solution) -> None:
        super().__init__()
        self.solution = solution


class CertifiedDescent:
    """Evaluations of one objective, each of which ends the search if it certifies a norm within
    `tolerance`.
    """

    def __init__(self, objective: Objective, tolerance: float) -> None:
        self.objective = objective
        self.tolerance = tolerance
        self.best: DescentState | None = None
        self.iterations = 0
        self._first_norm = 0.0
        self._refused = 0

    def evaluate(self, point: Array, with_value: bool = False) -> DescentState:
        """Evaluate and raise `DescentCertified` if the gradient norm at `point` is small enough."""
        state = self.evaluate_uncertified(point, with_value)
        if not math.isfinite(state.norm):
            return state
        self._first_norm = max(self._first_norm, state.norm)
        # Rounding does not matter where the gradient is far larger.
        late = state.norm <= 1e-5 * self._first_norm
        if state.norm <= self.tolerance or (
            late and state.norm <= float(self.objective.rounding_allowance(point))
        ):
            state = self.certify(state)
        if self.best is None or state.norm < self.best.norm:
            self.best = state
        return state

    def evaluate_uncertified(self, point: Array, with_value: bool = False) -> DescentState:
        """Evaluate without asking for a certificate."""
        if with_value:
            value, gradient = self.objective.value_and_gradient(point)
            return DescentState(point, gradient, value)
        return DescentState(point, self.objective.gradient(point))

    def certify(self, state: DescentState) -> DescentState:
        """Raise `DescentCertified` if computed norm plus rounding allowance is within the
        tolerance.

        If the general allowance is too coarse and the objective offers ``refined_gradient``, that
        is tried next, and the state returned holds the refined gradient to go on with.
        """
        state = DescentState(
            state.point, state.gradient, state.value, self.objective.rounding_allowance(state.point)
        )
        bound = self._norm_bound(state)
        refinable = offers(self.objective, "refined_gradient")
        if bound > self.tolerance and offers(self.objective, "refined_gradient"):
            gradient, allowance = self.objective.refined_gradient(state.point)
            state = DescentState(state.point, gradient, state.value, allowance)
            bound = self._norm_bound(state)
        if bound <= self.tolerance:
            raise DescentCertified(Solution(state.point, bound, self.iterations))
        improved = self.best is None or state.norm < 0.9 * self.best.norm
        self._refused = 0 if improved else self._refused + 1
        # Where gradients can be refined there is a better way to go on than trying again.
        if self._refused > (8 if refinable else 40):
            raise self.failure()
        return state

    @staticmethod
    def _norm_bound(state: DescentState) -> float:
        # The norm itself is computed with relative error below (dim + 4) roundings.
        return state.norm * (1 + (state.point.size + 4) * 2.0**-52) + state.error

    def line_search(
        self, state: DescentState, direction: Array, with_value: bool
    ) -> tuple[DescentState, float]:
        """Find a descent step along `direction` by the slope of F along it; return the new state
        and the step.

        F is convex, so its slope along the line is monotone: a step whose end slope is at most half
        the initial one (in size, on the far side) has passed no more than a little beyond the
        line's minimum, and bracketing always succeeds. No difference of values is needed, hence no
        loss of digits near the minimum. With values, sufficient decrease is asked for too, which
        makes the iteration converge from anywhere.
        """
        initial = float(state.gradient @ direction)
        if not initial < -state.error * float(np.linalg.norm(direction)):
            # Slopes along this line are all rounding error: the full step is as good as any.
            return self.evaluate(state.point + direction, with_value), 1.0
        low = 0.0
        low_slope = initial
        high = math.inf
        high_slope = math.inf
        step = 1.0
        closest = state
        closest_slope = math.inf
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
            if abs(slope) < closest_slope and (slope <= 0 or enough):
                closest = new
                closest_slope = abs(slope)
                closest_step = step
            if slope < 0 and enough:
                low = step
                low_slope = slope
            else:
                high = step
                high_slope = slope
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
    def _decreased(old: DescentState, new: DescentState, predicted: float) -> bool:
        if old.value is None or new.value is None:
            return True
        rounding = 1e-13 * (abs(old.value) + abs(new.value))
        return new.value <= old.value + 0.05 * predicted + rounding

    def solve_around_best(self, solver: Solver[Objective]) -> Solution:
        """Descend from the best point of a search that ended without a certificate, with twice the
        digits.

        The minimiser is sought as ``centre + v`` with a fixed centre: gradients are then exact to a
        few roundings of each row's slope, whatever the number of rows. The sum is rounded to
        float64, and the rounding joins the certificate. Raises `ConvergenceError` if the objective
        has no such gradients, or if they do not suffice either.
        """
        if self.best is None or not offers(self.objective, "refined_gradient"):
            raise self.failure()
        around = CentredObjective(self.objective, self.best.point)
        alpha = self.objective.strong_convexity
        try:
            found = solver.solve(around, np.zeros(self.objective.dim), 0.75 * self.tolerance)
        except ConvergenceError:
            raise self.failure() from None
        point = self.best.point + found.point
        bound = found.gradient_norm + 1.01 * UNIT * alpha * float(np.linalg.norm(point))
        if not bound <= self.tolerance:
            raise self.failure()
        return Solution(point, bound, self.iterations + found.iterations)

    def failure(self) -> ConvergenceError:
        """Return the error for a search that ended without a certificate."""
        return ConvergenceError(
            f"No point with a certified gradient norm of at most {self.tolerance:.3g} was found. "
            "Use a larger tolerance, alpha or bandwidth: below the rounding error of the sums "
            "nothing can be certified."
        )


def check_descent_start(
    objective: Objective, start: npt.ArrayLike, tolerance: float, solver: str
) -> Array:
    """Return the start as a new float64 array, or raise unless shape, tolerance and strong
    convexity fit.
    """
    point = np.array(start, dtype=np.float64)
    if point.shape != (objective.dim,):
        raise ValueError(
            f"The 'start' parameter of {solver}.solve must have shape ({objective.dim},). "
            f"Got shape {point.shape} instead."
        )
    if not tolerance > 0:
        raise ValueError(
            f"The 'tolerance' parameter of {solver}.solve must be positive. Got {tolerance!r} "
            "instead."
        )
    if not objective.strong_convexity > 0:
        raise ValueError(
            f"{solver} needs a strongly convex objective. Use alpha > 0: without it the minimiser "
            "may not exist."
        )
    return point


class CertifiedSolver(Generic[SmoothObjective]):
    """A solver of smooth objectives: checks, then a search that ends where a gradient norm is
    certified.
    """

    needs: ClassVar[tuple[str, ...]] = ("gradient", "rounding_allowance")

    def solve(self, objective: SmoothObjective, start: npt.ArrayLike, tolerance: float) -> Solution:
        """Descend from ``start`` until the certified gradient norm, in mean form, is at most
        `tolerance`.

        The objective offers what the solver `needs`, and ``strong_convexity > 0``. Raises
        `ConvergenceError` if the tolerance is below what float64 sums can certify, or if the limit
        on the steps is reached.
        """
        owner = type(self).__name__
        missing = [name for name in self.needs if not hasattr(objective, name)]
        if missing:
            raise TypeError(
                f"{owner} needs an objective with {', '.join(missing)}, but "
                f"{type(objective).__name__} does not offer it."
            )
        if not math.isfinite(getattr(objective, "smoothness", 0.0)):
            raise ValueError(
                f"{owner} needs a smooth loss, but this objective has smoothness=inf. Use "
                "convolve(loss, kernel, bandwidth) or moreau(loss, smoothness)."
            )
        point = check_descent_start(objective, start, tolerance, owner)
        with single_threaded_blas():
            try:
                return self._search(objective, CertifiedDescent(objective, tolerance), point)
            except DescentCertified as found:
                return found.solution

    def _search(
        self, objective: SmoothObjective, descent: CertifiedDescent, point: Array
    ) -> Solution:
        """Search until `DescentCertified` is raised; give up or return another solution
        otherwise.
        """
        raise NotImplementedError
