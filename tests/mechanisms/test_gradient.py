"""Noisy gradient descent: what is planned is what is drawn, it composes to mu, and it finds the
minimiser.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import mean_pinball_loss

from dpconvex import DPQuantileRegressor
from dpconvex.core.certificate import CertificateError
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Hinge, Huber, Logistic, Pinball, ReLU, Scaled, Squared
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.mechanisms.auc_moments import SEARCH_STEPS, private_auc_median
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, Certificate, GaussianDP, LinearBounds, NoiseSource, PureDP

LOSSES = [Pinball(0.5), Pinball(0.9), Huber(0.5), Logistic(), Hinge(), Squared()]
RELATIONS = ["replace_one", "add_or_remove_one"]


class Recorder(NoiseSource):
    """Counts what is drawn, and refuses samplers the mechanism does not announce."""

    def __init__(self, seed):
        super().__init__(seed)
        self.draws = Counter()

    def gaussian(self, std, size):
        raise AssertionError("noise that does not pass the gate")

    def l2_laplace(self, scale, size):
        raise AssertionError("not announced")

    def add_gaussian(self, value, std):
        self.draws[std, value.size] += 1
        return value + std * self.generator.standard_normal(value.shape)


def facts(loss, n, d=3, neighbors="replace_one", intercept=True, row_norm=None):
    row_map = RowMap.from_bounds(d, (-1.0, 1.0), row_norm=row_norm, fit_intercept=intercept)
    bounds = LinearBounds(n, d, loss, row_map.row_norm, row_map.max_norm, intercept, 0.0, neighbors)
    return row_map, bounds


def objective_of(X, y, row_map, bounds):
    rows = MemoryRows(X, y, row_map, threads=1)
    return EmpiricalObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)


def spent(certificate):
    """``sqrt(sum of releases (sensitivity / std)^2)``."""
    return math.sqrt(
        sum(t["releases"] * (t["sensitivity"] / t["std"]) ** 2 for t in certificate.noise.values())
    )


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("n", [50, 2_000, 1_000_000])
def test_phases_compose_to_mu(loss, neighbors, inference, n):
    _, bounds = facts(loss, n, neighbors=neighbors)
    for guarantee in (GaussianDP(0.7), ApproxDP(1.0, 1e-6)):
        certificate = NoisyGradientDescent().certify(
            bounds, guarantee, {"inference": True} if inference else {}
        )
        mu = spent(certificate)
        if isinstance(guarantee, GaussianDP):
            assert mu == pytest.approx(0.7, rel=1e-7)  # the rest pays for rounding
        else:
            assert GaussianDP(mu * (1 - 1e-9)).delta(1.0) <= 1e-6
            assert GaussianDP(mu * 1.001).delta(1.0) > 1e-6
        certificate.verify()
        assert Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("mu", [0.1, 1.0, 300.0])
def test_draws_are_those_of_the_certificate(loss, neighbors, inference, mu):
    """No release without its noise, no noise without its release, in every degree of effort."""
    rng = np.random.default_rng(0)
    n = 60
    X = rng.uniform(-1, 1, size=(n, 3))
    y = rng.choice([-1.0, 1.0], size=n)
    nominal = n if neighbors == "replace_one" else n + 7  # need not be the true number
    row_map, bounds = facts(loss, nominal, neighbors=neighbors)
    mechanism = NoisyGradientDescent()
    certificate = mechanism.certify(
        bounds, GaussianDP(mu), {"inference": True} if inference else {}
    )
    noise = Recorder(0)
    record = {}
    mechanism.release(objective_of(X, y, row_map, bounds), certificate, noise, record)
    planned = Counter()
    for term in certificate.noise.values():
        planned[term["std"], term["dimension"]] += term["releases"]
    assert noise.draws == planned
    assert ("coordinates" in record) == ("moments" in certificate.noise)
    assert ("residual_scale" in record) == ("residuals" in certificate.noise)
    assert ("positive_share" in record) == ("labels" in certificate.noise)
    assert ("calibration" in record) == ("margins" in certificate.noise)
    assert ("covariance" in record) == inference == ("scores" in certificate.noise)
    assert ("curvature" in certificate.noise) == (inference or mu > 100)


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("levels", [(), (0.1, 0.5, 0.9)])
def test_draws_of_levels_and_ignored_rows_are_those_of_the_certificate(levels, ignored):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 3))
    y = rng.uniform(-1, 1, size=60)
    if ignored:
        y[::7] = np.nan
    row_map, bounds = facts(Pinball(0.5), 60)
    bounds = replace(bounds, ignored_rows=ignored)
    mechanism = NoisyGradientDescent()
    certificate = mechanism.certify(
        bounds, GaussianDP(300.0), {"gradient": mechanism.settings(levels=levels)}
    )
    noise = Recorder(0)
    record = {}
    found = mechanism.release(objective_of(X, y, row_map, bounds), certificate, noise, record)
    assert found.shape == ((3, 4) if levels else (4,))
    planned = Counter()
    for term in certificate.noise.values():
        planned[term["std"], term["dimension"]] += term["releases"]
    assert noise.draws == planned
    assert ("mass" in record) == ignored


def test_problems_share_the_budget():
    _, bounds = facts(Logistic(), 1000)
    mechanism = NoisyGradientDescent()
    parameters = {"gradient": mechanism.settings(), "problems": 4, "n_classes": 4}
    certificate = mechanism.certify(bounds, GaussianDP(1.0), parameters)
    assert spent(certificate) == pytest.approx(0.5, rel=1e-7)


@pytest.mark.parametrize("guarantee", [PureDP(1.0), GaussianDP(0.0), ApproxDP(1.0, 0.0)])
def test_guarantees_without_gaussian_noise_are_refused(guarantee):
    _, bounds = facts(Pinball(0.5), 100)
    with pytest.raises(ValueError, match="use objective or output perturbation"):
        NoisyGradientDescent().certify(bounds, guarantee)


def test_unbounded_slopes_are_refused():
    """But for least squares, whose residuals are limited to a released scale."""
    _, bounds = facts(Scaled(Squared(), 2.0), 100)
    with pytest.raises(ValueError, match="Use Huber"):
        NoisyGradientDescent().certify(bounds, GaussianDP(1.0))
    _, bounds = facts(Squared(), 100)
    with pytest.raises(ValueError, match="Use Huber"):
        NoisyGradientDescent(step_size=0.1).certify(bounds, GaussianDP(1.0))


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, "3"])
def test_steps_are_checked_before_anything_is_spent(steps):
    with pytest.raises(ValueError, match="'steps' parameter"):
        NoisyGradientDescent(steps=steps).settings()


def test_steps_are_obeyed():
    _, bounds = facts(Pinball(0.5), 100)
    for steps in (1, np.int64(7)):
        mechanism = NoisyGradientDescent(steps=steps)
        certificate = mechanism.certify(bounds, GaussianDP(1.0), {"gradient": mechanism.settings()})
        assert certificate.noise["gradients"].releases == steps
        certificate.verify()


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("scale", [0.01, 0.2])
def test_without_noise_it_finds_the_quantile(quantile, scale):
    """A budget so large that noise vanishes: what remains is the error of the optimisation
    itself.
    """
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(4_000, 3))
    line = 0.3 + X @ np.array([0.3, -0.2, 0.1])
    y = line + scale * rng.normal(size=4_000)
    model = DPQuantileRegressor(
        quantile,
        mu=1e5,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        mechanism="gradient",
        random_state=0,
    ).fit(X, y)
    best = line + np.quantile(y - line, quantile)
    ratio = mean_pinball_loss(y, model.predict(X), alpha=quantile) / mean_pinball_loss(
        y, best, alpha=quantile
    )
    assert ratio < 1.01


def test_columns_of_different_scale():
    """Columns that fill 1 % to 100 % of their public bounds, away from the centre, are all
    found.
    """
    rng = np.random.default_rng(2)
    n = 20_000
    spread = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    X = 0.5 * (1 - spread) + spread * rng.uniform(-1, 1, size=(n, 5)) * 0.5
    line = (X / spread) @ np.array([0.2, -0.2, 0.15, 0.1, -0.15])
    line = line - line.mean()
    y = line + 0.1 * rng.normal(size=n)
    model = DPQuantileRegressor(
        0.7, epsilon=1.0, delta=1e-6, feature_bounds=(-1, 1), target_bounds=(-1, 1), random_state=0
    ).fit(X, y)
    assert model.certificate_.mechanism == "gradient"
    best = line + 0.1 * 0.5244
    ratio = mean_pinball_loss(y, model.predict(X), alpha=0.7) / mean_pinball_loss(
        y, best, alpha=0.7
    )
    assert ratio < 1.05


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_targets_far_narrower_than_their_range(quantile):
    """A public range 50 times the residual spread: the scale is found, not assumed."""
    rng = np.random.default_rng(3)
    n = 20_000
    X = rng.uniform(0, 10, size=(n, 4))
    line = 30 + X @ np.array([1.0, -1.0, 0.5, 0.0])
    y = line + 2.0 * rng.normal(size=n)
    model = DPQuantileRegressor(
        quantile,
        epsilon=1.0,
        delta=1e-6,
        feature_bounds=(0, 10),
        target_bounds=(-20, 80),
        random_state=0,
    ).fit(X, y)
    best = line + 2.0 * {0.5: 0.0, 0.9: 1.28155}[quantile]
    ratio = mean_pinball_loss(y, model.predict(X), alpha=quantile) / mean_pinball_loss(
        y, best, alpha=quantile
    )
    assert ratio < 1.05
    assert 0.5 < model.released_["residual_scale"] / (2.0 / 50) < 2.0


def test_drowned_in_noise_it_stays_within_the_targets_range():
    """Thirty rows at a tiny budget: useless, but not absurd."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, size=(30, 3))
    y = rng.uniform(-1, 1, size=30)
    for seed in range(20):
        model = DPQuantileRegressor(
            0.5,
            mu=0.01,
            feature_bounds=(-1, 1),
            target_bounds=(-1, 1),
            mechanism="gradient",
            random_state=seed,
        ).fit(X, y)
        assert np.abs(model.predict(X)).max() <= 2.0


