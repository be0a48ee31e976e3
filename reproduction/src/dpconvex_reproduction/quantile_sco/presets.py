r"""The parameter choices of the quantile-regression paper and of the methods it compares, by
theorem.

``B_x`` bounds a row (intercept included), ``B_theta`` the optimum, ``L = max(r, 1 - r) B_x`` the
gradient of one record. The paper penalises with ``lambda ||theta||^2``, so ``alpha = 2 lambda``.
The presets serve comparisons: the certificate of a fit that uses them states what dpconvex can
prove, not what a paper claims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpconvex.smoothing import Kernel, LogisticKernel

__all__ = [
    "PhasedPreset",
    "Problem",
    "QuantilePreset",
    "SGDPreset",
    "estimation_bound",
    "newsvendor_cost",
    "objective_preset",
    "phased_erm_preset",
    "phased_sgd_preset",
    "sgd_preset",
]


@dataclass(frozen=True)
class Problem:
    """What the algorithms are told.

    Attributes
    ----------
    quantile, epsilon, delta : float
        Level ``r`` and budget.
    row_norm, coef_norm : float
        ``B_x`` and ``B_theta``.
    kernel : Kernel
        Of the convolution.
    """

    quantile: float
    epsilon: float
    delta: float
    row_norm: float
    coef_norm: float
    kernel: Kernel = field(default_factory=LogisticKernel)

    @property
    def lipschitz(self) -> float:
        """``max(r, 1 - r) B_x``."""
        return max(self.quantile, 1 - self.quantile) * self.row_norm


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
    risk : float
        ``2 lambda B_theta^2``, with the constants of the proof: a bound of the excess risk. Part
        1's holds for every population; part 2 adds ``bandwidth^2 E[1/|residual|]``, which only the
        population knows.
    """

    alpha: float
    bandwidth: float
    std: float
    risk: float = math.inf  # where no theorem bounds it


def objective_preset(part: int, n_samples: int, dimension: int, problem: Problem) -> QuantilePreset:
    r"""Return the penalty and bandwidth of Theorem 3.6 for objective perturbation.

    Part 1: ``lambda = sqrt(2 L^2/n + d sigma^2/n^2 + k1 peak B_x^2/(2 n epsilon)) / B_theta``; part
    2 leaves out the last term. Both: ``bandwidth = peak B_x^2 / (lambda n epsilon)`` and
    ``sigma^2 = L^2 (8 ln(2/delta) + 4 epsilon) / epsilon^2`` on the sum.

    Parameters
    ----------
    part : {1, 2}
        Which part of the theorem.
    n_samples, dimension : int
        Rows and coefficients (intercept included).
    problem : Problem
        What the algorithm is told.
    """
    if part not in (1, 2):
        raise ValueError(
            f"The 'part' parameter of objective_preset must be 1 or 2. Got {part!r} instead."
        )
    kernel = problem.kernel
    epsilon = problem.epsilon
    slope = problem.lipschitz
    std = slope * math.sqrt(8 * math.log(2 / problem.delta) + 4 * epsilon) / epsilon
    square = 2 * slope**2 / n_samples + dimension * std**2 / n_samples**2
    if part == 1:
        square += kernel.mean_abs * kernel.peak * problem.row_norm**2 / (2 * n_samples * epsilon)
    penalty = math.sqrt(square) / problem.coef_norm
    bandwidth = kernel.peak * problem.row_norm**2 / (penalty * n_samples * epsilon)
    risk = 2 * penalty * problem.coef_norm**2
    return QuantilePreset(alpha=2 * penalty, bandwidth=bandwidth, std=std, risk=risk)


def smoothing_risk(
    n_samples: int, dimension: int, problem: Problem, mean_reciprocal: float
) -> float:
    """Return ``bandwidth^2 E[1/|residual|]``, what part 2 of Theorem 3.6 adds to its risk.

    The theorem's condition, ``epsilon^4 + d ln(1/delta) epsilon^2 >= Omega(1/n)``, is that this is
    at most the risk of :func:`objective_preset`. ``mean_reciprocal`` is a fact of the population;
    it is infinite wherever residuals have a positive density at 0.
    """
    return objective_preset(2, n_samples, dimension, problem).bandwidth ** 2 * mean_reciprocal


def newsvendor_cost(
    algorithm: str,
    n_samples: int,
    dimension: int,
    problem: Problem,
    costs: tuple[float, float],
    mean_reciprocal: float = 0.0,
) -> float:
    """Return Theorem 4.6's bound on the excess cost of a private newsvendor, with the constants of
    the proofs.

    ``(c_u + c_o)`` times the risk of Theorem 3.4 (``"sgd"``) or of part 2 of Theorem 3.6
    (``"objective"``); the problem's quantile is ``c_u / (c_u + c_o)``.
    """
    underage, overage = costs
    if algorithm not in ("sgd", "objective") or not math.isclose(
        problem.quantile, underage / (underage + overage)
    ):
        raise ValueError(
            "newsvendor_cost needs 'sgd' or 'objective', and the quantile c_u / (c_u + c_o)."
        )
    if algorithm == "sgd":
        return (underage + overage) * sgd_preset(n_samples, dimension, problem).risk
    risk = objective_preset(2, n_samples, dimension, problem).risk
    return (underage + overage) * (
        risk + smoothing_risk(n_samples, dimension, problem, mean_reciprocal)
    )


