"""Kernels made from others: mixtures of them, and the law of one coordinate of a kernel in
several dimensions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gamma, kv

from dpconvex.core.block_products import block_margins
from dpconvex.core.checks import check_positive
from dpconvex.core.smoothing_kernels import (
    ExponentialKernel,
    GaussianKernel,
    Kernel,
    LaplacianKernel,
)
from dpconvex.types import ScalarOrArray


@dataclass(frozen=True)
class MixtureKernel(Kernel):
    r"""The density ``sum_k w_k pdf_k(t / s_k) / s_k`` of your own: symmetric and unimodal, with
    tails of any shape.

    A scale mixture of uniform kernels comes as close as one likes to any symmetric, unimodal
    density (Khinchin); one of Gaussian kernels gives heavy tails. Everything a smoothed loss needs
    is a sum over the parts, with

    - ``cdf(t) = sum_k w_k cdf_k(t / s_k)``
    - ``gap(t) = sum_k w_k s_k gap_k(t / s_k)``
    - ``second moment = sum_k w_k s_k^2 m_k``, ``peak = sum_k w_k peak_k / s_k``

    In m dimensions parts are Gaussian: their scale mixtures are the radial densities that exist in
    any number of dimensions (Schoenberg), for :func:`~dpconvex.smoothing.convolve_vector`.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels of one dimension, or ``GaussianKernel(m)`` each.
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
        weights = tuple(self.weights)
        widths = (1.0,) * len(kernels) if self.widths is None else tuple(self.widths)
        scalar = all(isinstance(kernel, Kernel) and kernel.dim == 1 for kernel in kernels)
        radial = (
            all(isinstance(kernel, GaussianKernel) for kernel in kernels)
            and len({k.dim for k in kernels}) == 1
        )
        if not kernels or not (scalar or radial):
            raise TypeError(
                "The 'kernels' parameter of MixtureKernel must be kernels of one dimension, at "
                "least one, or Gaussian ones of the same dimension. Got something else instead. "
                "See dpconvex.smoothing.KERNELS."
            )
        if not len(kernels) == len(weights) == len(widths):
            raise ValueError(
                f"The 'weights' and 'widths' parameters of MixtureKernel must have {len(kernels)} "
                f"entries, one per kernel. Got {len(weights)} and {len(widths)} instead."
            )
        remedy = "Leave out parts that have no weight."
        weights = tuple(
            check_positive("weights", "MixtureKernel", weight, remedy) for weight in weights
        )
        widths = tuple(check_positive("widths", "MixtureKernel", width, remedy) for width in widths)
        total = math.fsum(weights)
        if abs(total - 1) > 1e-12:
            weights = tuple(weight / total for weight in weights)
        for name, parts in (("kernels", kernels), ("weights", weights), ("widths", widths)):
            object.__setattr__(self, name, parts)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """That of the parts."""
        return self.kernels[0].dim

    def _mean(self, part: Callable[[Kernel, float], ScalarOrArray | float]) -> ScalarOrArray:
        parts = zip(self.kernels, self.weights, self.widths or (), strict=True)
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
        """``sum_k w_k peak_k / s_k^m``."""
        return float(self._mean(lambda kernel, width: kernel.peak / width**self.dim))


# Trapezoidal rule for int_0^inf exp(-t cosh s) / cosh(s)^j ds, analytic for |Im s| < pi/2: with
# step 1/4 its error is below exp(-39), and beyond 40 the integrand is.
_STEP = 0.25
_COSH = np.cosh(_STEP * np.arange(161))
_WEIGHTS = _STEP * np.concatenate([[0.5], np.ones(160)])


@dataclass(frozen=True)
class ExponentialMarginalKernel(Kernel):
    r"""One coordinate of the exponential kernel in R^m, whose characteristic function is
    ``(1 + w^2)^{-(m+1)/2}``.

    With ``a = m/2`` and K the modified Bessel function,
    ``p_a(t) = |t|^a K_a(|t|) / (sqrt(pi) Gamma(a + 1/2) 2^a)``. From ``p_a'' = p_a - p_{a-1}``
    follow the gap ``2 sum p`` and the tail ``-sum p'`` over ``a, a - 1, ...``: closed forms for odd
    m, plus Bickley's integrals of K_0 for even m. ``size`` is m.
    """

    size: int

    @property
    def peak(self) -> float:
        """``Gamma(m/2) / (2 sqrt(pi) Gamma((m+1)/2))``."""
        return float(gamma(self.size / 2) / (2 * math.sqrt(math.pi) * gamma((self.size + 1) / 2)))

    @property
    def second_moment(self) -> float:
        """``m + 1``."""
        return self.size + 1.0

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return _radial_density(self.size / 2, np.abs(t))

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        distance = np.abs(t)
        tail = np.zeros(np.shape(t))
        for order in np.arange(self.size / 2, 0.0, -1.0):
            # -p_order'(t) is t^a K_{a-1}(t), which at 0 is 0 unless a is 1/2.
            constant, value = _bessel_density(order, abs(order - 1), distance)
            tail = tail + constant * value
        if self.size % 2 == 0:
            tail = tail + _bickley_integral(1, distance) / math.pi
        return np.where(t < 0, tail, 1.0 - tail)

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        gap = np.zeros(np.shape(t))
        for order in np.arange(self.size / 2, 0.0, -1.0):
            gap = gap + 2.0 * _radial_density(order, t)
        if self.size % 2 == 0:
            gap = gap + _bickley_integral(2, t) * (2.0 / math.pi)
        return gap[()]


def _bessel_density(
    order: float, bessel_order: float, t: ScalarOrArray
) -> tuple[float, ScalarOrArray]:
    """Return the constant of ``p_order``, and ``t^order K_bessel_order(t)`` for ``t >= 0``."""
    safe = np.clip(t, 1e-30, 700.0)
    value = np.where(t > 700.0, 0.0, safe**order * kv(bessel_order, safe))
    return float(1 / (math.sqrt(math.pi) * gamma(order + 0.5) * 2**order)), value


def _radial_density(order: float, t: ScalarOrArray) -> ScalarOrArray:
    """``p_order(t)`` for ``t >= 0``."""
    constant, value = _bessel_density(order, order, t)
    return constant * np.where(t < 1e-30, 2 ** (order - 1) * gamma(order), value)


def _bickley_integral(power: int, t: ScalarOrArray) -> ScalarOrArray:
    """``int_0^inf exp(-t cosh s) / cosh(s)^power ds``."""
    heights = np.exp(-np.multiply.outer(np.ravel(t), _COSH))
    return block_margins(heights, _WEIGHTS / _COSH**power).reshape(np.shape(t))


def marginal_kernel(kernel: Kernel) -> Kernel:
    """Return the marginal law of one coordinate of ``kernel``, a kernel of one dimension."""
    if isinstance(kernel, ExponentialKernel) and kernel.dim > 1:
        return ExponentialMarginalKernel(kernel.dim)
    if isinstance(kernel, (GaussianKernel, LaplacianKernel)):
        return type(kernel)()
    if isinstance(kernel, MixtureKernel):
        return replace(kernel, kernels=tuple(marginal_kernel(part) for part in kernel.kernels))
    return kernel
