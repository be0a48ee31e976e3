"""Private location: the octaves of targets and residuals, and a quantile with the scale around it.

The search for a quantile releases noisy counts of records below points. After each count, the
posterior of quantile and scale under a logistic law chooses the next point. The likelihood trusts
the law near the quantile and not far from it, so other laws mislead the first counts only. Where
noise hides everything, the answer is the middle of the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit, logit

from dpconvex.core.queries import QueryLoss, QueryScore, QueryStatistic
from dpconvex.fit import constants
from dpconvex.fit.plausible_answers import PlausibleAnswers
from dpconvex.types import Array


@dataclass(frozen=True)
class LocationPrior:
    """Prior of a quantile and of the scale of a logistic law around it.

    The search runs along a line: the bracket itself, extended by half its width on a side with
    distances beyond it. There the line stands for distances from the bracket's end in equal factors
    (:meth:`at`). With an origin the whole line stands for distances from the origin in equal
    factors, but for the smallest ones.
    """

    low: float  # bracket of the quantile, five times as likely in the middle as at the ends
    high: float
    finest: float  # range of scales, log-uniform
    widest: float
    # distances beyond the bracket at which the quantile may lie, which is unlikely: log-uniform
    below: float = 0.0
    above: float = 0.0
    # The number 0 in a bracket that bounds alone give, which may be far too wide: most probably,
    # the distance from there is log-uniform.
    origin: float | None = None
    width: float = field(init=False)  # of the bracket
    ends: tuple[float, float] = field(init=False)  # of the line of the search
    log_scales: Array = field(init=False)  # logarithms of possible scales, an octave apart or less

    def __post_init__(self) -> None:
        width = max(self.high - self.low, 1e-300)
        widest = max(self.widest, self.below, self.above)
        ends = self.low - width / 2 * (self.below > 0), self.high + width / 2 * (self.above > 0)
        if self.origin is not None:
            sizes = np.abs(np.array([self.low, self.high]) - self.origin) / (
                constants.ORIGIN_WIDTH * width
            )
            ends = -float(np.log1p(sizes[0])), float(np.log1p(sizes[1]))
        octaves = max(2, math.ceil(math.log2(widest / self.finest)) + 1)
        scales = np.linspace(math.log(self.finest), math.log(widest), octaves)
        for name, value in (("width", width), ("ends", ends), ("log_scales", scales)):
            object.__setattr__(self, name, value)

    def at(self, line: Array) -> Array:
        """Return the locations, quantiles, that points of the prior's line stand for."""
        if self.origin is not None:
            return self.origin + constants.ORIGIN_WIDTH * self.width * np.sign(line) * np.expm1(
                np.abs(line)
            )
        found = np.array(line, dtype=np.float64)
        for inside, sign, far in ((self.low, -1.0, self.below), (self.high, 1.0, self.above)):
            beyond = sign * (found - inside) > 0
            share = sign * (found[beyond] - inside) / (self.width / 2)
            found[beyond] = inside + sign * (
                self.width * np.expm1(share * math.log1p(far / self.width))
            )
        return found

    def prior(self, line: Array, logs: Array) -> Array:
        """Return the log density of points of the line and of log scales, up to a constant."""
        location = line if self.origin is None else self.at(line)
        position = (2 * location - self.low - self.high) / self.width
        usual = -np.log1p(constants.BRACKET_DECAY * position**2)
        if self.origin is not None:  # the density along the line of both laws
            first, last = self.ends
            even = (
                math.log(constants.EVEN_PROBABILITY * constants.ORIGIN_WIDTH) + np.abs(line) + usual
            )
            usual = np.logaddexp(even, math.log((1 - constants.EVEN_PROBABILITY) / (last - first)))
        likely = np.where(np.abs(position) > 1, math.log(constants.OUTSIDE_PROBABILITY), usual)
        scales = np.where(
            logs - math.log(self.widest) > 1e-9, math.log(constants.OUTSIDE_PROBABILITY), 0.0
        )
        return np.asarray(likely[:, None] + scales)


