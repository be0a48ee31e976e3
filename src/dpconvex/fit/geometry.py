r"""Private geometry: released coordinates in which rows are centred, nearly white, and of known
norm.

Noise on a gradient has the same size in every direction, so it drowns a direction in which rows
hardly vary. One histogram per column gives its centre and unit. One matrix of second moments, of
rows clipped to a released norm, whitens the rows. Eigenvalues below the noise are raised to it, so
that directions which noise hides are not stretched. A row's norm includes the constant: most rows
of a table of rare flags are zeros, and they are records like others.
"""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import QueryStatistic, largest_query_cancellation
from dpconvex.core.row_coordinates import Coordinates, coordinate_cancellation
from dpconvex.core.threads import single_threaded_blas
from dpconvex.fit import constants
from dpconvex.fit.covariance_and_curvature import denoise_covariance
from dpconvex.fit.fit_plan import FitConfig, column_octaves
from dpconvex.types import Array


@dataclass(frozen=True)
class RowGeometry(Coordinates):
    """Released coordinates, the median norm of rows in them, and the second moment of each
    coordinate.
    """

    median_row_norm: float = 1.0  # released, with the constant included: the unit of clips
    # Estimated second moment of each coordinate, below 1 where an eigenvalue was raised, and the
    # noise left in it.
    moments: Array = field(default_factory=lambda: np.ones(1))
    moment_noise_std: Array = field(default_factory=lambda: np.zeros(1))
    # For intervals: variance that histograms leave to each column, before coordinates, infinite
    # unless they show 0 alone; and the size of other values there.
    most_variance: Array = field(default_factory=lambda: np.full(1, np.inf))
    unseen_value: Array = field(default_factory=lambda: np.zeros(1))
    # Second moment that a weak prior gives to columns of which histograms show 0 alone; 0 for
    # others.
    prior_moments: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def constant(self) -> float:
        """Value of the constant column in these coordinates; 1 where there is none."""
        return float(self.matrix.flat[0]) if self.lead else 1.0

    @property
    def penalty(self) -> Array:
        """Second derivative of ``||theta||^2 / 2`` in these coordinates."""
        return (
            np.diag(self.matrix**2)
            if self.matrix.ndim == 1
            else np.asarray(self.matrix @ self.matrix.T)
        )


def release_row_geometry(rows: PrivateRows, config: FitConfig, mass: float) -> RowGeometry:
    """Return released coordinates; ``mass`` is the total weight of all records, public or
    released.
    """
    # The certificate has the terms "columns", "lengths" and, unless columns are too many,
    # "moments".
    bounds = rows.bounds
    terms = rows.terms
    lead = int(bounds.fit_intercept)
    dimension = bounds.dimension
    if config.geometry_rows is not None:  # which rows depends on their public number alone
        mass *= config.geometry_rows / bounds.n_samples
        rows = rows.part(config.geometry_rows)
    counts = rows.column_octaves("columns", config.max_octaves, column_octaves(config.max_octaves))
    # With intervals, rows of rare flags are not much longer than others: matrices would shorten
    # them.
    longest = constants.RARE_STRETCH * math.sqrt(dimension) if config.inference else math.inf
    columns = _column_geometry_units(
        counts, terms["columns"].scale, mass, config.max_octaves, longest
    )
    units = columns.units
    spreads = columns.spreads
    # Stretched rows must not cost sums their digits; columns without bounds are measured in their
    # own units.
    widest = 1 / units if config.max_octaves else np.ones(dimension - lead)
    limit = constants.MAX_SCALING / (
        math.sqrt(dimension) if config.max_octaves else max(bounds.max_norm, 1.0)
    )
    stretches = np.concatenate([np.ones(lead), np.minimum(1 / units, limit * widest)])
    expected = math.sqrt(1 + float(np.sum(spreads**2)))  # norm of rows in units of their columns
    if "moments" not in terms:  # too many columns for a matrix: in units of one typical length
        found = _geometry_norm_quantile(rows, RowGeometry(stretches, lead), 0.5, expected, mass)
        spread = math.sqrt(max(found**2 - 1, 1.0))
        moments = np.concatenate([np.ones(lead), np.full(dimension - lead, 1 / (dimension - lead))])
        matrix = np.concatenate([np.ones(lead), stretches[lead:] / spread])
        median = math.hypot(1, math.sqrt(max(found**2 - 1, 0.0)) / spread)
        noiseless = np.zeros(dimension)
        return RowGeometry(
            matrix, lead, median_row_norm=median, moments=moments, moment_noise_std=noiseless
        )
    stretchable = np.where(columns.rare, stretches[lead:], limit * widest)
    most = largest_query_cancellation(bounds)
    matrix = np.diag(stretches)
    if lead:
        shifted = matrix.copy()
        shifted[lead:, 0] = -columns.centres * stretches[lead:]
        matrix = shifted if coordinate_cancellation(shifted) <= most else matrix
    frame = RowGeometry(
        matrix, lead, moments=np.ones(dimension), moment_noise_std=np.zeros(dimension)
    )
    radius = config.radius_multiple * _geometry_norm_quantile(
        rows, frame, constants.RADIUS_QUANTILE, expected, mass
    )
    sums = rows.second_moments("moments", frame, radius) / mass
    std = terms["moments"].scale / mass
    with single_threaded_blas():  # matrices are small: threads would wait for each other
        for raised in 10.0 ** np.arange(6):  # eigenvalues are raised until sums keep their digits
            found_frame = _whiten_geometry(
                sums,
                std,
                radius,
                frame,
                stretchable,
                raised * config.eigenvalue_floor,
                float(np.mean(spreads**2)),
                config.inference,
            )
            whitened = found_frame.matrix
            # Directions are limited one by one, and together may exceed the limit by a little.
            whitened[lead:] /= max(
                1.0, float(np.linalg.norm(whitened[lead:, lead:] / widest, 2)) / limit
            )
            if coordinate_cancellation(whitened) <= most:
                frame = found_frame
                break
    if config.geometry_rows is not None and not (bounds.people or bounds.weighted_rows):
        # The number of rows, which is public here, decides how norms are bounded.
        frame = replace(
            frame, norm_slack=constants.NORM_SLACK * (1 - config.geometry_rows / bounds.n_samples)
        )
    expected = math.sqrt(1 + float(frame.moments[lead:].sum()))
    median = _geometry_norm_quantile(rows, frame, 0.5, expected, mass)
    share = 0.0 if config.inference else constants.UNSEEN_PRIOR_STDS * terms["columns"].scale / mass
    return replace(
        frame,
        median_row_norm=median,
        most_variance=columns.most_variance,
        unseen_value=columns.unseen_values,
        prior_moments=share * columns.outermost**2,
    )


