"""Generators whose best coefficients and risk are known."""

from dpconvex.datasets.structured import make_piecewise_linear, make_structured_median
from dpconvex.datasets.synthetic import Synthetic, make_newsvendor, make_quantile_regression

__all__ = [
    "Synthetic",
    "make_newsvendor",
    "make_piecewise_linear",
    "make_quantile_regression",
    "make_structured_median",
]
