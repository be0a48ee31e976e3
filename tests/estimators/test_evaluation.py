"""Private scores: no neighbour moves them further than stated, half the noise is noticed,
intervals hold.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from itertools import combinations_with_replacement, product
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.metrics import log_loss, mean_pinball_loss, mean_tweedie_deviance, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpconvex import (
    DPAUCClassifier,
    DPDiscreteHazard,
    DPGammaRegressor,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPTweedieRegressor,
    load_model,
    save_model,
)
from dpconvex.assessment.evaluation import _evaluation_range, _read_evaluated_rows
from dpconvex.assessment.evaluation_certificate import (
    EvaluationCertificate,
    certified_evaluation_sensitivity,
)
from dpconvex.assessment.evaluation_statistics import (
    METRICS,
    ROW_METRICS,
    evaluation_statistic,
    exact_evaluation,
)
from dpconvex.audit import audit
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex.estimators.linear import linear_predictions
from dpconvex.estimators.private_model import without_model_warnings
from dpconvex.evaluation import private_score, private_score_difference
from dpconvex.intervals import DPConformal
from dpconvex.planning.cost_warning import PrivacyCostWarning
from dpconvex.preprocessing import PublicTable
from dpconvex.privacy import CertificateError, GaussianDP, Ledger, NoiseSource, PureDP
from dpconvex.releases import auc_pairs
from dpconvex.releases.auc_pairs import pair_statistic_of_people

FIXED = settings(max_examples=120, derandomize=True, deadline=None, database=None)
RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-1, 1, (3000, 2))
DEMAND = 3 * ROWS[:, 0] + RNG.normal(0, 0.5, 3000)
LABELS = (ROWS[:, 0] + RNG.logistic(0, 0.3, 3000) > 0).astype(int)
LIMITS = {"feature_bounds": (-1, 1), "random_state": 0}
MODELS = {
    "quantile": DPQuantileRegressor(0.8, target_bounds=(-5, 5), **LIMITS).fit(ROWS, DEMAND),
    "newsvendor": DPNewsvendor(3.0, 1.0, target_bounds=(-5, 5), **LIMITS).fit(ROWS, DEMAND),
    "logistic": DPLogisticRegression(**LIMITS).fit(ROWS, LABELS),
    "auc": DPAUCClassifier(**LIMITS).fit(ROWS, LABELS),
    "poisson": DPPoissonRegressor(target_bounds=(0, 9), **LIMITS).fit(ROWS, np.abs(DEMAND)),
    "hazard": DPDiscreteHazard((1.0, 2.0, 4.0), **LIMITS).fit(
        ROWS, np.abs(DEMAND) * RNG.choice([-1, 1], 3000)
    ),
}
OF_MODEL = {
    "quantile": ("pinball", "absolute", "squared", "coverage", "residuals"),
    "newsvendor": ("cost",),
    "logistic": ("accuracy", "log_loss", "auc", "calibration"),
    "poisson": ("deviance",),
    "hazard": ("concordance", "brier"),
}
AROUND = {
    "pinball": DPQuantileRegressor(0.8, target_bounds=(-5, 5), feature_bounds=(-1, 1)),
    "cost": DPNewsvendor(3.0, 1.0, target_bounds=(-5, 5), feature_bounds=(-1, 1)),
    "deviance": DPPoissonRegressor(target_bounds=(0, 9), feature_bounds=(-1, 1)),
    "squared": DPQuantileRegressor(0.8, target_bounds=(-5, 5), feature_bounds=(-1, 1)),
    "residuals": DPQuantileRegressor(0.8, target_bounds=(-5, 5), feature_bounds=(-1, 1)),
}


@pytest.mark.parametrize("metric", AROUND)
def test_intervals_are_scored_by_their_estimator(metric):
    """By every metric but coverage, of which the intervals themselves are the answer."""
    y = np.abs(DEMAND) if metric == "deviance" else DEMAND
    intervals = DPConformal(AROUND[metric], 0.8, random_state=0).fit(ROWS, y)
    options = {"metric": metric, "random_state": 0, "epsilon": 2.0}
    found = private_score(intervals, ROWS, y, **options)
    expected = private_score(intervals.estimator_, ROWS, y, **options)
    assert found.certificate == expected.certificate
    np.testing.assert_array_equal(found.interval, expected.interval)
    if metric in ROW_METRICS:
        difference = private_score_difference(intervals, intervals, ROWS, y, **options)
        assert abs(difference.value) < difference.limits[1]
    covered = private_score(intervals, ROWS, y, metric="coverage", random_state=0)
    assert covered.value > 0.7


def test_a_level_of_several_is_scored_in_intervals():
    levels = DPQuantileRegressor((0.1, 0.9), target_bounds=(-5, 5), feature_bounds=(-1, 1))
    intervals = DPConformal(levels, 0.8, random_state=0).fit(ROWS, DEMAND)
    with pytest.raises(ValueError, match=r"like quantile=0\.1"):
        private_score(intervals, ROWS, DEMAND, metric="pinball")
    score = private_score(intervals, ROWS, DEMAND, metric="pinball", quantile=0.1, random_state=0)
    assert score.metric == "pinball"


def test_models_of_matrices_have_no_score():
    matrices = np.random.default_rng(0).normal(size=(50, 2, 3))
    model = DPMedian(random_state=0).fit(matrices, matrices[..., 0])
    for metric in ("absolute", "coverage", None):
        with pytest.raises(ValueError, match="records are matrices"):
            private_score(model, matrices, matrices[..., 0], metric, residual_bound=1.0)


OF_PAIRS = ("auc", "concordance")  # which need a public number of records
CASES = [(model, metric) for model, metrics in OF_MODEL.items() for metric in metrics]


def test_every_metric_is_tried():
    assert {metric for _, metric in CASES} == set(METRICS)


def statistic(model, metric, X, y, groups=None):
    fitted = MODELS[model]
    low, high = _evaluation_range(fitted, metric, None)
    with without_model_warnings():
        return exact_evaluation(_read_evaluated_rows(fitted, X, y, groups), metric, low, high, 4)


def rows_of(model, rng, count):
    """Rows that try to be far apart: extremes, ties, missing values, absurd targets."""
    X = rng.choice([-1.0, 0.0, 1.0, 50.0, np.nan], p=[0.3, 0.2, 0.3, 0.15, 0.05], size=(count, 2))
    if model == "logistic":
        return X, rng.integers(0, 2, count)
    return X, rng.choice([-1e9, -3.0, 0.0, 3.0, 1e9, np.nan], size=count)


@pytest.mark.parametrize(("model", "metric"), CASES)
def test_no_neighbour_moves_a_statistic_further(model, metric):
    largest = 0.0

    @FIXED
    @given(st.integers(2, 9), st.integers(0, 2**31))
    def run(count, seed):
        nonlocal largest
        rng = np.random.default_rng(seed)
        X, y = rows_of(model, rng, count)
        other_X = X.copy()
        other_y = y.copy()
        other_X[:1], other_y[:1] = rows_of(model, rng, 1)
        pair = statistic(model, metric, X, y), statistic(model, metric, other_X, other_y)
        kind, size = evaluation_statistic(metric, 4)
        moved = np.linalg.norm(pair[0] - pair[1])
        allowed = certified_evaluation_sensitivity(kind, count, "replace_one")
        assert len(pair[0]) == size
        assert moved <= allowed * (1 + 1e-12)
        largest = max(largest, moved / allowed)
        if metric not in OF_PAIRS:
            moved = np.linalg.norm(pair[0] - statistic(model, metric, X[1:], y[1:]))
            assert moved <= certified_evaluation_sensitivity(kind, count, "add_or_remove_one") * (
                1 + 1e-12
            )

    run()
    assert largest > 0.9  # the bound is attained, so a smaller one would have been noticed


@pytest.mark.parametrize(("model", "metric"), [case for case in CASES if case[1] != "concordance"])
def test_no_person_moves_a_statistic_further(model, metric):
    """All rows of a person at once, how many there are, and the name; rows that name nobody
    count for nobody.
    """
    largest = 0.0

    @FIXED
    @given(st.integers(0, 2**31), st.sampled_from(["replace_one", "add_or_remove_one"]))
    def run(seed, neighbors):
        nonlocal largest
        rng = np.random.default_rng(seed)
        if metric == "auc":  # needs a public number of people
            neighbors = "replace_one"

        def person(name):
            rows = int(rng.choice([1, 2, 7, 30]))
            return *rows_of(model, rng, rows), np.full(rows, name, dtype=object)

        others = [person(name) for name in ["a", "b", "c", None][: int(rng.integers(1, 5))]]
        first = [*others, person("x")]
        second = [*others, person(rng.choice(["x", "zoe"]))]
        if neighbors == "add_or_remove_one":
            second = others
        found = []
        for table in (first, second):
            X, y, names = (np.concatenate(column) for column in zip(*table, strict=True))
            found.append(statistic(model, metric, X, y, names))
        kind, _ = evaluation_statistic(metric, 4)
        moved = np.linalg.norm(found[0] - found[1]) / certified_evaluation_sensitivity(
            kind, 9, neighbors
        )
        assert moved <= 1 + 1e-12
        largest = max(largest, moved)

    run()
    assert largest > 0.7  # rows that counted in full would have moved it by far more than 1


def test_scores_of_people_are_means_of_means():
    """Somebody with 1,000 rows is one of 1,001 people."""
    fitted = MODELS["quantile"]
    names = np.r_[np.zeros(1000), np.arange(1, 1001)].astype(int)
    y = fitted.predict(ROWS[:2000]) + np.where(names == 0, 4.0, 0.0)
    found = private_score(fitted, ROWS[:2000], y, "absolute", epsilon=1e3, groups=names)
    assert found.value == pytest.approx(4 / 1001, abs=1e-2)
    found.certificate.verify()
    assert (found.certificate.unit, found.certificate.n_samples) == ("one person", 1001)
    with pytest.raises(CertificateError, match="unit"):
        replace(found.certificate, unit="everybody").verify()


@pytest.mark.parametrize("whole", [False, True])
def test_no_person_of_all_small_ones_moves_an_area_further(whole):
    """Everybody has up to two rows of either class at three margins, or invalid ones.

    Rows of a whole weight each would move it more.
    """
    kinds = [*product((-1.0, 0.0, 1.0), (0, 1)), (0.0, -1)]
    people = [rows for size in (1, 2) for rows in combinations_with_replacement(kinds, size)]

    def area(table):
        rows = [(name, *row) for name, each in enumerate(table) for row in each]
        names, ranked, label = (np.array(column) for column in zip(*rows, strict=True))
        shares = np.ones(len(names)) if whole else 1 / np.bincount(names)[names]
        return pair_statistic_of_people(ranked, label, shares, names, len(table))

    largest = 0.0
    for others in combinations_with_replacement(people[::3], 2):
        found = np.array([area((*others, person)) for person in people])
        moved = np.linalg.norm(found[:, None] - found[None], axis=-1)
        largest = max(largest, float(moved.max()))
    if whole:
        assert largest > 1.5
    else:
        assert 0.99 < largest <= certified_evaluation_sensitivity("auc", 3, "replace_one")


@pytest.mark.parametrize("weight", [None, 1.1])
def test_no_record_of_all_small_tables_moves_a_concordance_further(weight):
    """Every table of three records of three ranks and all outcomes of two periods; heavier
    counts of pairs would.
    """
    kinds = [*product((0.0, 1.0, 2.0), (0.0, 1.0, 2.0, 3.0, 4.0)), (0.0, np.nan)]
    with mock.patch.object(auc_pairs, "ROW_WEIGHT", weight or auc_pairs.ROW_WEIGHT):
        largest = 0.0
        for others in combinations_with_replacement(kinds, 2):
            tables = [np.array([*others, record]) for record in kinds]
            found = np.array(
                [auc_pairs.concordance_statistic(table[:, 0], table[:, 1]) for table in tables]
            )
            largest = max(
                largest, float(np.linalg.norm(found[:, None] - found[None], axis=-1).max())
            )
    if weight is not None:
        assert largest > 1.05
    else:
        assert 0.99 < largest <= certified_evaluation_sensitivity("concordance", 3, "replace_one")


def moved_by_first(model, metric, ends, X, y, other):
    """Return how far the statistic moves when the first target is another."""
    targets = y, np.concatenate([[other], y[1:]])
    with without_model_warnings():
        found = [
            exact_evaluation(_read_evaluated_rows(model, X, each), metric, *ends, 4)
            for each in targets
        ]
    return np.linalg.norm(found[0] - found[1])


def test_periods_next_to_the_largest_number_make_no_row_count_more():
    """Sums of such lengths times weights are infinite: a row over them was NaN, which as a whole
    number is -2^63.
    """
    rng = np.random.default_rng(5)
    time = np.where(rng.random(3000) < 0.5, 1.0, rng.uniform(0, 1e308, 3000))
    y = time * rng.choice([-1, 1], 3000)
    model = DPDiscreteHazard((1e308, 1.7e308), **LIMITS).fit(ROWS, y)
    ends = _evaluation_range(model, "brier", None)
    assert 1 <= ends[1] <= 16
    assert moved_by_first(model, "brier", ends, ROWS[:50], y[:50], -1.75e308) <= 1


def test_a_range_of_nothing_makes_no_row_count_more():
    """As above, of 0 over 0; a range that is no number above 0 is refused before."""
    y = np.full(50, 0.5)
    assert moved_by_first(MODELS["quantile"], "squared", (0.0, 0.0), ROWS[:50], y, np.nan) <= 1
    with pytest.raises(ValueError, match="at least 1e-150"):
        private_score(MODELS["quantile"], ROWS[:50], y, "squared", residual_bound=1e-200)


def test_areas_of_people_weigh_pairs_by_both_votes():
    """As the definition says it, pair by pair; pairs of one person's rows count as ties."""
    rng = np.random.default_rng(3)
    names = rng.integers(0, 9, 40)
    # rounded, so that there are ties
    X = np.round(ROWS[:40], 1)
    y = LABELS[:40]
    margins = MODELS["logistic"].decision_function(X)
    votes = 1 / np.bincount(names)[names]
    pairs = sum(
        votes[i] * votes[j] * np.sign(margins[i] - margins[j]) / 2
        for i in np.flatnonzero(y == 1)
        for j in np.flatnonzero(y == 0)
        if names[i] != names[j]
    )
    people = len(set(names))
    found = statistic("logistic", "auc", X, y, names)
    expected = [pairs / (people - 1), *(math.sqrt(3 / 8) * votes[y == k].sum() for k in (1, 0))]
    assert found == pytest.approx(expected, abs=1e-6)
    alone = statistic("logistic", "auc", X, y, np.arange(40))
    assert alone == pytest.approx(statistic("logistic", "auc", X, y), abs=1e-12)
    # Somebody who has most of the rows has one vote of 1,001.
    names = np.r_[np.zeros(1000), np.arange(1, 1001)].astype(int)
    X = ROWS[:2000]
    y = LABELS[:2000].copy()
    y[:1000] = MODELS["logistic"].predict(X[:1000]) == MODELS["logistic"].classes_[0]
    score = private_score(MODELS["logistic"], X, y, "auc", epsilon=50.0, groups=names)
    assert score.value == pytest.approx(
        roc_auc_score(y[1000:], MODELS["logistic"].decision_function(X[1000:])), abs=0.02
    )
    assert (score.certificate.unit, score.certificate.n_samples) == ("one person", 1001)
    score.certificate.verify()


