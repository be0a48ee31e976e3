r"""Approximate Newton iterations: each noisy gradient is evaluated at the posterior mean given all
earlier ones.

Early rounds divide gradients by the curvature that geometry and location lead to expect. Late
rounds, where records are many, divide them by a curvature that is released at the same point; their
result is combined with that of earlier rounds, so that they refine the fit as far as their noise
allows. With intervals the late rounds are the estimate.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpconvex.core.queries import QueryFactor
from dpconvex.fit import constants, linear_algebra
from dpconvex.fit import covariance_and_curvature as curvatures
from dpconvex.fit import posterior as posteriors
from dpconvex.fit.fit_plan import FitConfig, fit_kind_of_loss
from dpconvex.fit.geometry import RowGeometry
from dpconvex.fit.plausible_answers import PlausibleAnswers
from dpconvex.fit.posterior import (
    NewtonPosterior,
    PosteriorEstimate,
    PosteriorLocalLoss,
    deviation_prior,
)
from dpconvex.types import Array

PointMap = Callable[[Array], Array]


def second_difference_penalty(
    curves: Sequence[tuple[int, int, float]], lead: int, size: int
) -> Array:
    """Return the curvature that ``sum of strength (theta_j - 2 theta_j+1 + theta_j+2)^2 / 2``
    adds to a round.
    """
    penalty = np.zeros((size, size))
    for first, number, strength in curves:
        differences = np.diff(np.eye(number), 2, axis=0)
        columns = slice(lead + first, lead + first + number)
        penalty[columns, columns] += strength * (differences.T @ differences)
    return penalty


class GradientRounds:
    """Rounds of one fit in released coordinates; ``mass`` is the total weight of all records,
    public or released.
    """

    def __init__(
        self, rows: PlausibleAnswers, frame: RowGeometry, config: FitConfig, mass: float
    ) -> None:
        bounds = rows.bounds
        self.rows = rows
        self.frame = frame
        self.config = config
        self.mass = mass
        self.terms = rows.terms
        self.lead = int(bounds.fit_intercept)
        self.n = bounds.n_samples
        self.kind = fit_kind_of_loss(bounds.loss)
        self.size = bounds.dimension
        self.penalty = bounds.alpha * frame.penalty if bounds.alpha else None
        if config.smooth:
            matrix = frame.matrix if frame.matrix.ndim == 2 else np.diag(frame.matrix)
            curves = (
                matrix @ second_difference_penalty(config.smooth, self.lead, self.size) @ matrix.T
            )
            self.penalty = curves if self.penalty is None else self.penalty + curves
        # Nothing but a prior tells the coefficient of a column that no record has.
        self.prior_precision: Array | None = None
        if frame.matrix.ndim == 2 and frame.prior_moments.any():
            columns = frame.matrix[:, self.lead :]
            self.prior_precision = (columns * frame.prior_moments) @ columns.T
        self.moments = np.maximum(
            np.hypot(frame.moments, frame.moment_noise_std), constants.MIN_SECOND_MOMENT
        )
        self.information = (
            1.0  # of a record, relative to the largest possible: less for rare labels
        )

    def run_early(
        self,
        name: str,
        loss: PosteriorLocalLoss,
        start: Array,
        lead_variance: float,
        earlier: tuple[Array, Array, float] | None = None,
        at: Array | None = None,
        curvature: PointMap | None = None,
        centred: PointMap | None = None,
        mean_gradient: Array | None = None,
    ) -> PosteriorEstimate:
        """Release gradients of the term `name`, each at the posterior mean of the minimiser, and
        return the posterior.

        Coefficients are shrunk to a constant, the ``start``, whose intercept has ``lead_variance``;
        ``at`` is the first point, the start by default. ``earlier`` is for
        :class:`NewtonPosterior`. ``curvature`` is the expected one at a point, where it is not that
        of the loss alone; ``centred`` corrects the intercept of a point; ``mean_gradient`` is a
        part of every mean gradient that was released before.
        """
        frame = self.frame
        config = self.config
        term = self.terms[name]
        weight = min(1.0, config.clip) if loss.slope.weighting == "weight" else 1.0
        hessian_diagonal = weight * loss.curvature * self.moments
        log_curvature_std = np.hypot(
            constants.LOG_CURVATURE_STD[self.kind], frame.moment_noise_std / self.moments
        )
        variances = posteriors.scale_variances(
            loss.scale / math.sqrt(float(self.moments[self.lead :].mean()))
        )
        prior = posteriors.signal_prior(self.size - self.lead, self._no_signal)
        if config.ranking:  # any direction ranks better than none
            prior[0] = 0.0
        phi = start if at is None else at
        penalty = self.penalty
        law = self.lead, lead_variance, constants.NONQUADRATIC_ERROR[self.kind], variances, prior
        known = None if earlier is None else (*earlier, phi)
        points = NewtonPosterior(start, hessian_diagonal, log_curvature_std, *law, earlier=known)
        if self.prior_precision is not None:
            penalty = loss.curvature * self.prior_precision + (0.0 if penalty is None else penalty)
        # Of many columns all matrices are diagonal, and to solve with them would take hours.
        penalty_diagonal = None
        if penalty is not None and frame.matrix.ndim == 1 and not config.smooth:
            penalty_diagonal = np.diag(penalty)
        number = term.releases // (config.targets if name == "rough gradients" else config.fits)
        # Of very large tables, late rounds use all rows; where there are none, the last fine rounds
        # do.
        last = (
            0
            if name == "rough gradients" or "late gradients" in self.terms
            else constants.FULL_DATA_ROUNDS
        )
        for step in range(number):
            part = config.early_rows if step < number - last else None
            gradient, std = self._release_gradient(name, phi, loss, part, mean_gradient)
            hessian = None if curvature is None else curvature(phi)
            inverse = None if hessian is None else linear_algebra.inverse(hessian)
            points.add(phi, gradient, std, inverse)
            found = points.estimate()
            mean = found.mean if centred is None else centred(found.mean)
            if (
                penalty is not None
            ):  # the minimiser of the quadratic function around the mean, plus the penalty
                if hessian is None and penalty_diagonal is not None:
                    mean = hessian_diagonal * mean / (hessian_diagonal + penalty_diagonal)
                else:
                    known_hessian = np.diag(hessian_diagonal) if hessian is None else hessian
                    mean = linear_algebra.solve(known_hessian + penalty, known_hessian @ mean)
            phi = self._limit_step(phi, mean, loss.scale)
        return replace(found, mean=mean)

    def _release_gradient(
        self,
        name: str,
        phi: Array,
        loss: PosteriorLocalLoss,
        part: int | None = None,
        constant: Array | None = None,
    ) -> tuple[Array, float]:
        """Return a noisy mean gradient, and the standard deviation of its coordinates."""
        rows, share = (self.rows, 1.0) if part is None else (self.rows.part(part), part / self.n)
        unit = self.frame.median_row_norm * loss.unit
        total = rows.slope_sum(name, self.frame.row_coefficients(phi), loss.slope, self.frame, unit)
        gradient = total / (self.mass * share)
        if constant is not None:
            gradient = gradient + constant
        noise = self.terms[name].scale * unit / (self.mass * share)
        # A part of the rows has a sampling error, too.
        sampling = loss.slope_std * math.sqrt((1 / share - 1) / self.mass)
        return gradient, math.hypot(noise, sampling)

    def noise(self, name: str) -> float:
        """Return the root mean square that noise of a term's gradients adds to predictions, per
        unit of slopes.
        """
        term = self.terms[name]
        std = term.scale * self.frame.median_row_norm / self.mass / math.sqrt(term.releases)
        return std * math.sqrt(float((1 / self.moments).sum()))

    @property
    def _no_signal(self) -> float:
        """Prior probability that the records are too few for any coefficient."""
        records = self.config.records_per_coefficient * self.information
        size = records * self.size * self.mass / self.n
        return 1 / (
            1
            + min(size / constants.NO_SIGNAL_RECORDS, records / constants.NO_SIGNAL_PER_COEFFICIENT)
            ** 3
        )

    def _limit_step(self, phi: Array, wanted: Array, scale: float) -> Array:
        """Return the next point: a step towards the wanted one that moves predictions within the
        limit of one round.
        """
        step = wanted - phi
        length = math.sqrt(float(self.frame.moments @ step**2))
        return np.asarray(phi + step * min(1.0, constants.MAX_MOVE * scale / max(length, 1e-300)))

    def run_late(
        self, before: PosteriorEstimate, loss: PosteriorLocalLoss
    ) -> tuple[Array, Array | None]:
        """Release gradients and curvature near an estimate; return a refined one and, for
        intervals, its covariance.
        """
        # Deviations from the earlier estimate are shrunk to 0 by their own prior, but not for
        # intervals.
        if "curvature" not in self.terms:
            return before.mean, None
        assert loss.factor is not None
        config = self.config
        fits = self.config.fits
        origin = before.mean
        rounds = self.terms["late gradients"].releases // fits
        every = rounds // (self.terms["curvature"].releases // fits)
        variances = posteriors.scale_variances(loss.scale)
        prior = deviation_prior()
        zeros = np.zeros((1, self.size))
        error = (
            constants.NONQUADRATIC_ERROR["squares"]
            if loss.score is not None
            else constants.LATE_NONQUADRATIC_ERROR
        )
        phi = origin
        iterates = []
        newton_points = []
        released = []
        stds = []
        penalty = self.penalty
        if self.prior_precision is not None:
            penalty = loss.curvature * self.prior_precision + (0.0 if penalty is None else penalty)
        for step in range(rounds):
            if step % every == 0:
                released.append(self._release_curvature(phi, loss))
                hessian, hessian_noise_std = self._denoise_curvature(released, loss)
                if penalty is not None:
                    hessian = hessian + penalty
                values, vectors = linear_algebra.symmetric_eigenvalues(hessian)
                prior_variance = np.maximum((vectors**2).T @ before.variance, 0.0)
            part = config.early_rows if step < rounds // 2 else None
            gradient, std = self._release_gradient("late gradients", phi, loss, part)
            if penalty is not None:
                gradient = gradient + penalty @ phi
            stds.append(std)
            newton_points.append(phi - vectors @ (vectors.T @ gradient / values))
            iterates.append(phi)
            estimate = newton_points[-1]
            variance = prior_variance
            # Along each eigenvector, with eigenvalue h and distance r of the iterate from the
            # minimiser, a Newton point has the variance std^2 / h^2 + (hessian_noise_std^2 |r|^2 /
            # h^2 + c^2 (r^2 + |r|^2 / size)) / 2.
            for _ in range(3):  # r depends on the estimate
                squared_distance = ((np.array(iterates) - estimate) @ vectors) ** 2 + variance
                total_squared_distance = squared_distance.sum(axis=1, keepdims=True)
                model_error_variance = hessian_noise_std**2 / 2 * total_squared_distance / values**2
                spread = squared_distance + total_squared_distance / values.size
                model_error_variance = model_error_variance + error**2 * spread / 2
                weights = 1 / (np.divide.outer(np.array(stds), values) ** 2 + model_error_variance)
                total = weights.sum(axis=0)
                deviation = (weights * ((np.array(newton_points) - origin) @ vectors)).sum(
                    axis=0
                ) / total
                if not config.inference:
                    found = deviation[None], 1 / total[None], zeros
                    deviation, variance, _, _ = posteriors.posterior(
                        *found, variances, prior, prior_variance
                    )
                estimate = origin + vectors @ deviation
            phi = self._limit_step(phi, estimate, loss.scale)
        if not config.inference:
            return np.asarray(estimate), None
        shares = weights / total
        noise = (np.square(shares) * np.square(stds)[:, None]).sum(axis=0)
        known = (vectors * noise) @ vectors.T + loss.bias**2 * np.eye(self.size)
        return np.asarray(estimate), self._covariance(released, phi, loss, known)

    def _curvature_units(self, loss: PosteriorLocalLoss) -> tuple[float, float]:
        """Return the norm that curvature vectors are clipped to, and the unit of the released
        sum.
        """
        length = self.config.late_clip * self.frame.median_row_norm
        # Where the loss is mostly flat, vectors are shorter, and so is their clip.
        share = (
            2
            * loss.curvature
            / loss.max_second_derivative
            * (1 + self.config.records_per_coefficient / 1000)
        )
        share = 1.0 if self.config.inference else min(1.0, max(share, constants.MIN_FLAT_SHARE))
        return length * math.sqrt(share), loss.max_second_derivative * length**2 * share

    def _release_curvature(self, phi: Array, loss: PosteriorLocalLoss) -> Array:
        """Release the mean curvature at a point."""
        radius, unit = self._curvature_units(loss)
        theta = self.frame.row_coefficients(phi)
        part = None if self.config.inference else self.config.early_rows
        rows, share = (self.rows, 1.0) if part is None else (self.rows.part(part), part / self.n)
        sums = rows.second_moments("curvature", self.frame, radius, loss.factor, theta)
        return np.asarray(sums * unit / (self.mass * share))

    def _denoise_curvature(
        self, released: list[Array], loss: PosteriorLocalLoss
    ) -> tuple[Array, float]:
        """Return the denoised mean of the rounds' released curvatures, and the noise that is
        left.
        """
        if self.config.inference:
            hessian, variance = self._combined_curvature(released, loss)
            values, _, vectors = curvatures.raise_curvature(
                hessian, variance
            )  # steps must not overshoot
            return np.asarray((vectors * values) @ vectors.T), math.sqrt(float(variance.mean()))
        part = self.config.early_rows
        share = 1.0 if part is None else part / self.n
        noise = self.terms["curvature"].scale * self._curvature_units(loss)[1] / (self.mass * share)
        expected = loss.curvature * np.diag(self.moments)
        return curvatures.denoise_curvature(
            np.mean(released, axis=0), noise / math.sqrt(len(released)), expected
        )

    def _combined_curvature(
        self, released: list[Array], loss: PosteriorLocalLoss
    ) -> tuple[Array, Array]:
        """Return the posterior mean of the curvature given the last two releases, and the
        variance of its entries.
        """
        used = released[-2:]
        noise = (
            self.terms["curvature"].scale
            * self._curvature_units(loss)[1]
            / self.mass
            / math.sqrt(len(used))
        )
        doubt = np.hypot(
            self.frame.moment_noise_std, constants.CURVATURE_DOUBT[self.kind] * self.moments
        )
        return curvatures.combine_curvatures(np.mean(used, axis=0), noise, self.moments, doubt)

    def _covariance(
        self, released: list[Array], phi: Array, loss: PosteriorLocalLoss, known: Array
    ) -> Array:
        """Return the covariance of the rounds' estimate, by sampling and by what is known, in
        the rows' coordinates.
        """
        hessian, variance = self._combined_curvature(released, loss)
        length = self.config.late_clip * self.frame.median_row_norm
        slope = loss.slope.loss
        assert slope is not None
        limit = loss.slope.limit if math.isfinite(loss.slope.limit) else 0.0
        factor = QueryFactor("slope", slope, limit, "square") if loss.score is None else loss.score
        assert factor.loss is not None
        scores = self.rows.second_moments(
            "scores", self.frame, length, factor, self.frame.row_coefficients(phi)
        )
        unit = (
            loss.score_unit
            * (min(float(factor.loss.lipschitz), loss.slope.limit) * length) ** 2
            / self.mass
        )
        height = None if loss.score is None else loss.slope_std**2
        scores = curvatures.denoise_scores(
            scores * unit, self.terms["scores"].scale * unit, hessian, height
        )
        # People with several whole rows: by Jensen's inequality at most so many times as much.
        scores = scores * self.rows.bounds.rows_per_person / self.mass
        inverse = curvatures.conservative_inverse_curvature(hessian, variance)
        matrix = self.frame.matrix
        gradients = scores + known
        found = matrix.T @ inverse @ gradients @ inverse @ matrix
        # A column's curvature is at most that of its variance v, whatever a noisy matrix says: at
        # least g / v^2.
        columns = linear_algebra.inverse(matrix)[self.lead :]
        at = np.arange(self.lead, self.size)
        most = loss.max_second_derivative * self.frame.most_variance
        if self.kind != "squares":
            # Rows with another value than 0 in a column that noise hides are long, and weigh less.
            norms = self.frame.unseen_value * np.linalg.norm(matrix[:, self.lead :], axis=0)
            weights = np.minimum(1.0, length / np.maximum(norms, 1e-300)) ** 2
            most = loss.curvature * weights * self.frame.most_variance
        found[at, at] = np.maximum(
            found[at, at], np.sum(columns * (columns @ gradients), axis=1) / most**2
        )
        if not np.isfinite(found).all():  # noise left nothing that is known of any coefficient
            found = constants.MAX_VARIANCE * np.eye(self.size)
        return np.asarray(found)
