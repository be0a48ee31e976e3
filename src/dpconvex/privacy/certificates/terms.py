r"""Noise terms: what a certificate states about every release, and what several of them give together.

A term says which law the noise has, its scale, how far neighbouring data sets can move the number it is added to, and
how often it is drawn. Nothing here knows why a mechanism chose these numbers: a reader of a certificate composes what
is stated and asks whether the guarantee follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpconvex.privacy.calibration import grid_of
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP

__all__ = ["LAWS", "NoiseTerm", "follows", "gaussian_total", "pure_total"]

LAWS = ("gaussian", "l2-laplace")
_PLACES = ("sum", "mean", "count", "coefficients")
# Profiles are computed to a relative error of 1e-9, on another platform perhaps with other digits.
_SLACK = 1 + 4e-9


@dataclass(frozen=True)
class NoiseTerm(Mapping[str, Any]):
    """Noise that was added ``releases`` times to vectors of one kind.

    Parameters
    ----------
    distribution : {"gaussian", "l2-laplace"}
        Normal in every coordinate, or of density proportional to ``exp(-||b|| / scale)``.
    scale : float
        Standard deviation per coordinate, or scale of the l2-Laplace law.
    sensitivity : float
        l2 distance of the vectors of two neighbouring data sets, at most, before they are rounded to the grid.
    dimension : int
        Numbers per vector.
    added_to : {"sum", "mean", "count", "coefficients"}
        What the vector is.
    releases : int, default=1
        How many such vectors are released, in each of the problems solved on the same rows.
    tolerance : float, default=0
        Certified gradient norm of a minimiser that is released; the sensitivity pays for it.
    grid : float, optional
        Power of two to whose multiples the vector and the noise are rounded; by default that of the scale. 0 where
        noise is drawn in floating point.
    kind : str, default=""
        Kind of a released sum, as :class:`dpconvex.core.queries.Query` lists them; empty for other releases.
    bound : float, default=0
        Bound on what one record adds to a released sum.

    Notes
    -----
    Reads like a mapping as well; ``term["std"]`` is the scale of a Gaussian term.

    Examples
    --------
    >>> term = NoiseTerm("gaussian", 4.0, 1.0, dimension=3, added_to="sum", releases=4)
    >>> round(gaussian_total([term]).mu, 5)
    0.5
    """

    distribution: str
    scale: float
    sensitivity: float
    dimension: int
    added_to: str
    releases: int = 1
    tolerance: float = 0.0
    grid: float | None = None
    kind: str = ""
    bound: float = 0.0

    def __post_init__(self) -> None:
        for name, allowed in (("distribution", LAWS), ("added_to", _PLACES)):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"A noise term's {name} must be one of {list(allowed)}. Got {getattr(self, name)!r} instead."
                )
        for name in ("dimension", "releases"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value < 2**53:
                raise ValueError(f"A noise term's {name} must be a positive integer. Got {value!r} instead.")
        if self.grid is None:
            object.__setattr__(self, "grid", grid_of(self.scale))
        if type(self.kind) is not str:
            raise ValueError(f"A noise term's kind must be a string. Got {self.kind!r} instead.")
        for name in ("scale", "sensitivity", "tolerance", "grid", "bound"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise ValueError(f"A noise term's {name} must be a finite number of at least 0. Got {value!r} instead.")
            object.__setattr__(self, name, float(value))
        if not self.scale > 0:
            raise ValueError(f"A noise term's scale must be above 0. Got {self.scale!r} instead.")
        if self.grid and math.frexp(self.grid)[0] != 0.5:
            raise ValueError(f"A noise term's grid must be a power of two. Got {self.grid!r} instead.")

    def __getitem__(self, name: str) -> Any:
        if name == "std" and self.distribution == "gaussian":
            return self.scale
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))

    @property
    def rounded_sensitivity(self) -> float:
        """``sensitivity + grid sqrt(dimension)``: rounding moves two vectors apart by at most that much more."""
        return self.sensitivity + self.drawn_grid * math.sqrt(self.dimension)

    @property
    def drawn_grid(self) -> float:
        """The grid that is paid for: the stated one, but none finer than the gate's; 0 in floating point."""
        return max(self.grid, grid_of(self.scale)) if self.grid else 0.0

    @property
    def spread(self) -> float:
        """Root mean square of one coordinate: the std, or ``scale sqrt(dimension + 1)`` of the l2-Laplace law."""
        if self.distribution == "gaussian":
            return self.scale
        return self.scale * math.sqrt(self.dimension + 1)

    @property
    def largest(self) -> float:
        """A norm that the noise exceeds with probability below 1e-17.

        ``std (sqrt(d) + 9)``, or ``scale (2 d + 80)`` since the l2-Laplace norm follows Gamma(d).
        """
        if self.distribution == "gaussian":
            return self.scale * (math.sqrt(self.dimension) + 9)
        return self.scale * (2 * self.dimension + 80)

    def to_dict(self) -> Facts:
        """Return the term as plain data."""
        return dict(self)


def gaussian_total(terms: Iterable[NoiseTerm]) -> GaussianDP:
    """Return what Gaussian releases give together: ``mu^2 = sum releases (rounded sensitivity / std)^2``."""
    square = 0.0
    for term in terms:
        if term.distribution != "gaussian":
            raise ValueError("Gaussian DP needs Gaussian noise in every term.")
        square += term.releases * (term.rounded_sensitivity / term.scale) ** 2
    return GaussianDP(math.sqrt(square))


def pure_total(terms: Iterable[NoiseTerm]) -> PureDP:
    """Return what l2-Laplace releases give together: ``epsilon = sum releases rounded sensitivity / scale``."""
    total = 0.0
    for term in terms:
        if term.distribution != "l2-laplace":
            raise ValueError("Pure epsilon-DP needs l2-Laplace noise in every term.")
        total += term.releases * term.rounded_sensitivity / term.scale
    return PureDP(total)


def follows(claim: Guarantee, proven: Guarantee) -> bool:
    """Whether a guarantee follows from one that was proven, up to the rounding of the proof."""
    if isinstance(claim, GaussianDP):
        return isinstance(proven, GaussianDP) and proven.mu <= claim.mu * _SLACK
    epsilon = claim.epsilon_bound * _SLACK
    delta = claim.delta_bound if isinstance(claim, ApproxDP) else 0.0
    if delta == 0 and isinstance(proven, GaussianDP):
        # At a large epsilon delta of a normal law is too small for a number, but it is not 0.
        return proven.mu == 0
    return proven.delta(epsilon) <= delta * _SLACK
