"""Figures 1 to 3: the error of convolution and of Moreau envelopes, point by point, against uniform
bounds.

Rows of variant ``paper`` are the paper's printed bounds and its bandwidth ``L / smoothness`` (Table
1); rows of variant ``dpconvex`` are our smoothed losses at the bandwidth that their true curvature
asks for. Nothing here is random.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.losses.vector_losses import L1Norm
from dpconvex.smoothing import GaussianKernel, convolve_vector, moreau_vector
from dpconvex_reproduction.drawing import OTHERS, OURS, WIDEST
from dpconvex_reproduction.exhibit import Cell, Check, Row, Study, select

__all__ = ["ERRORS", "FIGURE_1", "FIGURE_2", "FIGURE_3"]

Array = NDArray[np.float64]

BANDWIDTH = 0.5  # caption of Figure 1
SMOOTHNESS = 2.0  # caption of Figure 4; by Table 1 that is a bandwidth of 0.5
PLACES = (0.5, 1.0)  # Figure 2, left
_EDGE = 3.0
_KERNEL_MEAN = math.sqrt(2 / math.pi)  # of |v|, per coordinate
GREEN = OTHERS[1]
PURPLE = OTHERS[2]
BLACK = "black"


def _errors(loss: Any, points: Array) -> Array:
    return np.asarray(loss.value(points) - L1Norm(points.shape[1]).value(points))


def _convolved(size: int, bandwidth: float) -> Any:
    return convolve_vector(L1Norm(size), GaussianKernel(size), bandwidth)


def _bandwidths() -> dict[str, float]:
    """Return the bandwidth of smoothness 2: by Table 1, and by the curvature of the smoothed
    norm.
    """
    return {"paper": 1 / SMOOTHNESS, "dpconvex": _convolved(1, 1.0).smoothness / SMOOTHNESS}


def lemma_4_3(points: Array, bandwidth: float) -> Array:
    """Return the bound ``sqrt(2/pi) h sum_j exp(-x_j^2 / (2 h^2))``."""
    return np.asarray(
        _KERNEL_MEAN * bandwidth * np.exp(-(points**2) / (2 * bandwidth**2)).sum(axis=1)
    )


def _by_quadrature(points: Array, bandwidth: float) -> Array:
    """Return ``E||x + h v||_1 - ||x||_1`` from a plain sum over a fine normal grid: no closed
    form.
    """
    v = np.linspace(-9, 9, 20001)
    weights = np.exp(-(v**2) / 2)
    weights /= weights.sum()
    flat = points.ravel()
    means = np.array([weights @ np.abs(x + bandwidth * v) for x in flat]) - np.abs(flat)
    return np.asarray(means.reshape(points.shape).sum(axis=1))


def _row(panel: str, curve: str, variant: str, x: Array, bandwidth: float, error: float) -> Row:
    place = {f"x{j + 1}": float(value) for j, value in enumerate(x)}
    return {
        "panel": panel,
        "algorithm": curve,
        "variant": variant,
        **place,
        "bandwidth": float(bandwidth),
        "error": float(error),
    }


def _against_x() -> list[Row]:
    """Errors of the absolute value on a line."""
    x = np.linspace(-_EDGE, _EDGE, 241)[:, None]
    sets = [("uniform bound", "paper", np.full(len(x), BANDWIDTH * _KERNEL_MEAN), BANDWIDTH)]
    sets.append(("convolution", "quadrature", np.array(_by_quadrature(x, BANDWIDTH)), BANDWIDTH))
    for variant, bandwidth in _bandwidths().items():
        sets.append(("convolution", variant, _errors(_convolved(1, bandwidth), x), bandwidth))
    envelope = moreau_vector(L1Norm(1), "energy", width=1 / SMOOTHNESS)
    sets.append(("Moreau", "paper", _errors(envelope, x), 1 / SMOOTHNESS))
    return [
        _row("line", curve, variant, place, bandwidth, error)
        for curve, variant, errors, bandwidth in sets
        for place, error in zip(x, errors, strict=True)
    ]


def _against_bandwidth() -> list[Row]:
    rows = []
    for bandwidth in np.linspace(0.05, 1.0, 39):
        bound = bandwidth * _KERNEL_MEAN
        for place in PLACES:
            x = np.array([[place]])
            error = _errors(_convolved(1, bandwidth), x)[0]
            limit = lemma_4_3(x, bandwidth)[0]
            rows.append(_row("bandwidth", "convolution", "dpconvex", x[0], bandwidth, error))
            rows.append(_row("bandwidth", "Lemma 4.3", "paper", x[0], bandwidth, limit))
            rows.append(_row("bandwidth", "uniform bound", "paper", x[0], bandwidth, bound))
    return rows


def _plane() -> list[Row]:
    axis = np.linspace(-_EDGE, _EDGE, 49)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    sets = [("Lemma 4.3", "paper", lemma_4_3(x, BANDWIDTH), BANDWIDTH)]
    for variant, bandwidth in _bandwidths().items():
        sets.append(("convolution", variant, _errors(_convolved(2, bandwidth), x), bandwidth))
    envelope = moreau_vector(L1Norm(2), "energy", width=1 / SMOOTHNESS)
    sets.append(("Moreau", "paper", _errors(envelope, x), 1 / SMOOTHNESS))
    return [
        _row("plane", curve, variant, place, bandwidth, error)
        for curve, variant, errors, bandwidth in sets
        for place, error in zip(x, errors, strict=True)
    ]


def _cells(quick: bool) -> list[Cell]:
    return [{"panel": name} for name in _PANELS]


def measure(cell: Cell) -> list[Row]:
    """Compute the errors of one panel."""
    return _PANELS[cell["panel"]]()


_PANELS = {"line": _against_x, "bandwidth": _against_bandwidth, "plane": _plane}
ERRORS = Study("convolution-objective-perturbation/smoothing-errors", _cells, measure)


def _column(rows: list[Row], key: str, **wanted: Any) -> Array:
    return np.array([row[key] for row in select(rows, **wanted)])


def table_of(panels: tuple[str, ...]) -> Any:
    """Return a table function that summarises every curve of these panels."""

    def table(rows: list[Row]) -> list[Row]:
        found = []
        for panel in panels:
            names = {(r["algorithm"], r["variant"]): None for r in select(rows, panel=panel)}
            for curve, variant in names:
                wanted = {"panel": panel, "algorithm": curve, "variant": variant}
                errors = _column(rows, "error", **wanted)
                largest = float(np.abs(errors).max())
                found.append(
                    {
                        **wanted,
                        "points": len(errors),
                        "smallest error": float(errors.min()),
                        "largest error": float(errors.max()),
                        "mean size": float(np.abs(errors).mean()),
                        "share below a tenth of the largest": float(
                            (np.abs(errors) < largest / 10).mean()
                        ),
                    }
                )
        return found

    return table


def _judge_1(rows: list[Row]) -> list[Check]:
    place = _column(rows, "x1", panel="line", algorithm="convolution", variant="paper")
    error = _column(rows, "error", panel="line", algorithm="convolution", variant="paper")
    bound = _column(rows, "error", panel="line", algorithm="uniform bound")
    exact = _column(rows, "error", panel="line", algorithm="convolution", variant="quadrature")
    outside = float((error / bound)[np.abs(place) >= 1].max())
    gap = float(np.abs(error - exact).max())
    return [
        Check(
            "The uniform bound holds and is attained at the kink",
            bool((error <= bound * (1 + 1e-9)).all() and (error / bound).max() > 0.999),
            f"largest error / bound {float((error / bound).max()):.4f}",
        ),
        Check(
            "Outside [-1, 1] there is next to no error (below 5 % of the bound)",
            outside < 0.05,
            f"at most {outside:.2%} of the bound there, mean {float((error / bound).mean()):.1%} "
            "on [-3, 3]",
        ),
        Check(
            "Our closed form is the integral (to 1e-6)",
            gap < 1e-6,
            f"largest difference from a sum over a normal grid {gap:.1e}",
            about="dpconvex",
        ),
    ]


def _judge_2(rows: list[Row]) -> list[Check]:
    checks = []
    for place in PLACES:
        wanted = {"panel": "bandwidth", "x1": place}
        width = _column(rows, "bandwidth", **wanted, algorithm="convolution")
        error = _column(rows, "error", **wanted, algorithm="convolution")
        bound = _column(rows, "error", **wanted, algorithm="uniform bound")
        wide = np.argmin(np.abs(width - 0.5))
        half = np.argmin(np.abs(width - 0.25))
        fall = error[wide] / error[half]
        linear = bound[wide] / bound[half]
        checks.append(
            Check(
                f"At x = {place:g} the error falls much faster than the bound as the bandwidth is "
                "halved",
                bool(fall > 5 * linear),
                f"from 0.5 to 0.25 the error is divided by {fall:.3g}, the bound by {linear:.3g}",
            )
        )
    ratio = max(
        float(
            np.max(
                _column(rows, "error", panel=panel, algorithm="convolution", variant=variant)
                / np.maximum(_column(rows, "error", panel=panel, algorithm="Lemma 4.3"), 1e-300)
            )
        )
        for panel, variant in (("bandwidth", "dpconvex"), ("plane", "paper"))
    )
    error = _column(rows, "error", panel="plane", algorithm="convolution", variant="paper")
    share = float((error < 0.05 * 2 * BANDWIDTH * _KERNEL_MEAN).mean())
    checks += [
        Check(
            "Lemma 4.3 bounds the error at every point, in one dimension and in two",
            ratio <= 1 + 1e-9,
            f"largest error / bound {ratio:.4f}",
        ),
        Check(
            "In the plane the error is small (below 5 % of the uniform bound) at most points",
            share > 0.5,
            f"at {share:.0%} of the points of [-3, 3]^2; the rest lies along the axes, where a "
            "residual is near 0",
        ),
    ]
    return checks


def _judge_3(rows: list[Row]) -> list[Check]:
    checks = []
    for panel, name in (("line", "|x|"), ("plane", "the norm in two dimensions")):
        above = _column(rows, "error", panel=panel, algorithm="convolution", variant="paper")
        ours = _column(rows, "error", panel=panel, algorithm="convolution", variant="dpconvex")
        below = _column(rows, "error", panel=panel, algorithm="Moreau")
        tight = float((above < 0.1 * above.max()).mean())
        poor = float((below < 0.9 * below.min()).mean())
        checks += [
            Check(
                f"{name}: convolution approximates from above, Moreau's envelope from below",
                bool((above >= -1e-12).all() and (below <= 1e-12).all()),
                f"errors in [{above.min():.3g}, {above.max():.3g}] and [{below.min():.3g}, "
                f"{below.max():.3g}]",
            ),
            Check(
                f"{name}: the envelope is off by nearly its largest error at most points, "
                "convolution is not",
                poor > 0.5 and float((above > 0.9 * above.max()).mean()) < 0.1,
                f"within a tenth of the largest error: envelope at {poor:.0%} of the points; "
                f"convolution is below a tenth of its largest at {tight:.0%}",
            ),
            Check(
                f"{name}: at the same true smoothness our bandwidth has the smaller error "
                "everywhere",
                bool((ours <= above + 1e-12).all()),
                f"mean error {ours.mean():.3g} against {above.mean():.3g}",
                about="dpconvex",
            ),
        ]
    return checks


def _draw_1(rows: list[Row], figure: Any) -> None:
    from dpconvex_reproduction.drawing import finish, panels

    axes = panels(figure, 1)
    _lines(axes[0, 0], rows, (("convolution", "paper", GREEN), ("uniform bound", "paper", BLACK)))
    axes[0, 0].set_ylim(0, 0.5)
    axes[0, 0].set_title("g(x) = |x|, Gaussian kernel, bandwidth 0.5")
    finish(figure, axes)


def _lines(ax: Any, rows: list[Row], curves: Any) -> None:
    for curve, variant, color in curves:
        wanted = {"panel": "line", "algorithm": curve, "variant": variant}
        style = {"dpconvex": "-", "paper": "--"}[variant]
        label = curve if curve != "convolution" else f"convolution, {variant}"
        ax.plot(
            _column(rows, "x1", **wanted),
            _column(rows, "error", **wanted),
            style,
            color=color,
            label=label,
        )
    ax.set_xlabel("x")
    ax.set_ylabel("error of the approximation")


def _draw_2(rows: list[Row], figure: Any) -> None:
    from dpconvex_reproduction.drawing import LineEnd, label_lines, label_room, panels

    axes = panels(figure, 2)
    left, right = axes[0]
    lines = [(curve, place) for place in PLACES for curve in ("convolution", "Lemma 4.3")]
    ends = []
    for curve, place in [*lines, ("uniform bound", PLACES[0])]:
        bound = curve == "uniform bound"
        wanted = {"panel": "bandwidth", "algorithm": curve, "x1": place}
        error = _column(rows, "error", **wanted)
        color = BLACK if bound else (GREEN, PURPLE)[PLACES.index(place)]
        drawn = left.plot(
            _column(rows, "bandwidth", **wanted),
            error,
            ":" if curve == "Lemma 4.3" else "-",
            color=color,
        )
        ends.append(
            LineEnd(float(error[-1]), curve if bound else f"{curve}, x = {place:g}", drawn[0])
        )
    left.set_xlabel("bandwidth")
    left.set_ylabel("error of the approximation")
    left.set_title("g(x) = |x|")
    x, y, error = _surface(rows, "convolution")
    mesh = right.pcolormesh(x, y, error, cmap="viridis", shading="nearest")
    figure.colorbar(mesh, ax=right)
    right.set_title("errors of the l1 norm, bandwidth 0.5")
    right.set_xlabel("$x_1$")
    right.set_ylabel("$x_2$")
    width = figure.get_size_inches()[0]
    figure.tight_layout()
    figure.subplots_adjust(wspace=2.9 * (label_room([end.name for end in ends]) + 0.5) / width)
    label_lines(left, ends)


def _surface(rows: list[Row], curve: str) -> tuple[Array, Array, Array]:
    wanted = {"panel": "plane", "algorithm": curve, "variant": "paper"}
    x, y, error = (_column(rows, key, **wanted) for key in ("x1", "x2", "error"))
    size = math.isqrt(len(x))
    return x.reshape(size, size), y.reshape(size, size), error.reshape(size, size)


def _draw_3(rows: list[Row], figure: Any) -> None:
    figure.set_size_inches(WIDEST, 7.0)
    values = figure.add_subplot(2, 2, 1)
    errors = figure.add_subplot(2, 2, 2)
    surfaces = [figure.add_subplot(2, 2, k, projection="3d") for k in (3, 4)]
    x = _column(rows, "x1", panel="line", algorithm="Moreau")
    values.plot(x, np.abs(x), color=BLACK, label="|x|")
    for curve, color in (("convolution", GREEN), ("Moreau", PURPLE)):
        error = _column(rows, "error", panel="line", algorithm=curve, variant="paper")
        values.plot(x, np.abs(x) + error, "--", color=color, label=f"{curve}, paper")
    _lines(
        errors,
        rows,
        (
            ("convolution", "paper", GREEN),
            ("convolution", "dpconvex", OURS),
            ("Moreau", "paper", PURPLE),
        ),
    )
    values.set_xlim(-1.5, 1.5)
    values.set_ylim(0, 1.6)
    values.set_xlabel("x")
    values.set_title("|x| and its approximations")
    errors.axhline(0, color=BLACK, linewidth=0.7)
    errors.set_title("their errors, and ours at the same smoothness")
    errors.set_ylim(-0.3, 0.65)
    names = "l1 norm in two dimensions, approximated as printed", "errors of these two surfaces"
    for ax, shown, title in zip(surfaces, (1, 0), names, strict=True):
        for curve, color in (("convolution", GREEN), ("Moreau", PURPLE)):
            a, b, error = _surface(rows, curve)
            ax.plot_wireframe(
                a,
                b,
                error + shown * (np.abs(a) + np.abs(b)),
                color=color,
                linewidth=0.6,
                rcount=20,
                ccount=20,
            )
        ax.set_title(title)
        ax.set_xlabel("$x_1$")
        ax.set_ylabel("$x_2$")
    values.legend(frameon=False)
    errors.legend(frameon=False)
    figure.subplots_adjust(left=0.07, right=0.97, wspace=0.2, hspace=0.25, bottom=0.04, top=0.95)


FIGURE_1 = (table_of(("line",)), _judge_1, _draw_1)
FIGURE_2 = (table_of(("bandwidth", "plane")), _judge_2, _draw_2)
FIGURE_3 = (table_of(("line", "plane")), _judge_3, _draw_3)
