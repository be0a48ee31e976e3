"""
Attending to the worst-served group
===================================

Tilted empirical risk on generated incomes: the worst-served group's loss against the tilt, private
and not.

Groups are sex times income. Income is predicted without sex; a plain fit is worst for women who
earn more, who are fewer and for whom schooling tells less. The larger the tilt, the more the fit
attends to records with large losses, whoever they are: the largest mean loss of a group falls, and
the mean loss over everybody rises. Privacy puts a price on the tilt: one record can weigh more, so
more noise is needed. A tilt is no cure-all: it knows losses, not groups.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpconvex import DPTiltedClassifier
from dpconvex.losses import Logistic

ROWS = 40_000
TILTS = (0.0, 0.5, 1.0, 2.0)
EPSILONS = (1.0, 4.0)
REPEATS = 4
BLUE = "#1b6ca8"
RED = "#c8553d"
GREY = "0.35"


def generate(rng):
    """Return training and test parts without the column of sex, and the test part's groups."""
    woman = rng.random(ROWS) < 0.33
    schooling, hours, age = (np.clip(rng.normal(0, 0.4, ROWS), -1, 1) for _ in range(3))
    hours = np.clip(hours - 0.2 * woman, -1, 1)
    margins = (
        -1.0
        - 1.2 * woman
        + np.where(woman, 0.8, 2.5) * schooling
        + 1.5 * hours
        + 1.2 * age
        - 2 * age**2
    )
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-margins))).astype(int)
    X = np.column_stack([schooling, hours, age, age**2])
    groups = np.char.add(np.where(woman, "women", "men"), np.where(y == 1, ", above", ", below"))
    return X[::2], y[::2], X[1::2], y[1::2], groups[1::2], (-1, 1)


def losses_by_group(model, X, y, groups):
    """Mean logistic loss over everybody, and of the worst-served group."""
    losses = Logistic().value(2.0 * y - 1, model.decision_function(X))
    means = [losses[groups == group].mean() for group in np.unique(groups)]
    return losses.mean(), max(means)


def measure(tilt, epsilon, data, seed):
    X, y, X_test, y_test, groups, bounds = data
    settings = {"epsilon": epsilon}
    if epsilon is None:  # hardly any noise, and a penalty that is not chosen for much of it
        settings = {"mu": 1e9, "alpha": 1e-4, "coef_bound": 8.0}
    model = DPTiltedClassifier(
        tilt, feature_bounds=bounds, row_norm=2.0, random_state=seed, **settings
    )
    model.fit(X, y)
    return losses_by_group(model, X_test, y_test, groups)


data = generate(np.random.default_rng(0))
figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharex=True)
for epsilon, colour in ((None, GREY), *zip(EPSILONS, (RED, BLUE), strict=True)):
    seeds = range(1 if epsilon is None else REPEATS)
    results = np.array([[measure(tilt, epsilon, data, seed) for seed in seeds] for tilt in TILTS])
    label = "not private" if epsilon is None else f"epsilon = {epsilon:g}"
    for axes, values in zip(panels, np.moveaxis(results, 2, 0), strict=True):
        axes.plot(TILTS, values.mean(axis=1), "o-", color=colour, label=label, markersize=4)
        low, high = np.percentile(values, [10, 90], axis=1)
        axes.fill_between(TILTS, low, high, color=colour, alpha=0.15, linewidth=0)
for axes, title in zip(panels, ("everybody", "worst-served group"), strict=True):
    axes.set(title=f"Mean loss, {title}", xlabel="tilt")
    axes.grid(alpha=0.25)
panels[0].set_ylabel("test logistic loss")
panels[0].legend()
plt.show()