class ColumnUnits(NamedTuple):
    """What histograms tell of the geometry of columns."""

    units: Array
    centres: Array
    spreads: Array  # standard deviations in units
    rare: NDArray[
        np.bool_
    ]  # whether values would be too long in units of the deviation, so that the unit is larger
    # largest size that values may have of which a histogram shows none but 0; 0 for other columns
    outermost: Array
    most_variance: (
        Array  # for intervals, of the same columns: the most that is likely, else infinite
    )
    unseen_values: Array  # and the size of such values


def _column_geometry_units(
    counts: Array, std: float, mass: float, max_octaves: int, longest: float = math.inf
) -> ColumnUnits:
    """Return units of columns by noisy counts of their signed octaves.

    Values of a rare column would be longer than ``longest`` in units of its standard deviation: its
    unit is larger.

    An octave counts if noise does not explain it, alone or with its neighbours. Records that noise
    may hide are taken to lie in the outermost octave that is seen, so units shrink as budgets grow.
    A column that noise hides altogether gets the largest second moment that its counts allow, up to
    its bound: with a smaller unit a rare flag is stretched until its records count for nothing, and
    its coefficient is noise. Without bounds, values are taken to lie no further out than those of
    any column. Columns whose counts are far likelier under the pooled histogram of all columns get
    its unit: their numbers are many, and spread over several octaves.
    """
    half = counts.shape[1] // 2
    sizes = 0.75 * 2.0 ** (max_octaves - half + np.arange(1, half + 1))
    octave_centres = np.concatenate([-sizes[::-1], [0.0], sizes])
    threshold = -float(ndtri(constants.FALSE_POSITIVE_RATE / counts.size))
    mean, variance, share, top, farthest, unheld = _geometry_moments(
        counts, octave_centres, threshold, std, mass
    )
    seen = top > 0
    outermost = np.where(
        seen, 0.0, float(top.max()) if max_octaves and seen.any() else 2.0**max_octaves
    )
    hidden = share * top**2
    likely = outermost * np.sqrt(share)
    if not seen.all():
        many = len(counts)
        pooled = counts.sum(axis=0, keepdims=True)
        noise = math.sqrt(many) * std
        _, shared, missed, reach, *_ = _geometry_moments(
            pooled, octave_centres, threshold, noise, many * mass
        )
        # The noisy second moment, with values at the ends of their octaves and all that noise may
        # hide: that of the column or, if it is less, of the mean column.
        reached = float(outermost.max())
        squares = np.where(np.abs(octave_centres) < reached, (octave_centres / 0.75) ** 2, 0.0)
        allowed = threshold * math.sqrt(float(np.square(squares).sum()))
        own = np.maximum(counts @ squares, 0.0) + allowed * std
        mean_column = (max(float(pooled[0] @ squares), 0.0) + allowed * noise) / many
        moment = np.minimum(
            np.minimum(own, mean_column) / mass + constants.UNSEEN_SHARE * reached**2, reached**2
        )
        hidden = np.where(seen, hidden, moment)
        if reach[0] > 0:
            alike = ~seen
            unseen = missed[0] * reach[0] ** 2
            likely[~seen] = math.sqrt(shared[0] + unseen)
            alike[alike] = _is_spread(counts[~seen], np.maximum(pooled[0], 0.0), std, mass)
            variance[alike] = shared[0]
            hidden[alike] = unseen
            outermost[alike] = reach[0]
    total = variance + hidden
    # Where 0 is all that is seen, other values are as many as are missing, or a part of what noise
    # hides.
    most = np.where(
        seen, np.inf, likely**2 * np.maximum(unheld, constants.UNSEEN_STDS * std / mass)
    )
    rare = seen & (farthest**2 > longest**2 * total)
    total = np.where(rare, farthest**2 / longest**2, total)
    spreads = np.sqrt((variance + constants.UNSEEN_VARIANCE_SHARE * hidden) / total)
    return ColumnUnits(np.sqrt(total), mean, spreads, rare, outermost, most, likely)


