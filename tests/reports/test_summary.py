"""Summaries show every column on a line of its own."""

import numpy as np
import pandas as pd
import pytest

from dpconvex import (
    DPAUCClassifier,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPQuantileRegressor,
)
from dpconvex.fit.constants import SHARES
from dpconvex.reports.coefficients_and_forecasts import coefficient_heading
from dpconvex.reports.summary import WIDTH, shown, summary_names
from dpconvex.reports.wording import method_wording, quantity_wording

X = np.random.default_rng(0).uniform(0, 1, (60, 3))


def test_long_names_that_begin_alike_are_told_apart():
    names = ["a" * 60 + end for end in ("x", "y")] + ["b"]
    table = pd.DataFrame(X, columns=names)
    lines = repr(DPQuantileRegressor(feature_bounds=(0, 1)).fit(table, X[:, 0]).summary())
    heads = [line[:WIDTH].strip() for line in lines.splitlines()[-5:-2]]
    assert len(set(heads)) == 3
    assert heads[0].endswith("... [0]")
    assert heads[2] == "b"
    assert max(map(len, summary_names(names, WIDTH))) == WIDTH


def test_a_name_cannot_forge_a_line():
    forged = "a\nguarantee        PureDP(epsilon=0.001)"
    table = pd.DataFrame(X, columns=[forged, "b\u202e", "'quoted'"])
    model = DPQuantileRegressor(feature_bounds=(0, 1)).fit(table, X[:, 0])
    plain = DPQuantileRegressor(feature_bounds=(0, 1)).fit(X, X[:, 0])
    lines = repr(model.summary()).splitlines()
    assert len(lines) == len(repr(plain.summary()).splitlines())
    assert sum(line.startswith("guarantee") for line in lines) == 1
    assert "\u202e" not in repr(model.summary())
    assert shown("'a\\n'") != shown("a\n")  # an escaped name looks like no other


def test_a_label_cannot_forge_a_line():
    labels = np.array(["a", "b\nguarantee        PureDP(epsilon=0.001)", "c"])[np.arange(60) % 3]
    text = repr(DPLogisticRegression(feature_bounds=(0, 1)).fit(X, labels).summary())
    assert sum(line.startswith("guarantee") for line in text.splitlines()) == 1


def test_tables_say_which_of_two_labels_is_the_positive_one():
    y = np.where(X[:, 0] > 0.5, "ja", "nein")
    options = {"classes": ["nein", "ja"], "feature_bounds": (0, 1)}
    model = DPLogisticRegression(**options).fit(X, y)
    assert model.classes_.tolist() == ["ja", "nein"]
    assert coefficient_heading(model) == "log odds of nein against ja"
    assert "log odds of nein against ja" in repr(model.summary())
    assert coefficient_heading(DPLinearSVC(**options).fit(X, y)) == "value, for nein against ja"
    alike = ["a" * 30 + "x", "a" * 30 + "y"]
    model = DPLogisticRegression(feature_bounds=(0, 1)).fit(X, np.array(alike)[np.arange(60) % 2])
    label, against = coefficient_heading(model).removeprefix("log odds of ").split(" against ")
    assert label != against


def test_coefficients_are_drawn_with_their_intervals():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-1, 1, (900, 2)), columns=["a", "b"])
    model = DPQuantileRegressor(mu=3.0, feature_bounds=(-1, 1), inference=True, random_state=0)
    model.fit(table, table["a"] + rng.normal(0, 0.1, 900))
    axes = model.plot_coefficients(level=0.9)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    drawn = axes.containers[0].lines[2][0].get_segments()
    assert np.allclose([line[:, 0] for line in drawn], 2 * model.confidence_interval(0.9))
    with pytest.raises(ValueError, match="inference=True"):
        DPQuantileRegressor(feature_bounds=(-1, 1)).fit(table, table["a"]).plot_coefficients()


def test_every_release_of_a_fit_has_words():
    models = [
        DPLinearRegression(inference=True, feature_bounds=(-1, 1), target_bounds=(-1, 1)),
        DPLogisticRegression(classes=[0, 1], invalid_rows="ignore"),
        DPQuantileRegressor((0.1, 0.5, 0.9), feature_bounds=(-1, 1), target_bounds=(-1, 1)),
        DPAUCClassifier(classes=[0, 1], mechanism="moments"),
    ]
    certificates = [model.certify(100_000, 3) for model in models]
    names = {name for certificate in certificates for name in certificate.noise}
    assert names >= {*SHARES, "gradients", "curvature", "late gradients", "mean row", "scores"}
    unsaid = {
        name
        for certificate in certificates
        for name in certificate.noise
        if quantity_wording(certificate, name) == name
    }
    assert not unsaid
    for certificate in certificates:
        said = {quantity_wording(certificate, name) for name in certificate.noise}
        assert len(said) == len(certificate.noise)
    assert ["The certainty" in method_wording(certificate) for certificate in certificates] == [
        True,
        False,
        False,
        False,
    ]
