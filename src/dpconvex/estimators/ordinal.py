"""Ordered levels: grades, severities, answers from "never" to "always"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from dpconvex.estimators.classification import Losses, PrivateLinearClassifier
from dpconvex.estimators.linear import linear_predictions
from dpconvex.estimators.parameters import with_parameters
from dpconvex.inputs.labels import label_set_facts
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.training_data import read_features
from dpconvex.losses import Logistic, ProportionalOdds, SeveralMarginLoss
from dpconvex.mechanisms.mechanism import MechanismPlan
from dpconvex.types import Array


@with_parameters
class DPOrdinalRegression(PrivateLinearClassifier):
    r"""Proportional odds of ordered levels under differential privacy.

    The probability of level j or a lower one is ``sigma(t_j - x . coef)`` with thresholds ``t_j`` that increase:
    columns shift the log odds of being above each level alike. Estimates the minimiser of the mean over records of
    ``-log(sigma(t_y - x . coef) - sigma(t_{y-1} - x . coef))``, with ``t`` infinite at both ends. A record is clipped
    as a whole.

    Parameters
    ----------
    classes : sequence, optional
        The levels that may occur, from the lowest to the highest. Without it levels are read from y and become public,
        and must be numbers, which are sorted: words have no order of their own.

    Attributes
    ----------
    classes_ : array
        The levels, in order.
    coef_ : array of shape (n_features,)
        Log odds ratios of being above any level, in the user's units.
    intercept_ : array of shape (n_classes - 1,)
        Log odds of being above each level but the highest where all columns are 0: minus the thresholds.
    thresholds_ : array of shape (n_classes - 1,)
        Increasing thresholds, ``-intercept_``.

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column names, the levels and
    all parameters. Everything that ends with an underscore is covered by the guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPOrdinalRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> y = np.digitize(X @ [2.0, -1.0] + rng.logistic(size=20_000), [-1.0, 0.0, 2.0])
    >>> model = DPOrdinalRegression(epsilon=1.0, feature_bounds=(-1, 1), classes=[0, 1, 2, 3], random_state=0).fit(X, y)
    >>> bool(np.allclose(model.coef_, [2.0, -1.0], atol=0.2) and np.allclose(model.thresholds_, [-1, 0, 2], atol=0.2))
    True
    >>> model.predict_proba(X[:3]).shape
    (3, 4)
    """

    _ordered_classes = True

    @property
    def thresholds_(self) -> NDArray[np.float64]:
        """Increasing thresholds between levels, on the scale of ``X @ coef_``."""
        check_is_fitted(self)
        return -np.asarray(self.intercept_)

    def _losses(self) -> Losses:
        return Logistic(), Logistic(), None, None

    def _joint_loss(self, n_classes: int) -> SeveralMarginLoss:
        return ProportionalOdds(n_classes - 1)

    def _plan(self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None) -> MechanismPlan:
        labels = {**label_set_facts(self, n_classes), "problems": 1}
        loss = self._joint_loss(labels["n_classes"])
        return self._common_descent_plan(privacy_unit, n_features, loss, "levels", labels)

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        read = super()._read(X, y)
        if self.classes is None and self.classes_.dtype.kind in "UO":
            raise ValueError(
                "The 'classes' parameter of DPOrdinalRegression must be the levels in their order where they are text. "
                "Got None instead. Give classes=[...], from the lowest level to the highest."
            )
        return read

    def _store(self, coefficients: list[Array], plan: MechanismPlan) -> None:
        coef, margins = self._in_user_units(list(coefficients[0]), plan)
        # Noise may leave thresholds of rare levels in the wrong order: sorted ones are no further from the right ones.
        self.coef_, self.intercept_ = -coef[0], -np.sort(margins)

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return the probability of each level, a column for each."""
        check_is_fitted(self)
        above = expit(linear_predictions(read_features(self, X), self.coef_)[:, None] + self.intercept_)
        return np.asarray(-np.diff(above, axis=1, prepend=1.0, append=0.0))

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Return log probabilities, a column for each level; of two levels the log odds of the higher one."""
        shares = np.maximum(self.predict_proba(X), 1e-300)
        return np.log(shares[:, 1] / shares[:, 0]) if shares.shape[1] == 2 else np.log(shares)
