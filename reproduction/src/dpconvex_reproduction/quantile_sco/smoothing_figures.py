"""How Figures 1 to 3 are summed up, judged and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.drawing import OTHERS, panels
from dpconvex_reproduction.exhibit import Check, Row, select

__all__ = [
    "draw_bandwidths_and_kernels",
    "draw_envelope",
    "draw_pieces",
    "gap_table",
    "judge_bandwidths_and_kernels",
    "judge_envelope",
    "judge_pieces",
]

_ROUNDING = 1e-9


def _curve(rows: list[Row], **wanted: Any) -> tuple[NDArray[np.float64], ...]:
    chosen = sorted(select(rows, **wanted), key=lambda row: row["u"])
    return tuple(np.array([row[key] for row in chosen]) for key in ("u", "loss", "value"))


def _key(row: Row) -> tuple[str, str, str]:
    return (row["panel"], row["algorithm"], repr(row["bandwidth"]))


def _groups(rows: list[Row]) -> dict[tuple[str, str, str], list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row), []).append(row)
    return groups


def gap_table(rows: list[Row]) -> list[Row]:
    """Return for each curve how far it is from the loss, and how far dpconvex is from the
    definition.
    """
    table = []
    for group in _groups(rows).values():
        first = group[0]
        _, _, defined = _curve(group, variant="definition")
        for variant in dict.fromkeys(row["variant"] for row in group):
            u, loss, value = _curve(group, variant=variant)
            gap = value - loss
            table.append(
                {
                    "panel": first["panel"],
                    "algorithm": first["algorithm"],
                    "bandwidth": first["bandwidth"],
                    "variant": variant,
                    "largest gap": float(gap.max()),
                    "smallest gap": float(gap.min()),
                    f"gap at u = {u[0]:g}": float(gap[0]),
                    f"gap at u = {u[-1]:g}": float(gap[-1]),
                    "distance from the definition": float(np.abs(value - defined).max()),
                }
            )
    return table


def _widest(rows: list[Row], **wanted: Any) -> float:
    _, loss, value = _curve(rows, **wanted)
    return float(np.abs(value - loss).max())


def _agreement(rows: list[Row], allowed: float) -> Check:
    table = [line for line in gap_table(rows) if line["variant"] == "dpconvex"]
    furthest = max(line["distance from the definition"] for line in table)
    return Check(
        f"dpconvex's curves are those of the definition, to {allowed:g}",
        furthest <= allowed,
        f"largest difference {furthest:.1e} on {len(table)} curves",
        about="dpconvex",
    )


def _convex_and_above(rows: list[Row], variant: str) -> Check:
    lowest = np.inf
    bend = np.inf
    for group in _groups(rows).values():
        if group[0]["algorithm"] == "Moreau envelope":
            continue
        _, loss, value = _curve(group, variant=variant)
        lowest = min(lowest, float((value - loss).min()))
        bend = min(bend, float(np.diff(value, 2).min()))
    return Check(
        "Convolution gives a convex function from above",
        min(lowest, bend) >= -_ROUNDING,
        f"smallest gap {lowest:.1e}, smallest second difference {bend:.1e}",
    )


def _closer(rows: list[Row], variant: str, **wanted: Any) -> Check:
    widths = sorted({row["bandwidth"] for row in select(rows, **wanted)})
    gaps = [_widest(rows, bandwidth=width, variant=variant, **wanted) for width in widths]
    words = ", ".join(f"{gap:.3g} at {width:g}" for width, gap in zip(widths, gaps, strict=True))
    return Check(
        "A smaller bandwidth is a better approximation",
        bool(np.all(np.diff(gaps) > 0)),
        f"largest gap {words}",
    )


def judge_bandwidths_and_kernels(rows: list[Row]) -> list[Check]:
    """Hold what the paper says of Figure 1, and Table 1's formulas, against the curves."""
    shown = select(rows, panel="b")
    # From light to heavy tails: on [-1, 1] with less mass outside the middle, on [-1, 1], normal,
    # exponential.
    order = ("epanechnikov", "uniform", "gaussian", "logistic")
    gaps = [_widest(shown, algorithm=kernel, variant="paper") for kernel in order]
    words = ", ".join(f"{kernel} {gap:.3g}" for kernel, gap in zip(order, gaps, strict=True))
    printed = [line for line in gap_table(rows) if line["variant"] == "paper"]
    furthest = max(line["distance from the definition"] for line in printed)
    return [
        _closer(rows, "paper", panel="a"),
        Check(
            "A kernel with lighter tails is a better approximation",
            bool(np.all(np.diff(gaps) > 0)),
            f"largest gap {words}",
        ),
        _convex_and_above(rows, "paper"),
        Check(
            "The closed forms of Table 1 are the integrals they stand for",
            furthest < 1e-10,
            f"largest difference {furthest:.1e} on {len(printed)} curves",
        ),
        _agreement(rows, 1e-10),
    ]


