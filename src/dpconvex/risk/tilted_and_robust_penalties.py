r"""Penalties of tilted, robust and top-rank models, whose only mechanism is output perturbation.

The reference population is that of classes in :mod:`dpconvex.planning.excess_risk`, with a given
variance of margins and mean curvature of the loss. The minimiser errs by the penalty, by the wall
that bounds it and by the noise; a robust model also loses what the noise adds to the dual norm of
its coefficients, which an adversary takes from every margin.
"""

import itertools
import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from dpconvex.privacy.bounds.ranking import TopRankBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import (
    RobustBounds,
    TiltedBounds,
    WorstShareBounds,
)
from dpconvex.risk.excess_risk import CURVATURE, MARGIN_VARIANCE, penalised_excess

# Mean curvature and variance of the margins that are expected, by the kind of the loss: of
# residuals in mapped units, where targets fill [-1, 1].
_POPULATIONS = {"margin": (CURVATURE, MARGIN_VARIANCE), "residual": (0.7, 0.1)}
_ALPHAS = np.geomspace(1e-5, 30.0, 60)
WALLS: tuple[float | None, ...] = (
    None,
    0.5,
    1.0,
    2.0,
    4.0,
    8.0,
)  # bounds of a tilted model's coefficients
_SCORE_NOISE = 0.05  # of a row at the bound, where only the order of scores counts
_MEAN_SLOPE = 0.3  # of the logistic loss over a population that it fits moderately well

Penalised = TypeVar("Penalised", TiltedBounds, WorstShareBounds, RobustBounds)


def with_best_penalty(bounds: Penalised, unit: float, alpha: float | None = None) -> Penalised:
    """Return the bounds with the penalty, and for a tilt the wall, of smallest predicted risk.

    Against an adversary, noise of standard deviation t per coordinate adds about
    ``radius d t sqrt(2/pi)`` (``linf``) or ``radius t sqrt(d) / 2`` (``l2``) to what is taken from
    a margin; a mean slope turns it into loss.

    ``unit`` is the noise per coefficient for a sensitivity of 1. ``alpha`` is fixed by the user or
    None, and a ``coef_bound`` that is given stays.
    """
    curvature, margin_variance = _POPULATIONS[bounds.loss.kind]
    alphas = _ALPHAS if alpha is None else np.array([alpha])
    walls: list[dict[str, Any]] = [{}]
    if isinstance(bounds, TiltedBounds) and bounds.coef_bound is None:
        walls = [{"coef_bound": wall} for wall in WALLS]
    known: list[Penalised] = []
    for wall, candidate in itertools.product(walls, map(float, alphas)):
        try:
            known.append(replace(bounds, alpha=candidate, **wall))
        except ValueError:  # the cost of an adversary is too small for this penalty
            continue
    if not known:
        replace(bounds, alpha=float(alphas[-1]))  # raises, and says what is wrong
    stds = unit * np.array([facts.minimiser_sensitivity() for facts in known])
    limits = [math.inf if isinstance(facts, RobustBounds) else facts.radius for facts in known]
    penalties = np.array([facts.alpha for facts in known])
    risks = penalised_excess(bounds, penalties, 0.0, stds, limits, curvature, margin_variance)
    if isinstance(bounds, RobustBounds):
        d = bounds.n_features
        growth = d * math.sqrt(2 / math.pi) if bounds.norm == "linf" else math.sqrt(d) / 2
        reach = [
            f.radius if f.cost is None else f.perturbation_norm
            for f in known
            if isinstance(f, RobustBounds)
        ]
        risks = risks + _MEAN_SLOPE * np.array(reach) * growth * stds
    best = known[int(np.argmin(risks))]
    return replace(best, alpha=float(f"{best.alpha:.3g}") if alpha is None else alpha)


def top_rank_penalty(bounds: TopRankBounds, unit: float) -> float:
    """Return the smallest penalty at which noise moves the score of a row by no more than 1/20.

    ``unit`` is the noise per coefficient for a sensitivity of 1.
    """
    # Only the order of scores counts. A larger penalty makes them all smaller and the noise with
    # them, but for what the sensitivity owes to long coefficients; it makes less of the top, as all
    # records then are near the same score.
    noise = unit * bounds.row_norm
    noise *= math.sqrt(bounds.n_features)
    for alpha in map(float, np.geomspace(1e-5, 1e5, 200)):
        if noise * replace(bounds, alpha=alpha).minimiser_sensitivity() <= _SCORE_NOISE:
            break
    return float(f"{alpha:.3g}")
