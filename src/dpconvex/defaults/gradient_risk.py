r"""Predicted risk of quantile regression by noisy gradient descent.

The reference population is that of :mod:`dpconvex.defaults.quantile_risk`. The averaged iterate errs like one Gaussian
release of the gradient at the optimum: noise of the moving and of the constant part over the curvature, with no
penalty to pay. Private geometry makes every second moment 1; without it features keep the reference's 1/16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpconvex.defaults.quantile_risk import RESIDUAL_SCALES, mean_excess, predicted_excess
from dpconvex.mechanisms.gradient import NARROW, total_mu
from dpconvex.mechanisms.gradient_plan import descent_noise, plan_gradient
from dpconvex.mechanisms.private_descent import BANDWIDTH_SHARE
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.smoothing import Kernel


def predicted_gradient_excess(
    quantile: float,
    kernel: Kernel,
    bounds: LinearBounds,
    guarantee: Guarantee,
    settings: Mapping[str, Any],
) -> float:
    """Return the predicted relative excess risk, as a geometric mean over residual scales.

    Parameters
    ----------
    quantile, kernel : float, Kernel
        The loss and its smoothing.
    bounds : LinearBounds
        Public facts.
    guarantee : ApproxDP or GaussianDP
        Budget.
    settings : mapping
        :meth:`NoisyGradientDescent.settings`.
    """
    mu = total_mu(guarantee, "NoisyGradientDescent")
    plan = plan_gradient(bounds, mu, settings)
    bandwidth: Any = settings["bandwidth"]
    if bandwidth is None:
        bandwidth = BANDWIDTH_SHARE * RESIDUAL_SCALES if plan.course.private else NARROW
    excess = predicted_excess(
        quantile,
        kernel,
        bandwidth,
        1e-12,
        descent_noise(plan, bounds, mu),
        bounds.dimension,
        1.0 if plan.course.private else 1 / 16,
        RESIDUAL_SCALES,
    )
    return float(mean_excess(excess))
