"""What bounds and budget cost: excess cost of private newsvendors on generated demand.

Left: public bounds of the features that are narrower or wider than the data by a factor. Narrow bounds clip, wide ones
waste range; the default mechanism finds the typical length of a row privately, so bounds ten times too wide cost
little. Right: the same fits for several epsilon with the bounds that fit. Costs are exact expectations under the law
that generated the data, relative to the best policy; points are means of several fits.

Run ``python examples/plot_bounds_and_budget.py --out out``; it writes ``bounds_and_budget.png``.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from dpconvex import DPQuantileRegressor
from dpconvex.datasets import make_newsvendor

QUANTILE = 0.75
FACTORS = (0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def excess_cost(sample, epsilon, factor, fits):
    best = sample.risk(sample.theta_star)
    costs = []
    for _ in range(fits):
        model = DPQuantileRegressor(
            QUANTILE,
            epsilon=epsilon,
            feature_bounds=(-4 * factor, 4 * factor),
            target_bounds=(-20, 20),
        )
        model.fit(sample.X, sample.y)
        costs.append(sample.risk(np.r_[model.intercept_, model.coef_]))
    return np.mean(costs) / best - 1


def draw(fits):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4))
    for rows, style in ((5_000, "o--"), (20_000, "s-")):
        sample = make_newsvendor(rows, rng=0, quantile=QUANTILE)
        costs = [excess_cost(sample, 1.0, factor, fits) for factor in FACTORS]
        left.plot(FACTORS, costs, style, label=f"{rows:,} rows, epsilon = 1")
        costs = [excess_cost(sample, epsilon, 1.0, fits) for epsilon in EPSILONS]
        right.plot(EPSILONS, costs, style, label=f"{rows:,} rows, bounds that fit")
    left.set(xlabel="width of the bounds / width of the data", title="Bounds")
    right.set(xlabel="epsilon", title="Budget")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", ylabel="cost above the best policy")
        axes.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0, decimals=2))
        axes.legend(frameon=False)
    figure.tight_layout()
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="one fit per point")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "bounds_and_budget.png"
    draw(1 if arguments.quick else 5).savefig(path, dpi=120)
    print(path)


if __name__ == "__main__":
    main()
