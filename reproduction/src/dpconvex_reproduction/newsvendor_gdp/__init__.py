"""The newsvendor under Gaussian DP: its algorithm as printed, Figures 2 to 9, Tables 1 and 2."""

from dpconvex_reproduction.newsvendor_gdp.algorithm import (
    STEPS,
    TRUNCATION,
    algorithm_1,
    calibrated_std,
    noise_std,
    paper_bandwidth,
)
from dpconvex_reproduction.newsvendor_gdp.line_search import line_search_descent

__all__ = [
    "STEPS",
    "TRUNCATION",
    "algorithm_1",
    "calibrated_std",
    "line_search_descent",
    "noise_std",
    "paper_bandwidth",
]
