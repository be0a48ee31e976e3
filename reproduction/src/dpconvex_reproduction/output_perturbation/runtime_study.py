r"""Gradient complexity: steps that a solver takes to the prescribed accuracy, over those that the
paper prints.

Means: visits of a record, by the stochastic subgradient method (kinked) or Katyusha (smooth).
Objectives that are no means: passes over the data, by the subgradient method or Nesterov's
accelerated gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine import MemoryRows
from dpconvex.objectives import EmpiricalObjective, TiltedObjective
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.output_perturbation.accelerated import AcceleratedGradient, Katyusha
from dpconvex_reproduction.output_perturbation.general_study import GeneralMember, general_member
from dpconvex_reproduction.output_perturbation.members import FAMILIES, Draw, member, minimise
from dpconvex_reproduction.output_perturbation.paper_tables import solver_iterations
from dpconvex_reproduction.output_perturbation.presets import OutputProblem, output_preset
from dpconvex_reproduction.output_perturbation.printed import Printed, printed
from dpconvex_reproduction.output_perturbation.risk_study import DELTA

__all__ = [
    "GENERAL_APPROXIMATE",
    "GENERAL_PURE",
    "MEANS_APPROXIMATE",
    "MEANS_PURE",
    "stochastic_steps",
    "subgradient_steps",
]

Array = NDArray[np.float64]

_SEEDS = {True: 2, False: 10}
SAMPLES = {False: (50, 100, 200), True: (100, 400, 1600)}  # kinked and smooth means
# No means: kinked and smooth; pure or not.
BUDGETS = {
    (False, True): (30.0, 100.0, 300.0),
    (False, False): (100.0, 1_000.0, 10_000.0),
    (True, True): (1_000.0, 10_000.0, 100_000.0),
    (True, False): (10_000.0, 100_000.0, 1_000_000.0),
}
_NAMES = {
    "katyusha": "Katyusha",
    "stochastic subgradient": "the stochastic subgradient method",
    "subgradient": "the subgradient method",
    "accelerated": "accelerated gradient",
}
DIMENSION = 4
_MOST_VISITS = 10_000_000


def _printed_steps(problem: OutputProblem, theirs: Printed, solver: str) -> float:
    preset = replace(output_preset(problem), alpha=theirs.alpha, accuracy=theirs.accuracy)
    return solver_iterations(problem, preset, solver)


def cells(means: bool, delta: float) -> Callable[[bool], list[Cell]]:
    """Return the list of cells."""

    def listed(quick: bool) -> list[Cell]:
        return [
            {"family": family, "delta": delta, "seed": seed, "means": means}
            for seed in range(_SEEDS[quick])
            for family in FAMILIES
        ]

    return listed


def measure(cell: Cell) -> list[Row]:
    """Count the steps along n (means) or epsilon (others)."""
    family = cell["family"]
    delta = cell["delta"]
    seed = cell["seed"]
    if cell["means"]:
        return [_mean(family, delta, seed, n) for n in SAMPLES["smooth" in family]]
    return [
        _general(family, delta, seed, epsilon)
        for epsilon in BUDGETS["smooth" in family, delta == 0]
    ]


def _mean(family: str, delta: float, seed: int, n: int) -> Row:
    kind = member(family, DIMENSION)
    draw = Draw(kind, n, seed)
    problem = kind.problem(n, 1.0, delta)
    theirs = printed(problem)
    if "smooth" in family:
        name = "katyusha"
        rows = MemoryRows(*draw.expanded(), kind.row_map)
        objective = EmpiricalObjective(rows, kind.loss, theirs.alpha)
        tolerance = math.sqrt(2 * theirs.alpha * theirs.accuracy)
        found = Katyusha().solve(objective, np.zeros(kind.d), tolerance)
        steps = 3.0 * n * found.iterations  # an epoch: the full gradient and 2n corrections
    else:
        name = "stochastic subgradient"
        steps = stochastic_steps(draw, theirs.alpha, theirs.accuracy, seed)
    return _row(
        name,
        "visits of a record",
        family,
        delta,
        seed,
        n,
        1.0,
        steps,
        _printed_steps(problem, theirs, name),
        theirs.accuracy,
    )


def stochastic_steps(draw: Draw, alpha: float, accuracy: float, seed: int) -> float:
    """Return how many records Algorithm 3 visits until its averaged point meets the accuracy.

    Steps are ``2 / (alpha (t + 1))`` long and point t has weight ``2 t / (T (T + 1))``. The gap is
    looked at whenever the number of steps has grown by a quarter.
    """
    X, y = draw.expanded()
    penalty = alpha - draw.member.mu
    best = minimise(draw.objective(alpha))

    def value(w: Array) -> float:
        return float(draw.risks(w[None, :], False)[0] + penalty / 2 * (w @ w))

    lowest = value(best)
    rng = np.random.default_rng([seed, 2])
    radius = draw.member.radius
    slope = float(draw.member.loss.lipschitz)
    point = np.zeros(draw.member.d)
    average = np.zeros(draw.member.d)
    t = 0
    check = 4
    while t < _MOST_VISITS:
        for chosen in rng.integers(0, len(y), check - t):
            t += 1
            row = X[chosen]
            pull = slope if row @ point > y[chosen] else -slope
            point = point - 2 / (alpha * (t + 1)) * (pull * row + alpha * point)
            norm = math.sqrt(point @ point)
            if norm > radius:
                point = point * (radius / norm)
            average = average + 2 / (t + 1) * (point - average)
        if value(average) - lowest <= accuracy:
            return float(t)
        check = math.ceil(1.25 * check)
    return math.inf


class _OneFunction:
    """The tilted objective as the textbook method sees it: its own smoothness and no rows to
    look into.
    """

    def __init__(self, objective: TiltedObjective) -> None:
        self._objective = objective
        self.dim = objective.dim
        self.strong_convexity = objective.strong_convexity
        self.smoothness = objective.smoothness

    def gradient(self, theta: Array) -> Array:
        """Gradient of F."""
        return self._objective.gradient(theta)

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """F and its gradient."""
        return self._objective.value_and_gradient(theta)

    def rounding_allowance(self, theta: Array) -> float:
        """Error of the gradient."""
        return self._objective.rounding_allowance(theta)


def _general(family: str, delta: float, seed: int, epsilon: float) -> Row:
    kind = general_member(family, 200, DIMENSION, seed)
    problem = kind.problem(epsilon, delta)
    theirs = printed(problem)
    if kind.smooth:
        name = "accelerated"
        tolerance = math.sqrt(2 * theirs.alpha * theirs.accuracy)
        objective = _OneFunction(kind.objective(theirs.alpha))
        solver = AcceleratedGradient(restart=False)
        steps = float(solver.solve(objective, np.zeros(DIMENSION), tolerance).iterations)
    else:
        name = "subgradient"
        allowed = _printed_steps(problem, theirs, name)
        steps = subgradient_steps(kind, theirs.alpha, theirs.accuracy, math.ceil(allowed))
    return _row(
        name,
        "passes",
        family,
        delta,
        seed,
        200,
        epsilon,
        steps,
        _printed_steps(problem, theirs, name),
        theirs.accuracy,
    )


def subgradient_steps(kind: GeneralMember, alpha: float, accuracy: float, limit: int) -> float:
    """Return how many steps of Algorithm 2 reach the accuracy; infinity if none within the limit
    does.

    Steps are ``2 / (alpha (t + 1))`` long, and the gap is that of the best point so far, as in
    Proposition 3.2. The printed step multiplies the subgradient of F by n once more, which cannot
    be meant.
    """
    point = np.zeros(kind.X.shape[1])
    radius = kind.radius
    lowest = kind.risks(kind.best[None, :])[0] + (alpha - kind.mu) / 2 * float(
        kind.best @ kind.best
    )
    for t in range(limit + 1):
        residuals = kind.y - kind.X @ point
        worst = int(np.argmax(np.abs(residuals)))
        value = abs(residuals[worst]) + alpha / 2 * float(point @ point)
        if value - lowest <= accuracy:
            return float(max(t, 1))
        slope = -math.copysign(1.0, residuals[worst]) * kind.X[worst] + alpha * point
        point = point - 2 / (alpha * (t + 2)) * slope
        point = point * min(1.0, radius / max(float(np.linalg.norm(point)), 1e-300))
    return math.inf


def _row(
    solver: str,
    unit: str,
    family: str,
    delta: float,
    seed: int,
    n: int,
    epsilon: float,
    steps: float,
    allowed: float,
    accuracy: float,
) -> Row:
    return {
        "algorithm": _NAMES[solver],
        "variant": "paper",
        "family": family,
        "n": n,
        "epsilon": epsilon,
        "d": DIMENSION,
        "delta": delta,
        "seed": seed,
        "accuracy": accuracy,
        "steps": steps,
        "printed_steps": allowed,
        "unit": unit,
    }


MEANS_PURE = Study("output-perturbation/steps-means-pure", cells(True, 0.0), measure)
MEANS_APPROXIMATE = Study(
    "output-perturbation/steps-means-approximate", cells(True, DELTA), measure
)
GENERAL_PURE = Study("output-perturbation/steps-general-pure", cells(False, 0.0), measure)
GENERAL_APPROXIMATE = Study(
    "output-perturbation/steps-general-approximate", cells(False, DELTA), measure
)
