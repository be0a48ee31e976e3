"""Every fit is charged, in every process; what is refused costs nothing."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpconvex import DPQuantileRegressor
from dpconvex.core.guarantees import pure_guarantee_mu
from dpconvex.mechanisms import ObjectivePerturbation
from dpconvex.preprocessing import DPQuantileBounds
from dpconvex.privacy import (
    ApproxDP,
    BudgetExceeded,
    GaussianDP,
    Ledger,
    LedgerError,
    PureDP,
    gaussian_mu,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
y = X @ [1.0, -1.0] + rng.normal(size=60)
SETTINGS = {"feature_bounds": (-4.0, 4.0), "target_bounds": (-8.0, 8.0)}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "privacy.db", "survey", epsilon=100.0, delta=1e-3)


def estimator(ledger, **settings):
    return DPQuantileRegressor(**{"epsilon": 0.5, **SETTINGS, **settings}, ledger=ledger)


def test_a_fit_is_charged_with_its_certificate(ledger):
    model = estimator(ledger, delta=1e-7).fit(X, y)
    (entry,) = ledger.entries()
    assert entry.guarantee == model.certificate_.guarantee == ApproxDP(0.5, 1e-7)
    assert entry.neighbors == "replace_one"
    assert entry.mechanism == model.certificate_.mechanism
    assert "DPQuantileRegressor" in entry.description
    model.predict(X)
    model.score(X, y)
    model.certify(60, 2)
    model.summary()
    assert len(ledger.entries()) == 1  # only fits cost
    model.fit(X, y)
    assert len(ledger.entries()) == 2


@pytest.mark.parametrize(
    ("settings", "guarantee"),
    [
        ({"mechanism": "objective"}, ApproxDP(0.5, 1e-6)),
        ({"mechanism": "objective", "delta": 0.0}, PureDP(0.5)),
        ({"mechanism": "output", "delta": 0.0}, PureDP(0.5)),
        ({"mechanism": "output", "epsilon": None, "mu": 0.3}, GaussianDP(0.3)),
        ({"mechanism": "gradient", "epsilon": None, "mu": 0.3}, GaussianDP(0.3)),
        ({"mechanism": "auto"}, ApproxDP(0.5, 1e-6)),
    ],
)
def test_every_kind_of_guarantee_is_charged(ledger, settings, guarantee):
    estimator(ledger, **settings).fit(X, y)
    assert [entry.guarantee for entry in ledger.entries()] == [guarantee]


@pytest.mark.parametrize(
    ("settings", "gaussian"),
    [
        ({}, True),
        ({"mechanism": "gradient"}, True),
        ({"mechanism": "output"}, True),
        ({"mechanism": "objective"}, False),
        ({"mechanism": "objective", "delta": 0.0}, False),
        ({"mechanism": "sgd"}, False),
    ],
)
def test_a_gaussian_release_is_charged_its_mu(ledger, settings, gaussian):
    model = estimator(ledger, **settings).fit(X, y)
    (entry,) = ledger.entries()
    assert entry.mu == (pytest.approx(gaussian_mu(0.5, 1e-6), rel=1e-6) if gaussian else None)
    assert entry.mu == model.certificate_.gaussian_mu()


def test_default_fits_add_up_in_squares(tmp_path):
    """A budget of (1, 1e-6) has room for three default fits of (0.5, 1e-6), whose sums would
    allow one.
    """
    ledger = Ledger(tmp_path / "privacy.db", epsilon=1.0, delta=1e-6)
    for _ in range(3):
        estimator(ledger).fit(X, y)
    with pytest.raises(BudgetExceeded):
        estimator(ledger).fit(X, y)


def test_paid_preprocessing_knows_its_mu(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", mu=1.0)
    DPQuantileBounds((-4, 4), epsilon=0.5, delta=0.0, ledger=ledger).fit(X)
    assert ledger.total().mu == pytest.approx(2 * pure_guarantee_mu(0.5 / 4))


def test_seeded_fits_are_charged_too(ledger):
    estimator(ledger, random_state=0).fit(X, y)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_cross_validation_charges_every_fit(ledger, n_jobs):
    cross_val_score(estimator(ledger), X, y, cv=5, n_jobs=n_jobs)
    assert [entry.guarantee for entry in ledger.entries()] == [ApproxDP(0.5, 1e-6)] * 5
    assert ledger.remaining().charges == 5


def test_grid_search_charges_every_fit_and_the_refit(ledger):
    search = GridSearchCV(estimator(ledger), {"quantile": [0.3, 0.5], "alpha": [1.0, None]}, cv=3)
    search.fit(X, y)
    assert len(ledger.entries()) == 2 * 2 * 3 + 1


def test_other_tools_that_clone(ledger):
    cross_val_predict(estimator(ledger), X, y, cv=2)
    assert len(ledger.entries()) == 2
    MultiOutputRegressor(estimator(ledger)).fit(X, np.column_stack([y, -y, y]))
    assert len(ledger.entries()) == 5
    identity = FunctionTransformer()
    clone(make_pipeline(identity, estimator(ledger))).fit(X, y)
    assert len(ledger.entries()) == 6
    pickle.loads(pickle.dumps(estimator(ledger))).fit(X, y)
    assert len(ledger.entries()) == 7


def test_an_exhausted_budget_refuses_and_charges_nothing(tmp_path):
    ledger = Ledger(tmp_path / "small.db", epsilon=1.2, delta=1e-5, composition="sums")
    model = estimator(ledger)
    model.fit(X, y)
    model.fit(X, y)
    coef = model.coef_
    spent = ledger.entries()
    with pytest.raises(BudgetExceeded):
        model.fit(X, y)
    assert ledger.entries() == spent
    assert model.coef_ is coef  # the refused fit changed nothing
    fresh = clone(model)
    with pytest.raises(BudgetExceeded):
        fresh.fit(X, y)
    assert not hasattr(fresh, "coef_")
    # What is left may still be spent.
    estimator(ledger, epsilon=0.2).fit(X, y)


def test_cross_validation_stops_where_the_budget_ends(tmp_path):
    ledger = Ledger(tmp_path / "small.db", epsilon=1.5, delta=1e-4, composition="sums")
    with pytest.raises(BudgetExceeded):
        cross_val_score(estimator(ledger), X, y, cv=5, error_score="raise")
    assert len(ledger.entries()) == 3


def test_the_charge_precedes_the_noise(ledger):
    seen = []

    class Watching(ObjectivePerturbation):
        def release(self, objective, certificate, *arguments):
            seen.append(len(ledger.entries()))
            return super().release(objective, certificate, *arguments)

    estimator(ledger, mechanism=Watching()).fit(X, y)
    assert seen == [1]


def test_relations_do_not_mix(ledger):
    estimator(ledger).fit(X, y)
    other = estimator(ledger, neighbors="add_or_remove_one", nominal_samples=50)
    with pytest.raises(LedgerError, match="neighbors"):
        other.fit(X, y)
    assert len(ledger.entries()) == 1


def test_a_damaged_ledger_releases_nothing(ledger):
    model = estimator(ledger)
    with open(ledger.path, "r+b") as file:
        file.truncate(100)
    with pytest.raises(LedgerError):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


def test_the_ledger_holds_no_data(ledger):
    marked = X.copy()
    target = y.copy()
    marked[0, 0] = target[0] = 77123.4375
    estimator(ledger).fit(marked, target)
    with open(ledger.path, "rb") as file:
        assert b"77123" not in file.read()
