r"""One member of each of the paper's four classes of means, on a finite population.

The population is a thousand records with ``||x|| <= 1``, and a data set is n draws from it, kept as
counts: the risk of a million records costs no more than that of the distinct ones.

- ``strongly convex``: half the absolute residual (median regression) plus ``(mu/2) ||w||^2``. Half
  of the targets are exact, so that F has a kink at its minimiser and grows linearly away from it,
  as the class allows.
- ``smooth strongly convex``: logistic loss plus ``(mu/2) ||w||^2``.
- ``convex`` and ``smooth convex``: the same losses without a penalty, on a ball that holds the
  minimisers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic, Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.solvers import BlackBox
from dpconvex.solvers.duality_gap import envelope_of
from dpconvex_reproduction.output_perturbation.presets import OutputProblem

__all__ = ["FAMILIES", "Draw", "Member", "member", "minimise", "unit_rows"]

Array = NDArray[np.float64]

FAMILIES = ("strongly convex", "smooth strongly convex", "convex", "smooth convex")
POPULATION = 1000
MU = 0.05
_STEEPNESS = 2.0  # norm of the coefficients behind the labels
_SIGNAL = (
    0.5  # norm of those behind the targets: short enough that the penalty leaves the kink in place
)
_VANISHING = 1e-7  # a penalty too small to matter, for minimisers of convex objectives


def unit_rows(count: int, d: int, rng: np.random.Generator) -> Array:
    """Return rows drawn uniformly from the unit sphere."""
    X = rng.standard_normal((count, d))
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


@dataclass(frozen=True)
class Member:
    """Public facts of a member.

    Attributes
    ----------
    family : str
        Its class.
    loss : Loss
        Pointwise loss of a record; rows have norm at most 1.
    mu : float
        Penalty that belongs to the objective; 0 in the convex classes.
    radius : float
        ``R``: a ball that holds the minimisers of all data sets if ``mu > 0``, of these data sets
        otherwise.
    d : int
        Coefficients; there is no intercept.
    """

    family: str
    loss: Any
    mu: float
    radius: float
    d: int

    @property
    def lipschitz(self) -> float:
        """``L`` on the ball, the penalty's part ``mu R`` included as in the paper."""
        return float(self.loss.lipschitz) + self.mu * self.radius

    def problem(self, n: int, epsilon: float, delta: float, mean: bool = True) -> OutputProblem:
        """Return what the paper's theorems ask for."""
        return OutputProblem(
            self.lipschitz,
            self.radius,
            n,
            self.d,
            epsilon,
            delta,
            strong_convexity=self.mu,
            smoothness=float(self.loss.smoothness) + self.mu,
            mean=mean,
        )

    @property
    def row_map(self) -> RowMap:
        """Rows as they are, shortened to norm 1."""
        return RowMap(self.d, 1.0, fit_intercept=False)


def member(family: str, d: int) -> Member:
    """Return the member of a class in d dimensions.

    With a penalty, ``mu ||w|| <= slope`` and ``(mu/2) ||w||^2 <= F(0)`` at every minimiser: targets
    lie in [-1, 1].
    """
    loss: Any = Logistic() if "smooth" in family else Pinball(0.5)
    if "strongly" not in family:
        return Member(family, loss, 0.0, 2 * _STEEPNESS if "smooth" in family else 2.0, d)
    start = math.log(2) if "smooth" in family else 0.5
    radius = min(float(loss.lipschitz) / MU, math.sqrt(2 * start / MU))
    return Member(family, loss, MU, radius, d)


class Draw:
    """A population, and n records drawn from it.

    Parameters
    ----------
    member : Member
        Which objective.
    n : int
        Records.
    seed : int
        Everything random follows from it; the population does not depend on n.
    """

    def __init__(self, member: Member, n: int, seed: int) -> None:
        rng = np.random.default_rng([seed, member.d, len(member.family)])
        self.member = member
        self.n = n
        self.X = unit_rows(POPULATION, member.d, rng)
        truth = unit_rows(1, member.d, rng)[0]
        margins = _SIGNAL * (self.X @ truth)
        if "smooth" in member.family:
            positive = rng.random(POPULATION) < expit(_STEEPNESS * (self.X @ truth))
            self.y = np.where(positive, 1.0, -1.0)
        else:
            noisy = np.arange(POPULATION) % 2 == 0
            blurred = margins + 0.3 * rng.standard_normal(POPULATION)
            self.y = np.clip(np.where(noisy, blurred, margins), -1.0, 1.0)
        self.counts = rng.multinomial(n, np.full(POPULATION, 1 / POPULATION)).astype(float)

    def objective(self, alpha: float, loss: Any = None) -> EmpiricalObjective:
        """Return the mean over the n records plus ``(alpha/2) ||w||^2``."""
        return self._mean(self.counts, self.n, alpha, loss)

    def _mean(self, counts: Array, n: int, alpha: float, loss: Any = None) -> EmpiricalObjective:
        rows = MemoryRows(self.X, self.y, self.member.row_map, weights=counts)
        return EmpiricalObjective(rows, loss or self.member.loss, alpha, divisor=n)

    def objective_of_records(self, alpha: float, loss: Any = None) -> EmpiricalObjective:
        """Return `objective` over the n records one by one, which a release compares with its
        certificate.
        """
        rows = MemoryRows(*self.expanded(), self.member.row_map)
        return EmpiricalObjective(rows, loss or self.member.loss, alpha)

    def expanded(self) -> tuple[Array, Array]:
        """Return the n records one by one, for estimators."""
        chosen = np.repeat(np.arange(POPULATION), self.counts.astype(int))
        return self.X[chosen], self.y[chosen]

    def risks(self, points: Array, population: bool) -> Array:
        """Return the member's objective at each point: over the n records, or over the
        population.
        """
        weights = np.full(POPULATION, 1 / POPULATION) if population else self.counts / self.n
        losses = self.member.loss.value(self.y, points @ self.X.T) @ weights
        return np.asarray(losses + self.member.mu / 2 * np.einsum("ij,ij->i", points, points))

    @cached_property
    def empirical_minimiser(self) -> Array:
        """Minimiser over the n records."""
        return minimise(self.objective(self.member.mu or _VANISHING))

    @cached_property
    def population_minimiser(self) -> Array:
        """Minimiser over the population."""
        ones = np.ones(POPULATION)
        return minimise(self._mean(ones, POPULATION, self.member.mu or _VANISHING))

    def excess(self, points: Array, population: bool) -> float:
        """Return the mean excess risk of the points; in the convex classes over the best point
        of the ball.
        """
        best = self.population_minimiser if population else self.empirical_minimiser
        lowest = self.risks(best[None, :], population)[0]
        return float(np.mean(self.risks(points, population)) - lowest)


def minimise(objective: EmpiricalObjective) -> Array:
    """Return the minimiser of a penalised mean, to many digits."""
    if not math.isfinite(objective.loss.smoothness):
        objective = envelope_of(objective, 1e5)
    return BlackBox().solve(objective, np.zeros(objective.dim), 1e-10).point
