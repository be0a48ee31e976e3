"""Model files come back as they were, and any that contradicts itself is refused."""

from __future__ import annotations

import copy
import json
import os

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpconvex import (
    DPLinearSVC,
    DPLogisticRegression,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPTiltedClassifier,
    ModelFileError,
    load_model,
    save_model,
)
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.models.model_file import parse_certificate_file, read_model, read_model_json
from dpconvex.privacy import CertificateError
from dpconvex.smoothing import GaussianKernel

X = np.random.default_rng(0).uniform(0, 10, size=(200, 3))
Y = 2 + X @ [1.0, -0.5, 0.25]


def fitted(**settings):
    settings = {"feature_bounds": (0, [10, 10, 12.5]), "target_bounds": (-5, 20), **settings}
    return DPQuantileRegressor(0.8, **{"epsilon": 2.0, **settings}).fit(X, Y)


@pytest.fixture
def model():
    return fitted()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


@pytest.fixture
def content(model, path):
    save_model(model, path)
    return json.loads(path.read_text())


def refused(path, content, match):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ModelFileError, match=match):
        load_model(path)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"delta": 0.0},
        {"alpha": 0.05, "bandwidth": 0.5},
        {"kernel": GaussianKernel()},
        {"feature_bounds": None, "target_bounds": None, "row_norm": 3.0},
        {"neighbors": "add_or_remove_one", "nominal_samples": 250},
        {"fit_intercept": False, "coef_bound": 2.0},
        {"random_state": 0},
        {"feature_bounds": (np.zeros(3), np.full(3, 10.0))},
        {"feature_bounds": (np.float32(0), np.int64(10))},
        {"feature_bounds": (pd.Series([0.0, 0, 0]), pl.Series([10.0, 10, 10]))},
        {"mu": 0.5, "epsilon": None, "mechanism": "gradient"},
    ],
)
def test_a_model_comes_back_exactly(settings, path):
    model = fitted(**settings)
    save_model(model, path)
    loaded = load_model(path)
    assert np.array_equal(loaded.coef_, model.coef_)
    assert loaded.intercept_ == model.intercept_
    assert loaded.certificate_.to_json() == model.certificate_.to_json()
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.random_state is None
    assert repr(loaded.summary()) == repr(model.summary())  # noise terms in the same order too
    again = path.with_name("again.json")
    save_model(loaded, again)
    if "random_state" not in settings:
        assert again.read_text() == path.read_text()


def test_a_loaded_model_can_be_fitted_again(model, path):
    save_model(model, path)
    assert load_model(path).fit(X, Y).certificate_.to_json() == model.certificate_.to_json()


def test_feature_names_are_kept_and_checked(path):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame(X, schema=["a", "b", "c"])
    model = DPQuantileRegressor(feature_bounds=(0, 10)).fit(table, Y)
    save_model(model, path)
    loaded = load_model(path)
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(table.select("b", "a", "c"))
    schema = parse_schema({"features": {name: [0, 10] for name in "abc"}})
    save_model(model, path, schema=schema)
    assert read_model(path).schema == schema
    # A schema finds its columns by name.
    expected = model.predict(table)
    np.testing.assert_array_equal(load_model(path).predict(table.select("b", "a", "c")), expected)


def test_objects_of_the_user_are_omitted_and_the_rest_is_still_checked(path):
    from dpconvex.mechanisms import ObjectivePerturbation

    model = fitted(mechanism=ObjectivePerturbation())
    save_model(model, path)
    content = json.loads(path.read_text())
    assert content["omitted"] == ["mechanism"]
    assert np.array_equal(load_model(path).coef_, model.coef_)
    for name, value in [("epsilon", 1.0), ("row_norm", 1.0), ("target_bounds", [0, 1])]:
        changed = copy.deepcopy(content)
        changed["parameters"][name] = value
        refused(path, changed, "does not follow from its parameters")


def test_files_of_another_version_may_rest_on_other_defaults(content, path):
    content["version"] = "0.0.9"
    path.write_text(json.dumps(content))
    load_model(path)
    content["parameters"]["fit_intercept"] = False
    refused(path, content, "check .*fit_intercept")


