"""The kinks of a maximum of affine functions in two or three variables, as polygons: the form in which it is smoothed.

``g(x) = max_p <a_p, x> + b_p`` is linear on cells. Two cells meet in a facet: a segment of a line in the plane, a
polygon of a plane in space, bounded or not. Facets do not depend on data, so they are found once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.types import Array

__all__ = ["Facets", "find_facets"]


# Relative to the size of slopes and offsets: pieces that lead by less are left out, which leaves a maximum of fewer
# pieces. What is parallel, or meets, to the first of these numbers does so; what does so only to the second is refused,
# because facets would be wrong by more than rounding.
_EXACT, _TIE = 1e-12, 1e-9


@dataclass(frozen=True)
class Facets:
    """Facets of a maximum of affine functions of r = 2 or 3 variables, one per row.

    Attributes
    ----------
    normals : array of shape (F, r)
        Unit vectors, from the cell of the smaller slope along them to the cell of the larger.
    places : array of shape (F,)
        The facet lies in ``<normal, x> = place``.
    jumps : array of shape (F,)
        ``||a_p - a_q||``: how much the slope turns.
    arcs : array of shape (F,)
        Angle that an unbounded facet takes of the circle at infinity; 0 in the plane.
    edges : array of shape (E, 8)
        Edges of facets in space: index of the facet, outward unit normal within it (3 numbers), place along that
        normal, and the direction along the edge is their cross product; then lowest and highest position, and a 0.
        In the plane the facet is its own edge: lowest and highest position along ``(-normal_2, normal_1)``.
    """

    normals: Array
    places: Array
    jumps: Array
    arcs: Array
    edges: Array


def find_facets(slopes: Array, offsets: Array) -> Facets:
    """Return the facets of ``max_p <slopes_p, x> + offsets_p`` in two or three variables."""
    slopes, offsets = _needed(slopes, offsets)
    size = slopes.shape[1]
    rows: list[tuple[Array, float, float, float]] = []
    edges: list[list[float]] = []
    for p in range(len(slopes)):
        for q in range(p):
            turn = slopes[p] - slopes[q]
            jump = float(np.linalg.norm(turn))
            normal = turn / jump
            place = float(offsets[q] - offsets[p]) / jump
            others = [k for k in range(len(slopes)) if k not in (p, q)]
            # Within the plane of the facet, y -> place * normal + y: <limits, y> <= ends.
            limits = slopes[others] - slopes[p]
            ends = offsets[p] - offsets[others] - place * (limits @ normal)
            limits = limits - np.multiply.outer(limits @ normal, normal)
            found = _polygon(limits, ends, normal, len(rows), slopes, offsets)
            if found is not None:
                arc, new = found
                rows.append((normal, place, jump, arc))
                edges += new
    normals = np.array([row[0] for row in rows]).reshape(len(rows), size)
    numbers = np.array([row[1:] for row in rows]).reshape(len(rows), 3)
    places, jumps, arcs = (np.ascontiguousarray(column) for column in numbers.T)
    return Facets(normals, places, jumps, arcs, np.array(edges).reshape(len(edges), 8))


def _refuse(doubtful: bool) -> None:
    if doubtful:
        raise ValueError(
            "The 'slopes' and 'offsets' parameters of PiecewiseLinear must not nearly coincide: whether pieces meet "
            "must be clear beyond rounding. Got pieces that are parallel, or meet, to nine digits only. Round them."
        )


def _needed(slopes: Array, offsets: Array) -> tuple[Array, Array]:
    """Leave out pieces that are nowhere strictly the largest."""
    from scipy.optimize import linprog

    scale = float(np.abs(slopes).max()) + float(np.abs(offsets).max())
    slopes, offsets = np.array(slopes), np.array(offsets)
    k = 0
    while k < len(slopes):
        others = np.arange(len(slopes)) != k
        gaps, heights = slopes[others] - slopes[k], offsets[k] - offsets[others]
        # The largest t <= 1 with value_k >= value_j + t for all j; x is unbounded, so scale decides nothing else.
        rows = np.column_stack([gaps, np.ones(len(gaps))])
        size = slopes.shape[1]
        best = linprog(np.append(np.zeros(size), -1.0), rows, heights, bounds=[(None, None)] * size + [(None, 1)])
        if best.x is None:
            raise ValueError(
                "The 'slopes' and 'offsets' parameters of PiecewiseLinear must be of sizes that can be compared. "
                "Got numbers that leave the pieces' order open instead. Rescale the residuals."
            )
        if best.x[-1] <= _TIE * scale:
            slopes, offsets = slopes[others], offsets[others]
        else:
            k += 1
    return slopes, offsets


def _polygon(
    limits: Array, ends: Array, normal: Array, index: int, slopes: Array, offsets: Array
) -> tuple[float, list[list[float]]] | None:
    """Return arc and edges of ``{y normal to the normal: <limits, y> <= ends}``, or None if it is empty or thin."""
    scale = float(np.abs(slopes).max()) + 1e-300
    width = float(np.abs(offsets).max()) / scale
    lengths = np.linalg.norm(limits, axis=1)
    flat = lengths <= _EXACT * scale
    _refuse(bool((lengths[~flat] <= _TIE * scale).any()))
    if (ends[flat] < -_EXACT * scale).any():
        return None
    kept: list[tuple[Array, float]] = []
    for limit, end in zip(limits[~flat] / lengths[~flat, None], ends[~flat] / lengths[~flat], strict=True):
        for i, (other, known) in enumerate(kept):
            apart = float(np.linalg.norm(limit - other))
            _refuse(_EXACT < apart <= _TIE)
            if apart <= _EXACT:
                kept[i] = (other, min(known, float(end)))
                break
        else:
            kept.append((limit, float(end)))
    if len(normal) == 2:
        along = np.array([-normal[1], normal[0]])
        low, high = _interval(along, np.zeros(2), kept, -1)
        _refuse(_EXACT * width < high - low <= _TIE * width)
        return None if high - low <= _EXACT * width else (0.0, [[index, 0, 0, 0, 0, low, high, 0]])
    edges: list[list[float]] = []
    rays: list[Array] = []
    for i, (limit, end) in enumerate(kept):
        along = np.cross(normal, limit)
        low, high = _interval(along, end * limit, kept, i)
        _refuse(_EXACT * width < high - low <= _TIE * width)
        if high - low <= _EXACT * width:
            continue
        edges.append([index, *limit, end, low, high, 0.0])
        rays += [sign * along for sign, place in ((-1, low), (1, high)) if math.isinf(place)]
    if not edges:
        return (2 * math.pi, []) if not kept else None
    arc = 0.0
    if len(rays) == 2:
        arc = math.acos(max(-1.0, min(1.0, float(rays[0] @ rays[1]))))
    return arc, edges


def _interval(along: Array, origin: Array, limits: list[tuple[Array, float]], skipped: int) -> tuple[float, float]:
    """Return where the line ``origin + s along`` satisfies all limits but the one that is skipped."""
    low, high = -math.inf, math.inf
    for i, (limit, end) in enumerate(limits):
        if i == skipped:
            continue
        rate, left = float(limit @ along), end - float(limit @ origin)
        _refuse(_EXACT < abs(rate) <= _TIE)
        if abs(rate) <= _EXACT:
            if left < -_EXACT * (1 + abs(end)):
                return 0.0, 0.0
        elif rate > 0:
            high = min(high, left / rate)
        else:
            low = max(low, left / rate)
    return low, high
