"""Effects of columns: those of the model's own predictions, with the covariance that was
released.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.pipeline import make_pipeline

from dpconvex import (
    DPLinearRegression,
    DPLogisticRegression,
    DPQuantileRegressor,
    load_model,
    save_model,
)
from dpconvex.preprocessing import PublicTable
from dpconvex.reports.effects import column_effects

SCHEMA = {
    "features": {"y": [-8, 8], "age": {"bounds": [17, 90], "knots": [40, 60]}, "hours": [1, 99]},
    "categories": {"job": {"values": ["clerk", "driver", "farmer"], "other": True}},
    "flags": {"married": ["no", "yes"]},
    "dates": {"day": ["weekday"]},
}
FORMULA = "y ~ age + hours + I(hours ** 2) + C(job, Treatment('driver')) + married + day"


def rows(n=6000):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(17, 90, n),
            "hours": rng.uniform(1, 99, n),
            "job": rng.choice(["clerk", "driver", "farmer", "pilot"], n),
            "married": rng.choice(["yes", "no"], n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D"),
        }
    )
    frame["y"] = (
        -(((frame.age - 50) / 20) ** 2)
        + 0.02 * frame.hours
        + (frame.job == "farmer")
        + rng.normal(0, 1, n)
    )
    return frame


@pytest.fixture(scope="module")
def fitted():
    frame = rows()
    table = PublicTable(SCHEMA, formula=FORMULA)
    settings = {"feature_bounds": table.feature_bounds, "target_bounds": table.target_bounds}
    model = DPLinearRegression(epsilon=20.0, inference=True, random_state=0, **settings)
    return make_pipeline(table, model).fit(frame, table.target(frame))


def test_an_effect_is_a_difference_of_predictions(fitted):
    """Of two rows that differ in one column alone, whatever terms the column has."""
    effects = {effect.name: effect for effect in column_effects(fitted[-1], fitted[0])}
    assert list(effects) == ["age", "hours", "married", "job", "day.weekday"]
    base = {"age": 17.0, "hours": 50.0, "job": "driver", "married": "no", "day": "2024-01-01"}

    def predicted(**changed):
        return fitted.predict(pd.DataFrame([{**base, **changed}]))[0]

    for name, cells in (("age", [17.0, 33.0, 60.0, 90.0]), ("married", ["no", "yes"])):
        effect = effects[name]
        points = cells if name == "age" else effect.points
        found = np.interp(points, effect.points, effect.values)
        np.testing.assert_allclose(
            found, [predicted(**{name: cell}) - predicted() for cell in cells], atol=1e-9
        )
    hours = effects["hours"]
    age = effects["age"]
    spans = [predicted(hours=hour) - predicted(hours=1.0) for hour in hours.points]
    np.testing.assert_allclose(hours.values - hours.values[0], spans, atol=1e-9)
    assert hours.values.mean() == pytest.approx(0)
    assert age.values[0] == age.low[0] == age.high[0] == 0  # the reference
    job = effects["job"]
    assert job.labels == ("clerk", "driver", "farmer", "(other)")
    found = [predicted(job=word) - predicted() for word in ("clerk", "driver", "farmer", "pilot")]
    np.testing.assert_allclose(job.values, found, atol=1e-9)
    week = effects["day.weekday"]
    assert week.labels[0] == "Mon"
    assert week.values[0] == 0
    assert week.values[3] == pytest.approx(predicted(day="2024-01-04") - predicted())


def test_intervals_use_the_released_covariance(fitted):
    model = fitted[-1]
    names = list(fitted[0].get_feature_names_out())
    covariance = model.released_["covariance"]
    effects = {effect.name: effect for effect in column_effects(model, fitted[0], level=0.9)}
    margin = norm.ppf(0.95)
    ends = model.confidence_interval(0.9)
    farmer = names.index("job=farmer")
    np.testing.assert_allclose([effects["job"].low[2], effects["job"].high[2]], ends[farmer])
    at = np.array([names.index("hours"), names.index("I(hours ** 2)")])
    grid = effects["hours"].points
    step = np.array([99 - grid.mean(), 99**2 - (grid**2).mean()])
    std = np.sqrt(step @ covariance[np.ix_(at, at)] @ step)
    half = (effects["hours"].high[-1] - effects["hours"].low[-1]) / 2
    assert half == pytest.approx(margin * std)


def test_without_a_reference_effects_are_from_the_mean_and_without_inference_have_no_interval():
    frame = rows(1000)
    table = PublicTable({**SCHEMA, "features": {"age": [17, 90]}, "target": {"y": [-8, 8]}})
    frame["label"] = (frame.y > 0).astype(int)
    model = DPLogisticRegression(feature_bounds=table.feature_bounds, classes=[0, 1]).fit(
        table.transform(frame), frame.label
    )
    effects = {effect.name: effect for effect in column_effects(model, table)}
    assert effects["job"].values.sum() == pytest.approx(0)
    assert np.isnan(effects["job"].low).all()
    assert effects["married"].values[0] == 0


def test_drawn_and_refused(fitted, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    axes = fitted[-1].plot_effects(fitted[0])
    assert [ax.get_title() for ax in axes] == ["age", "hours", "married", "job", "day.weekday"]
    save_model(fitted, tmp_path / "model.json")
    assert len(load_model(tmp_path / "model.json").plot_effects()) == 5
    with pytest.raises(ValueError, match="needs the schema"):
        fitted[-1].plot_effects()
    with pytest.raises(ValueError, match="Got others"):
        fitted[-1].plot_effects({"features": {"age": [0, 1]}})
    several = DPQuantileRegressor((0.2, 0.8), feature_bounds=(0, 1)).fit(
        np.random.default_rng(0).random((200, 1)), np.ones(200)
    )
    with pytest.raises(ValueError, match="one vector of coefficients"):
        several.plot_effects({"features": {"x0": [0, 1]}})
