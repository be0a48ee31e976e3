"""Saddle problems: a learner minimises what an adversary maximises."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dpconvex.types import Array

__all__ = ["SaddleProblem"]


def _unconstrained(v: Array) -> Array:
    return v


@dataclass(frozen=True, eq=False)
class SaddleProblem:
    """A smooth function H(w, v), strongly convex in w and strongly concave in v.

    Parameters
    ----------
    dim, adversary_dim : int
        Sizes of w and of v (flattened).
    gradient_w, gradient_v : callable
        ``gradient_w(w, v)`` and ``gradient_v(w, v)``.
    strong_convexity, strong_concavity : float
        Lower bounds of the curvature in w and of minus the curvature in v, positive.
    smoothness : float
        Lipschitz constant of the whole gradient of H in (w, v).
    project : callable, optional
        Euclidean projection of v on the convex set V; the identity by default.
    rounding : float, default=1e-13
        Bound of the floating-point error of either gradient.
    """

    dim: int
    adversary_dim: int
    gradient_w: Callable[[Array, Array], Array]
    gradient_v: Callable[[Array, Array], Array]
    strong_convexity: float
    strong_concavity: float
    smoothness: float
    project: Callable[[Array], Array] = field(default=_unconstrained)
    rounding: float = 1e-13

    def __post_init__(self) -> None:
        for name in ("strong_convexity", "strong_concavity", "smoothness"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(
                    f"The '{name}' parameter of SaddleProblem must be positive and finite. "
                    f"Got {value!r} instead. Add a small quadratic in w or in v."
                )

    def ascent_residual(self, w: Array, v: Array) -> float:
        """Bound ``||v - argmax_V H(w, .)|| * strong_concavity / 2`` by one projected ascent step.

        With step ``1/smoothness`` the length of the step times the smoothness is at least
        ``strong_concavity / 2`` times the distance to the maximiser.
        """
        step = self.project(v + self.gradient_v(w, v) / self.smoothness) - v
        return self.smoothness * float(np.linalg.norm(step)) + self.rounding
