"""Predicted risks of private fits, and the penalties that make them small: public facts alone.

``excess_risk`` is about linear models, ``structured_risk`` about records that are matrices;
``tilted_and_robust_penalties`` and ``pair_penalties`` are about objectives that are no sum over
records. Mechanisms choose their parameters by these predictions, and the planner compares
mechanisms by them.
"""
