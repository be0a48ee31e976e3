"""Checks of estimators' settings (budgets, bounds, kernels, levels) and the protocols of
estimators; no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dpconvex.core.calibration import check_neighbors
from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import check_count, check_number, check_share, parameter_error
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP
from dpconvex.core.noise_source import FLOATING_POINT, NoiseSource
from dpconvex.inputs.schema import Schema
from dpconvex.privacy.ledger import Ledger
from dpconvex.smoothing import KERNELS, Kernel

DEFAULT_EPSILON = 1.0
DEFAULT_DELTA = 1e-6
# Squares and ratios of numbers in this range stay far from the ends of float64.
SMALLEST = 1e-15
LARGEST = 1e15
SMALLEST_BUDGET = 1e-10
MOST_LEVELS = 200  # quantiles, or products, of one fit
RAREST = 1e-9  # of quantile levels
# bounds have units; what they map to has none
LARGEST_BOUND = 1e100
SMALLEST_WIDTH = 1e-100


def resolve_budget_setting(epsilon: object, delta: object, mu: object, owner: str) -> Guarantee:
    """Return the guarantee that the settings of the budget ask for."""
    allowed = f"a number above 0, at least {SMALLEST_BUDGET:g} and below {LARGEST:g}"
    if mu is not None:
        if epsilon is not None or delta is not None:
            raise ValueError(
                f"The budget of {owner} must be either 'mu' or 'epsilon' with 'delta'. Got both "
                "instead. Leave out one of them."
            )
        return GaussianDP(check_number("mu", owner, mu, allowed, SMALLEST_BUDGET, LARGEST))
    epsilon = DEFAULT_EPSILON if epsilon is None else epsilon
    delta = DEFAULT_DELTA if delta is None else delta
    epsilon = check_number("epsilon", owner, epsilon, allowed, SMALLEST_BUDGET, LARGEST)
    delta = check_number("delta", owner, delta, "a number in [0, 1), 0 meaning pure epsilon", 0, 1)
    return ApproxDP(epsilon, delta) if delta > 0 else PureDP(epsilon)


def resolve_kernel_setting(kernel: object, owner: str) -> Kernel:
    """Return the smoothing kernel that a name or object stands for."""
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]
    if isinstance(kernel, Kernel):
        return kernel
    raise parameter_error(
        "kernel", owner, f"one of {list(KERNELS)} or a kernel object", repr(kernel)
    )


def resolve_samples_setting(
    neighbors: str, nominal_samples: object, n_samples: int, owner: str
) -> int:
    """Return the public number of rows: the data's under replace-one, the nominal one otherwise."""
    check_neighbors(neighbors, owner)
    if neighbors == "replace_one":
        if nominal_samples is not None:
            allowed = "None with neighbors='replace_one', where the number of rows is public"
            raise parameter_error("nominal_samples", owner, allowed, repr(nominal_samples))
        return int(n_samples)
    if (
        isinstance(nominal_samples, bool)
        or not isinstance(nominal_samples, (int, np.integer))
        or nominal_samples < 1
    ):
        allowed = (
            "a positive integer with neighbors='add_or_remove_one', where the number of "
            "rows is private"
        )
        remedy = "Give a public guess of the number of rows."
        raise parameter_error("nominal_samples", owner, allowed, repr(nominal_samples), remedy)
    return int(nominal_samples)


# Statement of a certificate about rows with NaN, infinity or a label that is not in the label set.
INVALID_ROWS = {
    "error": "error: whether every row was valid is visible, and not covered",
    "ignore": "ignore: an invalid row counts nowhere but in the public number of rows",
}


