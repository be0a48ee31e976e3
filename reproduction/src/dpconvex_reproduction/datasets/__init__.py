"""Real data with public bounds, read from files that are checked."""

from dpconvex_reproduction.datasets.classification import (
    load_a9a,
    load_adult,
    load_bank_campaign,
    load_covtype,
    load_http,
    load_ijcnn1,
    load_satimage,
    load_skin,
)
from dpconvex_reproduction.datasets.dataset import Dataset
from dpconvex_reproduction.datasets.regression import (
    load_bike,
    load_census_wages,
    load_engel,
    load_restaurant,
    load_restaurant_lamb,
)

__all__ = [
    "Dataset",
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
]
