"""Bad settings and bad data: one clear error each, before budget is spent, quoting no data
value.
"""

import datetime
import traceback

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse

from dpconvex import DPQuantileRegressor
from dpconvex.mechanisms import ObjectivePerturbation
from dpconvex.privacy import Ledger

# A number and a text that appear nowhere but in the data.
MARKER = 77123.4375
TEXT = "secret77123"
rng = np.random.default_rng(0)
X = rng.normal(size=(6, 2))
X[2, 1] = MARKER
y = rng.normal(size=6)
y[3] = MARKER
SETTINGS = {"feature_bounds": (-3.0, 3.0), "target_bounds": (-3.0, 3.0)}
NOMINAL = {"neighbors": "add_or_remove_one"}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "privacy.db", epsilon=10.0, delta=1e-3)


def refusal(ledger, X, y, **settings):
    """Return the error of a fit, which must cost nothing and show no data."""
    model = DPQuantileRegressor(**{**SETTINGS, "ledger": ledger, **settings})
    with pytest.raises((ValueError, TypeError)) as caught:
        model.fit(X, y)
    assert ledger.entries() == []
    assert not hasattr(model, "coef_")
    # The chain of causes counts too: error trackers print it.
    shown = "".join(traceback.format_exception(caught.value)[-1:]) + str(caught.value)
    for link in (caught.value.__cause__, caught.value.__context__):
        shown += str(link)
    assert "77123" not in shown
    assert "7.71" not in shown  # the marker in the style of numpy
    return caught.value


