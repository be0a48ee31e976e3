"""Behaviour of DPQuantileRegressor: units, certificates, tables, scikit-learn tools, hard data."""

import json
import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpconvex import DPQuantileRegressor
from dpconvex.privacy import Certificate

NOMINAL = {"neighbors": "add_or_remove_one", "nominal_samples": 250}
MECHANISMS = ["objective", "output", "gradient"]
KERNELS = ["logistic", "gaussian", "uniform", "epanechnikov", "laplacian"]
BOUNDED = {"feature_bounds": (-4.0, 4.0), "target_bounds": (-10.0, 10.0)}


def make_data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 1.0 + X @ [2.0, -1.0] + 0.5 * rng.normal(size=n)


X, y = make_data()


def smoothed_minimiser(X, y, quantile, bandwidth, alpha, columns, target):
    """Minimise the documented objective with scipy; return it in the user's units.

    Written from the documentation alone: logistic kernel, mapped rows with a constant in front,
    mapped targets, weights ``min(1, U/||x||)``, a penalty on every coefficient.
    """
    shift, scale, low, high, row_norm = columns
    target_shift, target_scale = target
    mapped = (np.clip(X, low, high) - shift) * scale
    weights = np.minimum(1.0, row_norm / np.maximum(np.linalg.norm(mapped, axis=1), 1e-300))
    rows = np.column_stack([np.ones(len(X)), mapped])
    t = (y - target_shift) * target_scale
    h = bandwidth * target_scale

    def function(theta):
        u = t - rows @ theta
        loss = (quantile - 1) * u + h * np.logaddexp(0.0, u / h)
        slope = (quantile - 1) + 1 / (1 + np.exp(-np.clip(u / h, -700, 700)))
        gradient = -(weights * slope) @ rows / len(t) + alpha * theta
        return weights @ loss / len(t) + alpha / 2 * theta @ theta, gradient

    options = {"maxiter": 10_000, "ftol": 1e-16, "gtol": 1e-12}
    theta = minimize(function, np.zeros(3), jac=True, method="L-BFGS-B", options=options).x
    coef = theta[1:] * scale / target_scale
    return coef, (theta[0] - theta[1:] @ (scale * shift)) / target_scale + target_shift


# name: raw columns as (multiplier, offset), bounds, then the map that the documentation promises
UNITS = {
    "bounds hold zero": ((1.0, 0.0), ((-4, -4), (4, 4)), (0, 0), (1 / 4, 1 / 4)),
    "one-sided": ((1.0, 4.0), ((0, 0), (8, 8)), (0, 0), (1 / 8, 1 / 8)),
    "bounds without zero": ((1.0, 50.0), ((46, 46), (54, 54)), (50, 50), (1 / 4, 1 / 4)),
    "per column": (
        (np.array([1e3, 1e-3]), 0.0),
        ((-4e3, -4e-3), (2e3, 4e-3)),
        (0, 0),
        (1 / 4e3, 250),
    ),
    "mixed": ((1.0, np.array([0.0, 20.0])), ((-4, 16), (4, 24)), (0, 20), (1 / 4, 1 / 4)),
    "clipping": ((1.0, 0.0), ((-1, -1), (1, 1)), (0, 0), (1, 1)),
}


@pytest.mark.parametrize("mechanism", ["objective", "output"])
@pytest.mark.parametrize("row_norm", [None, 0.4])
@pytest.mark.parametrize("name", UNITS)
def test_a_huge_budget_gives_the_smoothed_minimiser_in_user_units(name, row_norm, mechanism):
    (factor, offset), bounds, shift, scale = UNITS[name]
    raw = X * factor + offset
    raw_y = 1e4 + 100.0 * y
    model = DPQuantileRegressor(
        0.8,
        epsilon=1e12,
        feature_bounds=bounds,
        target_bounds=(9e3, 1.1e4),
        row_norm=row_norm,
        alpha=1e-2,
        bandwidth=40.0,
        mechanism=mechanism,
    ).fit(raw, raw_y)
    columns = (*map(np.array, (shift, scale, *bounds)), row_norm or math.sqrt(2.0))
    coef, intercept = smoothed_minimiser(raw, raw_y, 0.8, 40.0, 1e-2, columns, (1e4, 1e-3))
    # Noise at this epsilon is far below the tolerance.
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-3)
    np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-3)
    np.testing.assert_allclose(model.predict(raw), raw @ coef + intercept, rtol=1e-3)


