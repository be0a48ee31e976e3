r"""Moments: release counts, sums and second moments, and solve least-squares AUC in closed form.

Least squares over all positive-negative pairs has the minimiser ``(C+ + C- + m m^T + (alpha/2) I)^{-1} m``, with the
classes' covariances and the difference ``m`` of their means. With a pooled covariance for both, what is needed is the
covariance of all rows, one count, and ``m``. Noise is added to few numbers once, and nothing depends on lower bounds
of the class counts. Sums are taken where they are cheapest: around a released centre, in released white coordinates,
of rows shortened to a released typical length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpconvex.core.class_rows import PrivateClasses
from dpconvex.core.queries import Query, prove_sums
from dpconvex.fit.config import mass_share, total_mu
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.objectives.pairwise import PairwiseObjective
from dpconvex.privacy.bounds.pairwise import PairwiseBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, Parameters, Proof, calibrates, proves
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource
from dpconvex.types import Array

SEARCH_STEPS = 6
_LEAST_MASS = 0.01  # of the number of records: they count for at least so much, noise or not
_FLOOR = 0.5  # eigenvalues are raised by this multiple of the noise's spectral norm
_SHORT, _LONG = 0.7, 1.3  # rows are shortened to this multiple of the median length
_AMPLE = 2e-3  # with d / (n mu) below it, bias of shortened rows outweighs noise


def _phases(bounds: PairwiseBounds) -> dict[str, tuple[float, Query, int]]:
    """Return the share of ``mu^2`` of each release, what it is, and how often."""
    vector, n_features = Query("vector", 1.0, bounds.n_features), bounds.n_features
    counted = {"mass": (0.0, Query("count"), 1)} if bounds.ignored_rows else {}
    return {
        **counted,
        "lengths": (0.05, Query("count"), 3 * SEARCH_STEPS),
        "centre": (0.05, vector, 1),
        "count": (0.02, Query("count"), 1),
        "moments": (0.30, Query.moments(n_features), 1),
        "difference": (0.58, vector, 1),
    }


@calibrates("moments")
def calibrate_moments(bounds: PairwiseBounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    """Derive the noise of each release; together they spend ``mu``."""
    if not isinstance(bounds, PairwiseBounds):
        raise ValueError("Moments needs a pairwise objective. Use DPAUCClassifier, or another mechanism.")
    mu, terms = total_mu(guarantee, "Moments"), {}
    mass = mass_share(max(bounds.n_samples * mu, 1e-6)) if bounds.ignored_rows else 0.0
    for name, (share, query, releases) in _phases(bounds).items():
        share = mass if name == "mass" else share * (1 - mass)
        terms[name] = query.term(bounds, mu * math.sqrt(share), releases)
    return Calibration(terms)


@proves("moments")
def prove_moments(certificate: Certificate) -> Proof:
    """Compose the stated counts, sums and second moments."""
    certificate.check_bounds(PairwiseBounds)
    return prove_sums(certificate)


@dataclass(frozen=True)
class Frame:
    """Released white coordinates ``u = matrix (x - centre)``, in which rows are shortened to ``radius``.

    Attributes
    ----------
    centre : array of shape (d,)
        Near the mean of all rows.
    matrix : array of shape (d, d)
        Symmetric; the inverse square root of the (raised) covariance.
    radius : float
        Length that rows are shortened to.
    prevalence : float
        Share of positive records, strictly between 0 and 1.
    difference : array of shape (d,)
        Mean of the positive rows minus mean of the negative ones, in white coordinates.
    mass : float
        Number of rows, public, or released where some may be ignored.
    """

    centre: Array
    matrix: Array
    radius: float
    prevalence: float
    difference: Array
    mass: float

    def midpoint(self) -> Array:
        """Return the point halfway between the class means, in mapped units."""
        return self.centre + np.linalg.solve(self.matrix, (0.5 - self.prevalence) * self.difference)

    def solution(self, alpha: float) -> Array:
        """Return the white coefficients that minimise least-squares AUC with this covariance and difference."""
        p, m = self.prevalence, self.difference
        size = m.size
        # 2 C_within + m m^T with C_within = I - p (1 - p) m m^T, which is positive definite for every p.
        system = 2 * np.eye(size) + (1 - 2 * p * (1 - p)) * np.outer(m, m)
        system += alpha / 2 * self.matrix @ self.matrix
        return np.asarray(np.linalg.solve(system, m))


def private_median(above_half: Callable[[float], float], low: float, high: float) -> float:
    """Return a point near the median of a positive number of the records, on a logarithmic scale.

    Six times the bracket ``[low, high]`` is halved, by whether the noisy number of records below its geometric middle
    exceeds half of them.
    """
    bottom, top = math.log2(low), math.log2(high)
    for _ in range(SEARCH_STEPS):
        middle = (bottom + top) / 2
        many = above_half(2.0**middle) > 0
        bottom, top = (bottom, middle) if many else (middle, top)
    return float(2.0 ** ((bottom + top) / 2))


def private_frame(rows: PrivateClasses, certificate: Certificate) -> Frame:
    """Release everything in turn; see the module's words."""
    bounds, n, d = certificate.bounds, certificate.bounds.n_samples, certificate.bounds.n_features
    mu = total_mu(certificate.guarantee, "Moments")  # for the choice of row length
    reach = _LONG if d / (n * mu) < _AMPLE else _SHORT

    def typical(centre: Array, matrix: Array, low: float, high: float) -> float:
        def above_half(length: float) -> float:
            return rows.count_shorter("lengths", centre, matrix, length) - half

        return reach * private_median(above_half, low, high)

    mass, middle, half = float(n), 0.0, n / 2
    if bounds.ignored_rows:  # what is valid is counted, and the handle centres counts
        mass = min(max(rows.count_all("mass"), _LEAST_MASS * mass), mass)
        middle, half = 0.5, 0.0
    longest, origin, same = bounds.row_norm, np.zeros(d), np.eye(d)
    radius = typical(origin, same, longest / 256, longest)
    centre = radius / mass * rows.row_sum("centre", origin, same, radius)
    share = middle + rows.count_positive("count") / mass
    prevalence = min(max(share, 1 / (mass + 1)), mass / (mass + 1))

    radius = typical(centre, same, longest / 128, 2 * longest)
    moments = rows.second_moments("moments", centre, radius) / mass
    values, vectors = np.linalg.eigh(moments)
    std = rows.terms["moments"].scale
    floor = max(_FLOOR * std / mass * math.sqrt(d / 2), 1e-12)
    raised = np.maximum(values, floor) + floor
    matrix = (vectors / np.sqrt(raised)) @ vectors.T / radius

    radius = typical(centre, matrix, math.sqrt(d) / 64, 4 * math.sqrt(d))
    largest = max(prevalence, 1 - prevalence)
    # Weights that sum to about 0 over all records: an error in the centre does not matter.
    weights = -prevalence / largest, (1 - prevalence) / largest
    signed = rows.row_sum("difference", centre, matrix, radius, weights)
    difference = largest * radius / (mass * prevalence * (1 - prevalence)) * signed
    return Frame(centre, matrix, radius, prevalence, difference, mass)


