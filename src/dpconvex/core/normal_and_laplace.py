r"""Normal and l2-Laplace noise as whole multiples of a grid: ideal real numbers, rounded, drawn
from uniform words.

A normal Z is drawn as a real number whose digits are looked at only as far as a decision needs them
(Karney, Sampling exactly from the normal distribution, 2016, algorithm N). ``|Z| = k + x``: k has
probability proportional to ``exp(-k^2 / 2)``, x is uniform on [0, 1) and accepted with probability
``exp(-x (2k + x) / 2)``, which is decided by comparing uniform numbers with each other. No
exponential function, no rounding error.

The algorithm stands here twice. The compiled kernel knows the first 64 binary digits, one word, of
a uniform number. Where they leave a comparison open (two equal words, a pick at the edge of a whole
part), once in 1e17 numbers, it stops and :func:`exact_normal` reads the same words in the same
order, so that nothing is decided otherwise, with as many further digits as it takes. What is left
is the tail, a whole part above 23, and the table of whole parts, which is right to 2^-399; there
are 1.41 attempts per number, so that `NORMAL_FAILURE` bounds the distance from the ideal law.

The product of the scale and Z is rounded to the nearest integer by integer arithmetic, with as many
further words of x as it takes: no error there. Imported lazily, because importing numba takes half
a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dpconvex.core.noise_source import Words

NORMAL_FAILURE = 1e-119

# Whole parts beyond this are never drawn: the mass of exp(-k^2 / 2) over all larger k is below
# 1e-125 of the whole.
LARGEST_WHOLE = 23
# Sums of masses are known to this many bits: a pick that is still open then, once in 2^400, counts
# as above.
_TABLE_BITS = 400
# No sound generator leaves a comparison open after so many digits.
_MOST_BITS = 4096


@dataclass
class UniformForNormal:
    """A uniform number in ``[value, value + 1) / 2^bits``; `take` returns a word of `word_bits`
    further digits.
    """

    value: int
    bits: int
    take: Callable[[], int]
    word_bits: int = 64

    def extend(self) -> None:
        """Learn a word of further digits; words that repeat themselves for ever are refused."""
        if self.bits > _MOST_BITS:
            raise RuntimeError(
                "The random generator repeats itself: no noise can be drawn. Nothing was released."
            )
        self.value = (self.value << self.word_bits) + self.take()
        self.bits += self.word_bits


def _normal_is_below(
    left: UniformForNormal, right: UniformForNormal, sides: int = 1, twice: int = 0
) -> bool:
    """Return whether ``sides left < twice + right``, learning digits until that is certain."""
    while True:
        # Both in units of 2^-(left.bits + right.bits).
        low = (sides * left.value) << right.bits
        edge = ((twice << right.bits) + right.value) << left.bits
        if low + (sides << right.bits) <= edge:
            return True
        if low >= edge + (1 << left.bits):
            return False
        (right if right.bits < left.bits else left).extend()


@lru_cache(maxsize=8)
def normal_whole_part_sums(bits: int) -> tuple[int, ...]:
    """Return ``floor(2^bits P(whole part of |Z| proposed <= k))`` for k = 0, 1, ...,
    `LARGEST_WHOLE`.
    """
    with localcontext() as context:
        context.prec = 150
        sums = list(accumulate((-Decimal(k * k) / 2).exp() for k in range(LARGEST_WHOLE + 1)))
        return *(int(s / sums[-1] * 2**bits) for s in sums[:-1]), 2**bits


def _accept_normal_exactly(
    whole: int, fraction: UniformForNormal, uniform: Callable[[], UniformForNormal]
) -> bool:
    """Return True with probability ``exp(-x (2k + x) / 2)``, as the kernel decides it."""
    twice = 2 * whole
    for _ in range(whole + 1):
        last = fraction
        even = True
        while True:
            drawn = uniform()
            if not _normal_is_below(drawn, last) or not _normal_is_below(
                uniform(), fraction, twice + 2, twice
            ):
                break
            last = drawn
            even = not even
        if not even:
            return False
    return True


def exact_normal(take: Callable[[], int], word_bits: int = 64) -> tuple[int, int, UniformForNormal]:
    """Return sign bit, whole part and fractional part of an ideal normal; its law is the same
    for words of any size.
    """

    def uniform() -> UniformForNormal:
        return UniformForNormal(take(), word_bits, take, word_bits)

    while True:
        first = take()
        pick = UniformForNormal(first >> 1, word_bits - 1, take, word_bits)
        fraction = uniform()
        while pick.value in normal_whole_part_sums(pick.bits) and pick.bits < _TABLE_BITS:
            pick.extend()
        whole = sum(
            pick.value >= edge for edge in normal_whole_part_sums(pick.bits)
        )  # whose interval holds the pick
        if _accept_normal_exactly(whole, fraction, uniform):
            return first & 1, whole, fraction


def round_normal_product(mantissa: int, drop: int, whole: int, fraction: UniformForNormal) -> int:
    """Return ``mantissa 2^-drop (whole + fraction)``, rounded to the nearest integer."""
    while True:
        shift = drop + fraction.bits
        low = mantissa * ((whole << fraction.bits) + fraction.value) + (1 << (shift - 1))
        if low >> shift == (low + mantissa - 1) >> shift:
            return low >> shift
        fraction.extend()


Block = NDArray[np.uint64]
Entry = TypeVar("Entry", np.int64, np.uint64)
Filled = tuple[int, int, bool]  # entries so far, words that took, whether the next number is open

# Numbers that are drawn in one call of the kernel, and words to begin with for each: 6.2 are used
# on average.
_CHUNK = 1 << 14
_WORDS = 7

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_HALF_WORD = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)

# Words of digits after the point that an unrounded normal begins with.
_DIGITS = 3

# A pick of 63 bits that equals an entry is open; the last one is 2^63, which no pick is.
_WHOLE_PARTS = np.array(normal_whole_part_sums(63), dtype=np.uint64)

# Instead of a place among the words: there are too few, or digits beyond the first word decide.
_SHORT = -1
_OPEN = -2


@numba.njit(nogil=True, cache=True)
def _accept_normal_fraction(
    words: Block, at: int, whole: np.uint64, fraction: np.uint64
) -> tuple[bool, int]:
    """Return whether ``x = fraction`` is accepted and the next unused word, or why there is no
    answer.
    """
    # Each of k + 1 rounds succeeds with probability exp(-x (2k + x) / (2k + 2)) (algorithm B): a
    # sequence of uniform numbers below x is continued as long as it falls and, each time, a number
    # below (2k + x) / (2k + 2) is drawn; its length is even with that probability.
    twice = whole + whole
    sides = twice + np.uint64(2)
    for _ in range(np.int64(whole) + 1):
        last = fraction
        even = True
        while True:
            if at >= words.size:
                return False, _SHORT
            drawn = words[at]
            at += 1
            if drawn >= last:
                if drawn == last:
                    return False, _OPEN
                break
            if at >= words.size:
                return False, _SHORT
            die = words[at]
            at += 1
            # die * sides < 2k * 2^64 + fraction, in two words.
            high = (
                (die >> _HALF_WORD) * sides + (((die & _LOW_HALF) * sides) >> _HALF_WORD)
            ) >> _HALF_WORD
            low = die * sides
            # Further digits of the die add less than its sides, those of x less than 1. (The high
            # words may differ: then this is an open case too many, which costs a little time.)
            if fraction - low < sides:
                return False, _OPEN
            if high > twice or (high == twice and low >= fraction):
                break
            last = drawn
            even = not even
        if not even:
            return False, at
    return True, at


@numba.njit(nogil=True, cache=True)
def _draw_normal_word(
    words: Block, at: int, whole_parts: Block
) -> tuple[np.uint64, np.uint64, np.uint64, int]:
    """Return sign bit, whole part and first 64 digits of a normal, and the next unused word or
    why there is none.
    """
    while at + 2 <= words.size:
        sign = words[at] & _ONE
        pick = words[at] >> _ONE
        fraction = words[at + 1]
        at += 2
        whole = 0
        while pick > whole_parts[whole]:
            whole += 1
        if pick == whole_parts[whole]:
            return _ZERO, _ZERO, _ZERO, _OPEN
        accepted, at = _accept_normal_fraction(words, at, np.uint64(whole), fraction)
        if at < 0:
            return _ZERO, _ZERO, _ZERO, at
        if accepted:
            return sign, np.uint64(whole), fraction, at
    return _ZERO, _ZERO, _ZERO, _SHORT


@numba.njit(nogil=True, cache=True)
def _multiply_normal_words(mantissa: np.uint64, word: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the high and the low word of a 53-bit number times a 64-bit one."""
    a = mantissa >> _HALF_WORD
    b = mantissa & _LOW_HALF
    c = word >> _HALF_WORD
    d = word & _LOW_HALF
    low = b * d
    middle = b * c + (low >> _HALF_WORD)
    cross = a * d + (middle & _LOW_HALF)
    high = a * c + (middle >> _HALF_WORD) + (cross >> _HALF_WORD)
    return high, (cross << _HALF_WORD) | (low & _LOW_HALF)


