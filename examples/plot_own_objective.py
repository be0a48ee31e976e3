"""
Objectives of one's own that are no means
=========================================

A mean over records spreads one record's influence over n. The two objectives here do not: the
smoothed largest logistic loss, ``w log mean exp(loss_i / w)``, and the accuracy at the top, the
mean loss of positive records' lead over the smoothed best score of a negative one. Whoever declares
a slope and a curvature that hold for all data gets an output perturbation with a certificate all
the same; the noise does not shrink with n, so that such objectives need a large penalty or a large
budget. The picture shows each objective's excess over its minimum against mu, with the bound
``curvature/2 E||noise||^2`` that follows from its certificate.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit, logsumexp, softmax

from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import OwnObjective
from dpconvex.privacy import DeclaredBounds, GaussianDP

WIDTH = 0.5
ALPHA = 1.0
SIZE = 3


def data(n=500, seed=0):
    """Rows of norm at most 1 and labels -1 and +1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, SIZE))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return X, np.where(X @ [2.0, -1.0, 0.0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)


def largest_loss(X, y):
    """Slopes of a logistic loss are at most 1, and a smoothed maximum turns by ``1/4 + 1/w``."""
    rows = y[:, None] * X

    def evaluate(theta):
        losses = np.logaddexp(0.0, -rows @ theta)
        weights = softmax(losses / WIDTH)
        value = WIDTH * (logsumexp(losses / WIDTH) - np.log(len(losses)))
        return value, -rows.T @ (weights * expit(-rows @ theta))

    return evaluate, 1.0, 0.25 + 1 / WIDTH


def accuracy_at_the_top(X, y):
    """Mean logistic loss of ``x_i . w - smoothed max_j x_j . w``, i positive and j negative:
    slopes at most 2.
    """
    # A public row of zeros in either class: with no record of one class the function must be there,
    # too.
    origin = np.zeros((1, SIZE))
    positive = np.vstack([X[y > 0], origin])
    negative = np.vstack([X[y < 0], origin])

    def evaluate(theta):
        scores = negative @ theta / WIDTH
        top = WIDTH * (logsumexp(scores) - np.log(len(scores)))
        leads = positive @ theta - top
        pulls = expit(-leads) / len(positive)
        gradient = -positive.T @ pulls + pulls.sum() * (negative.T @ softmax(scores))
        return float(np.logaddexp(0.0, -leads).mean()), gradient

    return evaluate, 2.0, 0.25 * 4 + 1 / WIDTH


def excess(build, budgets, repeats, seed):
    """Mean excess of private minimisers over the minimum, and the bound, for every budget."""
    X, y = data()
    evaluate, slope, curvature = build(X, y)
    F = OwnObjective(evaluate, SIZE, ALPHA, slope, curvature, n_rows=len(X), name=build.__name__)
    facts = DeclaredBounds(len(X), SIZE, slope, curvature, alpha=ALPHA, name=build.__name__)
    rng = np.random.default_rng(seed)
    means = []
    bounds = []
    for mu in budgets:
        certificate = OutputPerturbation().certify(facts, GaussianDP(mu))
        certificate.verify()
        best = F.value(OutputPerturbation().minimise(F, certificate))
        risks = [
            F.value(OutputPerturbation().release(F, certificate, rng)) - best
            for _ in range(repeats)
        ]
        means.append(np.mean(risks))
        bounds.append(F.smoothness / 2 * SIZE * certificate.noise["release"]["std"] ** 2)
    return means, bounds


budgets = np.geomspace(2.0, 200.0, 7)
figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
for build, colour in ((largest_loss, "#1b6ca8"), (accuracy_at_the_top, "#c8553d")):
    means, bounds = excess(build, budgets, repeats=20, seed=1)
    label = build.__name__.replace("_", " ")
    axes.loglog(budgets, means, color=colour, marker="o", label=label)
    axes.loglog(budgets, bounds, color=colour, linewidth=1, linestyle="--", label="its bound")
axes.xaxis.set_major_formatter("{x:g}")
axes.set(xlabel="mu (Gaussian DP)", ylabel="excess over the minimum")
axes.legend(frameon=False, fontsize=8)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
