"""The choice of mechanisms, and forecasts of their accuracy, from public facts. No data enters.

``mechanism_choice`` says what ``mechanism="auto"`` takes, and which mechanisms a fit refuses.
``planner`` compares mechanisms before there are data, and ``cost_warning`` warns before a fit that
noise will win. What a mechanism prescribes for itself stands in its own file, by the predictions of
:mod:`dpconvex.risk`.
"""

from dpconvex.mechanisms.objective_perturbation import objective_prescription
from dpconvex.mechanisms.output_perturbation import linear_preset, output_prescription
from dpconvex.planning.planner import Forecast, Forecasts, plan
from dpconvex.risk.contractive_steps import contractive_bandwidth
from dpconvex.risk.excess_risk import Prescription

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
