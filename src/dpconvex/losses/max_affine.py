"""Maxima of affine functions ``g(x) = max_p <a_p, x> + b_p``, in the forms in which they are
smoothed.

Pieces are grouped by direction around a centre, or, in two or three variables, described by their
facets: g is linear on cells, and two cells meet in a segment of a line in the plane, in a polygon
of a plane in space, bounded or not. Neither depends on data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dpconvex.core.pointwise_losses import PointwisePiecewiseLinear
from dpconvex.types import Array

# Relative to the size of slopes and offsets: pieces that lead by less are left out, which leaves a
# maximum of fewer pieces. What is parallel, or meets, to the first of these numbers does so; what
# does so only to the second is refused, because facets would be wrong by more than rounding.
_EXACT = 1e-12
_TIE = 1e-9


@dataclass(frozen=True)
class AffinePieceGroup:
    """Pieces along one direction: ``max(rise x + high, -fall x + low)`` of ``x = <direction, u>``.

    A slope of 0 says that the group has no such line.
    """

    direction: tuple[float, ...]
    rise: float = 0.0
    high: float = 0.0
    fall: float = 0.0
    low: float = 0.0


@dataclass(frozen=True)
class CentredAffinePieces:
    """``max_p <a_p, u> + b_p = <centre, u> + max(floor, groups)``; a floor of ``-inf`` says
    there is none.
    """

    centre: tuple[float, ...]
    floor: float
    groups: tuple[AffinePieceGroup, ...]

    @cached_property
    def directions(self) -> Array:
        """Unit vectors as rows, shape (K, m)."""
        return np.array([group.direction for group in self.groups]).reshape(
            len(self.groups), len(self.centre)
        )

    @cached_property
    def direction_norm(self) -> float:
        """Operator norm of the directions: 1 if they are orthonormal."""
        return float(np.linalg.norm(self.directions, 2))


def group_affine_pieces(slopes: Array, offsets: Array, centre: Array) -> CentredAffinePieces:
    """Return the pieces relative to a centre, grouped by direction."""
    size = max(1.0, float(np.abs(slopes).max()))
    floor = -math.inf
    groups = list[AffinePieceGroup]()
    directions = np.empty_like(slopes)
    with np.errstate(
        over="ignore"
    ):  # a length beyond all numbers is infinite, and is refused as such
        moved = slopes - centre
        lengths = [float(np.linalg.norm(slope)) for slope in moved]
    for slope, length, offset in zip(moved, lengths, offsets.tolist(), strict=True):
        if length <= 1e-12 * size:
            floor = max(floor, offset)
            continue
        direction = slope / length
        cosines = directions[: len(groups)] @ direction
        for index in np.flatnonzero(np.abs(cosines) >= 1 - 1e-12).tolist():
            group = groups[index]
            rising = cosines[index] > 0
            taken, known = (group.rise, group.high) if rising else (group.fall, group.low)
            if taken not in (0.0, length):
                continue
            best = max(offset, known) if taken else offset
            groups[index] = (
                replace(group, rise=length, high=best)
                if rising
                else replace(group, fall=length, low=best)
            )
            break
        else:
            directions[len(groups)] = direction
            groups.append(AffinePieceGroup(tuple(direction.tolist()), length, offset))
    return CentredAffinePieces(tuple(centre.tolist()), floor, tuple(groups))


def max_affine_envelope(slopes: Array, offsets: Array) -> PointwisePiecewiseLinear:
    """Return the maximum of lines ``slopes x + offsets`` as a piecewise-linear function."""

    def crossing(left: tuple[float, float], right: tuple[float, float]) -> float:
        return (left[1] - right[1]) / (right[0] - left[0])

    order = np.lexsort((offsets, slopes))
    lines: list[tuple[float, float]] = []
    for slope, offset in zip(slopes[order].tolist(), offsets[order].tolist(), strict=True):
        if lines and slope - lines[-1][0] <= 1e-12 * max(1.0, abs(slope)):
            lines[-1] = (lines[-1][0], max(offset, lines[-1][1]))
        else:
            lines.append((slope, offset))
        while len(lines) > 2 and crossing(lines[-3], lines[-1]) <= crossing(lines[-3], lines[-2]):
            del lines[-2]
    knots = [crossing(left, right) for left, right in pairwise(lines)]
    height = lines[0][0] * knots[0] + lines[0][1]
    return PointwisePiecewiseLinear(tuple(knots), tuple(slope for slope, _ in lines), height)


class MaxAffineFacets(NamedTuple):
    """Facets of a maximum of affine functions of r = 2 or 3 variables, one per row.

    An edge of a facet in space has seven numbers: index of the facet, outward unit normal within it
    (3 numbers), offset along that normal, lowest and highest position along the cross product of
    the two normals. In the plane the facet is its own edge: lowest and highest position along
    ``(-normal_2, normal_1)``.
    """

    # (F, r): unit vectors, from the cell of the smaller slope along them to the cell of the larger
    normals: Array
    offsets: Array  # (F,): the facet lies in <normal, x> = offset
    jumps: Array  # (F,): ||a_p - a_q||, the jump of the gradient
    arcs: (
        Array  # (F,): angle that an unbounded facet takes of the circle at infinity; 0 in the plane
    )
    edges: Array  # (E, 7)


def find_max_affine_facets(slopes: Array, offsets: Array) -> MaxAffineFacets:
    """Return the facets of ``max_p <slopes_p, x> + offsets_p`` in two or three variables."""
    slopes, offsets = _drop_redundant_affine_pieces(slopes, offsets)
    size = slopes.shape[1]
    rows: list[tuple[Array, float, float, float]] = []
    edges: list[list[float]] = []
    for p in range(len(slopes)):
        for q in range(p):
            turn = slopes[p] - slopes[q]
            jump = float(np.linalg.norm(turn))
            normal = turn / jump
            offset = float(offsets[q] - offsets[p]) / jump
            others = [k for k in range(len(slopes)) if k not in (p, q)]
            # Within the plane of the facet, y -> offset * normal + y: <limits, y> <= ends.
            limits = slopes[others] - slopes[p]
            ends = offsets[p] - offsets[others] - offset * (limits @ normal)
            limits = limits - np.multiply.outer(limits @ normal, normal)
            found = _max_affine_facet_edges(limits, ends, normal, len(rows), slopes, offsets)
            if found is not None:
                rows.append((normal, offset, jump, found[0]))
                edges += found[1]
    normals = np.array([row[0] for row in rows]).reshape(len(rows), size)
    numbers = np.array([row[1:] for row in rows]).reshape(len(rows), 3)
    distances, jumps, arcs = (np.ascontiguousarray(column) for column in numbers.T)
    return MaxAffineFacets(normals, distances, jumps, arcs, np.array(edges).reshape(len(edges), 7))


def _refuse_affine_pieces(doubtful: bool) -> None:
    if doubtful:
        raise ValueError(
            "The 'slopes' and 'offsets' parameters of PiecewiseLinear must not nearly coincide: "
            "whether pieces meet must be clear beyond rounding. Got pieces that are parallel, or "
            "meet, to nine digits only. Round them."
        )


def _drop_redundant_affine_pieces(slopes: Array, offsets: Array) -> tuple[Array, Array]:
    from scipy.optimize import linprog

    scale = float(np.abs(slopes).max()) + float(np.abs(offsets).max())
    slopes = np.array(slopes)
    offsets = np.array(offsets)
    k = 0
    while k < len(slopes):
        others = np.arange(len(slopes)) != k
        gaps = slopes[others] - slopes[k]
        heights = offsets[k] - offsets[others]
        # The largest t <= 1 with value_k >= value_j + t for all j; x is unbounded, so scale decides
        # nothing else.
        rows = np.column_stack([gaps, np.ones(len(gaps))])
        size = slopes.shape[1]
        best = linprog(
            np.append(np.zeros(size), -1.0),
            rows,
            heights,
            bounds=[(None, None)] * size + [(None, 1)],
        )
        if best.x is None:
            raise ValueError(
                "The 'slopes' and 'offsets' parameters of PiecewiseLinear must be of sizes that "
                "can be compared. Got numbers that leave the pieces' order open instead. Rescale "
                "the residuals."
            )
        if best.x[-1] <= _TIE * scale:
            slopes = slopes[others]
            offsets = offsets[others]
        else:
            k += 1
    return slopes, offsets


def _max_affine_facet_edges(
    limits: Array, ends: Array, normal: Array, index: int, slopes: Array, offsets: Array
) -> tuple[float, list[list[float]]] | None:
    """Return arc and edges of one facet of a maximum of affine functions, or None if it is empty
    or thin.
    """
    # The facet is ``{y normal to the normal: <limits, y> <= ends}``.
    scale = float(np.abs(slopes).max()) + 1e-300
    width = float(np.abs(offsets).max()) / scale
    lengths = np.linalg.norm(limits, axis=1)
    flat = lengths <= _EXACT * scale
    _refuse_affine_pieces(bool((lengths[~flat] <= _TIE * scale).any()))
    if (ends[flat] < -_EXACT * scale).any():
        return None
    half_planes: list[tuple[Array, float]] = []
    for limit, end in zip(
        limits[~flat] / lengths[~flat, None], ends[~flat] / lengths[~flat], strict=True
    ):
        for i, (other, known) in enumerate(half_planes):
            apart = float(np.linalg.norm(limit - other))
            _refuse_affine_pieces(_EXACT < apart <= _TIE)
            if apart <= _EXACT:
                half_planes[i] = (other, min(known, float(end)))
                break
        else:
            half_planes.append((limit, float(end)))
    if len(normal) == 2:
        along = np.array([-normal[1], normal[0]])
        low, high = _clip_affine_line(along, np.zeros(2), half_planes, -1)
        _refuse_affine_pieces(_EXACT * width < high - low <= _TIE * width)
        return None if high - low <= _EXACT * width else (0.0, [[index, 0, 0, 0, 0, low, high]])
    edges: list[list[float]] = []
    rays: list[Array] = []
    for i, (limit, end) in enumerate(half_planes):
        along = np.cross(normal, limit)
        low, high = _clip_affine_line(along, end * limit, half_planes, i)
        _refuse_affine_pieces(_EXACT * width < high - low <= _TIE * width)
        if high - low <= _EXACT * width:
            continue
        edges.append([index, *limit, end, low, high])
        rays += [sign * along for sign, position in ((-1, low), (1, high)) if math.isinf(position)]
    if not edges:
        return (2 * math.pi, []) if not half_planes else None
    arc = math.acos(max(-1.0, min(1.0, float(rays[0] @ rays[1])))) if len(rays) == 2 else 0.0
    return arc, edges


def _clip_affine_line(
    along: Array, origin: Array, half_planes: list[tuple[Array, float]], skipped: int
) -> tuple[float, float]:
    """Return the interval of s in which ``origin + s along`` lies in all half-planes but the one
    that is skipped.
    """
    low = -math.inf
    high = math.inf
    for i, (limit, end) in enumerate(half_planes):
        if i == skipped:
            continue
        rate = float(limit @ along)
        left = end - float(limit @ origin)
        _refuse_affine_pieces(_EXACT < abs(rate) <= _TIE)
        if abs(rate) <= _EXACT:
            if left < -_EXACT * (1 + abs(end)):
                return 0.0, 0.0
        elif rate > 0:
            high = min(high, left / rate)
        else:
            low = max(low, left / rate)
    return low, high
