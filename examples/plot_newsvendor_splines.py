"""
Curved demand with splines
==========================

A linear policy cannot follow demand that rises, falls and rises again over the day. Splines in
front of the private newsvendor can, in an ordinary scikit-learn pipeline. They cost no privacy as
long as their knots are public: here one every three hours, not where the data happen to lie.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from dpconvex import DPNewsvendor

UNDERAGE = 4.0
OVERAGE = 1.0


def demand(hours, rng):
    """Two rushes a day, more uncertain when demand is high."""
    mean = 30 + 25 * np.exp(-((hours - 12.5) ** 2) / 4) + 35 * np.exp(-((hours - 19) ** 2) / 6)
    return rng.normal(mean, 0.15 * mean)


rng = np.random.default_rng(0)
hours = rng.uniform(6, 24, size=(8_000, 1))
test_hours = rng.uniform(6, 24, size=(50_000, 1))
sold = demand(hours[:, 0], rng)
test_sold = demand(test_hours[:, 0], rng)

# %%
# The features that splines make lie between 0 and 1 by construction, which are the bounds to state.

settings = {"epsilon": 1.0, "delta": 1e-6, "target_bounds": (0, 150)}
straight = DPNewsvendor(UNDERAGE, OVERAGE, feature_bounds=(6, 24), **settings)
splines = SplineTransformer(knots=np.arange(6, 25, 3.0)[:, None], include_bias=False)
curved = make_pipeline(splines, DPNewsvendor(UNDERAGE, OVERAGE, feature_bounds=(0, 1), **settings))
for name, model in (("straight line", straight), ("splines", curved)):
    cost = -model.fit(hours, sold).score(test_hours, test_sold)
    print(f"{name:<14} mean cost {cost:6.2f}")

# %%
# Both policies are private with the same epsilon.

figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
axes.plot(test_hours[:3_000], test_sold[:3_000], ".", color="0.8", label="demand")
grid = np.linspace(6, 24, 200)[:, None]
axes.plot(grid, straight.predict(grid), label="straight line")
axes.plot(grid, curved.predict(grid), label="splines")
axes.set(xlabel="hour of the day", ylabel="units", xticks=range(6, 25, 3))
axes.legend(frameon=False)
plt.show()

# %%
# What may be published:

print(curved[-1].summary())
