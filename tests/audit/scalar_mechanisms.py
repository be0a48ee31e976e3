"""Small mechanisms sampled exactly and by the hundred thousand, with their exact densities.

An estimator is too slow to be run 3e5 times. Its noise calibration is not: in one or two
dimensions the minimiser of a perturbed objective is found for all noise draws at once, and its
density is known in closed form, so the audit can use the best of all statistics, the exact
likelihood ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.losses import Loss
from dpconvex.types import Array


class ScalarMechanism(Protocol):
    """A mechanism on one fixed data set: it can be run, and its output has a density."""

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Outputs of ``count`` independent runs."""
        ...

    def log_density(self, outputs: ArrayLike) -> Array:
        """Logarithm of the output density."""
        ...


@dataclass(frozen=True)
class GaussianRelease:
    """A number released with Gaussian noise of standard deviation ``std``.

    Parameters
    ----------
    center : float
        The exact value on this data set.
    std : float
        Standard deviation of the noise.
    """

    center: float
    std: float

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Outputs of ``count`` independent runs, shape (count,)."""
        return self.center + self.std * rng.standard_normal(count)

    def log_density(self, outputs: ArrayLike) -> Array:
        """Logarithm of the output density."""
        scaled = (np.asarray(outputs, dtype=np.float64) - self.center) / self.std
        return -0.5 * scaled**2 - math.log(self.std * math.sqrt(2.0 * math.pi))


@dataclass(frozen=True)
class LaplaceRelease:
    """A number released with Laplace noise, the l2-Laplace law in one dimension.

    Parameters
    ----------
    center : float
        The exact value on this data set.
    scale : float
        The noise has density ``exp(-|b| / scale) / (2 scale)``.
    """

    center: float
    scale: float

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Outputs of ``count`` independent runs, shape (count,)."""
        return self.center + rng.laplace(scale=self.scale, size=count)

    def log_density(self, outputs: ArrayLike) -> Array:
        """Logarithm of the output density."""
        distance = np.abs(np.asarray(outputs, dtype=np.float64) - self.center)
        return -distance / self.scale - math.log(2.0 * self.scale)


