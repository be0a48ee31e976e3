r"""The gate: every number that leaves a mechanism is a whole multiple of a public grid.

The value is rounded to the grid ``g``, noise is drawn independently of it as whole multiples of g,
and the two whole numbers are added. For a value on the grid ``round(v + b) = v + round(b)``: what
is released is the ideal, real-valued mechanism on the rounded value, rounded afterwards. Which
numbers can come out does not depend on the data. (Noise in floating point, added in floating point,
betrays the value in the last bits of the sum.)

Rounding moves two neighbouring values apart by at most ``g sqrt(d)`` more; calibrations pay for it
with :func:`~dpconvex.core.calibration.calibrated_release_scale`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.core.calibration import grid_of
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.core.certificate import CertifiedNoise

Seed = int | np.random.Generator | np.random.RandomState | None

EXACT = "exact"
FLOATING_POINT = "floating-point"
SEEDED = "seeded: not private"

SAMPLERS = ("auto", "exact")

# Per released number or choice, the distance from the rounded ideal law: roundings of choices
# (1e-40), digits of l2-Laplace vectors that are dropped (1e-55). Pure epsilon-DP and Gaussian DP
# hold but for an event of probability N FAILURE_PROBABILITY for N numbers: certificates state it.
FAILURE_PROBABILITY = 1e-40
# Per Gaussian number: tails that are never drawn. N of them are within N times this of the ideal
# law, which adds (1 + e^epsilon) N TAIL_PROBABILITY to a delta. Calibrations aim 2e-9 delta lower,
# and certificates check that this covers it: up to an epsilon of 150, with a billion numbers, for
# every delta above 1e-35.
TAIL_PROBABILITY = 1e-118

# Values, and values in units of the grid, are kept within this of 0: nothing overflows, and cutting
# off moves neighbours closer, if anything.
_LARGEST = 2.0**1000


# OpenSSL's AES-256 generator, or the operating system's where Python has no OpenSSL. It is seeded
# by the operating system, locks itself between threads, notices a fork and reseeds; it is about 15
# times faster. Random bytes are a quarter of the time of a draw.
try:
    from ssl import RAND_bytes as _secure_noise_bytes
except ImportError:
    from os import urandom as _secure_noise_bytes


class Words:
    """Uniform 64-bit words from a cryptographic generator, or in tests from a seeded one.

    Nothing is kept between calls: every call asks the generator anew and what a caller leaves over
    is dropped, so that no word can reach two threads, two forked children or two numbers.
    """

    def __init__(self, generator: np.random.Generator | None = None) -> None:
        self._bytes: Callable[[int], bytes] = (
            _secure_noise_bytes if generator is None else generator.bytes
        )

    def take(self, count: int) -> NDArray[np.uint64]:
        """Return `count` new words, which may be written to: compiled kernels need no second
        version.
        """
        return np.frombuffer(bytearray(self._bytes(8 * count)), dtype=np.uint64)

    def below(self, bound: int) -> int:
        """Return a uniform integer of the source in ``[0, bound)``, exactly, for a bound of any
        size.
        """
        bits = (bound - 1).bit_length()
        count = -(-bits // 64)
        while True:
            drawn = int.from_bytes(self.take(count).tobytes(), "little") >> (64 * count - bits)
            if drawn < bound:
                return drawn


def on_grid(value: ArrayLike, grid: float) -> Array:
    """Return the nearest whole multiple of the grid as a whole number, for every input: NaN
    counts as 0.
    """
    # Dividing by a power of 2 and rounding to a whole number are exact in floating point.
    bounded = np.clip(np.asarray(value, dtype=np.float64), -_LARGEST, _LARGEST)
    with np.errstate(over="ignore", under="ignore"):
        cells = np.clip(np.rint(bounded / grid), -_LARGEST, _LARGEST)
    return np.asarray(np.nan_to_num(cells, nan=0.0))


class NoiseSource:
    """Draws noise; with ``random_state`` given, reproducibly and therefore not privately.

    Parameters
    ----------
    random_state : None, int, numpy Generator or RandomState
        None draws from a cryptographic generator. Anything else is for tests; it goes the same way
        with other words.
    sampler : {"auto", "exact"}, default="auto"
        "exact" takes Gaussian noise from opendp: about 20 microseconds a number. Seeded sources
        have no use for it.

    Notes
    -----
    Privacy: what :meth:`add` returns lies on a public grid. The law of each number is within
    `FAILURE_PROBABILITY` of the rounded ideal law. opendp's law is the discrete Gaussian on the
    same grid. l2-Laplace noise is ours either way.
    """

    def __init__(self, random_state: Seed = None, sampler: str = "auto") -> None:
        if sampler not in SAMPLERS:
            raise ValueError(
                f"The 'sampler' parameter must be one of {list(SAMPLERS)}. Got {sampler!r} instead."
            )
        self.sampler = sampler
        self.seeded = random_state is not None
        if isinstance(random_state, np.random.RandomState):
            random_state = random_state.randint(0, 2**31 - 1)
        try:
            self.generator = np.random.default_rng(random_state)
        except (TypeError, ValueError) as error:
            raise type(error)(
                "The 'random_state' parameter must be None, an integer of at least 0, a "
                f"Generator or a RandomState. Got {random_state!r} instead."
            ) from None

    @classmethod
    def of(cls, rng: Seed | NoiseSource) -> NoiseSource:
        """Return ``rng`` if it is a noise source already, or one made from it."""
        return rng if isinstance(rng, NoiseSource) else cls(rng)

    @property
    def words(self) -> Words:
        """Where all randomness of noise and choices comes from."""
        return Words(self.generator if self.seeded else None)

    def gaussian(self, std: float, size: int) -> Array:
        """Return Gaussian noise ``g round(b / g)`` of an ideal ``b ~ N(0, std^2 I)``, within
        ``g sqrt(d) / 2``.
        """
        grid = grid_of(std)
        if self.sampler == "exact" and not self.seeded:
            return np.asarray(_discrete_gaussian_noise(std / grid, size) * grid, np.float64)
        from dpconvex.core.normal_and_laplace import rounded_normals

        return np.asarray(rounded_normals(self.words, std / grid, size) * grid, np.float64)

    def l2_laplace(self, scale: float, size: int) -> Array:
        """Return ``g round(b / g)`` for an ideal b of density proportional to
        ``exp(-||b|| / scale)``.
        """
        from dpconvex.core.normal_and_laplace import rounded_l2_laplace

        grid = grid_of(scale)
        return np.asarray(rounded_l2_laplace(self.words, scale / grid, size) * grid, np.float64)

    def add_gaussian(self, value: ArrayLike, std: float) -> Array:
        """Return ``value + N(0, std^2 I)``, both rounded to the grid."""
        return _add_noise_on_grid(value, self.gaussian(std, np.size(value)), grid_of(std))

    def add_l2_laplace(self, value: ArrayLike, scale: float) -> Array:
        """Return ``value`` plus l2-Laplace noise, both rounded to the grid."""
        return _add_noise_on_grid(value, self.l2_laplace(scale, np.size(value)), grid_of(scale))

    def draw(self, term: CertifiedNoise) -> Array:
        """Return noise as a term of a certificate states it: its distribution, size and
        dimension.
        """
        law = self.gaussian if term.distribution == "gaussian" else self.l2_laplace
        return law(term.scale, term.dimension)

    def add(self, value: ArrayLike, term: CertifiedNoise) -> Array:
        """Return ``value`` plus the noise that a term of a certificate states, both rounded to
        the grid.
        """
        law = self.add_gaussian if term.distribution == "gaussian" else self.add_l2_laplace
        return law(value, term.scale)


def _add_noise_on_grid(value: ArrayLike, noise: Array, grid: float) -> Array:
    """Return value plus noise as multiples of the grid: the one place where they meet."""
    # Both are whole numbers of cells. Floating-point addition gives their exact sum up to 2^53
    # cells, and beyond it the exact sum rounded to 53 bits: post-processing.
    cells = on_grid(value, grid)
    return (cells + on_grid(noise, grid).reshape(cells.shape)) * grid


def _discrete_gaussian_noise(std: float, size: int) -> NDArray[np.int64]:
    """Return integers of discrete Gaussian noise from opendp's exact sampler."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64"), size=size), l2_distance(T=float)
    return np.asarray(make_gaussian(*space, std)([0] * size), dtype=np.int64)
