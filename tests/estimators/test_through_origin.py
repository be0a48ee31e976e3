"""Fits without an intercept go through the origin of the user's units, whatever the bounds are."""

from __future__ import annotations

import json
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

import dpconvex as dp
from dpconvex import estimators
from dpconvex.core.rows import RowMap, target_map
from dpconvex.estimators.tilted_and_robust import RESIDUAL_LOSSES
from dpconvex.intervals import DPConformal
from dpconvex.reports.coefficients_and_forecasts import coefficient_uncertainty

ROWS = 20_000
LOW = [1.0, -1.0]
HIGH = [3.0, 4.0]
TARGET = (-1.0, 12.0)
FACTS = {
    "feature_bounds": (LOW, HIGH),
    "fit_intercept": False,
    "epsilon": 100.0,
    "random_state": 0,
}


def features(rows=ROWS, seed=0):
    return np.random.default_rng(seed).uniform(LOW, HIGH, (rows, 2))


X = features()
NOISE = np.random.default_rng(1).normal(0, 1, ROWS)
#: Targets of a line that does not go through the origin: the best one through it is another one.
OFF = 2 + X @ [1.0, 1.0] + NOISE
EVEN = np.random.default_rng(2).random(ROWS)
LABELS = (X @ [0.5, 0.5] - 1 + np.log(1 / EVEN - 1) > 0).astype(int)
COUNTS = np.random.default_rng(3).poisson(np.exp(0.5 + X @ [0.3, 0.2])).astype(float)
COSTS = np.exp(0.5 + X @ [0.3, 0.2]) * np.random.default_rng(4).gamma(2.0, 0.5, ROWS)


def squares(y, z):
    return (y - z) ** 2


def pinball(level):
    return lambda y, z: np.maximum(level * (y - z), (level - 1) * (y - z))


def huber(y, z):
    unit = max(map(abs, TARGET))
    return RESIDUAL_LOSSES["huber"].value(y / unit, z / unit)


def tilted(y, z):
    losses = np.logaddexp(0, -(2 * y - 1) * z)
    return np.logaddexp.reduce(losses) - np.log(losses.size)


def logistic(y, z):
    return np.logaddexp(0, -(2 * y - 1) * z)


def hinge(y, z):
    return np.maximum(0, 1 - (2 * y - 1) * z)


def deviance(power):
    def loss(y, z):
        first = np.exp((2 - power) * z) / (2 - power) if power < 2 else z
        second = -np.exp((1 - power) * z) / (power - 1) if power > 1 else z
        return first - y * second

    return loss


NUMBERS = {"target_bounds": TARGET}
#: By estimator: public facts, targets, the loss that is minimised, and how near a fit comes.
FITS = {
    "DPLinearRegression": [
        ({**NUMBERS}, OFF, squares, 0.02),
        ({**NUMBERS, "inference": True}, OFF, squares, 0.02),
        ({**NUMBERS, "mechanism": "output"}, OFF, squares, 0.2),
    ],
    "DPQuantileRegressor": [
        ({**NUMBERS, "quantile": 0.9}, OFF, pinball(0.9), 0.03),
        ({**NUMBERS, "quantile": 0.5, "inference": True}, OFF, pinball(0.5), 0.03),
        ({**NUMBERS, "quantile": 0.9, "mechanism": "objective"}, OFF, pinball(0.9), 0.1),
        ({**NUMBERS, "quantile": 0.9, "mechanism": "output"}, OFF, pinball(0.9), 0.2),
        ({**NUMBERS, "quantile": 0.9, "mechanism": "sgd"}, OFF, pinball(0.9), 0.1),
    ],
    "DPNewsvendor": [({**NUMBERS, "underage_cost": 9.0}, OFF, pinball(0.9), 0.03)],
    "DPPoissonRegressor": [
        ({"target_bounds": (0, 90)}, COUNTS, deviance(1.0), 0.03),
        ({"target_bounds": (0, 90), "mechanism": "objective"}, COUNTS, deviance(1.0), 0.1),
    ],
    "DPGammaRegressor": [({"target_bounds": (1e-3, 90)}, COSTS, deviance(2.0), 0.03)],
    "DPTweedieRegressor": [({"target_bounds": (0, 90)}, COSTS, deviance(1.5), 0.03)],
    "DPRobustRegressor": [({**NUMBERS, "radius": 0.0}, OFF, huber, 0.15)],
    "DPTiltedRegressor": [({**NUMBERS, "tilt": 0.0}, OFF, huber, 0.15)],
    "DPLogisticRegression": [
        ({}, LABELS, logistic, 0.05),
        ({"inference": True}, LABELS, logistic, 0.05),
        ({"mechanism": "objective"}, LABELS, logistic, 0.05),
        ({"mechanism": "output"}, LABELS, logistic, 0.1),
    ],
    "DPLinearSVC": [({}, LABELS, hinge, 0.05)],
    "DPRobustClassifier": [({"radius": 0.0}, LABELS, logistic, 0.1)],
    "DPTiltedClassifier": [({"tilt": 1.0}, LABELS, tilted, 0.1)],
}
#: Thresholds of levels and baselines of periods are intercepts.
NEED_AN_INTERCEPT = {"DPDiscreteHazard": [[1.0, 2.0]], "DPOrdinalRegression": []}
EACH = [(name, *fit) for name, fits in FITS.items() for fit in fits]
NAMED = [f"{name}-{'-'.join(map(str, facts.values()))}" for name, facts, *_ in EACH]


