r"""Private fit of several margins at once: classes, or periods and levels that share their
coefficients.

Rounds are those of :mod:`dpconvex.fit.gradient_rounds`, with one vector of all coefficients:
intercepts first, then the coefficients of columns, contrast by contrast. Contrasts of classes are
directions that sum to 0 over classes and in which the curvature at the starting constant is
diagonal.

What a round expects of its gradient is computed from a model: rows in released coordinates are
taken to be normal with the released second moments, and outcomes to follow the current margins. The
model gives the expected curvature, and the mean of clipped gradients at a minimiser, which is not 0
and is subtracted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from scipy.special import expit, gammaincinv, logit

from dpconvex.core.queries import QuerySlopes, QueryStatistic
from dpconvex.core.several_margin_losses import softmax_shares
from dpconvex.fit import constants
from dpconvex.fit.margin_calibration import calibrated_label_share
from dpconvex.fit.posterior import (
    NewtonPosterior,
    PosteriorEstimate,
    deviation_prior,
    scale_variances,
    signal_prior,
)
from dpconvex.losses import CrammerSinger, DiscreteHazard, SeveralMarginLoss, Softmax
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.fit.private_fit import PrivateFit


# slope of a level in the model of a round; the least probability of one is its square's reciprocal
_STEEPEST = 1e6


class JointMargins:
    """The fit of a loss of several margins, in the coordinates and with the budget of a
    :class:`PrivateFit`.
    """

    def __init__(self, fit: PrivateFit) -> None:
        self.fit = fit
        self.rows = fit.rows
        self.frame = fit.frame
        self.config = fit.config
        self.rounds = fit.rounds
        self.loss = cast(SeveralMarginLoss, fit.bounds.loss)
        self.separate = self.loss.lift == "separate"
        self.margins = self.loss.margins
        self.lead = fit.lead
        self.moments = self.rounds.moments[self.lead :]

    def run(self) -> Array:
        """Return the coefficients of each joint margin, a row each, in released coordinates."""
        loss = self.loss
        # Where noise hides what a hinge tells apart, the softmax loss is as good, and its
        # intercepts follow shares.
        smooth = Softmax(loss.margins) if isinstance(loss, CrammerSinger) else loss
        std = self.fit.terms["labels"].scale / self.fit.mass
        edges = np.arange(loss.outcomes - 1) + 0.5
        counts = self.rows.histogram("labels", QueryStatistic("target"), edges) / self.fit.mass
        shares = np.array([calibrated_label_share(count, std, self.fit.mass) for count in counts])
        law = self.law = OutcomeLaw(smooth, shares / shares.sum())
        self.fit.released["outcome_shares"] = law.shares
        intercepts, variances = law.constant_margins(std)
        if not self.separate:
            self.contrasts = np.eye(self.margins)
            self.columns = np.ones((1, self.margins))
        else:
            self.contrasts = self.columns = contrasts_of(law.shares)
        start = np.zeros(self.leads + len(self.columns) * self.moments.size)
        lead_variance = np.square(self.contrasts) @ variances if self.leads else np.zeros(0)
        start[: self.leads] = (self.contrasts @ intercepts)[: self.leads]
        found = self._run_rounds("gradients", QuerySlopes(smooth, "clip"), start, lead_variance)
        if "late gradients" in self.fit.terms:
            found = self._run_rounds(
                "late gradients", QuerySlopes(loss, "square"), found.mean, np.zeros(0), found
            )
        self.fit.released["kept_share"] = found.kept_share
        vector = found.mean.copy()
        precision = self.rounds.prior_precision
        if precision is not None:  # of columns that noise hides, contrast by contrast
            curvature = np.diag(self.frame.moments[self.lead :])
            lead = self.lead
            slopes = vector[self.leads :].reshape(len(self.columns), -1)
            slopes[:] = np.linalg.solve(curvature + precision[lead:, lead:], curvature @ slopes.T).T
        return self._expand(vector)

    @property
    def leads(self) -> int:
        """Number of intercepts."""
        return self.lead * len(self.contrasts)

    def _expand(self, vector: Array) -> Array:
        """Return the coefficients of each margin."""
        slopes = self.columns.T @ vector[self.leads :].reshape(len(self.columns), -1)
        if not self.lead:
            return np.asarray(slopes)
        return np.column_stack(
            [self.contrasts.T @ vector[: self.leads] / self.frame.constant, slopes]
        )

    def _reduce(self, gradient: Array) -> tuple[Array, Array]:
        """Return the intercepts' and the columns' part of a gradient in all coefficients."""
        if not self.separate:
            return gradient[: self.margins], gradient[None, self.margins :]
        intercepts = self.contrasts @ gradient[:, : self.lead].ravel() if self.lead else np.zeros(0)
        return intercepts / self.frame.constant, self.columns @ gradient[:, self.lead :]

    def _run_rounds(
        self,
        name: str,
        slopes: QuerySlopes,
        start: Array,
        lead_variance: Array,
        before: PosteriorEstimate | None = None,
    ) -> PosteriorEstimate:
        """Release gradients of joint margins, each at the posterior mean; ``before`` is what
        earlier rounds found.
        """
        rounds = self.rounds
        config = self.config
        fit = self.fit
        term = fit.terms[name]
        unit = self.frame.median_row_norm
        bound = term.record_bound * unit
        model = self._model(start, slopes, bound)
        columns = np.outer(np.diag(model.far), self.moments).ravel()
        diagonal = np.concatenate([np.diag(model.small)[: self.leads], columns])
        doubt = constants.LOG_CURVATURE_STD["several"]
        if before is None:
            variances = scale_variances(1 / math.sqrt(float(self.moments.mean())))
            prior = signal_prior(self.moments.size, rounds._no_signal)
        else:
            variances = scale_variances(1.0)
            prior = deviation_prior()
        leads = (
            self.leads if before is None else 0
        )  # late rounds refine intercepts like other coefficients
        points = NewtonPosterior(
            start,
            diagonal,
            np.full(start.size, doubt),
            leads,
            lead_variance,
            constants.NONQUADRATIC_ERROR["several"],
            variances,
            prior,
            self._lead_moments,
        )
        if before is not None:
            points.known = before.variance
        vector = start
        vectors = []
        steps = []
        for step in range(term.releases):
            last = (
                constants.FULL_DATA_ROUNDS
                if before is None and "late gradients" not in fit.terms
                else 0
            )
            last = term.releases // 2 if before is not None else last
            part = config.early_rows if step < term.releases - last else None
            rows, share = (self.rows, 1.0) if part is None else (self.rows.part(part), part / fit.n)
            thetas = self.frame.row_coefficients(self._expand(vector).T).T
            total = rows.slopes_sum(name, thetas, slopes, self.frame, unit) / (fit.mass * share)
            std = math.hypot(
                term.scale * unit / (fit.mass * share), 0.5 * math.sqrt((1 / share - 1) / fit.mass)
            )
            intercepts, columns = self._reduce(total)
            if rounds.penalty is not None:
                intercepts, columns = self._penalised(intercepts, columns, vector, rounds.penalty)
            if step and before is None:
                model = self._model(vector, slopes, bound)
            step_taken, spread = model.newton(intercepts - model.bias[0], columns - model.bias[1])
            if before is not None:  # the model stays, and differences of steps tell what it misses
                vectors.append(vector)
                steps.append(step_taken)
                step_taken = secant_step(np.array(vectors), np.array(steps), std * np.sqrt(spread))
            points.add(vector, -step_taken, std, spread=spread)
            found = points.estimate()
            mean = found.mean
            if before is None and self.separate and self.lead:
                mean = self._centre(mean)
            move = mean - vector
            along = float((self._lead_moments @ move[self.leads :] ** 2).max(initial=0.0))
            length = math.sqrt(along + float(np.square(move[: self.leads]).max(initial=0.0)))
            vector = vector + move * min(1.0, constants.MAX_MOVE / max(length, 1e-300))
        return replace(
            found, mean=mean, kept_share=(found if before is None else before).kept_share
        )

    def _penalised(
        self, intercepts: Array, columns: Array, vector: Array, penalty: Array
    ) -> tuple[Array, Array]:
        """Return both parts of a joint gradient with the penalty's; contrasts are orthonormal,
        so it has one form.
        """
        slopes = vector[self.leads :].reshape(len(self.columns), -1)
        lead = self.lead
        columns = columns + slopes @ penalty[lead:, lead:]
        if not lead:
            return intercepts, columns
        offsets = vector[: self.leads] / self.frame.constant
        if self.separate:
            columns = columns + np.outer(offsets, penalty[0, 1:])
            intercepts = intercepts + slopes @ penalty[1:, 0] / self.frame.constant
        return intercepts + penalty[0, 0] * offsets, columns

    @cached_property
    def _lead_moments(self) -> Array:
        """Weights of squared coefficients in the variance of every intercept's margin."""
        if self.separate:
            return np.asarray(np.kron(np.eye(len(self.columns)), self.moments[None]), np.float64)
        return np.ones((self.margins, 1)) * self.moments

    def _model(self, vector: Array, slopes: QuerySlopes, bound: float) -> ExpectedRound:
        """Return what is expected of a round at a point."""
        return expected_round(self, self._expand(vector), slopes, bound)

    def _centre(self, vector: Array) -> Array:
        """Return joint coefficients with intercepts moved to where normal margins have the
        released shares.
        """
        records = self.config.records_per_coefficient
        weight = records / (records + constants.INTERCEPT_RECORDS)
        moved = vector.copy()
        for _ in range(8):
            z, _, _, _ = simulated_margins(self, self._expand(moved))
            p = softmax_shares(z)
            mean = p.mean(axis=1)
            curvature = np.diag(mean) - p @ p.T / p.shape[1]
            curvature = self.contrasts @ curvature @ self.contrasts.T
            missing = self.contrasts @ (self.law.shares - mean)
            shift = np.linalg.solve(curvature + 1e-6 * np.eye(len(curvature)), missing)
            moved[: self.leads] += np.clip(shift, -1.0, 1.0)
        moved[: self.leads] = weight * vector[: self.leads] + (1 - weight) * moved[: self.leads]
        return moved


