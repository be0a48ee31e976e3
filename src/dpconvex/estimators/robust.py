"""Private classification and regression that withstand an adversary who moves every row."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.engine.rows import Rows
from dpconvex.estimators.base import Stated
from dpconvex.estimators.classification import LogisticProbabilities, PrivateLinearClassifier
from dpconvex.estimators.linear import PrivateLinearModel, PrivateLinearRegressor, PublicFacts
from dpconvex.estimators.parameters import estimator
from dpconvex.estimators.tilted import MARGIN_LOSSES, REGRESSION
from dpconvex.inputs.labels import count_classes
from dpconvex.inputs.people import Records
from dpconvex.inputs.settings import at_least_zero, optional_positive
from dpconvex.losses import Absolute, Huber, PointwiseLoss
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives import AdversarialObjective, AdversarialResidualObjective, CostlyAdversaryObjective
from dpconvex.objectives.objective import Objective
from dpconvex.planning.tilted_and_robust import only_output, resolve_loss, robust_penalty
from dpconvex.privacy.bounds.robust import RobustBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.description import Facts
from dpconvex.privacy.noise import NoiseSource
from dpconvex.smoothing import LogisticKernel, convolve

# Released coefficients below this many standard deviations of the noise are set to zero against a linf adversary.
THRESHOLD = 2.0
# Residuals in units of half the target's range. Of "squared" those up to 2 count squared: all, where predictions stay
# within the range.
RESIDUAL_LOSSES = {"huber": Huber(0.2), "absolute": convolve(Absolute(), LogisticKernel(), 0.05), "squared": Huber(2.0)}


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
class PrivateRobustModel(PrivateLinearModel):
    """What robust models share: an adversary, its bounds, output perturbation."""

    radius: float = 0.1
    norm: str = "l2"
    loss: str | PointwiseLoss = "logistic"
    _: KW_ONLY
    shape: ArrayLike | None = None

    def _own_loss(self) -> PointwiseLoss:
        raise AttributeError(f"{type(self).__name__} does not say which loss it fits.")

    def _robust_plan(
        self,
        facts: PublicFacts,
        parameters: Facts,
        target: tuple[float, float],
        population: dict[str, float],
        **own: object,
    ) -> Plan:
        owner = type(self).__name__
        if self.norm == "own":
            raise ValueError(
                f"The 'norm' parameter of {owner} must be one of 'l2', 'linf', 'l1', 'box' and 'hull': a set of one's "
                "own has a support function, which no model file can hold. Use AdversarialObjective with "
                "OutputPerturbation, or norm='hull' with shape=hull_of(...)."
            )
        mechanism = only_output(self.mechanism, owner)
        if self.norm == "linf":
            mechanism = SparseOutput(mechanism.solver, mechanism.gap, mechanism.radius)
            parameters["threshold"] = THRESHOLD
        bounds = facts.bounds_of(
            RobustBounds,
            self._own_loss(),
            self.neighbors,
            radius=at_least_zero("radius", self.radius, owner),
            norm=self.norm,
            shape=_shape_of(self.shape),
            **own,
        )
        given = optional_positive("alpha", self.alpha, owner)
        alpha, _ = robust_penalty(bounds, facts.guarantee, parameters, given, **population)
        certificate = mechanism.certify(
            replace(bounds, alpha=alpha),
            facts.guarantee,
            {**facts.parameters, **parameters},
            seeded=self.random_state is not None,
        )
        return Plan(mechanism, certificate, facts.row_map, *target)

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> Stated:
        bounds = certificate.bounds
        return {
            "kind of bounds": (type(bounds), RobustBounds),
            "loss": (bounds.loss, self._own_loss()),
            "cost": (bounds.cost, getattr(self, "cost", None)),
            "width": (bounds.width, RobustBounds.width),
            "shape": (bounds.shape, _shape_of(self.shape)),
        }

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        bounds = certificate.bounds
        if bounds.cost is not None:
            return CostlyAdversaryObjective(rows, bounds.loss, bounds.alpha, bounds.cost)
        kind = AdversarialResidualObjective if bounds.residual else AdversarialObjective
        return kind(
            rows,
            bounds.loss,
            bounds.alpha,
            bounds.radius,
            bounds.norm,
            bounds.width,
            divisor=bounds.n_samples,
            shape=bounds.shape,
        )

    def _adversary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        adversary = f"rows moved by up to {bounds.radius:g} in {bounds.norm} (mapped units)"
        if bounds.cost is not None:
            adversary = f"pays {bounds.cost:g} / 2 times the square of a move, at most {bounds.adversary_reach:.3g}"
        return [("adversary", adversary)]


@estimator
class DPRobustClassifier(LogisticProbabilities, PrivateRobustModel, PrivateLinearClassifier):
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

    _: KW_ONLY
    cost: float | None = None

    def _own_loss(self) -> PointwiseLoss:
        return resolve_loss(self.loss, MARGIN_LOSSES, "margin", type(self).__name__)

    def _plan(self, records: Records, n_features: int, n_classes: int | None = None) -> Plan:
        self._own_loss()  # raises before anything else does
        only_output(self.mechanism, type(self).__name__)
        parameters = count_classes(self, n_classes)
        facts = self._public_facts(records, n_features)
        cost = optional_positive("cost", self.cost, type(self).__name__)
        return self._robust_plan(facts, parameters, (0.0, 1.0), {}, cost=cost)

    def _summary_facts(self) -> list[tuple[str, str]]:
        return [*super()._summary_facts(), *self._adversary_facts()]


@estimator
class DPRobustRegressor(PrivateRobustModel, PrivateLinearRegressor):
    r"""Linear regression that is robust to moved rows, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i w_i max loss(y_i - (x_i + v) . theta) + (alpha/2) ||theta||^2`` over the worst
    ``v`` with ``||v|| <= radius``: the larger of the losses of the residual moved up and down by
    ``radius ||theta||_dual`` (:class:`~dpconvex.objectives.AdversarialResidualObjective`), smoothed over a width of
    0.01. Targets are mapped to [-1, 1] by ``target_bounds`` and clipped there.

    Parameters
    ----------
    radius, norm, shape, fit_intercept
        As in :class:`DPRobustClassifier`.
    loss : {"huber", "absolute", "squared"} or Loss, default="huber"
        Loss of the residual in units of half the target's range: Huber's with width 0.2, the absolute one smoothed with
        bandwidth 0.05, or half the square (linear beyond a residual of 2). A quantile is the loss
        ``convolve(Pinball(0.9), LogisticKernel(), 0.05)``.
    target_bounds : pair (low, high), optional
        Public range of the target; values beyond are clipped. (-1, 1) by default.
    alpha : float, optional
        Penalty; by default the one with the smallest predicted robust risk, from public facts.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Records are no longer of rank one, so output perturbation it is.

    Attributes
    ----------
    coef_, intercept_, certificate_, released_
        As in :class:`DPQuantileRegressor`.

    Notes
    -----
    Privacy: as for :class:`DPQuantileRegressor`; radius and norm are public. The Lipschitz constant is that of
    :class:`DPRobustClassifier`; when a record is replaced, the adversary's parts cancel where both slopes are equally
    steep.

    Examples
    --------
    >>> from dpconvex import DPRobustRegressor
    >>> model = DPRobustRegressor(0.1, "linf", epsilon=2.0, feature_bounds=(0, 1), target_bounds=(0, 50))
    >>> model.certify(n_samples=30_000, n_features=20).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    loss: str | PointwiseLoss = "huber"

    def _own_loss(self) -> PointwiseLoss:
        return resolve_loss(self.loss, RESIDUAL_LOSSES, "residual", type(self).__name__)

    def _plan(self, records: Records, n_features: int) -> Plan:
        facts = self._public_facts(records, n_features)
        target = (facts.target_shift, facts.target_scale)
        return self._robust_plan(facts, {}, target, REGRESSION)

    def _summary_facts(self) -> list[tuple[str, str]]:
        return self._adversary_facts()


def _shape_of(shape: ArrayLike | None) -> Any:
    """Return a shape as nested tuples; the bounds check it."""
    if shape is None:
        return None
    plain = np.asarray(shape).tolist()
    return tuple(tuple(row) if isinstance(row, list) else row for row in plain)
