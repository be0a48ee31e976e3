"""Variants of the default private fit: stages that are switched off, constants that are halved and
doubled.

A variant patches attributes of the modules of :mod:`dpconvex.fit` where they are used;
:mod:`benchmarks.ablation` measures them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import CLASSIFICATION, REGRESSION
from dpconvex.fit import (
    constants,
    covariance_and_curvature,
    fit_plan,
    geometry,
    gradient_rounds,
    location_and_scale,
    margin_calibration,
    posterior,
    private_fit,
)
from dpconvex.fit.gradient_rounds import GradientRounds
from dpconvex.fit.posterior import NewtonPosterior
from dpconvex.fit.private_fit import PrivateFit

Array = NDArray[np.float64]
Change = tuple[Any, str, Any]  # of what, which attribute, and its new value

ALL = CLASSIFICATION + REGRESSION
NOTHING = 1e-9  # share of mu^2 of a stage that is switched off: its release is not looked at


# -------------------------------------------------------------------------------------------------
# Stages that are switched off
# -------------------------------------------------------------------------------------------------


def constant(**values: Any) -> list[Change]:
    """Return changes of constants of the fit; raise on names that are none."""
    for name in values:
        getattr(constants, name)
    return [(constants, name, value) for name, value in values.items()]


def shares(**values: float) -> list[Change]:
    return constant(SHARES=constants.SHARES | values)


def columns_only(
    moments: Array,
    std: float,
    radius: float,
    frame: geometry.RowGeometry,
    most: Array,
    floor: float,
    usual: float,
    measured: bool,
) -> geometry.RowGeometry:
    """Stand in for whitening: columns in their own units."""
    size = moments.shape[0] - frame.lead
    left = np.concatenate([np.ones(frame.lead), np.full(size, min(usual, 1.0))])
    return replace(frame, matrix=frame.matrix.copy(), moments=left)


def bounds_only(counts: Array, *_: Any) -> geometry.ColumnUnits:
    """Stand in for columns' histograms: columns fill their bounds evenly."""
    size = len(counts)
    nothing = np.zeros(size)
    spreads = np.full(size, math.sqrt(1 / 3))
    return geometry.ColumnUnits(
        np.ones(size), nothing, spreads, nothing > 0, nothing, nothing + np.inf, nothing
    )


def all_spread(counts: Array, *_: Any) -> NDArray[np.bool_]:
    """Stand in for the comparison of laws: columns that noise hides are all taken to be like the
    others.
    """
    return np.full(len(counts), True)


def usual_length(
    rows: Any, frame: geometry.RowGeometry, level: float, expected: float, mass: float
) -> float:
    return max(expected, frame.constant if frame.lead else 1.0)


def raw_covariance(
    spread: Array, std: float, usual: tuple[float, float] | None = None
) -> tuple[Array, tuple[float, Array, float]]:
    return (spread + spread.T) / 2, (std**2, std**2 * np.eye(len(spread)), 0.0)


def raw_curvature(matrix: Array, std: float, expected: Array) -> tuple[Array, float]:
    """Stand in for a curvature that is drawn to the expected one: only its eigenvalues are
    raised to the noise.
    """
    size = len(matrix)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    least = max(0.01 * float(np.trace(expected)) / size, std * math.sqrt(size))
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T), std


def wide_law(
    found: Array, variance: Array, logs: Array, variances: Array, prior: Array, known: Any = 0.0
) -> tuple[Array, Array, Array, Array]:
    return posterior.posterior(found, variance, logs, variances[-1:], np.ones(1), known)


def raw_share(noisy: float, std: float, n_samples: float) -> float:
    nearest = 0.5 / max(n_samples, 2)
    return min(max(noisy, nearest), 1 - nearest)


def with_points(**changed: Callable[[Any], Any]) -> list[Change]:
    """Return the change of what Newton points are told: functions of an argument in place of the
    argument.
    """
    build = NewtonPosterior.__init__
    signature = inspect.signature(build)
    if not set(changed) <= set(signature.parameters):
        raise LookupError(f"Newton points are not told {set(changed) - set(signature.parameters)}.")

    def told(self: NewtonPosterior, *values: Any, **named: Any) -> None:
        given = signature.bind(self, *values, **named)
        given.arguments |= {name: change(given.arguments[name]) for name, change in changed.items()}
        build(*given.args, **given.kwargs)

    return [(NewtonPosterior, "__init__", told)]


def forgetful_points() -> list[Change]:
    """Return the change that what rough rounds found is not among the Newton points of fine
    rounds.
    """
    build = NewtonPosterior.__init__

    def forgotten(self: NewtonPosterior, *values: Any, **named: Any) -> None:
        build(self, *values, **named)
        self.earlier = None

    return [(NewtonPosterior, "__init__", forgotten)]


