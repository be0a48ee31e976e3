import math

import numpy as np
import pytest
from scalar_mechanisms import GaussianRelease, LaplaceRelease, PerturbedObjective, likelihood_ratio
from scipy.optimize import brentq, minimize
from scipy.stats import kstest

from dpconvex import DPQuantileRegressor
from dpconvex.audit import AuditResult, NeighborPair, audit, audit_estimator, neighbor_pairs
from dpconvex.losses import Huber, Logistic, Pinball, Squared
from dpconvex.privacy import ApproxDP, GaussianDP, PureDP
from dpconvex.smoothing import LogisticKernel, UniformKernel, convolve

LOSSES = [
    convolve(Pinball(0.8), LogisticKernel(), 0.3),
    convolve(Pinball(0.5), UniformKernel(), 0.05),
    Logistic(),
    Huber(0.4),
]


def problem(loss, dim, seed=0, rows=4, **options):
    rng = np.random.default_rng(seed)
    targets = rng.choice([-1.0, 1.0], rows) if loss.kind == "margin" else rng.normal(size=rows)
    return PerturbedObjective(
        loss, rng.uniform(-1, 1, (rows, dim)), targets, ridge=0.7, scale=2.0, **options
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_minimisers_have_zero_gradient(loss, dim):
    mechanism = problem(loss, dim, weights=np.array([1.0, 0.5, 0.2, 1.0]))
    tilts = (
        np.random.default_rng(1).normal(size=(2000, dim)) * 10 ** np.linspace(-3, 3, 2000)[:, None]
    )
    theta = mechanism.minimise(tilts)
    residual = np.linalg.norm(mechanism.gradient(theta) + tilts, axis=1)
    assert np.all(residual <= 2e-11 * (1 + np.linalg.norm(tilts, axis=1)))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_minimisers_agree_with_general_solvers(loss):
    line = problem(loss, 1)
    plane = problem(loss, 2)
    for tilt in (-7.0, -0.3, 0.0, 4.0):
        root = brentq(lambda t, b=tilt: line.gradient([[t]])[0, 0] + b, -100, 100, xtol=1e-13)
        assert line.minimise([[tilt]])[0, 0] == pytest.approx(root, abs=1e-9)

        def value(theta, tilt=tilt):
            margins = plane.rows @ theta
            data = loss.value(plane.targets, margins).sum()
            return data + 0.35 * theta @ theta + tilt * theta[0] - theta[1]

        found = plane.minimise([[tilt, -1.0]])[0]
        reference = minimize(value, found + 0.1, method="Nelder-Mead", options={"fatol": 1e-14})
        np.testing.assert_allclose(found, reference.x, atol=1e-4)
        assert value(found) <= reference.fun + 1e-12


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_density_integrates_to_one_and_is_that_of_the_samples(noise):
    # False-alarm rate 1e-6: the Kolmogorov-Smirnov test at that level.
    mechanism = problem(LOSSES[0], 1, noise=noise)
    grid = np.linspace(-80, 80, 400_001)
    density = np.exp(mechanism.log_density(grid))
    cdf = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    assert cdf[-1] == pytest.approx(1.0, abs=1e-6)
    sample = mechanism.sample(20_000, np.random.default_rng(3))
    assert kstest(sample, lambda t: np.interp(t, grid, cdf)).pvalue > 1e-6
    wrong = PerturbedObjective(
        mechanism.loss, mechanism.rows, mechanism.targets, 0.7, scale=2.2, noise=noise
    ).sample(20_000, np.random.default_rng(3))
    assert kstest(wrong, lambda t: np.interp(t, grid, cdf)).pvalue < 1e-6


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_density_in_the_plane_integrates_to_one(noise):
    mechanism = problem(LOSSES[0], 2, noise=noise)
    axis = np.linspace(-60, 60, 481)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = np.exp(mechanism.log_density(points)).sum() * (axis[1] - axis[0]) ** 2
    assert mass == pytest.approx(1.0, abs=5e-3)


def test_without_records_the_output_is_the_scaled_noise():
    empty = PerturbedObjective(Logistic(), np.zeros((0, 1)), np.zeros(0), ridge=2.0, scale=3.0)
    reference = GaussianRelease(0.0, 1.5)
    grid = np.linspace(-4, 4, 9)
    np.testing.assert_allclose(empty.log_density(grid), reference.log_density(grid), atol=1e-12)
    sample = empty.sample(1000, np.random.default_rng(0))
    expected = -1.5 * np.random.default_rng(0).standard_normal((1000, 1))[:, 0]
    np.testing.assert_allclose(sample, expected, atol=1e-12)


def test_releases_have_their_laws():
    rng = np.random.default_rng(4)
    assert kstest(GaussianRelease(1.0, 2.0).sample(20_000, rng), "norm", (1.0, 2.0)).pvalue > 1e-6
    assert kstest(LaplaceRelease(1.0, 2.0).sample(20_000, rng), "laplace", (1.0, 2.0)).pvalue > 1e-6
    ratio = likelihood_ratio(LaplaceRelease(0.0, 0.5), LaplaceRelease(1.0, 0.5))
    assert np.abs(ratio(np.linspace(-5, 5, 101))).max() == pytest.approx(2.0)


def test_perturbed_objective_refuses_bad_parameters():
    rows = np.ones((1, 1))
    targets = np.ones(1)
    with pytest.raises(ValueError, match="'ridge' and 'scale'"):
        PerturbedObjective(Logistic(), rows, targets, 0.0, 1.0)
    with pytest.raises(ValueError, match="'rows' parameter"):
        PerturbedObjective(Logistic(), targets, targets, 1.0, 1.0)
    with pytest.raises(ValueError, match="'noise' parameter"):
        PerturbedObjective(Logistic(), rows, targets, 1.0, 1.0, noise="cauchy")
    with pytest.raises(ValueError, match="bounded slope"):
        PerturbedObjective(Squared(), rows, targets, 1.0, 1.0)


def run(std=2.0, guarantee=None, **options):
    options = {"runs": 4000, "rng": 0, **options}
    return audit(
        GaussianRelease(0.0, std).sample,
        GaussianRelease(1.0, std).sample,
        guarantee or GaussianDP(0.5),
        **options,
    )


def test_result_reads_well_and_is_reproducible():
    result = run(std=0.2)
    assert isinstance(result, AuditResult)
    assert not result.passed
    assert result.epsilon_lower_bound > result.epsilon
    assert result.runs + result.selection_runs == 4000
    text = str(result)
    assert "CLAIM REFUTED" in text
    assert f"{result.epsilon_lower_bound:.4g}" in text
    assert "consistent with the claim" in run().summary()
    assert run(std=0.2) == result
    with pytest.raises(AttributeError):
        result.passed = True


def test_the_bound_follows_from_the_counts():
    from dpconvex.audit import epsilon_lower_bound

    result = run(std=0.5)
    counted = epsilon_lower_bound(
        result.likely_hits, result.runs, result.rare_hits, result.runs, result.delta
    )
    assert result.epsilon_lower_bound == pytest.approx(float(counted), rel=1e-12)
    assert result.epsilon == pytest.approx(GaussianDP(0.5).epsilon(result.delta))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("swapped", [False, True])
def test_both_sides_and_both_roles_are_tried(sign, swapped):
    # Outputs of one sign, the second law a tenth as wide: with so few runs only its near-certain
    # stretch, or the far stretch of the first, refutes.
    pair = [
        lambda count, rng: sign * np.abs(rng.standard_normal(count)),
        lambda count, rng: sign * 0.1 * np.abs(rng.standard_normal(count)),
    ]
    if swapped:
        pair.reverse()
    result = audit(*pair, PureDP(1.5), runs=2000, rng=1, statistic=lambda outputs: outputs)
    assert not result.passed
    wide = "second" if swapped else "first"
    far = "above" if sign > 0 else "below"
    assert (result.likely == wide) == (result.direction == far)


def test_deviation_sees_what_a_projection_cannot():
    # Equal medians and symmetric laws: only the distance from the centre tells them apart.
    result = audit(
        GaussianRelease(0.0, 1.0).sample,
        GaussianRelease(0.0, 20.0).sample,
        PureDP(2.0),
        runs=4000,
        rng=2,
    )
    assert not result.passed
    assert result.statistic == "deviation"


def test_vector_outputs_are_projected():
    shift = np.array([0.0, 0.6, -0.8])
    result = audit(
        lambda count, rng: rng.standard_normal((count, 3)),
        lambda count, rng: rng.standard_normal((count, 3)) + 4 * shift,
        ApproxDP(1.0, 1e-5),
        runs=4000,
        rng=3,
    )
    assert not result.passed
    assert result.epsilon_lower_bound > 3


def test_one_delta_only():
    result = run(delta=1e-3)
    assert result.delta == 1e-3
    assert result.epsilon == pytest.approx(GaussianDP(0.5).epsilon(1e-3))


def test_own_delta_of_an_approximate_claim_is_used():
    result = run(std=0.4, guarantee=ApproxDP(1.0, 1e-5))
    assert result.delta >= 1e-5
    assert not result.passed


def test_tradeoff_curve_follows_the_theory():
    result = run(runs=40_000)
    curve = result.tradeoff
    assert np.all(np.diff(curve.type_one) >= 0)
    assert np.all(np.diff(curve.type_two) <= 0)
    assert curve.type_one[-1] == 1.0
    assert curve.type_two[-1] == 0.0
    # Dvoretzky-Kiefer-Wolfowitz at 5e-7 for each of two samples of 30,000: 0.016 each, and the
    # slope of the curve is steep only where few points lie.
    theory = GaussianDP(0.5).tradeoff(curve.type_one)
    assert np.max(np.abs(curve.type_two - theory)[curve.type_one > 0.1]) < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 10}, "'runs' parameter of audit"),
        ({"confidence": 1.0}, "'confidence' parameter of audit"),
        ({"selection_share": 0.0}, "'selection_share' parameter of audit"),
        ({"delta": -0.1}, "'delta' parameter of audit"),
        ({"statistic": lambda outputs: 1.0}, "'statistic' parameter of audit"),
        ({"guarantee": ApproxDP(1.0, 1e-3), "delta": 1e-6}, "finite epsilon"),
    ],
)
def test_audit_refuses_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        run(**options)