def estimation_bound(
    n_samples: int,
    dimension: int,
    problem: Problem,
    *,
    least_density: float,
    density_slope: float,
    least_eigenvalue: float,
    failure: float = 0.05,
) -> tuple[float, float, float]:
    r"""Return Lemmas 4.2, 4.3 and 4.4 with the constants that their proofs print: smoothing,
    privacy and sampling.

    With the penalty lambda and bandwidth h of part 1 of Theorem 3.6, ``b = rho (f - h l1 k1)``,
    ``c = h^2 l1 k2 / 2``:

        smoothing 2 c / b privacy sqrt(d) sigma / (n lambda) sampling the least r with -l1 B_x^3 r^3
        / 2 + b r^2 - C r - (4 lambda r / b + r + 4 L / b) c >= 0,
                   C = 3 L sqrt((4 d + log(1/gamma)) / n) + 2 lambda B_theta

    Their sum bounds the expected distance (Theorem 4.5) with probability ``1 - gamma`` over the
    data; infinite where there are too few rows for the lemmas.
    """
    preset = objective_preset(1, n_samples, dimension, problem)
    penalty = preset.alpha / 2
    width = preset.bandwidth
    kernel = problem.kernel
    size = problem.lipschitz
    radius = problem.coef_norm
    rho = least_eigenvalue
    b = rho * (least_density - width * density_slope * kernel.mean_abs)
    c = width**2 * density_slope * kernel.second_moment / 2
    privacy = math.sqrt(dimension) * preset.std / (n_samples * penalty)
    if b <= 0:
        return math.inf, privacy, math.inf
    drawn = (
        3 * size * math.sqrt((4 * dimension + math.log(1 / failure)) / n_samples)
        + 2 * penalty * radius
    )
    cubic = [
        -density_slope * problem.row_norm**3 / 2,
        b,
        -drawn - (4 * penalty / b + 1) * c,
        -4 * size * c / b,
    ]
    roots = [
        root.real
        for root in np.roots(cubic)
        if abs(root.imag) < 1e-12 and 0 < root.real < 2 * radius
    ]
    return 2 * c / b, privacy, min(roots, default=math.inf)


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
    stability : float
        ``L^2 step_size (1 + n^2) / n`` of Lemma 3.3: by how much more the population loses than the
        sample, at most.
    risk : float
        ``B_theta^2 / (n^2 step_size)``, the least of the proof's bounds of the excess risk over all
        step sizes. (The closed form that is printed takes L out of the smoothing's term, which has
        none.)
    """

    steps: int
    step_size: float
    bandwidth: float
    std: float
    stability: float
    risk: float


def sgd_preset(n_samples: int, dimension: int, problem: Problem) -> SGDPreset:
    """Return the steps, step size, bandwidth and noise of Theorem 3.4 for DP-SGD.

    Parameters
    ----------
    n_samples, dimension : int
        Rows and coefficients (intercept included).
    problem : Problem
        What the algorithm is told.
    """
    kernel = problem.kernel
    slope = problem.lipschitz
    n = n_samples
    std = slope * math.sqrt(8 * math.log(1 / problem.delta)) / problem.epsilon
    smoothing = kernel.mean_abs * kernel.peak * problem.row_norm**2 / 2
    square = 2 * slope**2 * n**3 + (dimension * std**2 + slope**2 + smoothing) * n**2
    step = problem.coef_norm / math.sqrt(square + 2 * slope**2 * n)
    return SGDPreset(
        steps=n * n,
        step_size=step,
        bandwidth=step * kernel.peak * problem.row_norm**2 / 2,
        std=std,
        stability=slope**2 * step * (1 + n * n) / n,
        risk=problem.coef_norm**2 / (n * n * step),
    )


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

    def std(self, phase: int, problem: Problem) -> float:
        """Return ``4 L step_i sqrt(ln(1/delta)) / epsilon`` for phase i = 1, 2, ..."""
        step: float = self.step_size / 4**phase
        return (
            4 * problem.lipschitz * step * math.sqrt(math.log(1 / problem.delta)) / problem.epsilon
        )


def phased_erm_preset(n_samples: int, dimension: int, problem: Problem) -> PhasedPreset:
    """Return the constants of Phased-ERM (Feldman, Koren and Talwar 2020), c = 4."""
    return _phased(n_samples, dimension, problem, 4.0)


def phased_sgd_preset(n_samples: int, dimension: int, problem: Problem) -> PhasedPreset:
    """Return the constants of Phased-SGD (Feldman, Koren and Talwar 2020), c = 2.

    Bassily, Guzman and Menart 2021 run it on a smoothed loss, for generalised linear models with a
    kink.
    """
    return _phased(n_samples, dimension, problem, 2.0)


def _phased(n_samples: int, dimension: int, problem: Problem, constant: float) -> PhasedPreset:
    private = problem.epsilon / (constant * math.sqrt(dimension * math.log(1 / problem.delta)))
    step = problem.coef_norm / problem.lipschitz * min(4 / math.sqrt(n_samples), private)
    return PhasedPreset(step, int(math.log2(n_samples)))
