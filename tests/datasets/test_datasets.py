"""Real data is what it says, bounds hold it, and the generators' best coefficients are the best."""

import os
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from dpconvex import datasets
from dpconvex.datasets.dataset import SHA256, data_path

FOLDER = Path(
    os.environ.get("DPCONVEX_DATA")
    or Path(__file__).resolve().parents[2].parent / "shared" / "data"
)
needs_data = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no data folder: set DPCONVEX_DATA to the folder of the data files"
)

# loader, options, shape, test rows, regression
REAL = [
    ("load_bike", {}, (17379, 12), None, True),
    ("load_bike", {"one_hot": True}, (17379, 7 + 4 + 12 + 24 + 7 + 4), None, True),
    ("load_census_wages", {}, (29501, 3), None, True),
    ("load_census_wages", {"one_hot": True}, (29501, 54), None, True),
    ("load_engel", {}, (235, 1), None, True),
    ("load_restaurant", {}, (765, 8), None, True),
    ("load_restaurant", {"target": "steak", "one_hot": True}, (765, 27), None, True),
    ("load_restaurant_lamb", {}, (751, 5), None, True),
    ("load_restaurant_lamb", {"rows": "open"}, (738, 5), None, True),
    ("load_restaurant_lamb", {"rows": "nonzero"}, (735, 5), None, True),
    ("load_a9a", {}, (32561, 123), 16281, False),
    ("load_adult", {}, (32561, 104), 16281, False),
    ("load_ijcnn1", {}, (49990, 22), 91701, False),
    ("load_satimage", {}, (4435, 36), 2000, False),
    ("load_satimage", {"scaled": True, "binary": False}, (4435, 36), None, False),
    ("load_http", {}, (567498, 3), None, False),
    ("load_skin", {}, (245057, 3), None, False),
    ("load_bank_campaign", {}, (41188, 62), None, False),
    ("load_covtype", {}, (581012, 54), None, False),
]


@needs_data
@pytest.mark.parametrize(("loader", "options", "shape", "test_rows", "regression"), REAL)
def test_real_data_has_its_shape_and_lies_within_round_bounds(
    loader, options, shape, test_rows, regression
):
    data = getattr(datasets, loader)(**options, folder=FOLDER)
    assert data.X.shape == shape
    assert data.y.shape == (shape[0],)
    assert len(data.feature_names) == len(set(data.feature_names)) == shape[1]
    assert np.isfinite(data.X).all()
    assert (data.X_test is None) == (test_rows is None)
    parts = [data.X]
    if test_rows is not None:
        assert data.X_test.shape == (test_rows, shape[1])
        assert set(np.unique(data.y_test)) == set(np.unique(data.y))
        parts.append(data.X_test)
    low, high = data.feature_bounds
    assert low.shape == high.shape == (shape[1],)
    assert (low < high).all()
    for X in parts:
        clipped = ((low > X) | (high < X)).mean(axis=0)
        assert clipped.max() < 0.01
        # No column is squeezed into a corner: bounds that wide would waste the budget.
        used = (X.max(axis=0) - X.min(axis=0)) / (high - low)
        assert used[X.std(axis=0) > 0].min() > 0.2
    assert (data.target_bounds is not None) == regression
    if regression:
        assert np.mean((data.y < data.target_bounds[0]) | (data.y > data.target_bounds[1])) < 0.01
    else:
        assert len(np.unique(data.y)) in (2, 6)
    assert repr(shape) in repr(data)
    with pytest.raises(FrozenInstanceError):
        data.X = None


@needs_data
def test_leaks_of_the_target_are_left_out():
    bike = datasets.load_bike(folder=FOLDER)
    assert not {"casual", "registered", "cnt", "instant", "dteday"} & set(bike.feature_names)
    assert bike.y.sum() == 3292679
    wages = datasets.load_census_wages(folder=FOLDER)
    assert not {"lweekinc", "weekinc"} & set(wages.feature_names)
    assert np.log(wages.y) == pytest.approx(wages.raw["lweekinc"])


@needs_data
def test_indicators_cover_every_category():
    adult = datasets.load_adult(folder=FOLDER)
    train = adult.raw["split"] == "train"
    for column, levels in adult.categories.items():
        block = [k for k, name in enumerate(adult.feature_names) if name.startswith(column + "=")]
        assert len(block) == len(levels)
        # Only a missing value has no indicator: a category absent from the list would too.
        known = adult.raw[column][train] != ""
        assert np.array_equal(adult.X[:, block].sum(axis=1) == 1, known)
    bike = datasets.load_bike(one_hot=True, folder=FOLDER)
    assert (bike.X[:, 7:].sum(axis=1) == 5).all()
    wages = datasets.load_census_wages(one_hot=True, folder=FOLDER)
    assert (wages.X[:, 3:].sum(axis=1) == 1).all()
    restaurant = datasets.load_restaurant(one_hot=True, folder=FOLDER)
    assert (restaurant.X[:, 8:].sum(axis=1) == 2).all()
    covtype = datasets.load_covtype(binary=False, folder=FOLDER)
    assert (covtype.X[:, 10:14].sum(axis=1) == 1).all()
    assert (covtype.X[:, 14:].sum(axis=1) == 1).all()
    assert np.bincount(covtype.y)[1:].tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]


