r"""
What Gaussian DP promises
=========================

An adversary who wants to tell two neighbouring data sets apart makes errors of two types. Left:
under mu-Gaussian DP the type II error is at least :math:`\Phi(\Phi^{-1}(1 - \alpha) - \mu)` at type
I error :math:`\alpha`; the diagonal is perfect privacy. Middle: one curve holds a whole family of
(epsilon, delta) statements, each a pair of straight lines below it. Right: epsilon of a
mu-Gaussian-DP release at several delta.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpconvex.privacy import ApproxDP, GaussianDP

BUDGETS = (0.3, 0.5, 0.9, 2.0)


def draw_curves(axes, alpha):
    axes.plot(alpha, 1 - alpha, color="black", linestyle="--", label="perfect privacy")
    for mu, shade in zip(BUDGETS, np.linspace(0.4, 0.95, len(BUDGETS)), strict=True):
        axes.plot(
            alpha, GaussianDP(mu).tradeoff(alpha), color=plt.cm.Blues(shade), label=f"mu = {mu:g}"
        )
    axes.set(title="Trade-off curves", xlabel="type I error", ylabel="type II error")


def draw_family(axes, alpha):
    claim = GaussianDP(1.0)
    axes.plot(alpha, claim.tradeoff(alpha), color="tab:blue", linewidth=2.2, label="mu = 1")
    for epsilon, style in zip((0.3, 1.0, 2.5), ("-", "--", ":"), strict=True):
        delta = claim.delta(epsilon)
        lines = ApproxDP(epsilon, delta).tradeoff(alpha)
        axes.plot(alpha, lines, "k", linestyle=style, label=f"({epsilon:g}, {delta:.2g})-DP")
    axes.set(title="One curve, many pairs", xlabel="type I error", ylabel="type II error")


def draw_conversion(axes):
    budgets = np.linspace(0.05, 3.0, 60)
    for delta, shade in zip((1e-2, 1e-5, 1e-8), (0.45, 0.7, 0.95), strict=True):
        values = [GaussianDP(float(mu)).epsilon(delta) for mu in budgets]
        axes.plot(budgets, values, color=plt.cm.Oranges(shade), label=f"delta = {delta:g}")
    axes.set(title="Conversion", xlabel="mu", ylabel="epsilon")


figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.5, 3.9), layout="constrained")
alpha = np.linspace(0, 1, 401)
draw_curves(left, alpha)
draw_family(middle, alpha)
draw_conversion(right)
for axes in (left, middle, right):
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25)
plt.show()
