"""Curved demand through an ordinary scikit-learn pipeline: splines with public knots in front of the newsvendor.

A linear policy cannot follow demand that rises, falls and rises again over the day. Splines can, and cost no privacy as
long as their knots are public: here one every three hours, not where the data happen to lie. The features then lie
between 0 and 1 by construction, which are the bounds to state.

Run ``python examples/newsvendor_splines.py``; it prints costs per day and the certificate.
"""

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from dpconvex import DPNewsvendor

UNDERAGE, OVERAGE = 4.0, 1.0


def demand(hours, rng):
    """Two rushes a day, more uncertain when demand is high."""
    mean = 30 + 25 * np.exp(-((hours - 12.5) ** 2) / 4) + 35 * np.exp(-((hours - 19) ** 2) / 6)
    return rng.normal(mean, 0.15 * mean)


def main():
    rng = np.random.default_rng(0)
    hours, test_hours = rng.uniform(6, 24, size=(8_000, 1)), rng.uniform(6, 24, size=(50_000, 1))
    sold, test_sold = demand(hours[:, 0], rng), demand(test_hours[:, 0], rng)
    settings = {"epsilon": 1.0, "delta": 1e-6, "target_bounds": (0, 150), "random_state": 0}

    straight = DPNewsvendor(UNDERAGE, OVERAGE, feature_bounds=(6, 24), **settings)
    knots = np.arange(6, 25, 3.0)[:, None]
    splines = SplineTransformer(knots=knots, include_bias=False)
    curved = make_pipeline(
        splines, DPNewsvendor(UNDERAGE, OVERAGE, feature_bounds=(0, 1), **settings)
    )
    for name, model in (("straight line", straight), ("splines", curved)):
        cost = -model.fit(hours, sold).score(test_hours, test_sold)
        print(f"{name:<14} mean cost {cost:6.2f}")
    print(curved[-1].summary())


if __name__ == "__main__":
    main()