def test_without_bounds_rows_are_shortened_and_units_kept():
    settings = {"epsilon": 1e12, "alpha": 1e-2, "bandwidth": 0.5, "mechanism": "objective"}
    model = DPQuantileRegressor(0.5, **settings).fit(X, y)
    short = X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    columns = (np.zeros(2), np.ones(2), np.full(2, -np.inf), np.full(2, np.inf), np.inf)
    coef, intercept = smoothed_minimiser(short, y, 0.5, 0.5, 1e-2, columns, (0.0, 1.0))
    np.testing.assert_allclose([*model.coef_, model.intercept_], [*coef, intercept], rtol=1e-3)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "auto"])
def test_untuned_defaults_learn(mechanism):
    X, y = make_data(20_000)
    model = DPQuantileRegressor(0.9, **BOUNDED, mechanism=mechanism, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.6
    # One draw of noise moves the share below output perturbation's line by 0.07, of the others' by
    # far less.
    spread = 0.2 if mechanism == "output" else 0.05
    assert np.mean(y <= model.predict(X)) == pytest.approx(0.9, abs=spread)


@pytest.mark.parametrize("relation", [{}, NOMINAL], ids=["replace", "add or remove"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        BOUNDED,
        {"delta": 0.0},
        {"kernel": "uniform", "alpha": 3.0, "mechanism": "objective"},
        {**BOUNDED, "mechanism": "objective"},
        {**BOUNDED, "mechanism": "output"},
        {**BOUNDED, "mechanism": "gradient"},
    ],
)
def test_certify_tells_the_certificate_of_a_fit(relation, options):
    model = DPQuantileRegressor(0.3, epsilon=2.0, **options, **relation)
    before = model.certify(len(X), 2)
    before.verify()
    model.fit(X, y)
    assert model.certificate_.to_json() == before.to_json()
    Certificate.from_json(model.certificate_.to_json()).verify()
    json.loads(before.to_json())
    if relation:  # the number of rows is private: nothing may depend on it
        assert model.certify(7, 2).to_json() == before.to_json()
        assert clone(model).fit(X[:20], y[:20]).certificate_.to_json() == before.to_json()
    else:
        assert model.certify(7, 2).to_json() != before.to_json()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_certificate_does_not_depend_on_data(mechanism):
    model = DPQuantileRegressor(**BOUNDED, mechanism=mechanism)
    other = clone(model).fit(np.zeros_like(X), np.full_like(y, 1e9))
    assert other.certificate_.to_json() == model.fit(X, y).certificate_.to_json()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_seeds_repeat_the_fit_and_are_confessed(mechanism):
    model = DPQuantileRegressor(**BOUNDED, mechanism=mechanism, random_state=3)
    first = clone(model).fit(X, y)
    second = clone(model).fit(X, y)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.intercept_ == second.intercept_
    assert first.certificate_.sampler == "seeded: not private"
    assert "Not private" in repr(first.summary())
    other = clone(model).set_params(random_state=4).fit(X, y)
    assert not np.array_equal(first.coef_, other.coef_)
    for state in (np.random.default_rng(0), np.random.RandomState(0)):
        seeded = clone(model).set_params(random_state=state).fit(X, y)
        assert seeded.certificate_.sampler == "seeded: not private"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_a_seed_no_two_fits_agree(mechanism):
    model = DPQuantileRegressor(**BOUNDED, mechanism=mechanism)
    first = clone(model).fit(X, y)
    second = clone(model).fit(X, y)
    assert first.intercept_ != second.intercept_  # coefficients of a constant are 0 in both
    assert first.certificate_.sampler in ("floating-point", "exact")


def test_numpy_global_state_is_neither_used_nor_changed():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = DPQuantileRegressor(**BOUNDED).fit(X, y)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    assert first.intercept_ != DPQuantileRegressor(**BOUNDED).fit(X, y).intercept_


def walk(value, seen):
    """Yield every object reachable through attributes, containers and arrays."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple, set)):
        parts = list(value)
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    for part in parts:
        yield from walk(part, seen)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("relation", [{}, NOMINAL], ids=["replace", "add or remove"])
def test_nothing_private_is_stored(relation, mechanism):
    model = DPQuantileRegressor(**BOUNDED, **relation, mechanism=mechanism)
    model.fit(pd.DataFrame(X, columns=["a", "b"]), y)
    fitted = {name for name in vars(model) if name not in model.get_params()}
    released = {"coef_", "intercept_", "certificate_", "released_"}
    assert fitted == released | {"n_features_in_", "feature_names_in_"}
    for value in walk({name: vars(model)[name] for name in fitted}, set()):
        assert np.size(value) < len(X)
        if relation and isinstance(value, (int, np.integer)):
            assert value != len(X)
    # Public settings and released numbers are all there is: two fits on other data differ in
    # what was released only, and noise is in all of that.
    other = clone(model).fit(pd.DataFrame(-X, columns=["a", "b"]), 5 * y)
    for name in fitted - {"coef_", "intercept_", "released_"}:
        assert repr(vars(model)[name]) == repr(vars(other)[name])
    assert set(model.released_) <= {"coordinates", "residual_scale", "kept_share"}
    if mechanism != "gradient":
        assert model.released_ == {}


def test_fit_leaves_parameters_and_data_alone():
    low = np.array([-4.0, -4.0])
    high = np.array([4.0, 4.0])
    model = DPQuantileRegressor(feature_bounds=(low, high), target_bounds=[-10, 10])
    before = model.get_params()
    kept_X = X.copy()
    kept_y = y.copy()
    model.fit(X, y)
    after = model.get_params()
    assert all(after[name] is before[name] for name in before)
    np.testing.assert_array_equal(X, kept_X)
    np.testing.assert_array_equal(y, kept_y)
    np.testing.assert_array_equal(low, [-4.0, -4.0])


def test_refitting_forgets_the_first_fit():
    model = DPQuantileRegressor(**BOUNDED, random_state=0).fit(X, y)
    model.fit(X[:, :1], y)
    fresh = DPQuantileRegressor(**BOUNDED, random_state=0).fit(X[:, :1], y)
    np.testing.assert_array_equal(model.coef_, fresh.coef_)
    assert model.n_features_in_ == 1


FRAMES = {
    "pandas": lambda table: pd.DataFrame(table, columns=["age", "income"]),
    "polars": lambda table: pl.DataFrame(table, schema=["age", "income"]),
}


@pytest.mark.parametrize("library", FRAMES)
def test_dataframes(library):
    frame = FRAMES[library](X)
    series = {"pandas": pd.Series, "polars": pl.Series}[library](y)
    model = DPQuantileRegressor(**BOUNDED, random_state=0)
    fitted = clone(model).fit(frame, series)
    plain = clone(model).fit(X, y)
    np.testing.assert_array_equal(fitted.coef_, plain.coef_)
    assert list(fitted.feature_names_in_) == ["age", "income"]
    np.testing.assert_allclose(fitted.predict(frame), plain.predict(X), rtol=1e-9)
    summary = repr(fitted.summary())
    assert "age" in summary
    assert "income" in summary
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame[["income", "age"]])
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(FRAMES[library](X)[["age"]])
    with pytest.raises(ValueError, match="3 features"):
        plain.predict(np.zeros((2, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, bool, np.uint8])
def test_number_types_agree_with_doubles(dtype):
    table = (4 * X).astype(dtype)
    target = (2 * y).astype(dtype)
    model = DPQuantileRegressor(**BOUNDED, random_state=0)
    fitted = clone(model).fit(table, target)
    same = clone(model).fit(table.astype(np.float64), target.astype(np.float64))
    np.testing.assert_allclose(fitted.coef_, same.coef_, rtol=1e-5)
    assert fitted.coef_.dtype == np.float64


def test_memory_layout_does_not_matter():
    model = DPQuantileRegressor(**BOUNDED, random_state=0)
    plain = clone(model).fit(X, y)
    readonly = X.copy()
    readonly.flags.writeable = False
    for table in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], readonly):
        np.testing.assert_allclose(clone(model).fit(table, y).coef_, plain.coef_, rtol=1e-9)


def test_summary_is_readable():
    settings = {"epsilon": 0.5, "delta": 1e-7, "mechanism": "objective", **BOUNDED}
    model = DPQuantileRegressor(0.9, **settings).fit(X, y)
    text = repr(model.summary())
    for part in (
        "DPQuantileRegressor",
        "epsilon = 0.5",
        "delta = 1e-07",
        "replace one",
        "objective",
        "quantile",
        "0.9",
        "bandwidth",
        "(intercept)",
        "x0",
        "x1",
        f"{model.coef_[1]:.6g}",
        "may be published",
    ):
        assert part in text
    assert max(map(len, text.splitlines())) <= 100


def test_pipeline_clone_pickle():
    shift = FunctionTransformer(lambda table: table - 1.0)  # public: the same for every data set
    pipeline = make_pipeline(shift, DPQuantileRegressor(**BOUNDED, random_state=0))
    assert pipeline.fit(X, y).predict(X).shape == (len(X),)
    model = DPQuantileRegressor(0.9, **BOUNDED, kernel="gaussian", coef_bound=2.0)
    assert clone(model).get_params() == model.get_params()
    model.fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert copy.certificate_ == model.certificate_
    copy.certificate_.verify()
    assert repr(copy.summary()) == repr(model.summary())


def test_grid_search_and_cross_validation():
    model = DPQuantileRegressor(**BOUNDED, epsilon=20.0, random_state=0)
    search = GridSearchCV(model, {"quantile": [0.2, 0.5], "bandwidth": [0.5, None]}, cv=3).fit(X, y)
    assert set(search.best_params_) == {"quantile", "bandwidth"}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    scores = cross_val_score(model, X, y, cv=4)
    assert scores.shape == (4,)
    assert scores.max() <= 1.0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("quantile", [0.01, 0.5, 0.99])
def test_kernels_and_extreme_quantiles(kernel, quantile):
    X, y = make_data(2_000)
    settings = {**BOUNDED, "epsilon": 50.0, "kernel": kernel, "mechanism": "objective"}
    settings["random_state"] = 0
    model = DPQuantileRegressor(quantile, **settings).fit(X, y)
    model.certificate_.verify()
    assert np.mean(y <= model.predict(X)) == pytest.approx(quantile, abs=0.03)


def test_mirrored_data_and_quantile_give_the_mirrored_minimiser():
    settings = {
        **BOUNDED,
        "epsilon": 1e12,
        "alpha": 1e-2,
        "bandwidth": 0.3,
        "mechanism": "objective",
    }
    upper = DPQuantileRegressor(0.9, **settings).fit(X, y)
    lower = DPQuantileRegressor(0.1, **settings).fit(X, -y)
    np.testing.assert_allclose(upper.coef_, -lower.coef_, rtol=1e-3)
    np.testing.assert_allclose(upper.intercept_, -lower.intercept_, rtol=1e-3)


HARD = {
    "huge targets": (X, 1e8 * y, {"feature_bounds": (-4, 4), "target_bounds": (-1e9, 1e9)}),
    "far targets": (X, 1e8 + y, {"feature_bounds": (-4, 4), "target_bounds": (1e8 - 10, 1e8 + 10)}),
    "duplicate columns": (X[:, [0, 0, 1]], y, BOUNDED),
    "constant column": (np.column_stack([X, np.full(len(X), 3.0)]), y, BOUNDED),
    "zero column": (np.column_stack([X, np.zeros(len(X))]), y, BOUNDED),
    "all zero": (np.zeros_like(X), y, BOUNDED),
    "constant target": (X, np.full_like(y, 2.0), BOUNDED),
    "more columns than rows": (np.tile(X, (1, 20))[:7], y[:7], BOUNDED),
    "one row": (X[:1], y[:1], BOUNDED),
    "one column": (X[:, :1], y, BOUNDED),
    "beyond the bounds": (1e300 * X, 1e300 * y, BOUNDED),
    "beyond, no bounds": (1e300 * X, 1e300 * y, {}),
    "tiny values": (1e-300 * X, 1e-300 * y, {}),
    "two extreme targets": (X, np.where(y > 1, 1.7e308, -1.7e308), BOUNDED),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_hard_data(name, mechanism):
    X, y, settings = HARD[name]
    model = DPQuantileRegressor(0.7, **settings, mechanism=mechanism).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert math.isfinite(model.intercept_)
    model.certificate_.verify()


def test_huge_targets_are_learnt_in_their_units():
    settings = {"feature_bounds": (-4, 4), "target_bounds": (-1e9, 1e9), "random_state": 0}
    model = DPQuantileRegressor(0.5, epsilon=100.0, mechanism="objective", **settings).fit(
        X, 1e8 * y
    )
    np.testing.assert_allclose(model.coef_, [2e8, -1e8], rtol=0.2)
    assert model.score(X, 1e8 * y) > 0.6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_coef_bound_limits_the_mapped_coefficients(mechanism):
    model = DPQuantileRegressor(epsilon=1e4, **BOUNDED, coef_bound=0.1)
    model.set_params(mechanism=mechanism).fit(X, y)
    slopes = model.coef_ * 4.0 / 10.0  # features and targets in mapped units
    constant = model.intercept_ / 10.0
    assert math.hypot(constant, *slopes) == pytest.approx(0.1, rel=1e-6)


def test_without_intercept():
    model = DPQuantileRegressor(epsilon=1e6, feature_bounds=(-4, 4), fit_intercept=False).fit(X, y)
    assert model.intercept_ == 0.0
    assert model.certificate_.bounds.dimension == 2
    # Bounds of the target that lie elsewhere bring back no constant.
    settings = {"feature_bounds": (-4, 4), "target_bounds": (0.0, 4.0), "fit_intercept": False}
    assert DPQuantileRegressor(**settings).fit(X, y).intercept_ == 0.0


def test_verbose_prints_public_facts_only(capsys):
    model = DPQuantileRegressor(**BOUNDED, **NOMINAL, verbose=1)
    model.fit(X, y)
    first = capsys.readouterr().out
    model.fit(-X[:50], y[:50])
    assert first
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("mechanism", "term"),
    [("objective", "objective"), ("output", "release"), ("gradient", "gradients")],
)
def test_noise_shrinks_with_the_budget(mechanism, term):
    def stds(n, **budget):
        settings = {**BOUNDED, "alpha": 0.5, "bandwidth": 2.0, **budget}
        model = DPQuantileRegressor(**settings, mechanism=mechanism)
        return model.certify(n, 2).noise[term]["std"]

    assert stds(1000, epsilon=2.0) < stds(1000, epsilon=1.0) < stds(1000, epsilon=0.5)
    assert stds(1000, delta=1e-3) < stds(1000, delta=1e-9)
    assert stds(1000, neighbors="add_or_remove_one", nominal_samples=1000) < stds(1000)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("bandwidth", [None, 1.0, 8.0])
def test_a_larger_penalty_shrinks_more(mechanism, bandwidth):
    def size(alpha):
        settings = {**BOUNDED, "bandwidth": bandwidth, "mechanism": mechanism, "random_state": 0}
        model = DPQuantileRegressor(epsilon=20.0, alpha=alpha, **settings).fit(X, y)
        return float(np.linalg.norm(model.coef_))

    assert 5.0 > size(0.1) > size(1.0) > size(10.0) > size(1e3)
    assert size(1e3) < 0.01


@pytest.mark.parametrize("rows", [10**3, 10**5, 10**7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0, 1e5])
def test_default_noise_of_the_release_stays_small(rows, epsilon):
    # What pays for stopping the solver must not drown the fit: coefficients are of order 1.
    model = DPQuantileRegressor(0.9, epsilon=epsilon, **BOUNDED, mechanism="objective")
    certificate = model.certify(rows, 5)
    assert certificate.noise["release"]["std"] < 0.02


@pytest.mark.parametrize("settings", [{}, {"delta": 0}, {"bandwidth": 1e-3}])
@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_a_nominal_count_far_too_small_is_no_reason_to_fail(mechanism, settings):
    # The number of rows is private then, so a failure that depends on it would tell something.
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (60_000, 2))
    model = DPQuantileRegressor(
        epsilon=1.0,
        feature_bounds=(0, 1),
        target_bounds=(0, 4),
        neighbors="add_or_remove_one",
        nominal_samples=20,
        mechanism=mechanism,
        **settings,
    )
    model.fit(X, X @ [1.0, 2.0] + rng.normal(size=len(X)))
    assert np.isfinite(model.coef_).all()


def test_without_feature_bounds_a_descent_weights_rows():
    """Rows beyond the influence bound keep their margins: a fit on shortened rows has other
    coefficients.
    """
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 4))
    targets = rows @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.3 * rng.standard_normal(20_000)
    model = DPQuantileRegressor(row_norm=1.0, target_bounds=(-10, 10), mu=20.0, random_state=0)
    model.fit(rows, targets)
    assert np.allclose(model.coef_, [1.0, -1.0, 0.5, 0.0], atol=0.03)
    assert model.certificate_.bounds.max_norm == pytest.approx(2.0**41)
    shortened = model.set_params(mechanism="objective", mu=None, epsilon=1.0).certify(20_000, 4)
    assert shortened.bounds.max_norm == 1.0
