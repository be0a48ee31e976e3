r"""AUC by objective perturbation: noise enters before solving, on a mean over pairs.

One record meets all records of the other class, so the Hessian changes by a matrix of full rank
when one record changes, but of small trace. Noise enters as ``F(w) + <b, w>``: F is a mean over
pairs, and so is the sensitivity of its gradient. A tenth of the budget can find the median row norm
first, where public bounds are loose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpconvex.core import certificate as certificates
from dpconvex.core.calibration import calibrated_release_scale
from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.checks import check_number
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import GaussianDP, Guarantee
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.mechanisms import objective_perturbation
from dpconvex.mechanisms.auc_moments import SEARCH_STEPS, private_auc_median
from dpconvex.mechanisms.objective_perturbation import ObjectivePerturbation
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.pairwise_objective import PairwiseObjective
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex.releases.perturbed_minimiser import LONGEST, WIDEST, PerturbedMinimiser
from dpconvex.risk.excess_risk import rounded_up
from dpconvex.risk.pair_penalties import pair_penalty
from dpconvex.types import Array

# Parameter: what was added to a penalty with which no noise would have sufficed.
ADDED = "added_penalty"
_SEARCH_SHARE = 0.1
_COUNTABLE = 600  # rows times epsilon from which on a count of half the rows is telling


@dataclass(frozen=True)
class PairwiseObjectivePerturbation(ObjectivePerturbation):
    r"""Minimise a pairwise objective with a random linear term, ``F(w) + <b, w>``.

    Parameters
    ----------
    solver : Solver, str or callable, optional
        As for :class:`OutputPerturbation`.

    Notes
    -----
    With ``longest_row`` among the certificate's parameters, the unit of length is released first
    (the median norm, to which rows are clipped, or half the public distance of two rows); bounds
    and alpha are in units of it.

    Privacy: (epsilon, delta)-DP with Gaussian ``b`` and pure epsilon-DP with l2-Laplace ``b``,
    under replace-one with labels that may change. Public: the number of rows, dimensions, bounds,
    alpha, the loss, and lower bounds on the class counts.
    """

    name: ClassVar[str] = "auc-objective"
    word: ClassVar[str] = "objective"
    carries: ClassVar[Carries] = Carries(bounds=(PairwiseBounds,), ignored_rows=True)
    fits: ClassVar[frozenset[str]] = frozenset({"ranking"})
    quantities: ClassVar[dict[str, str]] = {
        "lengths": "median row norm",
        **ObjectivePerturbation.quantities,
    }

    @classmethod
    def calibrate(
        cls, bounds: PairwiseBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        r"""Derive the two noise terms: 99 % of the budget for ``b``, 1 % for the distance to the
        exact minimiser.

        Gaussian ``b`` by the Rényi curve in trace form, l2-Laplace ``b`` for pure epsilon;
        ``Gamma`` and ``kappa`` are those of
        :class:`~dpconvex.privacy.bounds.ranking.PairwiseBounds`. Where the median row norm is found
        first, 10 % pay for six noisy counts, 89 % for ``b``, and the bounds are those of rows in
        units of that length.
        """
        _check_auc_loss(bounds)
        if LONGEST not in parameters:
            return objective_perturbation.objective_perturbation_noise(bounds, guarantee)
        derived = objective_perturbation.objective_perturbation_noise(
            bounds, guarantee, _SEARCH_SHARE
        )
        law = derived.noise["objective"].distribution
        budget = objective_perturbation.perturbation_release_budget(guarantee, _SEARCH_SHARE, law)
        budget /= math.sqrt(SEARCH_STEPS) if law == "gaussian" else SEARCH_STEPS
        scale = calibrated_release_scale(budget, 1.0, 1)
        lengths = certificates.CertifiedNoise(
            law, scale, 1.0, 1, "count", SEARCH_STEPS, query="count", record_bound=1.0
        )
        return replace(derived, noise={"lengths": lengths, **derived.noise})

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Add the costs of the search for a length, of the linear term and of the release noise."""
        _check_auc_loss(certificate.bounds)
        if LONGEST not in certificate.parameters:
            certificate.check_terms("objective", "release")
            return objective_perturbation.prove_perturbed_objective(certificate)
        _check_auc_units(certificate.bounds, certificate.parameters)
        certificate.check_terms("objective", "release", "lengths")
        counts = [certificate.term("lengths", 1.0, 1, "count", SEARCH_STEPS)]
        return objective_perturbation.prove_perturbed_objective(certificate, _SEARCH_SHARE, counts)

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide penalty and unit of length.

        Where the user gives neither, a typical length of rows is found first, if the budget
        suffices to count half of the rows; bounds and penalty are then in units of that length.
        """
        bounds = request.bounds
        guarantee = request.guarantee
        alpha = request.alpha
        parameters: Facts = {}
        if request.find_length and alpha is None:
            epsilon = 0.0 if isinstance(guarantee, GaussianDP) else guarantee.epsilon_bound
            if bounds.n_samples * epsilon >= _COUNTABLE:
                parameters = {LONGEST: bounds.row_norm, WIDEST: bounds.distance}
                bounds = replace(bounds, row_norm=1.0, diameter=2.0)
        if alpha is None:
            alpha = pair_penalty(bounds, guarantee)
        else:
            added = _added_penalty(replace(bounds, alpha=alpha), guarantee)
            if added > 0:
                parameters[ADDED] = added
                alpha = alpha + added
        return self.decide(request, replace(bounds, alpha=alpha), parameters)

    def _run(
        self,
        objective: PairwiseObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        minimiser = PerturbedMinimiser(objective, certificate, noise)
        if LONGEST in certificate.parameters:
            record["row_length"] = self._measure_pairs(minimiser, certificate)
        return minimiser.release(self.solver)

    def _measure_pairs(self, minimiser: PerturbedMinimiser, certificate: Certificate) -> float:
        """Bring the rows of AUC pairs to a unit in which no two are further apart than 2; return
        it.

        The unit is the released median norm, to which rows are clipped, if that at least halves the
        noise. Otherwise it is half the public distance: clipped rows lose what tells a rare class
        of long rows from the others.
        """
        longest, widest = (certificate.parameters[name] for name in (LONGEST, WIDEST))
        median = private_auc_median(
            lambda length: minimiser.count_shorter("lengths", length), longest / 256, longest
        )
        return minimiser.measure_minimised_pairs(median if 4 * median <= widest else None)

    @classmethod
    def coefficient_noise(cls, certificate: Certificate) -> None:
        """Return None: what noise does to coefficients depends on the data."""
        return None


def _check_auc_loss(bounds: PairwiseBounds) -> None:
    """Raise unless the proof applies: a smooth loss whose slope is bounded everywhere, and a
    penalty.
    """
    objective_perturbation.check_perturbable_objective(bounds)
    if not math.isfinite(float(bounds.loss.lipschitz)):
        raise ValueError(
            "Objective perturbation of pairs needs a loss of bounded slope, but "
            f"{type(bounds.loss).__name__} has lipschitz=inf. Use the moments mechanism, output "
            "perturbation, or the logistic or hinge loss."
        )


def _check_auc_units(bounds: PairwiseBounds, parameters: Parameters) -> None:
    """Raise unless the bounds are those of rows in units of a length that is found first: up to
    2 apart.
    """
    longest, widest = (
        check_number(name, "auc-objective", parameters[name], "above 0", 0, math.inf, low_open=True)
        for name in (LONGEST, WIDEST)
    )
    if not (bounds.distance >= 2 and widest <= 2 * longest * (1 + 1e-9)):
        raise ValueError("Rows in units of a released length can lie 2 apart.")


def _added_penalty(bounds: PairwiseBounds, guarantee: Guarantee) -> float:
    """Choose the penalty without which no objective mechanism for pairs is private; 0 where
    noise suffices.
    """
    # It makes the curvature ratio epsilon / (8 log(1 / delta)), or for pure epsilon the ratio at
    # which the Jacobian takes half of epsilon, d (exp(epsilon / (2 d)) - 1): the Delta of Algorithm
    # 2 of the AUC paper, from public facts and with counts that are bounds. The certificate states
    # it.
    try:
        PairwiseObjectivePerturbation.calibrate(bounds, guarantee, {})
        return 0.0
    except ValueError:
        if isinstance(guarantee, GaussianDP):
            raise
    delta = guarantee.delta(math.inf)
    size = bounds.dimension
    if delta > 0:
        ratio = min(0.5, guarantee.epsilon_bound / (8 * math.log(1 / delta)))
    else:
        ratio = size * math.expm1(min(guarantee.epsilon_bound, 50.0 * size) / (2 * size))
    needed = rounded_up(replace(bounds, alpha=1.0).curvature_ratio / ratio)
    return max(0.0, needed - bounds.alpha)