def contrasts_of(shares: Array) -> Array:
    """Return orthonormal contrasts of classes in which ``diag(shares) - shares shares^T`` is
    diagonal.
    """
    size = shares.size
    flat = np.eye(size) - 1 / size
    _, vectors = np.linalg.eigh(
        flat @ (np.diag(shares) - np.outer(shares, shares)) @ flat - 10 * (np.eye(size) - flat)
    )
    return np.asarray(vectors[:, 1:].T)


class OutcomeLaw:
    """Law of outcomes given margins, and constant margins of released shares of outcomes."""

    def __init__(self, loss: SeveralMarginLoss, shares: Array) -> None:
        self.loss = loss
        self.shares = shares

    def constant_margins(self, std: float) -> tuple[Array, Array]:
        """Return joint margins without columns, and the variance of each by noise of this size
        in all shares.
        """
        found = self._constant(self.shares)
        change = np.zeros(self.loss.margins)
        for outcome in range(self.loss.outcomes):
            moved = self.shares.copy()
            moved[outcome] += 1e-3 * moved[outcome]
            change += (std * ((self._constant(moved) - found) / (1e-3 * self.shares[outcome]))) ** 2
        return found, np.minimum(change, 1.0)

    def _constant(self, shares: Array) -> Array:
        if isinstance(self.loss, Softmax):
            logs = np.log(shares)
            return np.asarray(
                np.clip(logs - logs.mean(), -constants.MAX_START_LOGIT, constants.MAX_START_LOGIT)
            )
        if isinstance(self.loss, DiscreteHazard):
            found = logit(shares[1::2] / np.cumsum(shares[::-1])[::-1][1::2])
        else:
            found = logit(np.cumsum(shares)[:-1] / shares.sum())
        return np.asarray(np.clip(found, -constants.MAX_START_LOGIT, constants.MAX_START_LOGIT))

    def probabilities(self, z: Array) -> Array:
        """Return the probability of every outcome of joint margins, a row each, of shape
        (margins, records).
        """
        if isinstance(self.loss, Softmax):
            return softmax_shares(z)
        if isinstance(self.loss, DiscreteHazard):
            censored = (self.shares / np.cumsum(self.shares[::-1])[::-1])[::2, None]
            hazards = expit(z)
            kept = np.cumprod((1 - hazards) * (1 - censored[:-1]), axis=0)
            kept = np.vstack([np.ones((1, z.shape[1])), kept])
            found = np.empty((self.loss.outcomes, z.shape[1]))
            found[::2] = kept * censored
            found[1::2] = kept[:-1] * (1 - censored[:-1]) * hazards
            return found
        return np.asarray(np.maximum(np.diff(expit(z), axis=0, prepend=0.0, append=1.0), 1e-12))


