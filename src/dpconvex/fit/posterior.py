r"""Posterior law of a minimiser, given noisy gradients.

A noisy gradient g at a point ``p`` of a function of curvature H says that the minimiser is near
``p - g / H``, up to noise of known size over H. The curvature is known up to a factor in each
coordinate, which is inferred as well: with a factor that is too small, later Newton points turn
back; with one that is too large, they go on and on. The prior of coefficients is a spike at 0 and a
slab with heavy tails and one scale for all of them, which the points tell. So coefficients stay at
0 as far as noise explains what was found. Everything here is computed from released numbers.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.core.queries import QueryFactor, QuerySlope
from dpconvex.fit import constants
from dpconvex.types import Array


@dataclass(frozen=True)
class PosteriorEstimate:
    """Posterior of a minimiser after some rounds."""

    mean: Array
    variance: Array
    unshrunk_mean: Array  # without the prior, which shrinks coefficients to the starting constant
    unshrunk_variance: Array
    kept_share: float = 1.0  # norm of the posterior mean over that of the mean without the prior


@dataclass(frozen=True)
class PosteriorLocalLoss:
    """Quadratic model of the mean loss near its minimiser, and the queries that measure gradient
    and Hessian.
    """

    slope: QuerySlope  # derivative of the loss: gradients are sums of slope times row
    curvature: (
        float  # expected mean second derivative in the prediction, reduced by clips and weights
    )
    scale: float  # unit of predictions: 1 for margins, the scale of target or residuals
    unit: float = 1.0  # of slopes: 1, or that of clipped residuals
    factor: QueryFactor | None = (
        None  # of rows whose second moments are the Hessian over max_second_derivative
    )
    max_second_derivative: float = 1.0  # of a record with factor 1
    slope_std: float = 0.5  # expected standard deviation of slopes at the minimiser
    # For intervals: weight of rows whose second moments are the covariance of gradients, up to the
    # unit, by default that of the slope; and an allowance for a bias of the mean gradient, in each
    # coordinate.
    score: QueryFactor | None = None
    score_unit: float = 1.0
    bias: float = 0.0


_EXPECTED = constants.CURVATURE_FACTORS.index(1.0)  # the factor of a curvature that is as expected
_FACTORS = np.array(constants.CURVATURE_FACTORS)[:, None]


class NewtonPosterior:
    """Newton points of noisy gradients, and the posterior of the minimiser, whose prior mean
    ``start`` is a constant.

    ``lead`` intercepts come first, with ``lead_variance`` around their start; ``lead_moments``, of
    shape (lead, dimension - lead), are weights of squared coefficients in the variance of each
    intercept's margin. ``nonquadratic_error`` is that of a step, relative to its length.
    ``variances`` are those that coefficients may have, ``prior`` their probabilities. ``earlier``
    is the result of earlier rounds, its noise, how far away their minimiser is in each coordinate,
    about, and the coefficients for which the intercept is known.
    """

    def __init__(
        self,
        start: Array,
        curvature: Array,
        log_curvature_std: Array,
        lead: int,
        lead_variance: float | Array,
        nonquadratic_error: float,
        variances: Array,
        prior: Array,
        lead_moments: Array | None = None,
        earlier: tuple[Array, Array, float, Array] | None = None,
    ) -> None:
        self.lead_moments = (
            (curvature[None, 1:] / curvature[0]) if lead_moments is None else lead_moments
        )
        self.start = start
        self.curvature = curvature
        self.lead = lead
        self.lead_variance = lead_variance
        self.nonquadratic_error = nonquadratic_error
        self.variances = variances
        self.prior = prior
        self.log_factors = -((np.log(_FACTORS) / np.maximum(log_curvature_std, 1e-3)) ** 2) / 2
        self.known: Array | float = 0.0  # variance that is added to every prior variance
        self.points: list[Array] = []
        self.steps: list[Array] = []
        self.noise: list[Array] = []
        self.errors: list[Array] = []
        self.earlier: tuple[Array, Array] | None = None
        self.expected_drift = 0.0
        self.anchor = np.zeros_like(start)
        if earlier is not None:
            found, noise, self.expected_drift, anchor = earlier
            self.earlier = (found - start, noise)
            self.anchor = anchor - start

    def add(
        self,
        point: Array,
        gradient: Array,
        std: float,
        inverse: Array | None = None,
        spread: Array | None = None,
    ) -> None:
        """Update the posterior by a gradient at a point, with its noise; ``inverse`` is of a
        curvature not diagonal.

        With ``spread``, the sums of squares of the inverse's rows, the gradient is multiplied by
        the inverse already.
        """
        if spread is not None:
            step = -gradient
        elif inverse is None:
            step = -gradient / self.curvature
            spread = 1 / self.curvature**2
        else:
            step = -inverse @ gradient
            spread = np.square(inverse).sum(axis=1)
        self.points.append(point - self.start)
        self.steps.append(step)
        self.noise.append(std**2 * spread)
        self.errors.append(
            self.nonquadratic_error**2 * (step**2 + float(step @ step) / step.size) / 2
        )

    def estimate(self) -> PosteriorEstimate:
        """Return the posterior of the minimiser."""
        points, steps, noise, errors = map(
            np.array, (self.points, self.steps, self.noise, self.errors)
        )
        weights = 1 / (noise + errors)
        total = weights.sum(axis=0)
        # For every factor of the curvature: the weighted mean of Newton points, its variance, how
        # badly they agree.
        found = (weights * (steps / _FACTORS[:, None] + points)).sum(axis=1) / total
        # The error of a quadratic model is common to all coordinates, so it adds nothing to the
        # variance of one.
        variance = (weights**2 * noise).sum(axis=0) / (_FACTORS * total) ** 2
        apart = steps + _FACTORS[:, None] * (points - found[:, None])
        logs = self.log_factors - (weights * apart**2).sum(axis=1) / 2 - np.log(_FACTORS)
        if self.earlier is not None:
            before, noise_variance = self.earlier
            # Its variance between the minimisers of earlier rounds and of these: expected,
            # observed.
            apart = ((found[_EXPECTED] - before) ** 2 - variance[_EXPECTED] - noise_variance)[
                self.lead :
            ]
            expected = self.expected_drift**2
            weight = constants.LEVEL_SHIFT_WEIGHT
            seen = (weight * expected + float(apart.sum())) / (weight + apart.size)
            noise_variance = noise_variance + max(seen, expected / 4)
            both = variance + noise_variance
            logs = logs - ((found - before) ** 2 / both + np.log(both)) / 2
            # One variance may be 1e300: quotients do not overflow, products would.
            found = found * (noise_variance / both) + before * (variance / both)
            variance = variance * (noise_variance / both)
        lead = self.lead
        size = self.start.size
        known = self.known if isinstance(self.known, float) else self.known[lead:]
        columns = posterior(
            found[:, lead:], variance[:, lead:], logs[:, lead:], self.variances, self.prior, known
        )
        mean, error, plain, noise_variance = (
            np.concatenate([np.zeros(lead), each]) for each in columns
        )
        if lead:  # intercepts move with the columns' coefficients
            moved = self.lead_moments @ (mean - self.anchor)[lead:] ** 2
            shifted = self.lead_variance + constants.INTERCEPT_SHIFT_SHARE * moved
            first = posterior(
                found[:, :lead],
                variance[:, :lead],
                logs[:, :lead],
                np.zeros(1),
                np.ones(1),
                shifted,
            )
            mean[:lead], error[:lead], plain[:lead], noise_variance[:lead] = first
        lengths = [float(np.linalg.norm(each[lead:size])) for each in (mean, plain)]
        kept_share = min(1.0, lengths[0] / max(lengths[1], 1e-300))
        return PosteriorEstimate(
            self.start + mean, error, self.start + plain, noise_variance, kept_share
        )


def scale_variances(scale: float) -> Array:
    """Return the variances that a coefficient may have, of which the first is 0."""
    return np.concatenate(
        [[0.0], scale**2 * 4.0 ** np.array(constants.SCALE_OCTAVES, dtype=np.float64)]
    )


def signal_prior(columns: int, no_signal: float = 0.0) -> Array:
    """Return prior probabilities of the common scale: columns explain some of the variance, or
    nothing.
    """
    octaves = np.array(constants.SCALE_OCTAVES) - math.log2(
        math.sqrt(constants.EXPLAINED_VARIANCE / max(columns, 1))
    )
    slab = np.exp(-((octaves / constants.SCALE_PRIOR_STD) ** 2) / 2)
    spike = constants.SPIKE_PROBABILITY + (1 - constants.SPIKE_PROBABILITY) * no_signal
    return np.concatenate([[spike], (1 - spike) * slab / slab.sum()])


def deviation_prior() -> Array:
    """Return prior probabilities of the scale of deviations from earlier rounds: of any size,
    most likely none.
    """
    size = len(constants.SCALE_OCTAVES)
    spike = constants.LATE_SPIKE_PROBABILITY
    return np.concatenate([[spike], np.full(size, (1 - spike) / size)])


def posterior(
    found: Array,
    variance: Array,
    logs: Array,
    variances: Array,
    prior: Array,
    known: Array | float = 0.0,
) -> tuple[Array, Array, Array, Array]:
    """Return posterior mean and variance of coefficients, and both without the prior.

    Noisy coefficients ``found``, the variance of their noise, and the log likelihood of each model
    have the shape (models, size). ``prior`` has the probabilities of the common scale, one of
    ``variances``; each coefficient may be some octaves off. ``known`` is added to every prior
    variance.
    """
    before = variances[:, None, None] + known
    total = before + variance
    likely = logs - (np.log(total) + found**2 / total) / 2
    each = np.logaddexp.reduce(likely, axis=1)
    log_weights = np.zeros_like(each)
    if variances.size > 1:
        octaves, weights = (np.array(part) for part in zip(*constants.TAIL_WEIGHTS, strict=True))
        members = np.clip(np.arange(1, variances.size)[:, None] + octaves, 1, variances.size - 1)
        mixed = np.log(weights)[None, :, None] + each[members]
        scales = np.logaddexp.reduce(mixed, axis=1)
        evidence = np.concatenate([[each[0].sum()], scales.sum(axis=1)])
        evidence = evidence + np.log(np.maximum(prior, 1e-300))
        chances = np.exp(evidence - np.logaddexp.reduce(evidence))
        shares = np.zeros_like(each)
        shares[0] = chances[0]
        parts = chances[1:, None, None] * np.exp(mixed - scales[:, None])
        for number in range(len(weights)):
            np.add.at(shares, members[:, number], parts[:, number])
        log_weights = np.log(np.maximum(shares, 1e-300))
    held = log_weights[:, None] + likely - each[:, None]
    held = np.exp(held - np.logaddexp.reduce(held, axis=(0, 1)))
    shrinkage = before / total
    mean = (held * shrinkage * found).sum(axis=(0, 1))
    second = (held * (shrinkage * variance + (shrinkage * found) ** 2)).sum(axis=(0, 1))
    plain = (held * found).sum(axis=(0, 1))
    spread = (held * (variance + found**2)).sum(axis=(0, 1)) - plain**2
    return mean, np.maximum(second - mean**2, 0.0), plain, np.maximum(spread, 0.0)
