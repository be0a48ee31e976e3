"""Private fit of quantiles, means and margins: one run for every loss.

Geometry finds coordinates in which rows are nearly white. A search, or a count of labels, finds a
private constant. Gradient rounds start there: rough ones with the scale of the target, fine ones
with that of the residuals, or clipped ones for margins, which a histogram calibrates. Where records
are many, late rounds with a released curvature remove the bias of clips and approximations, so that
the fit tends to that without privacy. Losses differ in slope, in expected curvature, and in what
they need to know of the target. All of it is computed from answers of the trusted core.
"""

import math
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
from scipy.special import erf, logit, ndtri

from dpconvex.core.description import Facts
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import QueryFactor, QuerySlope, QueryStatistic
from dpconvex.core.threads import single_threaded_blas
from dpconvex.fit import constants
from dpconvex.fit import location_and_scale as location
from dpconvex.fit import margin_calibration as margins
from dpconvex.fit.fit_plan import (
    FitConfig,
    fit_kind_of_loss,
    planned_quantile_level,
    small_budget_weight,
)
from dpconvex.fit.geometry import release_row_geometry
from dpconvex.fit.gradient_rounds import GradientRounds
from dpconvex.fit.joint_margins import JointMargins
from dpconvex.fit.posterior import PosteriorEstimate, PosteriorLocalLoss
from dpconvex.losses import Huber, PointwiseLoss, Tweedie
from dpconvex.smoothing import Kernel, convolve
from dpconvex.types import Array