def late_posterior(law: Callable[..., Any]) -> list[Change]:
    """Return the change of the posterior of late rounds alone."""
    return [
        (gradient_rounds, "posteriors", SimpleNamespace(**(vars(posterior) | {"posterior": law})))
    ]


def not_calibrated(self: PrivateFit, loss: Any, found: Any, share: float) -> tuple[Any, float]:
    """Stand in for calibration: the margin is what the rounds claim."""
    middle = float(found.mean[: self.lead].sum()) * self.frame.constant
    spread = self._margin_std(found.mean)
    return found, margin_calibration.margin_moments(loss, middle, spread, self.config.clip)[0]


def flat_curvature(self: PrivateFit, loss: Any, phi: Array) -> Array:
    """Stand in for the curvature along a margin: its mean, the same in all directions."""
    middle = float(phi[: self.lead].sum()) * self.frame.constant
    height = margin_calibration.margin_moments(
        loss, middle, self._margin_std(phi), self.config.clip
    )[0]
    return np.asarray(height * np.diag(self.rounds.moments))


def closed_limits() -> list[Change]:
    never = 1e15
    margins = (constants.MARGIN_CLIP_RECORDS[0], never)
    return constant(
        CLIP_RECORDS=never,
        MARGIN_CLIP_RECORDS=margins,
        LATE_CLIP_RECORDS=never,
        RESIDUAL_CLIP_RECORDS=never,
    )


@dataclass(frozen=True)
class Variant:
    """One thing that is otherwise than in the fit as it is.

    Attributes
    ----------
    name : str
        Of the stage, or constant and factor.
    text : str
        What is switched off or moved.
    changes : callable
        Returns what is patched.
    tasks : tuple of str
        Whose fits it can change at all.
    reason : str
        What the stage is for, where losses of these tables cannot show it.
    constant : str
        Name of the constant that is moved; empty for stages.
    """

    name: str
    text: str
    changes: Callable[[], list[Change]]
    tasks: tuple[str, ...] = ALL
    reason: str = ""
    constant: str = ""