def judge_envelope(rows: list[Row]) -> list[Check]:
    """Hold what the paper says of Figure 2 against the curves."""
    u, loss, envelope = _curve(rows, algorithm="Moreau envelope", variant="definition")
    _, _, smooth = _curve(rows, algorithm="logistic", variant="paper")
    below = loss - envelope
    above = smooth - loss
    ends = float(min(below[0], below[-1])), float(max(above[0], above[-1]))
    return [
        Check(
            "Moreau's envelope approximates from below",
            bool(below.min() >= -_ROUNDING),
            f"smallest distance {below.min():.1e}",
        ),
        _convex_and_above(rows, "paper"),
        Check(
            "Away from 0 the envelope's gap stays large, that of convolution vanishes",
            ends[1] < 0.01 * ends[0],
            f"at u = {u[0]:g} and {u[-1]:g} at least {ends[0]:.3g} against at most {ends[1]:.1e}",
        ),
        Check(
            "Convolution is the better approximation at the same smoothness",
            float(above.max()) < float(below.max()),
            f"largest gap {above.max():.3g} against {below.max():.3g}",
        ),
        _agreement(rows, 1e-7),
    ]


def judge_pieces(rows: list[Row]) -> list[Check]:
    """Hold what the paper says of Figure 3 against the curves."""
    return [
        _convex_and_above(rows, "definition"),
        _closer(rows, "definition"),
        _agreement(rows, 1e-10),
    ]


def _plot(
    ax: Any,
    rows: list[Row],
    labels: list[tuple[dict[str, Any], str]],
    colors: Sequence[str] = OTHERS,
) -> None:
    u, loss, _ = _curve(rows, **labels[0][0])
    ax.plot(u, loss, color="black", linewidth=1, label="loss")
    for i, (wanted, label) in enumerate(labels):
        u, _, value = _curve(rows, **wanted)
        ax.plot(u, value, color=colors[i % len(colors)], label=label)
    ax.set_xlabel("residual u")
    ax.legend(frameon=False)


def draw_bandwidths_and_kernels(rows: list[Row], figure: Any) -> None:
    """Draw Figure 1: bandwidths on the left, kernels on the right; the curve that both show has
    one colour.
    """
    axes = panels(figure, 2)
    left = select(rows, panel="a", variant="dpconvex")
    right = select(rows, panel="b", variant="dpconvex")
    widths = sorted({row["bandwidth"] for row in left})
    _plot(axes[0, 0], left, [({"bandwidth": w}, f"bandwidth {w:g}") for w in widths])
    kernels = list(dict.fromkeys(row["algorithm"] for row in right))
    shared = OTHERS[widths.index(1.0)]
    others = iter(OTHERS[len(widths) :])
    colors = [shared if kernel == "logistic" else next(others) for kernel in kernels]
    _plot(axes[0, 1], right, [({"algorithm": kernel}, kernel) for kernel in kernels], colors)
    axes[0, 0].set(title="(a) logistic kernel", ylabel="loss")
    axes[0, 1].set(title="(b) bandwidth 1", ylabel="loss")
    figure.tight_layout()


def draw_envelope(rows: list[Row], figure: Any) -> None:
    """Draw Figure 2, and beside it the gaps."""
    axes = panels(figure, 2)
    shown = select(rows, variant="dpconvex")
    names = list(dict.fromkeys(row["algorithm"] for row in shown))
    labels = {"logistic": "convolution, logistic kernel"}
    _plot(axes[0, 0], shown, [({"algorithm": n}, labels.get(n, n)) for n in names])
    axes[0, 0].set(title="quantile 0.7, largest curvature 1", ylabel="loss")
    gaps = [{**row, "value": row["value"] - row["loss"], "loss": 0.0} for row in shown]
    _plot(axes[0, 1], gaps, [({"algorithm": n}, labels.get(n, n)) for n in names])
    axes[0, 1].get_legend().remove()
    axes[0, 1].set(title="distance from the loss", ylabel="smoothed - loss")
    figure.tight_layout()


def draw_pieces(rows: list[Row], figure: Any) -> None:
    """Draw Figure 3."""
    axes = panels(figure, 1)
    shown = select(rows, variant="dpconvex")
    widths = sorted({row["bandwidth"] for row in shown})
    _plot(axes[0, 0], shown, [({"bandwidth": w}, f"bandwidth {w:g}") for w in widths])
    axes[0, 0].set(title="four pieces, logistic kernel", ylabel="loss")
    figure.tight_layout()
