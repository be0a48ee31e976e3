"""Private tilted empirical risk: classifiers and regressors that care for the worst-served records."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace

from dpconvex.checks import check_number
from dpconvex.engine.rows import Rows
from dpconvex.estimators.base import Stated
from dpconvex.estimators.classification import LogisticProbabilities, PrivateLinearClassifier
from dpconvex.estimators.linear import PrivateLinearModel, PrivateLinearRegressor, PublicFacts
from dpconvex.estimators.parameters import estimator
from dpconvex.inputs.labels import count_classes
from dpconvex.inputs.people import Records
from dpconvex.inputs.settings import at_least_zero, optional_positive
from dpconvex.losses import Hinge, Huber, Logistic, PointwiseLoss
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives import TiltedObjective, WorstShareObjective
from dpconvex.objectives.objective import Objective
from dpconvex.planning.tilted_and_robust import WALLS, only_output, resolve_loss, tilted_penalty, worst_share_penalty
from dpconvex.privacy.bounds.tilted import TiltedBounds
from dpconvex.privacy.bounds.worst_share import WorstShareBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.description import Facts
from dpconvex.smoothing import LogisticKernel, convolve

# In units of half the target's range: residuals beyond it pull with constant force.
HUBER_WIDTH = 0.2
MARGIN_LOSSES = {"logistic": Logistic(), "hinge": convolve(Hinge(), LogisticKernel(), 0.5)}
RESIDUAL_LOSSES = {"huber": Huber(HUBER_WIDTH)}
# What predictions and curvature are expected to be in mapped units, where targets fill [-1, 1].
REGRESSION = {"curvature": 0.7, "margin_variance": 0.1}


@estimator
class PrivateTiltedModel(PrivateLinearModel):
    """What tilted models share: bounds with a loss range, the tilted objective, output perturbation."""

    tilt: float = 1.0
    loss: str | PointwiseLoss = "logistic"
    _: KW_ONLY
    share: float | str | None = None

    def _tilted_plan(
        self,
        facts: PublicFacts,
        loss: PointwiseLoss,
        parameters: Facts,
        population: dict[str, float],
        target: tuple[float, float],
    ) -> Plan:
        owner = type(self).__name__
        mechanism = only_output(self.mechanism, owner)
        given = optional_positive("alpha", self.alpha, owner)
        if self.share is not None:
            worst = facts.bounds_of(
                WorstShareBounds,
                loss,
                self.neighbors,
                share=self._worst_share(facts.n_samples),
                ignored_rows=facts.ignored_rows,
            )
            alpha, _ = worst_share_penalty(worst, facts.guarantee, parameters, given, **population)
            certificate = mechanism.certify(
                replace(worst, alpha=alpha),
                facts.guarantee,
                {**facts.parameters, **parameters},
                seeded=self.random_state is not None,
            )
            return Plan(mechanism, certificate, facts.row_map, *target)
        bounds = facts.bounds_of(
            TiltedBounds,
            loss,
            self.neighbors,
            tilt=at_least_zero("tilt", self.tilt, owner),
            coef_bound=facts.parameters["coef_bound"],
            ignored_rows=facts.ignored_rows,
        )
        alpha, wall, _ = tilted_penalty(bounds, facts.guarantee, parameters, given, **population)
        certificate = mechanism.certify(
            replace(bounds, alpha=alpha, coef_bound=wall),
            facts.guarantee,
            {**facts.parameters, **parameters},
            seeded=self.random_state is not None,
        )
        return Plan(mechanism, certificate, facts.row_map, *target)

    def _own_loss(self) -> PointwiseLoss:
        raise AttributeError(f"{type(self).__name__} does not say which loss it fits.")

    def _worst_share(self, n_samples: int) -> float:
        """Return the share as a number; "max" is that of one record."""
        owner, share = type(self).__name__, self.share
        if isinstance(share, str) and share == "max":
            return 1 / n_samples
        allowed = f"None, 'max' or a number between 1/n ({1 / n_samples:.3g} here) and 1"
        return check_number("share", owner, share, allowed, (1 - 1e-12) / n_samples, 1 + 1e-15)

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> Stated:
        if self.share is not None:
            bounds = certificate.bounds
            return {
                "kind of bounds": (type(bounds), WorstShareBounds),
                "loss": (bounds.loss, self._own_loss()),
                "share": (bounds.share, self._worst_share(facts.n_samples)),
                "width": (bounds.width, WorstShareBounds.width),
            }
        given = facts.parameters["coef_bound"]
        return {
            "kind of bounds": (type(certificate.bounds), TiltedBounds),
            "loss": (certificate.bounds.loss, self._own_loss()),
            # Which of the walls is best by default may change, not what they are.
            "wall": (certificate.bounds.coef_bound in (WALLS if given is None else (given,)), True),
        }

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        bounds = certificate.bounds
        if isinstance(bounds, WorstShareBounds):
            return WorstShareObjective(rows, bounds.loss, bounds.alpha, bounds.share, bounds.width, bounds.n_samples)
        return TiltedObjective(rows, bounds.loss, bounds.alpha, bounds.tilt, bounds.coef_bound, bounds.wall)

    def _tilt_facts(self) -> list[tuple[str, str]]:
        """Return what the tilt costs, from public facts."""
        bounds = self.certificate_.bounds
        weight = bounds.largest_weight
        if isinstance(bounds, WorstShareBounds):
            return [
                ("share", f"the worst {bounds.share * bounds.n_samples:.4g} of {bounds.n_samples} losses"),
                ("largest weight", f"{weight:.3g} of one record"),
            ]
        facts = [
            ("tilt", f"{bounds.tilt:g}"),
            ("losses vary by", f"at most {bounds.loss_range:.4g} for coefficients up to {bounds.radius:.4g}"),
            ("largest weight", f"{weight:.3g} of one record, {weight * bounds.n_samples:.3g} times 1/n"),
        ]
        if not bounds.falls_with_samples:
            useful = bounds.largest_useful_tilt
            facts.append(
                (
                    "too much tilt",
                    f"beyond {useful:.3g} the sensitivity no longer falls with n; lower tilt or coef_bound",
                )
            )
        return facts


@estimator
class DPTiltedClassifier(LogisticProbabilities, PrivateTiltedModel, PrivateLinearClassifier):
    r"""Linear classification by tilted empirical risk under differential privacy.

    Minimises ``F(theta) = (1/t) log((1/n) sum_i exp(t w_i loss(y_i x_i . theta))) + (alpha/2) ||theta||^2 +
    W(theta)`` with ``t = tilt``: records with large losses count more, the more the larger t. ``W`` is a wall around
    ``coef_bound``. More than two classes are fitted one against the rest, sharing the budget.

    Parameters
    ----------
    tilt : float, default=1.0
        0 is the mean of the losses, infinity would be the largest one. The noise grows with the weight that one
        record can have, ``C / (C + n - 1)`` with ``C = exp(tilt r)`` and r the range of the losses.
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Loss of the margin; the hinge is smoothed with bandwidth 0.5.
    share : float or "max", optional
        In place of a tilt: minimise the mean of the worst ``share n`` losses, at least one and at most all. ``"max"``
        is the largest loss. The noise is ``1 / share`` times that of a mean, whatever the range of the losses
        (:class:`~dpconvex.privacy.WorstShareBounds`), so that that of ``"max"`` does not fall with n.
    neighbors : {"replace_one", "add_or_remove_one"}
        A replaced record may change its label. A tilt has no bound for add-or-remove-one, a share has.
    nominal_samples : int, optional
        With a share and add-or-remove-one.
    row_norm : float, optional
        Bound on a row's influence in mapped units, ``sqrt(n_features)`` by default (1 without feature bounds). The
        influence weight of a longer row multiplies its loss, in the exponent too.
    coef_bound : float, optional
        Bound on the norm of the mapped coefficients. A steep penalty keeps the minimiser within 1 % of it, which bounds
        the losses; what is released is projected on it. By default the best of a few by predicted risk, or none.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Only output perturbation has a proof here.

    Attributes
    ----------
    coef_, intercept_, classes_, certificate_, released_
        As in :class:`DPLogisticRegression`.

    Notes
    -----
    A tilted fit weighs hard records more: `predict_proba` gives scores rather than calibrated probabilities.

    Privacy: as for :class:`DPLogisticRegression`; a tilt under replace-one only.

    Examples
    --------
    >>> from dpconvex import DPTiltedClassifier
    >>> model = DPTiltedClassifier(tilt=0.5, epsilon=2.0, feature_bounds=(-1, 1), row_norm=1.0)
    >>> model.certify(n_samples=50_000, n_features=4).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    def _own_loss(self) -> PointwiseLoss:
        return resolve_loss(self.loss, MARGIN_LOSSES, "margin", type(self).__name__)

    def _plan(self, records: Records, n_features: int, n_classes: int | None = None) -> Plan:
        loss = self._own_loss()
        parameters = count_classes(self, n_classes)
        facts = self._public_facts(records, n_features)
        return self._tilted_plan(facts, loss, parameters, {}, (0.0, 1.0))

    def _summary_facts(self) -> list[tuple[str, str]]:
        return [*super()._summary_facts(), *self._tilt_facts()]


