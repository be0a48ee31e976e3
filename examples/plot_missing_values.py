"""
Missing values: three public rules
==================================

Income explains who repays a loan, and people with small incomes leave it out more often. Against
the share of missing incomes: the rule "row" (a row without income counts nowhere, and cannot be
predicted; a guess of the larger class stands for it), "value" (a public constant), and "indicator"
(a column that says that it is missing, which here is worth something in itself). No rule looks at
other rows: medians of the column, which imputers use, would have to be paid for.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MultipleLocator, PercentFormatter

from dpconvex import DPLogisticRegression
from dpconvex.preprocessing import PublicTable

ROWS = 10_000
FITS = 3
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
RULES = {"row": "row", "value": {"value": 40}, "indicator": "indicator"}


def borrowers(rows, share, seed):
    rng = np.random.default_rng(seed)
    income = np.clip(rng.gamma(4, 12, rows), 0, 200)
    age = rng.uniform(18, 80, rows)
    margin = 0.09 * (income - 40) + 0.02 * (age - 45)
    repaid = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-margin)), "yes", "no")
    silent = rng.uniform(size=rows) < np.clip(2 * share * (income < np.median(income)), 0, 0.95)
    told = [None if hidden else value for hidden, value in zip(silent, income, strict=True)]
    return {"income": told, "age": age, "repaid": repaid}


def accuracies(rule, share, rows, fits):
    table = PublicTable(
        {
            "features": {"income": {"bounds": [0, 200], "missing": rule}, "age": [18, 100]},
            "target": {"repaid": {"classes": ["no", "yes"]}},
        }
    )
    train = borrowers(rows, share, 0)
    test = borrowers(20_000, share, 1)
    X = table.transform(train)
    X_test = table.transform(test)
    known = np.isfinite(X_test.to_numpy()).all(axis=1)
    found = []
    for _ in range(fits):
        model = DPLogisticRegression(
            epsilon=1.0,
            feature_bounds=table.feature_bounds,
            row_norm=table.row_norm,
            classes=table.classes,
            invalid_rows="ignore",
        ).fit(X, table.target(train))
        guesses = np.full(len(known), "yes", dtype=object)
        guesses[known] = model.predict(X_test.filter(known))
        found.append(np.mean(guesses == test["repaid"]))
    return np.array(found)


def draw(rows, fits):
    figure, axes = plt.subplots(figsize=(6.5, 4))
    for (name, rule), style in zip(RULES.items(), ("s:", "o--", "D-"), strict=True):
        found = np.array([accuracies(rule, share, rows, fits) for share in SHARES])
        means = found.mean(axis=1)
        bars = [
            means - found.min(axis=1),
            found.max(axis=1) - means,
        ]  # from the worst to the best fit
        axes.errorbar(SHARES, means, bars, fmt=style, elinewidth=1, capsize=2, label=name)
    axes.set(xlabel="share of incomes that are missing", ylabel="test accuracy at epsilon = 1")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_major_locator(MultipleLocator(0.05))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.legend(title="missing =", frameon=False)
    figure.tight_layout()


draw(ROWS, FITS)
plt.show()
