r"""The constants of Theorem 3.2, Lemma 3.3 and step 1 of Algorithm 1 for
``||A(z) theta||_1 + h(z . theta)``.

As printed, for comparison: the certificate of a fit derives larger noise under replace-one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.losses.vector_losses import L1WithLink
from dpconvex.smoothing import ExponentialKernel, GaussianKernel, Kernel, LaplacianKernel

__all__ = [
    "LinkedPreset",
    "RateConditions",
    "kernel_smoothness",
    "lemma_3_3",
    "theorem_3_2",
    "theorem_4_5",
]


def theorem_3_2(
    outputs: int,
    operator_norm: float,
    link_slope: float,
    row_norm: float,
    epsilon: float,
    delta: float,
) -> float:
    """Return ``sigma = C sqrt(8 log(1/delta) + 8 epsilon) / epsilon``, ``C^2 = m A^2 + L_h^2 D^2``,
    on the sum.

    Examples
    --------
    >>> round(theorem_3_2(3, 1.0, 0.0, 1.0, 1.0, 1e-5) / 3**0.5, 4)
    10.0052
    """
    size = math.sqrt(outputs * operator_norm**2 + (link_slope * row_norm) ** 2)
    return size * math.sqrt(8 * math.log(1 / delta) + 8 * epsilon) / epsilon


def kernel_smoothness(kernel: Kernel, outputs: int) -> float:
    """Return ``beta_mu * mu`` of Table 1 for the l1 norm (p = 1, L = 1): 1, or sqrt(6) for the
    other two kernels.

    The sharp constants are smaller: ``SmoothedL1.smoothness``.
    """
    if isinstance(kernel, GaussianKernel):
        return 1.0
    if isinstance(kernel, (ExponentialKernel, LaplacianKernel)):
        return math.sqrt(6)
    raise ValueError(
        "Table 1 has the Gaussian, exponential and Laplacian kernels. Got "
        f"{type(kernel).__name__} instead."
    )


@dataclass(frozen=True)
class LinkedPreset:
    """What Lemma 3.3 and step 1 prescribe.

    Attributes
    ----------
    std, alpha, bandwidth : float
        Noise on the sum, ``2 lambda``, and mu; the bandwidth is infinite where the link's curvature
        alone exceeds what lambda allows.
    risk : float
        ``4 sqrt(2) C R (1/sqrt(n) + sqrt(d log(1/delta)) / (n epsilon))``, the smoothing gap
        excluded.
    """

    std: float
    alpha: float
    bandwidth: float
    risk: float


def lemma_3_3(
    loss: L1WithLink,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    radius: float,
    operator_norm: float = 1.0,
    row_norm: float = 1.0,
    kernel: Kernel | None = None,
) -> LinkedPreset:
    """Return ``lambda = sqrt(4 C^2/n + d sigma^2/n^2) / R``; mu solves
    ``lambda n eps = (beta_mu + beta_h) (m + 1)``.

    ``beta_mu = L_f / mu`` with ``L_f = sqrt(m) A + D L_h``, as Appendix B.3 reads step 1 and Table
    1.

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
    (0.0698, 0.0208)
    """
    kernel = kernel or GaussianKernel(loss.size)
    slope = float(loss.pointwise.lipschitz)
    bend = float(loss.pointwise.smoothness) * row_norm**2
    std = theorem_3_2(loss.size, operator_norm, slope, row_norm, epsilon, delta)
    size = math.sqrt(loss.size * operator_norm**2 + (slope * row_norm) ** 2)
    penalty = math.sqrt(4 * size**2 / n + d * std**2 / n**2) / radius
    left = penalty * n * epsilon / (loss.size + 1) - bend
    whole = math.sqrt(loss.size) * operator_norm + row_norm * slope
    width = whole * kernel_smoothness(kernel, loss.size) / left if left > 0 else math.inf
    rate = 1 / math.sqrt(n) + math.sqrt(d * math.log(1 / delta)) / (n * epsilon)
    return LinkedPreset(std, 2 * penalty, width, 4 * math.sqrt(2) * size * radius * rate)


@dataclass(frozen=True)
class RateConditions:
    """What Theorem 4.5 asks of a budget, with the constants of Appendix B.3.

    Attributes
    ----------
    bandwidth : float
        mu of step 1, ``(m + 1) L_f / (2 (C/R) sqrt(n eps^2 + 2 d (log(1/delta) + eps)) - (m + 1)
        beta_h)``.
    gap : float
        ``sqrt(2/pi) m mu (exp(-1/(2 mu)) + exp(-1/mu))``: by how much smoothing raises the risk at
        most, if ``mu <= tau^2``.
    risk : float
        ``4 sqrt(2) C R (1/sqrt(n) + sqrt(d log(1/delta)) / (n eps))`` of Lemma 3.3.
    holds : bool
        Whether ``mu <= tau^2`` and the gap is at most the risk: then the sum is at most the
        theorem's bound.
    printed : bool
        Whether one of the two printed conditions on delta and epsilon is met. Their mu has R where
        ``1/R`` belongs and no ``m + 1`` before ``beta_h``, and their gap ``2 exp(-1/mu)``, so that
        they may hold where ``holds`` does not.
    """

    bandwidth: float
    gap: float
    risk: float
    holds: bool
    printed: bool


def theorem_4_5(
    loss: L1WithLink,
    n: int,
    d: int,
    epsilon: float,
    delta: float,
    radius: float,
    threshold: float,
    operator_norm: float = 1.0,
    row_norm: float = 1.0,
) -> RateConditions:
    """Return whether a budget meets the conditions of Theorem 4.5, Gaussian kernel; ``threshold``
    is tau.

    Parameters
    ----------
    loss, n, d, epsilon, delta, radius, operator_norm, row_norm
        As in :func:`lemma_3_3`.
    threshold : float
        tau of Assumption 4.4: residuals are that far from a kink, but for a probability of
        ``exp(-1/t^2)``.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> theorem_4_5(L1WithLink(2, Logistic()), 10**6, 5, 1.0, 1e-6, 1.0, 0.5).holds
    True
    """
    found = lemma_3_3(loss, n, d, epsilon, delta, radius, operator_norm, row_norm)
    m = loss.size
    mu = found.bandwidth
    slope = float(loss.pointwise.lipschitz)
    gap = math.inf
    if math.isfinite(mu):
        gap = math.sqrt(2 / math.pi) * m * mu * (math.exp(-1 / (2 * mu)) + math.exp(-1 / mu))
    whole = math.sqrt(m) * operator_norm + row_norm * slope
    bend = float(loss.pointwise.smoothness) * row_norm**2
    size = math.sqrt(m * operator_norm**2 + (slope * row_norm) ** 2)
    least = max(bend**2, ((m + 1) * whole) ** 2 / min(1.0, threshold**4)) / (
        d * (size * radius) ** 2
    )
    share = 2 * size * radius / (m * math.sqrt(n))
    small = min(math.exp(-least), share ** ((m + 1) ** 2 / (2 * d * radius**2)))
    wide = math.sqrt(2 * (m + 1) ** 2 * max(0.0, -math.log(share)) / (n * radius**2))
    printed = delta <= small or (delta <= math.exp(-least / 2) and epsilon >= wide)
    return RateConditions(mu, gap, found.risk, mu <= threshold**2 and gap <= found.risk, printed)
