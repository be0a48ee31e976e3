"""Attacks on a mechanism: run it on two neighbouring data sets and bound its epsilon from below.

An audit never proves privacy; it refutes false claims. On some runs it chooses the event that tells
the two data sets apart best, and counts that event on fresh runs. Limits are exact
(Clopper-Pearson) and hold for any distribution: a bound above the claim refutes it with the stated
confidence.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from dpconvex.core.checks import parameter_error
from dpconvex.types import Array

Sampler = Callable[[int, np.random.Generator], ArrayLike]
Statistic = Callable[[Array], Array]

DEFAULT_CONFIDENCE = 1.0 - 1e-6
# Deltas at which a claimed profile is tested besides its own. Their number costs nothing: the two
# confidence limits of one event hold at every delta at once.
_PROFILE_DELTAS = np.concatenate([np.logspace(-9.0, -2.0, 15), [0.03, 0.1, 0.2]])
_THRESHOLDS = 600
_CAUTION = 2.0  # standard errors by which selection runs are distrusted
_DEFECT_RUNS = 200_000  # outputs to judge the size of a detectable defect by
_MOST_COORDINATES = (
    6  # of an output that are tested one by one: those that differ most on the selection runs
)


def _check_attack_counts(
    name: str, successes: ArrayLike, trials: int, error: float
) -> NDArray[np.float64]:
    if not 0.0 < error < 0.5:
        raise ValueError(
            f"The 'error' parameter of {name} must be in (0, 0.5). Got {error!r} instead."
        )
    count = np.asarray(successes, dtype=np.float64)
    if trials < 1:
        raise ValueError(
            f"The 'trials' parameter of {name} must be at least 1. Got {trials} instead."
        )
    if np.any(~((count >= 0) & (count <= trials))):
        raise parameter_error(
            "successes", name, f"between 0 and trials={trials}", "a count outside this range"
        )
    return count


def clopper_pearson_lower(successes: ArrayLike, trials: int, error: float) -> Array:
    """Return a lower confidence limit of an attack's success probability, too high with probability
    at most error.

    ``p_lo`` solves ``P(Binomial(trials, p_lo) >= successes) = error``, and is 0 for no success.

    Parameters
    ----------
    successes, trials : int or array of int, int
        Number of times the event was seen, and of independent runs.
    error : float
        Probability that the limit lies above the true probability, at most.

    Examples
    --------
    >>> round(float(clopper_pearson_lower(10, 10, 0.05)), 6)
    0.741134
    """
    count = _check_attack_counts("clopper_pearson_lower", successes, trials, error)
    # The guard keeps the beta parameters positive; its value is replaced by the exact limit 0.
    limit = betaincinv(np.maximum(count, 0.5), trials - count + 1.0, error)
    return np.where(count > 0, limit, 0.0)[()]


def clopper_pearson_upper(successes: ArrayLike, trials: int, error: float) -> Array:
    """Return an upper confidence limit of an attack's success probability, too low with probability
    at most error.

    ``p_hi`` solves ``P(Binomial(trials, p_hi) <= successes) = error``, and is 1 for no failure.
    Parameters are those of :func:`clopper_pearson_lower`.
    """
    count = _check_attack_counts("clopper_pearson_upper", successes, trials, error)
    # 1 - lower(failures) would lose all digits of a tiny limit: invert directly.
    limit = betaincinv(count + 1.0, np.maximum(trials - count, 0.5), 1.0 - error)
    return np.where(count < trials, limit, 1.0)[()]


def epsilon_from_probabilities(likely: ArrayLike, rare: ArrayLike, delta: ArrayLike) -> Array:
    """Return the smallest epsilon at which an attack may see an event with these two probabilities,
    given delta.

    ``epsilon = max(0, log((likely - delta) / rare))``: (epsilon, delta) privacy demands
    ``likely <= exp(epsilon) rare + delta``.

    Parameters
    ----------
    likely, rare, delta : float or array
        Probability of the event on one data set (or a lower bound), on the neighbour (or an upper
        bound), and delta.
    """
    surplus = np.asarray(likely, dtype=np.float64) - np.asarray(delta, dtype=np.float64)
    rare = np.asarray(rare, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.log(np.maximum(surplus, 0.0)) - np.log(rare)
    return np.where(surplus > 0, np.maximum(bound, 0.0), 0.0)[()]


def epsilon_lower_bound(
    likely_hits: ArrayLike,
    likely_runs: int,
    rare_hits: ArrayLike,
    rare_runs: int,
    delta: float,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Array:
    """Return what an attack proves: a lower confidence bound on epsilon by the counts of one event.

    ``epsilon_lb = log((p_lo - delta) / q_hi)``, floored at 0, with Clopper-Pearson limits at
    ``(1 - confidence) / 2`` each side.

    Parameters
    ----------
    likely_hits, likely_runs, rare_hits, rare_runs : int
        Times the event was seen, and runs, on the data set where it is likelier, and on its
        neighbour.
    delta, confidence : float
        The claimed delta, and the probability that the bound does not exceed the true epsilon. The
        event must not depend on these runs.

    Examples
    --------
    >>> round(float(epsilon_lower_bound(600, 1000, 100, 1000, 1e-5)), 4)
    1.2257
    """
    error = 0.5 * (1.0 - confidence)
    low = clopper_pearson_lower(likely_hits, likely_runs, error)
    high = clopper_pearson_upper(rare_hits, rare_runs, error)
    return epsilon_from_probabilities(low, high, delta)


def attack_lowest_bit(numbers: Array) -> Array:
    """Return what an attack on bits sees: the exponent of the last binary digit that is set,
    2000 for 0.
    """
    # Sums of floating-point numbers have the digits of the larger one: where noise is added in
    # floating point, last digits tell which value was under it. On a public grid they do not depend
    # on the value.
    fraction, exponent = np.frexp(np.asarray(numbers, dtype=np.float64))
    digits = (fraction * 2.0**53).astype(np.int64)
    last = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    return np.where(digits == 0, 2000, exponent - 53 + last).astype(np.float64)


def attack_statistics(first: Array, second: Array, bits: bool) -> dict[str, Statistic]:
    """Return the statistics that may tell these selection runs apart, with ``bits`` last binary
    digits too.
    """
    # Fitting them costs no confidence, because the event that is chosen in the end is counted on
    # other runs.
    project = _attack_projection(first, second)
    centre = float(np.median(np.concatenate([project(first), project(second)])))

    def deviation(outputs: Array) -> Array:
        # A record whose slope follows the sign of the noise shows in both tails at once.
        return np.abs(project(outputs) - centre)

    found: dict[str, Statistic] = {"projection": project, "deviation": deviation}
    transforms: dict[str, Statistic] = {}
    if first.ndim == 2 and first.shape[1] > 1:
        transforms["number {}"] = np.asarray
    if bits:
        transforms["last bit of number {}"] = attack_lowest_bit
    for name, transform in transforms.items():
        columns = [transform(outputs).reshape(len(outputs), -1).T for outputs in (first, second)]
        distances = [_kolmogorov_distance(a, b) for a, b in zip(*columns, strict=True)]
        for number in np.argsort(distances)[::-1][:_MOST_COORDINATES].tolist():
            found[name.format(number)] = partial(_coordinate, transform, number)
    return found


def own_attack_statistic(statistic: Callable[[Array], ArrayLike]) -> Statistic:
    """Return a statistic of the user's that is held to one number per run."""

    def checked_attack_statistic(outputs: Array) -> Array:
        values = np.asarray(statistic(outputs), dtype=np.float64)
        if values.shape != outputs.shape[:1]:
            raise ValueError(
                "The 'statistic' parameter of audit must return one number per run. "
                f"Got shape {values.shape} for {outputs.shape[0]} runs instead."
            )
        return values

    return checked_attack_statistic


