"""A kernel of one's own, as a mixture of kernels of several widths: closed forms that a certificate can state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpconvex.checks import check_positive
from dpconvex.smoothing.kernels import Kernel
from dpconvex.types import ScalarOrArray

__all__ = ["MixtureKernel"]


@dataclass(frozen=True)
class MixtureKernel(Kernel):
    r"""The density ``sum_k w_k pdf_k(t / s_k) / s_k``: symmetric and unimodal like its parts, for tails of any shape.

    A scale mixture of uniform kernels comes as close as one likes to any symmetric, unimodal density (Khinchin); one of
    Gaussian kernels gives heavy tails. Everything a smoothed loss needs is a sum over the parts, with

    - ``cdf(t) = sum_k w_k cdf_k(t / s_k)``
    - ``gap(t) = sum_k w_k s_k gap_k(t / s_k)``
    - ``second moment = sum_k w_k s_k^2 m_k``, ``peak = sum_k w_k peak_k / s_k``

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels of one dimension.
    weights : sequence of float
        Positive; they are divided by their sum.
    widths : sequence of float, optional
        The s_k, positive; 1 by default.

    Examples
    --------
    >>> from dpconvex.smoothing import GaussianKernel
    >>> heavy = MixtureKernel((GaussianKernel(), GaussianKernel()), (0.9, 0.1), (1.0, 5.0))
    >>> round(heavy.second_moment, 6)
    3.4
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...]
    widths: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        kernels = tuple(self.kernels)
        widths = (1.0,) * len(kernels) if self.widths is None else tuple(self.widths)
        weights = tuple(self.weights)
        if not kernels or not all(isinstance(kernel, Kernel) and kernel.dim == 1 for kernel in kernels):
            raise TypeError(
                "The 'kernels' parameter of MixtureKernel must be kernels of one dimension, at least one. "
                "Got something else instead. See dpconvex.smoothing.KERNELS."
            )
        if not len(kernels) == len(weights) == len(widths):
            raise ValueError(
                f"The 'weights' and 'widths' parameters of MixtureKernel must have {len(kernels)} entries, one per "
                f"kernel. Got {len(weights)} and {len(widths)} instead."
            )
        remedy = "Leave out parts that have no weight."
        weights = tuple(check_positive("weights", "MixtureKernel", weight, remedy) for weight in weights)
        widths = tuple(check_positive("widths", "MixtureKernel", width, remedy) for width in widths)
        total = math.fsum(weights)
        if abs(total - 1) > 1e-12:
            weights = tuple(weight / total for weight in weights)
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "widths", widths)

    def _mean(self, part: Callable[[Kernel, float], ScalarOrArray | float]) -> ScalarOrArray:
        widths = self.widths or ()
        parts = zip(self.kernels, self.weights, widths, strict=True)
        return np.asarray(sum(weight * part(kernel, width) for kernel, weight, width in parts))[()]

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return self._mean(lambda kernel, width: kernel._pdf(t / width) / width)

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return self._mean(lambda kernel, width: kernel._cdf(t / width))

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        return self._mean(lambda kernel, width: width * kernel._gap(t / width))

    @property
    def second_moment(self) -> float:
        """``sum_k w_k s_k^2 m_k``."""
        return float(self._mean(lambda kernel, width: width**2 * kernel.second_moment))

    @property
    def peak(self) -> float:
        """``sum_k w_k peak_k / s_k``."""
        return float(self._mean(lambda kernel, width: kernel.peak / width))
