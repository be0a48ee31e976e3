"""Preprocessing: public maps read nothing, paid ones keep their promise, charge it and are worth it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpconvex import DPQuantileRegressor
from dpconvex.audit import audit
from dpconvex.core.exponential_choices import ExponentialChoices
from dpconvex.preprocessing import DPMoments, DPQuantileBounds, PublicScaler, _stack_preprocessing_moments
from dpconvex.privacy import CertificateError, GaussianDP, Ledger, NoiseSource, PureDP

FIXED = settings(max_examples=200, derandomize=True, deadline=None, database=None)


def table(rows=5000, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(40, 10, rows), rng.exponential(2.0, rows)])


def test_public_scaler_reads_no_value():
    first = PublicScaler(([0, 0], [100, 10])).fit(table(10))
    second = PublicScaler(([0, 0], [100, 10])).fit(table(10) * 1e6)
    rows = table(50, seed=1)
    assert np.array_equal(first.transform(rows), second.transform(rows))
    assert first.privacy_ == "public"
    assert np.abs(first.transform(rows * 100)).max() == 1.0


@FIXED
@given(st.integers(1, 4), st.integers(0, 2**31))
def test_joint_sensitivity_of_moments_is_never_exceeded(width, seed):
    rng = np.random.default_rng(seed)
    pair = rng.normal(size=(2, width))
    pair *= rng.choice([1.0, rng.uniform()], size=(2, 1)) / np.linalg.norm(pair, axis=1)[:, None]
    moved = np.linalg.norm(_stack_preprocessing_moments(pair[:1]) - _stack_preprocessing_moments(pair[1:]))
    assert moved <= 3 / np.sqrt(2) * (1 + 1e-12)


def test_joint_sensitivity_of_moments_is_attained():
    pair = np.array([[1.0, 0.0], [-0.5, np.sqrt(0.75)]])
    moved = np.linalg.norm(_stack_preprocessing_moments(pair[:1]) - _stack_preprocessing_moments(pair[1:]))
    assert moved == pytest.approx(3 / np.sqrt(2))


def test_moments_are_right_up_to_their_noise():
    # Within 6 standard deviations of exact noise: false alarm below 1e-8 per number.
    rows = np.clip(table(20_000), [0, 0], [100, 20])
    moments = DPMoments(([0, 0], [100, 20]), mu=1.0).fit(rows)
    assert (np.abs(moments.mean_ - rows.mean(axis=0)) < 6 * moments.mean_std_).all()
    np.testing.assert_allclose(moments.covariance_, np.cov(rows.T), rtol=0.15, atol=1.0)
    moments.certificate_.verify()
    assert moments.certificate_.sampler == "exact"
    standard = moments.transform(rows)
    assert np.abs(standard.mean(axis=0)).max() < 0.1
    white = DPMoments(([0, 0], [100, 20]), mu=1.0, whiten=True, random_state=0).fit_transform(rows)
    np.testing.assert_allclose(np.cov(white.T), np.eye(2), atol=0.15)


def test_stated_noise_of_the_mean_is_the_noise():
    # 300 fits: a standard deviation errs by 4 %, 30 % off has a chance below 1e-9.
    rows = table(30)
    fits = [DPMoments((0, 100), mu=1.0, random_state=seed).fit(rows) for seed in range(300)]
    seen = np.std([fit.mean_ for fit in fits], axis=0)
    np.testing.assert_allclose(seen, fits[0].mean_std_, rtol=0.3)


def test_covariance_is_positive_definite_even_under_all_noise():
    for seed in range(20):
        fit = DPMoments((0, 1), mu=0.01, random_state=seed).fit(table(5))
        assert np.linalg.eigvalsh(fit.covariance_).min() > 0


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
    """A replaced record against the claimed epsilon; false alarm at most 1e-6, six times epsilon refuted."""
    # Between 0 and 1/2 the utility is 0 on the first and -1 on the second data set, and the reverse above.
    first, second = np.array([0.0, 0.5]), np.array([0.5, 1.0])

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
    assert [entry.description for entry in ledger.entries()] == ["DPQuantileBounds.fit", "DPQuantileRegressor.fit"]
    assert pipeline.score(X, y) > 0.3


def test_transformers_keep_names_and_are_cloned():
    frame = pd.DataFrame(table(100), columns=["age", "wait"])
    for step in (PublicScaler((0, 100)), DPQuantileBounds((0, 100)), DPMoments((0, 100))):
        fitted = clone(step).set_output(transform="pandas").fit(frame)
        assert list(fitted.transform(frame).columns) == ["age", "wait"]
        with pytest.raises(ValueError, match="feature names"):
            fitted.transform(frame.rename(columns={"age": "years"}))


@pytest.mark.parametrize("step", [DPQuantileBounds((0, 1)), DPMoments((0, 1))])
def test_false_certificates_do_not_verify(step):
    certificate = step.certify(100, 2)
    certificate.verify()
    assert certificate.epsilon(1e-6) == 1.0
    ((name, size),) = certificate.noise.items()
    less, more = (2 * size, size / 2) if name == "epsilon" else (size / 2, 2 * size)
    replace(certificate, noise={name: more}).verify()
    for change in (
        {"guarantee": GaussianDP(0.01)},
        {"guarantee": None},
        {"noise": {name: less}},
        {"noise": {name: -size}},
        {"noise": {name: float("nan")}},
        {"noise": {"size": size}},
        {"noise": {}},
        {"n_features": 1e-6, "noise": {name: less}},
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
    """The low bits of a point drawn between two values betray them; those of a grid's point are the grid's."""
    rng = np.random.default_rng(0)
    for values in (rng.uniform(0, 1, 50), np.full(3, 1 / 3), np.array([0.0, 5e-324, 1.0])):
        points = ExponentialChoices(1.0, 200, NoiseSource(1)).quantiles(values, [0.3] * 200, 0.0, 1.0)
        assert all((point * 2**40).is_integer() for point in points)


def test_transforms_say_nothing_about_values():
    # Warnings are errors here. Rows beyond the bounds count as rows at the bounds, as they did in the fit.
    rows = np.array([[5e-324], [0.5], [-1e308], [1e308]])
    for step in (PublicScaler((0, 1)), DPQuantileBounds((0, 1)), DPMoments((0, 1), mu=5.0)):
        assert np.isfinite(step.fit(rows).transform(rows)).all()


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        (PublicScaler((1, 0)), "low < high"),
        (PublicScaler(None), "Got None"),
        (DPQuantileBounds((0, 1), tail=0.5), "tail"),
        (DPQuantileBounds((0, 1), margin=-1), "margin"),
        (DPQuantileBounds((0, 1), epsilon=0), "epsilon"),
        (DPQuantileBounds((0, 1), mu=1, epsilon=1), "either 'mu' or"),
        (DPMoments((0, 1), delta=0), "pure budget"),
        (DPMoments((0, [1, 2, 3])), "one value for each"),
    ],
)
def test_wrong_settings_are_refused(step, complaint):
    with pytest.raises(ValueError, match=complaint):
        step.fit(table(10))


@pytest.mark.parametrize("transformer", [PublicScaler((0, 1)), DPQuantileBounds((0, 1)), DPMoments((0, 1))])
def test_errors_quote_no_value(transformer):
    with pytest.raises(ValueError, match="must be numbers") as caught:
        transformer.fit(pd.DataFrame({"a": ["secret123"] * 4}))
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="must be finite"), config_context(assume_finite=True):
        transformer.fit(np.array([[np.nan], [0.5]]))
    with pytest.raises(ValueError, match="dates"):
        transformer.fit(np.array([["2026-01-01"]], dtype="datetime64[D]"))


def test_a_whitened_row_has_the_same_bits_however_many_others_there_are():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 9))
    step = DPMoments((-4, 4), mu=5.0, whiten=True, random_state=0).fit(rows)
    whole = step.transform(rows)
    for n in (1, 2, 3, 5):
        np.testing.assert_array_equal(step.transform(rows[:n]), whole[:n])
