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
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.blocks import placed_rows
from dpconvex.engine.rows import RowFunction, Sums
from dpconvex.engine.summation_order import most_additions
from dpconvex.mechanisms.gradient_settings import mass_share, total_mu
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.mechanisms.quantile_search import SEARCH_STEPS, private_median
from dpconvex.mechanisms.symmetric_release import release_symmetric, symmetric_entries
from dpconvex.objectives.pairwise import PairwiseObjective
from dpconvex.privacy.bounds.pairwise import PairwiseBounds
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    Parameters,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.certificates.terms import NoiseTerm, gaussian_total
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.summation import summation_error

Array = NDArray[np.float64]

# Share of mu^2, sensitivity for rows in the unit ball (label changes included), and number of releases.
PHASES = {
    "lengths": (0.05, 1.0, 3 * SEARCH_STEPS),
    "centre": (0.05, 2.0, 1),
    "count": (0.02, 1.0, 1),
    "moments": (0.30, math.sqrt(2), 1),
    "difference": (0.58, 2.0, 1),
}
_FLOOR = 0.5  # eigenvalues are raised by this multiple of the noise's spectral norm
_LEAST_MASS = 0.01  # of the number of records: they count for at least so much, noise or not
_SHORT, _LONG = 0.7, 1.3  # rows are shortened to this multiple of the median length
_AMPLE = 2e-3  # with d / (n mu) below it, bias of shortened rows outweighs noise


def _phases(bounds: PairwiseBounds) -> dict[str, tuple[float, float, int]]:
    """Return the phases of a run; a number of valid rows is among them where rows may be ignored."""
    return PHASES | ({"mass": (0.0, 1.0, 1)} if bounds.void_rows else {})


def _size(name: str, n_features: int) -> int:
    """Return how many numbers a release has."""
    many = {
        "centre": n_features,
        "moments": symmetric_entries(n_features),
        "difference": n_features,
    }
    return many.get(name, 1)


def _moved(bounds: PairwiseBounds, name: str) -> float:
    """Return how far a computed release can move: its sensitivity, and rounding of the sum of unit vectors."""
    exact = _phases(bounds)[name][1]
    if name in ("lengths", "count", "mass"):  # whole numbers, or halves of them
        return exact
    # Two classes are summed apart, then added.
    additions = most_additions(bounds.n_samples, bounds.n_features) + 1
    return exact + 2 * summation_error(bounds.n_samples, bounds.n_features**2, 1.0, additions)


def stated_moments(certificate: Certificate) -> list[NoiseTerm]:
    """Return the moments' terms of a certificate after a check of their sensitivities."""
    bounds = certificate.bounds
    return [
        certificate.term(
            name, _moved(bounds, name), _size(name, bounds.n_features), "sum", releases
        )
        for name, (_, _, releases) in _phases(bounds).items()
    ]