def test_every_estimator_with_an_intercept_is_here():
    kinds = {name: getattr(estimators, name) for name in estimators.__all__ if name[:2] == "DP"}
    able = {name for name, kind in kinds.items() if "fit_intercept" in kind().get_params()}
    assert able == {*FITS, *NEED_AN_INTERCEPT}


def not_private(loss, y):
    """Return the coefficients of least mean loss without an intercept."""
    found = minimize(
        lambda coef: loss(y, X @ coef).mean(),
        np.zeros(2),
        method="Nelder-Mead",
        options={"xatol": 1e-5, "fatol": 1e-12},
    )
    return found.x


def linear_predictor(model, rows):
    found = model.predict(rows)
    if hasattr(model, "decision_function"):
        found = model.decision_function(rows)
    return np.log(found) if hasattr(model, "rate_bounds") else found


@pytest.mark.parametrize(("name", "facts", "y", "loss", "near"), EACH, ids=NAMED)
def test_a_fit_without_an_intercept_is_the_best_through_the_origin(name, facts, y, loss, near):
    kind = getattr(dp, name)
    model = kind(**{**FACTS, **facts}).fit(X, y)
    assert np.abs(np.ravel(model.coef_) - not_private(loss, y)).max() <= near
    assert not np.any(model.intercept_)
    assert not np.any(linear_predictor(model, np.zeros((1, 2))))
    assert model.certificate_ == kind(**{**FACTS, **facts}).certify(ROWS, 2)
    model.certificate_.verify()
    assert model.certificate_.parameters["through_origin"] is True


@pytest.mark.parametrize("value", [False, np.False_])
@pytest.mark.parametrize("name", NEED_AN_INTERCEPT)
def test_levels_and_periods_need_their_intercepts(name, value):
    model = getattr(dp, name)(*NEED_AN_INTERCEPT[name], fit_intercept=value)
    with pytest.raises(ValueError, match="fit_intercept=True"):
        model.certify(1000, 2)


def test_the_line_of_the_public_bounds_is_found():
    """Bounds of the target that are not symmetric about 0 moved the line to their middle."""
    rows = np.random.default_rng(0).uniform(0, 1, (5000, 2))
    model = dp.DPQuantileRegressor(
        epsilon=50.0,
        feature_bounds=(0, 1),
        target_bounds=(-1, 4),
        fit_intercept=False,
        random_state=0,
    ).fit(rows, rows @ [1.0, 2.0])
    assert np.allclose(model.coef_, [1, 2], atol=0.05)
    assert model.intercept_ == 0


def test_several_levels_and_classes_go_through_the_origin():
    levels = dp.DPQuantileRegressor((0.5, 0.9), **NUMBERS, **FACTS).fit(X, OFF)
    expected = [not_private(pinball(level), OFF) for level in (0.5, 0.9)]
    assert np.allclose(levels.coef_, expected, atol=0.04)
    assert not levels.intercept_.any()
    assert not levels.predict(np.zeros((1, 2))).any()
    labels = np.digitize(X @ [0.5, 0.5] + NOISE, [0.5, 2.0])
    for mechanism in ("auto", "objective"):
        classes = dp.DPLogisticRegression(mechanism=mechanism, **FACTS).fit(X, labels)
        assert not classes.intercept_.any()
        assert np.allclose(classes.predict_proba(np.zeros((1, 2))), 1 / 3)


