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
from dpconvex.engine.rows import RAW_FARTHEST, RowMap, Rows
from dpconvex.losses import Huber, Squared
from dpconvex.mechanisms.column_ranges import PLACES, octaves, octaves_above
from dpconvex.mechanisms.gathered_steps import GatheredSteps
from dpconvex.mechanisms.gradient_geometry import (
    LENGTH_STEPS,
    Coordinates,
    Look,
    private_coordinates,
)
from dpconvex.mechanisms.gradient_plan import NORMAL_SCALE, Phase
from dpconvex.mechanisms.gradient_settings import MASS, mass_share, total_mu
from dpconvex.mechanisms.label_counts import count_votes
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.mechanisms.quantile_location import (
    TARGET_BINS,
    Belief,
    private_location,
    residual_of,
)
from dpconvex.mechanisms.quantile_search import Counting
from dpconvex.mechanisms.residual_tails import TAIL_BINS, Tails, residual_tails
from dpconvex.mechanisms.sandwich import (
    check_whole_rows,
    curvature_inverses,
    release_products,
    sandwich,
)
from dpconvex.mechanisms.symmetric_release import symmetric_entries
from dpconvex.mechanisms.target_location import TARGET_STEPS, private_target
from dpconvex.objectives.objective import OverRows
from dpconvex.objectives.slopes import WeightedSlope
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    CertificateError,
    Parameters,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.certificates.terms import gaussian_total
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


def release_facts(
    bounds: LinearBounds, limits: Limits, inference: bool
) -> dict[str, tuple[float, int, int]]:
    """Return the sensitivity, dimension and number of every release.

    Counts move by 1, histograms as :meth:`~dpconvex.privacy.bounds.sums.LinearSums.histogram_sensitivity` says; a
    product is a row of length at most ``clip`` typical ones, times a residual of at most ``width`` scales. For
    intervals, second moments of two kinds of vectors of length at most 1 come on top.
    """
    size, columns, count = bounds.dimension, bounds.n_features, bounds.count_sensitivity()
    moments = bounds.moment_sensitivity(), symmetric_entries(size), 1
    product = bounds.gradient_sensitivity(limits.clip, limits.width)
    more = {"curvature": moments, "scores": moments} if inference else {}
    if bounds.weighted_rows or bounds.void_rows:
        more["mass"] = (count, 1, 1)
    if not inference:
        more["gain"] = (bounds.gradient_sensitivity(1.0, 1.0), 1, 1)
    if bounds.fit_intercept and not inference:
        more["mean"] = (bounds.gradient_sensitivity(1.0, 1.0), 1, 1)
    histograms = bounds.histogram_sensitivity(columns)
    if bounds.fit_intercept:
        more["places"] = (histograms, PLACES * columns, 1)
    return {
        **more,
        "scales": (histograms, octaves(limits.above) * columns, 1),
        "lengths": (count, 1, 3 * LENGTH_STEPS),
        "moments": moments,
        "finer moments": moments,
        "octaves": (bounds.histogram_sensitivity(), TARGET_BINS, 1),
        "targets": (count, 1, TARGET_STEPS),
        "rough products": (product, size, 1),
        "residuals": (count, 1, RESIDUAL_LOOKS * RESIDUAL_STEPS),
        "tails": (bounds.histogram_sensitivity(), TAIL_BINS, 1 + RESIDUAL_LOOKS),
        "products": (product, size, INTERVAL_ROUNDS if inference else ROUNDS),
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
    facts = release_facts(bounds, limits, inference)
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
        name: Phase(releases, shares[name], moved, size).term(mu)
        for name, (moved, size, releases) in facts.items()
    }
    return Calibration(terms, stated={"limits": limits.stated()})


@proves("least-squares")
def prove_least_squares(certificate: Certificate) -> Proof:
    """Compose the stated sums: their sensitivities follow from the bounds and the stated limits."""
    certificate.check_bounds(LinearBounds)
    if type(certificate.bounds.loss) is not Squared:
        raise CertificateError("The certificate's loss is not that of least squares.")
    inference = certificate.parameters.get("inference", False)
    if type(inference) is not bool:
        raise CertificateError("The certificate's 'inference' must be True or False.")
    if inference:
        check_whole_rows(certificate.bounds)
    limits = Limits(**certificate.parameters["limits"])
    facts = release_facts(certificate.bounds, limits, inference)
    certificate.check_terms(*facts)
    terms = [
        certificate.term(name, moved, size, "sum", releases)
        for name, (moved, size, releases) in facts.items()
    ]
    relation = certificate.bounds.neighbors.replace("_", "-")
    return Proof(
        gaussian_total(terms), f"Gaussian DP composition of released counts and sums, {relation}"
    )


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
        run = _Run(objective.rows, certificate, noise)
        theta = run.fit()
        record.update(run.released)
        return theta