def test_released_scores_keep_their_promise_and_half_the_noise_is_noticed():
    """False alarms: below 1e-6, by the audit's own confidence."""
    X = ROWS[:40]
    y = LABELS[:40].copy()
    other = y.copy()
    other[0] = 1 - other[0]
    pair = statistic("logistic", "auc", X, y), statistic("logistic", "auc", X, other)
    certificate = EvaluationCertificate.issue(GaussianDP(1.0), "score", "auc", 40, 3)
    direction = (pair[1] - pair[0]) / np.linalg.norm(pair[1] - pair[0])

    def sampler(exact, factor):
        def draw(count, rng):
            noise = NoiseSource(rng)
            loud = replace(certificate, scale=certificate.scale * factor)
            answers = [PrivateAnswers({"score": loud.term}, noise) for _ in range(count)]
            return np.array(
                [each.release(each.claim("score"), exact) @ direction for each in answers]
            )

        return draw

    claim = GaussianDP(
        float(np.linalg.norm(pair[1] - pair[0]))
    )  # what these two rows can show of mu = 1
    fair = audit(sampler(pair[0], 1.0), sampler(pair[1], 1.0), claim, runs=3000, rng=0)
    assert fair.passed
    wild = audit(sampler(pair[0], 0.5), sampler(pair[1], 0.5), claim, runs=3000, rng=0)
    assert not wild.passed


