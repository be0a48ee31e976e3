"""Attack a mechanism on two neighbouring data sets and bound its epsilon from below.

An audit never proves privacy; it refutes false claims. It picks on some runs the event that tells
the two data sets apart best and counts that event on fresh runs. If the resulting lower bound
exceeds the claim, the claim is false with the stated confidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.audit.confidence import (
    DEFAULT_CONFIDENCE,
    clopper_pearson_lower,
    clopper_pearson_upper,
    epsilon_from_probabilities,
)
from dpconvex.audit.result import AuditResult, TradeoffCurve
from dpconvex.audit.statistics import Statistic, custom_statistic, fitted_statistics
from dpconvex.types import Array

Sampler = Callable[[int, np.random.Generator], ArrayLike]

# Where the profile of a claim is looked at besides its own delta. No price is paid for their
# number: the two confidence limits of one event hold at every delta at once.
_PROFILE_DELTAS = np.concatenate([np.logspace(-9.0, -2.0, 15), [0.03, 0.1, 0.2]])
_THRESHOLDS = 600
_CAUTION = 2.0
_ENOUGH = 200_000  # outputs to judge the size of a visible defect by


class Claim(Protocol):
    """What is audited: anything with a privacy profile (a guarantee or a certificate)."""

    def epsilon(self, delta: float) -> float:
        """Smallest claimed epsilon at this delta, infinite if none is claimed."""
        ...

    def delta(self, epsilon: float) -> float:
        """Smallest claimed delta at this epsilon."""
        ...


@dataclass(frozen=True)
class _Event:
    """One threshold event: which side of which threshold, and where it is likelier."""

    statistic: str
    threshold: float
    above: bool
    likely_first: bool

    def hits(self, values: Array) -> int:
        above = int(np.count_nonzero(values > self.threshold))
        return above if self.above else len(values) - above


def _profile(claim: Claim, delta: float | None) -> tuple[Array, Array]:
    """Points (epsilon, delta) of the claimed profile at which refutation is tried."""
    if delta is None:
        # A claim's own delta is what it still allows at an epsilon no one would call private.
        own = float(claim.delta(500.0))
        deltas = np.unique(np.concatenate([[own], _PROFILE_DELTAS[own < _PROFILE_DELTAS]]))
    else:
        if not 0.0 <= delta < 1.0:
            raise ValueError(
                f"The 'delta' parameter of audit must be in [0, 1). Got {delta!r} instead. "
                "Leave it out to audit the whole claimed profile."
            )
        deltas = np.array([float(delta)])
    epsilons = np.array([float(claim.epsilon(float(d))) for d in deltas])
    finite = np.isfinite(epsilons)
    if not finite.any():
        raise ValueError(
            "The 'delta' parameter of audit must be one at which the guarantee claims a finite "
            f"epsilon. Got {delta!r} instead."
        )
    return epsilons[finite], deltas[finite]


def _excess(low: ArrayLike, high: ArrayLike, epsilons: Array, deltas: Array) -> tuple[Array, Array]:
    """Ratio of the lower bound to the claim on the profile: above 1 refutes."""
    bound = epsilon_from_probabilities(np.asarray(low)[..., None], np.asarray(high)[..., None], deltas)
    return bound / np.maximum(epsilons, 1e-12), bound


def _select(
    statistic: str, first: Array, second: Array, evaluation_runs: int, error: float, profile: tuple[Array, Array]
) -> tuple[float, _Event]:
    """Best threshold, side and roles on the selection runs, and the ratio they promise."""
    runs = len(first)
    first, second = np.sort(first), np.sort(second)
    # Order statistics of each sample, denser in both tails, where small deltas are decided.
    ranks = np.concatenate(
        [np.logspace(0.0, np.log10(runs / 2.0), _THRESHOLDS // 4), np.linspace(1, runs, 100)]
    ).astype(int)
    ranks = np.unique(np.concatenate([ranks, runs - ranks, [0]]))
    ranks = ranks[ranks < runs]
    thresholds = np.unique(np.concatenate([first[ranks], second[ranks]]))
    first_above = runs - np.searchsorted(first, thresholds, side="right")
    second_above = runs - np.searchsorted(second, thresholds, side="right")

    best = (-1.0, _Event(statistic, float(thresholds[0]), True, True))
    for above in (True, False):
        for likely_first in (True, False):
            likely, rare = (first_above, second_above)
            if not likely_first:
                likely, rare = rare, likely
            if not above:
                likely, rare = runs - likely, runs - rare
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
            ratio = _excess(low, high, *profile)[0].max(axis=-1) + 1e-9 * (likely - rare) / evaluation_runs
            index = int(np.argmax(ratio))
            if ratio[index] > best[0]:
                place = _between(float(thresholds[index]), first, second)
                best = (float(ratio[index]), _Event(statistic, place, above, likely_first))
    return best


def _between(threshold: float, first: Array, second: Array) -> float:
    """Return the middle of the gap above a threshold: the same event on these sorted runs, a safer one on others."""
    above = [
        float(values[place])
        for values in (first, second)
        if (place := int(np.searchsorted(values, threshold, side="right"))) < len(values)
    ]
    return threshold + (min(above) - threshold) / 2 if above else threshold


def _tradeoff(event: _Event, first: Array, second: Array) -> TradeoffCurve:
    likely, rare = (first, second) if event.likely_first else (second, first)
    sign = 1.0 if event.above else -1.0
    likely, rare = np.sort(sign * likely), np.sort(sign * rare)
    runs = len(rare)
    ranks = np.unique(np.linspace(0, runs - 1, min(runs, 501)).astype(int))[::-1]
    thresholds = rare[ranks]
    type_one = 1.0 - np.searchsorted(rare, thresholds, side="right") / runs
    type_two = np.searchsorted(likely, thresholds, side="right") / runs
    return TradeoffCurve(np.append(type_one, 1.0), np.append(type_two, 0.0))


def _draw(sampler: Sampler, count: int, rng: np.random.Generator) -> Array:
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

    ``epsilon_lb = log((p_lo - delta) / q_hi)`` for one event ``statistic > threshold`` (or
    ``<=``), with Clopper-Pearson limits at ``(1 - confidence) / 2`` each side. Statistic,
    threshold, side and the roles of the data sets are chosen on the first ``selection_share`` of
    the runs, and the event is counted on the others only, so the choice costs no confidence. The
    two limits hold at all deltas at once, so the whole claimed profile is tested for the price of
    one point.

    Parameters
    ----------
    sample_first, sample_second : callable
        ``sample(count, rng)`` returns ``count`` independent outputs of the mechanism, as an array
        of shape (count,) or (count, k), on the first and on the second data set.
    guarantee : PureDP, ApproxDP, GaussianDP or Certificate
        The claim: an object with ``epsilon(delta)`` and ``delta(epsilon)``.
    runs : int, default=100_000
        Runs per data set, selection included. Half the noise of a Gaussian mechanism at (1, 1e-5)
        is caught by 1e5 runs three times out of four, and by 2e5 nearly always.
    delta : float, optional
        Audit at this delta alone; by default at the claim's own delta and along its profile.
    confidence : float, default=1 - 1e-6
        Probability that a correct claim is not refuted.
    rng : numpy Generator, int or None
        Randomness handed to the samplers.
    statistic : callable, optional
        Maps outputs to one number per run, for instance an exact likelihood ratio. By default
        vectors are projected on the difference of the means of the selection runs, and the
        projection, its distance from the centre and the numbers that differ most are tried.
    selection_share : float, default=0.2
        Share of the runs spent on choosing the event.
    bits : bool, default=False
        Whether to attack last binary digits too. Noise that is added in floating point fails, as it should.

    Returns
    -------
    AuditResult
        ``passed`` is False if the claim is refuted.

    Examples
    --------
    >>> from dpconvex.audit import GaussianRelease, audit
    >>> from dpconvex.privacy import GaussianDP
    >>> for std in (2.0, 1.0):  # the right noise, and half of it
    ...     pair = [GaussianRelease(center, std).sample for center in (0.0, 1.0)]
    ...     print(audit(*pair, GaussianDP(0.5), runs=20_000, rng=0).passed)
    True
    False
    """
    if runs < 100:
        raise ValueError(
            f"The 'runs' parameter of audit must be at least 100. Got {runs!r} instead. Small deltas need 1e5 and more."
        )
    for name, value, low_end in (("confidence", confidence, 0.5), ("selection_share", selection_share, 0.0)):
        if not low_end < value < 1.0:
            raise ValueError(f"The '{name}' parameter of audit must be in ({low_end:g}, 1). Got {value!r} instead.")
    generator = np.random.default_rng(rng)
    error = 0.5 * (1.0 - confidence)
    profile = _profile(guarantee, delta)
    selection_runs = min(max(int(runs * selection_share), 20), runs - 20)
    evaluation_runs = runs - selection_runs

    first = _draw(sample_first, selection_runs, generator)
    second = _draw(sample_second, selection_runs, generator)
    if first.shape != second.shape:
        raise ValueError(
            f"The samplers of audit must return arrays of one shape. Got {first.shape} and {second.shape} instead."
        )
    statistics: dict[str, Statistic]
    if statistic is None:
        statistics = fitted_statistics(first, second, bits)
    else:
        statistics = {"custom": custom_statistic(statistic)}
    event = max(
        (
            _select(name, function(first), function(second), evaluation_runs, error, profile)
            for name, function in statistics.items()
        ),
        key=lambda candidate: candidate[0],
    )[1]

    function = statistics[event.statistic]
    outputs = [_draw(sample, evaluation_runs, generator) for sample in (sample_first, sample_second)]
    first, second = (function(each) for each in outputs)
    likely, rare = event.hits(first), event.hits(second)
    if not event.likely_first:
        likely, rare = rare, likely
    low = clopper_pearson_lower(likely, evaluation_runs, error)
    high = clopper_pearson_upper(rare, evaluation_runs, error)
    ratio, bound = _excess(low, high, *profile)
    index = int(np.argmax(ratio))
    epsilon = float(profile[0][index])
    return AuditResult(
        passed=bool(bound[index] <= epsilon),
        epsilon_lower_bound=float(bound[index]),
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
        detectable_noise=_detectable(outputs, next(iter(statistics.values())), evaluation_runs, error, profile),
        tradeoff=_tradeoff(event, first, second),
    )


def _detectable(
    outputs: list[Array], statistic: Statistic, evaluation_runs: int, error: float, profile: tuple[Array, Array]
) -> float | None:
    """Return the largest factor on the noise at which an audit like this one would most likely refute the claim.

    Outputs are drawn together around their medians by the factor, as less noise would; the event is then chosen and
    judged as on selection runs, two standard errors to its disadvantage, and so are the medians: what may be luck is no
    difference. None if not even outputs without noise would refute it.
    """
    first, second = (each[:_ENOUGH] for each in outputs)
    centre, other = np.median(first, axis=0), np.median(second, axis=0)
    luck = _CAUTION * np.sqrt(0.5 * np.pi * (first.var(axis=0) + second.var(axis=0)) / len(first))
    gap = other - centre
    pairs = (first, centre), (second, centre + np.sign(gap) * np.maximum(np.abs(gap) - luck, 0.0))

    def refutes(factor: float) -> bool:
        nearer, farther = (statistic(place + factor * (each - np.median(each, axis=0))) for each, place in pairs)
        return _select("", nearer, farther, evaluation_runs, error, profile)[0] > 1.0

    if not refutes(0.0):
        return None
    low, high = 0.0, 1.0
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low
