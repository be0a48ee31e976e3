"""Deviance of a mean ``exp(z)``: counts, costs and times, whose logarithm is linear in the
features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.checks import check_number, parameter_error
from dpconvex.types import Array

_FARTHEST = 60.0  # logarithms of rates and responses: powers of them neither under- nor overflow


@dataclass(frozen=True)
class Tweedie:
    r"""Half the unit deviance of a response ``y`` at the mean ``exp(z)``, up to a term that does
    not depend on z.

    ``(exp((2-p) z) - 1) / (2-p) - y (exp((1-p) z) - 1) / (1-p)``, whose quotients have the limit
    ``z``: Poisson for ``p = 1``, Gamma for ``p = 2``. Responses are clipped to ``[0, most]``.
    Beyond ``[low, high]`` the loss continues along its tangent in z: convex, with slopes and
    curvatures that are bounded by public numbers.

    Parameters
    ----------
    power : float
        The power p of the mean that the variance is proportional to, from 1 to 2; beyond, the loss
        is not convex in z.
    low, high : float
        Range of z, of the logarithms of means, in which the loss is exact.
    most : float
        Largest response.

    Examples
    --------
    >>> poisson = Tweedie(1.0, low=-5.0, high=2.0, most=10.0)
    >>> float(poisson.gradient(3.0, 0.0)), round(poisson.lipschitz, 6), round(poisson.smoothness, 6)
    (-2.0, 9.993262, 7.389056)
    """

    power: float
    low: float
    high: float
    most: float = 1.0
    kind: ClassVar[Literal["rate"]] = "rate"

    def __post_init__(self) -> None:
        power = check_number(
            "power", "Tweedie", self.power, "a number from 1 to 2", 1, math.nextafter(2, 3)
        )
        object.__setattr__(self, "power", power)
        for name in ("low", "high"):
            range_ = f"a number between -{_FARTHEST:g} and {_FARTHEST:g}"
            number = check_number(
                name, "Tweedie", getattr(self, name), range_, -_FARTHEST, _FARTHEST
            )
            object.__setattr__(self, name, number)
        if not self.low < self.high:
            raise parameter_error("high", "Tweedie", "above 'low'", repr(self.high))
        allowed = "a number between exp(-60) and exp(60)"
        least = math.exp(-_FARTHEST)
        largest = math.exp(_FARTHEST)
        object.__setattr__(
            self, "most", check_number("most", "Tweedie", self.most, allowed, least, largest)
        )

    @cached_property
    def slope_range(self) -> tuple[float, float]:
        """Slopes rise with z and fall with y: from ``y = most`` at ``low`` to ``y = 0`` at
        ``high``.
        """
        least = math.exp((2 - self.power) * self.low) - self.most * math.exp(
            (1 - self.power) * self.low
        )
        return min(least, 0.0), math.exp((2 - self.power) * self.high)

    @property
    def lipschitz(self) -> float:
        """Largest size of a slope."""
        return max(-self.slope_range[0], self.slope_range[1])

    @cached_property
    def smoothness(self) -> float:
        """Largest curvature: that of ``y = most``, convex in z, at one end."""
        return float(max(self.curvature(self.most, end) for end in (self.low, self.high)))

    def _parts(self, y: ArrayLike, z: ArrayLike) -> tuple[Array, Array, Array, Array]:
        """Return the clipped response and z, and ``exp((2-p) z)`` and ``exp((1-p) z)`` there."""
        inside = np.clip(np.asarray(z, np.float64), self.low, self.high)
        response = np.clip(np.asarray(y, np.float64), 0.0, self.most)
        return (
            response,
            inside,
            np.exp((2 - self.power) * inside),
            np.exp((1 - self.power) * inside),
        )

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        """Loss of target ``y`` at ``z``, elementwise with broadcasting, in float64."""
        response, inside, mean, weight = self._parts(y, z)
        first = 2 - self.power
        second = 1 - self.power
        rate = np.expm1(first * inside) / first if first else inside
        gain = np.expm1(second * inside) / second if second else inside
        return np.asarray(
            rate - response * gain + (mean - response * weight) * (np.asarray(z) - inside)
        )

    def gradient(self, y: ArrayLike, z: ArrayLike) -> Array:
        """First derivative in ``z``: ``exp((1-p) z) (exp(z) - y)`` within the range."""
        response, _, mean, weight = self._parts(y, z)
        return np.asarray(mean - response * weight)

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        """Second derivative in ``z``: ``(2-p) exp((2-p) z) + (p-1) y exp((1-p) z)``, 0 beyond
        the range.
        """
        response, inside, mean, weight = self._parts(y, z)
        found = (2 - self.power) * mean + (self.power - 1) * response * weight
        return np.where(inside == np.asarray(z), found, 0.0)
