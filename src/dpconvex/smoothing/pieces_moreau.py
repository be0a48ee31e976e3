r"""Moreau envelopes of maxima of affine functions, from below: exact, for comparison with convolution.

``e(x) = inf_u max_p (<a_p, u> + b_p) + (c/2) ||x - u||^2``, which by duality is the largest of

    sum_p l_p (<a_p, x> + b_p) - ||sum_p l_p a_p||^2 / (2 c)      over weights l >= 0 that sum to 1;

the maximising mean slope is the gradient. Weights may be taken on at most m + 1 pieces, so every such subset is tried:
its stationary weights solve a small linear system, and the ones that are not negative and leave no piece above are the
solution. Such an envelope is convex, has the loss's Lipschitz constant, is c-smooth, and lies below the loss by at most
``L^2 / (2 c)``. With the Huber potential of curvature b and width w, ``c = b / w``, it is the same if ``b >= L``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dpconvex.engine.blocks import placed_rows
from dpconvex.losses.structured import PiecewiseLinear
from dpconvex.smoothing.energy_envelope import EnergyEnvelope
from dpconvex.types import Array

__all__ = ["PiecesMoreau"]


_MOST_SUBSETS = 20_000
_SLACK = 1e-9  # of weights, and of pieces above, in units of the loss


@dataclass(frozen=True)
class PiecesMoreau(EnergyEnvelope):
    """Envelope of a maximum of affine pieces with curvature c; build it with :func:`moreau_vector`."""

    loss: PiecewiseLinear
    kind = PiecewiseLinear

    def __post_init__(self) -> None:
        super().__post_init__()
        pieces, count = len(self.loss.slopes), 0
        for size in range(1, self._most + 1):
            step = 1
            for i in range(size):
                step = step * (pieces - i) // (i + 1)
            count += step
        if count > _MOST_SUBSETS:
            raise ValueError(
                "The 'loss' parameter of moreau_vector must have fewer pieces: their subsets are tried one by one. "
                f"Got {pieces} pieces of {self.outputs} residuals instead."
            )

    @property
    def _most(self) -> int:
        return min(self.outputs + 1, len(self.loss.slopes))

    @cached_property
    def _systems(self) -> list[tuple[list[int], Array]]:
        """Subsets of affinely independent pieces, and the inverse of each one's stationary system."""
        slopes = np.array(self.loss.slopes)
        found: list[tuple[list[int], Array]] = []
        for size in range(1, self._most + 1):
            for subset in map(list, combinations(range(len(slopes)), size)):
                block = slopes[subset]
                if size > 1 and np.linalg.matrix_rank(block[1:] - block[0]) < size - 1:
                    continue
                matrix = np.zeros((size + 1, size + 1))
                matrix[:size, :size] = block @ block.T / self.modulus
                matrix[:size, size] = matrix[size, :size] = 1.0
                found.append((subset, np.asarray(np.linalg.inv(matrix), dtype=np.float64)))
        return found

    def _solve(self, u: Array) -> tuple[Array, Array, Array]:
        """Return value, gradient and the index of the subset of every row."""
        slopes, offsets = np.array(self.loss.slopes), np.array(self.loss.offsets)
        heights = placed_rows(u, slopes.T) + offsets
        n = len(u)
        value, gradient = np.full(n, -np.inf), np.zeros_like(u)
        chosen, worst = np.zeros(n, dtype=int), np.full(n, np.inf)
        scale = 1.0 + np.abs(heights).max(axis=1)
        for index, (subset, inverse) in enumerate(self._systems):
            size = len(subset)
            right = np.column_stack([heights[:, subset], np.ones(n)])
            solved = placed_rows(right, inverse.T)
            weights, level = solved[:, :size], solved[:, size]
            mean = placed_rows(weights, slopes[subset])
            # How far it is from optimal: a negative weight, or a piece above the common level.
            reached = placed_rows(mean, slopes.T) / self.modulus + level[:, None]
            above = (heights - reached).max(axis=1) / scale
            wrong = np.maximum(-weights.min(axis=1), above)
            better = wrong < np.maximum(worst - _SLACK, 0.0) if index else np.ones(n, dtype=bool)
            found = (weights * heights[:, subset]).sum(axis=1) - np.square(mean).sum(axis=1) / (2 * self.modulus)
            value = np.where(better, found, value)
            gradient = np.where(better[:, None], mean, gradient)
            chosen, worst = np.where(better, index, chosen), np.where(better, wrong, worst)
        return value, gradient, chosen

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``e(u)`` of every row."""
        return self._solve(u)[0]

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """The maximising mean slope."""
        return self._solve(u)[1]

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """``c`` times the projection on the directions in which the active pieces differ, where it exists."""
        slopes, chosen = np.array(self.loss.slopes), self._solve(u)[2]
        found = np.zeros((*u.shape, u.shape[1]))
        for index in np.unique(chosen):
            block = slopes[self._systems[index][0]]
            differences = block[1:] - block[0]
            if len(differences):
                basis = np.linalg.svd(differences, full_matrices=False)[2]
                found[chosen == index] = self.modulus * basis.T @ basis
        return found
