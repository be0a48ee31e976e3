r"""Simulated records of the papers' experiments, with their best coefficients and their exact risk.

Quantile regression: a linear model with normal features. Structured losses: a record is a matrix A
and a vector Y with ``Y = A theta + w``, w standard normal with 3 coordinates, entries of A normal
with variance 1 around a fixed matrix M. The residual of any coefficients is then
:math:`M \Delta + \sqrt{1 + \|\Delta\|^2}\, g`, g standard normal and
:math:`\Delta = \theta^* - \theta`, so the risk needs no sample of A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpconvex.core.checks import check_count
from dpconvex.datasets import (
    Seed,
    Synthetic,
    check_dataset_coefficients,
    check_quantile,
    expected_pinball,
)
from dpconvex.types import Array


@dataclass(frozen=True)
class QuantilePopulation:
    """The linear models of the quantile experiments: see :func:`make_quantile_regression`."""

    dim: int = 3
    error: str = "exogenous"
    quantile: float = 0.7

    noise_std = 3.0
    radius = 10.0

    @cached_property
    def location(self) -> Array:
        """Intercept and slopes of the model, before the error."""
        if self.dim == 3:
            return np.array([10.0, 5.0, -2.0])
        theta = np.linspace(-2.0, 5.0, self.dim)
        # The first feature is the constant 1.
        theta[0] += 10.0
        return theta

    @cached_property
    def feature_std(self) -> Array:
        """Standard deviation of each feature."""
        if self.dim == 3:
            return np.array([2.0, 3.0])
        return np.full(self.dim - 1, (self.dim - 1) ** -0.25)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw ``n`` records."""
        X = rng.normal(size=(n, self.dim - 1)) * self.feature_std
        while True:
            outside = np.flatnonzero(np.linalg.norm(X, axis=1) > self.radius)
            if not len(outside):
                break
            X[outside] = rng.normal(size=(len(outside), self.dim - 1)) * self.feature_std
        y = self.location[0] + X @ self.location[1:] + self._endogenous(X)
        return X, y + self.noise_std * rng.normal(size=n)

    def _endogenous(self, X: Array) -> Array:
        if self.error == "exogenous":
            return np.zeros(len(X))
        return X[:, 0] - X[:, 1] + np.abs(X[:, 0] * X[:, 1])

    @cached_property
    def _nodes(self) -> tuple[Array, Array]:
        """Quadrature over the first two features, in polar form, by quadrant.

        The error has a kink where a feature is zero, and the features end at a circle.
        """
        first, second = self.feature_std[:2]
        reach = min(self.radius, 12 * max(first, second))
        r, r_weight = np.polynomial.legendre.leggauss(80)
        r = (r + 1) * reach / 2
        r_weight = r_weight * reach / 2
        a, a_weight = np.polynomial.legendre.leggauss(30)
        angles = np.concatenate([(a + 1) * math.pi / 4 + k * math.pi / 2 for k in range(4)])
        a_weight = np.tile(a_weight, 4)
        x = np.stack([np.outer(r, np.cos(angles)).ravel(), np.outer(r, np.sin(angles)).ravel()], 1)
        density = np.exp(-0.5 * ((x[:, 0] / first) ** 2 + (x[:, 1] / second) ** 2))
        weight = np.outer(r * r_weight, a_weight).ravel() * density
        return x, weight / weight.sum()

    @cached_property
    def theta_star(self) -> Array:
        """The coefficients of least risk, intercept first.

        Exogenous error: the slopes of the model, and its intercept plus ``3 Phi^-1(quantile)``.
        Endogenous error: the residual's law is even in each feature once the linear part of the
        error is in the slopes, so the slopes are exact; the intercept solves one equation.
        """
        best = self.location.copy()
        if self.error == "exogenous":
            best[0] += self.noise_std * ndtri(self.quantile)
            return best
        best[1] += 1.0
        best[2] -= 1.0
        x, weight = self._nodes
        product = np.abs(x[:, 0] * x[:, 1])

        def excess(shift: float) -> float:
            return float(weight @ ndtr((shift - product) / self.noise_std)) - self.quantile

        best[0] += brentq(excess, -50.0, 100.0, xtol=1e-13)
        return best

    def risk(self, theta: ArrayLike) -> float:
        """Return the expected pinball loss of ``theta``, intercept first."""
        theta = check_dataset_coefficients(theta, self.dim)
        gap = self.location - theta
        x, weight = self._nodes
        mean = gap[0] + x @ gap[1:3] + self._endogenous(x)
        # The other features are normal: the ball holds them but for a mass below 1e-50.
        std = math.sqrt(self.noise_std**2 + float(np.sum((gap[3:] * self.feature_std[2:]) ** 2)))
        return float(weight @ expected_pinball(mean, std, self.quantile))


