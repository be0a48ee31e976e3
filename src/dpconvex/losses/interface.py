"""What a pointwise loss is: the protocol, and the class that turns ``c(u)`` into one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.losses.kinks import Kinks
from dpconvex.types import ScalarOrArray

Kind = Literal["residual", "margin"]


@runtime_checkable
class Loss(Protocol):
    """What objectives and mechanisms ask of a pointwise loss."""

    @property
    def kind(self) -> Kind:
        """``"residual"`` (loss of ``y - z``) or ``"margin"`` (loss of ``y * z``)."""

    @property
    def lipschitz(self) -> float:
        """``sup |d/dz|``, ``inf`` if unbounded."""

    @property
    def smoothness(self) -> float:
        """``sup |d2/dz2|``, ``inf`` if the loss has a kink."""

    def value(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Loss of target ``y`` at margin ``z``, elementwise in float64."""

    def gradient(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """First derivative in ``z``."""

    def curvature(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Second derivative in ``z``."""


class PointwiseLoss(ABC):
    """A loss written once as a function ``c(u)``; this class puts ``y`` and ``z`` into it.

    Subclasses give ``value_at``, ``slope_at`` and ``curvature_at`` (c, c' and c'' at ``u``),
    ``lipschitz`` and ``smoothness``, and ``kind`` where it is not ``"residual"``. Then

    - residual: ``u = y - z``, ``d/dz = -c'(u)``, ``d2/dz2 = c''(u)``;
    - margin: ``u = y * z``, ``d/dz = y * c'(u)``, ``d2/dz2 = y**2 * c''(u)``.
    """

    @property
    def kind(self) -> Kind:
        """``"residual"`` (loss of ``y - z``) or ``"margin"`` (loss of ``y * z``)."""
        return "residual"

    @property
    def kinks(self) -> Kinks | None:
        """The piecewise-linear function this loss is, or None if it is something else."""
        return None

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """``sup |c'|``, ``inf`` if unbounded."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """``sup |c''|``, ``inf`` if the loss has a kink."""

    @property
    def slope_range(self) -> tuple[float, float]:
        """Interval that holds every slope ``c'``: what a split into a constant and the rest needs."""
        if self.kinks is not None:
            return self.kinks.slopes[0], self.kinks.slopes[-1]
        return -self.lipschitz, self.lipschitz

    @abstractmethod
    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c(u)`` for float64 ``u``."""

    @abstractmethod
    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c'(u)`` for float64 ``u``."""

    @abstractmethod
    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c''(u)`` for float64 ``u``."""

    def _argument(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        combine = np.subtract if self.kind == "residual" else np.multiply
        return combine(y, z, dtype=np.float64)

    def value(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Loss of target ``y`` at margin ``z``, elementwise with broadcasting, in float64."""
        return self.value_at(self._argument(y, z))

    def gradient(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """First derivative in ``z``; at a kink the midpoint of the subdifferential."""
        slope = self.slope_at(self._argument(y, z))
        return -slope if self.kind == "residual" else slope * np.asarray(y)

    def curvature(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Second derivative in ``z``; 0 for a piecewise-linear loss, at its kinks too."""
        curvature = self.curvature_at(self._argument(y, z))
        return curvature if self.kind == "residual" else curvature * np.square(y, dtype=np.float64)
