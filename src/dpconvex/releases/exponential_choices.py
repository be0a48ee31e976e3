r"""The third primitive between rows and noise: choices by the exponential mechanism.

One of some outcomes is drawn in proportion to ``exp(epsilon score / spread)``, spread being how far
one record can move two scores apart: a neighbour changes the ratio of two outcomes' weights by at
most ``exp(epsilon)``, hence every probability by at most that factor. Draws are exact
(:mod:`dpconvex.releases.exponential_sampler`); a certificate says how many there may be, and
one too many raises before anything is drawn.

Scores are whole multiples of ``1 / SCORE_GRID`` of what one record can change, so sums over rows
are exact and no rounding adds to their sensitivity: ``|floor(a) - floor(b)| <= k`` wherever
``|a - b| <= k`` and k is whole.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.core.block_products import block_margins, transform_block
from dpconvex.core.certificate import CertificateError
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.noise_source import NoiseSource
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy.bounds.scores import ScoreBounds
from dpconvex.releases.exponential_sampler import exponential_mechanism
from dpconvex.types import Array

Run = TypeVar("Run")

SCORE_GRID = 2**16  # steps that one record's influence on a score is divided into
POINTS = 2**40  # of a search range: a millionth of one that is a million times too wide
_WORK = 2**22  # losses computed at a time


class ExponentialChoices:
    """Draws that a certificate allows for: so many uses, each of them epsilon-DP."""

    def __init__(self, epsilon: float, uses: int, noise: NoiseSource) -> None:
        self._epsilon = epsilon
        self._left = uses
        self._noise = noise
        self._lock = threading.Lock()

    def candidate(self, steps: ArrayLike, score: ScoreBounds, neighbors: str) -> int:
        """Return the index of a candidate; one record moves its score by at most ``SCORE_GRID``
        steps.

        The score's bounds say in how many directions scores move at once: sums of numbers that are
        not negative all rise where a record is added.
        """
        return self._draw(np.asarray(steps), score.directions(neighbors) * SCORE_GRID)

    def quantiles(
        self, values: ArrayLike, levels: Iterable[float], low: float, high: float
    ) -> list[float]:
        r"""Return a private quantile of a column for each level, each by one draw of the
        exponential mechanism.

        A point t of a public grid on the public range ``[low, high]`` has the score
        ``-|#{x_i < t} - q n|``, which moves by at most 1 where a value is replaced.
        """
        ordered = np.sort(
            np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64), nan=low), low, high)
        )
        # Each value by itself becomes a point of the grid, so that a replaced record replaces one
        # point.
        points = np.floor((ordered - low) / (high - low) * POINTS).astype(np.int64)
        edges = np.concatenate([[-1], np.clip(points, 0, POINTS), [POINTS]])
        found = []
        for level in levels:
            wanted = math.floor(level * len(ordered) * SCORE_GRID)
            scores = -np.abs(np.arange(len(ordered) + 1) * SCORE_GRID - wanted)
            chosen = self._draw(scores, 2 * SCORE_GRID, np.diff(edges))
            width = int(edges[chosen + 1] - edges[chosen])
            point = int(edges[chosen]) + self._noise.words.below(width) + 1
            found.append(min(high, max(low, low + (high - low) * (point / POINTS))))
        return found

    def coefficients(
        self,
        objective: EmpiricalObjective,
        bounds: LinearBounds,
        candidates: Array,
        centre: Array,
        radius: float,
    ) -> Array:
        """Return one of some public or released coefficients, by their losses: see
        :func:`exponential_loss_scores`.
        """
        scores = exponential_loss_scores(objective, bounds, candidates, centre, radius)
        return np.array(candidates[self._draw(scores, exponential_loss_spread(bounds))])

    def _draw(
        self, scores: NDArray[np.int64], spread: int, counts: NDArray[np.int64] | None = None
    ) -> int:
        """Return an index, drawn with probability proportional to
        ``counts exp(epsilon scores / spread)``.
        """
        with self._lock:
            if self._left < 1:
                raise CertificateError(
                    "All choices that the certificate allows for have been made."
                )
            self._left -= 1
        return exponential_mechanism(self._noise.words, -scores, self._epsilon / spread, counts)


def exponential_loss_spread(bounds: LinearBounds) -> int:
    r"""Return by how many steps one record can move the loss scores of two coefficients apart.

    A record's whole score lies within G of 0:
    ``|loss(w) - loss(centre)| <= L ||w - centre|| <= L R``, weights at most 1 included in L. So it
    moves two scores apart by at most 2 G, and a replaced record, one out and one in, by 4 G.
    """
    return 2 * bounds.changed_records * SCORE_GRID


def exponential_loss_scores(
    objective: EmpiricalObjective,
    bounds: LinearBounds,
    candidates: Array,
    centre: Array,
    radius: float,
) -> NDArray[np.int64]:
    r"""Return the whole score of every candidate w within R of a centre c: private.

    ``-sum_i round(G w_i (loss_i(w) - loss_i(c)) / (L R)) - round(G n (alpha/2) (||w||^2 - ||c||^2)
    / (L R))``
    """
    # Rows of other engines are refused before: every record's loss is rounded by itself.
    rows, targets, weights = cast(MemoryRows, objective.rows).mapped()
    unit = bounds.lipschitz * radius
    squares = np.square(candidates).sum(axis=1) - float(centre @ centre)
    penalty = bounds.n_samples * bounds.alpha / 2 * squares * (SCORE_GRID / unit)
    scores: NDArray[np.int64] = -np.rint(np.clip(penalty, -(2.0**61), 2.0**61)).astype(np.int64)
    step = max(1, _WORK // max(1, len(candidates)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        # Row by row: a product of matrices would round a record's score by how many others there
        # are.
        here = objective.loss.value(targets[part], block_margins(rows[part], centre))[:, None]
        there = objective.loss.value(
            targets[part][:, None], transform_block(rows[part], candidates.T)
        )
        shares = np.nan_to_num(weights[part][:, None] * (there - here) / unit, nan=0.0)
        # Within G whatever rounding or overflow did: the sensitivity rests on this line.
        scores += (
            np.clip(np.rint(-SCORE_GRID * shares), -SCORE_GRID, SCORE_GRID)
            .astype(np.int64)
            .sum(axis=0)
        )
    return scores


def repeat_and_choose(
    run: Callable[[int], tuple[Run, int]],
    candidates: int,
    mean_repeats: float,
    std: float,
    noise: NoiseSource,
) -> Run:
    """Choose the best of a geometric number of runs of random candidates, by scores with Gaussian
    noise.

    ``run`` takes a candidate's number and returns what is released of it and its score in steps of
    the grid; ``std`` is in units of a score's sensitivity.
    """
    shown = -math.inf
    best = None
    for _ in range(_draw_choice_repeats(noise, mean_repeats)):
        found, steps = run(noise.words.below(candidates))
        score = float(noise.add_gaussian(np.array([steps / SCORE_GRID]), std)[0])
        if best is None or score > shown:
            shown = score
            best = found
    assert best is not None
    return best


def _draw_choice_repeats(noise: NoiseSource, mean: float) -> int:
    """Return the number of tries up to the first success, each of probability ``1 / mean``
    exactly.
    """
    per, outcomes = mean.as_integer_ratio()
    tries = 1
    while noise.words.below(per) >= outcomes:
        tries += 1
    return tries