@calibrates("moments")
def calibrate_moments(
    bounds: PairwiseBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of each release; together they spend ``mu``."""
    if not hasattr(bounds, "min_positive"):
        raise ValueError(
            "Moments needs a pairwise objective. Use DPAUCClassifier, or another mechanism."
        )
    mu, terms = total_mu(guarantee, "Moments"), {}
    mass = mass_share(max(bounds.n_samples * mu, 1e-6)) if bounds.void_rows else 0.0
    for name, (share, _, releases) in _phases(bounds).items():
        share = mass if name == "mass" else share * (1 - mass)
        moved, size = _moved(bounds, name), _size(name, bounds.n_features)
        std = released_scale(mu * math.sqrt(share / releases), moved, size)
        terms[name] = NoiseTerm("gaussian", std, moved, size, "sum", releases)
    return Calibration(terms)


@proves("moments")
def prove_moments(certificate: Certificate) -> Proof:
    """Compose the stated counts, sums and second moments."""
    certificate.check_bounds(PairwiseBounds)
    certificate.check_terms(*_phases(certificate.bounds))
    theorem = "Gaussian DP composition of released counts and moments, replace-one"
    return Proof(gaussian_total(stated_moments(certificate)), theorem)


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

    def rows(self, block: Array) -> Array:
        """Return rows in white coordinates in units of the radius, no longer than 1."""
        return shortened(placed_rows(block - self.centre, self.matrix), self.radius)

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


def row_lengths(block: Array) -> Array:
    """Return the rows' norms, rounded up."""
    round_up = 1 + 8 * block.shape[1] * 2.0**-52
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", block, block)) * round_up)


def shortened(block: Array, radius: float) -> Array:
    """Return rows in units of the radius, no longer than 1."""
    return np.asarray(block / np.maximum(row_lengths(block), radius)[:, None])


def private_frame(
    objective: PairwiseObjective, certificate: Certificate, noise: NoiseSource
) -> Frame:
    """Release everything in turn; see the module's words."""
    bounds, terms = certificate.bounds, certificate.noise
    mu = total_mu(certificate.guarantee, "Moments")  # for the choice of row length
    rows, n, d, ignored = objective, bounds.n_samples, bounds.n_features, bounds.void_rows
    reach = _LONG if d / (n * mu) < _AMPLE else _SHORT

    def typical(place: Callable[[Array], Array], low: float, high: float) -> float:
        def length(block: Array, y: Array, w: Array) -> Array:
            return row_lengths(place(block))

        known = None if ignored else n
        return reach * private_median(rows, length, low, high, terms["lengths"], known, noise)

    def release(name: str, part: RowFunction) -> Array:
        (total,) = rows.sum(part)
        return noise.add(np.atleast_1d(total), terms[name])

    longest, mass, middle = bounds.row_norm, float(n), 0.0
    if ignored:  # what is valid is counted, and positive labels around a half of it
        found = float(release("mass", lambda x, y, w: (float(y.size),))[0])
        mass, middle = min(max(found, _LEAST_MASS * mass), mass), 0.5
    radius = typical(lambda block: block, longest / 256, longest)
    centre = radius / mass * release("centre", lambda x, y, w: (shortened(x, radius).sum(0),))

    def positives(x: Array, y: Array, w: Array) -> Sums:
        return (np.count_nonzero(y > 0) - middle * y.size,)

    share = middle + float(release("count", positives)[0]) / mass
    prevalence = min(max(share, 1 / (mass + 1)), mass / (mass + 1))

    radius = typical(lambda block: block - centre, longest / 128, 2 * longest)

    def squares(x: Array, y: Array, w: Array) -> Sums:
        short = shortened(x - centre, radius)
        return (short.T @ short,)

    (total,) = rows.sum(squares)
    moments = release_symmetric(np.asarray(total), terms["moments"], noise) / mass
    std = terms["moments"].scale
    values, vectors = np.linalg.eigh(moments)
    floor = max(_FLOOR * std / mass * math.sqrt(d / 2), 1e-12)
    raised = np.maximum(values, floor) + floor
    matrix = (vectors / np.sqrt(raised)) @ vectors.T / radius

    # Row by row: classes are summed apart, and how many rows either has is private.
    radius = typical(
        lambda block: placed_rows(block - centre, matrix), math.sqrt(d) / 64, 4 * math.sqrt(d)
    )
    frame = Frame(centre, matrix, radius, prevalence, np.zeros(d), mass)
    largest = max(prevalence, 1 - prevalence)

    def signed(x: Array, y: Array, w: Array) -> Sums:
        # Weights that sum to about 0 over all records: an error in the centre does not matter. None exceeds 1, and a
        # record that changes its label moves the sum by 1 / largest <= 2 at most.
        weights = np.where(y > 0, 1 - prevalence, -prevalence) / largest
        return (weights @ frame.rows(x),)

    scale = largest * radius / (mass * prevalence * (1 - prevalence))
    difference = scale * release("difference", signed)
    return replace(frame, difference=difference)


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

    def _run(
        self,
        objective: PairwiseObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        """Return private coefficients; the midpoint of the classes and the prevalence go into ``record``."""
        frame = private_frame(objective, certificate, noise)
        record["midpoint"], record["prevalence"] = frame.midpoint(), frame.prevalence
        if certificate.bounds.void_rows:
            record["mass"] = frame.mass
        return frame.matrix @ frame.solution(certificate.bounds.alpha)