def test_samplers_must_return_finite_arrays_of_the_right_shape():
    good = GaussianRelease(0.0, 1.0).sample
    with pytest.raises(ValueError, match="finite outputs"):
        audit(good, lambda count, rng: np.full(count, np.nan), PureDP(1.0), runs=100)
    with pytest.raises(ValueError, match=r"shape \(count,\)"):
        audit(good, lambda count, rng: np.zeros(3), PureDP(1.0), runs=100)
    with pytest.raises(ValueError, match="one shape"):
        audit(good, lambda count, rng: np.zeros((count, 2)), PureDP(1.0), runs=100)


class MeanEstimator:
    """Stand-in with the interface of the estimators: the clipped mean plus Gaussian noise."""

    def __init__(self, std=1.0, random_state=None, ledger=None):
        self.std = std
        self.random_state = random_state
        self.ledger = ledger

    def get_params(self, deep=True):
        return {"std": self.std, "random_state": self.random_state, "ledger": self.ledger}

    def set_params(self, **params):
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        sums = np.clip(X, -1, 1).sum(axis=0), np.clip(y, -1, 1).sum()
        self.coef_ = sums[0] + self.std * rng.standard_normal(X.shape[1])
        self.intercept_ = float(sums[1] + self.std * rng.standard_normal())
        # Two features and the target move by 2 each; the claim is for std = 10.
        self.certificate_ = GaussianDP(2 * math.sqrt(3) / 10)
        return self


