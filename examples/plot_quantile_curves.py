"""
Nine quantiles under one budget
===============================

Demand that grows along the year and scatters more and more: one private fit finds nine quantiles of
it.

Left: the true quantiles (dotted) and those of one fit with epsilon 1. Right: the same nine levels
by nine fits that share the budget, each with a third of mu. One fit pays for coordinates, for the
scale of the target and for its median once, and coefficients follow a smooth curve in the level as
far as noise cannot tell otherwise. Predictions of one fit are sorted in every row, so quantiles
never cross; those of nine fits may.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtri

from dpconvex import DPQuantileRegressor
from dpconvex.privacy import ApproxDP

ROWS = 3_000
LEVELS = np.round(np.arange(0.1, 0.95, 0.1), 1)
PUBLIC = {"feature_bounds": (0, 1), "target_bounds": (0, 60), "random_state": 3}

rng = np.random.default_rng(3)
X = rng.uniform(0, 1, (ROWS, 4))
y = 15 + 12 * X[:, 0] + 4 * X[:, 1] + (2 + 5 * X[:, 0]) * rng.normal(size=ROWS)
mu = ApproxDP(1.0, 1e-6).as_gaussian().mu

day = np.linspace(0, 1, 50)
grid = np.full((50, 4), 0.5)
grid[:, 0] = day
one = DPQuantileRegressor(LEVELS, mu=mu, **PUBLIC).fit(X, y).predict(grid)
share = mu / math.sqrt(len(LEVELS))
nine = [DPQuantileRegressor(level, mu=share, **PUBLIC).fit(X, y).predict(grid) for level in LEVELS]

figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(LEVELS)))
for panel, lines, title in zip(
    panels, (one.T, nine), ("one fit of nine levels", "nine fits, a third of mu each"), strict=True
):
    for line, level, colour in zip(lines, LEVELS, colours, strict=True):
        panel.plot(day, line, color=colour)
        panel.annotate(f" {level:g}", (1.0, line[-1]), color=colour, fontsize=8, va="center")
        panel.plot(day, 17 + 12 * day + (2 + 5 * day) * ndtri(level), ":", color=colour)
    panel.set(title=title, xlabel="part of the year", xlim=(-0.03, 1.1))
panels[0].set_ylabel("demand")
for style, name in (("-", "private, with its level"), (":", "true")):
    panels[1].plot([], [], style, color="0.3", label=name)
panels[1].legend(frameon=False)
plt.show()