@dataclass(frozen=True)
class Moments(PrivateMechanism):
    r"""Least-squares AUC from released moments.

    Released are noisy counts of row lengths, the sum of rows, the number of positive records, the second moments of
    all rows around the released centre, and the signed sum of rows in released white coordinates, each row shortened
    to a released length. Where rows may be ignored, their number is released as well.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one with labels that may change. For rows
    in the unit ball the sensitivities are 1 (counts), 2 (sums), ``sqrt(2)`` (second moments, Frobenius norm). Public:
    the number of rows and columns and their bounds. Lower bounds on the class counts are not needed.

    Examples
    --------
    >>> from dpconvex import DPAUCClassifier
    >>> certificate = DPAUCClassifier(mechanism=Moments(), feature_bounds=(0, 1)).certify(1000, 3)
    >>> sorted(certificate.noise)
    ['centre', 'count', 'difference', 'lengths', 'moments']
    """

    name: ClassVar[str] = "moments"

    def _run(self, objective: PairwiseObjective, certificate: Certificate, noise: NoiseSource, record: Facts) -> Array:
        """Return private coefficients; the midpoint of the classes and the prevalence go into ``record``."""
        frame = private_frame(PrivateClasses(objective, certificate, noise), certificate)
        record["midpoint"], record["prevalence"] = frame.midpoint(), frame.prevalence
        if certificate.bounds.ignored_rows:
            record["mass"] = frame.mass
        return frame.matrix @ frame.solution(certificate.bounds.alpha)
