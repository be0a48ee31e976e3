"""Slope and intercept of a released margin, from a noisy histogram of margins by label: post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr

from dpconvex.losses import PointwiseLoss

__all__ = ["expected_label_share", "margin_calibration", "penalised_calibration"]

Array = NDArray[np.float64]

_STEEPEST = (
    3.0  # largest slope on a margin of unit spread that a descent is believed without evidence
)
_INSIDE = 8  # points of a bin: its middle alone would take a steep slope for a flatter one
_FLATTEST = 0.8  # share of a tail that is beyond another bin's width
_LOGITS = 4000  # a grid of shares
_SPREAD, _LEAST_SPREAD = 0.12, 0.1  # of what is believed: relative, and absolute
_MODEST, _MOST_MODEST = (
    0.5,
    1.0,
)  # and of what may be hoped for beyond, where it is clear: relative, and at most
_CLEAR = 4.5  # half the square of how many standard deviations are half clear


def margin_calibration(
    counts: Array,
    std: float,
    edges: Array,
    share: float,
    claimed: float,
    most: float,
    hoped: float = 0.0,
) -> tuple[float, float]:
    """Return intercept and slope of ``logit P(y = 1)`` on a margin of unit spread.

    The slope solves the likelihood equation of the binned margins, pulled to what the descent claims as far as noise
    hides the answer; the intercept is the one with which the mean probability is the released share of positives.

    Parameters
    ----------
    counts : array of shape (2, bins)
        Noisy share of the records in each bin, negatives first.
    std : float
        Noise per bin.
    edges : array of shape (bins + 1,)
        Edges of the bins.
    share : float
        Released share of positives.
    claimed : float
        Slope that the descent claims.
    most : float
        Largest slope.
    hoped : float
        Slope if next to nothing of the descent is noise: how far what it claims may be too modest.
    """
    middles = (edges[1:] + edges[:-1]) / 2
    total = counts.sum(axis=0)
    sizes, density, points = _within_bins(total, std * math.sqrt(2 * middles.size), edges)

    def told(slope: float) -> tuple[float, float]:
        """Return how far counts exceed what a slope expects, in units of another slope's, and how well they tell."""
        intercept = _intercept(density, points, share, slope)
        chances = (density * expit(intercept + slope * points)).sum(axis=1) / sizes
        weights = sizes * chances * (1 - chances)
        centred = middles - float(weights @ middles) / max(float(weights.sum()), 1e-12)
        # Sums over positives less their expectation are linear in the counts, so that noise does not bias them. Bins
        # count by what they tell: those where all is clear would add noise alone.
        change = weights * centred
        variance = std**2 * ((1 - chances) ** 2 + chances**2)
        factors = change / np.maximum(variance, 1e-300)
        return float(factors @ (counts[1] - total * chances)), max(float(factors @ change), 1e-9)

    believed = min(claimed, _STEEPEST, most)
    doubt = _precision(believed, *told(believed), min(hoped, most))
    slope = believed
    for _ in range(30):
        gap, evidence = told(slope)
        move = (gap + doubt * (believed - slope)) / (evidence + doubt)
        slope = min(max(0.0, slope + float(np.clip(move, -0.5, 0.5))), most)
        if abs(move) < 1e-7:
            break
    return _intercept(density, points, share, slope), slope


def penalised_calibration(
    counts: Array,
    std: float,
    edges: Array,
    share: float,
    loss: PointwiseLoss,
    offset: float | None,
    penalty: Array,
    claimed: float,
    most: float,
    hoped: float = 0.0,
) -> Array:
    r"""Return ``(intercept, slope)`` of a margin of unit spread that minimise a penalised mean loss.

    With ``z = intercept + slope m``, bins of ``m`` and their noisy shares of both labels stand for the records in
    ``mean loss(y z) + (1/2) c^T penalty c``, ``c = (intercept, slope)``. The slope is pulled to what the descent claims
    as far as noise hides the answer.

    Parameters
    ----------
    counts, std, edges, share, claimed, most, hoped
        As for :func:`margin_calibration`.
    loss : PointwiseLoss
        Smooth loss of ``y z``.
    offset : float or None
        Without a free intercept, ``intercept / slope``.
    penalty : array of shape (2, 2)
        Second derivative of the penalty.
    """
    labels, bins = np.array([-1.0, 1.0]), edges.size - 1
    # Sums over bins are known better than bins are: what is missing is added to all of them alike.
    known = np.array([1 - share, share])
    counts = counts + ((known - counts.sum(axis=1)) / bins)[:, None]
    parts = [_within_bins(each, std * math.sqrt(bins), edges) for each in counts]
    basis = np.eye(2) if offset is None else np.array([[offset, 1.0]])
    penalty = basis @ penalty @ basis.T

    def told(found: Array) -> tuple[Array, Array]:
        """Return the gradient of the penalised loss, and its curvature, in units of what noise leaves of them."""
        gradient, curvature = penalty @ found, penalty.copy()
        covariance = np.zeros_like(penalty)
        for label, count, whole, (sizes, density, points) in zip(
            labels, counts, known, parts, strict=True
        ):
            design = np.stack([np.ones_like(points), points])
            design = np.tensordot(basis, design, 1)
            z = np.tensordot(found, design, 1)
            inside = density / sizes[:, None]
            # Linear in the counts, so that noise does not bias it.
            slopes = (design * (inside * loss.gradient(label, z))).sum(axis=2)
            gradient = gradient + slopes @ count
            bends = whole * density * loss.curvature(label, z)
            curvature = curvature + np.einsum("aij,bij,ij->ab", design, design, bends)
            centred = slopes - slopes.mean(axis=1, keepdims=True)
            covariance += std**2 * (centred @ centred.T)
        covariance += (1e-9 * float(np.trace(covariance)) + 1e-300) * np.eye(len(basis))
        weights = curvature @ np.linalg.inv(covariance)
        return weights @ gradient, weights @ curvature

    believed = min(claimed, _STEEPEST, most)
    start = np.array([float(logit(share)), believed])[-len(basis) :]
    gradient, evidence = told(start)
    variance = np.linalg.inv(evidence)[-1]
    gap = -float(variance @ gradient) / variance[-1]
    doubt = np.zeros_like(penalty)
    doubt[-1, -1] = _precision(believed, gap, 1 / variance[-1], min(hoped, most))
    found = start
    for _ in range(50):
        gradient, evidence = told(found)
        pull = gradient + doubt @ (found - start)
        move = np.clip(np.linalg.solve(evidence + doubt, pull), -0.5, 0.5)
        found = found - move
        found[-1] = min(max(0.0, float(found[-1])), most)
        if float(np.abs(move).max()) < 1e-7:
            break
    return np.asarray(found @ basis)


