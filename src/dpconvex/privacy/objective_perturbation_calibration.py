r"""Objective perturbation: profiles of the random linear term, and the smallest that keeps a
budget, on the safe side.

A profile is a bound ``delta(epsilon)`` on the hockey-stick divergence between the outputs on two
neighbouring data sets, in the *sum* convention of objective perturbation,

    J(theta) = sum_i loss_i(theta) + (Lambda / 2) ||theta||^2 + <b, theta>,   b ~ N(0, sigma^2 I),

with ``ratio = L / sigma`` (gradient bound over noise) and ``kappa = beta / Lambda`` (curvature of
one record over the strong convexity of the rest). Nothing in this module sees data.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import gammaincc, gammaln, log_ndtr

from dpconvex.core.calibration import (
    check_neighbors,
    delta_target,
    gaussian_delta,
    smallest_safe_scale,
)
from dpconvex.core.checks import check_count, check_number
from dpconvex.types import Array

# Noise of this many sensitivities: what it does not certify, no noise does.
_LARGEST_STD = 1e12
# Nodes and weights on [0, 1]: 12 panels of 24 Gauss-Legendre points.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PANEL_NODES = (np.arange(12)[:, None] / 12 + (_NODES + 1) / 24).ravel()
_PANEL_WEIGHTS = np.tile(_WEIGHTS / 24, 12)


def two_sided_objective_delta(epsilon: float, ratio: float) -> float:
    r"""Return ``E (1 - exp(epsilon - ratio |u| - ratio^2 / 2))_+`` for a standard normal ``u``.

    It is ``2 gaussian_delta(epsilon, ratio)`` where ``epsilon >= ratio^2 / 2`` and
    ``1 - 2 e^epsilon Phi(-ratio)`` otherwise: the cost of a gradient that may point either way
    along one fixed direction.
    """
    if epsilon >= ratio * ratio / 2:
        return min(1.0, 2 * gaussian_delta(epsilon, ratio))
    return 1 - 2 * math.exp(epsilon + float(log_ndtr(-ratio)))


def glm_add_remove_objective_delta(epsilon: float, ratio: float, kappa: float) -> float:
    r"""Return delta of objective perturbation of a GLM under add-or-remove-one.

    The larger of two directions. Removing the record costs no Jacobian factor but both tails,
    ``two_sided_objective_delta(epsilon, ratio)``. Adding it costs the factor ``1 + kappa`` but,
    because the minimiser moves monotonically with ``b``, only one tail: with
    ``e = epsilon - log(1 + kappa)``, ``gaussian_delta(e, ratio)`` for ``e >= 0`` and
    ``1 - exp(e) (1 - gaussian_delta(0, ratio))`` below.
    """
    reduced = epsilon - math.log1p(kappa)
    adding = gaussian_delta(max(0.0, reduced), ratio)
    if reduced < 0:
        adding = 1 - math.exp(reduced) * (1 - adding)
    return max(two_sided_objective_delta(epsilon, ratio), adding)


def glm_replace_objective_delta(epsilon: float, ratio: float, kappa: float) -> float:
    r"""Return delta of objective perturbation of a GLM under replace-one.

    With ``e = epsilon - log(1 + kappa)``, which must be positive for a bound below 1:
    ``two_sided_objective_delta(e, 2 ratio)`` while ``4 ratio^2 <= 2 (sqrt(1 + e^2) - 1)`` and twice
    that otherwise.
    """
    reduced = epsilon - math.log1p(kappa)
    if reduced <= 0:
        return 1.0
    doubled = 2 * ratio
    delta = two_sided_objective_delta(reduced, doubled)
    if doubled * doubled > 2 * (math.sqrt(1 + reduced * reduced) - 1):
        delta *= 2
    return min(1.0, delta)


def chi_objective_delta(epsilon: float, ratio: float, dimension: int) -> float:
    r"""Return ``E (1 - exp(epsilon - ratio r - ratio^2 / 2))_+`` for ``r`` chi-distributed with
    ``dimension`` degrees.

    The cost of a gradient that may point anywhere in one fixed subspace. The integrand is
    log-concave beyond its kink, so a composite Gauss rule over the interval that carries its mass
    is accurate to rounding; the tail beyond that interval is added as a bound, which keeps the
    result on the safe side.
    """
    if dimension == 1:
        return two_sided_objective_delta(epsilon, ratio)
    if ratio == 0:
        return -math.expm1(epsilon) if epsilon < 0 else 0.0
    offset = epsilon - ratio * ratio / 2
    kink = max(0.0, offset / ratio)
    mode = max(kink, math.sqrt(dimension - 1))
    # Left of the mode nothing below mode - 12 matters; right of it the density falls faster than
    # exp(-mode s - s^2/2).
    low = max(kink, mode - 12)
    high = mode + 90 / (mode + math.sqrt(mode * mode + 90)) + 1
    log_norm = (dimension / 2 - 1) * math.log(2) + float(gammaln(dimension / 2))

    def integral(start: float, stop: float) -> float:
        r = start + (stop - start) * _PANEL_NODES
        log_density = (dimension - 1) * np.log(r) - r * r / 2 - log_norm
        gain = -np.expm1(np.minimum(0.0, offset - ratio * r))
        return float((stop - start) * (_PANEL_WEIGHTS @ (np.exp(log_density) * gain)))

    total = integral(mode, high) + (integral(low, mode) if low < mode else 0.0)
    tail = float(gammaincc(dimension / 2, high * high / 2))
    if low > kink:  # what lies left of the interval
        tail += float(1 - gammaincc(dimension / 2, low * low / 2))
    return min(1.0, total * (1 + 1e-11) + tail)


def renyi_objective_curve(
    order: Array, ratio: float, kappa: float, rank: int, direction: str
) -> Array:
    r"""Return the Rényi divergence bound of objective perturbation for any convex loss with bounded
    curvature.

    ``direction`` is ``"with"`` (with the record against without), ``"without"``, or ``"replace"``:
    ``order ratio^2 / 2 + rank psi / (order - 1)`` with
    ``psi = order log(1+kappa) - log(1 + order kappa)`` for the first,
    ``-(order-1) log(1+kappa) - log(1 - (order-1) kappa)`` for the second; replace-one has
    ``2 order ratio^2`` and the sum of both. The bound is dimension-free: only the rank of one
    record's Hessian enters.
    """
    order = np.asarray(order, dtype=np.float64)
    with_record = order * math.log1p(kappa) - np.log1p(order * kappa)
    slack = 1 - (order - 1) * kappa
    with np.errstate(divide="ignore", invalid="ignore"):
        without_record = np.where(
            slack > 0, -(order - 1) * math.log1p(kappa) - np.log(slack), np.inf
        )
    if direction == "replace":
        return 2 * order * ratio**2 + rank * (with_record + without_record) / (order - 1)
    psi = with_record if direction == "with" else without_record
    return order * ratio**2 / 2 + rank * psi / (order - 1)


def renyi_objective_delta(
    epsilon: float,
    ratio: float,
    kappa: float,
    rank: int,
    direction: str,
    smallest: float = 1e-2,
    largest: float = 1e5,
) -> float:
    r"""Return the best delta that :func:`renyi_objective_curve` gives at orders ``1 + smallest`` to
    ``1 + largest``.

    ``delta = min over order of exp((order-1)(curve - epsilon)) (1 - 1/order)^(order-1) / order``.
    Every order gives a valid bound, so a grid refined twice around its best point needs no
    guarantee of having found the minimum.
    """

    def log_delta(order: Array) -> Array:
        cost = (order - 1) * (renyi_objective_curve(order, ratio, kappa, rank, direction) - epsilon)
        return cost - np.log(order) + (order - 1) * np.log1p(-1 / order)

    orders = 1 + np.geomspace(smallest, largest, 300)
    for _ in range(3):
        values = log_delta(orders)
        best = int(np.argmin(values))
        low = orders[max(0, best - 1)]
        high = orders[min(len(orders) - 1, best + 1)]
        orders = np.linspace(low, high, 60)
    return math.exp(min(0.0, float(np.min(log_delta(orders)))))


def trace_objective_delta(epsilon: float, ratio: float, kappa: float, neighbors: str) -> float:
    r"""Return delta of objective perturbation where a record's Hessian has trace ``kappa Lambda``
    at most.

    Of a mean or sum over several rows, say: no fixed subspace holds its gradients. The curves of
    :func:`renyi_objective_curve` with rank 1, for orders with ``sqrt(order) kappa <= 1`` and
    ``(order - 1) kappa < 1``; every such order gives a valid delta, and the larger direction
    counts.
    """
    largest = 1e5 if kappa == 0 else min(1e5, 1 / kappa**2 - 1, (1 - 1e-9) / kappa)
    if largest <= 1e-3:
        return 1.0
    directions = ("replace",) if neighbors == "replace_one" else ("with", "without")
    return max(
        renyi_objective_delta(epsilon, ratio, kappa, 1, direction, 1e-3, largest)
        for direction in directions
    )


def structured_objective_delta(
    epsilon: float, ratio: float, kappa: float, rank: int, neighbors: str
) -> float:
    """Return delta for gradients in a ``rank``-dimensional subspace: the worse direction's
    better of two bounds.
    """
    reduced = epsilon - rank * math.log1p(kappa)
    if neighbors == "replace_one":
        chi = min(1.0, 2 * chi_objective_delta(reduced, 2 * ratio, rank))
        return min(renyi_objective_delta(epsilon, ratio, kappa, rank, "replace"), chi)
    deltas = [
        min(
            renyi_objective_delta(epsilon, ratio, kappa, rank, direction),
            chi_objective_delta(left, ratio, rank),
        )
        for direction, left in (("with", reduced), ("without", epsilon))
    ]
    return max(deltas)


def _check_objective_perturbation(
    owner: str, lipschitz: float, kappa: float, rank: int, neighbors: str
) -> None:
    check_neighbors(neighbors, owner)
    check_number("lipschitz", owner, lipschitz, "a finite number of at least 0", 0, math.inf)
    allowed = "a finite number of at least 0 (a smooth loss and alpha > 0)"
    check_number("curvature_ratio", owner, kappa, allowed, 0, math.inf)
    check_count("rank", owner, rank)


def _refuse_curvature(epsilon: float, curvature_ratio: float) -> ValueError:
    return ValueError(
        f"Objective perturbation needs a smaller curvature ratio at epsilon={epsilon!r}. Got "
        f"{curvature_ratio!r}. Use a larger alpha, a larger bandwidth or a larger epsilon; for "
        "pairs also min_positive and min_negative."
    )


def _smallest_std(
    profile: Callable[[float], float], target: float, epsilon: float, curvature_ratio: float
) -> float:
    """Return the smallest std of ``b`` per unit of Lipschitz constant, or raise if even the
    largest does not hold.
    """
    if not profile(1 / _LARGEST_STD) <= target:
        raise _refuse_curvature(epsilon, curvature_ratio)
    return smallest_safe_scale(lambda std: profile(1 / std) <= target)


def objective_perturbation_delta(
    epsilon: float, ratio: float, kappa: float, rank: int, neighbors: str
) -> float:
    """Return delta of Gaussian objective perturbation with ``ratio = lipschitz / std``, by the
    sharpest theorem.
    """
    if rank > 1:
        return structured_objective_delta(epsilon, ratio, kappa, rank, neighbors)
    profile = (
        glm_add_remove_objective_delta
        if neighbors == "add_or_remove_one"
        else glm_replace_objective_delta
    )
    return profile(epsilon, ratio, kappa)


def objective_perturbation_epsilon(
    scale: float, lipschitz: float, curvature_ratio: float, neighbors: str
) -> float:
    """Return epsilon of GLM objective perturbation with l2-Laplace ``b``:
    ``records L / scale + log(1 + kappa)``.
    """
    records = 2 if neighbors == "replace_one" else 1
    return records * lipschitz / scale + math.log1p(curvature_ratio)


@lru_cache(maxsize=1024)
def objective_perturbation_scale(
    epsilon: float,
    delta: float,
    lipschitz: float,
    curvature_ratio: float,
    rank: int = 1,
    neighbors: str = "replace_one",
) -> float:
    """Calibrate objective perturbation: the smallest std of ``b`` in ``J(theta) + <b, theta>``, J a
    SUM; the safe side.

    Parameters
    ----------
    epsilon, delta : float
        Budget; epsilon above 0, delta in (0, 1).
    lipschitz : float
        Bound on the norm of one record's gradient in theta.
    curvature_ratio : float
        ``kappa = beta / Lambda``: the largest Hessian eigenvalue of one record over the strong
        convexity of J.
    rank : int
        1 for a generalised linear model (each record's gradient is a multiple of one fixed vector);
        otherwise the dimension of a fixed subspace that holds every gradient of the record.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.

    Examples
    --------
    >>> round(objective_perturbation_scale(1.0, 1e-5, 1.0, 0.05), 6)
    8.132858
    """
    owner = "objective_perturbation_scale"
    target = delta_target(owner, epsilon, delta)
    _check_objective_perturbation(owner, lipschitz, curvature_ratio, rank, neighbors)
    facts = (curvature_ratio, rank, neighbors)
    return lipschitz * _smallest_std(
        lambda ratio: objective_perturbation_delta(epsilon, ratio, *facts),
        target,
        epsilon,
        curvature_ratio,
    )


def objective_perturbation_laplace_scale(
    epsilon: float, lipschitz: float, curvature_ratio: float, neighbors: str = "replace_one"
) -> float:
    """Calibrate the scale ``gamma`` of l2-Laplace noise ``b`` that makes GLM objective perturbation
    epsilon-DP.

    ``gamma = L / (epsilon - log(1 + kappa))`` under add-or-remove-one, ``2 L / (...)`` under
    replace-one; ``b`` has density proportional to ``exp(-||b|| / gamma)``.

    Examples
    --------
    >>> round(objective_perturbation_laplace_scale(1.0, lipschitz=1.0, curvature_ratio=0.05), 4)
    2.1026
    """
    owner = "objective_perturbation_laplace_scale"
    check_number("epsilon", owner, epsilon, "a finite number above 0", 0, math.inf, low_open=True)
    _check_objective_perturbation(owner, lipschitz, curvature_ratio, 1, neighbors)
    sensitivity = (2 if neighbors == "replace_one" else 1) * lipschitz
    return trace_objective_laplace_scale(epsilon, sensitivity, curvature_ratio, 1)


@lru_cache(maxsize=1024)
def trace_objective_scale(
    epsilon: float, delta: float, lipschitz: float, kappa: float, neighbors: str
) -> float:
    """Calibrate the std of ``b`` by :func:`trace_objective_delta`; ``kappa`` is a trace over
    Lambda.
    """
    owner = "trace_objective_scale"
    target = delta_target(owner, epsilon, delta)
    _check_objective_perturbation(owner, lipschitz, kappa, 1, neighbors)

    def profile(ratio: float) -> float:
        return trace_objective_delta(epsilon, ratio, kappa, neighbors)

    return lipschitz * _smallest_std(profile, target, epsilon, kappa)


def trace_objective_laplace_scale(
    epsilon: float, sensitivity: float, curvature_ratio: float, rank: int
) -> float:
    """Return the scale of l2-Laplace ``b`` for epsilon-DP,
    ``sensitivity / (epsilon - k log(1 + kappa / k))``.

    ``sensitivity`` is that of the gradient; kappa bounds the trace of a record's Hessian over the
    strong convexity and ``k = rank`` its rank, so that the determinant of ``I + E`` is at most
    ``(1 + kappa / k)^k``.
    """
    reduced = epsilon - rank * math.log1p(curvature_ratio / rank)
    if reduced <= 0:
        raise _refuse_curvature(epsilon, curvature_ratio)
    return sensitivity / reduced
