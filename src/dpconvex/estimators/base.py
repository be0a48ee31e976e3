"""What every estimator has: budget, neighbours, ledger, and a fit that either succeeds or leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import MOST_FEATURES, check_count
from dpconvex.estimators.parameters import estimator
from dpconvex.estimators.release import release, unchanged_on_failure, without_warnings
from dpconvex.inputs.people import Ballot, Records, read_ballot, with_people
from dpconvex.inputs.settings import (
    INVALID_ROWS,
    ignores_invalid,
    optional_positive,
    resolve_guarantee,
    resolve_samples,
)
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives.objective import Objective
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.ledger.ledger import Ledger
from dpconvex.privacy.noise.gate import Seed
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.reports.summary import Summary

__all__ = ["CommonFacts", "PrivateModel"]

#: By name, what a certificate says of an estimator's settings, and what these say.
Stated = dict[str, tuple[object, object]]


@dataclass(frozen=True)
class CommonFacts:
    """The checked settings of an estimator: budget, public number of records, parameters to state."""

    guarantee: Guarantee
    n_samples: int
    parameters: Facts
    ignored_rows: bool = False
    records: Records = field(kw_only=True)


@estimator
class PrivateModel(BaseEstimator):
    """Shared behaviour; subclasses read their data (``_read``) and decide from public facts (``_plan``)."""

    _: KW_ONLY
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    neighbors: str = "replace_one"
    nominal_samples: int | None = None
    alpha: float | None = None
    coef_bound: float | None = None
    mechanism: str | Mechanism = "auto"
    invalid_rows: str = "error"
    sampler: str = "auto"
    ledger: Ledger | None = None
    random_state: Seed = None
    verbose: int = 0

    certificate_: Certificate = field(init=False)
    released_: Facts = field(init=False)
    n_features_in_: int = field(init=False)

    def _common_facts(self, records: Records, n_features: int) -> CommonFacts:
        """Check the settings that every estimator has; raises before data are read or budget is spent."""
        owner = type(self).__name__
        check_count("n_samples", f"{owner}.certify", records.count)
        check_count("n_features", f"{owner}.certify", n_features, most=MOST_FEATURES)
        if self.ledger is not None and not hasattr(self.ledger, "charge"):
            raise TypeError(
                f"The 'ledger' parameter of {owner} must be None or a Ledger. Got {type(self.ledger).__name__} "
                "instead. Open one with dpconvex.privacy.Ledger(path, epsilon=..., delta=...)."
            )
        ignored = ignores_invalid(self)
        return CommonFacts(
            guarantee=resolve_guarantee(self.epsilon, self.delta, self.mu, owner),
            n_samples=resolve_samples(self.neighbors, self.nominal_samples, records.count, owner),
            parameters={
                "coef_bound": optional_positive("coef_bound", self.coef_bound, owner),
                "invalid_rows": INVALID_ROWS["ignore" if ignored else "error"],
            },
            ignored_rows=ignored,
            records=records,
        )

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        """Return checked data, the target of each problem, and the shape that `_plan` takes."""
        raise AttributeError(f"{type(self).__name__} does not say how to read data.")

    def _plan(self, *shape: Any) -> Plan:
        """Decide everything from public facts."""
        raise AttributeError(f"{type(self).__name__} does not say how to plan a fit.")

    def _objectives(self, X: object, targets: Sequence[object], plan: Plan, ballot: Ballot) -> Sequence[Objective]:
        """Return the functions of theta whose minimisers are released privately."""
        raise AttributeError(f"{type(self).__name__} does not say what it minimises.")

    def _store(self, coefficients: list[Array], plan: Plan) -> None:
        """Keep the released coefficients of each problem, in the user's units."""
        raise AttributeError(f"{type(self).__name__} does not say what it keeps.")

    def _summary_facts(self) -> list[tuple[str, str]]:
        """Return what a summary says of this estimator alone."""
        return []

    def _stated(self, certificate: Certificate, facts: Any) -> Stated:
        """Return, by name, what a certificate says of this estimator's own settings and what it should say."""
        return {}

    def _release(self, X: object, y: object, sample_weight: object, groups: object) -> None:
        """Read, plan, charge, release and store: nothing is charged before all checks of the input."""
        if hasattr(self, "schema_"):  # of a loaded model: a fit says itself what its columns are
            del self.schema_
        X, groups = with_people(X, groups)
        with without_warnings() if ignores_invalid(self) else nullcontext():
            X, targets, (_, *shape) = self._read(X, y)
        # Numbers count where they are public, and no rows at all are as good as one.
        ballot = read_ballot(self, X, sample_weight, groups)
        plan = self._plan(replace(ballot.records, count=max(1, ballot.records.count)), *shape)
        with without_warnings():
            objectives = self._objectives(X, targets, plan, ballot)
        del targets  # the rows have their own, mapped
        coefficients, self.released_ = release(plan, objectives, self)
        self.certificate_ = plan.certificate
        self._store(coefficients, plan)

    def _fit(self, X: object, y: object, sample_weight: object = None, groups: object = None) -> Self:
        with unchanged_on_failure(self):
            self._release(X, y, sample_weight, groups)
        return self

    def summary(self) -> Summary:
        """Return a table for people: what was fitted, what it guarantees, what came out."""
        from dpconvex.reports.summary import Summary, summary_text  # words are loaded when asked for

        check_is_fitted(self)
        return Summary(summary_text(self))

    def _html_repr(self) -> str:
        """Return what a notebook shows: a card once there is something to show."""
        if not hasattr(self, "certificate_"):
            return str(super()._html_repr())
        from dpconvex.reports.card import model_card

        return model_card(self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
