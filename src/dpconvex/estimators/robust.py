"""Private classification that withstands an adversary who moves every row."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.defaults.tilted_and_robust import only_output, resolve_loss, robust_penalty
from dpconvex.engine.rows import Rows
from dpconvex.estimators.base import Stated
from dpconvex.estimators.classification import LogisticProbabilities, PrivateLinearClassifier
from dpconvex.estimators.linear import PublicFacts
from dpconvex.estimators.parameters import estimator
from dpconvex.estimators.tilted import MARGIN_LOSSES
from dpconvex.inputs.labels import count_classes
from dpconvex.inputs.people import Records
from dpconvex.inputs.settings import at_least_zero, optional_positive
from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives import AdversarialObjective, CostlyAdversaryObjective
from dpconvex.objectives.objective import Objective
from dpconvex.privacy.bounds.robust import RobustBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.description import Facts
from dpconvex.privacy.noise import NoiseSource

# Released coefficients below this many standard deviations of the noise are set to zero against a linf adversary.
THRESHOLD = 2.0


@dataclass(frozen=True)
class SparseOutput(OutputPerturbation):
    """Output perturbation whose released coefficients are set to zero where they are mostly noise.

    An adversary who moves every column takes ``radius |coefficient|`` from the margin for each of them, so that noise
    on useless columns costs as much as signal. Zeroing by a public threshold is post-processing of the release.
    """

    def _run(
        self, objective: Objective, certificate: Certificate, noise: NoiseSource, record: Facts
    ) -> NDArray[np.float64]:
        """Return the noisy minimiser with its small coefficients, the intercept apart, set to zero."""
        released = super()._run(objective, certificate, noise, record)
        spread = certificate.noise["release"].spread
        small = np.abs(released) < certificate.parameters["threshold"] * spread
        small[: int(certificate.bounds.fit_intercept)] = False
        return np.where(small, 0.0, released)


@estimator
class DPRobustClassifier(LogisticProbabilities, PrivateLinearClassifier):
    r"""Linear classification that is robust to moved rows, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i w_i max loss(y_i (x_i + v) . theta) + (alpha/2) ||theta||^2`` over the worst
    ``v`` with ``||v|| <= radius``, which is ``loss(y_i x_i . theta - radius ||theta||_dual)``: the dual norm leaves out
    the intercept and is smoothed over a width of 0.01. Against ``linf`` adversaries, to whom every coefficient offers
    a handle, released coefficients below twice the noise's standard deviation are set to zero. More than two classes
    are fitted one against the rest, sharing the budget.

    Parameters
    ----------
    radius : float, default=0.1
        How far an adversary can move a row, in mapped units: 1 is the bound of a column. Without feature bounds these
        are the user's units.
    norm : {"l2", "linf", "l1", "box", "hull"}, default="l2"
        Norm in which the radius is meant: the whole row, every column, or a budget shared by the columns; or the set
        that the radius multiplies, a box or a hull of vectors.
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Loss of the margin, never increasing; the hinge is smoothed with bandwidth 0.5.
    cost : float, optional
        With a cost there is no radius: a perturbation v takes ``(cost/2) ||v||^2`` from the adversary's gain, who then
        solves a strongly concave problem. l2 and replace-one only; at least ``4 loss(0) curvature / alpha``.
    shape : sequence, optional
        Half-widths of a box, one per column, or vectors whose hull, with their negatives, is the set: extreme points of
        any convex set of one's own. In mapped units.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which the adversary cannot move.
    alpha : float, optional
        Penalty; by default the one with the smallest predicted robust risk, from public facts.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Records are no longer of rank one, so output perturbation it is.

    Attributes
    ----------
    coef_, intercept_, classes_, certificate_, released_
        As in :class:`DPLogisticRegression`.

    Notes
    -----
    Robust fits are cautious: `predict_proba` gives scores rather than calibrated probabilities.

    Privacy: as for :class:`DPLogisticRegression`; radius and norm are public. The Lipschitz constant grows by the
    radius times ``sqrt(n_features)`` for ``linf`` and by the radius for ``l2``.

    Examples
    --------
    >>> from dpconvex import DPRobustClassifier
    >>> model = DPRobustClassifier(0.1, "linf", epsilon=2.0, feature_bounds=(0, 1))
    >>> model.certify(n_samples=30_000, n_features=20).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    radius: float = 0.1
    norm: str = "l2"
    loss: str | PointwiseLoss = "logistic"
    _: KW_ONLY
    cost: float | None = None
    shape: ArrayLike | None = None

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> Stated:
        loss = resolve_loss(self.loss, MARGIN_LOSSES, "margin", type(self).__name__)
        bounds = certificate.bounds
        return {
            "kind of bounds": (type(bounds), RobustBounds),
            "loss": (bounds.loss, loss),
            "cost": (bounds.cost, self.cost),
            "width": (bounds.width, RobustBounds.width),
            "shape": (bounds.shape, _shape_of(self.shape)),
        }

    def _plan(self, records: Records, n_features: int, n_classes: int | None = None) -> Plan:
        owner = type(self).__name__
        loss = resolve_loss(self.loss, MARGIN_LOSSES, "margin", owner)
        mechanism = only_output(self.mechanism, owner)
        parameters = count_classes(self, n_classes)
        if self.norm == "linf":
            mechanism = SparseOutput(mechanism.solver, mechanism.gap, mechanism.radius)
            parameters["threshold"] = THRESHOLD
        facts = self._public_facts(records, n_features)
        bounds = facts.bounds_of(
            RobustBounds,
            loss,
            self.neighbors,
            radius=at_least_zero("radius", self.radius, owner),
            norm=self.norm,
            cost=optional_positive("cost", self.cost, owner),
            shape=_shape_of(self.shape),
        )
        given = optional_positive("alpha", self.alpha, owner)
        alpha, _ = robust_penalty(bounds, facts.guarantee, parameters, given)
        certificate = mechanism.certify(
            replace(bounds, alpha=alpha),
            facts.guarantee,
            {**facts.parameters, **parameters},
            seeded=self.random_state is not None,
        )
        return Plan(mechanism, certificate, facts.row_map, 0.0, 1.0)

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        bounds = certificate.bounds
        if bounds.cost is not None:
            return CostlyAdversaryObjective(rows, bounds.loss, bounds.alpha, bounds.cost)
        return AdversarialObjective(
            rows,
            bounds.loss,
            bounds.alpha,
            bounds.radius,
            bounds.norm,
            bounds.width,
            divisor=bounds.n_samples,
            shape=bounds.shape,
        )

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        adversary = f"rows moved by up to {bounds.radius:g} in {bounds.norm} (mapped units)"
        if bounds.cost is not None:
            adversary = f"pays {bounds.cost:g} / 2 times the square of a move, at most {bounds.adversary_reach:.3g}"
        return [*super()._summary_facts(), ("adversary", adversary)]


def _shape_of(shape: ArrayLike | None) -> Any:
    """Return a shape as nested tuples; the bounds check it."""
    if shape is None:
        return None
    plain = np.asarray(shape).tolist()
    return tuple(tuple(row) if isinstance(row, list) else row for row in plain)
