r"""Least squares from few noisy sums: white coordinates, a middle and a scale of the target, products of both.

In coordinates in which rows are white, least-squares coefficients are means of products of rows and targets. One rough
release of such a mean finds them up to the scale of the target, noisy counts find how large residuals are, and two more
releases, of products with residuals limited to a few times that scale, find the rest. Limits open as records become
many, so the fit is consistent; where noise is larger than what was found, the fit shrinks towards the private middle.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_number
from dpconvex.core.queries import Query, largest_cancellation, prove_sums
from dpconvex.core.release import PrivateRows, Score, Statistic
from dpconvex.core.slopes import Factor, Slope
from dpconvex.engine.rows import RAW_FARTHEST, RowMap
from dpconvex.losses import Huber, Squared
from dpconvex.mechanisms.column_ranges import PLACES, octaves, octaves_above
from dpconvex.mechanisms.gathered_steps import GatheredSteps
from dpconvex.mechanisms.gradient_geometry import (
    LENGTH_STEPS,
    Frame,
    Look,
    private_coordinates,
)
from dpconvex.mechanisms.gradient_plan import NORMAL_SCALE, Phase
from dpconvex.mechanisms.gradient_settings import MASS, mass_share, total_mu
from dpconvex.mechanisms.label_counts import count_votes
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.mechanisms.quantile_location import TARGET_BINS, Belief, private_location
from dpconvex.mechanisms.residual_tails import TAIL_BINS, Tails, residual_tails
from dpconvex.mechanisms.sandwich import check_whole_rows, curvature_inverses, sandwich
from dpconvex.mechanisms.target_location import TARGET_STEPS, private_target
from dpconvex.objectives.objective import OverRows
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    Parameters,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource

__all__ = ["LeastSquares"]

Array = NDArray[np.float64]

RESIDUAL_STEPS, RESIDUAL_LOOKS, ROUNDS, INTERVAL_ROUNDS = 10, 2, 5, 2
# Shares of mu^2; the last releases take the rest.
_SHARES = {
    "scales": 0.02,
    "lengths": 0.02,
    "moments": 0.13,
    "finer moments": 0.13,
    "octaves": 0.01,
    "targets": 0.04,
    "rough products": 0.15,
    "residuals": 0.03,
}
# Of octaves and a mean of residuals, where records are many: where they are few, noise hides what a limit does.
_TAILS, _MEAN, _MANY = 0.03, 0.04, 500.0
_GAIN, _RAW_GAIN = (
    0.01,
    0.03,
)  # of what a fit gains over a constant, with bounds of columns and without
_INFERENCE = {"curvature": 0.12, "scores": 0.08}  # of mu^2, where intervals are asked for
_PLACES = 0.02  # of what columns are centred by
_RAW_SCALES = 0.03  # of what finds the sizes of columns, where no bounds are public
_RAW_OCTAVES = 0.04  # of what finds the size of a target, where no bounds are public
_FEW = 80.0  # n mu below which most of the budget goes to the middle of the target
_SKEWED = 0.4  # how far a mean may be from a median, in units of the scale
_LOST = 2.0  # loss against a constant, in units of its noise, with which a fit is given up
_FAR = 4.0  # squares of residuals, in units of the target's, that count in full
_AGAIN = 2  # rounds after which residuals are measured again
_WORSE = (
    1.2  # scale of residuals, in units of that of the target, with which a first step is taken back
)
_DOUBTFUL = 0.05  # noise of a mean, in units of its limit, with which half of it is corrected


@dataclass(frozen=True)
class Limits:
    """The public choices of a run, which its certificate states.

    Attributes
    ----------
    clip : float
        Bound on a weighted row in units of a typical one.
    width : float
        Bound on a residual in units of its scale.
    floor, trust, reach : float
        Of the coordinates, see :class:`~dpconvex.mechanisms.gradient_geometry.Look`.
    above : int
        Octaves above 1 that columns may reach: more than 0 where no bounds of columns are public.
    raw_target : bool
        Whether no bounds of the target are public, so that its unit must be found.
    """

    clip: float
    width: float
    floor: float
    trust: float
    reach: float
    above: int = 0
    raw_target: bool = False

    def __post_init__(self) -> None:
        for name in ("clip", "width", "floor", "trust", "reach"):
            value, allowed = getattr(self, name), "a finite number above 0"
            check_number(name, "Limits", value, allowed, 0, math.inf, low_open=True)
        if type(self.above) is not int or self.above < 0:
            raise ValueError("A number of octaves must be an integer of at least 0.")
        if type(self.raw_target) is not bool:
            raise ValueError("The limits' 'raw_target' must be True or False.")

    def stated(self) -> Facts:
        """Return the limits as a certificate states them: of raw columns and targets only where there are some."""
        return {name: value for name, value in asdict(self).items() if value}


def _limits(bounds: LinearBounds, mu: float, parameters: Parameters) -> Limits:
    """Return limits that open with the number of records per coefficient that noise leaves.

    Intervals are about the coefficients of limited rows and residuals, so for them limits are wide from the start.
    """
    records = max(bounds.n_samples * mu, 1e-6) / bounds.dimension
    wide = parameters.get("inference", False)
    least_clip, least_width = (2.0, 4.0) if wide else (0.0, 0.0)
    return Limits(
        clip=max(least_clip, 0.7 * math.sqrt(1 + records / 100)),
        width=max(least_width, 2.0 * (1 + records / 100) ** 0.25),
        floor=0.5 * math.sqrt(1 + 5 / records),
        trust=1 / (1 + 300 / records),
        reach=1.1 * math.sqrt(1 + records / 2000),
        above=octaves_above(bounds),
        raw_target=parameters.get("target_bounds", ()) is None,
    )


def _queries(bounds: LinearBounds, limits: Limits, inference: bool) -> dict[str, tuple[Query, int]]:
    """Return what is released, and how often.

    A product is a row of length at most ``clip`` typical ones, times a residual of at most ``width`` scales. For
    intervals, second moments of two kinds of vectors of length at most 1 come on top.
    """
    size, columns = bounds.dimension, bounds.n_features
    count, moments, score = Query("count"), (Query.moments(size), 1), (Query("limited sum"), 1)
    product = Query("vector", limits.clip * limits.width, size)
    more = {"curvature": moments, "scores": moments} if inference else {}
    if bounds.weighted_rows or bounds.void_rows:
        more["mass"] = (count, 1)
    if not inference:
        more["gain"] = score
    if bounds.fit_intercept and not inference:
        more["mean"] = score
    if bounds.fit_intercept:
        more["places"] = (Query.histograms(PLACES, columns), 1)
    return {
        **more,
        "scales": (Query.histograms(octaves(limits.above), columns), 1),
        "lengths": (count, 3 * LENGTH_STEPS),
        "moments": moments,
        "finer moments": moments,
        "octaves": (Query.histograms(TARGET_BINS), 1),
        "targets": (count, TARGET_STEPS),
        "rough products": (product, 1),
        "residuals": (count, RESIDUAL_LOOKS * RESIDUAL_STEPS),
        "tails": (Query.histograms(TAIL_BINS), 1 + RESIDUAL_LOOKS),
        "products": (product, INTERVAL_ROUNDS if inference else ROUNDS),
    }


@calibrates("least-squares")
def calibrate_least_squares(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of every release; together they spend ``mu``."""
    if type(bounds.loss) is not Squared:
        raise ValueError(
            f"LeastSquares minimises Squared(), but the loss is {type(bounds.loss).__name__}. Use another mechanism."
        )
    mu = total_mu(guarantee, "LeastSquares")
    inference = parameters.get("inference", False)
    limits = _limits(bounds, mu, parameters)
    facts = _queries(bounds, limits, inference)
    few = 1 / (1 + (bounds.n_samples * mu / _FEW) ** 1.5)
    shares = {name: share * (1 - 0.7 * few) for name, share in _SHARES.items()}
    shares["targets"] += 0.7 * few
    if limits.raw_target:
        shares["octaves"] += _RAW_OCTAVES
    many = 1 / (1 + (_MANY / max(bounds.n_samples * mu, 1e-6)) ** 2)
    shares["tails"] = _TAILS * max(many, 1e-3)
    if "gain" in facts:
        shares["gain"] = (_RAW_GAIN if limits.above else _GAIN) * (1 - 0.7 * few)
    if "mean" in facts:
        shares["mean"] = _MEAN * max(many, 1e-3)
    if "places" in facts:
        shares["places"] = _PLACES * (1 - 0.7 * few)
    if limits.above:
        shares["scales"] += _RAW_SCALES * (1 - 0.7 * few)
    if bounds.weighted_rows and not bounds.void_rows:
        shares["mass"] = MASS
    if inference:
        check_whole_rows(bounds)
        shares = {name: share * (1 - sum(_INFERENCE.values())) for name, share in shares.items()}
        shares |= _INFERENCE
    if bounds.void_rows:  # everything else shares what is left
        mass = mass_share(max(bounds.n_samples * mu, 1e-6))
        shares = {name: share * (1 - mass) for name, share in shares.items()} | {"mass": mass}
    shares["products"] = 1 - sum(shares.values())
    terms = {
        name: Phase(query, bounds, shares[name], releases).term(mu)
        for name, (query, releases) in facts.items()
    }
    return Calibration(terms, stated={"limits": limits.stated()})


