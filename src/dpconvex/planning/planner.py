r"""The planner: predicted accuracy of every mechanism and the rows it needs, before any data.

The predictions are those that choose the estimators' defaults, with the cost of sampling added.
They hold for a reference population in mapped units: columns fill [-1, 1] with normal values of
standard deviation ``feature_spread``;

- quantiles: targets fill [-1, 1], residuals are normal with standard deviation ``residual_scale``,
  and the ``d + 1`` coefficients have equal squares that sum to 1, their signs at random;
- linear: the same, with the squared error;
- poisson, gamma, tweedie: the same for the logarithm of the mean, residuals in units of the mean;
- logistic: labels follow a logistic model whose margins have mean 1 or -1 and variance 2;
- hazard, ordinal: as logistic; a record tells more of ordered levels, and their fits lose down to a
  fifth of it.

Both numbers are public guesses. Left out, the geometric mean over plausible ones is predicted.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dpconvex.core.calibration import check_neighbors
from dpconvex.core.checks import MOST_FEATURES, check_count, check_number, parameter_error
from dpconvex.core.guarantees import ApproxDP, Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.fit.fit_plan import gaussian_budget, plan_fit
from dpconvex.losses import Logistic, Pinball, Softmax, Squared, Tweedie
from dpconvex.mechanisms import ObjectivePerturbation, OutputPerturbation, PrivateFitMechanism
from dpconvex.mechanisms.output_perturbation import output_squares_excess
from dpconvex.mechanisms.private_fit import descent_settings
from dpconvex.risk import excess_risk
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.types import Array

RATES = {"poisson": 1.0, "tweedie": 1.5, "gamma": 2.0}  # powers of the variance
# By task, what estimators ask of a mechanism.
_ASKED = {
    "quantile": "quantiles",
    "linear": "means",
    **dict.fromkeys(RATES, "rates"),
    "logistic": "classes",
    "hazard": "shared coefficients",
    "ordinal": "shared coefficients",
}
_DESCENT = PrivateFitMechanism.name
_MINIMISERS = {kind.name: kind for kind in (ObjectivePerturbation, OutputPerturbation)}
_KINDS = {_DESCENT: PrivateFitMechanism, **_MINIMISERS}
#: By task, the names of the mechanisms that are forecast.
MECHANISMS = {
    task: tuple(name for name, kind in _KINDS.items() if kind.is_for(asked))
    for task, asked in _ASKED.items()
}
MARGINS = ("logistic", "hazard", "ordinal")  # tasks whose risk is that of log odds
QUANTITIES = {
    "quantile": "extra pinball loss, as a share of the best linear model's",
    "linear": "extra squared error, as a share of the best linear model's",
    **dict.fromkeys(RATES, "extra deviance, as a share of the best log-linear model's"),
    "logistic": "extra logistic loss over the best linear model's, in nats",
    **dict.fromkeys(
        ("hazard", "ordinal"), "extra log loss of a record over the best model's, in nats"
    ),
}
_KERNEL = LogisticKernel()
# rows that are searched
_FEWEST = 10
_MOST = 10**9
_CLOSE = 1.02  # and how closely


@dataclass(frozen=True)
class Forecast:
    """The prediction for one mechanism."""

    mechanism: str  # its name, "none" for a fit without privacy, or "constant"
    excess_risk: (
        float  # predicted at the given number of rows; infinite where the mechanism cannot run
    )
    samples_needed: int | None = (
        None  # at which the wanted risk is met; None where a billion rows do not suffice
    )


@dataclass(frozen=True)
class PlannedProblem:
    """The public facts and guesses that forecasts are made from; see :func:`plan`."""

    task: str
    n_samples: int
    n_features: int
    guarantee: Guarantee
    quantile: float
    neighbors: str
    row_norm: float
    max_norm: float
    residual_scale: float | None
    feature_spread: float | None
    class_rate: float | None
    levels: tuple[float, ...]
    people: bool
    problems: int

    def offers(self, mechanism: str) -> bool:
        """Return whether the mechanism has this kind of guarantee."""
        kind = _KINDS[mechanism]
        carried = kind.carries.levels or not self.levels
        return carried and isinstance(self.guarantee, kind.guarantees)

    @property
    def bounds(self) -> LinearBounds:
        """The estimator's bounds, without a penalty."""
        losses = {"quantile": Pinball(self.quantile), "linear": Squared()}
        rates = {name: Tweedie(power, -3.0, 3.0, 8.0) for name, power in RATES.items()}
        loss = (losses | rates).get(self.task, Logistic())
        facts = self.n_samples, self.n_features, loss, self.row_norm, self.max_norm
        return LinearBounds(*facts, neighbors=self.neighbors, people=self.people)

    def risk(self, mechanism: str) -> float:
        """Return the excess risk that the planner predicts; infinite where the mechanism cannot
        run.
        """
        try:
            if self.task in MARGINS:
                return self._logistic_risk(mechanism)
            if self.task == "linear" or self.task in RATES:
                return float(excess_risk.mean_excess(self._linear_excess(mechanism)))
            each = [
                self._quantile_excess(mechanism, level) for level in self.levels or (self.quantile,)
            ]
            return float(np.mean([excess_risk.mean_excess(excess) for excess in each]))
        except ValueError:  # no penalty fits a tiny budget
            return math.inf

    def forecast(self, mechanism: str, wanted: float | None) -> Forecast:
        """Return the planner's forecast: the risk, and the rows for the wanted one by bisection
        to 2 %.
        """
        risk = self.risk(mechanism)
        if wanted is None:
            return Forecast(mechanism, risk)

        def enough(rows: int) -> bool:
            return replace(self, n_samples=rows).risk(mechanism) <= wanted

        low = _FEWEST
        high = _MOST
        if not enough(high):
            return Forecast(mechanism, risk)
        if enough(low):
            return Forecast(mechanism, risk, low)
        if risk <= wanted:
            high = min(high, self.n_samples)
        else:
            low = max(low, self.n_samples)
        while high > _CLOSE * low + 1:
            middle = round(math.sqrt(low * high))
            low, high = (low, middle) if enough(middle) else (middle, high)
        return Forecast(mechanism, risk, high)

    def _reference(self) -> tuple[float, Array]:
        """Return the second moment of a column and the residual scales of the reference
        population, or the guesses.
        """
        scales = excess_risk.RATE_SCALES if self.task in RATES else excess_risk.RESIDUAL_SCALES
        scales = scales if self.residual_scale is None else np.array([self.residual_scale])
        moment = (
            excess_risk.reference_moment(self.bounds)
            if self.feature_spread is None
            else self.feature_spread**2
        )
        return moment, scales

    def _linear_excess(self, mechanism: str) -> Array:
        bounds = self.bounds
        (moment, scales) = self._reference()
        if mechanism in _MINIMISERS and self.task in RATES:
            calibrate = _MINIMISERS[mechanism].calibrate
            alpha = excess_risk.classifier_prescription(calibrate, bounds, self.guarantee, {}).alpha
            noise, release = self._noise(mechanism, replace(bounds, alpha=alpha))
            facts = np.array([alpha]), noise / bounds.n_samples, release
            risk = excess_risk.penalised_excess(
                bounds, *facts, curvature=1.0, margin_variance=moment
            )
            return np.asarray(2 * risk / scales**2 + bounds.dimension / bounds.n_samples)
        if mechanism == OutputPerturbation.name:
            return output_squares_excess(bounds, self.guarantee, moment, scales)
        if mechanism == "none":
            return np.full(len(scales), bounds.dimension / bounds.n_samples)
        if mechanism == "constant":
            return moment * bounds.n_features / bounds.dimension / scales**2
        return self._descent_excess(feature_moment=moment, residual_scales=scales)

    def _quantile_excess(self, mechanism: str, level: float) -> Array:
        bounds = self.bounds
        (moment, scales) = self._reference()
        n = bounds.n_samples
        size = bounds.dimension
        if mechanism == _DESCENT:
            return self._descent_excess(feature_moment=moment, residual_scales=scales, level=level)
        if mechanism == "constant":
            return excess_risk.quantile_constant_excess(size, moment, scales)
        smoothing: dict[str, Any] = {}
        if mechanism in _MINIMISERS:
            prescribe = _MINIMISERS[mechanism].prescribe_quantile
            chosen = prescribe(level, _KERNEL, bounds, self.guarantee)
            loss = bounds.loss
            if chosen.bandwidth:
                loss = convolve(Pinball(cast(float, chosen.level)), _KERNEL, chosen.bandwidth)
            noise, release = self._noise(mechanism, replace(bounds, loss=loss, alpha=chosen.alpha))
            smoothing = {"alpha": chosen.alpha, "gradient_std": noise / n, "release_std": release}
            smoothing |= {"bandwidth": chosen.bandwidth, "level": chosen.level}
        return excess_risk.quantile_excess(
            level, size, moment, scales, sampling=level * (1 - level) / n, **smoothing
        )

    def _logistic_risk(self, mechanism: str) -> float:
        intercept = (
            1.0
            if self.class_rate is None
            else excess_risk.logistic_excess_intercept(self.class_rate)
        )
        if mechanism == "constant":
            return excess_risk.logistic_constant_excess(intercept)
        if mechanism == _DESCENT:
            return float(self._descent_excess(intercept=intercept))
        settings = {"intercept": intercept}
        if mechanism != "none":
            shared = {"problems": self.problems}
            alpha = excess_risk.classifier_prescription(
                _MINIMISERS[mechanism].calibrate, self.bounds, self.guarantee, shared
            ).alpha
            noise, release = self._noise(mechanism, replace(self.bounds, alpha=alpha))
            settings |= {
                "alpha": alpha,
                "gradient_std": noise / self.n_samples,
                "release_std": release,
            }
        spreads = np.sqrt(excess_risk.SPREADS / self.n_features) * min(self.row_norm, self.max_norm)
        if self.feature_spread is not None:
            spreads = np.array([self.feature_spread])
        n = self.n_samples
        d = self.n_features
        risks = [excess_risk.logistic_excess(n, d, float(spread), **settings) for spread in spreads]
        return float(np.exp(np.mean(np.log(risks))))

    def _descent_excess(self, **population: Any) -> Array:
        bounds = self.bounds
        mu = gaussian_budget(self.guarantee, "NoisyGradientDescent")
        if self.problems > 1 and self.task == "logistic":
            bounds = replace(bounds, loss=Softmax(self.problems))
        plan = plan_fit(bounds, mu, descent_settings(None, None, _KERNEL, self.levels))
        return excess_risk.descent_excess(
            bounds, plan.config, plan.calibrated_noise(bounds, mu), **population
        )[0]

    def _noise(self, mechanism: str, bounds: LinearBounds) -> tuple[float, float]:
        """Return the noise per coordinate of the sum of gradients and of the coefficients."""
        calibrate = _MINIMISERS[mechanism].calibrate
        return excess_risk.perturbation_noise_stds(
            calibrate, bounds, self.guarantee, {"problems": self.problems}
        )