STAGES = (
    Variant(
        "columns' histograms",
        "columns in units of their bounds, not centred",
        lambda: [(geometry, "_column_geometry_units", bounds_only), *shares(columns=NOTHING)],
    ),
    Variant(
        "bounds of hidden columns",
        "columns that noise hides get the unit of the pooled histogram, flags too",
        lambda: [(geometry, "_is_spread", all_spread)],
    ),
    Variant(
        "prior of hidden columns",
        "nothing but noise tells the coefficient of a column without records",
        lambda: constant(UNSEEN_PRIOR_STDS=0.0),
    ),
    Variant(
        "doubted target bounds",
        "a constant lies anywhere in the target's bounds, not near 0",
        lambda: constant(EVEN_PROBABILITY=1 - 1e-9),
    ),
    Variant(
        "whitening",
        "columns only in units of their own, no matrix of moments",
        lambda: [(geometry, "_whiten_geometry", columns_only), *shares(moments=NOTHING)],
    ),
    Variant(
        "denoised covariance",
        "the matrix of moments as it was released; eigenvalues are raised to the noise all the "
        "same",
        lambda: [(geometry, "denoise_covariance", raw_covariance)],
    ),
    Variant(
        "lengths' histograms",
        "the length that columns lead to expect in place of quantiles of rows' lengths",
        lambda: [(geometry, "_geometry_norm_quantile", usual_length), *shares(lengths=NOTHING)],
    ),
    Variant(
        "geometry for few records",
        "the share of geometry does not grow where records per coefficient are few",
        lambda: constant(COARSE_GEOMETRY_RECORDS=1e-9),
    ),
    Variant(
        "parts of rows",
        "all rows in geometry and in early rounds",
        lambda: [(fit_plan, "_plan_subset_sizes", lambda bounds, mu: (None, None))],
        reason="it saves time on tables of more than about 40,000 rows",
    ),
    Variant(
        "constant first",
        "where records are few, the budget does not go to the constant",
        lambda: [(fit_plan, "small_budget_weight", lambda size: 0.0)],
    ),
    Variant(
        "shares of labels",
        "the noisy share of positives itself in place of its posterior mean",
        lambda: [(margin_calibration, "calibrated_label_share", raw_share)],
        CLASSIFICATION,
    ),
    Variant(
        "level at once",
        "where records are few, the search for a level begins at the median all the same",
        lambda: [(private_fit, "small_budget_weight", lambda size: 0.0)],
        ("median", "upper"),
    ),
    Variant(
        "tails that open the limit",
        "residuals of least squares are limited to a multiple of their scale, whatever their tails",
        lambda: [(location_and_scale.LocationTails, "best", lambda self, least, noise: least)],
        ("linear",),
    ),
    Variant(
        "narrow limit of squares",
        "residuals of least squares are limited to 2 scales and more, not "
        f"{constants.RESIDUAL_CLIP:g} and more",
        lambda: constant(RESIDUAL_CLIP=2.0),
        ("linear",),
    ),
    Variant(
        "a median is not the mean",
        "rounds of least squares do not doubt that the mean is where the median was found",
        lambda: constant(MEAN_MEDIAN_GAP=0.0),
        ("linear",),
    ),
    Variant(
        "limits that open", "clips and limits do not open as records become many", closed_limits
    ),
    Variant(
        "shrinkage",
        "one wide law of coefficients in early rounds: nothing is drawn to the constant",
        lambda: with_points(
            variances=lambda variances: variances[-1:], prior=lambda prior: np.ones(1)
        ),
    ),
    Variant(
        "heavy tails of the law",
        "all coefficients have the same scale",
        lambda: constant(TAIL_WEIGHTS=((0, 1.0),)),
    ),
    Variant(
        "columns that tell nothing",
        "the prior gives no probability to columns that all have coefficients 0",
        lambda: [*constant(SPIKE_PROBABILITY=0.0), (GradientRounds, "_no_signal", 0.0)],
        ("logistic", "svm", *REGRESSION),
        reason="it is meant for a handful of records, where fits must not blow up",
    ),
    Variant(
        "factors of the curvature",
        "the expected curvature is believed, whatever points say",
        lambda: with_points(log_curvature_std=np.zeros_like),
    ),
    Variant(
        "mismatch",
        "early steps are weighed by their noise alone, however long they are",
        lambda: constant(NONQUADRATIC_ERROR=dict.fromkeys(constants.NONQUADRATIC_ERROR, 0.0)),
    ),
    Variant(
        "moving intercept",
        "the intercept is not expected to move because columns do",
        lambda: constant(INTERCEPT_SHIFT_SHARE=0.0),
    ),
    Variant(
        "limit of a move",
        "one round may move predictions as far as it likes",
        lambda: constant(MAX_MOVE=math.inf),
        reason="it bounds what a single round can spoil",
    ),
    Variant(
        "rough rounds remembered",
        "fine rounds ignore what rough rounds found, but for where they begin",
        forgetful_points,
        REGRESSION,
    ),
    Variant(
        "drift as it is seen",
        "what rough rounds found is believed as far as is expected, not as far as fine rounds "
        "agree",
        lambda: constant(LEVEL_SHIFT_WEIGHT=1e15),
        REGRESSION,
    ),
    Variant(
        "curvature along the margin",
        "the expected curvature of a margin is the same in all directions",
        lambda: [(PrivateFit, "_margin_curvature", flat_curvature)],
        CLASSIFICATION,
    ),
    Variant(
        "pinned intercept",
        "the intercept is what gradients say, not what the share of positives says",
        lambda: constant(INTERCEPT_RECORDS=0.0),
        ("logistic", "auc"),
    ),
    Variant(
        "calibration",
        "size and intercept of the margin as the rounds left them",
        lambda: [(PrivateFit, "_calibrate", not_calibrated), *shares(margins=NOTHING)],
        ("logistic", "svm"),
    ),
    Variant(
        "late rounds",
        "no rounds with a released curvature",
        lambda: constant(LATE_SHARE=0.0),
        reason="without them a fit does not tend to that without privacy",
    ),
    Variant(
        "curvature drawn to the expected one",
        "late rounds use the released curvature as it is, with eigenvalues raised to the noise",
        lambda: [(covariance_and_curvature, "denoise_curvature", raw_curvature)],
    ),
    Variant(
        "late shrinkage",
        "late rounds are not drawn to what early ones found",
        lambda: late_posterior(wide_law),
    ),
    Variant(
        "late mismatch",
        "late points are weighed by their noise alone, however far away they were taken",
        lambda: constant(LATE_NONQUADRATIC_ERROR=0.0),
    ),
)


# -------------------------------------------------------------------------------------------------
# Constants that are moved
# -------------------------------------------------------------------------------------------------


def times(names: Iterable[str]) -> Callable[[float], list[Change]]:
    """Return changes by a factor of constants: numbers, or all numbers of a mapping or tuple."""

    def scaled(value: Any, factor: float) -> Any:
        if isinstance(value, dict):
            return {key: scaled(each, factor) for key, each in value.items()}
        if isinstance(value, tuple):
            return tuple(scaled(each, factor) for each in value)
        return factor * value

    return lambda factor: constant(
        **{name: scaled(getattr(constants, name), factor) for name in names}
    )