WIDE = DPQuantileRegressor(0.8, target_bounds=(-500, 500), **LIMITS).fit(ROWS, DEMAND)


@pytest.mark.parametrize("metric", ["pinball", "absolute", "squared"])
def test_a_paid_range_is_narrow_where_bounds_are_wide(metric):
    """Of 1,000 where residuals are of order 1: each of three questions is 40 standard deviations
    of noise clear.
    """
    usual = private_score(WIDE, ROWS, DEMAND, metric, mu=0.5, random_state=0)
    found = private_score(
        WIDE, ROWS, DEMAND, metric, mu=0.5, random_state=0, residual_bound="private"
    )
    found.certificate.verify()
    assert found.certificate.releases == 4
    assert found.limits[1] == usual.limits[1] / (4**7 if metric == "squared" else 2**7)
    widths = [score.interval[1] - score.interval[0] for score in (usual, found)]
    assert widths[1] < widths[0] / 10
    rows = _read_evaluated_rows(WIDE, ROWS, DEMAND)
    exact = exact_evaluation(rows, metric, *found.limits, 4)
    truth = found.limits[1] * (0.5 + exact[0] / len(ROWS))
    assert found.interval[0] <= truth <= found.interval[1]


def test_a_paid_range_spends_what_is_stated(monkeypatch):
    """A certificate of one release does not cover the questions about the range."""
    issue = EvaluationCertificate.issue.__func__

    def stingy(cls, guarantee, mechanism, statistic, n, dimension, releases, neighbors, **told):
        return issue(cls, guarantee, mechanism, statistic, n, dimension, 1, neighbors, **told)

    monkeypatch.setattr(EvaluationCertificate, "issue", classmethod(stingy))
    with pytest.raises(CertificateError, match="all of them are used"):
        private_score(WIDE, ROWS, DEMAND, "absolute", mu=0.5, residual_bound="private")


