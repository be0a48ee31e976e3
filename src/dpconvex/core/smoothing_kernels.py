"""Densities that a kinked loss is averaged over, with closed forms of ``E|t + v|``.

Every kernel is symmetric around 0 and decreases away from it. For such a density

``E|t + v| = |t| + gap(t)``, ``gap(t) = 2 * integral_{|t|}^{inf} (s - |t|) pdf(s) ds >= 0``

and the gap is what is coded: it decays fast, so far from a kink the smoothed loss *is* the loss,
without cancellation and without overflow, whatever the size of ``t``.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, expit, gammaln, ndtr

from dpconvex.core.checks import check_count, parameter_error
from dpconvex.types import ScalarOrArray

# exp(-t**2 / 2) is zero in float64 beyond this, and squaring a capped t cannot overflow.
_GAUSSIAN_REACH = 40.0


class Kernel(ABC):
    """A symmetric, unimodal density of a random ``v``, in one dimension unless ``dim`` says more.

    Subclasses give the formulas in one dimension: ``_pdf``, ``_cdf``, ``_gap`` of float64 input
    (``_gap`` receives ``|t|``), and the constants ``_second_moment`` and ``_peak``.
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
            remedy = (
                "Pointwise losses have one variable: smooth them with "
                f"{type(self).__name__}(dim=1)."
            )
            raise parameter_error(
                "dim", type(self).__name__, f"1 for {what}", str(self.dim), remedy
            )
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
        """Density of the kernel: elementwise if ``dim`` is 1, else over the last axis, of length
        ``dim``.
        """
        if self.dim == 1:
            return super().pdf(t)
        v = np.asarray(t, dtype=np.float64)
        if v.ndim == 0 or v.shape[-1] != self.dim:
            raise ValueError(
                f"The 't' parameter of pdf must have a last axis of length {self.dim}. Got shape "
                f"{v.shape} instead. Put one point in each row."
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


KERNELS = MappingProxyType(
    {
        "gaussian": GaussianKernel(),
        "logistic": LogisticKernel(),
        "uniform": UniformKernel(),
        "epanechnikov": EpanechnikovKernel(),
        "laplacian": LaplacianKernel(),
        "exponential": ExponentialKernel(),
    }
)
"""The one-dimensional kernels by name, for estimators that take ``kernel="logistic"``."""