def parts_times(name: str, keys: Iterable[str]) -> Callable[[float], list[Change]]:
    """Return changes by a factor of some entries of a mapping."""

    def moved(factor: float) -> list[Change]:
        whole = getattr(constants, name)
        return constant(**{name: whole | {key: factor * whole[key] for key in keys}})

    return moved


def fine_rounds(factor: float) -> list[Change]:
    many = {kind: (rough, round(factor * fine)) for kind, (rough, fine) in constants.ROUNDS.items()}
    return constant(ROUNDS=many)


MOVED: dict[str, tuple[str, Callable[[float], list[Change]], tuple[str, ...]]] = {
    "SHARES of geometry": (
        "budget of columns, lengths and moments",
        parts_times("SHARES", ("columns", "lengths", "moments")),
        ALL,
    ),
    "SHARES of location": (
        "budget of labels, octaves and targets",
        parts_times("SHARES", ("labels", "octaves", "targets")),
        ALL,
    ),
    "SHARES of looks": (
        "budget of residuals and margins",
        parts_times("SHARES", ("residuals", "margins")),
        ("logistic", "svm", *REGRESSION),
    ),
    "SMALL_BUDGET_RECORDS": (
        "below which a fit is mostly a constant",
        times(["SMALL_BUDGET_RECORDS"]),
        ALL,
    ),
    "ROUGH_SHARE": ("budget of rough rounds", times(["ROUGH_SHARE"]), REGRESSION),
    "LATE_SHARE": ("budget of late rounds", times(["LATE_SHARE"]), ALL),
    "LATE_RECORDS": (
        "per coefficient, from which late rounds are worth it",
        times(["LATE_RECORDS"]),
        ALL,
    ),
    "CURVATURE_SHARE": (
        "budget of the curvature, of that of late rounds",
        times(["CURVATURE_SHARE"]),
        ALL,
    ),
    "ROUNDS, fine": ("number of fine rounds", fine_rounds, ALL),
    "CLIP of margins": ("of slopes and rows", parts_times("CLIP", ["margin"]), CLASSIFICATION),
    "CLIP of residuals": ("of rows", parts_times("CLIP", ["quantile", "squares"]), REGRESSION),
    "LATE_CLIP": ("of rows in late rounds", times(["LATE_CLIP"]), ALL),
    "RESIDUAL_CLIP": ("limit of residuals of least squares", times(["RESIDUAL_CLIP"]), ("linear",)),
    "ROUGH_WIDTH, FINE_WIDTH": (
        "smoothing of quantiles",
        times(["ROUGH_WIDTH", "FINE_WIDTH"]),
        ("median", "upper"),
    ),
    "HINGE_WIDTH": (
        "smoothing of the hinge",
        times(["HINGE_WIDTH", "SHARP_HINGE_WIDTH"]),
        ("svm",),
    ),
    "EXPLAINED_VARIANCE": (
        "variance that columns are expected to explain",
        times(["EXPLAINED_VARIANCE"]),
        ALL,
    ),
    "SCALE_PRIOR_STD": ("octaves around it", times(["SCALE_PRIOR_STD"]), ALL),
    "NO_SIGNAL_RECORDS": (
        "below which columns may tell nothing",
        times(["NO_SIGNAL_RECORDS", "NO_SIGNAL_PER_COEFFICIENT"]),
        ("logistic", "svm", *REGRESSION),
    ),
    "LOG_CURVATURE_STD": ("of the expected curvature", times(["LOG_CURVATURE_STD"]), ALL),
    "NONQUADRATIC_ERROR": ("error of a step, of its length", times(["NONQUADRATIC_ERROR"]), ALL),
    "LEVEL_SHIFT": ("between rough and fine rounds", times(["LEVEL_SHIFT"]), ("upper", "linear")),
    "INTERCEPT_RECORDS": (
        "per coefficient, from which gradients tell the intercept",
        times(["INTERCEPT_RECORDS"]),
        ("logistic", "auc"),
    ),
}
FACTORS = {"half": 0.5, "double": 2.0}


def moved_constants() -> Iterator[Variant]:
    for name, (text, move, tasks) in MOVED.items():
        for word, factor in FACTORS.items():
            yield Variant(
                f"{name}, {word}", text, lambda m=move, f=factor: m(f), tasks, constant=name
            )


VARIANTS = {variant.name: variant for variant in (*STAGES, *moved_constants())}
