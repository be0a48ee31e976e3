r"""Objective perturbation of pairwise objectives: one record meets all records of the other class.

The Hessian changes by a matrix of full rank when one record changes, but of small trace. Noise enters the objective as
``F(w) + <b, w>``: F is a mean over pairs, and so is the sensitivity of its gradient. Public bounds on the length of
rows are often loose, and noise is proportional to it: a tenth of the budget can find a typical length first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpconvex.checks import check_number
from dpconvex.core.perturbed_minimiser import LONGEST, WIDEST, PerturbedMinimiser
from dpconvex.mechanisms.moments import SEARCH_STEPS, private_median
from dpconvex.mechanisms.objective import (
    ObjectivePerturbation,
    check_smooth,
    prove_tilted,
    release_budget,
    tilted_noise,
)
from dpconvex.privacy.bounds.pairwise import PairwiseBounds
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, Parameters, Proof, calibrates, proves
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import Guarantee

__all__ = ["ADDED", "LONGEST", "WIDEST", "PairwiseObjectivePerturbation"]

# What was added to a penalty with which no noise would have sufficed.
ADDED = "added_penalty"
_SEARCH_SHARE = 0.1


def _check_loss(bounds: PairwiseBounds) -> None:
    """Raise unless the proof applies: a smooth loss whose slope is bounded everywhere, and a penalty."""
    check_smooth(bounds)
    if not math.isfinite(float(bounds.loss.lipschitz)):
        raise ValueError(
            f"Objective perturbation of pairs needs a loss of bounded slope, but {type(bounds.loss).__name__} has "
            "lipschitz=inf. Use the moments mechanism, output perturbation, or the logistic or hinge loss."
        )


def _check_units(bounds: PairwiseBounds, parameters: Parameters) -> None:
    """Raise unless the bounds are those of rows in units of a length that is found first: up to 2 apart."""
    longest, widest = (
        check_number(name, "auc-objective", parameters[name], "above 0", 0, math.inf, low_open=True)
        for name in (LONGEST, WIDEST)
    )
    if not (bounds.distance >= 2 and widest <= 2 * longest * (1 + 1e-9)):
        raise ValueError("Rows in units of a released length can lie 2 apart.")


@calibrates("auc-objective")
def calibrate_pairwise_objective(bounds: PairwiseBounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    r"""Derive the two noise terms: 99 % of the budget for ``b``, 1 % for the distance to the exact minimiser.

    Gaussian ``b`` by the Rényi curve in trace form, l2-Laplace ``b`` for pure epsilon; ``Gamma`` and ``kappa`` are
    those of :class:`~dpconvex.privacy.bounds.pairwise.PairwiseBounds`. Where a typical length of rows is found first,
    10 % pay for six noisy counts, 89 % for ``b``, and the bounds are those of rows in units of that length.
    """
    _check_loss(bounds)
    if LONGEST not in parameters:
        return tilted_noise(bounds, guarantee)
    derived = tilted_noise(bounds, guarantee, _SEARCH_SHARE)
    law = derived.noise["objective"].distribution
    budget = release_budget(guarantee, _SEARCH_SHARE, law)
    budget /= math.sqrt(SEARCH_STEPS) if law == "gaussian" else SEARCH_STEPS
    scale = released_scale(budget, 1.0, 1)
    lengths = NoiseTerm(law, scale, 1.0, 1, "count", SEARCH_STEPS, kind="count", bound=1.0)
    return replace(derived, noise={"lengths": lengths, **derived.noise})


@proves("auc-objective")
def prove_pairwise_objective(certificate: Certificate) -> Proof:
    """Add what the search for a length, the tilt and the release noise cost."""
    certificate.check_bounds(PairwiseBounds)
    _check_loss(certificate.bounds)
    if LONGEST not in certificate.parameters:
        certificate.check_terms("objective", "release")
        return prove_tilted(certificate)
    _check_units(certificate.bounds, certificate.parameters)
    certificate.check_terms("objective", "release", "lengths")
    counts = [certificate.term("lengths", 1.0, 1, "count", SEARCH_STEPS)]
    return prove_tilted(certificate, _SEARCH_SHARE, counts)


@dataclass(frozen=True)
class PairwiseObjectivePerturbation(ObjectivePerturbation):
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

    Examples
    --------
    >>> from dpconvex import DPAUCClassifier
    >>> model = DPAUCClassifier(mechanism="objective", feature_bounds=(0, 1), min_positive=200, min_negative=200)
    >>> model.certify(1000, 3).mechanism
    'auc-objective'
    """

    name: ClassVar[str] = "auc-objective"

    def _measure(self, minimiser: PerturbedMinimiser, certificate: Certificate, record: Facts) -> None:
        """Find the unit of rows of which no two are further apart than 2.

        The unit is a released length near the median of the rows', to which they are shortened, if that at least
        halves the noise. Otherwise it is half the public distance: shortened rows lose what tells a rare class of long
        rows from the others.
        """
        if LONGEST not in certificate.parameters:
            return
        longest, widest = (certificate.parameters[name] for name in (LONGEST, WIDEST))
        typical = private_median(lambda length: minimiser.count_shorter("lengths", length), longest / 256, longest)
        record["row_length"] = minimiser.measure_rows(typical if 4 * typical <= widest else None)
