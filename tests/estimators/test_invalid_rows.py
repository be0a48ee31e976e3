"""With invalid_rows="ignore" nothing but the paid release depends on values; without rows a
private number fits.
"""

import warnings

import numpy as np
import pytest
from all_fits import (
    ALL,
    AUCS,
    CLASSIFICATIONS,
    LABELS,
    MATRICES,
    REGRESSIONS,
    TABLES,
    training_data,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex import (
    DPLogisticRegression,
    DPMedian,
    DPQuantileRegressor,
    DPTiltedClassifier,
    load_model,
    save_model,
)
from dpconvex.core import memory_rows
from dpconvex.core import summation as addition
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.estimators import linear as private_linear
from dpconvex.objectives.empirical import EmpiricalSlope
from dpconvex.planning.cost_warning import PrivacyCostWarning

PROFILE = settings(max_examples=12, derandomize=True, deadline=None)
ODD = [np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 1e300, 1e140, 5e-324, -5e-324, 1e-160, 0.0, 0.4]
# Estimators whose relation may be add-or-remove-one.
PRIVATE_NUMBER = [
    name
    for name in [*REGRESSIONS, *CLASSIFICATIONS, *MATRICES]
    if not any(word in name for word in ("Tilted", "TopRank", "cost", "sgd", "phased"))
]


def fitted(name, X, y, **more):
    return ALL[name]().set_params(invalid_rows="ignore", random_state=3, **more).fit(X, y)


def same(first, second, table=False):
    """Check that two fits are one, but for what the second one states of tables."""
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(first.intercept_, second.intercept_)
    if not table:
        assert first.certificate_ == second.certificate_
    else:
        assert second.certificate_ == second.certify(24, 2, table=table)
        assert "assumed public" in second.certificate_.parameters["records"]
        second.certificate_.verify()


def spoiled(name, X, y, how):
    """Return data whose rows 2, 5 and 11 are invalid in one of several ways."""
    X = X.copy()
    y = np.array(y, dtype=float)
    for row, value in zip((2, 5, 11), (np.nan, np.inf, -np.inf), strict=True):
        if how == "features":
            X[row].flat[0] = value
        elif how == "target":
            y[row] = value
        else:
            X[row] = value
            y[row] = np.nan
    if how == "target" and name in TABLES and name not in REGRESSIONS:
        y[[2, 5]] = 7, 0.5  # labels that were not declared
        X[5] = 1e308
    return X, y


@pytest.mark.parametrize("name", ALL)
def test_what_an_invalid_row_holds_does_not_matter(name):
    X, y = training_data(name)
    first = fitted(name, *spoiled(name, X, y, "features"))
    for how in ("target", "both"):
        same(first, fitted(name, *spoiled(name, X, y, how)))


@pytest.mark.parametrize("name", ALL)
def test_invalid_rows_weigh_nothing_in_minimisers(name, monkeypatch):
    """Their loss is 0 and the divisor is the public number of rows; what is counted is in
    ``test_ignored_rows``.
    """
    X, y = training_data(name)
    first = fitted(name, *spoiled(name, X, y, "both"))
    invalid = [2, 5, 11]
    if name in MATRICES:  # zeros are a record like any other
        X[invalid] = 0.0
        y[invalid] = 0.0
        same(first, fitted(name, X, y))
        return
    if "mass" in first.certificate_.noise:
        return

    def fixed(X, target, plan, owner, *more):
        """Features and target in the middle of their bounds, and weight 0."""
        X = X.copy()
        target = target.copy()
        X[invalid] = plan.row_map.shift
        target[invalid] = plan.target_shift
        rows = MemoryRows(X, target, plan.row_map, plan.target_shift, plan.target_scale)
        weights = rows.weights
        weights[invalid] = 0.0
        return MemoryRows(
            X, target, plan.row_map, plan.target_shift, plan.target_scale, weights=weights
        )

    monkeypatch.setattr(private_linear, "map_training_rows", fixed)
    monkeypatch.setattr(MemoryRows, "own_weights", False)  # a release would refuse them
    same(first, fitted(name, X, y))


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
@PROFILE
def test_no_exception_and_no_warning_depends_on_values(name, data):
    X, y = training_data(name, rows=9)
    seed = data.draw(st.integers(0, 2**31))
    share = data.draw(st.sampled_from([0.05, 0.4, 1.0]))
    values = data.draw(st.lists(st.one_of(st.sampled_from(ODD), st.floats()), min_size=1))
    rng = np.random.default_rng(seed)
    X = np.where(rng.random(X.shape) < share, rng.choice(values, X.shape), X)
    if name in CLASSIFICATIONS or name in AUCS:
        values = [0, 1, 2, 0.5, np.nan, np.inf, -1e300]
    y = np.where(rng.random(y.shape) < share, rng.choice(values, y.shape), y)
    more = {}
    if name in TABLES and data.draw(st.booleans()):
        more["feature_bounds"] = None
    if name in PRIVATE_NUMBER and data.draw(st.booleans()):
        more = {**more, "neighbors": "add_or_remove_one", "nominal_samples": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrivacyCostWarning)  # from public facts
        model = fitted(name, X, y, **more)
        prediction = model.predict(training_data(name, rows=3)[0])
    assert np.isfinite(model.coef_).all()
    assert len(prediction) == 3


@pytest.mark.parametrize("name", ALL)
def test_all_rows_may_be_invalid(name):
    X, y = training_data(name)
    model = fitted(name, np.full_like(X, np.nan), y)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("ignored", ["error", "ignore"])
@pytest.mark.parametrize("name", PRIVATE_NUMBER)
def test_no_rows_fit_where_their_number_is_private(name, ignored):
    """One row fitted and none raised: whether the only record was there could be seen."""
    X, y = training_data(name, columns=3)
    model = ALL[name]().set_params(
        neighbors="add_or_remove_one", nominal_samples=20, invalid_rows=ignored
    )
    none = model.fit(X[:0], y[:0]).certificate_
    one = model.fit(X[:1], y[:1]).certificate_
    assert none == one == model.certify(99, 3, *([2] if name in MATRICES else []))


def test_frames_without_rows():
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    model = DPQuantileRegressor(
        neighbors="add_or_remove_one", nominal_samples=20, feature_bounds=(0, 1), random_state=0
    )
    expected = model.fit(np.empty((0, 2)), np.empty(0)).coef_
    for frame in (
        pd.DataFrame({"a": [], "b": []}),
        pd.DataFrame(columns=["a", "b"]),  # of objects
        pl.DataFrame({"a": [], "b": []}, schema={"a": pl.Float64, "b": pl.Int8}),
    ):
        for target in (frame["a"], np.empty(0), []):
            assert np.array_equal(model.fit(frame, target).coef_, expected)


def test_poisson_batches_of_no_rows():
    from dpconvex.mechanisms import NoisySGD

    model = DPQuantileRegressor(
        mechanism=NoisySGD(steps=50, sampling="poisson"),
        neighbors="add_or_remove_one",
        nominal_samples=20,
        feature_bounds=(0, 1),
    )
    assert np.isfinite(model.fit(np.empty((0, 2)), np.empty(0)).coef_).all()


@pytest.mark.parametrize("name", ALL)
def test_no_rows_are_refused_where_their_number_is_public(name):
    X, y = training_data(name)
    for ignored in ("error", "ignore"):
        with pytest.raises(ValueError, match=r"0 sample|shape"):
            ALL[name]().set_params(invalid_rows=ignored).fit(X[:0], y[:0])


@pytest.mark.parametrize("name", ["DPQuantileRegressor output", "DPLogisticRegression gradient"])
def test_frames_and_lists(name):
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    X, y = training_data(name)
    X[3, 1] = np.nan
    X[4, 0] = np.inf
    y = y.astype(object)
    y[5] = None
    expected = fitted(name, X, y)
    missing = [[None if value != value else value for value in row] for row in X.tolist()]
    # Bounds of each column say how many cells a list of a record holds.
    same(expected, fitted(name, missing, list(y), feature_bounds=([-1, -1], [1, 1])))
    names = ["a", "b"]
    for frame, target in (
        (pd.DataFrame(X, columns=names), pd.Series(y)),
        # What convert_dtypes() gives, which in pandas 2 tries whether an infinity is a whole
        # number, and warns.
        (pd.DataFrame(X, columns=names).astype("Float64"), pd.Series(y).convert_dtypes()),
        (pd.DataFrame(missing, columns=names).astype(object), pd.Series(y)),
        (pl.DataFrame(missing, schema=names, orient="row"), pl.Series(y.tolist())),
    ):
        model = fitted(name, frame, target)
        same(expected, model, table=True)
        assert list(model.feature_names_in_) == names


def test_labels_of_text():
    X, _ = training_data("DPLogisticRegression output")
    y = np.array(["no", "yes"] * 12, dtype=object)
    model = DPLogisticRegression(
        classes=["no", "yes"], feature_bounds=(-1, 1), invalid_rows="ignore", random_state=0
    )
    constant = model.fit(X[2:], y[2:]).intercept_
    for wrong in (None, np.nan, 1, "maybe", [1, 2], b"no"):
        spoilt = np.empty(24, dtype=object)
        spoilt[:] = y
        spoilt[0] = wrong
        spoilt[1] = "other"
        found = model.fit(X, spoilt)
        assert found.classes_.tolist() == ["no", "yes"]
        # Two invalid rows count in n, which is public, and nowhere else: noise and budget are for
        # so many.
        assert not np.array_equal(found.intercept_, constant)
    with pytest.raises(TypeError, match="kind of its 'classes'"):
        model.fit(X, np.zeros(24))


def test_settings_are_checked():
    X, y = training_data("DPLogisticRegression output")
    with pytest.raises(ValueError, match="'invalid_rows' parameter of DPQuantileRegressor"):
        DPQuantileRegressor(invalid_rows="drop").certify(10, 2)
    with pytest.raises(ValueError, match="'invalid_rows' parameter of DPMedian"):
        DPMedian(invalid_rows=None).certify(10, 2)
    undeclared = DPLogisticRegression(invalid_rows="ignore")
    for call in (lambda: undeclared.certify(10, 2), lambda: undeclared.fit(X, y)):
        with pytest.raises(ValueError, match="'classes' parameter of DPLogisticRegression must"):
            call()


@pytest.mark.parametrize("name", ALL)
def test_the_certificate_says_which(name):
    for ignored, said in (("error", "visible"), ("ignore", "counts nowhere")):
        model = ALL[name]().set_params(invalid_rows=ignored)
        certificate = model.certify(24, 2, *([2] if name in MATRICES else []))
        assert said in certificate.parameters["invalid_rows"]
        certificate.verify()
        if "Robust" not in name and (name in REGRESSIONS or "Logistic" in name):
            assert certificate.bounds.ignored_rows == (ignored == "ignore")
            assert ("ignored_rows" in certificate.bounds.to_dict()) == (ignored == "ignore")


def test_model_files(tmp_path):

    X, y = training_data("DPTiltedClassifier output")
    for ignored in ("error", "ignore"):
        model = DPTiltedClassifier(
            classes=LABELS, feature_bounds=(-1, 1), invalid_rows=ignored, random_state=0
        )
        save_model(model.fit(X, y), tmp_path / "model.json")
        assert load_model(tmp_path / "model.json").invalid_rows == ignored


@pytest.mark.parametrize("name", [*REGRESSIONS, *CLASSIFICATIONS, *AUCS])
def test_predictions_of_huge_rows_are_numbers(name):
    """Infinities of both signs met in one sum: probabilities were NaN."""
    X, y = training_data(name)
    model = ALL[name]().set_params(random_state=0).fit(X, y)
    model.coef_ = np.resize([1e5, -2e5], model.coef_.shape)
    huge = np.array([[1.7e308, 1.7e308], [1.7e308, -1.7e308], [5e-324, 0.0], [1.0, 1.0]])
    for table in (huge, np.clip(huge, -3e38, 3e38).astype(np.float32)):
        predicted = model.predict(table)
        if name in REGRESSIONS:
            assert np.isfinite(predicted).all()
            middle = (
                1 if hasattr(model, "rate_bounds") else 0
            )  # of rates, the logarithm is negative
            assert np.max(predicted[0]) < middle < np.min(predicted[1])
            continue
        decisions = model.decision_function(table)
        assert np.isfinite(decisions).all()
        assert decisions[0] < 0 < decisions[1]
        assert predicted[:2].tolist() == [0, 1]
        if hasattr(model, "predict_proba"):
            assert np.allclose(model.predict_proba(table).sum(axis=1), 1)


def test_a_subnormal_record_goes_unmentioned():
    """DPMedian warned of an overflow when a record's norm was near 0, with invalid_rows="error"
    too.
    """
    A, Y = training_data("DPMedian objective")
    A[3] = 5e-324
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrivacyCostWarning)  # from public facts
        for mechanism in ("objective", "gradient"):
            DPMedian(mechanism=mechanism).fit(A, Y)


