r"""Bounds of pairwise objectives: how far one record can move a mean over positive-negative pairs.

The objective is

    F(w) = (1 / (max(n+, m+) max(n-, m-))) sum_{i in +, j in -} loss(w . (x_i - x_j)) + (alpha/2) ||w||^2.

Public are n, d, the rows' bounds and lower bounds ``m+, m- >= 1`` on the class counts. The counts themselves are
private: a replaced record may change its label, which changes the normaliser as well. Because the normaliser is never
below ``m+ m-``, a data set with fewer records of a class than was claimed is protected all the same.

A record may also belong to no class, as invalid rows that are ignored do: it is in no pair and in no count, and a
replacement may take a record out of its class or into one, with public labels too. With ``g_i`` the mean over
``max(n-, m-)`` of the gradients of the pairs of positive record i: taking out record k changes the gradient by
``(mean of the other g_i - g_k) / n+`` if ``n+ > m+``, and by ``g_k / m+ <= L D / m+`` otherwise. Two pairs with the
same negative record have gradients ``s (x_i - x_j)`` and ``s' (x_k - x_j)``, slopes within L of 0, so that the first
is at most ``2 L D / (m+ + 1)``; where the loss is monotone, slopes share their sign, the difference is largest with
slopes 0 or L, hence at most ``L D``, and the first at most ``L D / (m+ + 1)``. Both are within
``gradient_sensitivity``, labels private or not, and so for the other class. The Hessian gains and loses at most
``c D^2 / m+`` of trace, one of the two terms of ``curvature_ratio``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dpconvex.checks import check_count, check_number
from dpconvex.losses import PairHinge, PairLogistic, PairSquared, PairSquaredHinge
from dpconvex.privacy.bounds.base import EPS, FINEST, ROUNDINGS, Bounds
from dpconvex.privacy.calibration import smallest_safe
from dpconvex.privacy.description import Facts
from dpconvex.privacy.profiles import trace_delta

__all__ = ["PairwiseBounds", "pairwise_delta", "pairwise_laplace_scale", "pairwise_scale"]

PairLoss = PairHinge | PairLogistic | PairSquared | PairSquaredHinge
_PAIR_BLOCK = 1000  # rows at least whose pairs are summed before blocks are: one more rounding each
_CANCELLED = 16  # roundings of the two parts of a gradient that cancel; certificates of points allow for five
_RESERVE = 1 - 2e-9  # of delta: profiles are computed to a relative error of 1e-9


@dataclass(frozen=True)
class PairwiseBounds(Bounds):
    r"""Public facts of a linear model with a pairwise loss.

    With ``D = diameter``, slope ``L = sup |loss'|`` and ``c = sup loss''``:

        gradient_sensitivity  L D max(2/m+, 2/m-, 1/m+ + 2/(m- + 1), 1/m- + 2/(m+ + 1))
        curvature_ratio       c D^2 (1/m+ + 1/m-) / alpha

    The first bounds the change of the gradient of F at any w when one record is replaced, label included; the second
    the change of the Hessian's trace over the strong convexity. Losses without bounded slope are certified on the ball
    ``||w|| <= sqrt(2 / alpha)`` that holds every minimiser (``F(w) <= F(0) <= 1``): ``L = 2 (1 + D sqrt(2 / alpha))``.

    Parameters
    ----------
    n_samples, n_features : int
        Public number of rows and columns.
    loss : pairwise loss
        A loss of score differences.
    row_norm : float
        Bound U on the norm of a row: longer rows are shortened. Influence weights do not carry over to pairs, whose
        weights would have to be products.
    diameter : float, optional
        Bound on the distance of two rows; at most ``2 U``, the default. Feature bounds that contain 0 give less.
    min_positive, min_negative : int
        Lower bounds ``m+, m-`` on the class counts.
    label_private : bool
        Whether a replaced record may change its label. If not, labels are public and
        ``gradient_sensitivity = L D max(1/m+, 1/m-)``, twice that for losses that are not monotone.
    alpha : float
        Strength of the penalty.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation. Under add-or-remove-one, where all labels are private, one record less or more gives

            gradient_sensitivity  L D / min(m+, m-) for monotone losses, else 2 L D / (min(m+, m-) + 1)
            curvature_ratio       c D^2 / (min(m+, m-) alpha)

        With ``g_i`` and ``H_i`` the means over ``max(n-, m-)`` of the gradients and Hessians of the pairs of positive
        record i: while ``n+ < m+``, record k adds ``g_k / m+`` and ``H_k / m+``. From there on the mean of n+ of them
        becomes one of n+ + 1: the gradient moves by ``(g_k - mean g_i) / (n+ + 1)``, and with the common part
        ``C = sum H_i / (n+ + 1)`` the Hessians are ``C + H_k / (n+ + 1)`` and ``C + mean H_i / (n+ + 1)``. Norms are at
        most ``L D`` (differences ``2 L D``, or ``L D`` for monotone losses) and traces ``c D^2``, so either side adds a
        trace of at most ``c D^2 / m+`` to a part that both have: the case of the trace form, as under replace-one.
    ignored_rows : bool
        Whether a record may belong to no class, as invalid rows that are ignored do.

    Examples
    --------
    >>> from dpconvex.losses import PairLogistic
    >>> facts = PairwiseBounds(1000, 3, PairLogistic("e"), 1.0, min_positive=100, min_negative=500, alpha=0.1)
    >>> round(facts.gradient_sensitivity, 6), round(facts.curvature_ratio, 6)
    (0.043604, 0.12)
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
        self._check_shared()
        owner = "PairwiseBounds"
        if self.neighbors != "replace_one" and not self.label_private:
            raise ValueError(
                "The 'label_private' parameter of PairwiseBounds must be True under 'add_or_remove_one': public labels "
                "tell how many records there are. Got False instead."
            )
        if not hasattr(self.loss, "monotone"):
            raise TypeError(
                "The 'loss' parameter of PairwiseBounds must be a loss of score differences such as PairLogistic(). "
                f"Got {type(self.loss).__name__} instead."
            )
        for name in ("n_features", "min_positive", "min_negative"):
            check_count(name, owner, getattr(self, name), 1)
        self._check_positive("row_norm")
        widest = 2 * self.row_norm
        given = widest if self.diameter is None else self.diameter
        check_number("diameter", owner, given, "a number above 0", 0, math.inf, low_open=True)
        object.__setattr__(self, "diameter", float(min(given, widest)))

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``, the diameter if it knows one."""
        return {
            "objective": "mean over pairs",
            "loss": self.loss,
            "alpha": self.alpha,
            "linear_term": False,
            "n_features": self.n_features,
            "min_positive": self.min_positive,
            "min_negative": self.min_negative,
            "row_norm": self.row_norm,
            "diameter": self.diameter,
        }

    @property
    def dimension(self) -> int:
        """Number of coefficients; there is no intercept."""
        return self.n_features

    @property
    def rank(self) -> int:
        """A record meets others in every direction."""
        return self.n_features

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
        """``Gamma / (L D)``, from the lower bounds on the class counts."""
        positive, negative = self.min_positive, self.min_negative
        if self.neighbors != "replace_one":
            least = min(positive, negative)
            return 1 / least if self.loss.monotone else 2 / (least + 1)
        if not self.label_private:
            sides = 1 if self.loss.monotone else 2
            return sides * max(1 / positive, 1 / negative)
        return max(2 / positive, 2 / negative, 1 / positive + 2 / (negative + 1), 1 / negative + 2 / (positive + 1))

    @property
    def curvature_ratio(self) -> float:
        """``kappa``: change of the Hessian's trace over alpha."""
        shares = 1 / self.min_positive, 1 / self.min_negative
        change = self.smoothness * (sum(shares) if self.neighbors == "replace_one" else max(shares))
        return change / self.alpha if self.alpha > 0 else math.inf

    @property
    def relation(self) -> str:
        """That of the neighbours, or ``"replace_one_keeping_label"`` where labels are public: a weaker promise."""
        return self.neighbors if self.label_private else "replace_one_keeping_label"

    def gradient_sum_sensitivity(self) -> float:
        """``n Gamma``: F counts as a mean over n records."""
        return self.n_samples * self.gradient_sensitivity

    @property
    def tilted(self) -> tuple[str, int, float]:
        """The mean F itself is tilted, ``F(w) + <b, w>``, and its gradient moves by ``Gamma``."""
        return "mean", 1, self.gradient_sensitivity

    def tilt_scale(self, epsilon: float, delta: float) -> float:
        """Return the scale of ``b``: Gaussian, or l2-Laplace where delta is 0."""
        facts = (self.gradient_sensitivity, self.curvature_ratio)
        if delta > 0:
            return pairwise_scale(epsilon, delta, *facts)
        return pairwise_laplace_scale(epsilon, *facts, self.dimension)

    def tilt_delta(self, epsilon: float, scale: float) -> float:
        """Return delta of Gaussian ``b`` of this scale."""
        return pairwise_delta(epsilon, self.gradient_sensitivity / scale, self.curvature_ratio)

    def tilt_epsilon(self, scale: float) -> float:
        """Return epsilon of l2-Laplace ``b``: ``Gamma / scale + d log(1 + kappa / d)``."""
        size = self.dimension
        return self.gradient_sensitivity / scale + size * math.log1p(self.curvature_ratio / size)

    def tilt_theorem(self, gaussian: bool) -> tuple[str, str]:
        """Return what is perturbed and by which theorem, in the words of a certificate."""
        return "perturbation of pairs", "Rényi profile in trace form" if gaussian else "trace form"

    def solver_tolerance(self, tilt: float = 0.0) -> float:
        r"""Return the public tolerance on ``||gradient of F||`` that certified minimisers must meet.

        ``L D (1e-10 + 2^-52 (64 d + n / 1000)) + 2^-52 (4 d + 64) (c D^2 / alpha) (L D + tilt)``: the accuracy of the
        pair sums, and what rounding of scores and coefficients can change. At least ``2^-52 16 (L D + tilt)``: in
        ``alpha w + tilt`` two numbers cancel that are as large as the tilt, which a small epsilon makes huge.
        """
        condition = self.smoothness / self.alpha if math.isfinite(self.smoothness) else 0.0
        own = FINEST + EPS * (ROUNDINGS * self.dimension + self.n_samples / _PAIR_BLOCK)
        rounding = EPS * (4 * self.dimension + ROUNDINGS) * condition * 4 * self.row_norm / self.distance
        size = self.lipschitz + tilt
        return self._reserve * max(self.lipschitz * own + rounding * size, EPS * _CANCELLED * size)


