r"""The algorithms that the quantile-regression paper compares, with printed constants. Not for
private data.

Rows carry the constant 1 and have norm at most ``row_norm`` (``B_x``); coefficients start at 0 and
are not constrained; ``L = max(r, 1 - r) B_x`` bounds the gradient of a record. Noise is as printed:
for ``epsilon`` above 1 single-record descent is less private than claimed
(:class:`dpconvex.mechanisms.NoisySGD` with ``noise="published"`` says by how much). The comparison
prints the constants of DP-SGD, and sizes, steps and noise of the phases of Phased-ERM; for the rest
it cites theorems of other papers, whose constants are used here as each docstring states them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.losses import Pinball
from dpconvex.smoothing import convolve, moreau
from dpconvex_reproduction.quantile_sco.presets import (
    Problem,
    phased_erm_preset,
    phased_sgd_preset,
    sgd_preset,
)

__all__ = [
    "RIVALS",
    "MinibatchPlan",
    "contractive_envelope",
    "dp_sgd",
    "empirical_sgd",
    "minibatch_plan",
    "moreau_sgd",
    "phased_erm",
    "phased_sgd",
]

Array = NDArray[np.float64]

_CHUNK = 1 << 17


def _descend(
    rows: Array, targets: Array, loss: Any, steps: int, rate: float, std: float, rng: Any
) -> Array:
    """Return the mean of theta_1 = 0 and the iterates after each of ``steps - 1`` noisy
    single-record steps.
    """
    from dpconvex.smoothing.compiled_slopes import compile_slope
    from dpconvex.solvers.sgd_loops import run_single_sgd_loop

    compiled = compile_slope(loss)
    assert compiled is not None
    theta = np.zeros(rows.shape[1])
    total = np.zeros(rows.shape[1])
    weights = np.ones(len(targets))
    left = steps - 1
    while left > 0:
        chosen = rng.integers(0, len(targets), size=min(left, _CHUNK))
        run_single_sgd_loop(
            rng, chosen, rows, targets, weights, compiled, theta, total, rate, 0.0, std
        )
        left -= chosen.size
    return total / steps


def dp_sgd(rows: Array, targets: Array, problem: Problem, rng: np.random.Generator) -> Array:
    """Algorithm 1 with the choices of Theorem 3.4: convolution smoothing, n^2 steps of one
    record each.
    """
    n, d = rows.shape
    preset = sgd_preset(n, d, problem)
    loss = convolve(Pinball(problem.quantile), problem.kernel, preset.bandwidth)
    return _descend(rows, targets, loss, preset.steps, preset.step_size, preset.std, rng)


def empirical_sgd(rows: Array, targets: Array, problem: Problem, rng: np.random.Generator) -> Array:
    """Run the same descent on subgradients of the pinball loss itself, the step without its
    smoothing term.
    """
    n, d = rows.shape
    slope = problem.lipschitz
    std = slope * math.sqrt(8 * math.log(1 / problem.delta)) / problem.epsilon
    square = 2 * slope**2 * n**3 + (d * std**2 + slope**2) * n**2 + 2 * slope**2 * n
    rate = problem.coef_norm / math.sqrt(square)
    return _descend(rows, targets, Pinball(problem.quantile), n * n, rate, std, rng)


@dataclass(frozen=True)
class MinibatchPlan:
    """Steps, records of a batch, step size and printed noise of :func:`moreau_sgd`."""

    steps: int
    batch_size: int
    step_size: float
    std: float


def minibatch_plan(n: int, d: int, problem: Problem) -> MinibatchPlan:
    """Return the constants that :func:`moreau_sgd` states."""
    log = math.log(1 / problem.delta)
    steps = max(1, int(min(n / 8, problem.epsilon**2 * n**2 / (32 * d * log))))
    size = min(n, max(1, round(n * math.sqrt(problem.epsilon / (4 * steps)))))
    std = problem.lipschitz * math.sqrt(8 * steps * log) / (n * problem.epsilon)
    rate = problem.coef_norm / (problem.lipschitz * math.sqrt(steps))
    return MinibatchPlan(steps, size, rate, std)


def contractive_envelope(problem: Problem, step_size: float) -> Any:
    """Return the least smooth Moreau envelope of the pinball loss with contractive steps of this
    size.
    """
    return moreau(Pinball(problem.quantile), 2 / (step_size * problem.row_norm**2))


def moreau_sgd(rows: Array, targets: Array, problem: Problem, rng: np.random.Generator) -> Array:
    r"""Noisy minibatch descent on Moreau envelopes (Bassily et al. 2019, Algorithm 1).

    ``T = min(n / 8, epsilon^2 n^2 / (32 d ln(1/delta)))`` steps of size ``B_theta / (L sqrt(T))``
    on batches of ``max(n sqrt(epsilon / (4 T)), 1)`` records (n at most) drawn with replacement,
    noise ``std^2 = 8 T L^2 ln(1/delta) / (n epsilon)^2`` on the mean gradient, average of the
    iterates. The envelope is the least smooth one with contractive steps: curvature ``2 / step`` in
    theta.
    """
    n, d = rows.shape
    plan = minibatch_plan(n, d, problem)
    loss = contractive_envelope(problem, plan.step_size)
    theta = np.zeros(d)
    total = np.zeros(d)
    for _ in range(plan.steps):
        batch = rng.integers(0, n, size=plan.batch_size)
        slopes = loss.gradient(targets[batch], rows[batch] @ theta)
        gradient = slopes @ rows[batch] / plan.batch_size
        theta = theta - plan.step_size * (gradient + plan.std * rng.standard_normal(d))
        total += theta
    return np.asarray(total / plan.steps)


def phased_erm(
    rows: Array,
    targets: Array,
    problem: Problem,
    rng: np.random.Generator,
    *,
    noise_share: float = 1.0,
) -> Array:
    r"""Phased-ERM (Feldman et al. 2020, Theorem 4.8, Algorithm 3).

    Phase i minimises ``(1/n_i) sum loss + ||theta - theta_prev||^2 / (step_i n_i)`` and adds noise
    of std ``4 L step_i sqrt(ln(1/delta)) / epsilon``; ``n_i = n / 2^i``, ``step_i = step / 4^i``.
    The pinball loss is solved through an envelope that is ``1e-6`` of the largest slope times
    ``B_theta B_x`` below it at most. ``noise_share`` multiplies the noise: with 0 the phases alone
    are left.
    """
    from dpconvex.engine import MemoryRows, RowMap
    from dpconvex.objectives import EmpiricalObjective
    from dpconvex.solvers import newton_or_lbfgs

    n, d = rows.shape
    preset = phased_erm_preset(n, d, problem)
    slope = max(problem.quantile, 1 - problem.quantile)
    curvature = slope / (2e-6 * problem.coef_norm * problem.row_norm)
    loss = moreau(Pinball(problem.quantile), curvature)
    row_map = RowMap(d, 2 * problem.row_norm, fit_intercept=False)
    order = rng.permutation(n)
    start = 0
    theta = np.zeros(d)
    for i in range(1, preset.phases + 1):
        count = n >> i
        step = preset.step_size / 4**i
        chosen = order[start : start + count]
        start += count
        anchor = 2 / (step * count)
        part = MemoryRows(rows[chosen], targets[chosen], row_map, threads=1)
        objective = EmpiricalObjective(part, loss, anchor, linear=-anchor * theta)
        reach = float(np.linalg.norm(theta)) + problem.lipschitz / anchor
        tolerance = max(1e-8 * problem.lipschitz, 1e-12 * anchor * reach)
        point = newton_or_lbfgs(d).solve(objective, theta, tolerance).point
        std = preset.std(i, problem)
        theta = point + noise_share * std * rng.standard_normal(d)
    return theta


def phased_sgd(rows: Array, targets: Array, problem: Problem, rng: np.random.Generator) -> Array:
    r"""Phased-SGD on a smoothed loss (Bassily et al. 2021, Theorem 5, after Feldman et al. 2020).

    Phase i passes once over ``n_i = n / 2^i`` records with steps ``step / 4^i``, averages the
    iterates and adds noise of std ``4 L step_i sqrt(ln(1/delta)) / epsilon``. The envelope is the
    least smooth one with contractive steps in the first phase.
    """
    from dpconvex.smoothing.compiled_slopes import compile_slope
    from dpconvex.solvers.sgd_loops import run_one_pass_loop

    n, d = rows.shape
    preset = phased_sgd_preset(n, d, problem)
    loss = contractive_envelope(problem, preset.step_size / 4)
    compiled = compile_slope(loss)
    weights = np.ones(n)
    assert compiled is not None
    order = rng.permutation(n)
    start = 0
    theta = np.zeros(d)
    for i in range(1, preset.phases + 1):
        count = n >> i
        step = preset.step_size / 4**i
        chosen = order[start : start + count]
        start += count
        total = np.zeros(d)
        run_one_pass_loop(chosen, rows, targets, weights, compiled, theta, total, step, 0.0)
        std = preset.std(i, problem)
        theta = total / count + std * rng.standard_normal(d)
    return theta


RIVALS = {
    "DP-SGD": dp_sgd,
    "EmpSGD": empirical_sgd,
    "Moreau": moreau_sgd,
    "Phased-ERM": phased_erm,
    "Phased-SGD": phased_sgd,
}
"""The algorithms by the names of the comparison."""
