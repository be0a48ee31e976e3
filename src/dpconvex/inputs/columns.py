"""How the columns of a table become the columns of a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Columns"]


@dataclass(frozen=True)
class Columns:
    """How the columns of a table become the columns of ``X``: public facts.

    Attributes
    ----------
    features : tuple of str
        Columns of numbers, first in ``X``.
    categories : mapping of str to tuple of str
        Columns of text with their declared categories, one indicator each, after the numbers.
    target : str
        The column that was learned.
    """

    features: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target: str = ""

    @property
    def names(self) -> list[str]:
        """Return the names of the columns of ``X``."""
        indicators = [f"{name}={item}" for name, items in self.categories.items() for item in items]
        return [*self.features, *indicators]
