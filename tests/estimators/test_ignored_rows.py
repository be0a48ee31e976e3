"""A fit with ignored rows is the fit of the others: a fifth of the targets of skewed laws is
missing.

Such rows counted as targets in the middle of the bounds: a 0.9 quantile then covered 97 to 100 % of
the others. Fits are seeded, so that the same ones are made whenever these tests run.
"""

import functools

import numpy as np
import pytest
from all_fits import ALL, AUCS, MATRICES, training_data
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import hinge_loss
from sklearn.svm import LinearSVC
from test_invalid_rows import PRIVATE_NUMBER, fitted, spoiled

from dpconvex import (
    DPAUCClassifier,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPQuantileRegressor,
)

ROWS = 20_000
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (ROWS, 3))
SKEWED = np.exp(0.5 * X[:, 0] + RNG.normal(0, 1, ROWS))
LABELS = (RNG.random(ROWS) < expit(2 * X[:, 0] - X[:, 1] - 2)).astype(float)
MISSING = RNG.random(ROWS) < 0.2
VALID = ~MISSING
NAMES = np.arange(ROWS) // 2
PUBLIC = {"feature_bounds": (-1, 1), "epsilon": 1.0, "invalid_rows": "ignore", "random_state": 0}


def missing(y):
    return np.where(MISSING, np.nan, y)


def regression(kind, *more, **changed):
    return kind(*more, **{"target_bounds": (0, 100), **PUBLIC, **changed})


def as_dask(rows, y):
    da = pytest.importorskip("dask.array")
    return da.from_array(rows, chunks=(6000, 3)), da.from_array(y, chunks=6000)


# Ways to give the same rows, with further settings of the estimator and arguments of fit.
WAYS = {
    "rows": {},
    "add or remove": {"neighbors": "add_or_remove_one", "nominal_samples": ROWS},
    "no bounds": {"feature_bounds": None},
    "sparse": {"rows": sparse.csr_matrix(X)},
    "dask": {"as": as_dask},
    "people": {"fit": {"groups": NAMES}},
    "rows of people": {
        "fit": {"groups": NAMES},
        "person_weight": "rows",
        "rows_per_person": 2,
        "epsilon": 2.0,
    },
    "weights": {"fit": {"sample_weight": np.full(ROWS, 0.5)}},
}


def fit(model, way, y):
    way = dict(WAYS[way])
    rows = way.pop("rows", X)
    given = way.pop("fit", {})
    made = way.pop("as", lambda *pair: pair)
    return model.set_params(**way).fit(*made(rows, missing(y)), **given)


def fits(model, y):
    """Return the model fitted on rows of which some are ignored, and on the others alone."""
    return model.fit(X, missing(y)), clone(model).fit(X[VALID], y[VALID])


@pytest.mark.parametrize("way", WAYS)
def test_a_quantile_covers_its_share_of_valid_targets(way):
    model = fit(regression(DPQuantileRegressor, 0.9), way, SKEWED)
    assert np.mean(SKEWED[VALID] <= model.predict(X[VALID])) == pytest.approx(0.9, abs=0.02)
    counted = {"people": 0.5, "weights": 0.5}.get(way, 1.0) * 0.8 * ROWS
    assert model.released_["mass"] == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize("missing_share", [0.02, 0.6])
def test_however_many_rows_are_ignored(missing_share):
    some = np.random.default_rng(1).random(ROWS) < missing_share
    y = np.where(some, np.nan, SKEWED)
    quantile, mean = (
        regression(*kind, epsilon=5.0).fit(X, y).predict(X[~some])
        for kind in ((DPQuantileRegressor, 0.9), (DPLinearRegression,))
    )
    assert np.mean(SKEWED[~some] <= quantile) == pytest.approx(0.9, abs=0.02)
    assert mean.mean() == pytest.approx(SKEWED[~some].mean(), rel=0.05)


def test_features_may_be_missing_as_well():
    spoilt = np.where(MISSING[:, None], np.nan, X)
    first = regression(DPQuantileRegressor, 0.9).fit(spoilt, SKEWED)
    assert np.array_equal(first.coef_, fit(first, "rows", SKEWED).coef_)


def test_several_quantiles_cover_their_shares():
    model = fit(regression(DPQuantileRegressor, (0.1, 0.5, 0.9)), "rows", SKEWED)
    covered = np.mean(SKEWED[VALID][:, None] <= model.predict(X[VALID]), axis=0)
    assert covered == pytest.approx([0.1, 0.5, 0.9], abs=0.02)


@pytest.mark.parametrize("way", ["rows", "sparse", "dask", "people"])
def test_least_squares_of_valid_rows(way):
    model = fit(regression(DPLinearRegression), way, SKEWED)
    assert model.predict(X[VALID]).mean() == pytest.approx(SKEWED[VALID].mean(), rel=0.2)
    alone = clone(model).set_params(feature_bounds=(-1, 1)).fit(X[VALID], SKEWED[VALID])
    assert model.coef_ == pytest.approx(alone.coef_, abs=0.3)


