"""What all linear estimators share: public plan, certificate, ledger, private release, user units."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.engine import RowMap
from dpconvex.engine.partitions import Clean, numbers_or_missing
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy.bounds import LinearBounds
from dpconvex.privacy.certificate import Certificate
from dpconvex.privacy.guarantees import Guarantee

from .cost_warning import warn_of_cost
from .settings import (
    INVALID_ROWS,
    ignores_invalid,
    least_rows,
    noise_source,
    optional_positive,
    resolve_bounds,
    resolve_guarantee,
    resolve_samples,
)
from .summary import Summary, summary_text
from .tables import as_numbers, map_rows, read_features, read_training


@dataclass(frozen=True)
class Plan:
    """Everything a fit will do, decided from public facts before data are read.

    Attributes
    ----------
    mechanism : Mechanism
        Runs the fit.
    certificate : Certificate
        What it guarantees.
    row_map : RowMap
        How a raw row becomes a bounded one.
    target_shift, target_scale : float
        Targets are mapped to ``(y - shift) * scale``.
    """

    mechanism: Mechanism
    certificate: Certificate
    row_map: RowMap
    target_shift: float
    target_scale: float


@dataclass(frozen=True)
class PublicFacts:
    """The checked settings of an estimator for given public dimensions."""

    guarantee: Guarantee
    n_samples: int
    row_map: RowMap
    max_norm: float
    target_shift: float
    target_scale: float
    parameters: dict[str, Any]
    void_rows: bool = False

    def linear_bounds(self, loss: Any, alpha: float, neighbors: str) -> LinearBounds:
        """Return the bounds of a linear model with this loss and penalty."""
        return LinearBounds(
            n_samples=self.n_samples,
            n_features=self.row_map.n_features,
            loss=loss,
            row_norm=self.row_map.row_norm,
            max_norm=self.max_norm,
            fit_intercept=self.row_map.fit_intercept,
            alpha=alpha,
            neighbors=neighbors,
            void_rows=self.void_rows,
        )


class PrivateLinearModel(BaseEstimator):
    """Shared behaviour of the estimators; subclasses say which loss and which defaults (``_plan``)."""

    coef_: NDArray[np.float64]
    intercept_: Any

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> dict[str, tuple[Any, Any]]:
        """Return, by name, what a certificate says of this estimator's own settings and what it should say."""
        return {}

    def _public_facts(self, n_samples: int, n_features: int) -> PublicFacts:
        """Check the settings that every estimator has; raises before data are read or budget is spent."""
        owner = type(self).__name__
        for name, value in (("n_samples", n_samples), ("n_features", n_features)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(
                    f"The '{name}' parameter of {owner}.certify must be a positive integer. Got {value!r} instead."
                )
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(
                f"The 'fit_intercept' parameter of {owner} must be True or False. Got {self.fit_intercept!r} instead."
            )
        if self.ledger is not None and not hasattr(self.ledger, "charge"):
            raise TypeError(
                f"The 'ledger' parameter of {owner} must be None or a Ledger. "
                f"Got {type(self.ledger).__name__} instead. Open one with "
                "dpconvex.privacy.Ledger(path, epsilon=..., delta=...)."
            )
        ignored = ignores_invalid(self)
        guarantee = resolve_guarantee(self.epsilon, self.delta, self.mu, owner)
        public_samples = resolve_samples(self.neighbors, self.nominal_samples, n_samples, owner)
        features = resolve_bounds("feature_bounds", self.feature_bounds, int(n_features), owner)
        row_norm = optional_positive("row_norm", self.row_norm, owner)
        row_map = RowMap.from_bounds(
            int(n_features), features, row_norm, fit_intercept=bool(self.fit_intercept)
        )
        target = resolve_bounds("target_bounds", getattr(self, "target_bounds", None), None, owner)
        low, high = (-1.0, 1.0) if target is None else (float(target[0]), float(target[1]))
        parameters: dict[str, Any] = {
            "feature_bounds": None if features is None else [bound.tolist() for bound in features],
            "coef_bound": optional_positive("coef_bound", self.coef_bound, owner),
            "invalid_rows": INVALID_ROWS["ignore" if ignored else "error"],
        }
        if hasattr(self, "target_bounds"):
            parameters["target_bounds"] = None if target is None else [low, high]
        if parameters["feature_bounds"] is not None:
            parameters["feature_bounds"] = [
                _compact(bound) for bound in parameters["feature_bounds"]
            ]
        return PublicFacts(
            guarantee=guarantee,
            n_samples=public_samples,
            row_map=row_map,
            # Shortened rows have no length beyond the influence bound.
            max_norm=row_map.max_norm if math.isfinite(row_map.max_norm) else row_map.row_norm,
            target_shift=(low + high) / 2,
            target_scale=2 / (high - low),
            parameters=parameters,
            void_rows=ignored,
        )

    def _plan(self, n_samples: int, n_features: int) -> Plan:
        """Decide everything from public facts."""
        raise AttributeError(f"{type(self).__name__} does not say how to plan a fit.")

    def certify(self, n_samples: int, n_features: int) -> Certificate:
        """Return the certificate of a fit, before any data.

        Parameters
        ----------
        n_samples : int
            Number of rows; ignored in favour of ``nominal_samples`` under add-or-remove-one.
        n_features : int
            Number of columns.

        Returns
        -------
        Certificate
            Equal to ``certificate_`` after a fit on data of this shape.
        """
        return self._plan(n_samples, n_features).certificate

    def fit(self, X: Any, y: Any) -> Any:
        """Fit privately.

        Parameters
        ----------
        X : array or dataframe of shape (n_samples, n_features)
            Rows; clipped to ``feature_bounds`` and bounded in influence. A Dask array or dataframe is read
            partition by partition and need not fit into memory.
        y : array of shape (n_samples,)
            Targets; a Dask array or series with the partitions of X if X is one.

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            self._release(X, y)
        return self

    def _release(self, X: Any, y: Any) -> None:
        """Read, plan, charge, release and store: nothing is charged before all checks of the input."""
        with unwarned() if ignores_invalid(self) else nullcontext():
            X, targets = self._read(X, y)
        plan = self._plan(max(1, X.shape[0]), X.shape[1])  # the number counts where it is public
        certificate = plan.certificate
        with unwarned():
            objectives = [
                self._objective(map_rows(X, target, plan, type(self).__name__), certificate)
                for target in targets
            ]
        noise = noise_source(self, certificate)
        if self.verbose:
            print(f"{type(self).__name__}: {certificate.mechanism}, {certificate.guarantee!r}")
        if self.ledger is not None:
            # Durable before noise is drawn: a crash from here on costs budget, never privacy.
            self.ledger.charge(
                certificate.guarantee,
                mu=certificate.gaussian_mu(),
                mechanism=certificate.mechanism,
                description=f"{type(self).__name__}.fit",
                neighbors=certificate.neighbors,
            )
        warn_of_cost(certificate)
        released: list[dict[str, Any]] = [{} for _ in targets]
        del targets  # the rows have their own, mapped
        coefficients = []
        for objective, record in zip(objectives, released, strict=True):
            with unwarned():
                theta = plan.mechanism.release(objective, certificate, noise, record)
            bound = certificate.parameters["coef_bound"]
            if bound is not None:  # a projection of what was released: no privacy cost
                theta = theta * min(1.0, bound / max(float(np.linalg.norm(theta)), 1e-300))
            coefficients.append(
                plan.row_map.to_user_units(theta, plan.target_shift, plan.target_scale)
            )
        self._store(coefficients)
        self.certificate_ = certificate
        self.released_ = released[0] if len(released) == 1 else {"problems": released}

    def _objective(self, rows: Any, certificate: Certificate) -> Any:
        """Return the function of theta whose minimiser is released privately."""
        bounds = certificate.bounds
        return EmpiricalObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)

    def _read(self, X: Any, y: Any) -> tuple[NDArray[Any], list[NDArray[np.float64]]]:
        """Return checked rows and the target of each problem to solve; a regression has one."""
        clean = Clean(numbers_or_missing) if ignores_invalid(self) else None
        X, y = read_training(self, X, y, clean, least_rows(self.neighbors), y_numeric=True)
        return X, [as_numbers(y)]

    def _store(self, coefficients: list[tuple[NDArray[np.float64], float]]) -> None:
        """Keep the released coefficients of each problem."""
        ((self.coef_, self.intercept_),) = coefficients

    def _linear(self, X: Any) -> NDArray[np.float64]:
        """Return ``X @ coef_ + intercept_``, within the largest numbers of float64."""
        check_is_fitted(self)
        return finite_predictions(read_features(self, X), self.coef_.T, self.intercept_)

    def summary(self) -> Summary:
        """Return a table for people: what was fitted, what it guarantees, what came out."""
        check_is_fitted(self)
        return Summary(summary_text(self))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.sparse = False
        return tags


@contextmanager
def unwarned() -> Iterator[None]:
    """Say nothing about numbers: whether one overflows, vanishes or is odd depends on the data."""
    # In the threads of a pool numpy's own setting does not hold, but filters of warnings do.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def unchanged_on_failure(model: Any) -> Iterator[None]:
    """Give a model back its attributes if a fit fails: one that was fitted before stays the model it was."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def finite_predictions(X: Any, coef: Any, intercept: Any = 0.0) -> NDArray[np.float64]:
    """Return ``X @ coef + intercept``; products that overflow are computed in other units, and what is too large cut.

    Infinities of both signs would otherwise meet in one sum, and be no number.
    """
    with np.errstate(all="ignore"):
        found = np.asarray(X @ coef + intercept, dtype=np.float64)
        if not np.isfinite(found).all():
            unit = 2.0**-600
            scaled = (np.asarray(X, dtype=np.float64) * unit) @ (coef * unit) + intercept * unit**2
            found = np.where(np.isfinite(found), found, scaled / unit / unit)
    largest = np.finfo(np.float64).max
    return np.clip(found, -largest, largest)


def rows_for(mechanism: Mechanism, row_map: RowMap) -> RowMap:
    """Return how a mechanism bounds rows: descents weight them, also where there are no feature bounds."""
    return row_map.weighted() if mechanism.name == "gradient" else row_map


def kept_facts(released: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a summary says where a fit stayed near a private constant."""
    share = released.get("kept_share")
    if share is None or share > 0.9:
        return []
    return [("columns", f"{share:.0%} of what was found is kept, the rest could be noise")]


def _compact(bound: list[float]) -> Any:
    """Return one number where all columns share it."""
    return bound[0] if len(set(bound)) == 1 else bound
