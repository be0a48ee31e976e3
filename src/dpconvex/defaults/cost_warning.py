"""A warning, from public facts alone, that privacy will cost more than the columns can bring."""

from __future__ import annotations

import math
import warnings

from dpconvex.mechanisms.gradient import total_mu
from dpconvex.mechanisms.gradient_plan import plan_gradient
from dpconvex.mechanisms.private_descent import expected_wander
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP

__all__ = ["PrivacyCostWarning", "warn_of_cost"]


_CLEAR = 5.0


class PrivacyCostWarning(UserWarning):
    """Noise is expected to hide most of what the columns could tell."""


def warn_of_cost(certificate: Certificate) -> None:
    """Warn where a fit will keep little more than a private constant.

    Parameters
    ----------
    certificate : Certificate
        Of a fit that is about to run; nothing else is looked at.
    """
    if certificate.mechanism != "gradient" or certificate.parameters["gradient"].get("ranking"):
        return
    bounds, guarantee = certificate.bounds, certificate.guarantee
    mu = total_mu(guarantee, "NoisyGradientDescent")
    mu /= math.sqrt(certificate.parameters.get("problems", 1))
    plan = plan_gradient(bounds, mu, certificate.parameters["gradient"])
    # Rows are as long and coordinates as white as could be: most tables fare better, so only a clear excess is said.
    excess = expected_wander(plan, bounds, mu) / _CLEAR
    if excess <= 1:
        return
    # What noise does shrinks with the square of both, a little faster while more of the budget goes to columns.
    factor = math.sqrt(excess)
    rows = float(f"{bounds.n_samples * factor:.2g}")
    budget = f"mu of {mu * factor:.2g}"
    if isinstance(guarantee, ApproxDP):
        budget = f"epsilon of {GaussianDP(mu * factor).epsilon(guarantee.delta_bound):.2g}"
    warnings.warn(
        f"Privacy will cost more than {bounds.n_features} columns can bring at {bounds.n_samples:,} rows: the fit will "
        f"stay near a private constant. About {rows:,.0f} rows, or {budget}, would do; so would fewer columns.",
        PrivacyCostWarning,
        stacklevel=6,
    )