class _Run:
    """One run on data."""

    def __init__(self, rows: Rows, certificate: Certificate, noise: NoiseSource) -> None:
        self.rows, self.noise, self.terms = rows, noise, certificate.noise
        self.bounds: LinearBounds = certificate.bounds
        self.limits = Limits(**certificate.parameters["limits"])
        self.inference = certificate.parameters.get("inference", False)
        self.n = self.bounds.n_samples
        self.mass = float(self.n)  # what all records count for
        self.released: Facts = {}

    def fit(self) -> Array:
        """Return coefficients of mapped rows."""
        bounds, limits = self.bounds, self.limits
        if "mass" in self.terms:
            self.mass = count_votes(self.rows, self.n, self.terms["mass"], self.noise)
            self.released["mass"] = self.mass
        look = Look(
            self.n, None, bounds.fit_intercept, bounds.max_norm, limits.reach, limits.floor,
            limits.trust, bounds.most_cancellation(), filled=self.mass / self.n, above=limits.above,
            ignored=bounds.void_rows,
        )  # fmt: skip
        frame, measured = private_coordinates(self.rows, look, self.terms, self.noise)
        self.released["coordinates"] = frame.matrix
        clip = limits.clip * frame.typical
        weighted = measured.rescaled(lambda lengths: np.minimum(1.0, clip / lengths))
        del measured
        middle, scale = private_target(
            self.rows, self.mass, self.terms, self.noise, not limits.raw_target, bounds.void_rows
        )
        unit = scale
        start = np.zeros(frame.matrix.shape[0])
        start[: frame.lead] = middle
        scale, _ = self._widened(frame, start, scale, "rough products")
        # A median is not the mean, and counts have noise.
        constant = scale * math.hypot(_SKEWED, self.terms["targets"].scale / self.mass)
        found = GatheredSteps(start, frame, self._height(frame), scale, constant)
        found.add(start, *self._step(weighted, frame, start, scale, "rough products"))
        phi = found.likely()
        residual = self._residual_scale(frame, phi, scale)
        if residual > _WORSE * scale:  # than a constant: the curvature is not what it seemed
            found = GatheredSteps(start, frame, self._height(frame), scale, constant)
            phi = start
        residual = min(residual, scale)
        scale, _ = self._widened(frame, phi, residual, "products")
        again = INTERVAL_ROUNDS - 1 if self.inference else _AGAIN
        for _ in range(again):
            found.add(phi, *self._step(weighted, frame, phi, scale, "products"))
            phi = found.likely()
        residual = min(residual, self._residual_scale(frame, phi, residual))
        scale, tails = self._widened(frame, phi, residual, "products")
        self.released["residual_scale"] = residual
        self.released["residual_limit"] = limits.width * scale
        if self.inference:
            return self._with_covariance(weighted, frame, phi, scale)
        for _ in range(ROUNDS - again):
            found.add(phi, *self._step(weighted, frame, phi, scale, "products"))
            phi = found.likely()
        self.released["kept_share"] = found.kept_share()
        if bounds.alpha:
            penalty = bounds.alpha * (frame.matrix @ frame.matrix.T)
            phi = np.asarray(np.linalg.solve(np.diag(frame.moments) + penalty, frame.moments * phi))
        if not self._gains(frame, phi, middle, unit):
            phi, self.released["kept_share"] = start, 0.0
        if "mean" in self.terms:
            phi[: frame.lead] += self._mean(weighted, frame, phi, tails)
        return frame.to_rows(phi)

    def _with_covariance(self, rows: Rows, frame: Coordinates, phi: Array, scale: float) -> Array:
        r"""Take the last step with the released curvature, and keep the covariance of what comes out.

        The curvature is the sum of ``w u u^T`` over residuals within their limit; see
        :mod:`~dpconvex.mechanisms.sandwich`.
        """
        length, width = self.limits.clip * frame.typical, self.limits.width * scale
        theta = frame.to_rows(phi)

        def inside(y: Array, z: Array, w: Array) -> Array:
            return np.where(np.abs(y - z) <= width, np.sqrt(w), 0.0)

        def limited(y: Array, z: Array, w: Array) -> Array:
            return np.asarray(w * np.clip(y - z, -width, width) / width)

        curvature, scores = (
            release_products(rows, frame, theta, length, factor, self.terms[name], self.noise)
            for name, factor in (("curvature", inside), ("scores", limited))
        )
        noise = self.terms["curvature"].scale
        inverse, widest = curvature_inverses(curvature, noise, frame.moments)
        step = self._step(rows, frame, phi, scale, "products")[0] * self._height(frame) * self.mass
        std = self.terms["products"].scale * frame.typical * scale
        covariance = sandwich(widest / length**2, scores * (length * width) ** 2, std)
        self.released["covariance"] = frame.matrix.T @ covariance @ frame.matrix
        return frame.to_rows(phi + inverse @ step / length**2)

    def _widened(
        self, frame: Coordinates, phi: Array, scale: float, name: str
    ) -> tuple[float, Tails]:
        """Return a scale whose limit keeps the mean of skewed residuals as far as noise allows, and their tails."""
        predicted = self.rows.predicted(frame.to_rows(phi))
        tails = residual_tails(predicted, scale, self.mass, self.terms["tails"], self.noise)
        width, spread = self.limits.width, self._noise(frame, 1.0, name)
        noise = math.sqrt(float(frame.moments @ spread**2)) / width
        return tails.best(width * scale, noise) / width, tails

    def _gains(self, frame: Coordinates, phi: Array, middle: float, scale: float) -> bool:
        """Return whether squared residuals, none counted beyond a limit, are surely not larger than a constant's.

        Columns may hold numbers that are so rare and so large that nothing else has seen them.
        """
        term, constant = self.terms["gain"], middle if frame.lead else 0.0

        def part(y: Array, z: Array, v: Array) -> tuple[Array]:
            # The difference of both squares as a product: squares alone may exceed all numbers.
            lost = (z - constant) / scale * (((z - y) + (constant - y)) / scale) / _FAR
            # In parts of 64, whose sums are exact where every row is a record; votes round, which is paid for.
            score = np.round(64 * np.clip(np.nan_to_num(lost), -1.0, 1.0)) / 64
            return (np.array([float(v @ score)]),)

        (exact,) = self.rows.predicted(frame.to_rows(phi)).sum_targets(part)
        found = float(self.noise.add(np.asarray(exact), term)[0])
        self.released["gain"] = -found / self.mass
        return found <= _LOST * term.scale

    def _mean(self, rows: Rows, frame: Coordinates, phi: Array, tails: Tails) -> float:
        """Return a private mean of residuals, shortened by what noise alone would be.

        One number has less noise than a product has, so its limit is wider.
        """
        term = self.terms["mean"]
        std = term.scale / self.mass
        limit = tails.best(self.limits.width * tails.scale, std)
        # Every row counts alike, however long, but for void ones; the constant column sums what they are multiplied by.
        alike = rows.rescaled(lambda weights: np.where(weights > 0, 1.0, 0.0))
        (total,) = alike.combine(frame.to_rows(phi), WeightedSlope(Huber(limit)))
        exact = -np.asarray(total)[:1] / limit
        found = float(self.noise.add(exact, term)[0]) / self.mass
        sure = max(0.0, 1 - (std / max(abs(found), 1e-300)) ** 2)
        return limit * found * sure / (1 + (std / _DOUBTFUL) ** 2)

    def _height(self, frame: Coordinates) -> Array:
        """Return the second moments of weighted coordinates to divide by: larger where noise may hide them."""
        moments = (
            frame.moments if frame.doubts is None else np.hypot(frame.moments, frame.doubts[0])
        )
        return np.maximum(min(1.0, self.limits.clip) * moments, 0.05)

    def _step(
        self, rows: Rows, frame: Coordinates, phi: Array, scale: float, name: str
    ) -> tuple[Array, Array]:
        """Return a noisy step from ``phi`` to least squares, and its noise."""
        width, term = self.limits.width, self.terms[name]
        slope = WeightedSlope(Huber(width * scale))
        (total,) = rows.combine(frame.to_rows(phi), slope)
        exact = np.asarray(frame.matrix @ np.asarray(total)) / (frame.typical * scale)
        noisy = self.noise.add(exact, term) * (frame.typical * scale / self.mass)
        return np.asarray(-noisy / self._height(frame)), self._noise(frame, scale, name)

    def _noise(self, frame: Coordinates, scale: float, name: str) -> Array:
        """Return the standard deviation of each coordinate of a step."""
        each = self.terms[name].scale * frame.typical * scale / self.mass
        return np.asarray(each / self._height(frame))

    def _residual_scale(self, frame: Coordinates, phi: Array, scale: float) -> float:
        """Return the private scale of the residuals, at most twice a given one, and not far below without proof."""
        predicted, std = self.rows.predicted(frame.to_rows(phi)), self.terms["residuals"].scale
        counting = Counting(std, self.mass, self.noise, self.bounds.void_rows)
        unsure = std / (self.mass * math.sqrt(RESIDUAL_STEPS))
        belief = Belief(-scale, scale, min(0.5, max(2.0**-10, 2 * unsure)) * scale, 2 * scale)
        _, found = private_location(predicted, residual_of, 0.5, belief, RESIDUAL_STEPS, counting)
        return NORMAL_SCALE * found
