r"""Tilted ERM by output perturbation (section 5.1): excess tilted risk over tilt, n, epsilon and d.

The member is the logistic loss with ``(mu/2) ||w||^2``, rows of norm 1. A data set is n records of
which 500 are distinct, each repeated equally often, which leaves the tilted risk as it is and lets
n grow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex import DPTiltedClassifier
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import TiltedObjective
from dpconvex.privacy import TiltedBounds
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.output_perturbation.algorithms import algorithm_1_tilted
from dpconvex_reproduction.output_perturbation.members import Draw, member
from dpconvex_reproduction.output_perturbation.presets import OutputProblem
from dpconvex_reproduction.output_perturbation.printed import (
    laplace_or_gaussian,
    project,
    stopped_epsilon,
)
from dpconvex_reproduction.output_perturbation.risk_study import DELTA, NOISES, guarantee_of

__all__ = ["BASE", "GRIDS", "STUDY", "loss_weight", "tilted_problem"]

Array = NDArray[np.float64]

MU = 0.1
DISTINCT = 500
BASE = {"tilt": 0.5, "n": 100_000, "epsilon": 1.0, "d": 4}
GRIDS: dict[str, tuple[Any, ...]] = {
    "tilt": (0.01, 0.25, 0.5, 1.0, 2.0),
    "n": (10_000, 100_000, 1_000_000),
    "epsilon": (0.25, 1.0, 4.0),
    "d": (2, 4, 8),
}
_SEEDS = {True: 4, False: 20}


def tilted_bounds(n: int, d: int, tilt: float) -> TiltedBounds:
    """Return the public facts of the member."""
    return TiltedBounds(n, d, Logistic(), 1.0, 1.0, fit_intercept=False, alpha=MU, tilt=tilt)


def tilted_problem(n: int, d: int, epsilon: float, delta: float, tilt: float) -> OutputProblem:
    """Return the paper's constants: ``L = 1 + mu R`` and ``beta_t = beta + t L^2`` (Lemma 5.3)."""
    radius = tilted_bounds(n, d, tilt).radius
    L = 1.0 + MU * radius
    return OutputProblem(
        L, radius, n, d, epsilon, delta, strong_convexity=MU, smoothness=0.25 + MU + tilt * L**2
    )


def loss_weight(problem: OutputProblem, tilt: float) -> float:
    """``C = exp(t (A - a))``: range of the record's loss on the ball, its penalty included as in
    Lemma 5.2.
    """
    reach = problem.radius  # of a margin: rows have norm 1
    span = math.log1p(math.exp(reach)) - math.log1p(math.exp(-reach)) + MU / 2 * reach**2
    return math.exp(tilt * span)


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
    """Run every variant for both theorems."""
    return [row for point in settings() for row in _measure(cell["delta"], cell["seed"], **point)]


def _rows(d: int, seed: int) -> MemoryRows:
    draw = Draw(member("smooth strongly convex", d), 1, seed)
    return MemoryRows(draw.X[:DISTINCT], draw.y[:DISTINCT], RowMap(d, 1.0, fit_intercept=False))