@numba.njit(nogil=True, cache=True)
def _fill_rounded_normals(
    words: Block,
    whole_parts: Block,
    mantissa: np.uint64,
    drop: np.uint64,
    out: NDArray[np.int64],
    first: int,
) -> Filled:
    """Fill ``out[first:]`` with ``round(mantissa 2^-drop Z)`` as far as words last."""
    # Returns how much of `out` is filled, how many words that took, and whether the next number is
    # open; the words of an unfinished number are not counted: they must be offered again, with
    # others behind them, or numbers that take many words would be rarer.
    used: Any = np.int64(
        0
    )  # of one type with what `_draw_normal_word` returns, or it would be compiled twice
    ones = (_ONE << drop) - _ONE
    for index in range(first, out.size):
        sign, whole, fraction, at = _draw_normal_word(words, used, whole_parts)
        if at < 0:
            return index, used, at == _OPEN
        high, low = _multiply_normal_words(mantissa, fraction)
        high += mantissa * whole + ((_ONE << drop) >> _ONE)
        rounded = high >> drop
        # The digits of x beyond the first word move the product by less than the mantissa in its
        # low word. Where that may carry it over the edge, it does if they are at least left /
        # mantissa: long division, word by word.
        left = _ZERO - low
        if high & ones == ones and low != _ZERO:
            while left < mantissa:
                if at >= words.size:
                    return index, used, False
                high, low = _multiply_normal_words(mantissa, words[at])
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
    return out.size, used, False


