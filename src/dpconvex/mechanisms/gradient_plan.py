r"""What noisy gradient descent will release, decided from public facts alone.

Every release is a vector of sums plus Gaussian noise, so the whole run is Gaussian DP with
``mu^2 = sum of releases * (sensitivity / std)^2``; a phase with share ``q`` of ``mu^2`` and ``k`` releases has
``std = sensitivity sqrt(k / q) / mu``.

Effort varies continuously with public facts: ``n mu``, the number of records that noise leaves, and
``records = n mu / dimension``, how many there are per coefficient. Where they are few, most of the budget goes to the
one number that a constant needs; where they are many, clips open, so that the fit is consistent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpconvex.core.queries import Query
from dpconvex.mechanisms.column_ranges import PLACES, octaves, octaves_above
from dpconvex.mechanisms.gradient_course import Course
from dpconvex.mechanisms.gradient_geometry import LENGTH_STEPS
from dpconvex.mechanisms.gradient_settings import MASS, mass_share
from dpconvex.mechanisms.quantile_location import TARGET_BINS
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import Parameters
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.description import RecordLoss

MARGIN_BINS = 16
# Noisy counts: for middle and scale of the target, of the residuals, for the range of margins.
TARGET_STEPS, RESIDUAL_STEPS, RANGE_STEPS = 16, 20, 8

_FEW = 80.0  # n mu below which the budget goes to a constant
_GEOMETRY, _SCALES, _OCTAVES = 0.12, 0.03, 0.008
_MORE_GEOMETRY, _MORE_SCALES = 0.06, 0.02  # where records per coefficient are few
_PLACES = 0.02  # share of what columns are centred by, where there is a constant to do it with
_PLACES_SEEN = 50.0  # n mu per root of the number of columns at which half of them would be seen
MOST_WHITENED = 2000  # columns up to which a matrix of moments is paid for
_LENGTH = 0.01  # share of the one length that is asked for beyond
_LABELS = 0.02  # share of a count of positive labels in a ranking
_SECOND_ROUND = 300.0  # records at which a second look at the moments is half trusted
_UNTRUSTED = (
    0.05  # trust below which it would cost three passes over all pairs of columns for nothing
)
_CLIP = 0.5  # of a typical row: what records are clipped to where noise rules
_LOOK_LEAST, _LOOK_MOST = 4e4, 2e5  # rows that are looked at for their geometry, of however many
_LOOK_RECORDS = 400.0  # coefficients over mu for which it is halfway between
_STEPPED_LEAST, _STEPPED = 8e4, 2.0  # rows of early steps: at least, and per sqrt(n dimension) / mu
_EARLY, _SURE = (
    0.25,
    500.0,
)  # budget of an early step over a late one's: at least, and records halfway
_ROUGH = 0.45  # of several levels' budget: share of the medians, where each has one of its own
_CONSTANTS = 0.5  # share that finds the constants of several levels where records are few
_CURVED = 0.2  # share of noise that is kept in the curve of levels beyond a line
_KEPT = 0.5  # iterates that are averaged
_GIVEN_STEPS = 40  # where no released coordinates shorten the way

_EDGE = 1e-3  # levels closer to 0 or 1 are out of reach of noisy counts
MIDDLE_HEIGHT = 1 / math.sqrt(2 * math.pi)  # density of a standard normal law at its middle
NORMAL_SCALE = (
    4 * MIDDLE_HEIGHT
)  # of the normal law that is as dense in its middle as a logistic law of scale 1


@dataclass(frozen=True)
class Phase:
    """Several releases of one kind.

    Attributes
    ----------
    query : Query
        What is released.
    records : LinearBounds
        Public facts of the records.
    share : float
        Share of ``mu^2``.
    releases : int
        How many answers are released.
    """

    query: Query
    records: LinearBounds
    share: float
    releases: int = 1

    def std(self, mu: float) -> float:
        """Return the noise per coordinate of a run that may spend ``mu``."""
        return self.term(mu).scale

    def term(self, mu: float) -> NoiseTerm:
        """Return the noise of a run that may spend ``mu``."""
        return self.query.term(self.records, mu * math.sqrt(self.share), self.releases)


@dataclass(frozen=True)
class GradientPlan:
    """A course and what each of its releases spends.

    Attributes
    ----------
    phases : dict of str to Phase
        In order of execution.
    course : Course
        The public choices between them.
    """

    phases: dict[str, Phase]
    course: Course


def descent_noise(plan: GradientPlan, bounds: LinearBounds, mu: float) -> float:
    """Return the noise of the averaged descent per coordinate of the mean gradient, for a typical row of white length.

    It is that of one Gaussian release with the whole share of the phase, whatever the number of steps. Of several
    levels or targets each has its part; levels of one target share what noise leaves of a line, and some of the rest.
    """
    phases, course = plan.phases, plan.course
    steps = [phases[name] for name in ("early gradients", "gradients") if name in phases]
    share, last = sum(p.share for p in steps), steps[-1]
    each = course.fits / course.targets
    each = min(each, 2 + _CURVED * (each - 2))
    whole = replace(last, share=share / (course.targets * each), releases=1)
    low, high = bounds.loss.slope_range
    weight = course.off_middle if course.levels else abs(low + high) / 2
    constant = [weight * phases["constant part"].std(mu)] if "constant part" in phases else []
    typical = math.sqrt(bounds.n_features + 1) if course.private else 1.0
    return math.hypot(whole.std(mu), *constant) * typical / bounds.n_samples


def level_of(loss: RecordLoss) -> float:
    """Return the quantile level that a loss's slopes stand for: ``high / (high - low)``; 1/2 for margin losses.

    One-sided losses, which only a bound on the coefficients keeps finite, stand for a quantile near the end.
    """
    if loss.kind == "margin":
        return 0.5
    low, high = loss.slope_range
    return float(min(max(high / (high - low), _EDGE), 1 - _EDGE))


def plan_gradient(bounds: LinearBounds, mu: float, settings: Parameters) -> GradientPlan:
    """Choose phases, shares and numbers of steps from public facts.

    Parameters
    ----------
    bounds : LinearBounds
        Public facts.
    mu : float
        Total Gaussian DP budget.
    settings : mapping
        ``steps`` (None or int), ``geometry`` ("private" or "given"), ``bandwidth`` (mapped, or None) and, where only
        the order of margins matters, ``ranking=True``; without public bounds of the target ``raw_target=True``; for
        several quantiles their ``levels`` and how many ``targets``.
    """
    levels, targets = tuple(settings.get("levels", ())), settings.get("targets", 1)
    # Targets share next to nothing, so that each has what is left by the others; levels share about half.
    mu /= math.sqrt(targets) * (max(1, len(levels)) / targets) ** 0.25
    # Budgets so small that they underflow leave no records; nothing below divides by 0.
    size = max(bounds.n_samples * mu, 1e-6)
    records = size / bounds.dimension
    ranking, raw_target = settings.get("ranking", False), settings.get("raw_target", False)
    if settings["geometry"] == "given":
        course = Course(False, records, ranking=ranking)
        return GradientPlan(_given_phases(bounds, settings["steps"]), course)
    few = 0.0 if ranking else 1 / (1 + (size / _FEW) ** 1.5)
    trust = max(0.0, 1 / (1 + _SECOND_ROUND / records) - _UNTRUSTED) / (1 - _UNTRUSTED)
    geometry = _GEOMETRY + _MORE_GEOMETRY / (1 + (records / 12) ** 3)
    geometry *= 1 - 0.8 * few
    scale_share = _SCALES + _MORE_SCALES / (1 + (records / 20) ** 2) * (1 - few)
    diagonal, above = bounds.n_features > MOST_WHITENED, octaves_above(bounds)
    if diagonal:
        geometry = _LENGTH
        phases = _diagonal_phases(bounds, geometry)
    else:
        phases = _geometry_phases(bounds, geometry, trust, 0.1 + 0.3 * few)
    columns = bounds.n_features
    histograms = Query.histograms(octaves(above), columns)
    phases = {"scales": Phase(histograms, bounds, scale_share), **phases}
    left = 1.0 - geometry - scale_share
    centred = bounds.fit_intercept and not diagonal
    if centred:
        hidden = _PLACES_SEEN * math.sqrt(columns) / size
        places = _PLACES * max((1 - 0.8 * few) / (1 + hidden**2), 0.2)
        phases["places"] = Phase(Query.histograms(PLACES, columns), bounds, places)
        left -= places
    if bounds.weighted_rows and not bounds.void_rows:
        phases["mass"] = Phase(Query("count"), bounds, MASS)
        left -= MASS
    if bounds.loss.kind == "margin":
        # Opens late: clipped slopes cost probabilities little, being calibrated, and noise much.
        clip = _CLIP * math.sqrt((1 + records / 2000) / (1 + 10 / records))
        floor = 0.5 * math.sqrt(1 + 40 / records)
        margins = _ranking_phases if ranking else _margin_phases
        phases |= margins(bounds, left, few, clip, settings["steps"], records)
    else:
        clip = _CLIP * math.sqrt(1 + records / 100)
        floor = 0.5 * math.sqrt(1 + 5 / records)
        if math.isfinite(bounds.loss.smoothness):
            phases |= _smooth_phases(bounds, left, clip, settings["steps"])
        else:
            several = (raw_target, levels, targets)
            phases |= _quantile_phases(
                bounds, left, few, clip, settings["steps"], records, *several
            )
    if bounds.void_rows:  # everything else shares what is left
        mass = mass_share(size)
        phases = {
            name: replace(each, share=(1 - mass) * each.share) for name, each in phases.items()
        }
        phases["mass"] = Phase(Query("count"), bounds, mass)
    reach = 1.1 * (1 + records / 2000) ** 0.25
    parts = _parts(bounds, mu)
    early = phases["early gradients"].releases if "early gradients" in phases else 0
    early //= max(1, len(levels))
    course = Course(
        True, records, *parts, clip, floor, trust, few, reach, ranking, diagonal, early, above,
        raw_target, levels, targets, centred,
    )  # fmt: skip
    return GradientPlan(phases, course)


def _parts(bounds: LinearBounds, mu: float) -> tuple[int | None, int | None]:
    """Return how many rows to look at, and how many to take early steps on; None for all of them.

    A part of the rows is a public choice only where their number is public, and small tables are used whole. Noise is
    for sums, so on fewer rows there is more of it per row: geometry uses more of them where coefficients are many, and
    early steps as many as keep their noise below what chance does to a fit of all rows.
    """
    n, dimension = bounds.n_samples, bounds.dimension
    if bounds.neighbors != "replace_one":
        return None, None
    halfway = 1 + _LOOK_RECORDS * mu / dimension
    look = _LOOK_LEAST + (_LOOK_MOST - _LOOK_LEAST) / halfway
    stepped = _STEPPED_LEAST + _STEPPED * math.sqrt(n * dimension) / max(mu, 1e-9)
    looked_at, stepped_on = (round(n / (1 + (n / rows) ** 4) ** 0.25) for rows in (look, stepped))
    most = 0.98 * n
    return looked_at if looked_at < most else None, stepped_on if stepped_on < most else None


def _geometry_phases(
    bounds: LinearBounds, share: float, trust: float, lengths: float
) -> dict[str, Phase]:
    """Plan lengths and one or two rounds of moments, of which the second costs what it is trusted."""
    moments, rounds = Query.moments(bounds.dimension), 2 if trust else 1
    second = max(0.5 * (1 - lengths) * trust, 1e-3) if trust else 0.0
    phases = {
        "lengths": Phase(Query("count"), bounds, lengths * share, (rounds + 1) * LENGTH_STEPS),
        "moments": Phase(moments, bounds, (1 - lengths - second) * share),
    }
    if trust:
        phases["finer moments"] = Phase(moments, bounds, second * share)
    return phases


def _diagonal_phases(bounds: LinearBounds, share: float) -> dict[str, Phase]:
    """Plan one length: moments of so many columns would be mostly noise, and a matrix too large."""
    return {"lengths": Phase(Query("count"), bounds, share, LENGTH_STEPS)}


def _gradients(bounds: LinearBounds, steps: int, share: float, clip: float, slope: float) -> Phase:
    return Phase(Query("vector", clip * slope, bounds.dimension), bounds, share, steps)


def _final_gradients(
    bounds: LinearBounds,
    steps: tuple[float, float],
    share: float,
    clip: float,
    records: float,
    slope: float | None = None,
    fits: int = 1,
) -> dict[str, Phase]:
    """Plan early steps and those that are averaged: the former cost less where records are many.

    Numbers of steps are whole, and the shares of the two kinds do not jump where they do.
    """
    early, late = steps
    cheaper = early * (_EARLY + (1 - _EARLY) / (1 + records / _SURE))
    first = share * cheaper / (cheaper + late)
    slope = bounds.loss.lipschitz if slope is None else slope
    phases = {}
    if early:
        phases["early gradients"] = _gradients(bounds, round(early) * fits, first, clip, slope)
    last = _gradients(bounds, round(late) * fits, share - first, clip, slope)
    return phases | {"gradients": last}


def _quantile_phases(
    bounds: LinearBounds,
    left: float,
    few: float,
    clip: float,
    steps: int | None,
    records: float,
    raw_target: bool,
    levels: tuple[float, ...],
    sought: int,
) -> dict[str, Phase]:
    """Plan start and scale and the median of each target, the residuals and the descent of each level.

    Several levels share the sum of the rows, the constant part of their gradients, whose slopes are then at most 1/2;
    its share and that of the median are those for which noise of all levels together is least.
    """
    count = Query("count")
    low, high = bounds.loss.slope_range
    counted = bounds.weighted_rows and not bounds.void_rows
    most = 0.87 - (MASS if counted else 0.0)  # so that something is left for all
    targets, residuals = 0.04 + most * few**2.5, 0.07 * (1 - few) + 0.01
    if len(levels) > sought:  # where records are few, residuals tell the constant of each level
        targets, residuals = targets - _CONSTANTS * few**2.5, residuals + _CONSTANTS * few**2.5
    octaves = _OCTAVES
    if raw_target:  # where records are few, finding the unit is half of finding a constant
        octaves, targets = octaves + 0.4 * targets, 0.6 * targets
    left -= octaves + targets + residuals
    rough = left * 0.45
    if (
        level_of(bounds.loss) == 0.5
    ):  # the second descent goes where the first one went, to narrow it
        rough = left * (0.3 + 0.25 / (1 + records / 30))
    n, fits, slope = bounds.n_samples, max(1, len(levels)), bounds.loss.lipschitz
    constant: dict[str, Phase] = {}
    if levels:
        weight, slope = _ROUGH * math.sqrt(sought / fits), (high - low) / 2
        rough = left * weight / (weight + 1 - _ROUGH)
        off = math.sqrt(sum((level - 0.5) ** 2 for level in levels) / fits)
        if off > 0:
            pull = (left - rough) * off / (off + slope * math.sqrt(fits))
            constant["constant part"] = _gradients(bounds, 1, pull, clip, 1.0)
            left -= pull
    number = round(_steps(n, 20, 8)) if steps is None else steps
    final = (10, _steps(n, 10, 3)) if steps is None else _split(steps)
    return {
        **constant,
        "octaves": Phase(Query.histograms(TARGET_BINS), bounds, octaves, sought),
        "targets": Phase(count, bounds, targets, TARGET_STEPS * sought),
        "rough gradients": _gradients(bounds, number * sought, rough, clip, (high - low) / 2),
        "residuals": Phase(count, bounds, residuals, RESIDUAL_STEPS * fits),
        **_final_gradients(bounds, final, left - rough, clip, records, slope, fits),
    }


def _margin_phases(
    bounds: LinearBounds, left: float, few: float, clip: float, steps: int | None, records: float
) -> dict[str, Phase]:
    """Plan the share of positives, the descent, and the calibration of its margin."""
    labels, margins = 0.02 + 0.6 * few, 0.08 + 0.15 * few
    number = _margin_steps(bounds.n_samples) if steps is None else _split(steps)
    left -= labels + margins
    return {
        "labels": Phase(Query("count"), bounds, labels),
        **_final_gradients(bounds, number, left, clip, records),
        "margin range": Phase(Query("count"), bounds, 0.4 * margins, 2 * RANGE_STEPS),
        "margins": Phase(Query.histograms(2 * MARGIN_BINS), bounds, 0.6 * margins),
    }


def _ranking_phases(
    bounds: LinearBounds, left: float, few: float, clip: float, steps: int | None, records: float
) -> dict[str, Phase]:
    """Plan the share of positives, and a descent along margins that need neither size nor intercept."""
    number = _margin_steps(bounds.n_samples) if steps is None else _split(steps)
    return {
        "labels": Phase(Query("count"), bounds, _LABELS),
        **_final_gradients(bounds, number, left - _LABELS, clip, records),
    }


def _smooth_phases(
    bounds: LinearBounds, left: float, clip: float, steps: int | None
) -> dict[str, Phase]:
    """Plan a descent for a smooth loss of residuals, which has a scale of its own."""
    number = 30 if steps is None else steps
    return {"gradients": _gradients(bounds, number, left, clip, bounds.loss.lipschitz)}


def _margin_steps(n_samples: int) -> tuple[float, float]:
    return _steps(n_samples, 15, 9), _steps(n_samples, 15, 3)


def _steps(n_samples: int, most: int, least: int) -> float:
    """Return fewer, larger steps for more rows: late ones are passes over all of them."""
    return least + (most - least) / (1 + (n_samples / 2e5) ** 2)


def _split(steps: int) -> tuple[int, int]:
    """Return how many of so many steps are early ones, and how many are averaged."""
    return steps - averaged_steps(steps), averaged_steps(steps)


def averaged_steps(steps: int) -> int:
    """Return how many of the last iterates are averaged: half of them."""
    return max(1, round(_KEPT * steps))


def given_reach(bounds: LinearBounds) -> float:
    """Return the largest length of a weighted row in coordinates that the influence bound gives."""
    return math.sqrt(bounds.fit_intercept + bounds.n_features)


def _given_phases(bounds: LinearBounds, steps: int | None) -> dict[str, Phase]:
    """Plan for coordinates that the influence bound gives: the constant part once, then gradients."""
    low, high = bounds.loss.slope_range
    middle, half = abs(low + high) / 2, (high - low) / 2
    reach, size = given_reach(bounds), bounds.dimension
    phases: dict[str, Phase] = {}
    left = 1.0
    if middle > 0:
        # Noise adds up over both parts: total variance is smallest with shares in proportion to their slopes.
        split = middle / (half + middle)
        phases["constant part"] = Phase(Query("vector", reach, size), bounds, split)
        left -= split
    number = _GIVEN_STEPS if steps is None else steps
    phases["gradients"] = _gradients(bounds, number, left, reach, half)
    return phases
