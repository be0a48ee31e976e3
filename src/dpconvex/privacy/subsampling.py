r"""Subsampling: the privacy of many noisy sums over random batches together.

Every step draws a batch and releases a sum over it plus Gaussian noise of standard deviation ``std``. Two schemes:
``"fixed"`` draws exactly ``batch_size`` distinct records, uniformly among all such sets; ``"poisson"`` includes every
record independently. Batches of different steps are independent. The accounting below and the sampler of
:mod:`dpconvex.mechanisms.dp_sgd` read the scheme from the same field of a certificate.

Replace-one, both schemes
-------------------------
Write ``q`` for the probability that the differing record is in the batch, ``mu0`` for the output when it is not and
``mu1, mu1'`` for the output when it is, so that the two outputs are ``(1-q) mu0 + q mu1`` and ``(1-q) mu0 + q mu1'``.
Advanced joint convexity gives, for ``a >= 1`` and ``a' = 1 + q (a - 1)``,

    H_{a'} = q H_a(mu1 || (1-b) mu0 + b mu1'),   b = a'/a,

where ``H_a`` is the hockey-stick divergence of order a. Batches with and without the record can be paired so that they
differ in one substitution (fixed) or one addition (Poisson), so all three laws are mixtures of normal laws whose
centres lie within ``sensitivity`` of each other, the replace-one sensitivity of a sum. By convexity ``H_a(...)`` is at
most that of the plain Gaussian mechanism, ``delta_G(log a; mu)`` with ``mu = sensitivity / std``. Orders below 1 follow
by exchanging the data sets. Some pair of laws has exactly this profile on both sides of 1, and composition of steps is
dominated by composition of such pairs. Its Renyi divergence of order ``a > 1`` is

    log(1 + E) / (a - 1),   E = int_{mu/2}^inf phi(x) (r^a - 1) (1 - r^{1-a}) dx,   r = 1 - q + q e^{mu x - mu^2/2},

because an f-divergence is ``int f''(t) H_t dt`` with ``H_t - (1-t)^+``, which on both sides of 1 is an integral over
``x > mu/2``; with ``f(r) = r^a`` the linear terms of the two sides cancel.

At integer orders a second bound is often smaller. With centres o, p, r of the three normal laws within ``mu`` of each
other (in units of std) and the same names for their densities, ``1 + E`` is an expectation of
``(1 + q (p - r) / ((1-q) o + q r))^a``; expanding, and using that ``1 / v^{j-1}`` is convex in v,

    E <= sum_{j=2}^a C(a, j) q^j z_j,   z_j = sup int |p - r|^j / o^{j-1}.

``z_2 = 2 e^{mu^2} - 2 e^{mu^2/2}`` exactly (it grows with both distances to o, so the three are equidistant), and
``z_j <= min(2 e^{j (j-1) mu^2/2}, 2^j c_j)`` with ``c_j = E|e^{mu x - mu^2/2} - 1|^j``, x normal: ``|p - r|`` is
at most ``max(p, r)`` and at most ``|p - o| + |r - o|``. The smaller of the two bounds counts at every order.
dp-accounting's own bound for sampling without replacement has ``4 (e^{mu^2} - 1)`` in the place of ``z_2``, which can
cost twice the noise.

Add-or-remove-one
-----------------
Poisson sampling only (a batch of fixed size shows through its rate how many records there are); accounted by
dp-accounting: privacy loss distributions for few steps, Renyi divergences otherwise, whichever is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from dpconvex.checks import check_number
from dpconvex.privacy.calibration import check_neighbors
from dpconvex.types import Array

SAMPLING = ("fixed", "poisson")

_LARGEST_ORDER = 256
_ORDERS = np.concatenate(
    [
        1 + np.geomspace(0.05, 0.9, 10),
        np.arange(2.0, 33.0),
        np.unique(np.round(np.geomspace(34, _LARGEST_ORDER, 22))),
        np.geomspace(300, 2000, 8),
    ]
)
_TAIL_STDS = 20.0  # standard deviations integrated beyond the peak of the largest term
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_MOST_DISTRIBUTION_STEPS = 2000  # beyond, composing privacy loss distributions takes minutes
_LARGEST_DISTRIBUTION_MU = 2.0  # beyond, their losses spread over too many cells
_SMALLEST_DELTA = 1e-10  # below, their Fourier transforms are not accurate enough
_RESERVE = 1e-9  # relative error of the integrals below is less
_LARGEST_MULTIPLIER = 1e12  # beyond, the finite orders of the Renyi bound are what fails
_DIGITS = 4  # multipliers are rounded up to this many digits: the same on every platform


def check_sampling(sampling: object, neighbors: str, owner: str) -> str:
    """Return ``sampling`` if it names a scheme that can be accounted under this relation, or raise."""
    if sampling not in SAMPLING:
        raise ValueError(
            f"The 'sampling' parameter of {owner} must be one of {list(SAMPLING)}. Got {sampling!r} instead."
        )
    check_neighbors(neighbors, owner)
    if sampling == "fixed" and neighbors == "add_or_remove_one":
        raise ValueError(
            f"The 'sampling' parameter of {owner} must be 'poisson' with neighbors='add_or_remove_one': the rate of "
            "batches of a fixed size depends on the private number of rows. Got 'fixed' instead."
        )
    return str(sampling)


@lru_cache(maxsize=4096)
def _subsampled_log_moment(rate: float, mu: float, order: float) -> float:
    """Return an upper bound of ``log(1 + E)`` of the module's docstring."""
    plain = order * (order - 1) * mu * mu / 2  # no amplification: the whole Gaussian mechanism
    start, stop = mu / 2, max(order * mu, mu / 2) + _TAIL_STDS
    if rate >= 1 or order * mu > 24:  # orders that large are never the best
        return plain
    panels = math.ceil((stop - start) * max(1.0, order * mu / 4))
    edges = np.linspace(start, stop, panels + 1)
    half = (edges[1] - edges[0]) / 2
    x = ((edges[:-1] + edges[1:]) / 2)[:, None] + half * _NODES
    log_ratio = np.log1p(rate * np.expm1(mu * x - mu * mu / 2))
    # log of phi (r^a - 1)(1 - r^{1-a}), without overflow; at the left end r = 1 and both factors vanish.
    with np.errstate(divide="ignore"):
        grown = order * log_ratio
        raised = np.where(grown < 30, np.log(np.expm1(np.minimum(grown, 30))), grown + np.log1p(-np.exp(-grown)))
        lowered = np.log(-np.expm1((1 - order) * log_ratio))
    logs = raised + lowered - x * x / 2 + np.log(half * _WEIGHTS / math.sqrt(2 * math.pi))
    peak = float(logs.max())
    total = peak + math.log(math.fsum(np.exp(logs - peak).ravel()))
    # Beyond the last panel r^a <= 2^{a-1} (1 + q^a e^{a (mu x - mu^2/2)}), and normal tails at 20 are below e^-203.
    tail = (order - 1) * math.log(2) - 203 + np.logaddexp(0.0, order * math.log(rate) + plain)
    total = float(np.logaddexp(total + _RESERVE, tail))
    grown_total = total + math.log1p(math.exp(-total)) if total > 0 else math.log1p(math.exp(total))
    return min(plain, grown_total)


