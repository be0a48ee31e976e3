"""Slope and intercept of a released margin, from a noisy histogram of margins by label: post-processing."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit, ndtr

from dpconvex.fit import constants
from dpconvex.losses import PointwiseLoss
from dpconvex.types import Array

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def margin_moments(loss: PointwiseLoss, middle: float, spread: float, clip: float) -> tuple[float, float, float]:
    """Return the means of ``l''``, ``l'' t`` and ``l'' t^2`` over normal margins ``z = middle + spread t``.

    Labels have the probabilities that margins say. Records whose slope is clipped add little: their rows would have to
    be shorter than a typical one.
    """
    z, bends = middle + spread * _NODES, np.zeros_like(_NODES)
    for label, chance in ((1.0, expit(z)), (-1.0, expit(-z))):
        labels = np.full_like(z, label)
        free = np.abs(loss.gradient(labels, z)) < clip * float(loss.lipschitz)
        bends += chance * loss.curvature(labels, z) * np.where(free, 1.0, constants.CLIPPED_CURVATURE)
    height, tilt, along = (float(_WEIGHTS @ (bends * _NODES**power)) for power in range(3))
    height = max(height, constants.MIN_MARGIN_CURVATURE * float(loss.smoothness))
    along = max(along, constants.MIN_ALONG_CURVATURE * height)
    most = constants.MAX_CORRELATION * math.sqrt(height * along)
    return height, min(max(tilt, -most), most), along


def intercept_of_share(share: float, spread: float) -> float:
    """Return the intercept with which normal margins of this spread have the mean probability `share`."""
    start = float(logit(share))
    low, high = start - 3 * (1 + spread), start + 3 * (1 + spread)
    for _ in range(50):
        middle = (low + high) / 2
        if float(_WEIGHTS @ expit(middle + spread * _NODES)) > share:
            high = middle
        else:
            low = middle
    return middle


def margin_edges(intercept: float, spread: float) -> Array:
    """Return edges of bins of a margin of unit spread: finer near where the margin and its intercept cancel."""
    even = np.linspace(-1.0, 1.0, constants.MARGIN_BINS + 1)
    middle = min(max(-intercept / spread, -constants.BIN_CENTRE_LIMIT), constants.BIN_CENTRE_LIMIT)
    steep = math.asinh(max(spread, 1e-3))
    return np.asarray(middle + constants.BIN_RANGE * np.sinh(steep * even) / math.sinh(steep))


def calibrate_margin(
    counts: Array,
    std: float,
    edges: Array,
    share: float,
    loss: PointwiseLoss,
    fit_intercept: bool,
    penalty: Array,
    claimed: tuple[float, float],
) -> tuple[float, float, float]:
    r"""Return ``(intercept, slope)`` of a margin of unit spread that minimise a penalised mean loss; and its curvature.

    With ``z = intercept + slope m``, bins of ``m`` and their noisy shares of both labels stand for the records in
    ``mean loss(y z) + (1/2) c^T penalty c``, ``c = (intercept, slope)``. The slope is pulled to what the rounds claim
    as far as noise hides the answer.

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
    loss : PointwiseLoss
        Smooth loss of ``y z``.
    fit_intercept : bool
        Whether the intercept is free; it is 0 otherwise.
    penalty : array of shape (2, 2)
        Second derivative of the penalty.
    claimed : pair of floats
        Intercept and slope that the rounds claim.
    """
    labels, bins = np.array([-1.0, 1.0]), edges.size - 1
    # Sums over bins are known better than bins are: what is missing is added to all of them alike.
    known = np.array([1 - share, share])
    counts = counts + ((known - counts.sum(axis=1)) / bins)[:, None]
    parts = [_within_bins(each, std * math.sqrt(bins), edges) for each in counts]
    basis = np.eye(2) if fit_intercept else np.array([[0.0, 1.0]])
    penalty = basis @ penalty @ basis.T

    def told(found: Array) -> tuple[Array, Array, float]:
        """Return the gradient of the penalised loss and its curvature, in units of what noise leaves of them."""
        gradient, curvature, bend = penalty @ found, penalty.copy(), 0.0
        covariance = np.zeros_like(penalty)
        for label, count, whole, (sizes, density, points) in zip(labels, counts, known, parts, strict=True):
            design = np.stack([np.ones_like(points), points])
            design = np.tensordot(basis, design, 1)
            z = np.tensordot(found, design, 1)
            inside = density / sizes[:, None]
            # Linear in the counts, so that noise does not bias it.
            slopes = (design * (inside * loss.gradient(label, z))).sum(axis=2)
            gradient = gradient + slopes @ count
            bends = whole * density * loss.curvature(label, z)
            bend += float(bends.sum())
            curvature = curvature + np.einsum("aij,bij,ij->ab", design, design, bends)
            centred = slopes - slopes.mean(axis=1, keepdims=True)
            covariance += std**2 * (centred @ centred.T)
        covariance += (1e-9 * float(np.trace(covariance)) + 1e-300) * np.eye(len(basis))
        weights = curvature @ np.linalg.inv(covariance)
        return weights @ gradient, weights @ curvature, bend

    start = np.array(claimed)[-len(basis) :]
    spread = np.full(2, constants.CALIBRATION_STD + constants.CALIBRATION_RELATIVE_STD * claimed[1])
    doubt = np.diag(spread[-len(basis) :] ** -2)
    found = start
    for _ in range(50):
        gradient, evidence, _ = told(found)
        pull = gradient + doubt @ (found - start)
        move = np.clip(np.linalg.solve(evidence + doubt, pull), -0.5, 0.5)
        found = found - move
        found[-1] = max(0.0, float(found[-1]))
        if float(np.abs(move).max()) < 1e-7:
            break
    intercept, slope = found @ basis
    return float(intercept), float(slope), told(found)[2]


def _within_bins(total: Array, hidden: float, edges: Array) -> tuple[Array, Array, Array]:
    """Return the share of the records in each bin, and points of it with their own shares.

    Where noise hides so much of the histogram, a normal law stands in for it.
    """
    middles = (edges[1:] + edges[:-1]) / 2
    normal = np.diff(ndtr(np.concatenate([[-np.inf], edges[1:-1], [np.inf]])))
    sizes = np.maximum(total, 0.0) + (hidden + 1e-12) * normal
    sizes = sizes / sizes.sum()
    inside = (np.arange(constants.BIN_POINTS) + 0.5) / constants.BIN_POINTS - 0.5
    # Margins lie in a bin as in its neighbours: denser where these hold more.
    widths = np.diff(edges)
    padded = np.concatenate([sizes[:1] / widths[:1], sizes / widths, sizes[-1:] / widths[-1:]])
    tilts = np.clip(np.log(padded[2:] / padded[:-2]) / 2, -2.0, 2.0)
    density = np.exp(tilts[:, None] * inside)
    density *= (sizes / density.sum(axis=1))[:, None]
    points = middles[:, None] + np.diff(edges)[:, None] * inside
    # The outermost bins hold all that is beyond: exponential tails, as steep as the last two bins say.
    for last, before, edge, sign in ((0, 1, edges[1], -1.0), (-1, -2, edges[-2], 1.0)):
        kept = min(float(sizes[last] / (sizes[last] + sizes[before])), constants.MAX_TAIL_RATIO)
        reach = -abs(edges[last] - edges[before]) / math.log(kept)
        points[last] = edge - sign * reach * np.log(0.5 - inside)
        density[last] = sizes[last] / constants.BIN_POINTS
    return sizes, density, points


def posterior_label_share(noisy: float, std: float, n_samples: float) -> float:
    """Return the posterior mean of a share, of all constants the best in log loss: ``noisy`` is it plus normal noise.

    Beforehand its logit may lie anywhere, to where it stands for half a record: then shares that are as good as 0 or 1,
    where a likelier middle would cost several times the loss, are believed.
    """
    nearest = 0.5 / max(n_samples, 2)
    end = float(logit(nearest))
    logits, apart = np.linspace(end, -end, constants.LOGIT_POINTS, retstep=True)
    shares = expit(logits)
    inside = min(max(noisy, nearest), 1 - nearest)
    if std < apart * inside * (1 - inside):  # between points of the grid
        return inside
    noisy = min(max(noisy, -10 * std), 1 + 10 * std)
    logs = -(((noisy - shares) / std) ** 2) / 2
    weights = np.exp(logs - logs.max())
    return min(max(float(weights @ shares / weights.sum()), nearest), 1 - nearest)
