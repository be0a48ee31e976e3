"""Tilted models, which weigh badly served records more, and robust models, which withstand an
adversary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex import objectives
from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import check_number
from dpconvex.core.description import Facts
from dpconvex.core.rows import Rows
from dpconvex.estimators.classification import ClassificationProbabilities, PrivateLinearClassifier
from dpconvex.estimators.linear import PrivateLinearModel, PrivateLinearRegressor
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import StatedSettings
from dpconvex.inputs.labels import label_set_facts
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.settings import check_nonnegative_setting, check_optional_positive
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Loss, PointwiseLoss
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives import TiltedObjective, WorstShareObjective
from dpconvex.objectives.objective import Objective
from dpconvex.planning.mechanism_choice import decide_fit
from dpconvex.privacy.bounds.tilted_and_robust_bounds import (
    RobustBounds,
    TiltedBounds,
    WorstShareBounds,
)
from dpconvex.risk.tilted_and_robust_penalties import WALLS
from dpconvex.smoothing import LogisticKernel, convolve

MARGIN_LOSSES: dict[str, PointwiseLoss] = {
    "logistic": Logistic(),
    "hinge": convolve(Hinge(), LogisticKernel(), 0.5),
}
# Residuals in units of half the target's range. Of "squared" those up to 2 count squared: all,
# where predictions stay within the range.
RESIDUAL_LOSSES: dict[str, PointwiseLoss] = {
    "huber": Huber(0.2),
    "absolute": convolve(Absolute(), LogisticKernel(), 0.05),
    "squared": Huber(2.0),
}


def tilted_or_robust_loss(
    loss: Any, named: Mapping[str, PointwiseLoss], owner: str
) -> PointwiseLoss:
    """Return the smooth loss of a tilted or robust model that a name or object stands for, or
    raise.
    """
    if isinstance(loss, str) and loss in named:
        return named[loss]
    kind = next(iter(named.values())).kind
    fits = isinstance(loss, Loss) and loss.kind == kind
    if fits and math.isfinite(loss.smoothness) and math.isfinite(loss.lipschitz):
        return cast(PointwiseLoss, loss)
    raise ValueError(
        f"The 'loss' parameter of {owner} must be one of {list(named)} or a smooth {kind} loss of "
        f"bounded slope. Got {loss!r} instead. Smooth a kinked loss with convolve(loss, kernel, "
        "bandwidth)."
    )


class TiltedOrRobustModel(PrivateLinearModel):
    """Base of tilted and robust models: output perturbation with the best penalty for bounds of
    their own.

    Parameters
    ----------
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Only output perturbation has a proof here.
    target_bounds : pair (low, high), optional
        Public range of the target; values beyond are clipped. (-1, 1) by default.
    """

    loss: str | PointwiseLoss
    _named_losses: ClassVar[Mapping[str, PointwiseLoss]] = MARGIN_LOSSES

    def _own_loss(self) -> PointwiseLoss:
        return tilted_or_robust_loss(self.loss, self._named_losses, type(self).__name__)

    def _plan(
        self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None
    ) -> FitDecision:
        owner = type(self).__name__
        loss = self._own_loss()
        classifies = isinstance(self, PrivateLinearClassifier)
        labels: Facts = label_set_facts(self, n_classes) if classifies else {}
        facts = self._public_facts(privacy_unit, n_features)
        request = replace(
            facts,
            task="risk measures",
            parameters={**facts.parameters, **labels},
            bounds=self._own_bounds(facts, loss),
            alpha=check_optional_positive("alpha", self.alpha, owner),
            problems=labels.get("problems", 1),
        )
        return decide_fit(self.mechanism, request)

    def _own_bounds(self, facts: FitRequest, loss: PointwiseLoss) -> Any:
        raise AttributeError(f"{type(self).__name__} does not say how one record bounds another.")

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        bounds = certificate.bounds
        expected = self._own_bounds(facts, self._own_loss())
        names = {"loss", "share", "width", "cost", "shape"} & set(vars(expected))
        stated = {name: (vars(bounds).get(name), vars(expected)[name]) for name in sorted(names)}
        return {"kind of bounds": (type(bounds), type(expected)), **stated}


@with_parameters
class PrivateTiltedModel(TiltedOrRobustModel):
    """Base of tilted models: bounds with a range of losses, the tilted objective or that of the
    worst share.

    Parameters
    ----------
    tilt : float, default=1.0
        0 is the mean of the losses, infinity would be the largest one. The noise grows with the
        weight that one record can have, ``C / (C + n - 1)`` with ``C = exp(tilt r)`` and r the
        range of the losses.
    share : float or "max", optional
        In place of a tilt: minimise the mean of the worst ``share n`` losses, at least one and at
        most all. ``"max"`` is the largest loss. The noise is ``1 / share`` times that of a mean,
        whatever the range of the losses (:class:`~dpconvex.privacy.WorstShareBounds`), so that that
        of ``"max"`` does not fall with n.
    neighbors : {"replace_one", "add_or_remove_one"}
        A replaced record may change its label. A tilt has no bound for add-or-remove-one, a share
        has.
    row_norm : float, optional
        Bound on a row's influence in mapped units, ``sqrt(n_features)`` by default (1 without
        feature bounds). The influence weight of a longer row multiplies its loss, in the exponent
        too.
    coef_bound : float, optional
        Bound on the norm of the mapped coefficients. A steep penalty keeps the minimiser within 1 %
        of it, which bounds the losses; what is released is projected on it. By default the best of
        a few by predicted risk, or none.

    Notes
    -----
    A tilted fit weighs hard records more: probabilities are scores rather than calibrated.

    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column
    names, the label set and all parameters; a tilt under replace-one only.
    """

    tilt: float = 1.0
    loss: str | PointwiseLoss = "logistic"
    _: KW_ONLY
    share: float | str | None = None

    def _own_bounds(
        self, facts: FitRequest, loss: PointwiseLoss
    ) -> TiltedBounds | WorstShareBounds:
        ignored = {"ignored_rows": facts.ignored_rows}
        if self.share is not None:
            share = self._worst_share(facts.n_samples)
            return facts.bounds_of(WorstShareBounds, loss, share=share, **ignored)
        tilt = check_nonnegative_setting("tilt", self.tilt, type(self).__name__)
        wall = facts.parameters["coef_bound"]
        return facts.bounds_of(TiltedBounds, loss, tilt=tilt, coef_bound=wall, **ignored)

    def _worst_share(self, n_samples: int) -> float:
        """Return the share as a number; "max" is that of one record."""
        owner = type(self).__name__
        share = self.share
        if isinstance(share, str) and share == "max":
            return 1 / n_samples
        allowed = f"None, 'max' or a number between 1/n ({1 / n_samples:.3g} here) and 1"
        return check_number("share", owner, share, allowed, (1 - 1e-12) / n_samples, 1 + 1e-15)

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        stated = super()._stated(certificate, facts)
        if self.share is None:
            # Which of the walls is best by default may change, not what they are.
            given = facts.parameters["coef_bound"]
            wall = vars(certificate.bounds).get("coef_bound")
            stated["wall"] = (wall in (WALLS if given is None else (given,)), True)
        return stated

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        bounds = certificate.bounds
        if isinstance(bounds, WorstShareBounds):
            return WorstShareObjective(
                rows, bounds.loss, bounds.alpha, bounds.share, bounds.width, bounds.n_samples
            )
        return TiltedObjective(
            rows, bounds.loss, bounds.alpha, bounds.tilt, bounds.coef_bound, bounds.wall
        )

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        facts = super()._summary_facts()
        weight = bounds.largest_weight
        if isinstance(bounds, WorstShareBounds):
            return [
                *facts,
                (
                    "share",
                    f"the worst {bounds.share * bounds.n_samples:.4g} of {bounds.n_samples} losses",
                ),
                ("largest weight", f"{weight:.3g} of one record"),
            ]
        facts += [
            ("tilt", f"{bounds.tilt:g}"),
            (
                "losses vary by",
                f"at most {bounds.loss_range:.4g} for coefficients up to {bounds.radius:.4g}",
            ),
            (
                "largest weight",
                f"{weight:.3g} of one record, {weight * bounds.n_samples:.3g} times 1/n",
            ),
        ]
        if not bounds.falls_with_samples:
            limit = (
                f"beyond {bounds.largest_useful_tilt:.3g} the sensitivity no longer falls with n"
            )
            facts.append(("too much tilt", f"{limit}; lower tilt or coef_bound"))
        return facts


@with_parameters
class DPTiltedClassifier(ClassificationProbabilities, PrivateTiltedModel, PrivateLinearClassifier):
    r"""Linear classification by tilted empirical risk under differential privacy.

    Minimises ``F(theta) = (1/t) log((1/n) sum_i exp(t w_i loss(y_i x_i . theta))) + (alpha/2)
    ||theta||^2 + W(theta)`` with ``t = tilt``: records with large losses count more, the more the
    larger t. ``W`` is a wall around ``coef_bound``. More than two classes are fitted one against
    the rest, sharing the budget.

    Parameters
    ----------
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Loss of the margin; the hinge is smoothed with bandwidth 0.5.

    Examples
    --------
    >>> from dpconvex import DPTiltedClassifier
    >>> model = DPTiltedClassifier(tilt=0.5, epsilon=2.0, feature_bounds=(-1, 1), row_norm=1.0)
    >>> model.certify(n_samples=50_000, n_features=4).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """


@with_parameters
class DPTiltedRegressor(PrivateTiltedModel, PrivateLinearRegressor):
    r"""Linear regression by tilted empirical risk under differential privacy.

    Minimises ``F(theta) = (1/t) log((1/n) sum_i exp(t w_i loss(y_i - x_i . theta))) + (alpha/2)
    ||theta||^2 + W(theta)`` with ``t = tilt`` and targets mapped to [-1, 1] by ``target_bounds``
    AND clipped there, unlike in other estimators: how much one record can weigh depends on the
    largest loss.

    Parameters
    ----------
    loss : {"huber"} or Loss, default="huber"
        Loss of the residual; Huber's with width 0.2 of half the target's range.

    Examples
    --------
    >>> from dpconvex import DPTiltedRegressor
    >>> model = DPTiltedRegressor(tilt=2.0, mu=0.5, feature_bounds=(0, 1), target_bounds=(0, 100))
    >>> model.certify(n_samples=50_000, n_features=4).mechanism
    'output'
    """

    loss: str | PointwiseLoss = "huber"
    _named_losses: ClassVar[Mapping[str, PointwiseLoss]] = {"huber": RESIDUAL_LOSSES["huber"]}


@with_parameters
class PrivateRobustModel(TiltedOrRobustModel):
    """Base of robust models: an adversary and its bounds.

    Parameters
    ----------
    radius : float, default=0.1
        How far an adversary can move a row, in mapped units: 1 is the bound of a column. Without
        feature bounds these are the user's units.
    norm : {"l2", "linf", "l1", "box", "hull"}, default="l2"
        Norm in which the radius is meant: the whole row, every column, or a budget shared by the
        columns; or the set that the radius multiplies, a box or a hull of vectors.
    shape : sequence, optional
        Half-widths of a box, one per column, or vectors whose hull, with their negatives, is the
        set: extreme points of any convex set of one's own. In mapped units.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which the adversary cannot move.
    alpha : float, optional
        Penalty; by default the one with the smallest predicted robust risk, from public facts.
    """

    radius: float = 0.1
    norm: str = "l2"
    loss: str | PointwiseLoss = "logistic"
    _: KW_ONLY
    shape: ArrayLike | None = None

    def _own_bounds(self, facts: FitRequest, loss: PointwiseLoss) -> RobustBounds:
        owner = type(self).__name__
        shape = self.shape
        if shape is not None:  # nested tuples; the bounds check them
            shape = tuple(
                tuple(row) if isinstance(row, list) else row for row in np.asarray(shape).tolist()
            )
        return facts.bounds_of(
            RobustBounds,
            loss,
            radius=check_nonnegative_setting("radius", self.radius, owner),
            norm=self.norm,
            shape=shape,
            cost=check_optional_positive("cost", getattr(self, "cost", None), owner),
        )

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        bounds = certificate.bounds
        if bounds.cost is not None:
            return objectives.CostlyAdversaryObjective(rows, bounds.loss, bounds.alpha, bounds.cost)
        kind = (
            objectives.AdversarialResidualObjective
            if bounds.residual
            else objectives.AdversarialObjective
        )
        constants = (bounds.loss, bounds.alpha, bounds.radius, bounds.norm, bounds.width)
        return kind(rows, *constants, divisor=bounds.n_samples, shape=bounds.shape)

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        adversary = f"rows moved by up to {bounds.radius:g} in {bounds.norm} (mapped units)"
        if bounds.cost is not None:
            adversary = (
                f"pays {bounds.cost:g} / 2 times the square of a move, at most "
                f"{bounds.perturbation_norm:.3g}"
            )
        return [*super()._summary_facts(), ("adversary", adversary)]


@with_parameters
class DPRobustClassifier(ClassificationProbabilities, PrivateRobustModel, PrivateLinearClassifier):
    r"""Linear classification that is robust to moved rows, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i w_i max loss(y_i (x_i + v) . theta) + (alpha/2) ||theta||^2``
    over the worst ``v`` with ``||v|| <= radius``, which is
    ``loss(y_i x_i . theta - radius ||theta||_dual)``: the dual norm leaves out the intercept and is
    smoothed over a width of 0.01. Against ``linf`` adversaries, to whom every coefficient offers a
    handle, released coefficients below twice the noise's standard deviation are set to zero. More
    than two classes are fitted one against the rest, sharing the budget.

    Parameters
    ----------
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Loss of the margin, never increasing; the hinge is smoothed with bandwidth 0.5.
    cost : float, optional
        With a cost there is no radius: a perturbation v takes ``(cost/2) ||v||^2`` from the
        adversary's gain, who then solves a strongly concave problem. l2 and replace-one only; at
        least ``4 loss(0) curvature / alpha``.

    Notes
    -----
    Robust fits are cautious: `predict_proba` gives scores rather than calibrated probabilities.

    Privacy: as for :class:`DPLogisticRegression`; radius and norm are public. The Lipschitz
    constant grows by the radius times ``sqrt(n_features)`` for ``linf`` and by the radius for
    ``l2``.

    Examples
    --------
    >>> from dpconvex import DPRobustClassifier
    >>> model = DPRobustClassifier(0.1, "linf", epsilon=2.0, feature_bounds=(0, 1))
    >>> model.certify(n_samples=30_000, n_features=20).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    _: KW_ONLY
    cost: float | None = None