def test_conformal_intervals_are_around_a_line_through_the_origin():
    model = dp.DPQuantileRegressor(0.5, **NUMBERS, **FACTS)
    around = DPConformal(model, coverage=0.9, random_state=0).fit(X, OFF)
    assert around.estimator_.intercept_ == 0
    assert around.predict_interval(np.zeros((1, 2))).sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ["DPLinearRegression", "DPLogisticRegression"])
def test_intervals_hold_the_best_coefficients_through_the_origin(name):
    loss, y = (squares, OFF) if name == "DPLinearRegression" else (logistic, LABELS)
    facts = NUMBERS if name == "DPLinearRegression" else {}
    model = getattr(dp, name)(inference=True, **facts, **FACTS).fit(X, y)
    ends = model.confidence_interval(1 - 1e-6).reshape(2, 2)
    best = not_private(loss, y)
    assert (ends[:, 0] <= best).all()
    assert (best <= ends[:, 1]).all()
    table = model.coefficient_table(0.95)
    assert list(table["term"]) == ["x0", "x1"]
    assert np.allclose(table["high"], model.confidence_interval(0.95).reshape(2, 2)[:, 1])
    # The intercept is known to be 0.
    assert not np.any(np.asarray(model.released_["covariance"])[-1])


# Maps.


def test_through_the_origin_nothing_is_shifted():
    bounds = ([1.0, -1.0, -4.0, 0.0], [3.0, 4.0, -2.0, 5.0])
    row_map = RowMap.from_bounds(4, bounds, fit_intercept=False, through_origin=True)
    assert row_map.shift == (0.0,) * 4
    assert row_map.scale == (1 / 3, 1 / 4, 1 / 4, 1 / 5)
    corners = np.array(np.meshgrid(*zip(*bounds, strict=True))).reshape(4, -1).T
    mapped = corners * np.array(row_map.scale)
    assert np.abs(mapped).max() <= 1
    assert np.linalg.norm(mapped, axis=1).max() <= row_map.max_norm
    # Rows that are shortened lie between their place and 0.
    factors = np.random.default_rng(0).random((2, 500, 1))
    places = np.random.default_rng(1).integers(len(mapped), size=(2, 500))
    apart = factors[0] * mapped[places[0]] - factors[1] * mapped[places[1]]
    assert np.linalg.norm(apart, axis=1).max() <= row_map.diameter
    centred = RowMap.from_bounds(4, bounds, fit_intercept=False)
    assert centred.shift == (2.0, 0.0, -3.0, 0.0)


def test_targets_are_scaled_and_not_shifted():
    assert target_map(None) == target_map((-1, 1)) == (0.0, 1.0)
    assert target_map((-1, 4)) == (1.5, 0.4)
    assert target_map((-1, 4), through_origin=True) == (0.0, 0.25)
    assert target_map((-4, -1), through_origin=True) == (0.0, 0.25)


@pytest.mark.parametrize("name", ["DPRobustRegressor", "DPTiltedRegressor"])
def test_targets_end_at_their_bounds(name):
    """Those of tilted and robust fits are clipped, at bounds that need not be symmetric."""

    def coefficients(targets):
        model = getattr(dp, name)(0.0, **{**FACTS, "target_bounds": (-1, 4)})
        return model.fit(X[:500], targets[:500]).coef_

    far = np.where(NOISE > 1, 30.0, np.where(NOISE < -1, -30.0, OFF))
    ended = coefficients(np.clip(far, -1, 4))
    assert (coefficients(far) == ended).all()
    partitioned = getattr(dp, name)(0.0, **{**FACTS, "target_bounds": (-1, 4)}).fit(
        da.from_array(X[:500], chunks=(200, 2)), da.from_array(far[:500], chunks=200)
    )
    assert np.allclose(partitioned.coef_, ended, rtol=1e-6)


