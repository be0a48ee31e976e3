r"""Subsampling: the privacy of many noisy sums over random batches together.

Every step draws a batch and releases a sum over it plus Gaussian noise of standard deviation
``std``. Two schemes: ``"fixed"`` draws exactly ``batch_size`` distinct records, uniformly among all
such sets; ``"poisson"`` includes every record independently. Batches of different steps are
independent. The accounting below and the sampler of :mod:`dpconvex.mechanisms.dp_sgd` read the
scheme from the same field of a certificate.

Replace-one, both schemes
-------------------------
Write ``q`` for the probability that the differing record is in the batch, ``mu0`` for the output
when it is not and ``mu1, mu1'`` for the output when it is, so that the two outputs are
``(1-q) mu0 + q mu1`` and ``(1-q) mu0 + q mu1'``. Advanced joint convexity gives, for ``a >= 1`` and
``a' = 1 + q (a - 1)``,

    H_{a'} = q H_a(mu1 || (1-b) mu0 + b mu1'),   b = a'/a,

where ``H_a`` is the hockey-stick divergence of order a. Batches with and without the record can be
paired so that they differ in one substitution (fixed) or one addition (Poisson), so all three laws
are mixtures of normal laws whose centres lie within ``sensitivity`` of each other, the replace-one
sensitivity of a sum. By convexity ``H_a(...)`` is at most that of the plain Gaussian mechanism,
``delta_G(log a; mu)`` with ``mu = sensitivity / std``. Orders below 1 follow by exchanging the data
sets. Some pair of laws has exactly this profile on both sides of 1, and composition of steps is
dominated by composition of such pairs. Its Renyi divergence of order ``a > 1`` is

    log(1 + E) / (a - 1), E = int_{mu/2}^inf phi(x) (r^a - 1) (1 - r^{1-a}) dx, r = 1 - q + q e^{mu
    x - mu^2/2},

because an f-divergence is ``int f''(t) H_t dt`` with ``H_t - (1-t)^+``, which on both sides of 1 is
an integral over ``x > mu/2``; with ``f(r) = r^a`` the linear terms of the two sides cancel.

At integer orders a second bound is often smaller. With centres o, p, r of the three normal laws
within ``mu`` of each other (in units of std) and the same names for their densities, ``1 + E`` is
an expectation of ``(1 + q (p - r) / ((1-q) o + q r))^a``; expanding, and using that ``1 / v^{j-1}``
is convex in v,

    E <= sum_{j=2}^a C(a, j) q^j z_j,   z_j = sup int |p - r|^j / o^{j-1}.

``z_2 = 2 e^{mu^2} - 2 e^{mu^2/2}`` exactly (it grows with both distances to o, so the three are
equidistant), and ``z_j <= min(2 e^{j (j-1) mu^2/2}, 2^j c_j)`` with
``c_j = E|e^{mu x - mu^2/2} - 1|^j``, x normal: ``|p - r|`` is at most ``max(p, r)`` and at most
``|p - o| + |r - o|``. The smaller of the two bounds counts at every order. dp-accounting's own
bound for sampling without replacement has ``4 (e^{mu^2} - 1)`` in the place of ``z_2``, which can
cost twice the noise.

Add-or-remove-one
-----------------
Poisson sampling only (a batch of fixed size shows through its rate how many records there are). In
units of std the law is ``(1 - q) N(0, 1) + q N(mu, 1)`` with the record and ``N(0, 1)`` without it.
Both orders of the two are composed, and the worse one counts. Renyi divergences are
dp-accounting's.

Poisson batches, replace-one
----------------------------
Without the record a Poisson batch is the others' alone, so ``mu0`` and ``mu1`` are only as far
apart as one record is long: ``alone * sensitivity``, between half of it and all of it. Convexity in
the second law then gives ``H_{a'} <= q g(a)``, ``g(a) = (1-b) delta_G(log a; alone mu) + b
delta_G(log a; mu)``, in the place of ``q delta_G(log a; mu)``. The density of losses below becomes
``g''(a) a'`` in x, where ``a = e^{mu x - mu^2/2}``.

Numerical composition
---------------------
The loss of a step is ``l(x) = log(1 - q + q e^{mu x - mu^2/2})``. Under replace-one the pair has
the loss ``l(x)`` with density ``(1 - q) phi(x) + q phi(x - mu)`` for ``x > mu/2``, the loss
``-l(x)`` with density ``phi(x)`` there, and the loss 0 with what is left: these tails have the
stated profile. Epsilon is the smaller of the Renyi bound and of what
:func:`composed_subsampling_epsilon` finds, an upper bound on every account:

- *Grid.* A loss between two points of a grid is shared between them so that its probability under
  both laws stays what it is. The profile then equals the true one at grid points and is linear,
  hence not smaller, between them; a pair with a larger profile dominates, and so do its
  compositions. Shares are rounded towards the larger loss.
- *Tilt.* With masses ``p(l) e^{t l} / M`` and their T-fold convolution c,
  ``delta(e) = M^T sum_{l > e} c(l) e^{-t l} (1 - e^{e - l})``. A transform of N points adds c at
  all ``l + N j``, which are not negative, and what lies above its window adds at most
  ``M^T e^{-t top}``.
- *Rounding.* Masses are right up to a factor ``1 + 1e-13``, transforms of N points up to
  ``16 log2(N) 2^-53`` of their Euclidean norm, which Parseval's identity turns into an error of
  delta; all of it is added.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, ndtr, ndtri

from dpconvex.core.calibration import check_neighbors
from dpconvex.core.checks import check_number, parameter_error
from dpconvex.types import Array

SAMPLING = ("fixed", "poisson")

_LARGEST_ORDER = 256
_WHOLE_ORDERS = np.arange(2.0, 33.0), np.unique(np.round(np.geomspace(34, _LARGEST_ORDER, 22)))
_ORDERS = np.concatenate(
    [1 + np.geomspace(0.05, 0.9, 10), *_WHOLE_ORDERS, np.geomspace(300, 2000, 8)]
)
_TAIL_STDS = 20.0  # standard deviations integrated beyond the peak of the largest term
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_LOSS_NODES, _LOSS_WEIGHTS = np.polynomial.legendre.leggauss(6)
_LOSS_WIDTH = 0.15  # of a grid of losses, in standard deviations of one: some per mille of noise
_MOST_LOSSES = 1 << 20  # points of a transform: half a second, and some 80 MB
_LOSS_ERROR = 1e-13  # relative error of the mass of a loss
_PANEL = 0.05  # widest piece of a quadrature, in standard deviations
_RESERVE = 1e-9  # relative error of the integrals below is less
_LARGEST_MULTIPLIER = 1e12  # beyond, the finite orders of the Renyi bound are what fails
_DIGITS = 4  # multipliers are rounded up to this many digits: the same on every platform


def check_sampling(sampling: object, neighbors: str, owner: str) -> str:
    """Return ``sampling`` if it names a scheme of subsampling that has accounting under this
    relation, or raise.
    """
    if sampling not in SAMPLING:
        raise parameter_error("sampling", owner, f"one of {list(SAMPLING)}", repr(sampling))
    check_neighbors(neighbors, owner)
    if sampling == "fixed" and neighbors == "add_or_remove_one":
        raise ValueError(
            f"The 'sampling' parameter of {owner} must be 'poisson' with "
            "neighbors='add_or_remove_one': the rate of batches of a fixed size depends on the "
            "private number of rows. Got 'fixed' instead."
        )
    return str(sampling)


@lru_cache(maxsize=4096)
def _subsampled_log_moment(rate: float, mu: float, order: float) -> float:
    """Return an upper bound of ``log(1 + E)`` of the module's docstring."""
    plain = order * (order - 1) * mu * mu / 2  # no amplification: the whole Gaussian mechanism
    start = mu / 2
    stop = max(order * mu, mu / 2) + _TAIL_STDS
    if rate >= 1 or order * mu > 24:  # orders that large are never the best
        return plain
    panels = math.ceil((stop - start) * max(1.0, order * mu / 4))
    edges = np.linspace(start, stop, panels + 1)
    half = (edges[1] - edges[0]) / 2
    x = ((edges[:-1] + edges[1:]) / 2)[:, None] + half * _NODES
    log_ratio = np.log1p(rate * np.expm1(mu * x - mu * mu / 2))
    # log of phi (r^a - 1)(1 - r^{1-a}), without overflow; at the left end r = 1 and both factors
    # vanish.
    with np.errstate(divide="ignore"):
        grown = order * log_ratio
        raised = np.where(
            grown < 30, np.log(np.expm1(np.minimum(grown, 30))), grown + np.log1p(-np.exp(-grown))
        )
        lowered = np.log(-np.expm1((1 - order) * log_ratio))
    logs = raised + lowered - x * x / 2 + np.log(half * _WEIGHTS / math.sqrt(2 * math.pi))
    peak = float(logs.max())
    total = peak + math.log(math.fsum(np.exp(logs - peak).ravel()))
    # Beyond the last panel r^a <= 2^{a-1} (1 + q^a e^{a (mu x - mu^2/2)}), and normal tails at 20
    # are below e^-203.
    tail = (order - 1) * math.log(2) - 203 + np.logaddexp(0.0, order * math.log(rate) + plain)
    total = float(np.logaddexp(total + _RESERVE, tail))
    grown_total = total + math.log1p(math.exp(-total)) if total > 0 else math.log1p(math.exp(total))
    return min(plain, grown_total)


