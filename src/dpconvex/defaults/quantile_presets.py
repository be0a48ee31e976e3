r"""The parameter choices of the quantile-regression paper, as named presets.

The paper penalises with ``lambda ||theta||^2``, so ``alpha = 2 lambda``; its noise is
``sigma^2 = L^2 (8 ln(2/delta) + 4 epsilon) / epsilon^2`` on the sum, ``L = max(r, 1 - r) B_x``. The presets serve
comparisons: the certificate of a fit that uses them states what dpconvex can prove, not what the paper claims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.smoothing import Kernel, LogisticKernel


@dataclass(frozen=True)
class QuantilePreset:
    """What Theorem 3.6 prescribes, converted to dpconvex's convention.

    Attributes
    ----------
    alpha : float
        ``2 lambda``.
    bandwidth : float
        ``peak B_x^2 / (lambda n epsilon)``.
    std : float
        The paper's noise on the sum of losses.
    """

    alpha: float
    bandwidth: float
    std: float


def theorem_3_6(
    part: int,
    n_samples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    quantile: float,
    row_norm: float,
    coef_norm: float,
    kernel: Kernel | None = None,
) -> QuantilePreset:
    r"""Return the paper's penalty and bandwidth for objective perturbation.

    Part 1: ``lambda = sqrt(2 L^2/n + d sigma^2/n^2 + k1 peak B_x^2/(2 n epsilon)) / B_theta``; part 2 leaves out the
    last term. Both: ``bandwidth = peak B_x^2 / (lambda n epsilon)``.

    Parameters
    ----------
    part : {1, 2}
        Which part of the theorem.
    n_samples, dimension : int
        Rows and coefficients (intercept included).
    epsilon, delta, quantile : float
        Budget and quantile level.
    row_norm, coef_norm : float
        Bounds ``B_x`` on a row (intercept included) and ``B_theta`` on the optimum.
    kernel : Kernel, optional
        The logistic kernel by default.
    """
    if part not in (1, 2):
        raise ValueError(
            f"The 'part' parameter of theorem_3_6 must be 1 or 2. Got {part!r} instead."
        )
    kernel = kernel or LogisticKernel()
    slope = max(quantile, 1 - quantile) * row_norm
    std = slope * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    square = 2 * slope**2 / n_samples + dimension * std**2 / n_samples**2
    if part == 1:
        square += kernel.mean_abs * kernel.peak * row_norm**2 / (2 * n_samples * epsilon)
    penalty = math.sqrt(square) / coef_norm
    bandwidth = kernel.peak * row_norm**2 / (penalty * n_samples * epsilon)
    return QuantilePreset(alpha=2 * penalty, bandwidth=bandwidth, std=std)
