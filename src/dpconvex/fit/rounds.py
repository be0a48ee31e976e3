r"""Rounds of noisy gradients: each is asked for where all before them expect the minimiser.

Early rounds divide gradients by the curvature that geometry and location lead to expect. Late rounds, where records
are many, by a curvature that is released at the same place; what they find is weighed against what was known before, so
that they refine the fit as far as their noise allows. With intervals the late rounds are the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpconvex.core.release import PrivateRows
from dpconvex.core.slopes import Factor
from dpconvex.fit.config import FitConfig, kind_of
from dpconvex.fit.constants import (
    DOUBT,
    HOPELESS_EACH,
    HOPELESS_RECORDS,
    LAST_ROUNDS,
    LATE_MISMATCH,
    LEAST_MOMENT,
    MISMATCH,
    MOST_MOVE,
)
from dpconvex.fit.covariance import denoised_curvature, sandwich, wide_inverse
from dpconvex.fit.estimate import Estimate, LocalLoss
from dpconvex.fit.geometry import Frame
from dpconvex.fit.points import NewtonPoints, deviation_prior, law_variances, posterior, signal_prior
from dpconvex.types import Array

__all__ = ["Rounds"]

Curvature = Callable[[Array], Array]


class Rounds:
    """What all rounds of a fit have in common.

    Parameters
    ----------
    rows : PrivateRows
        What sums are asked of.
    frame : Frame
        Released coordinates.
    config : FitConfig
        Public choices.
    mass : float
        What all records count for, public or released.
    """

    def __init__(self, rows: PrivateRows, frame: Frame, config: FitConfig, mass: float) -> None:
        bounds = rows.bounds
        self.rows, self.frame, self.config, self.mass = rows, frame, config, mass
        self.terms, self.lead, self.n = rows.terms, int(bounds.fit_intercept), bounds.n_samples
        self.kind, self.size = kind_of(bounds.loss), bounds.dimension
        self.penalty = bounds.alpha * frame.penalty if bounds.alpha else None
        self.moments = np.maximum(np.hypot(frame.moments, frame.moment_noise_std), LEAST_MOMENT)
        self.information = 1.0  # of a record, relative to the most that one can have: rare labels tell less

    def early(
        self,
        name: str,
        loss: LocalLoss,
        start: Array,
        lead_variance: float,
        earlier: tuple[Array, Array, float] | None = None,
        at: Array | None = None,
        curvature: Curvature | None = None,
        centred: Curvature | None = None,
        pull: Array | None = None,
    ) -> Estimate:
        """Ask for gradients at the posterior mean of the minimiser, again and again.

        Parameters
        ----------
        name : str
            The certificate's term.
        loss : LocalLoss
            Slope, expected curvature and units.
        start : array
            A constant, which coefficients are drawn to.
        lead_variance : float
            Variance of its intercept.
        earlier : tuple of found, noise, drift, optional
            See :meth:`NewtonPoints.remember`.
        at : array, optional
            Where to begin; the start by default.
        curvature : callable, optional
            Expected curvature at a point, where it is not that of the loss alone.
        centred : callable, optional
            Puts the intercept of a point right.
        pull : array, optional
            A released part of every mean gradient.
        """
        frame, config, term = self.frame, self.config, self.terms[name]
        weight = min(1.0, config.clip) if loss.slope.weighting == "weight" else 1.0
        heights = weight * loss.curvature * self.moments
        doubt = np.hypot(DOUBT[self.kind], frame.moment_noise_std / self.moments)
        laws = law_variances(loss.scale / math.sqrt(float(self.moments[self.lead :].mean())))
        prior = signal_prior(self.size - self.lead, self._hopeless)
        if config.ranking:  # any direction ranks better than none
            prior[0] = 0.0
        points = NewtonPoints(
            start, heights, doubt, self.lead, lead_variance, MISMATCH[self.kind], laws, prior,
        )  # fmt: skip
        phi = start if at is None else at
        if earlier is not None:
            points.remember(*earlier, phi)
        number = term.releases // (config.targets if name == "rough gradients" else config.fits)
        # Very large tables are read as a whole by late rounds, or by the last ones where there are none.
        last = 0 if name == "rough gradients" or "late gradients" in self.terms else LAST_ROUNDS
        for step in range(number):
            part = config.early_rows if step < number - last else None
            gradient, std = self._gradient(name, phi, loss, part, pull)
            height = np.diag(heights) if curvature is None else curvature(phi)
            inverse = None if curvature is None else np.asarray(np.linalg.inv(height), np.float64)
            points.add(phi, gradient, std, inverse)
            found = points.estimate()
            mean = found.mean if centred is None else centred(found.mean)
            phi = self._limited(phi, self._penalised(mean, height), loss.scale)
        return Estimate(self._penalised(mean, height), found.variance, found.found, found.noise, found.kept_share)

    def _gradient(
        self, name: str, phi: Array, loss: LocalLoss, part: int | None = None, pull: Array | None = None
    ) -> tuple[Array, float]:
        """Return a noisy mean gradient, and the standard deviation of its coordinates."""
        rows, share = self.rows, 1.0
        if part is not None:
            rows, share = self.rows.part(part), part / self.n
        unit = self.frame.median_row_norm * loss.unit
        total = rows.slope_sum(name, self.frame.to_rows(phi), loss.slope, self.frame, unit)
        gradient = total / (self.mass * share)
        if pull is not None:
            gradient = gradient + pull
        noise = self.terms[name].scale * unit / (self.mass * share)
        # A part of the rows errs by chance, too.
        chance = loss.slope_std * math.sqrt((1 / share - 1) / self.mass)
        return gradient, math.hypot(noise, chance)

    def noise(self, name: str) -> float:
        """Return the root mean square that noise of all gradients of a name gives predictions, per unit of slopes."""
        term = self.terms[name]
        std = term.scale * self.frame.median_row_norm / self.mass / math.sqrt(term.releases)
        return std * math.sqrt(float((1 / self.moments).sum()))

    @property
    def _hopeless(self) -> float:
        """Prior probability that noise leaves nothing of the columns."""
        records = self.config.records * self.information
        size = records * self.size * self.mass / self.n
        return 1 / (1 + min(size / HOPELESS_RECORDS, records / HOPELESS_EACH) ** 3)

    def _penalised(self, mean: Array, curvature: Array) -> Array:
        """Return the minimiser of a quadratic function around a mean, plus the penalty."""
        if self.penalty is None:
            return mean
        return np.asarray(np.linalg.solve(curvature + self.penalty, curvature @ mean))

    def _limited(self, phi: Array, wanted: Array, scale: float) -> Array:
        """Return where to go next: no further than predictions may move at once."""
        way = wanted - phi
        length = math.sqrt(float(self.frame.moments @ way**2))
        return np.asarray(phi + way * min(1.0, MOST_MOVE * scale / max(length, 1e-300)))

    def late(self, before: Estimate, loss: LocalLoss) -> tuple[Array, Array | None]:
        """Ask for gradients and curvature around what was found; return an estimate and, for intervals, its covariance.

        Points are averaged by their noise, that of the curvature, and how far from the estimate they were taken.
        Deviations from what was known before are drawn to 0 by their own law, but for intervals.
        """
        if "curvature" not in self.terms:
            return before.mean, None
        assert loss.factor is not None
        config, fits, origin = self.config, self.config.fits, before.mean
        rounds = self.terms["late gradients"].releases // fits
        every = rounds // (self.terms["curvature"].releases // fits)
        laws, prior = law_variances(loss.scale), deviation_prior()
        phi, taken, points, released, stds = origin, [], [], [], []
        for step in range(rounds):
            if step % every == 0:
                released.append(self._curvature(phi, loss))
                height, left = self._mean_curvature(released, loss)
                if self.penalty is not None:
                    height = height + self.penalty
                values, vectors = np.linalg.eigh(height)
                known = np.maximum((vectors**2).T @ before.variance, 0.0)
            part = config.early_rows if step < rounds // 2 else None
            gradient, std = self._gradient("late gradients", phi, loss, part)
            if self.penalty is not None:
                gradient = gradient + self.penalty @ phi
            stds.append(std)
            points.append(phi - vectors @ (vectors.T @ gradient / values))
            taken.append(phi)
            estimate, variance = points[-1], known
            for _ in range(3):  # the weights of points depend on the estimate
                gaps = (np.array(taken) - estimate) @ vectors
                gaps = gaps**2 + variance
                whole = gaps.sum(axis=1, keepdims=True)
                away = left**2 / 2 * whole / values**2
                away = away + LATE_MISMATCH**2 * (gaps + whole / values.size) / 2
                weights = 1 / (np.divide.outer(np.array(stds), values) ** 2 + away)
                total = weights.sum(axis=0)
                way = (weights * ((np.array(points) - origin) @ vectors)).sum(axis=0) / total
                if not config.inference:
                    plain = np.zeros((1, way.size))
                    way, variance, _, _ = posterior(way[None], 1 / total[None], plain, laws, prior, known)
                estimate = origin + vectors @ way
            phi = self._limited(phi, estimate, loss.scale)
        if not config.inference:
            return np.asarray(estimate), None
        last = rounds - every  # the first ones start too far away
        covariance = self._covariance(released[-2:], phi, loss, std / math.sqrt(last))
        return np.asarray(np.mean(points[-last:], axis=0)), covariance

    def _units(self, loss: LocalLoss) -> tuple[float, float]:
        """Return the length that curvature vectors are limited to, and what the released sum is multiplied by."""
        length = self.config.late_clip * self.frame.median_row_norm
        # Where the loss is mostly flat, vectors are shorter, and so is what they are limited to.
        share = 2 * loss.curvature / loss.steepest * (1 + self.config.records / 1000)
        share = 1.0 if self.config.inference else min(1.0, share)
        return length * math.sqrt(share), loss.steepest * length**2 * share

    def _curvature(self, phi: Array, loss: LocalLoss) -> Array:
        radius, unit = self._units(loss)
        theta, part = (self.frame.to_rows(phi), None if self.config.inference else self.config.early_rows)
        rows, share = (self.rows, 1.0) if part is None else (self.rows.part(part), part / self.n)
        sums = rows.second_moments("curvature", self.frame, radius, loss.factor, theta)
        return np.asarray(sums * unit / (self.mass * share))

    def _mean_curvature(self, released: list[Array], loss: LocalLoss) -> tuple[Array, float]:
        """Return the mean of released curvatures, cleared of noise, and the noise that is left."""
        used = released[-2:] if self.config.inference else released
        part = None if self.config.inference else self.config.early_rows
        share = 1.0 if part is None else part / self.n
        noise = self.terms["curvature"].scale * self._units(loss)[1] / (self.mass * share)
        expected = loss.curvature * np.diag(self.moments)
        return denoised_curvature(np.mean(used, axis=0), noise / math.sqrt(len(used)), expected)

    def _covariance(self, released: list[Array], phi: Array, loss: LocalLoss, std: float) -> Array:
        """Return the covariance of the mean of late points, of sampling and of noise, in the rows' own coordinates."""
        noise = self.terms["curvature"].scale * self._units(loss)[1] / self.mass
        noise /= math.sqrt(len(released))
        inverse = wide_inverse(np.mean(released, axis=0), noise, self.frame.moments)
        length = self.config.late_clip * self.frame.median_row_norm
        assert loss.slope.loss is not None
        limited = Factor("slope", loss.slope.loss, weighting="square")
        theta = self.frame.to_rows(phi)
        scores = self.rows.second_moments("scores", self.frame, length, limited, theta)
        scores = scores * (float(loss.slope.loss.lipschitz) * length / self.mass) ** 2
        matrix = self.frame.matrix
        return np.asarray(matrix.T @ sandwich(inverse, scores, std) @ matrix)