def leaves(node, trail=()):
    if isinstance(node, dict):
        for key in node:
            yield from leaves(node[key], (*trail, key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from leaves(item, (*trail, index))
    else:
        yield trail


def changes(value):
    """Return other values of the same kind, and one of another kind."""
    if isinstance(value, bool):
        return [not value, "no"]
    if isinstance(value, (int, float)):
        return [value * 1.5 + 1, value * (1 + 1e-6) + 1e-12, -value - 1, "1", None, True]
    if isinstance(value, str):
        return ["", value + "x", 3, None]
    return [0.5, "auto", []]


def test_every_change_of_parameters_and_certificate_is_refused(content, path):
    trails = [t for t in leaves(content) if t[0] in ("certificate", "parameters")]
    assert len(trails) > 30
    for trail in trails:
        holder = content
        for key in trail[:-1]:
            holder = holder[key]
        value = holder[trail[-1]]
        for other in changes(value):
            if other == value and type(other) is type(value):
                continue
            holder[trail[-1]] = other
            path.write_text(json.dumps(content))
            try:
                load_model(path)
            except ModelFileError:
                continue
            finally:
                holder[trail[-1]] = value
            # The same fit asked for in other words.
            same = {("parameters", "delta"): 1e-6, ("parameters", "fit_intercept"): 1}
            default_grid = trail[-1] == "grid" and other is None
            assert default_grid or other == same.get(trail, value), (trail, other)


def test_a_certificate_of_another_fit_is_refused(path):
    given = fitted(alpha=0.1)
    save_model(given, path)
    content = json.loads(path.read_text())
    for settings in (
        {"alpha": 0.5},
        {"neighbors": "add_or_remove_one", "nominal_samples": 200},
        {"bandwidth": 0.5, "kernel": "gaussian", "mechanism": "objective"},
        {"fit_intercept": False},
    ):
        other = fitted(**{"alpha": 0.1, **settings})
        content["certificate"] = json.loads(other.certificate_.to_json())
        refused(path, content, "does not follow from its parameters")
    shallow = DPQuantileRegressor(
        0.7, epsilon=2.0, alpha=0.1, feature_bounds=(0, [10, 10, 12.5]), target_bounds=(-5, 20)
    )
    content["certificate"] = json.loads(shallow.certify(200, 3).to_json())
    refused(path, content, "does not follow from its parameters: check .*quantile")


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("coef", [1.0, 2.0], "do not match 'n_features'"),
        ("coef", [[1.0, 2.0, 3.0]], "do not match 'n_features'"),
        ("coef", [1.0, 2.0, "3"], "must hold numbers"),
        ("coef", [1.0, 2.0, True], "must hold numbers"),
        ("coef", [1.0, 2.0, None], "must hold numbers"),
        ("coef", [1.0, [2.0], 3.0], "must hold numbers"),
        ("coef", [[1.0], [2.0, 3.0]], "array of numbers"),
        ("coef", [1.0, 2.0, 10**400], "array of numbers"),
        ("coef", 3.0, "must be a list"),
        ("intercept", [1.0], "do not match 'n_features'"),
        ("intercept", True, "must be a number or a list"),
        ("n_features", 2, "n_features"),
        ("n_features", 0, "must be an integer from 1 to"),
        ("feature_names", ["a"], "do not match"),
        ("feature_names", ["a", "a", "b"], "different strings"),
        ("columns", {"features": ["a"]}, "malformed"),
        ("columns", {"features": {"a": [0, 1]}, "target": {"y": {}}}, "do not lead to"),
        ("columns", {"features": ["a"], "categories": {}, "target": "y"}, "malformed"),
        ("classes", [0, 1], "do not match"),
        ("estimator", "Pipeline", "must be one of"),
        ("estimator", "load_model", "must be one of"),
        ("format", "dpconvex-model-9", "format"),
        ("parameters", {}, "must name the parameters"),
        ("omitted", ["quantile"], "must be names among"),
        ("omitted", ["kernel"], "each once"),
        ("released", [], "must be an object"),
        ("released", {"problems": None}, "record of each problem"),
        ("released", {"problems": [{}, {}]}, "record of each problem"),
        ("released", {"kept_share": "x"}, "must hold numbers"),
        ("released", {"kept_share": [0.5]}, "must be a number"),
        ("released", {"covariance": np.eye(4).tolist()}, "without inference"),
        ("certificate", {}, "format"),
        ("extra", 1, "Check"),
    ],
)
def test_wrong_fields(content, path, name, value, match):
    content[name] = value
    refused(path, content, match)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "valid JSON"),
        ("[]", "JSON object"),
        ("[" * 100_000, "valid JSON"),
        ('{"a": ' * 200_000, "more values"),
        ('{"a": ' * 4_000, "valid JSON"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "NaN"),
        ('{"a": 1e999}', "NaN"),
        ('{"a": 1, "a": 2}', "repeat a key"),
        ('{"a": {"b": 1, "b": 1}}', "repeat a key"),
        (f'{{"a": {"9" * 5000}}}', "valid JSON"),
        ('{"a": "\ud800"}', None),
        (r'{"a": "\ud800"}', "valid JSON"),
        (r'{"\uDfFf": 1}', "valid JSON"),
        (r'{"a": "\ud83d\ude00"}', "format"),
        ("{}", "format"),
    ],
)
def test_wrong_json(path, text, match):
    if match is None:
        path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
        match = "valid JSON"
    else:
        path.write_text(text)
    with pytest.raises(ModelFileError, match=match):
        load_model(path)