BAD_SETTINGS = {
    "target bounds of products": (
        {"target_bounds": ([0, 0], [9, 9])},
        "Got 2 lows and 2 highs instead. One pair serves all products",
    ),
    "epsilon zero": ({"epsilon": 0}, "'epsilon'"),
    "epsilon negative": ({"epsilon": -1.0}, "'epsilon'"),
    "epsilon infinite": ({"epsilon": np.inf}, "'epsilon'"),
    "epsilon nan": ({"epsilon": np.nan}, "'epsilon'"),
    "epsilon text": ({"epsilon": "1"}, "'epsilon'"),
    "epsilon bool": ({"epsilon": True}, "'epsilon'"),
    "delta one": ({"delta": 1.0}, "'delta'"),
    "delta negative": ({"delta": -1e-6}, "'delta'"),
    "mu with epsilon": ({"mu": 0.5, "epsilon": 1.0}, "'mu'"),
    "mu with delta": ({"mu": 0.5, "delta": 0.0}, "'mu'"),
    "mu zero": ({"mu": 0.0}, "'mu'"),
    "quantile zero": ({"quantile": 0.0}, "'quantile'"),
    "quantile one": ({"quantile": 1}, "'quantile'"),
    "quantile array": ({"quantile": np.array([0.9, 0.1])}, "'quantile'"),
    "feature bounds reversed": ({"feature_bounds": (3.0, -3.0)}, "'feature_bounds'"),
    "feature bounds equal": ({"feature_bounds": ([0, 1], [1, 1])}, "'feature_bounds'"),
    "feature bounds too many": ({"feature_bounds": ([0] * 3, [1] * 3)}, "'feature_bounds'"),
    "feature bounds too few": ({"feature_bounds": ([0], [1])}, "'feature_bounds'"),
    "feature bounds no pair": ({"feature_bounds": 3.0}, "'feature_bounds'"),
    "feature bounds infinite": ({"feature_bounds": (-np.inf, 3.0)}, "'feature_bounds'"),
    "feature bounds nan": ({"feature_bounds": (0.0, np.nan)}, "'feature_bounds'"),
    "feature bounds tiny": ({"feature_bounds": (0.0, 1e-320)}, "'feature_bounds'"),
    "feature bounds text": ({"feature_bounds": "01"}, "'feature_bounds'"),
    "feature bounds of text": ({"feature_bounds": ("0", "1")}, "'feature_bounds'"),
    "feature bounds of text objects": (
        {"feature_bounds": (np.array(["0", "0"], dtype=object), 1)},
        "'feature_bounds'",
    ),
    "feature bounds set": ({"feature_bounds": {0, 1}}, "'feature_bounds'"),
    "feature bounds dictionary": ({"feature_bounds": {0: 1, 1: 2}}, "'feature_bounds'"),
    "feature bounds table": (
        {"feature_bounds": pd.DataFrame({0: [1], 1: [2]})},
        "'feature_bounds'",
    ),
    "feature bounds huge integer": ({"feature_bounds": (0, 10**400)}, "'feature_bounds'"),
    "feature bounds masked": ({"feature_bounds": (np.ma.array(0.0), 1)}, "'feature_bounds'"),
    "feature bounds far": ({"feature_bounds": (0, 1e101)}, "'feature_bounds'"),
    "target bounds far": ({"target_bounds": (-3e150, 5e150)}, "'target_bounds'"),
    "target bounds narrow": ({"target_bounds": (0, 1e-101)}, "'target_bounds'"),
    "target bounds text": ({"target_bounds": "01"}, "'target_bounds'"),
    "mu tiny": ({"mu": 1e-300}, "'mu'"),
    "mu huge": ({"mu": 1e300}, "'mu'"),
    "epsilon tiny": ({"epsilon": 1e-300}, "'epsilon'"),
    "epsilon huge": ({"epsilon": 1e300}, "'epsilon'"),
    "alpha tiny": ({"alpha": 1e-100}, "'alpha'"),
    "alpha huge": ({"alpha": 1e300}, "'alpha'"),
    "bandwidth tiny": ({"bandwidth": 1e-300}, "'bandwidth'"),
    "bandwidth huge": ({"bandwidth": 1e300}, "'bandwidth'"),
    "row norm tiny": ({"row_norm": 1e-300}, "'row_norm'"),
    "row norm huge": ({"feature_bounds": None, "row_norm": 1e300}, "'row_norm'"),
    "coef bound huge": ({"coef_bound": 1e300}, "'coef_bound'"),
    "quantile tiny": ({"quantile": 1e-300}, "'quantile'"),
    "target bounds reversed": ({"target_bounds": (3.0, -3.0)}, "'target_bounds'"),
    "target bounds equal": ({"target_bounds": (3.0, 3.0)}, "'target_bounds'"),
    "target bounds arrays": ({"target_bounds": ([0, 0], [1, 1])}, "'target_bounds'"),
    "target bounds too wide": ({"target_bounds": (-1e308, 1e308)}, "'target_bounds'"),
    "bandwidth zero": ({"bandwidth": 0.0}, "'bandwidth'"),
    "bandwidth negative": ({"bandwidth": -1.0}, "'bandwidth'"),
    "alpha zero": ({"alpha": 0.0}, "'alpha'"),
    "alpha text": ({"alpha": "0.1"}, "'alpha'"),
    "row norm zero": ({"row_norm": 0.0}, "'row_norm'"),
    "row norm infinite": ({"row_norm": np.inf}, "'row_norm'"),
    "coef bound zero": ({"coef_bound": 0.0}, "'coef_bound'"),
    "intercept text": ({"fit_intercept": "yes"}, "'fit_intercept'"),
    "kernel unknown": ({"kernel": "boxcar"}, "'kernel'"),
    "kernel number": ({"kernel": 3}, "'kernel'"),
    "mechanism unknown": ({"mechanism": "magic"}, "'mechanism'"),
    "mechanism number": ({"mechanism": 3}, "'mechanism'"),
    "neighbors unknown": ({"neighbors": "swap"}, "'neighbors'"),
    "neighbors list": ({"neighbors": ["replace_one"]}, "'neighbors'"),
    "nominal samples missing": ({**NOMINAL}, "'nominal_samples'"),
    "nominal samples zero": ({**NOMINAL, "nominal_samples": 0}, "'nominal_samples'"),
    "nominal samples half": ({**NOMINAL, "nominal_samples": 9.5}, "'nominal_samples'"),
    "nominal samples idle": ({"nominal_samples": 10}, "'nominal_samples'"),
    "random state text": ({"random_state": "abc"}, "'random_state'"),
    "random state negative": ({"random_state": -1}, "'random_state'"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_bad_setting(name, ledger):
    settings, named = BAD_SETTINGS[name]
    message = str(refusal(ledger, X, y, **settings))
    assert named in message
    assert " must be " in message
    assert "Got " in message


@pytest.mark.parametrize("pairs", [[(0, 1), (0, 2)], [(0, 5), (10, 20)], [[0, 1], [0, 2]]])
def test_one_pair_per_column_is_not_misread(pairs, ledger):
    message = str(refusal(ledger, X, y, feature_bounds=pairs))
    assert "(lows, highs), not one pair per column" in message


@pytest.mark.parametrize(
    "settings",
    [
        {"mu": 1e-9},
        {"mu": 1e14},
        {"epsilon": 1e-9},
        {"epsilon": 1e14},
        {"alpha": 1e-14},
        {"alpha": 1e14},
        {"feature_bounds": None, "row_norm": 1e14},
        {"quantile": 2e-9},
        {"target_bounds": (-3e99, 5e99), "bandwidth": 1e98},
        {"target_bounds": (-3e-99, 5e-99), "bandwidth": 1e-100},
    ],
)
def test_the_ends_of_what_is_allowed_work(settings):
    model = DPQuantileRegressor(**{**SETTINGS, **settings})
    scale = abs(model.target_bounds[1])
    assert np.isfinite(model.fit(X, y * scale).coef_).all()


def test_bad_settings_are_refused_without_data_too():
    for settings, named in BAD_SETTINGS.values():
        if "random_state" in settings:  # decides no certificate
            continue
        with pytest.raises((ValueError, TypeError), match=named):
            DPQuantileRegressor(**{**SETTINGS, **settings}).certify(6, 2)


@pytest.mark.parametrize("shape", [(0, 2), (6, 0), (-1, 2), (6.0, 2), (True, 2)])
def test_certify_refuses_impossible_shapes(shape):
    with pytest.raises(ValueError, match=r"must be (a positive integer below|an integer from 1)"):
        DPQuantileRegressor().certify(*shape)


@pytest.mark.parametrize("given", [{}, {"alpha": 1.0}, {"alpha": 1.0, "bandwidth": 1.0}])
@pytest.mark.parametrize("mechanism", ["objective", ObjectivePerturbation()])
def test_gaussian_dp_where_it_is_not_offered(given, mechanism, ledger):
    message = str(refusal(ledger, X, y, mu=0.5, mechanism=mechanism, **given))
    assert "PureDP and ApproxDP" in message
    assert "mu=0.5" in message
    assert "epsilon" in message


def test_curvature_beyond_the_budget(ledger):
    settings = {"mechanism": "objective", "alpha": 1e-9}
    message = str(refusal(ledger, X, y, **settings, bandwidth=0.01))
    assert "Use a larger alpha, a larger bandwidth or a larger epsilon" in message
    assert "larger alpha" in str(refusal(ledger, X, y, **settings))


def changed(array, place, value):
    copy = array.copy()
    copy[place] = value
    return copy


def objects(value):
    return changed(X.astype(object), (0, 0), value)


column = X[:, 0]
# name: X, y, words of the message
BAD_DATA = {
    "nan in X": (changed(X, (0, 0), np.nan), y, "X given to DPQuantileRegressor must be finite"),
    "infinity in X": (changed(X, (0, 0), np.inf), y, "must be finite"),
    "nan in y": (X, changed(y, 0, np.nan), "y given to DPQuantileRegressor must be finite"),
    "infinity in y": (X, changed(y, 0, -np.inf), "must be finite"),
    "none in objects": (objects(None), y, "must be finite"),
    "null in pandas": (pd.DataFrame({"a": [None, 1, 2, 3, 4, MARKER]}), y, "must be finite"),
    "null in polars": (pl.DataFrame({"a": [None, 1.0, 2.0, 3.0, 4.0, MARKER]}), y, "finite"),
    "no rows": (X[:0], y[:0], "0 sample"),
    "no columns": (X[:, :0], y, "0 feature"),
    "one target missing": (X, y[:-1], "inconsistent numbers of samples"),
    "one row missing": (X[:-1], y, "inconsistent numbers of samples"),
    "vector for X": (X[:, 1], y, r"shape (n_samples, n_features)"),
    "number for X": (np.array(MARKER), y, r"shape (n_samples, n_features)"),
    "cube for X": (X[None], y, "dim 3"),
    "ragged X": ([[MARKER, 2.0], [3.0]], y[:2], "table"),
    "table for y": (X, np.column_stack([y, y]), "1d array"),
    "number for y": (X, MARKER, "1d array"),
    "no y": (X, None, "requires y"),
    "text in objects": (objects(TEXT), y, "must be numbers"),
    "text array": (np.full((6, 2), TEXT), y, "must be numbers"),
    "text list": ([[TEXT, "b"]] * 6, y, "must be numbers"),
    "text target": (X, np.full(6, TEXT), "must be numbers"),
    "text target list": (X, [TEXT] * 6, "must be numbers"),
    "text target objects": (X, np.array([TEXT] * 6, dtype=object), "must be numbers"),
    "text target pandas": (X, pd.Series([TEXT] * 6), "must be numbers"),
    "text target polars": (X, pl.Series([TEXT] * 6), "must be numbers"),
    "bytes target": (X, np.array([TEXT.encode()] * 6), "must be numbers"),
    "text in pandas": (pd.DataFrame({"city": [TEXT] * 6, "b": column}), y, "['city']"),
    "categories in pandas": (pd.DataFrame({"city": pd.Categorical([TEXT] * 6)}), y, "['city']"),
    "text in polars": (pl.DataFrame({"city": [TEXT] * 6, "b": column}), y, "['city']"),
    "lists in polars": (pl.DataFrame({"city": [[1.0, MARKER]] * 6}), y, "['city']"),
    "dates in pandas": (pd.DataFrame({"day": pd.date_range("2077-12-03", periods=6)}), y, "day"),
    "dates": (np.full((6, 2), np.datetime64("2077-12-03")), y, "dates"),
    "date target": (X, np.full(6, np.datetime64("2077-12-03")), "dates"),
    "date target objects": (X, [datetime.date(2077, 12, 3)] * 6, "days since"),
    "null in pandas objects": (pd.DataFrame({"a": objects(pd.NA)[:, 0]}), y, "must be finite"),
    "missing target objects": (X, changed(y.astype(object), 0, pd.NA), "y given to"),
    "structured X": (np.zeros(6, [("a", float), ("b", float)]), y, "a structured array"),
    "structured target": (X, np.zeros(6, [("a", float)]), "a structured array"),
    "masked X": (np.ma.masked_greater(X, 100), y, "X.filled(value)"),
    "masked target": (X, np.ma.masked_greater(y, 100), "y.filled(value)"),
    "masked without a mask": (np.ma.array(X), y, "X.filled(value)"),
    "complex X": (X + 1j, y, "real numbers"),
    "complex y": (X, y + 1j, "real numbers"),
    "integer beyond floats": (
        objects(77123 * 10**400),
        y,
        "X given to DPQuantileRegressor must be numbers that",
    ),
    "target beyond floats": (X, changed(y.astype(object), 0, 77123 * 10**400), "y given to"),
    "twice the same name": (pd.DataFrame(X, columns=["a", "a"]), y, "different names"),
    "sparse missing": (sparse.csr_matrix(changed(X, 0, np.nan)), y, "must be finite"),
    "sparse infinite": (sparse.csc_array(changed(X, 0, np.inf)), y, "must be finite"),
    "sparse entries that add up to infinity": (
        sparse.coo_array(([1e308, 1e308], ([0, 0], [1, 1])), shape=(6, 2)),
        y,
        "must be finite",
    ),
    "sparse complex": (sparse.csr_matrix(X + 1j), y, "real numbers"),
    "sparse target": (X, sparse.csr_matrix(y[:, None]), "dense"),
    "lazy frame": (pl.DataFrame({"a": column}).lazy(), y, "collect"),
    "dictionary": ({"a": MARKER}, y, "Got a dict instead"),
    "dictionary in objects": (
        objects({"a": MARKER}),
        y,
        "X given to DPQuantileRegressor must be numbers",
    ),
    "set": ({MARKER, 2.0}, y, "Got a set instead"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data(name, ledger):
    features, target, words = BAD_DATA[name]
    message = str(refusal(ledger, features, target))
    assert words in message
    assert "2077" not in message
    assert message.startswith(("The ", "Found ", "Complex ", "y should ", "This "))
    if features is X:  # what is advised for columns of text is of no use for a target
        assert "OneHotEncoder" not in message
    if "finite" in words:  # a number of rows that depends on the data is not public
        assert "Drop such rows only with neighbors='add_or_remove_one'" in message


@pytest.mark.parametrize("where", ["X", "y"])
def test_values_are_checked_even_if_scikit_learn_is_told_not_to(where, ledger):
    data = {"X": X, "y": y}
    data[where] = changed(data[where], 0, np.nan)
    with sklearn.config_context(assume_finite=True):
        message = str(refusal(ledger, **data))
        assert f"The {where} given to DPQuantileRegressor must be finite" in message
        model = DPQuantileRegressor(**SETTINGS, alpha=10.0, bandwidth=1.0).fit(X, y)
        with pytest.raises(ValueError, match="must be finite"):
            model.predict(changed(X, 0, np.nan))


UNREADABLE = [
    name
    for name, (features, _, words) in BAD_DATA.items()
    if features is not X
    and not name.startswith("null in")
    and words not in ("inconsistent numbers of samples", "0 feature")
]


@pytest.mark.parametrize("name", UNREADABLE)
def test_bad_data_in_predict(name):
    model = DPQuantileRegressor(**SETTINGS, alpha=10.0, bandwidth=1.0).fit(np.ones((6, 2)), y)
    with pytest.raises((ValueError, TypeError)) as caught:
        model.predict(BAD_DATA[name][0])
    assert "77123" not in str(caught.value)


def test_a_crash_after_the_charge_costs_budget_and_stores_nothing(ledger):
    class Crash(ObjectivePerturbation):
        def release(self, *arguments):
            raise KeyboardInterrupt

    model = DPQuantileRegressor(**SETTINGS, ledger=ledger, mechanism=Crash())
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(ledger.entries()) == 1
    assert not hasattr(model, "coef_")
