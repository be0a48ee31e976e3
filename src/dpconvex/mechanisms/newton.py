r"""Newton steps along noisy gradients: an estimate whose error is known, for confidence intervals.

In private coordinates rows are weighted by ``w = min(1, clip / ||u||)^2``, so that neither their gradients nor their
curvature need any other limit. A rough descent finds the neighbourhood of the minimiser, releases of the curvature
and a few Newton steps after each a point so near that more steps lead to the minimiser up to the mean of their noise;
two more releases say how curved the loss is there and how gradients of records vary. Nothing is shrunk,
calibrated or given up: the estimate is about the minimiser of the weighted loss.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, ndtri

from dpconvex.checks import check_number
from dpconvex.core.queries import Query, largest_cancellation, prove_sums
from dpconvex.core.release import PrivateRows, Statistic
from dpconvex.core.slopes import Factor, Slope
from dpconvex.engine.rows import RAW_FARTHEST, RowMap
from dpconvex.losses import Logistic, Pinball, PointwiseLoss
from dpconvex.mechanisms.column_ranges import PLACES, octaves, octaves_above
from dpconvex.mechanisms.gradient_geometry import LENGTH_STEPS, Look, private_coordinates
from dpconvex.mechanisms.gradient_plan import MIDDLE_HEIGHT, NORMAL_SCALE, Phase
from dpconvex.mechanisms.gradient_settings import mass_share, total_mu
from dpconvex.mechanisms.label_counts import count_votes, noisy_label_share
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.mechanisms.quantile_location import TARGET_BINS, Belief, private_location
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
from dpconvex.smoothing import LogisticKernel, convolve

__all__ = ["NewtonSteps"]

Array = NDArray[np.float64]

ROUGH_STEPS, EARLY_STEPS, RESIDUAL_STEPS = 10, 8, 14
# Newton steps from one release of the curvature to the next.
_ROUNDS = (("middle gradients", 2), ("middle gradients", 2), ("gradients", 8))
# Shares of mu^2; the Newton steps take the rest.
_SHARES = {
    "scales": 0.02,
    "lengths": 0.02,
    "moments": 0.06,
    "finer moments": 0.06,
    "early gradients": 0.10,
    "middle gradients": 0.10,
    "curvature": 0.20,
    "scores": 0.05,
}
_LABELS = {"labels": 0.01}
_PLACES, _RAW_OCTAVES = (
    0.02,
    0.03,
)  # of what columns are centred by; of a target without public bounds
_TARGETS = {"octaves": 0.01, "targets": 0.03, "rough gradients": 0.09, "residuals": 0.03}
_ROUGH_WIDTH = 0.4  # over which a rough quantile is smoothed, in units of the target's scale
_ROUGH_RATE, _EARLY_RATE = 1.2, 0.8  # of steps, in units of the inverse curvature that is expected
_KEPT = 4  # iterates of a descent that are averaged
_HALF_WIDTH = 0.4  # of the residuals whose share tells a density, in units of their scale
_CURVED = 2.5  # times the variance of labels: the curvature that steps of a rough logistic descent are for
_DOUBT = 0.7  # noise of such a step, in typical margins, with which half of it is taken
_FARTHEST = (
    1.0  # that one Newton step moves, in typical margins or in units of the residuals' scale
)


@dataclass(frozen=True)
class Limits:
    """The public choices of a run, which its certificate states.

    Attributes
    ----------
    clip : float
        Length in units of a typical row from which on rows count less.
    floor, trust, reach : float
        Of the coordinates, see :class:`~dpconvex.mechanisms.gradient_geometry.Look`.
    above : int
        Octaves above 1 that columns may reach: more than 0 where no bounds of columns are public.
    raw_target : bool
        Whether no bounds of the target are public, so that its unit must be found.
    """

    clip: float
    floor: float
    trust: float
    reach: float
    above: int = 0
    raw_target: bool = False

    def __post_init__(self) -> None:
        for name in ("clip", "floor", "trust", "reach"):
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
    """Return limits that open with the number of records per coefficient that noise leaves."""
    records = max(bounds.n_samples * mu, 1e-6) / bounds.dimension
    return Limits(
        clip=math.sqrt(1 + records / 1000),
        floor=0.5 * math.sqrt(1 + 5 / records),
        trust=1 / (1 + 300 / records),
        reach=1.1 * math.sqrt(1 + records / 2000),
        above=octaves_above(bounds),
        raw_target=bounds.loss.kind != "margin" and parameters.get("target_bounds", ()) is None,
    )


def _queries(bounds: LinearBounds, limits: Limits) -> dict[str, tuple[Query, int]]:
    """Return what is released, and how often.

    A gradient is a row of length at most ``clip`` typical ones times a slope; curvature and scores are second moments
    of vectors of length at most 1.
    """
    size, columns, count = bounds.dimension, bounds.n_features, Query("count")
    moments = Query.moments(size)
    low, high = bounds.loss.slope_range
    gradient = Query("vector", limits.clip * float(bounds.loss.lipschitz), size)
    if bounds.loss.kind == "margin":
        start = {"labels": (count, 1)}
    else:
        start = {
            "octaves": (Query.histograms(TARGET_BINS), 1),
            "targets": (count, TARGET_STEPS),
            "rough gradients": (Query("vector", limits.clip * (high - low) / 2, size), ROUGH_STEPS),
            "residuals": (count, RESIDUAL_STEPS),
        }
    if bounds.fit_intercept:
        start["places"] = (Query.histograms(PLACES, columns), 1)
    if bounds.void_rows:
        start["mass"] = (count, 1)
    return {
        "scales": (Query.histograms(octaves(limits.above), columns), 1),
        "lengths": (count, 3 * LENGTH_STEPS),
        "moments": (moments, 1),
        "finer moments": (moments, 1),
        **start,
        "early gradients": (gradient, EARLY_STEPS),
        "middle gradients": (gradient, _steps("middle gradients")),
        "curvature": (moments, len(_ROUNDS) + 1),
        "gradients": (gradient, _steps("gradients")),
        "scores": (moments, 1),
    }


def _steps(name: str) -> int:
    return sum(steps for gradients, steps in _ROUNDS if gradients == name)


def _offered(loss: object) -> bool:
    return type(loss) in (Logistic, Pinball)


@calibrates("newton")
def calibrate_newton(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of every release; together, and over all problems, they spend ``mu``."""
    if not _offered(bounds.loss):
        raise ValueError(
            f"NewtonSteps minimises Logistic() or Pinball(quantile), but the loss is {type(bounds.loss).__name__}. "
            "Use another mechanism."
        )
    check_whole_rows(bounds)
    mu = total_mu(guarantee, "NewtonSteps") / math.sqrt(parameters.get("problems", 1))
    limits = _limits(bounds, mu, parameters)
    facts = _queries(bounds, limits)
    shares = _SHARES | (_LABELS if bounds.loss.kind == "margin" else _TARGETS)
    if "places" in facts:
        shares["places"] = _PLACES
    if limits.raw_target:
        shares["octaves"] += _RAW_OCTAVES
    if bounds.void_rows:  # everything else shares what is left
        mass = mass_share(max(bounds.n_samples * mu, 1e-6))
        shares = {name: share * (1 - mass) for name, share in shares.items()} | {"mass": mass}
    shares["gradients"] = 1 - sum(shares.values())
    terms = {
        name: Phase(query, bounds, shares[name], releases).term(mu)
        for name, (query, releases) in facts.items()
    }
    return Calibration(terms, stated={"limits": limits.stated()})


