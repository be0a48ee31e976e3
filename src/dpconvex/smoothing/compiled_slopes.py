r"""Slopes of the pointwise losses as compiled scalar functions, for loops that visit one record at
a time.

A loss is described by plain numbers (:func:`compile_slope`), so that one compiled loop serves every
loss. Values agree with :mod:`dpconvex.losses` and :mod:`dpconvex.smoothing` to rounding. Imported
lazily: numba takes a while to load.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from dpconvex.core import smoothing_kernels as kernels
from dpconvex.core.convolution import ConvolvedLoss
from dpconvex.core.pointwise_losses import Huber, Logistic, Loss, Squared
from dpconvex.losses.scaled_and_clamped import Scaled, piecewise_linear_shape
from dpconvex.smoothing.moreau_envelopes import MoreauLoss

_KINKED, _CONVOLVED, _MOREAU, _LOGISTIC, _HUBER, _SQUARED = range(6)
_KERNELS: dict[type, int] = {
    kernels.LogisticKernel: 0,
    kernels.GaussianKernel: 1,
    kernels.UniformKernel: 2,
    kernels.EpanechnikovKernel: 3,
    kernels.LaplacianKernel: 4,
    kernels.ExponentialKernel: 4,
}


class CompiledSlope(NamedTuple):
    """A loss as numbers: the formula of its slope, and the formula's constants."""

    residual: bool  # a loss of y - z; otherwise of y * z
    formula: int
    kernel: int  # of a convolution
    # reciprocal bandwidth of a convolution, modulus of a Moreau envelope, width of a Huber loss
    width: float
    first: float  # leftmost slope; of a kinked loss the mean of the outermost slopes
    factor: float  # of a loss without knots
    knots: NDArray[np.float64]
    # Jump of the slope at each knot; of a kinked loss half of it; of an envelope the slope to its
    # left, and the last.
    slopes: NDArray[np.float64]


def compile_slope(loss: Loss) -> CompiledSlope | None:
    """Return the numbers that the compiled :func:`slope` needs for a loss, or None for a class
    it does not know.
    """
    residual = loss.kind == "residual"
    none = np.zeros(0)
    if isinstance(loss, ConvolvedLoss):
        kernel = _KERNELS.get(type(loss.kernel))
        if kernel is None:
            return None
        first = loss.shape.slopes[0]
        knots = np.array(loss.shape.knots)
        jumps = 2.0 * np.array(loss.shape.weights)
        return CompiledSlope(
            residual, _CONVOLVED, kernel, 1.0 / loss.bandwidth, first, 1.0, knots, jumps
        )
    if isinstance(loss, MoreauLoss):
        knots = np.array(loss.shape.knots)
        slopes = np.array(loss.shape.slopes)
        return CompiledSlope(
            residual, _MOREAU, 0, loss.modulus, loss.shape.slopes[0], 1.0, knots, slopes
        )
    shape = piecewise_linear_shape(loss)
    if shape is not None:
        knots = np.array(shape.knots)
        weights = np.array(shape.weights)
        return CompiledSlope(residual, _KINKED, 0, 1.0, shape.slope, 1.0, knots, weights)
    if isinstance(loss, Scaled):
        inner = compile_slope(loss.loss)
        if inner is None or inner.knots.size:  # a smoothed loss: scale it before it is smoothed
            return None
        return inner._replace(factor=loss.factor * inner.factor)
    # By exact type: a subclass may compute something else.
    formula = {Logistic: _LOGISTIC, Huber: _HUBER, Squared: _SQUARED}.get(type(loss))
    width = loss.width if isinstance(loss, Huber) else 1.0
    return (
        None
        if formula is None
        else CompiledSlope(residual, formula, 0, width, 0.0, 1.0, none, none)
    )


@numba.njit(inline="always")
def _slope_kernel_cdf(kernel: int, t: float) -> float:
    if kernel == 0:
        return 1.0 / (1.0 + math.exp(-t))
    if kernel == 1:
        return 0.5 * math.erfc(-t * math.sqrt(0.5))
    if kernel == 4:
        tail = 0.5 * math.exp(-abs(t))
        return tail if t < 0 else 1.0 - tail
    t = min(max(t, -1.0), 1.0)
    if kernel == 2:
        return 0.5 * (t + 1.0)
    return 0.25 * (1.0 + t) * (1.0 + t) * (2.0 - t)


@numba.njit(inline="always")
def compiled_slope(loss: CompiledSlope, y: float, z: float) -> float:
    """Return ``d loss / dz`` at target ``y`` and margin ``z``; `loss` is a `CompiledSlope`."""
    u = y - z if loss.residual else y * z
    if loss.formula == 1:
        value = loss.first
        for j in range(loss.knots.size):
            value += loss.slopes[j] * _slope_kernel_cdf(
                loss.kernel, (u - loss.knots[j]) * loss.width
            )
    elif loss.formula == 0:
        value = loss.first
        for j in range(loss.knots.size):
            distance = u - loss.knots[j]
            # Without a branch: which side a record is on cannot be predicted.
            value += loss.slopes[j] * (np.float64(distance > 0) - np.float64(distance < 0))
    elif loss.formula == 2:
        value = loss.first
        for j in range(loss.knots.size):
            low = loss.slopes[j]
            high = loss.slopes[j + 1]
            value += min(max(loss.width * (u - loss.knots[j]), low), high) - low
    elif loss.formula == 3:
        value = -loss.factor / (1.0 + math.exp(u))
    elif loss.formula == 4:
        value = loss.factor * min(max(u, -loss.width), loss.width)
    else:
        value = loss.factor * u
    return -value if loss.residual else y * value
