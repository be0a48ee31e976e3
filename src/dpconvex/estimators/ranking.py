"""Ranking: AUC maximisation over all positive-negative pairs, and scores that are accurate at
the top of a list.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.utils import Tags

from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import check_count, parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.rows import Rows
from dpconvex.engine import RowMap
from dpconvex.engine.sparse_rows import SparseRows
from dpconvex.estimators.classification import PrivateLinearClassifier
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import StatedSettings
from dpconvex.estimators.tilted_and_robust import MARGIN_LOSSES, tilted_or_robust_loss
from dpconvex.inputs.labels import label_set_facts
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.settings import check_optional_positive
from dpconvex.losses import Logistic, PairHinge, PointwiseLoss
from dpconvex.losses.pair_losses import PairLoss
from dpconvex.mechanisms import PrivateFitMechanism
from dpconvex.mechanisms.mechanism import certified_kind
from dpconvex.mechanisms.pairwise_objective_perturbation import ADDED
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives import PairwiseObjective, PartitionedPairwiseObjective, TopRankObjective
from dpconvex.objectives.objective import Objective
from dpconvex.planning.mechanism_choice import (
    choose_pair_loss,
    decide_fit,
    is_auto,
    named_mechanism,
    ranking_mechanism,
)
from dpconvex.privacy.bounds.ranking import PairwiseBounds, TopRankBounds
from dpconvex.releases.perturbed_minimiser import LONGEST, WIDEST
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.dask.rows_and_table import DaskRows


@with_parameters
class PrivateAUCModel(PrivateLinearClassifier):
    """Base of models that rank one class above another: two labels, no intercept, rows shortened
    to a norm.
    """

    fit_intercept: ClassVar[bool] = False  # type: ignore[misc]  # a constant cancels in every difference of scores

    @property
    def _goes_through_origin(self) -> bool:
        """False: scores are compared with each other, so that columns may be centred."""
        return False

    def _two_labels(self, n_classes: int | None) -> Facts:
        labels = label_set_facts(self, n_classes)
        if labels["n_classes"] != 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"{type(self).__name__} ranks one class above another. Choose the positive class "
                "first."
            )
        return labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@with_parameters
class DPAUCClassifier(PrivateAUCModel):
    r"""Linear scores that maximise the area under the ROC curve, under differential privacy.

    Minimises ``F(w) = (1 / (max(n+, m+) max(n-, m-))) sum_{i in +, j in -} loss(w . (x_i - x_j)) +
    (alpha/2) ||w||^2`` over all pairs of a positive and a negative record, in near-linear time
    (objective and output perturbation), or the loss of single records that leads to the same
    ranking with less noise (the default where delta is above 0).

    Parameters
    ----------
    loss : str or pairwise loss, default="logistic"
        Of objective and output perturbation: "logistic" (base 2), "natural-logistic", "hinge"
        (smoothed), "squared" or "squared-hinge". The moments always solve least squares, gradient
        descent the logistic loss of records.
    min_positive, min_negative : int, default=1
        Public lower bounds on the class counts. Noise of objective and output perturbation shrinks
        with them; the guarantee holds even if the data have fewer.
    label_private : bool, default=True
        Whether a replaced record may change its label. False makes labels public; gradient descent
        protects them still.
    neighbors : {"replace_one"}
        Under "add_or_remove_one" labels are private and moments are not offered.
    row_norm : float, optional
        Longer rows are shortened to this norm, in mapped units; ``sqrt(n_features)`` by default (1
        without feature bounds). Gradient descent finds a length privately, objective perturbation
        too if it is None and n allows.
    alpha : float, optional
        Penalty; by default from public facts (0 for moments and gradient descent).
    bandwidth : float, optional
        Width over which the hinge's kink is rounded, in units of score differences; 0.5 by default.
    mechanism : str or Mechanism, default="auto"
        "gradient" (on the logistic loss of single records), "moments", "objective", "output" or a
        mechanism object. "auto" takes objective perturbation for pure epsilon (output for squared
        losses), else "gradient", or "moments" for squared losses and where
        ``n mu < 4 (n_features + 1)``.

    Attributes
    ----------
    intercept_ : array of shape (1,)
        Minus the threshold of `predict`, which the AUC leaves open: where classes of equal weight
        are equally likely (gradient descent), halfway between released class means (moments), or at
        the public centre of mapped rows.
    released_ : dict
        ``midpoint`` of the classes (in the user's units), ``prevalence`` or ``positive_share``,
        ``coordinates`` and ``row_length`` (in mapped units), where they were released;
        ``kept_share`` is 0 where one of the labels could be absent, and coefficients are 0.

    Notes
    -----
    With ``invalid_rows="ignore"`` an invalid row belongs to no class and counts nowhere but in n.

    Privacy: replace-one, the label included unless ``label_private=False``. Public are the shape of
    X, column names, the label set and all parameters; the class counts are not.

    Examples
    --------
    >>> from dpconvex import DPAUCClassifier
    >>> model = DPAUCClassifier(epsilon=0.5, feature_bounds=(0, 1))
    >>> model.certify(n_samples=30_000, n_features=20).mechanism
    'gradient'
    """

    loss: str | PairLoss = "logistic"
    _: KW_ONLY
    min_positive: int = 1
    min_negative: int = 1
    label_private: bool = True
    bandwidth: float | None = None

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        bounds = certificate.bounds
        parameters = certificate.parameters
        expected = self._auc_pair_bounds(facts)
        if isinstance(bounds, LinearBounds):
            single = single_records(facts, facts.row_map)
            kind = certified_kind(certificate)
            row_map = kind.stated_map(certificate, single.row_map)
            record = replace(single, row_map=row_map).linear_bounds(Logistic())
            stated = {
                "kind of bounds": (type(bounds), LinearBounds),
                "loss": (bounds.loss, Logistic()),
                "fit_intercept": (bounds.fit_intercept, True),
                "row_norm": (bounds.row_norm, row_map.row_norm),
                "max_norm": (bounds.max_norm, record.max_norm),
            }
            choices = kind.stated_choices(certificate)
            if choices:
                stated["ranking"] = (choices.get("ranking"), True)
            return stated
        # The bounds are in units of a released length where there is one.
        found = parameters.get(LONGEST, bounds.row_norm), parameters.get(WIDEST, bounds.distance)
        # How far the hinge's kink is rounded by default may change.
        free = self.loss == "hinge" and self.bandwidth is None
        added = parameters.get(ADDED)
        return {
            **(
                {} if added is None else {"alpha": (bounds.alpha, float(self.alpha or 0.0) + added)}
            ),
            "kind of bounds": (type(bounds), PairwiseBounds),
            "loss": (type(bounds.loss), PairHinge) if free else (bounds.loss, expected.loss),
            "min_positive": (bounds.min_positive, expected.min_positive),
            "min_negative": (bounds.min_negative, expected.min_negative),
            "label_private": (bounds.label_private, expected.label_private),
            "row_norm": (found[0], expected.row_norm),
            "diameter": (found[1], expected.distance),
        }

    def _auc_pair_bounds(self, facts: FitRequest) -> PairwiseBounds:
        owner = type(self).__name__
        row_map = replace(facts.row_map, influence="shorten")
        bandwidth = check_optional_positive("bandwidth", self.bandwidth, owner)
        if not isinstance(self.label_private, (bool, np.bool_)):
            raise parameter_error(
                "label_private", owner, "True or False", repr(self.label_private), kind=TypeError
            )
        return PairwiseBounds(
            n_samples=facts.n_samples,
            n_features=row_map.n_features,
            loss=choose_pair_loss(self.loss, bandwidth, owner),
            row_norm=min(row_map.row_norm, row_map.max_norm),
            diameter=row_map.diameter,
            min_positive=check_count(
                "min_positive", owner, self.min_positive, most=facts.n_samples
            ),
            min_negative=check_count(
                "min_negative", owner, self.min_negative, most=facts.n_samples
            ),
            label_private=bool(self.label_private),
            neighbors=self.neighbors,
            ignored_rows=facts.ignored_rows,
        )

    def _plan(
        self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None
    ) -> FitDecision:
        owner = type(self).__name__
        labels = self._two_labels(n_classes)
        facts = self._public_facts(privacy_unit, n_features)
        whole = privacy_unit.has_whole_rows
        bounds = self._auc_pair_bounds(facts)
        if not (whole or bounds.label_private):
            raise ValueError(
                f"The 'label_private' parameter of {owner} must be True with groups, "
                "rows_per_person or weights: a person has rows of both labels, and keeps none of "
                "them. Got False instead."
            )
        alpha = check_optional_positive("alpha", self.alpha, owner)
        # Counts of a private number of rows would need a search of their own.
        known = self.neighbors == "replace_one"
        pairs = replace(
            facts,
            task="ranking",
            parameters={**facts.parameters, **labels},
            row_map=replace(facts.row_map, influence="shorten"),
            bounds=bounds,
            alpha=alpha,
            find_length=known and self.row_norm is None and facts.row_map.low is not None,
        )
        records = replace(single_records(pairs, facts.row_map), ranking=True)
        mechanism: object = self.mechanism
        if is_auto(mechanism):
            # A person with rows of both labels is in pairs with itself: no bound is proven for
            # means over pairs.
            mechanism = ranking_mechanism(pairs, records) if whole else PrivateFitMechanism()
        found = named_mechanism(mechanism, pairs)
        if not isinstance(bounds, found.carries.bounds):
            return decide_fit(found, records)
        if not whole:
            raise ValueError(
                f"The 'mechanism' parameter of {owner} must be 'gradient' with groups, "
                "rows_per_person or weights: how far a person can move a mean over pairs is not "
                f"proven. Got {self.mechanism!r} instead."
            )
        return decide_fit(found, pairs)

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        bounds = certificate.bounds
        if isinstance(bounds, LinearBounds):
            return super()._objective(rows, certificate)
        facts = (bounds.loss, bounds.alpha, bounds.min_positive, bounds.min_negative)
        row_norm = certificate.parameters.get(LONGEST, bounds.row_norm)
        if isinstance(rows, MemoryRows) and rows.small and not isinstance(rows, SparseRows):
            return PairwiseObjective(rows, None, *facts, row_norm=row_norm)
        return PartitionedPairwiseObjective(
            cast("DaskRows | MemoryRows", rows), *facts, row_norm=row_norm
        )

    def _store(self, coefficients: list[Array], plan: FitDecision) -> None:
        super()._store(coefficients, plan)
        if "midpoint" in self.released_ and plan.row_map is not None:
            scale = np.array(plan.row_map.scale)
            middle = np.divide(self.released_["midpoint"], scale, where=scale > 0, out=0 * scale)
            self.released_["midpoint"] = middle + np.array(plan.row_map.shift)
            self.intercept_ = -self.coef_ @ self.released_["midpoint"]

    def score(self, X: object, y: object, sample_weight: ArrayLike | None = None) -> float:
        """Return the area under the ROC curve of `decision_function` for rows of both classes."""
        positive = np.asarray(y) == self.classes_[1]
        return float(
            roc_auc_score(positive, self.decision_function(X), sample_weight=sample_weight)
        )

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        facts = super()._summary_facts()
        if isinstance(bounds, LinearBounds):
            return [*facts, ("labels", "private")]
        counts = f"at least {bounds.min_positive:,} and {bounds.min_negative:,}"
        return [
            *facts,
            ("class counts", counts),
            ("labels", "private" if bounds.label_private else "public"),
        ]


def single_records(request: FitRequest, row_map: RowMap) -> FitRequest:
    """Return the request of a fit along the logistic loss of single records, of rows that are
    mapped so: a ranking by the odds of a label has the largest AUC.
    """
    single = replace(request, row_map=replace(row_map, fit_intercept=True))
    return replace(single, bounds=single.linear_bounds(Logistic()))


@with_parameters
class DPTopRankClassifier(PrivateAUCModel):
    r"""Linear scores that are accurate at the top of a ranked list, under differential privacy.

    Minimises ``F(theta) = (1 / max(n+, m+)) sum_{positive i} loss(x_i . theta - T(theta)) +
    (alpha/2) ||theta||^2`` where ``T(theta)`` is the smoothed mean of the ``top`` largest scores of
    negative records: positive records are to score above the negative ones that score highest.
    `decision_function` ranks.

    Parameters
    ----------
    top : int, default=100
        K: how many negative records, those of highest score, positive ones are compared with. Noise
        shrinks with K.
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Of the difference: smooth, never negative and never increasing; the hinge is smoothed with
        bandwidth 0.5.
    min_positive : int, optional
        m+: public lower bound on the number of positive records, ``top`` by default. Noise shrinks
        with it; the guarantee holds even if the data have fewer, whose losses then count less.
    row_norm : float, optional
        Longer rows are shortened to this norm, in mapped units; ``sqrt(n_features)`` by default (1
        without feature bounds).
    neighbors, nominal_samples, class_weight, rows_per_person, person_weight
        At their defaults only: bounds are proven for a replaced row that is a record of its own.
    alpha : float, optional
        Penalty; by default such that noise moves the score of a row by no more than 1/20, from
        public facts.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Only output perturbation has a proof here.

    Attributes
    ----------
    intercept_ : array of shape (1,)
        Puts the threshold of `predict`, which a ranking leaves open, at the public centre of the
        mapped rows.

    Notes
    -----
    Data are held in memory, those of a Dask collection and of a sparse matrix too. An invalid row
    that is ignored belongs to no class and counts nowhere but in n.

    Privacy: replace-one, the label included. Public are the shape of X, column names, the label set
    and all parameters; the class counts are not.

    Examples
    --------
    >>> from dpconvex import DPTopRankClassifier
    >>> model = DPTopRankClassifier(top=500, epsilon=2.0, feature_bounds=(0, 1), row_norm=1.0)
    >>> model.certify(n_samples=50_000, n_features=4).guarantee
    ApproxDP(epsilon=2.0, delta=1e-06)
    """

    top: int = 100
    loss: str | PointwiseLoss = "logistic"
    _: KW_ONLY
    min_positive: int | None = None

    def _checked_top_and_min_positive(self) -> dict[str, int]:
        owner = type(self).__name__
        top = check_count("top", owner, self.top, 1)
        least = (
            top
            if self.min_positive is None
            else check_count("min_positive", owner, self.min_positive, 1)
        )
        return {"top": top, "min_positive": least}

    def _own_loss(self) -> PointwiseLoss:
        owner = type(self).__name__
        loss = tilted_or_robust_loss(self.loss, MARGIN_LOSSES, owner)
        if loss.slope_range[1] > 0:
            raise ValueError(
                f"The 'loss' parameter of {owner} must never increase, as 'logistic' and 'hinge'. "
                f"Got {loss!r} instead."
            )
        return loss

    def _plan(
        self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None
    ) -> FitDecision:
        owner = type(self).__name__
        labels = self._two_labels(n_classes)
        privacy_unit.require_rows(
            owner, "how far a person can move the top of a list is not proven"
        )
        if self.neighbors == "add_or_remove_one":
            allowed = "'replace_one': where minimisers lie depends on a public number of records"
            raise parameter_error("neighbors", owner, allowed, "'add_or_remove_one'")
        facts = self._public_facts(privacy_unit, n_features)
        row_map = replace(facts.row_map, influence="shorten")
        bounds = TopRankBounds(
            n_samples=facts.n_samples,
            n_features=row_map.n_features,
            loss=self._own_loss(),
            row_norm=min(row_map.row_norm, row_map.max_norm),
            neighbors=self.neighbors,
            **self._checked_top_and_min_positive(),
        )
        request = replace(
            facts,
            task="risk measures",
            parameters={**facts.parameters, **labels},
            row_map=row_map,
            bounds=bounds,
            alpha=check_optional_positive("alpha", self.alpha, owner),
        )
        return decide_fit(self.mechanism, request)

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        bounds = certificate.bounds
        row_map = replace(facts.row_map, influence="shorten")
        return {
            "kind of bounds": (type(bounds), TopRankBounds),
            "loss": (bounds.loss, self._own_loss()),
            "row_norm": (bounds.row_norm, min(row_map.row_norm, row_map.max_norm)),
            "width": (bounds.width, TopRankBounds.width),
            **{
                name: (getattr(bounds, name), value)
                for name, value in self._checked_top_and_min_positive().items()
            },
        }

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        facts = certificate.bounds
        constants = (
            facts.loss,
            facts.row_norm,
            facts.top,
            facts.min_positive,
            facts.alpha,
            facts.width,
        )
        return TopRankObjective(cast("DaskRows | MemoryRows", rows), None, *constants)

    def score(self, X: object, y: object, sample_weight: ArrayLike | None = None) -> float:
        """Return the average precision of `decision_function`, which counts the top of a list
        most.
        """
        positive = np.asarray(y) == self.classes_[1]
        scores = self.decision_function(X)
        return float(average_precision_score(positive, scores, sample_weight=sample_weight))

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        return [
            *super()._summary_facts(),
            ("top", f"above the {bounds.top:,} negative records of highest score"),
            ("class counts", f"at least {bounds.min_positive:,} positive"),
            ("labels", "private"),
        ]
