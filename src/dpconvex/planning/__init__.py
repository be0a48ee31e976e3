"""What is chosen where a user chose nothing, and what it is predicted to achieve. No data enters this package.

One file per task says what ``mechanism="auto"`` chooses: ``quantile``, ``classification``, ``auc``, ``matrices``,
``tilted_and_robust``; ``request`` is what they have in common. The ``forecast_`` files predict the risk of a mechanism
from public facts and find the penalty with the smallest one. ``planner`` puts forecasts side by side before there are
data, ``cost_warning`` says before a fit that noise will win, ``linear_preset`` bounds a risk
instead, and ``rates`` are theorems to plan with.
"""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

# At once: it is named like its module.
from dpconvex.planning.linear_preset import OutputPreset, linear_preset

if TYPE_CHECKING:
    from dpconvex.planning.forecast_classification import penalty_for, predicted_gradient_risk
    from dpconvex.planning.forecast_quantile import Prescription, objective_prescription
    from dpconvex.planning.forecast_quantile_descent import predicted_gradient_excess
    from dpconvex.planning.forecast_quantile_output import output_prescription, predicted_output_excess
    from dpconvex.planning.planner import Forecast, RiskPlan, plan
    from dpconvex.planning.quantile import contractive_bandwidth
    from dpconvex.planning.rates import (
        EstimationError,
        convolution_objective_risk,
        newsvendor_estimation_error,
        newsvendor_regret,
        quantile_estimation_error,
        quantile_risk_floor,
        strongly_convex_risk_floor,
    )
    from dpconvex.planning.tilted_and_robust import robust_penalty, tilted_penalty
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "EstimationError": "rates",
            "Forecast": "planner",
            "Prescription": "forecast_quantile",
            "RiskPlan": "planner",
            "contractive_bandwidth": "quantile",
            "convolution_objective_risk": "rates",
            "newsvendor_estimation_error": "rates",
            "newsvendor_regret": "rates",
            "objective_prescription": "forecast_quantile",
            "output_prescription": "forecast_quantile_output",
            "penalty_for": "forecast_classification",
            "plan": "planner",
            "predicted_gradient_excess": "forecast_quantile_descent",
            "predicted_gradient_risk": "forecast_classification",
            "predicted_output_excess": "forecast_quantile_output",
            "quantile_estimation_error": "rates",
            "quantile_risk_floor": "rates",
            "robust_penalty": "tilted_and_robust",
            "strongly_convex_risk_floor": "rates",
            "tilted_penalty": "tilted_and_robust",
        },
    )

__all__ = [
    "EstimationError",
    "Forecast",
    "OutputPreset",
    "Prescription",
    "RiskPlan",
    "contractive_bandwidth",
    "convolution_objective_risk",
    "linear_preset",
    "newsvendor_estimation_error",
    "newsvendor_regret",
    "objective_prescription",
    "output_prescription",
    "penalty_for",
    "plan",
    "predicted_gradient_excess",
    "predicted_gradient_risk",
    "predicted_output_excess",
    "quantile_estimation_error",
    "quantile_risk_floor",
    "robust_penalty",
    "strongly_convex_risk_floor",
    "tilted_penalty",
]
