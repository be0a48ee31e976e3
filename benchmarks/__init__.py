"""Benchmarks, one module each; ``python -m benchmarks`` runs them all and prints one table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RESULTS", "Measurement", "Skipped", "best_time", "one_time"]

RESULTS = Path("out")  # where tables and plots are written


@dataclass(frozen=True)
class Measurement:
    """One number, and the bar it must not cross.

    Attributes
    ----------
    name : str
        What was measured.
    value : float
        The number, usually a ratio of two times of the same run.
    bar : float or None
        The bar; None if the number is only reported.
    at_most : bool
        Whether the bar is an upper bound (default) or a lower one.
    detail : str
        The times behind a ratio.
    """

    name: str
    value: float
    bar: float | None = None
    at_most: bool = True
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the number respects its bar."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.at_most else self.value >= self.bar


@dataclass(frozen=True)
class Skipped:
    """A comparison that was not made.

    Attributes
    ----------
    name : str
        With what.
    how : str
        Why, or how to make it.
    """

    name: str
    how: str


def best_time(function: Callable[[], object], repeats: int = 3) -> float:
    """Return the shortest of a few timings, in seconds: what the machine can do undisturbed."""
    return min(one_time(function) for _ in range(repeats))


def one_time(function: Callable[[], object]) -> float:
    """Return the seconds one call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
