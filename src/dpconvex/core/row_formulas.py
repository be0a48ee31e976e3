"""Slopes of losses and norms of rows as numbers, for kernels that compute them in lanes.

A compiled kernel cannot call a loss's method. It knows three formulas of ``c'(u)``, which cover the
losses that default fits ask for:

- steps: ``mean slope + sum_k weight_k sign(u - knot_k)``, a kinked loss;
- logistic: ``first slope + sum_k jump_k / (1 + exp(-(u - knot_k) / width))``, a kinked loss that
  is convolved with a logistic kernel, or the logistic loss itself;
- limit: ``clip(u, -width, width)``, a Huber loss, or a squared one whose slopes are limited.

Other losses keep their own method: see :meth:`dpconvex.core.memory_rows.MemoryRows.combine`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpconvex.core.convolution import ConvolvedLoss
from dpconvex.core.pointwise_losses import Huber, Logistic, PointwiseLoss, Squared
from dpconvex.core.smoothing_kernels import LogisticKernel
from dpconvex.types import Array

UNDERFLOW = 1e-290  # added to squared norms: none is 0 where squares are too small for a number
STEPS = 0
LOGISTIC = 1
LIMIT = 2


class SlopeFormula(NamedTuple):
    """What a record is multiplied by, as numbers.

    It is ``-(c'(u) - offset)`` at ``u = y - z`` (``residual``) or ``y (c'(u) - offset)`` at
    ``u = y z``, limited to ``largest`` and then multiplied by the record's weight; or, with
    ``clip``, limited to ``largest`` times its weight.
    """

    formula: int
    residual: bool
    first: float  # leftmost slope, or the mean of the outermost ones for steps
    width: float  # of the logistic law, or the limit
    knots: Array
    jumps: Array  # of the slope at each knot; half of them for steps
    offset: float
    largest: float
    clip: bool


class NormFormula(NamedTuple):
    """Norm of a mapped row: ``raised sqrt(constant^2 + sum_j ((x_j - centre_j) factor_j)^2)``."""

    centre: Array
    factor: Array
    constant: float
    raised: float  # a factor that is a little above 1, which covers rounding

    def norms(self, squares: Array) -> Array:
        """Return the norms of rows from the sums of their squares."""
        return np.asarray(np.sqrt(self.constant**2 + squares + UNDERFLOW) * self.raised)


class FormulaNorms:
    """Base of functions of blocks that give a number which follows from a row's norm."""

    @property
    def formula(self) -> NormFormula | None:
        """The formula of the norm, or None where the function has to be called."""
        return None

    def follows_from(self, norms: Array) -> Array:
        """Return the numbers that follow from norms, which are infinite for ignored rows."""
        raise NotImplementedError


class FormulaSlope:
    """Base of functions of targets, margins and weights that may have a compiled formula."""

    @property
    def formula(self) -> SlopeFormula | None:
        """The formula, or None where the function has to be called."""
        return None


def slope_formula(loss: object, offset: float, largest: float, clip: bool) -> SlopeFormula | None:
    """Return the numbers of a loss's slope, or None for a loss without a compiled formula."""
    # By exact type: a subclass may compute something else.
    none = np.zeros(0)
    if type(loss) is Logistic:
        return SlopeFormula(
            LOGISTIC, False, -1.0, 1.0, np.zeros(1), np.ones(1), offset, largest, clip
        )
    if type(loss) is Huber:
        return SlopeFormula(LIMIT, True, 0.0, loss.width, none, none, offset, largest, clip)
    if type(loss) is Squared:
        return SlopeFormula(LIMIT, True, 0.0, math.inf, none, none, offset, largest, clip)
    if type(loss) is ConvolvedLoss and type(loss.kernel) is LogisticKernel:
        shape = loss.shape
        return SlopeFormula(
            LOGISTIC,
            loss.kind == "residual",
            shape.slopes[0],
            loss.bandwidth,
            np.array(shape.knots),
            2.0 * np.array(shape.weights),
            offset,
            largest,
            clip,
        )
    if isinstance(loss, PointwiseLoss) and loss.piecewise_linear is not None:
        if type(loss).__module__ != PointwiseLoss.__module__:
            return None
        shape = loss.piecewise_linear
        return SlopeFormula(
            STEPS,
            loss.kind == "residual",
            shape.slope,
            1.0,
            np.array(shape.knots),
            np.array(shape.weights),
            offset,
            largest,
            clip,
        )
    return None
