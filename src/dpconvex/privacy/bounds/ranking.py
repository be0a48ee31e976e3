r"""Bounds of rankings: means over pairs of a positive and a negative record (AUC), and accuracy
at the top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.core.bounds import EPS, FINEST, ROUNDINGS, Bounds
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts
from dpconvex.losses import PointwiseLoss
from dpconvex.losses.pair_losses import PairLoss, PairSquared, PairSquaredHinge
from dpconvex.privacy.bounds.tilted_and_robust_bounds import check_robust_loss

_PAIR_BLOCK = 1000  # rows at least whose pairs are summed before blocks are: one more rounding each
# roundings of the two parts of a gradient that cancel; certificates of points allow for five
_CANCELLED = 16


@dataclass(frozen=True)
class PairwiseBounds(Bounds, stated=True):
    r"""Public facts of a linear model with a pairwise loss: how far one record can move a mean over
    pairs.

    The objective is

        F(w) = (1 / (max(n+, m+) max(n-, m-))) sum_{i in +, j in -} loss(w . (x_i - x_j)) +
        (alpha/2) ||w||^2.

    Public are n, d, the rows' bounds and lower bounds ``m+, m- >= 1`` on the class counts. The
    counts themselves are private: a replaced record may change its label, which changes the
    normaliser as well. Because the normaliser is never below ``m+ m-``, a data set with fewer
    records of a class than was claimed is protected all the same.

    A record may also belong to no class, as invalid rows that are ignored do: it is in no pair and
    in no count, and a replacement may take a record out of its class or into one, with public
    labels too. With ``g_i`` the mean over ``max(n-, m-)`` of the gradients of the pairs of positive
    record i: taking out record k changes the gradient by ``(mean of the other g_i - g_k) / n+`` if
    ``n+ > m+``, and by ``g_k / m+ <= L D / m+`` otherwise. Two pairs with the same negative record
    have gradients ``s (x_i - x_j)`` and ``s' (x_k - x_j)``, slopes within L of 0, so that the first
    is at most ``2 L D / (m+ + 1)``; where the loss is monotone, slopes share their sign, the
    difference is largest with slopes 0 or L, hence at most ``L D``, and the first at most
    ``L D / (m+ + 1)``. Both are within ``gradient_sensitivity``, labels private or not, and so for
    the other class. The Hessian gains and loses at most ``c D^2 / m+`` of trace, one of the two
    terms of ``curvature_ratio``.

    With ``D = diameter``, slope ``L = sup |loss'|`` and ``c = sup loss''``::

        gradient_sensitivity  L D max(1/m+ + 1/(m- + 1), 1/m- + 1/(m+ + 1)) for monotone losses,
                              L D max(2/m+, 2/m-, 1/m+ + 2/(m- + 1), 1/m- + 2/(m+ + 1)) for others
        curvature_ratio       c D^2 (1/m+ + 1/m-) / alpha

    The first bounds the change of the gradient of F at any w when one record is replaced, label
    included; the second the change of the Hessian's trace over the strong convexity. Losses without
    bounded slope are certified on the ball ``||w|| <= sqrt(2 / alpha)`` that holds every minimiser
    (``F(w) <= F(0) <= 1``): ``L = 2 (1 + D sqrt(2 / alpha))``. The proof for monotone losses, whose
    slopes share their sign, is written out in *Why it holds* (section AUC).

    Parameters
    ----------
    n_samples, n_features, alpha
        As in :class:`~dpconvex.privacy.LinearBounds`; ``loss`` is a pairwise one, of score
        differences.
    row_norm, diameter : float
        Bound U on the norm of a row, longer ones are shortened; and on the distance of two rows, at
        most ``2 U``, the default. Feature bounds that contain 0 give less.
    min_positive, min_negative : int
        Lower bounds ``m+, m-`` on the class counts.
    label_private : bool
        Whether a replaced record may change its label. If not, labels are public and
        ``gradient_sensitivity = L D max(1/m+, 1/m-)``, twice that for losses that are not monotone.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation. Under add-or-remove-one, where all labels are private, one record
        less or more gives::

            gradient_sensitivity  L D / min(m+, m-) for monotone losses,
                                  2 L D / (min(m+, m-) + 1) for others
            curvature_ratio       c D^2 / (min(m+, m-) alpha)

        With ``g_i`` and ``H_i`` the means over ``max(n-, m-)`` of the gradients and Hessians of the
        pairs of positive record i: while ``n+ < m+``, record k adds ``g_k / m+`` and ``H_k / m+``.
        From there on the mean of n+ of them becomes one of n+ + 1: the gradient moves by
        ``(g_k - mean g_i) / (n+ + 1)``, and with the common part ``C = sum H_i / (n+ + 1)`` the
        Hessians are ``C + H_k / (n+ + 1)`` and ``C + mean H_i / (n+ + 1)``. Norms are at most
        ``L D`` (differences ``2 L D``, or ``L D`` for monotone losses) and traces ``c D^2``, so
        either side adds a trace of at most ``c D^2 / m+`` to a part that both have: the case of the
        trace form, as under replace-one.
    ignored_rows : bool
        Whether a record may belong to no class, as invalid rows that are ignored do.

    Examples
    --------
    >>> from dpconvex.losses import PairLogistic
    >>> facts = PairwiseBounds(
    ...     1000, 3, PairLogistic("e"), 1.0, min_positive=100, min_negative=500, alpha=0.1
    ... )
    >>> round(facts.gradient_sensitivity, 6), round(facts.curvature_ratio, 6)
    (0.023992, 0.12)
    """

    n_samples: int
    n_features: int
    loss: PairLoss
    row_norm: float
    diameter: float | None = None
    min_positive: int = 1
    min_negative: int = 1
    label_private: bool = True
    alpha: float = 0.0
    neighbors: str = "replace_one"
    ignored_rows: bool = False

    def __post_init__(self) -> None:
        self._check_bounds_fields()
        owner = "PairwiseBounds"
        if self.neighbors != "replace_one" and not self.label_private:
            wanted = "True under 'add_or_remove_one': public labels tell how many records there are"
            raise self._wrong("label_private", wanted)
        if not isinstance(self.loss, PairLoss):
            raise self._wrong(
                "loss", "a loss of score differences such as PairLogistic()", error=TypeError
            )
        for name in ("min_positive", "min_negative"):
            check_count(name, owner, getattr(self, name), 1)
        self._check_positive("row_norm")
        widest = 2 * self.row_norm
        given = widest if self.diameter is None else self.diameter
        check_number("diameter", owner, given, "a number above 0", 0, math.inf, low_open=True)
        object.__setattr__(self, "diameter", float(min(given, widest)))

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have, the diameter if
        it knows one.
        """
        names = (
            "loss",
            "alpha",
            "n_features",
            "min_positive",
            "min_negative",
            "row_norm",
            "diameter",
        )
        return self._facts("mean over pairs", *names, linear_term=False)

    @property
    def distance(self) -> float:
        """``D``."""
        return float(self.diameter or 0.0)

    @property
    def slope(self) -> float:
        """``L``: of the loss, or on the ball that holds the minimisers."""
        slope = float(self.loss.lipschitz)
        known = isinstance(self.loss, (PairSquared, PairSquaredHinge))
        if math.isfinite(slope) or not known or not self.alpha > 0:
            return slope
        return 2 * (1 + self.distance * math.sqrt(2 / self.alpha))

    @property
    def lipschitz(self) -> float:
        """``L D``: of one pair's loss, hence of the whole data term."""
        return self.slope * self.distance

    @property
    def smoothness(self) -> float:
        """``c D^2``: largest Hessian eigenvalue of one pair, hence of the data term."""
        return float(self.loss.smoothness) * self.distance**2

    @property
    def gradient_sensitivity(self) -> float:
        """``Gamma``: how far the gradient of F at any w can move when one record changes."""
        return self.lipschitz * self.pair_factor

    @property
    def pair_factor(self) -> float:
        """``Gamma / (L D)`` of a ranking's pairs, from the lower bounds on the class counts."""
        positive = self.min_positive
        negative = self.min_negative
        if self.neighbors != "replace_one":
            least = min(positive, negative)
            return 1 / least if self.loss.monotone else 2 / (least + 1)
        if not self.label_private:
            sides = 1 if self.loss.monotone else 2
            return sides * max(1 / positive, 1 / negative)
        if self.loss.monotone:
            return max(1 / positive + 1 / (negative + 1), 1 / negative + 1 / (positive + 1))
        return max(
            2 / positive,
            2 / negative,
            1 / positive + 2 / (negative + 1),
            1 / negative + 2 / (positive + 1),
        )

    @property
    def curvature_ratio(self) -> float:
        """``kappa``: change of the Hessian's trace over alpha."""
        shares = 1 / self.min_positive, 1 / self.min_negative
        change = self.smoothness * (sum(shares) if self.neighbors == "replace_one" else max(shares))
        return change / self.alpha if self.alpha > 0 else math.inf

    @property
    def relation(self) -> str:
        """That of the neighbours, or ``"replace_one_keeping_label"`` where labels are public: a
        weaker promise.
        """
        return self.neighbors if self.label_private else "replace_one_keeping_label"

    def gradient_sum_sensitivity(self) -> float:
        """``n Gamma``: F counts as a mean over n records."""
        return self.n_samples * self.gradient_sensitivity

    @property
    def linear_term_form(self) -> tuple[str, int, float]:
        """The linear term is added to the mean F itself, ``F(w) + <b, w>``, whose gradient moves
        by ``Gamma``.
        """
        return "mean", 1, self.gradient_sensitivity

    @property
    def trace_form(self) -> tuple[float, float, str, float, int]:
        """Facts of the linear term's theorem; its replace-one curve counts two records of
        gradient ``Gamma / 2``.
        """
        moved = self.gradient_sensitivity
        return moved / 2, self.curvature_ratio, "replace_one", moved, self.dimension

    def linear_term_theorem(self, gaussian: bool) -> tuple[str, str]:
        """Return what is perturbed and by which theorem, in the words of a certificate."""
        return "perturbation of pairs", "Rényi profile in trace form" if gaussian else "trace form"

    def solver_tolerance(self, linear_norm: float = 0.0) -> float:
        r"""Return the public bound on a ranking's ``||gradient of F||`` that certified minimisers
        must meet.

        ``L D (1e-10 + 2^-52 (64 d + n / 1000)) + 2^-52 (4 d + 64) (c D^2 / alpha) (L D + t)``: the
        accuracy of the pair sums, and what rounding of scores and coefficients can change. At least
        ``2^-52 16 (L D + t)``: in ``alpha w + b`` two numbers cancel that are as large as
        ``t = linear_norm``, which a small epsilon makes huge.
        """
        condition = self.smoothness / self.alpha if math.isfinite(self.smoothness) else 0.0
        own = FINEST + EPS * (ROUNDINGS * self.dimension + self.n_samples / _PAIR_BLOCK)
        rounding = (
            EPS * (4 * self.dimension + ROUNDINGS) * condition * 4 * self.row_norm / self.distance
        )
        size = self.lipschitz + linear_norm
        return self._reserve * max(self.lipschitz * own + rounding * size, EPS * _CANCELLED * size)


