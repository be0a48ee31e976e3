"""Linear classifiers: logistic regression and the linear support vector machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags

from dpconvex.engine.dask.partitions import PartitionTargets
from dpconvex.estimators.linear import LinearConfidenceIntervals, PrivateLinearModel, linear_shrinkage_facts
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import PublicModelFacts, StatedSettings
from dpconvex.inputs.labels import (
    LabelPositions,
    OneVsRestLabels,
    check_label_type,
    count_expected_labels,
    declared_label_set,
    label_set_facts,
    read_label_set,
)
from dpconvex.inputs.people_and_weights import PersonUnit, check_class_weight
from dpconvex.inputs.settings import (
    Label,
    check_optional_positive,
    invalid_rows_setting,
    least_rows,
    resolve_kernel_setting,
)
from dpconvex.inputs.training_data import read_training
from dpconvex.losses import Hinge, Logistic, PointwiseLoss
from dpconvex.mechanisms.mechanism import MechanismPlan
from dpconvex.planning.mechanism_choice import MechanismRequest, choose_classifier_mechanism
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificate import Certificate
from dpconvex.smoothing import ConvolvedLoss, Kernel, convolve
from dpconvex.types import Array

# The smooth loss, the plain loss, and the latter's bandwidth and kernel.
Losses = tuple[PointwiseLoss, PointwiseLoss, float | None, Kernel | None]

# Margins are of order 1 by construction of the hinge, so its smoothing needs no scale from the data.
_HINGE_BANDWIDTH = 0.5


@with_parameters
class PrivateLinearClassifier(ClassifierMixin, PrivateLinearModel):
    """Base of classifiers: labels, one class against the rest, decisions.

    Parameters
    ----------
    classes : sequence, optional
        The labels that may occur. By default they are read from y and become public; the certificate says which. In
        whatever order they are given, ``classes_`` is sorted; of two, the last is the positive one.
    class_weight : dict, optional
        Public weights of labels, 1 where left out; divided by the largest one if that is above 1.

    Attributes
    ----------
    classes_ : array
        The label set, sorted.

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column names, the label set
    and all parameters.
    """

    _: KW_ONLY
    classes: Sequence[Label] | None = None
    class_weight: Mapping[Label, float] | None = None

    classes_: np.ndarray = field(init=False)

    def _losses(self) -> Losses:
        """Return the smooth loss, the plain loss, and the latter's bandwidth and kernel."""
        raise AttributeError(f"{type(self).__name__} does not say which loss it uses.")

    def _stated(self, certificate: Certificate, facts: PublicModelFacts) -> StatedSettings:
        loss = certificate.bounds.loss
        _, plain, bandwidth, kernel = self._losses()
        if isinstance(loss, ConvolvedLoss) and kernel is not None:
            # How far a kink is rounded by default may change.
            if bandwidth is None or getattr(self, "bandwidth", None) is None:
                bandwidth = loss.bandwidth
            plain = convolve(plain, kernel, bandwidth)
        return {"kind of bounds": (type(certificate.bounds), LinearBounds), "loss": (loss, plain)}

    def _plan(self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None) -> MechanismPlan:
        owner = type(self).__name__
        labels = label_set_facts(self, n_classes)
        facts = self._public_facts(privacy_unit, n_features)
        smooth, plain, bandwidth, kernel = self._losses()
        request = MechanismRequest(
            smooth_loss=smooth,
            guarantee=facts.guarantee,
            bounds=facts.linear_bounds(plain, self.neighbors),
            alpha=check_optional_positive("alpha", self.alpha, owner),
            bandwidth=bandwidth,
            kernel=kernel,
            problems=labels["problems"],
            row_map=facts.row_map,
        )
        chosen = choose_classifier_mechanism(self.mechanism, request, owner)
        return self._certified_plan(facts, chosen.mechanism, chosen.bounds, {**labels, **chosen.parameters})

    def certify(
        self,
        n_samples: int,
        n_features: int,
        n_classes: int | None = None,
        *,
        groups: bool = False,
        sample_weight: bool = False,
    ) -> Certificate:
        """Return the certificate of a fit, before any data: equal to ``certificate_`` after a fit of this shape.

        Parameters
        ----------
        n_classes : int, optional
            By default that of ``classes``, or 2; more are fitted one against the rest, sharing the budget.
        """
        privacy_unit = PersonUnit.of(self, n_samples, groups, sample_weight)
        return self._plan(privacy_unit, n_features, count_expected_labels(self, n_classes)).certificate

    def _class_weights(self, targets: Sequence[object]) -> Array | None:
        owner = type(self).__name__
        weights = check_class_weight(self.class_weight, self.classes_.tolist(), owner)
        if weights is None:
            return None
        if not all(isinstance(target, np.ndarray) for target in targets):
            raise TypeError(
                f"The 'class_weight' parameter of {owner} must be None with Dask collections. Got a dictionary "
                "instead. Give a sample_weight."
            )
        arrays = cast(list[np.ndarray], targets)
        row_weights = np.ones(len(arrays[0]))  # invalid rows, whose target is no number, keep the weight 1
        if len(arrays) == 1:
            row_weights[arrays[0] < 0], row_weights[arrays[0] > 0] = weights
            return row_weights
        for target, weight in zip(arrays, weights, strict=True):
            row_weights[target > 0] = weight
        return row_weights

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        owner = type(self).__name__
        declared = declared_label_set(self.classes, owner)
        if invalid_rows_setting(self) and declared is not None:
            check_label_type(y, declared, owner)
            self.classes_ = declared
            clean = PartitionTargets(LabelPositions(tuple(declared.tolist())))
            X, y = read_training(self, X, y, clean, least_rows(self.neighbors))
            positive = np.arange(len(declared))  # labels are positions now
        else:
            X, y = read_training(self, X, y, least=least_rows(self.neighbors))
            self.classes_ = read_label_set(y, declared, owner)
            positive = self.classes_
        chosen = positive[1 if len(positive) == 2 else 0 :]
        targets = [OneVsRestLabels(label) for label in chosen]  # a table of partitions applies them to each
        return X, [target(y) for target in targets] if isinstance(y, np.ndarray) else targets, X.shape

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Return margins of rows, used without clipping: positive means the second class, or one column per class."""
        margins = self._linear(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: object) -> np.ndarray:
        """Return the predicted labels."""
        margins = self.decision_function(X)
        chosen = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _problem_name(self, problem: int) -> str:
        return f"class {self.classes_[problem]!s} against the rest"

    def _summary_facts(self) -> list[tuple[str, str]]:
        parameters = self.certificate_.parameters
        facts = [("classes", str(parameters["n_classes"]))]
        if parameters["problems"] > 1:
            facts.append(("budget split", f"over {parameters['problems']} one-against-rest fits"))
        return [*facts, *linear_shrinkage_facts(self.released_)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class ClassificationProbabilities:
    """Class probabilities: the logistic function of margins."""

    decision_function: Callable[[object], NDArray[np.float64]]

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return class probabilities, a column for each class; more than two are normalised, each against the rest."""
        margins = self.decision_function(X)
        positive = expit(margins)
        if positive.ndim == 1:
            return np.column_stack([1 - positive, positive])
        positive = np.maximum(positive, 1e-300)
        # Large margins all round to 1: the class that is predicted stays the likeliest.
        positive[np.arange(len(margins)), margins.argmax(axis=1)] *= 1 + 2.0**-50
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))


