r"""Simulated newsvendor demand, with its best coefficients and its exact risk.

A population knows its expected pinball loss in closed form or by quadrature, so an excess risk has
no sampling error. For a normal residual, :math:`u \sim N(m, s^2)`:

.. math:: E\, \rho_\tau(u) = \tau m + s\, \varphi(m/s) - m\, \Phi(-m/s).
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import gamma, ndtr, ndtri, stdtr, stdtrit

from dpconvex.core.checks import check_count, parameter_error
from dpconvex.types import Array

__all__ = ["NewsvendorPopulation", "Synthetic", "make_newsvendor"]

Seed = int | np.random.Generator | None


class Population(Protocol):
    """Source of samples: the coefficients of least risk, and the expected loss of any
    coefficients.
    """

    @property
    def theta_star(self) -> Array: ...

    def risk(self, theta: ArrayLike) -> float: ...


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A sample and the population it was drawn from.

    Attributes
    ----------
    X, y : array
        The sample. Linear models: ``X`` without the constant column. Structured losses: ``X`` is
        A of shape (n, m, d) and ``y`` is Y of shape (n, m).
    population : Population
        Exact risk and best coefficients.
    feature_names : tuple of str
        Names of the columns.
    """

    X: Array
    y: Array
    population: Population
    feature_names: tuple[str, ...]

    @property
    def theta_star(self) -> Array:
        """The coefficients of least risk; the intercept first, where there is one."""
        return self.population.theta_star

    def risk(self, theta: ArrayLike) -> float:
        """Return the expected loss of ``theta`` on a fresh record."""
        return self.population.risk(theta)

    def excess_risk(self, theta: ArrayLike) -> float:
        """Return ``risk(theta) - risk(theta_star)``."""
        return self.population.risk(theta) - self.population.risk(self.theta_star)

    def relative_excess_risk(self, theta: ArrayLike) -> float:
        """Return ``(risk(theta) - risk(theta_star)) / risk(theta_star)``."""
        return self.excess_risk(theta) / self.population.risk(self.theta_star)


def expected_pinball(mean: ArrayLike, std: ArrayLike, quantile: float) -> Array:
    """Return the expected pinball loss of a normal residual."""
    m = np.asarray(mean, dtype=np.float64)
    s = np.asarray(std, dtype=np.float64)
    density = np.exp(-0.5 * (m / s) ** 2) / math.sqrt(2 * math.pi)
    return np.asarray(quantile * m + s * density - m * ndtr(-m / s))


NEWSVENDOR_ERRORS = ("normal", "t3", "mixture")
# Weight and standard deviation of the normal parts of the error.
_NORMAL_PARTS = {"normal": ((1.0, 1.0),), "mixture": ((0.9, 1.0), (0.1, 10.0))}


