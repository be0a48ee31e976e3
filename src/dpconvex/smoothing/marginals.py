r"""The law of one coordinate of a multivariate kernel.

``E ||u + h v||_1`` needs nothing else of the kernel, and the largest density of that coordinate decides the
curvature of every smoothed loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gamma, kv

from dpconvex.engine.blocks import row_margins
from dpconvex.smoothing.kernels import ExponentialKernel, GaussianKernel, Kernel, LaplacianKernel
from dpconvex.types import ScalarOrArray

__all__ = ["ExponentialMarginal", "marginal"]

# Trapezoidal rule for int_0^inf exp(-t cosh s) / cosh(s)^j ds, analytic for |Im s| < pi/2: with
# step 1/4 its error is below exp(-39), and beyond 40 the integrand is.
_STEP = 0.25
_COSH = np.cosh(_STEP * np.arange(161))
_WEIGHTS = _STEP * np.concatenate([[0.5], np.ones(160)])


@dataclass(frozen=True)
class ExponentialMarginal(Kernel):
    r"""One coordinate of the exponential kernel in R^m, whose characteristic function is ``(1 + w^2)^{-(m+1)/2}``.

    With ``a = m/2`` and K the modified Bessel function, ``p_a(t) = |t|^a K_a(|t|) / (sqrt(pi) Gamma(a + 1/2) 2^a)``.
    From ``p_a'' = p_a - p_{a-1}`` follow the gap ``2 sum p`` and the tail ``-sum p'`` over ``a, a - 1, ...``: closed
    forms for odd m, plus Bickley's integrals of K_0 for even m.

    Parameters
    ----------
    size : int
        Dimension m of the kernel.
    """

    size: int

    def _orders(self) -> ScalarOrArray:
        return np.arange(self.size / 2, 0.0, -1.0)

    @property
    def peak(self) -> float:
        """``Gamma(m/2) / (2 sqrt(pi) Gamma((m+1)/2))``."""
        return float(gamma(self.size / 2) / (2 * math.sqrt(math.pi) * gamma((self.size + 1) / 2)))

    @property
    def second_moment(self) -> float:
        """``m + 1``."""
        return self.size + 1.0

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return _density(self.size / 2, np.abs(t))

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        distance = np.abs(t)
        tail = np.zeros(np.shape(t))
        for order in self._orders():
            tail = tail + _slope(order, distance)
        if self.size % 2 == 0:
            tail = tail + _bickley(1, distance) / math.pi
        return np.where(t < 0, tail, 1.0 - tail)

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        gap = np.zeros(np.shape(t))
        for order in self._orders():
            gap = gap + 2.0 * _density(order, t)
        if self.size % 2 == 0:
            gap = gap + _bickley(2, t) * (2.0 / math.pi)
        return gap[()]


def _constant(order: float) -> float:
    return float(1 / (math.sqrt(math.pi) * gamma(order + 0.5) * 2**order))


def _density(order: float, t: ScalarOrArray) -> ScalarOrArray:
    """``p_order(t)`` for ``t >= 0``."""
    safe = np.clip(t, 1e-30, 700.0)
    value = np.where(t > 700.0, 0.0, safe**order * kv(order, safe))
    return _constant(order) * np.where(t < 1e-30, 2 ** (order - 1) * gamma(order), value)


def _slope(order: float, t: ScalarOrArray) -> ScalarOrArray:
    """``-p_order'(t)`` for ``t >= 0``: ``t^a K_{a-1}(t)``, which at 0 is 0 unless a is 1/2."""
    safe = np.clip(t, 1e-30, 700.0)
    value = np.where(t > 700.0, 0.0, safe**order * kv(abs(order - 1), safe))
    return _constant(order) * value


def _bickley(power: int, t: ScalarOrArray) -> ScalarOrArray:
    """``int_0^inf exp(-t cosh s) / cosh(s)^power ds``."""
    heights = np.exp(-np.multiply.outer(np.ravel(t), _COSH))
    return row_margins(heights, _WEIGHTS / _COSH**power).reshape(np.shape(t))


def marginal(kernel: Kernel) -> Kernel:
    """Return the law of one coordinate of ``kernel``, a kernel of one dimension."""
    if isinstance(kernel, ExponentialKernel) and kernel.dim > 1:
        return ExponentialMarginal(kernel.dim)
    if isinstance(kernel, (GaussianKernel, LaplacianKernel)):
        return type(kernel)()
    return kernel
