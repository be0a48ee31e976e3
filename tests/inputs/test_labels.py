"""Label sets: what may be one, what is refused without quoting a label, and what certificates
say of it.
"""

import datetime

import numpy as np
import pandas as pd
import pytest

from dpconvex import (
    DPAUCClassifier,
    DPLinearSVC,
    DPLogisticRegression,
    DPRobustClassifier,
    DPTiltedClassifier,
)
from dpconvex.inputs.labels import MOST_FOUND
from dpconvex.privacy import BudgetExceeded, Ledger

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (300, 2))
C = rng.integers(0, 2, 300)
THREE = rng.integers(0, 3, 300)
SECRET = "secret77123"
MULTI_CLASS = [DPLogisticRegression, DPLinearSVC, DPTiltedClassifier, DPRobustClassifier]


def refusal(y, **settings):
    """Return the message of a fit that must be refused without quoting a label."""
    model = DPLogisticRegression(feature_bounds=(0, 1), **settings)
    with pytest.raises((TypeError, ValueError)) as caught:
        model.fit(X, y)
    assert not vars(model).keys() & {"classes_", "n_features_in_", "coef_"}
    for error in (caught.value, caught.value.__cause__, caught.value.__context__):
        assert "77123" not in str(error)
    message = str(caught.value)
    assert "DPLogisticRegression" in message
    assert "<" not in message  # no raw comparison error
    return message


def mixed(*values):
    labels = C.astype(object)
    labels[: len(values)] = values
    return labels


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.arange(300), "at most 100 different ones"),
        ([f"{SECRET}{i}" for i in range(300)], "Use a regressor"),
        (mixed(np.nan), "must all be there"),
        (mixed(None), "must all be there"),
        (np.array(["a", None] * 150, dtype=object), "must all be there"),
        (pd.Series(mixed(pd.NA)), "must all be there"),
        (pd.Series(C).astype("Int64").mask(C == 1), "must all be there|must be finite"),
        (mixed(SECRET), "all of one kind"),
        (mixed(77123.5), "all of one kind"),
        (mixed(datetime.date(2077, 12, 3)), "all of one kind"),
        ([datetime.date(2077, 12, 3 + c) for c in C], "dates too"),
        (np.datetime64("2077-12-03") + C, "dates too"),
    ],
)
def test_targets_that_are_no_labels(y, words):
    message = refusal(y)
    assert any(part in message for part in words.split("|")), message
    assert "2077" not in message
    assert "300" not in message


def test_the_number_of_labels_is_the_same_for_both_engines():
    da = pytest.importorskip("dask.array")
    y = np.arange(300) % (MOST_FOUND + 1)
    with pytest.raises(ValueError, match="at most 100 different ones"):
        DPLogisticRegression(feature_bounds=(0, 1)).fit(
            da.from_array(X, chunks=(100, 2)), da.from_array(y, chunks=100)
        )


def test_more_labels_must_be_named():
    y = np.arange(300) % 101
    model = DPLogisticRegression(feature_bounds=(0, 1), classes=range(101)).fit(X, y)
    assert model.coef_.shape == (101, 2)
    assert model.certify(300, 2).to_json() == model.certificate_.to_json()


@pytest.mark.parametrize(
    "y",
    [
        C.astype(object),
        C.astype(float),
        C == 1,
        (C == 1).astype(object),
        np.array(["no", "yes"], dtype=object)[C],
        pd.Series(C).astype("Int64"),
        pd.Series(C).astype("category"),
    ],
)
def test_targets_that_are_labels(y):
    model = DPLogisticRegression(feature_bounds=(0, 1), alpha=0.1).fit(X, y)
    assert model.classes_.tolist() == sorted(set(pd.Series(y).tolist()))


@pytest.mark.parametrize(
    "classes",
    [{0, 1}, "ab", 5, [0, 1, np.nan], [0, None], [0, "a"], [0, True], [0.5, 1], [[0, 1]], [1], []],
)
def test_classes_that_are_no_label_set(classes):
    message = refusal(C, classes=classes)
    assert "'classes' parameter" in message
    assert "Got " in message
    assert "labels must all be in" not in message
    with pytest.raises((TypeError, ValueError), match="'classes' parameter"):
        DPLogisticRegression(classes=classes).certify(300, 2)


def test_a_label_twice_is_refused():
    assert "twice" in refusal(C, classes=[0, 1, 1])


@pytest.mark.parametrize("classes", [(0, 1), np.array([1, 0]), pd.Series([0, 1]), range(2)])
def test_lists_of_any_kind_declare_a_label_set(classes):
    model = DPLogisticRegression(feature_bounds=(0, 1), classes=classes).fit(X, C)
    assert model.classes_.tolist() == [0, 1]


def test_numbers_are_not_taken_for_text():
    """numpy compares numbers with text as text, and no record would be of any class."""
    assert "'classes' parameter" in refusal(C, classes=["0", "1"])


def test_rows_of_other_labels_are_not_to_be_dropped():
    message = refusal(C, classes=[0, 2])
    assert "drop" not in message.lower()
    assert "public" in message


@pytest.mark.parametrize("kind", MULTI_CLASS)
def test_certify_counts_the_declared_classes(kind):
    model = kind(feature_bounds=(0, 1), classes=[0, 1, 2], epsilon=2.0)
    certificate = model.certify(300, 2)
    assert certificate.parameters["n_classes"] == 3
    assert certificate.to_json() == model.fit(X, THREE).certificate_.to_json()
    assert certificate.to_json() == model.certify(300, 2, n_classes=np.int64(3)).to_json()
    with pytest.raises(ValueError, match="number of its 'classes', 3"):
        model.certify(300, 2, n_classes=2)


@pytest.mark.parametrize("kind", [*MULTI_CLASS, DPAUCClassifier])
def test_numpy_integers_count_classes(kind):
    model = kind(feature_bounds=(0, 1))
    assert model.certify(300, 2, np.int64(2)).to_json() == model.certify(300, 2).to_json()
    for wrong in (True, 2.0, 1, np.int64(0)):
        with pytest.raises(ValueError, match="n_classes"):
            model.certify(300, 2, wrong)


def test_a_refused_fit_leaves_the_model_as_it_was(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=0.8, delta=1e-5)
    table = pd.DataFrame(X, columns=["age", "dose"])
    model = DPLogisticRegression(feature_bounds=(0, 1), ledger=ledger, epsilon=0.7)
    model.fit(table, np.array(["healthy", "sick"])[C])
    before = {name: np.copy(value) for name, value in vars(model).items() if name.endswith("_")}
    wider = np.column_stack([X, X])
    for refused in (X, wider, pd.DataFrame(wider, columns=list("abcd"))):
        with pytest.raises(BudgetExceeded):
            model.fit(refused, np.array(["other", "third"])[C])
        with pytest.raises(ValueError, match="finite"):
            model.fit(refused * np.nan, C)
    after = {name: np.copy(value) for name, value in vars(model).items() if name.endswith("_")}
    assert before.keys() == after.keys() >= {"classes_", "n_features_in_", "feature_names_in_"}
    for name, value in before.items():
        assert np.array_equal(value, after[name]), name
    assert set(model.predict(table)) <= {"healthy", "sick"}
