"""The one release path: charge the ledger, then let the mechanism speak."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.defaults.cost_warning import warn_of_cost
from dpconvex.engine import EngineError, RowMap
from dpconvex.inputs.settings import noise_source
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.privacy.certificates.certificate import Certificate

__all__ = ["Plan", "release", "unchanged_on_failure", "unwarned"]


@dataclass(frozen=True)
class Plan:
    """Everything a fit will do, decided once from public facts before data are read.

    Attributes
    ----------
    mechanism : Mechanism
        Runs the fit.
    certificate : Certificate
        What it guarantees.
    row_map : RowMap or None
        How a raw row becomes a bounded one; records that are matrices have none.
    target_shift, target_scale : float
        Targets are mapped to ``(y - shift) * scale``.
    """

    mechanism: Mechanism
    certificate: Certificate
    row_map: RowMap | None = None
    target_shift: float = 0.0
    target_scale: float = 1.0


def release(
    plan: Plan, objectives: Sequence[Any], model: Any
) -> tuple[list[NDArray[np.float64]], dict[str, Any]]:
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
    if model.ledger is not None:
        # Durable before noise is drawn: a crash from here on costs budget, never privacy.
        model.ledger.charge(
            certificate.guarantee,
            mu=certificate.gaussian_mu(),
            mechanism=certificate.mechanism,
            description=f"{owner}.fit",
            neighbors=certificate.neighbors,
        )
    warn_of_cost(certificate)
    bound = certificate.parameters["coef_bound"]
    found, records = [], []
    for objective in objectives:
        record: dict[str, Any] = {}
        with unwarned(), _spent():
            theta = plan.mechanism.release(objective, certificate, noise, record)
        if bound is not None:  # a projection of what was released: no privacy cost
            theta = theta * min(1.0, bound / max(float(np.linalg.norm(theta)), 1e-300))
        found.append(theta)
        records.append(record)
    return found, records[0] if len(records) == 1 else {"problems": records}


_SPENT = "The budget of this fit is spent: it was charged before noise was drawn, and another fit costs as much again."


@contextmanager
def _spent() -> Iterator[None]:
    """Say with every error that the budget is gone."""
    try:
        yield
    except EngineError as error:
        raise type(error)(f"{error} {_SPENT}") from None
    except Exception as error:
        error.add_note(_SPENT)
        raise


@contextmanager
def unwarned() -> Iterator[None]:
    """Say nothing about numbers: whether one overflows, vanishes or is odd depends on the data."""
    # In the threads of a pool numpy's own setting does not hold, but filters of warnings do.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def unchanged_on_failure(model: Any) -> Iterator[None]:
    """Give a model back its attributes if a fit fails: one that was fitted before stays the model it was."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise
