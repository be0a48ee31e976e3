r"""Excess risk of objectives that are no means: one member of each class, where n does not help.

- ``strongly convex``: the largest absolute residual, ``max_i |y_i - x_i . w| + (mu/2) ||w||^2``,
  with exact targets ``y = x . w0``. The minimiser is ``w0``, because ``-mu w0`` is a convex
  combination of the rows and their negatives, which a linear program certifies.
- ``smooth strongly convex``: the logistic loss tilted with ``t = 1``, plus ``(mu/2) ||w||^2``.
- ``convex`` and ``smooth convex``: the same without a penalty.

The paper's bounds say something only if ``ratio = spread / epsilon <= 1``: epsilon runs from 100 to
100,000, budgets that protect nobody. They serve to see the rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import expit

from dpconvex import DPTiltedClassifier
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import TiltedObjective
from dpconvex.privacy import TiltedBounds, gaussian_scale
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.output_perturbation.members import FAMILIES, unit_rows
from dpconvex_reproduction.output_perturbation.presets import OutputProblem
from dpconvex_reproduction.output_perturbation.printed import (
    Printed,
    laplace_or_gaussian,
    printed,
    project,
    stopped_epsilon,
)
from dpconvex_reproduction.output_perturbation.risk_study import DELTA, NOISES, guarantee_of

__all__ = ["APPROXIMATE", "BASE", "GRIDS", "PURE", "GeneralMember", "general_member"]

Array = NDArray[np.float64]

MU = 0.1
TILT = 1.0
BASE = {"n": 200, "epsilon": 10_000.0, "d": 4}
GRIDS: dict[str, tuple[Any, ...]] = {
    "n": (100, 200, 400),
    "epsilon": (100.0, 1_000.0, 10_000.0, 100_000.0),
    "d": (2, 4, 8),
}
_SEEDS = {True: 4, False: 20}


@dataclass(frozen=True)
class GeneralMember:
    """A member on one data set.

    Attributes
    ----------
    family : str
        Its class.
    X, y : array
        Records, rows of norm 1.
    mu, radius : float
        Penalty that belongs to the objective, and the ball.
    best : array
        Minimiser.
    """

    family: str
    X: Array
    y: Array
    mu: float
    radius: float
    best: Array

    @property
    def smooth(self) -> bool:
        """Whether it is the tilted one."""
        return "smooth" in self.family

    def problem(self, epsilon: float, delta: float) -> OutputProblem:
        """Return what the paper's theorems ask for; one record's slope is 1."""
        smoothness = 0.25 + TILT + self.mu if self.smooth else math.inf
        n, d = self.X.shape
        return OutputProblem(
            1.0 + self.mu * self.radius,
            self.radius,
            n,
            d,
            epsilon,
            delta,
            strong_convexity=self.mu,
            smoothness=smoothness,
            mean=False,
        )

    def objective(self, alpha: float) -> TiltedObjective:
        """Return the tilted objective with a penalty (smooth classes)."""
        row_map = RowMap(self.X.shape[1], 1.0, fit_intercept=False)
        return TiltedObjective(MemoryRows(self.X, self.y, row_map), Logistic(), alpha, TILT)

    def bounds(self, alpha: float) -> TiltedBounds:
        """Return the public facts of the tilted objective (smooth classes)."""
        n, d = self.X.shape
        return TiltedBounds(n, d, Logistic(), 1.0, 1.0, fit_intercept=False, alpha=alpha, tilt=TILT)

    def sensitivity(self, alpha: float) -> float:
        """Return how far one record can move the minimiser over the ball, at most.

        For a maximum ``min(2 L / alpha, L_F / alpha, 2 R)``: the data term has slope ``L = 1``, the
        whole objective ``L_F = 1 + alpha R`` on the ball.
        """
        if self.smooth:
            return self.bounds(alpha).minimiser_sensitivity()
        return min(2 / alpha, (1 + alpha * self.radius) / alpha, 2 * self.radius)

    def risks(self, points: Array) -> Array:
        """Return the objective at each point."""
        margins = points @ self.X.T
        penalty = self.mu / 2 * np.einsum("ij,ij->i", points, points)
        if not self.smooth:
            return np.asarray(np.abs(self.y - margins).max(axis=1) + penalty)
        losses = TILT * np.logaddexp(0.0, -self.y * margins)
        top = losses.max(axis=1, keepdims=True)
        means = np.log(np.exp(losses - top).mean(axis=1)) + top[:, 0]
        return np.asarray(means / TILT + penalty)

    def excess(self, points: Array) -> float:
        """Return the mean excess over the minimiser."""
        return float(np.mean(self.risks(points)) - self.risks(self.best[None, :])[0])


def general_member(family: str, n: int, d: int, seed: int) -> GeneralMember:
    """Return the member of a class on data drawn with a seed."""
    rng = np.random.default_rng([seed, n, d])
    X = unit_rows(n, d, rng)
    truth = unit_rows(1, d, rng)[0]
    mu = MU if "strongly" in family else 0.0
    if "smooth" in family:
        y = np.where(rng.random(n) < expit(X @ truth), 1.0, -1.0)
        start = math.log(2)
        radius = 4.0
        best = np.zeros(d)
    else:
        y = X @ truth
        start = 1.0
        radius = 2.0
        best = truth
        _certify_kink(X, mu * truth)
    if mu > 0:
        radius = min(1.0 / mu, math.sqrt(2 * start / mu))
    found = GeneralMember(family, X, y, mu, radius, best)
    if not found.smooth:
        return found
    point = _minimise(found, mu or 1e-7)
    return GeneralMember(family, X, y, mu, radius, point)


def _certify_kink(X: Array, pull: Array) -> None:
    """Raise unless `pull` is a combination of rows and their negatives with weights of sum at
    most 1.
    """
    both = np.vstack([X, -X]).T
    found = linprog(np.ones(both.shape[1]), A_eq=both, b_eq=pull)
    if found.status != 0 or found.fun > 1:
        raise ValueError("The penalty moves the minimiser off the kink. Use a smaller one.")


def _minimise(kind: GeneralMember, alpha: float) -> Array:
    mechanism = OutputPerturbation()
    certificate = mechanism.certify(kind.bounds(alpha), guarantee_of(1.0, 0.0), seeded=True)
    return mechanism.minimise(kind.objective(alpha), certificate)


def settings() -> list[dict[str, Any]]:
    """Return the grid: one axis at a time through the base."""
    grid = [{**BASE, axis: value} for axis, values in GRIDS.items() for value in values]
    return [dict(items) for items in dict.fromkeys(tuple(point.items()) for point in grid)]


def cells(delta: float) -> Callable[[bool], list[Cell]]:
    """Return the list of cells for a delta."""

    def listed(quick: bool) -> list[Cell]:
        return [
            {"family": family, "delta": delta, "seed": seed, "grid": settings()}
            for seed in range(_SEEDS[quick])
            for family in FAMILIES
        ]

    return listed


def measure(cell: Cell) -> list[Row]:
    """Run every variant on one data set per setting."""
    return [
        row
        for point in cell["grid"]
        for row in _measure(cell["family"], cell["delta"], cell["seed"], **point)
    ]


def _measure(family: str, delta: float, seed: int, n: int, epsilon: float, d: int) -> list[Row]:
    kind = general_member(family, n, d, seed)
    pure = delta == 0
    problem = kind.problem(epsilon, delta)
    theirs = printed(problem)
    rng = np.random.default_rng([seed, 1])
    draws = rng.standard_normal((NOISES, d))
    norms = rng.gamma(d, size=NOISES)
    facts = {
        "family": family,
        "n": n,
        "epsilon": epsilon,
        "d": d,
        "delta": delta,
        "seed": seed,
        "risk": "empirical",
        "reference": theirs.reference,
        "bound": theirs.bound,
        "trivial": problem.lipschitz * problem.radius,
        "condition": theirs.holds,
    }
    if not kind.smooth:  # the penalised minimiser is still the kink
        _certify_kink(kind.X, theirs.alpha * kind.best)
    point = _minimise(kind, theirs.alpha) if kind.smooth else kind.best
    sizes = {"paper": theirs.noise.std, "sound": _sound(kind, theirs, epsilon, delta)}
    rows: list[Row] = []
    for variant, size in sizes.items():
        points = point + laplace_or_gaussian(draws, size, pure, norms)
        if not kind.smooth:
            points = project(points, kind.radius)
        rows.append(
            {
                **facts,
                "algorithm": theirs.algorithm,
                "variant": variant,
                "excess": kind.excess(points),
                "accuracy": theirs.accuracy if variant == "paper" else 0.0,
            }
        )
    rows[0]["true_epsilon"] = stopped_epsilon(
        kind.sensitivity(theirs.alpha), theirs.accuracy, theirs.alpha, theirs.noise.std, delta
    )
    name, point, size = _default(kind, epsilon, delta)
    points = project(point + laplace_or_gaussian(draws, size, pure, norms), kind.radius)
    ours = {"algorithm": name, "variant": "dpconvex", "excess": kind.excess(points)}
    exact = {"algorithm": "minimiser", "variant": "not private", "excess": 0.0}
    return [*rows, *({**facts, **line, "accuracy": 0.0} for line in (ours, exact))]


def _noise_size(sensitivity: float, epsilon: float, delta: float) -> float:
    return (
        sensitivity / epsilon if delta == 0 else float(gaussian_scale(epsilon, delta, sensitivity))
    )


def _sound(kind: GeneralMember, theirs: Printed, epsilon: float, delta: float) -> float:
    """Noise for a minimiser at the paper's penalty: by certificate, or for a maximum over the
    ball.
    """
    if kind.smooth:
        certificate = OutputPerturbation().certify(
            kind.bounds(theirs.alpha), guarantee_of(epsilon, delta), seeded=True
        )
        term = certificate.noise["release"]
        return float(term.get("std", term.get("scale")))
    return _noise_size(kind.sensitivity(theirs.alpha), epsilon, delta)


def _default(kind: GeneralMember, epsilon: float, delta: float) -> tuple[str, Array, float]:
    """Our default: the tilted classifier's certificate, or the penalty with the best bound for a
    maximum.
    """
    n, d = kind.X.shape
    if kind.smooth:
        model = DPTiltedClassifier(
            TILT,
            epsilon=epsilon,
            delta=delta,
            row_norm=1.0,
            fit_intercept=False,
            alpha=kind.mu or None,
            coef_bound=kind.radius,
            classes=[-1.0, 1.0],
            random_state=0,
        )
        certificate = model.certify(n, d)
        bounds: Any = certificate.bounds
        row_map = RowMap(d, 1.0, fit_intercept=False)
        objective = TiltedObjective(
            MemoryRows(kind.X, kind.y, row_map),
            bounds.loss,
            bounds.alpha,
            bounds.tilt,
            bounds.coef_bound,
            bounds.wall,
        )
        point = OutputPerturbation().minimise(objective, certificate)
        term = certificate.noise["release"]
        size = float(term.get("std", term.get("scale")))
        return "DPTiltedClassifier", point, size
    alphas = [kind.mu] if kind.mu else list(np.geomspace(1e-4, 10.0, 200))
    best = min(alphas, key=lambda alpha: _maximum_bound(kind, alpha, epsilon, delta)[0])
    _, size = _maximum_bound(kind, best, epsilon, delta)
    return "output perturbation", kind.best, size


def _maximum_bound(
    kind: GeneralMember, alpha: float, epsilon: float, delta: float
) -> tuple[float, float]:
    """Bound ``alpha R^2 / 2 + E ||noise||`` and the noise for the minimiser over the ball."""
    d = kind.X.shape[1]
    size = _noise_size(kind.sensitivity(alpha), epsilon, delta)
    norm = size * (d if delta == 0 else math.sqrt(d))
    return alpha * kind.radius**2 / 2 + norm, size


PURE = Study("output-perturbation/general-pure", cells(0.0), measure)
APPROXIMATE = Study("output-perturbation/general-approximate", cells(DELTA), measure)
