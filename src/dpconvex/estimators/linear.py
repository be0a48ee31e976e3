"""Linear models: bounded rows, coefficients in the user's units, confidence intervals, and least
squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import check_share, parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import GaussianDP, PureDP
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import Rows, target_map
from dpconvex.engine import RowMap
from dpconvex.engine.dask.partitions import PartitionTargets
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import PrivateModel, StatedSettings
from dpconvex.fit import constants
from dpconvex.fit.fit_plan import fit_kind_of_loss
from dpconvex.inputs import settings as setting_checks
from dpconvex.inputs.containers import read_target_numbers
from dpconvex.inputs.people_and_weights import PersonUnit, round_row_weights
from dpconvex.inputs.records import check_table_setting
from dpconvex.inputs.settings import (
    Fitted,
    check_optional_positive,
    least_rows,
    resolve_bounds_setting,
)
from dpconvex.inputs.training_data import map_training_rows, read_features, read_training
from dpconvex.losses import Huber, Logistic, Pinball, SeveralMarginLoss, Squared, Tweedie
from dpconvex.mechanisms.mechanism import certified_kind, resolve_mechanism
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.objective import Objective
from dpconvex.planning.mechanism_choice import (
    check_intervals_are_offered,
    decide_fit,
    is_auto,
)
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_BLOCK = 4096  # rows whose predictions are added up at a time


@with_parameters
class PrivateLinearModel(PrivateModel):
    """Base of linear models; subclasses choose the loss and the mechanism (``_plan``).

    Parameters
    ----------
    feature_bounds : pair (low, high) or dict of str to (low, high), optional
        Public bounds of the columns, scalars or one value per column; values beyond are clipped. A
        dictionary names all columns of a dataframe, which may have them in any order. Columns whose
        bounds contain 0 are divided by ``max(|low|, |high|)``, others are centred to [-1, 1]; with
        ``fit_intercept=False`` all are divided. Without bounds the mechanism ``"gradient"`` finds
        the columns' sizes privately, and others take them to hold numbers from about -1 to 1.
    row_norm : float, optional
        Length of a mapped row beyond which its weight is ``row_norm / length``;
        ``sqrt(n_features)`` by default, 1 without feature bounds. It has no effect on the default
        fit: 'gradient' bounds rows by released quantiles of their lengths, and only where
        ``feature_bounds`` are missing clips columns at ``2^40 row_norm``.
    fit_intercept : bool, default=True
        Whether to fit a (penalised) intercept. Without one the linear predictor is 0 where all
        columns are 0, in the user's units: ``intercept_`` is 0.
    rows_per_person : int, default=1
        A public promise that nobody has more rows: what is guaranteed is guaranteed to a person
        with all of them. With ``groups`` and ``person_weight="rows"`` the number of rows of a
        person that are used, at most.
    person_weight : {"equal", "rows"}
        Weight of people whose rows share an identifier in ``groups``: "equal" gives every person a
        weight of 1, shared by all rows; "rows" gives a weight of 1 to each of at most
        ``rows_per_person`` rows.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Coefficients in the user's units. Several levels or products, and classifiers, have a row
        for each problem.
    intercept_ : float or array
        Intercepts in the user's units, one for each row of ``coef_``.
    """

    _: KW_ONLY
    feature_bounds: tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]] | None = None
    row_norm: float | None = None
    fit_intercept: bool = True
    rows_per_person: int = 1
    person_weight: str = "equal"

    coef_: NDArray[np.float64] = field(init=False)
    intercept_: float | Array = field(init=False)

    def _public_facts(self, privacy_unit: PersonUnit, n_features: int) -> FitRequest:
        owner = type(self).__name__
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise parameter_error(
                "fit_intercept", owner, "True or False", repr(self.fit_intercept), kind=TypeError
            )
        if isinstance(self.feature_bounds, Mapping):  # only columns of tables have names
            privacy_unit = replace(privacy_unit, of_table=True)
        facts = super()._public_facts(privacy_unit, n_features)
        features = resolve_bounds_setting(
            "feature_bounds", self.feature_bounds, int(n_features), owner
        )
        row_norm = check_optional_positive("row_norm", self.row_norm, owner)
        parameters = facts.parameters
        stated = None
        if hasattr(self, "target_bounds"):  # a regression
            target = resolve_bounds_setting("target_bounds", self.target_bounds, None, owner)
            range_ = None if target is None else [float(target[0]), float(target[1])]
            parameters = {**parameters, "target_bounds": range_}
        if features is not None:  # one number where all columns share it
            sides = features[0].tolist(), features[1].tolist()
            stated = [side[0] if len(set(side)) == 1 else side for side in sides]
        if self._goes_through_origin:
            parameters = {**parameters, "through_origin": True}
        facts = replace(facts, parameters={"feature_bounds": stated, **parameters})
        through_origin = self._goes_through_origin
        return self._mapped_facts(facts, int(n_features), row_norm, through_origin)

    @property
    def _goes_through_origin(self) -> bool:
        """Whether the linear predictor is 0 where all columns are 0, in the user's units."""
        return not self.fit_intercept

    def _mapped_facts(
        self,
        facts: FitRequest,
        n_features: int,
        row_norm: float | None,
        through_origin: bool,
    ) -> FitRequest:
        """Return linear facts with the public maps of rows and targets."""
        bounds = facts.parameters["feature_bounds"]
        shift, scale = target_map(facts.parameters.get("target_bounds"), through_origin)
        return replace(
            facts,
            row_map=RowMap.from_bounds(
                n_features, bounds, row_norm, bool(self.fit_intercept), through_origin
            ),
            target_shift=shift,
            target_scale=scale,
        )

    def _common_descent_plan(
        self,
        privacy_unit: PersonUnit,
        n_features: int,
        loss: SeveralMarginLoss,
        margins: str,
        parameters: Facts,
    ) -> FitDecision:
        """Decide a fit of several margins that share coefficients."""
        owner = type(self).__name__
        mechanism: object = self.mechanism
        carried = is_auto(mechanism) or (
            resolve_mechanism(mechanism, owner).carries.several_margins
        )
        without = isinstance(self.fit_intercept, (bool, np.bool_)) and not self.fit_intercept
        if not carried or without:
            raise ValueError(
                f"{owner} needs mechanism 'auto' or 'gradient' and fit_intercept=True: {margins} "
                "share coefficients, which no other proof here covers. Leave both out."
            )
        request = self._public_facts(privacy_unit, n_features)
        request = replace(
            request,
            task="shared coefficients",
            bounds=request.linear_bounds(loss),
            alpha=check_optional_positive("alpha", self.alpha, owner),
            last_parameters=parameters,
        )
        return decide_fit(mechanism, request)

    def certify(
        self,
        n_samples: int,
        n_features: int,
        *,
        groups: bool = False,
        sample_weight: bool = False,
        table: bool = False,
    ) -> Certificate:
        """Return the certificate of a linear fit, before any data: equal to ``certificate_`` after
        a fit of this shape.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the data, with people for rows with ``groups=True``, and ``nominal_samples``
            for the number of rows under add-or-remove-one.
        groups, sample_weight : bool, default=False
            Whether the fit will be given identifiers of people, and weights.
        table : bool, default=False
            Whether the fit will be given a dataframe, a column of one or a file, rather than arrays
            alone: types of columns are then assumed public.
        """
        of_table = check_table_setting(table, f"{type(self).__name__}.certify")
        unit = PersonUnit.of(self, n_samples, groups, sample_weight, of_table)
        return self._plan(unit, n_features).certificate

    def fit(
        self, X: object, y: object, sample_weight: object = None, groups: object = None
    ) -> Self:
        """Fit the linear model privately.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Rows, clipped to ``feature_bounds`` and bounded in influence, and targets. Dask
            collections, with the same partitions, are read partition by partition and need not fit
            into memory.
        sample_weight : array of shape (n_samples,), optional
            Between 0 and 1: what each record counts for. A weight is part of its record, as private
            as the rest of it.
        groups : array of shape (n_samples,), optional
            Identifiers of people, numbers or text. What is promised is then promised to a person
            with all its rows, whose weight ``person_weight`` says. Nothing of them is kept; their
            number is public under replace-one.
        """
        return self._fit(X, y, sample_weight, groups)

    def _objectives(
        self, X: object, targets: Sequence[object], plan: FitDecision, weights: RowWeights | None
    ) -> Sequence[Objective | list[Rows]]:
        owner = type(self).__name__
        certificate = plan.certificate
        factors = (
            None if getattr(self, "class_weight", None) is None else self._class_weights(targets)
        )
        if weights is not None or factors is not None:
            weights = round_row_weights(weights, certificate.bounds, factors)
        rows = [map_training_rows(X, target, plan, owner, weights) for target in targets]
        if not plan.mechanism.takes_rows:
            return [self._objective(each, certificate) for each in rows]
        return [rows] if plan.targets > 1 else [[each] for each in rows]

    def _class_weights(self, targets: Sequence[object]) -> Array | None:
        return None

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        bounds = certificate.bounds
        return EmpiricalObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        clean = (
            PartitionTargets(read_target_numbers)
            if setting_checks.invalid_rows_setting(self)
            else None
        )
        X, y = read_training(self, X, y, clean, least_rows(self.neighbors), y_numeric=True)
        return X, [y], X.shape

    def _store(self, coefficients: list[Array], plan: FitDecision) -> None:
        several = isinstance(plan.certificate.parameters.get("quantile"), list)
        found = list(np.atleast_2d(coefficients[0])) if several else coefficients
        self.coef_, self.intercept_ = self._in_user_units(found, plan)
        if isinstance(self, RegressorMixin) and not several and len(found) == 1:
            self.coef_ = self.coef_[0]
            self.intercept_ = float(self.intercept_[0])
        for released in self.released_.get("problems", [self.released_]) if self.inference else ():
            covariance = released.pop("covariance", None)
            if covariance is None:
                continue
            # The map to the user's units is affine: its matrix is what it does to unit vectors.
            units = np.vstack([np.zeros(len(covariance)), np.eye(len(covariance))])
            rows = np.column_stack(self._in_user_units(list(units), plan))
            jacobian = rows[1:] - rows[0]
            found_covariance = jacobian.T @ np.asarray(covariance) @ jacobian
            # In absurd units, or by absurd noise, entries may overflow: nothing is known then.
            released["covariance"] = np.nan_to_num(found_covariance, nan=np.finfo(float).max)

    @staticmethod
    def _in_user_units(coefficients: list[Array], plan: FitDecision) -> tuple[Array, Array]:
        assert plan.row_map is not None
        coef = []
        intercept = []
        for theta in coefficients:
            slopes, constant = plan.row_map.to_user_units(
                theta, plan.target_shift, plan.target_scale
            )
            coef.append(slopes)
            intercept.append(constant)
        return np.array(coef), np.array(intercept)

    def plot_effects(
        self, schema: object = None, level: float = 0.95, axes: Sequence[Axes] | None = None
    ) -> Any:
        """Draw how the linear model's value differs along each column of the table; needs
        matplotlib.

        Curves of numbers, with all their knots and transforms together, and dots of categories,
        compared with the level of reference or with the mean of all; intervals of this level where
        the fit had ``inference=True``.

        Parameters
        ----------
        schema : PublicTable, Schema, mapping or path, optional
            That of the fit, ``pipeline[-1].plot_effects(pipeline[0])``; a loaded model carries its
            own.
        level : float, default=0.95
            Of the pointwise intervals.
        axes : sequence of matplotlib axes, optional
            Where to draw, one for each column.
        """
        from dpconvex.reports.effects import plot_effects

        check_is_fitted(self)
        return plot_effects(self, schema, level, axes)

    def _linear(self, X: object) -> NDArray[np.float64]:
        check_is_fitted(self)
        return linear_predictions(read_features(self, X), self.coef_.T, self.intercept_)


