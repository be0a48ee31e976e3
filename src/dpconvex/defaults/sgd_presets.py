r"""Parameter choices of stochastic and phased methods, by theorem.

``B_x`` bounds a row (intercept included), ``B_theta`` the optimum, ``L`` the gradient of one record. The presets serve
comparisons: the certificate of a run that uses them states what dpconvex can prove, not what a paper claims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.smoothing import Kernel, LogisticKernel

__all__ = [
    "PhasedPreset",
    "SGDPreset",
    "contractive_bandwidth",
    "phased_erm_preset",
    "phased_sgd_preset",
    "theorem_3_4",
]


@dataclass(frozen=True)
class SGDPreset:
    """What Theorem 3.4 of the quantile-regression paper prescribes.

    Attributes
    ----------
    steps : int
        ``n^2``, one record each.
    step_size, bandwidth : float
        ``B_theta / sqrt(2 L^2 n^3 + (d std^2 + L^2 + k1 peak B_x^2 / 2) n^2 + 2 L^2 n)`` and
        ``step_size peak B_x^2 / 2``.
    std : float
        ``L sqrt(8 ln(1/delta)) / epsilon``, as printed.
    """

    steps: int
    step_size: float
    bandwidth: float
    std: float


def theorem_3_4(
    n_samples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    quantile: float,
    row_norm: float,
    coef_norm: float,
    kernel: Kernel | None = None,
) -> SGDPreset:
    """Return the paper's steps, step size, bandwidth and noise for DP-SGD.

    Parameters
    ----------
    n_samples, dimension : int
        Rows and coefficients (intercept included).
    epsilon, delta, quantile : float
        Budget and quantile level.
    row_norm, coef_norm : float
        Bounds ``B_x`` on a row (intercept included) and ``B_theta`` on the optimum.
    kernel : Kernel, optional
        The logistic kernel by default.
    """
    kernel = kernel or LogisticKernel()
    n = n_samples
    slope = max(quantile, 1 - quantile) * row_norm
    std = slope * math.sqrt(8 * math.log(1 / delta)) / epsilon
    smoothing = kernel.mean_abs * kernel.peak * row_norm**2 / 2
    square = 2 * slope**2 * n**3 + (dimension * std**2 + slope**2 + smoothing) * n**2
    step = coef_norm / math.sqrt(square + 2 * slope**2 * n)
    return SGDPreset(n * n, step, step * kernel.peak * row_norm**2 / 2, std)


@dataclass(frozen=True)
class PhasedPreset:
    """Phases as published: ``n_i = n / 2^i`` records, ``step_i = step_size / 4^i``.

    Attributes
    ----------
    step_size : float
        ``(B_theta / L) min(4 / sqrt(n), epsilon / (c sqrt(d ln(1/delta))))``.
    phases : int
        ``floor(log2 n)``, the last phases of less than one record left out.
    """

    step_size: float
    phases: int

    def std(self, phase: int, lipschitz: float, epsilon: float, delta: float) -> float:
        """Return ``4 L step_i sqrt(ln(1/delta)) / epsilon`` for phase i = 1, 2, ..."""
        step = self.step_size / 4**phase
        return 4 * lipschitz * step * math.sqrt(math.log(1 / delta)) / epsilon


def phased_erm_preset(
    n_samples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    lipschitz: float,
    coef_norm: float,
) -> PhasedPreset:
    """Return the constants of Phased-ERM (Feldman, Koren and Talwar 2020), c = 4."""
    return _phased(n_samples, dimension, epsilon, delta, lipschitz, coef_norm, 4.0)


def phased_sgd_preset(
    n_samples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    lipschitz: float,
    coef_norm: float,
) -> PhasedPreset:
    """Return the constants of Phased-SGD (Feldman, Koren and Talwar 2020), c = 2.

    Bassily, Guzman and Menart 2021 run it on a smoothed loss, for generalised linear models with a kink.
    """
    return _phased(n_samples, dimension, epsilon, delta, lipschitz, coef_norm, 2.0)


def _phased(
    n_samples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    lipschitz: float,
    coef_norm: float,
    constant: float,
) -> PhasedPreset:
    private = epsilon / (constant * math.sqrt(dimension * math.log(1 / delta)))
    step = coef_norm / lipschitz * min(4 / math.sqrt(n_samples), private)
    return PhasedPreset(step, int(math.log2(n_samples)))


def contractive_bandwidth(
    kernel: Kernel, curvature_factor: float, step_size: float, alpha: float = 0.0, jump: float = 1.0
) -> float:
    """Return the smallest bandwidth at which a gradient step of this size takes no two points further apart.

    ``jump peak curvature_factor / (2 / step_size - alpha)``: the smoothed loss then has curvature
    ``2 / step_size - alpha`` in theta. ``jump`` is the jump of the slope at the kink, 1 for the pinball loss.
    """
    room = 2 / step_size - alpha
    if not room > 0:
        raise ValueError(
            "contractive_bandwidth needs step_size * alpha below 2. "
            f"Got step_size={step_size!r} and alpha={alpha!r} instead. Use a smaller step."
        )
    return jump * kernel.peak * curvature_factor / room