def _precision(believed: float, gap: float, evidence: float, hoped: float) -> float:
    """Return how firmly a slope is believed, as the inverse of a variance.

    Only what noise would hardly ever say moves a modest claim far: margins of long rows cost much.
    """
    sure = float(expit(max(gap, 0.0) ** 2 / evidence / 2 - _CLEAR))
    modest = sure * min(_MODEST * max(0.0, hoped - believed), _MOST_MODEST)
    return float((_SPREAD * believed + _LEAST_SPREAD + modest) ** -2)


def _within_bins(total: Array, hidden: float, edges: Array) -> tuple[Array, Array, Array]:
    """Return the share of the records in each bin, and points of it with their own shares.

    Where noise hides so much of the histogram, a normal law stands in for it.
    """
    middles = (edges[1:] + edges[:-1]) / 2
    normal = np.diff(ndtr(np.concatenate([[-np.inf], edges[1:-1], [np.inf]])))
    sizes = np.maximum(total, 0.0) + (hidden + 1e-12) * normal
    sizes = sizes / sizes.sum()
    inside = (np.arange(_INSIDE) + 0.5) / _INSIDE - 0.5
    # Margins lie in a bin as in its neighbours: denser where these hold more.
    padded = np.concatenate([sizes[:1], sizes, sizes[-1:]])
    tilts = np.clip(np.log(padded[2:] / padded[:-2]) / 2, -2.0, 2.0)
    density = np.exp(tilts[:, None] * inside)
    density *= (sizes / density.sum(axis=1))[:, None]
    points = middles[:, None] + np.diff(edges)[:, None] * inside
    # The outermost bins hold all that is beyond: exponential tails, as steep as the last two bins say.
    for last, before, edge, sign in ((0, 1, edges[1], -1.0), (-1, -2, edges[-2], 1.0)):
        kept = min(float(sizes[last] / (sizes[last] + sizes[before])), _FLATTEST)
        reach = -(edges[1] - edges[0]) / math.log(kept)
        points[last] = edge - sign * reach * np.log(0.5 - inside)
        density[last] = sizes[last] / _INSIDE
    return sizes, density, points


def expected_label_share(noisy: float, std: float, n_samples: float) -> float:
    """Return the posterior mean of a share, of all constants the best in log loss: ``noisy`` is it plus normal noise.

    Beforehand its logit may lie anywhere, to where it stands for half a record: then shares that are as good as 0 or 1,
    where a likelier middle would cost several times the loss, are believed.
    """
    nearest = 0.5 / max(n_samples, 2)
    end = float(logit(nearest))
    logits, apart = np.linspace(end, -end, _LOGITS, retstep=True)
    shares = expit(logits)
    inside = min(max(noisy, nearest), 1 - nearest)
    if std < apart * inside * (1 - inside):  # between points of the grid
        return inside
    noisy = min(max(noisy, -10 * std), 1 + 10 * std)
    logs = -(((noisy - shares) / std) ** 2) / 2
    weights = np.exp(logs - logs.max())
    return min(max(float(weights @ shares / weights.sum()), nearest), 1 - nearest)


def _intercept(density: Array, points: Array, share: float, slope: float) -> float:
    """Return the intercept with which the mean probability is `share`, by bisection."""
    middle = float(logit(share))
    low, high = middle - 60.0, middle + 60.0
    for _ in range(50):
        middle = (low + high) / 2
        if float((density * expit(middle + slope * points)).sum()) > share:
            high = middle
        else:
            low = middle
    return middle