@dataclass(frozen=True)
class Forecasts(PlannedProblem):
    """Predictions for one problem.

    Attributes
    ----------
    wanted, forecasts : float or None, tuple of Forecast
        The excess risk that was asked for, and a forecast for each mechanism that offers the
        guarantee, best first.
    without_privacy, constant : Forecast
        Without noise or penalty, the cost of sampling alone; and for the best constant prediction,
        which a fit must beat for its columns to be of use. Default fits fall back to one where
        records are few.
    """

    wanted: float | None
    forecasts: tuple[Forecast, ...]
    without_privacy: Forecast
    constant: Forecast

    @property
    def quantity(self) -> str:
        """Meaning of the excess risk."""
        return QUANTITIES[self.task]

    @property
    def unit(self) -> str:
        """The one to whom the promise is made."""
        return self.bounds.unit

    @property
    def best(self) -> Forecast:
        """The mechanism that ``mechanism="auto"`` would take for this population."""
        return self.forecasts[0]

    def free_budget(self) -> float | None:
        """Return the least epsilon, or mu, to plan for: privacy adds no more to the best risk than
        sampling.

        "Privacy for free": found within 5 %, None where no budget up to 100 will do.
        """

        def free(budget: float) -> bool:
            problem = replace(self, guarantee=_with_budget(self.guarantee, budget))
            return problem.risk(self.best.mechanism) <= 2 * self.without_privacy.excess_risk

        low = 1e-3
        high = 100.0
        if not free(high):
            return None
        while high > 1.05 * low:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if free(middle) else (middle, high)
        return high

    def curve(self, epsilons: Iterable[float]) -> dict[str, Array]:
        """Return the predicted excess risk of each mechanism at each epsilon, or mu, with the
        plan's rows and delta.
        """
        problems = [
            replace(self, guarantee=_with_budget(self.guarantee, float(epsilon)))
            for epsilon in epsilons
        ]
        names = [forecast.mechanism for forecast in self.forecasts]
        return {name: np.array([problem.risk(name) for problem in problems]) for name in names}


