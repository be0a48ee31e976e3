"""Private models: the behaviour of every estimator, and the one path from data to coefficients.

Two carriers are all there is between an estimator and the core
(:mod:`dpconvex.mechanisms.request_and_decision`):

- ``FitRequest``: what is asked. Checked settings, public facts, the loss.
- ``FitDecision``: what was decided. A mechanism's ``prepare`` chooses what was left open, its
  calibration derives noise, and the certificate is proved; beside it are the settings that the run
  uses and how rows are mapped.

``PrivateModel._fit`` calls, in this order, ``_read``, ``_plan``, which returns the decision,
``_objectives``, `run_mechanism`, which charges the ledger and lets the mechanism release, and
``_store``. Before the run, values of the data are only checked. A fit either succeeds or leaves no
trace on the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.core.certificate import TABLE_RECORDS, Certificate, CertificateError
from dpconvex.core.checks import MOST_FEATURES, check_count, parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.noise_source import Seed
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import Rows
from dpconvex.engine import EngineError
from dpconvex.estimators.parameters import with_parameters
from dpconvex.fit.plausible_answers import ReleasedNumbersError
from dpconvex.inputs import records, settings
from dpconvex.inputs.people_and_weights import (
    PersonUnit,
    RowsOfPeople,
    read_row_weights,
    split_people,
)
from dpconvex.inputs.pipelines import PrivateStep
from dpconvex.inputs.settings import noise_source_setting
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.objective import Objective
from dpconvex.planning.cost_warning import warn_of_privacy_cost
from dpconvex.privacy.charging import charge_private_model, noted_as_spent
from dpconvex.privacy.ledger import Ledger
from dpconvex.system.charges import SPENT
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.reports.summary import Summary

# By name, a setting as a certificate states it and as the estimator's parameters give it.
StatedSettings = dict[str, tuple[object, object]]


def run_mechanism(
    decision: FitDecision, objectives: Sequence[Objective | list[Rows]], model: PrivateModel
) -> tuple[list[Array], Facts]:
    """Run a private model's mechanism: return each problem's coefficients, in mapped units, and
    other releases.

    The rows of ``objectives`` have passed all checks: from here on nothing depends on data but
    through noise. The model's ledger is charged once, before noise is drawn.
    """
    certificate = decision.certificate
    owner = type(model).__name__
    if (
        len(objectives) != certificate.problems
    ):  # each is a run of its own, of which the guarantee counts so many
        raise CertificateError(
            f"The certificate of {owner} is for {certificate.problems} problems, not for all."
        )
    noise = noise_source_setting(model, certificate)
    if model.verbose:
        print(f"{owner}: {certificate.mechanism}, {certificate.guarantee!r}")
    warn_of_privacy_cost(
        certificate, decision.settings
    )  # first: where warnings are errors, a fit that does not run is not charged
    charge_private_model(model.ledger, certificate, f"{owner}.fit")
    bound = certificate.parameters["coef_bound"]
    found = []
    all_released = []
    for objective in objectives:
        released: Facts = {}
        try:
            with without_model_warnings():
                theta = decision.mechanism.release(
                    objective, certificate, noise, released, decision.settings
                )
                theta = _finite_coefficients(theta, bound)
        except EngineError as error:
            raise type(error)(f"{error} {SPENT}") from None
        except ReleasedNumbersError as error:
            raise ReleasedNumbersError(f"{error} {SPENT}") from error
        found.append(theta)
        all_released.append(released)
    return found, all_released[0] if len(all_released) == 1 else {"problems": all_released}


def _finite_coefficients(theta: Array, bound: float | None) -> Array:
    """Return released coefficients that are finite, each vector within its bound if there is one.

    Both are post-processing of what was released. Noise leads nowhere near the first limit.
    """
    theta = np.clip(np.nan_to_num(theta, nan=0.0), -_LARGEST_COEFFICIENT, _LARGEST_COEFFICIENT)
    if bound is not None:
        for each in theta if theta.ndim > 1 else [theta]:
            each *= min(1.0, bound / max(float(np.linalg.norm(each)), 1e-300))
    return theta


_LARGEST_COEFFICIENT = 1e100  # in mapped units: its square is a number


@contextmanager
def without_model_warnings() -> Iterator[None]:
    """Say nothing about numbers: whether one overflows, vanishes or is odd depends on the data."""
    # In the threads of a pool numpy's own setting does not hold, but filters of warnings do.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def keep_model_on_failure(model: object) -> Iterator[None]:
    """Give a model back its attributes if a fit fails: one that was fitted before stays the
    model it was.
    """
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


@with_parameters
class PrivateModel(PrivateStep, BaseEstimator):
    """Base of all estimators; subclasses read data (``_read``), plan (``_plan``) and store
    (``_store``).

    Parameters
    ----------
    epsilon, delta : float, optional
        Privacy budget: the smaller, the more private and the noisier; 1.0 and 1e-6 by default.
        Delta is the probability that the promise fails; ``delta=0`` asks for pure epsilon-DP.
    mu : float, optional
        Privacy budget of Gaussian DP, in place of epsilon and delta, with a mechanism that offers
        it.
    neighbors : {"replace_one", "add_or_remove_one"}
        What is hidden: what any one record says (the number of records is public), or also that it
        is there.
    nominal_samples : int, optional
        Public guess of the number of records; required with ``add_or_remove_one``, where the true
        number is private.
    alpha : float, optional
        L2 penalty, intercept included. By default 0 for 'gradient', 'sgd' and the phased
        mechanisms; for 'objective' and 'output' the value with the smallest predicted excess risk.
    coef_bound : float, optional
        Bound on the norm of the mapped coefficients, enforced by a projection of the released ones.
    mechanism : str or Mechanism, default="auto"
        How noise is added: "objective", "output", "gradient", "sgd", "phased-erm", "phased-sgd" or
        a mechanism object, of :mod:`dpconvex.mechanisms` or of your own; "auto" takes "gradient",
        or for pure epsilon the one of the first two with the smallest predicted risk.
    invalid_rows : {"error", "ignore"}
        What becomes of a record with NaN, infinity or a label that is not in ``classes``. "error"
        refuses the data, which is visible and not covered by the guarantee; "ignore", for which
        classifiers need ``classes``, counts it nowhere. Every record is then read by itself: arrays
        and dataframes have a public shape, lists, tuples and generators are taken where
        ``feature_bounds`` (or costs) have an entry for each column, and text is read cell by cell.
        Descents and least squares then pay for the number of valid records, ``released_["mass"]``;
        others divide by the public number n of all records: ``alpha`` weighs ``n / n_valid`` times
        as much.
    sampler : {"auto", "exact"}
        Where noise is drawn, on a public grid: by dpconvex, or with "exact" by opendp, at about 20
        microseconds a number. "exact" needs opendp 0.14.2 or later, whose noise has the law that it
        states; that of earlier versions is biased, and they are refused.
    ledger : Ledger, optional
        Budget of the data set; charged before noise is drawn.
    random_state : int, Generator or RandomState, optional
        Fixes the noise, for tests: such a fit is not private, and its certificate says so.
    verbose : int, default=0
        Print progress that depends on public facts only.

    Attributes
    ----------
    certificate_ : Certificate
        What is guaranteed, and why.
    released_ : dict
        Further quantities that were released on the way.
    """

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

    # parameters of models of rows
    rows_per_person = 1
    person_weight = "equal"
    inference = False  # a parameter of models with confidence intervals
    takes_matrices: ClassVar[bool] = False  # whether a record is a matrix
    _ordered_classes: ClassVar[bool] = False  # whether labels keep the order of ``classes``

    def _public_facts(self, privacy_unit: PersonUnit, n_features: int) -> FitRequest:
        """Check the settings that every private model has; raises before any budget is charged."""
        owner = type(self).__name__
        check_count("n_samples", f"{owner}.certify", privacy_unit.count)
        check_count("n_features", f"{owner}.certify", n_features, most=MOST_FEATURES)
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            allowed = "None or a Ledger"
            remedy = "Open one with dpconvex.privacy.Ledger(path, epsilon=..., delta=...)."
            raise parameter_error(
                "ledger", owner, allowed, type(self.ledger).__name__, remedy, kind=TypeError
            )
        ignored = settings.invalid_rows_setting(self)
        return FitRequest(
            owner=owner,
            guarantee=settings.resolve_budget_setting(self.epsilon, self.delta, self.mu, owner),
            n_samples=settings.resolve_samples_setting(
                self.neighbors, self.nominal_samples, privacy_unit.count, owner
            ),
            parameters={
                "coef_bound": settings.check_optional_positive(
                    "coef_bound", self.coef_bound, owner
                ),
                "invalid_rows": settings.INVALID_ROWS["ignore" if ignored else "error"],
                **({"records": TABLE_RECORDS} if privacy_unit.of_table else {}),
            },
            n_features=int(n_features),
            neighbors=self.neighbors,
            people=privacy_unit.people,
            rows_per_person=privacy_unit.rows_each,
            weighted_rows=privacy_unit.weighted,
            ignored_rows=ignored,
            seeded=self.random_state is not None,
        )

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        """Return checked data, the target of each problem, and the shape that `_plan` takes."""
        raise AttributeError(f"{type(self).__name__} does not say how to read data.")

    def _plan(self, *shape: Any) -> FitDecision:
        """Decide from public facts alone which mechanism runs, with which parameters and noise."""
        raise AttributeError(f"{type(self).__name__} does not say how to plan a fit.")

    def _objectives(
        self, X: object, targets: Sequence[object], plan: FitDecision, weights: RowWeights | None
    ) -> Sequence[Objective | list[Rows]]:
        """Return an objective per problem; or the rows alone, in a list with each of their
        targets, for a mechanism that takes rows.
        """
        raise AttributeError(f"{type(self).__name__} does not say what its objective is.")

    def _store(self, coefficients: list[Array], plan: FitDecision) -> None:
        """Keep the released coefficients of each problem, in the user's units."""
        raise AttributeError(f"{type(self).__name__} does not say what it keeps.")

    def _summary_facts(self) -> list[tuple[str, str]]:
        """Return the lines of a summary that are this estimator's own."""
        return []

    def _interval_note(self) -> str | None:
        """Return what confidence intervals are about, where it is not what a reader expects."""
        return None

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        """Return this estimator's own settings, by name, as a certificate states them and as
        they should be.
        """
        return {}

    def _fit(
        self, X: object, y: object, sample_weight: object = None, groups: object = None
    ) -> Self:
        """Read, plan, charge, run and store; a model that was fitted before stays as it was if a
        fit fails.

        Nothing is charged before all checks of the input.
        """
        with keep_model_on_failure(self), noted_as_spent():
            self.__dict__.pop(
                "schema_", None
            )  # of a loaded model: a fit says itself what its columns are
            of_table = records.are_of_table(self, X, y, sample_weight, groups)
            expected = records.facts_told(self).expected
            records.refuse_expected_records(expected, self.neighbors)
            if isinstance(X, RowsOfPeople):
                X, groups = split_people(X, groups)
            with without_model_warnings() if settings.invalid_rows_setting(self) else nullcontext():
                X, targets, (n_rows, *shape) = self._read(X, y)
                unit, weights = read_row_weights(self, X, sample_weight, groups)
            records.require_expected_records(n_rows, expected)
            # Under add-or-remove-one `nominal_samples` replaces the true count; max(1, ...) lets an
            # empty table pass.
            unit = replace(unit, count=max(1, unit.count), of_table=of_table)
            plan = self._plan(unit, *shape)
            with without_model_warnings():
                objectives = self._objectives(X, targets, plan, weights)
            del targets  # the rows have their own, mapped
            coefficients, self.released_ = run_mechanism(plan, objectives, self)
            self.certificate_ = plan.certificate
            with without_model_warnings():
                self._store(coefficients, plan)
        return self

    def summary(self) -> Summary:
        """Return a table for people: what was fitted, what it guarantees, what came out."""
        from dpconvex.reports.summary import (
            Summary,
            summary_text,
        )  # words are loaded when asked for

        check_is_fitted(self)
        return Summary(summary_text(self))

    def _html_repr(self) -> str:
        if "certificate_" not in vars(self):
            return str(super()._html_repr())
        from dpconvex.reports.summary import model_summary_card

        return model_summary_card(self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.sparse = not self.takes_matrices
        return tags