def _attack_projection(first: Array, second: Array) -> Statistic:
    """Return the projection that separates normal outputs best if their coordinates are
    independent.
    """
    if first.ndim == 1:
        return np.asarray
    gap = first.mean(axis=0) - second.mean(axis=0)
    spread = np.sqrt(first.var(axis=0) + second.var(axis=0))
    # Numbers without noise have no spread; they must not be lost, nor may rounding pass for a
    # difference.
    least = 1e-9 * np.maximum(np.abs(first).max(axis=0), np.abs(second).max(axis=0)) + 1e-300
    spread = np.maximum(spread, least)
    axis = gap / spread
    length = float(np.linalg.norm(axis))
    axis = axis / length if length > 0 else np.eye(len(gap))[0]
    return lambda outputs: np.asarray((outputs / spread) @ axis, dtype=np.float64)


def _coordinate(transform: Statistic, number: int, outputs: Array) -> Array:
    return np.asarray(transform(outputs.reshape(len(outputs), -1)[:, number]))


def _kolmogorov_distance(first: Array, second: Array) -> float:
    points = np.unique(np.concatenate([first, second]))
    shares = (
        np.searchsorted(np.sort(values), points, side="right") / len(values)
        for values in (first, second)
    )
    return float(np.abs(np.subtract(*shares)).max())


