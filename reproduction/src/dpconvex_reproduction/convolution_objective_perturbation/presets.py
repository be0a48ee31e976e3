r"""The constants of Theorem 3.2, Lemma 3.3 and step 1 of Algorithm 1 for ``||A(z) theta||_1 + h(z . theta)``.

As printed, for comparison: the certificate of a fit derives larger noise under replace-one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.losses.structured import L1WithLink
from dpconvex.smoothing import ExponentialKernel, GaussianKernel, Kernel, LaplacianKernel

__all__ = ["LinkedPreset", "kernel_smoothness", "lemma_3_3", "theorem_3_2"]


def theorem_3_2(
    outputs: int, operator_norm: float, link_slope: float, row_norm: float, epsilon: float, delta: float
) -> float:
    """Return ``sigma = C sqrt(8 log(1/delta) + 8 epsilon) / epsilon``, ``C^2 = m A^2 + L_h^2 D^2``, on the sum.

    Examples
    --------
    >>> round(theorem_3_2(3, 1.0, 0.0, 1.0, 1.0, 1e-5) / 3**0.5, 4)
    10.0052
    """
    size = math.sqrt(outputs * operator_norm**2 + (link_slope * row_norm) ** 2)
    return size * math.sqrt(8 * math.log(1 / delta) + 8 * epsilon) / epsilon


def kernel_smoothness(kernel: Kernel, outputs: int) -> float:
    """Return ``beta_mu * mu`` of Table 1 for the l1 norm (p = 1, L = 1): 1, or sqrt(6) for the other two kernels.

    The sharp constants are smaller: ``SmoothedL1.smoothness``.
    """
    if isinstance(kernel, GaussianKernel):
        return 1.0
    if isinstance(kernel, (ExponentialKernel, LaplacianKernel)):
        return math.sqrt(6)
    raise ValueError(
        f"Table 1 has the Gaussian, exponential and Laplacian kernels. Got {type(kernel).__name__} instead."
    )


@dataclass(frozen=True)
class LinkedPreset:
    """What Lemma 3.3 and step 1 prescribe.

    Attributes
    ----------
    std, alpha, bandwidth : float
        Noise on the sum, ``2 lambda``, and mu; the bandwidth is infinite where the link's curvature alone exceeds what
        lambda allows.
    risk : float
        ``4 sqrt(2) C R (1/sqrt(n) + sqrt(d log(1/delta)) / (n epsilon))``, the smoothing gap excluded.
    """

    std: float
    alpha: float
    bandwidth: float
    risk: float


def lemma_3_3(
    loss: L1WithLink, n: int, d: int, epsilon: float, delta: float, radius: float,
    operator_norm: float = 1.0, row_norm: float = 1.0, kernel: Kernel | None = None,
) -> LinkedPreset:  # fmt: skip
    """Return ``lambda = sqrt(4 C^2/n + d sigma^2/n^2) / R``; mu solves ``lambda n eps = (beta_mu + beta_h) (m + 1)``.

    Parameters
    ----------
    loss : L1WithLink
        m rows in the norm, and the link h.
    n, d : int
        Records and coefficients.
    epsilon, delta : float
        What the paper claims.
    radius, operator_norm, row_norm : float
        R, the bound on A, and D.
    kernel : Kernel, optional
        Of Table 1; Gaussian by default.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> found = lemma_3_3(L1WithLink(2, Logistic()), 10_000, 5, 1.0, 1e-6, radius=1.0)
    >>> round(found.alpha, 4), round(found.bandwidth, 4)
    (0.0698, 0.0086)
    """
    kernel = kernel or GaussianKernel(loss.size)
    slope, bend = float(loss.pointwise.lipschitz), float(loss.pointwise.smoothness) * row_norm**2
    std = theorem_3_2(loss.size, operator_norm, slope, row_norm, epsilon, delta)
    size = math.sqrt(loss.size * operator_norm**2 + (slope * row_norm) ** 2)
    penalty = math.sqrt(4 * size**2 / n + d * std**2 / n**2) / radius
    left = penalty * n * epsilon / (loss.size + 1) - bend
    width = kernel_smoothness(kernel, loss.size) / left if left > 0 else math.inf
    rate = 1 / math.sqrt(n) + math.sqrt(d * math.log(1 / delta)) / (n * epsilon)
    return LinkedPreset(std, 2 * penalty, width, 4 * math.sqrt(2) * size * radius * rate)
