"""The choice of mechanisms and parameters, and forecasts of their accuracy, from public facts. No data enters.

``mechanism_choice`` resolves ``mechanism="auto"`` and fills in what a user left open, ``output_penalties`` those of
tilted, robust and top-rank models. ``forecasts`` and ``structured_forecasts`` predict the excess risk of a mechanism
and minimise it. ``planner`` compares mechanisms before there are data, ``cost_warning`` warns before a fit that noise
will win, and ``rates`` are theorems to plan with.
"""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
    from dpconvex.planning.forecasts import Prescription, linear_preset, objective_prescription, output_prescription
    from dpconvex.planning.mechanism_choice import contractive_bandwidth
    from dpconvex.planning.planner import Forecast, Forecasts, plan
    from dpconvex.planning.rates import (
        EstimationError,
        convolution_objective_risk,
        newsvendor_estimation_error,
        newsvendor_regret,
        quantile_estimation_error,
        quantile_risk_floor,
        strongly_convex_risk_floor,
    )
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "EstimationError": "rates",
            "Forecast": "planner",
            "Forecasts": "planner",
            "Prescription": "forecasts",
            "contractive_bandwidth": "mechanism_choice",
            "convolution_objective_risk": "rates",
            "linear_preset": "forecasts",
            "newsvendor_estimation_error": "rates",
            "newsvendor_regret": "rates",
            "objective_prescription": "forecasts",
            "output_prescription": "forecasts",
            "plan": "planner",
            "quantile_estimation_error": "rates",
            "quantile_risk_floor": "rates",
            "strongly_convex_risk_floor": "rates",
        },
    )

__all__ = [
    "EstimationError",
    "Forecast",
    "Forecasts",
    "Prescription",
    "contractive_bandwidth",
    "convolution_objective_risk",
    "linear_preset",
    "newsvendor_estimation_error",
    "newsvendor_regret",
    "objective_prescription",
    "output_prescription",
    "plan",
    "quantile_estimation_error",
    "quantile_risk_floor",
    "strongly_convex_risk_floor",
]
