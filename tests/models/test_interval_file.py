"""Files of prediction intervals: what is loaded is what was fitted, and what does not follow is
refused.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from dpconvex import DPLinearRegression, DPQuantileRegressor, ModelFileError, load_model, save_model
from dpconvex.intervals import DPConformal

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (2000, 2))
y = X.sum(axis=1) + rng.normal(0, 0.2, 2000)
BOUNDS = {"feature_bounds": (0, 1), "target_bounds": (-1, 3)}


def saved(intervals, path, **fitting):
    save_model(intervals.fit(X, y, **fitting), path)
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("estimator", "own", "fitting"),
    [
        (DPQuantileRegressor(0.5, epsilon=2.0, **BOUNDS), {}, {}),
        (DPQuantileRegressor((0.1, 0.9), **BOUNDS), {"mu": 0.8}, {}),
        (DPLinearRegression(delta=0, epsilon=1.0, **BOUNDS), {"score_bound": 5.0}, {}),
        (DPLinearRegression(**BOUNDS), {"epsilon": 3.0}, {"groups": np.arange(2000) // 2}),
    ],
)
def test_what_is_loaded_is_what_was_fitted(estimator, own, fitting, tmp_path):
    intervals = DPConformal(estimator, coverage=0.7, **own)
    saved(intervals, tmp_path / "model.json", **fitting)
    loaded = load_model(tmp_path / "model.json")
    assert loaded.certificate_ == intervals.certificate_
    assert loaded.threshold_ == intervals.threshold_
    np.testing.assert_array_equal(loaded.predict_interval(X), intervals.predict_interval(X))
    groups = {"groups": True} if fitting else {}
    assert loaded.certify(1000, 2, **groups) == intervals.certify(1000, 2, **groups)
    save_model(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("intervals") / "model.json"
    return saved(
        DPConformal(DPQuantileRegressor(0.5, **BOUNDS), coverage=0.7, calibration_share=0.5), path
    )


def forged(plain, *place, value):
    copy = json.loads(json.dumps(plain))
    inner = copy
    for name in place[:-1]:
        inner = inner[name]
    assert inner[place[-1]] != value
    inner[place[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("threshold",), 0.123),
        (("threshold",), "0.1"),
        (("threshold",), True),
        (("calibration",), {}),
        (("calibration", "scale"), 0.1),
        (("calibration", "n_samples"), 900),
        (("calibration", "releases"), 1),
        (("calibration", "statistic"), "mean"),
        (("calibration", "mechanism"), "score"),
        (("calibration", "sampler"), "seeded: not private"),
        (("calibration", "unit"), "one person"),
        (("calibration", "neighbors"), "add_or_remove_one"),
        (("calibration", "guarantee"), {"kind": "gaussian", "mu": 9.0}),
        (("calibration", "guarantee"), None),
        (("parameters",), {}),
        (("parameters", "coverage"), 0.9999),
        (("parameters", "coverage"), [1]),
        (("parameters", "calibration_share"), 0.1),
        (("parameters", "score_bound"), 1e-9),
        (("parameters", "epsilon"), 0.5),
        (("model",), None),
        (("model", "certificate"), {}),
        (("model", "format"), "dpconvex-intervals-1"),
    ],
)
def test_what_does_not_follow_is_refused(plain, place, value, tmp_path):
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(forged(plain, *place, value=value)))
    with pytest.raises(ModelFileError):
        load_model(path)


def test_the_honest_file_is_accepted_and_others_fields_are_not(plain, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(plain))
    load_model(path)
    path.write_text(json.dumps({**plain, "more": 1}))
    with pytest.raises(ModelFileError, match="fields"):
        load_model(path)


def test_unfitted_intervals_cannot_be_saved(tmp_path):
    with pytest.raises(ModelFileError, match="not fitted"):
        save_model(DPConformal(DPLinearRegression()), tmp_path / "model.json")