@dataclass(frozen=True)
class TradeoffCurve:
    """Empirical errors of the threshold tests that tell the two data sets apart.

    ``type_one`` is the rate of the event on the data set where it is rare, in increasing order,
    ``type_two`` that of its absence where it is likely. Privacy keeps
    ``type_two >= claim.tradeoff(type_one)`` up to sampling error.
    """

    type_one: Array
    type_two: Array


@dataclass(frozen=True)
class AuditResult:
    """Verdict of an audit with the counts it rests on.

    Attributes
    ----------
    passed : bool
        False when ``epsilon_lower_bound > epsilon``: the claim is refuted.
    epsilon_lower_bound, epsilon, delta : float
        Lower confidence bound on the true epsilon, and the point of the claimed profile that came
        closest to (or furthest beyond) refutation.
    confidence : float
        Probability that the lower bound is right, whatever the mechanism.
    statistic : str
        ``"projection"``, ``"deviation"`` (distance of the projection from its centre),
        ``"number 3"`` (the fourth number of the output alone), ``"last bit of number 3"`` or
        ``"custom"``.
    threshold, direction : float, str
        The event is that the statistic lies ``"above"`` or ``"below"`` (or at) the threshold.
    likely, likely_hits, rare_hits : str, int, int
        The data set on which the event is likelier, ``"first"`` or ``"second"``, and its counts on
        both.
    runs, selection_runs : int
        Runs per data set that the bound rests on, and that were spent on choosing the event.
    detectable_noise : float or None
        Noise below this share of what was drawn would most likely have been refuted. 0 means
        missing noise only, None that not even this is certain.
    tradeoff : TradeoffCurve
        Errors of all thresholds of the chosen statistic and direction.
    """

    passed: bool
    epsilon_lower_bound: float
    epsilon: float
    delta: float
    confidence: float
    statistic: str
    threshold: float
    direction: str
    likely: str
    likely_hits: int
    rare_hits: int
    runs: int
    selection_runs: int
    detectable_noise: float | None
    tradeoff: TradeoffCurve = field(repr=False, compare=False)

    def summary(self) -> str:
        """Return a readable account of the attack's result, one fact per line."""
        verdict = "consistent with the claim" if self.passed else "CLAIM REFUTED"
        other = "second" if self.likely == "first" else "first"
        lines = [
            f"Privacy audit: {verdict}",
            f"  claimed epsilon      {self.epsilon:.4g} at delta = {self.delta:.3g}",
            f"  epsilon lower bound  {self.epsilon_lower_bound:.4g} "
            f"(wrong with probability at most {1.0 - self.confidence:.1e})",
            f"  event                {self.statistic} {self.direction} {self.threshold:.6g}",
            f"  seen                 {self.likely_hits} times on the {self.likely} data set, "
            f"{self.rare_hits} on the {other}",
            f"  runs per data set    {self.runs} counted, {self.selection_runs} for selection",
            f"  would have caught    {self.would_have_caught()}",
        ]
        return "\n".join(lines)

    __str__ = summary

    def would_have_caught(self) -> str:
        """Return in words what size of defect this run could have seen."""
        if self.detectable_noise is None:
            return "no defect for certain: more runs see more"
        if self.detectable_noise < 0.01:
            return "missing noise only"
        return f"noise below {self.detectable_noise:.2g} of what was drawn"


class Claim(Protocol):
    """Anything with a privacy profile: a guarantee or a certificate."""

    def epsilon(self, delta: float) -> float:
        """Smallest claimed epsilon at this delta, infinite if none is claimed."""

    def delta(self, epsilon: float) -> float:
        """Smallest claimed delta at this epsilon."""


