r"""Which numbers columns hold: noisy histograms, one per column, that make all columns numbers of order 1.

Where bounds are public, columns are mapped into [-1, 1], and what is looked for is how much smaller they are: the
largest octave that holds enough values. Where they are not, octaves go as far up as rows may, so that ages, incomes and
flags find their own units. A second histogram tells columns that stay away from 0, such as years, blood pressures or
what lies in a corner of wide bounds, from those that do not, and centres them. What noise hides in each column by
itself is looked for in all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpconvex.engine.blocks import by_nonzeros
from dpconvex.engine.rows import Rows
from dpconvex.privacy.bounds.record import LinearRecord
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

__all__ = ["PLACES", "ColumnUnits", "column_units", "octaves", "octaves_above"]

Array = NDArray[np.float64]

PLACES = 64  # equal parts from minus to plus a column's unit

_BELOW = 16  # octaves below 1
_FEWEST = 0.002  # share of the records that must lie in an octave for it to count
_CERTAIN = 5.0  # in units of the noise
_MUCH = 0.4  # share of the records in two octaves that may tell a scale with less certainty
_SUSPECT, _SUSPECT_ALL = 3.5, 2.5  # in units of the noise: of some octaves of many, and of all
# Share of the records that a stretch of places must seem to hold for a column to be centred there, and surely holds.
_WITHIN, _SURELY = 0.8, 0.25
_WIDTHS = (1, 2, 3, 4, 6, 8, 11, 16)  # of stretches, in places


def octaves_above(bounds: LinearRecord) -> int:
    """Return how many octaves above 1 the columns of bounded rows may reach: 0 with public bounds of columns."""
    most = bounds.max_norm / math.sqrt(bounds.n_features)
    return max(0, math.ceil(math.log2(most * (1 - 1e-9))))


def octaves(above: int) -> int:
    """Return how many octaves are counted per column: down to 2^-16 or as far as up, and everything below."""
    return above + max(_BELOW, above) + 1


@dataclass(frozen=True)
class ColumnUnits:
    """Released units: ``(x - centre) / size`` is of order 1.

    Attributes
    ----------
    sizes : array of shape (n_features,)
        Above 0.
    centres : array of shape (n_features,)
        0 but for columns that stay away from it.
    """

    sizes: Array
    centres: Array


def column_units(
    rows: Rows,
    mass: float,
    lead: int,
    above: int,
    terms: Mapping[str, NoiseTerm],
    noise: NoiseSource,
) -> ColumnUnits:
    """Return the unit of every column.

    Parameters
    ----------
    rows : engine
        Mapped rows.
    mass : float
        What all of them count for, public or released.
    lead : int
        1 with an intercept, 0 without.
    above : int
        Octaves above 1 that columns may reach.
    terms : mapping
        Noise of "scales" and, where columns may be centred, "places". A record is in one bin of each column's
        histogram.
    noise : NoiseSource
        Where noise comes from.
    """
    columns, size = rows.dim - lead, octaves(above)

    @by_nonzeros(lambda rows: (rows.octave_counts(size, above).ravel(),))
    def part(block: Array, y: Array, w: Array, v: Array | None = None) -> tuple[Array]:
        from dpconvex.engine.mapping import count_octaves

        counts = np.zeros((columns, size))
        count_octaves(block, _votes(w, v), lead, above, counts)
        return (counts.ravel(),)

    std = terms["scales"].scale
    (counts,) = rows.sum_votes(part) if rows.voted else rows.sum(part)
    counts = noise.add_gaussian(np.asarray(counts), std).reshape(columns, size)
    octave, alone, seen = _largest(counts, std, mass)
    if not alone.all():
        # Columns that noise hides one by one are seen much earlier together, and share a unit. So do those that are
        # seen an octave away: which octave is the first to be seen is what noise tells then, and not the column.
        many = int(np.count_nonzero(~alone))
        pooled = counts[~alone].sum(axis=0, keepdims=True)
        shared = _largest(pooled, math.sqrt(many) * std, many * mass)[0][0]
        octave[np.abs(octave - shared) <= 1] = shared
        octave[~seen] = _reaching(counts[~seen], std, int(shared))
    sizes = 2.0 ** (above - octave.astype(np.float64))
    if "places" not in terms:
        return ColumnUnits(sizes, np.zeros(columns))
    return _centred(rows, mass, lead, sizes, terms["places"].scale, noise)


def _votes(w: Array, v: Array | None) -> Array:
    """Return votes of rows by their weights: ignored rows, of weight 0, have none."""
    present = np.asarray(w > 0, dtype=np.float64)
    return present if v is None else present * v


def _largest(
    counts: Array, std: float, mass: float
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each histogram the largest octave that surely holds enough, or the first, and whether there is one.

    By itself first, and by itself or with its neighbour.
    """
    # By its own count: in sums over octaves the noise of empty ones would end up as a scale far too small, and a rare
    # flag would be stretched beyond all others.
    enough = counts[:, :-1] > max(_CERTAIN * std, _FEWEST * mass)
    alone = np.asarray(enough.any(axis=1))
    # Two neighbours that hold much of a column are seen earlier: by what noise exceeds in one fit of ten thousand.
    surely = -float(ndtri(1e-4 / counts.size))
    pairs = counts[:, :-2] + counts[:, 1:-1]
    enough[:, :-1] |= pairs > max(surely * math.sqrt(2) * std, _MUCH * mass)
    seen = np.asarray(enough.any(axis=1))
    return np.where(seen, enough.argmax(axis=1), 0), alone, seen


