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
from dpconvex.engine.rows import RAW_FARTHEST, RowFunction, RowMap, Rows
from dpconvex.losses import Logistic, Pinball, PointwiseLoss
from dpconvex.mechanisms.column_ranges import PLACES, octaves, octaves_above
from dpconvex.mechanisms.gradient_geometry import LENGTH_STEPS, Look, private_coordinates
from dpconvex.mechanisms.gradient_plan import MIDDLE_HEIGHT, NORMAL_SCALE, Phase
from dpconvex.mechanisms.gradient_run import gradient_sum
from dpconvex.mechanisms.gradient_settings import mass_share, total_mu
from dpconvex.mechanisms.label_counts import count_votes, noisy_label_share
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.mechanisms.quantile_location import TARGET_BINS, Belief, private_location, residual_of
from dpconvex.mechanisms.quantile_search import Counting
from dpconvex.mechanisms.sandwich import (
    Factor,
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
from dpconvex.privacy.guarantees import Guarantee, together
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


def release_facts(bounds: LinearBounds, limits: Limits) -> dict[str, tuple[float, int, int]]:
    """Return the sensitivity, dimension and number of every release.

    Counts move by 1, histograms as :meth:`~dpconvex.privacy.bounds.sums.LinearSums.histogram_sensitivity` says; a
    gradient is a row of length at most ``clip`` typical ones times a slope; curvature and scores are second moments of
    vectors of length at most 1.
    """
    size, columns, count = bounds.dimension, bounds.n_features, bounds.count_sensitivity()
    moments = bounds.moment_sensitivity(), symmetric_entries(size), 1
    low, high = bounds.loss.slope_range
    margin = bounds.loss.kind == "margin"
    gradient = bounds.gradient_sensitivity(limits.clip, bounds.loss.lipschitz)
    if margin:
        start = {"labels": (count, 1, 1)}
    else:
        rough = bounds.gradient_sensitivity(limits.clip, (high - low) / 2)
        start = {
            "octaves": (bounds.histogram_sensitivity(), TARGET_BINS, 1),
            "targets": (count, 1, TARGET_STEPS),
            "rough gradients": (rough, size, ROUGH_STEPS),
            "residuals": (count, 1, RESIDUAL_STEPS),
        }
    histograms = bounds.histogram_sensitivity(columns)
    if bounds.fit_intercept:
        start["places"] = (histograms, PLACES * columns, 1)
    if bounds.void_rows:
        start["mass"] = (count, 1, 1)
    return {
        "scales": (histograms, octaves(limits.above) * columns, 1),
        "lengths": (count, 1, 3 * LENGTH_STEPS),
        "moments": moments,
        "finer moments": moments,
        **start,
        "early gradients": (gradient, size, EARLY_STEPS),
        "middle gradients": (gradient, size, _steps("middle gradients")),
        "curvature": (*moments[:2], len(_ROUNDS) + 1),
        "gradients": (gradient, size, _steps("gradients")),
        "scores": moments,
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
    facts = release_facts(bounds, limits)
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
        name: Phase(releases, shares[name], moved, size).term(mu)
        for name, (moved, size, releases) in facts.items()
    }
    return Calibration(terms, stated={"limits": limits.stated()})


@proves("newton")
def prove_newton(certificate: Certificate) -> Proof:
    """Compose the stated sums: their sensitivities follow from the bounds and the stated limits."""
    certificate.check_bounds(LinearBounds, several=True)
    bounds = certificate.bounds
    if not _offered(bounds.loss):
        raise CertificateError(
            "The certificate's loss is not one that Newton steps are offered for."
        )
    check_whole_rows(bounds)
    facts = release_facts(bounds, Limits(**certificate.parameters["limits"]))
    certificate.check_terms(*facts)
    terms = [
        certificate.term(name, moved, size, "sum", releases)
        for name, (moved, size, releases) in facts.items()
    ]
    relation = bounds.neighbors.replace("_", "-")
    theorem = f"Gaussian DP composition of released counts and sums, {relation}"
    return Proof(together(gaussian_total(terms), certificate.problems), theorem)


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
        run = _Run(objective.rows, certificate, noise)
        theta = run.fit()
        record.update(run.released)
        return theta


class _Run:
    """One run on data."""

    def __init__(self, rows: Rows, certificate: Certificate, noise: NoiseSource) -> None:
        self.rows, self.noise, self.terms = rows, noise, certificate.noise
        self.bounds: LinearBounds = certificate.bounds
        self.loss = cast(PointwiseLoss, self.bounds.loss)
        self.limits = Limits(**certificate.parameters["limits"])
        self.n = self.bounds.n_samples
        self.mass = float(self.n)  # what all records count for
        self.released: Facts = {}

    def fit(self) -> Array:
        """Return coefficients of mapped rows; their covariance is among what was released."""
        bounds, limits = self.bounds, self.limits
        if "mass" in self.terms:
            self.mass = count_votes(self.rows, self.n, self.terms["mass"], self.noise)
            self.released["mass"] = self.mass
        look = Look(
            self.n, None, bounds.fit_intercept, bounds.max_norm, limits.reach, limits.floor,
            limits.trust, bounds.most_cancellation(), filled=self.mass / self.n, above=limits.above,
            ignored=bounds.void_rows,
        )  # fmt: skip
        self.frame, measured = private_coordinates(self.rows, look, self.terms, self.noise)
        self.length = length = limits.clip * self.frame.typical
        self.released["coordinates"] = self.frame.matrix
        self.released["row_length"] = length
        weighted = measured.rescaled(lambda lengths: np.minimum(1.0, length / lengths) ** 2)
        del measured
        if self.loss.kind == "margin":
            phi, width = self._rough_margins(weighted), 1.0
        else:
            phi, width = self._rough_quantile(weighted)
        phi, inverse = self._newton(weighted, phi, width)
        most = float(self.loss.lipschitz)
        slope = WeightedSlope(self.loss)

        def limited(y: Array, z: Array, w: Array) -> Array:
            return np.asarray(slope(y, z, w)[0] / most)

        scores = self._products(weighted, phi, limited, "scores")
        std = (
            self.terms["gradients"].scale
            * self.frame.typical
            / math.sqrt(self.terms["gradients"].releases)
        )
        covariance = sandwich(inverse, scores * (most * self.length) ** 2, std)
        self.released["covariance"] = self.frame.matrix.T @ covariance @ self.frame.matrix
        return self.frame.to_rows(phi)

    def _newton(self, rows: Rows, phi: Array, width: float) -> tuple[Array, Array]:
        """Return the mean of where full Newton steps lead, and the inverse of the curvature, of sums.

        Where full steps lead is the minimiser up to noise and the square of how far away they start. So curvature is
        released again after two of them, and after two more, and steps start from the mean of where those before led,
        weighted by what they know: noise of where they start is a bias of where they lead. The covariance is that of
        the last point, where curvature is released once more. Two releases in a row are of almost the same place, and
        their mean has less noise.
        """
        if self.loss.kind == "margin":
            steepest = float(self.loss.smoothness)

            def bent(y: Array, z: Array, w: Array) -> Array:
                return np.sqrt(w * self.loss.curvature(y, z) / steepest)
        else:
            steepest = 1 / (2 * width)  # a box of this half width, of area 1

            def bent(y: Array, z: Array, w: Array) -> Array:
                return np.where(np.abs(y - z) <= width, np.sqrt(w), 0.0)

        slope, term = WeightedSlope(self.loss), self.terms["curvature"]
        farthest = _FARTHEST if self.loss.kind == "margin" else _FARTHEST * width / _HALF_WIDTH
        units = steepest * self.length**2
        found: list[Array] = []

        def inverses() -> tuple[Array, Array]:
            """Release the curvature at phi, and invert its mean with the one before."""
            found[:] = [*found[-1:], self._products(rows, phi, bent, "curvature")]
            std = term.scale / math.sqrt(len(found))
            return curvature_inverses(np.mean(found, axis=0), std, self.frame.moments)

        ahead, kept = 0.0, np.zeros_like(phi)
        for name, steps in _ROUNDS:
            inverse, _ = inverses()
            if name == "gradients":  # as many of these know as much as all before
                ahead *= (self.terms[name].scale / self.terms["middle gradients"].scale) ** 2
            for step in range(steps):
                way = inverse @ self._gradient(rows, phi, slope, name) / units
                if name == "gradients":
                    kept += (phi - way) / steps
                # Where the way is long, curvature is that of another place.
                short = way * min(1.0, farthest / max(float(np.linalg.norm(way)), 1e-300))
                phi = phi - short / (ahead + step + 1)
            ahead += steps
        phi = kept
        return phi, inverses()[1] / units

    def _products(self, rows: Rows, phi: Array, factor: Factor, name: str) -> Array:
        return release_products(
            rows, self.frame, self.frame.to_rows(phi), self.length, factor,
            self.terms[name], self.noise,
        )  # fmt: skip

    def _gradient(self, rows: Rows, phi: Array, slope: RowFunction, name: str) -> Array:
        """Return a noisy sum of gradients."""
        exact = gradient_sum(rows, self.frame, phi, slope)
        return self.noise.add(exact, self.terms[name]) * self.frame.typical

    def _descend(self, rows: Rows, phi: Array, slope: RowFunction, rate: float, name: str) -> Array:
        """Return the mean of the last iterates of a descent."""
        kept, steps = np.zeros_like(phi), self.terms[name].releases
        for step in range(steps):
            phi = phi - rate * self._gradient(rows, phi, slope, name) / self.mass
            if step >= steps - _KEPT:
                kept += phi / _KEPT
        return kept

    def _rough_margins(self, rows: Rows) -> Array:
        """Descend from the released share of positive labels.

        The rarer one of them is, the flatter the loss: steps are as long as that share says, but for noise.
        """
        term = self.terms["labels"]
        found = noisy_label_share(self.rows, self.mass, term, self.noise, self.bounds.void_rows)
        least = min(2 * term.scale / self.mass, 0.5)
        share = min(max(found, least), 1 - least)
        start = np.zeros(self.frame.matrix.shape[0])
        start[: self.frame.lead] = float(logit(share))
        curved = min(float(self.loss.smoothness), _CURVED * share * (1 - share))
        doubt = self.terms["early gradients"].scale * self.frame.typical / (self.mass * curved)
        rate = 1 / (curved * (1 + (doubt / _DOUBT) ** 2))
        return self._descend(rows, start, WeightedSlope(self.loss), rate, "early gradients")

    def _rough_quantile(self, rows: Rows) -> tuple[Array, float]:
        """Descend to the median, and move the constant to the level; also return the width of a density."""
        level, lead = float(cast(Pinball, self.loss).quantile), self.frame.lead
        low, high = self.loss.slope_range
        start = np.zeros(self.frame.matrix.shape[0])
        middle, scale = private_target(
            self.rows, self.mass, self.terms, self.noise, not self.limits.raw_target,
            self.bounds.void_rows,
        )  # fmt: skip
        start[:lead] = middle
        smooth = convolve(self.loss, LogisticKernel(), _ROUGH_WIDTH * scale)
        rate = _ROUGH_RATE * scale / ((high - low) * MIDDLE_HEIGHT)
        phi = self._descend(
            rows, start, WeightedSlope(smooth, (low + high) / 2), rate, "rough gradients"
        )
        predicted, term = self.rows.predicted(self.frame.to_rows(phi)), self.terms["residuals"]
        counting = Counting(term.scale, self.mass, self.noise, self.bounds.void_rows)
        guess, reach = 3 * scale * float(ndtri(level)), 2 * scale
        belief = Belief(
            min(0.0, guess) - reach, max(0.0, guess) + reach, 2.0**-10 * scale, 2 * scale
        )
        shift, found = private_location(
            predicted, residual_of, level, belief, RESIDUAL_STEPS, counting
        )
        phi[:lead] += shift
        rate = _EARLY_RATE * found / (level * (1 - level))
        phi = self._descend(rows, phi, WeightedSlope(self.loss), rate, "early gradients")
        self.released["residual_scale"] = NORMAL_SCALE * found
        return phi, _HALF_WIDTH * NORMAL_SCALE * found
