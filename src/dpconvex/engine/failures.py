"""What ends a fit whose rows are out of reach: it says what happened, and nothing about the rows."""

from __future__ import annotations

__all__ = ["ClusterLostError", "EngineError", "SourceChangedError"]


class EngineError(RuntimeError):
    """The rows cannot be summed to the end."""


class ClusterLostError(EngineError):
    """The cluster has no scheduler or no workers any more."""


class SourceChangedError(EngineError):
    """A partition is not what it was when it was checked."""

    def __init__(
        self,
        message: str = "The data changed during the fit: a partition that was read again is not the one that was "
        "checked first. Read from sources that stay as they are, and give the same numbers every time.",
    ) -> None:
        super().__init__(message)
