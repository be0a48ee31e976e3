"""A private quantile and the scale around it: noisy counts at points that a posterior law of both chooses.

Where targets lie at all is told by one noisy histogram of their octaves.

Counts below a point are all that is released. What is believed about the quantile and the scale after each of them,
under a logistic law, says where to count next. The law is believed near the quantile and doubted far from it, so other
shapes mislead the first counts only, and where noise hides everything the answer is the middle of what is possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from dpconvex.core.queries import Statistic
from dpconvex.core.release import PrivateRows
from dpconvex.fit import constants
from dpconvex.types import Array


@dataclass(frozen=True)
class LocationPrior:
    """What is known before anything is counted.

    Attributes
    ----------
    low, high : float
        Bracket of the quantile, five times as likely in the middle as at the ends.
    finest, widest : float
        Scales of a logistic law that are possible, all orders of magnitude alike.
    below, above : float
        How much further than the bracket the quantile may lie, which is unlikely, and all orders of magnitude alike.

    Notes
    -----
    Quantiles are looked for along a line that is the bracket itself, with half its width on a side that may be left:
    it goes there from the bracket's end to its furthest point in equal factors (:meth:`at`).
    """

    low: float
    high: float
    finest: float
    widest: float
    below: float = 0.0
    above: float = 0.0

    @property
    def width(self) -> float:
        """Width of the bracket."""
        return max(self.high - self.low, 1e-300)

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the line along which quantiles are looked for."""
        aside = self.width / 2
        return self.low - aside * (self.below > 0), self.high + aside * (self.above > 0)

    @property
    def log_scales(self) -> Array:
        """Logarithms of possible scales, an octave apart or less."""
        widest = max(self.widest, self.below, self.above)
        octaves = max(2, math.ceil(math.log2(widest / self.finest)) + 1)
        return np.linspace(math.log(self.finest), math.log(widest), octaves)

    def at(self, line: Array) -> Array:
        """Return the points that places of the line stand for."""
        found = np.array(line, dtype=np.float64)
        for inside, sign, far in ((self.low, -1.0, self.below), (self.high, 1.0, self.above)):
            beyond = sign * (found - inside) > 0
            share = sign * (found[beyond] - inside) / (self.width / 2)
            way = self.width * np.expm1(share * math.log1p(far / self.width))
            found[beyond] = inside + sign * way
        return found

    def prior(self, line: Array, logs: Array) -> Array:
        """Return the log density of places and of logarithms of scales, up to a constant."""
        place = (2 * line - self.low - self.high) / self.width
        usual = -np.log1p(constants.BRACKET_DECAY * place**2)
        likely = np.where(np.abs(place) > 1, math.log(constants.OUTSIDE_PROBABILITY), usual)
        scales = np.where(logs - math.log(self.widest) > 1e-9, math.log(constants.OUTSIDE_PROBABILITY), 0.0)
        return np.asarray(likely[:, None] + scales)


