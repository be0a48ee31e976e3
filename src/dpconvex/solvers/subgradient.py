r"""Subgradient methods with a certified gap.

With step ``2 / (alpha (t + 1))`` the iterate is the dual point of the slopes averaged with weights proportional to t:
``theta_{t+1} = -(1/alpha) (sum_k 2 k g_k / (t (t + 1)) + b)``. The average of the iterates with the same weights and
the averaged slopes of each record therefore bound the gap from both sides; it is at most ``8 L^2 / (alpha (t + 1))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpconvex.engine.rows import Sums
from dpconvex.engine.threads import single_threaded_blas
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.clamped_targets import ClampedTarget
from dpconvex.objectives.objective import UNIT
from dpconvex.solvers.black_box import certify_point
from dpconvex.solvers.descent import check_start_point
from dpconvex.solvers.gap import Envelope, kinks_of_objective, young_excess
from dpconvex.solvers.materialised import Records, materialise
from dpconvex.solvers.solution import ConvergenceError, Solution
from dpconvex.types import Array

__all__ = ["StochasticSubgradient", "Subgradient"]

_Steps = Callable[[int, npt.NDArray[np.int64], Array, Array], None]


class _Averaging:
    """What both subgradient methods share: the checks."""

    def solve(self, objective: EmpiricalObjective, start: npt.ArrayLike, tolerance: float) -> Solution:
        """Minimise until the certified gap is at most ``tolerance^2 / (2 alpha)``.

        Parameters
        ----------
        objective : EmpiricalObjective
            With ``alpha > 0`` and rows in memory.
        start : array of shape (dim,)
            Checked but forgotten at the first step, whose length is 1/alpha.
        tolerance : float
            In the units of a gradient norm, mean form.

        Returns
        -------
        Solution
            With ``gap`` and ``gradient_norm = sqrt(2 alpha gap)`` for kinked losses.

        Raises
        ------
        ConvergenceError
            If the limit on the steps is reached.
        """
        owner = type(self).__name__
        point = check_start_point(objective, start, tolerance, owner)
        if not objective.strong_convexity > 0:
            raise ValueError(f"{owner} needs a strongly convex objective. Use alpha > 0.")
        records = materialise(objective, owner)
        with single_threaded_blas():
            found = self._search(objective, records, point, tolerance)
        if found is not None:
            return found
        wanted = tolerance**2 / (2 * objective.alpha)
        raise ConvergenceError(
            f"{owner} reached its limit of steps without certifying a gap of {wanted:.3g}. Use Envelope() or Newton(), "
            "a larger tolerance or a larger alpha."
        )

    def _search(
        self, objective: EmpiricalObjective, records: Records, point: Array, tolerance: float
    ) -> Solution | None:
        """Return a point of this gap, or None where the limit on the steps is reached."""
        raise AttributeError(f"{type(self).__name__} does not say how it searches.")


@dataclass(frozen=True)
class Subgradient(_Averaging):
    """Subgradient method with averaging, for kinked and smooth losses alike.

    Slow but simple: a gap g takes up to ``8 L^2 / (alpha g)`` passes over the data. The gap is
    certified by the averaged slopes (kinked losses) or the gradient norm (smooth ones).

    Parameters
    ----------
    max_iterations : int, default=200_000
        Limit on the steps.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex.engine.memory import MemoryRows
    >>> from dpconvex.engine.rows import RowMap
    >>> from dpconvex.losses import Hinge
    >>> from dpconvex.objectives import EmpiricalObjective
    >>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
    >>> objective = EmpiricalObjective(rows, Hinge(), alpha=0.1)
    >>> solution = Subgradient().solve(objective, np.zeros(objective.dim), 0.1)
    >>> bool(solution.gradient_norm <= 0.1)
    True
    """

    max_iterations: int = 200_000

    def _search(
        self, objective: EmpiricalObjective, records: Records, point: Array, tolerance: float
    ) -> Solution | None:
        alpha = objective.alpha
        average = np.zeros_like(point)
        slopes = np.zeros(records.count)
        check = 16
        for t in range(1, self.max_iterations + 1):
            # What is averaged over time is averaged with weights 2k / (t (t + 1)).
            share = 2 / (t + 1)
            average += share * (point - average)
            here = records.slopes(point)
            slopes += share * (here - slopes)
            direction = here @ records.rows / records.count + records.linear
            point = point - share * (point + direction / alpha)
            if t == check:
                check = 2 * check
                found = _certify(objective, records, average, slopes, tolerance, t)
                if found is not None:
                    return found
        return None


def _certify(
    objective: EmpiricalObjective, records: Records, average: Array, slopes: Array, tolerance: float, iterations: int
) -> Solution | None:
    if math.isfinite(objective.loss.smoothness):
        found = certify_point(objective, average, tolerance)
        return found and Solution(found.point, found.gradient_norm, iterations)
    gap = averaged_gap(objective, records, average, slopes)
    if gap > tolerance**2 / (2 * objective.alpha):
        return None
    return Solution(average, math.sqrt(2 * objective.alpha * gap), iterations, gap)


def averaged_gap(objective: EmpiricalObjective, records: Records, point: Array, slopes: Array) -> float:
    """Bound ``F(point) - min F`` by the dual value of weighted slopes, one per record."""
    kinks = kinks_of_objective(objective, "Subgradient")
    margins = records.rows @ point
    residual = objective.loss.kind == "residual"
    signs = -np.ones_like(margins) if residual else records.targets
    u = records.targets - margins if residual else records.targets * margins
    weights = records.weights
    plain = np.divide(slopes * signs, weights, out=np.zeros_like(slopes), where=weights > 0)
    # Averaging can leave the range of slopes by a rounding: any slope within it is a dual point.
    plain = np.clip(plain, kinks.slopes[0], kinks.slopes[-1])
    lengths = np.sqrt(np.einsum("ij,ij->i", records.rows, records.rows))
    size = float(np.linalg.norm(point))
    error = UNIT * ((objective.dim + 8) * size * lengths + 8 * np.abs(records.targets))
    excess = np.maximum(young_excess(kinks, u - error, plain), young_excess(kinks, u + error, plain))
    dual = (weights * plain * signs) @ records.rows / records.count + records.linear
    rounding = UNIT * (records.count + 16) * objective.gradient_bound
    norm = float(np.linalg.norm(dual + objective.alpha * point)) + rounding
    total = float(weights @ excess) / records.count * (1 + 1e-9)
    return total + norm**2 / (2 * objective.alpha)


@dataclass(frozen=True)
class StochasticSubgradient(_Averaging):
    """Stochastic subgradient method: a few records per step, averaged iterates.

    Each step costs ``batch_size`` rows only. Its accuracy holds in expectation, which is no basis
    for privacy, so the point is certified like any other: by its gradient norm (smooth losses) or
    by a lower bound of the minimum, computed once (kinked ones).

    Parameters
    ----------
    batch_size : int, default=16
        Records per step.
    max_iterations : int, default=1_000_000
        Limit on the steps.
    seed : int, default=0
        Which records are visited. Not a privacy matter: the point returned is certified.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex.engine.memory import MemoryRows
    >>> from dpconvex.engine.rows import RowMap
    >>> from dpconvex.losses import Hinge
    >>> from dpconvex.objectives import EmpiricalObjective
    >>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
    >>> objective = EmpiricalObjective(rows, Hinge(), alpha=0.1)
    >>> solution = StochasticSubgradient().solve(objective, np.zeros(objective.dim), 0.1)
    >>> bool(solution.gradient_norm <= 0.1)
    True
    """

    batch_size: int = 16
    max_iterations: int = 1_000_000
    seed: int = 0

    def _search(
        self, objective: EmpiricalObjective, records: Records, point: Array, tolerance: float
    ) -> Solution | None:
        alpha = objective.alpha
        smooth = math.isfinite(objective.loss.smoothness)
        lowest = None if smooth else _lower_bound(objective, tolerance)
        rng = np.random.default_rng(self.seed)
        batch = min(self.batch_size, records.count)
        point, average = point.copy(), np.zeros_like(point)
        steps = _steps(objective, records)
        check, t = 256, 0
        while t < self.max_iterations:
            steps(t, rng.integers(0, records.count, (256, batch)), point, average)
            t += 256
            if t < check:
                continue
            check = 2 * check
            if lowest is None:
                found = certify_point(objective, average, tolerance)
                if found is not None:
                    return Solution(found.point, found.gradient_norm, t)
                continue
            value, error = _value(objective, average)
            gap = max(value + error - lowest, 0.0)
            if gap <= tolerance**2 / (2 * alpha):
                return Solution(average, math.sqrt(2 * alpha * gap), t, gap)
        return None


def _steps(objective: EmpiricalObjective, records: Records) -> _Steps:
    """Return what takes steps, in place: compiled for losses of the package, as they are written for others."""
    from dpconvex.smoothing.compiled_slopes import compile_slope
    from dpconvex.solvers.subgradient_loop import run_subgradient_steps

    loss, alpha = objective.loss, objective.alpha
    # Targets are clamped already.
    compiled = compile_slope(loss.loss if isinstance(loss, ClampedTarget) else loss)
    rows = np.ascontiguousarray(records.rows)

    def fast(t: int, chosen: npt.NDArray[np.int64], point: Array, average: Array) -> None:
        assert compiled is not None
        run_subgradient_steps(
            t, chosen, rows, records.targets, records.weights, compiled, records.linear, alpha, point, average
        )  # fmt: skip

    def plain(t: int, chosen: npt.NDArray[np.int64], point: Array, average: Array) -> None:
        for k, batch in enumerate(chosen, start=t + 1):
            share = 2 / (k + 1)
            average += share * (point - average)
            slopes = records.slopes(point, batch)
            direction = slopes @ rows[batch] / len(batch) + records.linear
            point -= share * (point + direction / alpha)

    return plain if compiled is None else fast


def _lower_bound(objective: EmpiricalObjective, tolerance: float) -> float:
    """Certify ``min F`` from below to a hundredth of the gap wanted, rounding included."""
    reference = Envelope().solve(objective, np.zeros(objective.dim), 0.1 * tolerance)
    assert reference.gap is not None, "Envelope certifies a gap"
    value, error = _value(objective, reference.point)
    return value - reference.gap - error


def _value(objective: EmpiricalObjective, theta: Array) -> tuple[float, float]:
    """Return F(theta) and a bound on its rounding error, as in `EmpiricalObjective.rounding_allowance`."""
    loss, row_map = objective.loss, objective.rows.row_map

    def part(block: Array, y: Array, w: Array) -> Sums:
        return (w @ np.abs(loss.value(y, block @ theta)),)

    size = float(np.linalg.norm(theta))
    share = objective.n_records / objective.divisor
    terms = float(objective.rows.sum(part)[0]) / objective.divisor
    margins = (objective.dim + 6) * row_map.weighted_norm * size
    margins += 4 * objective.rows.mean_target_size
    rest = objective.alpha * size**2 + size * float(np.linalg.norm(objective.linear))
    roundings = (objective.rows.additions + 16) * terms + share * loss.lipschitz * margins
    return objective.value(theta), 1.01 * UNIT * (roundings + (objective.dim + 4) * rest)
