"""Regression with a log link: counts, costs, times and other means above 0."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from scipy.stats import poisson
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import Tags

from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import check_number, check_share, parameter_error
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.estimators.linear import (
    LinearConfidenceIntervals,
    PrivateLinearRegressor,
    linear_shrinkage_facts,
)
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import StatedSettings
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.settings import check_optional_positive, resolve_bounds_setting
from dpconvex.losses import Tweedie
from dpconvex.mechanisms.mechanism import resolve_mechanism
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.planning.mechanism_choice import decide_fit, is_auto
from dpconvex.types import Array

_RAW = 2.0**40  # largest response, and reciprocal of the smallest rate, where no bounds are public
_SMALLEST = (
    2.0**-20
)  # smallest rate where the target's bounds begin at 0, over the largest response
_UNIT = 1 / 8  # rate whose logarithm is 0 in mapped units, over the largest response


def tweedie_deviance(y: Array, mean: Array, power: float) -> Array:
    """Return the deviance of each response from its mean, above 0, for a variance of
    ``mean^power``.
    """
    if power == 1:
        return np.asarray(2 * (xlogy(y, y / mean) - y + mean))
    if power == 2:
        return np.asarray(2 * (y / mean - 1 - np.log(y / mean)))
    first = 1 - power
    second = 2 - power
    return np.asarray(
        2 * (y**second / (first * second) - y * mean**first / first + mean**second / second)
    )


@with_parameters
class PrivateRateRegressor(LinearConfidenceIntervals, PrivateLinearRegressor):
    """Base of regressions of the logarithm of a mean; subclasses give the power of the variance
    (``_variance_power``).

    Parameters
    ----------
    target_bounds : pair (low, high), optional
        Public range of the response, from 0 or above; larger responses count as ``high``. Without
        it responses count up to 2^40, and 'gradient' finds their scale privately; other mechanisms
        need it.
    rate_bounds : pair (low, high), optional
        Public range of means in which the deviance is exact; beyond, it is continued along its
        tangent, and predictions end there. By default up to twice the largest response, and down to
        the smallest one or 2^-20 of the largest.

    Attributes
    ----------
    coef_, intercept_
        Of the logarithm of the mean: a column that is larger by 1 multiplies it by ``exp(coef_)``.
    """

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None
    rate_bounds: tuple[float, float] | None = None

    def _variance_power(self) -> float:
        raise AttributeError(f"{type(self).__name__} does not say its power.")

    def _public_facts(self, privacy_unit: PersonUnit, n_features: int) -> FitRequest:
        facts = super()._public_facts(privacy_unit, n_features)
        owner = type(self).__name__
        raw = facts.parameters["target_bounds"] is None
        low, high = (1 / _RAW, _RAW) if raw else facts.parameters["target_bounds"]
        if low < 0:
            raise parameter_error(
                "target_bounds",
                owner,
                "a pair (low, high) of at least 0",
                repr(self.target_bounds),
                "A response with a log link is not negative.",
            )
        given = resolve_bounds_setting("rate_bounds", self.rate_bounds, None, owner)
        least, most = (
            (low if raw else max(low, _SMALLEST * high), 2 * high)
            if given is None
            else map(float, given)
        )
        if given is not None and not 1 / _RAW <= least < most <= 4 * _RAW:
            raise parameter_error(
                "rate_bounds", owner, "a pair (low, high) above 0", repr(self.rate_bounds)
            )
        unit = 1.0 if raw else _UNIT * high
        parameters = {**facts.parameters, "rate_bounds": [least, most]}
        return replace(facts, parameters=parameters, target_shift=0.0, target_scale=1 / unit)

    def _loss(self, facts: FitRequest) -> Tweedie:
        least, most = facts.parameters["rate_bounds"]
        _, high = facts.parameters["target_bounds"] or (0.0, _RAW)
        scale = facts.target_scale
        return Tweedie(
            self._variance_power(), math.log(least * scale), math.log(most * scale), high * scale
        )

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        return {
            **super()._stated(certificate, facts),
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (certificate.bounds.loss, self._loss(facts)),
            "rate bounds": (
                certificate.parameters.get("rate_bounds"),
                facts.parameters["rate_bounds"],
            ),
        }

    def _plan(self, privacy_unit: PersonUnit, n_features: int) -> FitDecision:
        facts = self._public_facts(privacy_unit, n_features)
        owner = type(self).__name__
        loss = self._loss(facts)
        raw = facts.parameters["target_bounds"] is None
        if self.inference is not False:
            return self._interval_plan(facts, "rates", loss, {})
        request = replace(
            facts,
            task="rates",
            parameters={**facts.parameters, "problems": 1},
            bounds=facts.linear_bounds(loss),
            smooth_loss=loss,
            alpha=check_optional_positive("alpha", self.alpha, owner),
            raw_target=raw,
        )
        found = self.mechanism
        if not is_auto(found) and not resolve_mechanism(found, owner).is_for("rates"):
            raise self._refusal(found)
        decision = decide_fit(found, request)
        # Other powers round twice where slopes are not those of the core.
        fine = loss.power in (1.0, 1.5, 2.0)
        if not decision.mechanism.takes_rows and (raw or not fine):
            raise self._refusal(decision.mechanism.name)
        return decision

    def _refusal(self, mechanism: object) -> ValueError:
        return ValueError(
            f"{type(self).__name__} offers the mechanism 'gradient', and with 'target_bounds' and "
            "a power of 1, 1.5 or 2 also 'objective' and 'output', which have pure epsilon-DP. Got "
            f"{mechanism!r} instead. Give target_bounds, or a delta above 0."
        )

    @staticmethod
    def _in_user_units(coefficients: list[Array], plan: FitDecision) -> tuple[Array, Array]:
        assert plan.row_map is not None
        found = [plan.row_map.to_user_units(theta) for theta in coefficients]
        return np.array([coef for coef, _ in found]), np.array(
            [each for _, each in found]
        ) - math.log(plan.target_scale)

    def predict(self, X: object) -> NDArray[np.float64]:
        """Return means ``exp(X @ coef_ + intercept_)``, within ``rate_bounds``, of shape
        (n_samples,).
        """
        logs = self._linear(X)
        low, high = self.certificate_.parameters["rate_bounds"]
        return np.exp(np.clip(logs, math.log(low), math.log(high)))

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return D², the share of the deviance that the model explains: 0 as good as a constant,
        1 is perfect.
        """
        return float(
            d2_tweedie_score(
                y, self.predict(X), power=self._variance_power(), sample_weight=sample_weight
            )
        )

    def _summary_facts(self) -> list[tuple[str, str]]:
        low, high = self.certificate_.parameters["rate_bounds"]
        return [("means", f"from {low:.4g} to {high:.4g}"), *linear_shrinkage_facts(self.released_)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


@with_parameters
class DPPoissonRegressor(PrivateRateRegressor):
    r"""Counts by a linear model of the logarithm of their mean, under differential privacy.

    Estimates the minimiser of ``(1/n) sum_i w_i (exp(z_i) - y_i z_i) + (alpha/2) ||theta||^2`` with
    ``z_i = x_i . theta``, half the Poisson deviance: for any response of at least 0 whose mean is
    log-linear. The default 'gradient' clips slopes ``exp(z) - y`` at a multiple of released scales
    that opens as n grows.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPPoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> y = rng.poisson(np.exp(1 + X @ [1.0, -0.5]))
    >>> model = DPPoissonRegressor(
    ...     epsilon=1.0, feature_bounds=(-1, 1), target_bounds=(0, 50), random_state=0
    ... )
    >>> model.fit(X, y).coef_.round(1)
    array([ 1. , -0.5])
    """

    def _variance_power(self) -> float:
        return 1.0

    def predict_quantile(self, X: object, quantile: float) -> NDArray[np.float64]:
        """Return quantiles of Poisson counts with the predicted means: orders where demand is
        Poisson.

        The newsvendor's order is that at ``underage_cost / (underage_cost + overage_cost)``.
        """
        level = check_share("quantile", f"{type(self).__name__}.predict_quantile", quantile)
        return np.asarray(poisson.ppf(level, self.predict(X)), dtype=np.float64)


@with_parameters
class DPGammaRegressor(PrivateRateRegressor):
    r"""Costs, times and other responses above 0 by a linear model of the logarithm of their mean.

    Estimates the minimiser of ``(1/n) sum_i w_i (y_i exp(-z_i) + z_i) + (alpha/2) ||theta||^2``
    with ``z_i = x_i . theta``, half the Gamma deviance: the spread of responses is proportional to
    their mean.

    Examples
    --------
    >>> from dpconvex import DPGammaRegressor
    >>> model = DPGammaRegressor(epsilon=1.0, feature_bounds=(0, 1), target_bounds=(10, 5000))
    >>> model.certify(n_samples=10_000, n_features=3).bounds.loss.power
    2.0
    """

    def _variance_power(self) -> float:
        return 2.0


@with_parameters
class DPTweedieRegressor(PrivateRateRegressor):
    r"""Responses with zeros and large values, such as claims, by a linear model of the logarithm of
    their mean.

    Estimates the minimiser of the mean half deviance of a variance proportional to ``mean^power``,
    with ``p = power``: ``(1/n) sum_i w_i (exp((2-p) z_i) / (2-p) - y_i exp((1-p) z_i) / (1-p)) +
    (alpha/2) ||theta||^2``.

    Parameters
    ----------
    power : float, default=1.5
        From 1 (Poisson) to 2 (Gamma); beyond 2 the loss of a log link is not convex.

    Examples
    --------
    >>> from dpconvex import DPTweedieRegressor
    >>> model = DPTweedieRegressor(
    ...     power=1.5, epsilon=1.0, feature_bounds=(0, 1), target_bounds=(0, 5000)
    ... )
    >>> model.certify(n_samples=10_000, n_features=3).guarantee
    ApproxDP(epsilon=1.0, delta=1e-06)
    """

    power: float = 1.5

    def _variance_power(self) -> float:
        allowed = "a number from 1 to 2: beyond, the loss of a log link is not convex"
        return check_number(
            "power", type(self).__name__, self.power, allowed, 1, math.nextafter(2, 3)
        )
