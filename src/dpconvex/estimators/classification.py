"""Linear classifiers: logistic regression, the linear support vector machine, and ordered
levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import parameter_error
from dpconvex.core.guarantees import PureDP
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.engine.dask.partitions import PartitionTargets
from dpconvex.estimators import linear
from dpconvex.estimators.linear import (
    LinearConfidenceIntervals,
    PrivateLinearModel,
    linear_predictions,
)
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import StatedSettings
from dpconvex.inputs import labels as label_sets
from dpconvex.inputs import settings
from dpconvex.inputs.labels import LabelNumbers, LabelPositions, OneVsRestLabels
from dpconvex.inputs.people_and_weights import PersonUnit, check_class_weight
from dpconvex.inputs.records import check_table_setting
from dpconvex.inputs.settings import Label
from dpconvex.inputs.training_data import read_features, read_training
from dpconvex.losses import (
    CrammerSinger,
    Hinge,
    Logistic,
    PointwiseLoss,
    ProportionalOdds,
    SeveralMarginLoss,
    Softmax,
)
from dpconvex.mechanisms.mechanism import resolve_mechanism
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.planning.mechanism_choice import decide_fit, is_auto
from dpconvex.smoothing import ConvolvedLoss, Kernel, convolve
from dpconvex.types import Array

# The smooth loss, the plain loss, and the latter's bandwidth and kernel.
Losses = tuple[PointwiseLoss, PointwiseLoss, float | None, Kernel | None]

# Margins are of order 1 by construction of the hinge, so its smoothing needs no scale from the
# data.
_HINGE_BANDWIDTH = 0.5


@with_parameters
class PrivateLinearClassifier(ClassifierMixin, PrivateLinearModel):
    """Base of classifiers: labels, several classes jointly or one against the rest, decisions.

    Parameters
    ----------
    classes : sequence, optional
        The labels that may occur. By default they are read from y and become public; the
        certificate says which. In whatever order they are given, ``classes_`` is sorted; of two,
        the last is the positive one.
    class_weight : dict, optional
        Public weights of labels, 1 where left out; divided by the largest one if that is above 1.

    Attributes
    ----------
    classes_ : array
        The label set, sorted.

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column
    names, the label set and all parameters.
    """

    _: KW_ONLY
    classes: Sequence[Label] | None = None
    class_weight: Mapping[Label, float] | None = None

    classes_: np.ndarray = field(init=False)

    def _losses(self) -> Losses:
        raise AttributeError(f"{type(self).__name__} does not say which loss it uses.")

    def _joint_loss(self, n_classes: int) -> SeveralMarginLoss | None:
        """Return the loss of several classes in one fit; None where there is none, or the
        mechanism has none.
        """
        return None

    def _descends_jointly(self, n_classes: int) -> bool:
        if n_classes < 3 or self.inference:
            return False
        if is_auto(self.mechanism):
            guarantee = settings.resolve_budget_setting(
                self.epsilon, self.delta, self.mu, type(self).__name__
            )
            return not isinstance(guarantee, PureDP)
        mechanism = resolve_mechanism(self.mechanism, type(self).__name__)
        return mechanism.carries.several_margins

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        loss = certificate.bounds.loss
        _, plain, bandwidth, kernel = self._losses()
        if loss.kind == "several":
            joint = self._joint_loss(certificate.parameters["n_classes"])
            return {
                "kind of bounds": (type(certificate.bounds), LinearBounds),
                "loss": (loss, joint),
            }
        if isinstance(loss, ConvolvedLoss) and kernel is not None:
            # How far a kink is rounded by default may change.
            if bandwidth is None or getattr(self, "bandwidth", None) is None:
                bandwidth = loss.bandwidth
            plain = convolve(plain, kernel, bandwidth)
        return {"kind of bounds": (type(certificate.bounds), LinearBounds), "loss": (loss, plain)}

    def _plan(
        self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None
    ) -> FitDecision:
        owner = type(self).__name__
        labels = label_sets.label_set_facts(self, n_classes)
        facts = self._public_facts(privacy_unit, n_features)
        smooth, plain, bandwidth, kernel = self._losses()
        request = replace(
            facts,
            task="classes",
            parameters={**facts.parameters, **labels},
            bounds=facts.linear_bounds(plain),
            smooth_loss=smooth,
            joint_loss=self._joint_loss(labels["n_classes"]),
            alpha=settings.check_optional_positive("alpha", self.alpha, owner),
            bandwidth=bandwidth,
            kernel=kernel,
            problems=labels["problems"],
        )
        return decide_fit(self.mechanism, request)

    def certify(
        self,
        n_samples: int,
        n_features: int,
        n_classes: int | None = None,
        *,
        groups: bool = False,
        sample_weight: bool = False,
        table: bool = False,
    ) -> Certificate:
        """Return the certificate of a classifier's fit, before any data: equal to ``certificate_``
        after such a fit.

        Parameters
        ----------
        n_classes : int, optional
            By default that of ``classes``, or 2.
        """
        of_table = check_table_setting(table, f"{type(self).__name__}.certify")
        privacy_unit = PersonUnit.of(self, n_samples, groups, sample_weight, of_table)
        return self._plan(
            privacy_unit, n_features, label_sets.count_expected_labels(self, n_classes)
        ).certificate

    def _class_weights(self, targets: Sequence[object]) -> Array | None:
        owner = type(self).__name__
        weights = check_class_weight(self.class_weight, self.classes_.tolist(), owner)
        if weights is None:
            return None
        if not all(isinstance(target, np.ndarray) for target in targets):
            allowed = "None with Dask collections"
            remedy = "Give a sample_weight."
            raise parameter_error(
                "class_weight", owner, allowed, "a dictionary", remedy, kind=TypeError
            )
        arrays = cast(list[np.ndarray], targets)
        row_weights = np.ones(
            len(arrays[0])
        )  # invalid rows, whose target is no number, keep the weight 1
        if len(arrays) == 1 and self._joint_loss(len(weights)) is None:
            row_weights[arrays[0] < 0], row_weights[arrays[0] > 0] = weights
            return row_weights
        if len(arrays) == 1:  # numbers of classes
            arrays = [np.where(arrays[0] == number, 1.0, -1.0) for number in range(len(weights))]
        for target, weight in zip(arrays, weights, strict=True):
            row_weights[target > 0] = weight
        return row_weights

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        owner = type(self).__name__
        declared = label_sets.declared_label_set(self.classes, owner, ordered=self._ordered_classes)
        if settings.invalid_rows_setting(self) and declared is not None:
            label_sets.check_label_type(y, declared, owner)
            self.classes_ = declared
            clean = PartitionTargets(LabelPositions(tuple(declared.tolist())))
            X, y = read_training(self, X, y, clean, settings.least_rows(self.neighbors))
            positive = np.arange(len(declared))  # labels are positions now
        else:
            X, y = read_training(self, X, y, least=settings.least_rows(self.neighbors))
            self.classes_ = label_sets.read_label_set(y, declared, owner)
            positive = self.classes_
        chosen = positive[1 if len(positive) == 2 else 0 :]
        # A table of partitions applies them to each.
        targets: list[Callable[[np.ndarray], np.ndarray]] = [
            OneVsRestLabels(label) for label in chosen
        ]
        if self._joint_loss(len(positive)) is not None:
            targets = [LabelNumbers(tuple(positive.tolist()))]
        return (
            X,
            [target(y) for target in targets] if isinstance(y, np.ndarray) else targets,
            X.shape,
        )

    def _store(self, coefficients: list[Array], plan: FitDecision) -> None:
        super()._store([row for found in coefficients for row in np.atleast_2d(found)], plan)

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Return margins of rows, used without clipping: positive means the second class, or one
        column per class.
        """
        margins = self._linear(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: object) -> np.ndarray:
        """Return the predicted labels."""
        margins = self.decision_function(X)
        chosen = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _problem_name(self, problem: int) -> str:
        joint = self.certificate_.parameters["problems"] == 1
        return f"class {self.classes_[problem]!s}{'' if joint else ' against the rest'}"

    def _summary_facts(self) -> list[tuple[str, str]]:
        parameters = self.certificate_.parameters
        facts = [("classes", str(parameters["n_classes"]))]
        if parameters["problems"] > 1:
            facts.append(("budget split", f"over {parameters['problems']} one-against-rest fits"))
        return [*facts, *linear.linear_shrinkage_facts(self.released_)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class ClassificationProbabilities:
    """Class probabilities: the logistic function of margins, or the softmax of several classes
    that are one fit.
    """

    decision_function: Callable[[object], NDArray[np.float64]]
    certificate_: Certificate

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return the classifier's probabilities, a column for each class."""
        margins = self.decision_function(X)
        if self.certificate_.bounds.loss.kind == "several":
            return np.asarray(softmax(margins, axis=1))
        positive = expit(margins)
        if positive.ndim == 1:
            return np.column_stack([1 - positive, positive])
        positive = np.maximum(positive, 1e-300)
        # Large margins all round to 1: the class that is predicted stays the likeliest.
        positive[np.arange(len(margins)), margins.argmax(axis=1)] *= 1 + 2.0**-50
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))