def test_estimator_audit_accepts_and_catches():
    pairs = list(neighbor_pairs(np.zeros((3, 2)), np.zeros(3), np.ones(2), (-1.0, 1.0)))
    assert [pair.name for pair in pairs] == ["mirror", "target", "both"]
    for pair in pairs:
        assert audit_estimator(MeanEstimator(10.0), pair, runs=500, rng=0).passed
    broken = audit_estimator(MeanEstimator(1.0), pairs[2], runs=500, rng=0)
    assert not broken.passed
    explicit = audit_estimator(
        MeanEstimator(1.0), pairs[2], runs=500, rng=0, guarantee=GaussianDP(4.0)
    )
    assert explicit.passed


def test_audit_of_a_private_quantile_regressor():
    # A few hundred fits cannot test the calibration finely: they test that the audit reads the
    # released attributes and the certificate, and that a gross overclaim is refuted.
    estimator = DPQuantileRegressor(
        epsilon=8.0,
        delta=1e-2,
        feature_bounds=(-1.0, 1.0),
        target_bounds=(-1.0, 1.0),
        alpha=1.0,
        bandwidth=1.0,
        mechanism="objective",
    )
    pair = list(neighbor_pairs(np.zeros((2, 1)), np.zeros(2), np.ones(1), (-1e3, 1e3)))[1]
    assert audit_estimator(estimator, pair, runs=150, rng=0).passed
    overclaim = ApproxDP(0.01, 1e-6)
    assert not audit_estimator(estimator, pair, runs=150, rng=0, guarantee=overclaim).passed


def test_estimator_audit_refuses_a_ledger():
    pair = NeighborPair("same", (np.zeros((1, 1)), np.zeros(1)), (np.zeros((1, 1)), np.zeros(1)))
    with pytest.raises(ValueError, match="'ledger' parameter"):
        audit_estimator(MeanEstimator(ledger="file.db"), pair, runs=200)


def test_neighbor_pairs_differ_in_row_zero_only():
    X = np.arange(6.0).reshape(3, 2)
    y = np.array([0.0, 1.0, 1.0])
    for pair in neighbor_pairs(X, y, np.array([0.5, -0.5]), (0.0, 1.0)):
        for rows, targets in (pair.first, pair.second):
            np.testing.assert_array_equal(rows[1:], X[1:])
            np.testing.assert_array_equal(targets[1:], y[1:])
        assert not np.array_equal(
            np.append(pair.first[0][0], pair.first[1][0]),
            np.append(pair.second[0][0], pair.second[1][0]),
        )
    with pytest.raises(ValueError, match="'record' parameter of neighbor_pairs"):
        list(neighbor_pairs(X, y, np.ones(3), (0.0, 1.0)))
