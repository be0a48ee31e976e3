"""Privacy against robustness on a9a: accuracy with and without an attack, for three budgets.

The adversary moves each of the 123 columns of every test row by up to a radius, knowing the model. Plain private
logistic regression is best without an attack and falls apart under one; the robust classifier, fitted for the radius
it is attacked with, keeps a few strong coefficients. The dotted line is the share of the larger class: below it a model
is worth nothing.

Run ``python examples/plot_robustness.py --out out``; it needs the data set ``a9a`` in the folder named by
``DPCONVEX_DATA``, and writes ``robustness.png``.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from dpconvex import DPLogisticRegression, DPRobustClassifier
from dpconvex_reproduction.datasets import load_a9a

RADII = (0.0, 0.01, 0.02, 0.035, 0.05, 0.1)
EPSILONS = (0.5, 2.0, 8.0)
REPEATS = 3
COLOURS = ("#c8553d", "#588157", "#1b6ca8")


def attacked(model, X, y, radius):
    """Accuracy after every row was moved against its label by an adversary who knows the model."""
    sign = np.where(y == model.classes_[1], 1.0, -1.0)
    moved = X - radius * sign[:, None] * np.sign(model.coef_[0])
    return np.mean(model.predict(moved) == y)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--quick", action="store_true", help="fewer points and repeats")
    options = parser.parse_args()
    folder, repeats = options.out, 1 if options.quick else REPEATS
    radii = RADII[::2] if options.quick else RADII
    folder.mkdir(parents=True, exist_ok=True)
    data = load_a9a()
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
    majority = max(np.mean(data.y_test > 0), np.mean(data.y_test < 0))
    for epsilon, colour in zip(EPSILONS, COLOURS, strict=True):
        settings = {"epsilon": epsilon, "feature_bounds": (0, 1), "row_norm": 14**0.5}
        plain = [DPLogisticRegression(**settings).fit(data.X, data.y) for _ in range(repeats)]
        curves = {"plain under attack": [], "robust under attack": [], "robust, calm": []}
        for radius in radii:
            robust = [
                DPRobustClassifier(radius, "linf", **settings).fit(data.X, data.y)
                for _ in range(repeats)
            ]
            for name, models, strength in (
                ("plain under attack", plain, radius),
                ("robust under attack", robust, radius),
                ("robust, calm", robust, 0.0),
            ):
                accuracies = [attacked(m, data.X_test, data.y_test, strength) for m in models]
                curves[name].append(np.mean(accuracies))
        panels[0].plot(radii, curves["plain under attack"], "s--", color=colour, markersize=4)
        panels[0].plot(
            radii, curves["robust under attack"], "o-", color=colour, label=f"epsilon = {epsilon:g}"
        )
        panels[1].plot(
            radii, curves["robust, calm"], "o-", color=colour, label=f"epsilon = {epsilon:g}"
        )
        print(epsilon, {name: np.round(curve, 4).tolist() for name, curve in curves.items()})
    panels[0].plot([], [], "s--", color="0.4", label="plain logistic regression")
    panels[0].plot([], [], "o-", color="0.4", label="robust, fitted for this radius")
    for axes, title in zip(
        panels, ("Under attack", "Without an attack: the price of robustness"), strict=True
    ):
        axes.axhline(majority, color="0.3", linestyle=":", linewidth=1.2)
        axes.set(
            title=title, xlabel="radius of the attack" if axes is panels[0] else "radius fitted for"
        )
        axes.grid(alpha=0.25)
        axes.set_ylim(0.2, 0.9)
    panels[0].set_ylabel("test accuracy")
    panels[0].legend(fontsize=8, loc="lower left")
    figure.savefig(folder / "robustness.png", dpi=150)
    print(folder / "robustness.png")


if __name__ == "__main__":
    main()
