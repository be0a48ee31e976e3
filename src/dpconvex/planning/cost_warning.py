"""A warning, from public facts alone, that privacy will cost more than the columns can bring."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from dpconvex.core import certificate as certificates
from dpconvex.core.guarantees import ApproxDP, GaussianDP
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.fit.fit_plan import FitConfig, fit_kind_of_loss, gaussian_budget, plan_fit
from dpconvex.mechanisms.mechanism import certified_kind
from dpconvex.mechanisms.private_fit import PrivateFitMechanism, PrivateFitSettings
from dpconvex.risk.excess_risk import descent_excess

# Lost share of what columns bring, in the reference populations, beyond which noise alone costs as
# much as all of it.
_MOST_LOST = math.sqrt(0.5)
_LITTLE_LOST = 0.4  # may be lost where more rows or budget are said to do
_MOST_OCTAVES = 40  # by which rows or budget are raised
_LARGEST_MU = 40.0  # that is recommended


class PrivacyCostWarning(certificates.PrivacyWarning):
    """Noise is expected to hide most of what the columns could tell."""


class UnboundedColumnsWarning(PrivacyCostWarning):
    """No bounds were given, so that columns are taken to be of order 1."""


def warn_of_privacy_cost(certificate: certificates.Certificate, settings: object = None) -> None:
    """Warn where a fit will gain little over a private constant, has no bounds of its columns,
    or promises little.

    ``settings`` are those that were decided with the certificate; without them, those it states.
    """
    unbounded, generous = certificates.certified_problems(certificate)
    if unbounded is not None:
        warnings.warn(unbounded, UnboundedColumnsWarning, stacklevel=6)
    if generous is not None:
        warnings.warn(generous, certificates.LargeDeltaWarning, stacklevel=6)
    bounds = certificate.bounds
    guarantee = certificate.guarantee
    parameters = certificate.parameters
    private_fit = certified_kind(certificate) is PrivateFitMechanism
    if not private_fit or fit_kind_of_loss(bounds.loss) == "smooth":
        return  # nothing is predicted of others
    if not isinstance(settings, PrivateFitSettings):
        settings = PrivateFitMechanism().stated_settings(certificate)
    if _lost_share(bounds, settings.config, certificate.noise) <= _MOST_LOST:
        return
    problems = parameters.get("problems", 1)
    stated = dict(PrivateFitMechanism.stated_choices(certificate))
    stated["inference"] = parameters.get("inference", False)
    mu = gaussian_budget(guarantee, "NoisyGradientDescent") / math.sqrt(problems)

    def lost(more_rows: float, more_budget: float) -> float:
        facts = replace(bounds, n_samples=round(more_rows * bounds.n_samples))
        budget = more_budget * mu
        plan = plan_fit(facts, budget, stated)
        return _lost_share(facts, plan.config, plan.calibrated_noise(facts, budget))

    # Columns of real tables are less even than those of the reference populations: twice as many
    # records do.
    rows = 2 * bounds.n_samples * _cost_growth_factor(lambda factor: lost(factor, 1.0))
    more = 2 * math.sqrt(problems) * mu * _cost_growth_factor(lambda factor: lost(1.0, factor))
    unit = bounds.counted
    budget = ""
    if more < _LARGEST_MU:  # for a few rows no budget does
        budget = f", or mu of {more:.2g},"
        if isinstance(guarantee, ApproxDP):
            budget = f", or epsilon of {GaussianDP(more).epsilon(guarantee.delta_bound):.2g},"
    warnings.warn(
        f"Privacy will cost more than {bounds.n_features} columns can bring at "
        f"{bounds.n_samples:,} {unit}: the fit will predict nearly the same value for every row. "
        f"About {float(f'{rows:.2g}'):,.0f} {unit}{budget} would do; so would fewer columns.",
        PrivacyCostWarning,
        stacklevel=6,
    )


def _lost_share(
    bounds: LinearBounds, config: FitConfig, terms: Mapping[str, certificates.CertifiedNoise]
) -> float:
    """Return the predicted excess over that of a constant, for a middling residual scale."""
    excess, constant = descent_excess(bounds, config, terms)
    # With a single coefficient a constant is as good.
    return float(np.median(excess / constant)) if constant.all() else 0.0


def _cost_growth_factor(lost: Callable[[float], float]) -> float:
    """Return by how much a number must grow for little enough to be lost, to an eighth of an
    octave.
    """
    low = -1.0
    high = 0.0
    while high < _MOST_OCTAVES and lost(2.0**high) > _LITTLE_LOST:
        low = high
        high = high + 1
    for _ in range(3):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(2.0**middle) > _LITTLE_LOST else (low, middle)
    return float(max(1.0, 2.0**high))
