"""What the readers of files raise."""

from __future__ import annotations

__all__ = ["InputError"]


class InputError(ValueError):
    """Input that cannot be used, in words that hold no data value."""