@dataclass(frozen=True, eq=False)
class PerturbedObjective:
    """Exact minimiser of a small generalised linear objective with a random linear term.

    ``theta = argmin sum_i w_i loss(y_i, <x_i, theta>) + (ridge / 2) ||theta||^2 + <b, theta>``,
    a SUM over records, with ``b`` of law ``noise`` and scale ``scale`` in every direction. The
    density of theta is that of ``b = -J'(theta)`` times ``det J''(theta)``.

    Parameters
    ----------
    loss : Loss
        A loss with continuous derivative, see :mod:`dpconvex.losses`.
    rows : array of shape (n, k)
        Records as they enter the margin, the constant column of an intercept included. There may
        be none: give shape (0, k).
    targets : array of shape (n,)
        Targets or labels.
    ridge : float
        Strong convexity of the sum, ``n * alpha`` in terms of a mean objective.
    scale : float
        Standard deviation of each coordinate of ``b``, or the scale of the Laplace law.
    noise : {"gaussian", "laplace"}, default="gaussian"
        Law of ``b``; ``"laplace"`` has density proportional to ``exp(-||b|| / scale)``.
    weights : array of shape (n,) or float, default=1.0
        Influence weights.
    """

    loss: Loss
    rows: Array
    targets: Array
    ridge: float
    scale: float
    noise: str = "gaussian"
    weights: Array | float = 1.0

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] < 1:
            raise ValueError(
                "The 'rows' parameter of PerturbedObjective must have shape (n, k), k at least 1. "
                f"Got shape {rows.shape} instead."
            )
        if not self.ridge > 0 or not self.scale > 0:
            raise ValueError(
                "The 'ridge' and 'scale' parameters of PerturbedObjective must be positive. "
                f"Got {self.ridge!r} and {self.scale!r} instead."
            )
        if self.noise not in ("gaussian", "laplace"):
            raise ValueError(
                "The 'noise' parameter of PerturbedObjective must be 'gaussian' or 'laplace'. "
                f"Got {self.noise!r} instead."
            )
        if not math.isfinite(self.loss.lipschitz):
            raise ValueError(
                "The 'loss' parameter of PerturbedObjective must have a bounded slope. Got "
                "lipschitz=inf instead."
            )
        for name, value in {
            "rows": rows,
            "targets": np.asarray(self.targets, dtype=np.float64),
            "weights": np.broadcast_to(np.asarray(self.weights, dtype=np.float64), len(rows)),
        }.items():
            object.__setattr__(self, name, value)

    def _value(self, theta: Array, tilt: Array) -> Array:
        margins = theta @ self.rows.T
        data = self.loss.value(self.targets, margins) @ self.weights
        ridge = 0.5 * self.ridge * np.einsum("ij,ij->i", theta, theta)
        return np.asarray(data + ridge + np.einsum("ij,ij->i", tilt, theta))

    def gradient(self, theta: ArrayLike) -> Array:
        """Gradient of the unperturbed objective at each of the points, shape (count, k)."""
        theta = np.atleast_2d(np.asarray(theta, dtype=np.float64))
        slopes = self.loss.gradient(self.targets, theta @ self.rows.T) * self.weights
        return np.asarray(slopes @ self.rows + self.ridge * theta)

    def hessian(self, theta: ArrayLike) -> Array:
        """Hessian of the objective at each of the points, shape (count, k, k)."""
        theta = np.atleast_2d(np.asarray(theta, dtype=np.float64))
        curvatures = self.loss.curvature(self.targets, theta @ self.rows.T) * self.weights
        outer = np.einsum("ij,ik->ijk", self.rows, self.rows)
        return np.asarray(
            np.tensordot(curvatures, outer, axes=1) + self.ridge * np.eye(self.rows.shape[1])
        )

    def minimise(self, tilts: ArrayLike) -> Array:
        """Minimisers for the given linear terms: shape (count, k) in, shape (count, k) out.

        Monotone bracketing in one dimension, damped Newton beyond; both end only where the
        gradient vanishes up to rounding.
        """
        tilts = np.asarray(tilts, dtype=np.float64)
        if self.rows.shape[1] == 1:
            return self._bracket(tilts[:, 0])[:, None]
        # Blocks that fit in the cache are several times faster than one pass over everything.
        blocks = np.array_split(tilts, max(1, len(tilts) // 8192))
        return np.concatenate([self._newton(block) for block in blocks])

    def _tolerance(self, tilts: Array) -> Array:
        reach = float(np.abs(self.rows).sum()) * self.loss.lipschitz
        return 1e-12 * (np.abs(tilts).sum(axis=-1) + reach + self.ridge)

    def _bracket(self, tilts: Array) -> Array:
        """Solve ``J'(theta) = -tilt`` by Newton steps kept inside a shrinking bracket."""
        target = -tilts
        tolerance = self._tolerance(tilts[:, None])
        reach = float(np.abs(self.rows[:, 0] * self.weights).sum() * self.loss.lipschitz)
        low = (target - reach) / self.ridge - 1e-9
        high = (target + reach) / self.ridge + 1e-9
        # J' is increasing, so a table of it brackets every root between two of its nodes.
        nodes = np.linspace(low.min(), high.max(), 2048)
        slopes = self.gradient(nodes[:, None])[:, 0]
        cell = np.clip(np.searchsorted(slopes, target), 1, len(nodes) - 1)
        low = np.maximum(low, nodes[cell - 1])
        high = np.minimum(high, nodes[cell])
        theta = 0.5 * (low + high)
        active = np.arange(len(theta))
        for _ in range(200):
            point = theta[active]
            slope = self.gradient(point[:, None])[:, 0] - target[active]
            rising = slope > 0
            high[active[rising]] = point[rising]
            low[active[~rising]] = point[~rising]
            step = point - slope / self.hessian(point[:, None])[:, 0, 0]
            inside = (step > low[active]) & (step < high[active])
            theta[active] = np.where(inside, step, 0.5 * (low[active] + high[active]))
            width = np.spacing(np.maximum(np.abs(low[active]), np.abs(high[active])))
            done = (np.abs(slope) <= tolerance[active]) | (high[active] - low[active] <= 2 * width)
            theta[active[done]] = point[done]
            active = active[~done]
            if not len(active):
                return theta
        raise RuntimeError(
            "The bracketing of PerturbedObjective did not close: a loss with a kink?"
        )

    def _newton(self, tilts: Array) -> Array:
        theta = -tilts / self.ridge
        tolerance = self._tolerance(tilts)
        active = np.arange(len(theta))
        for _ in range(200):
            point = theta[active]
            tilt = tilts[active]
            slope = self.gradient(point) + tilt
            going = np.linalg.norm(slope, axis=1) > tolerance[active]
            active = active[going]
            point = point[going]
            tilt = tilt[going]
            slope = slope[going]
            if not len(active):
                return theta
            step = np.linalg.solve(self.hessian(point), slope[..., None])[..., 0]
            descent = np.einsum("ij,ij->i", slope, step)
            value = self._value(point, tilt)
            length = np.ones(len(active))
            # Near the minimum values agree to rounding and only the full step makes sense.
            slack = 1e-13 * (1.0 + np.abs(value))
            for _ in range(40):
                trial = self._value(point - length[:, None] * step, tilt)
                short = trial > value - 1e-4 * length * descent + slack
                if not short.any():
                    break
                length[short] *= 0.5
            theta[active] = point - length[:, None] * step
        raise RuntimeError("Newton's method of PerturbedObjective did not converge.")

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Outputs of ``count`` independent runs: shape (count,) if k = 1, else (count, k)."""
        dim = self.rows.shape[1]
        tilts = rng.standard_normal((count, dim))
        if self.noise == "gaussian":
            tilts *= self.scale
        else:
            lengths = rng.gamma(dim, self.scale, size=count)
            tilts *= (lengths / np.linalg.norm(tilts, axis=1))[:, None]
        theta = self.minimise(tilts)
        return theta[:, 0] if dim == 1 else theta

    def log_density(self, outputs: ArrayLike) -> Array:
        """Logarithm of the output density, ``log f_b(-J'(theta)) + log det J''(theta)``."""
        dim = self.rows.shape[1]
        theta = np.asarray(outputs, dtype=np.float64).reshape(-1, dim)
        length = np.linalg.norm(self.gradient(theta), axis=1) / self.scale
        if self.noise == "gaussian":
            log_law = -0.5 * length**2 - 0.5 * dim * math.log(2.0 * math.pi)
        else:
            sphere = math.log(2.0) + 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim)
            log_law = -length - sphere - math.lgamma(dim)
        jacobian = np.linalg.slogdet(self.hessian(theta))[1]
        return np.asarray(log_law - dim * math.log(self.scale) + jacobian)


def likelihood_ratio(first: ScalarMechanism, second: ScalarMechanism) -> Callable[[Array], Array]:
    """Exact log-likelihood ratio of two mechanisms, the most powerful statistic of an audit.

    ``statistic(outputs) = log p_first(outputs) - log p_second(outputs)``.

    Examples
    --------
    >>> ratio = likelihood_ratio(GaussianRelease(0.0, 1.0), GaussianRelease(1.0, 1.0))
    >>> ratio(np.array([0.5, 1.5])).round(6).tolist()
    [0.0, -1.0]
    """

    def statistic(outputs: Array) -> Array:
        return first.log_density(outputs) - second.log_density(outputs)

    return statistic
