"""The curves of Figures 1 to 3: smoothed losses by the paper's formulas, and by dpconvex.

The paper's Table 1 is written out here independently of :mod:`dpconvex.smoothing`; where it has no
closed form, the definition is integrated or minimised numerically.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpconvex.losses import KinkedLoss, Pinball
from dpconvex.smoothing import KERNELS, convolve, moreau
from dpconvex_reproduction.exhibit import Cell, Row, Study

__all__ = ["CURVES", "TABLE_1", "integrate_definition", "minimise_definition", "trace_curves"]

Array = NDArray[np.float64]

_LEVEL = 0.7  # as Figure 2 states
_BANDWIDTHS = (0.25, 0.5, 1.0)
_SMOOTHNESS = 1.0
_KNOTS = (-2.0, 0.0, 1.5)
_SLOPES = (-1.0, -0.3, 0.5, 1.2)
_FIGURES = (1, 2, 3)

_Function = Callable[[Any], Any]


def _inside(t: Array, value: Array, outside: Array) -> Array:
    return np.where(np.abs(t) <= 1, value, outside)


#: Table 1: density, ``E|t + v|`` with t = u/h, and where the density is zero in double precision.
TABLE_1: dict[str, tuple[_Function, _Function, float]] = {
    "gaussian": (
        lambda v: np.exp(-(v**2) / 2) / math.sqrt(2 * math.pi),
        lambda t: math.sqrt(2 / math.pi) * np.exp(-(t**2) / 2) + t * (1 - 2 * ndtr(-t)),
        12.0,
    ),
    "logistic": (
        lambda v: np.exp(-v) / (1 + np.exp(-v)) ** 2,
        lambda t: t + 2 * np.log(1 + np.exp(-t)),
        45.0,
    ),
    "uniform": (
        lambda v: np.where(np.abs(v) <= 1, 0.5, 0.0),
        lambda t: _inside(t, t**2 / 2 + 0.5, np.abs(t)),
        1.0,
    ),
    "epanechnikov": (
        lambda v: np.where(np.abs(v) <= 1, 0.75 * (1 - v**2), 0.0),
        lambda t: _inside(t, -(t**4) / 8 + 3 * t**2 / 4 + 3 / 8, np.abs(t)),
        1.0,
    ),
}


def integrate_definition(
    loss: _Function, knots: tuple[float, ...], kernel: str, bandwidth: float, u: Array
) -> Array:
    """Return ``integral of loss(u + bandwidth v) K(v) dv`` by Gauss rules on panels that end at
    the kinks.
    """
    density, _, reach = TABLE_1[kernel]
    nodes, weights = np.polynomial.legendre.leggauss(20)
    values = []
    for point in u:
        ends = [(knot - point) / bandwidth for knot in knots]
        ends = [end for end in ends if -reach < end < reach]
        edges = np.unique(np.r_[np.linspace(-reach, reach, 2 * math.ceil(reach) + 1), ends])
        half = np.diff(edges)[:, None] / 2
        v = (edges[:-1, None] + edges[1:, None]) / 2 + half * nodes
        values.append(float(np.sum(half * weights * loss(point + bandwidth * v) * density(v))))
    return np.array(values)


def minimise_definition(loss: _Function, smoothness: float, u: Array) -> Array:
    """Return ``min over x of loss(x) + (smoothness / 2) (u - x)^2`` over a fine grid around u."""
    steps = np.linspace(-3, 3, 60001)
    return np.array([float(np.min(loss(p + steps) + smoothness / 2 * steps**2)) for p in u])


def _line(
    panel: str, name: str, variant: str, width: float, u: Array, kinked: Array, value: Array
) -> list[Row]:
    return [
        {
            "panel": panel,
            "algorithm": name,
            "variant": variant,
            "bandwidth": width,
            "u": float(a),
            "loss": float(b),
            "value": float(c),
        }
        for a, b, c in zip(u, kinked, value, strict=True)
    ]


def _pinball(u: Any) -> Any:
    return np.abs(u) / 2 + (_LEVEL - 0.5) * u


def _convolved(panel: str, kernel: str, width: float, u: Array) -> list[Row]:
    """Return one smoothed pinball loss three ways: Table 1, the integral, dpconvex."""
    absolute = TABLE_1[kernel][1](u / width)
    printed = width / 2 * absolute + (_LEVEL - 0.5) * u
    integral = integrate_definition(_pinball, (0.0,), kernel, width, u)
    ours = convolve(Pinball(_LEVEL), KERNELS[kernel], width).value(u, np.zeros_like(u))
    kinked = _pinball(u)
    lines = (("paper", printed), ("definition", integral), ("dpconvex", ours))
    return [row for v, value in lines for row in _line(panel, kernel, v, width, u, kinked, value)]


def trace_curves(cell: Cell) -> list[Row]:
    """Return the curves of one figure, point by point."""
    u = np.linspace(-3, 3, 121)
    if cell["figure"] == 1:
        rows = [row for width in _BANDWIDTHS for row in _convolved("a", "logistic", width, u)]
        return rows + [row for kernel in TABLE_1 for row in _convolved("b", kernel, 1.0, u)]
    if cell["figure"] == 2:
        # The same largest curvature: that of the smoothed loss is peak / bandwidth.
        rows = _convolved("", "logistic", KERNELS["logistic"].peak / _SMOOTHNESS, u)
        kinked = _pinball(u)
        defined = minimise_definition(_pinball, _SMOOTHNESS, u)
        ours = moreau(Pinball(_LEVEL), _SMOOTHNESS).value(u, np.zeros_like(u))
        rows += _line("", "Moreau envelope", "definition", math.nan, u, kinked, defined)
        return rows + _line("", "Moreau envelope", "dpconvex", math.nan, u, kinked, ours)
    u = np.linspace(-5, 5, 121)
    loss = KinkedLoss(_KNOTS, _SLOPES)
    kinked = np.asarray(loss.value(u, np.zeros_like(u)))

    def pieces(x: Any) -> Any:
        total = _SLOPES[0] * (x - _KNOTS[0])
        for knot, left, right in zip(_KNOTS, _SLOPES, _SLOPES[1:], strict=False):
            total = total + (right - left) * np.maximum(x - knot, 0)
        return total

    rows = []
    for width in _BANDWIDTHS:
        defined = integrate_definition(pieces, _KNOTS, "logistic", width, u)
        ours = np.asarray(convolve(loss, KERNELS["logistic"], width).value(u, np.zeros_like(u)))
        rows += _line("", "logistic", "definition", width, u, pieces(u), defined)
        rows += _line("", "logistic", "dpconvex", width, u, kinked, ours)
    return rows


def _cells(figure: int, quick: bool) -> list[Cell]:
    return [{"figure": figure}]


def _study(figure: int) -> Study:
    from functools import partial

    return Study(f"quantile-sco/smoothing-{figure}", partial(_cells, figure), trace_curves)


CURVES = {figure: _study(figure) for figure in _FIGURES}
"""Studies by figure; nothing in them is random."""
