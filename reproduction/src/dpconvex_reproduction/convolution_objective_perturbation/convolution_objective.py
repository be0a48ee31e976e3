r"""Convolution, then objective perturbation (C-OP, Algorithm 1): as printed, and soundly
calibrated.

As printed, for m residuals of records with ``||A|| <= U`` and a loss without a link:

    C = sqrt(m) U s, std^2 = C^2 (8 log(1/delta) + 8 epsilon) / epsilon^2 (Theorem 3.2, Appendix
    B.4) lambda = sqrt(4 C^2 / n + d std^2 / n^2) / R (Lemma 3.3) bandwidth = U L (m + 1) / (n
    epsilon lambda) (step 1, Table 1, Appendix B.3)

with ``s = 1``, ``L = sqrt(m)`` for the l1 norm and ``s = L = max ||a_p||`` for affine pieces; the
penalty is ``lambda ||theta||^2``, so ``alpha = 2 lambda``. The curvature of a record is taken to be
``U L / bandwidth``, where ``U^2`` times that of the smoothed loss is right.

The sound version keeps the algorithm, the penalty of Lemma 3.3 and the ratio of curvature to
penalty that step 1 gives for ``U = 1``; it takes the curvature of a record with ``U^2``, the true
bound on gradients for C, and the noise that the certificate of
:class:`~dpconvex.mechanisms.ObjectivePerturbation` derives under replace-one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.losses.vector_losses import L1Norm, PiecewiseLinear
from dpconvex.mechanisms import ObjectivePerturbation
from dpconvex.mechanisms.objective_perturbation import RELEASE_SHARE
from dpconvex.objectives.structured_objective import StructuredObjective, StructuredRecords
from dpconvex.privacy import ApproxDP, Certificate, StructuredBounds, objective_perturbation_scale
from dpconvex.smoothing import GaussianKernel, convolve_vector
from dpconvex.solvers import newton_or_lbfgs

__all__ = [
    "Printed",
    "not_private",
    "printed_constants",
    "printed_convolution_objective",
    "sound_certificate",
    "sound_convolution_objective",
]

Array = NDArray[np.float64]
Kinked = L1Norm | PiecewiseLinear


@dataclass(frozen=True)
class Printed:
    """Constants of Algorithm 1 as printed.

    Attributes
    ----------
    std : float
        Standard deviation of b, in the sum form.
    alpha : float
        ``2 lambda``.
    bandwidth : float
        Of the Gaussian kernel, in units of residuals.
    noise_ratio : float
        True bound on a record's gradient over ``std``.
    curvature_ratio : float
        True curvature of a record over ``n alpha``.
    """

    std: float
    alpha: float
    bandwidth: float
    noise_ratio: float
    curvature_ratio: float


def _smoothed(loss: Kinked, bandwidth: float) -> Any:
    return convolve_vector(loss, GaussianKernel(loss.outputs), bandwidth)


def _penalty(n: int, d: int, gradient: float, std: float, radius: float) -> float:
    """Return ``alpha = 2 lambda`` of Lemma 3.3."""
    return 2 * math.sqrt(4 * gradient**2 / n + d * std**2 / n**2) / radius


def printed_constants(
    loss: Kinked, n: int, d: int, epsilon: float, delta: float, radius: float, norm: float = 1.0
) -> Printed:
    """Return the printed noise, penalty and bandwidth.

    Parameters
    ----------
    loss : L1Norm or PiecewiseLinear
        The kinked loss.
    n, d : int
        Records and coefficients.
    epsilon, delta : float
        What the paper claims.
    radius : float
        R, a bound on the best coefficients.
    norm : float
        U, the bound on the records' operator norm.

    Examples
    --------
    >>> found = printed_constants(L1Norm(3), 1000, 5, 1.0, 1e-5, radius=2.0)
    >>> round(found.std / 3**0.5, 4), round(found.curvature_ratio, 4)
    (10.0052, 0.0576)
    """
    outputs = loss.outputs
    largest = 1.0 if isinstance(loss, L1Norm) else loss.lipschitz
    gradient = math.sqrt(outputs) * norm * largest
    std = gradient * math.sqrt(8 * math.log(1 / delta) + 8 * epsilon) / epsilon
    alpha = _penalty(n, d, gradient, std, radius)
    bandwidth = norm * loss.lipschitz * (outputs + 1) / (n * epsilon * alpha / 2)
    curvature = norm**2 * _smoothed(loss, bandwidth).smoothness
    return Printed(std, alpha, bandwidth, norm * loss.lipschitz / std, curvature / (n * alpha))


def printed_convolution_objective(
    records: StructuredRecords,
    loss: Kinked,
    *,
    epsilon: float,
    delta: float,
    radius: float,
    rng: np.random.Generator,
) -> Array:
    """Return the minimiser of Algorithm 1 with its printed constants; parameters as for
    :func:`noisy_sgd`.
    """
    n = records.n_rows
    d = records.dim
    found = printed_constants(loss, n, d, epsilon, delta, radius, records.operator_norm)
    tilt = found.std * rng.standard_normal(d) / n
    objective = StructuredObjective(
        records, _smoothed(loss, found.bandwidth), found.alpha, linear=tilt
    )
    return _minimise(objective)


def _minimise(objective: StructuredObjective) -> Array:
    start = np.zeros(objective.dim)
    slope = objective.gradient_bound + float(np.linalg.norm(objective.linear))
    tolerance = max(1e-8 * slope, 4 * objective.rounding_allowance(start))
    return np.asarray(newton_or_lbfgs(objective.dim).solve(objective, start, tolerance).point)


def sound_certificate(
    loss: Kinked, n: int, d: int, epsilon: float, delta: float, radius: float, norm: float = 1.0
) -> Certificate:
    """Return the certificate of the sound version, under replace-one; parameters as for
    :func:`printed_constants`.
    """
    bend = _smoothed(loss, 1.0).smoothness  # inversely proportional to the bandwidth
    ratio = epsilon * bend / (2 * (loss.outputs + 1) * loss.lipschitz)
    gradient = norm * loss.lipschitz
    keep = 1 - RELEASE_SHARE
    std = objective_perturbation_scale(
        keep * epsilon, keep * delta, gradient, ratio, rank=min(loss.outputs, d)
    )
    alpha = _penalty(n, d, gradient, std, radius)
    bandwidth = norm**2 * bend / (ratio * n * alpha)
    bounds = StructuredBounds(n, d, _smoothed(loss, bandwidth), norm, alpha=alpha)
    return ObjectivePerturbation().certify(bounds, ApproxDP(epsilon, delta), seeded=True)


def sound_convolution_objective(
    records: StructuredRecords,
    loss: Kinked,
    *,
    epsilon: float,
    delta: float,
    radius: float,
    rng: np.random.Generator,
) -> Array:
    """Return what the sound version releases; parameters as for :func:`noisy_sgd`."""
    shape = (records.n_rows, records.dim)
    certificate = sound_certificate(loss, *shape, epsilon, delta, radius, records.operator_norm)
    bounds = certificate.bounds
    objective = StructuredObjective(records, bounds.loss, bounds.alpha)
    return np.asarray(ObjectivePerturbation().release(objective, certificate, rng))


def not_private(A: Array, Y: Array, loss: Kinked) -> Array:
    """Return coefficients of nearly least mean loss on the records as they are: tiny bandwidth,
    penalty, no noise.
    """
    from dpconvex.objectives.structured_objective import structured_spectral_norms

    records = StructuredRecords(A, Y, float(structured_spectral_norms(A).max()))
    return _minimise(StructuredObjective(records, _smoothed(loss, 0.05), 1e-4))