@proves("least-squares")
def prove_least_squares(certificate: Certificate) -> Proof:
    """Compose the stated sums."""
    certificate.check_bounds(LinearBounds)
    return prove_sums(certificate)


@dataclass(frozen=True)
class LeastSquares(PrivateMechanism):
    r"""Least squares from released sums.

    With rows ``u`` in released white coordinates and weights ``w = min(1, clip / ||u||)``, each round moves the
    coefficients by ``(scale / (h n)) (sum_i w_i psi(r_i / scale) u_i + noise)``, ``psi`` limiting residuals to
    ``width`` times their released scale and ``h`` the expected ``w u^2``.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or add-or-remove-one. Every limit is
    public or was released and paid for.

    Examples
    --------
    >>> from dpconvex.losses import Squared
    >>> from dpconvex.privacy import ApproxDP, LinearBounds
    >>> bounds = LinearBounds(1000, 3, Squared(), row_norm=1.0, max_norm=1.0, alpha=0.0)
    >>> certificate = LeastSquares().certify(bounds, ApproxDP(1.0, 1e-6))
    >>> round(certificate.noise["products"]["std"], 1)
    61.1
    """

    name: ClassVar[str] = "least-squares"

    def mapped(self, row_map: RowMap) -> RowMap:
        """Return how rows are bounded: weighted, and clipped far away without feature bounds."""
        return row_map.weighted(RAW_FARTHEST)

    def _run(
        self, objective: OverRows, certificate: Certificate, noise: NoiseSource, record: Facts
    ) -> Array:
        run = _Run(PrivateRows([objective.rows], certificate, noise), certificate)
        theta = run.fit()
        record.update(run.released)
        return theta