def dominating_subsampled_rdp(rate: float, mu: float, orders: Iterable[float]) -> Array:
    """Return the Renyi divergences of one step under replace-one, either scheme.

    ``rate`` is the probability that a given record is in the batch, in (0, 1], and ``mu = sensitivity / std`` with the
    replace-one sensitivity of a sum.
    """
    triples = _subsampled_log_terms(mu)
    moments = []
    for order in map(float, orders):
        moment = _subsampled_log_moment(rate, mu, order)
        if order.is_integer() and 2 <= order <= _LARGEST_ORDER:
            j = np.arange(2, int(order) + 1)
            choices = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
            total = float(np.logaddexp.reduce(choices + j * math.log(rate) + triples[: j.size]))
            moment = min(moment, float(np.logaddexp(0.0, total + _RESERVE)))
        moments.append(moment / (order - 1))
    return np.array(moments)


@lru_cache(maxsize=64)
def _subsampled_log_terms(mu: float) -> Array:
    """Return bounds of ``log z_j`` for j = 2, 3, ... of the module's docstring."""
    j = np.arange(2, _LARGEST_ORDER + 1)
    plain = math.log(2) + j * (j - 1) * mu * mu / 2
    # c_j up to where it stops to be the smaller one: for j mu above 4 the plain bound is.
    small = j[j * mu <= 4][:, None]
    x = np.linspace(-_TAIL_STDS, _TAIL_STDS, 4001)
    with np.errstate(divide="ignore"):
        logs = small * np.log(np.abs(np.expm1(mu * x - mu * mu / 2))) - x * x / 2
    step = math.log((x[1] - x[0]) / math.sqrt(2 * math.pi))
    # The kink at the zero of the integrand makes the sum inexact; a per mille covers it.
    centred = np.logaddexp.reduce(logs, axis=1) + step + 1e-3 + small[:, 0] * math.log(2)
    bound = plain.copy()
    bound[: centred.size] = np.minimum(bound[: centred.size], centred)
    square = mu * mu
    bound[0] = math.log(2) + square / 2 + math.log(math.expm1(square / 2))
    return bound


