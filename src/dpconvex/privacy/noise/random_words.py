"""Random 64-bit words: from a cryptographic generator, or from a seeded one in tests.

Nothing is kept between calls: every call asks the generator anew and what a caller leaves over is dropped, so that no
word can reach two threads, two forked children or two numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Words"]


def _secure_bytes() -> Callable[[int], bytes]:
    """Return OpenSSL's AES-256 generator, or the operating system's where Python has no OpenSSL.

    OpenSSL is seeded by the operating system, locks itself between threads, notices a fork and reseeds; it is about
    15 times faster. Random bytes are a quarter of the time of a draw.
    """
    try:
        from ssl import RAND_bytes
    except ImportError:
        from os import urandom

        return urandom
    return RAND_bytes


class Words:
    """Uniform 64-bit words.

    Parameters
    ----------
    generator : numpy Generator, optional
        Where words come from in tests; None for the cryptographic generator.
    """

    def __init__(self, generator: np.random.Generator | None = None) -> None:
        self._bytes = _secure_bytes() if generator is None else generator.bytes

    def take(self, count: int) -> NDArray[np.uint64]:
        """Return `count` new words, which may be written to: compiled kernels need no second version."""
        return np.frombuffer(bytearray(self._bytes(8 * count)), dtype=np.uint64)

    def below(self, bound: int) -> int:
        """Return a uniform integer in ``[0, bound)``, exactly, for a bound of any size."""
        bits = (bound - 1).bit_length()
        count = -(-bits // 64)
        while True:
            drawn = int.from_bytes(self.take(count).tobytes(), "little") >> (64 * count - bits)
            if drawn < bound:
                return drawn