@dataclass(frozen=True)
class Tails:
    """Released octaves of a number: what a limit on its size would hide of its mean.

    A scale tells where most numbers are. Costs, of which most are 0 or small, have a mean that lies in the few that are
    not: limited to a few scales they would be left out of it. Tails that are alike on both sides hide nothing of a
    mean, and open no limit.

    Attributes
    ----------
    places : array of shape (bins,)
        What a number in the bin stands for.
    shares : array of shape (bins,)
        Share of the records in each bin; 0 where noise hides it.
    std : float
        Noise of a share.
    """

    places: Array
    shares: Array
    std: float

    @classmethod
    def of(cls, counts: Array, std: float, edges: Array, mass: float) -> Tails:
        """Return the tails that noisy counts between edges show, and a little beyond the last that is seen."""
        inner = (edges[1:] + edges[:-1]) / 2
        places = np.concatenate([[1.5 * edges[0]], inner, [1.5 * edges[-1]]])
        shares = np.where(counts > constants.CERTAIN_STDS * std, counts, 0.0) / mass
        middle, seen = counts.size // 2, np.flatnonzero(shares)
        for last, sign in ((seen[-1], 1), (seen[0], -1)) if seen.size else ():
            for beyond in (1, 2):  # the next two octaves hold less and less
                at = last + sign * beyond
                if (last - middle) * sign > 0 and 0 <= at < shares.size:
                    shares[at] = min(shares[last], constants.MAX_TAIL_SHARE) * constants.TAIL_DECAY**beyond
        return cls(places, shares, std / mass)

    def scale(self, usual: float) -> float:
        """Return the scale of a normal law with this median size, or a usual one as far as noise hides it.

        The innermost octave is told apart from nothing: what lies in it has half of the next one's size.
        """
        order = np.argsort(np.abs(self.places))
        sizes, shares = np.abs(self.places)[order], self.shares[order]
        if shares.sum() < 0.75:
            return usual
        found = float(np.interp(0.5, np.cumsum(shares) / shares.sum(), sizes))
        return max(found, float(sizes[sizes > 0][0]) / 2) / constants.NORMAL_MEDIAN

    def best(self, least: float, noise: float) -> float:
        """Return the limit, ``least`` times a power of 2, for which hidden parts and noise are least together.

        Parameters
        ----------
        least : float
            The smallest limit.
        noise : float
            Standard deviation of what is released, per unit of the limit.
        """
        limits = least * 2.0 ** (np.arange(64) / 2)
        cut = np.maximum(np.abs(self.places) - limits[:, None], 0.0)
        lost = (self.shares * np.sign(self.places) * cut).sum(axis=1)
        unsure = self.std**2 * ((self.shares > 0) * cut**2).sum(axis=1)
        hidden = np.maximum(lost**2 - unsure, 0.0)
        # Both sides may happen to cancel at one limit and not at the next.
        hidden = np.maximum.accumulate(hidden[::-1])[::-1]
        return float(limits[int(np.argmin(hidden + (noise * limits) ** 2))])


