r"""The AUC paper's algorithms, with printed and with sound constants, for comparison.

Printed constants use the class counts of the data and ignore that a label may change: they protect
a replacement that keeps the label, with public counts, and nothing more. Not for private data.
Sound constants are those of :class:`~dpconvex.privacy.PairwiseBounds`, with public lower bounds on
the counts. Algorithm 3, pointwise logistic regression, is sound as
:class:`~dpconvex.DPLogisticRegression` with ``mechanism="objective"``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.guarantees import ApproxDP, Guarantee, PureDP
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.rows import RowMap
from dpconvex.losses import Logistic, PairLogistic, PointwiseLoss
from dpconvex.losses.pair_losses import PairLoss
from dpconvex.mechanisms import OutputPerturbation, PairwiseObjectivePerturbation
from dpconvex.objectives import EmpiricalObjective, PairwiseObjective
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex.solvers import newton_or_lbfgs

__all__ = [
    "PENALTIES",
    "algorithm_1",
    "algorithm_2",
    "algorithm_3",
    "descend_pairs",
    "draw_noise",
    "printed_objective_noise",
    "printed_output_scale",
    "printed_pointwise_noise",
    "sound",
]

Array = NDArray[np.float64]

#: The penalties that the paper tunes over.
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def printed_output_scale(
    epsilon: float,
    slope: float,
    diameter: float,
    penalty: float,
    positive: int,
    negative: int,
    delta: float = 0.0,
) -> float:
    """Return Algorithm 1's noise: ``2 D B (1/n+ + 1/n-) / (epsilon lambda)``, times
    ``sqrt(2 log(1.25/delta))``.
    """
    scale = 2 * diameter * slope * (1 / positive + 1 / negative) / (epsilon * penalty)
    return scale if delta == 0 else scale * math.sqrt(2 * math.log(1.25 / delta))


def printed_objective_noise(
    epsilon: float,
    delta: float,
    loss: Any,
    diameter: float,
    penalty: float,
    positive: int,
    negative: int,
) -> tuple[float, float]:
    """Return Algorithm 2's noise (scale or standard deviation) and the penalty after its
    correction.
    """
    n = positive + negative
    pairs = positive * negative
    change = loss.smoothness * diameter**2
    left = epsilon - n * math.log1p(change / (pairs * penalty))
    if left <= 0:
        left = epsilon / 2
        penalty = change / (pairs * math.expm1(epsilon / (2 * n)))
    size = n * loss.lipschitz * diameter / (pairs * left)
    if delta == 0:
        return 2 * size, penalty
    return size * (2 * math.sqrt(2 * math.log(1 / delta)) + math.sqrt(2 * left)), penalty


def _minimise(X: Array, y: NDArray[Any], penalty: float, linear: Array, loss: Any) -> Array:
    objective = PairwiseObjective(X, y, loss, penalty, linear=linear)
    tolerance = 1e-8 * (objective.gradient_bound + float(np.linalg.norm(linear)))
    return newton_or_lbfgs(X.shape[1]).solve(objective, np.zeros(X.shape[1]), tolerance).point


def draw_noise(scale: float, delta: float, size: int, rng: np.random.Generator) -> Array:
    """Return Gaussian noise if delta is above 0, else l2-Laplace noise of this scale."""
    direction = rng.standard_normal(size)
    if delta > 0:
        return scale * direction
    return direction / np.linalg.norm(direction) * rng.gamma(size, scale)


def algorithm_1(
    X: Array,
    y: NDArray[Any],
    *,
    epsilon: float,
    delta: float,
    diameter: float,
    penalty: float,
    rng: np.random.Generator,
) -> Array:
    """Output perturbation as printed, logistic loss of base 2; ``y`` says which rows are
    positive.
    """
    loss = PairLogistic("2")
    counts = (int(np.sum(y)), int(np.sum(np.logical_not(y))))
    scale = printed_output_scale(epsilon, loss.lipschitz, diameter, penalty, *counts, delta)
    point = _minimise(X, y, penalty, np.zeros(X.shape[1]), loss)
    return point + draw_noise(scale, delta, X.shape[1], rng)


def algorithm_2(
    X: Array,
    y: NDArray[Any],
    *,
    epsilon: float,
    delta: float,
    diameter: float,
    penalty: float,
    rng: np.random.Generator,
) -> Array:
    """Objective perturbation as printed, logistic loss of base 2; ``y`` says which rows are
    positive.
    """
    loss = PairLogistic("2")
    counts = (int(np.sum(y)), int(np.sum(np.logical_not(y))))
    scale, penalty = printed_objective_noise(epsilon, delta, loss, diameter, penalty, *counts)
    return _minimise(X, y, penalty, draw_noise(scale, delta, X.shape[1], rng), loss)


def printed_pointwise_noise(
    epsilon: float,
    delta: float,
    loss: PointwiseLoss,
    row_norm: float,
    penalty: float,
    n_samples: int,
) -> tuple[float, float]:
    """Return Algorithm 3's standard deviation, on the sum of losses, and the penalty after its
    correction.

    ``sigma = (2 sqrt(2 log(1/delta)) + sqrt(2 e)) L R2 / e`` with
    ``e = epsilon - log(1 + beta R2^2 / (n lambda))``, or half of epsilon and a penalty of
    ``beta R2^2 / (n (e^(epsilon/2) - 1))`` where nothing would be left.
    """
    change = loss.smoothness * row_norm**2 / n_samples
    left = epsilon - math.log1p(change / penalty)
    if left <= 0:
        left = epsilon / 2
        penalty = change / math.expm1(epsilon / 2)
    spread = 2 * math.sqrt(2 * math.log(1 / delta)) + math.sqrt(2 * left)
    return spread * loss.lipschitz * row_norm / left, penalty


def algorithm_3(
    X: Array,
    y: Array,
    *,
    epsilon: float,
    delta: float,
    row_norm: float,
    penalty: float,
    rng: np.random.Generator,
) -> Array:
    """Pointwise objective perturbation as printed, logistic loss; labels are -1 and 1, rows at
    most R2 long.
    """
    n, size = X.shape
    std, penalty = printed_pointwise_noise(epsilon, delta, Logistic(), row_norm, penalty, n)
    rows = MemoryRows(X, y, RowMap(size, row_norm, fit_intercept=False))
    objective = EmpiricalObjective(
        rows, Logistic(), penalty, linear=std / n * rng.standard_normal(size)
    )
    return newton_or_lbfgs(size).solve(objective, np.zeros(size), 1e-8).point


def descend_pairs(
    X: Array,
    y: NDArray[Any],
    loss: PairLoss,
    penalty: float,
    *,
    batch: int,
    steps: int,
    rng: np.random.Generator,
) -> Array:
    """Return the mean of the later iterates of descent over random pairs, as the paper's
    experiments minimise.

    Each step draws ``batch`` pairs of a positive and a negative row, with replacement, and goes
    ``1 / (lambda (t + t0))`` against their mean gradient; t0 keeps first steps below 1 over the
    curvature. No noise is added: our solvers are certified and end at the same point.
    """
    ahead = X[y.astype(bool)]
    behind = X[~y.astype(bool)]
    diameter = float(np.linalg.norm(ahead, axis=1).max() + np.linalg.norm(behind, axis=1).max())
    start = loss.smoothness * diameter**2 / penalty
    w = np.zeros(X.shape[1])
    total = np.zeros(X.shape[1])
    for t in range(steps):
        pairs = (
            ahead[rng.integers(len(ahead), size=batch)]
            - behind[rng.integers(len(behind), size=batch)]
        )
        gradient = loss.slope(pairs @ w) @ pairs / batch + penalty * w
        w = w - gradient / (penalty * (t + 1 + start))
        if t >= steps // 2:
            total += w
    return np.asarray(total / (steps - steps // 2))


def sound(
    algorithm: int,
    objective: PairwiseObjective,
    bounds: PairwiseBounds,
    epsilon: float,
    delta: float,
    seed: int | None,
) -> Array:
    """Run the paper's Algorithm 1 or 2 with sound constants; ``bounds`` holds the penalty that was
    tuned.

    Like the printed Algorithm 2, a penalty too small for the curvature is raised until half of
    epsilon is left.
    """
    bounds = replace(bounds, n_samples=objective.n_rows)  # a fold has fewer rows than the whole
    guarantee: Guarantee = ApproxDP(epsilon, delta) if delta > 0 else PureDP(epsilon)
    mechanism: Any = OutputPerturbation() if algorithm == 1 else PairwiseObjectivePerturbation()
    if algorithm == 2:
        most = epsilon / 2 if delta == 0 else epsilon / (8 * math.log(1 / delta))
        least = bounds.alpha * bounds.curvature_ratio / min(most, 0.5)
        bounds = replace(bounds, alpha=max(bounds.alpha, least))
    certificate = mechanism.certify(bounds, guarantee, seeded=seed is not None)
    problem = PairwiseObjective(
        np.concatenate([objective.positives, objective.negatives]),
        np.arange(objective.n_rows) < len(objective.positives),
        bounds.loss,
        bounds.alpha,
        bounds.min_positive,
        bounds.min_negative,
        row_norm=bounds.row_norm,
    )
    return np.asarray(mechanism.release(problem, certificate, seed))
