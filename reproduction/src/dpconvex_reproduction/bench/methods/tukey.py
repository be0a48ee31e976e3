"""Tukey-median regression (TukeyEM, Amin and others 2023): a private point deep among many exact
fits.

The rows are dealt into m parts; each part is fitted exactly. A point's depth is the least number of
fits on either side of it, over the coordinates, so that points of depth at least i form a box. A
test that is private itself (propose, test, release) makes sure that the boxes do not collapse next
to this table; then a depth is drawn with weights ``volume exp(epsilon depth)`` and a point of the
box uniformly.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, Budget, Method
from dpconvex_reproduction.bench.problems import BenchProblem

Array = NDArray[np.float64]

_MOST_FITS = 1000  # what the authors recommend
_ROWS_PER_COEFFICIENT = 2  # of a part, where a thousand parts would have fewer


def log_volumes(fits: Array) -> Array:
    """Return the logarithm of the volume of the box of points of depth at least 1, 2, ...
    ``m // 2``.

    Parameters
    ----------
    fits : array of shape (m, d)
        Sorted along the first axis.
    """
    half = len(fits) // 2
    with np.errstate(divide="ignore"):
        return np.asarray(np.log((fits[::-1] - fits)[:half]).sum(axis=1))


def distance_to_unsafe(volumes: Array, epsilon: float, delta: float, depth: int) -> int:
    """Return a lower bound on the number of fits that must change until boxes around ``depth`` are
    unsafe; -1 if none.

    Distance k is safe if for some g the box of depth ``depth - k - 1`` is at most
    ``exp(epsilon g / 2) delta / (8 exp(epsilon))`` times that of depth ``depth + k + g + 1``.
    """
    limit = math.log(delta / 8) - epsilon
    best = -1
    for k in range(depth - 1):
        inner = volumes[depth + k + 1 :]
        gains = epsilon / 2 * np.arange(1, len(inner) + 1)
        if not len(inner) or np.min(volumes[depth - k - 2] - inner - gains) > limit:
            break
        best = k
    return best


def tukey_median(
    fits: Array, epsilon: float, delta: float, rng: np.random.Generator
) -> Array | None:
    """Return a private point deep among the fits, or None if the test fails; one fit may change."""
    ordered = np.sort(fits + rng.uniform(0, 1e-10, fits.shape), axis=0)
    volumes = log_volumes(ordered)
    depth = len(fits) // 4
    distance = distance_to_unsafe(volumes, epsilon / 2, delta, depth)
    if distance + rng.laplace(0, 2 / epsilon) <= math.log(1 / (2 * delta)) / (epsilon / 2):
        return None
    kept = volumes[depth - 1 :]
    shells = kept + np.log1p(-np.exp(np.minimum(np.append(kept[1:], -np.inf) - kept, -1e-16)))
    weights = shells + epsilon / 2 * np.arange(len(kept))
    place = depth - 1 + int(np.argmax(weights + rng.gumbel(size=len(weights))))
    low = ordered[place]
    high = ordered[-1 - place]
    if place + 1 < len(volumes):
        inner_low = ordered[place + 1]
        inner_high = ordered[-2 - place]
    else:
        inner_low = high
        inner_high = low
    while True:  # a point of the box that is in no deeper one
        point = rng.uniform(low, high)
        if np.any((point < inner_low) | (point > inner_high)):
            return np.asarray(point)


class TukeyEM(Method):
    """TukeyEM with as many fits as the authors recommend, or as many as the rows allow."""

    name = "Tukey median of fits"
    tasks = ("linear",)
    relations = (ADD_OR_REMOVE,)

    def parts(self, problem: BenchProblem) -> int:
        """Return the number of fits, from public sizes."""
        width = problem.X.shape[1] + 1
        return max(4, min(_MOST_FITS, len(problem.y) // (_ROWS_PER_COEFFICIENT * int(width))))

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit."""
        self.problem = problem
        rng = np.random.default_rng(seed)
        rows = problem.unit_rows(problem.X)
        targets = problem.unit_targets()
        part = rng.integers(
            0, self.parts(problem), len(rows)
        )  # each row by itself, so that one fit changes with it
        width = rows.shape[1]
        fits = np.zeros((self.parts(problem), width))
        for number in range(len(fits)):
            mine = part == number
            if mine.sum() >= width:
                fits[number] = np.linalg.lstsq(rows[mine], targets[mine], rcond=None)[0]
        found = tukey_median(fits, budget.epsilon, budget.delta, rng)
        self.theta = np.zeros(width) if found is None else found
        return self

    def predict(self, X: NDArray[Any]) -> Array:
        """Return predictions; the middle of the public range where the test failed."""
        return self.problem.target_units(self.problem.unit_rows(X) @ self.theta)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return the budget of test and draw."""
        return (
            f"({budget.epsilon:g}, {budget.delta:g})-DP, {budget.relation}: half of epsilon for "
            f"the test, half for the draw ({self.parts(problem)} fits); ties and rounding are not "
            "covered. Where the test fails it says 0"
        )


METHODS = (TukeyEM(),)
