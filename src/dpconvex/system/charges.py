"""Count of the charges of this process, so that whatever ends a command can say what is spent."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHARGES", "SPENT", "ChargeCount"]

SPENT = (
    "The budget is spent: it was charged before noise was drawn, and another release costs as much "
    "again."
)


@dataclass
class ChargeCount:
    """Charges for releases; one that was begun and not granted was refused, or is under way.

    A release without a ledger counts as well: its noise is drawn from then on.
    """

    begun: int = 0
    granted: int = 0


#: The charges of this process.
CHARGES = ChargeCount()
