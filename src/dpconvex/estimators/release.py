"""The one release path: charge the ledger, then let the mechanism speak."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.evaluation_certificate import EvaluationCertificate
from dpconvex.engine import EngineError
from dpconvex.inputs.settings import noise_source
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives.objective import Objective
from dpconvex.planning.cost_warning import warn_of_cost
from dpconvex.privacy.bounds.base import RECORD
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.preprocessing import PreprocessingCertificate
from dpconvex.privacy.description import Facts
from dpconvex.privacy.ledger.ledger import Ledger

if TYPE_CHECKING:
    from dpconvex.estimators.base import PrivateModel

__all__ = ["charge", "release", "unchanged_on_failure", "without_warnings"]


def release(
    plan: Plan, objectives: Sequence[Objective], model: PrivateModel
) -> tuple[list[NDArray[np.float64]], Facts]:
    """Return the private coefficients of each problem, in mapped units, and what else was released.

    Parameters
    ----------
    plan : Plan
        What the model will promise and how.
    objectives : sequence of Objective
        One per problem, of rows that have passed all checks: from here on nothing depends on data but through noise.
    model : estimator
        Its ledger is charged once, before noise is drawn; its sampler, random_state and verbose are followed.
    """
    certificate, owner = plan.certificate, type(model).__name__
    noise = noise_source(model, certificate)
    if model.verbose:
        print(f"{owner}: {certificate.mechanism}, {certificate.guarantee!r}")
    warn_of_cost(certificate)  # first: where warnings are errors, nothing is charged for a fit that does not run
    charge(model.ledger, certificate, f"{owner}.fit")
    bound = certificate.parameters["coef_bound"]
    found, records = [], []
    for objective in objectives:
        record: Facts = {}
        with without_warnings(), _spent():
            theta = plan.mechanism.release(objective, certificate, noise, record)
        if bound is not None:  # a projection of what was released: no privacy cost
            for each in theta if theta.ndim > 1 else [theta]:
                each *= min(1.0, bound / max(float(np.linalg.norm(each)), 1e-300))
        found.append(theta)
        records.append(record)
    return found, records[0] if len(records) == 1 else {"problems": records}


def charge(
    ledger: Ledger | None, certificate: Certificate | PreprocessingCertificate | EvaluationCertificate, description: str
) -> None:
    """Charge a ledger, durably, before noise is drawn: a crash from here on costs budget, never privacy."""
    if ledger is not None:
        ledger.charge(
            certificate.guarantee,
            mu=certificate.gaussian_mu(),
            mechanism=certificate.mechanism,
            description=description,
            neighbors=certificate.neighbors,
            unit=getattr(certificate, "unit", RECORD),
        )


_SPENT = "The budget of this fit is spent: it was charged before noise was drawn, and another fit costs as much again."


@contextmanager
def _spent() -> Iterator[None]:
    """Say with every error that the budget is gone."""
    try:
        yield
    except EngineError as error:
        raise type(error)(f"{error} {_SPENT}") from None
    except BaseException as error:  # whoever interrupts a fit should know it, too
        error.add_note(_SPENT)
        raise


@contextmanager
def without_warnings() -> Iterator[None]:
    """Say nothing about numbers: whether one overflows, vanishes or is odd depends on the data."""
    # In the threads of a pool numpy's own setting does not hold, but filters of warnings do.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def unchanged_on_failure(model: object) -> Iterator[None]:
    """Give a model back its attributes if a fit fails: one that was fitted before stays the model it was."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise
