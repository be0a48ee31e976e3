r"""Private geometry: coordinates in which rows are centred, white, and of known length.

Noise on a gradient has the same size in every direction, so directions in which rows hardly vary drown in it. First
every column is stretched to its own unit (:mod:`~dpconvex.mechanisms.column_ranges`). Then one round after
the other finds a typical row length, shortens rows to it, releases their first and second moments, and whitens;
eigenvalues below the noise are raised to it, so that what could not be seen stays short. A row's length counts the
constant: a table of rare flags has mostly rows of zeros, and they are records like others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.accurate_products import MomentSums
from dpconvex.engine.blocks import by_nonzeros, placed_rows
from dpconvex.engine.rows import Rows
from dpconvex.engine.sparse import SparseRows
from dpconvex.engine.threads import scratch, single_threaded_blas
from dpconvex.mechanisms.column_ranges import column_units
from dpconvex.mechanisms.length_cover import LengthCover, length_cover
from dpconvex.mechanisms.noisy_covariances import without_noise
from dpconvex.mechanisms.quantile_search import Counting, Walk, private_quantile
from dpconvex.mechanisms.symmetric_release import release_symmetric
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

Array = NDArray[np.float64]

LENGTH_STEPS = 10  # noisy counts per length
STRETCH_LIMIT = 1e5  # largest length to which coordinates may stretch a bounded row: sums must keep their digits

_RADIUS_LEVEL = 0.75  # quantile of the lengths that rows are shortened to multiples of
_MEDIAN_SHARE = (
    0.7  # of a mean square length: what the square of the median length is at least taken for
)
_USUAL = (0.15, 0.15)  # mean variance of columns in their own units, and how far from it it may be
_POWERS = 20  # that bound a spectral norm
_LONGER = 0.08  # share by which rows of very large tables may be taken for longer than they are


@dataclass(frozen=True)
class Coordinates:
    """Rows ``(h, u) = matrix @ (1, x)``, with ``h = 1`` but for rankings.

    Attributes
    ----------
    matrix : array of shape (dimension, dimension) or (dimension,)
        Public or released; keeps the constant column. A vector is the diagonal of a matrix.
    lead : int
        1 with an intercept, 0 without.
    typical : float
        Released length of a typical row, the constant included: the unit of clips.
    moments : array of shape (dimension,)
        Estimated second moment of each coordinate, at most 1; below 1 where whitening did not reach.
    cover : LengthCover or None
        Bound that stands for lengths where it saves time.
    doubts : array of shape (2, dimension) or None
        Standard deviation of what noise made of the moments, and a factor: that of two coordinates gives the variance
        of ``sqrt(2)`` times the mean of their products. None where it is not known.
    """

    matrix: Array
    lead: int
    typical: float
    moments: Array
    cover: LengthCover | None = None
    doubts: Array | None = None

    @cached_property
    def stretches(self) -> Array | None:
        """The diagonal of a matrix that only stretches columns; None for others."""
        if self.matrix.ndim == 1:
            return self.matrix
        diagonal = np.diagonal(self.matrix).copy()
        return diagonal if np.array_equal(self.matrix, np.diag(diagonal)) else None

    @cached_property
    def _columns(self) -> Array:
        """The matrix column by column."""
        return np.ascontiguousarray(self.matrix.T)

    def place(self, block: Array) -> Array:
        """Return rows ``(1, x)`` in these coordinates, to be used before the thread asks for others.

        What a row gives depends on that row alone, to its last digit: counts of lengths must not move with the number
        of rows, nor what other records add to a sum.
        """
        placed = scratch(*block.shape)
        if self.stretches is not None:
            return np.multiply(block, self.stretches, out=placed)
        return placed_rows(block, self._columns, placed)

    def lengths(self, block: Array) -> Array:
        """Return ``sqrt(h^2 + ||u||^2)`` of rows ``(1, x)`` or ``x``, rounded up, or a bound that stands for it."""
        if self.cover is not None:
            return self.cover.lengths(block, self.lead)
        if self.stretches is not None:
            return self._stretched_lengths(block, self.stretches)
        return _lengths(self.place(block), self.lead)

    def _stretched_lengths(self, block: Array, stretches: Array) -> Array:
        from dpconvex.engine.mapping import stretched_squares

        squares = np.empty(len(block))
        slopes = stretches[self.lead :]
        stretched_squares(block, self.lead, np.zeros(slopes.size), slopes, squares)
        constant = self.constant**2 if self.lead else 1.0
        return np.asarray(np.sqrt(constant + squares) * _round_up(block.shape[1]))

    @property
    def store_lengths(self) -> RowLengths:
        """Lengths in place of weights, as rows are reweighted by them."""
        return RowLengths(self)

    @property
    def constant(self) -> float:
        """h, what the constant column becomes."""
        return float(self.matrix.flat[0])

    def to_rows(self, phi: Array) -> Array:
        """Return the coefficients of mapped rows that give the margins ``(h, u) . phi``, or of each column of phi."""
        return (self.matrix * phi.T).T if self.matrix.ndim == 1 else self.matrix.T @ phi

    def of_sum(self, total: Array) -> Array:
        """Return a sum of multiples of rows in these coordinates."""
        return self.matrix * total if self.matrix.ndim == 1 else self.matrix @ total

    def shrunk(self, phi: Array, rate: float | Array) -> Array:
        """Return phi after an implicit step on the penalty of coefficients: stable whatever alpha and the rate."""
        if self.matrix.ndim == 1:
            return np.asarray(phi / (1 + rate * self.matrix**2))
        penalty = rate * (self.matrix @ self.matrix.T)
        return np.asarray(np.linalg.solve(np.eye(phi.size) + penalty, phi))


@dataclass(frozen=True)
class RowLengths:
    """Lengths in given coordinates in place of weights; infinite for rows of weight 0, so that they keep it."""

    frame: Coordinates

    def __call__(self, block: Array, w: Array) -> Array:
        """Return the lengths of a block of rows."""
        return np.where(w == 0, np.inf, self.frame.lengths(block))

    @property
    def cover(self) -> LengthCover | None:
        """The bound that stands for lengths where it needs no products of columns."""
        cover = self.frame.cover
        return None if cover is None or cover.factors.size else cover

    def by_nonzeros(self, rows: SparseRows) -> Array:
        """Return the lengths of all rows."""
        stretches = self.frame.stretches
        return rows.lengths(self.frame.matrix if stretches is None else stretches)


def _lengths(placed: Array, lead: int) -> Array:
    u = placed[:, lead:]
    constant = placed[:, 0] ** 2 if lead else 1.0
    return np.asarray(np.sqrt(constant + np.einsum("ij,ij->i", u, u)) * _round_up(placed.shape[1]))


def _round_up(dimension: int) -> float:
    """Return by what factor computed lengths are raised, so that none is shorter than the true one."""
    return 1 + 8 * dimension * 2.0**-52


@dataclass(frozen=True)
class Look:
    """What is known of rows before their coordinates are found, and how far to go.

    Attributes
    ----------
    n_samples : int
        Public number of records.
    looked_at : int or None
        How many of them to look at; None for all. Only where their number is public.
    fit_intercept : bool
        Whether rows start with the constant 1.
    max_norm : float
        Public bound on ``||x||``.
    reach : float
        Rows are shortened to this multiple of the 0.75 quantile of their lengths.
    floor : float
        Eigenvalues are raised to this multiple of the noise's spectral norm.
    trust : float
        Exponent between 0 and 1 of the whitening in the second round.
    most_cancellation : float
        Largest :func:`cancellation` with which sums of gradients keep their digits.
    lighter : float
        Exponent between 0 and 1: at 1 the constant is made as short as a usual coordinate is. A ranking has no use for
        it, and rows that could hardly be seen would drown in its noise.
    filled : float
        What records count for on average, 1 or a released number.
    above : int
        Octaves above 1 that columns may reach.
    ignored : bool
        Whether rows may be ignored, so that counts are centred.
    """

    n_samples: int
    looked_at: int | None
    fit_intercept: bool
    max_norm: float
    reach: float
    floor: float
    trust: float
    most_cancellation: float
    lighter: float = 0.0
    filled: float = 1.0
    above: int = 0
    ignored: bool = False


def private_coordinates(
    rows: Rows, look: Look, terms: Mapping[str, NoiseTerm], noise: NoiseSource
) -> tuple[Coordinates, Rows]:
    """Return whitening coordinates, and the rows with their lengths in them in place of weights.

    Parameters
    ----------
    rows : engine
        Mapped rows.
    look : Look
        What is known of them, and how far to go.
    terms : mapping
        Noise of "scales", "lengths", "moments" and, for a second round, "finer moments"; of "places" where no bounds
        are public.
    noise : NoiseSource
        Where noise comes from.
    """
    mass, looked_at = look.n_samples * look.filled, look.looked_at
    lead, dimension, everyone = int(look.fit_intercept), rows.dim, rows
    if looked_at is not None:  # which rows depends on their public number alone
        rows, mass = rows.part(looked_at), looked_at * look.filled
    units = column_units(rows, mass, lead, look.above, terms, noise)
    if look.above:  # what directions may be stretched to is in units of the columns then
        most, unit = STRETCH_LIMIT / math.sqrt(dimension), 1 / units.sizes
        stretches = np.concatenate([np.ones(lead), unit])
    else:
        most, unit = STRETCH_LIMIT / max(look.max_norm, 1.0), np.ones(dimension - lead)
        stretches = np.concatenate([np.ones(lead), np.minimum(1 / units.sizes, most)])
    matrix = stretches
    if "moments" in terms:
        matrix = np.diag(stretches)
        if units.centres.any():
            shifted = matrix.copy()
            shifted[lead:, 0] = -units.centres * stretches[lead:]
            matrix = shifted if cancellation(shifted) <= look.most_cancellation else matrix
    current = Coordinates(matrix, lead, 1.0, np.ones(dimension))

    def length_at(measured: Rows, level: float, guess: float, most: float) -> float:
        """Return a private quantile of the lengths of rows that were measured."""
        octave = private_quantile(
            measured,
            _octave,
            Walk(level, math.log2(guess), 2.0, 6.0, LENGTH_STEPS, 0.8),
            Counting(terms["lengths"].scale, mass, noise, look.ignored),
        )
        constant = current.constant if lead else 1.0
        return min(max(2.0**octave, constant), most)

    usual = math.sqrt(1 + dimension - lead)  # of white rows

    if (
        "moments" not in terms
    ):  # too many columns for a matrix: one length for all, in units of a typical one
        measured = rows.reweighted(current.store_lengths)
        found = length_at(measured, 0.5, math.sqrt(usual), usual)
        typical = math.sqrt(max(found**2 - 1, 1.0))
        matrix = np.concatenate([np.ones(lead), stretches[lead:] / typical])
        moments = np.concatenate([np.ones(lead), np.full(dimension - lead, 1 / (dimension - lead))])
        current = Coordinates(
            matrix, lead, math.hypot(1, math.sqrt(found**2 - 1) / typical), moments
        )
        return current, everyone.reweighted(current.store_lengths)
    for moments_of, power in (("moments", 1.0), ("finer moments", look.trust)):
        if moments_of not in terms:
            continue
        guess, most_likely = (
            (usual / 1.5, 1.5 * usual) if moments_of == "moments" else (usual, 4 * usual)
        )
        measured = rows.reweighted(current.store_lengths)
        radius = look.reach * length_at(measured, _RADIUS_LEVEL, guess, most_likely)
        sums = release_symmetric(_moment_sums(measured, current, radius), terms[moments_of], noise)
        std = terms[moments_of].scale / mass
        with single_threaded_blas():  # matrices are small: threads would wait for each other
            # Eigenvalues are raised further where sums could not keep their digits in such coordinates.
            for raised in (1.0, 10.0, 1e2, 1e3, 1e4, 1e5):
                step, moments, doubts = _whiten(
                    sums / mass, std, radius, current, most * unit, raised * look.floor, power
                )
                matrix = step @ current.matrix
                # Directions are capped one by one, and together may exceed the cap by a little.
                matrix[lead:] /= max(1.0, _largest_stretch(matrix[lead:, lead:] / unit) / most)
                if cancellation(matrix) <= look.most_cancellation:
                    current = Coordinates(matrix, lead, 1.0, moments, doubts=doubts)
                    break
    guess = usual
    if look.lighter and lead:
        height = min(1.0, float(current.moments[lead:].mean())) ** (look.lighter / 2)
        lowered = current.matrix * np.where(np.arange(dimension) < lead, height, 1.0)[:, None]
        if cancellation(lowered) <= look.most_cancellation:
            moments = np.concatenate([[height**2], current.moments[lead:]])
            current, guess = Coordinates(lowered, lead, 1.0, moments), height * usual
    # Which of two ways bounds are computed depends on the number of rows: private where people have several.
    if looked_at is not None and not everyone.voted:
        excess = _LONGER * (1 - looked_at / look.n_samples)
        current = replace(current, cover=length_cover(current.matrix, lead, excess))
    measured = everyone.reweighted(current.store_lengths)
    part = measured if looked_at is None else measured.part(looked_at)
    typical = length_at(part, 0.5, guess, 4 * usual)
    moments = _at_least(current.moments, lead, current.matrix[0, 0] if lead else 1.0, typical)
    return replace(current, typical=typical, moments=moments), measured


def _at_least(moments: Array, lead: int, height: float, typical: float) -> Array:
    """Return second moments that do not fall far below what a typical length says: noise may hide them all."""
    usual = _MEDIAN_SHARE * (typical**2 - height**2) / max(1, moments.size - lead)
    raised = moments.copy()
    raised[lead:] = np.minimum(1.0, moments[lead:] * max(1.0, usual / moments[lead:].mean()))
    return raised


def cancellation(matrix: Array) -> float:
    """Bound ``|| |M| |M^-1| ||``: how much larger the terms of a mapped sum can be than what they sum to.

    For a matrix P without negative entries ``||P||^2 <= max_i (P^T P v)_i / v_i`` whatever the positive v (Collatz and
    Wielandt); a few powers of ``P^T P`` make it tight.
    """
    product = np.abs(matrix) @ np.abs(np.linalg.inv(matrix))
    vector = np.ones(len(product))
    for _ in range(_POWERS):
        grown = product.T @ (product @ vector)
        bound = float((grown / vector).max())
        vector = np.maximum(grown / grown.max(), 1e-100)
    return math.sqrt(bound)


def _largest_stretch(matrix: Array) -> float:
    """Return the spectral norm."""
    return math.sqrt(max(float(np.linalg.eigvalsh(matrix @ matrix.T)[-1]), 0.0))


def _octave(y: Array, lengths: Array) -> Array:
    return np.log2(lengths)


def _moment_sums(measured: Rows, frame: Coordinates, radius: float) -> Array:
    """Return the sum over votes of ``u u^T`` of placed rows ``u = (1, x) / radius``, shortened to length 1."""

    @by_nonzeros(lambda rows: (rows.moment_sums(np.minimum(1 / radius, 1 / rows.weights)),))
    def part(block: Array, y: Array, w: Array, v: Array | None = None) -> tuple[Array]:
        shortened = frame.place(block)
        # Lengths of the very numbers that are summed: another product with the matrix could round differently.
        lengths = _lengths(shortened, frame.lead)
        factors = np.where(w == 0, 0.0, np.minimum(1 / radius, 1 / lengths))  # ignored rows
        shortened *= (factors if v is None else factors * np.sqrt(v))[:, None]
        return (shortened.T @ shortened,)

    (sums,) = measured.sum_votes(part) if measured.voted else measured.sum(part)
    if isinstance(sums, MomentSums):  # by non-zeros, in the rows' own coordinates
        matrix = frame.matrix if frame.stretches is None else frame.stretches
        return sums.mapped(matrix, measured.n_rows)
    return np.asarray(sums)


def _whiten(
    moments: Array,
    std: float,
    radius: float,
    frame: Coordinates,
    most: Array,
    floor: float,
    power: float,
) -> tuple[Array, Array, Array]:
    """Return the affine whitening of noisy mean moments, the second moments that it leaves, and the noise in them.

    No direction is stretched beyond ``most``, which is in units of each column. With ``power`` below 1 it goes only
    part of the way, and the moments are partly those known before.
    """
    lead = frame.lead
    size = moments.shape[0] - lead
    # The mean squared weight over radius^2: known up to noise, and not below a third of what it is for short rows.
    mass = 1 / radius**2
    if lead:
        mass = float(np.clip(moments[0, 0], mass / 3, mass))
    centre = np.zeros(size)
    if lead:
        centre = moments[0, 1:] / mass
        unsure = size * (std / mass) ** 2 / 2
        square = max(float(centre @ centre), 1e-300)
        centre *= max(0.0, 1 - 2 * unsure / square) * min(1.0, radius / math.sqrt(square))
    spread = moments[lead:, lead:] / mass - np.outer(centre, centre)
    spread, noisy = without_noise(spread, std / mass, None if frame.doubts is not None else _USUAL)
    values, vectors = np.linalg.eigh((spread + spread.T) / 2)
    floor = floor * std / mass * math.sqrt(2 * size)
    # No direction may be stretched beyond what the digits of a sum allow.
    stretched = np.linalg.norm(vectors.T @ (frame.matrix[lead:, lead:] / most), axis=1)
    raised = np.maximum(np.maximum(values, floor), stretched**2)
    raised = np.maximum(raised, 1e-12)
    whitening = (vectors * raised ** (-power / 2)).T
    centre = power * centre
    step = np.eye(size + lead)
    step[lead:, lead:] = whitening
    if lead:
        step[1:, 0] = -whitening @ centre
    # Noise cancels in the signed mean of the eigenvalues that it hides.
    hidden = values < 2 * raised.min()
    if hidden.any():
        values = np.where(hidden, max(float(values[hidden].mean()), 0.0), values)
    before = (vectors**2).T @ frame.moments[lead:]
    left = np.clip((power * values + (1 - power) * before) * raised**-power, 1e-3, 1.5)
    alone = np.sum(vectors**4, axis=0)  # how far a direction is a column
    between = np.maximum(np.sum(vectors * (noisy.between @ vectors), axis=0), 0.0)
    along = noisy.apart * alone + between * (1 - alone) + noisy.mean
    doubts = np.sqrt([along, between]) * raised**-power
    if frame.doubts is not None:
        doubts = np.hypot(power * doubts, (1 - power) * frame.doubts[:, lead:] @ vectors**2)
    doubts = np.hstack([np.zeros((2, lead)), doubts])
    return step, np.concatenate([np.ones(lead), left]), doubts


def given_coordinates(n_features: int, fit_intercept: bool, row_norm: float) -> Coordinates:
    """Return coordinates from the influence bound alone: features scaled so that the bound is ``sqrt(d)``."""
    lead = int(fit_intercept)
    scale = math.sqrt(n_features) / row_norm
    diagonal = np.full(n_features + lead, scale)
    diagonal[:lead] = 1.0
    typical = math.sqrt(lead + n_features)
    return Coordinates(np.diag(diagonal), lead, typical, np.ones(n_features + lead))
