"""Top-rank classification: scores that are accurate at the top of a ranked list."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score

from dpconvex.checks import check_count, parameter_error
from dpconvex.engine.rows import Rows
from dpconvex.estimators.auc import PrivateAUCModel
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import PublicModelFacts, StatedSettings
from dpconvex.estimators.tilted_and_robust import MARGIN_LOSSES, tilted_or_robust_loss
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.settings import check_optional_positive
from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms.mechanism import MechanismPlan
from dpconvex.objectives import TopRankObjective
from dpconvex.objectives.objective import Objective
from dpconvex.planning.output_penalties import output_penalty_mechanism, top_rank_output_penalty
from dpconvex.privacy.bounds.ranking import TopRankBounds
from dpconvex.privacy.certificate import Certificate

if TYPE_CHECKING:
    from dpconvex.engine.dask.rows_and_table import DaskRows
    from dpconvex.engine.memory_rows import MemoryRows


@with_parameters
class DPTopRankClassifier(PrivateAUCModel):
    r"""Linear scores that are accurate at the top of a ranked list, under differential privacy.

    Minimises ``F(theta) = (1 / max(n+, m+)) sum_{positive i} loss(x_i . theta - T(theta)) + (alpha/2) ||theta||^2``
    where ``T(theta)`` is the smoothed mean of the ``top`` largest scores of negative records: positive records are to
    score above the negative ones that score highest. `decision_function` ranks.

    Parameters
    ----------
    top : int, default=100
        K: how many negative records, those of highest score, positive ones are compared with. Noise shrinks with K.
    loss : {"logistic", "hinge"} or Loss, default="logistic"
        Of the difference: smooth, never negative and never increasing; the hinge is smoothed with bandwidth 0.5.
    min_positive : int, optional
        m+: public lower bound on the number of positive records, ``top`` by default. Noise shrinks with it; the
        guarantee holds even if the data have fewer, whose losses then count less.
    row_norm : float, optional
        Longer rows are shortened to this norm, in mapped units; ``sqrt(n_features)`` by default (1 without feature
        bounds).
    neighbors, nominal_samples, class_weight, rows_per_person, person_weight
        At their defaults only: bounds are proven for a replaced row that is a record of its own.
    alpha : float, optional
        Penalty; by default such that noise moves the score of a row by no more than 1/20, from public facts.
    mechanism : {"auto", "output"} or OutputPerturbation, default="auto"
        Only output perturbation has a proof here.

    Attributes
    ----------
    intercept_ : array of shape (1,)
        Puts the threshold of `predict`, which a ranking leaves open, at the public centre of the mapped rows.

    Notes
    -----
    Data are held in memory, those of a Dask collection and of a sparse matrix too. An invalid row that is ignored
    belongs to no class and counts nowhere but in n.

    Privacy: replace-one, the label included. Public are the shape of X, column names, the label set and all parameters;
    the class counts are not.

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

    def _own(self) -> dict[str, int]:
        """Return K and m+, checked."""
        owner = type(self).__name__
        top = check_count("top", owner, self.top, 1)
        least = top if self.min_positive is None else check_count("min_positive", owner, self.min_positive, 1)
        return {"top": top, "min_positive": least}

    def _own_loss(self) -> PointwiseLoss:
        owner = type(self).__name__
        loss = tilted_or_robust_loss(self.loss, MARGIN_LOSSES, owner)
        if loss.slope_range[1] > 0:
            raise ValueError(
                f"The 'loss' parameter of {owner} must never increase, as 'logistic' and 'hinge'. Got {loss!r} instead."
            )
        return loss

    def _plan(self, privacy_unit: PersonUnit, n_features: int, n_classes: int | None = None) -> MechanismPlan:
        owner = type(self).__name__
        mechanism = output_penalty_mechanism(self.mechanism, owner)
        parameters = self._two_labels(n_classes)
        privacy_unit.require_rows(owner, "how far a person can move the top of a list is not proven")
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
            **self._own(),
        )
        alpha = check_optional_positive("alpha", self.alpha, owner)
        if alpha is None:
            alpha = top_rank_output_penalty(bounds, facts.guarantee, parameters)
        return self._certified_plan(facts, mechanism, replace(bounds, alpha=alpha), parameters, row_map)

    def _stated(self, certificate: Certificate, facts: PublicModelFacts) -> StatedSettings:
        bounds, row_map = certificate.bounds, replace(facts.row_map, influence="shorten")
        return {
            "kind of bounds": (type(bounds), TopRankBounds),
            "loss": (bounds.loss, self._own_loss()),
            "row_norm": (bounds.row_norm, min(row_map.row_norm, row_map.max_norm)),
            "width": (bounds.width, TopRankBounds.width),
            **{name: (getattr(bounds, name), value) for name, value in self._own().items()},
        }

    def _objective(self, rows: Rows, certificate: Certificate) -> Objective:
        facts = certificate.bounds
        constants = (facts.loss, facts.row_norm, facts.top, facts.min_positive, facts.alpha, facts.width)
        return TopRankObjective(cast("DaskRows | MemoryRows", rows), None, *constants)

    def score(self, X: object, y: object, sample_weight: ArrayLike | None = None) -> float:
        """Return the average precision of `decision_function`, which counts the top of a list most."""
        positive, scores = np.asarray(y) == self.classes_[1], self.decision_function(X)
        return float(average_precision_score(positive, scores, sample_weight=sample_weight))

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        return [
            *super()._summary_facts(),
            ("top", f"above the {bounds.top:,} negative records of highest score"),
            ("class counts", f"at least {bounds.min_positive:,} positive"),
            ("labels", "private"),
        ]