@dataclass(frozen=True)
class _AttackEvent:
    """A threshold event: one side of a threshold, and the data set where it is likelier."""

    statistic: str
    threshold: float
    above: bool
    likely_first: bool

    def hits(self, values: Array) -> int:
        above = int(np.count_nonzero(values > self.threshold))
        return above if self.above else len(values) - above


def _attacked_profile(claim: Claim, delta: float | None) -> tuple[Array, Array]:
    """Return the points (epsilon, delta) of the claimed profile at which refutation is tried."""
    if delta is None:
        # A claim's own delta is what it still allows at an epsilon no one would call private.
        own = float(claim.delta(500.0))
        deltas = np.unique(np.concatenate([[own], _PROFILE_DELTAS[own < _PROFILE_DELTAS]]))
    else:
        if not 0.0 <= delta < 1.0:
            remedy = "Leave it out to audit the whole claimed profile."
            raise parameter_error("delta", "audit", "in [0, 1)", repr(delta), remedy)
        deltas = np.array([float(delta)])
    epsilons = np.array([float(claim.epsilon(float(d))) for d in deltas])
    finite = np.isfinite(epsilons)
    if not finite.any():
        raise parameter_error(
            "delta", "audit", "one at which the guarantee claims a finite epsilon", repr(delta)
        )
    return epsilons[finite], deltas[finite]


def _attack_excess(
    low: ArrayLike, high: ArrayLike, epsilons: Array, deltas: Array
) -> tuple[Array, Array]:
    """Return the ratio of the lower bound to the claim on the profile, above 1 refutes, and the
    bound.
    """
    bound = epsilon_from_probabilities(
        np.asarray(low)[..., None], np.asarray(high)[..., None], deltas
    )
    return bound / np.maximum(epsilons, 1e-12), bound