def invalid_rows_setting(model: Model) -> bool:
    """Return whether invalid rows count nowhere; classifiers must declare their labels then."""
    owner = type(model).__name__
    value = model.invalid_rows
    if not (isinstance(value, str) and value in INVALID_ROWS):
        raise parameter_error("invalid_rows", owner, f"one of {list(INVALID_ROWS)}", repr(value))
    if value == "error":
        return False
    if classifies(model) and model.classes is None:
        raise ValueError(
            f"The 'classes' parameter of {owner} must list the labels with invalid_rows='ignore': "
            "a label set that is read from the target depends on it. Got None instead. Write "
            "classes=[0, 1], for instance."
        )
    return True


def check_ledger_setting(ledger: object, owner: str) -> None:
    """Raise unless a ledger is none at all, or can be charged."""
    if ledger is not None and not hasattr(ledger, "charge"):
        raise parameter_error(
            "ledger", owner, "None or a Ledger", type(ledger).__name__, kind=TypeError
        )


def least_rows(neighbors: object) -> int:
    """Return how many rows a fit needs: none where their number is private, and one where it is
    public.
    """
    return 0 if isinstance(neighbors, str) and neighbors == "add_or_remove_one" else 1


def check_positive_setting(
    name: str, value: object, owner: str, unit: float = 1.0, optional: bool = False
) -> float:
    """Return a positive float, at least 1e-15 and below 1e15 in this unit, or raise."""
    low = SMALLEST * unit
    high = LARGEST * unit
    allowed = (
        f"{'None or ' if optional else ''}a number above 0, at least {low:g} and below {high:g}"
    )
    return check_number(name, owner, value, allowed, low, high)


def check_nonnegative_setting(name: str, value: object, owner: str) -> float:
    """Return a float, at least 0 and below 1e15, or raise."""
    allowed = f"a number of at least 0 and below {LARGEST:g}"
    return check_number(name, owner, value, allowed, 0, LARGEST)


def check_quantile_setting(value: object, owner: str) -> float:
    """Return a level between 0 and 1, a billionth away from both, or raise."""
    allowed = f"a number in (0, 1), at least {RAREST:g} and below 1 - {RAREST:g}"
    return check_number("quantile", owner, value, allowed, RAREST, 1 - RAREST)


def is_sequence(value: object) -> bool:
    """Return whether a setting is a sequence of numbers and not one of them."""
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def check_quantile_settings(values: Sequence[object], owner: str) -> tuple[float, ...]:
    """Return levels of one fit, in increasing order, or raise."""
    levels = tuple(check_quantile_setting(value, owner) for value in values[: MOST_LEVELS + 1])
    if not 1 <= len(levels) <= MOST_LEVELS or any(b <= a for a, b in pairwise(levels)):
        allowed = f"a level, or up to {MOST_LEVELS} levels in increasing order"
        raise parameter_error("quantile", owner, allowed, repr(list(levels[:10])), "Sort them.")
    return levels


def check_optional_positive(
    name: str, value: object, owner: str, unit: float = 1.0
) -> float | None:
    """Return None, or a positive float, at least 1e-15 and below 1e15 in this unit."""
    return (
        None if value is None else check_positive_setting(name, value, owner, unit, optional=True)
    )


