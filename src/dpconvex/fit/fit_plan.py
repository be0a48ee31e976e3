r"""Plan of a private fit: its releases, their number and their shares of the budget, from public
facts only.

Every release is a sum plus Gaussian noise, so the whole run is Gaussian DP with
``mu^2 = sum of releases * (sensitivity / std)^2``; ``k`` releases with the share ``q`` of ``mu^2``
have ``std = sensitivity sqrt(k / q) / mu``.

Shares and clips vary continuously with ``n mu``, the effective number of records, and
``n mu / dimension``, the effective number per coefficient. Where it is small, most of the budget
goes to the best constant prediction; where it is large, clips grow and curvature is released, so
that the fit is consistent.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

from dpconvex.core.certificate import CertifiedNoise
from dpconvex.core.checks import check_number
from dpconvex.core.description import DescribableLoss, Facts
from dpconvex.core.guarantees import Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Parameters
from dpconvex.core.queries import Query
from dpconvex.fit import constants
from dpconvex.losses import CrammerSinger, SeveralMarginLoss, Squared


@dataclass(frozen=True)
class FitConfig:
    """Public choices of a run, which its certificate states.

    With intervals of least squares ``late_clip`` is for matrices alone: late gradients limit the
    product of residual and row, so that long rows, such as those of rare flags, keep their weight.
    """

    records_per_coefficient: (
        float  # n mu / dimension, the effective number of records, for each quantile level
    )
    # largest norm of a weighted row, or of a gradient of slope 1, in units of the median row norm
    clip: float = 1.0
    late_clip: float = 1.0  # the same in rounds with released curvature
    # largest residual of least squares, or slope of a rate, in units of its scale; 1 for others
    width: float = 1.0
    eigenvalue_floor: float = (
        0.5  # least eigenvalue of the second moments, in units of the noise's spectral norm
    )
    radius_multiple: float = (
        1.1  # clip of rows for second moments, in units of a quantile of their norms
    )
    # octaves above 1 that columns may reach: more than 0 where no bounds of columns are public
    max_octaves: int = 0
    geometry_rows: int | None = None  # number of rows that geometry uses; None for all
    early_rows: int | None = None  # the same of early rounds
    ranking: bool = False  # whether only the order of margins matters
    raw_target: bool = False  # whether the target has no public bounds
    inference: bool = (
        False  # whether the run pays for confidence intervals, so that nothing is shrunk
    )
    levels: tuple[
        float, ...
    ] = ()  # of several quantiles that one run finds; of a single one it is the loss's
    targets: int = 1  # or as many as there are levels
    smooth: tuple[
        tuple[int, int, float], ...
    ] = ()  # penalised curves: first column, number of columns, strength

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(
            self, "smooth", tuple((int(first), int(n), float(by)) for first, n, by in self.smooth)
        )
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
            "records_per_coefficient",
            "clip",
            "late_clip",
            "width",
            "eigenvalue_floor",
            "radius_multiple",
        ):
            check_number(
                name,
                "FitConfig",
                getattr(self, name),
                "a finite number above 0",
                0,
                math.inf,
                low_open=True,
            )

    @property
    def fits(self) -> int:
        """Number of quantiles that are found."""
        return max(1, len(self.levels))

    def stated(self) -> Facts:
        """Return the choices of a fit plan as a certificate states them; levels and targets if
        there are several.
        """
        facts = asdict(self) | {
            "levels": list(self.levels),
            "smooth": [list(curve) for curve in self.smooth],
        }
        if not self.levels:
            del facts["levels"], facts["targets"]
        if not self.smooth:
            del facts["smooth"]
        return facts


@dataclass(frozen=True)
class FitPlan:
    """Choices of a run; by name, in order of time, its queries with their number, and their
    shares of ``mu^2``.
    """

    config: FitConfig
    queries: dict[str, tuple[Query, int]]
    shares: dict[str, float]

    def calibrated_noise(self, bounds: LinearBounds, mu: float) -> dict[str, CertifiedNoise]:
        """Return the noise of every release of a run that may spend ``mu``."""
        parts = {name: mu * math.sqrt(share) for name, share in self.shares.items()}
        asked = self.queries.items()
        return {
            name: query.calibrated_noise(bounds, parts[name], number)
            for name, (query, number) in asked
        }


def gaussian_budget(guarantee: Guarantee, owner: str) -> float:
    """Return the mu that a guarantee lets Gaussian noise spend; raise if it lets it spend none."""
    try:
        return guarantee.as_gaussian().mu
    except ValueError:
        raise ValueError(
            f"{owner} offers GaussianDP and ApproxDP with delta above 0. Got {guarantee!r} "
            "instead. For pure epsilon use objective or output perturbation."
        ) from None


def fit_kind_of_loss(loss: DescribableLoss) -> str:
    """Return how a loss is fitted: "several", "margin", "rate", "squares", "quantile" (kinked)
    or "smooth".
    """
    if loss.kind in ("margin", "several", "rate"):
        return loss.kind
    if type(loss) is Squared:
        return "squares"
    return "smooth" if math.isfinite(loss.smoothness) else "quantile"


def planned_quantile_level(loss: DescribableLoss) -> float:
    """Return the quantile level that a fit plan aims at, ``high / (high - low)`` of a loss's
    slopes, or 1/2.
    """
    # One-sided losses, which only a bound on the coefficients keeps finite, have a level near 0 or
    # 1.
    if fit_kind_of_loss(loss) in ("margin", "several", "squares", "rate"):
        return 0.5
    low, high = loss.slope_range
    return float(min(max(high / (high - low), constants.MIN_LEVEL), 1 - constants.MIN_LEVEL))


def planned_mass_share(size: float) -> float:
    """Return the share of ``mu^2`` of a count of the valid rows, with ``size = n mu``."""
    # All scales depend on it: its noise is at most a fiftieth of the records, or it takes a quarter
    # of the budget.
    return max(constants.COUNT_SHARE, min(0.25, (50 / size) ** 2))


def column_octaves(max_octaves: int) -> int:
    """Return the number of octaves that are counted on either side of 0: down to 2^-16, or as
    far down as up.
    """
    return max_octaves + max(constants.COLUMN_OCTAVES, max_octaves)


def plan_fit(bounds: LinearBounds, mu: float, settings: Parameters) -> FitPlan:
    """Plan a fit: choose releases, their shares and rounds from public facts and the total Gaussian
    DP budget.

    ``settings`` has ``steps`` (None or int) and, where they apply, the fields of the same name of
    :class:`FitConfig`.
    """
    levels = tuple(settings.get("levels", ()))
    targets = settings.get("targets", 1)
    # What one problem has of the budget decides sizes here; noise is calibrated to all of mu, by
    # the shares. Targets share next to nothing, levels about half.
    effective_mu = mu / (math.sqrt(targets) * (max(1, len(levels)) / targets) ** 0.25)
    effective_mu /= bounds.rows_per_person  # whose rows together are promised mu
    # A tiny budget must not underflow to 0: below, numbers are divided by this size.
    size = max(bounds.n_samples * effective_mu, 1e-6)
    if bounds.loss.kind == "several":
        size /= constants.JOINT_RECORDS
    config = _plan_fit_config(
        bounds, effective_mu, size / bounds.dimension, settings, levels, targets
    )
    queries = _planned_queries(bounds, config, settings.get("steps"))
    shares = _plan_budget_shares(bounds, config, size)
    left = 1 - sum(shares.values())
    shares |= {name: left * share for name, share in _plan_gradient_shares(bounds, config).items()}
    return FitPlan(
        config, {name: query for name, query in queries.items() if name in shares}, shares
    )


def small_budget_weight(size: float) -> float:
    """Return the weight of a private constant in a fit: 1/2 where ``size = n mu`` is 80, less
    above.
    """
    return float(1 / (1 + (size / constants.SMALL_BUDGET_RECORDS) ** 1.5))


def _plan_budget_shares(bounds: LinearBounds, config: FitConfig, size: float) -> dict[str, float]:
    """Return planned shares of all but gradients: geometry, location, and histograms of margins
    or residuals.
    """
    kind = fit_kind_of_loss(bounds.loss)
    constant_weight = small_budget_weight(size / constants.RATE_RECORDS if kind == "rate" else size)
    own = {"margin": ["labels", "margins"], "several": ["labels"], "smooth": ["octaves", "targets"]}
    names = ["columns", "lengths", "moments", *own.get(kind, ["octaves", "targets", "residuals"])]
    if config.inference and kind == "squares":
        names.append("limits")
    if bounds.n_features > constants.MAX_WHITENED_COLUMNS:
        names.remove("moments")
    shares = {name: constants.SHARES[name] for name in names}
    growth = 1 + 0.5 / (
        1 + (config.records_per_coefficient / constants.COARSE_GEOMETRY_RECORDS) ** 2
    )
    growth = growth * (1 - 0.8 * constant_weight)
    constant = 0.0 if config.ranking else constant_weight**2
    shares |= {name: growth * shares[name] for name in ("columns", "moments") if name in shares}
    if config.inference and kind == "squares" and "moments" in shares:
        shares["moments"] *= constants.INFERENCE_MOMENTS
    if kind in ("margin", "several"):
        shares["labels"] += 0.6 * constant
    elif config.levels and config.targets == 1:  # the constant of each level comes from residuals
        shares["targets"] = 0.04 + 0.25 * constant
        shares["residuals"] = 0.05 + 0.5 * constant
    elif kind == "rate":
        shares["octaves"] = shares["targets"] = shares["targets"] + 0.33 * constant
    else:
        shares["targets"] += 0.75 * constant
    if config.raw_target and "octaves" in shares:  # finding the unit is half of finding a constant
        shares["octaves"] += constants.COUNT_SHARE + 0.4 * shares["targets"] * constant_weight
    if bounds.ignored_rows:
        mass = planned_mass_share(size)
        shares = {name: (1 - mass) * share for name, share in shares.items()} | {"mass": mass}
    elif bounds.weighted_rows:
        shares["mass"] = constants.COUNT_SHARE
    factor = 0.9 / max(sum(shares.values()), 0.9)  # leaves at least a tenth for gradients
    return {name: factor * share for name, share in shares.items()}


def _plan_gradient_shares(bounds: LinearBounds, config: FitConfig) -> dict[str, float]:
    """Return how planned rounds share the rest: rough, fine and late ones, curvature, scores and
    the mean row.
    """
    late = 0.0
    records = config.records_per_coefficient
    shares = {}
    if bounds.n_features <= constants.MAX_WHITENED_COLUMNS:
        late = constants.LATE_SHARE * (records / (records + constants.LATE_RECORDS)) ** 2
    if config.inference:
        of_kind = constants.INFERENCE_SHARES.get(
            fit_kind_of_loss(bounds.loss), constants.OTHER_INFERENCE_SHARES
        )
        shares["late gradients"], shares["curvature"], shares["scores"] = of_kind
    elif bounds.loss.kind == "several":
        hinge = isinstance(bounds.loss, CrammerSinger)
        if late >= (constants.MIN_HINGE_LATE_SHARE if hinge else constants.MIN_LATE_SHARE):
            shares["late gradients"] = late
    elif late >= constants.MIN_LATE_SHARE:
        shares["curvature"] = late * constants.CURVATURE_SHARE
        shares["late gradients"] = late * (1 - constants.CURVATURE_SHARE)
    left = 1 - sum(shares.values())
    rough = constants.ROUGH_SHARE
    if config.levels:
        # Shares that minimise the noise of all levels: of the sum of rows, and of the medians.
        each = math.sqrt(config.targets / len(config.levels))
        rough = (
            constants.ROUGH_SHARE
            * each
            / (constants.ROUGH_SHARE * each + 1 - constants.ROUGH_SHARE)
        )
        off = math.sqrt(sum((level - 0.5) ** 2 for level in config.levels) / len(config.levels))
        if off > 0:
            share = left * (1 - rough) * off / (off + 0.5 * math.sqrt(len(config.levels)))
            shares["mean row"] = share
            left -= share
    if not constants.ROUNDS[fit_kind_of_loss(bounds.loss)][0]:
        rough = 0.0
    if rough:
        shares["rough gradients"] = rough * left
    return shares | {"gradients": (1 - rough) * left}


def planned_gradient_noise(
    config: FitConfig, terms: Mapping[str, CertifiedNoise], bounds: LinearBounds
) -> float:
    """Return the planned noise of all fine and late gradients combined, per coordinate of the
    mean white gradient.
    """
    # It is that of one Gaussian release with their whole share, whatever the number of rounds.
    # Weights of rows reduce gradients. Levels of one target share half of their gradients.
    each = math.sqrt(config.targets) * (config.fits / config.targets) ** 0.25
    weight = (
        1.0 if fit_kind_of_loss(bounds.loss) in ("margin", "several") else min(1.0, config.clip)
    )
    precision = 0.0
    for name, weighted in (("gradients", weight), ("late gradients", 1.0)):
        if name in terms:
            precision += terms[name].releases / config.fits * (weighted / terms[name].scale) ** 2
    return float(
        each
        * math.sqrt(1 + bounds.n_features)
        / math.sqrt(precision * config.fits)
        / bounds.n_samples
    )


def _plan_fit_config(
    bounds: LinearBounds,
    mu: float,
    records: float,
    settings: Parameters,
    levels: Sequence[float],
    targets: int,
) -> FitConfig:
    """Return planned clips, which grow with the effective number of records per coefficient."""
    kind = fit_kind_of_loss(bounds.loss)
    inference = settings.get("inference", False)
    clip = constants.CLIP[kind] * math.sqrt(1 + records / constants.CLIP_RECORDS)
    width = 1.0
    if kind in (
        "margin",
        "several",
    ):  # grows late: clipped slopes cost probabilities little, and noise much
        low, high = constants.MARGIN_CLIP_RECORDS
        clip = constants.CLIP[kind] * math.sqrt((1 + records / high) / (1 + low / records))
    if kind in ("squares", "rate"):
        width = constants.RESIDUAL_CLIP * (1 + records / constants.RESIDUAL_CLIP_RECORDS) ** 0.4
        width = max(width, constants.INFERENCE_RESIDUAL_CLIP) if inference else width
    late_clip = constants.LATE_CLIP * math.sqrt(1 + records / constants.LATE_CLIP_RECORDS)
    if kind == "squares" and inference:
        width = (
            constants.INFERENCE_RESIDUAL_CLIP
            * (0.5 + 0.5 * records / constants.INFERENCE_CLIP_RECORDS) ** 0.4
        )
        late_clip = constants.INFERENCE_RADIUS * math.sqrt(
            1 + records / constants.INFERENCE_RADIUS_RECORDS
        )
    most = bounds.max_norm / math.sqrt(
        bounds.n_features
    )  # that columns may reach: 1 with public bounds
    geometry_rows, early_rows = (None, None) if inference else _plan_subset_sizes(bounds, mu)
    return FitConfig(
        records_per_coefficient=records,
        clip=clip,
        late_clip=late_clip,
        width=width,
        eigenvalue_floor=0.5 * math.sqrt(1 + 5 / records),
        radius_multiple=1.1 * (1 + records / 2000) ** 0.25,
        max_octaves=max(0, math.ceil(math.log2(most * (1 - 1e-9)))),
        geometry_rows=geometry_rows,
        early_rows=early_rows,
        ranking=settings.get("ranking", False),
        raw_target=settings.get("raw_target", False),
        inference=inference,
        levels=tuple(levels),
        targets=targets,
        smooth=tuple(settings.get("smooth", ())),
    )


def _planned_queries(
    bounds: LinearBounds, config: FitConfig, steps: int | None
) -> dict[str, tuple[Query, int]]:
    """Return every query that a fit could ask, with its number of releases; a plan keeps those
    that have a share.
    """
    # A gradient is a slope times a row of at most clip median row norms; curvature is second
    # moments of vectors of norm at most 1.
    size = bounds.dimension
    columns = bounds.n_features
    count = Query("count")
    kind = fit_kind_of_loss(bounds.loss)
    fits = config.fits
    targets = config.targets
    slope = config.width if kind in ("squares", "rate") else float(bounds.loss.lipschitz)
    rough = fine = late = slope
    if kind == "quantile":
        low, high = bounds.loss.slope_range
        rough = (high - low) / 2
    if config.levels:  # the constant part of their gradients is released once
        fine = rough
        late = max(max(level, 1 - level) for level in config.levels)
    first, second = constants.ROUNDS[kind]
    counts = constants.RESIDUAL_COUNTS * fits
    histograms = 1
    late_clip = config.late_clip
    rounds = constants.LATE_ROUNDS, constants.CURVATURE_RELEASES
    if config.inference:
        rounds = constants.INFERENCE_ROUNDS, constants.INFERENCE_CURVATURES
        if kind == "squares":  # residual times row is limited as one
            rounds = (constants.INFERENCE_ROUNDS, 1)
            histograms = 2
            late_clip = 1.0
    moments = Query.moments(size)
    labels = count
    vector = size
    if kind == "several":
        loss = cast(SeveralMarginLoss, bounds.loss)
        labels = Query("histogram", 1, loss.outcomes)
        vector = loss.coefficients(size)
        rounds = constants.JOINT_ROUNDS, 0
    residuals = (count, counts)
    lengths = Query("histogram", 1, len(constants.LENGTH_EDGES) + 1)
    if kind in ("squares", "rate"):
        residuals = (Query("histogram", 1, constants.RESIDUAL_BINS), histograms)
    return {
        "mass": (count, 1),
        "columns": (
            Query("histogram", columns, (2 * column_octaves(config.max_octaves) + 1) * columns),
            1,
        ),
        "lengths": (lengths, 1 if columns > constants.MAX_WHITENED_COLUMNS else 2),
        "moments": (moments, 1),
        "labels": (labels, 1),
        "octaves": (Query("histogram", 1, constants.TARGET_BINS), targets),
        "targets": (Query("limited sum"), 1)
        if kind == "rate"
        else (count, constants.TARGET_COUNTS * targets),
        "mean row": (Query("vector", config.clip, size), 1),
        "rough gradients": (Query("vector", config.clip * rough, size), first * targets),
        "residuals": residuals,
        "limits": (count, 2),
        "margins": (Query("histogram", 1, 2 * constants.MARGIN_BINS), 1),
        "gradients": (
            Query("vector", config.clip * fine, vector),
            (second if steps is None else steps) * fits,
        ),
        "curvature": (moments, rounds[1] * fits),
        "late gradients": (Query("vector", late_clip * late, vector), rounds[0] * fits),
        "scores": (moments, fits),
    }


def _plan_subset_sizes(bounds: LinearBounds, mu: float) -> tuple[int | None, int | None]:
    """Return the number of rows that geometry and early gradients use; None for all of them."""
    # A part of the rows is a public choice only where their number is public. Small tables are used
    # whole. Noise is added to sums, so fewer rows mean more noise per row: geometry uses more rows
    # where coefficients are many, and early rounds as many as keep their noise below the sampling
    # error of a fit of all rows.
    n = bounds.n_samples
    dimension = bounds.dimension
    if bounds.neighbors != "replace_one":
        return None, None
    least, most = constants.GEOMETRY_ROWS
    geometry = least + (most - least) / (1 + constants.GEOMETRY_RECORDS * mu / dimension)
    early = constants.EARLY_ROWS[0] + constants.EARLY_ROWS[1] * math.sqrt(n * dimension) / max(
        mu, 1e-9
    )
    first, second = (round(n / (1 + (n / rows) ** 4) ** 0.25) for rows in (geometry, early))
    return first if first < 0.98 * n else None, second if second < 0.98 * n else None
