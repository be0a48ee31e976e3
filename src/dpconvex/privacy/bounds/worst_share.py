r"""Bounds of the mean of the worst losses: one record weighs at most one of ``k = share n``, whatever its loss.

The objective is, with ``s(u) = width log(1 + exp(u / width))``,

    F(theta) = min_{t >= 0} [ t + (1/k) sum_i s(w_i loss(y_i, x_i . theta) - t) ] + (alpha/2) ||theta||^2.

For ``width = 0`` this is the mean of the k largest losses: all of them for ``share = 1``, the largest alone for
``share = 1/n``. The data gradient is ``sum_i p_i g_i`` with ``p_i = s'(loss_i - t) / k`` between 0 and ``1/k`` and of
sum 1, or less where ``t = 0``. Replace record 1, and let t' be the new threshold, ``t' >= t`` (else exchange the two).
The weights of all others fall, because s' rises: together by ``D <= p'_1 - p_1`` if ``t' > 0``, where the new weights
sum to 1 and the old ones to no more, and not at all if ``t' = t = 0``. With gradients of length at most L the data
gradient changes by at most

    (p_1 + p'_1 + D) L <= 2 max(p_1, p'_1) L <= 2 L / k.

A record that is added or removed has ``p_1 = 0`` on one side, and the same bound holds. So does it for a person whose
rows share one vote: ``p_1`` is then the weight of all of them, at most ``1/k``, and ``g_1`` their mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.checks import check_number
from dpconvex.losses import PointwiseLoss
from dpconvex.privacy.bounds.base import EPS, check_loss_never_negative
from dpconvex.privacy.bounds.record import LinearRecord
from dpconvex.privacy.description import Facts

__all__ = ["WorstShareBounds"]

_ABOVE = math.nextafter(1.0, 2.0)  # a share of 1 is allowed


@dataclass(frozen=True)
class WorstShareBounds(LinearRecord):
    r"""Public facts of a linear model that minimises the mean of the worst share of its losses.

    ``k = share n``, L the Lipschitz constant of one weighted record::

        sensitivity of the minimiser   min(2 L / (alpha k), 2 R), under replace-one and add-or-remove-one
        radius of the minimisers       R = min(L / alpha, sqrt(2 (l0 + gap) / alpha)), L / alpha under add-or-remove-one
        smoothness                     beta + L^2 / width
        gap to the kinked mean         at most width H(min(share, 1/2)) / share,  H(q) = -q log q - (1 - q) log(1 - q)

    R because ``alpha ||theta|| = ||sum_i p_i g_i|| <= L`` and ``(alpha/2) ||theta||^2 <= F(theta) <= F(0)``, which is
    at most the largest loss ``l0`` at 0 plus the gap for n records. The smoothness because ``s'' <= s' / width``, so
    that the weights' part of the Hessian is at most ``sum_i p_i g_i g_i^T / width``. The gap because the smoothed mean
    is the largest ``sum_i p_i loss_i`` plus ``width / k`` times the entropies of ``k p_i``, which sum to at most
    ``n H(min(k / n, 1/2))`` as ``sum_i p_i <= 1``.

    Parameters
    ----------
    n_samples, n_features, loss, row_norm, max_norm, fit_intercept, alpha, neighbors
        As in :class:`LinearRecord`. The loss is smooth and never negative, and targets are clipped to [-1, 1] so that
        losses are of a known size. Influence weights multiply the loss.
    share : float
        Between ``1/n`` (the largest loss) and 1 (all of them).
    width : float
        Of the smoothing, in units of the loss.
    ignored_rows : bool
        Whether a record may have weight 0, as invalid rows that are ignored have: its loss and gradient are 0, which
        the bound above allows.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> bounds = WorstShareBounds(1000, 3, Logistic(), 1.0, 1.0, alpha=0.5, share=0.1)
    >>> round(bounds.minimiser_sensitivity(), 6)
    0.056569
    """

    loss: PointwiseLoss
    share: float = 0.1
    width: float = 0.01
    ignored_rows: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a number between 1 / n_samples and 1"
        least = 1 / self.n_samples
        check_number("share", "WorstShareBounds", self.share, allowed, least * (1 - 1e-12), _ABOVE)
        self._check_positive("width")
        if self.weighted_rows:
            raise ValueError(
                "WorstShareBounds must be given no weights: a person's vote counts records, a weight would shrink "
                "losses. Leave out sample_weight and class_weight, and use person_weight='equal'."
            )
        check_loss_never_negative(self.loss, "WorstShareBounds")

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``."""
        return {
            "objective": "mean of the worst losses",
            "loss": self.loss,
            "alpha": self.alpha,
            "divisor": self.n_samples,
            **self.row_facts,
            "share": self.share,
            "width": self.width,
        }

    @property
    def smoothness(self) -> float:
        """``beta + L^2 / width``: of everything but the ridge."""
        return super().smoothness + self.lipschitz**2 / self.width

    @property
    def rank(self) -> int:
        """Refused: mechanisms that add up records do not apply."""
        raise ValueError(_only_output("Its records do not add up, so they have no rank"))

    def gradient_sum_sensitivity(self) -> float:
        """Refused: mechanisms that add up gradients do not apply."""
        raise ValueError(_only_output("Its gradient is no sum over records"))

    @property
    def largest_weight(self) -> float:
        """``1 / (share n)``, at most 1: the most that one record can weigh."""
        return min(1.0, 1 / (self.share * self.n_samples))

    @property
    def start_loss(self) -> float:
        """``l0``: the largest loss at theta = 0."""
        return float(np.max(self.loss.value(np.array([1.0, -1.0]), np.zeros(2))))

    @property
    def radius(self) -> float:
        """``R``: no minimiser is longer. How many records there are must be public for the second bound."""
        free = self.lipschitz / self.alpha
        if self.neighbors != "replace_one":
            return free
        return min(free, math.sqrt(2 * (self.start_loss + self.approximation_gap) / self.alpha))

    @property
    def approximation_gap(self) -> float:
        """``width H(min(share, 1/2)) / share``: how far the smoothing lifts the mean of the worst losses at most."""
        part = min(self.share, 0.5)
        entropy = -part * math.log(part) - (1 - part) * math.log1p(-part)
        return self.width * entropy / self.share

    def _minimiser_shift(self) -> float:
        """``min((2 L / alpha) m / k, 2 R)``, m the number of a person's rows that have votes of their own."""
        weight = self.rows_per_person * self.largest_weight * (1 + 1e-12)
        return min(2 * self.lipschitz / self.alpha * weight, 2 * self.radius * (1 + 1e-12))

    def solver_tolerance(self, tilt: float = 0.0) -> float:
        """Return the public tolerance of :meth:`Bounds.solver_tolerance`, with room for the rounding of weights.

        ``4 eps (L / width) (4 slope + (d + 10) L R + 16 (l0 + L R))`` is added, ``l0`` the largest loss at 0: weights
        turn with losses over the width, as those of :class:`~dpconvex.privacy.bounds.tilted.TiltedBounds` do over
        ``1 / tilt``.
        """
        reach = self.lipschitz * self.radius
        margins = 4 * self.loss.lipschitz + (self.dimension + 10) * reach
        weights = 4 * EPS * self.lipschitz / self.width * (margins + 16 * (self.start_loss + reach))
        return self._resolvable(self.smoothness / self.alpha, tilt) + self._reserve * weights


def _only_output(reason: str) -> str:
    return f"A mean of the worst losses is released by output perturbation only. {reason}. Use OutputPerturbation()."
