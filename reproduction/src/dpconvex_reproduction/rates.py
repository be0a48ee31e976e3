r"""Rates of theorems, to plan with: how errors and risks shrink with rows, columns and budget,
before any data.

Each function is one statement as printed, with the constants it prints; where a theorem hides a
constant behind an order, that constant is 1 here and the number is good for ratios ("four times the
rows"), not for levels. What a fit guarantees is what its certificate says; what it is predicted to
achieve is :func:`dpconvex.planning.plan`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.core.checks import check_count, check_number, check_share
from dpconvex.core.smoothing_kernels import Kernel, LogisticKernel


def _check(owner: str, n_samples: int, dimension: int, fewest: int = 1, **positive: float) -> None:
    """Check the number of rows and coefficients, and that all other values are finite and above
    0.
    """
    check_count("n_samples", owner, n_samples, fewest)
    check_count("dimension", owner, dimension)
    for name, value in positive.items():
        check_number(name, owner, value, "a finite number above 0", 0, math.inf, low_open=True)


def newsvendor_regret(
    n_samples: int,
    dimension: int,
    mu: float,
    lowest_density: float = 1.0,
    highest_density: float = 1.0,
) -> float:
    r"""Return the rate of the regret of noisy smoothed gradient descent under mu-Gaussian DP.

    ``log(n) [ ((p + log n) / (mu n))^2 / f_u + f_u p / (f_l^2 n) ]`` (newsvendor-gdp, Theorem 3 and
    Corollary 2), an order: in units of ``b + h``, for demand whose noise has a density between f_l
    and f_u near 0.

    Parameters
    ----------
    n_samples, dimension : int
        Rows, and coefficients with the intercept.
    mu : float
        Gaussian DP budget.
    lowest_density, highest_density : float
        f_l and f_u.

    Examples
    --------
    >>> round(newsvendor_regret(10_000, 5, 0.5) / newsvendor_regret(40_000, 5, 0.5), 2)
    3.52
    """
    densities = {"lowest_density": lowest_density, "highest_density": highest_density}
    _check("newsvendor_regret", n_samples, dimension, 2, mu=mu, **densities)
    logs = math.log(n_samples)
    private = ((dimension + logs) / (mu * n_samples)) ** 2 / highest_density
    return logs * (private + highest_density * dimension / (lowest_density**2 * n_samples))


def newsvendor_estimation_error(
    n_samples: int, dimension: int, mu: float, lowest_density: float = 1.0, step_size: float = 0.5
) -> float:
    r"""Return the rate of the expected error of noisy smoothed gradient descent under mu-Gaussian
    DP.

    ``sqrt(log n) [ eta (p + log n) / (mu n) + sqrt(p / n) / f_l ]`` (newsvendor-gdp, Theorem 2), an
    order: of the distance of the coefficients in the norm of the features' second moments.

    Parameters
    ----------
    n_samples, dimension, mu, lowest_density
        As in :func:`newsvendor_regret`.
    step_size : float
        eta, at most ``1 / (2 f_u)``.

    Examples
    --------
    >>> round(newsvendor_estimation_error(10_000, 5, 0.5), 4)
    0.0722
    """
    positive = {"mu": mu, "lowest_density": lowest_density, "step_size": step_size}
    _check("newsvendor_estimation_error", n_samples, dimension, 2, **positive)
    logs = math.log(n_samples)
    private = step_size * (dimension + logs) / (mu * n_samples)
    return math.sqrt(logs) * (private + math.sqrt(dimension / n_samples) / lowest_density)


def strongly_convex_risk_floor(
    n_samples: int, dimension: int, epsilon: float, delta: float = 0.0, scale: float = 1.0
) -> float:
    r"""Return the rate below which no private method brings the worst-case excess risk of smooth
    strongly convex means.

    ``L R min(1, (d / (n epsilon))^2)`` for pure epsilon and ``L R min(1, d / (n epsilon)^2)`` with
    a delta well below ``1/n`` (output-perturbation, Proposition 2.7), an order. Where it is
    ``L R``, a constant does as well as any private method (Remark 2.1).

    Parameters
    ----------
    n_samples, dimension : int
        Rows and coefficients.
    epsilon, delta : float
        Budget.
    scale : float
        ``L R``: Lipschitz constant times radius.

    Examples
    --------
    >>> strongly_convex_risk_floor(1000, 10, 1.0), strongly_convex_risk_floor(1000, 10, 1.0, 1e-6)
    (0.0001, 1e-05)
    """
    owner = "strongly_convex_risk_floor"
    _check(owner, n_samples, dimension, epsilon=epsilon, scale=scale)
    check_number("delta", owner, delta, "a number from 0 to below 1", 0, 1)
    size = dimension**2 if delta == 0 else dimension
    return scale * min(1.0, size / (n_samples * epsilon) ** 2)


def quantile_risk_floor(
    n_samples: int,
    dimension: int,
    epsilon: float,
    *,
    quantile: float = 0.5,
    row_norm: float = 1.0,
    coef_norm: float = 1.0,
) -> float:
    r"""Return the rate below which no (epsilon, delta)-DP method brings the worst-case excess
    pinball loss.

    ``min(r, 1 - r) B_theta B_x max(1 / sqrt(n), sqrt(d) / (n epsilon log d))`` (quantile-sco,
    Theorem 3.7 with the factor of its proof), an order. It is about the worst distribution: a kind
    one allows less.

    Parameters
    ----------
    n_samples, dimension, epsilon : int, int, float
        Rows, coefficients and budget.
    quantile, row_norm, coef_norm : float
        r, B_x and B_theta.

    Examples
    --------
    >>> quantile_risk_floor(10_000, 10, 1.0)
    0.005
    """
    _check(
        "quantile_risk_floor",
        n_samples,
        dimension,
        epsilon=epsilon,
        row_norm=row_norm,
        coef_norm=coef_norm,
    )
    check_share("quantile", "quantile_risk_floor", quantile)
    private = math.sqrt(dimension) / (n_samples * epsilon * max(1.0, math.log(dimension)))
    return (
        min(quantile, 1 - quantile) * row_norm * coef_norm * max(1 / math.sqrt(n_samples), private)
    )


@dataclass(frozen=True)
class EstimationError:
    """Parts of the distance of private quantile coefficients from the true ones.

    Attributes
    ----------
    smoothing : float
        From the true solution to that of the smoothed problem (Lemma 4.2, constants included);
        infinite where the bandwidth is too large for the lemma.
    privacy, sampling : float
        From the penalised to the private solution (Lemma 4.3) and from the smoothed to the
        penalised one (Lemma 4.4).
    """

    smoothing: float
    privacy: float
    sampling: float

    @property
    def total(self) -> float:
        """Their sum, which bounds the whole distance (Theorem 4.5)."""
        return self.smoothing + self.privacy + self.sampling


def quantile_estimation_error(
    n_samples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    *,
    quantile: float = 0.5,
    row_norm: float = 1.0,
    coef_norm: float = 1.0,
    least_density: float = 1.0,
    density_slope: float = 1.0,
    least_eigenvalue: float = 1.0,
    kernel: Kernel | None = None,
    failure: float = 0.05,
) -> EstimationError:
    r"""Return the parts of the estimation error of objective perturbation with convolution
    (quantile-sco, section 4.1).

    With ``L = max(r, 1 - r) B_x``, ``sigma^2 = L^2 (8 log(2/delta) + 4 epsilon) / epsilon^2``, the
    penalty ``lambda = sqrt(k1 K B_x^2 / (n epsilon) + d sigma^2 / n^2) / B_theta`` and
    ``h = K B_x^2 / (lambda n epsilon)``, k1 the kernel's mean absolute value, k2 its second moment
    and K its largest value:

        smoothing = h^2 l1 k2 / (rho (f - h l1 k1)) if f > h l1 (k1 + sqrt(B_x^3 k2) / rho) privacy
        = L B_theta sqrt(d log(1/delta) / (n epsilon)) / (B_x sqrt(k1 K)) sampling = (L sqrt((d +
        log(1/gamma)) / n) + B_theta lambda) / (rho f)

    Parameters
    ----------
    n_samples, dimension : int
        Rows and coefficients.
    epsilon, delta : float
        Budget.
    quantile, row_norm, coef_norm : float
        r, B_x and B_theta.
    least_density, density_slope, least_eigenvalue : float
        f, the density of residuals at 0; l1, its Lipschitz constant; rho, the least eigenvalue of
        ``E x x^T``.
    kernel : Kernel, optional
        Of the convolution; logistic by default.
    failure : float
        gamma: the bound fails with this probability over the data.

    Examples
    --------
    >>> error = quantile_estimation_error(1_000_000, 5, 1.0, 1e-6)
    >>> round(error.smoothing, 6), round(error.privacy, 4)
    (1e-06, 0.0071)
    """
    owner = "quantile_estimation_error"
    _check(
        owner,
        n_samples,
        dimension,
        epsilon=epsilon,
        row_norm=row_norm,
        coef_norm=coef_norm,
        least_density=least_density,
        density_slope=density_slope,
        least_eigenvalue=least_eigenvalue,
    )
    for name, value in (("delta", delta), ("quantile", quantile), ("failure", failure)):
        check_share(name, owner, value)
    kernel = kernel or LogisticKernel()
    first = kernel.mean_abs
    second = kernel.second_moment
    peak = kernel.peak
    slope = max(quantile, 1 - quantile) * row_norm
    variance = slope**2 * (8 * math.log(2 / delta) + 4 * epsilon) / epsilon**2
    square = first * peak * row_norm**2 / (n_samples * epsilon)
    penalty = math.sqrt(square + dimension * variance / n_samples**2) / coef_norm
    width = peak * row_norm**2 / (penalty * n_samples * epsilon)
    spread = math.sqrt(row_norm**3 * second) / least_eigenvalue
    smoothing = math.inf
    if least_density > width * density_slope * (first + spread):
        left = least_eigenvalue * (least_density - width * density_slope * first)
        smoothing = width**2 * density_slope * second / left
    noise = math.sqrt(dimension * math.log(1 / delta) / (n_samples * epsilon))
    privacy = slope * coef_norm / (row_norm * math.sqrt(first * peak)) * noise
    drawn = slope * math.sqrt((dimension + math.log(1 / failure)) / n_samples)
    sampling = (drawn + coef_norm * penalty) / (least_eigenvalue * least_density)
    return EstimationError(smoothing, privacy, sampling)


def convolution_objective_risk(
    n_samples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    lipschitz: float = 1.0,
    radius: float = 1.0,
    smoothing_gap: float | None = None,
) -> float:
    r"""Return the bound on the excess risk of convolution followed by objective perturbation.

    ``4 sqrt(2) C R (1/sqrt(n) + sqrt(d log(1/delta)) / (n epsilon)) + gap``
    (convolution-objective-perturbation, Lemma 3.3), the gap being how far the smoothed risk lies
    above the risk at the best coefficients; without it ``8 sqrt(2)`` in place of ``4 sqrt(2)``
    (Theorem 4.5, Gaussian kernel, residuals away from 0). The bounds were printed for noise that is
    too small under replace-one: the certified noise is larger by a factor below 2.

    Parameters
    ----------
    n_samples, dimension : int
        Records and coefficients.
    epsilon, delta : float
        Budget.
    lipschitz, radius : float
        C, the bound on a record's gradient, and R, that on the coefficients.
    smoothing_gap : float, optional
        See above; ``approximation_gap`` of a smoothed loss bounds it.

    Examples
    --------
    >>> round(convolution_objective_risk(10_000, 10, 1.0, 1e-6), 4)
    0.1264
    """
    owner = "convolution_objective_risk"
    _check(owner, n_samples, dimension, epsilon=epsilon, lipschitz=lipschitz, radius=radius)
    check_share("delta", owner, delta)
    rate = 1 / math.sqrt(n_samples)
    rate += math.sqrt(dimension * math.log(1 / delta)) / (n_samples * epsilon)
    if smoothing_gap is None:
        return 8 * math.sqrt(2) * lipschitz * radius * rate
    return 4 * math.sqrt(2) * lipschitz * radius * rate + smoothing_gap
