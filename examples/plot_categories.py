"""
Categories: short rows and a bin for others
===========================================

Who repays a loan depends on one of 60 occupations, of which ten employ nine in ten people. Left:
excess loss of private logistic regression by output perturbation against epsilon, with the length
of rows that follows from the schema (one indicator is 1) and with the default for 61 columns, which
allows all of them to be. Right: the default mechanism with all 60 occupations listed, and with the
ten large ones and a bin for the others: where there is little budget, fewer columns are worth more
than what the bin blurs. Points are means of several fits, bars reach from the best to the worst.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpconvex import DPLogisticRegression
from dpconvex.preprocessing import PublicTable

JOBS = [f"job {number}" for number in range(60)]
ROWS = 20_000
FITS = 5
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
BLUE = "#1b6ca8"
RED = "#c8553d"


def people(rows, seed):
    rng = np.random.default_rng(seed)
    shares = np.r_[np.full(10, 0.09), np.full(50, 0.002)]
    job = rng.choice(60, rows, p=shares)
    years = rng.uniform(0, 40, rows)
    level = np.random.default_rng(1).normal(0, 1.5, 60)
    margin = level[job] + 0.05 * (years - 20)
    repaid = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-margin)), "yes", "no")
    return {"job": [JOBS[number] for number in job], "years": years, "repaid": repaid}, margin


def schema(listed, other):
    return {
        "features": {"years": [0, 50]},
        "categories": {"job": {"values": listed, "other": other}},
        "target": {"repaid": {"classes": ["no", "yes"]}},
    }


def excess(table, train, test, epsilon, fits, **settings):
    """Divergence of predicted from true probabilities of fresh people in nats, a number for each
    fit.
    """
    (people_seen, _) = train
    (fresh, margin) = test
    X = table.transform(people_seen)
    X_test = table.transform(fresh)
    true = 1 / (1 + np.exp(-margin))
    best = np.logaddexp(0, margin) - true * margin
    losses = []
    for _ in range(fits):
        model = DPLogisticRegression(
            epsilon=epsilon, feature_bounds=table.feature_bounds, classes=table.classes, **settings
        ).fit(X, people_seen["repaid"])
        found = model.decision_function(X_test)
        losses.append(np.mean(np.logaddexp(0, found) - true * found - best))
    return np.array(losses)


def plot(axes, losses, colour, label):
    losses = np.array(losses)
    means = losses.mean(axis=1)
    bars = [means - losses.min(axis=1), losses.max(axis=1) - means]
    axes.errorbar(
        EPSILONS, means, bars, fmt="o-", color=colour, elinewidth=1, capsize=2, label=label
    )


def draw(rows, fits):
    train = people(rows, 0)
    test = people(20_000, 2)
    full = PublicTable(schema(JOBS, False))
    binned = PublicTable(schema(JOBS[:10], True))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), sharey=True)
    for length, label, colour in (
        (full.row_norm, "rows as short as the schema says", BLUE),
        (None, "rows that may be all ones", RED),
    ):
        curve = [
            excess(full, train, test, epsilon, fits, mechanism="output", row_norm=length)
            for epsilon in EPSILONS
        ]
        plot(left, curve, colour, label)
    for table, label, colour in (
        (full, "60 occupations", RED),
        (binned, "10 occupations and others", BLUE),
    ):
        curve = [
            excess(table, train, test, epsilon, fits, row_norm=table.row_norm)
            for epsilon in EPSILONS
        ]
        plot(right, curve, colour, label)
    left.set(title="Output perturbation", ylabel="excess loss (nats)")
    right.set(title="Default mechanism")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="epsilon")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False)
    figure.tight_layout()


draw(ROWS, FITS)
plt.show()
