r"""Certified gaps for kinked losses: how far F(theta) is above its minimum, from the Fenchel dual.

For ``F(theta) = (1/N) sum_i w_i c(u_i) + (alpha/2) ||theta||^2 + <b, theta>`` and any slopes
``s_i`` in the range of ``c'``, weak duality gives

    F(theta) - min F <= (1/N) sum_i w_i [c(u_i) + c*(s_i) - s_i u_i] + ||v + alpha theta||^2 / (2
    alpha),

where ``v = (1/N) sum_i w_i s_i du_i/dtheta + b``. Every term is nonnegative and no large numbers
are subtracted, so the bound keeps its digits however small it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from dpconvex.core.pointwise_losses import Loss, PointwiseLoss, PointwisePiecewiseLinear
from dpconvex.core.rows import Sums
from dpconvex.engine.compensated_kernels import CompensatedBlockSum
from dpconvex.losses.scaled_and_clamped import ClampedTargetLoss, piecewise_linear_shape
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.objective import UNIT, exact_difference, exact_objective_margins
from dpconvex.smoothing.moreau_envelopes import moreau
from dpconvex.solvers.certified_descent import Solution, check_descent_start
from dpconvex.solvers.newton_lbfgs import newton_or_lbfgs
from dpconvex.types import Array


def duality_gap_kinks(objective: EmpiricalObjective, owner: str) -> PointwisePiecewiseLinear:
    """Return the piecewise-linear shape of the objective's loss, or raise."""
    kinks = piecewise_linear_shape(objective.loss)
    if kinks is None:
        raise TypeError(
            f"{owner} needs a piecewise-linear loss, but {type(objective.loss).__name__} is none. "
            "Write it as KinkedLoss(knots, slopes), or use Newton() if it is smooth."
        )
    return kinks


def envelope_of(objective: EmpiricalObjective, smoothness: float) -> EmpiricalObjective:
    """Return the objective with its loss replaced by the Moreau envelope of this curvature."""
    loss = objective.loss
    smooth = moreau(_unclamped(loss), smoothness)
    return objective.with_loss(
        ClampedTargetLoss(smooth, loss.limit) if isinstance(loss, ClampedTargetLoss) else smooth
    )


def _unclamped(loss: Loss) -> PointwiseLoss:
    return cast(PointwiseLoss, loss.loss if isinstance(loss, ClampedTargetLoss) else loss)


def young_duality_excess(kinks: PointwisePiecewiseLinear, u: Array, slope: Array) -> Array:
    """Return ``c(u) + c*(slope) - slope u >= 0``, zero where `slope` is a subgradient at `u`.

    With the tangents ``h_p + s_p (u - k_p)`` of c: ``max_p (s_p - slope)(u - k_p) + (h_p - slope
    k_p) - min_j (h_j - slope k_j)``.
    """
    levels = [h - slope * k for h, k in zip(kinks.heights, kinks.knots, strict=True)]
    lowest = levels[0]
    for level in levels[1:]:
        lowest = np.minimum(lowest, level)
    excess = np.zeros(np.shape(u))
    for i, tangent in enumerate(kinks.slopes):
        p = max(i - 1, 0)
        excess = np.maximum(excess, (tangent - slope) * (u - kinks.knots[p]) + (levels[p] - lowest))
    return excess