@dataclass(frozen=True)
class TopRankBounds(Bounds, stated=True):
    r"""Public facts of accuracy at the top: positive records are to score above the K negative ones
    that score highest.

    With scores ``x . theta``, rows of norm at most B, ``D = 2 B`` and labels that are private,

        F(theta) = (1/N+) sum_{positive i} c(x_i . theta - T(theta)) + (alpha/2) ||theta||^2, N+ =
        max(n+, m+), T(theta) = min_t [ t + (1/K) sum_{negative j} s(x_j . theta - t) + 2 s(-t) ],
        s(u) = width log(1 + exp(u/width)).

    c is convex and never increases; T is the smoothed mean of the K largest scores of negative
    records and of 2K public ones at 0, which keep it defined whatever the labels, and t at least 0.
    F is convex because T is. The gradient is ``(1/N+) sum_i c'_i (x_i - g)`` with
    ``g = grad T = sum_j p_j x_j``, weights ``p_j`` in ``[0, 1/K]`` that, with those of the public
    records, sum to 1. Replace one record:

    - *A negative one by a negative one.* The weights of others all move to one side, together by as
      much as its own weight (`WorstShareBounds`), so that ``||g' - g|| <= D / K``; T moves by at
      most ``D ||theta|| / K``, and with it every slope by c'' times that:
      ``slope D / K + c'' D^2 ||theta|| / K``.
    - *A positive one by a positive one.* ``slope D / m+``: two slopes ``a, b`` in ``[0, slope]``
      times vectors of a hull of diameter D differ by at most ``slope D``.
    - *A label flips.* The mean over positive records moves by ``slope D / m+``, whichever of ``n+``
      and ``m+`` divides, and a negative record comes or goes: ``||g' - g|| <= D / K``, and T moves
      by at most ``s(B ||theta||) / K``, itself at most ``(B ||theta|| + width log 2) / K``, because
      ``t >= 0``.

    Gradients are compared at a minimiser, where ``||theta|| <= R``. With slope and curvature c'' of
    the loss, ``R = min(slope D / alpha, sqrt(2 c(-T0) / alpha))`` and
    ``T0 = width (1 + log(2 + n / K))``::

        lipschitz   slope D
        smoothness  c'' D^2 + slope B^2 / width
        gradient    moves by max(slope D (1/m+ + 1/K) + c'' D (B R + width log 2) / K,
                                 slope D / K + c'' D^2 R / K)

    R because ``alpha ||theta||`` is the length of a gradient and
    ``(alpha/2) ||theta||^2 <= F(0) <= c(-T(0))``.

    Parameters
    ----------
    n_samples, n_features, loss, alpha
        As in :class:`~dpconvex.privacy.LinearBounds`; the loss c is a smooth margin loss, never
        negative and never increasing.
    row_norm, width : float
        B: longer rows are shortened; and the width of the smoothing of the K largest, in units of
        the score.
    top, min_positive : int
        K, among how many negative records a positive one should not be; and m+, a public lower
        bound on the number of positive records: if it is none, losses count less.
    neighbors : {"replace_one"}
        A replaced record may change its label.

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
    sums_records = False

    def __post_init__(self) -> None:
        self._check_bounds_fields()
        for name in ("top", "min_positive"):
            check_count(name, "TopRankBounds", getattr(self, name), 1)
        self._check_positive("row_norm", "width")
        if self.neighbors != "replace_one":
            wanted = "'replace_one': where minimisers lie depends on a public number of records"
            raise self._wrong("neighbors", wanted)
        known = isinstance(self.loss, PointwiseLoss) and self.loss.kind == "margin"
        if not known or self.loss.slope_range[1] > 0:
            raise self._wrong("loss", "a margin loss that never increases, such as Logistic()")
        if not math.isfinite(self.loss.smoothness):
            raise self._wrong("loss", "smooth", "Smooth it with convolve(loss, kernel, bandwidth).")
        check_robust_loss(self.loss, "TopRankBounds")

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have."""
        names = ("loss", "alpha", "n_features", "row_norm", "top", "min_positive", "width")
        return self._facts("losses below the top negative scores", *names)

    @property
    def lipschitz(self) -> float:
        """``slope D``."""
        return float(self.loss.lipschitz) * 2 * self.row_norm

    @property
    def smoothness(self) -> float:
        """``c'' D^2 + slope B^2 / width``."""
        curvature = float(self.loss.lipschitz) * self.row_norm**2 / self.width
        return float(self.loss.smoothness) * (2 * self.row_norm) ** 2 + curvature

    @property
    def radius(self) -> float:
        """``R``: no minimiser is longer."""
        start = self.width * (1 + math.log(2 + self.n_samples / self.top))
        return min(
            self.lipschitz / self.alpha,
            math.sqrt(2 * float(self.loss.value(1.0, -start)) / self.alpha),
        )

    @property
    def gradient_sensitivity(self) -> float:
        """How far the gradient of F moves at a minimiser when one record is replaced."""
        slope = self.lipschitz
        curvature = float(self.loss.smoothness) * 2 * self.row_norm / self.top
        flip = slope / self.min_positive + slope / self.top
        flip += curvature * (self.row_norm * self.radius + self.width * math.log(2))
        return (1 + 1e-12) * max(
            flip, slope / self.top + curvature * 2 * self.row_norm * self.radius
        )

    def gradient_sum_sensitivity(self) -> float:
        """``n`` times the above: F counts as a mean over n records. At most ``2 n L``."""
        return self.n_samples * min(self.gradient_sensitivity, 2 * self.lipschitz)

    def solver_tolerance(self, linear_norm: float = 0.0) -> float:
        """Return the public tolerance, with room for the rounding of sums and of weights that
        turn over the width.
        """
        turned = self.lipschitz * (self.row_norm * self.radius / self.width + 1)
        reserve = 64 * EPS * (self.dimension + 20) * turned
        # Four times what the objective allows for its sums: large tables and tops must not end
        # without a solution.
        reserve += 4 * EPS * (self.n_samples + self.top) * self.lipschitz
        return self._resolvable(self.smoothness / self.alpha, linear_norm) + reserve
