"""The one representation of every convex piecewise-linear loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dpconvex.types import ScalarOrArray


@dataclass(frozen=True)
class Kinks:
    """A convex piecewise-linear function of one variable: every kinked loss is one of these.

    ``c(u) = offset + slope * u + sum_j weights[j] * |u - knots[j]|``, stored as its slopes because
    these are what costs and Lipschitz constants are made of:
    ``weights[j] = (slopes[j + 1] - slopes[j]) / 2`` and ``slope = (slopes[0] + slopes[-1]) / 2``.

    Parameters
    ----------
    knots : tuple of m >= 1 floats, increasing
        Where the slope changes.
    slopes : tuple of m + 1 floats, increasing
        Slope left of the first knot, between neighbouring knots, right of the last.
    height : float
        Value at the first knot.
    """

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    height: float = 0.0

    def __post_init__(self) -> None:
        for name in ("knots", "slopes"):
            numbers = tuple(float(number) for number in getattr(self, name))
            object.__setattr__(self, name, numbers)
            increasing = all(left < right for left, right in pairwise(numbers))
            if not (numbers and increasing and all(map(math.isfinite, numbers))):
                raise ValueError(
                    f"The '{name}' parameter of a kinked loss must be finite numbers in increasing "
                    f"order. Got {numbers} instead. A convex function has increasing slopes; drop "
                    "a knot where the slope does not change."
                )
        if len(self.slopes) != len(self.knots) + 1:
            raise ValueError(
                "The 'slopes' parameter of a kinked loss must have one entry more than 'knots'. "
                f"Got {len(self.slopes)} slopes for {len(self.knots)} knots instead. Give the "
                "slope left of the first knot, between knots, and right of the last."
            )
        object.__setattr__(self, "height", float(self.height))
        if not math.isfinite(self.height):
            raise ValueError(
                "The 'height' parameter of a kinked loss must be finite. "
                f"Got {self.height} instead. Give the value at the first knot."
            )

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """Half the jump of the slope at each knot."""
        return tuple((right - left) / 2 for left, right in pairwise(self.slopes))

    @cached_property
    def slope(self) -> float:
        """Mean of the outermost slopes: the linear part of the weighted-absolute-value form."""
        return (self.slopes[0] + self.slopes[-1]) / 2

    @cached_property
    def offset(self) -> float:
        """The constant of the weighted-absolute-value form."""
        first = self.knots[0]
        pairs = zip(self.weights, self.knots, strict=True)
        return self.height - self.slope * first - sum(w * (knot - first) for w, knot in pairs)

    @cached_property
    def heights(self) -> tuple[float, ...]:
        """Value at every knot."""
        heights = [self.height]
        for i in range(1, len(self.knots)):
            heights.append(heights[-1] + self.slopes[i] * (self.knots[i] - self.knots[i - 1]))
        return tuple(heights)

    @property
    def lipschitz(self) -> float:
        """Largest slope in absolute value: slopes increase, so one of the outermost."""
        return max(abs(self.slopes[0]), abs(self.slopes[-1]))

    def scaled(self, factor: float) -> Kinks:
        """Return ``factor * c``."""
        slopes = tuple(factor * slope for slope in self.slopes)
        return Kinks(self.knots, slopes, factor * self.height)

    def value(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c(u)``, as the maximum of its tangents: exact zeros stay exact far from the knots."""
        distance = u - self.knots[0]
        value = np.maximum(self.slopes[0] * distance, self.slopes[1] * distance)
        if self.height:
            value = value + self.height
        for knot, height, slope in zip(self.knots[1:], self.heights[1:], self.slopes[2:], strict=True):
            value = np.maximum(value, height + slope * (u - knot))
        return value

    def derivative(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c'(u)``, at a knot the mean of the slopes on its two sides."""
        derivative = np.full(np.shape(u), self.slope)
        for knot, weight in zip(self.knots, self.weights, strict=True):
            derivative = derivative + weight * np.sign(u - knot)
        return derivative
