"""Preprocessing: public maps read nothing, paid ones keep their promise, charge it and are worth
it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpconvex import DPQuantileRegressor
from dpconvex.audit import audit
from dpconvex.preprocessing import DPQuantileBounds
from dpconvex.privacy import CertificateError, GaussianDP, Ledger, NoiseSource, PureDP
from dpconvex.releases.exponential_choices import ExponentialChoices

FIXED = settings(max_examples=200, derandomize=True, deadline=None, database=None)


def table(rows=5000, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(40, 10, rows), rng.exponential(2.0, rows)])


@pytest.mark.parametrize("budget", [{"epsilon": 1.0}, {"mu": 0.5}, {"epsilon": 1.0, "delta": 0}])
def test_bounds_hold_most_of_the_data_although_the_search_is_far_too_wide(budget):
    rows = table()
    for seed in range(25):
        bounds = DPQuantileBounds((-1000, 1000), random_state=seed, **budget).fit(rows)
        check_bounds(bounds, rows)
    assert bounds.privacy_ == "paid"
    bounds.certificate_.verify()
    assert np.abs(bounds.transform(rows)).max() == 1.0


def check_bounds(bounds, rows):
    inside = (rows > bounds.low_) & (rows < bounds.high_)
    assert (inside.mean(axis=0) > 0.95).all()
    assert (bounds.high_ - bounds.low_ < 1.5 * np.ptp(rows, axis=0)).all()


@pytest.mark.parametrize("rows", [np.zeros((3, 1)), np.full((3, 1), 1e9), np.ones((1, 1))])
def test_bounds_are_usable_for_any_data(rows):
    for seed in range(20):
        bounds = DPQuantileBounds((-1, 1), random_state=seed).fit(rows)
        assert -1 <= bounds.low_[0] < bounds.high_[0] <= 1


def test_exponential_mechanism_of_quantiles_is_audited():
    """A replaced record against the claimed epsilon; false alarm at most 1e-6, six times epsilon
    refuted.
    """
    # Between 0 and 1/2 the utility is 0 on the first and -1 on the second data set, and the reverse
    # above.
    first = np.array([0.0, 0.5])
    second = np.array([0.5, 1.0])

    def sampler(values, epsilon):
        def draw(count, rng):
            choices = ExponentialChoices(epsilon, count, NoiseSource(rng))
            return np.asarray(choices.quantiles(values, [0.5] * count, 0.0, 1.0))

        return draw

    fair = audit(sampler(first, 1.0), sampler(second, 1.0), PureDP(1.0), runs=4000, rng=0)
    assert fair.passed

    wild = audit(sampler(first, 6.0), sampler(second, 6.0), PureDP(1.0), runs=4000, rng=0)
    assert not wild.passed


def test_ledger_is_charged_and_pipelines_add_up(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=2.0, delta=1e-5)
    X = table(2000)
    y = X @ [0.1, 1.0]
    pipeline = make_pipeline(
        DPQuantileBounds((0, 1000), epsilon=0.5, ledger=ledger),
        DPQuantileRegressor(feature_bounds=(-1, 1), target_bounds=(0, 20), ledger=ledger),
    ).fit(X, y)
    assert [entry.description for entry in ledger.entries()] == [
        "DPQuantileBounds.fit",
        "DPQuantileRegressor.fit",
    ]
    assert pipeline.score(X, y) > 0.3


def test_names_are_kept_and_steps_cloned():
    frame = pd.DataFrame(table(100), columns=["age", "wait"])
    fitted = clone(DPQuantileBounds((0, 100))).set_output(transform="pandas").fit(frame)
    assert list(fitted.transform(frame).columns) == ["age", "wait"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(frame.rename(columns={"age": "years"}))


def test_false_certificates_do_not_verify():
    certificate = DPQuantileBounds((0, 1)).certify(100, 2)
    certificate.verify()
    assert certificate.epsilon(1e-6) == 1.0
    size = certificate.noise["epsilon"]
    less = 2 * size
    more = size / 2
    replace(certificate, noise={"epsilon": more}).verify()
    for change in (
        {"guarantee": GaussianDP(0.01)},
        {"guarantee": None},
        {"noise": {"epsilon": less}},
        {"noise": {"epsilon": -size}},
        {"noise": {"epsilon": float("nan")}},
        {"noise": {"size": size}},
        {"noise": {}},
        {"n_features": 1e-6, "noise": {"epsilon": less}},
        {"n_features": 1.0},
        {"n_features": -1},
        {"n_features": True},
        {"n_samples": -5},
        {"n_samples": 0.5},
        {"neighbors": "add_or_remove_one"},
        {"neighbors": "replace_one_keeping_label"},
        {"sampler": "lucky"},
        {"mechanism": "guess"},
    ):
        with pytest.raises(CertificateError):
            replace(certificate, **change).verify()
    other = "exact" if certificate.sampler == "floating-point" else "floating-point"
    with pytest.raises(CertificateError):
        replace(certificate, sampler=other).verify()


def test_a_fraction_of_a_column_pays_for_nothing():
    # epsilon / (2 d) for d = 1e-6 allowed each quantile half a million times its share.
    certificate = DPQuantileBounds((0, 1), epsilon=1.0, delta=0).certify(100, 2)
    forged = replace(certificate, n_features=1e-6, noise={"epsilon": 5e5})
    with pytest.raises(CertificateError):
        forged.verify()


def test_quantiles_are_points_of_a_public_grid():
    """The low bits of a point drawn between two values betray them; those of a grid's point are
    the grid's.
    """
    rng = np.random.default_rng(0)
    for values in (rng.uniform(0, 1, 50), np.full(3, 1 / 3), np.array([0.0, 5e-324, 1.0])):
        points = ExponentialChoices(1.0, 200, NoiseSource(1)).quantiles(
            values, [0.3] * 200, 0.0, 1.0
        )
        assert all((point * 2**40).is_integer() for point in points)


def test_transforms_say_nothing_about_values():
    # Warnings are errors here. Rows beyond the bounds count as rows at the bounds, as they did in
    # the fit.
    rows = np.array([[5e-324], [0.5], [-1e308], [1e308]])
    assert np.isfinite(DPQuantileBounds((0, 1)).fit(rows).transform(rows)).all()


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (DPQuantileBounds((1, 0)), "low < high"),
        (DPQuantileBounds(None), "Got None"),
        (DPQuantileBounds((0, [1, 2, 3])), "one value for each"),
        (DPQuantileBounds((0, 1), epsilon=0), "epsilon"),
        (DPQuantileBounds((0, 1), mu=1, epsilon=1), "either 'mu' or"),
    ],
)
def test_wrong_settings_are_refused(step, complaint):
    with pytest.raises(ValueError, match=complaint):
        step.fit(table(10))


def test_errors_quote_no_value():
    transformer = DPQuantileBounds((0, 1))
    with pytest.raises(ValueError, match="must be numbers") as caught:
        transformer.fit(pd.DataFrame({"a": ["secret123"] * 4}))
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="must be finite"), config_context(assume_finite=True):
        transformer.fit(np.array([[np.nan], [0.5]]))
    with pytest.raises(ValueError, match="dates"):
        transformer.fit(np.array([["2026-01-01"]], dtype="datetime64[D]"))
