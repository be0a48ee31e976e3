"""Private tilted empirical risk: classifiers and regressors that care for the worst-served records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from dpconvex.defaults.tilted_and_robust import (
    WALLS,
    only_output,
    resolve_loss,
    tilted_penalty,
)
from dpconvex.estimators.classification import PrivateLinearClassifier
from dpconvex.estimators.linear import Plan, PrivateLinearModel, PublicFacts
from dpconvex.inputs.labels import count_classes
from dpconvex.inputs.settings import at_least_zero, optional_positive
from dpconvex.losses import Hinge, Huber, Logistic
from dpconvex.objectives import TiltedObjective
from dpconvex.privacy.bounds.tilted import TiltedBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.smoothing import LogisticKernel, convolve

# In units of half the target's range: residuals beyond it pull with constant force.
HUBER_WIDTH = 0.2
MARGIN_LOSSES = {"logistic": Logistic(), "hinge": convolve(Hinge(), LogisticKernel(), 0.5)}
RESIDUAL_LOSSES = {"huber": Huber(HUBER_WIDTH)}
# What predictions and curvature are expected to be in mapped units, where targets fill [-1, 1].
REGRESSION = {"curvature": 0.7, "margin_variance": 0.1}


class PrivateTiltedModel(PrivateLinearModel):
    """What tilted models share: bounds with a loss range, the tilted objective, output perturbation."""

    def _tilted_plan(
        self,
        facts: PublicFacts,
        loss: Any,
        parameters: dict[str, Any],
        population: dict[str, float],
        target: tuple[float, float],
    ) -> Plan:
        owner = type(self).__name__
        mechanism = only_output(self.mechanism, owner)
        bounds = TiltedBounds(
            n_samples=facts.n_samples,
            n_features=facts.row_map.n_features,
            loss=loss,
            row_norm=facts.row_map.row_norm,
            max_norm=facts.max_norm,
            fit_intercept=facts.row_map.fit_intercept,
            neighbors=self.neighbors,
            tilt=at_least_zero("tilt", self.tilt, owner),
            coef_bound=facts.parameters["coef_bound"],
            void_rows=facts.void_rows,
        )
        given = optional_positive("alpha", self.alpha, owner)
        alpha, wall, _ = tilted_penalty(bounds, facts.guarantee, parameters, given, **population)
        certificate = mechanism.certify(
            replace(bounds, alpha=alpha, coef_bound=wall),
            facts.guarantee,
            {**facts.parameters, **parameters},
            seeded=self.random_state is not None,
        )
        return Plan(mechanism, certificate, facts.row_map, *target)

    def _own_loss(self) -> Any:
        raise AttributeError(f"{type(self).__name__} does not say which loss it fits.")

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> dict[str, tuple[Any, Any]]:
        given = facts.parameters["coef_bound"]
        return {
            "kind of bounds": (type(certificate.bounds), TiltedBounds),
            "loss": (certificate.bounds.loss, self._own_loss()),
            # Which of the walls is best by default may change, not what they are.
            "wall": (certificate.bounds.coef_bound in (WALLS if given is None else (given,)), True),
        }

    def _objective(self, rows: Any, certificate: Certificate) -> Any:
        bounds = certificate.bounds
        return TiltedObjective(
            rows, bounds.loss, bounds.alpha, bounds.tilt, bounds.coef_bound, bounds.wall
        )

    def _tilt_facts(self) -> list[tuple[str, str]]:
        """Return what the tilt costs, from public facts."""
        bounds = self.certificate_.bounds
        weight = bounds.largest_weight
        facts = [
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
            useful = bounds.largest_useful_tilt
            facts.append(
                (
                    "too much tilt",
                    f"beyond {useful:.3g} the sensitivity no longer falls with n; lower tilt or coef_bound",
                )
            )
        return facts


class DPTiltedClassifier(PrivateTiltedModel, PrivateLinearClassifier):
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
    epsilon, delta : float, optional
        Budget for (epsilon, delta)-DP; 1.0 and 1e-6 by default, ``delta=0`` asks for pure epsilon-DP.
    mu : float, optional
        Budget for Gaussian DP, instead of epsilon and delta.
    neighbors : {"replace_one"}
        A replaced record may change its label. Tilted objectives have no bound for add-or-remove-one.
    nominal_samples : None
        Only for other estimators' neighbouring relations.
    feature_bounds : pair (low, high), optional
        Public bounds of the columns, scalars or one value per column; values beyond are clipped.
    row_norm : float, optional
        Bound on a row's influence in mapped units, ``sqrt(n_features)`` by default (1 without feature bounds). The
        influence weight of a longer row multiplies its loss, in the exponent too.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    alpha : float, optional
        Penalty; by default the one with the smallest predicted risk, from public facts.
    coef_bound : float, optional
        Bound on the norm of the mapped coefficients. A steep penalty keeps the minimiser within 1 % of it, which bounds
        the losses; what is released is projected on it. By default the best of a few by predicted risk, or none.
    classes : sequence, optional
        The label set, if it is not to be read from y; the certificate says which.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Only output perturbation has a proof here.
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
    Privacy: as for :class:`DPLogisticRegression`, replace-one only.

    Examples
    --------
    >>> from dpconvex import DPTiltedClassifier
    >>> model = DPTiltedClassifier(tilt=0.5, epsilon=2.0, feature_bounds=(-1, 1), row_norm=1.0)
    >>> model.certify(n_samples=50_000, n_features=4).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    def __init__(
        self,
        tilt: float = 1.0,
        loss: Any = "logistic",
        *,
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
        self.tilt = tilt
        self.loss = loss
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

    def _own_loss(self) -> Any:
        return resolve_loss(self.loss, MARGIN_LOSSES, "margin", type(self).__name__)

    def _plan(self, n_samples: int, n_features: int, n_classes: int | None = None) -> Plan:
        loss = self._own_loss()
        parameters = count_classes(self, n_classes)
        facts = self._public_facts(n_samples, n_features)
        return self._tilted_plan(facts, loss, parameters, {}, (0.0, 1.0))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return what the logistic function makes of the margins; with several classes, normalised.

        A tilted fit weighs hard records more, so these are scores rather than calibrated probabilities.

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
        return [*super()._summary_facts(), *self._tilt_facts()]


class DPTiltedRegressor(RegressorMixin, PrivateTiltedModel):
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
    epsilon, delta, mu, neighbors, nominal_samples, feature_bounds, row_norm, fit_intercept, alpha, coef_bound
        As in :class:`DPTiltedClassifier`.
    mechanism, invalid_rows, sampler, ledger, random_state, verbose
        As in :class:`DPTiltedClassifier`.

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
    Privacy: as for :class:`DPQuantileRegressor`, replace-one only.

    Examples
    --------
    >>> from dpconvex import DPTiltedRegressor
    >>> model = DPTiltedRegressor(tilt=2.0, mu=0.5, feature_bounds=(0, 1), target_bounds=(0, 100))
    >>> model.certify(n_samples=50_000, n_features=4).mechanism
    'output'
    """

    def __init__(
        self,
        tilt: float = 1.0,
        loss: Any = "huber",
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        neighbors: str = "replace_one",
        nominal_samples: int | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        fit_intercept: bool = True,
        alpha: float | None = None,
        coef_bound: float | None = None,
        mechanism: Any = "auto",
        invalid_rows: str = "error",
        sampler: str = "auto",
        ledger: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.tilt = tilt
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.mu = mu
        self.neighbors = neighbors
        self.nominal_samples = nominal_samples
        self.feature_bounds = feature_bounds
        self.target_bounds = target_bounds
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.coef_bound = coef_bound
        self.mechanism = mechanism
        self.invalid_rows = invalid_rows
        self.sampler = sampler
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _own_loss(self) -> Any:
        return resolve_loss(self.loss, RESIDUAL_LOSSES, "residual", type(self).__name__)

    def _plan(self, n_samples: int, n_features: int) -> Plan:
        loss = self._own_loss()
        facts = self._public_facts(n_samples, n_features)
        target = (facts.target_shift, facts.target_scale)
        return self._tilted_plan(facts, loss, {}, REGRESSION, target)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions.

        Parameters
        ----------
        X : array or dataframe of shape (n_samples, n_features)
            Rows; used as they are, without clipping.

        Returns
        -------
        array of shape (n_samples,)
        """
        return self._linear(X)

    def _summary_facts(self) -> list[tuple[str, str]]:
        return self._tilt_facts()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags
