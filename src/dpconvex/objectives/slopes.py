"""Weighted slopes of a loss, as engines sum them: a function of arrays, and plain numbers where that is possible."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpconvex.losses import Logistic, Loss
from dpconvex.objectives.clamped_targets import ClampedTarget
from dpconvex.smoothing import LogisticKernel
from dpconvex.smoothing.convolution import ConvolvedLoss
from dpconvex.types import Array

__all__ = ["ClippedSlope", "Sigmoid", "WeightedSlope"]


class Sigmoid(NamedTuple):
    """A slope that is a constant plus sigmoids, as numbers for compiled loops.

    ``c(u) = first + sum_k jumps_k / (1 + exp(-rate (u - knots_k)))`` with u the residual of a target clamped to
    ``±limit``, or the margin. With ``clip`` above 0 slopes are limited to ``clip`` times the weights, which must be
    given; otherwise multiplied by them.
    """

    residual: bool
    limit: float
    rate: float
    first: float
    knots: Array
    jumps: Array
    clip: float = 0.0


@dataclass(frozen=True)
class WeightedSlope:
    """The function ``(y, z, w) -> (w * (loss'(y, z) + offset),)``; for margin losses ``- offset * y``.

    Parameters
    ----------
    loss : Loss
        Pointwise loss.
    offset : float, default=0
        What is taken off the slope c' of the loss as a function of residual or margin.
    """

    loss: Loss
    offset: float = 0.0

    def __call__(self, y: Array, z: Array, w: Array) -> tuple[Array]:
        """Return the weighted slopes of a block."""
        slopes = self.loss.gradient(y, z)
        if self.offset:
            slopes = slopes + self.offset if self.loss.kind == "residual" else slopes - self.offset * y
        return (w * slopes,)

    @cached_property
    def sigmoid(self) -> Sigmoid | None:
        """The same as numbers, or None for a slope of another shape."""
        loss, limit = self.loss, math.inf
        if isinstance(loss, ClampedTarget):
            limit, loss = float(loss.limit), loss.loss
        residual = loss.kind == "residual"
        # By exact type: a subclass may compute something else.
        if type(loss) is Logistic:
            return Sigmoid(residual, limit, 1.0, -1.0 - self.offset, np.zeros(1), np.ones(1))
        if type(loss) is ConvolvedLoss and type(loss.kernel) is LogisticKernel:
            kinks = loss.loss.kinks
            assert kinks is not None, "checked at construction"
            return Sigmoid(
                residual,
                limit,
                1.0 / loss.bandwidth,
                kinks.slopes[0] - self.offset,
                np.array(kinks.knots),
                2.0 * np.array(kinks.weights),
            )
        return None


@dataclass(frozen=True)
class ClippedSlope:
    """The function ``(y, z, cap) -> (clip(loss'(y, z), -L cap, L cap),)``: slopes limited record by record.

    Parameters
    ----------
    loss : Loss
        Pointwise loss of slopes at most ``L``.
    """

    loss: Loss

    def __call__(self, y: Array, z: Array, w: Array) -> tuple[Array]:
        """Return the clipped slopes of a block."""
        cap = self.loss.lipschitz * w
        return (np.clip(self.loss.gradient(y, z), -cap, cap),)

    @cached_property
    def sigmoid(self) -> Sigmoid | None:
        """The same as numbers, or None for a slope of another shape."""
        plain = WeightedSlope(self.loss).sigmoid
        return None if plain is None else plain._replace(clip=float(self.loss.lipschitz))