def test_the_width_of_an_interval_is_said_before_anything_is_charged(tmp_path, capsys):
    ledger = Ledger(tmp_path / "l.db", epsilon=9.0, delta=1e-5)
    # Seeded: an interval next to 0, where it ends, is narrower.
    found = private_score(
        WIDE, ROWS, DEMAND, "absolute", mu=1.5, ledger=ledger, verbose=1, random_state=0
    )
    said = capsys.readouterr().err
    assert float(re.search("about ([0-9.]+) wide", said)[1]) == pytest.approx(
        np.diff(found.interval)[0], rel=0.6
    )
    few = {"metric": "absolute", "epsilon": 0.05, "ledger": ledger}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyCostWarning, match="residual_bound='private'"):
            private_score(WIDE, ROWS[:50], DEMAND[:50], **few)
    assert len(ledger.entries()) == 1  # refused before the charge
    for metric, bound in (("coverage", "private"), ("absolute", "narrow")):
        with pytest.raises(ValueError, match="residual_bound"):
            private_score(WIDE, ROWS, DEMAND, metric, residual_bound=bound)


def test_ranges_come_from_the_schema_where_the_estimator_has_none(tmp_path):
    table = PublicTable({"features": {"a": [-1, 1], "b": [-1, 1]}, "target": {"y": [-5, 5]}})
    frame = pd.DataFrame(ROWS, columns=["a", "b"])
    plain = DPQuantileRegressor(0.8, feature_bounds=table.feature_bounds, random_state=0)
    pipeline = make_pipeline(table, plain).fit(frame, DEMAND)
    save_model(pipeline, tmp_path / "model.json")
    for model in (pipeline, load_model(tmp_path / "model.json")):
        assert private_score(model, frame, DEMAND, "absolute", mu=1.0).limits == (0, 10)