class _Run:
    """One run on data."""

    def __init__(self, rows: PrivateRows, certificate: Certificate) -> None:
        self.rows, self.terms, self.bounds = rows, rows.terms, rows.bounds
        self.limits = Limits(**certificate.parameters["limits"])
        self.inference = certificate.parameters.get("inference", False)
        self.n = self.bounds.n_samples
        self.mass = float(self.n)  # what all records count for
        self.released: Facts = {}

    def fit(self) -> Array:
        """Return coefficients of mapped rows."""
        bounds, limits = self.bounds, self.limits
        if "mass" in self.terms:
            self.mass = count_votes(self.rows, "mass", self.n)
            self.released["mass"] = self.mass
        look = Look(
            self.n, None, bounds.fit_intercept, bounds.max_norm, limits.reach, limits.floor,
            limits.trust, largest_cancellation(bounds), filled=self.mass / self.n, above=limits.above,
        )  # fmt: skip
        frame = private_coordinates(self.rows, look)
        self.released["coordinates"] = frame.matrix
        middle, scale = private_target(self.rows, self.mass, not limits.raw_target)
        unit = scale
        start = np.zeros(frame.matrix.shape[0])
        start[: frame.lead] = middle
        scale, _ = self._widened(frame, start, scale, "rough products")
        # A median is not the mean, and counts have noise.
        constant = scale * math.hypot(_SKEWED, self.terms["targets"].scale / self.mass)
        found = GatheredSteps(start, frame, self._height(frame), scale, constant)
        found.add(start, *self._step(frame, start, scale, "rough products"))
        phi = found.likely()
        residual = self._residual_scale(frame, phi, scale)
        if residual > _WORSE * scale:  # than a constant: the curvature is not what it seemed
            found = GatheredSteps(start, frame, self._height(frame), scale, constant)
            phi = start
        residual = min(residual, scale)
        scale, _ = self._widened(frame, phi, residual, "products")
        again = INTERVAL_ROUNDS - 1 if self.inference else _AGAIN
        for _ in range(again):
            found.add(phi, *self._step(frame, phi, scale, "products"))
            phi = found.likely()
        residual = min(residual, self._residual_scale(frame, phi, residual))
        scale, tails = self._widened(frame, phi, residual, "products")
        self.released["residual_scale"] = residual
        self.released["residual_limit"] = limits.width * scale
        if self.inference:
            return self._with_covariance(frame, phi, scale)
        for _ in range(ROUNDS - again):
            found.add(phi, *self._step(frame, phi, scale, "products"))
            phi = found.likely()
        self.released["kept_share"] = found.kept_share()
        if bounds.alpha:
            penalty = bounds.alpha * (frame.matrix @ frame.matrix.T)
            phi = np.asarray(np.linalg.solve(np.diag(frame.moments) + penalty, frame.moments * phi))
        if not self._gains(frame, phi, middle, unit):
            phi, self.released["kept_share"] = start, 0.0
        if "mean" in self.terms:
            phi[: frame.lead] += self._mean(frame, phi, tails)
        return frame.to_rows(phi)

    def _with_covariance(self, frame: Frame, phi: Array, scale: float) -> Array:
        r"""Take the last step with the released curvature, and keep the covariance of what comes out.

        The curvature is the sum of ``w u u^T`` over residuals within their limit; see
        :mod:`~dpconvex.mechanisms.sandwich`.
        """
        length, width = self.limits.clip * frame.typical, self.limits.width * scale
        theta = frame.to_rows(phi)
        inside, limited = Factor("inside", width=width), Factor("slope", Huber(width))
        curvature, scores = (
            self.rows.second_moments(name, frame, length, factor, theta)
            for name, factor in (("curvature", inside), ("scores", limited))
        )
        noise = self.terms["curvature"].scale
        inverse, widest = curvature_inverses(curvature, noise, frame.moments)
        step = self._step(frame, phi, scale, "products")[0] * self._height(frame) * self.mass
        std = self.terms["products"].scale * frame.typical * scale
        covariance = sandwich(widest / length**2, scores * (length * width) ** 2, std)
        self.released["covariance"] = frame.matrix.T @ covariance @ frame.matrix
        return frame.to_rows(phi + inverse @ step / length**2)

    def _widened(self, frame: Frame, phi: Array, scale: float, name: str) -> tuple[float, Tails]:
        """Return a scale whose limit keeps the mean of skewed residuals as far as noise allows, and their tails."""
        tails = residual_tails(self.rows, "tails", frame.to_rows(phi), scale, self.mass)
        width, spread = self.limits.width, self._noise(frame, 1.0, name)
        noise = math.sqrt(float(frame.moments @ spread**2)) / width
        return tails.best(width * scale, noise) / width, tails

    def _gains(self, frame: Frame, phi: Array, middle: float, scale: float) -> bool:
        """Return whether squared residuals, none counted beyond a limit, are surely not larger than a constant's.

        Columns may hold numbers that are so rare and so large that nothing else has seen them.
        """
        constant, limit = middle if frame.lead else 0.0, math.sqrt(_FAR) * scale
        lost = Score("lost squares", frame.to_rows(phi), limit, constant)
        found = self.rows.limited_sum("gain", lost)
        self.released["gain"] = -found / self.mass
        return found <= _LOST * self.terms["gain"].scale

    def _mean(self, frame: Frame, phi: Array, tails: Tails) -> float:
        """Return a private mean of residuals, shortened by what noise alone would be.

        One number has less noise than a product has, so its limit is wider.
        """
        std = self.terms["mean"].scale / self.mass
        limit = tails.best(self.limits.width * tails.scale, std)
        # Every row counts alike, however long.
        residual = Score("residual", frame.to_rows(phi), limit)
        found = self.rows.limited_sum("mean", residual) / self.mass
        sure = max(0.0, 1 - (std / max(abs(found), 1e-300)) ** 2)
        return limit * found * sure / (1 + (std / _DOUBTFUL) ** 2)

    def _height(self, frame: Frame) -> Array:
        """Return the second moments of weighted coordinates to divide by: larger where noise may hide them."""
        moments = (
            frame.moments if frame.doubts is None else np.hypot(frame.moments, frame.doubts[0])
        )
        return np.maximum(min(1.0, self.limits.clip) * moments, 0.05)

    def _step(self, frame: Frame, phi: Array, scale: float, name: str) -> tuple[Array, Array]:
        """Return a noisy step from ``phi`` to least squares, and its noise."""
        slope, unit = Slope(Huber(self.limits.width * scale)), frame.typical * scale
        noisy = self.rows.slope_sum(name, frame.to_rows(phi), slope, frame, unit) / self.mass
        return np.asarray(-noisy / self._height(frame)), self._noise(frame, scale, name)

    def _noise(self, frame: Frame, scale: float, name: str) -> Array:
        """Return the standard deviation of each coordinate of a step."""
        each = self.terms[name].scale * frame.typical * scale / self.mass
        return np.asarray(each / self._height(frame))

    def _residual_scale(self, frame: Frame, phi: Array, scale: float) -> float:
        """Return the private scale of the residuals, at most twice a given one, and not far below without proof."""
        unsure = self.terms["residuals"].scale / (self.mass * math.sqrt(RESIDUAL_STEPS))
        belief = Belief(-scale, scale, min(0.5, max(2.0**-10, 2 * unsure)) * scale, 2 * scale)
        residual = Statistic("residual", frame.to_rows(phi))
        _, found = private_location(
            self.rows, "residuals", residual, 0.5, belief, RESIDUAL_STEPS, self.mass
        )
        return NORMAL_SCALE * found
