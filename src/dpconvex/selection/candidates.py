"""Candidates of `DPSelect`: which are allowed, what each may spend, and what they are compared by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid

from dpconvex.inputs.estimator_protocols import Classifier, Model
from dpconvex.inputs.settings import optional_positive
from dpconvex.inputs.tables import takes_columns_in_order
from dpconvex.privacy.guarantees import GaussianDP, Guarantee
from dpconvex.scores import AUCScore, ResidualScore, RightOrWrong, RowScore

__all__ = ["Candidate", "Grid", "Score", "budgeted", "checked_candidates", "compared_by"]

Candidate = dict[str, Any]  # parameters by name
Grid = Mapping[str, Sequence[Any]]
Score = RowScore | AUCScore | RightOrWrong | ResidualScore

# DPSelect spends the budget, and only it.
_BUDGET = {"epsilon", "delta", "mu", "ledger", "random_state"}
# What all candidates share: the relation, what is public, and what is said during a fit.
_SHARED = {
    "neighbors", "nominal_samples", "classes", "invalid_rows", "verbose", "rows_per_person", "person_weight",
}  # fmt: skip


def checked_candidates(estimator: Model, grid: Grid | Sequence[Grid]) -> list[Candidate]:
    """Return the candidates of a grid, or raise if a selection could not keep its promise for them."""
    owner = type(estimator).__name__
    if not hasattr(estimator, "certify") or not (is_classifier(estimator) or is_regressor(estimator)):
        raise TypeError(
            "The 'estimator' parameter of DPSelect must be a classifier or regressor of dpconvex, which states "
            f"what a fit promises before data. Got {owner} instead. Put preprocessing in front of DPSelect."
        )
    own = estimator.get_params(deep=False)
    for name in sorted(_BUDGET & set(own)):
        if own[name] is not None:
            raise ValueError(
                f"The '{name}' parameter of the estimator of DPSelect must be left at None: DPSelect sets "
                "the budget of every fit. Got another value instead. Give it to DPSelect where it applies."
            )
    if own.get("invalid_rows", "error") != "error":
        raise ValueError(
            "The 'invalid_rows' parameter of the estimator of DPSelect must be left at 'error': all rows are "
            "checked before they are split. Got another value instead."
        )
    candidates = list(ParameterGrid(grid))
    for candidate in candidates:
        foreign = sorted(set(candidate) & (_BUDGET | _SHARED) | set(candidate) - set(own))
        if foreign:
            raise ValueError(
                f"The 'param_grid' parameter of DPSelect must hold parameters of {owner} other than its budget "
                f"and what all candidates share, {sorted(_SHARED)}. Got {foreign[0]!r} instead. Set what they "
                "share on the estimator."
            )
    return candidates


def budgeted(
    estimator: Model, parameters: Candidate, per_fit: Guarantee, training: int, seed: int | None = None
) -> Classifier:
    """Return an unfitted candidate with its share of the budget."""
    if isinstance(per_fit, GaussianDP):
        settings: Candidate = {"mu": per_fit.mu}
    else:
        settings = {"epsilon": per_fit.epsilon_bound, "delta": getattr(per_fit, "delta_bound", 0.0)}
    model = clone(estimator).set_params(**parameters, **settings, random_state=seed)
    if getattr(model, "neighbors", None) == "add_or_remove_one":
        model.set_params(nominal_samples=training)
    if hasattr(model, "verbose"):
        model.set_params(verbose=0)  # what is said in each run would tell how many there were
    return takes_columns_in_order(model)


def compared_by(
    estimator: Model, scoring: Callable[[Any, Any], float] | RowScore | AUCScore | None, score_bound: float | None
) -> Score:
    """Return what candidates are compared by."""
    bound = optional_positive("score_bound", score_bound, "DPSelect")
    if isinstance(scoring, (RowScore, AUCScore)):
        score = scoring
        needed = "decision_function" if isinstance(score, AUCScore) else score.response
        if not hasattr(estimator, needed):
            raise TypeError(
                f"The 'scoring' parameter of DPSelect needs '{needed}', which {type(estimator).__name__} does not have."
            )
        return score
    if callable(scoring):
        return RowScore(scoring)
    if scoring is not None:
        raise TypeError(
            "The 'scoring' parameter of DPSelect must be None, a function scoring(target, prediction) of one row, "
            f"a RowScore or an AUCScore. Got {scoring!r} instead. For 'roc_auc' use "
            "AUCScore(min_positive, min_negative) with public lower bounds of the class counts."
        )
    if is_classifier(estimator):
        return RightOrWrong()
    if bound is not None:
        return ResidualScore(bound)
    target = getattr(estimator, "target_bounds", None)
    if target is None:
        raise ValueError(
            "The 'score_bound' parameter of DPSelect must be given where the estimator has no 'target_bounds': "
            "scores must be bounded by public facts."
        )
    return ResidualScore((float(target[1]) - float(target[0])) / 8)
