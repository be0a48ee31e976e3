"""Convolution smoothing: a kinked loss averaged over a small random shift of its argument."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpconvex.core.checks import check_positive, parameter_error
from dpconvex.core.pointwise_losses import (
    Loss,
    PointwiseLoss,
    PointwisePiecewiseLinear,
    that_of_the_loss,
)
from dpconvex.core.smoothing_kernels import Kernel
from dpconvex.types import ScalarOrArray

# Cells between neighbouring knots in the bound on the curvature: it holds for any number of them,
# and more cells make it tighter. With k knots k^2 densities are computed per cell; beyond the
# largest number, the crudest bound must do.
_CELLS = 1024
_MOST_DENSITIES = 2**22


class SmoothedLoss(PointwiseLoss):
    """A piecewise-linear loss made smooth: kind, range of slopes and Lipschitz constant stay
    those of the loss.
    """

    loss: PointwiseLoss
    # averages of slopes stay inside
    kind = that_of_the_loss("kind")
    slope_range = that_of_the_loss("slope_range")

    @cached_property
    def shape(self) -> PointwisePiecewiseLinear:
        """The function that is smoothed."""
        shape = self.loss.piecewise_linear
        assert shape is not None, "checked at construction"
        return shape

    @property
    def lipschitz(self) -> float:
        """That of the loss: the slope far from the knots is unchanged."""
        return self.shape.lipschitz


@dataclass(frozen=True)
class ConvolvedLoss(SmoothedLoss):
    """``c_h(u) = E c(u + h v)`` for a piecewise-linear ``c``; build it with :func:`convolve`.

    With knots ``k_j``, weights ``w_j``, bandwidth ``h`` and ``t_j = (u - k_j) / h``:

    - ``c_h(u) = c(u) + h * sum_j w_j * gap(t_j)``
    - ``c_h'(u) = slopes[0] + sum_j 2 w_j * cdf(t_j)``
    - ``c_h''(u) = sum_j 2 w_j * pdf(t_j) / h``
    """

    loss: PointwiseLoss
    kernel: Kernel
    bandwidth: float

    def __post_init__(self) -> None:
        # Checked here and not in convolve: a loss read back from a file passes through here too.
        loss = self.loss
        kernel = self.kernel
        bandwidth = self.bandwidth
        if not isinstance(loss, PointwiseLoss) or loss.piecewise_linear is None:
            name = type(loss).__name__
            remedy = "Write it as KinkedLoss(knots, slopes)."
            smooth = isinstance(loss, Loss) and math.isfinite(loss.smoothness)
            if smooth:
                remedy = (
                    f"{name} is already smooth (smoothness={loss.smoothness:g}): use it as it is."
                )
            allowed = "a piecewise-linear loss such as Pinball, Hinge or KinkedLoss"
            raise parameter_error(
                "loss", "convolve", allowed, name, remedy, ValueError if smooth else TypeError
            )
        if not isinstance(kernel, Kernel):
            allowed = "a kernel such as LogisticKernel()"
            remedy = "See dpconvex.smoothing.KERNELS."
            raise parameter_error(
                "kernel", "convolve", allowed, type(kernel).__name__, remedy, kind=TypeError
            )
        if kernel.dim != 1:
            raise ValueError(
                "The 'kernel' parameter of convolve must have dim=1. "
                f"Got {kernel!r} instead. Use {type(kernel).__name__}(dim=1)."
            )
        remedy = "For no smoothing use the loss itself with a mechanism that accepts kinks."
        number = check_positive("bandwidth", "convolve", bandwidth, remedy)
        object.__setattr__(self, "bandwidth", number)
        if not math.isfinite(2.0 * sum(self.shape.weights) * kernel.peak / number):
            raise ValueError(
                "The 'bandwidth' parameter of convolve must leave a finite smoothness. "
                f"Got {bandwidth!r} instead. Use a larger bandwidth."
            )

    @cached_property
    def approximation_gap(self) -> float:
        """``bandwidth * mean_abs * sum_j w_j >= sup (c_h - c) >= 0``, an equality for one kink."""
        return self.bandwidth * self.kernel.mean_abs * math.fsum(self.shape.weights)

    @cached_property
    def smoothness(self) -> float:
        """``sup c_h''`` of the convolution: ``2 w * peak / h`` for one kink, a certified upper
        bound for several.

        Between two neighbouring knots the terms of the knots on the left decrease and those on the
        right increase, so on a cell [a, b] the curvature is at most ``left(a) + right(b)``; the
        largest such bound holds everywhere, because outside the knots all terms decrease.
        """
        h = self.bandwidth
        knots = np.asarray(self.shape.knots)
        jumps = 2.0 * np.asarray(self.shape.weights)
        total = float(jumps.sum()) * self.kernel.peak / h
        cells = min(_CELLS, _MOST_DENSITIES // len(knots) ** 2)
        if len(knots) == 1 or cells == 0:
            return total
        worst = 0.0
        for i in range(1, len(knots)):
            grid = np.linspace(knots[i - 1], knots[i], cells + 1)[:, None]
            left = self.kernel.pdf((grid[:-1] - knots[:i]) / h) @ jumps[:i]
            right = self.kernel.pdf((grid[1:] - knots[i:]) / h) @ jumps[i:]
            worst = max(worst, float(np.max(left + right)))
        # The allowance covers rounding in the densities, which are monotone only up to that.
        return min(total, worst / h * (1.0 + 1e-12))

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c_h(u)`` for float64 ``u``."""
        shape = self.shape
        h = self.bandwidth
        gap = self.kernel.gap
        value = shape.value(u)
        for knot, weight in zip(shape.knots, shape.weights, strict=True):
            value = value + (h * weight) * gap((u - knot) / h)
        return value

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c_h'(u)`` for float64 ``u``."""
        shape = self.shape
        h = self.bandwidth
        cdf = self.kernel.cdf
        slope = shape.slopes[0]
        for knot, weight in zip(shape.knots, shape.weights, strict=True):
            slope = slope + (2.0 * weight) * cdf((u - knot) / h)
        return slope

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c_h''(u)`` for float64 ``u``."""
        shape = self.shape
        h = self.bandwidth
        pdf = self.kernel.pdf
        curvature = 0.0
        for knot, weight in zip(shape.knots, shape.weights, strict=True):
            curvature = curvature + (2.0 * weight / h) * pdf((u - knot) / h)
        return curvature


def convolve(loss: PointwiseLoss, kernel: Kernel, bandwidth: float) -> ConvolvedLoss:
    """Smooth a piecewise-linear loss from above: ``c_h(u) = E c(u + bandwidth * v)``, v ~ kernel.

    The result is convex and twice differentiable, has the loss's own Lipschitz constant, and lies
    above the loss by at most ``bandwidth * kernel.mean_abs * sum_j w_j`` (``approximation_gap``),
    where ``2 w_j`` is the jump of the slope at knot j. Its smoothness is at most
    ``sum_j 2 w_j * kernel.peak / bandwidth``, and exactly that for one knot.

    Parameters
    ----------
    loss : Pinball, Absolute, ReLU, SoftThreshold, Hinge, KinkedLoss or Scaled of one of them
        The loss to smooth.
    kernel : Kernel
        One-dimensional.
    bandwidth : float
        Positive, in the units of ``u`` (the target's for a residual loss).

    Privacy
    -------
    Lipschitz and smoothness are functions of the loss, the kernel and the bandwidth alone. They are
    public if the bandwidth is: choose it from public facts, not from residuals.

    Examples
    --------
    >>> from dpconvex.losses import Pinball
    >>> from dpconvex.smoothing import LogisticKernel, convolve
    >>> smooth = convolve(Pinball(0.9), LogisticKernel(), bandwidth=0.1)
    >>> smooth.lipschitz, smooth.smoothness
    (0.9, 2.5)
    """
    return ConvolvedLoss(loss, kernel, bandwidth)
