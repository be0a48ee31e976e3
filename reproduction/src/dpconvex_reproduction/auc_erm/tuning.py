"""The paper's way to choose a penalty: ten-fold cross-validation at epsilon 0.1, without privacy.

Held-out folds are scored without noise, so the choice reads private data for free. It is repeated
here because the paper's figures rest on it; what it spends is in nobody's budget.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.certificate import Certificate
from dpconvex.core.guarantees import ApproxDP, Guarantee, PureDP
from dpconvex.core.noise_source import NoiseSource
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import PairwiseObjective
from dpconvex_reproduction.auc_erm.algorithms import (
    PENALTIES,
    algorithm_2,
    draw_noise,
    printed_output_scale,
    sound,
)
from dpconvex_reproduction.auc_erm.problems import DIAMETER, FOLDS, LOSSES, Facts, area, problem

__all__ = [
    "BUDGETS",
    "TUNED_AT",
    "minimisers",
    "no_pert_penalty",
    "objective_penalty",
    "objective_release",
    "output_certificate",
    "output_penalty",
    "output_release",
]

Array = NDArray[np.float64]

TUNED_AT = 0.1
BUDGETS = ("pure", "approximate")


def delta_of(budget: str, facts: Facts) -> float:
    """Return 0 or ``1 / n^2``."""
    return 0.0 if budget == "pure" else facts.delta


def guarantee_of(epsilon: float, delta: float) -> Guarantee:
    """Return the guarantee with these parameters."""
    return ApproxDP(epsilon, delta) if delta > 0 else PureDP(epsilon)


def output_certificate(
    facts: Facts, loss: str, penalty: float, epsilon: float, delta: float
) -> Certificate:
    """Return the certificate of soundly calibrated output perturbation."""
    bounds = facts.bounds(LOSSES[loss], penalty)
    return OutputPerturbation().certify(bounds, guarantee_of(epsilon, delta), seeded=True)


def _solve(objective: PairwiseObjective, facts: Facts, loss: str, penalty: float) -> Array:
    # The tolerance does not depend on the budget: one point serves every epsilon. Both variants add
    # noise to it.
    certificate = output_certificate(facts, loss, penalty, 1.0, 0.0)
    ready = objective.with_rows(lambda block: block, objective.row_norm, penalty)
    return OutputPerturbation().minimise(ready, certificate)


@lru_cache(maxsize=4)
def minimisers(name: str, loss: str) -> dict[float, Array]:
    """Return the minimiser on the training part for each penalty."""
    task = problem(name)
    objective = task.objective(LOSSES[loss])
    return {penalty: _solve(objective, task.facts, loss, penalty) for penalty in PENALTIES}


@lru_cache(maxsize=4)
def _fold_minimisers(name: str, loss: str) -> tuple[tuple[Array, ...], ...]:
    """Return a minimiser for each fold that is left out and each penalty."""
    task = problem(name)
    found = []
    for held in task.folds():
        objective = task.objective(LOSSES[loss], ~held)
        found.append(tuple(_solve(objective, task.facts, loss, penalty) for penalty in PENALTIES))
    return tuple(found)


def output_release(
    point: Array,
    variant: str,
    facts: Facts,
    loss: str,
    penalty: float,
    epsilon: float,
    delta: float,
    seed: int,
    counts: tuple[int, int],
) -> Array:
    """Return Algorithm 1's release from its minimiser: the paper's noise, by private counts, or
    sound noise.
    """
    if variant == "paper":
        slope = facts.bounds(LOSSES[loss], penalty).slope
        scale = printed_output_scale(epsilon, slope, DIAMETER, penalty, *counts, delta)
        return point + draw_noise(scale, delta, point.size, np.random.default_rng(seed))
    term = output_certificate(facts, loss, penalty, epsilon, delta).noise["release"]
    source = NoiseSource.of(seed)
    if delta > 0:
        return source.add_gaussian(point, term["std"])
    return source.add_l2_laplace(point, term["scale"])


def objective_release(
    objective: PairwiseObjective,
    variant: str,
    facts: Facts,
    penalty: float,
    epsilon: float,
    delta: float,
    seed: int,
) -> Array:
    """Return Algorithm 2's release on an objective, with the paper's or with sound constants."""
    if variant == "sound":
        return sound(2, objective, facts.bounds(objective.loss, penalty), epsilon, delta, seed)
    return algorithm_2(
        np.concatenate([objective.positives, objective.negatives]),
        np.arange(objective.n_rows) < len(objective.positives),
        epsilon=epsilon,
        delta=delta,
        diameter=DIAMETER,
        penalty=penalty,
        rng=np.random.default_rng(seed),
    )


def _best(scores: Array) -> float:
    """Return the penalty with the highest mean over folds, the larger of equal ones."""
    means = scores.mean(axis=0)
    return max(zip(means, PENALTIES, strict=True))[1]


def _seed(fold: int) -> int:
    return 10_000 + fold  # not among the seeds of the runs


@lru_cache(maxsize=64)
def no_pert_penalty(name: str, loss: str) -> float:
    """Return the penalty tuned for the minimiser without noise."""
    task = problem(name)
    points = _fold_minimisers(name, loss)
    scores = [
        [area(task.rows[held] @ point, task.positive[held]) for point in row]
        for held, row in zip(task.folds(), points, strict=True)
    ]
    return _best(np.array(scores))


@lru_cache(maxsize=64)
def output_penalty(name: str, loss: str, budget: str, variant: str) -> float:
    """Return the penalty tuned for Algorithm 1."""
    task = problem(name)
    points = _fold_minimisers(name, loss)
    delta = delta_of(budget, task.facts)
    scores = np.empty((FOLDS, len(PENALTIES)))
    for fold, held in enumerate(task.folds()):
        labels = task.positive[~held]
        counts = int(labels.sum()), int((~labels).sum())
        for k, penalty in enumerate(PENALTIES):
            released = output_release(
                points[fold][k],
                variant,
                task.facts,
                loss,
                penalty,
                TUNED_AT,
                delta,
                _seed(fold),
                counts,
            )
            scores[fold, k] = area(task.rows[held] @ released, task.positive[held])
    return _best(scores)


@lru_cache(maxsize=64)
def objective_penalty(name: str, budget: str, variant: str) -> float:
    """Return the penalty tuned for Algorithm 2."""
    task = problem(name)
    delta = delta_of(budget, task.facts)
    scores = np.empty((FOLDS, len(PENALTIES)))
    for fold, held in enumerate(task.folds()):
        objective = task.objective(LOSSES["logistic"], ~held)
        for k, penalty in enumerate(PENALTIES):
            released = objective_release(
                objective, variant, task.facts, penalty, TUNED_AT, delta, _seed(fold)
            )
            scores[fold, k] = area(task.rows[held] @ released, task.positive[held])
    return _best(scores)
