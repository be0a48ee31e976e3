"""What a solver returns, and what it raises when it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy.typing as npt

from dpconvex.types import Array

__all__ = ["ConvergenceError", "Solution", "Solver"]


class ConvergenceError(RuntimeError):
    """No point with a certified gradient norm within the tolerance was found."""


@dataclass(frozen=True)
class Solution:
    """A minimiser with a certificate.

    Attributes
    ----------
    point : array of shape (dim,)
        The approximate minimiser.
    gradient_norm : float
        Upper bound of the exact gradient norm AT `point`: the computed norm plus the objective's
        rounding allowance. Never above the tolerance asked for. For a kinked objective it is
        ``sqrt(2 strong_convexity gap)``: in both cases the minimiser lies within
        ``gradient_norm / strong_convexity`` of `point`.
    iterations : int
        Steps taken (a private number).
    gap : float or None
        Upper bound of ``F(point) - min F`` where that is what was certified (kinked objectives).
    """

    point: Array
    gradient_norm: float
    iterations: int
    gap: float | None = None


Asked = TypeVar("Asked", contravariant=True)


class Solver(Protocol[Asked]):
    """A certified minimiser of strongly convex objectives; what it asks of them is its parameter."""

    def solve(self, objective: Asked, start: npt.ArrayLike, tolerance: float) -> Solution:
        """Return a point whose certified gradient norm is at most `tolerance`.

        Kinked objectives: a point whose certified gap is at most
        ``tolerance^2 / (2 strong_convexity)``.
        """
