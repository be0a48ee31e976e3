"""
Dates: a week of private demand from time stamps
================================================

A bakery's sales carry a time stamp, sometimes a broken one. The schema makes of it public calendar
features: the hour as indicators or as a circle, the weekday, and their interaction, because Sunday
has another shape. Drawn is what a private model of the median says about a week, at epsilon 1,
against the law that the sales were drawn from. Two numbers of a circle cannot follow two peaks;
hour by weekday can, at the price of 168 columns more.
"""

import matplotlib.pyplot as plt
import numpy as np

from dpconvex import DPQuantileRegressor
from dpconvex.preprocessing import PublicTable

ROWS = 60_000
MONDAY = np.datetime64("2024-01-01T00")
SCHEMAS = {
    "hour as a circle": {"parts": ["hour-cycle", "weekday"]},
    "hour and weekday": {"parts": ["hour", "weekday"]},
    "hour by weekday": {"parts": ["hour", "weekday"]},
}


def law(stamps):
    """Median sales: peaks at 8 and 17 o'clock, on Sundays one late peak, nothing at night."""
    hours = (stamps - stamps.astype("datetime64[D]")).astype(int)
    sunday = (stamps.astype("datetime64[D]").astype(int) + 3) % 7 == 6
    usual = 40 * np.exp(-((hours - 8) ** 2) / 4) + 25 * np.exp(-((hours - 17) ** 2) / 6)
    return np.where(sunday, 50 * np.exp(-((hours - 10) ** 2) / 5), usual)


def sales(rows, seed):
    rng = np.random.default_rng(seed)
    stamps = MONDAY + rng.integers(0, 24 * 7 * 50, rows).astype("timedelta64[h]")
    sold = law(stamps) + rng.normal(0, 6, rows)
    written = stamps.astype(str)
    broken = rng.uniform(size=rows) < 0.02
    return {"when": np.where(broken, "n/a", written).tolist(), "sold": sold}


def table_for(name):
    tables = {
        "dates": {"when": {**SCHEMAS[name], "missing": "indicator"}},
        "target": {"sold": [0, 80]},
    }
    if name == "hour by weekday":
        tables["interactions"] = {"shape of the day": ["when.hour", "when.weekday"]}
    return PublicTable(tables)


def draw(rows):
    data = sales(rows, 0)
    week = MONDAY + np.arange(24 * 7).astype("timedelta64[h]")
    figure, panels = plt.subplots(3, 1, figsize=(9, 7), sharex=True, sharey=True)
    for axes, name in zip(panels, SCHEMAS, strict=True):
        table = table_for(name)
        model = DPQuantileRegressor(
            epsilon=1.0,
            feature_bounds=table.feature_bounds,
            row_norm=table.row_norm,
            target_bounds=table.target_bounds,
        ).fit(table.transform(data), table.target(data))
        predicted = model.predict(table.transform({"when": week.astype(str).tolist()}))
        error = np.abs(predicted - law(week)).mean()
        axes.plot(law(week), color="0.6", label="law")
        axes.plot(predicted, color="#1b6ca8", label="private")
        width = len(table.get_feature_names_out())
        axes.set_title(f"{name}: {width} columns, mean error {error:.1f}", loc="left", fontsize=10)
    panels[0].legend(frameon=False, ncols=2)
    panels[1].set_ylabel("median sales per hour")
    panels[2].set_xticks(np.arange(7) * 24, ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
    figure.tight_layout()


draw(ROWS)
plt.show()
