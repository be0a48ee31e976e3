"""Densities that a kinked loss is averaged over, with closed forms of ``E|t + v|``.

Every kernel is symmetric around 0 and decreases away from it. For such a density

``E|t + v| = |t| + gap(t)``, ``gap(t) = 2 * integral_{|t|}^{inf} (s - |t|) pdf(s) ds >= 0``

and the gap is what is coded: it decays fast, so far from a kink the smoothed loss *is* the loss, without cancellation
and without overflow, whatever the size of ``t``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, expit, gamma, gammaln, kv, ndtr

from dpconvex.checks import check_count, check_positive, parameter_error
from dpconvex.engine.block_products import block_margins
from dpconvex.types import ScalarOrArray

# exp(-t**2 / 2) is zero in float64 beyond this, and squaring a capped t cannot overflow.
_GAUSSIAN_REACH = 40.0


class Kernel(ABC):
    """A symmetric, unimodal density of a random ``v``, in one dimension unless ``dim`` says more.

    Subclasses give the formulas in one dimension: ``_pdf``, ``_cdf``, ``_gap`` of float64 input (``_gap`` receives
    ``|t|``), and the constants ``_second_moment`` and ``_peak``.
    """

    _second_moment: ClassVar[float]
    _peak: ClassVar[float]
    dim: int = 1

    @abstractmethod
    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray: ...

    @abstractmethod
    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray: ...

    @abstractmethod
    def _gap(self, t: ScalarOrArray) -> ScalarOrArray: ...

    def _scalar(self, what: str, t: ArrayLike = 0.0) -> ScalarOrArray:
        if self.dim != 1:
            remedy = f"Pointwise losses have one variable: smooth them with {type(self).__name__}(dim=1)."
            raise parameter_error("dim", type(self).__name__, f"1 for {what}", str(self.dim), remedy)
        return np.asarray(t, dtype=np.float64)[()]

    def pdf(self, t: ArrayLike) -> ScalarOrArray:
        """Density, elementwise (one dimension)."""
        return self._pdf(self._scalar("pdf", t))

    def cdf(self, t: ArrayLike) -> ScalarOrArray:
        """Probability of ``v <= t``, elementwise (one dimension)."""
        return self._cdf(self._scalar("cdf", t))

    def gap(self, t: ArrayLike) -> ScalarOrArray:
        """``E|t + v| - |t|``, with full relative accuracy down to the smallest float64."""
        return self._gap(np.abs(self._scalar("gap", t)))

    @property
    def mean_abs(self) -> float:
        """``E|v|``, the largest value of the gap."""
        return float(self._gap(self._scalar("mean_abs")))

    @property
    def second_moment(self) -> float:
        """``E v**2``."""
        self._scalar("second_moment")
        return self._second_moment

    @property
    def peak(self) -> float:
        """``sup pdf = pdf(0)``."""
        return self._peak


@dataclass(frozen=True)
class _ProductOrRadialKernel(Kernel):
    """A kernel that also exists in ``dim`` dimensions, where only its density is offered."""

    dim: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", check_count("dim", type(self).__name__, self.dim))

    @abstractmethod
    def _log_density(self, v: ScalarOrArray) -> ScalarOrArray:
        """Logarithm of the density at ``v`` of shape ``(..., dim)``."""

    def pdf(self, t: ArrayLike) -> ScalarOrArray:
        """Density of the kernel: elementwise if ``dim`` is 1, else over the last axis, of length ``dim``."""
        if self.dim == 1:
            return super().pdf(t)
        v = np.asarray(t, dtype=np.float64)
        if v.ndim == 0 or v.shape[-1] != self.dim:
            raise ValueError(
                f"The 't' parameter of pdf must have a last axis of length {self.dim}. Got shape {v.shape} instead. "
                "Put one point in each row."
            )
        return np.exp(self._log_density(v))

    @property
    def peak(self) -> float:
        """``sup pdf = pdf(0)``."""
        if self.dim == 1:
            return self._peak
        return float(np.exp(self._log_density(np.zeros(1))))  # 0 has norm 0 in any dimension


@dataclass(frozen=True)
class GaussianKernel(_ProductOrRadialKernel):
    """Standard normal density ``exp(-||v||**2 / 2) / (2 pi)**(dim / 2)``.

    Parameters
    ----------
    dim : int, default=1
        Dimension.
    """

    _second_moment: ClassVar[float] = 1.0
    _peak: ClassVar[float] = 1.0 / math.sqrt(2.0 * math.pi)

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        t = np.minimum(np.abs(t), _GAUSSIAN_REACH)
        return np.exp(-0.5 * (t * t)) * self._peak

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return ndtr(t)

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        # 2 (pdf(t) - t P(v > t)), with the common factor pdf(t) taken out: the bracket, about
        # 1/t**2, loses at most eps * t**2 < 4e-13 of its digits before pdf(t) underflows.
        t = np.minimum(t, _GAUSSIAN_REACH)
        bracket = 1.0 - math.sqrt(math.pi / 2) * t * erfcx(t * math.sqrt(0.5))
        return 2.0 * self._peak * np.exp(-0.5 * (t * t)) * bracket

    def _log_density(self, v: ScalarOrArray) -> ScalarOrArray:
        return -0.5 * (np.square(v).sum(axis=-1) + self.dim * math.log(2.0 * math.pi))


@dataclass(frozen=True)
class LogisticKernel(Kernel):
    """Logistic density ``exp(-t) / (1 + exp(-t))**2``; its gap is ``2 log(1 + exp(-|t|))``."""

    _second_moment: ClassVar[float] = math.pi**2 / 3.0
    _peak: ClassVar[float] = 0.25

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        tail = np.exp(-np.abs(t))
        return tail / np.square(1.0 + tail)

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return expit(t)

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        return 2.0 * np.log1p(np.exp(-t))


@dataclass(frozen=True)
class UniformKernel(Kernel):
    """Uniform density ``1/2`` on [-1, 1]; its gap is ``((1 - |t|)^+)**2 / 2``."""

    _second_moment: ClassVar[float] = 1.0 / 3.0
    _peak: ClassVar[float] = 0.5

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return np.where(np.abs(t) <= 1.0, 0.5, 0.0)

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return 0.5 * (np.clip(t, -1.0, 1.0) + 1.0)

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        return 0.5 * np.square(1.0 - np.minimum(t, 1.0))


@dataclass(frozen=True)
class EpanechnikovKernel(Kernel):
    """Density ``(3/4) (1 - t**2)`` on [-1, 1]; its gap is ``(1 - |t|)**3 (3 + |t|) / 8`` there."""

    _second_moment: ClassVar[float] = 0.2
    _peak: ClassVar[float] = 0.75

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        t = np.minimum(np.abs(t), 1.0)
        return 0.75 * ((1.0 - t) * (1.0 + t))

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        t = np.clip(t, -1.0, 1.0)
        return 0.25 * np.square(1.0 + t) * (2.0 - t)

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        inside = 1.0 - np.minimum(t, 1.0)
        return 0.125 * (inside * inside * inside) * (4.0 - inside)


class _DoubleExponentialKernel(_ProductOrRadialKernel):
    """The one-dimensional law ``exp(-|t|) / 2``, whose gap is ``exp(-|t|)``."""

    _second_moment: ClassVar[float] = 2.0
    _peak: ClassVar[float] = 0.5

    def _pdf(self, t: ScalarOrArray) -> ScalarOrArray:
        return 0.5 * np.exp(-np.abs(t))

    def _cdf(self, t: ScalarOrArray) -> ScalarOrArray:
        tail = 0.5 * np.exp(-np.abs(t))
        return np.where(t < 0, tail, 1.0 - tail)

    def _gap(self, t: ScalarOrArray) -> ScalarOrArray:
        return np.exp(-t)


@dataclass(frozen=True)
class LaplacianKernel(_DoubleExponentialKernel):
    """Product of ``dim`` Laplace densities, ``exp(-||v||_1) / 2**dim``.

    Parameters
    ----------
    dim : int, default=1
        Dimension.
    """

    def _log_density(self, v: ScalarOrArray) -> ScalarOrArray:
        return -np.abs(v).sum(axis=-1) - self.dim * math.log(2.0)


@dataclass(frozen=True)
class ExponentialKernel(_DoubleExponentialKernel):
    """Density ``exp(-||v||_2) Gamma(dim/2) / (2 pi**(dim/2) Gamma(dim))``; Laplacian if dim is 1.

    Parameters
    ----------
    dim : int, default=1
        Dimension.
    """

    def _log_density(self, v: ScalarOrArray) -> ScalarOrArray:
        half = self.dim / 2.0
        constant = gammaln(half) - gammaln(self.dim) - half * math.log(math.pi) - math.log(2.0)
        return constant - np.sqrt(np.square(v).sum(axis=-1))


@dataclass(frozen=True)
class MixtureKernel(Kernel):
    r"""The density ``sum_k w_k pdf_k(t / s_k) / s_k`` of your own: symmetric and unimodal, with tails of any shape.

    A scale mixture of uniform kernels comes as close as one likes to any symmetric, unimodal density (Khinchin); one of
    Gaussian kernels gives heavy tails. Everything a smoothed loss needs is a sum over the parts, with

    - ``cdf(t) = sum_k w_k cdf_k(t / s_k)``
    - ``gap(t) = sum_k w_k s_k gap_k(t / s_k)``
    - ``second moment = sum_k w_k s_k^2 m_k``, ``peak = sum_k w_k peak_k / s_k``

    In m dimensions parts are Gaussian: their scale mixtures are the radial densities that exist in any number of
    dimensions (Schoenberg), for :func:`~dpconvex.smoothing.convolve_vector`.

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
        kernels, weights = tuple(self.kernels), tuple(self.weights)
        widths = (1.0,) * len(kernels) if self.widths is None else tuple(self.widths)
        scalar = all(isinstance(kernel, Kernel) and kernel.dim == 1 for kernel in kernels)
        radial = all(isinstance(kernel, GaussianKernel) for kernel in kernels) and len({k.dim for k in kernels}) == 1
        if not kernels or not (scalar or radial):
            raise TypeError(
                "The 'kernels' parameter of MixtureKernel must be kernels of one dimension, at least one, or Gaussian "
                "ones of the same dimension. Got something else instead. See dpconvex.smoothing.KERNELS."
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
    r"""One coordinate of the exponential kernel in R^m, whose characteristic function is ``(1 + w^2)^{-(m+1)/2}``.

    With ``a = m/2`` and K the modified Bessel function, ``p_a(t) = |t|^a K_a(|t|) / (sqrt(pi) Gamma(a + 1/2) 2^a)``.
    From ``p_a'' = p_a - p_{a-1}`` follow the gap ``2 sum p`` and the tail ``-sum p'`` over ``a, a - 1, ...``: closed
    forms for odd m, plus Bickley's integrals of K_0 for even m. ``size`` is m.
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


def _bessel_density(order: float, bessel_order: float, t: ScalarOrArray) -> tuple[float, ScalarOrArray]:
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


KERNELS = MappingProxyType({
    "gaussian": GaussianKernel(), "logistic": LogisticKernel(), "uniform": UniformKernel(),
    "epanechnikov": EpanechnikovKernel(), "laplacian": LaplacianKernel(), "exponential": ExponentialKernel(),
})  # fmt: skip
"""The one-dimensional kernels by name, for estimators that take ``kernel="logistic"``."""
