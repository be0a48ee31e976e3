"""The empirical objective: derivatives, scale conventions, and honest rounding bounds."""

import math

import mpmath
import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, Huber, L1Norm, Logistic, Pinball, Squared
from dpconvex.losses.pair_losses import PairLogistic
from dpconvex.objectives import (
    EmpiricalObjective,
    PairwiseObjective,
    StructuredObjective,
    StructuredRecords,
)
from dpconvex.smoothing import (
    EpanechnikovKernel,
    GaussianKernel,
    LogisticKernel,
    UniformKernel,
    convolve,
    convolve_vector,
)

LOSSES = {
    "pinball-logistic": convolve(Pinball(0.9), LogisticKernel(), 0.3),
    "absolute-uniform": convolve(Absolute(), UniformKernel(), 0.3),
    "hinge-epanechnikov": convolve(Hinge(), EpanechnikovKernel(), 0.3),
    "logistic": Logistic(),
    "huber": Huber(0.5),
    "squared": Squared(),
}


def problem(loss, n=200, d=4, influence="weight", scale=1.0, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = scale * (X[:, 0] + rng.normal(size=n))
    if loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    fields = RowMap.from_bounds(d, (-2.0, 2.0), 0.9).to_dict()
    row_map = RowMap.from_dict({**fields, "influence": influence})
    return EmpiricalObjective(MemoryRows(X, y, row_map), loss, **{"alpha": 0.01, **options})


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("influence", ["weight", "shorten"])
def test_matches_the_formula_written_out(name, influence):
    loss = LOSSES[name]
    linear = np.array([0.3, -0.2, 0.1, 0.0, 0.5])
    objective = problem(loss, influence=influence, divisor=250.0, linear=linear)
    theta = np.random.default_rng(1).normal(size=5)
    x, y, w = objective.rows.mapped()
    z = x @ theta
    value = math.fsum(w * loss.value(y, z)) / 250 + 0.005 * theta @ theta + linear @ theta
    gradient = x.T @ (w * loss.gradient(y, z)) / 250 + 0.01 * theta + linear
    hessian = x.T @ np.diag(w * loss.curvature(y, z)) @ x / 250 + 0.01 * np.eye(5)
    assert objective.value(theta) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(objective.gradient(theta), gradient, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(objective.hessian(theta), hessian, rtol=1e-12, atol=1e-14)
    both_value, both_gradient = objective.value_and_gradient(theta)
    assert both_value == pytest.approx(objective.value(theta), rel=1e-14)
    np.testing.assert_allclose(both_gradient, objective.gradient(theta), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(objective.hessian_diagonal(theta), np.diag(hessian), rtol=1e-12)
    refined, _ = objective.refined_gradient(theta)
    np.testing.assert_allclose(refined, gradient, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", LOSSES)
def test_numerical_derivatives(name):
    objective = problem(LOSSES[name])
    theta = np.random.default_rng(2).normal(size=5)
    step = 1e-5
    for j, unit in enumerate(np.eye(5)):
        up = theta + step * unit
        down = theta - step * unit
        slope = (objective.value(up) - objective.value(down)) / (2 * step)
        assert slope == pytest.approx(objective.gradient(theta)[j], abs=1e-8)
        column = (objective.gradient(up) - objective.gradient(down)) / (2 * step)
        # Kinked curvature (uniform kernel, Huber): a few rows may cross a knot within the step.
        np.testing.assert_allclose(column, objective.hessian(theta)[:, j], atol=2e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_declared_constants_bound_the_data_term(name):
    objective = problem(LOSSES[name], alpha=0.0)
    for seed in range(20):
        theta = 3 * np.random.default_rng(seed).normal(size=5)
        assert np.linalg.norm(objective.gradient(theta)) <= objective.gradient_bound
        assert np.linalg.eigvalsh(objective.hessian(theta)).max() <= objective.smoothness


def exact_gradient_norm_error(objective, theta, gradient):
    """Distance of a computed gradient from the exact one, in 60 digits."""
    loss, x, y, w = objective.loss, *objective.rows.mapped()
    quantile = mpmath.mpf(loss.loss.quantile)
    h = mpmath.mpf(loss.bandwidth)
    with mpmath.workdps(60):
        point = [mpmath.mpf(float(t)) for t in theta]
        total = [mpmath.mpf(0)] * len(point)
        for row, target, weight in zip(x, y, w, strict=True):
            row = [mpmath.mpf(float(value)) for value in row]
            margin = mpmath.fsum(a * b for a, b in zip(row, point, strict=True))
            argument = (mpmath.mpf(float(target)) - margin) / h
            slope = (1 - quantile) - 1 / (1 + mpmath.exp(-argument))
            for j, value in enumerate(row):
                total[j] += mpmath.mpf(float(weight)) * slope * value
        divisor = mpmath.mpf(objective.divisor)
        alpha = mpmath.mpf(objective.alpha)
        exact = [
            t / divisor + alpha * p + mpmath.mpf(float(b))
            for t, p, b in zip(total, point, objective.linear, strict=True)
        ]
        return float(
            mpmath.sqrt(
                sum((mpmath.mpf(float(g)) - e) ** 2 for g, e in zip(gradient, exact, strict=True))
            )
        )


@pytest.mark.parametrize("bandwidth", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("size", [0.1, 10.0, 1e4])
@pytest.mark.parametrize("influence", ["weight", "shorten"])
def test_rounding_allowances_cover_the_error(bandwidth, size, influence):
    """Both bounds hold against 60-digit arithmetic, and neither is vacuous."""
    loss = convolve(Pinball(0.9), LogisticKernel(), bandwidth)
    linear = np.random.default_rng(5).normal(size=5)
    for seed in range(3):
        objective = problem(
            loss, n=60, influence=influence, scale=size, seed=seed, linear=linear, divisor=50.0
        )
        # Targets on the fitted line: the residuals of half the rows fall inside the bandwidth.
        theta = size * np.random.default_rng(seed).normal(size=5)
        x, _, _ = objective.rows.mapped()
        noise = bandwidth * np.random.default_rng(seed).normal(size=60)
        objective.rows.targets[::2] = (x @ theta + noise)[::2]
        error = exact_gradient_norm_error(objective, theta, objective.gradient(theta))
        allowance = objective.rounding_allowance(theta)
        assert error <= allowance
        refined, refined_allowance = objective.refined_gradient(theta)
        assert exact_gradient_norm_error(objective, theta, refined) <= refined_allowance
        assert refined_allowance <= 1e-13 * (objective.gradient_bound + size)
        assert refined_allowance <= allowance


def test_allowance_without_finite_constants_is_found_row_by_row():
    squared = problem(Squared())
    assert 0 < squared.rounding_allowance(np.ones(5)) < 1e-12
    kinked = problem(Pinball(0.5))
    assert 0 < kinked.rounding_allowance(np.full(5, 0.1)) < 1e-12
    x, _, _ = kinked.rows.mapped()
    kinked.rows.targets[0] = x[0] @ np.full(5, 0.1)  # a residual that may have either sign
    assert kinked.rounding_allowance(np.full(5, 0.1)) > 1e-3


def pairs():
    rng = np.random.default_rng(0)
    return PairwiseObjective(rng.normal(size=(30, 5)), rng.random(30) < 0.5, PairLogistic(), 0.1)


def matrices():
    rng = np.random.default_rng(0)
    records = StructuredRecords(rng.normal(size=(30, 2, 5)), rng.normal(size=(30, 2)), 1.0)
    return StructuredObjective(records, convolve_vector(L1Norm(2), GaussianKernel(2), 0.5), 0.1)


@pytest.mark.parametrize("make", [lambda: problem(LOSSES["logistic"]), pairs, matrices])
def test_with_linear_adds_in_mean_form_and_leaves_the_original_alone(make):
    """One meaning in every objective that has a linear term."""
    objective = make()
    theta = np.ones(5)
    linear = np.arange(5.0)
    shifted = objective.with_linear(linear).with_linear(linear)
    np.testing.assert_allclose(
        shifted.gradient(theta), objective.gradient(theta) + 2 * linear, rtol=1e-14
    )
    assert shifted.value(theta) == pytest.approx(objective.value(theta) + 20.0)
    assert not objective.linear.any()


def test_subsample_approximates_the_objective():
    objective = problem(LOSSES["logistic"], n=40_000, divisor=50_000.0)
    part = objective.subsample(4000)
    assert part.n_rows == 4000
    assert part.divisor == 5000.0
    theta = np.ones(5)
    # 4000 rows: the standard error of each entry is below 0.016, 6 of them below 0.1.
    np.testing.assert_allclose(part.gradient(theta), objective.gradient(theta), atol=0.1)
    assert part.smoothness == pytest.approx(objective.smoothness)


def test_widened_loss_is_the_average_over_a_window():
    objective = problem(Pinball(0.7))
    wide = objective.smoothed(0.4)
    uniform = EmpiricalObjective(
        objective.rows, convolve(Pinball(0.7), UniformKernel(), 0.4), objective.alpha
    )
    theta = np.random.default_rng(3).normal(size=5)
    np.testing.assert_allclose(wide.gradient(theta), uniform.gradient(theta), rtol=1e-9)
    np.testing.assert_allclose(wide.hessian(theta), uniform.hessian(theta), rtol=1e-9)
    assert objective.kink_width == 0.0
    assert uniform.kink_width > 0


@pytest.mark.parametrize(
    ("options", "name"),
    [({"alpha": -1.0}, "alpha"), ({"divisor": 0.0}, "divisor"), ({"linear": np.ones(2)}, "linear")],
)
def test_bad_parameters_are_refused(options, name):
    with pytest.raises(ValueError, match=name):
        problem(LOSSES["logistic"], **options)


def test_data_larger_than_the_cache_gives_the_same_numbers(monkeypatch):
    small = problem(LOSSES["pinball-logistic"], n=5000)
    theta = np.ones(5)
    expected = small.value_and_gradient(theta)
    monkeypatch.setattr("dpconvex.core.memory_rows.CACHE_BYTES", 0)
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1 << 12)
    value, gradient = problem(LOSSES["pinball-logistic"], n=5000).value_and_gradient(theta)
    assert value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-12, atol=1e-15)
