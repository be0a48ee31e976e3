r"""The plan of a private fit: what it releases, how often, and with which share of the budget. Public facts only.

Every release is a sum plus Gaussian noise, so the whole run is Gaussian DP with
``mu^2 = sum of releases * (sensitivity / std)^2``; a phase with share ``q`` of ``mu^2`` and ``k`` releases has
``std = sensitivity sqrt(k / q) / mu``.

Effort varies continuously with ``n mu``, the number of records that noise leaves, and ``records = n mu / dimension``,
how many there are per coefficient. Where they are few, most of the budget goes to the one number that a constant needs;
where they are many, clips open and curvature is released, so that the fit is consistent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from dpconvex.checks import check_number
from dpconvex.core.queries import Query
from dpconvex.fit.constants import (
    CLIP,
    CLIP_RECORDS,
    COLUMN_OCTAVES,
    COUNT_SHARE,
    CURVATURE_RELEASES,
    CURVATURE_SHARE,
    EARLY_ROWS,
    EDGE_LEVEL,
    FEW_RECORDS,
    GEOMETRY_RECORDS,
    GEOMETRY_ROWS,
    INFERENCE_SHARES,
    INFERENCE_WIDTH,
    LATE_CLIP,
    LATE_CLIP_RECORDS,
    LATE_RECORDS,
    LATE_ROUNDS,
    LATE_SHARE,
    LEAST_LATE,
    LENGTH_EDGES,
    MARGIN_BINS,
    MARGIN_CLIP_RECORDS,
    MOST_WHITENED,
    RESIDUAL_BINS,
    RESIDUAL_COUNTS,
    ROUGH_SHARE,
    ROUNDS,
    SHARES,
    TARGET_BINS,
    TARGET_COUNTS,
    UNSURE_RECORDS,
    WIDTH,
    WIDTH_RECORDS,
)
from dpconvex.fit.covariance import check_whole_rows
from dpconvex.losses import Squared
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.bounds.record import LinearRecord
from dpconvex.privacy.certificates.rules import Parameters
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.description import Facts, RecordLoss
from dpconvex.privacy.guarantees import Guarantee

__all__ = [
    "FitConfig",
    "FitPlan",
    "Phase",
    "few_records",
    "gradient_noise",
    "kind_of",
    "level_of",
    "octaves_above",
    "plan_fit",
    "total_mu",
]


@dataclass(frozen=True)
class FitConfig:
    """The public choices of a run, which its certificate states.

    Attributes
    ----------
    records : float
        ``n mu / dimension``: records per coefficient that noise leaves; of several levels, for one of them.
    clip : float
        Bound on a weighted row, or on a gradient of slope 1, in units of a typical row.
    late_clip : float
        Length, in units of a typical row, from which on rows count less in the rounds with released curvature.
    width : float
        Bound on a residual of least squares in units of its scale; 1 for other losses.
    eigenvalue_floor : float
        Eigenvalues of the moments are raised to this multiple of the noise's spectral norm.
    radius_multiple : float
        Rows are shortened to this multiple of a usual length before moments are taken.
    max_octaves : int
        Octaves above 1 that columns may reach: more than 0 where no bounds of columns are public.
    geometry_rows, early_rows : int or None
        How many rows geometry is taken of, and how many give the gradients of early rounds; None for all.
    ranking, raw_target, inference : bool
        Whether only the order of margins matters; whether the target has no public bounds; whether intervals are paid
        for, so that nothing is shrunk.
    levels : tuple of float
        Levels of several quantiles that one run finds; empty for a single one, whose level is the loss's.
    targets : int
        Of how many targets: 1, or as many as there are levels.
    """

    records: float
    clip: float = 1.0
    late_clip: float = 1.0
    width: float = 1.0
    eigenvalue_floor: float = 0.5
    radius_multiple: float = 1.1
    max_octaves: int = 0
    geometry_rows: int | None = None
    early_rows: int | None = None
    ranking: bool = False
    raw_target: bool = False
    inference: bool = False
    levels: tuple[float, ...] = ()
    targets: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if any(type(level) is not float or not 0 < level < 1 for level in self.levels):
            raise ValueError("The levels of a fit must be numbers between 0 and 1.")
        if type(self.targets) is not int or self.targets not in (1, len(self.levels)):
            raise ValueError("A fit has one target, or one for each of its levels.")
        for name in ("ranking", "raw_target", "inference"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"The '{name}' of a fit must be True or False.")
        for rows in (self.geometry_rows, self.early_rows):
            if rows is not None and (type(rows) is not int or rows < 1):
                raise ValueError("A number of rows must be None or a positive integer.")
        if type(self.max_octaves) is not int or self.max_octaves < 0:
            raise ValueError("A number of octaves must be an integer of at least 0.")
        for name in (
            "records", "clip", "late_clip", "width", "eigenvalue_floor", "radius_multiple",
        ):  # fmt: skip
            value, allowed = getattr(self, name), "a finite number above 0"
            check_number(name, "FitConfig", value, allowed, 0, math.inf, low_open=True)

    @property
    def fits(self) -> int:
        """How many quantiles are found."""
        return max(1, len(self.levels))

    def stated(self) -> Facts:
        """Return the choices as a certificate states them: of several levels only where there are some."""
        facts = asdict(self) | {"levels": list(self.levels)}
        if not self.levels:
            del facts["levels"], facts["targets"]
        return facts


@dataclass(frozen=True)
class Phase:
    """Several releases of one kind, with a share of ``mu^2``."""

    query: Query
    share: float
    releases: int = 1


@dataclass(frozen=True)
class FitPlan:
    """The choices of a run, and what each of its releases spends."""

    config: FitConfig
    phases: dict[str, Phase] = field(default_factory=dict)

    def terms(self, bounds: LinearBounds, mu: float) -> dict[str, NoiseTerm]:
        """Return the noise of every release of a run that may spend ``mu``."""
        return {
            name: each.query.term(bounds, mu * math.sqrt(each.share), each.releases)
            for name, each in self.phases.items()
        }


def total_mu(guarantee: Guarantee, owner: str) -> float:
    """Return the Gaussian DP budget that a guarantee allows."""
    try:
        return guarantee.as_gaussian().mu
    except ValueError:
        raise ValueError(
            f"{owner} offers GaussianDP and ApproxDP with delta above 0. Got {guarantee!r} instead. "
            "For pure epsilon use objective or output perturbation."
        ) from None


def kind_of(loss: RecordLoss) -> str:
    """Return which of four ways a loss is fitted: margin, squares, quantile (kinked residuals) or smooth residuals."""
    if loss.kind == "margin":
        return "margin"
    if type(loss) is Squared:
        return "squares"
    return "smooth" if math.isfinite(loss.smoothness) else "quantile"


def level_of(loss: RecordLoss) -> float:
    """Return the quantile level that a loss's slopes stand for: ``high / (high - low)``; 1/2 for margins and squares.

    One-sided losses, which only a bound on the coefficients keeps finite, stand for a quantile near the end.
    """
    if kind_of(loss) in ("margin", "squares"):
        return 0.5
    low, high = loss.slope_range
    return float(min(max(high / (high - low), EDGE_LEVEL), 1 - EDGE_LEVEL))


def mass_share(size: float) -> float:
    """Return the share of ``mu^2`` of a count of the rows that are not ignored, of ``size = n mu``.

    All scales hang on it: its noise is at most a fiftieth of the records, or a quarter is paid.
    """
    return max(COUNT_SHARE, min(0.25, (50 / size) ** 2))


def octaves_above(bounds: LinearRecord) -> int:
    """Return how many octaves above 1 the columns of bounded rows may reach: 0 with public bounds of columns."""
    most = bounds.max_norm / math.sqrt(bounds.n_features)
    return max(0, math.ceil(math.log2(most * (1 - 1e-9))))


def plan_fit(bounds: LinearBounds, mu: float, settings: Parameters) -> FitPlan:
    """Choose phases, shares and numbers of rounds from public facts.

    Parameters
    ----------
    bounds : LinearBounds
        Public facts.
    mu : float
        Total Gaussian DP budget.
    settings : mapping
        ``steps`` (None or int); and where they apply ``ranking``, ``raw_target``, ``inference``, ``levels``,
        ``targets``.
    """
    levels, targets = tuple(settings.get("levels", ())), settings.get("targets", 1)
    # Targets share next to nothing, so that each has what is left by the others; levels share about half.
    mu /= math.sqrt(targets) * (max(1, len(levels)) / targets) ** 0.25
    # Budgets so small that they underflow leave no records; nothing below divides by 0.
    size = max(bounds.n_samples * mu, 1e-6)
    config = _config(bounds, mu, size / bounds.dimension, settings, levels, targets)
    queries = _queries(bounds, config, settings.get("steps"))
    shares = _shares(bounds, config, size)
    left = 1 - sum(shares.values())
    shares |= {name: left * share for name, share in _gradient_shares(bounds, config).items()}
    phases = {  # in order of time
        name: Phase(query, shares[name], releases) for name, (query, releases) in queries.items() if name in shares
    }
    return FitPlan(config, phases)


def few_records(size: float) -> float:
    """Return how much of a fit is a private constant: 1/2 where ``size = n mu`` is 80, less above."""
    return 1 / (1 + (size / FEW_RECORDS) ** 1.5)


def _shares(bounds: LinearBounds, config: FitConfig, size: float) -> dict[str, float]:
    """Return shares of everything but gradients: geometry, location, and looks at what rounds leave."""
    kind, few = kind_of(bounds.loss), few_records(size)
    located = ["labels"] if kind == "margin" else ["octaves", "targets"]
    looked = {"margin": "margins", "quantile": "residuals", "squares": "residuals"}.get(kind)
    names = ["columns", "lengths", "moments", *located]
    if looked is not None:
        names.append(looked)
    if bounds.n_features > MOST_WHITENED:
        names.remove("moments")
    shares = {name: SHARES[name] for name in names}
    unsure = (1 + 0.5 / (1 + (config.records / UNSURE_RECORDS) ** 2)) * (1 - 0.8 * few)
    shares |= {name: unsure * shares[name] for name in ("columns", "moments") if name in shares}
    constant = 0.0 if config.ranking else few**2
    if kind == "margin":
        shares["labels"] += 0.6 * constant
    elif config.levels and config.targets == 1:  # residuals tell the constant of each level
        shares["targets"], shares["residuals"] = 0.04 + 0.25 * constant, 0.05 + 0.5 * constant
    else:
        shares["targets"] += 0.75 * constant
    if config.raw_target and kind != "margin":  # finding the unit is half of finding a constant
        shares["octaves"] += COUNT_SHARE + 0.4 * shares["targets"] * few
    if bounds.ignored_rows:
        mass = mass_share(size)
        shares = {name: (1 - mass) * share for name, share in shares.items()} | {"mass": mass}
    elif bounds.weighted_rows:
        shares["mass"] = COUNT_SHARE
    most = 0.9 / max(sum(shares.values()), 0.9)  # something is left for gradients
    return {name: most * share for name, share in shares.items()}


def _gradient_shares(bounds: LinearBounds, config: FitConfig) -> dict[str, float]:
    """Return how rounds share what is left: rough, fine and late ones, curvature, scores and the mean row."""
    late, records, shares = 0.0, config.records, {}
    if bounds.n_features <= MOST_WHITENED:
        late = LATE_SHARE * (records / (records + LATE_RECORDS)) ** 2
    if config.inference:
        late, shares["scores"] = INFERENCE_SHARES
    if late >= LEAST_LATE:
        shares["curvature"] = late * CURVATURE_SHARE
        shares["late gradients"] = late * (1 - CURVATURE_SHARE)
    left, rough = 1 - sum(shares.values()), ROUGH_SHARE
    if config.levels:
        # Shares for which noise of all levels together is least: of the sum of rows, and of the medians.
        each = math.sqrt(config.targets / len(config.levels))
        rough = ROUGH_SHARE * each / (ROUGH_SHARE * each + 1 - ROUGH_SHARE)
        off = math.sqrt(sum((level - 0.5) ** 2 for level in config.levels) / len(config.levels))
        if off > 0:
            pull = left * (1 - rough) * off / (off + 0.5 * math.sqrt(len(config.levels)))
            shares["mean row"] = pull
            left -= pull
    if not ROUNDS[kind_of(bounds.loss)][0]:
        rough = 0.0
    if rough:
        shares["rough gradients"] = rough * left
    return shares | {"gradients": (1 - rough) * left}


def gradient_noise(plan: FitPlan, bounds: LinearBounds, mu: float) -> float:
    """Return the noise of all fine and late gradients together, per coordinate of the mean gradient of white rows.

    It is that of one Gaussian release with their whole share, whatever the number of rounds. Weighted rows count less,
    and so do their gradients. Of several levels each has its part; those of one target share half of it.
    """
    config, terms = plan.config, plan.terms(bounds, mu)
    each = math.sqrt(config.targets) * (config.fits / config.targets) ** 0.25
    weight = 1.0 if kind_of(bounds.loss) == "margin" else min(1.0, config.clip)
    precision = 0.0
    for name, weighted in (("gradients", weight), ("late gradients", 1.0)):
        if name in terms:
            precision += terms[name].releases / config.fits * (weighted / terms[name].scale) ** 2
    typical = math.sqrt(1 + bounds.n_features)
    return each * typical / math.sqrt(precision * config.fits) / bounds.n_samples


def _config(
    bounds: LinearBounds, mu: float, records: float, settings: Parameters, levels: Sequence[float], targets: int
) -> FitConfig:
    """Return limits that open with the number of records per coefficient."""
    kind, inference = kind_of(bounds.loss), settings.get("inference", False)
    if inference:
        check_whole_rows(bounds)
    clip, width = CLIP[kind] * math.sqrt(1 + records / CLIP_RECORDS), 1.0
    if kind == "margin":  # opens late: clipped slopes cost probabilities little, and noise much
        few, many = MARGIN_CLIP_RECORDS
        clip = CLIP[kind] * math.sqrt((1 + records / many) / (1 + few / records))
    if kind == "squares":
        width = WIDTH * (1 + records / WIDTH_RECORDS) ** 0.4
        width = max(width, INFERENCE_WIDTH) if inference else width
    geometry_rows, early_rows = (None, None) if inference else _parts(bounds, mu)
    return FitConfig(
        records=records,
        clip=clip,
        late_clip=LATE_CLIP * math.sqrt(1 + records / LATE_CLIP_RECORDS),
        width=width,
        eigenvalue_floor=0.5 * math.sqrt(1 + 5 / records),
        radius_multiple=1.1 * (1 + records / 2000) ** 0.25,
        max_octaves=octaves_above(bounds),
        geometry_rows=geometry_rows,
        early_rows=early_rows,
        ranking=settings.get("ranking", False),
        raw_target=settings.get("raw_target", False),
        inference=inference,
        levels=tuple(levels),
        targets=targets,
    )


def _queries(bounds: LinearBounds, config: FitConfig, steps: int | None) -> dict[str, tuple[Query, int]]:
    """Return what may be released, and how often.

    A gradient is a row of length at most ``clip`` typical ones times a slope; curvature is second moments of vectors of
    length at most 1.
    """
    size, columns, count = bounds.dimension, bounds.n_features, Query("count")
    kind, fits, targets = kind_of(bounds.loss), config.fits, config.targets
    slope = config.width if kind == "squares" else float(bounds.loss.lipschitz)
    rough = fine = late = slope
    if kind == "quantile":
        low, high = bounds.loss.slope_range
        rough = (high - low) / 2
    if config.levels:  # the constant part of their gradients is released once
        fine, late = rough, max(max(level, 1 - level) for level in config.levels)
    first, second = ROUNDS[kind]
    looks, several = RESIDUAL_COUNTS * fits, 2 if config.inference else 1
    octaves = config.max_octaves + max(COLUMN_OCTAVES, config.max_octaves)
    moments = Query.moments(size)
    return {
        "mass": (count, 1),
        "columns": (Query.histograms(2 * octaves + 1, columns), 1),
        "lengths": (Query.histograms(len(LENGTH_EDGES) + 1), 1 if columns > MOST_WHITENED else 2),
        "moments": (moments, 1),
        "labels": (count, 1),
        "octaves": (Query.histograms(TARGET_BINS), targets),
        "targets": (count, TARGET_COUNTS * targets),
        "mean row": (Query("vector", config.clip, size), 1),
        "rough gradients": (Query("vector", config.clip * rough, size), first * targets),
        "residuals": (Query.histograms(RESIDUAL_BINS), 1) if kind == "squares" else (count, looks),
        "margins": (Query.histograms(2 * MARGIN_BINS), 1),
        "gradients": (Query("vector", config.clip * fine, size), (second if steps is None else steps) * fits),
        "curvature": (moments, several * CURVATURE_RELEASES * fits),
        "late gradients": (Query("vector", config.late_clip * late, size), several * LATE_ROUNDS * fits),
        "scores": (moments, fits),
    }


def _parts(bounds: LinearBounds, mu: float) -> tuple[int | None, int | None]:
    """Return how many rows geometry is taken of, and how many give early gradients; None for all of them.

    A part of the rows is a public choice only where their number is public, and small tables are used whole. Noise is
    for sums, so on fewer rows there is more of it per row: geometry uses more of them where coefficients are many, and
    early rounds as many as keep their noise below what chance does to a fit of all rows.
    """
    n, dimension = bounds.n_samples, bounds.dimension
    if bounds.neighbors != "replace_one":
        return None, None
    least, most = GEOMETRY_ROWS
    geometry = least + (most - least) / (1 + GEOMETRY_RECORDS * mu / dimension)
    early = EARLY_ROWS[0] + EARLY_ROWS[1] * math.sqrt(n * dimension) / max(mu, 1e-9)
    first, second = (round(n / (1 + (n / rows) ** 4) ** 0.25) for rows in (geometry, early))
    return first if first < 0.98 * n else None, second if second < 0.98 * n else None