@dataclass(frozen=True)
class LocationTails:
    """Released octaves of residuals, and the bias of their mean from a clip.

    Of costs most are 0 or small, and a few large ones make the mean: a clip at a few scales would
    leave them out. Symmetric tails bias no mean, and do not raise the clip.
    """

    centres: Array  # of the bins
    shares: Array  # of the records in each bin; 0 where noise hides it
    std: float  # noise of a share
    counted: (
        Array  # the same shares up to one octave beyond the last significant ones, with their noise
    )

    @classmethod
    def of(
        cls,
        counts: Array,
        std: float,
        edges: Array,
        mass: float,
        stds: float = constants.CERTAIN_STDS,
    ) -> LocationTails:
        """Return the tails around a location by noisy counts, with two octaves beyond the last
        significant one.
        """
        centres = np.concatenate(
            [[1.5 * edges[0]], (edges[1:] + edges[:-1]) / 2, [1.5 * edges[-1]]]
        )
        shares = np.where(counts > stds * std, counts, 0.0) / mass
        middle = counts.size // 2
        seen = np.flatnonzero(shares)
        for last, sign in ((seen[-1], 1), (seen[0], -1)) if seen.size else ():
            for beyond in (1, 2):
                at = last + sign * beyond
                if (last - middle) * sign > 0 and 0 <= at < shares.size:
                    shares[at] = (
                        min(shares[last], constants.MAX_TAIL_SHARE) * constants.TAIL_DECAY**beyond
                    )
        counted = np.zeros_like(shares)
        if seen.size:
            around = slice(max(seen[0] - 1, 0), seen[-1] + 2)
            counted[around] = counts[around] / mass
        return cls(centres, shares, std / mass, counted)

    def scale(self, usual: float) -> float:
        """Return the scale around a location: a normal law's with this median size, or `usual`
        where noise hides it.
        """
        # Values in the innermost octave count as half of the next one's.
        order = np.argsort(np.abs(self.centres))
        sizes = np.abs(self.centres)[order]
        shares = self.shares[order]
        if shares.sum() < 0.75:
            return usual
        found = float(np.interp(0.5, np.cumsum(shares) / shares.sum(), sizes))
        return max(found, float(sizes[sizes > 0][0]) / 2) / constants.NORMAL_MEDIAN

    def best(self, least: float, noise: float, paired: bool = False) -> float:
        """Return the best clip around a location, ``least`` times a power of sqrt(2): squared bias
        plus noise is least.

        ``noise`` is the standard deviation of the released mean per unit of the clip. With
        ``paired`` octaves, both sides are compared one by one.
        """
        limits = least * 2.0 ** (np.arange(64) / 2)
        cut = np.maximum(np.abs(self.centres) - limits[:, None], 0.0)
        bias = (self.shares * np.sign(self.centres) * cut).sum(axis=1)
        bias_noise = self.std**2 * ((self.shares > 0) * cut**2).sum(axis=1)
        if paired:
            bias, bias_noise = self._paired_bias(cut)
        squared = np.maximum(bias**2 - bias_noise, 0.0)
        # Both sides may happen to cancel at one limit and not at the next.
        squared = np.maximum.accumulate(squared[::-1])[::-1]
        return float(limits[int(np.argmin(squared + (noise * limits) ** 2))])

    def _paired_bias(self, cut: Array) -> tuple[Array, Array]:
        """Return the bias by both sides of a location, and its variance; ``cut`` is what clips
        take from each bin.
        """
        # The octave after the last significant one is what noise and the octave before lead to
        # expect, and one follows.
        middle = self.centres.size // 2
        above = self.counted[middle + 1 :]
        below = self.counted[:middle][::-1]
        cut = cut[:, middle + 1 :]
        last = int(np.flatnonzero(above + below)[-1]) if (above + below).any() else 0
        if not last:
            return np.zeros(len(cut)), np.zeros(len(cut))
        apart = (above - below)[: last + 1]
        variances = np.full(last + 1, 2 * self.std**2)
        expected = constants.TAIL_DECAY * apart[last - 1]
        doubt = constants.TAIL_DECAY * min(
            abs(above + below)[last - 1] / 2, constants.MAX_TAIL_SHARE
        )
        kept = doubt**2 / (doubt**2 + variances[last])
        apart[last] = expected + kept * (apart[last] - expected)
        variances[last] = kept * variances[last]
        weights = cut[:, : last + 1].copy()
        weights[:, last] += constants.TAIL_DECAY * cut[:, last + 1 : last + 2].sum(axis=1)
        return weights @ apart, weights**2 @ variances

    def beyond(self, sizes: Array) -> Array:
        """Return the share of values further from the location than each size: exponential
        between octaves.
        """
        middle = self.centres.size // 2
        inside = self.counted[middle:].copy()
        inside[1:] += self.counted[:middle][::-1]
        ends = np.concatenate([[0.0], self.centres[middle + 1 :] / 1.5])
        shares = 1 - np.concatenate([[0.0], np.cumsum(inside)[:-1]]) / max(float(inside.sum()), 0.5)
        shares = np.minimum.accumulate(np.maximum(shares, 1e-6))
        return np.asarray(np.exp(np.interp(sizes, ends, np.log(shares))))

    def limited_square(self, limit: float) -> float:
        """Return the mean square of the values limited in size, ``integral of 2 x P(size > x)``
        up to the limit.
        """
        sizes = limit * (np.arange(1000) + 0.5) / 1000
        return float(np.mean(2 * sizes * self.beyond(sizes))) * limit

    def median_scale(self, usual: float) -> float:
        """Return :meth:`scale` by the share beyond edges of octaves, not their centres, without
        a continued tail.
        """
        if self.counted.sum() < 0.75:
            return usual
        sizes = usual * 2.0 ** (np.arange(-640, 641) / 64)
        return (
            float(sizes[int(np.argmin(np.abs(self.beyond(sizes) - 0.5)))]) / constants.NORMAL_MEDIAN
        )