@estimator
class DPTiltedRegressor(PrivateTiltedModel, PrivateLinearRegressor):
    r"""Linear regression by tilted empirical risk under differential privacy.

    Minimises ``F(theta) = (1/t) log((1/n) sum_i exp(t w_i loss(y_i - x_i . theta))) + (alpha/2) ||theta||^2 +
    W(theta)`` with ``t = tilt`` and targets mapped to [-1, 1] by ``target_bounds`` AND clipped there, unlike in
    other estimators: how much one record can weigh depends on the largest loss.

    Parameters
    ----------
    tilt : float, default=1.0
        0 is the mean of the losses of mapped targets, infinity would be the largest one.
    loss : {"huber"} or Loss, default="huber"
        Loss of the residual; Huber's with width 0.2 of half the target's range.
    target_bounds : pair (low, high), optional
        Public range of the target; values beyond are clipped. (-1, 1) by default.
    share : float or "max", optional
        As in :class:`DPTiltedClassifier`.
    neighbors : {"replace_one", "add_or_remove_one"}
        A tilt has no bound for add-or-remove-one, a share has.
    nominal_samples : int, optional
        With a share and add-or-remove-one.
    coef_bound : float, optional
        As in :class:`DPTiltedClassifier`.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Only output perturbation has a proof here.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Coefficients in the user's units.
    intercept_ : float
        Intercept in the user's units.
    certificate_ : Certificate
        What is guaranteed, and why.
    released_ : dict
        Further quantities that were released on the way: none.

    Notes
    -----
    Privacy: as for :class:`DPQuantileRegressor`; a tilt under replace-one only.

    Examples
    --------
    >>> from dpconvex import DPTiltedRegressor
    >>> model = DPTiltedRegressor(tilt=2.0, mu=0.5, feature_bounds=(0, 1), target_bounds=(0, 100))
    >>> model.certify(n_samples=50_000, n_features=4).mechanism
    'output'
    """

    loss: str | PointwiseLoss = "huber"

    def _own_loss(self) -> PointwiseLoss:
        return resolve_loss(self.loss, RESIDUAL_LOSSES, "residual", type(self).__name__)

    def _plan(self, records: Records, n_features: int) -> Plan:
        loss = self._own_loss()
        facts = self._public_facts(records, n_features)
        target = (facts.target_shift, facts.target_scale)
        return self._tilted_plan(facts, loss, {}, REGRESSION, target)

    def _summary_facts(self) -> list[tuple[str, str]]:
        return self._tilt_facts()