@functools.cache
def least_hinge_loss():
    """Without privacy, of the valid rows; that of a constant is 0.37."""
    alone = LinearSVC(loss="hinge", max_iter=100_000, random_state=0).fit(X[VALID], LABELS[VALID])
    return hinge_loss(LABELS[VALID], alone.decision_function(X[VALID]))


@pytest.mark.parametrize("kind", [DPLogisticRegression, DPLinearSVC])
@pytest.mark.parametrize("way", WAYS)
def test_classifiers_of_valid_rows(kind, way):
    model = fit(kind(classes=[0, 1], **PUBLIC), way, LABELS)
    margins = model.decision_function(X[VALID])
    if kind is DPLinearSVC:
        assert hinge_loss(LABELS[VALID], margins) < 1.03 * least_hinge_loss()
        return
    assert expit(margins).mean() == pytest.approx(LABELS[VALID].mean(), abs=0.02)
    assert model.coef_[0] == pytest.approx([2.0, -1.0, 0.0], abs=0.6)


@pytest.mark.parametrize("share", [0.0, 0.004, 0.5, 0.996])
def test_rare_labels_are_found_among_valid_rows(share):
    """Nothing but the labels that are there says what is rare: ignored rows are neither positive
    nor negative.
    """
    y = (np.random.default_rng(2).random(ROWS) < share).astype(float)
    model = fit(DPLogisticRegression(classes=[0, 1], **PUBLIC), "rows", y)
    assert model.released_["positive_share"] == pytest.approx(y[VALID].mean(), abs=0.004)


@pytest.mark.parametrize(
    "model",
    [
        regression(DPQuantileRegressor, 0.9, inference=True),
        regression(DPLinearRegression, inference=True),
    ],
    ids=["quantile", "linear"],
)
def test_intervals_of_regressions(model):
    ignoring, alone = fits(model, SKEWED)
    assert ignoring.intercept_ == pytest.approx(alone.intercept_, rel=0.1)
    assert ignoring.coef_[0] == pytest.approx(alone.coef_[0], rel=0.25)
    widths = [np.ptp(each.confidence_interval(), axis=1) for each in (ignoring, alone)]
    assert widths[0] == pytest.approx(widths[1], rel=0.35)


def test_intervals_of_logistic_coefficients():
    ignoring, alone = fits(DPLogisticRegression(classes=[0, 1], inference=True, **PUBLIC), LABELS)
    assert ignoring.coef_ == pytest.approx(alone.coef_, abs=0.4)
    assert ignoring.intercept_ == pytest.approx(alone.intercept_, abs=0.3)


@pytest.mark.parametrize("mechanism", ["moments", "gradient", "objective"])
def test_rankings_of_valid_rows(mechanism):
    model = DPAUCClassifier(
        classes=[0, 1], mechanism=mechanism, min_positive=2000, min_negative=9000, **PUBLIC
    )
    ignoring, alone = (each.coef_[0] for each in fits(model, LABELS))
    cosine = ignoring @ alone / (np.linalg.norm(ignoring) * np.linalg.norm(alone))
    assert cosine > 0.98
    if mechanism == "moments":
        model = fits(model, LABELS)[0]
        assert model.released_["prevalence"] == pytest.approx(LABELS[VALID].mean(), abs=0.01)
        assert model.released_["mass"] == pytest.approx(VALID.sum(), rel=0.05)


@pytest.mark.parametrize("how", ["features", "target", "both"])
@pytest.mark.parametrize(
    "name", [*PRIVATE_NUMBER, *sorted(set(AUCS) - {"DPAUCClassifier moments"})]
)
def test_a_fit_without_the_ignored_rows_is_the_same(name, how):
    """Where the number of rows is private, they might as well not be there: but for the order of
    additions.
    """
    rows, y = spoiled(name, *training_data(name), how)
    public = {"neighbors": "add_or_remove_one", "nominal_samples": 24}
    every = fitted(name, rows, y, **public)
    kept = np.delete(np.arange(24), [2, 5, 11])
    rest = fitted(name, rows[kept], y[kept], **public)
    assert every.coef_ == pytest.approx(rest.coef_, rel=1e-6, abs=1e-9)
    assert every.intercept_ == pytest.approx(rest.intercept_, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_what_is_valid_is_counted_where_something_is_divided_by_it(name):
    """The number that is paid for has a share of the budget that grows where records are few."""
    ignoring = ALL[name]().set_params(invalid_rows="ignore")
    more = [2] if name in MATRICES else []
    for rows in (50, 1000, 1_000_000):
        certificate = ignoring.certify(rows, 2, *more)
        if "mass" not in certificate.noise:
            return
        mu = certificate.gaussian_mu()
        term = certificate.noise["mass"]
        share = (term.sensitivity / term.scale / mu) ** 2
        assert share > 0.999 * max(0.01, min(0.25, (50 / (rows * mu)) ** 2))
        assert share < 0.2501
        certificate.verify()
    assert "mass" not in ALL[name]().certify(50, 2, *more).noise