def certified_gap(objective: EmpiricalObjective, point: npt.ArrayLike, smoothness: float) -> float:
    """Bound ``F(point) - min F`` with the slopes of the Moreau envelope as the dual point.

    Any curvature `smoothness` of the envelope gives a valid bound; at the minimiser of the envelope
    it is at most ``lipschitz^2 / (2 smoothness)`` (mean weight 1) plus the square of the envelope's
    gradient norm over ``2 alpha``. Rounding errors are included. One pass over the data. Needs a
    piecewise-linear loss and ``alpha > 0``.
    """
    theta = np.asarray(point, dtype=np.float64)
    kinks = duality_gap_kinks(objective, "certified_gap")
    loss = objective.loss
    clamp = loss.clamp if isinstance(loss, ClampedTargetLoss) else None
    envelope = moreau(_unclamped(loss), smoothness)
    size = float(np.linalg.norm(theta))
    tail = (4 * objective.dim * UNIT) ** 2
    largest_knot = max(abs(knot) for knot in kinks.knots)
    residual = loss.kind == "residual"

    def duality_gap_part(block: Array, y: Array, w: Array) -> Sums:
        y = clamp(y) if clamp else y
        z, correction = exact_objective_margins(block, theta)
        lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
        u = exact_difference(y, z, correction) if residual else y * (z + correction)
        slopes = envelope.slope_at(u)
        error = 8 * UNIT * (np.abs(u) + largest_knot) + tail * size * lengths
        # Convex in u, so the largest value within the error interval is at one of its ends.
        excess = np.maximum(
            young_duality_excess(kinks, u - error, slopes),
            young_duality_excess(kinks, u + error, slopes),
        )
        turned = -slopes if residual else slopes * y
        return w @ excess, CompensatedBlockSum(w * turned, block), (w * lengths) @ np.abs(slopes)

    total, sums, terms = objective.rows.sum(duality_gap_part)
    gradient = sums.value / objective.divisor + objective.alpha * theta + objective.linear
    roundings = 9 * float(terms) / objective.divisor
    roundings += 3 * objective.alpha * size + 2 * float(np.linalg.norm(objective.linear))
    norm = float(np.linalg.norm(gradient)) * (1 + 1e-12) + 1.01 * UNIT * roundings
    return float(total) / objective.divisor * (1 + 1e-12) + norm**2 / (2 * objective.alpha)


@dataclass(frozen=True)
class Envelope:
    """Minimise a kinked objective through its Moreau envelope, with a certified gap.

    The envelope of curvature b lies below the loss by at most ``lipschitz^2 / (2 b)``, so its
    minimiser is nearly a minimiser of F up to `certified_gap`. b starts at what guarantees the gap
    and grows if rounding spoils it.
    """

    def solve(
        self, objective: EmpiricalObjective, start: npt.ArrayLike, tolerance: float
    ) -> Solution:
        """Minimise until the certified duality gap is at most ``tolerance^2 / (2 alpha)``; see
        :meth:`Solver.solve`.

        The solution has ``gap`` and ``gradient_norm = sqrt(2 alpha gap)``; where rounding hides the
        gap, no gap, and the distance to the minimiser times alpha. Raises `ConvergenceError` if
        float64 can certify neither.
        """
        duality_gap_kinks(objective, "Envelope")
        point = check_descent_start(objective, start, tolerance, "Envelope")
        wanted = tolerance**2 / (2 * objective.alpha)
        share = max(1.0, objective.n_records / objective.divisor)
        smoothness = share * objective.loss.lipschitz**2 / wanted
        solver = newton_or_lbfgs(objective.dim)
        iterations = 0
        for _ in range(4):
            smooth = envelope_of(objective, smoothness)
            found = solver.solve(smooth, point, 0.5 * tolerance)
            point = found.point
            iterations = iterations + found.iterations
            gap = certified_gap(objective, point, smoothness)
            if gap <= wanted:
                return Solution(point, math.sqrt(2 * objective.alpha * gap), iterations, gap)
            smoothness *= 3
        # Rounding of the point itself hides the gap. But the envelope lies below F by at most
        # share lipschitz^2 / (2 b), so the two minimisers are within sqrt(2 / alpha times that).
        (weight,) = objective.rows.sum(lambda block, y, w: (w.sum(),))
        share = max(share, 1.01 * float(weight) / objective.divisor)
        smoothness = 4 * share * objective.loss.lipschitz**2 / wanted
        found = solver.solve(envelope_of(objective, smoothness), point, 0.5 * tolerance)
        bound = found.gradient_norm + tolerance / math.sqrt(8)
        return Solution(found.point, bound, iterations + found.iterations)
