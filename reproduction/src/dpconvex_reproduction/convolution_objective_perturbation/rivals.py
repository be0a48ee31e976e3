r"""What the paper on convolution and objective perturbation compares itself with.

- :func:`noisy_sgd`: Bassily et al. (2020), Algorithm 2: n^2 steps of one record each, projected,
  averaged.
- :func:`moreau_sgd`: Bassily et al. (2019), Algorithm 1, on the Moreau envelope of the loss: few
  steps on larger batches.

Steps, batches and rates follow the two papers. The noise is by default what replacing one record
needs by :mod:`dpconvex.privacy.subsampling`, so that comparisons are at equal privacy;
``noise="published"`` is that of the two papers, and :func:`published_epsilon` says what it is
worth. Both are told the norm of the best coefficients. For experiments, not for private data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpconvex.losses.vector_losses import L1Norm, PiecewiseLinear
from dpconvex.objectives.structured_objective import StructuredRecords
from dpconvex.privacy.subsampling import subsampled_epsilon, subsampled_multiplier

__all__ = ["moreau_gradient", "moreau_sgd", "noisy_sgd", "noisy_sgds", "published_epsilon"]

Array = NDArray[np.float64]


@lru_cache(maxsize=512)
def _multiplier(rate: float, steps: int, epsilon: float, delta: float) -> float:
    return subsampled_multiplier("fixed", "replace_one", rate, steps, epsilon, delta)


def _batches(n: int, d: int, epsilon: float, delta: float) -> tuple[int, int]:
    """Return the number of steps of Moreau SGD and the size of its batches."""
    price = d * math.log(1 / delta)
    steps = max(1, int(min(n / 8, (epsilon * n) ** 2 / (32 * price))))
    return steps, min(n, max(1, int(n * math.sqrt(epsilon / (4 * steps)))))


def _std(batch: int, steps: int, n: int, epsilon: float, delta: float, noise: str) -> float:
    """Return the standard deviation of the noise of a batch's mean gradient, in units of the
    gradient bound.
    """
    if noise == "published":  # steps = n^2 and batches of one: 8 log(1/delta) / epsilon^2
        return math.sqrt(8 * steps * math.log(1 / delta)) / (n * epsilon)
    return 2 * _multiplier(batch / n, steps, epsilon, delta) / batch


def published_epsilon(algorithm: str, n: int, d: int, epsilon: float, delta: float) -> float:
    """Return the epsilon that accounting proves of the published noise, under replace-one.

    Parameters
    ----------
    algorithm : {"noisy SGD", "Moreau SGD"}
        Which.
    n, d : int
        Records and coefficients.
    epsilon, delta : float
        What is claimed; the answer is at the same delta.
    """
    steps, batch = (n * n, 1) if algorithm == "noisy SGD" else _batches(n, d, epsilon, delta)
    multiplier = _std(batch, steps, n, epsilon, delta, "published") * batch / 2
    return subsampled_epsilon("fixed", "replace_one", batch / n, steps, multiplier, delta)


def noisy_sgd(
    records: StructuredRecords,
    loss: L1Norm | PiecewiseLinear,
    *,
    epsilon: float,
    delta: float,
    radius: float,
    rng: np.random.Generator | int | None = None,
    noise: str = "sound",
) -> Array:
    r"""Return the mean iterate of n^2 noisy steps of one record each.

    ``rate = R / (n sqrt(L^2 + d std^2 + 8 n L^2))`` balances the bound
    ``R^2/(2 rate n^2) + rate (L^2 + d std^2)/2`` of the optimisation error with ``4 rate n L^2`` of
    uniform stability.

    Parameters
    ----------
    records : StructuredRecords
        Scaled records.
    loss : L1Norm or PiecewiseLinear
        The kinked loss.
    epsilon, delta : float
        Budget, under replace-one.
    radius : float
        R; iterates are projected on that ball.
    rng : Generator or int, optional
        Source of noise and sampling.
    noise : {"sound", "published"}
        Accounted for, or ``std^2 = 8 L^2 log(1/delta) / epsilon^2``.

    Returns
    -------
    array of shape (d,)
    """
    return noisy_sgds(
        records, loss, (noise,), epsilon=epsilon, delta=delta, radius=radius, rng=rng
    )[0]


def noisy_sgds(
    records: StructuredRecords,
    loss: L1Norm | PiecewiseLinear,
    noises: Sequence[str],
    *,
    epsilon: float,
    delta: float,
    radius: float,
    rng: np.random.Generator | int | None = None,
) -> list[Array]:
    """Run :func:`noisy_sgd` with each of these noises, on the same draws, for less than the time
    of two.
    """
    from dpconvex_reproduction.convolution_objective_perturbation.loop import run_single_sgd_steps

    n = records.n_rows
    d = records.dim
    lipschitz = records.operator_norm * loss.lipschitz
    stds = np.array([lipschitz * _std(1, n * n, n, epsilon, delta, noise) for noise in noises])
    rates = radius / (n * np.sqrt(lipschitz**2 * (1 + 8 * n) + d * stds**2))
    slopes = np.zeros((0, records.outputs))
    offsets = np.zeros(0)
    if isinstance(loss, PiecewiseLinear):
        slopes = np.array(loss.slopes)
        offsets = np.array(loss.offsets)
    arrays = (records.matrices, records.targets, slopes, offsets)
    generator = np.random.default_rng(rng)
    return list(run_single_sgd_steps(generator, *arrays, n * n, rates, stds, radius))


def moreau_gradient(loss: L1Norm | PiecewiseLinear, u: Array, smoothness: float) -> Array:
    """Return the gradient of the Moreau envelope at residuals ``u``: ``smoothness * u`` projected
    on the slopes' hull.

    For the l1 norm the hull is a cube; for the largest absolute residual it is the l1 ball.
    """
    if isinstance(loss, L1Norm):
        return np.clip(smoothness * u, -1.0, 1.0)
    units = np.concatenate([np.eye(loss.outputs), -np.eye(loss.outputs)])
    if sorted(loss.slopes) != sorted(map(tuple, units.tolist())) or any(loss.offsets or ()):
        raise ValueError(
            "The 'loss' parameter of moreau_gradient must be L1Norm or the largest absolute "
            "residual. Got other pieces instead."
        )
    point = smoothness * u
    sizes = np.sort(np.abs(point), axis=1)[:, ::-1]
    counts = np.arange(1, loss.outputs + 1)
    shifts = (np.cumsum(sizes, axis=1) - 1) / counts
    kept = (sizes > shifts).sum(axis=1)
    shift = np.maximum(shifts[np.arange(len(u)), kept - 1], 0.0)
    return np.asarray(np.sign(point) * np.maximum(np.abs(point) - shift[:, None], 0.0))


def moreau_sgd(
    records: StructuredRecords,
    loss: L1Norm | PiecewiseLinear,
    *,
    epsilon: float,
    delta: float,
    radius: float,
    rng: np.random.Generator | int | None = None,
    noise: str = "sound",
) -> Array:
    r"""Return the mean iterate of noisy batch steps on the Moreau envelope.

    ``T = min(n/8, epsilon^2 n^2 / (32 d log(1/delta)))`` steps on batches of
    ``n sqrt(epsilon / (4 T))`` records; in theta the envelope has smoothness
    ``(L/R) min(sqrt(n)/4, epsilon n / (8 sqrt(d log(1/delta))))``; the rate is
    ``R / sqrt(T (L^2 + d std^2))``, at most one over the smoothness. Parameters as for
    :func:`noisy_sgd`; published is ``std^2 = 8 T L^2 log(1/delta) / (n epsilon)^2``.
    """
    n = records.n_rows
    d = records.dim
    norm = records.operator_norm
    lipschitz = norm * loss.lipschitz
    price = d * math.log(1 / delta)
    steps, batch = _batches(n, d, epsilon, delta)
    std = lipschitz * _std(batch, steps, n, epsilon, delta, noise)
    smoothness = lipschitz / radius * min(math.sqrt(n) / 4, epsilon * n / (8 * math.sqrt(price)))
    rate = radius / math.sqrt(steps * (lipschitz**2 + d * std**2))
    rate = min(rate, 1 / smoothness)
    generator = np.random.default_rng(rng)
    theta = np.zeros(d)
    total = np.zeros(d)
    for _ in range(steps):
        rows = generator.choice(n, batch, replace=False)
        A = records.matrices[rows]
        Y = records.targets[rows]
        slopes = moreau_gradient(loss, Y - A @ theta, smoothness / norm**2)
        gradient = -np.einsum("ij,ijk->k", slopes, A) / batch + std * generator.standard_normal(d)
        theta = theta - rate * gradient
        theta *= min(1.0, radius / max(float(np.linalg.norm(theta)), 1e-300))
        total += theta
    return total / steps