@pytest.mark.parametrize("budget", [{"mu": 0.5}, {"epsilon": 1.0}, {"epsilon": 1.0, "delta": 0.0}])
def test_intervals_hold_what_they_say(budget):
    """400 intervals of 95 %: fewer than 350 have a probability below 1e-9 (binomial)."""
    truth = {
        "accuracy": MODELS["logistic"].score(ROWS, LABELS),
        "log_loss": log_loss(LABELS, MODELS["logistic"].predict_proba(ROWS)),
        "auc": roc_auc_score(LABELS, MODELS["logistic"].decision_function(ROWS)),
    }
    held = 0
    for metric, exact in truth.items():
        for seed in range(134):
            score = private_score(
                MODELS["logistic"], ROWS, LABELS, metric, **budget, random_state=seed
            )
            held += score.interval[0] <= exact <= score.interval[1]
    assert held >= 350
    score.certificate.verify()


def test_scores_are_near_the_truth():
    """Noise of 1 / mu = 0.1 rows: six standard deviations."""
    quantile = MODELS["quantile"]
    newsvendor = MODELS["newsvendor"]
    pinball = private_score(quantile, ROWS, DEMAND, mu=10.0)
    exact = mean_pinball_loss(DEMAND, quantile.predict(ROWS), alpha=0.8)
    assert pinball.metric == "pinball"
    assert pinball.value == pytest.approx(exact, abs=0.6 * 8 / 3000 + 1e-5)
    cost = private_score(newsvendor, ROWS, DEMAND, mu=10.0)
    assert cost.metric == "cost"
    assert cost.value == pytest.approx(newsvendor.cost(ROWS, DEMAND), abs=0.6 * 30 / 3000 + 1e-4)
    counted = private_score(newsvendor, ROWS, DEMAND, mu=10.0, neighbors="add_or_remove_one")
    assert counted.value == pytest.approx(cost.value, abs=3 * 0.6 * 30 / 3000)
    assert private_score(MODELS["auc"], ROWS, LABELS).metric == "auc"


