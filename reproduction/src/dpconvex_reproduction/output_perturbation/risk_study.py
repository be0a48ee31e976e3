"""Excess risk of means: the four classes over a grid of n, epsilon and d, empirical and over the
population.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.core.guarantees import Guarantee
from dpconvex.mechanisms import OutputPerturbation, resolve_mechanism
from dpconvex.privacy import ApproxDP, LinearBounds, PureDP
from dpconvex_reproduction.exhibit import Cell, Row, Study, select
from dpconvex_reproduction.output_perturbation.members import FAMILIES, Draw, Member, member
from dpconvex_reproduction.output_perturbation.printed import (
    Printed,
    laplace_or_gaussian,
    printed,
    project,
    stopped_epsilon,
)

__all__ = ["APPROXIMATE", "BASE", "DELTA", "GRIDS", "PURE", "default_model", "guarantee_of"]

Array = NDArray[np.float64]

DELTA = 1e-7
BASE = {"n": 100_000, "epsilon": 1.0, "d": 4}
GRIDS: dict[str, tuple[Any, ...]] = {
    "n": (10_000, 30_000, 100_000, 300_000),
    "epsilon": (0.25, 1.0, 4.0),
    "d": (2, 4, 8, 16),
}
# Here the printed accuracy of Theorem 3.4, 2(b) costs more noise than its bound allows.
STRICT = {"n": 1_000_000, "epsilon": 0.1, "d": 2}
NOISES = 64
RELEASES = {True: 8, False: 2}  # on counts, and on all records one by one
_SEEDS = {True: 3, False: 20}


def settings(delta: float, family: str) -> list[dict[str, Any]]:
    """Return the grid: one axis at a time through the base."""
    grid = [{**BASE, axis: value} for axis, values in GRIDS.items() for value in values]
    if delta > 0 and family == "convex":
        grid.append(dict(STRICT))
    return [dict(items) for items in dict.fromkeys(tuple(point.items()) for point in grid)]


def cells(delta: float) -> Callable[[bool], list[Cell]]:
    """Return the list of cells for a delta."""

    def listed(quick: bool) -> list[Cell]:
        return [
            {"family": family, "delta": delta, "seed": seed, "grid": settings(delta, family)}
            for seed in range(_SEEDS[quick])
            for family in FAMILIES
        ]

    return listed


def guarantee_of(epsilon: float, delta: float) -> Guarantee:
    """Return the budget."""
    return PureDP(epsilon) if delta == 0 else ApproxDP(epsilon, delta)


def measure(cell: Cell) -> list[Row]:
    """Run every variant on one draw per setting."""
    return [
        row
        for point in cell["grid"]
        for row in _measure(cell["family"], cell["delta"], cell["seed"], **point)
    ]


def _measure(family: str, delta: float, seed: int, n: int, epsilon: float, d: int) -> list[Row]:
    kind = member(family, d)
    pure = delta == 0
    draw = Draw(kind, n, seed)
    rng = np.random.default_rng([seed, 1])
    draws = rng.standard_normal((NOISES, d))
    norms = rng.gamma(d, size=NOISES)
    guarantee = guarantee_of(epsilon, delta)
    problem = kind.problem(n, epsilon, delta)
    shared = {"family": family, "n": n, "epsilon": epsilon, "d": d, "delta": delta, "seed": seed}
    ours, mechanism = released(draw, epsilon, delta, seed, (draws, norms))
    rows: list[Row] = []
    for population in (False, True):
        theirs = printed(problem, population)
        facts = {
            **shared,
            "risk": "population" if population else "empirical",
            "reference": theirs.reference,
            "bound": theirs.bound,
            "trivial": problem.lipschitz * problem.radius,
            "condition": theirs.holds,
        }
        point, size = sound(draw, theirs, guarantee)
        exact = draw.empirical_minimiser[None, :]
        variants: Sequence[tuple[str, str, Array]] = (
            (
                theirs.algorithm,
                "paper",
                point + laplace_or_gaussian(draws, theirs.noise.std, pure, norms),
            ),
            (theirs.algorithm, "sound", point + laplace_or_gaussian(draws, size, pure, norms)),
            (mechanism, "dpconvex", ours),
            ("minimiser", "not private", exact),
        )
        for algorithm, variant, points in variants:
            # Theorems 3.1 and 3.4 project on the ball, 3.2 and 3.5 do not.
            if variant in ("paper", "sound") and "smooth" not in family:
                points = project(points, kind.radius)
            rows.append(
                {
                    **facts,
                    "algorithm": algorithm,
                    "variant": variant,
                    "excess": draw.excess(points, population),
                    "accuracy": theirs.accuracy if variant == "paper" else 0.0,
                }
            )
        moved = linear_bounds(kind, n, theirs.alpha).minimiser_sensitivity()
        select(rows, variant="paper")[-1]["true_epsilon"] = stopped_epsilon(
            moved, theirs.accuracy, theirs.alpha, theirs.noise.std, delta
        )
    return rows


def linear_bounds(kind: Member, n: int, alpha: float) -> LinearBounds:
    """Return the public facts of the data term; the penalty is common to all data sets and
    cancels.
    """
    return LinearBounds(n, kind.d, kind.loss, 1.0, 1.0, fit_intercept=False, alpha=alpha)


def sound(draw: Draw, theirs: Printed, guarantee: Guarantee) -> tuple[Array, float]:
    """Return the certified minimiser at the paper's penalty, and the noise of its certificate."""
    mechanism = OutputPerturbation()
    certificate = mechanism.certify(
        linear_bounds(draw.member, draw.n, theirs.alpha), guarantee, seeded=True
    )
    point = mechanism.minimise(draw.objective(theirs.alpha), certificate)
    term = certificate.noise["release"]
    return point, float(term.get("std", term.get("scale")))


