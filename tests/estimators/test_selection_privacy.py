"""Private selection under attack: its relation, its choice, its certificate, and what it lets
slip.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from dpconvex import DPAUCClassifier, DPLogisticRegression, DPQuantileRegressor
from dpconvex.assessment.selection import AUCScore, DPSelect, RowScore, held_out_for_selection
from dpconvex.audit import audit
from dpconvex.estimators.linear import PrivateLinearModel
from dpconvex.preprocessing import DPQuantileBounds
from dpconvex.privacy import (
    ApproxDP,
    CertificateError,
    GaussianDP,
    Ledger,
    LedgerError,
    NoiseSource,
    PureDP,
)
from dpconvex.privacy.bounds.scores import AUCScoreBounds, RowScoreBounds
from dpconvex.releases.exponential_choices import SCORE_GRID, ExponentialChoices

ALPHAS = {"alpha": [0.01, 1.0]}


def regressor(**settings):
    return DPQuantileRegressor(
        0.8, feature_bounds=(0, 1), target_bounds=(0, 10), mechanism="output", **settings
    )


def ranking(**settings):
    return DPAUCClassifier(
        "hinge", feature_bounds=(-1, 1), mechanism="output", classes=[0, 1], **settings
    )


def sample(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (rows, 2))
    return X, 2 + 5 * X[:, 0] + rng.normal(0, 0.5, rows)


def labelled(rows=200, seed=0):
    X, y = sample(rows, seed)
    return X, np.where(y > 4.5, 1, 0)


def refuted(first, second, std, claim):
    """Return whether releases of these coefficients (one per split) with this noise refute a
    claim.
    """

    def release(values):
        return lambda count, rng: rng.choice(values, count) + std * rng.standard_normal(count)

    return not audit(release(first), release(second), claim, runs=60_000, rng=0).passed


def test_a_selection_promises_no_more_than_its_candidates(monkeypatch):
    """A label that flips is not protected where labels are public, and the certificate must not say
    that it is.

    The claim mu = 1 is refuted for neighbours that differ in a label, at confidence 1 - 1e-6 and
    with mu above 1.4; neighbours that keep it stay within the claim.
    """
    # One coefficient, all splits with 1 of 21 rows held out: exact minimisers, the stated noise
    # added by hand.
    search = DPSelect(
        ranking(label_private=False, min_positive=10, min_negative=10),
        {"alpha": [10.0]},
        mu=1.0,
        validation_share=0.05,
    )
    monkeypatch.setattr(NoiseSource, "add_gaussian", lambda self, value, std: value)

    def minimisers(X, y):
        fits = [search.set_params(random_state=seed).fit(X, y) for seed in range(24)]
        return [fit.coef_[0, 0] for fit in fits]

    y = np.repeat([1, 0], [10, 11])
    X = np.where(y == 1, 1.0, -1.0)[:, None]
    flipped = y.copy()
    moved = X.copy()
    flipped[0] = 0
    moved[0] = -1.0
    own = ranking(label_private=False, min_positive=10, min_negative=10, alpha=10.0, mu=1.0)
    (term,) = own.certify(20, 1).noise.values()
    exact = minimisers(X, y)
    assert refuted(exact, minimisers(X, flipped), term["std"], GaussianDP(1.0))
    assert refuted(exact, minimisers(X, flipped), term["std"], GaussianDP(1.4))
    assert not refuted(exact, minimisers(moved, y), term["std"], GaussianDP(1.0))
    # So this is what may be said, and no more.
    assert search.certificate_.neighbors == "replace_one_keeping_label"
    assert search.certify(21, 1).neighbors == "replace_one_keeping_label"


def test_the_ledger_notes_the_relation(tmp_path):
    X, y = labelled()
    ledger = Ledger(tmp_path / "privacy.db", epsilon=30.0, delta=1e-5)
    search = DPSelect(ranking(label_private=False), ALPHAS, epsilon=1.0, ledger=ledger)
    search.fit(2 * X - 1, y)
    (entry,) = ledger.entries()
    assert entry.neighbors == "replace_one_keeping_label"
    with pytest.raises(LedgerError, match="do not add up"):
        DPSelect(ranking(), ALPHAS, epsilon=1.0, ledger=ledger).fit(2 * X - 1, y)
    assert len(ledger.entries()) == 1


def test_candidates_that_promise_different_things_are_refused(tmp_path):
    X, y = labelled()
    ledger = Ledger(tmp_path / "privacy.db", epsilon=30.0, delta=1e-5)
    search = DPSelect(ranking(), {"label_private": [True, False]}, ledger=ledger)
    with pytest.raises(ValueError, match="same neighbouring relation"):
        search.fit(2 * X - 1, y)
    assert not ledger.entries()


def test_the_ledger_is_charged_once_before_anything_is_fitted(tmp_path, monkeypatch):
    X, y = sample()
    ledger = Ledger(tmp_path / "privacy.db", epsilon=30.0, delta=1e-3)
    charged = []
    fit = PrivateLinearModel.fit

    def watched(self, *data):
        charged.append(len(ledger.entries()))
        return fit(self, *data)

    monkeypatch.setattr(PrivateLinearModel, "fit", watched)
    for strategy in ("exponential", "repeat"):
        DPSelect(regressor(), ALPHAS, strategy=strategy, ledger=ledger).fit(X, y)
    assert charged[:2] == [1, 1]
    assert set(charged[2:]) == {2}
    # Somebody who searches among selections pays for each of them.
    cross_val_score(
        DPSelect(regressor(), ALPHAS, strategy="exponential", ledger=ledger), X, y, cv=2
    )
    assert len(ledger.entries()) == 4

    class Refuses:
        def charge(self, *charge, **facts):
            raise LedgerError("no")

    charged.clear()
    with pytest.raises(LedgerError):
        DPSelect(regressor(), ALPHAS, ledger=Refuses()).fit(X, y)
    assert not charged


def test_a_private_number_of_rows():
    """Coins of the other rows stay what they are when a row is added, and only nominal numbers
    are stated.
    """
    X, y = sample(300)
    model = regressor(neighbors="add_or_remove_one", nominal_samples=400)
    search = DPSelect(model, ALPHAS, mu=1.0, random_state=0)
    certificate = search.certify(300, 2)
    assert certificate.neighbors == "add_or_remove_one"
    assert (certificate.training_rows, certificate.validation_rows) == (300, 100)
    assert {fit.bounds.n_samples for fit in certificate.fits} == {300}
    certificate.verify()
    for rows in (299, 300):
        assert search.fit(X[:rows], y[:rows]).certificate_ == certificate
    shorter, longer = (
        held_out_for_selection(certificate, 0.25, rows, NoiseSource(3)) for rows in (299, 300)
    )
    assert np.array_equal(shorter, longer[:299])
    # 60,000 coins of 1/4 stray from it by more than 0.009 with probability below 1e-6.
    assert (
        abs(held_out_for_selection(certificate, 0.25, 60_000, NoiseSource(4)).mean() - 0.25) < 0.009
    )
    # Scores that all move one way need no factor of two in the exponent.
    assert certificate.score.directions("add_or_remove_one") == 1


def test_few_rows_under_a_private_number_of_rows():
    """Whatever falls into a part, even nothing: a failure would tell how many rows there are."""
    model = regressor(neighbors="add_or_remove_one", nominal_samples=50, alpha=1.0, mu=1.0)
    model.fit(np.empty((0, 2)), np.empty(0))
    X, y = sample(3)
    for seed in range(30):
        search = DPSelect(model.set_params(alpha=None, mu=None), ALPHAS, mu=1.0, random_state=seed)
        for rows in range(4):
            search.fit(X[:rows], y[:rows])


def choices(scores, epsilon, neighbors="replace_one"):
    steps = np.array(scores) * SCORE_GRID

    def draw(count, rng):
        allowed = ExponentialChoices(epsilon, count, NoiseSource(rng))
        rows = RowScoreBounds()
        return np.array(
            [allowed.candidate(steps, rows, neighbors) == 0 for _ in range(count)], float
        )

    return draw


def test_the_choice_is_audited_and_half_its_noise_is_caught():
    """Ten candidates, one against all others: false alarm at most 1e-6; with epsilon doubled the
    ratio is 1.78.
    """
    first = [0] + [1] * 9
    second = [1] + [0] * 9
    claim = PureDP(1.0)
    assert audit(choices(first, 1.0), choices(second, 1.0), claim, runs=8000, rng=0).passed
    assert not audit(choices(first, 2.0), choices(second, 2.0), claim, runs=8000, rng=0).passed
    # A record that is added raises all others at most: half the exponent's divisor is enough there,
    # not here.
    added = ([0] * 10, [1] + [0] * 9)
    samplers = [choices(scores, 1.0, "add_or_remove_one") for scores in added]
    assert audit(*samplers, claim, runs=8000, rng=0).passed
    samplers = [choices(scores, 1.0, "add_or_remove_one") for scores in (first, second)]
    assert not audit(*samplers, claim, runs=8000, rng=0).passed


def test_the_choice_follows_its_law():
    # 20,000 draws: a frequency strays by 0.02 with probability below 1e-7.
    allowed = ExponentialChoices(2.0, 20_000, NoiseSource(0))
    rows = RowScoreBounds()
    steps = np.array([0, 1, 3]) * SCORE_GRID
    drawn = [allowed.candidate(steps, rows, "replace_one") for _ in range(20_000)]
    drawn = np.bincount(drawn, minlength=3) / 20_000
    expected = np.exp([0.0, 1.0, 3.0]) / np.exp([0.0, 1.0, 3.0]).sum()
    np.testing.assert_allclose(drawn, expected, atol=0.02)


FORGERIES = {
    "exponential": [
        {"guarantee": GaussianDP(0.01)},
        {"guarantee": PureDP(1.0)},
        {"per_fit": GaussianDP(1.0)},
        {"noise": {"epsilon": 9.0}},
        {"noise": {"epsilon": -1.0}},
        {"noise": {"epsilon": float("nan")}},
        {"noise": {"std": 1.0}},
        {"mean_repeats": 1e-6},
    ],
    "repeat": [
        {"guarantee": ApproxDP(0.5, 1e-6)},
        {"guarantee": ApproxDP(1.0, 0.0)},
        {"guarantee": GaussianDP(1.0)},
        {"per_fit": GaussianDP(1.0)},
        {"per_fit": PureDP(0.1)},
        {"noise": {"std": 1.0}},
        {"noise": {"std": float("inf")}},
        {"mean_repeats": 0.0},
        {"mean_repeats": -1.0},
        {"mean_repeats": 1e6},
        {"mean_repeats": True},
    ],
}
FORGERIES_OF_BOTH = [
    {"candidates": 1e-6},
    {"candidates": 1.0},
    {"candidates": 1},
    {"candidates": 0},
    {"candidates": True},
    {"training_rows": 1.5},
    {"training_rows": 10**6},
    {"validation_rows": 0},
    {"validation_rows": 2.5},
    {"strategy": "luck"},
    {"neighbors": "add_or_remove_one"},
    {"neighbors": "replace_one_keeping_label"},
    {"neighbors": "nobody"},
    {"sampler": "floating-point"},
    {"label_set": "secret"},
    {"score": None},
    {"fits": ()},
    {"noise": {}},
    {"noise": None},
    {"guarantee": None},
    {"guarantee": 1.0},
]


@pytest.mark.parametrize("strategy", ["exponential", "repeat"])
def test_forged_certificates_do_not_verify(strategy):
    certificate = DPSelect(regressor(), ALPHAS, strategy=strategy).certify(1000, 2)
    certificate.verify()
    assert certificate.epsilon(1e-6) == 1.0
    for change in FORGERIES[strategy] + FORGERIES_OF_BOTH:
        with pytest.raises(CertificateError):
            replace(certificate, **change).verify()
    first, second = certificate.fits
    with pytest.raises(CertificateError):
        replace(certificate, fits=(first, replace(second, noise={}))).verify()
    score = AUCScoreBounds(5, 5)
    object.__setattr__(score, "min_positive", 1e-6)
    with pytest.raises(CertificateError):
        replace(certificate, score=score).verify()


def test_more_noise_than_today_verifies():
    certificate = DPSelect(regressor(), ALPHAS, strategy="exponential").certify(1000, 2)
    replace(certificate, noise={"epsilon": 0.5}).verify()
    replace(certificate, guarantee=ApproxDP(1.1, 1e-6)).verify()
    certificate = DPSelect(regressor(), ALPHAS, strategy="repeat").certify(1000, 2)
    replace(certificate, noise={"std": 2 * certificate.noise["std"]}).verify()
    replace(certificate, mean_repeats=3.0).verify()


def test_the_area_under_the_curve_as_a_score():
    X, y = labelled(800)
    model = DPLogisticRegression(feature_bounds=(0, 1), mechanism="output")
    widths = [(0, 1), (0, 1e9)]  # bounds so wide that the second ranks at random
    grid = {"feature_bounds": widths, "alpha": [0.05]}
    search = DPSelect(model, grid, mu=5.0, scoring=AUCScore(60, 60))
    certificate = search.certify(800, 2)
    assert certificate.score == AUCScoreBounds(60, 60)
    certificate.verify()
    chosen = [
        search.set_params(random_state=seed).fit(X, y).best_params_["feature_bounds"]
        for seed in range(9)
    ]
    assert chosen.count((0, 1)) >= 6
    with pytest.raises(ValueError, match="two classes only"):
        search.certify(800, 2, 3)
    with pytest.raises(TypeError, match="'decision_function'"):
        DPSelect(regressor(), ALPHAS, scoring=AUCScore(60, 60)).certify(800, 2)


def test_a_score_of_your_own():
    X, y = sample(4000)
    model = DPSelect(
        regressor(),
        {"alpha": [0.1, 100.0]},
        mu=5.0,
        scoring=RowScore(lambda target, response: -abs(target - response), low=-5, high=0),
        random_state=0,
    )
    assert model.fit(X, y).best_params_ == {"alpha": 0.1}
    assert (model.certificate_.score.low, model.certificate_.score.high) == (-5, 0)
    labels = np.where(y > 4.5, "yes", "no")
    proper = RowScore(lambda target, row: row[int(target == "yes")], response="predict_proba")
    search = DPSelect(DPLogisticRegression(feature_bounds=(0, 1)), ALPHAS, scoring=proper)
    assert set(search.fit(X, labels).classes_) == {"no", "yes"}


@pytest.mark.parametrize(
    ("scoring", "kind", "complaint"),
    [
        ("roc_auc", TypeError, "AUCScore"),
        (make_scorer(roc_auc_score), ValueError, "function of one row"),
        (lambda model, X, y: y, ValueError, "function of one row"),
        (lambda target, response: "many", ValueError, "function of one row"),
        (RowScore(lambda target, response: 0, response="guess"), TypeError, "guess"),
        (RowScore(lambda target, response: 0, low=2.0), ValueError, "below 'high'"),
        (RowScore(lambda *row: 0, response="predict_proba"), TypeError, "predict_proba"),
    ],
)
def test_scores_that_cannot_be_bounded_cost_nothing(scoring, kind, complaint, tmp_path):
    X, y = sample()
    ledger = Ledger(tmp_path / "privacy.db", epsilon=30.0, delta=1e-5)
    with pytest.raises(kind, match=complaint):
        DPSelect(regressor(), ALPHAS, scoring=scoring, ledger=ledger).fit(X, y)
    assert not ledger.entries()


def test_nothing_is_said_about_rows_or_runs(capsys):
    """Extreme rows and a talkative estimator: no warning (they are errors here), no line for
    each run.
    """
    X, y = sample()
    X[:20] *= 1e307
    X[20:40] *= -1e307
    y[:5] = 1e300
    for strategy in ("exponential", "repeat"):
        DPSelect(regressor(verbose=1), ALPHAS, strategy=strategy, random_state=0).fit(X, y)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "estimator", [make_pipeline(DPQuantileBounds((0, 1)), regressor()), DPQuantileBounds((0, 1))]
)
def test_what_states_no_promise_is_refused(estimator):
    with pytest.raises(TypeError, match="states what a fit promises"):
        DPSelect(estimator, ALPHAS).certify(100, 2)
