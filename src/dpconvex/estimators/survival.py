"""Survival in periods: discrete-time proportional hazards with right censoring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import parameter_error
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.person_identifiers import exact_identifiers
from dpconvex.engine.dask.partitions import (
    CELLWISE,
    PartitionTargets,
    partition_number,
    partition_numbers,
)
from dpconvex.estimators.linear import PrivateLinearModel, linear_shrinkage_facts
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import StatedSettings
from dpconvex.inputs.containers import (
    is_plain_container,
    read_array,
    read_records,
    read_target_numbers,
    record_cells,
    without_mask,
)
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.settings import invalid_rows_setting, least_rows
from dpconvex.inputs.training_data import read_training, shape_of_data
from dpconvex.losses import DiscreteHazard
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.types import Array

_MOST_PERIODS = 200
_OBJECT_TYPES = ("object", "Object")  # of columns of numpy and pandas, and of polars
_MOST_WEIGHT = 16.0  # of a record that was watched for long, where few are
_PAIR_BLOCK = 1024  # records that are compared with all others at a time


@dataclass(frozen=True)
class HazardOutcomes:
    """Outcomes of :class:`~dpconvex.losses.DiscreteHazard` from signed times: below 0 are those
    of censored records.
    """

    horizons: tuple[float, ...]

    def __call__(self, y: np.ndarray) -> Array:
        """Return the outcome of every record; NaN, the mark of an invalid one, stays NaN."""
        times = np.abs(y)
        censored = np.signbit(y)
        # Whoever is censored at the end of a period has survived it.
        survived = np.searchsorted(self.horizons, times, side="right")
        period = np.searchsorted(self.horizons, times, side="left")
        seen = ~censored & (period < len(self.horizons))
        return np.where(np.isnan(times), np.nan, np.where(seen, 2.0 * period + 1, 2.0 * survived))


def signed_times(y: Any, owner: str, loose: bool = False) -> Any:
    """Return survival times as one column, negated where no event was seen; each from its own
    record. Arrays of text are read cell by cell with ``loose``, and refused otherwise.
    """
    if is_plain_container(y):
        return _signed_records(read_records("y", y, owner))
    if not hasattr(y, "dtype") and not hasattr(y, "columns") and hasattr(y, "__array__"):
        y = read_array("y", y, owner)
    dtype = getattr(y, "dtype", None)
    names = getattr(dtype, "names", None)
    if names is not None and len(names) == 2:  # a structured array: of booleans is the event
        if hasattr(y, "dask"):
            return y.map_blocks(signed_times, owner, loose, meta=np.empty(0))
        first = y.dtype[0].kind == "b"
        time = y[names[1 if first else 0]]
        event = y[names[0 if first else 1]]
    else:
        shape = shape_of_data(y) or ()
        if len(shape) == 1 and str(dtype) in _OBJECT_TYPES and not hasattr(y, "dask"):
            return _signed_records(exact_identifiers(y))
        if len(shape) != 2 or shape[1] == 1:
            return y
        if shape[1] != 2:
            raise ValueError(
                f"The y given to {owner} must have two columns, time and event, or be one of "
                f"signed times. Got {shape[1]} columns instead."
            )
        if hasattr(y, "dask"):
            if hasattr(y, "columns"):  # a dataframe of partitions
                return y.map_partitions(_signed_partition, owner, loose, meta=("time", np.float64))
            whole = y.rechunk({1: 2})
            return whole.map_blocks(signed_times, owner, loose, drop_axis=1, meta=np.empty(0))
        table = y if isinstance(y, np.ndarray) else np.asarray(y)
        time = table[:, 0]
        event = table[:, 1]
    if not {time.dtype.kind, event.dtype.kind} <= set("biufO" + (CELLWISE if loose else "")):
        raise ValueError(f"The y given to {owner} must be numbers. Got text or dates instead.")
    time, event = (
        partition_numbers(without_mask(each) if isinstance(each, np.ma.MaskedArray) else each)
        for each in (time, event)
    )  # of floats: a 0 of whole numbers has no sign
    size = np.abs(time)
    return np.where(event > 0, size, np.where(event <= 0, -size, np.nan))


def _signed_partition(part: Any, owner: str, loose: bool) -> Any:
    """Return the signed survival times of a partition of a dataframe: whatever a record holds,
    no other one fails.
    """
    import pandas as pd

    return pd.Series(signed_times(part, owner, loose), index=part.index, name="time")


def _signed_records(records: Iterable[Any]) -> Array:
    """Return the signed survival times of records, each read by itself."""
    return np.array([_signed_time(record) for record in records], dtype=np.float64)


def _signed_time(record: Any) -> float:
    """Return the signed survival time of one record: a pair, or a number; NaN of anything else."""
    numbers = [partition_number(cell) for cell in record_cells(record, 2)]
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) != 2 or math.isnan(numbers[1]):
        return math.nan
    time, event = numbers
    return math.copysign(time, 1.0 if event > 0 else -1.0)


@with_parameters
class DPDiscreteHazard(PrivateLinearModel):
    r"""Discrete-time proportional hazards under differential privacy.

    The hazard of period j, the probability of an event in it for whoever is at risk, is
    ``sigma(a_j + x . coef)``: every period has its baseline, and columns shift all log odds alike.
    Estimates the minimiser of the mean over records of the sum of
    ``log(1 + exp(z_j)) - 1[event in j] z_j`` over the periods j that a record is at risk in. A
    record is clipped as a whole, however many periods it has.

    Parameters
    ----------
    horizons : sequence of float
        Public ends of the periods, above 0 and increasing: the first period ends at
        ``horizons[0]``. Times beyond the last one count as survival of all periods.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Log odds ratios of the hazard in the user's units.
    intercept_ : float
        Log odds of the first period's hazard where all columns are 0.
    released_ : dict
        ``baseline`` has these log odds of every period; ``outcome_shares`` the released shares of
        records by period, those censored and those with an event in turn.

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column
    names, all parameters. Everything that ends with an underscore is covered by the guarantee. A
    record is one row with its time, never a row for each period: equal votes of a person's periods
    would give each survivor's period less weight than a failure's, so that a hazard of 0.2 would
    become 0.49 in the first period. ``groups`` are therefore refused but with
    ``person_weight="rows"``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPDiscreteHazard
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> time = rng.exponential(10 * np.exp(-X @ [1.0, -0.5]))
    >>> end = rng.uniform(0, 20, 20_000)
    >>> y = np.column_stack([np.minimum(time, end), time <= end])
    >>> model = DPDiscreteHazard(
    ...     [2, 4, 6, 8, 10], epsilon=1.0, feature_bounds=(-1, 1), random_state=0
    ... ).fit(X, y)
    >>> bool(np.allclose(model.coef_, [1.1, -0.6], atol=0.2))
    True
    >>> model.predict_survival(X[:3]).shape
    (3, 5)
    """

    horizons: Sequence[float] = (1.0,)
    _: KW_ONLY

    def _public_horizons(self) -> tuple[float, ...]:
        owner = type(self).__name__
        allowed = "finite numbers above 0 that increase, at most 200"
        try:
            ends = tuple(
                float(end)
                for end in cast(Sequence[float], np.ravel(np.asarray(self.horizons, np.float64)))
            )
        except (TypeError, ValueError):
            ends = ()
        increasing = all(low < high for low, high in zip((0.0, *ends), ends, strict=False))
        if not 1 <= len(ends) <= _MOST_PERIODS or not increasing or not math.isfinite(ends[-1]):
            raise parameter_error("horizons", owner, allowed, f"{len(ends)} others")
        return ends

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        ends = self._public_horizons()
        return {
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (certificate.bounds.loss, DiscreteHazard(len(ends))),
            "horizons": (certificate.parameters.get("horizons"), list(ends)),
        }

    def _plan(self, privacy_unit: PersonUnit, n_features: int) -> FitDecision:
        owner = type(self).__name__
        ends = self._public_horizons()
        if privacy_unit.people:
            allowed = "'rows' with groups: rows that share a vote would weigh survivors down"
            remedy = (
                "Give one record per person without groups, or rows_per_person and "
                "person_weight='rows'."
            )
            raise parameter_error("person_weight", owner, allowed, "'equal'", remedy)
        loss = DiscreteHazard(len(ends))
        stated = {"horizons": list(ends)}
        return self._common_descent_plan(privacy_unit, n_features, loss, "periods", stated)

    def fit(
        self, X: object, y: object, sample_weight: object = None, groups: object = None
    ) -> Self:
        """Fit the survival model privately.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
            Rows, clipped to ``feature_bounds``; Dask collections too.
        y : array of shape (n_samples, 2) or (n_samples,)
            Time and whether the event was seen then (1) or the record was censored (0); a
            structured array with a field of booleans for the event; or one column of signed times,
            below 0 where a record was censored.
        sample_weight, groups : array of shape (n_samples,), optional
            As for other linear models; groups need ``person_weight="rows"``.
        """
        return self._fit(X, y, sample_weight, groups)

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        y = signed_times(y, type(self).__name__, loose=invalid_rows_setting(self))
        clean = PartitionTargets(read_target_numbers) if invalid_rows_setting(self) else None
        X, y = read_training(self, X, y, clean, least_rows(self.neighbors), y_numeric=True)
        outcomes = HazardOutcomes(self._public_horizons())
        return X, [outcomes(y) if isinstance(y, np.ndarray) else outcomes], X.shape

    def _store(self, coefficients: list[Array], plan: FitDecision) -> None:
        coef, baseline = self._in_user_units(list(coefficients[0]), plan)
        self.coef_ = coef[0]
        self.intercept_ = float(baseline[0])
        self.released_["baseline"] = baseline

    def predict(self, X: object) -> NDArray[np.float64]:
        """Return ``X @ coef_``, the log odds ratio of the hazard: the larger, the sooner events
        are expected.
        """
        return np.asarray(self._linear(X) - self.intercept_)

    def predict_survival(self, X: object) -> NDArray[np.float64]:
        """Return the probability to survive each period and all before it, of shape (n_samples,
        periods).
        """
        check_is_fitted(self)
        hazards = expit(self.predict(X)[:, None] + np.asarray(self.released_["baseline"]))
        return np.asarray(np.cumprod(1 - hazards, axis=1))

    def _censoring_weights(self) -> Array:
        """Return one over the probability of being watched until each period begins, by released
        shares; at most 16.
        """
        shares = np.asarray(self.released_["outcome_shares"])
        return np.minimum(
            1 / np.cumprod(1 - (shares / np.cumsum(shares[::-1])[::-1])[:-1:2]), _MOST_WEIGHT
        )

    def predict_median(self, X: object) -> NDArray[np.float64]:
        """Return the end of the first period that at most half survive; infinite where more
        survive all of them.
        """
        below = self.predict_survival(X) <= 0.5
        ends = np.append(self._public_horizons(), np.inf)
        return np.asarray(ends[np.where(below.any(axis=1), below.argmax(axis=1), below.shape[1])])

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """Return the concordance index of the risk with given times, without noise: of public or
        other data.

        The share of comparable pairs in which the record with the earlier event has the larger
        risk; ties count half.
        """
        times = np.asarray(signed_times(y, type(self).__name__), dtype=np.float64).ravel()
        return concordance_index(times, self.predict(X))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _summary_facts(self) -> list[tuple[str, str]]:
        baseline = expit(np.asarray(self.released_["baseline"]))
        periods = (
            f"{len(baseline)}, hazards {baseline.min():.3g} to {baseline.max():.3g} where "
            "columns are 0"
        )
        return [("periods", periods), *linear_shrinkage_facts(self.released_)]


def concordance_index(signed: Array, risk: Array) -> float:
    """Return Harrell's concordance of risks with signed survival times, below 0 if censored; 1/2
    without pairs.
    """
    times = np.abs(signed)
    events = ~np.signbit(signed)
    agree = pairs = 0.0
    for start in range(0, times.size, _PAIR_BLOCK):
        some = slice(start, start + _PAIR_BLOCK)
        comparable = (
            (times > times[some, None]) | ((times == times[some, None]) & ~events)
        ) & events[some, None]
        ahead = (risk[some, None] > risk) + 0.5 * (risk[some, None] == risk)
        agree = agree + float((ahead * comparable).sum())
        pairs = pairs + float(comparable.sum())
    return agree / pairs if pairs else 0.5
