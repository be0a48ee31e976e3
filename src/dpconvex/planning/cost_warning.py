"""A warning, from public facts alone, that privacy will cost more than the columns can bring."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dpconvex.fit.config import kind_of, total_mu
from dpconvex.planning.forecast_classification import predicted_gradient_risk
from dpconvex.planning.forecast_linear import linear_excess
from dpconvex.planning.forecast_logistic import CONSTANT_EXCESS
from dpconvex.planning.forecast_quantile import RESIDUAL_SCALES, SPREAD
from dpconvex.planning.forecast_quantile_descent import lost_to_a_constant
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.concerns import LargeDeltaWarning, PrivacyWarning, large_delta, unbounded_columns
from dpconvex.privacy.certificates.rules import Parameters
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP

__all__ = ["PrivacyCostWarning", "UnboundedColumnsWarning", "warn_of_cost"]

# Share of what columns bring in the reference populations; there noise alone costs as much as all of it.
_MOST = math.sqrt(0.5)
_LITTLE = 0.4  # of it may be lost where more rows or budget are said to do
_MOST_OCTAVES = 40  # by which rows or budget are looked at
_LARGEST_MU = 40.0  # that is recommended


class PrivacyCostWarning(PrivacyWarning):
    """Noise is expected to hide most of what the columns could tell."""


class UnboundedColumnsWarning(PrivacyCostWarning):
    """No bounds were given, so that columns are taken to be of order 1."""


def warn_of_cost(certificate: Certificate) -> None:
    """Warn where a fit will keep little more than a private constant, knows nothing of its columns, or promises little.

    Parameters
    ----------
    certificate : Certificate
        Of a fit that is about to run; nothing else is looked at.
    """
    unbounded = unbounded_columns(certificate)
    if unbounded is not None:
        warnings.warn(unbounded, UnboundedColumnsWarning, stacklevel=6)
    generous = large_delta(certificate)
    if generous is not None:
        warnings.warn(generous, LargeDeltaWarning, stacklevel=6)
    bounds, guarantee = certificate.bounds, certificate.guarantee
    settings = certificate.parameters.get("gradient", {})
    if certificate.mechanism != "gradient":
        return
    problems = certificate.parameters.get("problems", 1)
    mu = total_mu(guarantee, "NoisyGradientDescent") / math.sqrt(problems)
    if _lost(bounds, mu, settings) <= _MOST:
        return
    # Columns of real tables are less even than those of the reference populations: twice as many records do.
    growth = _factor(lambda f: _lost(replace(bounds, n_samples=round(f * bounds.n_samples)), mu, settings))
    rows, unit, budget = 2 * growth * bounds.n_samples, bounds.counted, ""
    more = 2 * math.sqrt(problems) * mu * _factor(lambda f: _lost(bounds, f * mu, settings))
    if more < _LARGEST_MU:  # for a few rows no budget does
        budget = f", or mu of {more:.2g},"
        if isinstance(guarantee, ApproxDP):
            budget = f", or epsilon of {GaussianDP(more).epsilon(guarantee.delta_bound):.2g},"
    warnings.warn(
        f"Privacy will cost more than {bounds.n_features} columns can bring at {bounds.n_samples:,} {unit}: the fit "
        f"will predict nearly the same value for every row. About {float(f'{rows:.2g}'):,.0f} {unit}{budget} "
        "would do; so would fewer columns.",
        PrivacyCostWarning,
        stacklevel=6,
    )


def _lost(bounds: LinearBounds, mu: float, settings: Parameters) -> float:
    """Return the predicted excess over that of a constant, in the reference population of the loss."""
    kind = kind_of(bounds.loss)
    if kind == "margin":
        return predicted_gradient_risk(bounds, GaussianDP(mu), settings, 1) / CONSTANT_EXCESS
    if kind == "squares":
        excess, constant = (
            linear_excess(name, bounds, GaussianDP(mu), 1 / SPREAD, RESIDUAL_SCALES)
            for name in ("gradient", "constant")
        )
        return float(np.median(excess / constant))
    if kind == "quantile":
        return lost_to_a_constant(bounds, mu, settings)
    return 0.0  # a loss with a scale of its own: nothing is predicted


def _factor(lost: Callable[[float], float]) -> float:
    """Return by how much a number must grow for little enough to be lost, to an eighth of an octave."""
    low, high = -1.0, 0.0
    while high < _MOST_OCTAVES and lost(2.0**high) > _LITTLE:
        low, high = high, high + 1
    for _ in range(3):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(2.0**middle) > _LITTLE else (low, middle)
    return max(1.0, 2.0**high)
