r"""The planner: predicted accuracy of every mechanism and the rows it needs, before any data.

The predictions are those that choose the estimators' defaults, with the cost of sampling added. They hold for a
reference population in mapped units: columns fill [-1, 1] with normal values of standard deviation ``feature_spread``;

- quantiles: targets fill [-1, 1], residuals are normal with standard deviation ``residual_scale``, and the
  ``d + 1`` coefficients have equal squares that sum to 1, their signs at random;
- linear: the same, with the squared error;
- logistic: labels follow a logistic model whose margins have mean 1 or -1 and variance 2.

Both numbers are public guesses. Left out, the geometric mean over plausible ones is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import MOST_FEATURES, check_count, check_number
from dpconvex.fit.config import FitPlan, gradient_noise, plan_fit, total_mu
from dpconvex.fit.constants import FINE_WIDTH
from dpconvex.losses import Logistic, Pinball
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.planning.forecast_classification import SPREADS, penalty_for, predicted_gradient_risk
from dpconvex.planning.forecast_descent import QUANTILES, constant_excess, records_left
from dpconvex.planning.forecast_linear import linear_excess
from dpconvex.planning.forecast_logistic import intercept_for, logistic_constant_excess, logistic_excess
from dpconvex.planning.forecast_quantile import (
    NO_PENALTY,
    RESIDUAL_SCALES,
    ReferencePopulation,
    mean_excess,
    objective_prescription,
    predicted_excess,
    reference_moment,
)
from dpconvex.planning.forecast_quantile_output import output_prescription
from dpconvex.planning.plan_picture import draw_plan
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.calibration import check_neighbors
from dpconvex.privacy.certificates.rules import calibrate
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP
from dpconvex.smoothing import LogisticKernel, convolve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Forecast", "RiskPlan", "plan"]

MECHANISMS = {
    "quantile": ("gradient", "objective", "output"),
    "linear": ("gradient", "output"),
    "logistic": ("gradient", "objective", "output"),
}
TASKS = tuple(MECHANISMS)
UNITS = {
    "quantile": "extra pinball loss, as a share of the best linear model's",
    "linear": "extra squared error, as a share of the best linear model's",
    "logistic": "extra logistic loss over the best linear model's, in nats",
}
_KERNEL = LogisticKernel()
_FEWEST, _MOST = 10, 10**9  # rows that are looked for
_CLOSE = 1.02  # and how closely


@dataclass(frozen=True)
class Forecast:
    """What is predicted for one mechanism.

    Attributes
    ----------
    mechanism : str
        Name of the mechanism, ``"none"`` for a fit without privacy, or ``"constant"``.
    excess_risk : float
        Predicted excess risk at the plan's number of rows.
    samples_needed : int or None
        Rows at which the wanted excess risk is met; None if none was wanted or a billion rows do not suffice.
    """

    mechanism: str
    excess_risk: float
    samples_needed: int | None = None


@dataclass(frozen=True)
class RiskPlan:
    """Predictions for one problem.

    Attributes
    ----------
    task, n_samples, n_features, guarantee, neighbors
        The problem.
    quantity : str
        What the excess risk is.
    wanted : float or None
        The excess risk that was asked for.
    forecasts : tuple of Forecast
        One per mechanism that offers the guarantee, best first.
    without_privacy : Forecast
        The same without noise or penalty: what sampling alone costs.
    constant : Forecast
        The best constant prediction, which a fit must beat for its columns to be of use. Default fits fall back to one
        where records are few; those of output and objective perturbation do not.
    problem : _Problem
        The public facts behind the predictions.
    """

    task: str
    n_samples: int
    n_features: int
    guarantee: Guarantee
    neighbors: str
    quantity: str
    wanted: float | None
    forecasts: tuple[Forecast, ...]
    without_privacy: Forecast
    constant: Forecast
    problem: _Problem

    @property
    def unit(self) -> str:
        """Whom the promise is made to."""
        return self.problem.bounds(self.n_samples).unit

    @property
    def best(self) -> Forecast:
        """The mechanism that ``mechanism="auto"`` would take for this population."""
        return self.forecasts[0]

    def curve(self, epsilons: Iterable[float]) -> dict[str, NDArray[np.float64]]:
        """Return the predicted excess risk of each mechanism against epsilon, at the plan's rows and delta.

        Parameters
        ----------
        epsilons : sequence of float
            Budgets; under Gaussian DP they are values of mu.
        """
        budgets = [_with_budget(self.guarantee, float(epsilon)) for epsilon in epsilons]
        return {
            forecast.mechanism: np.array(
                [replace(self.problem, guarantee=budget).risk(forecast.mechanism, self.n_samples) for budget in budgets]
            )
            for forecast in self.forecasts
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw predicted excess risk against the budget, and return the axes; needs matplotlib.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError(
                    "A picture needs matplotlib: install it with `pip install 'dpconvex[plots]'`."
                ) from None
            ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")[1]
        draw_plan(self, ax)
        return ax


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
) -> RiskPlan:
    """Predict the excess risk of every mechanism, and the rows needed for a wanted one. Sees no data.

    Parameters
    ----------
    task : {"quantile", "linear", "logistic"}
        What will be fitted; a newsvendor is the quantile ``underage / (underage + overage)``.
    n_samples, n_features : int
        Public shape of the data; a nominal number of rows under add-or-remove-one.
    guarantee : PureDP, ApproxDP or GaussianDP
        Budget.
    quantile : float or sequence of float
        Quantile level, or several that one fit finds; the risk is then their mean.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.
    bounded : bool
        Whether feature bounds will be given: columns then fill [-1, 1].
    row_norm : float, optional
        Influence bound in mapped units; ``sqrt(n_features)`` by default, 1 without feature bounds.
    residual_scale : float, optional
        Public guess of the residuals' standard deviation, in units of half the target's range.
    feature_spread : float, optional
        Public guess of a column's standard deviation, in units of its bound.
    class_rate : float, optional
        Public guess of the share of one of two classes; about two thirds by default.
    n_classes : int
        Of a target of classes. Three or more are fitted one against the rest and share the budget; the risk is that of
        one such fit.
    people : bool
        Whether the promise is made to people with all their rows, who are then what ``n_samples`` counts.
    wanted : float, optional
        Excess risk to find the number of rows for.

    Returns
    -------
    RiskPlan
        Within a factor of 2 of simulations from the reference population, for descents nine times in ten; other
        populations may differ by more.

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
    if task not in TASKS:
        raise ValueError(f"The 'task' parameter of {owner} must be one of {list(TASKS)}. Got {task!r} instead.")
    check_count("n_samples", owner, n_samples)
    check_count("n_features", owner, n_features, most=MOST_FEATURES)
    check_count("n_classes", owner, n_classes, 2)
    check_neighbors(neighbors, owner)
    levels = tuple(quantile) if isinstance(quantile, Sequence) else ()
    for level in levels or (quantile,):
        check_number("quantile", owner, level, "a number in (0, 1)", 0, 1, low_open=True)
    quantile = levels[0] if levels else cast(float, quantile)
    for name, value in (
        ("row_norm", row_norm),
        ("residual_scale", residual_scale),
        ("feature_spread", feature_spread),
        ("wanted", wanted),
    ):
        if value is not None:
            allowed = "None or a finite number above 0"
            check_number(name, owner, value, allowed, 0, math.inf, low_open=True)
    if residual_scale is not None and task == "logistic":
        raise ValueError(
            "The 'residual_scale' parameter of plan must be None for the task logistic, which has no residuals. "
            f"Got {residual_scale!r} instead."
        )
    if class_rate is not None:
        allowed = "None or a number in (0, 1), at least 1e-4 and below 0.9999"
        check_number("class_rate", owner, class_rate, allowed, 1e-4, 0.9999)
        if task != "logistic":
            raise ValueError(
                f"The 'class_rate' parameter of plan must be None for the task {task}, which has no classes. "
                f"Got {class_rate!r} instead."
            )
    longest = math.sqrt(n_features) if bounded else (row_norm or 1.0)
    influence = row_norm if row_norm is not None else longest
    problem = _Problem(
        task, n_features, guarantee, quantile, neighbors, influence, longest, residual_scale, feature_spread,
        class_rate, levels if len(levels) > 1 else (), bool(people), 1 if n_classes == 2 else int(n_classes),
    )  # fmt: skip
    names = [name for name in MECHANISMS[task] if problem.offers(name)]
    forecasts = sorted(
        (problem.forecast(name, n_samples, wanted) for name in names), key=lambda forecast: forecast.excess_risk
    )
    return RiskPlan(
        task, n_samples, n_features, guarantee, neighbors, UNITS[task], wanted, tuple(forecasts),
        problem.forecast("none", n_samples, wanted), problem.forecast("constant", n_samples, wanted),
        problem,
    )  # fmt: skip


