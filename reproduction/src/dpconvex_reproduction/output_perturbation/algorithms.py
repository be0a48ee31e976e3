r"""The output-perturbation paper's algorithms as printed, for comparison. Not for private data.

All add Gaussian noise of standard deviation ``(c + sqrt(c^2 + epsilon)) S / (sqrt(2) epsilon)`` to
a point whose expected gap is at most ``accuracy``, with
``c = sqrt(log(2 / (sqrt(1 + 16 delta) - 1)))`` and their own ``S``. A gap that holds in expectation
bounds no single run, so the printed algorithms have no privacy proof even where their noise is
large enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.output_perturbation.presets import OutputProblem, gaussian_factor

__all__ = ["PrintedNoise", "algorithm_1", "algorithm_1_tilted", "algorithm_6", "algorithm_8"]


@dataclass(frozen=True)
class PrintedNoise:
    """Noise of a printed algorithm.

    Attributes
    ----------
    sensitivity : float
        What the algorithm calibrates its noise to.
    std : float
        Standard deviation per coordinate (delta > 0), or the scale of the l2-Laplace noise (delta =
        0).
    """

    sensitivity: float
    std: float

    def add(self, point: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the point plus Gaussian noise."""
        return point + self.std * rng.standard_normal(point.size)


def _noise(problem: OutputProblem, sensitivity: float, density: float = 1.0) -> PrintedNoise:
    if problem.delta == 0:
        return PrintedNoise(sensitivity, sensitivity / problem.epsilon)
    factor = gaussian_factor(problem.epsilon, problem.delta) / (math.sqrt(2) * problem.epsilon)
    return PrintedNoise(sensitivity, sensitivity * factor / math.sqrt(density))


def algorithm_1(problem: OutputProblem, accuracy: float) -> PrintedNoise:
    """Strongly convex: ``S = 2 L / (mu n) + 2 sqrt(2 accuracy / mu)``, n = 1 if the objective is
    not a mean.
    """
    mu = problem.strong_convexity
    stop = 2 * math.sqrt(2 * accuracy / mu)
    return _noise(problem, 2 * problem.lipschitz / (mu * problem.records) + stop)


def algorithm_1_tilted(problem: OutputProblem, weight: float, accuracy: float) -> PrintedNoise:
    """Tilted ERM (Lemma 5.2): ``S = (2 L / mu) min(1, C/n) + 2 sqrt(2 accuracy / mu)``,
    ``C = weight``.
    """
    mu = problem.strong_convexity
    moved = 2 * problem.lipschitz / mu * min(1.0, weight / problem.n_samples)
    return _noise(problem, moved + 2 * math.sqrt(2 * accuracy / mu))


def algorithm_6(problem: OutputProblem, alpha: float, accuracy: float) -> PrintedNoise:
    """Convex, regularised: ``S = 2 (L + alpha R) / (alpha n) + 2 sqrt(2 accuracy / alpha)``.

    Its Gaussian density is printed with ``2 epsilon^2`` where ``epsilon^2`` belongs, which makes
    the standard deviation too small by ``sqrt(2)``.
    """
    lipschitz = problem.lipschitz + alpha * problem.radius
    stop = 2 * math.sqrt(2 * accuracy / alpha)
    return _noise(problem, 2 * lipschitz / (alpha * problem.records) + stop, density=2.0)


def algorithm_8(problem: OutputProblem, accuracy: float) -> PrintedNoise:
    """Adversarial training: ``S = 2 L / (mu n) + 2 accuracy / mu`` for delta > 0.

    A point with that gap can lie ``sqrt(2 accuracy / mu)`` from the minimiser, far more than
    ``accuracy / mu``.
    """
    mu = problem.strong_convexity
    base = 2 * problem.lipschitz / (mu * problem.records)
    stop = 2 * math.sqrt(2 * accuracy / mu) if problem.delta == 0 else 2 * accuracy / mu
    return _noise(problem, base + stop)