@dataclass(frozen=True)
class NewsvendorPopulation:
    """The linear demand of the newsvendor experiments: see :func:`make_newsvendor`."""

    dim: int = 5
    error: str = "normal"
    quantile: float = 0.5

    @cached_property
    def location(self) -> Array:
        """Coefficients of the demand, before the error."""
        return np.asarray(np.r_[1.5, np.resize([1.0, -2.5, -1.5, 3.0], self.dim - 1)])

    @cached_property
    def covariance(self) -> Array:
        """``0.5^|j - k|``."""
        index = np.arange(self.dim - 1)
        return np.asarray(0.5 ** np.abs(index[:, None] - index[None, :]))

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a data set of ``n`` records."""
        X = rng.normal(size=(n, self.dim - 1)) @ np.linalg.cholesky(self.covariance).T
        if self.error == "t3":
            noise = rng.standard_t(3, size=n)
        else:
            weights, stds = zip(*_NORMAL_PARTS[self.error], strict=True)
            noise = rng.normal(size=n) * rng.choice(stds, size=n, p=weights)
        return X, self.location[0] + X @ self.location[1:] + noise

    @cached_property
    def theta_star(self) -> Array:
        """The coefficients of least cost: the error's quantile is added to the intercept."""

        def excess(point: float) -> float:
            return (
                float(sum(w * ndtr(point / s) for w, s in _NORMAL_PARTS["mixture"])) - self.quantile
            )

        best = self.location.copy()
        if self.error == "mixture":
            best[0] += float(brentq(excess, -400.0, 400.0, xtol=1e-13))
        else:
            best[0] += float(
                ndtri(self.quantile) if self.error == "normal" else stdtrit(3, self.quantile)
            )
        return best

    def risk(self, theta: ArrayLike) -> float:
        """Return the data set's expected cost of ordering by ``theta``, with costs quantile and
        1 - quantile.
        """
        gap = self.location - check_dataset_coefficients(theta, self.dim)
        variance = float(gap[1:] @ self.covariance @ gap[1:])
        if self.error != "t3":
            parts = ((w, math.sqrt(s * s + variance)) for w, s in _NORMAL_PARTS[self.error])
            return float(sum(w * expected_pinball(gap[0], std, self.quantile) for w, std in parts))
        nodes, weights = _normal_nodes()
        # E rho(mean + T), T Student-3, from E (a - T)_+ = a F(a) + (3 + a^2) f(a) / 2.
        mean = gap[0] + math.sqrt(variance) * nodes
        a = -mean
        density = gamma(2.0) / (math.sqrt(3 * math.pi) * gamma(1.5)) * (1 + a * a / 3) ** -2
        cost = self.quantile * mean + a * stdtr(3, a) + (3 + a * a) / 2 * density
        return float(weights @ cost / weights.sum())


@cache
def _normal_nodes() -> tuple[Array, Array]:
    """Quadrature over a standard normal; finding the nodes takes longer than using them."""
    return np.polynomial.hermite_e.hermegauss(120)


def make_newsvendor(
    n: int, p: int = 5, error: str = "normal", rng: Seed = None, *, quantile: float = 0.5
) -> Synthetic:
    """Draw a data set: the linear demand of the newsvendor experiments.

    ``demand = 1.5 + z . (1, -2.5, -1.5, 3) + e``, z normal with covariance ``0.5^|j - k|``, and e
    standard normal, Student with 3 degrees of freedom, or ``0.9 N(0, 1) + 0.1 N(0, 100)``.

    Parameters
    ----------
    n : int
        Number of records.
    p : int
        Number of coefficients, the intercept included. The study has 5; the four slopes repeat.
    error : {"normal", "t3", "mixture"}
        Law of e.
    rng : int, Generator or None
        Source of randomness.
    quantile : float
        Underage cost; the overage cost is one minus it.

    Examples
    --------
    >>> make_newsvendor(100, rng=0).theta_star.tolist()
    [1.5, 1.0, -2.5, -1.5, 3.0]
    """
    if error not in NEWSVENDOR_ERRORS:
        raise parameter_error(
            "error", "make_newsvendor", f"one of {NEWSVENDOR_ERRORS}", repr(error)
        )
    check_count("p", "make_newsvendor", p, 2)
    check_quantile(quantile, "make_newsvendor")
    population = NewsvendorPopulation(int(p), error, float(quantile))
    X, y = population.sample(check_count("n", "make_newsvendor", n), np.random.default_rng(rng))
    return Synthetic(X, y, population, tuple(f"z{k}" for k in range(1, p)))


def check_quantile(quantile: float, owner: str) -> None:
    """Raise unless the level is strictly between 0 and 1."""
    if not 0 < quantile < 1:
        raise parameter_error("quantile", owner, "in (0, 1)", repr(quantile))


def check_dataset_coefficients(theta: ArrayLike, dim: int) -> Array:
    """Return coefficients as an array of this length, or raise."""
    vector = np.asarray(theta, dtype=np.float64)
    if vector.shape != (dim,):
        raise ValueError(
            f"The 'theta' parameter of risk must have shape ({dim},), the intercept first. "
            f"Got shape {vector.shape} instead."
        )
    return vector