@with_parameters
class DPRobustRegressor(PrivateRobustModel, PrivateLinearRegressor):
    r"""Linear regression that is robust to moved rows, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i w_i max loss(y_i - (x_i + v) . theta) + (alpha/2)
    ||theta||^2`` over the worst ``v`` with ``||v|| <= radius``: the larger of the losses of the
    residual moved up and down by ``radius ||theta||_dual``
    (:class:`~dpconvex.objectives.AdversarialResidualObjective`), smoothed over a width of 0.01.
    Targets are mapped to [-1, 1] by ``target_bounds`` and clipped there.

    Parameters
    ----------
    loss : {"huber", "absolute", "squared"} or Loss, default="huber"
        Loss of the residual in units of half the target's range: Huber's with width 0.2, the
        absolute one smoothed with bandwidth 0.05, or half the square (linear beyond a residual of
        2). A quantile is the loss ``convolve(Pinball(0.9), LogisticKernel(), 0.05)``.

    Notes
    -----
    Privacy: as for :class:`DPQuantileRegressor`; radius and norm are public. The Lipschitz constant
    is that of :class:`DPRobustClassifier`; when a record is replaced, the adversary's parts cancel
    where both slopes are equally steep.

    Examples
    --------
    >>> from dpconvex import DPRobustRegressor
    >>> model = DPRobustRegressor(
    ...     0.1, "linf", epsilon=2.0, feature_bounds=(0, 1), target_bounds=(0, 50)
    ... )
    >>> model.certify(n_samples=30_000, n_features=20).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    loss: str | PointwiseLoss = "huber"
    _named_losses: ClassVar[Mapping[str, PointwiseLoss]] = RESIDUAL_LOSSES