def _poisson_subsampled_rdp(rate: float, mu: float, orders: Array) -> Array:
    """Return dp-accounting's Renyi divergences of one Poisson-sampled step under add-or-remove-one."""
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    # Its series for fractional orders may not converge (and warns); integers suffice. ADD_OR_REMOVE_ONE is the default.
    whole = np.mod(orders, 1) == 0
    accountant = RdpAccountant(orders[whole])
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(1 / mu)))
    rdp = np.full(orders.size, np.inf)
    rdp[whole] = accountant.rdp
    return rdp


def rdp_epsilon(orders: Array, rdp: Array, delta: float) -> float:
    """Return the smallest epsilon >= 0 with ``exp((a-1)(rdp - epsilon)) (1 - 1/a)^{a-1} / a <= delta`` for an order."""
    needed = rdp + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.min(needed)))


@lru_cache(maxsize=256)
def subsampled_epsilon(
    sampling: str, neighbors: str, rate: float, steps: int, multiplier: float, delta: float
) -> float:
    """Return an upper bound on epsilon, at ``delta``, of all steps together; ``rate`` is ``batch_size / n``.

    ``multiplier`` is ``std / sensitivity`` of the SUM over a batch, under this relation. ``"fixed"`` needs replace-one.
    """
    check_sampling(sampling, neighbors, "subsampled_epsilon")
    check_number("rate", "subsampled_epsilon", rate, "a number in (0, 1]", 0, 1 + 1e-15, low_open=True)
    check_number("delta", "subsampled_epsilon", delta, "a number in (0, 1)", 0, 1, low_open=True)
    mu = 1 / multiplier
    renyi = _renyi_epsilon(neighbors, rate, steps, mu, delta)
    small = steps <= _MOST_DISTRIBUTION_STEPS and mu <= _LARGEST_DISTRIBUTION_MU
    if neighbors == "replace_one" or not small or delta < _SMALLEST_DELTA or renyi > 50:
        return renyi
    from dp_accounting.pld import privacy_loss_distribution

    single = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sensitivity=1, sampling_prob=rate, value_discretization_interval=1e-3
    )
    # A thousandth of delta covers the rounding errors of the transforms.
    return min(renyi, float(single.self_compose(steps).get_epsilon_for_delta(0.999 * delta)))


def _renyi_epsilon(neighbors: str, rate: float, steps: int, mu: float, delta: float) -> float:
    rdp = dominating_subsampled_rdp if neighbors == "replace_one" else _poisson_subsampled_rdp
    return rdp_epsilon(_ORDERS, steps * rdp(rate, mu, _ORDERS), delta)


@lru_cache(maxsize=256)
def subsampled_multiplier(
    sampling: str, neighbors: str, rate: float, steps: int, epsilon: float, delta: float
) -> float:
    """Return the smallest certified ``std / sensitivity`` by :func:`subsampled_epsilon`, rounded up to four digits."""
    target = epsilon * (1 - _RESERVE)

    def renyi_holds(multiplier: float) -> bool:
        return _renyi_epsilon(neighbors, rate, steps, 1 / multiplier, delta) <= target

    def holds(multiplier: float) -> bool:
        return subsampled_epsilon(sampling, neighbors, rate, steps, multiplier, delta) <= target

    check_sampling(sampling, neighbors, "subsampled_multiplier")
    # Finitely many orders leave some epsilon even where nothing is released.
    high = 1.0 if rdp_epsilon(_ORDERS, np.zeros(_ORDERS.size), delta) < target else math.inf
    while high <= _LARGEST_MULTIPLIER and not renyi_holds(high):
        high *= 2
    if high > _LARGEST_MULTIPLIER:
        raise ValueError(
            f"No noise is certified for epsilon={epsilon!r} and delta={delta!r} by accounting for sampled batches. "
            "Use a larger budget, or the mechanism 'gradient'."
        )
    low = high / 2
    while renyi_holds(low):
        low, high = low / 2, low
    high = _bisect_subsampled(renyi_holds, low, high, 5e-5)
    if neighbors == "add_or_remove_one" and steps <= _MOST_DISTRIBUTION_STEPS:
        # Distributions are slow, and a per mille of noise is not worth the wait.
        high = _bisect_subsampled(holds, high / 2, high, 1e-3)
    rounded = _rounded_up(high)
    while not holds(rounded):
        rounded = _rounded_up(rounded * (1 + 1e-3))
    return rounded


def _bisect_subsampled(holds: Callable[[float], bool], low: float, high: float, accuracy: float) -> float:
    """Narrow ``(low, high]``, where ``holds(high)`` is true, and return its upper end."""
    while high / low > 1 + accuracy:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _rounded_up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return float(f"{math.ceil(value / unit) * unit:.{_DIGITS}g}")