def _reaching(counts: Array, std: float, shared: int) -> NDArray[np.intp]:
    """Return the octave up to which each column may reach beyond a shared one, or the shared one.

    A unit that is too large hides a column, one that is too small lets its noise explode: a suspicion suffices. Numbers
    of many sizes are in no octave often enough to be seen, so several are summed.
    """
    found = np.full(len(counts), shared, dtype=np.intp)
    above = counts[:, : max(shared - 1, 0)]
    if not above.size:
        return found
    highest = np.full(len(counts), _SUSPECT)
    summed = np.cumsum(np.hstack([np.zeros((len(counts), 1)), above]), axis=1)
    for width in (2, 4, 8):
        if width <= above.shape[1]:
            each = (summed[:, width:] - summed[:, :-width]) / (math.sqrt(width) * std)
            best = each.max(axis=1)
            found = np.where(best > highest, each.argmax(axis=1), found)
            highest = np.maximum(highest, best)
    many = summed[:, -1] > _SUSPECT_ALL * math.sqrt(above.shape[1]) * std
    return np.where(many & (found == shared), 0, found)


def _centred(
    rows: Rows, mass: float, lead: int, sizes: Array, std: float, noise: NoiseSource
) -> ColumnUnits:
    """Return narrower units of columns that surely stay away from 0, around their middle."""
    columns, half = sizes.size, PLACES // 2
    fineness = half / sizes

    @by_nonzeros(lambda rows: (rows.place_counts(PLACES, fineness).ravel(),))
    def part(block: Array, y: Array, w: Array, v: Array | None = None) -> tuple[Array]:
        from dpconvex.engine.mapping import count_places

        counts = np.zeros((columns, PLACES))
        count_places(block, _votes(w, v), lead, fineness, counts)
        return (counts.ravel(),)

    (exact,) = rows.sum_votes(part) if rows.voted else rows.sum(part)
    counts = noise.add_gaussian(np.asarray(exact), std).reshape(columns, PLACES)
    middle, reach = _stretches(counts, std, mass)
    return ColumnUnits(sizes * reach, sizes * middle)


def _stretches(counts: Array, std: float, mass: float) -> tuple[Array, Array]:
    """Return the middle of each column that stays away from 0, or 0, and how far it reaches from there.

    The narrowest stretch of places that seems to hold most of a column, and surely holds some of it, is where its
    middle is. It reaches as far as a place that is surely filled, and no less than the root of a bound on the mean
    square: of half a stretch's width, and of 1 for what may be outside. Few numbers far away must not be stretched.
    """
    columns, places = counts.shape
    half, every = places / 2, np.arange(columns)
    summed = np.cumsum(np.hstack([np.zeros((columns, 1)), counts]), axis=1)
    surely = -float(ndtri(1e-4 / (counts.size * len(_WIDTHS))))
    middle, square = np.zeros(columns), np.ones(columns)
    found = np.zeros(columns, dtype=np.bool_)
    for wide in _WIDTHS:
        held = summed[:, wide:] - summed[:, :-wide]
        noise = math.sqrt(wide) * std
        first = held.argmax(axis=1)
        most, low = held[every, first], first / half - 1
        away = (low > 0) | (low + wide / half < 0)
        enough = most > max(_WITHIN * mass, _SURELY * mass + surely * noise)
        middle = np.where(enough & away & ~found, low + wide / 2 / half, middle)
        found |= enough
        outside = np.clip(1 - _FEWEST - (most - 2 * noise) / mass, 0.0, 1.0)
        square = np.minimum(square, (wide / 2 / half) ** 2 + outside)
    filled = counts > max(_CERTAIN * std, _FEWEST * mass)
    edges = np.arange(places + 1) / half - 1
    farthest = np.maximum(np.abs(edges[:-1] - middle[:, None]), np.abs(edges[1:] - middle[:, None]))
    reach = np.maximum(np.sqrt(square), np.where(filled, farthest, 0.0).max(axis=1))
    return middle, np.where(middle == 0, 1.0, np.minimum(reach, 1 + np.abs(middle)))
