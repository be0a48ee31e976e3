"""Private classification that withstands an adversary who moves every row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from dpconvex.defaults.tilted_and_robust import only_output, resolve_loss, robust_penalty
from dpconvex.estimators.classification import PrivateLinearClassifier
from dpconvex.estimators.linear import Plan, PublicFacts
from dpconvex.estimators.tilted import MARGIN_LOSSES
from dpconvex.inputs.labels import count_classes
from dpconvex.inputs.settings import at_least_zero, optional_positive
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import AdversarialObjective, CostlyAdversaryObjective
from dpconvex.privacy.bounds.robust import RobustBounds
from dpconvex.privacy.certificates.certificate import Certificate

# Released coefficients below this many standard deviations of the noise are set to zero against a linf adversary.
THRESHOLD = 2.0


@dataclass(frozen=True)
class SparseOutput(OutputPerturbation):
    """Output perturbation whose released coefficients are set to zero where they are mostly noise.

    An adversary who moves every column takes ``radius |coefficient|`` from the margin for each of them, so that noise
    on useless columns costs as much as signal. Zeroing by a public threshold is post-processing of the release.
    """

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Any = None,
        record: dict[str, Any] | None = None,
    ) -> NDArray[np.float64]:
        """Return the noisy minimiser with its small coefficients, the intercept apart, set to zero."""
        released = super().release(objective, certificate, rng, record)
        spread = certificate.noise["release"].spread
        small = np.abs(released) < certificate.parameters["threshold"] * spread
        small[: int(certificate.bounds.fit_intercept)] = False
        return np.where(small, 0.0, released)


class DPRobustClassifier(PrivateLinearClassifier):
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
    norm : {"l2", "linf"}, default="l2"
        Norm in which the radius is meant: the whole row, or every column.
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Loss of the margin, never increasing; the hinge is smoothed with bandwidth 0.5.
    cost : float, optional
        With a cost there is no radius: a perturbation v takes ``(cost/2) ||v||^2`` from the adversary's gain, who then
        solves a strongly concave problem. l2 and replace-one only; at least ``4 loss(0) curvature / alpha``.
    epsilon, delta : float, optional
        Budget for (epsilon, delta)-DP; 1.0 and 1e-6 by default, ``delta=0`` asks for pure epsilon-DP.
    mu : float, optional
        Budget for Gaussian DP, instead of epsilon and delta.
    neighbors : {"replace_one", "add_or_remove_one"}
        What may differ between two data sets that must look alike; a replaced record may change its label.
    nominal_samples : int, optional
        Public guess of the number of rows; required with ``add_or_remove_one``.
    feature_bounds : pair (low, high), optional
        Public bounds of the columns, scalars or one value per column; values beyond are clipped.
    row_norm : float, optional
        Bound on a row's influence in mapped units, ``sqrt(n_features)`` by default (1 without feature bounds).
    fit_intercept : bool, default=True
        Whether to fit an intercept, which the adversary cannot move.
    alpha : float, optional
        Penalty; by default the one with the smallest predicted robust risk, from public facts.
    coef_bound : float, optional
        Bound on the norm of the mapped coefficients, enforced by a projection of the released ones.
    classes : sequence, optional
        The label set, if it is not to be read from y; the certificate says which.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Records are no longer of rank one, so output perturbation it is.
    invalid_rows : {"error", "ignore"}
        What becomes of a row with NaN, infinity or a label that is not in ``classes``. "error" refuses the data, which
        is visible and not covered by the guarantee; "ignore", which needs ``classes``, counts it as a fixed public
        record of loss 0.
    sampler : {"auto", "exact"}
        Where noise is drawn: by dpconvex, exactly on a public grid, or "exact" by opendp, on the same grid and about
        20 microseconds a number.
    ledger : Ledger, optional
        Budget of the data set; charged before noise is drawn.
    random_state : int, Generator or RandomState, optional
        Fixes the noise, for tests: such a fit is not private, and its certificate says so.
    verbose : int, default=0
        Print progress that depends on public facts only.

    Attributes
    ----------
    coef_, intercept_, classes_, certificate_, released_
        As in :class:`DPLogisticRegression`.

    Notes
    -----
    Privacy: as for :class:`DPLogisticRegression`; radius and norm are public. The Lipschitz constant grows by the
    radius times ``sqrt(n_features)`` for ``linf`` and by the radius for ``l2``.

    Examples
    --------
    >>> from dpconvex import DPRobustClassifier
    >>> model = DPRobustClassifier(0.1, "linf", epsilon=2.0, feature_bounds=(0, 1))
    >>> model.certify(n_samples=30_000, n_features=20).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    def __init__(
        self,
        radius: float = 0.1,
        norm: str = "l2",
        loss: Any = "logistic",
        *,
        cost: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        neighbors: str = "replace_one",
        nominal_samples: int | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        row_norm: float | None = None,
        fit_intercept: bool = True,
        alpha: float | None = None,
        coef_bound: float | None = None,
        classes: Any = None,
        mechanism: Any = "auto",
        invalid_rows: str = "error",
        sampler: str = "auto",
        ledger: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.radius = radius
        self.norm = norm
        self.loss = loss
        self.cost = cost
        self.epsilon = epsilon
        self.delta = delta
        self.mu = mu
        self.neighbors = neighbors
        self.nominal_samples = nominal_samples
        self.feature_bounds = feature_bounds
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.coef_bound = coef_bound
        self.classes = classes
        self.mechanism = mechanism
        self.invalid_rows = invalid_rows
        self.sampler = sampler
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> dict[str, tuple[Any, Any]]:
        loss = resolve_loss(self.loss, MARGIN_LOSSES, "margin", type(self).__name__)
        bounds = certificate.bounds
        return {
            "kind of bounds": (type(bounds), RobustBounds),
            "loss": (bounds.loss, loss),
            "cost": (bounds.cost, self.cost),
            "width": (bounds.width, RobustBounds.width),
        }

    def _plan(self, n_samples: int, n_features: int, n_classes: int | None = None) -> Plan:
        owner = type(self).__name__
        loss = resolve_loss(self.loss, MARGIN_LOSSES, "margin", owner)
        mechanism = only_output(self.mechanism, owner)
        parameters = count_classes(self, n_classes)
        if self.norm == "linf":
            mechanism = SparseOutput(mechanism.solver, mechanism.gap, mechanism.radius)
            parameters["threshold"] = THRESHOLD
        facts = self._public_facts(n_samples, n_features)
        bounds = RobustBounds(
            n_samples=facts.n_samples,
            n_features=facts.row_map.n_features,
            loss=loss,
            row_norm=facts.row_map.row_norm,
            max_norm=facts.max_norm,
            fit_intercept=facts.row_map.fit_intercept,
            neighbors=self.neighbors,
            radius=at_least_zero("radius", self.radius, owner),
            norm=self.norm,
            cost=optional_positive("cost", self.cost, owner),
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

    def _objective(self, rows: Any, certificate: Certificate) -> Any:
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
        )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return what the logistic function makes of the margins; with several classes, normalised.

        Robust fits are cautious: these are scores rather than calibrated probabilities.

        Parameters
        ----------
        X : array or dataframe of shape (n_samples, n_features)
            Rows; used as they are, without clipping.

        Returns
        -------
        array of shape (n_samples, n_classes)
        """
        positive = expit(self.decision_function(X))
        if positive.ndim == 1:
            return np.column_stack([1 - positive, positive])
        positive = np.maximum(positive, 1e-300)
        return positive / positive.sum(axis=1, keepdims=True)

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        adversary = f"rows moved by up to {bounds.radius:g} in {bounds.norm} (mapped units)"
        if bounds.cost is not None:
            adversary = f"pays {bounds.cost:g} / 2 times the square of a move, at most {bounds.adversary_reach:.3g}"
        return [*super()._summary_facts(), ("adversary", adversary)]