def test_selection_refuses_to_ignore():
    """DPSelect checks all rows itself, so candidates cannot promise that the answer is unseen."""
    from dpconvex.selection import DPSelect

    estimator = DPQuantileRegressor(invalid_rows="ignore", target_bounds=(-2, 2))
    with pytest.raises(ValueError, match="'invalid_rows' parameter of the estimator of DPSelect"):
        DPSelect(estimator, {"quantile": [0.4, 0.5]}).certify(100, 2)


def test_three_classes():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30, 2))
    y = rng.integers(0, 3, 30).astype(float)
    y[4] = 9
    model = DPLogisticRegression(
        classes=[0, 1, 2], feature_bounds=(-1, 1), invalid_rows="ignore", random_state=0
    )
    assert model.fit(X, y).coef_.shape == (3, 2)
    X[4] = np.nan
    assert np.array_equal(model.coef_, model.fit(X, y).coef_)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("influence", ["weight", "shorten"])
def test_every_way_to_sum_leaves_void_rows_out(order, influence, monkeypatch):
    """Kept blocks, blocks that are mapped anew, and both compiled kernels."""
    rng = np.random.default_rng(0)
    X = np.asarray(rng.normal(size=(500, 3)) * 2, order=order)
    y = rng.choice([-1.0, 1.0], 500)
    void = rng.random(500) < 0.3
    bounds = {"low": -3.0, "high": 3.0} if influence == "weight" else {}
    row_map = RowMap(3, 1.5, influence=influence, **bounds)
    theta = rng.normal(size=4)
    from dpconvex.losses import Logistic

    slope = EmpiricalSlope(Logistic())
    marked = np.where(void, np.nan, y)
    spoilt = X.copy(order="K")
    spoilt[void] = rng.choice([np.nan, np.inf, -np.inf, 1e308, 0.0], (int(void.sum()), 3))

    def gradients(rows):
        (combined,) = rows.combine(theta, slope)
        (summed,) = rows.sum(lambda x, y, w: (slope(y, x @ theta, w)[0] @ x,))
        return combined, summed

    expected = gradients(MemoryRows(X[~void], y[~void], row_map))[1]
    for kept in (memory_rows.CACHE_BYTES, 0):
        monkeypatch.setattr(memory_rows, "CACHE_BYTES", kept)
        monkeypatch.setattr(addition, "BLOCK_BYTES", 1 << 12)
        rows = MemoryRows(spoilt, marked, row_map)
        assert rows.n_rows == 500
        for found in (*gradients(rows), *gradients(rows.reweighted(lambda x, w: w))):
            assert np.allclose(found, expected, rtol=1e-12, atol=1e-12)
        block, targets, weights = rows.take(np.arange(100, 300)).mapped()
        assert np.array_equal(weights == 0, void[100:300])
        assert not block[weights == 0, 1:].any()
        assert not targets[weights == 0].any()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("where", ["features", "target"])
def test_a_masked_value_is_ignored_in_silence(name, where):
    """Whether numpy warns while it reads depends on one record."""
    X, y = training_data(name)
    X = X.astype(object)
    y = np.array(y, dtype=object)
    if where == "features":
        X[3].flat[0] = np.ma.masked
    else:
        y[(3, *[0] * (y.ndim - 1))] = np.ma.masked
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrivacyCostWarning)  # from public facts
        fitted(name, X, y)
