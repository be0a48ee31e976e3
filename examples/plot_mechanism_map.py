"""
Where which mechanism wins
==========================

The mechanism with the smallest predicted risk over rows, columns and budget, for the 0.7 quantile.
Computed by :func:`dpconvex.planning.plan` from public facts alone, without data.

With delta above 0 noisy gradient descent wins wherever the data can pay for it: its error is that
of one noisy gradient, with no penalty. ``mechanism="auto"`` takes it for every such budget, because
where it is not predicted to win little is lost: it keeps to a constant there. Gaussian DP leaves
descent and output perturbation; pure epsilon, not drawn, has objective and output perturbation.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from dpconvex.planning import plan
from dpconvex.privacy import ApproxDP, GaussianDP

POINTS = 8
COLUMNS = (1, 5, 20, 100)
MECHANISMS = {"gradient": "tab:blue", "objective": "tab:orange", "output": "tab:green"}


def choices(columns, sizes, budgets, kind):
    """Return the index of the best mechanism for every number of rows and every epsilon or mu."""
    names = list(MECHANISMS)
    chosen = np.empty((len(budgets), len(sizes)), dtype=int)
    for i, budget in enumerate(budgets):
        promise = GaussianDP(float(budget)) if kind == "mu" else ApproxDP(float(budget), 1e-6)
        for j, size in enumerate(sizes):
            best = plan("quantile", int(size), columns, promise, quantile=0.7).best
            chosen[i, j] = names.index(best.mechanism)
    return chosen


sizes = np.geomspace(30, 1e6, POINTS)
budgets = np.geomspace(0.05, 20, POINTS)
figure, panels = plt.subplots(2, len(COLUMNS), figsize=(10.5, 5.6), sharex=True, sharey=True)
colours = ListedColormap(list(MECHANISMS.values()))
for kind, row in zip(("epsilon", "mu"), panels, strict=True):
    for axes, columns in zip(row, COLUMNS, strict=True):
        chosen = choices(columns, sizes, budgets, kind)
        axes.pcolormesh(sizes, budgets, chosen, cmap=colours, vmin=-0.5, vmax=len(MECHANISMS) - 0.5)
        axes.set(xscale="log", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
    row[0].set_ylabel("epsilon (delta = 1e-6)" if kind == "epsilon" else "mu")
for top, bottom, columns in zip(*panels, COLUMNS, strict=True):
    top.set_title("1 column" if columns == 1 else f"{columns} columns")
    bottom.set_xlabel("rows")
handles = [Patch(color=colour, label=name) for name, colour in MECHANISMS.items()]
figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False)
figure.tight_layout(rect=(0, 0.05, 1, 1))
plt.show()