@proves("newton")
def prove_newton(certificate: Certificate) -> Proof:
    """Compose the stated sums."""
    certificate.check_bounds(LinearBounds, several=True)
    return prove_sums(certificate)


@dataclass(frozen=True)
class NewtonSteps(PrivateMechanism):
    r"""Newton steps along noisy gradients, and the covariance of where they lead.

    With rows ``u`` in released coordinates and ``w = min(1, clip / ||u||)^2`` each step moves the coefficients against
    ``H^-1 (sum_i w_i l'_i u_i + noise)``, ``H`` a released curvature; the estimate is the mean of where full steps
    would lead from the second release of H on. For a quantile the curvature is the share of residuals within half
    their scale, per width.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or add-or-remove-one. Every limit is
    public or was released and paid for.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP, LinearBounds
    >>> bounds = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.0)
    >>> certificate = NewtonSteps().certify(bounds, ApproxDP(1.0, 1e-6))
    >>> certificate.mechanism, certificate.guarantee
    ('newton', ApproxDP(epsilon=1.0, delta=1e-06))
    """

    name: ClassVar[str] = "newton"

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
        self.loss = cast(PointwiseLoss, self.bounds.loss)
        self.limits = Limits(**certificate.parameters["limits"])
        self.n = self.bounds.n_samples
        self.mass = float(self.n)  # what all records count for
        self.released: Facts = {}

    def fit(self) -> Array:
        """Return coefficients of mapped rows; their covariance is among what was released."""
        bounds, limits = self.bounds, self.limits
        if "mass" in self.terms:
            self.mass = count_votes(self.rows, "mass", self.n)
            self.released["mass"] = self.mass
        look = Look(
            self.n, None, bounds.fit_intercept, bounds.max_norm, limits.reach, limits.floor,
            limits.trust, largest_cancellation(bounds), filled=self.mass / self.n, above=limits.above,
        )  # fmt: skip
        self.frame = private_coordinates(self.rows, look)
        self.length = length = limits.clip * self.frame.typical
        self.released["coordinates"] = self.frame.matrix
        self.released["row_length"] = length
        if self.loss.kind == "margin":
            phi, width = self._rough_margins(), 1.0
        else:
            phi, width = self._rough_quantile()
        phi, inverse = self._newton(phi, width)
        most = float(self.loss.lipschitz)
        limited = Factor("slope", self.loss, weighting="square")
        scores = self._products(phi, limited, "scores")
        std = (
            self.terms["gradients"].scale
            * self.frame.typical
            / math.sqrt(self.terms["gradients"].releases)
        )
        covariance = sandwich(inverse, scores * (most * self.length) ** 2, std)
        self.released["covariance"] = self.frame.matrix.T @ covariance @ self.frame.matrix
        return self.frame.to_rows(phi)

    def _newton(self, phi: Array, width: float) -> tuple[Array, Array]:
        """Return the mean of where full Newton steps lead, and the inverse of the curvature, of sums.

        Where full steps lead is the minimiser up to noise and the square of how far away they start. So curvature is
        released again after two of them, and after two more, and steps start from the mean of where those before led,
        weighted by what they know: noise of where they start is a bias of where they lead. The covariance is that of
        the last point, where curvature is released once more. Two releases in a row are of almost the same place, and
        their mean has less noise.
        """
        if self.loss.kind == "margin":
            steepest = float(self.loss.smoothness)
            bent = Factor("curvature", self.loss, weighting="square")
        else:
            steepest = 1 / (2 * width)  # a box of this half width, of area 1
            bent = Factor("inside", width=width, weighting="square")
        slope, term = Slope(self.loss, weighting="square"), self.terms["curvature"]
        farthest = _FARTHEST if self.loss.kind == "margin" else _FARTHEST * width / _HALF_WIDTH
        units = steepest * self.length**2
        found: list[Array] = []

        def inverses() -> tuple[Array, Array]:
            """Release the curvature at phi, and invert its mean with the one before."""
            found[:] = [*found[-1:], self._products(phi, bent, "curvature")]
            std = term.scale / math.sqrt(len(found))
            return curvature_inverses(np.mean(found, axis=0), std, self.frame.moments)

        ahead, kept = 0.0, np.zeros_like(phi)
        for name, steps in _ROUNDS:
            inverse, _ = inverses()
            if name == "gradients":  # as many of these know as much as all before
                ahead *= (self.terms[name].scale / self.terms["middle gradients"].scale) ** 2
            for step in range(steps):
                way = inverse @ self._gradient(phi, slope, name) / units
                if name == "gradients":
                    kept += (phi - way) / steps
                # Where the way is long, curvature is that of another place.
                short = way * min(1.0, farthest / max(float(np.linalg.norm(way)), 1e-300))
                phi = phi - short / (ahead + step + 1)
            ahead += steps
        phi = kept
        return phi, inverses()[1] / units

    def _products(self, phi: Array, factor: Factor, name: str) -> Array:
        frame = self.frame
        return self.rows.second_moments(name, frame, self.length, factor, frame.to_rows(phi))

    def _gradient(self, phi: Array, slope: Slope, name: str) -> Array:
        """Return a noisy sum of gradients."""
        frame = self.frame
        return self.rows.slope_sum(name, frame.to_rows(phi), slope, frame, frame.typical)

    def _descend(self, phi: Array, slope: Slope, rate: float, name: str) -> Array:
        """Return the mean of the last iterates of a descent."""
        kept, steps = np.zeros_like(phi), self.terms[name].releases
        for step in range(steps):
            phi = phi - rate * self._gradient(phi, slope, name) / self.mass
            if step >= steps - _KEPT:
                kept += phi / _KEPT
        return kept

    def _rough_margins(self) -> Array:
        """Descend from the released share of positive labels.

        The rarer one of them is, the flatter the loss: steps are as long as that share says, but for noise.
        """
        found = noisy_label_share(self.rows, "labels", self.mass)
        least = min(2 * self.terms["labels"].scale / self.mass, 0.5)
        share = min(max(found, least), 1 - least)
        start = np.zeros(self.frame.matrix.shape[0])
        start[: self.frame.lead] = float(logit(share))
        curved = min(float(self.loss.smoothness), _CURVED * share * (1 - share))
        doubt = self.terms["early gradients"].scale * self.frame.typical / (self.mass * curved)
        rate = 1 / (curved * (1 + (doubt / _DOUBT) ** 2))
        slope = Slope(self.loss, weighting="square")
        return self._descend(start, slope, rate, "early gradients")

    def _rough_quantile(self) -> tuple[Array, float]:
        """Descend to the median, and move the constant to the level; also return the width of a density."""
        level, lead = float(cast(Pinball, self.loss).quantile), self.frame.lead
        low, high = self.loss.slope_range
        start = np.zeros(self.frame.matrix.shape[0])
        middle, scale = private_target(self.rows, self.mass, not self.limits.raw_target)
        start[:lead] = middle
        smooth = convolve(self.loss, LogisticKernel(), _ROUGH_WIDTH * scale)
        rate = _ROUGH_RATE * scale / ((high - low) * MIDDLE_HEIGHT)
        slope = Slope(smooth, (low + high) / 2, "square")
        phi = self._descend(start, slope, rate, "rough gradients")
        guess, reach = 3 * scale * float(ndtri(level)), 2 * scale
        belief = Belief(
            min(0.0, guess) - reach, max(0.0, guess) + reach, 2.0**-10 * scale, 2 * scale
        )
        residual = Statistic("residual", self.frame.to_rows(phi))
        shift, found = private_location(
            self.rows, "residuals", residual, level, belief, RESIDUAL_STEPS, self.mass
        )
        phi[:lead] += shift
        rate = _EARLY_RATE * found / (level * (1 - level))
        slope = Slope(self.loss, weighting="square")
        phi = self._descend(phi, slope, rate, "early gradients")
        self.released["residual_scale"] = NORMAL_SCALE * found
        return phi, _HALF_WIDTH * NORMAL_SCALE * found
