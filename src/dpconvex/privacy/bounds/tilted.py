r"""Bounds of tilted empirical risk: one record can weigh more than ``1/n``, but not more than its loss allows.

The objective is

    F(theta) = (1/t) log( (1/n) sum_i exp(t w_i loss(y_i, x_i . theta)) ) + (alpha/2) ||theta||^2
               + (K/2) max(0, ||theta|| - B)^2,

``t = tilt``, where the last term is a wall at the public bound ``B`` that keeps minimisers near the ball: like every
term that is the same for all data sets, it leaves the sensitivity alone. The data gradient is ``sum_i p_i g_i`` with
softmax weights ``p_i``. At any point where the weighted losses lie in a range of width ``r``, one record has weight at
most ``q = C / (C + n - 1)``, ``C = exp(t r)``. Replace it: with ``m`` the mean gradient of the others, the gradient
changes from ``q1 g1 + (1 - q1) m`` to ``q2 g2 + (1 - q2) m``, by at most ``(q1 + q2 + |q1 - q2|) L = 2 max(q1, q2) L``.
Both minimisers lie in a public ball, so it is enough to know the range there.

Where people vote, a person's loss is ``L_p = (1/t) log((1/m_p) sum_i exp(t w_i loss_i))`` over its m_p rows: between
the smallest and the largest of them, hence in the same range; its gradient is a mean of theirs under softmax weights,
hence no longer than L; and ``sum_p exp(t L_p)`` is what F is made of. The proof holds for people as it does
for records. The curvature of ``L_p`` is at most ``beta + t L^2``, which that of the whole data term is as well.
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

__all__ = ["TiltedBounds"]

_STEEP = 100  # of the wall: minimisers go at most a hundredth of B beyond it
_TARGETS = np.array([1.0, 1.0, -1.0, -1.0])
_SIDES = np.array([1.0, -1.0, 1.0, -1.0])


@dataclass(frozen=True)
class TiltedBounds(LinearRecord):
    r"""Public facts of a tilted linear model: those of :class:`LinearRecord`, targets in [-1, 1], and the tilt.

    With ``L`` the Lipschitz constant of one weighted record and ``l0 = max loss(y, 0)`` over targets in [-1, 1]::

        radius      R = min(L / alpha, sqrt(2 l0 / alpha), (L + K B) / (alpha + K)),  K = 100 L / B
        loss_range  r = max loss(y, z) - min loss(y, z) over |z| <= R sqrt(c + X^2)   if X <= U, else l0 + L R
        smoothness  beta + tilt L^2 + K

    Why R: a minimiser has ``alpha ||theta|| + K max(0, ||theta|| - B) = ||sum_i p_i g_i|| <= L``, and
    ``F(theta) <= F(0) <= l0``. Why r: a record weighted
    by ``w <= 1`` has ``w loss(z) <= w loss(0) + w slope |z| <= l0 + L R``, and no loss is below 0. The minimum
    is taken where the loss never increases in ``y z``; elsewhere, and with ``ignored_rows``, 0 stands for it: a record of
    weight 0 has the weighted loss 0 and gradient 0 everywhere. With 0 in the range the proof above holds for it word
    for word: any record's exponent exceeds another's by at most ``t r``, so ``q <= C / (C + n - 1)``; its gradient 0 is
    no longer than L; and ``F(theta) <= F(0) <= l0`` and ``F(theta) >= (alpha/2) ||theta||^2`` still give R.

    Parameters
    ----------
    n_samples, n_features, loss, row_norm, max_norm, fit_intercept, alpha
        As in :class:`LinearRecord`; influence weights multiply the loss in the exponent. The loss is smooth and never
        negative, and targets are clipped to [-1, 1] (labels are -1 and +1).
    neighbors : {"replace_one"}
        The weights of all records change when one is added, and no bound is known: anything else is refused.
    tilt : float
        0 is the mean of losses; towards infinity it becomes the largest loss.
    coef_bound : float, optional
        ``B``, where the wall begins; no wall by default.
    ignored_rows : bool
        Whether a record may have weight 0, as invalid rows that are ignored have.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy.bounds.linear import LinearBounds
    >>> plain = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.5)
    >>> tilted = TiltedBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.5, tilt=1.0)
    >>> round(tilted.radius, 4), round(tilted.loss_range, 4)
    (1.6651, 2.3548)
    >>> round(tilted.minimiser_sensitivity() / plain.minimiser_sensitivity(), 3)
    10.437
    """

    loss: PointwiseLoss
    tilt: float = 1.0
    coef_bound: float | None = None
    ignored_rows: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbors != "replace_one":
            raise ValueError(
                "The 'neighbors' parameter of TiltedBounds must be 'replace_one': adding a record changes the weights "
                f"of all others, and no bound is known. Got {self.neighbors!r} instead. Use replace_one, or a mean of "
                "losses such as DPLogisticRegression."
            )
        if self.rows_per_person > 1:
            raise ValueError(
                "The 'rows_per_person' parameter of TiltedBounds must be 1: no bound is known for several records at "
                f"once. Got {self.rows_per_person!r} instead. Give groups, whose rows share one vote."
            )
        if self.weighted_rows:
            raise ValueError(
                "TiltedBounds must be given no weights: a person's vote is outside of the exponential, a weight would "
                "be inside, and no bound is proven for both. Leave out sample_weight and class_weight, and use "
                "person_weight='equal'."
            )
        allowed = "a finite number of at least 0"
        check_number("tilt", "TiltedBounds", self.tilt, allowed, 0, math.inf)
        if self.coef_bound is not None:
            self._check_positive("coef_bound", allowed="None or a finite number above 0")
        check_loss_never_negative(self.loss, "TiltedBounds")

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``."""
        return {
            "objective": "tilted mean of losses",
            "loss": self.loss,
            "alpha": self.alpha,
            "tilt": self.tilt,
            "coef_bound": math.inf if self.coef_bound is None else self.coef_bound,
            **self.row_facts,
            "wall": self.wall,
        }

    @property
    def smoothness(self) -> float:
        """``beta + tilt L^2 + K``: of everything but the ridge."""
        return super().smoothness + self.tilt * self.lipschitz**2 + self.wall

    @property
    def wall(self) -> float:
        """``K = 100 L / B``, steep enough to stop minimisers within 1 % of B; 0 without a wall."""
        return 0.0 if self.coef_bound is None else _STEEP * self.lipschitz / self.coef_bound

    @property
    def rank(self) -> int:
        """Refused: mechanisms that add up records do not apply."""
        raise ValueError(_only_output("Its records do not add up, so they have no rank"))

    def gradient_sum_sensitivity(self) -> float:
        """Refused: mechanisms that add up gradients do not apply."""
        raise ValueError(_only_output("Its gradient is no sum over records"))

    @property
    def start_loss(self) -> float:
        """``l0``: the largest loss at theta = 0."""
        return float(np.max(self.loss.value(_TARGETS, np.zeros(4))))

    @property
    def radius(self) -> float:
        """``R = min(L / alpha, sqrt(2 l0 / alpha), (L + K B) / (alpha + K))``: no minimiser is longer."""
        free = min(self.lipschitz / self.alpha, math.sqrt(2 * self.start_loss / self.alpha))
        if self.coef_bound is None or free <= self.coef_bound:
            return free
        stopped = (self.lipschitz + self.wall * self.coef_bound) / (self.alpha + self.wall)
        return min(free, stopped)

    @property
    def loss_range(self) -> float:
        """``r``: the width of an interval that holds all weighted losses on the ball that holds the minimisers."""
        if self.max_norm > self.row_norm:
            return self.start_loss + self.lipschitz * self.radius
        margin = math.hypot(self.fit_intercept, self.max_norm) * self.radius
        losses = self.loss.value(_TARGETS, _SIDES * margin)
        falls = self.loss.kind == "margin" and self.loss.slope_range[1] <= 0
        lowest = np.min(losses) if falls and not (self.ignored_rows or self.weighted_rows) else 0.0
        return float(np.max(losses) - lowest)

    @property
    def largest_weight(self) -> float:
        """``q = C / (C + n - 1)``, ``C = exp(tilt r)``: the most one record can weigh; ``1/n`` without tilt."""
        exponent = self.tilt * self.loss_range * (1 + 1e-12)
        return 1 / (1 + (self.n_samples - 1) * math.exp(-min(exponent, 745.0)))

    def _minimiser_shift(self) -> float:
        """``min((2 L / alpha) C / (C + n - 1), 2 R)``: both minimisers lie in the ball.

        The second bound is at most ``L_F / alpha`` with ``L_F = L + alpha R`` the Lipschitz constant of F there.
        """
        return min(2 * self.lipschitz / self.alpha * self.largest_weight, 2 * self.radius)

    def solver_tolerance(self, tilt: float = 0.0) -> float:
        """Return the public tolerance of :meth:`Bounds.solver_tolerance`, with room for the rounding of exponents.

        ``4 eps tilt L (4 slope + (d + 10) L R + 16 (l0 + L R))`` is added: four times what the certificate of a point
        in the ball allows for exponents ``tilt loss`` whose margins and values are rounded.
        """
        margins = 4 * self.loss.lipschitz + (self.dimension + 10) * self.lipschitz * self.radius
        values = 16 * (self.start_loss + self.lipschitz * self.radius)
        exponents = 4 * EPS * self.tilt * self.lipschitz * (margins + values)
        return self._resolvable(self.smoothness / self.alpha, tilt) + exponents

    @property
    def falls_with_samples(self) -> bool:
        """Whether ``C < n``: else one record may outweigh the rest, and more rows hardly lower the noise."""
        return self.tilt * self.loss_range < math.log(self.n_samples)

    @property
    def largest_useful_tilt(self) -> float:
        """``log(n) / r``: the tilt at which ``C = n``."""
        return math.log(self.n_samples) / self.loss_range


def _only_output(reason: str) -> str:
    return f"A tilted objective is released by output perturbation only. {reason}. Use OutputPerturbation()."
