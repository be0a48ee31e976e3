r"""Bounds of robust linear models: tilted means, means of the worst losses, losses of rows that
an adversary moves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.bounds import EPS
from dpconvex.core.checks import check_number, parameter_error
from dpconvex.core.description import DescribableLoss, Facts
from dpconvex.core.linear_bounds import LinearRecord
from dpconvex.losses import Loss, PointwiseLoss
from dpconvex.losses.scaled_and_clamped import piecewise_linear_shape

NORMS = ("l2", "linf", "l1", "box", "hull")

_STEEP = 100  # of the wall: minimisers go at most a hundredth of B beyond it
_ABOVE = math.nextafter(1.0, 2.0)  # a share of 1 is allowed
_TARGETS = np.array([1.0, 1.0, -1.0, -1.0])
_SIDES = np.array([1.0, -1.0, 1.0, -1.0])


def check_robust_loss(loss: DescribableLoss, owner: str) -> None:
    """Raise unless the loss is never negative: a penalised minimum then bounds the minimiser's
    length.
    """
    if not isinstance(loss, Loss):
        allowed = "one of dpconvex.losses, whose values are known"
        raise parameter_error("loss", owner, allowed, type(loss).__name__, kind=TypeError)
    base = loss
    while hasattr(base, "loss"):  # smoothing and scaling leave a loss of at least 0 at least 0
        base = base.loss
    kinks = piecewise_linear_shape(base)
    if kinks is not None:
        # A convex function is least at a knot, unless it falls forever.
        negative = kinks.slopes[0] > 0 or kinks.slopes[-1] < 0 or min(kinks.heights) < 0
    else:
        margins = np.linspace(-50.0, 50.0, 2001)
        negative = min(float(np.min(loss.value(y, margins))) for y in (-1.0, 0.5, 1.0)) < 0
    if negative:
        raise ValueError(
            f"The 'loss' parameter of {owner} must never be negative. "
            f"Got {type(loss).__name__}, which is, instead. Add a constant to it."
        )


@dataclass(frozen=True)
class RobustWeightedRecord(LinearRecord):
    """A linear model whose records are weighted by their losses: its gradient is no sum over
    records.
    """

    loss: PointwiseLoss

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        if self.weighted_rows:
            raise ValueError(
                f"{owner} must be given no weights: no bound is proven for losses that weights "
                "shrink. Leave out sample_weight and class_weight, and use person_weight='equal'."
            )
        check_robust_loss(self.loss, owner)

    @property
    def rank(self) -> int:
        """Refused: mechanisms that add up records do not apply."""
        raise ValueError(self._only_output("Its records do not add up, so they have no rank"))

    def gradient_sum_sensitivity(self) -> float:
        """Refused: mechanisms that add up gradients do not apply."""
        raise ValueError(self._only_output("Its gradient is no sum over records"))

    def _only_output(self, reason: str) -> str:
        kind = str(self.objective_facts()["objective"])
        return (
            f"A {kind} is released by output perturbation only. {reason}. Use OutputPerturbation()."
        )

    @property
    def start_loss(self) -> float:
        """``l0``: the largest loss at theta = 0."""
        return float(np.max(self.loss.value(_TARGETS, np.zeros(4))))

    @property
    def radius(self) -> float:
        """``R``: no minimiser is longer."""
        raise AttributeError

    @property
    def _loss_rounding(self) -> float:
        """``4 slope + (d + 10) L R + 16 (l0 + L R)``, in units of ``eps``: what losses may be
        rounded by.
        """
        largest = self.lipschitz * self.radius
        return (
            4 * self.loss.lipschitz
            + (self.dimension + 10) * largest
            + 16 * (self.start_loss + largest)
        )


@dataclass(frozen=True)
class TiltedBounds(RobustWeightedRecord, stated=True):
    r"""Public facts of tilted empirical risk: one record can weigh more than ``1/n``, as far as its
    loss allows.

    The objective is

        F(theta) = (1/t) log( (1/n) sum_i exp(t w_i loss(y_i, x_i . theta)) ) + (alpha/2)
        ||theta||^2
                   + (K/2) max(0, ||theta|| - B)^2,

    ``t = tilt``, where the last term is a wall at the public bound ``B`` that keeps minimisers near
    the ball: like every term that is the same for all data sets, it leaves the sensitivity alone.
    The data gradient is ``sum_i p_i g_i`` with softmax weights ``p_i``. At any point where the
    weighted losses lie in a range of width ``r``, one record has weight at most
    ``q = C / (C + n - 1)``, ``C = exp(t r)``. Replace it: with ``m`` the mean gradient of the
    others, the gradient changes from ``q1 g1 + (1 - q1) m`` to ``q2 g2 + (1 - q2) m``, by at most
    ``(q1 + q2 + |q1 - q2|) L = 2 max(q1, q2) L``. Both minimisers lie in a public ball, so it is
    enough to know the range there.

    Where people share weights, a person's loss is
    ``L_p = (1/t) log((1/m_p) sum_i exp(t w_i loss_i))`` over its m_p rows: between the smallest and
    the largest of them, hence in the same range; its gradient is a mean of theirs under softmax
    weights, hence no longer than L; and F is made of ``sum_p exp(t L_p)``. So the proof holds for
    people. The curvature of ``L_p`` is at most ``beta + t L^2``, as is that of the whole data term.

    With ``L`` the Lipschitz constant of one weighted record and ``l0 = max loss(y, 0)`` over
    targets in [-1, 1]::

        radius      R = min(L / alpha, sqrt(2 l0 / alpha), (L + K B) / (alpha + K)),  K = 100 L / B
        loss_range  r = max loss(y, z) - min loss(y, z) over |z| <= R sqrt(c + X^2)  if X <= U,
                    r = l0 + L R  otherwise
        smoothness  beta + tilt L^2 + K

    Why R: a minimiser has ``alpha ||theta|| + K max(0, ||theta|| - B) = ||sum_i p_i g_i|| <= L``,
    and ``F(theta) <= F(0) <= l0``. Why r: a record weighted by ``w <= 1`` has
    ``w loss(z) <= w loss(0) + w slope |z| <= l0 + L R``, and no loss is below 0. The minimum is
    taken where the loss never increases in ``y z``; elsewhere, and with ``ignored_rows``, 0 stands
    for it: a record of weight 0 has the weighted loss 0 and gradient 0 everywhere. With 0 in the
    range the proof above holds for it word for word: any record's exponent exceeds another's by at
    most ``t r``, so ``q <= C / (C + n - 1)``; its gradient 0 is no longer than L; and
    ``F(theta) <= F(0) <= l0`` and ``F(theta) >= (alpha/2) ||theta||^2`` still give R.

    Parameters
    ----------
    n_samples, n_features, loss, row_norm, max_norm, fit_intercept, alpha, ignored_rows
        As in :class:`LinearBounds`; influence weights multiply the loss in the exponent. The loss
        is smooth and never negative, and targets are clipped to [-1, 1] (labels are -1 and +1).
    neighbors : {"replace_one"}
        The weights of all records change when one is added, and no bound is known: anything else is
        refused.
    tilt, coef_bound : float
        0 is the mean of losses; towards infinity it becomes the largest loss. ``B`` is where the
        wall begins; no wall by default.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> tilted = TiltedBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.5, tilt=1.0)
    >>> round(tilted.radius, 4), round(tilted.loss_range, 4)
    (1.6651, 2.3548)
    """

    tilt: float = 1.0
    coef_bound: float | None = None
    ignored_rows: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbors != "replace_one":
            wanted = (
                "'replace_one': adding a record changes the weights of all others, and no "
                "bound is known"
            )
            raise self._wrong(
                "neighbors",
                wanted,
                "Use replace_one, or a mean of losses such as DPLogisticRegression.",
            )
        if self.rows_per_person > 1:
            wanted = "1: no bound is known for several records at once"
            raise self._wrong(
                "rows_per_person", wanted, "Give groups, whose rows share one weight."
            )
        check_number(
            "tilt", "TiltedBounds", self.tilt, "a finite number of at least 0", 0, math.inf
        )
        if self.coef_bound is not None:
            self._check_positive("coef_bound", allowed="None or a finite number above 0")

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have."""
        wall = math.inf if self.coef_bound is None else self.coef_bound
        return self._facts(
            "tilted mean of losses",
            "loss",
            "alpha",
            "tilt",
            "wall",
            coef_bound=wall,
            **self.row_facts,
        )

    @property
    def smoothness(self) -> float:
        """``beta + tilt L^2 + K``: of everything but the ridge."""
        return super().smoothness + self.tilt * self.lipschitz**2 + self.wall

    @property
    def wall(self) -> float:
        """``K = 100 L / B``, steep enough to stop minimisers within 1 % of B; 0 without a wall."""
        return 0.0 if self.coef_bound is None else _STEEP * self.lipschitz / self.coef_bound

    @property
    def radius(self) -> float:
        """``R = min(L / alpha, sqrt(2 l0 / alpha), (L + K B) / (alpha + K))``: no minimiser is
        longer.
        """
        free = min(self.lipschitz / self.alpha, math.sqrt(2 * self.start_loss / self.alpha))
        if self.coef_bound is None or free <= self.coef_bound:
            return free
        stopped = (self.lipschitz + self.wall * self.coef_bound) / (self.alpha + self.wall)
        return min(free, stopped)

    @property
    def loss_range(self) -> float:
        """Bound ``r``: the width of an interval with all weighted losses on the ball that holds
        the minimisers.
        """
        if self.max_norm > self.row_norm:
            return self.start_loss + self.lipschitz * self.radius
        margin = math.hypot(self.fit_intercept, self.max_norm) * self.radius
        losses = self.loss.value(_TARGETS, _SIDES * margin)
        falls = self.loss.kind == "margin" and self.loss.slope_range[1] <= 0
        lowest = np.min(losses) if falls and not (self.ignored_rows or self.weighted_rows) else 0.0
        return float(np.max(losses) - lowest)

    @property
    def largest_weight(self) -> float:
        """``q = C / (C + n - 1)``, ``C = exp(tilt r)``: the most one record can weigh; ``1/n``
        without tilt.
        """
        exponent = self.tilt * self.loss_range * (1 + 1e-12)
        return 1 / (1 + (self.n_samples - 1) * math.exp(-min(exponent, 745.0)))

    def _minimiser_shift(self) -> float:
        """``min((2 L / alpha) C / (C + n - 1), 2 R)``: both minimisers lie in the ball."""
        return min(2 * self.lipschitz / self.alpha * self.largest_weight, 2 * self.radius)

    def solver_tolerance(self, linear_norm: float = 0.0) -> float:
        """Return the tilted risk's :meth:`Bounds.solver_tolerance`, with room for the rounding of
        exponents.

        ``4 eps tilt L (4 slope + (d + 10) L R + 16 (l0 + L R))`` is added: four times what the
        certificate of a point in the ball allows for exponents ``tilt loss`` whose margins and
        values are rounded.
        """
        exponents = 4 * EPS * self.tilt * self.lipschitz * self._loss_rounding
        return self._resolvable(self.smoothness / self.alpha, linear_norm) + exponents

    @property
    def falls_with_samples(self) -> bool:
        """Whether ``C < n``: else one record may outweigh the rest, and more rows hardly lower
        the noise.
        """
        return self.tilt * self.loss_range < math.log(self.n_samples)

    @property
    def largest_useful_tilt(self) -> float:
        """``log(n) / r``: the tilt at which ``C = n``."""
        return math.log(self.n_samples) / self.loss_range


