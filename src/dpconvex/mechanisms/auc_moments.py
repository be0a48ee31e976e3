r"""AUC from released moments: least squares over pairs.

Least squares over all positive-negative pairs has the minimiser
``(C+ + C- + m m^T + (alpha/2) I)^{-1} m``, with the classes' covariances and the difference ``m``
of their means. With a pooled covariance for both, what is needed is the covariance of all rows, one
count, and ``m``. Noise is added to few numbers once, and nothing depends on lower bounds of the
class counts. Sums are taken where they are cheapest: around a released centre, in released white
coordinates, of rows clipped to a multiple of their released median norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.queries import Query, prove_queries
from dpconvex.fit.fit_plan import gaussian_budget, planned_mass_share
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.pairwise_objective import PairwiseObjective
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex.releases.auc_pairs import PrivatePairs
from dpconvex.types import Array

SEARCH_STEPS = 6
_LEAST_MASS = 0.01  # least share of the records that a released number may state
_EIGENVALUE_FLOOR = 0.5  # eigenvalues are raised by this multiple of the noise's spectral norm
# rows are clipped to this multiple of their median norm
_SMALL_CLIP = 0.7
_LARGE_CLIP = 1.3
_AMPLE = 2e-3  # with d / (n mu) below it, the bias of clipped rows outweighs noise


@dataclass(frozen=True)
class Moments(PrivateMechanism):
    r"""Least-squares AUC from released moments.

    Released are noisy counts of row norms, the sum of rows, the number of positive records, the
    second moments of all rows around the released centre, and the signed sum of rows in released
    white coordinates, each row clipped to a released norm. Where rows may be ignored, their number
    is released as well.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one with labels that
    may change. For rows in the unit ball the sensitivities are 1 (counts), 2 (sums), ``sqrt(2)``
    (second moments, Frobenius norm). Public: the number of rows and columns and their bounds. Lower
    bounds on the class counts are not needed.

    Examples
    --------
    >>> from dpconvex import DPAUCClassifier
    >>> certificate = DPAUCClassifier(mechanism=Moments(), feature_bounds=(0, 1)).certify(1000, 3)
    >>> sorted(certificate.noise)
    ['centre', 'count', 'difference', 'lengths', 'moments']
    """

    name: ClassVar[str] = "moments"
    carries: ClassVar[Carries] = Carries(bounds=(PairwiseBounds,), ignored_rows=True)
    fits: ClassVar[frozenset[str]] = frozenset({"ranking"})
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (ApproxDP, GaussianDP)
    takes_partitions: ClassVar[bool] = True
    noise_enters: ClassVar[str] = (
        "noise is added to moments, from which the coefficients are computed"
    )
    method: ClassVar[str] = (
        "A few totals of the data (counts, sums, and sums of products of columns, in which no "
        "record weighs more than a fixed limit) were published with random noise. The "
        "coefficients were computed from these totals alone."
    )
    quantities: ClassVar[dict[str, str]] = {
        "mass": "number of valid records",
        "lengths": "median row norm",
        "centre": "mean row",
        "count": "number of positive labels",
        "moments": "second moments of the columns",
        "difference": "difference of the classes",
    }

    @classmethod
    def calibrate(
        cls, bounds: PairwiseBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        """Derive the noise of each release; together they spend ``mu``."""
        if not isinstance(bounds, PairwiseBounds):
            raise ValueError(
                "Moments needs a pairwise objective. Use DPAUCClassifier, or another mechanism."
            )
        mu = gaussian_budget(guarantee, "Moments")
        terms = {}
        mass = planned_mass_share(max(bounds.n_samples * mu, 1e-6)) if bounds.ignored_rows else 0.0
        for name, (share, query, releases) in _auc_moment_releases(bounds).items():
            share = mass if name == "mass" else share * (1 - mass)
            terms[name] = query.calibrated_noise(bounds, mu * math.sqrt(share), releases)
        return CertificateCalibration(terms)

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Compose the stated counts, sums and second moments."""
        return prove_queries(certificate)

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide a ranking: the user's penalty, or none."""
        if request.neighbors != "replace_one":
            raise ValueError(
                f"The 'mechanism' parameter of {request.owner} must not be 'moments' under "
                "add_or_remove_one: their sensitivities are known for a replaced record. Use "
                "'gradient', 'objective' or 'output'."
            )
        return self.decide(request, replace(request.bounds, alpha=request.alpha or 0.0))

    def _run(
        self,
        objective: PairwiseObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        return fit_auc_moments(PrivatePairs(objective, certificate, noise), certificate, record)


def _auc_moment_releases(bounds: PairwiseBounds) -> dict[str, tuple[float, Query, int]]:
    """Return the share of ``mu^2`` of each release of AUC moments, what it is, and how often."""
    vector = Query("vector", 1.0, bounds.n_features)
    n_features = bounds.n_features
    counted = {"mass": (0.0, Query("count"), 1)} if bounds.ignored_rows else {}
    return {
        **counted,
        "lengths": (0.05, Query("count"), 3 * SEARCH_STEPS),
        "centre": (0.05, vector, 1),
        "count": (0.02, Query("count"), 1),
        "moments": (0.30, Query.moments(n_features), 1),
        "difference": (0.58, vector, 1),
    }


def private_auc_median(above_half: Callable[[float], float], low: float, high: float) -> float:
    """Return a point near the median of an AUC statistic by six steps of noisy bisection, on a log
    scale.

    ``above_half`` is the noisy number of records below a point less half of all; ``[low, high]``
    the first bracket.
    """
    bottom = math.log2(low)
    top = math.log2(high)
    for _ in range(SEARCH_STEPS):
        middle = (bottom + top) / 2
        many = above_half(2.0**middle) > 0
        bottom, top = (bottom, middle) if many else (middle, top)
    return float(2.0 ** ((bottom + top) / 2))


def fit_auc_moments(rows: PrivatePairs, certificate: Certificate, record: Facts) -> Array:
    """Return AUC coefficients from released median norms, centre, prevalence, second moments and
    class difference.

    Midpoint of the class means and prevalence go into ``record``, and the number of rows where some
    may be ignored.
    """
    bounds = certificate.bounds
    n = certificate.bounds.n_samples
    d = certificate.bounds.n_features
    mu = gaussian_budget(certificate.guarantee, "Moments")  # for the choice of row length
    clip_multiple = _LARGE_CLIP if d / (n * mu) < _AMPLE else _SMALL_CLIP

    def clip_radius(centre: Array, matrix: Array, low: float, high: float) -> float:
        def above_half(length: float) -> float:
            return float(rows.count_shorter("lengths", centre, matrix, length) - half)

        return clip_multiple * private_auc_median(above_half, low, high)

    mass = float(n)
    middle = 0.0
    half = n / 2
    if bounds.ignored_rows:  # what is valid is counted, and the handle centres counts
        mass = min(max(rows.count_all("mass"), _LEAST_MASS * mass), mass)
        middle = 0.5
        half = 0.0
    longest = bounds.row_norm
    origin = np.zeros(d)
    same = np.eye(d)
    radius = clip_radius(origin, same, longest / 256, longest)
    centre = radius / mass * rows.row_sum("centre", origin, same, radius)
    share = middle + rows.count_positive("count") / mass
    prevalence = min(max(share, 1 / (mass + 1)), mass / (mass + 1))

    radius = clip_radius(centre, same, longest / 128, 2 * longest)
    moments = rows.second_moments("moments", centre, radius) / mass
    values, vectors = np.linalg.eigh(moments)
    floor = max(_EIGENVALUE_FLOOR * rows.terms["moments"].scale / mass * math.sqrt(d / 2), 1e-12)
    raised = np.maximum(values, floor) + floor
    matrix = (vectors / np.sqrt(raised)) @ vectors.T / radius

    radius = clip_radius(centre, matrix, math.sqrt(d) / 64, 4 * math.sqrt(d))
    largest = max(prevalence, 1 - prevalence)
    # Weights that sum to about 0 over all records: an error in the centre does not matter.
    weights = -prevalence / largest, (1 - prevalence) / largest
    signed = rows.row_sum("difference", centre, matrix, radius, weights)
    difference = largest * radius / (mass * prevalence * (1 - prevalence)) * signed

    record["midpoint"] = centre + np.linalg.solve(matrix, (0.5 - prevalence) * difference)
    record["prevalence"] = prevalence
    if bounds.ignored_rows:
        record["mass"] = mass
    # 2 C_within + m m^T with C_within = I - p (1 - p) m m^T, which is positive definite for every
    # p.
    system = 2 * np.eye(d) + (1 - 2 * prevalence * (1 - prevalence)) * np.outer(
        difference, difference
    )
    system += bounds.alpha / 2 * matrix @ matrix
    return np.asarray(matrix @ np.linalg.solve(system, difference))
