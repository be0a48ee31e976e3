"""A private middle and scale of the target, from a histogram of octaves and noisy counts."""

from __future__ import annotations

from dpconvex.core.release import PrivateRows, Statistic
from dpconvex.mechanisms.gradient_plan import NORMAL_SCALE
from dpconvex.mechanisms.quantile_location import Belief, private_location, target_bracket

__all__ = ["TARGET_STEPS", "private_target"]

TARGET_STEPS = 16  # noisy counts


def private_target(rows: PrivateRows, mass: float, bounded: bool = True) -> tuple[float, float]:
    """Return a private median of the target, and the scale of a normal law as dense there.

    Parameters
    ----------
    rows : PrivateRows
        Whose certificate has the terms "octaves" and "targets".
    mass : float
        What all records count for, public or released.
    bounded : bool
        Whether the unit of the target is public.
    """
    found = target_bracket(rows, "octaves", mass, bounded)
    low, high = found or (-1.0, 1.0)
    width = high - low
    belief = Belief(low, high, 2.0**-18 * width, width / 4)
    middle, scale = private_location(
        rows, "targets", Statistic("target"), 0.5, belief, TARGET_STEPS, mass
    )
    return middle, min(NORMAL_SCALE * scale, width / 2)