def dominating_subsampled_rdp(rate: float, mu: float, orders: Iterable[float]) -> Array:
    """Return the Renyi divergences of one step under replace-one, either scheme.

    ``rate`` is the probability that a given record is in the batch, in (0, 1], and
    ``mu = sensitivity / std`` with the replace-one sensitivity of a sum.
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
    """Return dp-accounting's Renyi divergences of one Poisson-sampled step under
    add-or-remove-one.
    """
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    # Its series for fractional orders may not converge (and warns); integers suffice.
    # ADD_OR_REMOVE_ONE is the default.
    whole = np.mod(orders, 1) == 0
    accountant = RdpAccountant(orders[whole])
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(1 / mu)))
    rdp = np.full(orders.size, np.inf)
    rdp[whole] = accountant.rdp
    return rdp


def rdp_epsilon(orders: Array, rdp: Array, delta: float) -> float:
    """Return the smallest epsilon >= 0 with
    ``exp((a-1)(rdp - epsilon)) (1 - 1/a)^{a-1} / a <= delta`` for an order.
    """
    needed = rdp + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.min(needed)))


@lru_cache(maxsize=256)
def subsampled_epsilon(
    sampling: str,
    neighbors: str,
    rate: float,
    steps: int,
    multiplier: float,
    delta: float,
    alone: float = 1.0,
) -> float:
    """Return an upper bound on epsilon, at ``delta``, of all steps together; ``rate`` is
    ``batch_size / n``.

    ``multiplier`` is ``std / sensitivity`` of the SUM over a batch, under this relation.
    ``"fixed"`` needs replace-one. ``alone`` is the longest gradient of a record over the
    sensitivity: it matters for Poisson batches, replace-one.
    """
    check_sampling(sampling, neighbors, "subsampled_epsilon")
    check_number(
        "rate", "subsampled_epsilon", rate, "a number in (0, 1]", 0, 1 + 1e-15, low_open=True
    )
    check_number("delta", "subsampled_epsilon", delta, "a number in (0, 1)", 0, 1, low_open=True)
    renyi = _renyi_epsilon(neighbors, rate, steps, 1 / multiplier, delta)
    alone = (
        min(1.0, max(0.5, alone)) if (sampling, neighbors) == ("poisson", "replace_one") else 1.0
    )
    return min(
        renyi, composed_subsampling_epsilon(neighbors, rate, steps, 1 / multiplier, delta, alone)
    )


def _subsampled_loss_density(
    rate: float, mu: float, alone: float, x: Array
) -> tuple[Array, Array, Array]:
    """Return ``g(a)``, ``-g'(a)`` and ``g''(a) da/dx`` of a subsampled step's losses at
    ``a = e^{mu x - mu^2/2}``.
    """
    a = np.exp(mu * x - mu * mu / 2)
    if alone == 1:  # g is the plain profile
        return (
            np.maximum(ndtr(mu - x) - a * ndtr(-x), 0.0),
            ndtr(-x),
            np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        )

    def profile(mu: float) -> tuple[Array, Array, Array]:
        above = mu / 2 - np.log(a) / mu
        below = -mu / 2 - np.log(a) / mu
        bend = np.exp(-below * below / 2) / (math.sqrt(2 * math.pi) * mu * a)
        return np.maximum(ndtr(above) - a * ndtr(below), 0.0), -ndtr(below), bend

    nearer = profile(alone * mu)
    farther = profile(mu)
    value, slope, bend = (far - near for far, near in zip(farther, nearer, strict=True))
    b = rate + (1 - rate) / a
    b1 = -(1 - rate) / a**2
    bend = b * bend + 2 * b1 * slope - 2 * b1 / a * value + nearer[2]
    value, slope = b * value + nearer[0], b * slope + b1 * value + nearer[1]
    return value, -slope, np.maximum(bend, 0.0) * mu * a


def _subsampled_loss_grid(
    neighbors: str, rate: float, mu: float, steps: int, delta: float, alone: float
) -> tuple[float, list[tuple[int, Array]], float]:
    """Return a grid's width, a law of a subsampled step's loss per order of data sets, and the
    mass left out.
    """
    # A law is the first index of the grid and the masses from there on.
    # Losses beyond the last point cost at most a ten-thousandth of delta in all steps.
    reach = -float(ndtri(max(min(1e-4 * delta / (rate * steps), 1e-6), 1e-300)))
    start = mu / 2 if neighbors == "replace_one" else -30.0
    stop = mu + reach
    even = np.linspace(start, stop, math.ceil((stop - start) / _PANEL) + 1)
    loss = np.log1p(rate * np.expm1(mu * even - mu * mu / 2))
    sides = np.exp(loss) + 1 if neighbors == "replace_one" else np.maximum(np.exp(loss), 1)
    likely = _subsampled_loss_density(rate, mu, alone, even)[2] * sides
    spread = math.sqrt(float(np.sum(likely * loss**2)) * (even[1] - even[0]))
    # Windows of ten standard deviations of the sum to either side fit the largest transform.
    width = spread * max(_LOSS_WIDTH, 32 * math.sqrt(steps) / _MOST_LOSSES)
    if not (width > 0 and (loss[-1] - loss[0]) / width < _MOST_LOSSES / 8):
        return math.inf, [], 1.0
    first = math.floor(loss[0] / width)
    last = math.ceil(loss[-1] / width)
    grown = np.expm1(width * np.arange(first, last + 1))  # likelihood ratios on the grid, less 1
    knots = np.full(grown.size, start)
    inside = grown > rate * math.expm1(mu * start - mu * mu / 2)
    knots[inside] = mu / 2 + np.log1p(grown[inside] / rate) / mu
    edges = np.union1d(knots, even[even < knots[-1]])
    half = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half * (1 + _LOSS_NODES)
    cell = np.clip(np.searchsorted(knots, x[:, 3], side="right") - 1, 0, grown.size - 2)
    mass = half * _LOSS_WEIGHTS * _subsampled_loss_density(rate, mu, alone, x)[2]
    low = grown[cell, None]
    high = grown[cell + 1, None]
    share = (rate * np.expm1(mu * x - mu * mu / 2) - low) / (high - low)
    slack = 1e-15 * (1 + np.abs(high)) / (high - low)

    def shared(up: Array) -> Array:
        up = np.clip(up, 0.0, 1.0)
        below = np.bincount(cell, (mass * (1 - up)).sum(1), grown.size)
        return np.asarray(below + np.bincount(cell + 1, (mass * up).sum(1), grown.size))

    forward = shared(share + slack)
    backward = shared(share - slack)
    value, rest, _ = _subsampled_loss_density(rate, mu, alone, knots[-1:])
    forward[-1] += rest[0]
    backward[-1] += rest[0]
    forward *= 1 + grown
    left_out = rate * float(value[0])
    if neighbors != "replace_one":
        return width, [(first, forward), (-last, backward[::-1])], left_out
    both = np.concatenate([backward[:0:-1], [0.0], forward[1:]])
    both[last] = max(0.0, 1 - float(both.sum()) - left_out)
    return width, [(-last, both)], left_out


def composed_subsampling_epsilon(
    neighbors: str, rate: float, steps: int, mu: float, delta: float, alone: float = 1.0
) -> float:
    """Bound epsilon by convolving a subsampled step's privacy loss with itself; infinite where
    it has none.
    """
    # See the module's docstring; mu = sensitivity / std.
    with np.errstate(all="ignore"):
        width, laws, left_out = _subsampled_loss_grid(neighbors, rate, mu, steps, delta, alone)
    left = delta - steps * left_out
    if not laws or left <= 0 or steps * _LOSS_ERROR > 1:
        return math.inf
    with np.errstate(all="ignore"):  # what is no number is no bound
        return max(
            _convolved_subsampling_epsilon(first, masses, width, steps, left)
            for first, masses in laws
        )


def _convolved_subsampling_epsilon(
    first: int, masses: Array, width: float, steps: int, delta: float
) -> float:
    """Return epsilon of T subsampled steps, independent losses on a grid, from the first one's
    mass on.
    """
    index = first + np.arange(masses.size)

    def log_moment(tilt: float) -> tuple[float, Array]:
        logs = np.log(masses) + tilt * width * index
        peak = float(logs.max())
        raised = np.exp(logs - peak)
        total = float(raised.sum())
        return peak + math.log(total), raised / total

    def chernoff(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        return (steps * log_moment(tilt)[0] - math.log(delta)) / tilt

    tilt = math.exp(
        minimize_scalar(chernoff, bounds=(-4.0, 12.0), method="bounded", options={"xatol": 0.05}).x
    )
    moment, tilted = log_moment(tilt)
    mean = float(tilted @ index)
    std = math.sqrt(steps * float(tilted @ (index - mean) ** 2))
    wanted = min(2 * max(10 * std, 30 / (tilt * width)), steps * (masses.size - 1.0) + 1) + 2
    size = min(1 << math.ceil(math.log2(wanted)), _MOST_LOSSES)
    bottom = round(steps * mean) - size // 2
    wrapped = np.bincount(np.mod(index, size), tilted, size)
    spectrum = np.fft.rfft(wrapped)
    unit = 16 * max(1.0, math.log2(size)) * 2.0**-53
    error = unit * math.sqrt(size) * float(np.linalg.norm(wrapped)) + 64 * 2.0**-53
    length = np.abs(spectrum) + error
    powers = np.exp(steps * np.log(spectrum))
    convolved = np.roll(np.fft.irfft(powers, size), -(bottom % size))
    # Parseval: errors of the transform, of its power, and of the transform back.
    off = 2 * (steps * error) ** 2 * float(np.sum(length ** (2 * (steps - 1))))
    off = math.sqrt(off / size) + unit * math.sqrt(2 * float(np.sum(length ** (2 * steps))) / size)
    # In units of M^T e^{-tilt centre}, and losses less the centre's.
    place = width * (np.arange(size) - size // 2)
    weighted = np.maximum(convolved, 0.0) * np.exp(-tilt * place)
    above = np.append(np.cumsum(weighted[:0:-1])[::-1], 0.0)
    damped = np.append(np.cumsum((weighted * np.exp(-place))[:0:-1])[::-1], 0.0)
    ratio = math.exp(-2 * tilt * width)
    shrunk = math.exp(-width)
    norm = ratio / (1 - ratio) - 2 * ratio * shrunk / (1 - ratio * shrunk)
    norm = math.sqrt(max(0.0, norm + ratio * shrunk**2 / (1 - ratio * shrunk**2)) + 1e-9)
    added = (
        1e-9 * above + off * norm * np.exp(-tilt * place) + math.exp(-tilt * (place[-1] + width))
    )
    centre = width * (bottom + size // 2)
    log_unit = steps * (moment + _LOSS_ERROR) - tilt * centre
    target = math.exp(min(700.0, math.log(delta) - log_unit))
    enough = above - np.exp(place) * damped + added <= target
    enough[tilt * place < -700] = False  # beyond what exponentials reach
    late = np.flatnonzero(~enough)
    here = int(late[-1]) + 1 if late.size else 0
    if here == size:
        return math.inf
    epsilon = place[here]
    if here:  # between grid points delta is linear in the exponential of epsilon
        between = (above[here - 1] + added[here - 1] - target) / damped[here - 1]
        epsilon = (
            min(epsilon, max(place[here - 1], math.log(between) + 1e-12))
            if between > 0
            else epsilon
        )
    return max(0.0, float(centre + epsilon))


def _renyi_epsilon(neighbors: str, rate: float, steps: int, mu: float, delta: float) -> float:
    rdp = dominating_subsampled_rdp if neighbors == "replace_one" else _poisson_subsampled_rdp
    return rdp_epsilon(_ORDERS, steps * rdp(rate, mu, _ORDERS), delta)


@lru_cache(maxsize=256)
def subsampled_multiplier(
    sampling: str,
    neighbors: str,
    rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    alone: float = 1.0,
) -> float:
    """Return the smallest certified ``std / sensitivity`` by :func:`subsampled_epsilon`, rounded
    up to four digits.
    """
    target = epsilon * (1 - _RESERVE)

    def renyi_holds(multiplier: float) -> bool:
        return _renyi_epsilon(neighbors, rate, steps, 1 / multiplier, delta) <= target

    def holds(multiplier: float) -> bool:
        return (
            subsampled_epsilon(sampling, neighbors, rate, steps, multiplier, delta, alone) <= target
        )

    check_sampling(sampling, neighbors, "subsampled_multiplier")
    # Finitely many orders leave some epsilon even where nothing is released.
    high = 1.0 if rdp_epsilon(_ORDERS, np.zeros(_ORDERS.size), delta) < target else math.inf
    while high <= _LARGEST_MULTIPLIER and not renyi_holds(high):
        high *= 2
    if high > _LARGEST_MULTIPLIER:
        raise ValueError(
            f"No noise is certified for epsilon={epsilon!r} and delta={delta!r} by accounting for "
            "sampled batches. Use a larger budget, or the mechanism 'gradient'."
        )
    low = high / 2
    while renyi_holds(low):
        low, high = low / 2, low
    high = _bisect_subsampled(renyi_holds, low, high, 1e-2)
    low = high / 2
    while holds(low):
        low, high = low / 2, low
    high = _bisect_subsampled(holds, low, high, 1e-3)
    rounded = _rounded_up(high)
    while not holds(rounded):
        rounded = _rounded_up(rounded * (1 + 1e-3))
    return rounded


def _bisect_subsampled(
    holds: Callable[[float], bool], low: float, high: float, accuracy: float
) -> float:
    """Narrow ``(low, high]``, where ``holds(high)`` is true, and return its upper end."""
    while high / low > 1 + accuracy:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _rounded_up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    return float(f"{math.ceil(value / unit) * unit:.{_DIGITS}g}")