@with_parameters
class DPLogisticRegression(ClassificationProbabilities, LinearConfidenceIntervals, PrivateLinearClassifier):
    r"""Logistic regression under differential privacy.

    Estimates the minimiser of ``F(theta) = (1/n) sum_i w_i log(1 + exp(-y_i x_i . theta)) + (alpha/2) ||theta||^2``
    with labels -1 and +1; 'objective' and 'output' minimise F, the default 'gradient' fits as
    :class:`DPQuantileRegressor` does. More than two classes are fitted one against the rest, sharing the budget.

    Examples
    --------
    >>> from dpconvex import DPLogisticRegression
    >>> model = DPLogisticRegression(epsilon=0.5, feature_bounds=(0, 1))
    >>> model.certify(n_samples=30_000, n_features=20).guarantee
    ApproxDP(epsilon=0.5, delta=1e-06)
    """

    def _losses(self) -> Losses:
        return Logistic(), Logistic(), None, None

    def _plan(self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None) -> MechanismPlan:
        if self.inference is False:
            return super()._plan(privacy_unit, n_features, n_classes)
        facts = self._public_facts(privacy_unit, n_features)
        return self._interval_plan(facts, Logistic(), label_set_facts(self, n_classes))


@with_parameters
class DPLinearSVC(PrivateLinearClassifier):
    r"""Linear support vector machine under differential privacy.

    Estimates the minimiser of ``F(theta) = (1/n) sum_i w_i loss(y_i x_i . theta) + (alpha/2) ||theta||^2`` where
    ``loss`` is the hinge, convolved with a kernel where it must be smooth, and labels are -1 and +1. Mechanisms and
    classes are as in :class:`DPLogisticRegression`.

    Parameters
    ----------
    bandwidth : float, optional
        Width over which the hinge is smoothed, in units of the margin. By default 0.5 where the mechanism needs a
        smooth loss; the private fit smooths no more than noise asks for, and tends to the hinge itself.
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
        kernel = resolve_kernel_setting(self.kernel, owner)
        bandwidth = check_optional_positive("bandwidth", self.bandwidth, owner)
        smooth = convolve(Hinge(), kernel, bandwidth or _HINGE_BANDWIDTH)
        return smooth, Hinge(), bandwidth, kernel