@with_parameters
class DPLogisticRegression(
    ClassificationProbabilities, LinearConfidenceIntervals, PrivateLinearClassifier
):
    r"""Logistic regression under differential privacy.

    Estimates the minimiser of ``F(theta) = (1/n) sum_i w_i log(1 + exp(-y_i x_i . theta)) +
    (alpha/2) ||theta||^2`` with labels -1 and +1; 'objective' and 'output' minimise F, the default
    'gradient' fits as :class:`DPQuantileRegressor` does. Of more than two classes the default fits
    the softmax loss ``log sum_j exp(x_i . theta_j) - x_i . theta_{y_i}``, each record clipped as a
    whole; other mechanisms, and ``inference=True``, fit one class against the rest and share the
    budget.

    Examples
    --------
    >>> from dpconvex import DPLogisticRegression
    >>> model = DPLogisticRegression(epsilon=0.5, feature_bounds=(0, 1))
    >>> model.certify(n_samples=30_000, n_features=20).guarantee
    ApproxDP(epsilon=0.5, delta=1e-06)
    """

    def _losses(self) -> Losses:
        return Logistic(), Logistic(), None, None

    def _joint_loss(self, n_classes: int) -> SeveralMarginLoss | None:
        return Softmax(n_classes) if self._descends_jointly(n_classes) else None

    def _plan(
        self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None
    ) -> FitDecision:
        if self.inference is False:
            return super()._plan(privacy_unit, n_features, n_classes)
        facts = self._public_facts(privacy_unit, n_features)
        labels = label_sets.label_set_facts(self, n_classes)
        return self._interval_plan(facts, "classes", Logistic(), labels)