@numba.njit(nogil=True, cache=True)
def _fill_normal_digits(words: Block, whole_parts: Block, out: Block, first: int) -> Filled:
    """Fill ``out[first:]`` with sign, whole part and words of digits, as `_fill_rounded_normals`
    does.
    """
    used: Any = np.int64(
        0
    )  # of one type with what `_draw_normal_word` returns, or it would be compiled twice
    for index in range(first, out.shape[0]):
        sign, whole, fraction, at = _draw_normal_word(words, used, whole_parts)
        if at < 0:
            return index, used, at == _OPEN
        # Digits beyond the first word were not touched when x was accepted: they are new words.
        more = out.shape[1] - 3
        if at + more > words.size:
            return index, used, False
        out[index, 0] = sign
        out[index, 1] = whole
        out[index, 2] = fraction
        for place in range(more):  # a slice would compile what its errors are made of
            out[index, 3 + place] = words[at + place]
        used = at + more
    return out.shape[0], used, False


class _ReplayedNormalWords:
    """Words that were offered to the kernel, one by one, and new ones behind them."""

    def __init__(self, words: Words, offered: Block) -> None:
        self.words = words
        self.offered = offered
        self.used = 0

    def take(self) -> int:
        if self.used == self.offered.size:
            self.offered = self.words.take(64)
            self.used = 0
        self.used += 1
        return int(self.offered[self.used - 1])


def _fill_normals(
    words: Words,
    out: NDArray[Entry],
    kernel: Callable[..., Filled],
    scale: tuple[np.uint64, ...],
    finish: Callable[[int, int, UniformForNormal], int | list[int]],
) -> None:
    """Fill `out` with a kernel, fetching words until it is full; `finish` makes an entry of an
    open number's parts.
    """
    for start in range(0, len(out), _CHUNK):
        part = out[start : start + _CHUNK]
        offered = words.take(_WORDS * len(part) + 64)
        filled = 0
        while True:
            filled, used, is_open = kernel(offered, _WHOLE_PARTS, *scale, part, filled)
            if filled == len(part):
                break
            if is_open:
                replay = _ReplayedNormalWords(words, offered[used:])
                part[filled] = finish(*exact_normal(replay.take))
                filled = filled + 1
                offered = replay.offered[replay.used :]
            else:
                more = words.take(_WORDS * (len(part) - filled) + 64)
                offered = np.concatenate([offered[used:], more])


