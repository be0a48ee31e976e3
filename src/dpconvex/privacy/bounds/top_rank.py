r"""Bounds of accuracy at the top: positive records are to score above the K negative ones that score highest.

With scores ``x . theta``, rows of norm at most B, ``D = 2 B`` and labels that are private,

    F(theta) = (1/N+) sum_{positive i} c(x_i . theta - T(theta)) + (alpha/2) ||theta||^2,    N+ = max(n+, m+),
    T(theta) = min_t [ t + (1/K) sum_{negative j} s(x_j . theta - t) + 2 s(-t) ],    s(u) = width log(1 + exp(u/width)).

c is convex and never increases; T is the smoothed mean of the K largest scores of negative records and of 2K public
ones at 0, which keep it defined whatever the labels, and t at least 0. F is convex because T is. The gradient is
``(1/N+) sum_i c'_i (x_i - g)`` with ``g = grad T = sum_j p_j x_j``, weights ``p_j`` in ``[0, 1/K]`` that, with those of
the public records, sum to 1. Replace one record:

- *A negative one by a negative one.* The weights of others all move to one side, together by as much as its own
  weight (:mod:`~dpconvex.privacy.bounds.worst_share`), so that ``||g' - g|| <= D / K``; T moves by at most
  ``D ||theta|| / K``, and with it every slope by c'' times that: ``slope D / K + c'' D^2 ||theta|| / K``.
- *A positive one by a positive one.* ``slope D / m+``: two slopes ``a, b`` in ``[0, slope]`` times vectors of a
  hull of diameter D differ by at most ``slope D``.
- *A label flips.* The mean over positive records moves by ``slope D / m+``, whichever of ``n+`` and ``m+`` divides, and
  a negative record comes or goes: ``||g' - g|| <= D / K``, and T moves by at most ``s(B ||theta||) / K``, itself at
  most ``(B ||theta|| + width log 2) / K``, because ``t >= 0``.

Gradients are compared at a minimiser, where ``||theta|| <= R``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.checks import check_count
from dpconvex.losses import PointwiseLoss
from dpconvex.privacy.bounds.base import EPS, Bounds, check_loss_never_negative
from dpconvex.privacy.description import Facts

__all__ = ["TopRankBounds"]


@dataclass(frozen=True)
class TopRankBounds(Bounds):
    r"""Public facts of a linear score that is to be accurate at the top.

    With ``D = 2 B``, slope and curvature c'' of the loss, and ``R = min(slope D / alpha, sqrt(2 c(-T0) / alpha))``,
    ``T0 = width (1 + log(2 + n / K))``::

        lipschitz   slope D
        smoothness  c'' D^2 + slope B^2 / width
        gradient    moves by max(slope D (1/m+ + 1/K) + c'' D (B R + width log 2) / K,
                                 slope D / K + c'' D^2 R / K)

    R because ``alpha ||theta||`` is the length of a gradient and ``(alpha/2) ||theta||^2 <= F(0) <= c(-T(0))``.

    Parameters
    ----------
    n_samples, n_features : int
        Public numbers of records and columns.
    loss : Loss
        c: a smooth margin loss, never negative and never increasing.
    row_norm : float
        B: longer rows are shortened.
    top : int
        K: among how many negative records a positive one should not be.
    min_positive : int
        m+: a public lower bound on the number of positive records; if it is none, losses count less.
    alpha : float
        Penalty.
    neighbors : {"replace_one"}
        A replaced record may change its label.
    width : float
        Of the smoothing of the K largest, in units of the score.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> bounds = TopRankBounds(10_000, 3, Logistic(), 1.0, top=500, min_positive=500, alpha=0.5)
    >>> round(bounds.gradient_sensitivity, 6)
    0.009824
    """

    n_samples: int
    n_features: int
    loss: PointwiseLoss
    row_norm: float
    top: int
    min_positive: int
    alpha: float = 0.0
    neighbors: str = "replace_one"
    width: float = 0.05

    def __post_init__(self) -> None:
        self._check_shared()
        for name, least in (("n_features", 1), ("top", 1), ("min_positive", 1)):
            check_count(name, "TopRankBounds", getattr(self, name), least)
        self._check_positive("row_norm", "width")
        if self.neighbors != "replace_one":
            raise ValueError(
                "The 'neighbors' parameter of TopRankBounds must be 'replace_one': where minimisers lie depends on a "
                f"public number of records. Got {self.neighbors!r} instead."
            )
        falls = getattr(self.loss, "slope_range", (-1.0, 1.0))[1] <= 0
        if getattr(self.loss, "kind", None) != "margin" or not falls:
            raise ValueError(
                "The 'loss' parameter of TopRankBounds must be a margin loss that never increases, such as Logistic(). "
                f"Got {type(self.loss).__name__} instead."
            )
        if not math.isfinite(self.loss.smoothness):
            raise ValueError(
                "The 'loss' parameter of TopRankBounds must be smooth. "
                f"Got {type(self.loss).__name__} instead. Smooth it with convolve(loss, kernel, bandwidth)."
            )
        check_loss_never_negative(self.loss, "TopRankBounds")

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``."""
        return {
            "objective": "losses below the top negative scores",
            "loss": self.loss,
            "alpha": self.alpha,
            "n_features": self.n_features,
            "row_norm": self.row_norm,
            "top": self.top,
            "min_positive": self.min_positive,
            "width": self.width,
        }

    @property
    def dimension(self) -> int:
        """Number of coefficients: scores have no intercept."""
        return self.n_features

    @property
    def lipschitz(self) -> float:
        """``slope D``."""
        return float(self.loss.lipschitz) * 2 * self.row_norm

    @property
    def smoothness(self) -> float:
        """``c'' D^2 + slope B^2 / width``."""
        bend = float(self.loss.lipschitz) * self.row_norm**2 / self.width
        return float(self.loss.smoothness) * (2 * self.row_norm) ** 2 + bend

    @property
    def rank(self) -> int:
        """All coefficients."""
        return self.n_features

    @property
    def radius(self) -> float:
        """``R``: no minimiser is longer."""
        start = self.width * (1 + math.log(2 + self.n_samples / self.top))
        return min(self.lipschitz / self.alpha, math.sqrt(2 * float(self.loss.value(1.0, -start)) / self.alpha))

    @property
    def gradient_sensitivity(self) -> float:
        """How far the gradient of F moves at a minimiser when one record is replaced."""
        steep, bent = self.lipschitz, float(self.loss.smoothness) * 2 * self.row_norm / self.top
        flip = steep / self.min_positive + steep / self.top
        flip += bent * (self.row_norm * self.radius + self.width * math.log(2))
        return (1 + 1e-12) * max(flip, steep / self.top + bent * 2 * self.row_norm * self.radius)

    def gradient_sum_sensitivity(self) -> float:
        """``n`` times the above: F counts as a mean over n records. At most ``2 n L``."""
        return self.n_samples * min(self.gradient_sensitivity, 2 * self.lipschitz)

    def solver_tolerance(self, tilt: float = 0.0) -> float:
        """Return the public tolerance, with room for the rounding of sums and of weights that turn over the width."""
        turned = self.lipschitz * (self.row_norm * self.radius / self.width + 1)
        reserve = 64 * EPS * (self.dimension + 20) * turned
        # Four times what the objective allows for its sums: large tables and tops must not end without a solution.
        reserve += 4 * EPS * (self.n_samples + self.top) * self.lipschitz
        return self._resolvable(self.smoothness / self.alpha, tilt) + reserve

    def tilt_scale(self, epsilon: float, delta: float) -> float:
        """Refuse: the theorems of objective perturbation are about one record's share of a mean."""
        raise ValueError("Objective perturbation needs a mean over records. Use OutputPerturbation with TopRankBounds.")
