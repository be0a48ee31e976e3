"""Parameter choices: the papers' by theorem, and ours by predicted risk. No data enters this package."""

from dpconvex.defaults.classification_risk import penalty_for, predicted_gradient_risk
from dpconvex.defaults.gradient_risk import predicted_gradient_excess
from dpconvex.defaults.output_bounds import TableRow, excess_risk_bound, solver_iterations, table
from dpconvex.defaults.output_only_risk import robust_penalty, tilted_penalty
from dpconvex.defaults.output_presets import OutputPreset, OutputProblem, output_preset
from dpconvex.defaults.output_risk import (
    linear_preset,
    output_prescription,
    predicted_output_excess,
)
from dpconvex.defaults.planner import Forecast, RiskPlan, plan
from dpconvex.defaults.quantile_presets import QuantilePreset, theorem_3_6
from dpconvex.defaults.quantile_risk import Prescription, objective_prescription
from dpconvex.defaults.sgd_presets import (
    PhasedPreset,
    SGDPreset,
    contractive_bandwidth,
    phased_erm_preset,
    phased_sgd_preset,
    theorem_3_4,
)

__all__ = [
    "Forecast",
    "OutputPreset",
    "OutputProblem",
    "PhasedPreset",
    "Prescription",
    "QuantilePreset",
    "RiskPlan",
    "SGDPreset",
    "TableRow",
    "contractive_bandwidth",
    "excess_risk_bound",
    "linear_preset",
    "objective_prescription",
    "output_prescription",
    "output_preset",
    "penalty_for",
    "phased_erm_preset",
    "phased_sgd_preset",
    "plan",
    "predicted_gradient_excess",
    "predicted_gradient_risk",
    "predicted_output_excess",
    "robust_penalty",
    "solver_iterations",
    "table",
    "theorem_3_4",
    "theorem_3_6",
    "tilted_penalty",
]