def counted(values, asked):
    """What a search for their median asks: counts of values below a point less half of them,
    without noise.
    """

    def above_half(point):
        asked.append(int(np.count_nonzero(values < point)))
        return asked[-1] - values.size / 2

    return above_half


@pytest.mark.parametrize("middle", [0.01, 0.2, 3.0])
def test_private_median_brackets_the_median(middle):
    """Six halvings of ten octaves leave a bracket of 10/64 octaves."""
    y = middle * 2.0 ** np.random.default_rng(0).normal(size=501)
    asked = []
    found = private_auc_median(counted(y, asked), 0.005, 5.12)
    assert abs(math.log2(found / np.median(y))) <= 10 / 64
    assert len(asked) == SEARCH_STEPS


def test_one_sided_losses_are_planned_and_fitted():
    """A loss without a finite quantile: the plan divides by nothing that can be 0."""
    row_map, bounds = facts(ReLU(), 300, d=2)
    certificate = NoisyGradientDescent().certify(bounds, GaussianDP(1.0))
    certificate.verify()
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = rng.uniform(-1, 1, 300)
    found = NoisyGradientDescent().release(objective_of(X, y, row_map, bounds), certificate, 0)
    assert np.isfinite(found).all()


def test_the_quantiles_that_a_certificate_names_are_those_of_its_fit():
    model = DPQuantileRegressor((0.2, 0.5, 0.9), feature_bounds=(-1, 1), target_bounds=(-1, 1))
    certificate = model.certify(1000, 2)
    certificate.verify()
    parameters = {**certificate.parameters, "quantile": [0.1, 0.5, 0.9]}
    with pytest.raises(CertificateError, match="levels"):
        replace(certificate, parameters=parameters).verify()