class PrivateFit:
    """Release whitening coordinates M, fit coefficients phi of rows ``M x``, and return
    ``theta = M^T phi``.

    ``rows`` answers queries, ``config`` has the public choices, and ``released`` receives what is
    released on the way. A bandwidth is in mapped units, None for multiples of the scales of target
    and residuals. ``origin`` is the mapped target of 0 if it is within public bounds: these are
    often far too wide, and targets then near 0. ``lead`` is 1 with an intercept, else 0; ``mass``
    is the total weight of the records. :meth:`run` sets ``frame``, the coordinates, ``rounds``,
    ``size`` and ``start_weight``; the search for the target sets ``bracket``, where targets lie.
    """

    def __init__(
        self,
        rows: PrivateRows,
        config: FitConfig,
        kernel: Kernel,
        bandwidth: float | None,
        released: Facts,
        origin: float | None = None,
    ) -> None:
        bounds = rows.bounds
        self.rows = rows
        self.bounds = bounds
        self.config = config
        self.terms = rows.terms
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.released = released
        self.origin = origin
        self.loss = cast(PointwiseLoss, bounds.loss)
        self.kind = fit_kind_of_loss(self.loss)
        self.n = bounds.n_samples
        self.lead = int(bounds.fit_intercept)
        self.mass = float(self.n)

    def run(self) -> Array:
        """Run the private fit; return theta, the coefficients of mapped rows x."""
        if (
            "mass" in self.terms
        ):  # the noisy total weight, at least a hundredth of the number of records
            found = self.rows.count("mass", QueryStatistic("target"), math.inf)
            self.mass = min(max(found, constants.MIN_MASS_SHARE * self.n), float(self.n))
            self.released["mass"] = self.mass
        self.frame = release_row_geometry(self.rows, self.config, self.mass)
        self.released["coordinates"] = self.frame.matrix
        self.size = self.frame.moments.size
        self.rounds = GradientRounds(self.rows, self.frame, self.config, self.mass)
        # Weight a in ``start level = 0.5 + a (tau - 0.5)``, which tends to 1 as ``n mu`` tends to
        # 0; the start of all levels of one target is their median.
        size = self.config.records_per_coefficient * self.size * self.mass / self.n
        together = bool(self.config.levels) and self.config.targets == 1
        self.start_weight = 0.0 if together else 1 - (1 - small_budget_weight(size)) ** 4
        with single_threaded_blas():  # matrices are small: threads would wait for each other
            return self.frame.row_coefficients(self._fit())

    def _fit(self) -> Array:
        """Run the fit in released coordinates; return its coefficients phi."""
        if self.kind == "several":
            return JointMargins(self).run().T
        own = {"margin": self._fit_margins, "squares": self._fit_squares, "rate": self._fit_rates}
        fit_kind = {**own, "smooth": self._fit_smooth}.get(self.kind)
        return self._fit_fine_stage(*self._fit_rough_stage()) if fit_kind is None else fit_kind()

    def _refine(self, found: PosteriorEstimate, loss: PosteriorLocalLoss) -> Array:
        """Return an estimate refined by late rounds."""
        mean, covariance = self.rounds.run_late(found, loss)
        if covariance is not None:
            self.released["covariance"] = covariance
        self.released["kept_share"] = found.kept_share
        return mean

    # Quantiles.

    def _fit_rough_stage(self) -> tuple[Array, PosteriorEstimate, float]:
        """Fit the median from a private constant; return the constant, the fit, and the scale of
        the target.
        """
        low, high = self.loss.slope_range
        first = 0.5 + self.start_weight * (planned_quantile_level(self.loss) - 0.5)
        middle, std_error, scale = self._locate_target(first)
        start = np.zeros(self.size)
        start[: self.lead] = middle
        smooth = convolve(self.loss, self.kernel, self.bandwidth or constants.ROUGH_WIDTH * scale)
        slope = QuerySlope(smooth, (low + high) / 2)
        curvature = (high - low) * constants.NORMAL_DENSITY_AT_0 / scale
        loss = PosteriorLocalLoss(
            slope, curvature, scale, slope_std=constants.SLOPE_STD * (high - low)
        )
        away = scale * float(ndtri(first))  # from there to the median
        return (
            start,
            self.rounds.run_early("rough gradients", loss, start, std_error**2 + away**2),
            scale,
        )

    def _fit_fine_stage(
        self,
        start: Array,
        rough: PosteriorEstimate,
        scale: float,
        mean_gradient: Array | None = None,
    ) -> Array:
        """Re-estimate intercept and residual scale by private counts, then fit with a bandwidth
        of that scale.
        """
        # This is the second stage of every level, also of the median. Slopes are centred where
        # mean_gradient, their constant part, was released before.
        lead = self.lead
        level = planned_quantile_level(self.loss)
        low, high = self.loss.slope_range
        at = rough.mean.copy()
        # Where the start is most of the way to the level, the intercept does not return to the
        # median.
        at[:lead] += self.start_weight * (start[:lead] - at[:lead])
        shift, std_error, logistic_scale = self._locate_residuals(at, scale, level)
        at[:lead] = np.clip(at[:lead] + shift, *self.bracket)
        scale = constants.NORMAL_SCALE * logistic_scale
        self.released["residual_scale"] = scale
        curvature = (high - low) * level * (1 - level) / logistic_scale
        offset = 0.0 if mean_gradient is None else (low + high) / 2
        smooth = convolve(self.loss, self.kernel, self.bandwidth or constants.FINE_WIDTH * scale)
        slope_std = constants.SLOPE_STD * (high - low)
        fine = PosteriorLocalLoss(QuerySlope(smooth, offset), curvature, scale, slope_std=slope_std)
        noise = rough.unshrunk_variance.copy()
        noise[:lead] = constants.UNKNOWN_VARIANCE
        # Coefficients of the level differ from those of the median.
        drift = (
            constants.LEVEL_SHIFT * abs(level - 0.5) * scale / math.sqrt(max(1, self.size - lead))
        )
        constant = np.zeros(self.size)
        earlier = (rough.unshrunk_mean, noise, drift)
        constant[:lead] = at[:lead]
        start_at = constant, std_error**2, earlier, at
        estimate = self.rounds.run_early("gradients", fine, *start_at, mean_gradient=mean_gradient)
        self.level_noise = estimate.unshrunk_variance
        return self._refine(
            estimate, self._kinked_loss(self.loss, curvature, scale, constants.INSIDE_WIDTH * scale)
        )

    def _kinked_loss(
        self, loss: PointwiseLoss, curvature: float, scale: float, width: float
    ) -> PosteriorLocalLoss:
        """Return the fit's kinked loss, smoothed with a bandwidth; its curvature is the share
        near the kink.
        """
        low, high = loss.slope_range
        factor = QueryFactor("inside", width=width, weighting="square")
        steepest = (high - low) / (2 * width)
        if self.bandwidth is not None:
            loss = convolve(loss, self.kernel, self.bandwidth)
            factor = QueryFactor("curvature", loss, weighting="square")
            steepest = float(loss.smoothness)
        return PosteriorLocalLoss(
            QuerySlope(loss, weighting="square"), curvature, scale, 1.0, factor, steepest
        )

    def _locate_target(self, level: float = 0.5) -> tuple[float, float, float]:
        """Return the target's quantile that a fit starts at, its standard deviation, and the
        scale of a normal law.
        """
        bracket = location.locate_target_bracket(
            self.rows, "octaves", self.mass, not self.config.raw_target
        )
        low = -1.0
        high = 1.0
        if bracket is not None:  # rare targets lie beyond
            low = 2 * bracket[0] - bracket[1]
            high = 2 * bracket[1] - bracket[0]
        self.bracket = (low, high)
        width = high - low
        origin = self.origin if bracket is None else None
        prior = location.LocationPrior(low, high, 2.0**-18 * width, width / 4, origin=origin)
        search = QueryStatistic("target"), level, prior, constants.TARGET_COUNTS, self.mass
        middle, std_error, scale = location.locate_quantile(self.rows, "targets", *search)
        return middle, std_error, min(constants.NORMAL_SCALE * scale, width / 2)

    def _locate_residuals(
        self, phi: Array, scale: float, level: float
    ) -> tuple[float, float, float]:
        """Return the quantile of a fit's residuals at the wanted level, its standard deviation,
        and their scale.
        """
        gone = self.start_weight if self.config.fits == 1 else 0.0
        first = 0.5 + gone * (level - 0.5)
        # Up to thrice the distance of a normal law, less the part that the start has gone already.
        guess = 3 * scale * float(ndtri(level) - ndtri(first))
        margin = 2 * scale * (1 - gone)
        # Far further where most targets are equal, such as 0, and the scale at the median is not
        # that of the others.
        far = (self.bracket[1] - self.bracket[0]) * (1 - gone)
        size = self.config.records_per_coefficient * self.size * self.mass / self.n
        prior = location.LocationPrior(
            min(0.0, guess) - margin,
            max(0.0, guess) + margin,
            min(0.5, max(2.0**-10, 30 / size)) * scale,
            1.5 * scale,
            below=far * (level < 0.5),
            above=far * (level > 0.5),
        )
        residual = QueryStatistic("residual", self.frame.row_coefficients(phi))
        search = residual, level, prior, constants.RESIDUAL_COUNTS, self.mass
        return location.locate_quantile(self.rows, "residuals", *search)

    # Means.

    def _fit_squares(self) -> Array:
        """Fit least squares with clipped residuals: in scales of the target at first, then of
        the residuals.
        """
        # The clip grows where released octaves of residuals show asymmetric tails, whose mean it
        # would move.
        lead = self.lead
        width = self.config.width
        rounds = self.rounds
        middle, std_error, scale = self._locate_target()
        start = np.zeros(self.size)
        start[:lead] = middle
        closed = width * scale

        def clipped(limit: float, spread: float) -> PosteriorLocalLoss:
            inside = float(erf(limit / scale / math.sqrt(2)))
            return PosteriorLocalLoss(
                QuerySlope(Huber(limit)), inside, spread, limit / width, slope_std=scale
            )

        variance = (
            std_error**2 + (constants.MEAN_MEDIAN_GAP * scale) ** 2
        )  # a median is not the mean
        rough = rounds.run_early("rough gradients", clipped(closed, scale), start, variance)
        theta = self.frame.row_coefficients(rough.mean)
        tails = location.locate_residual_tails(self.rows, "residuals", theta, scale, self.mass)
        scale = min(tails.scale(scale), scale)
        limit = tails.best(width * scale, rounds.noise("gradients") / width)
        self.released["residual_scale"] = scale
        self.released["residual_limit"] = limit
        # Where the clip has grown, the rough rounds had another minimiser.
        spread = max(scale, limit / width)
        opened = max(0.0, 1 - closed / limit) * spread
        noise = rough.unshrunk_variance.copy()
        noise[:lead] += opened**2
        drift = constants.LEVEL_SHIFT * opened / math.sqrt(max(1, self.size - lead))
        variance = std_error**2 + (constants.MEAN_MEDIAN_GAP * spread) ** 2
        earlier = rough.unshrunk_mean, noise, drift
        found = rounds.run_early(
            "gradients", clipped(limit, spread), start, variance, earlier, rough.mean
        )
        if self.config.inference:
            return self._refine(found, self._limited_squares(found, scale))
        if "late gradients" in self.terms:
            limit = tails.best(width * scale, rounds.noise("late gradients") / width)
            self.released["residual_limit"] = limit
        factor = QueryFactor("inside", width=limit, weighting="square")
        slope = QuerySlope(Huber(limit), weighting="square")
        return self._refine(
            found, PosteriorLocalLoss(slope, 1.0, scale, limit / width, factor, 1.0)
        )

    def _limited_squares(self, found: PosteriorEstimate, scale: float) -> PosteriorLocalLoss:
        """Return the fit's least squares with intervals: the product of residual and row is
        limited as one.
        """
        width = self.config.width
        theta = self.frame.row_coefficients(found.mean)
        tails = location.locate_residual_tails(self.rows, "residuals", theta, scale, self.mass)
        scale = tails.median_scale(scale)
        # Noise of one coordinate, not of predictions: an interval is about one coefficient.
        limit = tails.best(
            width * scale, self.rounds.noise("late gradients") / math.sqrt(self.size) / width, True
        )
        # The median row has this limit, shorter rows have wider ones.
        self.released["residual_scale"] = scale
        self.released["residual_limit"] = limit
        low, high = location.locate_limited_shares(self.rows, "limits", theta, limit, self.mass)
        self.released["limited_share"] = max(low + high, 0.0)
        # What is cut off is as long as the limit, in the mean, and may lie one standard deviation
        # off the mean row.
        noise = constants.BIAS_STDS * math.sqrt(2) * self.terms["limits"].scale / self.mass
        bias = max(abs(high - low) - noise, 0.0) * limit
        square = tails.limited_square(limit)
        score = constants.SCORE_CLIP * scale
        return PosteriorLocalLoss(
            QuerySlope(Huber(2 * limit), weighting="clip"),
            1.0,
            scale,
            limit / width,
            QueryFactor("inside", width=limit, weighting="square"),
            1.0,
            math.sqrt(square),
            QueryFactor("slope", Huber(score)),
            square / tails.limited_square(score),
            bias,
        )

    def _fit_rates(self) -> Array:
        """Fit the log of a mean by clipped slopes, in units of ``mean^(2 - power)``, where they
        are 1 - y / mean.
        """
        # Clips open as far as released octaves, of responses and then of slopes, show that they
        # would move the mean.
        lead = self.lead
        width = self.config.width
        rounds = self.rounds
        loss = cast(Tweedie, self.bounds.loss)
        octaves = (
            2 * constants.RAW_TARGET_OCTAVES if self.config.raw_target else constants.RATE_OCTAVES
        )
        mean, std_error, tails = location.locate_mean(self.rows, loss.most, octaves, self.mass)
        self.released["mean"] = mean
        start = np.zeros(self.size)
        start[:lead] = math.log(mean)
        # Early rounds: the larger the power, the less the curvature differs from one mean to
        # another.
        exact = loss
        loss = replace(loss, power=max(loss.power, constants.EARLY_POWER))
        unit = mean ** (2 - loss.power)
        tails = replace(tails, centres=tails.centres / mean - 1)
        spread = math.sqrt(
            max(float(tails.shares @ np.minimum(tails.centres, loss.most) ** 2), 0.01)
        )
        scale = math.sqrt(
            math.log1p(spread**2)
        )  # of the logarithm, if all of the spread was that of the mean

        def clipped(tails: location.LocationTails, limit: float) -> PosteriorLocalLoss:
            inside = max(1 - float(tails.shares @ (np.abs(tails.centres) > limit)), 0.1)
            slope = QuerySlope(loss, limit=limit * unit)
            return PosteriorLocalLoss(
                slope, unit * inside, scale, limit * unit / width, slope_std=spread * unit
            )

        def chosen(name: str) -> float:
            # With intervals the bias must be small against the noise, not alike.
            noise = rounds.noise(name) / width * (0.3 if self.config.inference else 1.0)
            limits = [law.best(width * residual, noise) for law in laws]
            # Slopes that noise hides may be those of the largest responses, which were counted
            # before.
            hidden = min(1.0, max(0.0, 1 - float(laws[-1].shares.sum())) / constants.HIDDEN_SHARE)
            return float(min(max(limits[-1], limits[0] * hidden), loss.lipschitz / unit))

        laws = [tails]
        residual = min(1.0, spread)
        limit = chosen("rough gradients")
        variance = (std_error / mean) ** 2
        rough = rounds.run_early("rough gradients", clipped(tails, limit), start, variance)
        theta = self.frame.row_coefficients(rough.mean)
        tails = location.locate_residual_tails(
            self.rows, "residuals", theta, unit * spread, self.mass, loss
        )
        tails = replace(tails, centres=tails.centres / unit)
        residual = tails.scale(spread)
        laws.append(tails)
        limit = chosen("gradients")
        self.released["residual_scale"] = residual
        noise = rough.unshrunk_variance.copy()
        noise[:lead] += scale**2
        earlier = (
            rough.unshrunk_mean,
            noise,
            constants.LEVEL_SHIFT * scale / math.sqrt(max(1, self.size - lead)) / 4,
        )
        # A mean of logarithms is not the logarithm of a mean: the more columns tell, the further
        # they are apart.
        variance += constants.INTERCEPT_SHIFT_SHARE * self._margin_std(rough.mean) ** 2
        found = rounds.run_early(
            "gradients", clipped(tails, limit), start, variance, earlier, rough.mean
        )
        if "late gradients" in self.terms:
            limit = chosen("late gradients")
        loss = exact
        unit = mean ** (2 - exact.power)
        self.released["residual_limit"] = limit
        # Curvatures are not bounded by a small multiple of their mean: larger ones are clipped, and
        # late that opens.
        opened = math.sqrt(1 + self.config.records_per_coefficient / 1000)
        most = min(constants.RATE_CURVATURES * opened * unit, loss.smoothness)
        factor = QueryFactor("curvature", loss, limit * unit, "square", most)
        slope = QuerySlope(loss, weighting="square", limit=limit * unit)
        return self._refine(
            found, PosteriorLocalLoss(slope, unit, scale, limit * unit / width, factor, most)
        )

    def _fit_smooth(self) -> Array:
        """Fit a smooth loss of residuals, which has a scale of its own."""
        middle, std_error, scale = self._locate_target(planned_quantile_level(self.loss))
        start = np.zeros(self.size)
        start[: self.lead] = middle
        curvature = float(self.loss.smoothness)
        slope_std = float(self.loss.lipschitz) / 2
        loss = PosteriorLocalLoss(QuerySlope(self.loss), curvature, scale, slope_std=slope_std)
        found = self.rounds.run_early("gradients", loss, start, std_error**2 + scale**2)
        factor = QueryFactor("curvature", self.loss, weighting="square")
        slope = QuerySlope(self.loss, weighting="square")
        return self._refine(
            found, PosteriorLocalLoss(slope, curvature, scale, 1.0, factor, curvature)
        )

    # Margins.

    def _fit_margins(self) -> Array:
        # Where only the order of margins matters, 0 is the threshold for classes of equal weight.
        lead = self.lead
        sharp = self.loss
        kinked = not math.isfinite(self.loss.smoothness)
        smooth = self.loss
        if kinked:
            smooth = convolve(self.loss, self.kernel, self.bandwidth or constants.HINGE_WIDTH)
            sharp = convolve(self.loss, self.kernel, self.bandwidth or constants.SHARP_HINGE_WIDTH)
        share, std_error = self._release_positive_share()
        self.released["positive_share"] = share
        self.rounds.information = 4 * share * (1 - share)
        start = np.zeros(self.size)
        if lead:  # a constant margin beyond 1 costs a hinge
            most = 1.0 if kinked else constants.MAX_START_LOGIT
            start[0] = float(np.clip(logit(share), -most, most)) / self.frame.constant

        curvature = margins.margin_moments(
            smooth, float(start[:lead].sum()), 0.0, self.config.clip
        )[0]
        loss = PosteriorLocalLoss(
            QuerySlope(smooth, weighting="clip"),
            curvature,
            1.0,
            slope_std=math.sqrt(share * (1 - share)) * float(self.loss.lipschitz),
        )
        found = self.rounds.run_early(
            "gradients",
            loss,
            start,
            0.0 if kinked else std_error**2,
            curvature=None
            if self.frame.matrix.ndim == 1
            else partial(self._margin_curvature, smooth),
            centred=partial(self._centre_intercept, share) if lead and not kinked else None,
        )
        found, curvature = self._calibrate(sharp, found, share)
        if kinked:
            late = self._kinked_loss(self.loss, curvature, 1.0, constants.HINGE_INSIDE)
        else:
            factor = QueryFactor("curvature", smooth, weighting="square")
            slope = QuerySlope(smooth, weighting="square")
            late = PosteriorLocalLoss(slope, curvature, 1.0, 1.0, factor, float(smooth.smoothness))
        mean = self._refine(found, late).copy()
        if self.config.ranking:
            mean[:lead] -= start[:lead]
        return mean

    def _release_positive_share(self) -> tuple[float, float]:
        """Return the expected share of positive labels, by a noisy count, and the standard
        deviation of its logit.
        """
        centre = (
            0.5 if self.bounds.ignored_rows else 0.0
        )  # where rows may be ignored, counts are centred
        found = centre * self.mass + self.rows.count(
            "labels", QueryStatistic("label"), -0.5, centre
        )
        std = self.terms["labels"].scale / self.mass
        share = margins.calibrated_label_share(found / self.mass, std, self.mass)
        return share, min(std / (share * (1 - share)), 1.0)

    def _margin_std(self, phi: Array) -> float:
        """Return the standard deviation of margins by released second moments."""
        return math.sqrt(float(self.rounds.moments[self.lead :] @ phi[self.lead :] ** 2))

    def _centre_intercept(self, share: float, phi: Array) -> Array:
        """Return a fit's coefficients with the intercept moved to where normal margins have this
        mean probability.
        """
        # Clipped gradients bias the intercept where clips are narrow, and are noisy for small
        # budgets. It moves less the more records there are.
        exact = margins.calibrated_intercept(share, self._margin_std(phi)) / self.frame.constant
        records = self.config.records_per_coefficient * self.rounds.information
        weight = records / (records + constants.INTERCEPT_RECORDS)
        moved = phi.copy()
        moved[0] = weight * phi[0] + (1 - weight) * exact
        return moved

    def _margin_curvature(self, loss: PointwiseLoss, phi: Array) -> Array:
        """Return the curvature that the fit expects of normal margins, exact along the constant
        and along phi.
        """
        lead = self.lead
        moments = self.rounds.moments
        spread = self._margin_std(phi)
        middle = float(phi[:lead].sum()) * self.frame.constant
        mean, first, second = margins.margin_moments(loss, middle, spread, self.config.clip)
        matrix = mean * np.diag(moments)
        if spread < 1e-3:
            return matrix
        slopes = phi.copy()
        slopes[:lead] = 0.0
        direction = moments * slopes / spread  # of u . slopes / spread, which has unit variance
        matrix += (second - mean) * np.outer(direction, direction)
        if lead:
            constant = np.zeros(self.size)
            constant[0] = self.frame.constant
            matrix += first * (np.outer(direction, constant) + np.outer(constant, direction))
        return np.asarray(matrix)

    def _calibrate(
        self, loss: PointwiseLoss, found: PosteriorEstimate, share: float
    ) -> tuple[PosteriorEstimate, float]:
        """Return a fit's estimate calibrated by a noisy histogram of margins by label, and the
        mean curvature there.
        """
        lead = self.lead
        frame = self.frame
        direction = found.mean.copy()
        direction[:lead] = 0.0
        spread = self._margin_std(direction)
        if spread < 1e-6:
            spread = 1.0
        middle = float(found.mean[:lead].sum()) * frame.constant
        edges = margins.margin_edges(middle, spread)
        margin = QueryStatistic("margin", frame.row_coefficients(direction))
        counts = self.rows.histogram("margins", margin, spread * edges[1:-1], by_label=True)
        std = self.terms["margins"].scale / self.mass
        penalty = np.zeros((2, 2))
        if self.rounds.penalty is not None:
            constant = np.zeros(self.size)
            constant[:lead] = 1 / frame.constant
            basis = np.column_stack([constant, direction / spread])
            penalty = basis.T @ self.rounds.penalty @ basis
        known = counts / self.mass, std, edges, share
        intercept, slope, curvature = margins.calibrate_margin(
            *known, loss, bool(lead), penalty, (middle, spread)
        )
        factor = slope / spread
        self.released["calibration"] = np.array([intercept, factor])
        mean = factor * direction
        mean[:lead] = intercept / frame.constant
        variance = factor**2 * found.variance
        return PosteriorEstimate(mean, variance, mean, variance, found.kept_share), curvature
