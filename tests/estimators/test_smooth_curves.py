"""Curves with a public penalty on second differences: smoother, better, and no further question
to the rows.
"""

import numpy as np
import pandas as pd
import pytest

from dpconvex import DPLinearRegression, DPPoissonRegressor, load_model, save_model
from dpconvex.fit.gradient_rounds import second_difference_penalty
from dpconvex.inputs import InputError
from dpconvex.preprocessing import PublicTable

KNOTS = list(range(5, 100, 5))


def table(smooth, **more):
    age = {"bounds": [0, 100], "knots": KNOTS, "smooth": smooth, **more}
    return PublicTable({"features": {"x": [-1, 1], "age": age}, "target": {"y": [-3, 3]}})


def rows(seed, n=4000):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, n), "age": rng.uniform(0, 100, n)})
    return frame, np.sin(frame["age"] / 15) + 0.5 * frame["x"] + rng.normal(0, 0.5, n)


def fitted(smooth, seed):
    public = table(smooth)
    (frame, y) = rows(seed)
    facts = {
        "feature_bounds": public.feature_bounds,
        "target_bounds": (-3, 3),
        "smooth": public.smooth,
    }
    return public, DPLinearRegression(epsilon=1.0, random_state=seed, **facts).fit(
        public.fit_transform(frame), y
    )


def test_the_penalty_is_that_of_second_differences():
    penalty = second_difference_penalty([(1, 4, 2.0)], lead=1, size=7)
    theta = np.random.default_rng(0).normal(size=7)
    curve = theta[2:6]
    assert theta @ penalty @ theta == pytest.approx(
        2.0 * np.sum((curve[:-2] - 2 * curve[1:-1] + curve[2:]) ** 2)
    )
    line = np.concatenate([np.zeros(2), np.arange(4.0), np.zeros(1)])
    assert line @ penalty @ line == pytest.approx(0)


def test_smooth_curves_are_nearer_to_the_truth_and_cost_the_same():
    """Means of five fits: the error of the curve falls by a third or more; the certificate's
    noise is the same.
    """
    ages = pd.DataFrame({"x": np.zeros(200), "age": np.linspace(0, 100, 200)})
    errors = {}
    noise = {}
    bends = {}
    for smooth in (0.0, 0.01):
        found = [fitted(smooth, seed) for seed in range(5)]
        errors[smooth] = np.mean(
            [(m.predict(t.transform(ages)) - np.sin(ages["age"] / 15)) ** 2 for t, m in found]
        )
        bends[smooth] = np.mean([np.abs(np.diff(m.coef_[1:], 2)).mean() for _, m in found])
        noise[smooth] = found[0][1].certificate_.noise
    assert errors[0.01] < 0.67 * errors[0.0]
    assert bends[0.01] < bends[0.0]
    assert noise[0.01] == noise[0.0]


def test_certificates_and_files_know_the_curves(tmp_path):
    public, model = fitted(0.01, 0)
    assert public.smooth == [(1, 21, 0.01)]
    assert model.certificate_.parameters["gradient"]["smooth"] == [[1, 21, 0.01]]
    model.certificate_.verify()
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert table(0.01).smooth == table(0.01).fit(rows(0)[0]).smooth


@pytest.mark.parametrize(
    ("smooth", "more", "message"),
    [
        ([(0, 2, 1.0)], {}, "at least 3"),
        ([(3, 20, 1.0)], {}, "beyond 5 columns"),
        ([(0, 3, -1.0)], {}, "at least 0"),
        (3.0, {}, "first column, number of columns, strength"),
        ([(0, 3, 1.0)], {"delta": 0.0}, "other mechanisms"),
        ([(0, 3, 1.0)], {"inference": True, "epsilon": 9.0}, "must be None with inference=True"),
    ],
)
def test_what_is_no_curve_is_refused(smooth, more, message):
    with pytest.raises(ValueError, match=message):
        DPPoissonRegressor(target_bounds=(0, 9), smooth=smooth, **more).certify(100_000, 5)


@pytest.mark.parametrize("wrong", [{"smooth": -1}, {"smooth": "much"}, {"smooth": 1, "knots": []}])
def test_schemas_refuse_what_is_no_strength(wrong):
    age = {"bounds": [0, 100], "knots": KNOTS, **wrong}
    with pytest.raises(InputError, match="smooth = a number of at least 0"):
        PublicTable({"features": {"age": age}}).fit(pd.DataFrame({"age": [1.0]}))