@pytest.mark.parametrize("name", ["geometry_rows", "early_rows"])
def test_parts_of_the_rows_need_a_public_number_of_rows(name):
    """Where records may be added, which rows are a part of them would depend on their private
    number.
    """
    facts = LinearBounds(10_000, 3, Pinball(0.5), 1.0, 1.0, neighbors="add_or_remove_one")
    certificate = NoisyGradientDescent().certify(facts, GaussianDP(1.0))
    certificate.verify()
    fit = {**certificate.parameters["fit"], name: 100}
    forged = replace(certificate, parameters={**certificate.parameters, "fit": fit})
    with pytest.raises(CertificateError, match="public only where"):
        forged.verify()


def test_rows_of_every_target_are_compared_with_the_certificate():
    """Weights of the first target's rows serve all of them: rows of another map would be
    multiplied unbounded.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 3))
    y = rng.uniform(-1, 1, 200)
    row_map = RowMap.from_bounds(3, (-1, 1))
    bounds = LinearBounds(200, 3, Pinball(0.5), row_map.row_norm, row_map.max_norm, alpha=1e-3)
    mechanism = NoisyGradientDescent()
    settings = {"gradient": mechanism.settings(levels=(0.1, 0.9), targets=2)}
    certificate = mechanism.certify(bounds, ApproxDP(1.0, 1e-5), settings, seeded=True)
    rows = MemoryRows(X, y, row_map)
    wide = replace(row_map, low=(-1e6,) * 3, high=(1e6,) * 3)
    wrong = {
        "max_norm": [rows, MemoryRows(X, y, wide)],
        "n_records": [rows, MemoryRows(X[:50], y[:50], row_map)],
        "own_weights": [rows, MemoryRows(X, y, row_map, weights=np.full(200, 1e9))],
        "targets": [],
    }
    for fact, targets in wrong.items():
        with pytest.raises(ValueError, match=f"They have {fact}="):
            mechanism.release(targets, certificate, 0)
    with pytest.raises(
        ValueError, match="They have targets=1"
    ):  # an objective is that of one target
        mechanism.release(EmpiricalObjective(rows, Pinball(0.5), 1e-3), certificate, 0)
    assert mechanism.release([rows, MemoryRows(X, -y, row_map)], certificate, 0).shape == (2, 4)
