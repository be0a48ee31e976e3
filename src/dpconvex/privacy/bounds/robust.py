r"""Bounds of adversarially robust linear models: an adversary moves every row by up to a radius.

A record's loss is ``w c(y x . theta - radius N(theta))``, ``c`` convex and never increasing and ``N`` the smoothed
dual norm of the coefficients without the intercept: what an adversary can take from the margin. It is convex in
theta, but its gradient ``w c' (y x - radius grad N)`` is no multiple of a fixed row. A residual loss becomes the
larger of ``c(r + h)`` and ``c(r - h)``, ``h = radius N(theta)``
(:class:`dpconvex.objectives.AdversarialResidualObjective`), with gradients ``w (s x + t radius grad N)``, ``|s| <= t``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_number
from dpconvex.losses import PointwiseLoss
from dpconvex.privacy.bounds.base import check_loss_never_negative
from dpconvex.privacy.bounds.record import LinearRecord
from dpconvex.privacy.description import Facts

__all__ = ["NORMS", "RobustBounds"]

NORMS = ("l2", "linf", "l1", "box", "hull", "own")


@dataclass(frozen=True)
class RobustBounds(LinearRecord):
    r"""Public facts of a robust linear model: those of :class:`LinearRecord`, and the adversary.

    With ``g`` the largest norm of a gradient of N (1 for ``l2`` and ``l1``; ``sqrt(d)`` for ``linf``, whose dual norm
    is l1; the norm of the half-widths for a ``box``; the longest vector of a ``hull``), ``a = radius g``, ``c = 1`` for
    an intercept, ``U, X`` as in :class:`LinearRecord`::

        lipschitz  = slope sqrt(c + (min(U, X) + a)^2)
        smoothness = curvature sup w (c + (||x|| + a)^2) + slope radius q / width
                     (+ slope^2 sup w (c + (||x|| + a)^2) / width  for a residual loss, whose two sides are mixed)

    because the adversary does not move the intercept, ``w <= 1``, and N curves by at most ``q / width``: q is 1, the
    largest half-width of a box, or the longest squared vector of a hull (a covariance over the width). The supremum
    is convex in ``||x||`` beyond U, hence attained at U or X.

    With a ``cost`` instead of a radius (:class:`dpconvex.objectives.CostlyAdversaryObjective`) minimisers are not
    longer than ``R = sqrt(2 c(0) / alpha)`` and no row is moved by more than ``a = slope R / cost`` there; ``cost`` is
    at least ``2 curvature R^2``, so the smoothness is ``2 curvature sup w (c + (||x|| + 2 a)^2) + slope^2 / cost``.

    Parameters
    ----------
    n_samples, n_features, loss, row_norm, max_norm, fit_intercept, alpha, neighbors
        As in :class:`LinearRecord`; ``loss`` is a smooth margin loss that never increases, or a smooth residual loss
        of bounded slope; targets are clipped to [-1, 1].
    radius : float
        How far a row can be moved, in mapped units.
    norm : {"l2", "linf", "l1", "box", "hull", "own"}
        Norm in which the radius is meant, or the set that the radius multiplies.
    width : float
        ``N(theta) = sqrt(||theta||_2^2 + width^2) - width`` for l2, the sum of this over coordinates for linf, and for
        the others as in :mod:`dpconvex.objectives.adversary_sets`.
    cost : float, optional
        Price of a perturbation, ``(cost/2) ||v||^2``; the radius is then not used and ``norm`` must be ``"l2"``.
    shape : d positive numbers, or vectors of length d, optional
        Half-widths of a box, vectors ``v_k`` whose hull with ``-v_k`` is the set, or ``(reach, bend)`` of a support
        function of one's own: the largest length of its gradients and its largest curvature, declared and trusted.

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
        allowed = "a finite number of at least 0"
        check_number("radius", "RobustBounds", self.radius, allowed, 0, math.inf)
        self._check_positive("width")
        if self.norm not in NORMS:
            raise ValueError(
                f"The 'norm' parameter of RobustBounds must be one of {list(NORMS)}. Got {self.norm!r} instead."
            )
        self._check_shape()
        if self.residual and (self.cost is not None or not hasattr(self.loss, "slope_at")):
            raise ValueError(
                "The 'loss' parameter of RobustBounds must be a margin loss with a cost, and a loss that is known "
                f"otherwise. Got {type(self.loss).__name__} instead."
            )
        if not self.residual and getattr(self.loss, "slope_range", (-1.0, 0.0))[1] > 0:
            raise ValueError(
                "The 'loss' parameter of RobustBounds must never increase in the margin: else the adversary's best "
                f"move is another one. Got {type(self.loss).__name__} instead. Use Logistic() or a smoothed Hinge()."
            )
        if self.cost is not None:
            self._check_cost(self.cost)

    def _check_shape(self) -> None:
        allowed = {
            "box": "d positive numbers",
            "hull": "at most 1000 vectors of length d, not all 0",
            "own": "(reach, bend), two positive numbers",
        }
        wanted = allowed.get(self.norm, "None")
        array: NDArray[np.float64]
        try:
            array = np.array([] if self.shape is None else self.shape, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.array(np.nan)
        fits = self.shape is None
        if self.norm == "box":
            fits = array.shape == (self.n_features,) and bool((array > 0).all())
        elif self.norm == "own":
            fits = array.shape == (2,) and bool((array > 0).all())
        elif self.norm == "hull":
            fits = array.ndim == 2 and array.shape[1] == self.n_features and 0 < len(array) <= 1000
            fits = fits and bool(array.any())
        if not fits or not np.isfinite(array).all():
            raise ValueError(
                f"The 'shape' parameter of RobustBounds must be {wanted} for norm={self.norm!r}. "
                "Got something else instead."
            )
        if self.shape is not None:
            plain = array.tolist()
            shape = tuple(tuple(row) if isinstance(row, list) else row for row in plain)
            object.__setattr__(self, "shape", shape)

    def to_dict(self) -> Facts:
        """Return the public facts as plain data."""
        facts = super().to_dict()
        if self.shape is None:  # a fact that certificates without it do not state
            del facts["shape"]
        return facts

    def _check_cost(self, cost: float) -> None:
        self._check_positive("cost", allowed="None or a finite number above 0")
        check_loss_never_negative(self.loss, "RobustBounds")
        if self.norm != "l2":
            raise ValueError(
                f"The 'norm' parameter of RobustBounds must be 'l2' with a cost. Got {self.norm!r} instead."
            )
        if self.neighbors != "replace_one":
            raise ValueError(
                "The 'neighbors' parameter of RobustBounds must be 'replace_one' with a cost: the ball of minimisers "
                f"is known for a known number of rows only. Got {self.neighbors!r} instead. Use a radius."
            )
        least = 2 * float(self.loss.smoothness) * self.minimiser_norm**2 if self.alpha > 0 else 0.0
        if cost < least:
            raise ValueError(
                f"The 'cost' parameter of RobustBounds must be at least {least:.4g} for this alpha, so that the "
                f"adversary's problem is concave. Got {cost!r} instead. Use a larger cost or alpha."
            )

    @property
    def minimiser_norm(self) -> float:
        """``R = sqrt(2 c(0) / alpha)``: no minimiser is longer, for any adversary who may leave rows alone and none."""
        return math.sqrt(2 * float(self.loss.value(1.0, 0.0)) / self.alpha)

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``."""
        facts = {"loss": self.loss, "alpha": self.alpha, "divisor": self.n_samples, **self.row_facts}
        if self.cost is not None:
            kind = "mean of losses of rows moved at a cost"
            return {"objective": kind, **facts, "cost": self.cost}
        adversary = {"radius": self.radius, "norm": self.norm, "width": self.width, "shape": self.shape}
        kind = "mean of residual losses" if self.residual else "mean of losses"
        return {"objective": f"{kind} of moved rows", **facts, **adversary}

    @property
    def residual(self) -> bool:
        """Whether the loss is one of residuals."""
        return bool(self.loss.kind == "residual")

    @property
    def adversary_reach(self) -> float:
        """``a = radius sup ||grad N||`` or ``slope R / cost``: how far a row is moved, in Euclidean norm."""
        if self.cost is not None:
            return float(self.loss.lipschitz) * self.minimiser_norm / self.cost
        if self.norm == "own":
            return self.radius * float(self.shape[0])  # type: ignore[index, arg-type]
        if self.shape is not None:
            lengths = np.linalg.norm(np.array(self.shape), axis=-1)
            return self.radius * float(np.max(lengths)) * (1 + 1e-15)
        return self.radius * (math.sqrt(self.n_features) if self.norm == "linf" else 1.0)

    @property
    def _bend(self) -> float:
        """``q``: how much N curves in units of ``1 / width``."""
        if self.shape is None:
            return 1.0
        if self.norm == "own":
            return float(self.shape[1]) * self.width  # type: ignore[arg-type]
        if self.norm == "box":
            return max(map(float, self.shape))  # type: ignore[arg-type]
        return (self.adversary_reach / self.radius) ** 2 if self.radius > 0 else 0.0

    @property
    def lipschitz(self) -> float:
        """``slope sqrt(c + (min(U, X) + a)^2)``."""
        longest = min(self.row_norm, self.max_norm) + self.adversary_reach
        return float(self.loss.lipschitz) * math.hypot(self.fit_intercept, longest)

    def gradient_sum_sensitivity(self) -> float:
        r"""Return how far the SUM of gradients at one fixed theta can move when one record changes.

        Replace-one: ``slope max(2 sqrt(c + U^2) + (1 - w_min) a, sqrt(c + (U + a)^2))`` and at most ``2 L``, with
        ``w_min = min(1, U / X)`` the smallest weight. Why: the difference ``s y x - s' y' x' - (s - s') radius grad N``
        of two gradients is convex in the slopes ``0 <= s <= w slope`` and ``0 <= s' <= w' slope`` (signs turned), so it
        is largest at a corner: both at their largest, where the adversary's parts cancel but for the weights, or one
        of them 0. With a cost, where the adversary's part is no multiple of the slope, ``2 L``. A weight between 0 and
        1 only makes slopes smaller, which they may be anyway; a person's gradient is a mean of such gradients. A
        residual loss of slopes in ``[-l, h]`` has gradients ``s x + t radius grad N`` with (s, t) in the hull of 0,
        ``w h (-1, 1)`` and ``w l (1, 1)``: at corners of slopes p and q, two of l and h, the difference is at most
        ``(p + q) sqrt(c + U^2) + (p - w_min q) a``, p and q ordered so that this is larger; L with one of them 0.
        """
        both, many = 2 * self.lipschitz, self.rows_per_person
        if self.neighbors == "add_or_remove_one":
            return many * self.lipschitz
        if self.cost is not None:
            return many * both
        least_weight = min(1.0, self.row_norm / self.max_norm)
        record, reach = self.row_norm_with_intercept, self.adversary_reach
        # The steepest slopes of both records: of a residual loss those of either side.
        sides: tuple[float, ...] = (float(self.loss.lipschitz),)
        if self.residual:
            sides = tuple(abs(side) for side in self.loss.slope_range if side != 0)
        steep = max((one + other) * record + (one - least_weight * other) * reach for one in sides for other in sides)
        return many * min(both, max(steep, self.lipschitz))

    @property
    def smoothness(self) -> float:
        """``curvature sup w (c + (||x|| + a)^2) + slope radius / width``."""
        limit, largest, reach = self.row_norm, self.max_norm, self.adversary_reach
        if self.cost is not None:
            reach *= 2
        factor = self.fit_intercept + (min(limit, largest) + reach) ** 2
        if largest > limit:
            factor = max(factor, limit / largest * (self.fit_intercept + (largest + reach) ** 2))
        if self.cost is not None:
            return 2 * float(self.loss.smoothness) * factor + float(self.loss.lipschitz) ** 2 / self.cost
        bend = float(self.loss.lipschitz) * self.radius * self._bend / self.width
        mixed = float(self.loss.lipschitz) ** 2 * factor / self.width if self.residual else 0.0
        return float(self.loss.smoothness) * factor + bend + mixed

    @property
    def rank(self) -> int:
        """All coefficients: the adversary's part of a gradient turns with theta."""
        return self.dimension if self.radius > 0 or self.cost is not None else 1