def simulated_margins(fit: JointMargins, coefficients: Array) -> tuple[Array, Array, Array, Array]:
    """Return joint margins of normal rows, shape (margins, rows); the part that margins see,
    directions, norms.
    """
    lead = fit.lead
    moments = fit.moments
    weights = np.sqrt(moments)[:, None] * coefficients[:, lead:].T
    if not fit.separate:
        weights = weights[:, :1]
    # Margins see one direction per contrast. Rounding alone would choose directions beyond them,
    # and the signs.
    rank = min(constants.JOINT_DIRECTIONS, weights.shape[0], len(fit.columns))
    directions, sizes, others = np.linalg.svd(weights, full_matrices=False)
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)[0]
    signs = np.where(largest < 0, -1.0, 1.0)
    directions = (directions * signs)[:, :rank]
    others = others * signs[:, None]
    rng = np.random.default_rng(0)
    half = rng.standard_normal((constants.JOINT_POINTS // 2, rank))
    seen = np.concatenate([half, -half])
    z = (seen * sizes[:rank]) @ others[:rank]
    if lead:
        z = z + coefficients[:, 0] * fit.frame.constant
    hidden = moments.size - rank
    rest = 2 * gammaincinv(hidden / 2, rng.random(len(seen))) if hidden else 0.0
    norms = np.sqrt(1 + moments.mean() * (np.square(seen).sum(axis=1) + rest))
    norms *= fit.frame.median_row_norm / np.median(norms)
    return np.broadcast_to(z.T, (fit.margins, len(seen))), seen, directions, norms


@dataclass(frozen=True)
class ExpectedRound:
    """Expected curvature and clipped gradient: within the directions that margins see, and far
    from them.
    """

    # curvature of intercepts and of contrasts along directions, where columns have second moment 1
    small: Array
    far: Array  # that of contrasts along all others
    directions: Array
    moments: Array
    bias: tuple[Array, Array]

    def newton(self, intercepts: Array, columns: Array) -> tuple[Array, Array]:
        """Return the Newton step of joint margins, and the sum of squares of each row of the
        inverse curvature.
        """
        leads = intercepts.size
        scales = np.sqrt(self.moments)
        directions = self.directions
        inverse = np.linalg.inv(self.small)
        far = np.linalg.inv(self.far)
        scaled = columns / scales
        along = scaled @ directions
        found = inverse @ np.concatenate([intercepts, along.ravel()])
        moved = (
            far @ (scaled - along @ directions.T)
            + found[leads:].reshape(along.shape) @ directions.T
        )
        squares = inverse @ inverse
        contrasts, rank = along.shape
        blocks = squares[leads:, leads:].reshape(contrasts, rank, contrasts, rank)
        own = np.einsum("cq,rqrs,cs->rc", directions, blocks, directions)
        off = np.outer(np.diag(far @ far), 1 - np.square(directions).sum(axis=1))
        spread = np.concatenate([np.diag(squares)[:leads], ((own + off) / self.moments**2).ravel()])
        return -np.concatenate([found[:leads], (moved / scales).ravel()]), np.maximum(
            spread, 1e-300
        )


def expected_round(
    fit: JointMargins, coefficients: Array, slopes: QuerySlopes, bound: float
) -> ExpectedRound:
    """Return what joint margins expect of a round at these coefficients, with records clipped to
    a bound.
    """
    z, seen, directions, norms = simulated_margins(fit, coefficients)
    loss = slopes.loss
    chances = fit.law.probabilities(z)
    margins, points = z.shape
    # A model of one point keeps the slopes that its outcomes would have, of shape (points, margins,
    # outcomes).
    each = np.stack(
        [loss.slopes(np.full(points, float(k)), z).T for k in range(len(chances))], axis=2
    )
    # Noise may reverse thresholds: slopes of a level without a probability have squares beyond all
    # numbers.
    each = np.clip(each, -_STEEPEST, _STEEPEST)
    length = np.sqrt(np.square(each).sum(axis=1)) * norms[:, None]
    if not fit.separate:
        length = np.hypot(length / norms[:, None], each.sum(axis=1) * norms[:, None])
    if slopes.weighting == "clip":
        weights = np.minimum(1.0, bound / np.maximum(length, 1e-300))
    else:
        weights = np.minimum(1.0, bound / loss.lipschitz / norms[:, None]) ** 2
    weights = (chances.T * weights)[:, None, :]
    bias = (weights * each).sum(axis=2).T
    if isinstance(loss, CrammerSinger):  # no likelihood: its minimiser is not that of the model
        shares = each + np.eye(margins)
        bias = np.zeros((margins, points))
        weights = weights / loss.width
        curvature = -(weights * shares) @ shares.transpose(0, 2, 1)
        curvature[:, np.arange(margins), np.arange(margins)] += (weights * shares).sum(axis=2)
    else:
        curvature = (weights * each) @ each.transpose(0, 2, 1)
    rank = seen.shape[1]
    leads = fit.leads
    squares = (seen[:, :, None] * seen[:, None, :]).reshape(points, -1)
    features = np.column_stack([np.ones(points), seen, squares]) / points
    found = (curvature.reshape(points, -1).T @ features).reshape(margins, margins, -1)
    own = fit.contrasts
    common = fit.columns
    first = np.einsum(
        "ab,bcq,dc->adq", own, found[:, :, 1 : 1 + rank], common, optimize=True
    ).reshape(len(own), -1)
    second = found[:, :, 1 + rank :].reshape(margins, margins, rank, rank)
    second = np.einsum("ab,bcqs,dc->aqds", common, second, common, optimize=True).reshape(
        first.shape[1], -1
    )
    small = second
    if leads:
        small = np.block([[own @ found[:, :, 0] @ own.T, first], [first.T, second]])
    far = common @ found[:, :, 0] @ common.T
    if fit.rounds.penalty is not None:  # as if it were the same along all columns
        diagonal = np.diag(fit.rounds.penalty)
        height = float((diagonal[fit.lead :] / fit.moments).mean())
        small = small + np.diag(
            np.concatenate([np.full(leads, diagonal[0]), np.full(len(small) - leads, height)])
        )
        far = far + height * np.eye(len(far))
    mean = bias @ features
    biases = (
        (own @ mean[:, 0])[:leads],
        (common @ mean[:, 1 : 1 + rank]) @ directions.T * np.sqrt(fit.moments),
    )
    return ExpectedRound(_raised(small), _raised(far), directions, fit.moments, biases)


def secant_step(vectors: Array, steps: Array, noise: Array) -> Array:
    """Return the joint margins' last Newton step, corrected by steps at earlier points
    (Anderson).
    """
    # A combination of differences of steps that explains the last one is replaced by the moves that
    # caused it. It is shrunk as far as noise explains differences.
    last = steps[-1]
    if len(steps) == 1:
        return np.asarray(last)
    moves = np.diff(vectors, axis=0)
    changes = np.diff(steps, axis=0)
    whitened = changes / noise
    gram = whitened @ whitened.T + 2 * last.size * np.eye(len(moves))
    return np.asarray(last - np.linalg.solve(gram, whitened @ (last / noise)) @ (moves + changes))


def _raised(matrix: Array) -> Array:
    """Return a symmetric matrix with eigenvalues of at least a share of their mean."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    least = constants.JOINT_MIN_EIGENVALUE * max(float(values.mean()), 1e-12)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
