r"""What the printed constants of C-OP are worth: what can be proven of them, and an attack on a
grid.

The attack takes records with ``A = U I``, whose l1 loss splits into m independent coordinates. In
units where the noise has variance 1 and ``t = n alpha theta / std``, a coordinate of the output has
the density

    phi(t + a s(t)) (1 + a s'(t)), s(t) = l + (r - l) Phi((t - k) / w), w = a (r - l) / (sqrt(2 pi)
    kappa),

with the kink k of its record, slopes l and r on its two sides (-1 and 1), ``a = U / std`` and the
curvature ratio kappa. Two neighbours differ in k, or, where a record comes or goes, one of them has
``s = 0``; a hinge, whose slopes are 0 and 1, may also be turned round to -1 and 0. The privacy loss
of all coordinates is a sum, so its law is a convolution of the losses' laws; losses are rounded
down, so delta is a lower bound up to the grid's error of about one part in a thousand.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpconvex.losses.vector_losses import L1Norm, PiecewiseLinear
from dpconvex.objectives.structured_objective import structured_spectral_norms
from dpconvex.privacy.objective_perturbation_calibration import structured_objective_delta
from dpconvex_reproduction.convolution_objective_perturbation.convolution_objective import (
    printed_constants,
    sound_certificate,
)
from dpconvex_reproduction.convolution_objective_perturbation.relative_risk import DIMENSIONS, SIZES
from dpconvex_reproduction.convolution_objective_perturbation.rivals import published_epsilon
from dpconvex_reproduction.datasets.simulated import make_structured_median
from dpconvex_reproduction.exhibit import PrivacyLine

__all__ = [
    "hinge_attack",
    "largest_attack",
    "largest_published_epsilon",
    "privacy_lines",
    "proven_epsilon",
    "separable_attack",
    "usual_norm",
]

Array = NDArray[np.float64]

_PEAK = 1 / math.sqrt(2 * math.pi)
_FAR = 1e6
# Kinks of the differing record in standard deviations of the output, and beyond its reach on either
# side.
_KINKS = (-_FAR, *(0.5 * k for k in range(-4, 5)), _FAR)
_TWO_SIDED = (-1.0, 1.0)
_ABSENT = (0.0, 0.0)


def _density(t: Array, step: float, ratio: float, kink: float, sides: tuple[float, float]) -> Array:
    turn = step * (sides[1] - sides[0])
    if turn == 0:  # no kink, so no curvature
        return np.asarray(_PEAK * np.exp(-0.5 * (t + step * sides[0]) ** 2))
    z = (t - kink) * ratio / (_PEAK * turn)
    pull = step * sides[0] + turn * ndtr(z)
    return np.asarray(_PEAK * np.exp(-0.5 * (t + pull) ** 2) * (1 + ratio * np.exp(-0.5 * z * z)))


def separable_attack(
    epsilon: float,
    step: float,
    curvature_ratio: float,
    kinks: tuple[float, float],
    sides: tuple[tuple[float, float], tuple[float, float]] = (_TWO_SIDED, _TWO_SIDED),
    outputs: int = 3,
    points: int = 3001,
    bins: int = 1500,
) -> float:
    """Return delta(epsilon) between two neighbours whose record has its kinks at either of two
    places, if anywhere.

    Parameters
    ----------
    epsilon : float
        Where the profile is read.
    step : float
        ``a``: the slope of one residual over the standard deviation of the noise.
    curvature_ratio : float
        Curvature of a record over the penalty, sum form.
    kinks : pair of float
        Place of the kink of every residual, before and after.
    sides : pair of pairs of float
        Slopes left and right of the kink, before and after; zeros for a record that is not there.
    outputs : int
        Number m of residuals.
    points, bins : int
        Of the grid, and of the histogram of losses.
    """
    t = np.linspace(-9 - step, 9 + step, points)
    first, second = (
        _density(t, step, curvature_ratio, kink, slopes) * (t[1] - t[0])
        for kink, slopes in zip(kinks, sides, strict=True)
    )
    found = 0.0
    for law, other in ((first, second), (second, first)):
        loss = np.log(law / other)
        top = max(float(np.abs(loss).max()), 1e-9)
        cell = 2 * top / bins
        masses = np.bincount(((loss + top) / cell).astype(int), weights=law, minlength=bins + 1)
        total = masses
        for _ in range(outputs - 1):
            total = np.convolve(total, masses)
        sums = np.arange(len(total)) * cell - outputs * top
        found = max(found, float(total @ -np.expm1(np.minimum(epsilon - sums, 0.0))))
    return found


@lru_cache(maxsize=64)
def largest_attack(
    epsilon: float, delta: float, norm: float, neighbors: str = "replace_one"
) -> float:
    """Return the largest delta(epsilon) found against the printed constants of the l1 loss of
    three residuals.
    """
    # The ratios do not depend on n, d and R.
    printed = printed_constants(L1Norm(3), 1000, 5, epsilon, delta, 1.0, norm)
    step = printed.noise_ratio / math.sqrt(3)
    if neighbors == "add_or_remove_one":
        return max(
            separable_attack(
                epsilon, step, printed.curvature_ratio, (kink, 0.0), (_TWO_SIDED, _ABSENT)
            )
            for kink in _KINKS
        )
    return max(
        separable_attack(epsilon, step, printed.curvature_ratio, pair)
        for pair in combinations(_KINKS, 2)
    )


@lru_cache(maxsize=8)
def hinge_attack(epsilon: float, delta: float) -> float:
    r"""Return the largest delta(epsilon) of a replaced record found against the printed constants
    of a hinge.

    Rows have norm 1.

    ``(x)^+ = |x|/2 + x/2``, so ``A = z/2`` and ``h(x) = x/2``: ``C^2 = 1/4 + 1/4``, although
    gradients are 1 long. Step 1 with m = 1 and curvature ``1 / bandwidth`` gives ``4 / epsilon`` as
    the bandwidth of ``A theta`` where ``n alpha = 1``: ``8 / epsilon`` in units of ``z . theta``.
    """
    step = epsilon / math.sqrt(0.5 * (8 * math.log(1 / delta) + 8 * epsilon))
    ratio = _PEAK * epsilon / 8
    places = [_FAR, -_FAR, *(float(k) for k in range(-6, 7, 2))]
    pairs = [(first, second) for first in places for second in places]
    turned = ((0.0, 1.0), (-1.0, 0.0))
    return max(separable_attack(epsilon, step, ratio, pair, turned, outputs=1) for pair in pairs)


def proven_epsilon(
    noise_ratio: float, curvature_ratio: float, rank: int, delta: float, neighbors: str
) -> float:
    """Return the smallest epsilon that the certificate's profiles prove at ``delta``, rounded up
    to 1e-4.
    """
    low = 0.0
    high = 1.0
    while structured_objective_delta(high, noise_ratio, curvature_ratio, rank, neighbors) > delta:
        low = high
        high = 2 * high
        if high > 1e4:
            return math.inf
    while high - low > 1e-4:
        middle = (low + high) / 2
        holds = (
            structured_objective_delta(middle, noise_ratio, curvature_ratio, rank, neighbors)
            <= delta
        )
        low, high = (low, middle) if holds else (middle, high)
    return math.ceil(high * 1e4) / 1e4


@lru_cache(maxsize=8)
def usual_norm(d: int) -> float:
    """Return the 99th percentile of the operator norm of the paper's random matrices (4000
    draws).
    """
    return float(
        np.quantile(structured_spectral_norms(make_structured_median(4000, d, rng=0).X), 0.99)
    )


@lru_cache(maxsize=32)
def largest_published_epsilon(algorithm: str, epsilon: float, delta: float) -> float:
    """Return the largest :func:`published_epsilon` over the sizes and dimensions of the figures."""
    return max(
        published_epsilon(algorithm, n, d, epsilon, delta) for n in SIZES for d in DIMENSIONS
    )


def _listed(pairs: list[tuple[float, float]]) -> str:
    return ", ".join(f"{claimed:g}: {true:.3g}" for claimed, true in pairs)


def _bounds(pairs: list[tuple[float, float]]) -> str:
    """List upper bounds, rounded up to a hundredth or, below 1, to a thousandth."""
    digits = [3 if bound < 1 else 2 for _, bound in pairs]
    return ", ".join(
        f"{claimed:g}: {math.ceil(bound * 10**k) / 10**k:.{k}f}"
        for (claimed, bound), k in zip(pairs, digits, strict=True)
    )


def _verdict(neighbors: str, attacks: list[tuple[float, float]], delta: float) -> str:
    refuted = [f"{epsilon:g}" for epsilon, found in attacks if found > delta]
    word = f"refuted for epsilon {', '.join(refuted)}" if refuted else "not refuted"
    return f"{neighbors}: {word}, an attack on a grid finds delta at epsilon {_listed(attacks)}"


def _refuted_line(
    loss: L1Norm, epsilons: tuple[float, ...], delta: float, claim: str
) -> PrivacyLine:
    """Return what attacks find where records are as long as the paper draws them, by
    neighbouring relation.
    """
    norm = usual_norm(30)
    removed = "add_or_remove_one"
    replaced = [(e, largest_attack(e, delta, norm)) for e in epsilons]
    changed = [(e, largest_attack(e, delta, norm, removed)) for e in epsilons]
    here = [(e, largest_attack(e, delta, 1.0)) for e in epsilons]
    open_cases = []
    for epsilon, found in changed:
        if found <= delta:
            printed = printed_constants(loss, 1000, 5, epsilon, delta, 1.0, norm)
            ratios = (printed.noise_ratio, printed.curvature_ratio, loss.outputs)
            open_cases.append((epsilon, proven_epsilon(*ratios, delta, removed)))
    proven = f" (proven there at most, claimed: bound, {_bounds(open_cases)})" if open_cases else ""
    return PrivacyLine(
        f"C-OP, printed for operator norm {norm:.1f}",
        "paper",
        claim,
        f"{_verdict('replace-one', replaced, delta)} (at norm 1: {_listed(here)}); "
        f"{_verdict('add-or-remove-one', changed, delta)}{proven}",
        "Step 1 bounds a record's curvature by its slope over the bandwidth, without the squared "
        f"operator norm. {norm:.1f} is the 99th percentile of the norms of the paper's matrices "
        "at d = 30: with records left as they are drawn, the printed bandwidth is too small by "
        "about that factor. With a link (a hinge of rows of norm 1) the same theorem fails under "
        "replace-one already at norm 1, since gradients are up to sqrt(2) C long: delta at "
        f"epsilon 1 is at least {hinge_attack(1.0, delta):.2g}.",
    )


def privacy_lines(
    loss: L1Norm | PiecewiseLinear, epsilons: tuple[float, ...], delta: float, default: str
) -> list[PrivacyLine]:
    """Return what every algorithm of the comparison truly guarantees, under replace-one.

    Parameters
    ----------
    loss : L1Norm or PiecewiseLinear
        The loss of the figure.
    epsilons : tuple of float
        Claimed budgets, at ``delta``.
    delta : float
        Claimed.
    default : str
        Name of our estimator.
    """
    claim = f"(epsilon, {delta:g})-DP for epsilon in {', '.join(f'{e:g}' for e in epsilons)}"
    proven = []
    for epsilon in epsilons:
        found = printed_constants(loss, 1000, 5, epsilon, delta, 1.0)
        facts = (found.noise_ratio, found.curvature_ratio, loss.outputs, delta, "replace_one")
        proven.append((epsilon, proven_epsilon(*facts)))
    short = [f"{epsilon:g}" for epsilon, found in proven if found > epsilon]
    word = f"not proven for epsilon {', '.join(short)}" if short else "holds"
    why = (
        "Theorem 3.2 adds one record and takes the signs to be independent of the noise; "
        "replacing a record moves the gradient twice as far and both determinants count. "
    )
    if isinstance(loss, L1Norm):
        why += "At norm 1 and without a link C is the gradient bound and the noise is nearly ample."
    else:
        why += "Its C is sqrt(m) times the gradient bound of this loss, which hides that at norm 1."
    lines = [
        PrivacyLine(
            "C-OP",
            "paper",
            claim,
            f"at operator norm 1, as run here, under replace-one {word}; epsilon at most "
            f"(claimed: bound) {_bounds(proven)}",
            why,
        )
    ]
    if isinstance(loss, L1Norm):
        lines.append(_refuted_line(loss, epsilons, delta, claim))
    noise = []
    for epsilon in epsilons:
        std = sound_certificate(loss, 1000, 5, epsilon, delta, 2.0).noise["objective"]["std"]
        noise.append((epsilon, std / printed_constants(loss, 1000, 5, epsilon, delta, 2.0).std))
    lines.append(
        PrivacyLine(
            "C-OP",
            "sound",
            claim,
            "the claim, certified under replace-one",
            "Rényi and chi profiles with the true gradient bound and curvature, 1 % of the "
            "budget for stopping short of the exact minimiser. Its noise over the printed noise "
            f"at epsilon {_listed(noise)}.",
        )
    )
    reading = (
        " The cited algorithm draws records with replacement, which is not accounted for; "
        "batches are of distinct records here (the pages on quantile regression run the printed "
        "version with replacement)."
    )
    for algorithm, source, note in (
        ("noisy SGD", "Bassily et al. 2020", ""),
        ("Moreau SGD", "Bassily et al. 2019", reading),
    ):
        accounted = [(e, largest_published_epsilon(algorithm, e, delta)) for e in epsilons]
        lines += [
            PrivacyLine(
                algorithm,
                "paper",
                claim,
                f"epsilon at most (claimed: bound) {_bounds(accounted)}",
                f"Noise as {source} publish it; Rényi accounting of fixed-size batches under "
                f"replace-one, an upper bound, the largest over n and d of the figures.{note}",
            ),
            PrivacyLine(
                algorithm, "sound", claim, "the claim", "The same with noise from that accounting."
            ),
        ]
    lines += [
        PrivacyLine(
            default,
            "dpconvex",
            claim,
            "the claim, certified under replace-one",
            "The estimator's own certificate; it chooses between objective perturbation and "
            "noisy gradient descent from public facts, and is not told R.",
        ),
        PrivacyLine("minimiser", "not private", "none", "none", "No noise; a reference."),
    ]
    return lines
