r"""Adversarial training by output perturbation (section 5.2): excess adversarial risk, and the
minimax solver's steps.

The member is the logistic loss of a margin from which an l2 adversary of radius rho takes
``rho M(w)``, ``M`` the norm smoothed over a width of 0.01, plus ``(mu/2) ||w||^2``: smooth in w, as
Theorem 5.3 asks. Margins of unit rows shrink with ``1/sqrt(d)``, and so does the radius: it is
stated for d = 4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex import DPRobustClassifier
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import AdversarialObjective, CostlyAdversaryObjective
from dpconvex.privacy import RobustBounds
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.output_perturbation.accelerated import (
    MinimaxProximalPoint,
    saddle_problem,
)
from dpconvex_reproduction.output_perturbation.algorithms import algorithm_8
from dpconvex_reproduction.output_perturbation.members import MU, POPULATION, Draw, member
from dpconvex_reproduction.output_perturbation.presets import OutputProblem, theorem_3_2
from dpconvex_reproduction.output_perturbation.printed import (
    laplace_or_gaussian,
    printed,
    project,
    stopped_epsilon,
)
from dpconvex_reproduction.output_perturbation.risk_study import DELTA, NOISES, guarantee_of

__all__ = ["BASE", "GRIDS", "RISKS", "STEPS", "adversarial_problem", "robust_bounds"]

Array = NDArray[np.float64]

WIDTH = 0.01  # the estimator's own
BASE = {"radius": 0.1, "n": 100_000, "epsilon": 1.0, "d": 4}
GRIDS: dict[str, tuple[Any, ...]] = {
    "radius": (0.05, 0.1, 0.3),
    "n": (10_000, 100_000, 1_000_000),
    "epsilon": (0.25, 1.0, 4.0),
    "d": (2, 4, 8, 16),
}
PENALTIES = (0.4, 0.2, 0.1, 0.05)
_SEEDS = {True: 4, False: 20}


def scaled(radius: float, d: int) -> float:
    """Return the radius in d dimensions."""
    return radius * 2 / math.sqrt(d)


def robust_bounds(n: int, d: int, radius: float) -> RobustBounds:
    """Return the public facts of the member; the radius is that for d = 4."""
    return RobustBounds(
        n,
        d,
        Logistic(),
        1.0,
        1.0,
        fit_intercept=False,
        alpha=MU,
        radius=scaled(radius, d),
        width=WIDTH,
    )


def adversarial_problem(
    n: int, d: int, epsilon: float, delta: float, radius: float
) -> OutputProblem:
    """Return the paper's constants, the penalty's parts included."""
    facts = robust_bounds(n, d, radius)
    ball = member("smooth strongly convex", d).radius
    return OutputProblem(
        facts.lipschitz + MU * ball,
        ball,
        n,
        d,
        epsilon,
        delta,
        strong_convexity=MU,
        smoothness=facts.smoothness + MU,
    )


def default_model(
    d: int, epsilon: float, delta: float, radius: float, seed: int = 0
) -> DPRobustClassifier:
    """Return our estimator, told the paper's ball and the objective's own penalty."""
    return DPRobustClassifier(
        scaled(radius, d),
        epsilon=epsilon,
        delta=delta,
        row_norm=1.0,
        fit_intercept=False,
        alpha=MU,
        coef_bound=member("smooth strongly convex", d).radius,
        classes=[-1.0, 1.0],
        random_state=seed,
    )


def cells(quick: bool) -> list[Cell]:
    """One cell per seed and delta."""
    return [
        {"delta": delta, "seed": seed} for seed in range(_SEEDS[quick]) for delta in (0.0, DELTA)
    ]


def settings() -> list[dict[str, Any]]:
    """Return the grid: one axis at a time through the base."""
    grid = [{**BASE, axis: value} for axis, values in GRIDS.items() for value in values]
    return [dict(items) for items in dict.fromkeys(tuple(point.items()) for point in grid)]


def measure(cell: Cell) -> list[Row]:
    """Run every variant, for the empirical and the population risk."""
    return [row for point in settings() for row in _measure(cell["delta"], cell["seed"], **point)]


class _Attacked:
    """A draw of records with an adversary: empirical and population risks at many points."""

    def __init__(self, d: int, n: int, seed: int, radius: float) -> None:
        self.draw = Draw(member("smooth strongly convex", d), n, seed)
        self.radius = radius

    def objective(self, counts: Array, n: int, radius: float) -> AdversarialObjective:
        draw = self.draw
        rows = MemoryRows(draw.X, draw.y, draw.member.row_map, weights=counts)
        reach = scaled(radius, draw.member.d)
        return AdversarialObjective(rows, Logistic(), MU, reach, "l2", WIDTH, divisor=n)

    def minimiser(self, population: bool = False, radius: float | None = None) -> Array:
        draw = self.draw
        mechanism = OutputPerturbation()
        radius = self.radius if radius is None else radius
        n = POPULATION if population else draw.n
        counts = np.ones(POPULATION) if population else draw.counts
        certificate = mechanism.certify(
            robust_bounds(n, draw.member.d, radius), guarantee_of(1.0, 0.0), seeded=True
        )
        return mechanism.minimise(self.objective(counts, n, radius), certificate)

    def excess(self, points: Array, population: bool, best: Array) -> float:
        risks = self._risks(np.vstack([points, best]), population)
        return float(np.mean(risks[:-1]) - risks[-1])

    def _risks(self, points: Array, population: bool) -> Array:
        draw = self.draw
        weights = np.full(POPULATION, 1 / POPULATION) if population else draw.counts / draw.n
        squares = np.einsum("ij,ij->i", points, points)
        taken = scaled(self.radius, draw.member.d) * (np.sqrt(squares + WIDTH**2) - WIDTH)
        margins = draw.y * (points @ draw.X.T) - taken[:, None]
        return np.asarray(np.logaddexp(0.0, -margins) @ weights + MU / 2 * squares)


def _measure(delta: float, seed: int, radius: float, n: int, epsilon: float, d: int) -> list[Row]:
    problem = adversarial_problem(n, d, epsilon, delta, radius)
    pure = delta == 0
    accuracy = theorem_3_2(problem).accuracy
    attacked = _Attacked(d, n, seed, radius)
    guarantee = guarantee_of(epsilon, delta)
    rng = np.random.default_rng([seed, 1])
    draws = rng.standard_normal((NOISES, d))
    norms = rng.gamma(d, size=NOISES)
    point = attacked.minimiser()
    ball = attacked.draw.member.radius

    def noisy(size: float) -> Array:
        return project(point + laplace_or_gaussian(draws, size, pure, norms), ball)

    term = OutputPerturbation().certify(robust_bounds(n, d, radius), guarantee).noise["release"]
    ours = default_model(d, epsilon, delta, radius, seed).certify(n, d).noise["release"]
    std = algorithm_8(problem, accuracy).std
    moved = robust_bounds(n, d, radius).minimiser_sensitivity()
    variants = [
        ("Algorithm 8", "paper", noisy(std)),
        ("Algorithm 8", "sound", noisy(float(term.get("std", term.get("scale"))))),
        ("DPRobustClassifier", "dpconvex", noisy(float(ours.get("std", ours.get("scale"))))),
        ("minimiser", "not private", point[None, :]),
        ("trained without adversary", "not private", attacked.minimiser(radius=0.0)[None, :]),
    ]
    rows: list[Row] = []
    for population in (False, True):
        best = attacked.minimiser(True) if population else point
        theirs = printed(problem, population)
        shared = {
            "radius": radius,
            "n": n,
            "epsilon": epsilon,
            "d": d,
            "delta": delta,
            "seed": seed,
            "risk": "population" if population else "empirical",
            "reference": "Corollary 5.2" if population else "Theorem 5.3",
            "bound": theirs.bound,
            "condition": theirs.holds,
            "accuracy": accuracy,
            "trivial": problem.lipschitz * problem.radius,
            "true_epsilon": stopped_epsilon(moved, accuracy, MU, std, delta),
        }
        rows += [
            {
                **shared,
                "algorithm": algorithm,
                "variant": variant,
                "excess": attacked.excess(points, population, best),
            }
            for algorithm, variant, points in variants
        ]
    return rows


def step_cells(quick: bool) -> list[Cell]:
    """One cell per seed."""
    return [{"seed": seed} for seed in range(2 if quick else 10)]


def count_steps(cell: Cell) -> list[Row]:
    """Gradients that the minimax solver takes, for an adversary who pays for moves (strongly
    concave).
    """
    d = 3
    n = 50
    seed = cell["seed"]
    draw = Draw(member("smooth strongly convex", d), n, seed)
    rows = []
    for mu in PENALTIES:
        objective = CostlyAdversaryObjective(
            MemoryRows(*draw.expanded(), RowMap(d, 1.0, fit_intercept=False)),
            Logistic(),
            mu,
            cost=1.0 / min(PENALTIES),
        )
        saddle = saddle_problem(objective)
        found = MinimaxProximalPoint().solve(saddle, np.zeros(d), 1e-4)
        kappa = saddle.smoothness / saddle.strong_convexity
        kappa_v = saddle.smoothness / saddle.strong_concavity
        rows.append(
            {
                "algorithm": "minimax proximal point",
                "variant": "paper",
                "seed": seed,
                "n": n,
                "d": d,
                "mu": mu,
                "steps": float(found.iterations),
                "printed_steps": float(np.sqrt(kappa * kappa_v)),
                "unit": "gradients",
            }
        )
    return rows


RISKS = Study("output-perturbation/adversarial", cells, measure)
STEPS = Study("output-perturbation/adversarial-steps", step_cells, count_steps)
