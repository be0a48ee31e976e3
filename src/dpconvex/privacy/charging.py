"""Charging a ledger for a release, before noise is drawn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpconvex.core.certificate import PrivacyWarning
from dpconvex.privacy.ledger import Ledger
from dpconvex.system.charges import CHARGES, SPENT

_CHARGE_FOR_THEIR_FITS = (
    "dpconvex.assessment.selection",
    "dpconvex.assessment.conformal_intervals",
)
_SEARCHES_TOLD: list[
    str
] = []  # once in a process: scikit-learn resets the filters of warnings for every fit


def charge_private_model(
    ledger: Ledger | None, certificate: Any, description: str, mechanism: str | None = None
) -> None:
    """Charge a ledger, durably, before noise is drawn: a crash from here on costs budget, never
    privacy.

    Without one, warn once where a search of scikit-learn's fits private models, and nothing counts
    its fits. The functions that are running decide, in whatever thread or process: no data, and no
    estimator is looked into.
    """
    if ledger is not None:
        CHARGES.begun += 1
        try:
            ledger.charge(
                certificate.guarantee,
                mu=certificate.gaussian_mu(),
                mechanism=certificate.mechanism if mechanism is None else mechanism,
                description=description,
                neighbors=certificate.neighbors,
                unit=certificate.unit,
            )
        except Exception:  # refused; of an interruption nobody knows when it came
            CHARGES.begun -= 1
            raise
        CHARGES.granted += 1
        return
    _warn_of_searches()
    CHARGES.begun += 1
    CHARGES.granted += 1


def _warn_of_searches() -> None:
    """Warn once where a search of scikit-learn fits private models without a ledger."""
    charging = sys._getframe(2)
    frame = charging.f_back
    own = charging.f_globals["__name__"]
    while frame is not None and not _SEARCHES_TOLD:
        module = str(frame.f_globals.get("__name__"))
        if module in _CHARGE_FOR_THEIR_FITS and module != own:
            return
        if module.startswith("sklearn.model_selection."):
            _SEARCHES_TOLD.append(module)
            warnings.warn(
                "A search or cross-validation of scikit-learn fits many times, and no ledger "
                "counts the fits: its result promises the sum of all of them. It also selects by "
                "scores without noise, which no budget covers. Give the estimator a ledger, or "
                "choose with dpconvex.selection.DPSelect. Said once.",
                PrivacyWarning,
                stacklevel=4,
            )
        frame = frame.f_back


@contextmanager
def noted_as_spent() -> Iterator[None]:
    """Add to whatever ends a release after its charge that the budget is spent: whoever interrupts
    it should know it, too.
    """
    before = CHARGES.granted
    try:
        yield
    except BaseException as error:
        told = (str(error), *getattr(error, "__notes__", ()))
        if CHARGES.granted > before and not any(SPENT in words for words in told):
            error.add_note(SPENT)
        raise
