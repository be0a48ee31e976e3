r"""
Smoothing losses of a vector
============================

Smoothing losses of a residual vector: gaps near and far from kinks, convolution against Moreau
envelopes.

Eight panels, row by row:

- the gap of the convolved absolute value against its uniform bound: away from the kink nothing is
  left;
- the gap against the bandwidth at a few distances: exponentially small, while the uniform bound is
  linear;
- the same for the l1 norm in the plane, at points with none, one and two coordinates away from 0;
- two panels: convolution and the Moreau envelope of the absolute value at equal curvature, values
  and gaps;
- three panels: a pinball loss, a piecewise-linear loss and a bowl, convolved and by the envelope
  with potential :math:`b \sqrt{1 + x^2}`, which approximates from above too, but nowhere closely.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpconvex.losses import Bowl, L1Norm, PiecewiseLinear
from dpconvex.smoothing import GaussianKernel, convolve_vector, moreau_vector

GREEN = "tab:green"
BLUE = "tab:blue"
KINKED = {"color": "black", "linewidth": 1.4, "linestyle": "--", "zorder": 3}


def column(x):
    return x[:, None]


def draw_gap(axes):
    x = np.linspace(-2, 2, 801)
    smooth = convolve_vector(L1Norm(1), GaussianKernel(1), 0.5)
    axes.plot(x, smooth.value(column(x)) - np.abs(x), color=GREEN, label="gap of the convolution")
    axes.axhline(smooth.approximation_gap, color="black", label="uniform bound")
    axes.set_ylim(-0.02, 0.55)
    axes.set(title="|x|, bandwidth 0.5", xlabel="x", ylabel="gap")


def draw_bandwidths(axes):
    widths = np.geomspace(0.02, 1, 60)
    for distance in (1.0, 0.5, 0.25):
        point = np.array([[distance]])
        gaps = [
            (convolve_vector(L1Norm(1), GaussianKernel(1), h).value(point) - distance)[0]
            for h in widths
        ]
        axes.loglog(widths, np.maximum(gaps, 1e-18), label=f"gap at x = {distance}")
    axes.loglog(widths, np.sqrt(2 / np.pi) * widths, color="black", label="uniform bound")
    axes.set_ylim(1e-12, 2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(title="|x|", xlabel="bandwidth", ylabel="gap")


def draw_plane(axes):
    widths = np.geomspace(0.02, 1, 60)
    for point in ((0.0, 0.0), (1.0, 0.0), (1.0, 0.5)):
        u = np.array([point])
        gaps = [
            (convolve_vector(L1Norm(2), GaussianKernel(2), h).value(u) - np.abs(u).sum())[0]
            for h in widths
        ]
        axes.loglog(widths, np.maximum(gaps, 1e-18), label=f"gap at {point}")
    axes.set_ylim(1e-12, 2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(title="l1 norm in the plane", xlabel="bandwidth", ylabel="gap")


def draw_envelopes(value_axes, gap_axes):
    x = np.linspace(-2, 2, 801)
    above = convolve_vector(L1Norm(1), GaussianKernel(1), 0.4)
    below = moreau_vector(L1Norm(1), "energy", width=1 / above.smoothness)
    for loss, color, label in ((above, GREEN, "convolution"), (below, BLUE, "Moreau envelope")):
        values = loss.value(column(x))
        value_axes.plot(x, values, color=color, label=label)
        gap_axes.plot(x, values - np.abs(x), color=color, label=label)
    value_axes.plot(x, np.abs(x), label="|x|", **KINKED)
    value_axes.set_title(f"Both {above.smoothness:.3g}-smooth")
    gap_axes.set_title("Distance to |x|")
    value_axes.set(xlabel="x", ylabel="loss")
    gap_axes.set(xlabel="x", ylabel="gap")


def hellinger(values, x, curvature, width):
    """Envelope ``inf_u g(u) + width * curvature * sqrt(1 + ((x - u) / width)^2)`` on a grid."""
    return (
        values[None] + width * curvature * np.sqrt(1 + ((x[:, None] - x[None]) / width) ** 2)
    ).min(axis=1)


def draw_special(axes, loss, title, level=None):
    grid = np.linspace(-6, 6, 2401)
    levels = None if level is None else np.full(len(grid), level)
    # Both approximations are 2-smooth; the potential's curvature is the loss's Lipschitz constant.
    smooth = convolve_vector(
        loss, GaussianKernel(1), convolve_vector(loss, GaussianKernel(1), 1.0).smoothness / 2
    )
    values = loss.value(column(grid), levels)
    envelope = hellinger(values, grid, loss.lipschitz, loss.lipschitz / 2)
    shown = np.abs(grid) <= 3
    axes.plot(
        grid[shown], smooth.value(column(grid), levels)[shown], color=GREEN, label="convolution"
    )
    axes.plot(grid[shown], envelope[shown], color=BLUE, label="Moreau, from above")
    axes.plot(grid[shown], values[shown], label="loss", **KINKED)
    axes.set(title=title, xlabel="residual u", ylabel="loss")


figure, grid_of_panels = plt.subplots(4, 2, figsize=(9.5, 12), layout="constrained")
panels = grid_of_panels.reshape(2, 4)
draw_gap(panels[0, 0])
draw_bandwidths(panels[0, 1])
draw_plane(panels[0, 2])
draw_envelopes(panels[0, 3], panels[1, 0])
draw_special(panels[1, 1], PiecewiseLinear([[0.7], [-0.3]]), "Pinball, quantile 0.7")
pieces = PiecewiseLinear([[-1.0], [-0.2], [0.5], [1.2]], [-1.0, 0.0, 0.0, -1.0])
draw_special(panels[1, 2], pieces, "Four pieces")
draw_special(panels[1, 3], Bowl(1), "Bowl of level 1", level=1.0)
for axes in panels.flat:
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