@needs_data
def test_skin_is_back_in_whole_channel_values():
    skin = datasets.load_skin(folder=FOLDER)
    for column in skin.X.T:
        assert np.array_equal(np.unique(column), np.arange(256))
    with np.load(FOLDER / "skin.npz") as archive:
        for stored, column in zip(archive["X"].T, skin.X.T, strict=True):
            assert np.corrcoef(stored, column)[0, 1] == pytest.approx(1.0, abs=1e-12)


@needs_data
@pytest.mark.parametrize("filename", sorted(SHA256))
def test_checksums(filename):
    assert data_path(filename, FOLDER).name == filename


def test_an_absent_file_is_explained(tmp_path, monkeypatch):
    monkeypatch.delenv("DPCONVEX_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"engel\.csv.*DPCONVEX_DATA is not set"):
        datasets.load_engel()
    monkeypatch.setenv("DPCONVEX_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"'engel\.csv' is not in '{tmp_path}'"):
        datasets.load_engel()


def test_another_version_of_a_file_is_refused(tmp_path):
    (tmp_path / "engel.csv").write_text("income,foodexp\n1,2\n")
    with pytest.raises(ValueError, match="SHA-256"):
        datasets.load_engel(folder=tmp_path)


@needs_data
def test_the_folder_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DPCONVEX_DATA", str(FOLDER))
    assert datasets.load_engel().X.shape == (235, 1)


@needs_data
def test_wrong_options_are_explained():
    with pytest.raises(ValueError, match="'target' parameter of load_restaurant"):
        datasets.load_restaurant("soup", folder=FOLDER)
    with pytest.raises(ValueError, match="'rows' parameter of load_restaurant_lamb"):
        datasets.load_restaurant_lamb("closed", folder=FOLDER)


# Generators

PINBALL = [
    (datasets.make_quantile_regression, {"d": 3, "error": "exogenous"}),
    (datasets.make_quantile_regression, {"d": 3, "error": "endogenous"}),
    (datasets.make_quantile_regression, {"d": 51, "error": "exogenous"}),
    (datasets.make_quantile_regression, {"d": 51, "error": "endogenous"}),
    (datasets.make_quantile_regression, {"d": 3, "error": "endogenous", "quantile": 0.2}),
    (datasets.make_newsvendor, {"error": "normal", "quantile": 0.25}),
    (datasets.make_newsvendor, {"error": "t3", "quantile": 0.75}),
    (datasets.make_newsvendor, {"error": "mixture", "quantile": 0.75}),
    (datasets.make_newsvendor, {"error": "t3", "p": 9}),
]
STRUCTURED = [
    (datasets.make_structured_median, {}),
    (datasets.make_structured_median, {"d": 20}),
    (datasets.make_structured_median, {"fixed": True}),
    (datasets.make_piecewise_linear, {}),
    (
        datasets.make_piecewise_linear,
        {"d": 10, "slopes": [[1, 2, 0], [-1, -2, 0], [0, 0, 0]], "offsets": [0.5, 0.5, 1]},
    ),
]


def per_record_loss(sample, theta):
    """The loss of every record, straight from its definition."""
    theta = np.asarray(theta)
    if sample.X.ndim == 2:
        u = sample.y - theta[0] - sample.X @ theta[1:]
        return np.maximum(sample.population.quantile * u, (sample.population.quantile - 1) * u)
    residual = sample.y - sample.X @ theta
    if hasattr(sample.population, "slopes"):
        slopes, offsets = np.array(sample.population.slopes), np.array(sample.population.offsets)
        return (residual @ slopes.T + offsets).max(axis=1)
    return np.abs(residual).sum(axis=1)


@pytest.mark.parametrize(("make", "options"), PINBALL + STRUCTURED)
def test_the_risk_is_the_mean_loss_of_a_large_sample(make, options):
    """Six standard errors: a false alarm has probability 2e-9; catches an error of about 1 %."""
    sample = make(100_000, rng=0, **options)
    star = sample.theta_star
    for theta in (star, star + np.random.default_rng(1).normal(size=len(star)) * 0.5):
        losses = per_record_loss(sample, theta)
        error = losses.std() / np.sqrt(len(losses))
        assert abs(losses.mean() - sample.risk(theta)) <= 6 * error + 1e-4
        assert error < 0.01 * losses.mean()


@pytest.mark.parametrize(("make", "options"), PINBALL + STRUCTURED)
def test_theta_star_has_no_slope_and_nothing_is_better(make, options):
    sample = make(10, rng=0, **options)
    star = sample.theta_star
    step = 1e-4
    slopes = [
        (sample.risk(star + step * e) - sample.risk(star - step * e)) / (2 * step)
        for e in np.eye(len(star))
    ]
    assert np.abs(slopes).max() < 2e-6
    rng = np.random.default_rng(2)
    for scale in (0.01, 0.1, 1.0):
        assert sample.excess_risk(star + scale * rng.normal(size=len(star))) > 0
    assert sample.excess_risk(star) == 0
    assert sample.relative_excess_risk(star + 0.1) == pytest.approx(
        sample.excess_risk(star + 0.1) / sample.risk(star)
    )


@pytest.mark.parametrize(("make", "options"), PINBALL[:3] + PINBALL[6:8])
def test_theta_star_agrees_with_a_numerical_minimum(make, options):
    sample = make(10, rng=0, **options)
    found = minimize(sample.risk, np.zeros(len(sample.theta_star)), method="BFGS")
    assert found.x == pytest.approx(sample.theta_star, abs=2e-3)


def test_quantile_features_follow_the_study():
    sample = datasets.make_quantile_regression(50_000, rng=3)
    assert np.linalg.norm(sample.X, axis=1).max() <= 10
    assert sample.X.std(axis=0) == pytest.approx([2.0, 3.0], rel=0.05)
    wide = datasets.make_quantile_regression(20_000, 51, rng=3)
    assert wide.X.shape == (20_000, 50)
    assert wide.X.var(axis=0).mean() == pytest.approx(50**-0.5, rel=0.02)
    assert wide.theta_star[[1, 50]] == pytest.approx([-2 + 7 / 50, 5])
    assert wide.theta_star[0] == pytest.approx(10 - 2 + 1.5732, abs=1e-4)


def test_newsvendor_features_follow_the_study():
    sample = datasets.make_newsvendor(100_000, rng=4, quantile=0.75)
    assert np.cov(sample.X.T) == pytest.approx(
        0.5 ** np.abs(np.subtract.outer(range(4), range(4))), abs=0.03
    )
    assert sample.theta_star == pytest.approx([1.5 + 0.67449, 1, -2.5, -1.5, 3], abs=1e-5)


def test_structured_records_follow_the_study():
    sample = datasets.make_structured_median(50_000, 10, rng=5)
    mean = [[1, 0.5, 0, 0, 1], [0.5, 0.5, 0, 0, 1], [0, 0, -0.5, 0, 1]]
    assert sample.X.mean(axis=0) == pytest.approx(np.tile(mean, 2), abs=0.04)
    assert sample.X.std(axis=0) == pytest.approx(np.ones((3, 10)), abs=0.03)
    fixed = datasets.make_structured_median(10, rng=5, fixed=True)
    assert fixed.X[3] @ fixed.theta_star == pytest.approx([1.25, 1.0, 0.5])


def test_samples_repeat_with_the_seed_and_survive_pickling():
    one = datasets.make_newsvendor(20, rng=6)
    two = datasets.make_newsvendor(20, rng=np.random.default_rng(6))
    assert np.array_equal(one.X, two.X)
    assert np.array_equal(one.y, two.y)
    again = pickle.loads(pickle.dumps(one))
    assert again.risk(np.zeros(5)) == one.risk(np.zeros(5))


@pytest.mark.parametrize(
    ("make", "arguments", "name"),
    [
        (datasets.make_quantile_regression, {"n": 0}, "n"),
        (datasets.make_quantile_regression, {"n": 5, "d": 2}, "d"),
        (datasets.make_quantile_regression, {"n": 5, "error": "t3"}, "error"),
        (datasets.make_quantile_regression, {"n": 5, "quantile": 1.0}, "quantile"),
        (datasets.make_newsvendor, {"n": 5.5}, "n"),
        (datasets.make_newsvendor, {"n": 5, "p": 1}, "p"),
        (datasets.make_newsvendor, {"n": 5, "error": "exogenous"}, "error"),
        (datasets.make_structured_median, {"n": 5, "d": 7}, "d"),
        (datasets.make_piecewise_linear, {"n": 5, "slopes": [[1, 0, 0]]}, "slopes"),
        (datasets.make_piecewise_linear, {"n": 5, "slopes": [1, 0, 0]}, "slopes"),
        (datasets.make_piecewise_linear, {"n": 5, "offsets": [1.0]}, "offsets"),
    ],
)
def test_wrong_arguments_are_explained(make, arguments, name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {make.__name__} must"):
        make(**arguments)


def test_risk_checks_the_number_of_coefficients():
    for sample in (datasets.make_newsvendor(5, rng=0), datasets.make_structured_median(5, rng=0)):
        with pytest.raises(ValueError, match="'theta' parameter of risk"):
            sample.risk(np.zeros(4))
