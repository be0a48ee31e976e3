r"""The quantile-regression paper's objective perturbation as printed, for comparison. Not for
private data.

Algorithm 2 draws ``b ~ N(0, sigma^2 I)`` with
``sigma^2 = L^2 (8 ln(2/delta) + 4 epsilon) / epsilon^2``, ``L = max(r, 1 - r) B_x``, and returns
the minimiser of

    (1/n) sum_i loss_h(y_i - x_i . theta) + lambda ||theta||^2 + <b, theta> / n

with the penalty and the bandwidth of one of the two parts of Theorem 3.6. Its proof takes the
gradient of the record that changes for independent of ``b``: the claim holds when records are added
or removed, and fails for small delta when one is replaced.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import Kernel, LogisticKernel, convolve
from dpconvex.solvers import Newton
from dpconvex_reproduction.quantile_sco.presets import Problem, QuantilePreset, objective_preset

__all__ = ["algorithm_2", "perturbed_minimiser"]

# The printed algorithm neither clips nor weights rows: they are assumed to be short.
_NO_INFLUENCE_BOUND = 1e9
_RELATIVE_TOLERANCE = 1e-10


def perturbed_minimiser(
    X: ArrayLike,
    y: ArrayLike,
    quantile: float,
    preset: QuantilePreset,
    tilt: ArrayLike,
    kernel: Kernel | None = None,
) -> NDArray[np.float64]:
    """Return the minimiser of the smoothed, penalised objective tilted by ``<tilt, theta> / n``.

    Parameters
    ----------
    X, y : array of shape (n, d - 1) and (n,)
        Rows without the constant column, and targets.
    quantile : float
        Quantile level.
    preset : QuantilePreset
        Penalty (``alpha = 2 lambda``) and bandwidth.
    tilt : array of shape (d,)
        The noise vector, intercept first.
    kernel : Kernel, optional
        The logistic kernel by default.

    Returns
    -------
    array of shape (d,)
        Coefficients, intercept first.
    """
    rows = np.asarray(X, dtype=np.float64)
    row_map = RowMap(rows.shape[1], _NO_INFLUENCE_BOUND)
    loss = convolve(Pinball(quantile), kernel or LogisticKernel(), preset.bandwidth)
    objective = EmpiricalObjective(
        MemoryRows(rows, y, row_map),
        loss,
        preset.alpha,
        linear=np.asarray(tilt, dtype=np.float64) / len(rows),
    )
    longest = float(np.sqrt(1 + np.square(rows).sum(axis=1).max()))
    tolerance = _RELATIVE_TOLERANCE * loss.lipschitz * longest
    return Newton().solve(objective, np.zeros(objective.dim), tolerance).point


def algorithm_2(
    X: ArrayLike,
    y: ArrayLike,
    problem: Problem,
    part: int = 1,
    rng: np.random.Generator | int | None = None,
) -> NDArray[np.float64]:
    """Run Algorithm 2 with the constants of Theorem 3.6.

    Parameters
    ----------
    X, y : array of shape (n, d - 1) and (n,)
        Rows without the constant column, and targets.
    problem : Problem
        What the algorithm is told; its budget is the one that the paper claims.
    part : {1, 2}
        Which part of the theorem sets the penalty.
    rng : Generator or int, optional
        Source of the noise.

    Returns
    -------
    array of shape (d,)
        Coefficients, intercept first.

    Examples
    --------
    >>> from dpconvex_reproduction.datasets.simulated import make_quantile_regression
    >>> data = make_quantile_regression(200, rng=0)
    >>> problem = Problem(quantile=0.7, epsilon=1.0, delta=1e-2, row_norm=10.0, coef_norm=25.0)
    >>> algorithm_2(data.X, data.y, problem, rng=0).shape
    (3,)
    """
    n, features = np.shape(X)
    preset = objective_preset(part, n, features + 1, problem)
    tilt = preset.std * np.random.default_rng(rng).standard_normal(features + 1)
    return perturbed_minimiser(X, y, problem.quantile, preset, tilt, problem.kernel)