def resolve_bounds_setting(
    name: str, bounds: object, columns: int | None, owner: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a setting of bounds as arrays (low, high) of ``columns`` entries (scalars if None),
    or None.
    """
    if bounds is None:
        return None
    shape = "None or a pair (low, high) of finite numbers with low < high"
    if columns is not None:
        shape += (
            f", each a scalar or one value for each of the {columns} columns: (lows, highs), "
            "not one pair per column"
        )
    if isinstance(bounds, Mapping) and columns is not None and name == "feature_bounds":
        bounds = _bounds_setting_by_name(name, bounds, columns, owner)
    problem = partial(parameter_error, name, owner, shape)
    pairs = isinstance(bounds, list) and any(isinstance(item, tuple) for item in bounds)
    if pairs and columns is not None:
        # With two columns it could be read either way.
        raise problem("a list of tuples", "Write ([0, 0], [1, 2]).")
    try:
        # Nothing that would be unpacked into its signs or its keys.
        refused = (str, bytes, Mapping, Set, np.ma.MaskedArray)
        if (
            isinstance(bounds, refused)
            or hasattr(bounds, "columns")
            or not isinstance(bounds, Iterable)
        ):
            raise TypeError(f"{type(bounds).__name__} is no pair")
        lows, highs = bounds
        low = np.asarray(lows)
        high = np.asarray(highs)
        for plain, bound in (
            (low, lows),
            (high, highs),
        ):  # numbers that are written as text are no numbers
            text = plain.dtype.kind == "O" and any(isinstance(item, str) for item in plain.flat)
            if text or plain.dtype.kind not in "biufO" or isinstance(bound, np.ma.MaskedArray):
                raise TypeError("not numbers")
        low = low.astype(np.float64)
        high = high.astype(np.float64)
        wrong = [bound.size for bound in (low, high) if bound.ndim and bound.shape != (columns,)]
        if not wrong:
            low, high = (
                np.broadcast_to(bound, () if columns is None else columns) for bound in (low, high)
            )
    except (TypeError, ValueError, OverflowError) as error:
        raise problem("another shape or type") from error
    if wrong:
        counts = f"{low.size} lows and {high.size} highs"
        if columns is None:
            raise problem(counts, "One pair serves all products and levels: give the widest range.")
        raise problem(
            f"{counts} for {columns} columns", "Indicators of categories are columns too."
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise problem("a value that is not finite")
    if not (low < high).all():
        raise problem("low >= high", "Swap them, or drop a column that is constant.")
    largest = max(float(np.abs(bound).max(initial=0)) for bound in (low, high))
    if largest > LARGEST_BOUND or not (high - low >= SMALLEST_WIDTH).all():
        got = f"a value beyond {LARGEST_BOUND:g} or a width below {SMALLEST_WIDTH:g}"
        raise problem(got, "Change the units.")
    return low, high


def _bounds_setting_by_name(
    name: str, bounds: Mapping[object, object], columns: int, owner: str
) -> tuple[list[object], list[object]]:
    problem = f"The '{name}' parameter of {owner} must be a dictionary of column: (low, high)"
    if not all(isinstance(key, str) for key in bounds):
        raise TypeError(f"{problem}, with names that are text.")
    if len(bounds) != columns:
        raise ValueError(
            f"{problem}, one entry for each of the {columns} columns. Got {len(bounds)} entries "
            "instead."
        )
    pairs = list(bounds.values())
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"{problem}. Got another shape or type instead.")
    return [cast(Sequence[object], pair)[0] for pair in pairs], [
        cast(Sequence[object], pair)[1] for pair in pairs
    ]


def check_smooth_setting(curves: object, columns: int, owner: str) -> list[list[float]]:
    """Return curves of neighbouring columns, each with the strength of its penalty, or raise."""
    problem = partial(
        parameter_error,
        "smooth",
        owner,
        "None or a list of (first column, number of columns, strength)",
    )
    if not isinstance(curves, (list, tuple)) or any(
        not isinstance(c, (list, tuple)) or len(c) != 3 for c in curves
    ):
        raise problem("another shape or type")
    found = []
    for first, number, strength in curves:
        start = check_count("smooth", owner, first, 0)
        size = check_count("smooth", owner, number, 3)
        if start + size > columns:
            raise problem(f"a curve beyond {columns} columns")
        allowed = "a finite number of at least 0"
        found.append([start, size, check_number("smooth", owner, strength, allowed, 0, math.inf)])
    return found


def noise_source_setting(model: Model, certificate: Certificate) -> NoiseSource:
    """Return the source of a fit's noise, or raise if its mechanism cannot be exact throughout."""
    noise = NoiseSource(model.random_state, model.sampler)
    if model.sampler == "exact" and certificate.sampler == FLOATING_POINT:
        allowed = (
            f"'auto' with mechanism={certificate.mechanism!r}, whose steps are drawn in "
            "floating point"
        )
        raise parameter_error(
            "sampler", type(model).__name__, allowed, "'exact'", "Use another mechanism."
        )
    return noise


Label = str | int | float | bool


def stated_target_bounds(model: object) -> tuple[float, float] | None:
    """Return the public bounds of a regression's target; None for any other model."""
    return getattr(model, "target_bounds", None)


def target_range_setting(model: object, name: str, owner: str) -> float:
    """Return the width of a model's target bounds, which stands in for a bound that was not
    given.
    """
    target = stated_target_bounds(model)
    if target is None:
        raise ValueError(
            f"The '{name}' parameter of {owner} must be given where the estimator has no "
            "'target_bounds': scores must be bounded by public facts."
        )
    return float(target[1]) - float(target[0])


def split_sizes_setting(n_samples: int, name: str, share: object, owner: str) -> tuple[int, int]:
    """Return the public numbers of training and held-out rows."""
    held = round(check_share(name, owner, share) * n_samples)
    if not 1 <= held < n_samples:
        raise ValueError(
            f"{owner} needs training and held-out rows. Give more rows or another '{name}'."
        )
    return n_samples - held, held


class Model(Protocol):
    """An estimator of this package, unfitted."""

    neighbors: str
    nominal_samples: int | None
    sampler: str
    invalid_rows: str
    random_state: int | None
    ledger: Ledger | None
    rows_per_person: int
    person_weight: str
    inference: bool  # whether a fit pays for confidence intervals
    get_params: Callable[..., dict[str, Any]]
    fit: Callable[..., Fitted]
    certify: Callable[..., Certificate]


class Fitted(Model, Protocol):
    """An estimator after its fit: attributes that end with ``_`` may be published."""

    certificate_: Certificate
    coef_: NDArray[np.float64]
    intercept_: float | NDArray[np.float64]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]  # of a fit on named columns
    released_: dict[str, Any]
    schema_: Schema  # of a model that reads tables as they come
    predict: Callable[[object], NDArray[Any]]
    score: Callable[[object, object], float]
    _summary_facts: Callable[[], list[tuple[str, str]]]  # of this estimator alone
    _ordered_classes: ClassVar[bool]  # whether labels keep the order of ``classes``
    takes_matrices: ClassVar[
        bool
    ]  # whether a record is a matrix: such models have no intercept and no columns
    _problem_name: Callable[[int], str]  # heading of one of several vectors of coefficients
    confidence_interval: Callable[[float], NDArray[np.float64]]  # of a fit with intervals
    _interval_note: Callable[[], str | None]  # what its intervals are about
    _coefficient_columns: Callable[[float], dict[str, list[Any]]]  # of a fit with intervals
    _public_facts: Callable[[Any, int], Any]  # the checked settings
    #: Settings as a certificate states them, and as the estimator has them.
    _stated: Callable[[Certificate, Any], dict[str, tuple[object, object]]]


class Classifier(Fitted, Protocol):
    """A model of labels, with probabilities where it has them."""

    classes: Sequence[Label] | None
    class_weight: Mapping[Label, float] | None
    classes_: NDArray[Any]
    decision_function: Callable[[object], NDArray[np.float64]]
    predict_proba: Callable[[object], NDArray[np.float64]]


def classifies(model: object) -> TypeGuard[Classifier]:
    """Return whether a model is one of labels."""
    return bool(is_classifier(model))


@runtime_checkable
class FittedIntervals(Protocol):
    """Prediction intervals around a fitted regression."""

    estimator_: Fitted
    predict_interval: Callable[[object], NDArray[np.float64]]


def fitted_names(model: object) -> NDArray[np.object_] | None:
    """Return the names of the columns that a model was fitted on; None where they had none."""
    return getattr(model, "feature_names_in_", None)
