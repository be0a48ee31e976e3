"""What a promise to people costs: equal votes against a budget divided by the most rows that
anybody has.

People have effects of their own on top of what rows share, so that rows of one person are alike.
Loss is averaged over people, of whom the test set has others; excess is over the best linear model.
Both fits make the same promise to a person: equal votes with the whole budget, and rows as records
with ``rows_per_person``, which divides it as Gaussian DP allows. Run it with
``python benchmarks/people.py``.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from dpconvex import DPLogisticRegression, DPQuantileRegressor

COLUMNS = 6
MOST = 50


def rows_of_people(people, rng, fixed=None):
    """Return how many rows everybody has: from 1 to 50 with a long tail, mean below 10; or as
    many each.
    """
    if fixed is not None:
        return np.full(people, fixed)
    return np.clip(np.floor(rng.pareto(1.0, people) * 3 + 1), 1, MOST).astype(int)


def draw(people, rng, task, fixed=None):
    """Return features, target and identifiers: people with many rows differ from others."""
    counts = rows_of_people(people, rng, fixed)
    ids = np.repeat(np.arange(people), counts)
    centre = 0.5 * rng.normal(size=(people, COLUMNS)) + 0.02 * counts[:, None] * (
        np.arange(COLUMNS) == 0
    )
    X = np.clip(centre[ids] + rng.normal(size=(ids.size, COLUMNS)), -4, 4)
    slopes = np.linspace(1.0, -1.0, COLUMNS)
    signal = X @ slopes + 0.5 * rng.normal(size=people)[ids]
    if task == "logistic":
        return X, (rng.random(ids.size) < 1 / (1 + np.exp(-signal))).astype(int), ids
    return X, signal + rng.standard_t(4, ids.size), ids


def loss_of(model, X, y, ids, task):
    """Return the mean over people of the mean loss of their rows."""
    if task == "logistic":
        z = (2 * y - 1) * (X @ np.ravel(model[0]) + model[1])
        loss = np.logaddexp(0.0, -z)
    else:
        gap = y - X @ model[0] - model[1]
        loss = np.maximum(0.8 * gap, -0.2 * gap)
    counts = np.bincount(ids)
    return float(np.mean(np.bincount(ids, loss) / counts))


def fit(task, X, y, epsilon, **how):
    groups = how.pop("groups", None)
    public = {"epsilon": epsilon, "feature_bounds": (-4, 4), **how}
    if task == "logistic":
        model = DPLogisticRegression(classes=[0, 1], **public)
    else:
        model = DPQuantileRegressor(0.8, target_bounds=(-8, 8), **public)
    model.fit(X, y, groups=groups)
    return model.coef_, float(np.ravel(model.intercept_)[0])


def best_linear(task, X, y, ids):
    """Return the best linear model for people, without noise, from many of them."""
    votes = 1 / np.bincount(ids)[ids]
    if task == "logistic":
        found = LogisticRegression(C=np.inf).fit(X, y, sample_weight=votes)
        return found.coef_[0], float(found.intercept_[0])
    rows = np.column_stack([X, np.ones(len(y))])

    def smoothed(theta, width=0.02):
        gap = y - rows @ theta
        slope = 0.8 - expit(-gap / width)
        value = 0.8 * gap + width * np.logaddexp(0.0, -gap / width)
        return votes @ value / votes.sum(), -(votes * slope) @ rows / votes.sum()

    theta = minimize(
        smoothed, np.linalg.lstsq(rows, y, rcond=None)[0], jac=True, method="L-BFGS-B"
    ).x
    return theta[:-1], float(theta[-1])


def compare(task, people, epsilon, fixed, repeats):
    """Return mean excess of equal votes and of the divided budget."""
    rng = np.random.default_rng(1)
    test = draw(20_000, rng, task, fixed)
    best = loss_of(best_linear(task, *draw(30_000, rng, task, fixed)), *test, task)
    found = []
    for seed in range(repeats):
        X, y, ids = draw(people, np.random.default_rng(100 + seed), task, fixed)
        most = int(np.bincount(ids).max()) if fixed else MOST
        votes = fit(task, X, y, epsilon, groups=ids)
        divided = fit(task, X, y, epsilon, rows_per_person=most)
        found.append([loss_of(model, *test, task) - best for model in (votes, divided)])
    return np.mean(found, axis=0), np.mean(np.bincount(ids)), np.std(found, axis=0) / repeats**0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--people", type=int, nargs="*", default=[1_000, 5_000])
    parser.add_argument("--tasks", nargs="*", default=["quantile", "logistic"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for task in options.tasks:
        for people in options.people:
            for fixed in (None, 5):
                (votes, divided), mean, (one, two) = compare(
                    task, people, 1.0, fixed, options.repeats
                )
                rows = "1 to 50 rows each" if fixed is None else f"{fixed} rows each"
                print(
                    f"{task:9} {people:6} people, {rows:17} (mean {mean:4.1f}), epsilon 1: excess "
                    f"of equal votes {votes:.5f} (±{one:.5f}), of a divided budget {divided:.5f} "
                    f"(±{two:.5f}), ratio {votes / divided:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