def rounded_normals(words: Words, ratio: float, size: int) -> NDArray[np.int64]:
    """Return ``round(ratio Z)`` of so many independent ideal normals Z; the ratio is at least 1
    and below 2^48.
    """
    significand, exponent = math.frexp(ratio)
    mantissa = np.uint64(int(significand * 2.0**53))
    drop = np.uint64(53 - exponent)
    out = np.empty(size, dtype=np.int64)

    def finish(sign: int, whole: int, fraction: UniformForNormal) -> int:
        size_of = round_normal_product(int(mantissa), int(drop), whole, fraction)
        return -size_of if sign else size_of

    _fill_normals(words, out, _fill_rounded_normals, (mantissa, drop), finish)
    return out


def normal_digits(words: Words, size: int) -> tuple[list[int], list[int]]:
    """Return sign bits and ``trunc(2^192 |Z|)`` of independent ideal normals Z; further digits
    are new words.
    """
    drawn = np.empty((size, 2 + _DIGITS), dtype=np.uint64)

    def finish(sign: int, whole: int, fraction: UniformForNormal) -> list[int]:
        while fraction.bits < 64 * _DIGITS:
            fraction.extend()
        # Comparisons that are open after so many digits are rarer than 1e-55: what is known beyond
        # them is dropped.
        kept = fraction.value >> (fraction.bits - 64 * _DIGITS)
        return [sign, whole, *((kept >> 64 * place) % 2**64 for place in reversed(range(_DIGITS)))]

    _fill_normals(words, drawn, _fill_normal_digits, (), finish)
    signs = []
    sizes = []
    for sign, size_of, *parts in drawn.tolist():
        for part in parts:
            size_of = (size_of << 64) + part
        signs.append(sign)
        sizes.append(size_of)
    return signs, sizes


def rounded_l2_laplace(words: Words, ratio: float, size: int) -> NDArray[np.int64]:
    """Return an l2-Laplace vector of this dimension, of scale `ratio` in units of the grid, rounded
    to integers.

    ``b = scale R u`` with R of law Gamma(d, 1) and u uniform on the sphere has density proportional
    to ``exp(-||b|| / scale)``. Both come from ideal normals: ``u = Z / ||Z||``, and R is half the
    sum of squares of 2d others. These have 192 binary digits after the point; the rest is integer
    arithmetic between a lower and an upper end, and where these leave the nearest integer open,
    further digits are drawn. What is left is the failure of three normals per coordinate.
    """
    signs, drawn = normal_digits(words, 3 * size)
    bits = 192
    while True:
        low, high = (_round_l2_laplace(drawn, ratio, size, bits, upper) for upper in (0, 1))
        if low == high:
            break
        further = words.take(3 * size).tolist()
        drawn = [(z << 64) + word for z, word in zip(drawn, further, strict=True)]
        bits += 64
    cells = [-cell if sign else cell for sign, cell in zip(signs[:size], low, strict=True)]
    return np.array(cells, dtype=np.int64)


def _round_l2_laplace(
    drawn: list[int], ratio: float, size: int, bits: int, upper: int
) -> list[int]:
    """Return ``round(ratio R |z| / ||Z||)`` with every rounding, of digits too, downwards (0) or
    upwards (1).
    """
    # The first size of the sizes z, all in units of 2^-bits, give the direction and the others R.
    direction = drawn[:size]
    others = drawn[size:]
    squares = sum((z + upper) ** 2 for z in others)  # 2 R, in units of 2^-2 bits
    norm = math.isqrt(sum((z + 1 - upper) ** 2 for z in direction)) + 1 - upper
    if norm == 0:
        return [-1] * size  # no upper end: more digits
    numerator, denominator = ratio.as_integer_ratio()
    whole = (denominator * norm) << (2 * bits + 1)
    # floor(v + 1/2); v stays below the upper end, so that an end on an edge counts as before it.
    factor = 2 * numerator * squares
    half = whole - upper
    unit = 2 * whole
    return [(factor * (z + upper) + half) // unit for z in direction]