@with_parameters
class DPLinearSVC(PrivateLinearClassifier):
    r"""Linear support vector machine under differential privacy.

    Estimates the minimiser of ``F(theta) = (1/n) sum_i w_i loss(y_i x_i . theta) + (alpha/2)
    ||theta||^2`` where ``loss`` is the hinge, convolved with a kernel where it must be smooth, and
    labels are -1 and +1. Mechanisms and classes are as in :class:`DPLogisticRegression`; the loss
    of more than two classes in one fit is that of Crammer and Singer,
    ``max_j (x_i . theta_j + 1[j != y_i]) - x_i . theta_{y_i}``.

    Parameters
    ----------
    bandwidth : float, optional
        Width over which the hinge is smoothed, in units of the margin. By default 0.5 where the
        mechanism needs a smooth loss; the private fit smooths no more than noise asks for, and
        tends to the hinge itself.
    kernel : str or Kernel, default="logistic"
        Smoothing kernel, as for :class:`DPQuantileRegressor`.

    Examples
    --------
    >>> from dpconvex import DPLinearSVC
    >>> DPLinearSVC(mu=0.5, feature_bounds=(-1, 1)).certify(n_samples=9_000, n_features=5).guarantee
    GaussianDP(mu=0.5)
    """

    _: KW_ONLY
    bandwidth: float | None = None
    kernel: str | Kernel = "logistic"

    def _losses(self) -> Losses:
        owner = type(self).__name__
        kernel = settings.resolve_kernel_setting(self.kernel, owner)
        bandwidth = settings.check_optional_positive("bandwidth", self.bandwidth, owner)
        return convolve(Hinge(), kernel, bandwidth or _HINGE_BANDWIDTH), Hinge(), bandwidth, kernel

    def _joint_loss(self, n_classes: int) -> SeveralMarginLoss | None:
        return CrammerSinger(n_classes) if self._descends_jointly(n_classes) else None