def test_scores_of_survival_are_those_of_their_definitions():
    """Pair by pair and period by period, at next to no noise; exact probabilities of being
    watched from the shares.
    """
    hazard = MODELS["hazard"]
    ends = np.array([1.0, 2.0, 4.0])
    rng = np.random.default_rng(4)
    X = ROWS[:300]
    time = rng.choice([0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0], 300)
    event = rng.random(300) < 0.6
    period = np.searchsorted(ends, time)
    survived = np.searchsorted(ends, time, side="right")
    seen = event & (time <= 4)
    risk = hazard.predict(X)
    pairs = [
        np.sign(risk[i] - risk[j]) / 2
        for i in np.flatnonzero(seen)
        for j in range(300)
        if (period[j] > period[i] if seen[j] else survived[j] > period[i])
    ]
    y = np.column_stack([time, event])
    found = private_score(hazard, X, y, mu=1e4)
    assert found.metric == "concordance"
    assert found.value == pytest.approx(0.5 + np.mean(pairs), abs=1e-4)
    assert found.rows == pytest.approx(len(pairs), rel=1e-3)
    assert "comparable pairs" in str(found)
    shares = np.asarray(hazard.released_["outcome_shares"])
    watched = 1.0
    errors = np.zeros(300)
    survival = hazard.predict_survival(X)
    weights = []
    for j, length in enumerate((1, 1, 2)):
        watched *= 1 - shares[2 * j] / shares[2 * j :].sum()
        weights.append(min(1 / watched, 16))
        for i in range(300):
            if seen[i] and period[i] <= j:
                errors[i] += length / 4 * weights[period[i]] * survival[i, j] ** 2
            elif (period if seen[i] else survived)[i] > j:
                errors[i] += length / 4 * weights[j] * (1 - survival[i, j]) ** 2
    found = private_score(hazard, X, y, "brier", mu=1e4)
    assert found.value == pytest.approx(errors.mean(), abs=1e-4)
    assert found.limits == (0, pytest.approx(np.average(weights, weights=[1, 1, 2])))
    with pytest.raises(ValueError, match="one record per person"):
        private_score(hazard, X, y, groups=np.arange(300))
    with pytest.raises(ValueError, match="models of survival"):
        private_score(hazard, X, y, "squared")
    with pytest.raises(ValueError, match="models of survival"):
        private_score(MODELS["quantile"], X, time, "brier")


@pytest.mark.parametrize(
    "model",
    [DPPoissonRegressor(), DPTweedieRegressor(1.3), DPGammaRegressor()],
    ids=lambda each: type(each).__name__,
)
def test_deviances_are_those_of_scikit_learn(model):
    demand = np.abs(DEMAND) + 0.01
    model = model.set_params(target_bounds=(0.01, 9), epsilon=20.0, **LIMITS).fit(ROWS, demand)
    exact = mean_tweedie_deviance(demand, model.predict(ROWS), power=model._variance_power())
    found = private_score(model, ROWS, demand, mu=1e3)
    assert found.metric == "deviance"
    assert found.value == pytest.approx(exact, rel=0.05)  # some rows lie beyond the range
    paid = private_score(model, ROWS, demand, residual_bound="private", mu=1.0, random_state=0)
    assert paid.limits[1] < found.limits[1]
    assert paid.value == pytest.approx(exact, rel=0.3)


def test_curves_are_near_the_truth():
    curve = private_score(MODELS["logistic"], ROWS, LABELS, "calibration", mu=10.0).curve
    assert np.all((curve["low"] <= curve["observed"]) & (curve["observed"] <= curve["high"]))
    assert curve["rows"].sum() == pytest.approx(3000, abs=30)
    busy = curve["rows"] > 100
    assert np.abs(curve["observed"] - curve["predicted"])[busy].max() < 0.25
    shares = private_score(MODELS["quantile"], ROWS, DEMAND, "residuals", mu=10.0, bins=20).curve
    assert shares["share"].sum() == pytest.approx(1.0, abs=0.05)
    assert len(shares["edges"]) == 21


