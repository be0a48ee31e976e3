r"""Normals from digits that are looked at only as far as a decision needs them: slow and without error.

The compiled kernel of :mod:`~dpconvex.privacy.noise.normal` knows the first 64 binary digits of every uniform number.
Where they leave a comparison open, which happens once in 1e17 numbers, it hands the words of that number over to this
file. It reads the same words in the same order, so that nothing is decided otherwise; where a comparison is open, a
further word is further digits of the number that is known to fewer. It is one algorithm, of which the kernel is the
common case, and its law is that of ideal normals whatever the size of a word: tests try words of a few bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate

__all__ = ["LARGEST_WHOLE", "Uniform", "is_below", "normal", "rounded", "whole_part_sums"]

# Whole parts beyond this are never drawn: the mass of exp(-k^2 / 2) over all larger k is below 1e-125 of the whole.
LARGEST_WHOLE = 23
# Sums of masses are known to this many bits: a pick that is still open then, once in 2^400, counts as above.
_TABLE_BITS = 400
# No sound generator leaves a comparison open after so many digits.
_MOST_BITS = 4096


@dataclass
class Uniform:
    """A uniform number in ``[value, value + 1) / 2^bits`` and where its further digits come from.

    Parameters
    ----------
    value, bits : int
        Its first binary digits, and how many they are.
    take : callable
        Returns a new word.
    word_bits : int
        Binary digits of a word.
    """

    value: int
    bits: int
    take: Callable[[], int]
    word_bits: int = 64

    def extend(self) -> None:
        """Learn a word of further digits; words that repeat themselves for ever are refused."""
        if self.bits > _MOST_BITS:
            raise RuntimeError("The random generator repeats itself: no noise can be drawn. Nothing was released.")
        self.value = (self.value << self.word_bits) + self.take()
        self.bits += self.word_bits


def is_below(left: Uniform, right: Uniform, sides: int = 1, twice: int = 0) -> bool:
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
def whole_part_sums(bits: int) -> tuple[int, ...]:
    """Return ``floor(2^bits P(whole part of |Z| proposed <= k))`` for k = 0, 1, ..., `LARGEST_WHOLE`."""
    with localcontext() as context:
        context.prec = 150
        sums = list(accumulate((-Decimal(k * k) / 2).exp() for k in range(LARGEST_WHOLE + 1)))
        return *(int(s / sums[-1] * 2**bits) for s in sums[:-1]), 2**bits


def _whole_part(pick: Uniform) -> int:
    """Return the k whose stretch of the sums holds the pick."""
    while pick.value in whole_part_sums(pick.bits) and pick.bits < _TABLE_BITS:
        pick.extend()
    return sum(pick.value >= edge for edge in whole_part_sums(pick.bits))


def _accepted(whole: int, fraction: Uniform, uniform: Callable[[], Uniform]) -> bool:
    """Return True with probability ``exp(-x (2k + x) / 2)``, as the kernel decides it."""
    twice = 2 * whole
    for _ in range(whole + 1):
        last, even = fraction, True
        while True:
            drawn = uniform()
            if not is_below(drawn, last) or not is_below(uniform(), fraction, twice + 2, twice):
                break
            last, even = drawn, not even
        if not even:
            return False
    return True


def normal(take: Callable[[], int], word_bits: int = 64) -> tuple[int, int, Uniform]:
    """Return sign bit, whole part and fractional part of an ideal normal.

    Parameters
    ----------
    take : callable
        Returns a new uniform word.
    word_bits : int, default=64
        Binary digits of a word, at least 2.
    """

    def uniform() -> Uniform:
        return Uniform(take(), word_bits, take, word_bits)

    while True:
        first = take()
        pick = Uniform(first >> 1, word_bits - 1, take, word_bits)
        fraction = uniform()
        whole = _whole_part(pick)
        if _accepted(whole, fraction, uniform):
            return first & 1, whole, fraction


def rounded(mantissa: int, drop: int, whole: int, fraction: Uniform) -> int:
    """Return ``mantissa 2^-drop (whole + fraction)``, rounded to the nearest integer."""
    while True:
        shift = drop + fraction.bits
        low = mantissa * ((whole << fraction.bits) + fraction.value) + (1 << (shift - 1))
        if low >> shift == (low + mantissa - 1) >> shift:
            return low >> shift
        fraction.extend()
