"""The choice of mechanisms and parameters, and forecasts of their accuracy, from public facts. No
data enters.

``mechanism_choice`` resolves ``mechanism="auto"`` and fills in what a user left open,
``tilted_and_robust_penalties`` those of tilted, robust and top-rank models. ``excess_risk`` and
``structured_prescriptions`` predict the excess risk of a mechanism and minimise it. ``planner``
compares mechanisms before there are data, and ``cost_warning`` warns before a fit that noise will
win.
"""

from dpconvex.planning.excess_risk import (
    Prescription,
    linear_preset,
    objective_prescription,
    output_prescription,
)
from dpconvex.planning.mechanism_choice import contractive_bandwidth
from dpconvex.planning.planner import Forecast, Forecasts, plan

__all__ = [
    "Forecast",
    "Forecasts",
    "Prescription",
    "contractive_bandwidth",
    "linear_preset",
    "objective_prescription",
    "output_prescription",
    "plan",
]