def test_files_too_large_are_not_parsed(path, monkeypatch):
    monkeypatch.setattr("dpconvex.models.model_file.LARGEST_FILE", 100)
    path.write_text("{" + " " * 100 + "}")
    with pytest.raises(ModelFileError, match="larger than"):
        read_model_json(path)


def test_what_cannot_be_saved(path, model):
    with pytest.raises(ModelFileError, match="not fitted"):
        save_model(DPQuantileRegressor(), path)
    with pytest.raises(ModelFileError, match="must be one of"):
        save_model(object(), path)
    model.coef_ = np.array([np.nan, 0, 0])
    with pytest.raises(ModelFileError, match="finite"):
        save_model(model, path)
    assert not path.exists()


def test_a_failed_save_leaves_the_old_file_and_no_draft(model, path, monkeypatch):
    save_model(model, path)
    before = path.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_model(fitted(), path)
    assert path.read_text() == before
    assert [item.name for item in path.parent.iterdir()] == ["model.json"]


def test_certificates_from_strangers(content):
    parse_certificate_file(content["certificate"])
    content["certificate"]["bounds"]["n_samples"] = 10**400
    with pytest.raises(CertificateError):
        parse_certificate_file(content["certificate"])


def test_nothing_private_is_written(content):
    assert set(content) == {
        *("format", "version", "estimator", "parameters", "omitted", "n_features"),
        *(
            "feature_names",
            "product_names",
            "columns",
            "coef",
            "intercept",
            "classes",
            "released",
            "certificate",
        ),
    }
    assert not {"ledger", "random_state", "verbose"} & set(content["parameters"])


LABELS = np.arange(200) % 3
MULTI_CLASS = [DPLogisticRegression, DPLinearSVC, DPTiltedClassifier, DPRobustClassifier]


def classifier(kind=DPLogisticRegression, labels=LABELS, **settings):
    return kind(feature_bounds=(0, 10), epsilon=2.0, **settings).fit(X, labels)


@pytest.mark.parametrize("kind", MULTI_CLASS)
@pytest.mark.parametrize(
    ("labels", "settings"),
    [
        (LABELS, {}),
        (LABELS, {"classes": range(3)}),
        (np.array(["a", "b", "c"])[LABELS], {"classes": pd.Series(["c", "b", "a"])}),
        (LABELS == 0, {}),
    ],
)
def test_classifiers_come_back_exactly(kind, labels, settings, path):
    model = classifier(kind, labels, **settings)
    save_model(model, path)
    loaded = load_model(path)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert np.array_equal(loaded.coef_, model.coef_)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.certificate_.to_json() == model.certificate_.to_json()
    assert repr(loaded.summary()) == repr(model.summary())


@pytest.mark.parametrize(
    ("settings", "changes", "match"),
    [
        ({}, {"classes": [0, 1, 2], "coef": [[0.0] * 3] * 3, "intercept": [0.0] * 3}, "as many"),
        ({"classes": [0, 1]}, {"classes": ["x", "y"]}, "differ from its parameter"),
        ({"classes": [0, 1]}, {"classes": [0, 2]}, "differ from its parameter"),
        ({}, {"classes": [1, 0]}, "sorted"),
        ({}, {"coef": [0.0] * 3, "intercept": 0.0}, "do not match"),
        ({}, {"coef": [0.0] * 3, "intercept": [0.0]}, "do not match"),
    ],
)
@pytest.mark.parametrize("version", [None, "0.0.9"])
def test_classifiers_whose_parts_disagree(path, settings, changes, match, version):
    save_model(classifier(labels=LABELS % 2, **settings), path)
    content = json.loads(path.read_text())
    content["version"] = version or content["version"]
    refused(path, {**content, **changes}, match)


def test_what_could_not_be_loaded_is_not_saved(model, path):
    model.set_params(epsilon=0.1)
    with pytest.raises(ModelFileError, match="Fit again"):
        save_model(model, path)
    dated = classifier(labels=LABELS % 2)
    dated.classes_ = np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")
    with pytest.raises(ModelFileError, match="not plain"):
        save_model(dated, path)
    assert not path.exists()
