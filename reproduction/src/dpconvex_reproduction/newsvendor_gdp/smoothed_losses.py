r"""Figure 2: the check loss, Horowitz's smoothing of it, and its convolution with a kernel.

Horowitz puts ``G(-u / h)`` in place of the indicator: ``u (tau - G(-u / h))``, with G the normal
distribution function here. Convolution averages the loss itself: ``int rho(u - h v) phi(v) dv``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpconvex.losses import Pinball
from dpconvex.smoothing import GaussianKernel, convolve
from dpconvex_reproduction.drawing import finish, panels
from dpconvex_reproduction.exhibit import Cell, Check, Row, Study, select

__all__ = ["STUDY", "draw", "judge", "table"]

Array = NDArray[np.float64]

LEVELS = (0.25, 0.5, 0.75)
BANDWIDTH = 1.0
_POINTS = np.linspace(-4.0, 4.0, 161)
_CHECK = "check loss"
_HOROWITZ = "Horowitz"
_CONVOLUTION = "convolution"


def check_loss(u: Array, quantile: float) -> Array:
    """Return ``u (tau - 1(u < 0))``."""
    return np.asarray(u * (quantile - (u < 0)))


def horowitz(u: Array, quantile: float, bandwidth: float = BANDWIDTH) -> Array:
    """Return ``u (tau - Phi(-u / h))``."""
    return np.asarray(u * (quantile - ndtr(-u / bandwidth)))


def convolved(u: Array, quantile: float, bandwidth: float = BANDWIDTH) -> Array:
    """Return the convolution with a normal density by its definition: quadrature on both sides
    of the kink.
    """
    nodes, weights = np.polynomial.legendre.leggauss(80)
    total = np.zeros_like(u)
    kink = u / bandwidth
    reach = 12.0
    for low, high in ((-reach, kink), (kink, reach)):
        half = (np.asarray(high) - low) / 2
        v = (np.asarray(high) + low)[..., None] / 2 + half[..., None] * nodes
        density = np.exp(-(v**2) / 2) / math.sqrt(2 * math.pi)
        values = check_loss(u[:, None] - bandwidth * v, quantile) * density
        total += half * (values @ weights)
    return total


def cells(quick: bool) -> list[Cell]:
    """List the levels; a quick run has them all."""
    return [{"quantile": level} for level in LEVELS]


def measure(cell: Cell) -> list[Row]:
    """Return the values of every loss on the grid."""
    level = cell["quantile"]
    product = convolve(Pinball(level), GaussianKernel(), BANDWIDTH)
    lines = (
        (_CHECK, "paper", check_loss(_POINTS, level)),
        (_HOROWITZ, "paper", horowitz(_POINTS, level)),
        (_CONVOLUTION, "paper", convolved(_POINTS, level)),
        (_CHECK, "dpconvex", Pinball(level).value(_POINTS, np.zeros(1))),
        (_CONVOLUTION, "dpconvex", product.value(_POINTS, np.zeros(1))),
    )
    return [
        {
            "quantile": level,
            "algorithm": name,
            "variant": variant,
            "u": float(u),
            "loss": float(value),
        }
        for name, variant, values in lines
        for u, value in zip(_POINTS, np.asarray(values), strict=True)
    ]


STUDY = Study("newsvendor-gdp/smoothed-losses", cells, measure)


def _losses(rows: list[Row], **wanted: Any) -> Array:
    return np.array([row["loss"] for row in select(rows, **wanted)])


def table(rows: list[Row]) -> list[Row]:
    """Return the losses side by side at every half unit of u."""
    lines: list[Row] = []
    for level in LEVELS:
        chosen = select(rows, quantile=level)
        for u in np.arange(-4.0, 4.01, 0.5):
            line: Row = {"quantile": level, "u": float(u)}
            for row in chosen:
                if abs(row["u"] - u) < 1e-9:
                    line[f"{row['algorithm']}, {row['variant']}"] = row["loss"]
            lines.append(line)
    return lines


def judge(rows: list[Row]) -> list[Check]:
    """Hold Remark 1 and Lemma 1 against the grid."""
    bends = {
        name: [
            float(np.diff(_losses(rows, quantile=q, algorithm=name, variant="paper"), 2).min())
            for q in LEVELS
        ]
        for name in (_HOROWITZ, _CONVOLUTION)
    }
    gaps = np.concatenate(
        [
            _losses(rows, quantile=q, algorithm=_CONVOLUTION, variant="paper")
            - _losses(rows, quantile=q, algorithm=_CHECK, variant="paper")
            for q in LEVELS
        ]
    )
    allowed = math.sqrt(2 / math.pi) * BANDWIDTH / 2  # kappa_1 h / 2 of the normal kernel
    offs = [
        float(
            np.abs(
                _losses(rows, quantile=q, algorithm=name, variant="paper")
                - _losses(rows, quantile=q, algorithm=name, variant="dpconvex")
            ).max()
        )
        for q in LEVELS
        for name in (_CHECK, _CONVOLUTION)
    ]
    return [
        Check(
            "Horowitz's smoothing is not convex",
            all(bend < -1e-6 for bend in bends[_HOROWITZ]),
            f"smallest second difference {max(bends[_HOROWITZ]):.2g} or less at {len(LEVELS)} "
            "levels",
        ),
        Check(
            "The convolution is convex",
            all(bend >= -1e-12 for bend in bends[_CONVOLUTION]),
            f"smallest second difference {min(bends[_CONVOLUTION]):.2g}",
        ),
        Check(
            "The convolution lies above the check loss by at most kappa_1 h / 2 (Lemma 1)",
            bool(gaps.min() >= -1e-12 and gaps.max() <= allowed + 1e-12),
            f"gap from {gaps.min():.2g} to {gaps.max():.4f}, allowed {allowed:.4f}",
        ),
        Check(
            "dpconvex's losses are these, to rounding",
            max(offs) < 1e-10,
            f"largest difference {max(offs):.1e}",
            about="dpconvex",
        ),
    ]


def draw(rows: list[Row], figure: Any) -> None:
    """Draw one panel per level."""
    axes = panels(figure, len(LEVELS))
    for ax, level in zip(axes[0], LEVELS, strict=True):
        for name, style in ((_CHECK, "k-"), (_HOROWITZ, "C1--"), (_CONVOLUTION, "C0-")):
            chosen = select(rows, quantile=level, algorithm=name, variant="paper")
            ax.plot([r["u"] for r in chosen], [r["loss"] for r in chosen], style, label=name)
        ax.set(title=f"level {level:g}, bandwidth {BANDWIDTH:g}", xlabel="u", ylabel="loss")
    finish(figure, axes)
