"""Confidence intervals of coefficients: when they are offered, what they are planned as, how they are read off."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import check_number
from dpconvex.estimators.base import Stated
from dpconvex.estimators.linear import PrivateLinearModel, PublicFacts
from dpconvex.estimators.parameters import estimator
from dpconvex.fit.config import kind_of
from dpconvex.losses import Logistic, Pinball
from dpconvex.mechanisms.gradient import NoisyGradientDescent
from dpconvex.mechanisms.plan import Plan
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import GaussianDP, Guarantee, PureDP
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["WithIntervals"]

# Records per coefficient that noise must leave, n mu / (columns and intercept), by the kind of the loss: squares have a
# curvature that is known up to the limits of residuals.
ENOUGH = {"squares": 50.0, "margin": 100.0, "quantile": 100.0}
_FARTHEST = 0.05  # level of a quantile; beyond, intervals held 90 % in place of 95 %
_COMMON = 0.09  # q (1 - q) below which a level q needs more: the farther out, the fewer residuals tell a density


@estimator
class WithIntervals(PrivateLinearModel):
    """What estimators share that can pay for intervals of their coefficients."""

    _: KW_ONLY
    inference: bool = False

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> Stated:
        return {
            **super()._stated(certificate, facts),
            "inference": (certificate.parameters.get("inference", False), self.inference),
        }

    def _interval_plan(self, facts: PublicFacts, loss: Logistic | Pinball, own: Facts) -> Plan:
        """Return the plan of a private fit with intervals."""
        level = loss.quantile if isinstance(loss, Pinball) else 0.5
        if not _FARTHEST <= level <= 1 - _FARTHEST:
            raise ValueError(
                f"The 'quantile' parameter of {type(self).__name__} must lie between {_FARTHEST:g} and "
                f"{1 - _FARTHEST:g} with inference=True: farther out too few residuals tell how precise it is. Got "
                f"{level:g} instead."
            )
        rare = max(1.0, _COMMON / (level * (1 - level))) ** 2
        self._check_inference(facts, kind_of(loss), own.get("problems", 1), rare)
        if self.mechanism != "auto":
            raise ValueError(
                f"The 'mechanism' parameter of {type(self).__name__} must be 'auto' with inference=True, which has one "
                f"of its own. Got {self.mechanism!r} instead."
            )
        mechanism, seeded = NoisyGradientDescent(), self.random_state is not None
        row_map = mechanism.mapped(facts.row_map)
        bounds = facts.linear_bounds(loss, 0.0, self.neighbors)
        bounds = replace(bounds, max_norm=row_map.max_norm)
        settings = mechanism.settings()
        if isinstance(loss, Pinball) and facts.parameters["target_bounds"] is None:
            settings["raw_target"] = True
        parameters = {**facts.parameters, **own, "gradient": settings, "inference": True}
        certificate = mechanism.certify(bounds, facts.guarantee, parameters, seeded=seeded)
        return Plan(mechanism, certificate, row_map, facts.target_shift, facts.target_scale)

    def _check_inference(self, facts: PublicFacts, kind: str, problems: int = 1, rare: float = 1.0) -> None:
        """Raise where intervals are not offered: by public facts alone, before anything is charged."""
        owner = type(self).__name__
        if self.inference is not True:
            raise TypeError(
                f"The 'inference' parameter of {owner} must be True or False. Got {self.inference!r} instead."
            )
        facts.records.require_rows(f"{owner}.fit with inference=True", "rows must be independent of each other")
        for name in ("alpha", "coef_bound", "bandwidth"):
            if getattr(self, name, None) is not None:
                raise ValueError(
                    f"The '{name}' parameter of {owner} must be None with inference=True: intervals are about "
                    f"coefficients without it. Got {getattr(self, name)!r} instead."
                )
        if isinstance(facts.guarantee, PureDP):
            raise ValueError(
                f"The 'inference' parameter of {owner} needs Gaussian DP or a delta above 0, whose noise it is planned "
                "with. Give delta or mu, or leave it at False."
            )
        size = facts.row_map.dim
        _check_enough(facts.n_samples, size, ENOUGH[kind] * rare, facts.guarantee, problems)

    def _store(self, coefficients: list[Array], plan: Plan) -> None:
        super()._store(coefficients, plan)
        for record in self.released_.get("problems", [self.released_]):
            covariance = record.pop("covariance", None)
            if covariance is None:
                continue
            # The map to the user's units is affine: its matrix is what it does to unit vectors.
            units = np.vstack([np.zeros(len(covariance)), np.eye(len(covariance))])
            found = self._in_user_units(list(units), plan)
            rows = np.array([np.append(coef, intercept) for coef, intercept in found])
            jacobian = rows[1:] - rows[0]
            record["covariance"] = jacobian.T @ np.asarray(covariance) @ jacobian

    def confidence_interval(self, level: float = 0.95) -> Array:
        """Return intervals of the coefficients that cover sampling and privacy noise.

        They are about the minimiser of the population's loss with the fit's own weights of rows, which are public once
        released: rows longer than a released length in released coordinates count less. Where the model holds for every
        row (the probability is logistic, the quantile linear, errors of least squares symmetric), weights change
        nothing, and the coefficients are those of the model.

        Parameters
        ----------
        level : float, default=0.95
            Probability that an interval holds its coefficient, over the draw of rows and noise, for large n.

        Returns
        -------
        array of the shape of ``coef_``, and (low, high)
            In the user's units.
        """
        check_is_fitted(self)
        owner = type(self).__name__
        level = check_number("level", owner, level, "a number between 0 and 1", 0, 1, low_open=True)
        spread = coefficient_spread(self)
        if spread is None:
            raise ValueError(
                f"{owner}.confidence_interval needs what a fit with inference=True pays for. Got a fit without it."
            )
        reach = float(norm.ppf((1 + level) / 2)) * spread
        return np.stack([self.coef_ - reach, self.coef_ + reach], axis=-1)

    def plot_coefficients(self, level: float = 0.95, ax: Axes | None = None) -> Axes:
        """Draw coefficients and intervals, as what columns do between their public bounds; needs matplotlib.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.
        ax : matplotlib axes, optional
            Where to draw.
        """
        from dpconvex.reports.coefficient_plot import plot_coefficients

        return plot_coefficients(self, level, ax)


def _check_enough(n_samples: int, size: int, each: float, guarantee: Guarantee, problems: int) -> None:
    mu, needed = guarantee.as_gaussian().mu / math.sqrt(problems), each * size
    if n_samples * mu >= needed:
        return
    rows, wanted = math.ceil(needed / mu), GaussianDP(needed / n_samples * math.sqrt(problems))
    budget = f"a mu of {wanted.mu:.3g}"
    if not isinstance(guarantee, GaussianDP):
        delta = guarantee.delta(math.inf)
        budget = f"an epsilon of {wanted.epsilon(delta):.3g} with a delta of {delta:.3g}"
    raise ValueError(
        f"Intervals are not available: {n_samples:,} rows and this budget leave too few records for {size} "
        f"coefficients, and nothing was charged. About {rows:,} rows would do, or {budget}."
    )


def coefficient_spread(model: object) -> Array | None:
    """Return the standard deviations of a model's coefficients, in their shape; None for a fit without intervals."""
    released, coef = getattr(model, "released_", {}), np.asarray(getattr(model, "coef_", ()))
    records = released.get("problems", [released]) if isinstance(released, dict) else []
    rows = np.atleast_2d(coef)
    if len(records) != len(rows) or any("covariance" not in record for record in records):
        return None
    found = []
    for record in records:
        covariance = np.asarray(record["covariance"], dtype=np.float64)
        if covariance.shape != (rows.shape[1] + 1,) * 2 or not np.isfinite(covariance).all():
            raise ValueError("The released covariance must be a finite matrix of the coefficients.")
        found.append(np.sqrt(np.maximum(np.diag(covariance)[:-1], 0.0)))
    return np.asarray(found).reshape(coef.shape)
