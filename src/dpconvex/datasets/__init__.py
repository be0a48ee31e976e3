"""Real data with public bounds, and generators whose best coefficients and risk are known."""

from dpconvex.datasets.classification import (
    load_a9a,
    load_adult,
    load_bank_campaign,
    load_covtype,
    load_http,
    load_ijcnn1,
    load_satimage,
    load_skin,
)
from dpconvex.datasets.dataset import Dataset
from dpconvex.datasets.regression import (
    load_bike,
    load_census_wages,
    load_engel,
    load_restaurant,
    load_restaurant_lamb,
)
from dpconvex.datasets.structured import make_piecewise_linear, make_structured_median
from dpconvex.datasets.synthetic import Synthetic, make_newsvendor, make_quantile_regression

__all__ = [
    "Dataset",
    "Synthetic",
    "load_a9a",
    "load_adult",
    "load_bank_campaign",
    "load_bike",
    "load_census_wages",
    "load_covtype",
    "load_engel",
    "load_http",
    "load_ijcnn1",
    "load_restaurant",
    "load_restaurant_lamb",
    "load_satimage",
    "load_skin",
    "make_newsvendor",
    "make_piecewise_linear",
    "make_quantile_regression",
    "make_structured_median",
]