def make_quantile_regression(
    n: int, d: int = 3, error: str = "exogenous", rng: Seed = None, *, quantile: float = 0.7
) -> Synthetic:
    """Draw the linear model of the quantile experiments.

    With d = 3, ``y = 10 + 5 x_1 - 2 x_2 + e``, features normal with standard deviations 2 and 3,
    kept to the ball of radius 10. With larger d (the study has 51), d counts the constant feature:
    slopes rise evenly from -2 (of the constant) to 5, the other features are normal with variance
    ``1 / sqrt(d - 1)``. The error e is N(0, 9), and ``N(0, 9) + x_1 - x_2 + |x_1 x_2|`` if
    endogenous, x_1 and x_2 the first two features that vary.

    Parameters
    ----------
    n : int
        Number of records.
    d : int
        Number of coefficients, the intercept included: 3, or 4 to 1000.
    error : {"exogenous", "endogenous"}
        The error term.
    rng : int, Generator or None
        Source of randomness.
    quantile : float
        Level at which ``theta_star`` and ``risk`` are taken.

    Examples
    --------
    >>> make_quantile_regression(100, rng=0).theta_star.round(3).tolist()
    [11.573, 5.0, -2.0]
    """
    if error not in ("exogenous", "endogenous"):
        raise ValueError(
            "The 'error' parameter of make_quantile_regression must be 'exogenous' or "
            f"'endogenous'. Got {error!r} instead."
        )
    check_count("d", "make_quantile_regression", d, 3, 1000)
    check_quantile(quantile, "make_quantile_regression")
    population = QuantilePopulation(int(d), error, float(quantile))
    X, y = population.sample(
        check_count("n", "make_quantile_regression", n), np.random.default_rng(rng)
    )
    return Synthetic(X, y, population, tuple(f"x{k}" for k in range(1, d)))


BASE_MEAN = np.array(
    [[1.0, 0.5, 0.0, 0.0, 1.0], [0.5, 0.5, 0.0, 0.0, 1.0], [0.0, 0.0, -0.5, 0.0, 1.0]]
)
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
        gap = self.theta_star - check_dataset_coefficients(theta, self.dim)
        return self.mean @ gap, 1.0 if self.fixed else math.sqrt(1 + float(gap @ gap))


@dataclass(frozen=True)
class MedianPopulation(MatrixPopulation):
    """The l1 loss ``||Y - A theta||_1``."""

    def risk(self, theta: ArrayLike) -> float:
        """Return the expected loss, by the mean of a folded normal."""
        m, s = self.residual(theta)
        folded = s * math.sqrt(2 / math.pi) * np.exp(-0.5 * (m / s) ** 2) + m * (
            1 - 2 * ndtr(-m / s)
        )
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


def make_structured_median(
    n: int, d: int = 5, rng: Seed = None, *, fixed: bool = False
) -> Synthetic:
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
        raise ValueError(
            f"The 'slopes' parameter of {owner} must have shape (P, 3). Got shape {a.shape} "
            "instead."
        )
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
    population = PiecewiseLinearPopulation(
        dim, fixed, tuple(tuple(map(float, row)) for row in a), tuple(map(float, b))
    )
    return _draw(n, rng, population, owner)


def _check_dim(d: int, owner: str) -> int:
    if not isinstance(d, (int, np.integer)) or d < 5 or d % 5:
        raise ValueError(
            f"The 'd' parameter of {owner} must be a positive multiple of 5. Got {d!r} instead."
        )
    return int(d)


def _draw(
    n: int, rng: Seed, population: MedianPopulation | PiecewiseLinearPopulation, owner: str
) -> Synthetic:
    A, Y = population.sample(check_count("n", owner, n), np.random.default_rng(rng))
    return Synthetic(A, Y, population, tuple(f"theta{k}" for k in range(1, population.dim + 1)))