def pairwise_delta(epsilon: float, ratio: float, kappa: float) -> float:
    r"""Return delta of Gaussian objective perturbation of a pairwise objective, by its Rényi curve in trace form.

    Order a costs ``a ratio^2 / 2 + (psi1 + psi2)(kappa) / (a - 1)``, ``ratio = Gamma / std``, for orders with
    ``sqrt(a) kappa <= 1`` and ``(a - 1) kappa < 1``; see :func:`dpconvex.privacy.profiles.trace_delta`.
    """
    # The replace-one curve counts two records of gradient Gamma / 2 each.
    return trace_delta(epsilon, ratio / 2, kappa, "replace_one")


def _refuse(epsilon: float, kappa: float) -> ValueError:
    return ValueError(
        f"Objective perturbation of pairs needs a smaller curvature ratio at epsilon={epsilon!r}. "
        f"Got {kappa!r}. Use a larger alpha, larger min_positive and min_negative, or a larger epsilon."
    )


@lru_cache(maxsize=1024)
def pairwise_scale(epsilon: float, delta: float, sensitivity: float, kappa: float) -> float:
    """Return the smallest certified standard deviation of ``b`` in ``F(w) + <b, w>``.

    Parameters
    ----------
    epsilon, delta : float
        Budget; delta above 0.
    sensitivity : float
        ``Gamma``, the change of F's gradient.
    kappa : float
        Change of the Hessian's trace over alpha.

    Examples
    --------
    >>> 4.0 < pairwise_scale(1.0, 1e-5, 1.0, 0.01) < 4.2
    True
    """
    target = delta * _RESERVE
    if pairwise_delta(epsilon, 1e-12, kappa) > target:
        raise _refuse(epsilon, kappa)
    return sensitivity * smallest_safe(lambda std: pairwise_delta(epsilon, 1 / std, kappa) <= target)


def pairwise_laplace_scale(epsilon: float, sensitivity: float, kappa: float, dimension: int) -> float:
    """Return the scale of l2-Laplace ``b`` for epsilon-DP: ``Gamma / (epsilon - d log(1 + kappa / d))``."""
    reduced = epsilon - dimension * math.log1p(kappa / dimension)
    if reduced <= 0:
        raise _refuse(epsilon, kappa)
    return sensitivity / reduced
