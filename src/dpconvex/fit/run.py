"""One private fit for every loss: location, rough rounds, a look at what they leave, fine rounds, late rounds."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit, logit, ndtri

from dpconvex.core.release import PrivateRows, Statistic
from dpconvex.core.slopes import Factor, Slope
from dpconvex.fit.calibration import calibrated_margin, expected_label_share, margin_edges
from dpconvex.fit.config import FitConfig, kind_of, level_of
from dpconvex.fit.constants import (
    CURVATURE_RELEASES,
    CALIBRATION_WIDTH,
    DOUBT,
    DRIFT,
    FEW_RECORDS,
    FINE_WIDTH,
    HINGE_INSIDE,
    HINGE_WIDTH,
    HOPELESS_EACH,
    HOPELESS_RECORDS,
    INSIDE_WIDTH,
    LATE_ROUNDS,
    MARGIN_BINS,
    MIDDLE_HEIGHT,
    MISMATCH,
    MOST_MOVE,
    NORMAL_SCALE,
    PINNED_RECORDS,
    RESIDUAL_COUNTS,
    ROUGH_WIDTH,
    SKEWED,
    TARGET_COUNTS,
)
from dpconvex.fit.geometry import private_coordinates
from dpconvex.fit.location import (
    LocationPrior,
    private_location,
    residual_tails,
    target_octaves,
)
from dpconvex.fit.points import NewtonPoints, late_prior, law_variances, posterior
from dpconvex.losses import Huber, PointwiseLoss
from dpconvex.privacy.description import Facts
from dpconvex.smoothing import Kernel, convolve

Array = NDArray[np.float64]


class PrivateFit:
    """One run on data; :meth:`run` returns coefficients of mapped rows."""

    def __init__(
        self,
        rows: PrivateRows,
        config: FitConfig,
        kernel: Kernel,
        bandwidth: float | None,
        released: Facts,
    ) -> None:
        bounds = rows.bounds
        self.rows, self.bounds, self.config, self.terms = rows, bounds, config, rows.terms
        self.kernel, self.bandwidth, self.released = kernel, bandwidth, released
        self.loss = cast(PointwiseLoss, bounds.loss)
        self.kind = kind_of(self.loss)
        self.alpha, self.n, self.lead = bounds.alpha, bounds.n_samples, int(bounds.fit_intercept)
        self.mass = float(self.n)  # what all records count for
        self._mu = config.records * bounds.dimension / self.n

    def run(self) -> Array:
        """Find coordinates, fit, and return to the rows' own."""
        if "mass" in self.terms:
            self.mass = count_votes(self.rows, "mass", self.n)
            self.released["mass"] = self.mass
        self.frame = private_coordinates(self.rows, self.config, self.mass)
        self.released["coordinates"] = self.frame.matrix
        self.penalty = self.alpha * self.frame.penalty if self.alpha else None
        fit = {"margin": self._margins, "squares": self._squares}.get(self.kind, self._quantile)
        return self.frame.to_rows(fit())

    # Residual losses.

    def _quantile(self) -> Array:
        level, lead = level_of(self.loss), self.lead
        low, high = self.loss.slope_range
        size = self.frame.moments.size
        # Where records are few the constant is all, and its own level is looked for at once.
        few = 1 / (1 + (self.n * self.mass / self.n * self._mu / FEW_RECORDS) ** 1.5)
        once = 1 - (1 - few) ** 4
        first = 0.5 + once * (level - 0.5)
        middle, unsure, scale = self._target(first)
        start = np.zeros(size)
        start[:lead] = middle
        curvature = (high - low) * MIDDLE_HEIGHT / scale
        slope = Slope(self._smoothed(ROUGH_WIDTH * scale), (low + high) / 2)
        mean, variance = self._rounds(
            "rough gradients", slope, start, np.zeros(size), curvature, scale,
            unsure**2 + (scale * float(ndtri(first))) ** 2,
        )
        if self.kind == "smooth":
            scale, density = scale, float(self.loss.smoothness)
        mean[:lead] += once * (start[:lead] - mean[:lead])
        shift, unsure, found = self._residuals(mean, scale, level, first, once)
        scale = NORMAL_SCALE * found
        self.released["residual_scale"] = scale
        mean = mean.copy()
        mean[:lead] = np.clip(mean[:lead] + shift, *self.bracket)
        density = level * (1 - level) / found
        slope = Slope(self._smoothed(FINE_WIDTH * scale))
        found, known = (each.copy() for each in self.raw)
        # Slopes of the level are those of the median, and some more.
        drift = DRIFT * abs(level - 0.5) * scale / math.sqrt(max(1, size - lead))
        known[:lead] = 1e300
        start = start.copy()
        start[:lead] = mean[:lead]
        mean, variance = self._rounds(
            "gradients", slope, start, np.zeros(size), (high - low) * density, scale, unsure**2,
            earlier=(found, known, drift), phi=mean,
        )  # fmt: skip
        width = INSIDE_WIDTH * scale
        return self._late(
            mean, variance, Slope(self.loss, weighting="square"),
            Factor("inside", width=width, weighting="square"), 1 / (2 * width) * (high - low), (high - low) * density, scale,
        )  # fmt: skip

    def _smoothed(self, width: float) -> PointwiseLoss:
        return convolve(self.loss, self.kernel, width if self.bandwidth is None else self.bandwidth)

    def _target(self, level: float = 0.5) -> tuple[float, float, float]:
        """Return a private median of the target, its posterior standard deviation, and the scale of a normal law."""
        found, self.tails = target_octaves(self.rows, "octaves", self.mass, not self.config.raw_target)
        low, high = self.bracket = (-1.0, 1.0)
        if found is not None:
            low, high = found
            self.bracket = low, high = (2 * low - high, 2 * high - low)  # rare targets lie beyond
        width = high - low
        prior = LocationPrior(low, high, 2.0**-18 * width, width / 4)
        middle, unsure, scale = private_location(
            self.rows, "targets", Statistic("target"), level, prior, TARGET_COUNTS, self.mass
        )
        return middle, unsure, min(NORMAL_SCALE * scale, width / 2)

    def _residuals(
        self, phi: Array, scale: float, level: float, first: float, once: float
    ) -> tuple[float, float, float]:
        """Return the residuals' quantile at the wanted level, its posterior std, and their private scale."""
        residual = Statistic("residual", self.frame.to_rows(phi))
        guess = 3 * scale * float(ndtri(level) - ndtri(first))
        reach = 2 * scale * (1 - once)
        far = (self.bracket[1] - self.bracket[0]) * (1 - once)
        prior = LocationPrior(
            min(0.0, guess) - reach, max(0.0, guess) + reach,
            min(0.5, max(2.0**-10, 30 / (self.mass * self._mu))) * scale, 1.5 * scale,
            below=far * (level < 0.5), above=far * (level > 0.5),
        )  # fmt: skip
        return private_location(
            self.rows, "residuals", residual, level, prior, RESIDUAL_COUNTS, self.mass
        )

    def _squares(self) -> Array:
        lead, size, frame, width = self.lead, self.frame.moments.size, self.frame, self.config.width
        middle, unsure, scale = self._target()
        start = np.zeros(size)
        start[:lead] = middle
        limit = width * scale
        # A median is not the mean.
        spread = scale
        mean, variance = self._rounds(
            "rough gradients", Slope(Huber(limit)), start, np.zeros(size), erf(limit / scale / math.sqrt(2)), spread,
            unsure**2 + (SKEWED * spread) ** 2, limit / width,
        )  # fmt: skip
        tails = residual_tails(self.rows, "residuals", frame.to_rows(mean), scale, self.mass)
        scale = min(tails.scale(scale), scale)
        closed, limit = limit, tails.best(width * scale, self._noise("gradients", 1 / width))
        found, known = (each.copy() for each in self.raw)
        # Where the limit opens, the rough rounds were about something else.
        spread = max(scale, limit / width)
        opened = max(0.0, 1 - closed / limit) * spread
        drift = DRIFT * opened / math.sqrt(max(1, size - lead))
        known[:lead] += opened**2
        self.released["residual_scale"], self.released["residual_limit"] = scale, limit
        mean, variance = self._rounds(
            "gradients", Slope(Huber(limit)), start, np.zeros(size), erf(limit / scale / math.sqrt(2)), spread,
            unsure**2 + (SKEWED * spread) ** 2, limit / width, earlier=(found, known, drift), phi=mean,
        )  # fmt: skip
        if "curvature" in self.terms:
            limit = tails.best(width * scale, self._noise("late gradients", 1 / width))
        return self._late(
            mean, variance, Slope(Huber(limit), weighting="square"),
            Factor("inside", width=limit, weighting="square"), 1.0, 1.0, scale, limit / width,
        )  # fmt: skip

    def _noise(self, name: str, unit: float) -> float:
        """Return the root mean square that the noise of all gradients of a name gives predictions."""
        term = self.terms[name]
        std = term.scale * self.frame.median_row_norm * unit / self.mass / math.sqrt(term.releases)
        return std * math.sqrt(float((1 / np.maximum(self.frame.moments, 0.05)).sum()))

    # Margins.

    def _margins(self) -> Array:
        loss, lead, frame = self.loss, self.lead, self.frame
        kinked = not math.isfinite(loss.smoothness)
        if kinked:
            loss = convolve(loss, self.kernel, self.bandwidth or HINGE_WIDTH)
        share, unsure = positive_share(self.rows, self.mass)
        self.released["positive_share"] = share
        start = np.zeros(frame.moments.size)
        if lead:
            most = 1.0 if kinked else 6.0
            start[0] = float(np.clip(logit(share), -most, most)) / frame.constant
        z = float(start[0]) if lead else 0.0
        bent = [float(loss.curvature(np.array([y]), np.array([z]))[0]) for y in (-1.0, 1.0)]
        curvature = max((1 - share) * bent[0] + share * bent[1], 0.02 * loss.smoothness)
        mean, variance = self._rounds(
            "gradients", Slope(loss, weighting="clip"), start, np.zeros(start.size), curvature, 1.0, 0.0 if kinked else unsure**2,
            pinned=None if kinked or not lead else lambda phi: self._with_share(phi, share),
            bent=lambda phi: self._margin_curvature(loss, phi, self.config.clip),
        )
        if not self.config.ranking:
            sharp = loss
            if kinked and self.bandwidth is None:
                sharp = convolve(self.loss, self.kernel, CALIBRATION_WIDTH)
            mean, variance, curvature = self._calibrated(sharp, mean, variance, share)
        slope, factor = Slope(loss, weighting="square"), Factor("curvature", loss, weighting="square")
        steepest = float(loss.smoothness)
        if kinked and self.bandwidth is None:  # the kink itself, and the share of margins near it
            slope = Slope(self.loss, weighting="square")
            factor = Factor("inside", width=HINGE_INSIDE, weighting="square")
            steepest = float(self.loss.lipschitz) / (2 * HINGE_INSIDE)
        mean = self._late(mean, variance, slope, factor, steepest, curvature, 1.0)
        if self.config.ranking:  # 0 is then the threshold for classes of equal weight
            mean[:lead] -= start[:lead]
        return mean

    def _with_share(self, phi: Array, share: float) -> Array:
        """Return coefficients with the intercept for which normal margins have this mean probability."""
        moments, way = np.hypot(self.frame.moments, self.frame.moment_noise_std), phi.copy()
        way[0] = 0.0
        spread = math.sqrt(float(moments @ way**2))
        nodes, weights = np.polynomial.hermite_e.hermegauss(21)
        low, high = float(logit(share)) - 3 * (1 + spread), float(logit(share)) + 3 * (1 + spread)
        for _ in range(40):
            middle = (low + high) / 2
            above = float(weights @ expit(middle + spread * nodes)) / float(weights.sum()) > share
            low, high = (low, middle) if above else (middle, high)
        believed = self.config.records / (self.config.records + PINNED_RECORDS)
        way[0] = believed * phi[0] + (1 - believed) * middle / self.frame.constant
        return way

    def _margin_curvature(self, loss: PointwiseLoss, phi: Array, clip: float) -> Array:
        """Return the curvature that is expected of normal margins, right along the constant and along phi.

        Records whose slope is clipped add none.
        """
        lead, moments = self.lead, np.maximum(np.hypot(self.frame.moments, self.frame.moment_noise_std), 0.05)
        way = phi.copy()
        way[:lead] = 0.0
        spread = math.sqrt(float(moments @ way**2))
        middle = float(phi[0]) * self.frame.constant if lead else 0.0
        nodes, weights = np.polynomial.hermite_e.hermegauss(21)
        z, weights = middle + spread * nodes, weights / weights.sum()
        bends = np.zeros_like(z)
        for y, chance in ((1.0, expit(z)), (-1.0, expit(-z))):
            free = np.abs(loss.gradient(np.full_like(z, y), z)) < clip * float(loss.lipschitz)
            bends += chance * loss.curvature(np.full_like(z, y), z) * (0.3 + 0.7 * free)
        height, tilt, along = (float(weights @ (bends * nodes**k)) for k in range(3))
        least = 0.01 * float(loss.smoothness)
        height = max(height, least)
        H = height * np.diag(moments)
        if spread < 1e-3:
            return H
        a = moments * way / spread  # H a-direction: (u . way) / spread has unit variance
        H += (max(along, 0.1 * height) - height) * np.outer(a, a)
        if lead:
            constant = np.zeros_like(a)
            constant[0] = self.frame.constant
            tilt = float(np.clip(tilt, -0.9, 0.9) if False else tilt)
            most = 0.9 * math.sqrt(height * max(along, 0.1 * height))
            tilt = min(max(tilt, -most), most)
            H += tilt * (np.outer(a, constant) + np.outer(constant, a))
        return H

    def _calibrated(
        self, loss: PointwiseLoss, phi: Array, variance: Array, share: float
    ) -> tuple[Array, Array, float]:
        """Put slope and intercept of the margin right, from a noisy histogram of margins by label."""
        lead, frame = self.lead, self.frame
        direction = phi.copy()
        direction[:lead] = 0.0
        spread = math.sqrt(float(frame.moments @ direction**2))
        if spread < 1e-6:
            spread = 1.0
        theta = frame.to_rows(direction)
        middle = float(phi[:lead].sum()) * frame.constant
        edges = margin_edges(middle, spread)
        counts = self.rows.histogram(
            "margins", Statistic("margin", theta), spread * edges[1:-1], by_label=True
        )
        std = self.terms["margins"].scale / self.mass
        penalty = np.zeros((2, 2))
        if self.penalty is not None:
            constant = np.zeros_like(direction)
            constant[:lead] = 1.0
            basis = np.column_stack([constant, direction / spread])
            penalty = basis.T @ self.penalty @ basis
        offset = None if lead else 0.0
        intercept, slope, bend = calibrated_margin(
            counts / self.mass, std, edges, share, loss, offset, penalty,
            (middle, spread),
        )
        factor = slope / spread
        self.released["calibration"] = np.array([intercept, factor])
        found = factor * direction
        if lead:
            found[0] = intercept / frame.constant
        return found, variance * factor**2, bend

    # Rounds.

    def _rounds(
        self,
        name: str,
        slope: Slope,
        start: Array,
        variance: Array,
        curvature: float,
        scale: float,
        lead_variance: float,
        unit: float = 1.0,
        pull: Array | None = None,
        bent: Callable[[Array], Array] | None = None,
        earlier: tuple[Array, Array, float] | None = None,
        phi: Array | None = None,
        pinned: Callable[[Array], Array] | None = None,
    ) -> tuple[Array, Array]:
        """Ask for gradients at the posterior mean of the minimiser, again and again; return its mean and variance."""
        frame, config, term = self.frame, self.config, self.terms[name]
        moments = np.hypot(frame.moments, frame.moment_noise_std)
        weight = min(1.0, config.clip) if slope.weighting == "weight" else 1.0
        height = weight * curvature * np.maximum(moments, 0.05)
        between = frame.moment_noise_std / moments
        doubt = np.hypot(DOUBT[self.kind], between)
        unit_scale = scale / math.sqrt(float(moments[self.lead :].mean()))  # of a coordinate's coefficient
        points = NewtonPoints(start, variance, height, doubt, between, self.lead, unit_scale, lead_variance, MISMATCH[self.kind], not config.ranking and not __import__("os").environ.get("NOSHRINK"), 1 / (1 + min(self.mass * self._mu / HOPELESS_RECORDS, config.records / HOPELESS_EACH) ** 3))
        number = term.releases // (config.targets if name == "rough gradients" else config.fits)
        rows, share = self.rows, 1.0
        if config.early_rows is not None and name != "gradients":
            rows, share = self.rows.part(config.early_rows), config.early_rows / self.n
        mean, error = start, variance
        if earlier is not None and phi is not None:
            points.remember(*earlier, phi)
        phi = start if phi is None else phi
        for _ in range(number):
            total = rows.slope_sum(name, frame.to_rows(phi), slope, frame, frame.median_row_norm * unit)
            gradient = total / (self.mass * share)
            if pull is not None:
                gradient = gradient + pull
            std = term.scale * frame.median_row_norm * unit / (self.mass * share)
            H = np.diag(height) if bent is None else bent(phi)
            points.add(phi, gradient, std, None if bent is None else np.linalg.inv(H))
            mean, error = points.estimate()
            if pinned is not None:
                mean = pinned(mean)
            phi = self._limited(phi, self._penalised(mean, H), scale)
        self.released["kept_share"] = points.kept_share
        self.raw = points.raw, points.raw_variance
        return self._penalised(mean, H), error

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

    def _late(
        self,
        mean: Array,
        variance: Array,
        slope: Slope,
        factor: Factor,
        steepest: float,
        curvature: float,
        scale: float,
        unit: float = 1.0,
        pull: Array | None = None,
    ) -> Array:
        """Newton rounds with a released curvature around what was found."""
        if "curvature" not in self.terms:
            return mean
        frame, config = self.frame, self.config
        length = config.late_clip * frame.median_row_norm
        # Where the loss is mostly flat, vectors are shorter, and so is what they are limited to.
        share = min(1.0, 2 * curvature / steepest * (1 + config.records / 1000))
        radius, units = length * math.sqrt(share), steepest * length**2 * share
        curved, late = self.terms["curvature"], self.terms["late gradients"]
        rounds, origin, known = LATE_ROUNDS, mean, variance
        std = late.scale * frame.median_row_norm * unit / self.mass
        moments = np.hypot(frame.moments, frame.moment_noise_std)
        expected = curvature * np.diag(np.maximum(moments, 0.05))
        phi, found, points, errors = mean, [], [], []
        for step in range(rounds):
            if step % (rounds // CURVATURE_RELEASES) == 0:
                sums = self.rows.second_moments("curvature", frame, radius, factor, frame.to_rows(phi))
                found.append(sums * units / self.mass)
                noise = curved.scale * units / self.mass / math.sqrt(len(found))
                H, left = denoised_curvature(np.mean(found, axis=0), noise, expected)
                values, vectors = np.linalg.eigh(H)
            gradient = self.rows.slope_sum(
                "late gradients", frame.to_rows(phi), slope, frame, frame.median_row_norm * unit
            ) / self.mass
            if pull is not None:
                gradient = gradient + pull
            points.append(phi - vectors @ (vectors.T @ gradient / values))
            errors.append(phi)
            # Mean of the points, each by its noise and by how far from the estimate it was taken.
            estimate, last = points[-1], None
            before = np.maximum((vectors**2).T @ known, 0.0)
            for _ in range(3):
                variances = []
                for at in errors:
                    gaps = (vectors.T @ (at - estimate)) ** 2 + (before if last is None else last)
                    gap = float(gaps.sum())
                    away = left**2 / 2 * gap / values**2 + LATE_DOUBT**2 * (gaps + gap / gaps.size) / 2
                    variances.append((std / values) ** 2 + away)
                weights = 1 / np.array(variances)
                projected = np.array([vectors.T @ (p - origin) for p in points])
                total = weights.sum(axis=0)
                combined = (weights * projected).sum(axis=0) / total
                laws = law_variances(scale)
                way, last, _, _ = posterior(combined[None], (1 / total)[None], np.zeros((1, values.size)), laws, before, late_prior())
                estimate = origin + vectors @ way
            phi = self._limited(phi, self._penalised(estimate, H), scale)
        return self._penalised(estimate, H)


LATE_DOUBT = float(__import__("os").environ.get("LD","0.3"))


def denoised_curvature(matrix: Array, std: float, expected: Array) -> tuple[Array, float]:
    """Return a released curvature drawn to the expected one as far as noise explains the difference.

    And the noise that is left of its entries.
    """
    size = len(matrix)
    apart = matrix - expected
    noise = std**2 * size * (size + 1) / 2
    kept = max(0.0, 1 - noise / max(float(np.square(apart).sum()), 1e-300))
    values, vectors = np.linalg.eigh(expected + kept * (apart + apart.T) / 2)
    least = max(0.01 * float(np.trace(expected)) / size, kept * std * math.sqrt(size))
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T), std * kept


def positive_share(rows: PrivateRows, mass: float) -> tuple[float, float]:
    centre = 0.5 if rows.bounds.void_rows else 0.0
    found = centre * mass + rows.count("labels", Statistic("label"), -0.5, centre)
    std = rows.terms["labels"].scale / mass
    share = expected_label_share(found / mass, std, mass)
    return share, min(std / (share * (1 - share)), 1.0)


def count_votes(rows: PrivateRows, name: str, n_samples: int) -> float:
    """Return what all records count for: a noisy number, at least a hundredth of theirs."""
    found = rows.count(name, Statistic("target"), math.inf)
    return min(max(found, 0.01 * n_samples), float(n_samples))
