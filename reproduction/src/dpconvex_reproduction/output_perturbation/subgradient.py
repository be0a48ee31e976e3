r"""Subgradient methods with a certified gap, all records at once or a few at a time.

With step ``2 / (alpha (t + 1))`` the iterate is the dual point of the slopes averaged with weights
proportional to t: ``theta_{t+1} = -(1/alpha) (sum_k 2 k g_k / (t (t + 1)) + b)``. The average of
the iterates with the same weights and the averaged slopes of each record therefore bound the gap
from both sides; it is at most ``8 L^2 / (alpha (t + 1))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from dpconvex.core.rows import RowIndices, Sums
from dpconvex.core.threads import single_threaded_blas
from dpconvex.losses.scaled_and_clamped import ClampedTargetLoss
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.objective import UNIT
from dpconvex.smoothing.compiled_slopes import CompiledSlope, compile_slope, compiled_slope
from dpconvex.solvers.black_box import certify_point
from dpconvex.solvers.certified_descent import ConvergenceError, Solution, check_descent_start
from dpconvex.solvers.duality_gap import Envelope, duality_gap_kinks, young_duality_excess
from dpconvex.types import Array
from dpconvex_reproduction.output_perturbation.accelerated import SolverRecords, load_solver_records

__all__ = ["StochasticSubgradient", "Subgradient"]


@numba.njit(cache=True)
def run_subgradient_loop(
    first: int,
    chosen: RowIndices,
    rows: Array,
    targets: Array,
    weights: Array,
    loss: CompiledSlope,
    linear: Array,
    alpha: float,
    point: Array,
    average: Array,
) -> None:
    """Run a loop of subgradient steps, one per row of `chosen`, in place, the first being step
    ``first + 1``.
    """
    dim = point.size
    direction = np.empty(dim)
    for step in range(len(chosen)):
        share = 2.0 / (first + step + 2)
        direction[:] = 0.0
        for i in chosen[step]:
            margin = 0.0
            for j in range(dim):
                margin += rows[i, j] * point[j]
            slope = weights[i] * compiled_slope(loss, targets[i], margin)
            for j in range(dim):
                direction[j] += slope * rows[i, j]
        for j in range(dim):
            average[j] += share * (point[j] - average[j])
            whole = direction[j] / chosen.shape[1] + linear[j]
            point[j] -= share * (point[j] + whole / alpha)


class _AveragedSubgradient:
    """The checks of both subgradient methods, and their errors."""

    def solve(
        self, objective: EmpiricalObjective, start: npt.ArrayLike, tolerance: float
    ) -> Solution:
        """Minimise by subgradients until the gap is at most ``tolerance^2 / (2 alpha)``; see
        :meth:`Solver.solve`.

        Needs ``alpha > 0`` and rows in memory. The start is checked but forgotten at the first
        step, of length 1/alpha.
        """
        owner = type(self).__name__
        point = check_descent_start(objective, start, tolerance, owner)
        records = load_solver_records(objective, owner)
        with single_threaded_blas():
            found = self._search(objective, records, point, tolerance)
        if found is not None:
            return found
        wanted = tolerance**2 / (2 * objective.alpha)
        raise ConvergenceError(
            f"{owner} reached its limit of steps without certifying a gap of {wanted:.3g}. Use "
            "Envelope() or Newton(), a larger tolerance or a larger alpha."
        )

    def _search(
        self, objective: EmpiricalObjective, records: SolverRecords, point: Array, tolerance: float
    ) -> Solution | None:
        """Return a point of this gap, or None where the limit on the steps is reached."""
        raise NotImplementedError


@dataclass(frozen=True)
class Subgradient(_AveragedSubgradient):
    """Subgradient method with averaging, for kinked and smooth losses alike.

    A gap g takes up to ``8 L^2 / (alpha g)`` passes over the data. The gap is certified by the
    averaged slopes (kinked losses) or the gradient norm (smooth ones).

    Parameters
    ----------
    max_iterations : int, default=200_000
        Limit on the steps.
    """

    max_iterations: int = 200_000

    def _search(
        self, objective: EmpiricalObjective, records: SolverRecords, point: Array, tolerance: float
    ) -> Solution | None:
        """Search by subgradients of all records; the iterates' weighted average is tested now
        and then.
        """
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
                kinked = not math.isfinite(objective.loss.smoothness)
                gap = (
                    averaged_subgradient_gap(objective, records, average, slopes)
                    if kinked
                    else None
                )
                found = _certify_subgradient_average(objective, average, gap, tolerance, t)
                if found is not None:
                    return found
        return None


def _certify_subgradient_average(
    objective: EmpiricalObjective,
    average: Array,
    gap: float | None,
    tolerance: float,
    iterations: int,
) -> Solution | None:
    """Return the average as a solution if its gap, or its gradient norm where no gap is given,
    is small enough.
    """
    if gap is None:
        found = certify_point(objective, average, tolerance)
        return found and Solution(found.point, found.gradient_norm, iterations)
    if gap > tolerance**2 / (2 * objective.alpha):
        return None
    return Solution(average, math.sqrt(2 * objective.alpha * gap), iterations, gap)


def averaged_subgradient_gap(
    objective: EmpiricalObjective, records: SolverRecords, point: Array, slopes: Array
) -> float:
    """Bound ``F(point) - min F`` by the dual value of weighted slopes, one per record."""
    kinks = duality_gap_kinks(objective, "Subgradient")
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
    excess = np.maximum(
        young_duality_excess(kinks, u - error, plain), young_duality_excess(kinks, u + error, plain)
    )
    dual = (weights * plain * signs) @ records.rows / records.count + records.linear
    rounding = UNIT * (records.count + 16) * objective.gradient_bound
    norm = float(np.linalg.norm(dual + objective.alpha * point)) + rounding
    total = float(weights @ excess) / records.count * (1 + 1e-9)
    return total + norm**2 / (2 * objective.alpha)


@dataclass(frozen=True)
class StochasticSubgradient(_AveragedSubgradient):
    """Stochastic subgradient method: a few records per step, averaged iterates.

    Its accuracy holds in expectation, which is no basis for privacy, so the point is certified like
    any other: by its gradient norm (smooth losses) or by a lower bound of the minimum, computed
    once (kinked ones).

    Parameters
    ----------
    batch_size : int, default=16
        Records per step.
    max_iterations : int, default=1_000_000
        Limit on the steps.
    seed : int, default=0
        Which records are visited. Not a privacy matter: the point returned is certified.
    """

    batch_size: int = 16
    max_iterations: int = 1_000_000
    seed: int = 0

    def _search(
        self, objective: EmpiricalObjective, records: SolverRecords, point: Array, tolerance: float
    ) -> Solution | None:
        """Search by stochastic subgradients of batches; the iterates' average is tested now and
        then.
        """
        smooth = math.isfinite(objective.loss.smoothness)
        lowest = None if smooth else _subgradient_lower_bound(objective, tolerance)
        rng = np.random.default_rng(self.seed)
        batch = min(self.batch_size, records.count)
        point, average = point.copy(), np.zeros_like(point)
        check = 256
        t = 0
        while t < self.max_iterations:
            _take_subgradient_steps(
                records, t, rng.integers(0, records.count, (256, batch)), point, average
            )
            t += 256
            if t < check:
                continue
            check = 2 * check
            gap = None
            if lowest is not None:
                value, error = _subgradient_value(objective, average)
                gap = max(value + error - lowest, 0.0)
            found = _certify_subgradient_average(objective, average, gap, tolerance, t)
            if found is not None:
                return found
        return None


def _take_subgradient_steps(
    records: SolverRecords, first: int, chosen: RowIndices, point: Array, average: Array
) -> None:
    """Take one step per row of `chosen`, in place: compiled for losses of the package, in numpy
    for others.
    """
    loss = records.loss
    rows = records.rows
    alpha = records.alpha
    # Targets are clamped already.
    compiled = compile_slope(loss.loss if isinstance(loss, ClampedTargetLoss) else loss)
    if compiled is not None:
        weighted = records.targets, records.weights, compiled
        run_subgradient_loop(first, chosen, rows, *weighted, records.linear, alpha, point, average)
        return
    for k, batch in enumerate(chosen, start=first + 1):
        share = 2 / (k + 1)
        average += share * (point - average)
        direction = records.slopes(point, batch) @ rows[batch] / len(batch) + records.linear
        point -= share * (point + direction / alpha)


def _subgradient_lower_bound(objective: EmpiricalObjective, tolerance: float) -> float:
    """Certify ``min F`` from below to a hundredth of the gap wanted, rounding included."""
    reference = Envelope().solve(objective, np.zeros(objective.dim), 0.1 * tolerance)
    assert reference.gap is not None, "Envelope certifies a gap"
    value, error = _subgradient_value(objective, reference.point)
    return value - reference.gap - error


def _subgradient_value(objective: EmpiricalObjective, theta: Array) -> tuple[float, float]:
    """Return F(theta) and a bound on its rounding error, as in
    `EmpiricalObjective.rounding_allowance`.
    """
    loss = objective.loss
    row_map = objective.rows.row_map

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
