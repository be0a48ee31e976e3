"""Intervals cover what they promise, noise included; the budget is spent once and refused where
it cannot do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone

from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.assessment.conformal_intervals import (
    DPConformal,
    _mean_largest_interval_noise,
    thresholds,
)
from dpconvex.audit import audit
from dpconvex.evaluation import private_score
from dpconvex.privacy import CertificateError, GaussianDP, Ledger, NoiseSource


def model(**options):
    return DPQuantileRegressor(0.5, feature_bounds=(0, 1), target_bounds=(-5, 5), **options)


def made(rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (rows, 2))
    return X, X @ [1.0, 2.0] + rng.standard_t(3, rows) * 0.3


@pytest.mark.parametrize("ignored", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
@pytest.mark.parametrize("budget", [{"mu": 0.25}, {"epsilon": 1.0, "delta": 0.0}, {"epsilon": 3.0}])
def test_coverage_is_kept_over_rows_and_noise(budget, ignored):
    """Mean coverage of 150 calibrations with 2,500 rows, of which some may be ignored: they counted
    as not covered.

    The coverage of one is spread by 0.01 at most, so the mean by 0.0009: below 0.895 or above 0.93
    it would have gone five such spreads, which has a probability below 1e-6.
    """
    conformal = DPConformal(model(), 0.9, **budget)
    calibration = conformal.certify(10_000, 2).calibration
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(150):
        scores = np.abs(rng.standard_t(3, 2500))
        scores[: round(ignored * 2500)] = np.nan
        reached = conformal._threshold(scores, calibration, NoiseSource(seed))
        covered.append(np.mean(np.abs(rng.standard_t(3, 2000)) <= reached))
    assert 0.895 <= np.mean(covered) <= 0.93


def test_the_mean_of_the_largest_noise_is_right():
    """Of 2e5 draws: five standard errors."""
    rng = np.random.default_rng(0)
    for budget in ({"mu": 0.25}, {"epsilon": 1.0, "delta": 0.0}):
        calibration = DPConformal(model(), 0.5, **budget).certify(40_000, 2).calibration
        law = rng.normal if calibration.distribution == "gaussian" else rng.laplace
        largest = np.maximum(law(0, calibration.scale, (200_000, 10)).max(axis=1), 0.0)
        error = 5 * largest.std() / np.sqrt(200_000)
        assert _mean_largest_interval_noise(calibration) == pytest.approx(largest.mean(), abs=error)


def test_fitted_intervals_cover_new_rows():
    """1 - 1e-6 of a binomial law with the proven 90 %, less three spreads of the calibration
    itself.
    """
    X, y = made(12_000, 0)
    intervals = DPConformal(model(epsilon=1.0), random_state=0).fit(X[:8000], y[:8000])
    ends = intervals.predict_interval(X[8000:])
    inside = np.count_nonzero((ends[:, 0] <= y[8000:]) & (y[8000:] <= ends[:, 1]))
    assert inside >= binom.ppf(1e-6, 4000, 0.9 - 3 * 0.01)
    assert np.ptp(ends, axis=1).mean() < 2.5
    score = private_score(intervals, X[8000:], y[8000:], "coverage", residual_bound=1.0)
    assert score.value == pytest.approx(inside / 4000, abs=0.02)


def test_quantiles_on_both_sides_are_moved_together():
    class Pair:
        def predict(self, X):
            return np.column_stack([X[:, 0] - 1, X[:, 0] + 1])

    scores = DPConformal._scores(Pair(), np.zeros((3, 1)), np.array([0.0, 3.0, -1.5]))
    assert scores == pytest.approx([-1.0, 2.0, 0.5])
    for row, target in ((np.nan, 0.0), (0.0, np.nan)):  # ignored
        assert np.isnan(DPConformal._scores(Pair(), np.array([[row]]), np.array([target]))[0])
    grid = thresholds(10.0)
    assert len(grid) == 1023
    assert np.all(np.diff(grid) > 0)


def test_the_budget_is_charged_once_and_stated(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=1.0, delta=1e-5)
    X, y = made(6000, 1)
    fitted = DPConformal(model(), epsilon=1.0, ledger=ledger).fit(X, y)
    assert len(ledger.entries()) == 1
    fitted.certificate_.verify()
    assert fitted.certificate_ == DPConformal(model(), epsilon=1.0).certify(6000, 2)
    forged = replace(
        fitted.certificate_, calibration=replace(fitted.certificate_.calibration, scale=1.0)
    )
    with pytest.raises(CertificateError):
        forged.verify()
    clone(fitted)


def test_half_the_noise_of_counts_is_noticed():
    """A replaced score at the threshold that the first count is asked about; false alarm at most
    1e-6.
    """
    conformal = DPConformal(model(), 0.5, mu=2.0)
    calibration = conformal.certify(400, 2).calibration
    first = np.full(100, -1.0)
    second = np.full(100, -1.0)
    second[0] = 1.0

    def sampler(scores, factor):
        loud = replace(calibration, scale=calibration.scale * factor)
        # The first count is made at the middle of the grid, which is 0.
        count = np.count_nonzero(scores <= 0)
        return lambda size, rng: np.array(
            [NoiseSource(rng).add_gaussian(np.array([count]), loud.scale)[0] for _ in range(size)]
        )

    claim = GaussianDP(2.0 / np.sqrt(10))
    fair = audit(sampler(first, 1.0), sampler(second, 1.0), claim, runs=4000, rng=0)
    assert fair.passed
    wild = audit(sampler(first, 0.5), sampler(second, 0.5), claim, runs=4000, rng=0)
    assert not wild.passed


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"estimator": DPLogisticRegression()}, 1000, "regression"),
        ({"epsilon": 1.0, "estimator": model(epsilon=1.0)}, 1000, "not to both"),
        ({"epsilon": 0.1}, 500, "held-out rows"),
        ({"coverage": 1.5}, 5000, "coverage"),
        ({"estimator": DPQuantileRegressor()}, 50_000, "score_bound"),
        ({"estimator": model(neighbors="add_or_remove_one", nominal_samples=9)}, 99, "replace_one"),
    ],
)
def test_what_cannot_be_promised_is_refused_before_data(options, rows, message):
    settings = {"estimator": model(), **options}
    with pytest.raises((ValueError, TypeError), match=message):
        DPConformal(**settings).certify(rows, 2)


def test_people_are_held_out_with_all_their_rows(monkeypatch):
    """One random row of each calibrates; nobody is in both parts, and the promise is made to a
    person.
    """
    X, y = made(6000, 0)
    names = np.array([f"person {number}" for number in np.arange(6000) // 3])
    conformal = DPConformal(model(epsilon=1.0), 0.8, random_state=0)
    seen = {}
    fit = DPQuantileRegressor.fit

    def watched_fit(self, rows, target, groups):
        seen["trained"] = {tuple(row) for row in rows}
        return fit(self, rows, target, groups=groups)

    def watched_scores(estimator, rows, target):
        seen["held"] = [tuple(row) for row in rows]
        return np.abs(target - estimator.predict(rows))

    monkeypatch.setattr(DPQuantileRegressor, "fit", watched_fit)
    monkeypatch.setattr(DPConformal, "_scores", staticmethod(watched_scores))
    fitted = conformal.fit(X, y, groups=names)
    person = {tuple(row): name for row, name in zip(X, names, strict=True)}
    held = [person[row] for row in seen["held"]]
    assert len(held) == len(set(held)) == 500
    assert not set(held) & {person[row] for row in seen["trained"]}
    assert len(seen["trained"]) == 4500
    fitted.certificate_.verify()
    assert fitted.certificate_.unit == "one person"
    text = repr(fitted.summary())
    assert "500 held-out people" in text
    assert f"± {fitted.threshold_:.6g}" in text
    assert "one person" in text
    assert fitted.certificate_ == conformal.certify(2000, 2, groups=True)
    mixed = replace(fitted.certificate_, calibration=conformal.certify(2000, 2).calibration)
    with pytest.raises(CertificateError, match="same"):
        mixed.verify()
    missing = names.astype(object)
    missing[0] = None
    with pytest.raises(ValueError, match="missing identifiers"):
        conformal.fit(X, y, groups=missing)
    ignoring = DPConformal(model(epsilon=1.0, invalid_rows="ignore"), 0.8, random_state=0)
    assert ignoring.fit(X, y, groups=missing).certificate_.unit == "one person"


def test_ignored_rows_make_intervals_no_wider():
    """A fifth of the targets is missing: of so many rows no threshold was enough, and intervals
    held everything.
    """
    X, y = made(12_000, 0)
    missing = np.where(np.random.default_rng(1).random(12_000) < 0.2, np.nan, y)
    ignoring = model(epsilon=1.0, invalid_rows="ignore")
    intervals = DPConformal(ignoring, random_state=0).fit(X, missing)
    other = DPConformal(model(epsilon=1.0), random_state=0).fit(X, y)
    assert intervals.threshold_ == pytest.approx(other.threshold_, rel=0.15)


def test_a_count_moves_by_at_most_one_when_a_row_becomes_ignored():
    """Every score of a few is replaced by every other, ignored ones included."""
    conformal = DPConformal(model(), 0.7, mu=100.0)
    calibration = conformal.certify(24, 2).calibration
    largest = 0.0

    class Seen(NoiseSource):
        def add_gaussian(self, value, std):
            self.asked = [*getattr(self, "asked", []), float(value[0])]
            return np.array([0.9 - len(self.asked) % 2])

    def asked(scores):
        noise = Seen(0)
        conformal._threshold(np.array(scores), calibration, noise)
        return np.array(noise.asked)

    kinds = [-1.0, 0.0, 1e-4, 3.0, np.nan]
    rng = np.random.default_rng(0)
    for _ in range(40):
        scores = rng.choice(kinds, 6)
        first = asked(scores)
        for kind in kinds:
            scores[0] = kind
            largest = max(largest, float(np.abs(asked(scores) - first).max()))
    assert largest == 1.0
