"""Calibration of a released margin: slope and intercept from a noisy histogram of margins by
label.
"""

import math

import numpy as np
from scipy.special import expit, logit, ndtr

from dpconvex.fit import constants, linear_algebra
from dpconvex.losses import PointwiseLoss
from dpconvex.types import Array

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def margin_moments(
    loss: PointwiseLoss, middle: float, spread: float, clip: float
) -> tuple[float, float, float]:
    """Return the means of ``l''``, ``l'' t`` and ``l'' t^2`` over normal margins
    ``z = middle + spread t``.
    """
    # Labels have the logistic probabilities of the margins. Records whose slope is clipped add
    # little, since only those with short rows still have curvature.
    z = middle + spread * _NODES
    curvature = np.zeros_like(_NODES)
    for label, chance in ((1.0, expit(z)), (-1.0, expit(-z))):
        labels = np.full_like(z, label)
        free = np.abs(loss.gradient(labels, z)) < clip * float(loss.lipschitz)
        curvature += (
            chance * loss.curvature(labels, z) * np.where(free, 1.0, constants.CLIPPED_CURVATURE)
        )
    mean, first, second = (float(_WEIGHTS @ (curvature * _NODES**power)) for power in range(3))
    mean = max(mean, constants.MIN_MARGIN_CURVATURE * float(loss.smoothness))
    second = max(second, constants.MIN_ALONG_CURVATURE * mean)
    largest = constants.MAX_CORRELATION * math.sqrt(mean * second)
    return mean, min(max(first, -largest), largest), second


def calibrated_intercept(share: float, spread: float) -> float:
    """Return the intercept with which normal margins of this spread have the mean probability
    `share`.
    """
    start = float(logit(share))
    low = start - 3 * (1 + spread)
    high = start + 3 * (1 + spread)
    for _ in range(50):
        middle = (low + high) / 2
        if float(_WEIGHTS @ expit(middle + spread * _NODES)) > share:
            high = middle
        else:
            low = middle
    return middle


def margin_edges(intercept: float, spread: float) -> Array:
    """Return edges of bins of a margin of unit standard deviation: finer where the prediction is
    near 0.
    """
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
    before: tuple[float, float],
) -> tuple[float, float, float]:
    r"""Return intercept and slope of a margin of unit std that minimise a penalised mean loss, and
    its curvature.

    With ``z = intercept + slope m``, bins of ``m`` and their noisy shares of both labels
    (``counts``, negatives first, with noise ``std``) stand for the records in
    ``mean loss(y z) + (1/2) c^T penalty c``, ``c = (intercept, slope)``. The prior of c is normal
    around the result of the rounds, ``before``. ``share`` is the released share of positives;
    without ``fit_intercept`` the intercept is 0.
    """
    labels = np.array([-1.0, 1.0])
    bins = edges.size - 1
    # Sums over bins are known better than bins: the difference is spread over all bins evenly.
    known = np.array([1 - share, share])
    counts = counts + ((known - counts.sum(axis=1)) / bins)[:, None]
    parts = [_margin_bin_points(each, std * math.sqrt(bins), edges) for each in counts]
    basis = np.eye(2) if fit_intercept else np.array([[0.0, 1.0]])
    penalty = basis @ penalty @ basis.T

    def normal_equations(found: Array) -> tuple[Array, Array, float]:
        """Return gradient and curvature of the calibration's penalised loss, weighted by inverse
        noise; its mean.
        """
        gradient = penalty @ found
        curvature = penalty.copy()
        height = 0.0
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
            second = whole * density * loss.curvature(label, z)
            height += float(second.sum())
            curvature = curvature + np.einsum("aij,bij,ij->ab", design, design, second)
            centred = slopes - slopes.mean(axis=1, keepdims=True)
            covariance += std**2 * (centred @ centred.T)
        covariance += (1e-9 * float(np.trace(covariance)) + 1e-300) * np.eye(len(basis))
        weights = curvature @ linear_algebra.inverse(covariance)
        return weights @ gradient, weights @ curvature, height

    start = np.array(before)[-len(basis) :]
    spread = np.full(2, constants.CALIBRATION_STD + constants.CALIBRATION_RELATIVE_STD * before[1])
    precision = np.diag(spread[-len(basis) :] ** -2)
    found = start
    for _ in range(50):
        gradient, evidence, _ = normal_equations(found)
        gradient = gradient + precision @ (found - start)
        move = np.clip(linear_algebra.solve(evidence + precision, gradient), -0.5, 0.5)
        found = found - move
        found[-1] = max(0.0, float(found[-1]))
        if float(np.abs(move).max()) < 1e-7:
            break
    intercept, slope = found @ basis
    return float(intercept), float(slope), normal_equations(found)[2]


def _margin_bin_points(total: Array, hidden: float, edges: Array) -> tuple[Array, Array, Array]:
    # A normal law replaces the part of the histogram that noise hides.
    middles = (edges[1:] + edges[:-1]) / 2
    normal = np.diff(ndtr(np.concatenate([[-np.inf], edges[1:-1], [np.inf]])))
    sizes = np.maximum(total, 0.0) + (hidden + 1e-12) * normal
    sizes = sizes / sizes.sum()
    inside = (np.arange(constants.BIN_POINTS) + 0.5) / constants.BIN_POINTS - 0.5
    # Within a bin, the density follows that of the neighbouring bins.
    widths = np.diff(edges)
    padded = np.concatenate([sizes[:1] / widths[:1], sizes / widths, sizes[-1:] / widths[-1:]])
    density = np.exp(np.clip(np.log(padded[2:] / padded[:-2]) / 2, -2.0, 2.0)[:, None] * inside)
    density *= (sizes / density.sum(axis=1))[:, None]
    points = middles[:, None] + np.diff(edges)[:, None] * inside
    # The outermost bins are exponential tails, with the decay of the last two bins.
    for last, before, edge, sign in ((0, 1, edges[1], -1.0), (-1, -2, edges[-2], 1.0)):
        ratio = min(float(sizes[last] / (sizes[last] + sizes[before])), constants.MAX_TAIL_RATIO)
        points[last] = edge - sign * (-abs(edges[last] - edges[before]) / math.log(ratio)) * np.log(
            0.5 - inside
        )
        density[last] = sizes[last] / constants.BIN_POINTS
    return sizes, density, points


def calibrated_label_share(noisy: float, std: float, n_samples: float) -> float:
    """Return the posterior mean of a share, the best constant in log loss; ``noisy`` is it plus
    normal noise.
    """
    # The prior of its logit is uniform up to a share of half a record, so that shares next to 0 or
    # 1 are possible, for which a mean of shares in between would cost several times the loss.
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