def _select_attack_event(
    statistic: str,
    first: Array,
    second: Array,
    evaluation_runs: int,
    error: float,
    profile: tuple[Array, Array],
) -> tuple[float, _AttackEvent]:
    """Return the ratio that the best event promises on the selection runs, and the event."""
    runs = len(first)
    first = np.sort(first)
    second = np.sort(second)
    # Order statistics of each sample, denser in both tails, where small deltas are decided.
    tail = np.logspace(0.0, np.log10(runs / 2.0), _THRESHOLDS // 4)
    ranks = np.concatenate([tail, np.linspace(1, runs, 100)]).astype(int)
    ranks = np.unique(np.concatenate([ranks, runs - ranks, [0]]))
    ranks = ranks[ranks < runs]
    thresholds = np.unique(np.concatenate([first[ranks], second[ranks]]))
    first_above = runs - np.searchsorted(first, thresholds, side="right")
    second_above = runs - np.searchsorted(second, thresholds, side="right")

    best = (-1.0, _AttackEvent(statistic, float(thresholds[0]), True, True))
    for above, likely_first in itertools.product((True, False), repeat=2):
        likely, rare = (first_above, second_above) if likely_first else (second_above, first_above)
        if not above:
            likely = runs - likely
            rare = runs - rare
        # What the evaluation runs would prove if they repeated these frequencies, each moved
        # against us by _CAUTION standard errors: the best of many rare events is luck.
        likely = np.maximum(likely - _CAUTION * np.sqrt(likely * (1 - likely / runs)), 0.0)
        rare = np.minimum(rare + _CAUTION * np.sqrt(rare + 1.0), runs)
        scale = evaluation_runs / runs
        # At most all runs, also where the quotient was rounded up.
        likely, rare = (np.minimum(hits * scale, evaluation_runs) for hits in (likely, rare))
        low = clopper_pearson_lower(likely, evaluation_runs, error)
        high = clopper_pearson_upper(rare, evaluation_runs, error)
        # Where nothing is proved, the event with the largest gap is the one to report.
        ratio = (
            _attack_excess(low, high, *profile)[0].max(axis=-1)
            + 1e-9 * (likely - rare) / evaluation_runs
        )
        index = int(np.argmax(ratio))
        if ratio[index] > best[0]:
            threshold = _attack_threshold(float(thresholds[index]), first, second)
            best = (float(ratio[index]), _AttackEvent(statistic, threshold, above, likely_first))
    return best


def _attack_threshold(threshold: float, first: Array, second: Array) -> float:
    """Return the middle of the gap above a threshold: the same event on these sorted runs, a
    safer one on others.
    """
    above = [
        float(values[index])
        for values in (first, second)
        if (index := int(np.searchsorted(values, threshold, side="right"))) < len(values)
    ]
    return threshold + (min(above) - threshold) / 2 if above else threshold


def _tradeoff_attack(event: _AttackEvent, first: Array, second: Array) -> TradeoffCurve:
    likely, rare = (first, second) if event.likely_first else (second, first)
    sign = 1.0 if event.above else -1.0
    likely = np.sort(sign * likely)
    rare = np.sort(sign * rare)
    runs = len(rare)
    ranks = np.unique(np.linspace(0, runs - 1, min(runs, 501)).astype(int))[::-1]
    thresholds = rare[ranks]
    type_one = 1.0 - np.searchsorted(rare, thresholds, side="right") / runs
    type_two = np.searchsorted(likely, thresholds, side="right") / runs
    return TradeoffCurve(np.append(type_one, 1.0), np.append(type_two, 0.0))


def _draw_attacked_outputs(sampler: Sampler, count: int, rng: np.random.Generator) -> Array:
    outputs = np.asarray(sampler(count, rng), dtype=np.float64)
    if outputs.ndim not in (1, 2) or outputs.shape[0] != count:
        raise ValueError(
            "A sampler of audit must return an array of shape (count,) or (count, k). "
            f"Got shape {outputs.shape} for count={count} instead."
        )
    if not np.isfinite(outputs).all():
        raise ValueError(
            "A sampler of audit must return finite outputs. Got a NaN or an infinity instead. "
            "Map failures of the mechanism to a number: a failure that depends on data is an "
            "output too."
        )
    return outputs


def audit(
    sample_first: Sampler,
    sample_second: Sampler,
    guarantee: Claim,
    runs: int = 100_000,
    *,
    delta: float | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    rng: np.random.Generator | int | None = None,
    statistic: Callable[[Array], ArrayLike] | None = None,
    selection_share: float = 0.2,
    bits: bool = False,
) -> AuditResult:
    """Try to refute a privacy claim by running a mechanism on two neighbouring data sets.

    ``epsilon_lb = log((p_lo - delta) / q_hi)`` for one event ``statistic > threshold`` (or ``<=``),
    with Clopper-Pearson limits at ``(1 - confidence) / 2`` each side. Statistic, threshold, side
    and the roles of the data sets are chosen on the first ``selection_share`` of the runs. The
    event is counted on the others only, so the choice costs no confidence. The limits hold at all
    deltas at once: the whole claimed profile is tested.

    Parameters
    ----------
    sample_first, sample_second : callable
        ``sample(count, rng)`` returns ``count`` independent outputs on this data set, of shape
        (count,) or (count, k).
    guarantee : PureDP, ApproxDP, GaussianDP or Certificate
        The claim: an object with ``epsilon(delta)`` and ``delta(epsilon)``.
    runs : int, default=100_000
        Runs per data set, selection included. 1e5 runs catch half the noise of a Gaussian mechanism
        at (1, 1e-5) three times out of four, 2e5 nearly always.
    delta : float, optional
        Audit at this delta alone; by default at the claim's own delta and along its profile.
    confidence, rng : float, default=1 - 1e-6, and numpy Generator, int or None
        Probability that a correct claim is not refuted, and randomness handed to the samplers.
    statistic : callable, optional
        Maps outputs to one number per run, for instance an exact likelihood ratio. By default the
        projection on the difference of means, its distance from the centre and the coordinates that
        differ most are tried.
    selection_share, bits : float, default=0.2, and bool, default=False
        Share of the runs spent on choosing the event, and whether to attack last binary digits too.
        Noise that is added in floating point fails, as it should.

    Examples
    --------
    >>> from dpconvex.audit import audit
    >>> from dpconvex.privacy import GaussianDP
    >>> for std in (2.0, 1.0):  # the right noise, and half of it
    ...     pair = [
    ...         lambda count, rng, mean=mean, std=std: rng.normal(mean, std, count)
    ...         for mean in (0.0, 1.0)
    ...     ]
    ...     print(audit(*pair, GaussianDP(0.5), runs=20_000, rng=0).passed)
    True
    False
    """
    if runs < 100:
        raise parameter_error(
            "runs", "audit", "at least 100", repr(runs), "Small deltas need 1e5 and more."
        )
    for name, value, low_end in (
        ("confidence", confidence, 0.5),
        ("selection_share", selection_share, 0.0),
    ):
        if not low_end < value < 1.0:
            raise ValueError(
                f"The '{name}' parameter of audit must be in ({low_end:g}, 1). Got {value!r} "
                "instead."
            )
    generator = np.random.default_rng(rng)
    error = 0.5 * (1.0 - confidence)
    profile = _attacked_profile(guarantee, delta)
    selection_runs = min(max(int(runs * selection_share), 20), runs - 20)
    evaluation_runs = runs - selection_runs

    first = _draw_attacked_outputs(sample_first, selection_runs, generator)
    second = _draw_attacked_outputs(sample_second, selection_runs, generator)
    if first.shape != second.shape:
        raise ValueError(
            f"The samplers of audit must return arrays of one shape. Got {first.shape} and "
            f"{second.shape} instead."
        )
    if statistic is None:
        statistics = attack_statistics(first, second, bits)
    else:
        statistics = {"custom": own_attack_statistic(statistic)}
    candidates = [
        _select_attack_event(
            name, function(first), function(second), evaluation_runs, error, profile
        )
        for name, function in statistics.items()
    ]
    event = max(candidates, key=lambda candidate: candidate[0])[1]

    function = statistics[event.statistic]
    outputs = [
        _draw_attacked_outputs(sample, evaluation_runs, generator)
        for sample in (sample_first, sample_second)
    ]
    first, second = (function(each) for each in outputs)
    likely = event.hits(first)
    rare = event.hits(second)
    if not event.likely_first:
        likely, rare = rare, likely
    low = clopper_pearson_lower(likely, evaluation_runs, error)
    high = clopper_pearson_upper(rare, evaluation_runs, error)
    ratio, bound = _attack_excess(low, high, *profile)
    index = int(np.argmax(ratio))
    epsilon = float(profile[0][index])
    lower = float(bound[index])
    seen = _noise_attack_detects(
        outputs, next(iter(statistics.values())), evaluation_runs, error, profile
    )
    return AuditResult(
        passed=lower <= epsilon,
        epsilon_lower_bound=lower,
        epsilon=epsilon,
        delta=float(profile[1][index]),
        confidence=confidence,
        statistic=event.statistic,
        threshold=event.threshold,
        direction="above" if event.above else "below",
        likely="first" if event.likely_first else "second",
        likely_hits=likely,
        rare_hits=rare,
        runs=evaluation_runs,
        selection_runs=selection_runs,
        detectable_noise=seen,
        tradeoff=_tradeoff_attack(event, first, second),
    )


def _noise_attack_detects(
    outputs: list[Array],
    statistic: Statistic,
    evaluation_runs: int,
    error: float,
    profile: tuple[Array, Array],
) -> float | None:
    """Return the largest factor on the noise at which an audit like this one would most likely
    refute the claim.
    """
    # Outputs are pulled towards their medians by the factor, as less noise would do. The event is
    # chosen and judged as on selection runs, two standard errors to its disadvantage, and so are
    # the medians. None if not even outputs without noise would refute the claim.
    first, second = (each[:_DEFECT_RUNS] for each in outputs)
    centre = np.median(first, axis=0)
    other = np.median(second, axis=0)
    luck = _CAUTION * np.sqrt(0.5 * np.pi * (first.var(axis=0) + second.var(axis=0)) / len(first))
    gap = other - centre
    pairs = (first, centre), (second, centre + np.sign(gap) * np.maximum(np.abs(gap) - luck, 0.0))

    def refutes(factor: float) -> bool:
        nearer, farther = (
            statistic(median + factor * (each - np.median(each, axis=0))) for each, median in pairs
        )
        return _select_attack_event("", nearer, farther, evaluation_runs, error, profile)[0] > 1.0

    if not refutes(0.0):
        return None
    low = 0.0
    high = 1.0
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low
