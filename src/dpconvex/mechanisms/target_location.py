"""A private middle and scale of the target, from a histogram of octaves and noisy counts."""

from __future__ import annotations

from collections.abc import Mapping

from dpconvex.engine.rows import Rows
from dpconvex.mechanisms.gradient_plan import NORMAL_SCALE
from dpconvex.mechanisms.quantile_location import (
    Belief,
    private_location,
    target_bracket,
    target_of,
)
from dpconvex.mechanisms.quantile_search import Counting
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

__all__ = ["TARGET_STEPS", "private_target"]

TARGET_STEPS = 16  # noisy counts


def private_target(
    rows: Rows,
    mass: float,
    terms: Mapping[str, NoiseTerm],
    noise: NoiseSource,
    bounded: bool = True,
    centred: bool = False,
) -> tuple[float, float]:
    """Return a private median of the target, and the scale of a normal law as dense there.

    Parameters
    ----------
    rows : engine
        Mapped rows.
    mass : float
        What all records count for, public or released.
    terms : mapping
        Noise of "octaves" and "targets".
    noise : NoiseSource
        Where noise comes from.
    bounded : bool
        Whether the unit of the target is public.
    centred : bool
        Whether counts are centred, see :class:`~dpconvex.mechanisms.quantile_search.Counting`.
    """
    found = target_bracket(rows, terms["octaves"].scale, mass, noise, bounded)
    low, high = found or (-1.0, 1.0)
    width = high - low
    belief = Belief(low, high, 2.0**-18 * width, width / 4)
    counting = Counting(terms["targets"].scale, mass, noise, centred)
    middle, scale = private_location(rows, target_of, 0.5, belief, TARGET_STEPS, counting)
    return middle, min(NORMAL_SCALE * scale, width / 2)
