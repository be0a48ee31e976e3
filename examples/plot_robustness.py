"""
Privacy against robustness
==========================

Privacy against robustness on generated indicators: accuracy with and without an attack, for three
budgets.

A row has a single 1 in each of 14 blocks of indicators, as census tables have, and a few blocks
tell much about its label. The adversary moves each of the 123 columns of every test row by up to a
radius, knowing the model. Plain private logistic regression is best without an attack and falls
apart under one; the robust classifier, fitted for the radius it is attacked with, keeps a few
strong coefficients. The dotted line is the share of the larger class: below it a model is worth
nothing.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpconvex import DPLogisticRegression, DPRobustClassifier

ROWS = 20_000
BLOCKS = (4, 5, 7, 8, 9, 9, 9, 9, 9, 9, 10, 10, 12, 13)
RADII = (0.0, 0.02, 0.05, 0.1)
EPSILONS = (0.5, 2.0, 8.0)
REPEATS = 3
COLOURS = ("#c8553d", "#588157", "#1b6ca8")


def attacked(model, X, y, radius):
    """Accuracy after every row was moved against its label by an adversary who knows the model."""
    sign = np.where(y == model.classes_[1], 1.0, -1.0)
    moved = X - radius * sign[:, None] * np.sign(model.coef_[0])
    return np.mean(model.predict(moved) == y)


def generate(rng):
    """Return rows of indicators, and labels from a logistic model in which later blocks tell
    less.
    """
    columns = []
    margins = np.zeros(ROWS)
    for number, width in enumerate(BLOCKS):
        codes = rng.choice(width, ROWS, p=rng.dirichlet(np.full(width, 2.0)))
        margins += rng.normal(0, 3.0 / (1 + number), width)[codes]
        columns.append(np.eye(width)[codes])
    positive = rng.random(ROWS) < 1 / (1 + np.exp(1.0 + margins.mean() - margins))
    return np.hstack(columns), np.where(positive, 1, -1)


X, y = generate(np.random.default_rng(0))
X, X_test, y, y_test = X[::2], X[1::2], y[::2], y[1::2]
figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
majority = max(np.mean(y_test > 0), np.mean(y_test < 0))
for epsilon, colour in zip(EPSILONS, COLOURS, strict=True):
    settings = {
        "epsilon": epsilon,
        "feature_bounds": (0, 1),
        "row_norm": 14**0.5,
        "classes": [-1, 1],
    }
    plain = [DPLogisticRegression(**settings).fit(X, y) for _ in range(REPEATS)]
    curves = {"plain under attack": [], "robust under attack": [], "robust, calm": []}
    for radius in RADII:
        robust = [DPRobustClassifier(radius, "linf", **settings).fit(X, y) for _ in range(REPEATS)]
        for name, models, strength in (
            ("plain under attack", plain, radius),
            ("robust under attack", robust, radius),
            ("robust, calm", robust, 0.0),
        ):
            accuracies = [attacked(m, X_test, y_test, strength) for m in models]
            curves[name].append(np.mean(accuracies))
    label = f"epsilon = {epsilon:g}"
    panels[0].plot(RADII, curves["plain under attack"], "s--", color=colour, markersize=4)
    panels[0].plot(RADII, curves["robust under attack"], "o-", color=colour, label=label)
    panels[1].plot(RADII, curves["robust, calm"], "o-", color=colour, label=label)
panels[0].plot([], [], "s--", color="0.4", label="plain logistic regression")
panels[0].plot([], [], "o-", color="0.4", label="robust, fitted for this radius")
titles = ("Under attack", "Without an attack: the price of robustness")
for axes, title in zip(panels, titles, strict=True):
    axes.axhline(
        majority, color="0.3", linestyle=":", linewidth=1.2, label="larger class for everybody"
    )
    axes.set(title=title, ylim=(0, 0.9))
    axes.grid(alpha=0.25)
panels[0].set(xlabel="radius of the attack", ylabel="test accuracy")
panels[1].set(xlabel="radius fitted for")
panels[0].legend(fontsize=8, loc="lower left")
plt.show()
