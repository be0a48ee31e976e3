"""Certificates, summaries, the command line and reports say what of floating point is covered."""

import io

import numpy as np
import pytest
from rich.console import Console

from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.core.certificate import Certificate
from dpconvex.core.noise_source import FAILURE_PROBABILITY
from dpconvex.reports.report import render_report
from dpconvex.reports.summary import certificate_summary_table

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))


def texts(model):
    """What the summary, the command line and the report say."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(certificate_summary_table(model.certificate_))
    return repr(model.summary()), console.export_text(), render_report(model)


def test_failure_probability_counts_every_number_of_every_class():
    model = DPLogisticRegression(mechanism="objective", classes=[0, 1, 2], feature_bounds=(-1, 1))
    certificate = model.certify(1000, 3)
    # Two vectors of three coefficients and an intercept, for each of three classes.
    assert certificate.failure_probability == pytest.approx(24 * FAILURE_PROBABILITY)
    assert "failure" not in certificate.to_json()
    again = Certificate.from_json(certificate.to_json())
    assert again.failure_probability == certificate.failure_probability


def test_exact_samplers_state_what_is_left():
    model = DPQuantileRegressor(
        mechanism="output",
        epsilon=5.0,
        delta=0.0,
        alpha=1.0,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
    ).fit(X, X[:, 0])
    for text in texts(model):
        assert "exact; no last digit gives a value away, except with probability 3e-40" in text
        assert "rounding in floating point is not covered" not in text


def test_dp_sgd_says_that_floating_point_is_not_covered():
    model = DPLogisticRegression(
        mechanism="sgd", epsilon=5.0, delta=1e-3, feature_bounds=(-1, 1), classes=[0, 1]
    ).fit(X, (X[:, 0] > 0).astype(int))
    assert model.certificate_.failure_probability is None
    for text in texts(model):
        assert "floating-point; rounding in floating point is not covered" in text