def plan(
    task: str,
    n_samples: int,
    n_features: int,
    guarantee: Guarantee,
    *,
    quantile: float | Sequence[float] = 0.5,
    neighbors: str = "replace_one",
    bounded: bool = True,
    row_norm: float | None = None,
    residual_scale: float | None = None,
    feature_spread: float | None = None,
    class_rate: float | None = None,
    n_classes: int = 2,
    people: bool = False,
    wanted: float | None = None,
    mechanisms: Sequence[str] | None = None,
) -> Forecasts:
    """Plan a fit: predict every mechanism's excess risk, and the rows needed for a wanted one. Sees
    no data.

    Parameters
    ----------
    task : {"quantile", "linear", "poisson", "gamma", "tweedie", "logistic", "hazard", "ordinal"}
        What will be fitted; a newsvendor is the quantile ``underage / (underage + overage)``.
    n_samples, n_features : int
        Public shape of the data; a nominal number of rows under add-or-remove-one.
    guarantee : PureDP, ApproxDP or GaussianDP
        Budget.
    quantile : float or sequence of float
        Quantile level, or several that one fit finds; the risk is then their mean.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.
    bounded, row_norm : bool, float or None
        Whether feature bounds will be given: columns then fill [-1, 1]. And the influence bound in
        mapped units; ``sqrt(n_features)`` by default, 1 without feature bounds.
    residual_scale, feature_spread : float, optional
        Public guesses of the residuals' standard deviation, in units of half the target's range (of
        a rate: of its mean), and of a column's, in units of its bound.
    class_rate : float, optional
        Public guess of the share of one of two classes; about two thirds by default.
    n_classes : int
        Of a target of classes. The risk of three or more is that of one against the rest;
        mechanisms but "gradient" fit each so, and share the budget.
    people : bool
        Whether the promise is made to people with all their rows, who are then what ``n_samples``
        counts.
    wanted, mechanisms : float, sequence of str, optional
        Excess risk to find the number of rows for, and the mechanisms to predict; by default all
        that offer the guarantee.

    Returns
    -------
    Forecasts
        Within a factor of 2 of simulations from the reference population, for descents nine times
        in ten; other populations may differ by more.

    Examples
    --------
    >>> from dpconvex.privacy import ApproxDP
    >>> outlook = plan("quantile", 20_000, 5, ApproxDP(1.0, 1e-6), residual_scale=0.1)
    >>> outlook.best.mechanism
    'gradient'
    >>> outlook.best.excess_risk < 0.01
    True
    """
    owner = "plan"
    if task not in MECHANISMS:
        raise ValueError(
            f"The 'task' parameter of {owner} must be one of {list(MECHANISMS)}. Got {task!r} "
            "instead."
        )
    check_count("n_samples", owner, n_samples)
    check_count("n_features", owner, n_features, most=MOST_FEATURES)
    check_count("n_classes", owner, n_classes, 2)
    check_neighbors(neighbors, owner)
    levels = tuple(quantile) if isinstance(quantile, Sequence) else ()
    for level in levels or (quantile,):
        check_number("quantile", owner, level, "a number in (0, 1)", 0, 1, low_open=True)
    guesses = {
        "row_norm": row_norm,
        "residual_scale": residual_scale,
        "feature_spread": feature_spread,
        "wanted": wanted,
    }
    for name, value in guesses.items():
        if value is not None:
            check_number(
                name, owner, value, "None or a finite number above 0", 0, math.inf, low_open=True
            )
    name = "class_rate"
    value = class_rate
    lacks = "classes"
    if task in MARGINS and (task == "logistic" or residual_scale is not None):
        name = "residual_scale"
        value = residual_scale
        lacks = "residuals"
    if value is not None:
        raise parameter_error(
            name, owner, f"None for the task {task}, which has no {lacks}", repr(value)
        )
    if class_rate is not None:
        allowed = "None or a number in (0, 1), at least 1e-4 and below 0.9999"
        check_number("class_rate", owner, class_rate, allowed, 1e-4, 0.9999)
    longest = math.sqrt(n_features) if bounded else (row_norm or 1.0)
    problem = PlannedProblem(
        task=task,
        n_samples=n_samples,
        n_features=n_features,
        guarantee=guarantee,
        quantile=levels[0] if levels else cast(float, quantile),
        neighbors=neighbors,
        row_norm=longest if row_norm is None else row_norm,
        max_norm=longest,
        residual_scale=residual_scale,
        feature_spread=feature_spread,
        class_rate=class_rate,
        levels=levels if len(levels) > 1 else (),
        people=bool(people),
        problems=1 if n_classes == 2 else int(n_classes),
    )
    unknown = set(mechanisms or ()) - set(MECHANISMS[task])
    if unknown:
        raise parameter_error(
            "mechanisms", "plan", f"None or some of {list(MECHANISMS[task])}", str(sorted(unknown))
        )
    names = [name for name in mechanisms or MECHANISMS[task] if problem.offers(name)]
    if not names:
        raise ValueError(
            f"The task {task} of {owner} needs a delta above 0 or mu. Got pure epsilon-DP instead."
        )
    found = sorted(
        (problem.forecast(name, wanted) for name in names), key=lambda each: each.excess_risk
    )
    none, constant = (problem.forecast(name, wanted) for name in ("none", "constant"))
    return Forecasts(
        **vars(problem),
        wanted=wanted,
        forecasts=tuple(found),
        without_privacy=none,
        constant=constant,
    )


def default_mechanisms(task: str, guarantee: Guarantee) -> list[str]:
    """Return the names of the mechanisms that ``"auto"`` chooses among: the private fit, or for
    pure epsilon the perturbed minimisers.
    """
    names = (_DESCENT,)
    if not isinstance(guarantee, PrivateFitMechanism.guarantees):
        names = tuple(_MINIMISERS)
    return [name for name in names if name in MECHANISMS[task]]


def _with_budget(guarantee: Guarantee, epsilon: float) -> Guarantee:
    """Return the same kind of guarantee with another budget."""
    if isinstance(guarantee, ApproxDP):
        return ApproxDP(epsilon, guarantee.delta_bound)
    return type(guarantee)(epsilon)
