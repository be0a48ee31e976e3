r"""Whole multiples of a grid: ideal normals, rounded, drawn from uniform words.

A normal Z is drawn as a real number whose digits are looked at only as far as a decision needs them (Karney, Sampling
exactly from the normal distribution, 2016, algorithm N). ``|Z| = k + x``: k has probability proportional to
``exp(-k^2 / 2)``, x is uniform on [0, 1) and accepted with probability ``exp(-x (2k + x) / 2)``, which is decided by
comparing uniform numbers with each other. No exponential function, no rounding error.

One word is the first 64 binary digits of a uniform number. Two words that must be compared and are equal would need
further digits; they are treated as ordered. Per number this happens with probability below 4e-19, and k is drawn from
a table that is rounded to 2^-63, which adds less than 1e-18: together less than 2e-18, `NORMAL_FAILURE`.

The product of the scale and Z is rounded to the nearest integer by integer arithmetic, with as many further words of x
as it takes: no error there. Imported lazily, because importing numba takes half a second.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from itertools import accumulate
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .words import Words

__all__ = ["NORMAL_FAILURE", "normal_digits", "rounded_normals"]

NORMAL_FAILURE = 2e-18

# Numbers that are drawn in one call of the kernel, and words to begin with for each: 6.2 are used on average.
_CHUNK = 1 << 14
_WORDS = 7

_ONE, _ZERO = np.uint64(1), np.uint64(0)
_HALF_WORD = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def _whole_parts() -> NDArray[np.uint64]:
    """Return ``2^63 P(whole part of |Z| proposed <= k)`` for k = 0, 1, ..., 13.

    The mass of what is left out, ``sum exp(-k^2 / 2)`` over k > 13, is below 1e-42.
    """
    with localcontext() as context:
        context.prec = 60
        sums = list(accumulate((-Decimal(k * k) / 2).exp() for k in range(14)))
        return np.array([int((s / sums[-1] * 2**63).to_integral_value()) for s in sums], np.uint64)


_WHOLE_PARTS = _whole_parts()


@numba.njit(nogil=True, cache=True)
def _accept(words: Any, at: int, whole: Any, fraction: Any) -> Any:
    """Return whether ``x = fraction`` is accepted and the next unused word, or -1 if words ran out.

    Each of k + 1 rounds succeeds with probability ``exp(-x (2k + x) / (2k + 2))`` (algorithm B): a sequence of uniform
    numbers below x is continued as long as it falls and, each time, a number below ``(2k + x) / (2k + 2)`` is drawn;
    its length is even with that probability.
    """
    twice = whole + whole
    sides = twice + np.uint64(2)
    for _ in range(np.int64(whole) + 1):
        last = fraction
        even = True
        while True:
            if at >= words.size:
                return False, -1
            drawn = words[at]
            at += 1
            if drawn >= last:
                break
            if at >= words.size:
                return False, -1
            die = words[at]
            at += 1
            # die * sides < 2k * 2^64 + fraction, in two words.
            high = (
                (die >> _HALF_WORD) * sides + (((die & _LOW_HALF) * sides) >> _HALF_WORD)
            ) >> _HALF_WORD
            if high > twice or (high == twice and die * sides >= fraction):
                break
            last = drawn
            even = not even
        if not even:
            return False, at
    return True, at


@numba.njit(nogil=True, cache=True)
def _draw(words: Any, at: int, whole_parts: Any) -> Any:
    """Return sign bit, whole part and first 64 digits of a normal, and the next unused word or -1."""
    while at + 2 <= words.size:
        sign = words[at] & _ONE
        pick = words[at] >> _ONE
        fraction = words[at + 1]
        at += 2
        whole = 0
        while pick >= whole_parts[whole]:
            whole += 1
        accepted, at = _accept(words, at, np.uint64(whole), fraction)
        if at < 0:
            break
        if accepted:
            return sign, np.uint64(whole), fraction, at
    return _ZERO, _ZERO, _ZERO, -1


@numba.njit(nogil=True, cache=True)
def _product(mantissa: Any, word: Any) -> Any:
    """Return the high and the low word of a 53-bit number times a 64-bit one."""
    a, b = mantissa >> _HALF_WORD, mantissa & _LOW_HALF
    c, d = word >> _HALF_WORD, word & _LOW_HALF
    low = b * d
    middle = b * c + (low >> _HALF_WORD)
    cross = a * d + (middle & _LOW_HALF)
    high = a * c + (middle >> _HALF_WORD) + (cross >> _HALF_WORD)
    return high, (cross << _HALF_WORD) | (low & _LOW_HALF)


@numba.njit(nogil=True, cache=True)
def _fill_rounded(
    words: Any, whole_parts: Any, mantissa: Any, drop: Any, out: Any, first: int
) -> Any:
    """Fill ``out[first:]`` with ``round(mantissa 2^-drop Z)`` as far as words last.

    Returns how much of `out` is filled, and how many words that took; the words of an unfinished number are not
    counted: they must be offered again, with others behind them, or numbers that take many words would be rarer.
    """
    used = 0
    ones = (_ONE << drop) - _ONE
    for index in range(first, out.size):
        sign, whole, fraction, at = _draw(words, used, whole_parts)
        if at < 0:
            return index, used
        high, low = _product(mantissa, fraction)
        high += mantissa * whole + ((_ONE << drop) >> _ONE)
        rounded = high >> drop
        # The digits of x beyond the first word move the product by less than the mantissa in its low word. Where that
        # may carry it over the edge, it does if they are at least left / mantissa: long division, word by word.
        left = _ZERO - low
        if high & ones == ones and low != _ZERO:
            while left < mantissa:
                if at >= words.size:
                    return index, used
                high, low = _product(mantissa, words[at])
                at += 1
                if high >= left:
                    rounded += _ONE
                    break
                if low != _ZERO:
                    high += _ONE
                if high < left:
                    break
                left = _ZERO - low
        out[index] = -np.int64(rounded) if sign else np.int64(rounded)
        used = at
    return out.size, used


@numba.njit(nogil=True, cache=True)
def _fill_digits(words: Any, whole_parts: Any, out: Any, first: int) -> Any:
    """Fill ``out[first:]`` with sign, whole part and first word of digits, as `_fill_rounded` does."""
    used = 0
    for index in range(first, out.shape[0]):
        sign, whole, fraction, at = _draw(words, used, whole_parts)
        if at < 0:
            return index, used
        out[index, 0], out[index, 1], out[index, 2] = sign, whole, fraction
        used = at
    return out.shape[0], used


def _fill(words: Words, out: NDArray[Any], kernel: Any) -> None:
    """Fill `out` with a kernel, fetching words until it is full."""
    for start in range(0, len(out), _CHUNK):
        part = out[start : start + _CHUNK]
        offered, filled = words.take(_WORDS * len(part) + 64), 0
        while True:
            filled, used = kernel(offered, part, filled)
            if filled == len(part):
                break
            more = words.take(_WORDS * (len(part) - filled) + 64)
            offered = np.concatenate([offered[used:], more])


def rounded_normals(words: Words, ratio: float, size: int) -> NDArray[np.int64]:
    """Return ``round(ratio Z)`` for independent ideal normals Z.

    Parameters
    ----------
    words : Words
        Where randomness comes from.
    ratio : float
        Standard deviation in units of the grid, at least 1 and below 2^48.
    size : int
        How many.
    """
    significand, exponent = math.frexp(ratio)
    mantissa, drop = np.uint64(int(significand * 2.0**53)), np.uint64(53 - exponent)
    out = np.empty(size, dtype=np.int64)
    _fill(
        words,
        out,
        lambda offered, part, first: _fill_rounded(
            offered, _WHOLE_PARTS, mantissa, drop, part, first
        ),
    )
    return out


def normal_digits(words: Words, size: int) -> list[int]:
    """Return ``trunc(2^128 Z)`` for independent ideal normals Z.

    Digits beyond the first word are not touched when x is accepted: they are new words.
    """
    drawn = np.empty((size, 3), dtype=np.uint64)
    _fill(
        words,
        drawn,
        lambda offered, part, first: _fill_digits(offered, _WHOLE_PARTS, part, first),
    )
    digits = zip(drawn.tolist(), words.take(size).tolist(), strict=True)
    return [
        (1 - 2 * sign) * ((whole << 128) + (first << 64) + second)
        for (sign, whole, first), second in digits
    ]
