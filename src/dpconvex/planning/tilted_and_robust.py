r"""What tilted, robust and top-rank models choose: output perturbation, their only release, and the best penalty.

The reference population is that of :mod:`dpconvex.planning.forecast_classification`: an intercept and ``d`` features of
second moment ``v = r U^2 / d`` (``r`` of 1/4, 1/16 and 1/64), margins of a given variance and a loss of a given mean
curvature. The minimiser errs by the penalty, by the wall that bounds it and by the noise; a robust model also loses
what the noise adds to the dual norm of its coefficients, which an adversary takes from every margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.planning.forecast_classification import CURVATURE, SPREADS
from dpconvex.privacy.bounds.robust import RobustBounds
from dpconvex.privacy.bounds.tilted import TiltedBounds
from dpconvex.privacy.bounds.top_rank import TopRankBounds
from dpconvex.privacy.bounds.worst_share import WorstShareBounds
from dpconvex.privacy.certificates.rules import Parameters, calibrate
from dpconvex.privacy.guarantees import Guarantee

__all__ = [
    "WALLS",
    "only_output",
    "resolve_loss",
    "robust_penalty",
    "tilted_penalty",
    "top_rank_penalty",
    "worst_share_penalty",
]

_ALPHAS = np.geomspace(1e-5, 30.0, 60)
WALLS: tuple[float | None, ...] = (None, 0.5, 1.0, 2.0, 4.0, 8.0)
_SCORE_NOISE = 0.05  # of a row at the bound, where only the order of scores counts
_MEAN_SLOPE = 0.3  # of the logistic loss over a population that it fits moderately well


def only_output(mechanism: object, owner: str) -> OutputPerturbation:
    """Return the output perturbation that ``mechanism`` stands for, or raise."""
    if isinstance(mechanism, OutputPerturbation):
        return mechanism
    if isinstance(mechanism, str) and mechanism in ("auto", "output"):
        return OutputPerturbation()
    raise ValueError(
        f"The 'mechanism' parameter of {owner} must be 'auto', 'output' or an OutputPerturbation object: its objective "
        f"is no sum of rank-one records. Got {mechanism!r} instead."
    )


def resolve_loss(loss: Any, named: Mapping[str, PointwiseLoss], kind: str, owner: str) -> PointwiseLoss:
    """Return the smooth loss that a name or object stands for, or raise."""
    if isinstance(loss, str) and loss in named:
        return named[loss]
    fits = getattr(loss, "kind", None) == kind and hasattr(loss, "value")
    if fits and math.isfinite(loss.smoothness) and math.isfinite(loss.lipschitz):
        return cast(PointwiseLoss, loss)
    raise ValueError(
        f"The 'loss' parameter of {owner} must be one of {list(named)} or a smooth {kind} loss of bounded slope. "
        f"Got {loss!r} instead. Smooth a kinked loss with convolve(loss, kernel, bandwidth)."
    )


def tilted_penalty(
    bounds: TiltedBounds,
    guarantee: Guarantee,
    parameters: Parameters,
    alpha: float | None = None,
    curvature: float = CURVATURE,
    margin_variance: float = 2.0,
) -> tuple[float, float | None, float]:
    """Return the penalty and the wall with the smallest predicted risk, and that risk.

    Parameters
    ----------
    bounds : TiltedBounds
        Public facts; ``alpha`` in it is ignored, and ``coef_bound`` kept if it is given.
    guarantee : Guarantee
        Budget.
    parameters : mapping
        The mechanism's public parameters.
    alpha : float, optional
        Fixed by the user.
    curvature, margin_variance : float
        Of the reference population's loss, and of its best predictions.

    Returns
    -------
    alpha, coef_bound, risk : float, float or None, float
    """
    unit = _noise_per_sensitivity(bounds, guarantee, parameters)
    alphas = _ALPHAS if alpha is None else np.array([alpha])
    walls = WALLS if bounds.coef_bound is None else (bounds.coef_bound,)
    best: tuple[float, float | None, float] | None = None
    for wall in walls:
        known = [replace(bounds, alpha=float(a), coef_bound=wall) for a in alphas]
        stds = unit * np.array([facts.minimiser_sensitivity() for facts in known])
        limits = np.array([facts.radius for facts in known])
        risks = _excess(bounds, alphas, stds, limits, curvature, margin_variance)
        index = int(np.argmin(risks))
        if best is None or risks[index] < best[2]:
            best = float(alphas[index]), wall, float(risks[index])
    assert best is not None
    return (_rounded(best[0]) if alpha is None else alpha), best[1], best[2]


def worst_share_penalty(
    bounds: WorstShareBounds,
    guarantee: Guarantee,
    parameters: Parameters,
    alpha: float | None = None,
    curvature: float = CURVATURE,
    margin_variance: float = 2.0,
) -> tuple[float, float]:
    """Return the penalty with the smallest predicted risk, and that risk; parameters as in :func:`tilted_penalty`."""
    unit = _noise_per_sensitivity(bounds, guarantee, parameters)
    alphas = _ALPHAS if alpha is None else np.array([alpha])
    known = [replace(bounds, alpha=float(a)) for a in alphas]
    stds = unit * np.array([facts.minimiser_sensitivity() for facts in known])
    limits = np.array([facts.radius for facts in known])
    risks = _excess(bounds, alphas, stds, limits, curvature, margin_variance)
    index = int(np.argmin(risks))
    return (_rounded(float(alphas[index])) if alpha is None else alpha), float(risks[index])


def top_rank_penalty(bounds: TopRankBounds, guarantee: Guarantee, parameters: Parameters) -> float:
    """Return the smallest penalty at which noise moves the score of a row by no more than 1/20.

    Only the order of scores counts. A larger penalty makes them all smaller and the noise with them, but for what the
    sensitivity owes to long coefficients; it makes less of the top, as all records then are near the same score.
    """
    unit = _noise_per_sensitivity(bounds, guarantee, parameters)
    reach = unit * bounds.row_norm * math.sqrt(bounds.n_features)
    alphas = np.geomspace(1e-5, 1e5, 200)
    for alpha in map(float, alphas):
        if reach * replace(bounds, alpha=alpha).minimiser_sensitivity() <= _SCORE_NOISE:
            break
    return _rounded(alpha)


def robust_penalty(
    bounds: RobustBounds,
    guarantee: Guarantee,
    parameters: Parameters,
    alpha: float | None = None,
    curvature: float = CURVATURE,
    margin_variance: float = 2.0,
) -> tuple[float, float]:
    """Return the penalty with the smallest predicted robust risk, and that risk.

    Noise of standard deviation t per coordinate adds about ``radius d t sqrt(2/pi)`` (``linf``; what a threshold takes
    away again it also takes from the signal) or ``radius t sqrt(d) / 2`` (``l2``) to what an adversary takes from a
    margin; a mean slope turns it into loss.

    Parameters
    ----------
    bounds : RobustBounds
        Public facts; ``alpha`` in it is ignored.
    guarantee, parameters, alpha, curvature, margin_variance
        As in :func:`tilted_penalty`.
    """
    unit = _noise_per_sensitivity(bounds, guarantee, parameters)
    alphas = _ALPHAS if alpha is None else np.array([alpha])
    known = [_with_alpha(bounds, float(a)) for a in alphas]
    feasible = np.array([facts is not None for facts in known])
    if not feasible.any():
        replace(bounds, alpha=float(alphas[-1]))  # raises, and says what is wrong
    alphas = alphas[feasible]
    facts_of = [facts for facts in known if facts is not None]
    stds = unit * np.array([facts.minimiser_sensitivity() for facts in facts_of])
    free = np.full(alphas.size, math.inf)
    risks = _excess(bounds, alphas, stds, free, curvature, margin_variance)
    d = bounds.n_features
    growth = d * math.sqrt(2 / math.pi) if bounds.norm == "linf" else math.sqrt(d) / 2
    reach = np.array([bounds.radius if f.cost is None else f.adversary_reach for f in facts_of])
    risks = risks + _MEAN_SLOPE * reach * growth * stds
    index = int(np.argmin(risks))
    return (_rounded(float(alphas[index])) if alpha is None else alpha), float(risks[index])


def _with_alpha(bounds: RobustBounds, alpha: float) -> RobustBounds | None:
    """Return the facts with this penalty, or None where a cost is too small for it."""
    try:
        return replace(bounds, alpha=alpha)
    except ValueError:
        return None


def _noise_per_sensitivity(
    bounds: TiltedBounds | WorstShareBounds | TopRankBounds | RobustBounds, guarantee: Guarantee, parameters: Parameters
) -> float:
    """Return the noise per coefficient for a sensitivity of 1: it is proportional to the sensitivity."""
    facts = replace(bounds, alpha=100.0)  # no cost of interest is too small for it
    calibration = calibrate("output", facts, guarantee, parameters)
    size = calibration.noise["release"].spread
    return size / facts.minimiser_sensitivity(calibration.solver_tolerance)


def _excess(
    bounds: TiltedBounds | WorstShareBounds | RobustBounds,
    alphas: NDArray[np.float64],
    stds: NDArray[np.float64],
    limits: NDArray[np.float64],
    curvature: float,
    margin_variance: float,
) -> NDArray[np.float64]:
    """Return the predicted excess risk for each penalty, a geometric mean over feature spreads."""
    influence = min(bounds.row_norm, bounds.max_norm)
    d = bounds.n_features
    v = (SPREADS * influence**2 / d)[None, :]
    alpha, std, limit = alphas[:, None], stds[:, None], limits[:, None]
    length = np.sqrt(margin_variance / v)  # of the best coefficients, intercept apart
    shrunk = np.maximum(alpha / (curvature * v + alpha), 1 - limit / length)
    bias = margin_variance * shrunk**2 + (alpha / (curvature + alpha)) ** 2
    noise = (d * v + 1) * std**2
    return np.asarray(np.exp(np.log(curvature / 2 * (bias + noise)).mean(axis=1)))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
