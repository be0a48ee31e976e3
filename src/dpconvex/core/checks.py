"""Checks of numbers that users set: errors say what, allowed, got, remedy."""

import math
from numbers import Real

import numpy as np

MOST = 2**53  # whole numbers below it are exact in float64
MOST_FEATURES = 2**20  # columns: what a text's hashed words have, and a few seconds of planning


def parameter_error(
    name: str,
    owner: str,
    allowed: str,
    got: str,
    remedy: str = "",
    kind: type[Exception] = ValueError,
) -> Exception:
    """Return the error about a parameter: what it must be, what was given, and the remedy."""
    return kind(
        f"The '{name}' parameter of {owner} must be {allowed}. Got {got} instead. {remedy}".rstrip()
    )


def data_error(
    name: str, owner: str, must: str, got: str, remedy: str = "", kind: type[Exception] = ValueError
) -> Exception:
    """Return the error about data: what they must be, what was given in words that hold no
    value, and the remedy.
    """
    return kind(f"The {name} given to {owner} must be {must}. Got {got} instead. {remedy}".rstrip())


def check_number(
    name: str,
    owner: str,
    value: object,
    allowed: str,
    low: float,
    high: float,
    low_open: bool = False,
) -> float:
    """Return ``value`` as a float if it lies in ``[low, high)`` (``(low, high)`` with
    ``low_open``), or raise.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(
            f"The '{name}' parameter of {owner} must be {allowed}. Got {value!r} instead."
        )
    number = float(value)
    if not (low <= number < high) or (low_open and number == low):
        raise parameter_error(name, owner, allowed, repr(value))
    return number


def check_share(name: str, owner: str, value: object) -> float:
    """Return ``value`` as a float if it lies between 0 and 1, both excluded, or raise."""
    return check_number(name, owner, value, "a number between 0 and 1", 0, 1, low_open=True)


def check_positive(name: str, owner: str, value: object, remedy: str) -> float:
    """Return ``value`` as a float if it is finite and positive, or raise with a remedy."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"The '{name}' parameter of {owner} must be a positive number. Got "
            f"{type(value).__name__} instead. {remedy}"
        )
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise parameter_error(name, owner, "positive and finite", repr(value), remedy)
    return number


def check_count(name: str, owner: str, value: object, least: int = 1, most: float = MOST) -> int:
    """Return ``value`` as an int if it is a whole number from ``least`` to below 2^53 (or to
    ``most``), or raise.
    """
    number = (
        int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else None
    )
    if number is None or not least <= number <= most or number >= MOST:
        shown = repr(value) if len(repr(value)) < 40 else "a longer value"
        limit = f"an integer from {least} to {most:,.0f}"
        if most >= MOST:
            limit = "a positive integer" if least == 1 else f"an integer of at least {least}"
            limit += " below 2^53"
        raise parameter_error(name, owner, limit, shown)
    return number