def _geometry_moments(
    counts: Array, octave_centres: Array, threshold: float, std: float, mass: float
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Return mean and variance of columns, the share that noise may hide, how far values are seen,
    and two more.

    They are the distance at which most of the variance is, and the share of records that is
    missing.
    """
    half = counts.shape[1] // 2
    significant = counts > threshold * std
    sides = counts[:, half + 1 :] + counts[:, :half][:, ::-1]  # absolute values
    summed = np.cumsum(np.hstack([np.zeros((len(counts), 1)), sides]), axis=1)
    for (
        wide
    ) in constants.OCTAVE_WINDOWS:  # where noise hides single octaves, the most significant window
        hidden = ~(significant & (octave_centres != 0)).any(axis=1)
        windows = summed[:, wide:] - summed[:, :-wide]
        first = windows.argmax(axis=1)
        clear = hidden & (windows.max(axis=1) > threshold * math.sqrt(2 * wide) * std)
        for column in np.flatnonzero(clear):
            near = half + 1 + first[column]
            significant[column, near : near + wide] = True
            significant[column, 2 * half - near - wide + 1 : 2 * half - near + 1] = True
    held = np.where(significant, np.maximum(counts, 0.0), 0.0)
    total = np.maximum(held.sum(axis=1), 1e-300)
    mean = held @ octave_centres / total
    # Numbers lie anywhere in their octave, whose variance is a 27th of the square of its middle.
    variance = np.maximum(held @ (octave_centres**2 * (1 + 1 / 27)) / total - mean**2, 0.0)
    top = np.where(significant, np.abs(octave_centres), 0.0).max(axis=1) / 0.75
    squares = (octave_centres - mean[:, None]) ** 2  # the distance at which most of the variance is
    farthest = (
        np.sqrt((held * squares**2).sum(axis=1) / np.maximum((held * squares).sum(axis=1), 1e-300))
        / 0.75
    )
    unheld = np.clip(1 - total / mass, 0.0, 1.0)
    hidden = unheld + threshold * std / mass + constants.UNSEEN_SHARE
    return mean, variance, np.minimum(hidden, 1.0), top, farthest, unheld


def _is_spread(counts: Array, law: Array, std: float, mass: float) -> NDArray[np.bool_]:
    """Return which columns have values other than 0 that far more likely follow a law than have
    all one octave.
    """
    # Under either, an unknown share of the records has other values than 0. How many columns follow
    # the law is learnt from all of them.
    centre = counts.shape[1] // 2
    law = np.where(np.arange(law.size) == centre, 0.0, law)
    laws = np.vstack([law / law.sum(), np.delete(np.eye(law.size), centre, axis=0)])
    laws[:, centre] -= 1
    found = counts / mass
    found[:, centre] -= 1
    along = np.clip(found @ laws.T / np.square(laws).sum(axis=1), 0.0, 1.0)
    misfit = along**2 * np.square(laws).sum(axis=1) - 2 * along * (found @ laws.T)
    likely = -misfit * (mass / std) ** 2 / 2  # log likelihood, up to what both have in common
    alone = np.logaddexp.reduce(likely[:, 1:], axis=1) - math.log(
        len(laws) - 1
    )  # any octave is as likely as others
    odds = likely[:, 0] - alone
    chance = 0.5
    for _ in range(20):
        chance = (float(expit(odds + logit(chance)).sum()) + 0.5) / (len(odds) + 1)
    return np.asarray(odds + logit(chance) > constants.SPREAD_LOG_ODDS)


def _geometry_norm_quantile(
    rows: PrivateRows, frame: RowGeometry, level: float, expected: float, mass: float
) -> float:
    """Return a quantile of the row norms, from a histogram of their logarithms and a prior
    around the expected norm.
    """
    edges = math.log2(math.sqrt(1 + rows.bounds.n_features)) + np.asarray(constants.LENGTH_EDGES)
    counts = rows.histogram("lengths", QueryStatistic("length", coordinates=frame), edges) / mass
    std = rows.terms["lengths"].scale / mass
    width = edges[1] - edges[0]
    middles = np.concatenate([[edges[0] - width / 2], edges + width / 2])
    prior = np.exp(-(((middles - math.log2(expected)) / constants.LENGTH_PRIOR_STD) ** 2) / 2)
    shares = np.where(counts > 2 * std, counts, 0.0)
    shares = shares + 2 * std * math.sqrt(counts.size) * prior / prior.sum()
    reached = np.concatenate([[0.0], np.cumsum(shares) / shares.sum()])
    ends = np.concatenate([[edges[0] - width], edges, [edges[-1] + width]])
    constant = frame.constant if frame.lead else 1.0
    return max(float(2.0 ** float(np.interp(level, reached, ends))), constant)


def _whiten_geometry(
    moments: Array,
    std: float,
    radius: float,
    frame: RowGeometry,
    most: Array,
    floor: float,
    usual: float,
    measured: bool,
) -> RowGeometry:
    """Return coordinates whitened by noisy mean second moments of clipped rows ``(1, u) / radius``.

    ``most`` limits how far each column may be stretched; ``usual`` is the expected variance of a
    column. With ``measured``, moments are what eigenvalues say, unless noise hides them: intervals
    rely on it.
    """
    lead = frame.lead
    size = moments.shape[0] - lead
    # The mean squared weight over radius^2: released, and between a third of that of short rows and
    # all of it.
    share = 1 / radius**2
    if lead:
        share = float(np.clip(moments[0, 0], share / 3, share))
    centre = np.zeros(size)
    if lead:
        centre = moments[0, 1:] / share
        unsure = size * (std / share) ** 2 / 2
        square = max(float(centre @ centre), 1e-300)
        centre *= max(0.0, 1 - 2 * unsure / square) * min(1.0, radius / math.sqrt(square))
    spread = moments[lead:, lead:] / share - np.outer(centre, centre)
    spread, noise = denoise_covariance(
        spread, std / share, (usual, constants.MEAN_VARIANCE_PRIOR_STD * usual)
    )
    values, vectors = np.linalg.eigh((spread + spread.T) / 2)
    floor = floor * std / share * math.sqrt(2 * size)
    stretched = np.linalg.norm(vectors.T @ (frame.matrix[lead:, lead:] / most), axis=1)
    raised = np.maximum(np.maximum(values, floor), np.maximum(stretched**2, 1e-12))
    whitening = (vectors / np.sqrt(raised)).T
    step = np.eye(size + lead)
    step[lead:, lead:] = whitening
    if lead:
        step[1:, 0] = -whitening @ centre
    # Noise cancels in the signed mean of the eigenvalues that it hides.
    hidden = values < 2 * (floor if measured else raised.min())
    if hidden.any():
        values = np.where(hidden, max(float(values[hidden].mean()), 0.0), values)
    left = np.clip(values / raised, 1e-3, 1.5)
    apart, between, common = noise
    alone = np.sum(vectors**4, axis=0)  # 1 for a direction that is one column
    shared = np.maximum(np.sum(vectors * (between @ vectors), axis=0), 0.0)
    noise_std = np.sqrt(apart * alone + shared * (1 - alone) + common) / raised
    moments = np.concatenate([np.ones(lead), left])
    noise_stds = np.concatenate([np.zeros(lead), noise_std])
    return RowGeometry(step @ frame.matrix, lead, moments=moments, moment_noise_std=noise_stds)
