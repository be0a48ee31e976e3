r"""Private geometry: coordinates in which rows are centred, white, and of known length.

Noise on a gradient has the same size in every direction, so directions in which rows hardly vary drown in it. Released
second moments give a linear map after which all directions vary alike. One round finds a typical row length by noisy
counts, shortens rows to it, releases their first and second moments, and whitens; eigenvalues below the noise are
raised to it. A second round in the new coordinates resolves directions that the first could not see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.terms import NoiseTerm

from .search import private_median
from .symmetric import release_symmetric

Array = NDArray[np.float64]

_REACH = 1.3  # rows are shortened to this multiple of their median length
_FLOOR = 1.5  # eigenvalues are raised to this multiple of the noise's spectral norm
_OCTAVES = 8  # of row length below the largest one that are searched


@dataclass(frozen=True)
class Coordinates:
    """Rows ``(1, u)`` with ``(1, u) = matrix @ (1, x)``, weighted by ``min(1, influence / ||u||)``.

    Attributes
    ----------
    matrix : array of shape (dimension, dimension)
        Public or released; keeps the constant column.
    influence : float
        Bound on ``||u||`` after weighting.
    lead : int
        1 with an intercept, 0 without.
    own_weights : bool
        Whether the rows' own weights already bound the influence (no change of direction).
    stretch : float
        Square root of the largest second moment that a resolved direction of ``u`` has.
    """

    matrix: Array
    influence: float
    lead: int
    own_weights: bool = False
    stretch: float = 1.0

    def weights(self, block: Array, w: Array) -> Array:
        """Return the influence weights of mapped rows, rounded to the safe side; void rows keep their 0."""
        lengths = self.lengths(block @ self.matrix.T)
        return np.where(w > 0, np.minimum(1.0, self.influence / np.maximum(lengths, 1e-300)), 0.0)

    def lengths(self, placed: Array) -> Array:
        """Return ``||u||`` of rows ``(1, u)``, rounded up."""
        u = placed[:, self.lead :]
        round_up = 1 + 8 * self.matrix.shape[0] * 2.0**-52
        return np.sqrt(np.einsum("ij,ij->i", u, u)) * round_up

    def to_rows(self, phi: Array) -> Array:
        """Return the coefficients of mapped rows that give the margins ``(1, u) . phi``."""
        return self.matrix.T @ phi


def given_coordinates(n_features: int, fit_intercept: bool, row_norm: float) -> Coordinates:
    """Return coordinates from the influence bound alone: features scaled so that the bound is ``sqrt(d)``."""
    lead = int(fit_intercept)
    scale = math.sqrt(n_features) / row_norm
    diagonal = np.full(n_features + lead, scale)
    diagonal[:lead] = 1.0
    return Coordinates(np.diag(diagonal), math.sqrt(n_features), lead, own_weights=True)


def private_coordinates(
    rows: Any,
    n_samples: int,
    fit_intercept: bool,
    max_norm: float,
    rounds: int,
    reach: float,
    counts: NoiseTerm,
    moments: NoiseTerm,
    noise: NoiseSource,
) -> Coordinates:
    """Return whitening coordinates from released counts and moments.

    Parameters
    ----------
    rows : engine
        Mapped rows.
    n_samples : int
        Public number of rows.
    fit_intercept : bool
        Whether rows start with the constant 1.
    max_norm : float
        Public bound on ``||x||``.
    rounds : int
        How often to look.
    reach : float
        Influence bound of the result in units of ``sqrt(n_features)``.
    counts, moments : NoiseTerm
        Noise on each count, and on each matrix of sums.
    noise : NoiseSource
        Where noise comes from.
    """
    lead = int(fit_intercept)
    dimension = rows.dim
    n_features = dimension - lead
    current = Coordinates(np.eye(dimension), math.inf, lead)
    longest = max_norm
    for _ in range(rounds):
        frame = current

        def length(block: Array, y: Array, w: Array, frame: Coordinates = frame) -> Array:
            return frame.lengths(block @ frame.matrix.T)

        typical = private_median(
            rows, length, longest / 2**_OCTAVES, longest, counts, n_samples, noise
        )
        radius = _REACH * typical
        sums = release_symmetric(_moment_sums(rows, frame, radius), moments, noise)
        matrix, stretch = _whiten(sums / n_samples, moments.scale / n_samples, lead)
        # In units of the radius: u / radius is what the moments were taken of.
        into_radius = np.diag(np.r_[np.ones(lead), np.full(n_features, 1 / radius)])
        current = Coordinates(matrix @ into_radius @ frame.matrix, math.inf, lead, stretch=stretch)
        longest = 4 * math.sqrt(n_features) * stretch
    return replace(current, influence=reach * math.sqrt(n_features))


def _moment_sums(rows: Any, frame: Coordinates, radius: float) -> Array:
    """Return ``sum r r^T`` of rows ``r = (1, v)``, ``v`` in units of the radius and shortened to length 1."""
    lead = frame.lead

    def part(block: Array, y: Array, w: Array) -> tuple[Array]:
        shortened = block @ frame.matrix.T
        # Lengths of the very numbers that are summed: a second product with the matrix would round differently.
        factor = np.minimum(1.0, radius / np.maximum(frame.lengths(shortened), 1e-300)) / radius
        shortened[:, lead:] *= factor[:, None]
        return (shortened.T @ shortened,)

    (sums,) = rows.sum(part)
    return np.asarray(sums)


def _whiten(moments: Array, std: float, lead: int) -> tuple[Array, float]:
    """Return the affine whitening of noisy mean moments, and how much it enlarges what it could not resolve."""
    size = moments.shape[0] - lead
    centre = moments[0, 1:] if lead else np.zeros(size)
    spread = moments[lead:, lead:] - np.outer(centre, centre)
    values, vectors = np.linalg.eigh((spread + spread.T) / 2)
    floor = max(_FLOOR * std * math.sqrt(2 * size), 1e-12)
    raised = np.maximum(values, floor)
    whitening = (vectors / np.sqrt(raised)) @ vectors.T
    # Directions raised to the floor carry less than unit energy: scale so that the total is `size` again. Noise
    # cancels in the signed sum; rows of typical length keep it above a fifth of their square in units of the floor.
    energy = float(np.sum(values / raised))
    energy = min(max(energy, 0.2 / floor), float(size))
    stretch = math.sqrt(size / energy)
    whitening *= stretch
    matrix = np.eye(size + lead)
    matrix[lead:, lead:] = whitening
    if lead:
        matrix[1:, 0] = -whitening @ centre
    return matrix, stretch