def test_a_ledger_is_charged_once_and_errors_cost_nothing(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=2.0, delta=1e-5)
    private_score(MODELS["logistic"], ROWS, LABELS, "accuracy", epsilon=0.5, ledger=ledger)
    with pytest.raises(ValueError, match="metric"):
        private_score(MODELS["logistic"], ROWS, LABELS, "roc_auc", ledger=ledger)
    with pytest.raises(ValueError, match="regression"):
        private_score(MODELS["logistic"], ROWS, LABELS, "pinball", ledger=ledger)
    with pytest.raises(ValueError, match="columns"):
        private_score(MODELS["logistic"], ROWS[:, :1], LABELS, ledger=ledger)
    with pytest.raises(ValueError, match="public number of rows"):
        private_score(
            MODELS["logistic"], ROWS, LABELS, "auc", ledger=ledger, neighbors="add_or_remove_one"
        )
    assert [entry.description for entry in ledger.entries()] == ["private_score"]
    assert MODELS["logistic"].n_features_in_ == 2


@pytest.mark.parametrize(
    "forged",
    [
        {"scale": 0.5},
        {"releases": 0},
        {"dimension": True},
        {"statistic": "sum"},
        {"n_samples": -1},
        {"distribution": "l2-laplace"},
        {"neighbors": "none"},
        {"guarantee": PureDP(1e-3)},
        {"scale": np.nan},
    ],
)
def test_forged_certificates_are_refused(forged):
    certificate = EvaluationCertificate.issue(GaussianDP(1.0), "score", "mean", 100, 2)
    certificate.verify()
    with pytest.raises(CertificateError):
        replace(certificate, **forged).verify()


def test_no_certificate_promises_concordance_to_people():
    """Rows of a person would have to share a weight in pairs, which they do not."""
    record = EvaluationCertificate.issue(GaussianDP(1.0), "score", "concordance", 100, 2)
    record.verify()
    with pytest.raises(CertificateError, match="unit"):
        EvaluationCertificate.issue(
            GaussianDP(1.0), "score", "concordance", 100, 2, people=True
        ).verify()


def test_sparse_rows_are_refused_before_the_charge(tmp_path):
    """It said "setting an array element with a sequence"."""
    ledger = Ledger(tmp_path / "b.db", epsilon=1.0)
    with pytest.raises(TypeError, match=r"needs dense rows.*sparse table.*X\.toarray\(\)"):
        private_score(MODELS["quantile"], csr_matrix(ROWS), DEMAND, ledger=ledger, epsilon=0.5)
    assert ledger.entries() == []