@with_parameters
class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):
    """Base of regressions: a target with a public range, predictions in its units.

    Parameters
    ----------
    target_bounds : pair (low, high), optional
        Public range of the target; sets the scale, clips nothing. Without it the mechanism
        ``"gradient"`` finds the scale privately; for others targets should be of order 1.

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column
    names, all parameters. Everything that ends with an underscore is covered by the guarantee and
    may be published.
    """

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None

    def predict(self, X: object) -> NDArray[np.float64]:
        """Return predictions for rows, used without clipping, in the target's units and of shape
        (n_samples,).
        """
        return self._linear(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def linear_predictions(
    X: np.ndarray, coef: Array, intercept: float | Array = 0.0
) -> NDArray[np.float64]:
    """Return ``X @ coef + intercept``, clipped to the largest numbers of float64.

    Products that overflow are computed in other units: infinities of both signs would add up to
    NaN.
    """
    with np.errstate(all="ignore"):
        found = np.asarray(_linear_row_products(X, coef) + intercept, dtype=np.float64)
        if not np.isfinite(found).all():
            unit = 2.0**-600
            scaled = (
                _linear_row_products(X.astype(np.float64) * unit, coef * unit) + intercept * unit**2
            )
            found = np.where(np.isfinite(found), found, scaled / unit / unit)
    largest = np.finfo(np.float64).max
    return np.clip(found, -largest, largest)


def _linear_row_products(X: np.ndarray, coef: Array) -> Array:
    """Return ``X @ coef``, each row by itself: BLAS rounds a row differently when there is one more
    or less.

    A score under add-or-remove-one compares predictions with targets; one more row must not change
    any other.
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


def linear_shrinkage_facts(released: Facts) -> list[tuple[str, str]]:
    """Return the line of a summary about coefficients that were shrunk to a private constant."""
    share = released.get("kept_share")
    if share is None or share > 0.9:
        return []
    return [("columns", f"coefficients are shrunk to {share:.0%}: the rest could be noise")]


# Records per coefficient that noise must leave for intervals, n mu / (columns and intercept), by
# the kind of the loss: the curvature of squares is known up to the limits of residuals.
_INTERVAL_RECORDS = {"squares": 50.0, "margin": 100.0, "quantile": 100.0, "rate": 100.0}
_FARTHEST_LEVEL = 0.05  # beyond this quantile level, intervals held 90 % in place of 95 %
_RARE_VARIANCE = (
    0.09  # below this q (1 - q) a level q needs more records: fewer residuals tell the density
)


@with_parameters
class LinearConfidenceIntervals(PrivateLinearModel):
    """Base of models that can pay for confidence intervals of their coefficients.

    Parameters
    ----------
    inference : bool, default=False
        Whether to pay for what :meth:`confidence_interval` and :meth:`coefficient_table` need,
        about a fifth of the budget. Nothing is then shrunk or calibrated, and data too few for
        intervals are refused before anything is charged.
    smooth : sequence of (first, number, strength), optional
        Curves whose second differences are penalised: so many columns from the first on are hat
        functions of neighbouring knots (:class:`~dpconvex.preprocessing.PublicTable` has them as
        ``smooth``). The penalty is ``(strength/2) sum (theta_j - 2 theta_j+1 + theta_j+2)^2`` of
        mapped coefficients; for 'gradient' alone.
    """

    _: KW_ONLY
    inference: bool = False
    smooth: Sequence[tuple[int, int, float]] | None = None

    def _public_facts(self, privacy_unit: PersonUnit, n_features: int) -> FitRequest:
        request = super()._public_facts(privacy_unit, n_features)
        if self.smooth is None:
            return request
        owner = type(self).__name__
        curves = setting_checks.check_smooth_setting(self.smooth, request.n_features, owner)
        return replace(request, curves=curves)

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        stated = certificate.parameters
        smooth = None if self.smooth is None else list(map(list, self.smooth))
        return {
            **super()._stated(certificate, facts),
            "inference": (stated.get("inference", False), self.inference),
            "smooth": (
                certified_kind(certificate).stated_choices(certificate).get("smooth"),
                smooth,
            ),
        }

    def _interval_plan(
        self,
        request: FitRequest,
        task: str,
        loss: Logistic | Pinball | Tweedie,
        own: Facts,
        levels: tuple[float, ...] = (0.5,),
    ) -> FitDecision:
        """Decide a fit that pays for intervals, by the mechanism that offers them."""
        for level in levels:
            if not _FARTHEST_LEVEL <= level <= 1 - _FARTHEST_LEVEL:
                raise ValueError(
                    f"The 'quantile' parameter of {type(self).__name__} must lie between "
                    f"{_FARTHEST_LEVEL:g} and {1 - _FARTHEST_LEVEL:g} with inference=True: "
                    f"beyond, too few residuals tell how precise the estimate is. Got {level:g} "
                    "instead."
                )
        rare = max(1.0, *(_RARE_VARIANCE / (level * (1 - level)) for level in levels)) ** 2
        problems = own.get("problems", len(levels))
        self._check_inference(request, fit_kind_of_loss(loss), problems, rare)
        if self.mechanism != "auto":
            allowed = "'auto' with inference=True, which has one of its own"
            raise parameter_error("mechanism", type(self).__name__, allowed, repr(self.mechanism))
        return decide_fit(
            self.mechanism,
            replace(
                request,
                task=task,
                bounds=request.linear_bounds(loss),
                problems=own.get("problems", 1),
                levels=levels if len(levels) > 1 else (),
                raw_target=loss.kind != "margin" and request.parameters["target_bounds"] is None,
                inference=True,
                last_parameters={**own, "inference": True},
            ),
        )

    def _check_inference(
        self, facts: FitRequest, kind: str, problems: int = 1, rare: float = 1.0
    ) -> None:
        """Raise where a linear fit has no intervals: by public facts alone, before anything is
        charged.
        """
        owner = type(self).__name__
        if self.inference is not True:
            raise parameter_error(
                "inference", owner, "True or False", repr(self.inference), kind=TypeError
            )
        for name in ("alpha", "coef_bound", "bandwidth"):
            if getattr(self, name, None) is not None:
                allowed = "None with inference=True: intervals are about coefficients without it"
                raise parameter_error(name, owner, allowed, repr(getattr(self, name)))
        if isinstance(facts.guarantee, PureDP):
            raise ValueError(
                f"The 'inference' parameter of {owner} needs Gaussian DP or a delta above 0, "
                "whose noise it is planned with. Give delta or mu, or leave it at False."
            )
        if facts.row_map.n_features > constants.MAX_WHITENED_COLUMNS:
            raise ValueError(
                f"The 'inference' parameter of {owner} must be False with more than "
                f"{constants.MAX_WHITENED_COLUMNS:,} columns: intervals need a released matrix of "
                f"all of them. Got {facts.row_map.n_features:,} columns instead."
            )
        # The certificate of a fit would be true with fewer records, but its intervals would be too
        # short.
        mu = facts.guarantee.as_gaussian().mu / math.sqrt(problems)
        size = facts.row_map.dim
        n = facts.n_samples
        needed = _INTERVAL_RECORDS[kind] * rare * size
        if n * mu >= needed:
            return
        wanted = GaussianDP(needed / n * math.sqrt(problems))
        budget = f"a mu of {wanted.mu:.3g}"
        if not isinstance(facts.guarantee, GaussianDP):
            delta = facts.guarantee.delta(math.inf)
            budget = f"an epsilon of {wanted.epsilon(delta):.3g} with a delta of {delta:.3g}"
        raise ValueError(
            f"Intervals are not available: {n:,} rows and this budget leave too few records for "
            f"{size} coefficients, and nothing was charged. About {math.ceil(needed / mu):,} rows "
            f"would do, or {budget}."
        )

    def confidence_interval(self, level: float = 0.95) -> Array:
        """Return confidence intervals of the linear coefficients, for sampling and privacy noise
        together.

        They cover the minimiser of the population's loss. Rows longer than a released length have a
        smaller weight, and least squares limits residuals (``released_["residual_limit"]``, in
        mapped units): if the probability is logistic or the quantile is linear for every row, or
        the errors of least squares are symmetric, neither changes it. Where the tails of the
        residuals differ, intervals of least squares are wider by what limits may cut off. A column
        that noise hides, with an interval of 95 % wider than the range of the target over that of
        the column, has an interval that holds all such effects: its standard error is not known.
        With ``groups`` and weights they are about people: those of a person may depend on each
        other in any way.

        Parameters
        ----------
        level : float, default=0.95
            Probability that an interval holds its coefficient, over the draw of records and noise,
            for large n.

        Returns
        -------
        array of the shape of ``coef_`` with a last axis of (low, high), in the user's units; that
        of the intercept is in :meth:`coefficient_table`
        """
        estimates, errors = self._estimates_and_errors("confidence_interval")
        margin = (
            float(norm.ppf((1 + check_share("level", type(self).__name__, level)) / 2))
            * errors[..., :-1]
        )
        return np.stack([estimates[..., :-1] - margin, estimates[..., :-1] + margin], axis=-1)

    def coefficient_table(self, level: float = 0.95) -> DataFrame | dict[str, list[Any]]:
        """Return linear coefficients and intercept with standard errors, z values, p-values and
        confidence intervals.

        Parameters
        ----------
        level : float, default=0.95
            As in :meth:`confidence_interval`.

        Returns
        -------
        pandas.DataFrame, or a dict of its columns where pandas is not installed
            A row for the intercept and one for each column, in the user's units: ``term``,
            ``coef``, ``std_err``, ``z = coef / std_err``, ``p_value`` of a coefficient of 0,
            ``low`` and ``high``; of several levels or classes, which ``problem`` it is about comes
            first. Standard errors contain the noise of privacy.

        Notes
        -----
        Privacy: computed from what was released; costs nothing.

        Examples
        --------
        >>> import numpy as np
        >>> from dpconvex import DPLinearRegression
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 1, (20_000, 1))
        >>> y = 3 + 2 * X[:, 0] + rng.normal(0, 1, 20_000)
        >>> facts = {"feature_bounds": (0, 1), "target_bounds": (0, 10), "random_state": 0}
        >>> table = (
        ...     DPLinearRegression(epsilon=1.0, inference=True, **facts)
        ...     .fit(X, y)
        ...     .coefficient_table()
        ... )
        >>> list(table)
        ['term', 'coef', 'std_err', 'z', 'p_value', 'low', 'high']
        """
        table = self._coefficient_columns(level)
        try:
            from pandas import DataFrame
        except ImportError:
            return table
        return DataFrame(table)

    def _coefficient_columns(self, level: float) -> dict[str, list[Any]]:
        from dpconvex.reports.coefficients_and_forecasts import (
            coefficient_problem_names,
            feature_names,
        )

        estimates, errors = self._estimates_and_errors("coefficient_table")
        quantile = float(norm.ppf((1 + check_share("level", type(self).__name__, level)) / 2))
        order = (
            np.r_[-1, : np.shape(self.coef_)[-1]]
            if self.fit_intercept
            else np.arange(np.shape(self.coef_)[-1])
        )
        coef, spread = (np.atleast_2d(each)[:, order] for each in (estimates, errors))
        with np.errstate(divide="ignore", invalid="ignore"):
            z = coef / spread
        terms = ["(intercept)"] * bool(self.fit_intercept) + feature_names(cast(Fitted, self))
        table: dict[str, list[Any]] = {}
        if len(coef) > 1:
            names = coefficient_problem_names(cast(Fitted, self))
            table["problem"] = [name for name in names for _ in terms]
        numbers = {
            "coef": coef,
            "std_err": spread,
            "z": z,
            "p_value": 2 * norm.sf(np.abs(z)),
            "low": coef - quantile * spread,
            "high": coef + quantile * spread,
        }
        return (
            table
            | {"term": terms * len(coef)}
            | {name: each.ravel().tolist() for name, each in numbers.items()}
        )

    def _estimates_and_errors(self, method: str) -> tuple[Array, Array]:
        check_is_fitted(self)
        owner = type(self).__name__
        errors = linear_coefficient_std(self)
        if errors is None:
            raise ValueError(
                f"{owner}.{method} needs what a fit with inference=True pays for. Got a fit "
                "without it."
            )
        errors[..., :-1] = np.maximum(
            errors[..., :-1], hidden_column_errors(cast(Fitted, self), errors[..., :-1])
        )
        return np.concatenate([self.coef_, np.asarray(self.intercept_)[..., None]], axis=-1), errors

    def _interval_note(self) -> str | None:
        """Return which linear coefficients noise hides, for summaries and reports."""
        from dpconvex.reports.coefficients_and_forecasts import feature_names

        errors = linear_coefficient_std(self)
        if errors is None:
            return None
        hidden = np.atleast_2d(hidden_column_errors(cast(Fitted, self), errors[..., :-1]) > 0)
        names = [
            name
            for name, hides in zip(feature_names(cast(Fitted, self)), hidden.T, strict=True)
            if hides.any()
        ]
        listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        if not names:
            return None
        return (
            f"Noise hides {listed}: the data and the budget tell less than the bounds, as where "
            "few rows differ in a column, or its bounds are far too wide. The intervals hold all "
            "effects that the bounds allow."
        )

    def plot_coefficients(self, level: float = 0.95, ax: Axes | None = None) -> Axes:
        """Draw coefficients and intervals of this level, scaled to public bounds of columns;
        needs matplotlib.
        """
        from dpconvex.reports.charts import plot_coefficients

        return plot_coefficients(self, level, ax)


def linear_coefficient_std(model: LinearConfidenceIntervals) -> Array | None:
    """Return standard deviations of linear coefficients and, last, intercept; None for a fit
    without intervals.
    """
    released = model.released_
    coef = np.asarray(model.coef_)
    problems = released.get("problems", [released]) if isinstance(released, dict) else []
    rows = np.atleast_2d(coef)
    if len(problems) != len(rows) or any("covariance" not in problem for problem in problems):
        return None
    found = []
    for problem in problems:
        covariance = np.asarray(problem["covariance"], dtype=np.float64)
        if covariance.shape != (rows.shape[1] + 1,) * 2 or not np.isfinite(covariance).all():
            raise ValueError("The released covariance must be a finite matrix of the coefficients.")
        found.append(np.sqrt(np.maximum(np.diag(covariance), 0.0)))
    return np.asarray(found).reshape(*coef.shape[:-1], -1)


def hidden_column_errors(model: Fitted, errors: Array) -> Array:
    """Return the least standard error of linear coefficients of columns that noise hides, and 0 of
    others.

    By bounds alone a column moves a target from one end to the other at most:
    ``b = range of y / range of x``. Where an interval of 95 % is wider than b, noise decides its
    width as well as its place, so it is made to hold [-b, b].
    """
    parameters = model.certificate_.parameters
    quantile = float(norm.ppf(0.975))
    target = parameters.get("target_bounds")
    columns = parameters.get("feature_bounds")
    if target is None or columns is None or model.certificate_.bounds.loss.kind != "residual":
        return np.zeros_like(errors)
    low, high = (np.broadcast_to(np.asarray(each, float), errors.shape[-1:]) for each in columns)
    possible = (target[1] - target[0]) / np.maximum(high - low, 1e-300)
    return np.where(
        2 * quantile * errors > possible, (np.abs(model.coef_) + possible) / quantile, 0.0
    )


_NOTED_SHARE = 0.01  # of limited residuals, beyond which a summary says what intervals are about
_HUBER_WIDTH = 0.5  # of output perturbation, in units of half the target's range


@with_parameters
class DPLinearRegression(LinearConfidenceIntervals, PrivateLinearRegressor):
    r"""Linear least squares under differential privacy.

    Estimates the minimiser of ``(1/n) sum_i w_i (y_i - x_i . theta)^2 / 2 + (alpha/2)
    ||theta||^2``, rows and targets mapped by public bounds, with weights ``w_i`` of at most 1 that
    bound the influence of long rows, and residuals limited to a few times their private scale. The
    limit is wider where released counts show that the tails of the residuals differ, so that it
    would move their mean. All limits open as n grows; with ``inference=True`` they are wide from
    the start.

    Parameters
    ----------
    alpha : float, optional
        L2 penalty on the mapped coefficients, intercept included. By default 0 for 'gradient',
        which shrinks towards a private constant instead; for 'output' from public facts.
    mechanism : str or Mechanism, default="auto"
        ``"gradient"`` (the private fit), or ``"output"`` for the Huber loss with a width of a
        quarter of the target's range; ``"auto"`` takes the second for pure epsilon.

    Attributes
    ----------
    released_ : dict
        Further quantities that were released on the way: ``residual_scale`` is that of the
        residuals, and ``residual_limit`` what they were limited to, in mapped units.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (20_000, 2))
    >>> y = 3 + X @ [1.0, -0.5] + rng.normal(0, 1, 20_000)
    >>> model = DPLinearRegression(
    ...     epsilon=1.0, feature_bounds=(0, 10), target_bounds=(-10, 20), random_state=0
    ... )
    >>> model.fit(X, y).coef_.round(1)
    array([ 1. , -0.5])
    """

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        limited = certified_kind(certificate).limits_slopes
        plain = Squared() if limited else Huber(_HUBER_WIDTH)
        return {
            **super()._stated(certificate, facts),
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (certificate.bounds.loss, plain),
        }

    def _plan(self, privacy_unit: PersonUnit, n_features: int) -> FitDecision:
        request = self._public_facts(privacy_unit, n_features)
        request = replace(
            request,
            task="means",
            bounds=request.linear_bounds(Squared()),
            smooth_loss=Huber(_HUBER_WIDTH),
            alpha=check_optional_positive("alpha", self.alpha, type(self).__name__),
            raw_target=request.parameters["target_bounds"] is None,
            inference=bool(self.inference),
            last_parameters={"inference": True} if self.inference else {},
        )
        if self.inference:
            check_intervals_are_offered(self.mechanism, request)
            self._check_inference(request, "squares")
        return decide_fit(self.mechanism, request)

    def _summary_facts(self) -> list[tuple[str, str]]:
        return [] if self.inference else linear_shrinkage_facts(self.released_)

    def _interval_note(self) -> str | None:
        """Return what linear intervals are about where limits bind for more than 1 % of
        residuals, by a noisy count.
        """
        share = self.released_.get("limited_share")
        certificate = self.certificate_
        hidden = super()._interval_note()
        if share is None:
            return hidden
        noise = math.sqrt(2) * certificate.noise["limits"].scale / certificate.bounds.n_samples
        if share <= _NOTED_SHARE + noise:
            return hidden
        parameters = certificate.parameters
        through_origin = parameters.get("through_origin", False)
        _, scale = target_map(parameters["target_bounds"], through_origin)
        limit = self.released_["residual_limit"] / scale
        return (
            f"About {share:.1%} of the residuals are longer than {limit:.3g} and count as that "
            "long. Intervals are about least squares with this limit, and wider by what it may "
            "cut off. They are about ordinary least squares, too, where errors are symmetric; "
            "for a skewed target take its logarithm, or fit its median."
            + (f" {hidden}" if hidden else "")
        )