def release_target_bracket(
    rows: PrivateRows, name: str, mass: float, bounded: bool = True
) -> tuple[float, float] | None:
    """Return the ends of the octaves that surely hold targets; None where they are not half of all.

    Parameters
    ----------
    rows : PrivateRows
        Their mapped targets lie in [-1, 1] where bounds are known.
    name : str
        The certificate's term of :data:`constants.TARGET_BINS` counts.
    mass : float
        What all records count for, public or released.
    bounded : bool
        Whether the unit of the targets is public; without one, bins are wider than an octave.
    """
    ends = (-16, 15) if bounded else (-constants.RAW_TARGET_OCTAVES, constants.RAW_TARGET_OCTAVES)
    sizes = np.concatenate([[0.0], 2.0 ** np.linspace(*ends, constants.TARGET_BINS // 2)])
    edges = np.concatenate([-sizes[:0:-1], sizes])
    counts = rows.histogram(name, Statistic("target"), edges[1:-1])
    sure = np.flatnonzero(counts > constants.CERTAIN_STDS * rows.terms[name].scale)
    if not sure.size or counts[sure].sum() < 0.5 * mass:
        return None
    return float(edges[sure[0]]), float(edges[sure[-1] + 1])


def release_residual_tails(rows: PrivateRows, name: str, theta: Array, scale: float, mass: float) -> Tails:
    """Release in which octaves of a scale residuals lie."""
    half = constants.RESIDUAL_BINS // 2
    sizes = scale * 2.0 ** (np.arange(half) - 6.0)
    edges = np.concatenate([-sizes[::-1], sizes])
    counts = rows.histogram(name, Statistic("residual", theta), edges)
    return Tails.of(counts, rows.terms[name].scale, edges, mass)


def noisy_share(
    rows: PrivateRows, name: str, statistic: Statistic, point: float, level: float, n_samples: float
) -> float:
    """Return the noisy share of records whose statistic is below a point.

    A plain count is divided by a number of records that is known. Where rows may be ignored that number is not, and the
    count is centred at the level that is sought: an error of the released number does not move where the share is that
    level.
    """
    centre = level if rows.bounds.ignored_rows else 0.0
    return centre + rows.count(name, statistic, point, centre) / n_samples


def search_quantile(
    rows: PrivateRows,
    name: str,
    statistic: Statistic,
    level: float,
    prior_law: LocationPrior,
    steps: int,
    n_samples: float,
) -> tuple[float, float, float]:
    """Return a quantile of a statistic, its standard deviation, and the scale ``level (1 - level) / density`` there.

    Parameters
    ----------
    rows : PrivateRows
        What counts are asked of.
    name : str
        The certificate's term of the counts.
    statistic : Statistic
        What is counted.
    level : float
        Which quantile.
    prior_law : LocationPrior
        Public or released facts.
    steps : int
        Number of counts.
    n_samples : float
        Number of records, public or released.
    """
    logs = prior_law.log_scales
    std = min(rows.terms[name].scale / n_samples, constants.MAX_SHARE_STD)
    places, shares = np.empty(steps), np.empty(steps)
    first, last = low, high = prior_law.ends
    lowest, highest = prior_law.at(np.array([first, last]))
    for step in range(steps + 1):
        line = low + (high - low) * (np.arange(constants.GRID_POINTS) + 0.5) / constants.GRID_POINTS
        law = prior_law.prior(line, logs) + _likelihood(
            prior_law.at(line), np.exp(logs), places[:step], shares[:step], level, std
        )
        law = np.exp(law - law.max())
        law /= law.sum()
        reached = np.cumsum(law.sum(axis=1))
        point = float(prior_law.at(np.interp([0.5], reached, line))[0])
        scale = math.exp(float(law.sum(axis=0) @ logs))
        unsure = math.sqrt(float(law.sum(axis=1) @ (prior_law.at(line) - point) ** 2))
        if step == steps:
            break
        aside = (
            0.0
            if step < constants.CENTRAL_COUNTS
            else (0.0, -constants.OFF_CENTRE_SCALES, constants.OFF_CENTRE_SCALES)[step % 3]
        )
        places[step] = point = min(max(point + aside * scale, lowest), highest)
        share = noisy_share(rows, name, statistic, point, level, n_samples)
        shares[step] = min(max(share, -10 * std), 1 + 10 * std)
        ends = np.interp([constants.GRID_TAIL, 1 - constants.GRID_TAIL], reached, line)
        more = (ends[1] - ends[0]) / 4 + 2 * (high - low) / constants.GRID_POINTS
        low, high = max(first, ends[0] - more), min(last, ends[1] + more)
    return point, unsure, scale


def _likelihood(grid: Array, scales: Array, places: Array, shares: Array, level: float, std: float) -> Array:
    """Return the log likelihood of each pair of quantile and scale, given noisy shares below some places."""
    found = np.zeros((grid.size, scales.size))
    sure = 2 * math.hypot(std, constants.GRID_ERROR)
    for place, share in zip(places, shares, strict=True):
        # Whatever the law: with fewer below a place than the level asks for, the quantile is not below it.
        wrong = grid < place if share < level else grid > place
        found[wrong] -= min((share - level) ** 2 / (2 * sure**2), constants.REFUTED_LOG_LIKELIHOOD)
        expected = expit((place - grid)[:, None] / scales + float(logit(level)))
        variance = std**2 + (constants.SHARE_ERROR * (expected - level)) ** 2 + constants.GRID_ERROR**2
        usual = -((share - expected) ** 2 / variance + np.log(variance)) / 2
        found += np.logaddexp(usual, -constants.OUTLIER_LOG_LIKELIHOOD - math.log1p(std))
    return found
