"""Maxima of affine functions, sorted by direction: the form in which they are smoothed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dpconvex.losses.kinks import Kinks
from dpconvex.types import Array

__all__ = ["Group", "Pieces", "arrange_pieces", "upper_envelope"]


@dataclass(frozen=True)
class Group:
    """Pieces along one direction: ``max(rise x + high, -fall x + low)`` of ``x = <direction, u>``.

    A slope of 0 says that the group has no such line.
    """

    direction: tuple[float, ...]
    rise: float = 0.0
    high: float = 0.0
    fall: float = 0.0
    low: float = 0.0


@dataclass(frozen=True)
class Pieces:
    """``max_p <a_p, u> + b_p = <centre, u> + max(floor, groups)``, the form in which it is smoothed.

    Attributes
    ----------
    centre : tuple of m floats
        A slope taken out of all pieces.
    floor : float
        Constant piece, ``-inf`` if there is none.
    groups : tuple of Group
        Each with at most one rising and one falling line.
    """

    centre: tuple[float, ...]
    floor: float
    groups: tuple[Group, ...]

    @cached_property
    def directions(self) -> Array:
        """Unit vectors as rows, shape (K, m)."""
        return np.array([group.direction for group in self.groups]).reshape(len(self.groups), len(self.centre))

    @cached_property
    def stretch(self) -> float:
        """Operator norm of the directions: 1 if they are orthonormal."""
        return float(np.linalg.norm(self.directions, 2))


def arrange_pieces(slopes: Array, offsets: Array, centre: Array) -> Pieces:
    """Return the pieces relative to a centre, grouped by direction."""
    size = max(1.0, float(np.abs(slopes).max()))
    floor, groups = -math.inf, list[Group]()
    directions = np.empty_like(slopes)
    for slope, offset in zip(slopes - centre, offsets.tolist(), strict=True):
        length = float(np.linalg.norm(slope))
        if length <= 1e-12 * size:
            floor = max(floor, offset)
            continue
        direction = slope / length
        cosines = directions[: len(groups)] @ direction
        for index in np.flatnonzero(np.abs(cosines) >= 1 - 1e-12).tolist():
            group, rising = groups[index], cosines[index] > 0
            taken = group.rise if rising else group.fall
            if taken not in (0.0, length):
                continue
            known = group.high if rising else group.low
            best = max(offset, known) if taken else offset
            fields = dict(vars(group))
            fields.update({"rise": length, "high": best} if rising else {"fall": length, "low": best})
            groups[index] = Group(**fields)
            break
        else:
            directions[len(groups)] = direction
            groups.append(Group(tuple(direction.tolist()), length, offset))
    return Pieces(tuple(centre.tolist()), floor, tuple(groups))


def upper_envelope(slopes: Array, offsets: Array) -> Kinks:
    """Return the maximum of lines ``slopes x + offsets`` as a piecewise-linear function."""
    order = np.lexsort((offsets, slopes))
    lines: list[tuple[float, float]] = []
    for slope, offset in zip(slopes[order].tolist(), offsets[order].tolist(), strict=True):
        if lines and slope - lines[-1][0] <= 1e-12 * max(1.0, abs(slope)):
            lines[-1] = (lines[-1][0], max(offset, lines[-1][1]))
        else:
            lines.append((slope, offset))
        while len(lines) > 2 and _crossing(lines[-3], lines[-1]) <= _crossing(lines[-3], lines[-2]):
            del lines[-2]
    knots = [_crossing(left, right) for left, right in pairwise(lines)]
    height = lines[0][0] * knots[0] + lines[0][1]
    return Kinks(tuple(knots), tuple(slope for slope, _ in lines), height)


def _crossing(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (left[1] - right[1]) / (right[0] - left[0])