def default_model(kind: Member, epsilon: float, delta: float, seed: int) -> Any:
    """Return our estimator as a user would make it, told the paper's ball and the objective's
    own penalty.
    """
    options: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "row_norm": 1.0,
        "fit_intercept": False,
        "alpha": kind.mu or None,
        "coef_bound": kind.radius,
        "random_state": seed,
    }
    if kind.loss.kind == "margin":
        return DPLogisticRegression(classes=[-1.0, 1.0], **options)
    return DPQuantileRegressor(0.5, **options)


def released(
    draw: Draw, epsilon: float, delta: float, seed: int, noise: tuple[Array, Array]
) -> tuple[Array, str]:
    """Return releases of our default, on the shared draws if it chose output perturbation, and
    its choice.
    """
    certificate = default_model(draw.member, epsilon, delta, seed).certify(draw.n, draw.member.d)
    name = certificate.mechanism
    bounds = certificate.bounds
    radius = draw.member.radius
    if name in ("objective", "output"):
        if name == "output":
            # The same release on counts, which spares a pass over all copies of a record.
            objective = draw.objective(bounds.alpha, bounds.loss)
            term = certificate.noise["release"]
            size = float(term.get("std", term.get("scale")))
            shifts = laplace_or_gaussian(noise[0], size, delta == 0, noise[1])
            points = OutputPerturbation().minimise(objective, certificate) + shifts
        else:
            mechanism = resolve_mechanism(name, "reproduction")
            objective = draw.objective_of_records(bounds.alpha, bounds.loss)
            seeds = [1000 * seed + repeat for repeat in range(RELEASES[True])]
            points = np.array([mechanism.release(objective, certificate, s) for s in seeds])
        return project(points, radius), f"auto: {name}"
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(RELEASES[False]):
            model = default_model(draw.member, epsilon, delta, 1000 * seed + repeat)
            found.append(np.ravel(model.fit(*draw.expanded()).coef_))
    return np.array(found), f"auto: {name}"


PURE = Study("output-perturbation/means-pure", cells(0.0), measure)
APPROXIMATE = Study("output-perturbation/means-approximate", cells(DELTA), measure)
