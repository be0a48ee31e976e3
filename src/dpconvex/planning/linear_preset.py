"""The penalty of output perturbation for any linear model, by a bound on its excess risk."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpconvex.planning.forecast_quantile import rounded_up
from dpconvex.planning.forecast_quantile_output import noise_std
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import calibrate
from dpconvex.privacy.guarantees import Guarantee

__all__ = ["OutputPreset", "linear_preset"]


@dataclass(frozen=True)
class OutputPreset:
    """What a theorem prescribes for output perturbation.

    Attributes
    ----------
    theorem : str
        Which one.
    alpha : float
        Penalty to add: ``lambda``, or the problem's own strong convexity.
    accuracy : float
        Gap ``F(w) - min F`` at which the solver may stop.
    excess_risk : float
        The theorem's bound on the expected excess risk (population loss for the propositions).
    nontrivial : bool
        Whether the theorem's condition holds; without it the bound exceeds ``L R``, what any fixed answer achieves.
    """

    theorem: str
    alpha: float
    accuracy: float
    excess_risk: float
    nontrivial: bool


def linear_preset(bounds: LinearBounds, guarantee: Guarantee, radius: float) -> OutputPreset:
    r"""Return the penalty that minimises a bound on the excess risk of a generalised linear model, dimension free.

    A record sees the noise through its own row only, so noise of standard deviation t per coordinate adds at most
    ``beta t^2 / 2`` (smooth losses: beta bounds the trace of a record's Hessian) and at most ``L t sqrt(2/pi)`` to the
    expected loss; the penalty adds ``alpha radius^2 / 2`` against the best coefficients in the ball. The paper's bounds
    have a factor d or sqrt(d) in the place of these.

    Parameters
    ----------
    bounds : LinearBounds
        Public facts; ``alpha`` in it is ignored.
    guarantee : PureDP, ApproxDP or GaussianDP
        Budget.
    radius : float
        Public norm of the coefficients to compete with.

    Returns
    -------
    OutputPreset
        ``accuracy`` is the gap that the default tolerance implies.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP
    >>> bounds = LinearBounds(100_000, 20, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> linear_preset(bounds, ApproxDP(1.0, 1e-6), radius=2.0).alpha
    0.00155
    """
    alphas = np.geomspace(1e-8, 10.0, 400)
    stds = np.array([noise_std(replace(bounds, alpha=float(a)), guarantee) for a in alphas])
    noise = bounds.lipschitz * stds * math.sqrt(2 / math.pi)
    if math.isfinite(bounds.smoothness):
        noise = np.minimum(noise, bounds.smoothness * stds**2 / 2)
    risks = alphas * radius**2 / 2 + noise
    best = int(np.argmin(risks))
    alpha, trivial = rounded_up(float(alphas[best])), bounds.lipschitz * radius
    tolerance = calibrate("output", replace(bounds, alpha=alpha), guarantee, {}).solver_tolerance
    return OutputPreset(
        theorem="trace bound for generalised linear models",
        alpha=alpha,
        accuracy=tolerance**2 / (2 * alpha),
        excess_risk=float(risks[best]),
        nontrivial=bool(risks[best] < trivial),
    )
