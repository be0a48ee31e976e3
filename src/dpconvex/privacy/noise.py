r"""Noise: exact samplers for sums plus noise, the operating system's entropy for everything else.

Floating-point normals have gaps that can betray the value they were added to. Where a release is a vector plus
Gaussian noise, opendp draws from the exact discrete Gaussian on a grid 2^-40 of the scale wide. Noise that enters an
optimisation problem (objective perturbation) needs a density and comes from numpy's generator, seeded by the
operating system. A fixed seed is for tests: whoever knows it can subtract the noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .calibration import GRID_BITS

EXACT = "exact"
FLOATING_POINT = "floating-point"
SEEDED = "seeded: not private"


class NoiseSource:
    """Draws noise vectors; with ``random_state`` given, reproducibly and therefore not privately.

    Parameters
    ----------
    random_state : None, int, numpy Generator or RandomState
        None draws from the operating system's entropy. Anything else is for tests.
    """

    def __init__(self, random_state: Any = None) -> None:
        self.seeded = random_state is not None
        if isinstance(random_state, np.random.RandomState):
            random_state = random_state.randint(0, 2**31 - 1)
        try:
            self.generator = np.random.default_rng(random_state)
        except (TypeError, ValueError) as error:
            raise type(error)(
                "The 'random_state' parameter must be None, an integer of at least 0, a Generator or a RandomState. "
                f"Got {random_state!r} instead."
            ) from None

    @classmethod
    def of(cls, rng: Any) -> NoiseSource:
        """Return ``rng`` if it is a noise source already, or one made from it."""
        return rng if isinstance(rng, cls) else cls(rng)

    def gaussian(self, std: float, size: int) -> NDArray[np.float64]:
        """Return normal noise with a density, for noise that enters an optimisation problem."""
        return std * self.generator.standard_normal(size)

    def l2_laplace(self, scale: float, size: int) -> NDArray[np.float64]:
        """Return noise of density proportional to ``exp(-||b|| / scale)``.

        Its norm follows Gamma(shape = size, scale) and its direction is uniform.
        """
        direction = self.generator.standard_normal(size)
        norm = np.linalg.norm(direction)
        return direction * (self.generator.gamma(size, scale) / norm)

    def add_gaussian(self, value: NDArray[np.float64], std: float) -> NDArray[np.float64]:
        """Return ``value + N(0, std^2 I)``, from the exact sampler unless seeded.

        ``value`` is rounded to the grid first; :func:`~dpconvex.privacy.calibration.exact_gaussian_std` pays for it.
        """
        value = np.asarray(value, dtype=np.float64)
        if self.seeded:
            return value + self.gaussian(std, value.size)
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance
        from opendp.mod import enable_features

        enable_features("contrib")
        grid = math.floor(math.log2(std)) - GRID_BITS
        space = (
            vector_domain(atom_domain(T=float, nan=False), size=value.size),
            l2_distance(T=float),
        )
        return np.asarray(make_gaussian(*space, std, grid)(value.tolist()), dtype=np.float64)

    def add_l2_laplace(self, value: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
        """Return ``value`` plus l2-Laplace noise, from the floating-point sampler."""
        value = np.asarray(value, dtype=np.float64)
        return value + self.l2_laplace(scale, value.size)

    def draw(self, term: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return noise as a term of a certificate states it: its distribution, size and dimension."""
        if term["distribution"] == "gaussian":
            return self.gaussian(term["std"], term["dimension"])
        return self.l2_laplace(term["scale"], term["dimension"])

    def add(self, value: NDArray[np.float64], term: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return ``value`` plus the noise that a term of a certificate states, exact where that is Gaussian."""
        if term["distribution"] == "gaussian":
            return self.add_gaussian(value, term["std"])
        return self.add_l2_laplace(value, term["scale"])