def locate_target_bracket(
    rows: PlausibleAnswers, name: str, mass: float, bounded: bool = True
) -> tuple[float, float] | None:
    """Return the ends of the octaves that certainly hold targets; None where those hold less than
    half of all.

    ``name`` is the certificate's term, ``mass`` the total weight of all records. With ``bounded``
    targets most mapped ones lie in [-1, 1], though nothing is clipped; without public bounds, bins
    are wider than an octave.
    """
    ends = (-16, 15) if bounded else (-constants.RAW_TARGET_OCTAVES, constants.RAW_TARGET_OCTAVES)
    sizes = np.concatenate([[0.0], 2.0 ** np.linspace(*ends, constants.TARGET_BINS // 2)])
    edges = np.concatenate([-sizes[:0:-1], sizes])
    counts = rows.histogram(name, QueryStatistic("target"), edges[1:-1])
    certain = np.flatnonzero(counts > constants.CERTAIN_STDS * rows.terms[name].scale)
    if not certain.size or counts[certain].sum() < 0.5 * mass:
        return None
    return float(edges[certain[0]]), float(edges[certain[-1] + 1])


def locate_residual_tails(
    rows: PlausibleAnswers,
    name: str,
    theta: Array,
    scale: float,
    mass: float,
    loss: QueryLoss | None = None,
) -> LocationTails:
    """Release a histogram of the octaves of residuals, or of slopes of a loss, in units of a
    scale.
    """
    sizes = scale * 2.0 ** (np.arange(constants.RESIDUAL_BINS // 2) - 6.0)
    edges = np.concatenate([-sizes[::-1], sizes])
    statistic = QueryStatistic("residual" if loss is None else "slope", theta, loss=loss)
    counts = rows.histogram(name, statistic, edges)
    return LocationTails.of(counts, rows.terms[name].scale, edges, mass)


def locate_limited_shares(
    rows: PlausibleAnswers, name: str, theta: Array, limit: float, mass: float
) -> Array:
    """Return the noisy shares of residuals below minus a limit and above it."""
    residual = QueryStatistic("residual", theta)
    below = share_below_location(rows, name, residual, -limit, 0, mass)
    return np.array([below, 1 - share_below_location(rows, name, residual, limit, 1, mass)])


def locate_mean(
    rows: PlausibleAnswers, largest: float, octaves: float, mass: float
) -> tuple[float, float, LocationTails]:
    """Return the mean of targets from 0 to `largest`, its standard deviation, and the shares of
    targets by size.
    """
    # Releases the histogram "octaves", of sizes down to so many octaves below the largest, and the
    # sum "targets" of targets up to a limit that balances the bias of leaving larger ones out with
    # the noise.
    sizes = largest * 2.0 ** np.linspace(-octaves, 0, constants.TARGET_BINS // 2 - 1)
    edges = np.concatenate([-sizes[::-1], [0.0], sizes])
    counts = rows.histogram("octaves", QueryStatistic("target"), edges)
    stds = constants.CERTAIN_STDS if octaves > constants.RATE_OCTAVES else constants.LIKELY_STDS
    tails = LocationTails.of(counts, rows.terms["octaves"].scale, edges, mass, stds)
    tails = replace(tails, centres=np.clip(tails.centres, 0.0, largest))
    noise = rows.terms["targets"].scale / mass
    lead = int(rows.bounds.fit_intercept)
    seen = float(tails.centres[tails.shares > 0].max(initial=sizes[0]))
    limit = min(tails.best(2.0**-20 * seen, noise / (1 + lead)), largest)
    if (
        not (tails.shares[counts.size // 2 + 1 :] > 0).any() or tails.shares.sum() < 0.5
    ):  # noise hides too much
        limit = largest * 2.0 ** (-octaves / 2 if octaves > constants.RATE_OCTAVES else -1)
    theta = np.zeros(rows.bounds.dimension)
    theta[:lead] = limit / 2  # residuals from the middle of the range are half as large
    total = rows.limited_sum("targets", QueryScore("residual", theta, limit / (1 + lead)))
    error = noise * limit / (1 + lead)
    mean = lead * limit / 2 + total / mass * limit / (1 + lead)
    return min(max(mean, error, float(sizes[0])), largest), error, tails


def share_below_location(
    rows: PlausibleAnswers,
    name: str,
    statistic: QueryStatistic,
    point: float,
    level: float,
    mass: float,
) -> float:
    """Return the noisy share of records whose statistic is below a point."""
    # Where rows may be ignored, the number of records is known up to noise, and the count is
    # centred at the level: an error of that number then does not move the point at which the share
    # is the level.
    centre = level if rows.bounds.ignored_rows else 0.0
    return centre + rows.count(name, statistic, point, centre) / mass


def locate_quantile(
    rows: PlausibleAnswers,
    name: str,
    statistic: QueryStatistic,
    level: float,
    prior_law: LocationPrior,
    steps: int,
    mass: float,
) -> tuple[float, float, float]:
    """Return a quantile of a statistic, its standard deviation, and the scale
    ``level (1 - level) / density`` there.

    ``name`` is the certificate's term of the counts, ``steps`` their number; the prior, and
    ``mass``, the total weight of all records, are public or released.
    """
    logs = prior_law.log_scales
    std = min(rows.terms[name].scale / mass, constants.MAX_SHARE_STD)
    points = np.empty(steps)
    shares = np.empty(steps)
    tolerance = 2 * math.hypot(std, constants.GRID_ERROR)
    first, last = low, high = prior_law.ends
    lowest, highest = prior_law.at(np.array([first, last]))
    for step in range(steps + 1):
        line = low + (high - low) * (np.arange(constants.GRID_POINTS) + 0.5) / constants.GRID_POINTS
        # The log likelihood of each pair of quantile and scale, given noisy shares below points.
        grid = prior_law.at(line)
        likelihood = np.zeros((line.size, logs.size))
        for seen, noisy in zip(points[:step], shares[:step], strict=True):
            # Whatever the law: if the share below a point is less than the level, the quantile is
            # not below it.
            wrong = grid < seen if noisy < level else grid > seen
            likelihood[wrong] -= min(
                (noisy - level) ** 2 / (2 * tolerance**2), constants.REFUTED_LOG_LIKELIHOOD
            )
            expected = expit((seen - grid)[:, None] / np.exp(logs) + float(logit(level)))
            variance = (
                std**2 + (constants.SHARE_ERROR * (expected - level)) ** 2 + constants.GRID_ERROR**2
            )
            usual = -((noisy - expected) ** 2 / variance + np.log(variance)) / 2
            likelihood += np.logaddexp(usual, -constants.OUTLIER_LOG_LIKELIHOOD - math.log1p(std))
        density = prior_law.prior(line, logs) + likelihood
        density = np.exp(density - density.max())
        density /= density.sum()
        reached = np.cumsum(density.sum(axis=1))
        point = float(prior_law.at(np.interp([0.5], reached, line))[0])
        scale = math.exp(float(density.sum(axis=0) @ logs))
        error = math.sqrt(float(density.sum(axis=1) @ (grid - point) ** 2))
        if step == steps:
            break
        side = 0 if step < constants.CENTRAL_COUNTS else (0, -1, 1)[step % 3]
        points[step] = point = min(
            max(point + side * constants.OFF_CENTRE_SCALES * scale, lowest), highest
        )
        share = share_below_location(rows, name, statistic, point, level, mass)
        shares[step] = min(max(share, -10 * std), 1 + 10 * std)
        ends = np.interp([constants.GRID_TAIL, 1 - constants.GRID_TAIL], reached, line)
        more = (ends[1] - ends[0]) / 4 + 2 * (high - low) / constants.GRID_POINTS
        low = max(first, ends[0] - more)
        high = min(last, ends[1] + more)
    return point, error, scale
