"""What an audit looks at: functions from outputs to one number per run, fitted on the selection runs.

Fitting costs no confidence, because the event that is chosen in the end is counted on other runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.types import Array

Statistic = Callable[[Array], Array]

# Numbers of an output that are looked at one by one: those that differ most between the selection runs.
_MOST = 6


def lowest_bit(numbers: Array) -> Array:
    """Return the exponent of the last binary digit that is set, 2000 for 0.

    Sums of floating-point numbers have the digits of the larger one: where noise is added in floating point, last
    digits tell which value was under it. On a public grid they do not depend on the value.

    Examples
    --------
    >>> lowest_bit(np.array([1.0, 0.75, 6.0, 0.0])).tolist()
    [0.0, -2.0, 1.0, 2000.0]
    """
    fraction, exponent = np.frexp(np.asarray(numbers, dtype=np.float64))
    digits = (fraction * 2.0**53).astype(np.int64)
    last = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    return np.where(digits == 0, 2000, exponent - 53 + last).astype(np.float64)


def fitted_statistics(first: Array, second: Array, bits: bool) -> dict[str, Statistic]:
    """Return the statistics that may tell these two samples of outputs apart.

    Parameters
    ----------
    first, second : array of shape (runs,) or (runs, k)
        Selection runs on the two data sets.
    bits : bool
        Whether to look at last binary digits too.
    """
    project = _projection(first, second)
    centre = float(np.median(np.concatenate([project(first), project(second)])))

    def deviation(outputs: Array) -> Array:
        # A record whose slope follows the sign of the noise shows in both tails at once.
        return np.abs(project(outputs) - centre)

    found: dict[str, Statistic] = {"projection": project, "deviation": deviation}
    kinds: dict[str, Callable[[Array], Array]] = {}
    if first.ndim == 2 and first.shape[1] > 1:
        kinds["number {}"] = np.asarray
    if bits:
        kinds["last bit of number {}"] = lowest_bit
    for name, look in kinds.items():
        columns = [_columns(look(outputs)) for outputs in (first, second)]
        distances = [_distance(a, b) for a, b in zip(*(c.T for c in columns), strict=True)]
        for number in np.argsort(distances)[::-1][:_MOST].tolist():
            found[name.format(number)] = partial(_column, look, number)
    return found


def custom_statistic(statistic: Callable[[Array], ArrayLike]) -> Statistic:
    """Return a statistic of the user's, checked."""

    def custom(outputs: Array) -> Array:
        values = np.asarray(statistic(outputs), dtype=np.float64)
        if values.shape != outputs.shape[:1]:
            raise ValueError(
                "The 'statistic' parameter of audit must return one number per run. "
                f"Got shape {values.shape} for {outputs.shape[0]} runs instead."
            )
        return values

    return custom


def _projection(first: Array, second: Array) -> Statistic:
    """Return the projection that separates normal outputs best if their coordinates are independent."""
    if first.ndim == 1:
        return np.asarray
    gap = first.mean(axis=0) - second.mean(axis=0)
    spread = np.sqrt(first.var(axis=0) + second.var(axis=0))
    # Numbers without noise have no spread; they must not be lost, nor may rounding pass for a difference.
    least = 1e-9 * np.maximum(np.abs(first).max(axis=0), np.abs(second).max(axis=0)) + 1e-300
    spread = np.maximum(spread, least)
    axis = gap / spread
    length = float(np.linalg.norm(axis))
    axis = axis / length if length > 0 else np.eye(len(gap))[0]
    return lambda outputs: np.asarray((outputs / spread) @ axis, dtype=np.float64)


def _columns(outputs: Array) -> Array:
    return outputs.reshape(len(outputs), -1)


def _column(look: Callable[[Array], Array], number: int, outputs: Array) -> Array:
    return np.asarray(look(_columns(outputs)[:, number]))


def _distance(first: Array, second: Array) -> float:
    """Return the largest distance of two empirical distribution functions."""
    places = np.unique(np.concatenate([first, second]))
    shares = (np.searchsorted(np.sort(values), places, side="right") / len(values) for values in (first, second))
    return float(np.abs(np.subtract(*shares)).max())
