"""What linear estimators share: bounded rows, one linear function per problem, user units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.engine import RowMap
from dpconvex.engine.dask.partitions import Clean, numbers_or_missing
from dpconvex.engine.rows import Rows
from dpconvex.estimators.base import CommonFacts, PrivateModel
from dpconvex.estimators.parameters import estimator
from dpconvex.inputs.people import Ballot, Records
from dpconvex.inputs.settings import ignores_invalid, least_rows, optional_positive, resolve_bounds
from dpconvex.inputs.tables import as_numbers, map_rows, read_features, read_training
from dpconvex.mechanisms.gradient import NoisyGradientDescent
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.objective import Objective
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.description import Facts, RecordLoss
from dpconvex.types import Array

_BLOCK = 4096  # rows whose predictions are added up at a time

AnyBounds = TypeVar("AnyBounds", bound=Bounds)


@dataclass(frozen=True)
class PublicFacts(CommonFacts):
    """The checked settings of a linear model for given public dimensions."""

    row_map: RowMap = field(kw_only=True)
    target_shift: float = 0.0
    target_scale: float = 1.0

    @property
    def max_norm(self) -> float:
        """Return the length of the longest row; shortened rows have none beyond the influence bound."""
        longest = self.row_map.max_norm
        return longest if math.isfinite(longest) else self.row_map.row_norm

    def bounds_of(self, kind: Callable[..., AnyBounds], loss: RecordLoss, neighbors: str, **own: object) -> AnyBounds:
        """Return the bounds, of this kind and with these facts of its own, of a model with this loss."""
        return kind(
            n_samples=self.n_samples,
            n_features=self.row_map.n_features,
            loss=loss,
            row_norm=self.row_map.row_norm,
            max_norm=self.max_norm,
            fit_intercept=self.row_map.fit_intercept,
            neighbors=neighbors,
            **self.records.facts(),
            **own,
        )

    def linear_bounds(self, loss: RecordLoss, alpha: float, neighbors: str) -> LinearBounds:
        """Return the bounds of a linear model with this loss and penalty."""
        own = {"alpha": alpha, "ignored_rows": self.ignored_rows}
        return self.bounds_of(LinearBounds, loss, neighbors, **own)


@estimator
class PrivateLinearModel(PrivateModel):
    """Shared behaviour of linear models; subclasses say which loss and which defaults (``_plan``)."""

    _: KW_ONLY
    feature_bounds: tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]] | None = None
    row_norm: float | None = None
    fit_intercept: bool = True
    rows_per_person: int = 1
    person_weight: str = "equal"

    coef_: NDArray[np.float64] = field(init=False)
    intercept_: float | Array = field(init=False)

    def _public_facts(self, records: Records, n_features: int) -> PublicFacts:
        """Check the settings that every linear model has; raises before data are read or budget is spent."""
        owner = type(self).__name__
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(
                f"The 'fit_intercept' parameter of {owner} must be True or False. Got {self.fit_intercept!r} instead."
            )
        common = self._common_facts(records, n_features)
        features = resolve_bounds("feature_bounds", self.feature_bounds, int(n_features), owner)
        row_norm = optional_positive("row_norm", self.row_norm, owner)
        target = resolve_bounds("target_bounds", getattr(self, "target_bounds", None), None, owner)
        low, high = (-1.0, 1.0) if target is None else (float(target[0]), float(target[1]))
        parameters: Facts = {
            "feature_bounds": None if features is None else [_compact(side) for side in features],
            **common.parameters,
        }
        if hasattr(self, "target_bounds"):
            parameters["target_bounds"] = None if target is None else [low, high]
        return PublicFacts(
            common.guarantee,
            common.n_samples,
            parameters,
            common.ignored_rows,
            records=records,
            row_map=RowMap.from_bounds(int(n_features), features, row_norm, fit_intercept=bool(self.fit_intercept)),
            target_shift=(low + high) / 2,
            target_scale=2 / (high - low),
        )

    def certify(
        self, n_samples: int, n_features: int, *, groups: bool = False, sample_weight: bool = False
    ) -> Certificate:
        """Return the certificate of a fit, before any data.

        Parameters
        ----------
        n_samples : int
            Number of rows, or of people with ``groups=True``; ignored in favour of ``nominal_samples`` under
            add-or-remove-one.
        n_features : int
            Number of columns.
        groups, sample_weight : bool, default=False
            Whether the fit will be given identifiers of people, and weights.

        Returns
        -------
        Certificate
            Equal to ``certificate_`` after a fit on data of this shape.
        """
        records = Records.of(self, n_samples, groups, sample_weight)
        return self._plan(records, n_features).certificate

    def fit(self, X: object, y: object, sample_weight: object = None, groups: object = None) -> Self:
        """Fit privately.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
            Rows; clipped to ``feature_bounds`` and bounded in influence. A Dask array or dataframe is read
            partition by partition and need not fit into memory.
        y : array of shape (n_samples,)
            Targets; a Dask array or series with the partitions of X if X is one.
        sample_weight : array of shape (n_samples,), optional
            Between 0 and 1: what each record counts for. A weight is part of its record, as private as the rest of it.
        groups : array of shape (n_samples,), optional
            Identifiers of people, numbers or text. What is promised is then promised to a person with all its rows,
            whose weight ``person_weight`` says. Nothing of them is kept; their number is public under replace-one.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, groups)

    def _objectives(self, X: object, targets: Sequence[object], plan: Plan, ballot: Ballot) -> Sequence[Objective]:
        rows = self._mapped(X, targets, plan, ballot)
        return [self._objective(each, plan.certificate) for each in rows]

    def _mapped(self, X: object, targets: Sequence[object], plan: Plan, ballot: Ballot) -> list[Rows]:
        """Return the mapped rows with each of the targets."""
        owner, bounds = type(self).__name__, plan.certificate.bounds
        votes = ballot.votes(bounds, self._class_votes(targets))
        return [map_rows(X, target, plan, owner, votes) for target in targets]

    def _class_votes(self, targets: Sequence[object]) -> Array | None:
        """Return what each row counts for by its class; None where all classes count alike."""
        return None

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        """Return the function of theta whose minimiser is released privately."""
        bounds = certificate.bounds
        return EmpiricalObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        clean = Clean(numbers_or_missing) if ignores_invalid(self) else None
        X, y = read_training(self, X, y, clean, least_rows(self.neighbors), y_numeric=True)
        return X, [as_numbers(y)], X.shape

    def _store(self, coefficients: list[Array], plan: Plan) -> None:
        ((self.coef_, self.intercept_),) = self._in_user_units(coefficients, plan)

    @staticmethod
    def _in_user_units(coefficients: list[Array], plan: Plan) -> list[tuple[NDArray[np.float64], float]]:
        assert plan.row_map is not None
        shift, scale = plan.target_shift, plan.target_scale
        return [plan.row_map.to_user_units(theta, shift, scale) for theta in coefficients]

    def _linear(self, X: object) -> NDArray[np.float64]:
        """Return ``X @ coef_ + intercept_``, within the largest numbers of float64."""
        check_is_fitted(self)
        return finite_predictions(read_features(self, X), self.coef_.T, self.intercept_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@estimator
class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):
    """What regressions share: a target with a public range, predictions in its units."""

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None

    def predict(self, X: object) -> NDArray[np.float64]:
        """Return predictions, in the target's units.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
            Rows; used as they are, without clipping.

        Returns
        -------
        array of shape (n_samples,)
        """
        return self._linear(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def finite_predictions(X: np.ndarray, coef: Array, intercept: float | Array = 0.0) -> NDArray[np.float64]:
    """Return ``X @ coef + intercept``; products that overflow are computed in other units, and what is too large cut.

    Infinities of both signs would otherwise meet in one sum, and be no number.
    """
    with np.errstate(all="ignore"):
        found = np.asarray(_in_order(X, coef) + intercept, dtype=np.float64)
        if not np.isfinite(found).all():
            unit = 2.0**-600
            scaled = _in_order(X.astype(np.float64) * unit, coef * unit) + intercept * unit**2
            found = np.where(np.isfinite(found), found, scaled / unit / unit)
    largest = np.finfo(np.float64).max
    return np.clip(found, -largest, largest)


def _in_order(X: np.ndarray, coef: Array) -> Array:
    """Return ``X @ coef``, each row by itself: BLAS rounds a row differently when there is one more or less.

    A score under add-or-remove-one compares predictions with targets, and one row more must move no other.
    """
    if X.ndim != 2 or not isinstance(X, np.ndarray):
        return np.asarray(X @ coef)
    found = np.zeros((X.shape[0], *coef.shape[1:]))
    for start in range(0, len(X), _BLOCK):
        columns = np.ascontiguousarray(X[start : start + _BLOCK].T, dtype=np.float64)
        total = found[start : start + _BLOCK]
        for column, weight in zip(columns, coef, strict=True):
            total += column * weight if total.ndim == 1 else column[:, None] * weight
    return found


def row_map_for(mechanism: Mechanism, row_map: RowMap) -> RowMap:
    """Return how a mechanism bounds rows: descents weight them, also where there are no feature bounds."""
    return mechanism.mapped(row_map) if isinstance(mechanism, NoisyGradientDescent) else row_map


def kept_share_facts(released: Facts) -> list[tuple[str, str]]:
    """Return what a summary says where a fit stayed near a private constant."""
    share = released.get("kept_share")
    if share is None or share > 0.9:
        return []
    return [("columns", f"coefficients are shrunk to {share:.0%}: the rest could be noise")]


def _compact(bound: Array) -> object:
    """Return one number where all columns share it."""
    values = bound.tolist()
    return values[0] if len(set(values)) == 1 else values