def test_tables_are_scored_as_they_come(tmp_path):
    """By a pipeline with a public table, and by a model that was saved and loaded with its
    schema.
    """
    schema = {
        "features": {"a": [-1, 1]},
        "categories": {"city": ["rome", "oslo"]},
        "target": {"y": [-5, 5]},
    }
    cities = np.where(np.arange(3000) % 2, "rome", "oslo")
    frame = pd.DataFrame({"city": cities, "a": ROWS[:, 0]})
    table = PublicTable(schema)
    estimator = DPQuantileRegressor(
        0.5, feature_bounds=table.feature_bounds, target_bounds=table.target_bounds, random_state=0
    )
    pipeline = make_pipeline(table, estimator).fit(frame, DEMAND)
    save_model(pipeline, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    options = {"epsilon": 1.0, "random_state": 0}
    plain = private_score(estimator, table.transform(frame), DEMAND, **options)
    for model, rows in ((pipeline, frame), (loaded, frame), (loaded, table.transform(frame))):
        assert private_score(model, rows, DEMAND, **options).value == plain.value
    with pytest.raises(TypeError, match="another pipeline"):
        private_score(make_pipeline(StandardScaler(), estimator), frame, DEMAND)


def test_no_rows_have_a_score_where_their_number_is_private():
    for model, metric in CASES:
        if metric in OF_PAIRS:
            continue
        y = LABELS if model in ("logistic", "auc") else DEMAND
        for count in (0, 1):
            found = private_score(
                MODELS[model],
                ROWS[:count],
                y[:count],
                metric=metric,
                mu=1.0,
                neighbors="add_or_remove_one",
                random_state=0,
            )
            assert not np.isinf(found.value).any()


def test_bounds_by_name_are_those_of_tables_that_were_read():
    names = {"b": (-1, 1), "a": (-1, 1)}
    model = DPQuantileRegressor(0.8, target_bounds=(-5, 5), feature_bounds=names, random_state=0)
    table = pd.DataFrame(ROWS, columns=["a", "b"])
    fitted = model.fit(table, DEMAND)
    score = private_score(fitted, table, DEMAND, metric="pinball", mu=1.0, random_state=0)
    assert score.value < 0.3
    with pytest.raises(TypeError, match="named columns"):
        fitted.predict(ROWS)


def test_predictions_of_a_row_do_not_depend_on_others_even_beyond_the_largest_number():
    """Products that overflow and cancel: BLAS would round a row differently when there is one
    more.
    """
    rng = np.random.default_rng(0)
    coef = rng.normal(size=9)
    for _ in range(200):
        rows = rng.choice([-1, 1], (int(rng.integers(8, 40)), 9)) * rng.uniform(0.5, 1, 9) * 1.7e308
        alone = [linear_predictions(row[None], coef, 0.3)[0] for row in rows]
        np.testing.assert_array_equal(linear_predictions(rows, coef, 0.3), alone)


@pytest.mark.parametrize(("model", "metric"), [case for case in CASES if case[1] != "concordance"])
@pytest.mark.parametrize("groups", [False, True])
def test_scores_are_over_valid_rows(model, metric, groups):
    """A fifth of the rows hold missing values: they counted as the worst ones, and the score was
    about nothing.

    Seeded, so that the same scores come out whenever it runs; noise is far below a hundredth.
    """
    y = LABELS.astype(float) if model == "logistic" else DEMAND.copy()
    X = ROWS.copy()
    invalid = np.arange(len(y)) % 5 == 0
    y[invalid[: len(y)] & (np.arange(len(y)) % 2 == 0)] = np.nan
    X[invalid & ~np.isnan(y), 0] = np.inf
    names = (
        np.arange(len(y)) // 2 if groups else None
    )  # of two rows, none of which or one is invalid
    facts = {"epsilon": 1000.0, "residual_bound": 3.0, "random_state": 0}
    if model == "logistic":
        del facts["residual_bound"]
    found = private_score(MODELS[model], X, y, metric, groups=names, **facts)
    valid = ~invalid
    others = None if names is None else names[valid]
    wanted = private_score(MODELS[model], X[valid], y[valid], metric, groups=others, **facts)
    votes = 0.8 * len(y) / (2 if groups else 1)
    assert found.rows == pytest.approx(votes, rel=0.01)
    assert f"{found.rows:.4g} valid rows" in str(found) or found.curve
    if groups:  # somebody with an invalid row has half a vote: means over people are others
        assert np.isfinite(found.value) or found.curve
        return
    if found.curve:
        name = "observed" if metric == "calibration" else "share"
        assert found.curve[name] == pytest.approx(wanted.curve[name], abs=0.05)
    else:
        assert found.value == pytest.approx(wanted.value, rel=0.02, abs=0.01)


def test_a_difference_of_two_models_is_one_charge(tmp_path):
    """Paired by row: with little noise it is the difference of both scores; half the bound has
    half the noise.
    """
    worse = DPQuantileRegressor(0.8, target_bounds=(-5, 5), **LIMITS).fit(ROWS * [0, 1], DEMAND)
    pair = MODELS["quantile"], worse
    ledger = Ledger(tmp_path / "ledger.json", epsilon=1e6, delta=1e-3)
    found = private_score_difference(
        *pair, ROWS, DEMAND, "pinball", mu=500.0, random_state=0, ledger=ledger
    )
    losses = [mean_pinball_loss(DEMAND, each.predict(ROWS), alpha=0.8) for each in pair]
    assert found.value == pytest.approx(losses[0] - losses[1], abs=1e-3)
    assert found.metric == "difference of pinball"
    assert len(ledger.entries()) == 1
    found.certificate.verify()
    lengths = [
        np.ptp(
            private_score_difference(
                *pair, ROWS, DEMAND, epsilon=1.0, bound=bound, random_state=0
            ).interval
        )
        for bound in (2.0, 1.0)
    ]
    assert lengths[0] == pytest.approx(2 * lengths[1], rel=0.05)
    invalid = np.where(np.arange(3000) < 1000, np.nan, DEMAND)
    fewer = private_score_difference(
        *pair, ROWS, invalid, mu=500.0, random_state=0, groups=np.arange(3000)
    )
    assert fewer.rows == pytest.approx(2000, abs=5)
    for wrong, match in (({"metric": "residuals"}, "number per row"), ({"bound": -1.0}, "above 0")):
        with pytest.raises(ValueError, match=match):
            private_score_difference(*pair, ROWS, DEMAND, **wrong)