@with_parameters
class DPOrdinalRegression(PrivateLinearClassifier):
    r"""Proportional odds of ordered levels under differential privacy.

    The probability of level j or a lower one is ``sigma(t_j - x . coef)`` with thresholds ``t_j``
    that increase: columns shift the log odds of being above each level alike. Estimates the
    minimiser of the mean over records of
    ``-log(sigma(t_y - x . coef) - sigma(t_{y-1} - x . coef))``, with ``t`` infinite at both ends. A
    record is clipped as a whole.

    Parameters
    ----------
    classes : sequence, optional
        The levels that may occur, from the lowest to the highest. Without it levels are read from y
        and become public, and must be numbers, which are sorted: words have no order of their own.

    Attributes
    ----------
    classes_ : array
        The levels, in order.
    coef_ : array of shape (n_features,)
        Log odds ratios of being above any level, in the user's units.
    intercept_ : array of shape (n_classes - 1,)
        Log odds of being above each level but the highest where all columns are 0: minus the
        thresholds.
    thresholds_ : array of shape (n_classes - 1,)
        Increasing thresholds, ``-intercept_``.

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column
    names, the levels and all parameters. Everything that ends with an underscore is covered by the
    guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPOrdinalRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> y = np.digitize(X @ [2.0, -1.0] + rng.logistic(size=20_000), [-1.0, 0.0, 2.0])
    >>> model = DPOrdinalRegression(
    ...     epsilon=1.0, feature_bounds=(-1, 1), classes=[0, 1, 2, 3], random_state=0
    ... ).fit(X, y)
    >>> bool(
    ...     np.allclose(model.coef_, [2.0, -1.0], atol=0.2)
    ...     and np.allclose(model.thresholds_, [-1, 0, 2], atol=0.2)
    ... )
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

    def _plan(
        self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None
    ) -> FitDecision:
        labels = {**label_sets.label_set_facts(self, n_classes), "problems": 1}
        loss = self._joint_loss(labels["n_classes"])
        return self._common_descent_plan(privacy_unit, n_features, loss, "levels", labels)

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        read = super()._read(X, y)
        if self.classes is None and self.classes_.dtype.kind in "UO":
            raise ValueError(
                "The 'classes' parameter of DPOrdinalRegression must be the levels in their "
                "order where they are text. Got None instead. Give classes=[...], from the "
                "lowest level to the highest."
            )
        return read

    def _store(self, coefficients: list[Array], plan: FitDecision) -> None:
        coef, margins = self._in_user_units(list(coefficients[0]), plan)
        # Noise may leave thresholds of rare levels in the wrong order: sorted ones are no further
        # from the right ones.
        self.coef_ = -coef[0]
        self.intercept_ = -np.sort(margins)

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return the probability of each level, a column for each."""
        check_is_fitted(self)
        above = expit(
            linear_predictions(read_features(self, X), self.coef_)[:, None] + self.intercept_
        )
        return np.asarray(-np.diff(above, axis=1, prepend=1.0, append=0.0))

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Return log probabilities, a column for each level; of two levels the log odds of the
        higher one.
        """
        shares = np.maximum(self.predict_proba(X), 1e-300)
        return np.log(shares[:, 1] / shares[:, 0]) if shares.shape[1] == 2 else np.log(shares)
