r"""Objective perturbation of pairwise objectives: one record meets all records of the other class.

The Hessian changes by a matrix of full rank when one record changes, but of small trace. Noise enters the objective as
``F(w) + <b, w>``: F is a mean over pairs, and so is the sensitivity of its gradient. Public bounds on the length of
rows are often loose, and noise is proportional to it: a tenth of the budget can find a typical length first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_number
from dpconvex.mechanisms.mechanism import check_objective
from dpconvex.mechanisms.moments import row_lengths, shortened
from dpconvex.mechanisms.objective import RELEASE_SHARE, check_smooth, inexactness, release_term
from dpconvex.mechanisms.search import SEARCH_STEPS, private_median
from dpconvex.privacy.bounds.pairwise import (
    PairwiseBounds,
    pairwise_delta,
    pairwise_laplace_scale,
    pairwise_scale,
)
from dpconvex.privacy.calibration import gaussian_mu, released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, Proof, calibrates, proves
from dpconvex.privacy.certificates.terms import NoiseTerm, gaussian_total, pure_total
from dpconvex.privacy.guarantees import ApproxDP, Guarantee, PureDP
from dpconvex.privacy.noise import NoiseSource

__all__ = ["LONGEST", "WIDEST", "PairwiseObjectivePerturbation"]

# Public bounds on the length of rows, whose typical length is found privately, and on the distance of two of them.
LONGEST, WIDEST = "longest_row", "widest_pair"
_SEARCH_SHARE = 0.1


def _check_loss(bounds: PairwiseBounds) -> None:
    """Raise unless the proof applies: a smooth loss whose slope is bounded everywhere, and a penalty."""
    check_smooth(bounds)
    if not math.isfinite(float(bounds.loss.lipschitz)):
        raise ValueError(
            f"Objective perturbation of pairs needs a loss of bounded slope, but {type(bounds.loss).__name__} has "
            "lipschitz=inf. Use the moments mechanism, output perturbation, or the logistic or hinge loss."
        )


def _check_units(bounds: PairwiseBounds, parameters: Mapping[str, Any]) -> None:
    """Raise unless the bounds are those of rows in units of a length that is found first: up to 2 apart."""
    longest, widest = (
        check_number(name, "auc-objective", parameters[name], "above 0", 0, math.inf, low_open=True)
        for name in (LONGEST, WIDEST)
    )
    if not (bounds.distance >= 2 and widest <= 2 * longest * (1 + 1e-9)):
        raise ValueError("Rows in units of a released length can lie 2 apart.")


@calibrates("auc-objective")
def calibrate_pairwise_objective(
    bounds: PairwiseBounds, guarantee: Guarantee, parameters: Mapping[str, Any]
) -> Calibration:
    r"""Derive the two noise terms: 99 % of the budget for ``b``, 1 % for the distance to the exact minimiser.

    Gaussian ``b`` by the Rényi curve in trace form, l2-Laplace ``b`` for pure epsilon; ``Gamma`` and ``kappa`` are
    those of :class:`~dpconvex.privacy.bounds.pairwise.PairwiseBounds`. Where a typical length of rows is found first,
    10 % pay for six noisy counts, 89 % for ``b``, and the bounds are those of rows in units of that length.
    """
    _check_loss(bounds)
    facts = (bounds.gradient_sensitivity, bounds.curvature_ratio)
    search = _SEARCH_SHARE if LONGEST in parameters else 0.0
    dimension, keep = bounds.dimension, 1 - RELEASE_SHARE - search
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        epsilon, delta = guarantee.epsilon_bound, guarantee.delta_bound
        law, scale = "gaussian", pairwise_scale(keep * epsilon, keep * delta, *facts)
        budget = gaussian_mu(RELEASE_SHARE * epsilon, RELEASE_SHARE * delta)
        counted = gaussian_mu(search * epsilon, search * delta) if search else 0.0
        counted /= math.sqrt(SEARCH_STEPS)
    elif isinstance(guarantee, (PureDP, ApproxDP)):
        epsilon = guarantee.epsilon_bound
        law, scale = "l2-laplace", pairwise_laplace_scale(keep * epsilon, *facts, dimension)
        budget, counted = RELEASE_SHARE * epsilon, search * epsilon / SEARCH_STEPS
    else:
        raise ValueError(
            f"Objective perturbation offers PureDP and ApproxDP. Got {guarantee!r} instead. "
            "Give epsilon and delta, or use output perturbation, gradient or moments."
        )
    noise: dict[str, NoiseTerm] = {}
    if search:
        counts = released_scale(counted, 1.0, 1)
        noise["lengths"] = NoiseTerm(law, counts, 1.0, 1, "count", SEARCH_STEPS)
    tilt = NoiseTerm(law, scale, bounds.gradient_sensitivity, dimension, "mean")
    tolerance = bounds.solver_tolerance(tilt.largest)
    noise["objective"] = tilt
    noise["release"] = release_term(bounds, tilt, 1, tolerance, budget)
    return Calibration(noise, tolerance)


@proves("auc-objective")
def prove_pairwise_objective(certificate: Certificate) -> Proof:
    """Add what the search for a length, the tilt and the release noise cost."""
    bounds, size = certificate.bounds, certificate.bounds.dimension
    certificate.check_bounds(PairwiseBounds)
    _check_loss(bounds)
    search = ("lengths",) if LONGEST in certificate.parameters else ()
    if search:
        _check_units(bounds, certificate.parameters)
    certificate.check_terms("objective", "release", *search)
    tolerance = certificate.check_tolerance()
    tilt = certificate.term("objective", bounds.gradient_sensitivity, size, "mean")
    moved = inexactness(bounds, tilt, 1, tolerance)
    release = certificate.term("release", moved, size, "coefficients", tolerance=tolerance)
    counts = [certificate.term(name, 1.0, 1, "count", SEARCH_STEPS) for name in search]
    relation, kappa = bounds.relation.replace("_", "-"), bounds.curvature_ratio
    if tilt.distribution == "gaussian":
        if not isinstance(certificate.guarantee, ApproxDP):
            raise ValueError("Gaussian objective perturbation proves (epsilon, delta)-DP only.")
        epsilon = certificate.guarantee.epsilon_bound
        searched = _SEARCH_SHARE if search else 0.0
        delta = pairwise_delta(
            (1 - RELEASE_SHARE - searched) * epsilon,
            bounds.gradient_sensitivity / tilt.scale,
            kappa,
        )
        delta += gaussian_total([release]).delta(RELEASE_SHARE * epsilon)
        if search:
            delta += gaussian_total(counts).delta(searched * epsilon)
        theorem = (
            f"Gaussian objective perturbation of pairs, {relation}, Rényi profile in trace form"
        )
        return Proof(ApproxDP(epsilon, min(delta, 1 - 2.0**-53)), theorem)
    tilted = bounds.gradient_sensitivity / tilt.scale + size * math.log1p(kappa / size)
    proven = PureDP(tilted + pure_total([release, *counts]).epsilon_bound)
    return Proof(proven, f"l2-Laplace objective perturbation of pairs, {relation}, trace form")


@dataclass(frozen=True)
class PairwiseObjectivePerturbation:
    r"""Minimise a randomly tilted pairwise objective, ``F(w) + <b, w>``.

    Parameters
    ----------
    solver : Solver, str or callable, optional
        As for :class:`OutputPerturbation`: its answer is certified at the point returned and polished where it stopped
        short. By default Newton's method up to about 500 coefficients and L-BFGS beyond.

    Notes
    -----
    With ``longest_row`` among the certificate's parameters, the unit of length is released first (a typical length, to
    which rows are shortened, or half the public distance of two rows); bounds and alpha are in units of it.

    Privacy: (epsilon, delta)-DP with Gaussian ``b`` and pure epsilon-DP with l2-Laplace ``b``, under replace-one with
    labels that may change. Public: the number of rows, dimensions, bounds, alpha, the loss, and lower bounds on the
    class counts.
    """

    solver: Any = None
    name: ClassVar[str] = "auc-objective"

    def certify(
        self,
        bounds: PairwiseBounds,
        guarantee: Guarantee,
        parameters: Mapping[str, Any] | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate from public facts."""
        from dpconvex.solvers.black_box import check_solver

        check_solver(self.solver, "PairwiseObjectivePerturbation")
        return Certificate.issue(self.name, bounds, guarantee, parameters, seeded)

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Any = None,
        record: dict[str, Any] | None = None,
    ) -> NDArray[np.float64]:
        """Return the minimiser of the perturbed objective, with the noise that pays for its inexactness."""
        from dpconvex.solvers import certified_point

        # Rows come in public units; the bounds are those of rows in units of a length that is found first.
        given = certificate.parameters
        raw = {"row_norm": given[LONGEST], "diameter": given[WIDEST]} if LONGEST in given else {}
        check_objective(objective, certificate, **raw)
        noise, terms = NoiseSource.of(rng), certificate.noise
        tilt = noise.draw(terms["objective"])
        unit = 1.0
        if "lengths" in terms:
            objective, unit = self._in_units(objective, certificate, noise)
            if record is not None:
                record["row_length"] = unit
        tilted = objective.with_linear(tilt)
        start = np.zeros(tilt.size)
        point = certified_point(self.solver, tilted, start, certificate.solver_tolerance)
        return noise.add(point, terms["release"]) / unit

    @staticmethod
    def _in_units(
        objective: Any, certificate: Certificate, noise: NoiseSource
    ) -> tuple[Any, float]:
        """Return the objective of rows no two of which are further apart than 2, and their unit.

        The unit is a released length near the median of the rows', to which they are shortened, if that at least
        halves the noise. Otherwise it is half the public distance: shortened rows lose what tells a rare class of long
        rows from the others.
        """
        term = certificate.noise["lengths"]
        longest, widest = (certificate.parameters[name] for name in (LONGEST, WIDEST))
        typical = private_median(
            objective,
            lambda block, y, w: row_lengths(block),
            longest / 256,
            longest,
            term,
            certificate.bounds.n_samples,
            noise,
        )
        if 4 * typical <= widest:
            return objective.with_rows(lambda block: shortened(block, typical), 1.0), typical
        unit = widest / 2
        return objective.with_rows(lambda block: block / unit, longest / unit), unit
