"""
What bounds and budget cost
===========================

Excess cost of private newsvendors on generated demand. Costs are exact expectations under the law
that generated the data, relative to the best policy; points are means of several fits, bars reach
from the best to the worst of them.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import PercentFormatter

from dpconvex import DPQuantileRegressor
from dpconvex.datasets import make_newsvendor

QUANTILE = 0.75
FACTORS = (0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
FITS = 5


def excess_costs(sample, epsilon, factor):
    model = DPQuantileRegressor(
        QUANTILE, epsilon=epsilon, feature_bounds=(-4 * factor, 4 * factor), target_bounds=(-20, 20)
    )
    costs = []
    for _ in range(FITS):
        model.fit(sample.X, sample.y)
        costs.append(sample.risk(np.r_[model.intercept_, model.coef_]))
    return np.array(costs) / sample.risk(sample.theta_star) - 1


def draw(axes, places, costs, style, label):
    costs = np.array(costs)
    means = costs.mean(axis=1)
    bars = [means - costs.min(axis=1), costs.max(axis=1) - means]
    axes.errorbar(places, means, bars, fmt=style, elinewidth=1, capsize=2, label=label)


# %% Left: public bounds of the features that are narrower or wider than the data by a factor.
# Narrow bounds clip, wide ones waste range; the default mechanism finds the typical length of a row
# privately, so bounds ten times too wide cost little. Right: the same fits for several epsilon,
# with the bounds that fit.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
for rows, style in ((5_000, "o--"), (20_000, "s-")):
    sample = make_newsvendor(rows, rng=0, quantile=QUANTILE)
    costs = [excess_costs(sample, 1.0, factor) for factor in FACTORS]
    draw(left, FACTORS, costs, style, f"{rows:,} rows, epsilon = 1")
    costs = [excess_costs(sample, epsilon, 1.0) for epsilon in EPSILONS]
    draw(right, EPSILONS, costs, style, f"{rows:,} rows, bounds that fit")
left.set(xlabel="width of the bounds / width of the data", title="Bounds")
right.set(xlabel="epsilon", title="Budget")
for axes in (left, right):
    axes.set(xscale="log", yscale="log", ylabel="cost above the best policy")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=2))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False)
plt.show()