@pytest.mark.parametrize("name", ["DPLinearRegression", "DPLogisticRegression"])
def test_sparse_rows_and_partitions_are_mapped_alike(name):
    """A zero that is not stored counts as the lower bound of a column that leaves 0 out."""
    facts, y = (NUMBERS, OFF) if name == "DPLinearRegression" else ({}, LABELS)
    rows = np.where(X > 1.5, X, 0.0)[:4000]
    y = y[:4000]
    model = getattr(dp, name)(**facts, **FACTS)
    dense = model.fit(rows, y).coef_.copy()
    assert np.allclose(model.fit(csr_array(rows), y).coef_, dense, rtol=1e-6)
    parts = da.from_array(rows, chunks=(900, 2)), da.from_array(y, chunks=900)
    assert np.allclose(model.fit(*parts).coef_, dense, rtol=1e-6)


def test_noise_of_coefficients_is_stated_in_their_units():
    """The noise of output perturbation passes through the map of the fit."""
    model = dp.DPQuantileRegressor(0.9, mechanism="output", **NUMBERS, **FACTS).fit(X, OFF)
    spread = model.certificate_.noise["release"].coordinate_std
    expected = spread * max(map(abs, TARGET)) / np.array([3.0, 4.0])
    found = coefficient_uncertainty(model)
    assert found.intercept is None
    assert np.allclose(found.coef, expected)


def test_ranking_keeps_its_maps():
    """A constant cancels where scores are compared: nothing goes through the origin."""
    for kind in (dp.DPAUCClassifier, dp.DPTopRankClassifier):
        certificate = kind(feature_bounds=(LOW, HIGH)).certify(50_000, 2)
        assert "through_origin" not in certificate.parameters


def test_a_rate_needs_a_unit_in_which_its_mean_at_0_is_1():
    with pytest.raises(ValueError, match="Change its unit"):
        dp.DPPoissonRegressor(target_bounds=(0, 1e20), fit_intercept=False).certify(1000, 2)
    dp.DPPoissonRegressor(target_bounds=(0, 1e20)).certify(1000, 2)


# Files.


def test_a_saved_fit_comes_back(tmp_path):
    path = tmp_path / "model.json"
    for name, facts, y, *_ in (fits[0] for fits in [[(n, *f[0])] for n, f in FITS.items()]):
        model = getattr(dp, name)(**{**FACTS, **facts}).fit(X[:1000], y[:1000])
        dp.save_model(model, path)
        loaded = dp.load_model(path)
        assert (loaded.predict(X[:50]) == model.predict(X[:50])).all()
        content = json.loads(path.read_text())
        content["intercept"] = [1.5] if isinstance(content["intercept"], list) else 1.5
        path.write_text(json.dumps(content))
        with pytest.raises(dp.ModelFileError, match="'intercept' must be 0"):
            dp.load_model(path)


OLD = {
    "quantile": ([1.0271987, 0.9110663], 2.9456026, [0.037324, 0.009331]),
    "poisson": ([0.1766849, -0.1481148], 1.2560681, [25.37634, 6.34408]),
    "squares": ([1.0412107, 0.9628204], 2.9175786, None),
    "logistic": ([0.6806435, 0.8367842], -1.361287, None),
}


@pytest.mark.parametrize("name", OLD)
def test_files_of_fits_through_the_middle_keep_their_meaning(name, request):
    """Saved before the origin was kept: coefficients, intercept and stated noise are as they
    were.
    """
    coef, intercept, noise = OLD[name]
    folder = request.path.parent.parent / "models" / "through_the_middle"
    model = dp.load_model(folder / f"{name}.json")
    assert np.allclose(np.ravel(model.coef_), coef, atol=1e-6)
    assert np.allclose(model.intercept_, intercept, atol=1e-6)
    stated = coefficient_uncertainty(model)
    assert stated is None if noise is None else np.allclose(stated.coef, noise, rtol=1e-4)
    assert str(model.summary())


def test_a_certificate_says_which_map_its_fit_had(tmp_path):
    """Without the statement the bounds of a smoothed loss are those of another map."""
    facts = {**FACTS, **NUMBERS, "mechanism": "output", "bandwidth": 0.5}
    model = dp.DPQuantileRegressor(0.5, **facts).fit(X[:500], OFF[:500])
    stated = model.certificate_
    parameters = {k: v for k, v in stated.parameters.items() if k != "through_origin"}
    edited = replace(stated, parameters=parameters)
    model.certificate_ = replace(edited, digest=edited._hash())
    with pytest.raises(dp.ModelFileError, match="check"):
        dp.save_model(model, tmp_path / "model.json")
