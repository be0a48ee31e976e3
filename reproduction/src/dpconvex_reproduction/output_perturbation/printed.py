r"""What the paper prints for each class: penalty, accuracy, noise, and the bound of the algorithm
as implemented.

:mod:`dpconvex_reproduction.output_perturbation.presets` has the theorems; here are the places where
the printed text differs from what can hold, and the corollaries of section 4, whose constants pay
for the solver's accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy import GaussianDP
from dpconvex_reproduction.output_perturbation.algorithms import (
    PrintedNoise,
    algorithm_1,
    algorithm_6,
)
from dpconvex_reproduction.output_perturbation.presets import OutputProblem, output_preset

__all__ = [
    "Printed",
    "laplace_or_gaussian",
    "printed",
    "project",
    "stopped_epsilon",
    "true_epsilon",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Printed:
    """One algorithm with its printed parameters.

    Attributes
    ----------
    algorithm, reference : str
        ``Algorithm 1`` or ``6``, and where the bound is proven.
    alpha : float
        Penalty in the objective that is solved.
    accuracy : float
        Gap at which the solver may stop.
    noise : PrintedNoise
        What is added.
    bound : float
        On the expected excess risk.
    holds : bool
        Whether the condition of the theorem is met.
    """

    algorithm: str
    reference: str
    alpha: float
    accuracy: float
    noise: PrintedNoise
    bound: float
    holds: bool


def printed(problem: OutputProblem, population: bool = False) -> Printed:
    """Return the paper's algorithm for a problem.

    For means of the convex class and delta > 0 the accuracy is ``L R ratio^(3/2)`` as printed
    (Theorem 3.4, 2b).
    """
    preset = output_preset(problem, population)
    accuracy = preset.accuracy
    if problem.family == "convex" and problem.mean and problem.delta > 0:
        accuracy = problem.lipschitz * problem.radius * problem.ratio**1.5
    if problem.strong_convexity > 0:
        algorithm = "Algorithm 1"
        noise = algorithm_1(problem, accuracy)
    else:
        algorithm = "Algorithm 6"
        noise = algorithm_6(problem, preset.alpha, accuracy)
    reference = preset.theorem
    bound = preset.excess_risk
    if population:
        reference, bound = _corollary(problem)
    return Printed(algorithm, reference, preset.alpha, accuracy, noise, bound, preset.nontrivial)


def _corollary(problem: OutputProblem) -> tuple[str, float]:
    """Corollaries 4.1 to 4.4: population loss of the algorithm with an inexact solver."""
    L = problem.lipschitz
    R = problem.radius
    r = problem.ratio
    n = problem.n_samples
    pure = problem.delta == 0
    root = 1 / math.sqrt(n)
    scale = L**2 / problem.strong_convexity if problem.strong_convexity > 0 else L * R
    if problem.family == "strongly convex":
        return "Corollary 4.1", scale * (5 / n + (9 if pure else 6) * r)
    if problem.family == "smooth strongly convex":
        kappa = problem.condition_number
        return "Corollary 4.2", scale * (5 / n + (26 if pure else 13.5) * kappa * r**2)
    if problem.family == "convex":
        return "Corollary 4.3", 32 * scale * (math.sqrt(r) + root)
    smooth = (problem.smoothness * L**2 * R**4) ** (1 / 3)
    return "Corollary 4.4", 128 * smooth * (root + r ** (2 / 3))


def true_epsilon(sensitivity: float, size: float, delta: float) -> float:
    """Return the smallest epsilon that noise of this size gives for this sensitivity, at delta.

    Parameters
    ----------
    sensitivity : float
        Distance that has to be hidden.
    size : float
        Standard deviation, or the scale of l2-Laplace noise if delta is 0.
    delta : float
        0 for pure epsilon.
    """
    if delta == 0:
        return sensitivity / size
    return float(GaussianDP(sensitivity / size).epsilon(delta))


def stopped_epsilon(
    moved: float, accuracy: float, alpha: float, size: float, delta: float
) -> float:
    """Return the true epsilon if minimisers move by ``moved`` and every run meets the accuracy."""
    return true_epsilon(moved + 2 * math.sqrt(2 * accuracy / alpha), size, delta)


def laplace_or_gaussian(draws: Array, size: float, pure: bool, norms: Array) -> Array:
    """Return noise from standard draws shared by all variants.

    Parameters
    ----------
    draws : array of shape (k, d)
        Standard normal.
    size : float
        Standard deviation, or the scale of l2-Laplace noise if `pure`.
    pure : bool
        Which of them.
    norms : array of shape (k,)
        Gamma(d) draws: the norm of l2-Laplace noise of scale 1.
    """
    if not pure:
        return size * draws
    return np.asarray(size * norms[:, None] * draws / np.linalg.norm(draws, axis=1, keepdims=True))


def project(points: Array, radius: float) -> Array:
    """Return the points projected on the ball."""
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points * np.minimum(1.0, radius / np.maximum(norms, 1e-300)))
