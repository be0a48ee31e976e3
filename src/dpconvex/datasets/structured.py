r"""Samples for losses of a whole residual vector: a record is a matrix A and a vector Y.

``Y = A theta + w``, w standard normal with m = 3 coordinates, entries of A normal with variance 1
around a fixed matrix M. The residual of any coefficients is then
:math:`M \Delta + \sqrt{1 + \|\Delta\|^2}\, g`, g standard normal and
:math:`\Delta = \theta^* - \theta`: the risk needs no sample of A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dpconvex.checks import check_count
from dpconvex.datasets.synthetic import Seed, Synthetic
from dpconvex.types import Array

BASE_MEAN = np.array([[1.0, 0.5, 0.0, 0.0, 1.0], [0.5, 0.5, 0.0, 0.0, 1.0], [0.0, 0.0, -0.5, 0.0, 1.0]])
BASE_THETA = np.array([0.5, -0.5, 1.0, -1.0, 1.0])


@dataclass(frozen=True)
class MatrixPopulation:
    """The matrix model of d = 5 coefficients, repeated side by side for larger d."""

    dim: int = 5
    fixed: bool = False

    @cached_property
    def mean(self) -> Array:
        """M, the mean of A."""
        return np.tile(BASE_MEAN, (1, self.dim // 5))

    @cached_property
    def theta_star(self) -> Array:
        """Coefficients of least risk; with a fixed A any others with the same ``A theta`` too."""
        return np.tile(BASE_THETA, self.dim // 5)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw ``n`` records."""
        A = np.broadcast_to(self.mean, (n, *self.mean.shape)).copy()
        if not self.fixed:
            A += rng.normal(size=A.shape)
        return A, A @ self.theta_star + rng.normal(size=(n, len(self.mean)))

    def residual(self, theta: ArrayLike) -> tuple[Array, float]:
        """Return mean and standard deviation of the independent normal residuals."""
        vector = np.asarray(theta, dtype=np.float64)
        if vector.shape != (self.dim,):
            raise ValueError(
                f"The 'theta' parameter of risk must have shape ({self.dim},). Got shape {vector.shape} instead."
            )
        gap = self.theta_star - vector
        return self.mean @ gap, 1.0 if self.fixed else math.sqrt(1 + float(gap @ gap))


@dataclass(frozen=True)
class MedianPopulation(MatrixPopulation):
    """The l1 loss ``||Y - A theta||_1``."""

    def risk(self, theta: ArrayLike) -> float:
        """Return the expected loss, by the mean of a folded normal."""
        m, s = self.residual(theta)
        folded = s * math.sqrt(2 / math.pi) * np.exp(-0.5 * (m / s) ** 2) + m * (1 - 2 * ndtr(-m / s))
        return float(folded.sum())


@dataclass(frozen=True)
class PiecewiseLinearPopulation(MatrixPopulation):
    """The loss ``max_p <a_p, Y - A theta> + b_p``, even in the residual."""

    slopes: tuple[tuple[float, ...], ...] = ()
    offsets: tuple[float, ...] = ()

    def risk(self, theta: ArrayLike) -> float:
        """Return the expected loss over a fixed symmetric set of 2^16 normal points."""
        m, s = self.residual(theta)
        values = (m + s * _normal_points(len(m))) @ np.array(self.slopes).T + np.array(self.offsets)
        return float(values.max(axis=1).mean())


@lru_cache(maxsize=4)
def _normal_points(dim: int) -> Array:
    """Return a low-discrepancy normal sample and its mirror image."""
    from scipy.stats import qmc

    uniform = qmc.Sobol(dim, scramble=True, rng=np.random.default_rng(0)).random_base2(15)
    points = ndtri(np.clip(uniform, 1e-12, 1 - 1e-12))
    return np.concatenate([points, -points])


def make_structured_median(n: int, d: int = 5, rng: Seed = None, *, fixed: bool = False) -> Synthetic:
    """Draw records (A, Y) of the high-dimensional median experiment.

    Parameters
    ----------
    n : int
        Number of records.
    d : int
        Number of coefficients, a multiple of 5.
    rng : int, Generator or None
        Source of randomness.
    fixed : bool
        Keep A at its mean in every record.

    Returns
    -------
    Synthetic
        ``X`` is A of shape (n, 3, d), ``y`` is Y of shape (n, 3), ``risk`` is the expected
        ``||Y - A theta||_1``.

    Examples
    --------
    >>> sample = make_structured_median(100, rng=0)
    >>> sample.X.shape, sample.y.shape
    ((100, 3, 5), (100, 3))
    >>> round(sample.risk(sample.theta_star), 6)  # 3 sqrt(2 / pi)
    2.393654
    """
    dim = _check_dim(d, "make_structured_median")
    return _draw(n, rng, MedianPopulation(dim, fixed), "make_structured_median")


def make_piecewise_linear(
    n: int,
    d: int = 5,
    rng: Seed = None,
    *,
    slopes: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
    fixed: bool = False,
) -> Synthetic:
    """Draw records (A, Y) of the piecewise linear experiment.

    Parameters
    ----------
    n : int
        Number of records.
    d : int
        Number of coefficients, a multiple of 5.
    rng : int, Generator or None
        Source of randomness.
    slopes : array of shape (P, 3) or None
        The vectors a_p. The study does not print its own; None means plus and minus the unit
        vectors, which is the largest absolute residual. With a piece (a, b) there must be (-a, b):
        then the model's coefficients are the best ones.
    offsets : array of shape (P,) or None
        The numbers b_p; None means zero.
    fixed : bool
        Keep A at its mean in every record.

    Returns
    -------
    Synthetic
        ``X`` is A of shape (n, 3, d), ``y`` is Y of shape (n, 3).
    """
    owner = "make_piecewise_linear"
    dim = _check_dim(d, owner)
    a = np.concatenate([np.eye(3), -np.eye(3)]) if slopes is None else np.asarray(slopes, float)
    if a.ndim != 2 or a.shape[1] != 3:
        raise ValueError(f"The 'slopes' parameter of {owner} must have shape (P, 3). Got shape {a.shape} instead.")
    b = np.zeros(len(a)) if offsets is None else np.asarray(offsets, float)
    if b.shape != (len(a),):
        raise ValueError(
            f"The 'offsets' parameter of {owner} must have shape ({len(a)},), one per slope. "
            f"Got shape {b.shape} instead."
        )
    pieces = {(*map(float, row), float(c)) for row, c in zip(a, b, strict=True)}
    if any((*(-v for v in piece[:3]), piece[3]) not in pieces for piece in pieces):
        raise ValueError(
            f"The 'slopes' parameter of {owner} must hold -a with every a, with the same offset: "
            "otherwise the best coefficients are not those of the model. Add the missing pieces."
        )
    population = PiecewiseLinearPopulation(dim, fixed, tuple(tuple(map(float, row)) for row in a), tuple(map(float, b)))
    return _draw(n, rng, population, owner)


def _check_dim(d: int, owner: str) -> int:
    if not isinstance(d, (int, np.integer)) or d < 5 or d % 5:
        raise ValueError(f"The 'd' parameter of {owner} must be a positive multiple of 5. Got {d!r} instead.")
    return int(d)


def _draw(n: int, rng: Seed, population: MedianPopulation | PiecewiseLinearPopulation, owner: str) -> Synthetic:
    A, Y = population.sample(check_count("n", owner, n), np.random.default_rng(rng))
    return Synthetic(A, Y, population, tuple(f"theta{k}" for k in range(1, population.dim + 1)))