@dataclass(frozen=True)
class WorstShareBounds(RobustWeightedRecord, stated=True):
    r"""Public facts of the mean of the worst losses: a record weighs at most one of
    ``k = share n``, whatever its loss.

    The objective is, with ``s(u) = width log(1 + exp(u / width))``,

        F(theta) = min_{t >= 0} [ t + (1/k) sum_i s(w_i loss(y_i, x_i . theta) - t) ] + (alpha/2)
        ||theta||^2.

    For ``width = 0`` this is the mean of the k largest losses: all of them for ``share = 1``, the
    largest alone for ``share = 1/n``. The data gradient is ``sum_i p_i g_i`` with
    ``p_i = s'(loss_i - t) / k`` between 0 and ``1/k`` and of sum 1, or less where ``t = 0``.
    Replace record 1, and let t' be the new threshold, ``t' >= t`` (else exchange the two). The
    weights of all others fall, because s' rises: together by ``D <= p'_1 - p_1`` if ``t' > 0``,
    where the new weights sum to 1 and the old ones to no more, and not at all if ``t' = t = 0``.
    With gradients of length at most L the data gradient changes by at most

        (p_1 + p'_1 + D) L <= 2 max(p_1, p'_1) L <= 2 L / k.

    A record that is added or removed has ``p_1 = 0`` on one side, and the same bound holds. So does
    it for a person whose rows share one weight: ``p_1`` is then the weight of all of them, at most
    ``1/k``, and ``g_1`` their mean.

    With L the Lipschitz constant of one weighted record::

        sensitivity of the minimiser  min(2 L / (alpha k), 2 R), under both relations
        radius of the minimisers      R = min(L / alpha, sqrt(2 (l0 + gap) / alpha)),
                                      L / alpha under add-or-remove-one
        smoothness                    beta + L^2 / width
        gap to the kinked mean        at most width H(min(share, 1/2)) / share,
                                      H(q) = -q log q - (1 - q) log(1 - q)

    R because ``alpha ||theta|| = ||sum_i p_i g_i|| <= L`` and
    ``(alpha/2) ||theta||^2 <= F(theta) <= F(0)``, which is at most the largest loss ``l0`` at 0
    plus the gap for n records. The smoothness because ``s'' <= s' / width``, so that the weights'
    part of the Hessian is at most ``sum_i p_i g_i g_i^T / width``. The gap because the smoothed
    mean is the largest ``sum_i p_i loss_i`` plus ``width / k`` times the entropies of ``k p_i``,
    which sum to at most ``n H(min(k / n, 1/2))`` as ``sum_i p_i <= 1``.

    Parameters
    ----------
    n_samples, n_features, loss, row_norm, max_norm, fit_intercept, alpha, neighbors
        As in :class:`LinearBounds`. The loss is smooth and never negative, and targets are clipped
        to [-1, 1] so that losses are of a known size. Influence weights multiply the loss.
    share, width : float
        Between ``1/n`` (the largest loss) and 1 (all of them); and that of the smoothing, in units
        of the loss.
    ignored_rows : bool
        As in :class:`LinearBounds`; loss and gradient of an ignored row are 0, which the bound
        above allows.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> bounds = WorstShareBounds(1000, 3, Logistic(), 1.0, 1.0, alpha=0.5, share=0.1)
    >>> round(bounds.minimiser_sensitivity(), 6)
    0.056569
    """

    share: float = 0.1
    width: float = 0.01
    ignored_rows: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a number between 1 / n_samples and 1"
        least = 1 / self.n_samples * (1 - 1e-12)
        check_number("share", "WorstShareBounds", self.share, allowed, least, _ABOVE)
        self._check_positive("width")

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have."""
        more = {"divisor": self.n_samples, **self.row_facts}
        return self._facts("mean of the worst losses", "loss", "alpha", "share", "width", **more)

    @property
    def smoothness(self) -> float:
        """``beta + L^2 / width``: of everything but the ridge."""
        return super().smoothness + self.lipschitz**2 / self.width

    @property
    def largest_weight(self) -> float:
        """``1 / (share n)``, at most 1: the most that one record can weigh."""
        return min(1.0, 1 / (self.share * self.n_samples))

    @property
    def radius(self) -> float:
        """``R``: no minimiser is longer. How many records there are must be public for the
        second bound.
        """
        free = self.lipschitz / self.alpha
        if self.neighbors != "replace_one":
            return free
        return min(free, math.sqrt(2 * (self.start_loss + self.approximation_gap) / self.alpha))

    @property
    def approximation_gap(self) -> float:
        """``width H(min(share, 1/2)) / share``: how far the smoothing lifts the mean of the
        worst losses at most.
        """
        part = min(self.share, 0.5)
        entropy = -part * math.log(part) - (1 - part) * math.log1p(-part)
        return self.width * entropy / self.share

    def _minimiser_shift(self) -> float:
        """``min((2 L / alpha) m / k, 2 R)``, m the number of a person's rows that count as
        records.
        """
        weight = self.rows_per_person * self.largest_weight * (1 + 1e-12)
        return min(2 * self.lipschitz / self.alpha * weight, 2 * self.radius * (1 + 1e-12))

    def solver_tolerance(self, linear_norm: float = 0.0) -> float:
        """Return the worst share's :meth:`Bounds.solver_tolerance`, with room for the rounding of
        weights.

        ``4 eps (L / width) (4 slope + (d + 10) L R + 16 (l0 + L R))`` is added: weights turn with
        losses over the width, as those of :class:`TiltedBounds` do over ``1 / tilt``.
        """
        weights = 4 * EPS * self.lipschitz / self.width * self._loss_rounding
        return self._resolvable(self.smoothness / self.alpha, linear_norm) + self._reserve * weights


@dataclass(frozen=True)
class RobustBounds(LinearRecord, stated=True):
    r"""Public facts of an adversarially robust linear model: an adversary moves every row by up to
    a radius.

    A record's loss is ``w c(y x . theta - radius N(theta))``, ``c`` convex and never increasing and
    ``N`` the smoothed dual norm of the coefficients without the intercept: what an adversary can
    take from the margin. It is convex in theta, but its gradient ``w c' (y x - radius grad N)`` is
    no multiple of a fixed row. A residual loss becomes the larger of ``c(r + h)`` and ``c(r - h)``,
    ``h = radius N(theta)``, with gradients ``w (s x + t radius grad N)``, ``|s| <= t``.

    With ``g`` the largest norm of a gradient of N (1 for ``l2`` and ``l1``; ``sqrt(d)`` for
    ``linf``, whose dual norm is l1; the norm of the half-widths for a ``box``; the longest vector
    of a ``hull``), ``a = radius g``, ``c = 1`` for an intercept, ``U, X`` as in
    :class:`LinearRecord`::

        lipschitz  = slope sqrt(c + (min(U, X) + a)^2)
        smoothness = curvature sup w (c + (||x|| + a)^2) + slope radius q / width
                     + slope^2 sup w (c + (||x|| + a)^2) / width

    (the last summand for a residual loss alone, whose two sides are mixed)

    because the adversary does not move the intercept, ``w <= 1``, and N curves by at most
    ``q / width``: q is 1, the largest half-width of a box, or the longest squared vector of a hull
    (a covariance over the width). The supremum is convex in ``||x||`` beyond U, hence attained at U
    or X.

    With a ``cost`` instead of a radius (:class:`dpconvex.objectives.CostlyAdversaryObjective`)
    minimisers are not longer than ``R = sqrt(2 c(0) / alpha)`` and no row is moved by more than
    ``a = slope R / cost`` there; ``cost`` is at least ``2 curvature R^2``, so the smoothness is
    ``2 curvature sup w (c + (||x|| + 2 a)^2) + slope^2 / cost``.

    Parameters
    ----------
    n_samples, n_features, loss, row_norm, max_norm, fit_intercept, alpha, neighbors
        As in :class:`LinearBounds`; ``loss`` is a smooth margin loss that never increases, or a
        smooth residual loss of bounded slope; targets are clipped to [-1, 1].
    radius, norm : float, {"l2", "linf", "l1", "box", "hull"}
        How far a row can be moved, in mapped units, and the norm in which that is meant, or the set
        that it multiplies.
    width : float
        ``N(theta) = sqrt(||theta||_2^2 + width^2) - width`` for l2, the sum of this over
        coordinates for linf, and for the others as in :mod:`dpconvex.objectives.adversary_sets`.
    cost : float, optional
        Price of a perturbation, ``(cost/2) ||v||^2``; the radius is then not used and ``norm`` must
        be ``"l2"``.
    shape : d positive numbers, or vectors of length d, optional
        Half-widths of a box, or vectors ``v_k`` whose hull with ``-v_k`` is the set.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> RobustBounds(1000, 4, Logistic(), 1.0, 1.0, alpha=0.1, radius=0.5, norm="linf").lipschitz
    2.23606797749979
    """

    loss: PointwiseLoss
    radius: float = 0.1
    norm: str = "l2"
    width: float = 0.01
    cost: float | None = None
    shape: tuple[float, ...] | tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(
            "radius", "RobustBounds", self.radius, "a finite number of at least 0", 0, math.inf
        )
        self._check_positive("width")
        if self.norm not in NORMS:
            raise self._wrong("norm", f"one of {list(NORMS)}")
        self._check_shape()
        if self.residual and (self.cost is not None or not isinstance(self.loss, PointwiseLoss)):
            raise self._wrong(
                "loss", "a margin loss with a cost, and a loss that is known otherwise"
            )
        if not self.residual and getattr(self.loss, "slope_range", (-1.0, 0.0))[1] > 0:
            wanted = "never increasing in the margin: else the adversary's best move is another one"
            raise self._wrong("loss", wanted, "Use Logistic() or a smoothed Hinge().")
        if self.cost is not None:
            self._check_cost(self.cost)

    def _check_shape(self) -> None:
        """Raise unless the robust set's shape is one that its norm has."""
        allowed = {
            "box": "d positive numbers",
            "hull": "at most 1000 vectors of length d, not all 0",
        }
        array: NDArray[np.float64]
        try:
            array = np.array([] if self.shape is None else self.shape, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.array(np.nan)
        fits = self.shape is None
        if self.norm == "box":
            fits = array.shape == (self.n_features,) and bool((array > 0).all())
        elif self.norm == "hull":
            fits = array.ndim == 2 and array.shape[1] == self.n_features and 0 < len(array) <= 1000
            fits = fits and bool(array.any())
        if not fits or not np.isfinite(array).all():
            raise ValueError(
                f"The 'shape' parameter of RobustBounds must be {allowed.get(self.norm, 'None')} "
                f"for norm={self.norm!r}. Got something else instead."
            )
        if self.shape is not None:
            shape = tuple(tuple(row) if isinstance(row, list) else row for row in array.tolist())
            object.__setattr__(self, "shape", shape)

    def _check_cost(self, cost: float) -> None:
        """Raise unless a robust adversary's cost keeps its problem concave, and norm and
        relation suit it.
        """
        self._check_positive("cost", allowed="None or a finite number above 0")
        check_robust_loss(self.loss, "RobustBounds")
        if self.norm != "l2":
            raise self._wrong("norm", "'l2' with a cost")
        if self.neighbors != "replace_one":
            wanted = (
                "'replace_one' with a cost: the ball of minimisers is known for a known "
                "number of rows only"
            )
            raise self._wrong("neighbors", wanted, "Use a radius.")
        least = 2 * float(self.loss.smoothness) * self.minimiser_norm**2 if self.alpha > 0 else 0.0
        if cost < least:
            wanted = (
                f"at least {least:.4g} for this alpha, so that the adversary's problem is concave"
            )
            raise self._wrong("cost", wanted, "Use a larger cost or alpha.")

    @property
    def minimiser_norm(self) -> float:
        """``R = sqrt(2 c(0) / alpha)``: no minimiser is longer, for any adversary who may leave
        rows alone and none.
        """
        return math.sqrt(2 * float(self.loss.value(1.0, 0.0)) / self.alpha)

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the robust objective of a release must have."""
        facts = {"divisor": self.n_samples, **self.row_facts}
        if self.cost is not None:
            return self._facts(
                "mean of losses of rows moved at a cost", "loss", "alpha", "cost", **facts
            )
        kind = "mean of residual losses" if self.residual else "mean of losses"
        names = ("loss", "alpha", "radius", "norm", "width", "shape")
        return self._facts(f"{kind} of moved rows", *names, **facts)

    @property
    def residual(self) -> bool:
        """Whether the loss is one of residuals."""
        return bool(self.loss.kind == "residual")

    @property
    def perturbation_norm(self) -> float:
        """``a = radius sup ||grad N||`` or ``slope R / cost``: how far the robust set moves a
        row (Euclidean norm).
        """
        if self.cost is not None:
            return float(self.loss.lipschitz) * self.minimiser_norm / self.cost
        if self.shape is not None:
            lengths = np.linalg.norm(np.array(self.shape), axis=-1)
            return self.radius * float(np.max(lengths)) * (1 + 1e-15)
        return self.radius * (math.sqrt(self.n_features) if self.norm == "linf" else 1.0)

    @property
    def _dual_norm_curvature(self) -> float:
        """``q``: how much the robust dual norm N curves in units of ``1 / width``."""
        if self.shape is None:
            return 1.0
        if self.norm == "box":
            return max(map(float, self.shape))  # type: ignore[arg-type]
        return (self.perturbation_norm / self.radius) ** 2 if self.radius > 0 else 0.0

    @property
    def lipschitz(self) -> float:
        """``slope sqrt(c + (min(U, X) + a)^2)``."""
        longest = min(self.row_norm, self.max_norm) + self.perturbation_norm
        return float(self.loss.lipschitz) * math.hypot(self.fit_intercept, longest)

    def gradient_sum_sensitivity(self) -> float:
        r"""Bound how far the SUM of robust gradients at one fixed theta can move when one record
        changes.

        Replace-one: ``slope max(2 sqrt(c + U^2) + (1 - w_min) a, sqrt(c + (U + a)^2))`` and at most
        ``2 L``, with ``w_min = min(1, U / X)`` the smallest weight. Why: the difference
        ``s y x - s' y' x' - (s - s') radius grad N`` of two gradients is convex in the slopes
        ``0 <= s <= w slope`` and ``0 <= s' <= w' slope`` (signs turned), so it is largest at a
        corner: both at their largest, where the adversary's parts cancel but for the weights, or
        one of them 0. With a cost, where the adversary's part is no multiple of the slope, ``2 L``.
        A weight between 0 and 1 only makes slopes smaller, which they may be anyway; a person's
        gradient is a mean of such gradients. A residual loss of slopes in ``[-l, h]`` has gradients
        ``s x + t radius grad N`` with (s, t) in the hull of 0, ``w h (-1, 1)`` and ``w l (1, 1)``:
        at corners of slopes p and q, two of l and h, the difference is at most
        ``(p + q) sqrt(c + U^2) + (p - w_min q) a``, p and q ordered so that this is larger; L with
        one of them 0.
        """
        both = 2 * self.lipschitz
        many = self.rows_per_person
        if self.neighbors == "add_or_remove_one":
            return many * self.lipschitz
        if self.cost is not None:
            return many * both
        least_weight = min(1.0, self.row_norm / self.max_norm)
        record = math.sqrt(self.fit_intercept + min(self.row_norm, self.max_norm) ** 2)
        moved = self.perturbation_norm
        # The steepest slopes of both records: of a residual loss those of either side.
        sides: tuple[float, ...] = (float(self.loss.lipschitz),)
        if self.residual:
            sides = tuple(abs(side) for side in self.loss.slope_range if side != 0)
        steep = max(
            (one + other) * record + (one - least_weight * other) * moved
            for one in sides
            for other in sides
        )
        return many * min(both, max(steep, self.lipschitz))

    @property
    def smoothness(self) -> float:
        """Bound of the robust loss's curvature:
        ``curvature sup w (c + (||x|| + a)^2) + slope radius / width``.
        """
        limit = self.row_norm
        largest = self.max_norm
        moved = self.perturbation_norm
        if self.cost is not None:
            moved *= 2
        factor = self.fit_intercept + (min(limit, largest) + moved) ** 2
        if largest > limit:
            factor = max(factor, limit / largest * (self.fit_intercept + (largest + moved) ** 2))
        if self.cost is not None:
            return (
                2 * float(self.loss.smoothness) * factor
                + float(self.loss.lipschitz) ** 2 / self.cost
            )
        curvature = (
            float(self.loss.lipschitz) * self.radius * self._dual_norm_curvature / self.width
        )
        mixed = float(self.loss.lipschitz) ** 2 * factor / self.width if self.residual else 0.0
        return float(self.loss.smoothness) * factor + curvature + mixed

    @property
    def rank(self) -> int:
        """All coefficients: the adversary's part of a gradient turns with theta."""
        return self.dimension if self.radius > 0 or self.cost is not None else 1