def _measure(delta: float, seed: int, tilt: float, n: int, epsilon: float, d: int) -> list[Row]:
    problem = tilted_problem(n, d, epsilon, delta, tilt)
    pure = delta == 0
    rows = _rows(d, seed)
    guarantee = guarantee_of(epsilon, delta)
    objective = TiltedObjective(rows, Logistic(), MU, tilt)
    rng = np.random.default_rng([seed, 1])
    draws = rng.standard_normal((NOISES, d))
    norms = rng.gamma(d, size=NOISES)
    mechanism = OutputPerturbation()
    certificate = mechanism.certify(tilted_bounds(n, d, tilt), guarantee, seeded=True)
    point = mechanism.minimise(objective, certificate)
    lowest = objective.value(point)

    def excess(points: Array) -> float:
        return float(np.mean([objective.value(w) for w in points])) - lowest

    def noisy(center: Array, term: Any) -> Array:
        size = float(term.get("std", term.get("scale")))
        return center + laplace_or_gaussian(draws, size, pure, norms)

    ours = {}
    for name, ball in (("given the ball", problem.radius), ("own wall", None)):
        model = default_model(tilt, epsilon, delta, ball, seed)
        ours[name] = model.certify(n, d)
    lines: list[Row] = []
    for theorem in ("Theorem 5.1", "Theorem 5.2"):
        facts, noise_size = _printed(theorem, problem, tilt)
        shared = {
            "tilt": tilt,
            "n": n,
            "epsilon": epsilon,
            "d": d,
            "delta": delta,
            "seed": seed,
            "condition": problem.ratio <= 1,
            **facts,
        }
        theirs = point + laplace_or_gaussian(draws, noise_size, pure, norms)
        if theorem == "Theorem 5.1":
            theirs = project(theirs, problem.radius)
        variants = [("Algorithm 1", "paper", theirs)]
        if theorem == "Theorem 5.2":
            variants += [
                ("Algorithm 1", "sound", noisy(point, certificate.noise["release"])),
                ("minimiser", "not private", point[None, :]),
            ]
            for name, found in ours.items():
                center = _walled_minimiser(rows, found)
                released = noisy(center, found.noise["release"])
                limit = found.parameters["coef_bound"]
                if limit is not None:
                    released = project(released, limit)
                variants.append((f"DPTiltedClassifier, {name}", "dpconvex", released))
        moved = tilted_bounds(n, d, tilt).minimiser_sensitivity()
        shared["true_epsilon"] = stopped_epsilon(moved, facts["accuracy"], MU, noise_size, delta)
        lines += [
            {**shared, "algorithm": algorithm, "variant": variant, "excess": excess(points)}
            for algorithm, variant, points in variants
        ]
    return lines


def default_model(
    tilt: float, epsilon: float, delta: float, ball: float | None, seed: int = 0
) -> DPTiltedClassifier:
    """Return our estimator with the objective's own penalty; without a ball it builds a wall by
    its own forecast.
    """
    return DPTiltedClassifier(
        tilt,
        epsilon=epsilon,
        delta=delta,
        row_norm=1.0,
        fit_intercept=False,
        alpha=MU,
        coef_bound=ball,
        classes=[-1.0, 1.0],
        random_state=seed,
    )


def _walled_minimiser(rows: MemoryRows, certificate: Any) -> Array:
    bounds = certificate.bounds
    objective = TiltedObjective(
        rows, bounds.loss, bounds.alpha, bounds.tilt, bounds.coef_bound, bounds.wall
    )
    return OutputPerturbation().minimise(objective, certificate)


def _printed(theorem: str, problem: OutputProblem, tilt: float) -> tuple[Row, float]:
    """Bound, accuracy and noise of a theorem as printed, and the bound that its proof gives."""
    L = problem.lipschitz
    mu = MU
    n = problem.n_samples
    r = problem.ratio
    C = loss_weight(problem, tilt)
    spread = problem.spread / problem.epsilon
    scale = L**2 / mu
    kappa = problem.condition_number
    pure = problem.delta == 0
    if theorem == "Theorem 5.1":
        accuracy = scale * C / n * min(C / n, spread)
        bound = proven = 9 * scale * C * r
    else:
        accuracy = scale / n**2 * min(kappa * spread**2, C**2)
        # Printed with C; Theorem 3.2's proof with Lemma 5.2's sensitivity gives its square.
        bound = (26 if pure else 13.5) * kappa * scale * C * r**2
        proven = bound * C
    noise = algorithm_1_tilted(problem, C, accuracy)
    facts = {
        "reference": theorem,
        "bound": bound,
        "proven": proven,
        "accuracy": accuracy,
        "weight": C,
        "sensitivity": noise.sensitivity,
        "trivial": L * problem.radius,
    }
    return facts, noise.std


STUDY = Study("output-perturbation/tilted", cells, measure)
