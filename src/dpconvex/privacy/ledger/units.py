"""Whom a budget is kept for: a record, or a person with so many rows. A ledger has one unit."""

from __future__ import annotations

import re

from dpconvex.privacy.bounds.base import RECORD
from dpconvex.privacy.guarantees import GaussianDP, Guarantee, for_group

__all__ = ["check_unit", "converted"]

_ANYBODY = "one person"
_AT_MOST = re.compile(r"one person, at most ([1-9][0-9]{0,9}) rows")


def check_unit(unit: object) -> str:
    """Return a unit that certificates state, or raise."""
    known = isinstance(unit, str) and (unit in (RECORD, _ANYBODY) or _AT_MOST.fullmatch(unit) is not None)
    if not known:
        raise ValueError(
            f"The 'unit' parameter of Ledger.charge must be {RECORD!r}, {_ANYBODY!r} or 'one person, at most k rows'. "
            f"Got {unit!r} instead."
        )
    return str(unit)


def converted(guarantee: Guarantee, mu: float | None, unit: str, wanted: str) -> tuple[Guarantee, float | None] | None:
    """Return what a promise to one unit is for another, with its mu; None if nothing follows.

    What holds for a person holds for a person with at most k rows, what holds for k rows for fewer of them; what holds
    for j rows holds for k rows as for ``ceil(k / j)`` groups. Somebody with any number of rows is covered by nothing
    but a promise to just that, which in turn says nothing of a record that may change its person.

    Parameters
    ----------
    guarantee : Guarantee
        What is promised.
    mu : float or None
        The mu of the Gaussian DP that is proven.
    unit, wanted : str
        To whom, and to whom it should be.
    """
    if unit == wanted:
        return guarantee, mu
    theirs = _rows(wanted)
    if theirs is None or (unit == _ANYBODY and wanted == RECORD):
        return None
    own = _rows(unit)
    if own is None or own >= theirs:
        return guarantee, mu
    size = -(-theirs // own)
    proven = guarantee if mu is None else GaussianDP(mu)
    return for_group(guarantee, proven, size), None if mu is None else size * mu


def _rows(unit: str) -> int | None:
    """Return how many rows a unit has at most; None for any number."""
    if unit == RECORD:
        return 1
    found = _AT_MOST.fullmatch(unit)
    return int(found[1]) if found else None
