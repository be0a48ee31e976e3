"""
Smoothing a loss with a kink
============================

Four panels for the pinball loss of quantile 0.7 and one loss with more pieces:

1. the same kernel with smaller and smaller bandwidth: the curve comes down onto the loss;
2. one bandwidth, six kernels: lighter tails stay closer; in one dimension the Laplacian and the
   exponential kernel are the same;
3. convolution lies above the loss and touches it far from the kink, the Moreau envelope lies below
   it everywhere; both have the same largest curvature here;
4. a piecewise-linear loss with four pieces.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpconvex.losses import KinkedLoss, Pinball
from dpconvex.smoothing import KERNELS, GaussianKernel, convolve, moreau

QUANTILE = 0.7
LOSS_STYLE = {"color": "black", "linewidth": 1.6, "linestyle": "--", "zorder": 3}


def draw_bandwidths(axes, u):
    loss = Pinball(QUANTILE)
    bandwidths = (2.0, 1.0, 0.5, 0.1)
    for bandwidth, shade in zip(bandwidths, np.linspace(0.35, 0.95, 4), strict=True):
        smooth = convolve(loss, GaussianKernel(), bandwidth)
        axes.plot(u, smooth.value_at(u), color=plt.cm.Blues(shade), label=f"bandwidth {bandwidth}")
    axes.plot(u, loss.value_at(u), label="pinball loss", **LOSS_STYLE)
    axes.set_title("Bandwidths (Gaussian kernel)")


def draw_kernels(axes, u):
    loss = Pinball(QUANTILE)
    for name, kernel in KERNELS.items():
        # Equal curves: the wider one shows below the other.
        width = 4.0 if name == "laplacian" else 1.5
        axes.plot(u, convolve(loss, kernel, 1.0).value_at(u), label=name, linewidth=width)
    axes.plot(u, loss.value_at(u), label="pinball loss", **LOSS_STYLE)
    axes.set_title("Kernels (bandwidth 1)")


def draw_moreau(axes, u):
    loss = Pinball(QUANTILE)
    above = convolve(loss, GaussianKernel(), 0.8)
    below = moreau(loss, above.smoothness)
    axes.plot(u, above.value_at(u), color="tab:blue", label="convolution, from above")
    axes.plot(u, below.value_at(u), color="tab:red", label="Moreau, from below")
    axes.plot(u, loss.value_at(u), label="pinball loss", **LOSS_STYLE)
    axes.set_title(f"Same curvature {above.smoothness:.2f}")


def draw_pieces(axes, u):
    loss = KinkedLoss(knots=(-2.0, 0.0, 1.5), slopes=(-1.2, -0.3, 0.2, 1.4), height=1.0)
    for bandwidth, shade in zip((1.0, 0.5, 0.1), np.linspace(0.4, 0.95, 3), strict=True):
        smooth = convolve(loss, GaussianKernel(), bandwidth)
        axes.plot(u, smooth.value_at(u), color=plt.cm.Blues(shade), label=f"bandwidth {bandwidth}")
    axes.plot(u, loss.value_at(u), label="four linear pieces", **LOSS_STYLE)
    axes.set_title("More pieces (Gaussian kernel)")


figure, panels = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
panels_and_reach = zip(
    panels.flat,
    (draw_bandwidths, draw_kernels, draw_moreau, draw_pieces),
    (3.0, 3.0, 3.0, 4.0),
    strict=True,
)
for axes, draw, reach in panels_and_reach:
    draw(axes, np.linspace(-reach, reach, 1201))
    axes.set(xlabel="residual u", ylabel="loss")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
