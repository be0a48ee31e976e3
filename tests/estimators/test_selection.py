"""Private selection: one total, charged once, never exceeded, and better than an even split."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone

from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.assessment.selection_certificate import (
    selection_certificate_mu,
    selection_certificate_shares,
)
from dpconvex.audit import audit
from dpconvex.core.calibration import gaussian_mu
from dpconvex.core.guarantees import guaranteed_pure_epsilon
from dpconvex.privacy import ApproxDP, BudgetExceeded, GaussianDP, Ledger, PureDP
from dpconvex.selection import AUCScore, DPSelect, RowScore

ALPHAS = {"alpha": [1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0]}


def regressor(**settings):
    return DPQuantileRegressor(
        0.8, feature_bounds=(0, 1), target_bounds=(0, 10), mechanism="output", **settings
    )


def sample(rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (rows, 2))
    return X, 2 + 5 * X[:, 0] + X[:, 1] + rng.normal(0, 0.5, rows)


@pytest.mark.parametrize("candidates", [6, 16, 64])
def test_each_fit_gets_more_than_by_an_even_split(candidates):
    grid = {"alpha": np.geomspace(1e-3, 10, candidates).tolist()}
    certificate = DPSelect(regressor(), grid, epsilon=1.0, delta=1e-6).certify(1000, 2)
    even = gaussian_mu(1.0 / candidates, 1e-6 / candidates)
    even_gaussian = gaussian_mu(1.0, 1e-6) / math.sqrt(candidates)
    assert certificate.strategy == "repeat"
    assert certificate.per_fit.mu > max(2.5 * even, 1.1 * even_gaussian)


def test_strategies_by_budget():
    assert selection_certificate_shares(ApproxDP(1.0, 1e-6), "auto", 2, None)[0] == "exponential"
    assert selection_certificate_shares(GaussianDP(0.6), "auto", 9, None)[1] == GaussianDP(0.6 / 3)
    assert selection_certificate_shares(PureDP(1.0), "auto", 4, None)[1] == PureDP(0.25)
    with pytest.raises(ValueError, match="needs epsilon with delta above 0"):
        selection_certificate_shares(GaussianDP(0.6), "repeat", 9, None)


def test_repeated_selection_is_on_the_safe_side_and_nearly_tight():
    from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    mu = selection_certificate_mu(1.0, 1e-6, 12.0)
    costs = []
    for size in (mu, 1.01 * mu):
        accountant = RdpAccountant()
        accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / size), 12.0, 1.0))
        costs.append(accountant.get_epsilon(1e-6))
    assert costs[0] <= 1.0 < costs[1]


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_exponential_mechanism_is_covered_by_its_gaussian_budget(mu):
    curve = np.linspace(0, 1, 2001)
    pure = PureDP(guaranteed_pure_epsilon(GaussianDP(mu)))
    assert (np.asarray(pure.tradeoff(curve)) >= GaussianDP(mu).tradeoff(curve) - 1e-12).all()
    larger = PureDP(1.01 * pure.epsilon_bound)
    assert (np.asarray(larger.tradeoff(curve)) < GaussianDP(mu).tradeoff(curve) - 1e-6).any()


@pytest.mark.parametrize("strategy", ["exponential", "repeat"])
def test_the_choice_is_sensible_and_the_total_charged_once(strategy, tmp_path):
    X, y = sample()
    ledger = Ledger(tmp_path / "privacy.db", epsilon=3.0, delta=1e-5)
    search = DPSelect(
        regressor(), ALPHAS, epsilon=3.0, strategy=strategy, ledger=ledger, random_state=1
    ).fit(X, y)
    assert search.best_params_["alpha"] < 10  # 10 and 100 predict next to nothing but the middle
    (entry,) = ledger.entries()
    assert entry.guarantee == search.certificate_.guarantee == ApproxDP(3.0, 1e-6)
    assert search.certificate_ == search.certify(*X.shape)
    search.certificate_.verify()
    assert search.predict(X[:3]).shape == (3,)
    assert search.score(X, y) > 0
    with pytest.raises(BudgetExceeded):
        search.fit(X, y)


def test_classifiers_and_dataframes():
    X, y = sample(1500)
    table = pd.DataFrame(X, columns=["a", "b"])
    labels = np.where(y > 5, "high", "low")
    model = DPLogisticRegression(feature_bounds=(0, 1))
    search = DPSelect(model, {"alpha": [1e-4, 1e-2]}, mu=2.0, random_state=0).fit(table, labels)
    assert set(search.classes_) == {"high", "low"}
    assert search.score(table, labels) > 0.8
    assert search.predict_proba(table[:4]).shape == (4, 2)
    assert list(search.feature_names_in_) == ["a", "b"]
    assert not hasattr(DPSelect(regressor(), ALPHAS), "predict_proba")


def test_the_noise_of_the_choice_is_audited():
    """A record of the validation rows: the noisy score of one run is mu-GDP, false alarm at most
    1e-6.

    Half the noise on the score would be refuted: sensitivity 1 is attained by a row that turns from
    right to wrong.
    """
    mu = selection_certificate_mu(3.0, 1e-3, 4.0)
    wins = {True: (10.0, 10.0), False: (10.0, 9.0)}

    def sampler(first, less=1.0):
        def draw(count, rng):
            # Two candidates, exact scores as given; the geometric number of runs, the best noisy
            # one released.
            output = np.empty(count)
            for number, runs in enumerate(rng.geometric(1 / 4.0, count)):
                which = rng.integers(2, size=runs)
                scores = np.take(wins[first], which) + rng.normal(0, less / mu, runs)
                output[number] = which[np.argmax(scores)]
            return output

        return draw

    assert audit(sampler(True), sampler(False), ApproxDP(3.0, 1e-3), runs=4000, rng=0).passed
    tiny = audit(sampler(True, 0.02), sampler(False, 0.02), ApproxDP(0.3, 1e-3), runs=4000, rng=0)
    assert not tiny.passed  # the audit has eyes


@pytest.mark.parametrize(
    ("model", "grid", "settings", "complaint"),
    [
        (regressor(epsilon=1.0), ALPHAS, {}, "must be left at None"),
        (regressor(neighbors="add_or_remove_one"), ALPHAS, {}, "nominal_samples"),
        (regressor(), {"neighbors": ["replace_one"]}, {}, "what all candidates share"),
        (regressor(), {"epsilon": [1.0]}, {}, "other than its budget"),
        (regressor(), {"tea": [1.0]}, {}, "must hold parameters of"),
        (regressor(), ALPHAS, {"strategy": "luck"}, "must be one of"),
        (regressor(), ALPHAS, {"validation_share": 1.0}, "between 0 and 1"),
        (regressor(), ALPHAS, {"mean_repeats": 0.5}, "at least 1"),
        (regressor(), ALPHAS, {"epsilon": 1.0, "mu": 1.0}, "either 'mu' or 'epsilon'"),
        (DPQuantileRegressor(), ALPHAS, {}, "scores must be bounded"),
        (regressor(), {"mechanism": ["objective"]}, {"mu": 1.0}, "mu"),
    ],
)
def test_wrong_settings_are_refused_before_data(model, grid, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        DPSelect(model, grid, **settings).certify(1000, 2)


def test_it_is_cloned_with_its_ledger(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=1.0)
    search = DPSelect(regressor(), ALPHAS, ledger=ledger)
    assert clone(search).ledger is ledger
    assert clone(search).get_params()["estimator__quantile"] == 0.8


def test_a_seeded_choice_says_so():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 2))
    free, seeded = (
        DPSelect(regressor(), ALPHAS, mu=1.0, random_state=seed).fit(X, 5 * X.sum(axis=1))
        for seed in (None, 0)
    )
    assert free.certificate_ == free.certify(200, 2)
    assert "seeded" in seeded.certificate_.sampler
    assert "seeded" not in free.certificate_.sampler
    seeded.certificate_.verify()


@pytest.mark.parametrize("wrong", ["X", "y", "text", "records"])
def test_data_that_cannot_be_read_cost_nothing(wrong, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 2))
    y = rng.uniform(0, 10, 200)
    if wrong == "X":
        X[0, 0] = np.nan
    elif wrong == "y":
        y[0] = np.nan
    elif wrong == "text":
        y = np.full(200, "secret")
    else:
        X = X.reshape(50, 2, 4)
    ledger = Ledger(tmp_path / "budget.db", epsilon=10.0, delta=1e-3)
    with pytest.raises(ValueError, match="DPQuantileRegressor") as caught:
        DPSelect(regressor(), ALPHAS, epsilon=1.0, ledger=ledger).fit(X, y)
    assert "secret" not in str(caught.value)
    assert not ledger.entries()


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
def test_sparse_rows_are_chosen_on_as_dense_ones_are(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (600, 3)) * (rng.random((600, 3)) < 0.4)
    likely = RowScore(lambda target, chances: chances[int(target)], response="predict_proba")
    for model, y, scoring in (
        (regressor(), 5 * X.sum(axis=1), None),
        (DPLogisticRegression(feature_bounds=(0, 1)), (X.sum(axis=1) > 0.5).astype(int), None),
        (DPLogisticRegression(feature_bounds=(0, 1)), (X[:, 0] > 0).astype(int), likely),
        (DPLogisticRegression(feature_bounds=(0, 1)), (X[:, 0] > 0).astype(int), AUCScore(9, 9)),
    ):
        search = DPSelect(model, {"alpha": [0.01, 1.0]}, mu=2.0, scoring=scoring, random_state=0)
        dense = clone(search).fit(X, y)
        found = clone(search).fit(kind(X), y)
        assert found.best_params_ == dense.best_params_
        np.testing.assert_allclose(found.coef_, dense.coef_, atol=1e-6)
        assert len(found.predict(kind(X))) == 600


def test_votes_of_sparse_rows_are_refused_before_the_charge(tmp_path):
    rng = np.random.default_rng(0)
    X = csr_matrix(rng.uniform(0, 1, (60, 2)))
    y = rng.integers(0, 2, 60)
    weights = {0: 0.5, 1: 1.0}
    plain, weighted = (
        DPLogisticRegression(feature_bounds=(0, 1), class_weight=each) for each in (None, weights)
    )
    for number, (model, grid, groups) in enumerate(
        (
            (plain, ALPHAS, np.arange(60) // 2),
            (plain, {"class_weight": [weights]}, None),
            (weighted, ALPHAS, None),
        )
    ):
        ledger = Ledger(tmp_path / f"{number}.db", epsilon=10.0, delta=1e-3)
        with pytest.raises(TypeError, match=r"Sparse rows are records of their own.*X.toarray\(\)"):
            DPSelect(model, grid, epsilon=1.0, ledger=ledger).fit(X, y, groups=groups)
        assert not ledger.entries()