@dataclass(frozen=True)
class _Problem:
    """Public facts of a problem apart from the number of rows."""

    task: str
    n_features: int
    guarantee: Guarantee
    quantile: float
    neighbors: str
    row_norm: float
    max_norm: float
    residual_scale: float | None
    feature_spread: float | None
    class_rate: float | None = None
    levels: tuple[float, ...] = ()
    people: bool = False
    problems: int = 1

    def offers(self, mechanism: str) -> bool:
        """Whether the mechanism has this kind of guarantee."""
        if self.levels and mechanism != "gradient":
            return False
        if isinstance(self.guarantee, GaussianDP):
            return mechanism != "objective"
        gaussian = mechanism == "gradient"
        return not (isinstance(self.guarantee, PureDP) and gaussian)

    def bounds(self, n_samples: int) -> LinearBounds:
        """Return the estimator's bounds, without a penalty."""
        loss = Pinball(self.quantile) if self.task == "quantile" else Logistic()
        return LinearBounds(
            n_samples, self.n_features, loss, self.row_norm, self.max_norm, neighbors=self.neighbors,
            people=self.people,
        )  # fmt: skip

    def risk(self, mechanism: str, n_samples: int) -> float:
        """Return the predicted excess risk; infinite where the mechanism cannot run."""
        predict: dict[str, Callable[[str, LinearBounds], float]] = {
            "quantile": self._quantile_risk,
            "linear": self._linear_risk,
            "logistic": self._logistic_risk,
        }
        try:
            return predict[self.task](mechanism, self.bounds(n_samples))
        except ValueError:  # no penalty fits a tiny budget
            return math.inf

    def forecast(self, mechanism: str, n_samples: int, wanted: float | None) -> Forecast:
        """Return the risk at ``n_samples``, and the rows for the wanted one by bisection to 2 %."""
        risk = self.risk(mechanism, n_samples)
        if wanted is None:
            return Forecast(mechanism, risk)
        low, high = _FEWEST, _MOST
        if self.risk(mechanism, high) > wanted:
            return Forecast(mechanism, risk)
        if self.risk(mechanism, low) <= wanted:
            return Forecast(mechanism, risk, low)
        if risk <= wanted:
            high = min(high, n_samples)
        else:
            low = max(low, n_samples)
        while high > _CLOSE * low + 1:
            middle = round(math.sqrt(low * high))
            if self.risk(mechanism, middle) <= wanted:
                high = middle
            else:
                low = middle
        return Forecast(mechanism, risk, high)

    def _linear_risk(self, mechanism: str, bounds: LinearBounds) -> float:
        moment, scales = self._reference(bounds)
        return float(mean_excess(linear_excess(mechanism, bounds, self.guarantee, moment, scales)))

    def _reference(self, bounds: LinearBounds) -> tuple[float, NDArray[np.float64]]:
        """Return the second moment of a column and the residual scales of the reference population, or the guesses."""
        given = self.residual_scale
        scales = RESIDUAL_SCALES if given is None else np.array([given])
        moment = reference_moment(bounds) if self.feature_spread is None else self.feature_spread**2
        return moment, scales

    def _quantile_risk(self, mechanism: str, bounds: LinearBounds) -> float:
        levels = self.levels or (self.quantile,)
        return float(np.mean([self._level_risk(level, mechanism, bounds) for level in levels]))

    def _level_risk(self, level: float, mechanism: str, bounds: LinearBounds) -> float:
        n = bounds.n_samples
        moment, scales = self._reference(bounds)
        sampling = level * (1 - level) / n
        population = ReferencePopulation(level, bounds.dimension, moment, scales, sampling)
        if mechanism == "constant":
            excess = constant_excess(bounds.dimension, moment, scales)
        elif mechanism == "none":
            excess = predicted_excess(population, _KERNEL, 0.0, NO_PENALTY, 0.0)
        elif mechanism == "output":
            chosen = output_prescription(level, bounds, self.guarantee)
            noise = self._noise("output", replace(bounds, alpha=chosen.alpha))["release"]
            excess = predicted_excess(population, _KERNEL, 0.0, chosen.alpha, 0.0, release_std=noise)
        elif mechanism == "objective":
            chosen = objective_prescription(level, _KERNEL, bounds, self.guarantee)
            loss = convolve(Pinball(chosen.level), _KERNEL, chosen.bandwidth)
            stds = self._noise("objective", replace(bounds, loss=loss, alpha=chosen.alpha))
            excess = predicted_excess(
                population, _KERNEL, chosen.bandwidth, chosen.alpha, stds["objective"] / n,
                chosen.level, stds["release"],
            )  # fmt: skip
        else:
            found, mu = self._fit(bounds), self._mu
            noise, width = gradient_noise(found, bounds, mu), FINE_WIDTH * scales
            # Averaged iterates gain nothing from the smoothing that lowers the variance of a minimiser's slopes.
            squares = scales**2
            share = np.arcsin(squares / (squares + _KERNEL.second_moment * width**2)) * 2 / math.pi
            population = replace(
                population,
                # Private geometry makes the second moments of features 1, and leaves predictions as they are.
                feature_moment=1.0,
                sampling=sampling / share,
            )
            excess = predicted_excess(population, _KERNEL, width, NO_PENALTY, noise)
            constant = constant_excess(bounds.dimension, moment, scales)
            records = records_left(found, bounds)
            excess = QUANTILES.excess(excess, constant, records, bounds.dimension)
        return float(mean_excess(excess))

    def _logistic_risk(self, mechanism: str, bounds: LinearBounds) -> float:
        n, d = bounds.n_samples, self.n_features
        if self.feature_spread is None:
            spreads = np.sqrt(SPREADS / d) * min(self.row_norm, self.max_norm)
        else:
            spreads = np.array([self.feature_spread])
        settings: dict[str, float] = {}
        if self.class_rate is not None:
            settings["intercept"] = intercept_for(self.class_rate)
        if mechanism == "constant":
            return logistic_constant_excess(**settings)
        if mechanism == "gradient":
            chosen = NoisyGradientDescent().settings()
            return predicted_gradient_risk(bounds, self.guarantee, chosen, self.problems, **settings)
        if mechanism != "none":
            alpha, _ = penalty_for(mechanism, bounds, self.guarantee, self._shared)
            stds = self._noise(mechanism, replace(bounds, alpha=alpha))
            settings |= {"alpha": alpha, "release_std": stds["release"]}
            settings["gradient_std"] = stds.get("objective", 0.0) / n
        risks = [logistic_excess(n, d, float(spread), **settings) for spread in spreads]
        return float(np.exp(np.mean(np.log(risks))))

    def _fit(self, bounds: LinearBounds) -> FitPlan:
        """Return the plan of the private fit of all levels."""
        settings = NoisyGradientDescent().settings(None, _KERNEL, self.levels)
        return plan_fit(bounds, self._mu, settings)

    def _noise(self, mechanism: str, bounds: LinearBounds) -> dict[str, float]:
        """Return the standard deviation of each kind of noise, per coordinate."""
        terms = calibrate(mechanism, bounds, self.guarantee, self._shared).noise
        return {name: term.spread for name, term in terms.items()}

    @property
    def _mu(self) -> float:
        """What descent may spend on one of the problems that share the budget."""
        return total_mu(self.guarantee, "NoisyGradientDescent") / math.sqrt(self.problems)

    @property
    def _shared(self) -> dict[str, int]:
        return {"problems": self.problems}


def _with_budget(guarantee: Guarantee, epsilon: float) -> Guarantee:
    """Return the same kind of guarantee with another budget."""
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(epsilon)
    if isinstance(guarantee, PureDP):
        return PureDP(epsilon)
    return ApproxDP(epsilon, guarantee.delta_bound)
