"""The planner: order, units, refusals, and agreement with simulations."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.special import expit, ndtri
from scipy.stats import norm
from typer.testing import CliRunner

from dpconvex import (
    DPDiscreteHazard,
    DPLinearRegression,
    DPLogisticRegression,
    DPOrdinalRegression,
    DPQuantileRegressor,
)
from dpconvex.cli import app
from dpconvex.planning import plan
from dpconvex.privacy import ApproxDP, GaussianDP, PureDP
from dpconvex.risk.excess_risk import (
    logistic_constant_excess,
    logistic_excess,
    logistic_excess_intercept,
)

BUDGET = ApproxDP(1.0, 1e-6)


def forecast(outlook, mechanism):
    return next(item for item in outlook.forecasts if item.mechanism == mechanism)


MECHANISMS = {"linear": ("gradient", "output"), "hazard": ("gradient",), "ordinal": ("gradient",)}


@pytest.mark.parametrize("task", ["quantile", "linear", "logistic", "hazard", "ordinal"])
def test_more_rows_budget_or_fewer_columns_never_hurt(task):
    for mechanism in MECHANISMS.get(task, ("objective", "output", "gradient")):
        base = forecast(plan(task, 5000, 5, BUDGET), mechanism).excess_risk
        assert forecast(plan(task, 50_000, 5, BUDGET), mechanism).excess_risk < base
        assert forecast(plan(task, 5000, 5, ApproxDP(4.0, 1e-6)), mechanism).excess_risk < base
        assert forecast(plan(task, 5000, 20, BUDGET), mechanism).excess_risk > base


@pytest.mark.parametrize("task", ["quantile", "linear", "logistic"])
@pytest.mark.parametrize("budget", [BUDGET, GaussianDP(0.5), PureDP(1.0)])
def test_mechanisms_that_offer_the_guarantee_are_listed_best_first(task, budget):
    outlook = plan(task, 20_000, 5, budget, wanted=0.02)
    risks = [item.excess_risk for item in outlook.forecasts]
    assert risks == sorted(risks)
    assert outlook.best == outlook.forecasts[0]
    names = {item.mechanism for item in outlook.forecasts}
    refused = {GaussianDP: {"objective"}, PureDP: {"gradient"}}.get(type(budget), set())
    assert names == set(MECHANISMS.get(task, ("objective", "output", "gradient"))) - refused
    assert outlook.without_privacy.excess_risk <= 1.01 * risks[0]


@pytest.mark.parametrize("task", ["quantile", "linear", "logistic"])
def test_rows_needed_meet_the_wanted_risk(task):
    outlook = plan(task, 3000, 4, BUDGET, wanted=0.02)
    for item in outlook.forecasts:
        rows = item.samples_needed
        assert forecast(plan(task, rows, 4, BUDGET), item.mechanism).excess_risk <= 0.02
        assert forecast(plan(task, int(0.95 * rows), 4, BUDGET), item.mechanism).excess_risk > 0.02
    assert plan(task, 3000, 4, BUDGET, wanted=1e-12).best.samples_needed is None


def test_curve_passes_through_the_plan():
    outlook = plan("quantile", 5000, 4, BUDGET)
    curve = outlook.curve([0.5, 1.0])
    for item in outlook.forecasts:
        assert curve[item.mechanism][1] == item.excess_risk
        assert curve[item.mechanism][0] > item.excess_risk


def test_logistic_forecast_without_noise_is_the_classical_one():
    """``d / (2 n)`` nats for maximum likelihood with d coefficients."""
    assert logistic_excess(10**5, 9, 0.3) == pytest.approx(10 / (2 * 10**5), rel=1e-3)
    # An infinite penalty leaves the constant prediction 1/2.
    half = logistic_excess(10**9, 1, 1.0, alpha=1e9)
    margins = 1 + math.sqrt(2) * np.random.default_rng(0).normal(size=400_000)
    p = expit(margins)
    exact = np.mean(math.log(2) + p * np.log(p) + (1 - p) * np.log1p(-p))
    assert half == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "lasso"}, "task"),
        ({"n_samples": 0}, "n_samples"),
        ({"n_features": 2.5}, "n_features"),
        ({"quantile": 1.0}, "quantile"),
        ({"neighbors": "both"}, "neighbors"),
        ({"wanted": -1.0}, "wanted"),
        ({"feature_spread": 0.0}, "feature_spread"),
        ({"task": "logistic", "residual_scale": 0.1}, "residual_scale"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    given = {
        "task": "quantile",
        "n_samples": 100,
        "n_features": 2,
        "guarantee": BUDGET,
        **arguments,
    }
    with pytest.raises((ValueError, TypeError), match=message):
        plan(**given)


def quantile_run(rng, n, d, spread, mechanism, epsilon, level, scale):
    """Relative excess risk of one fit to a fresh sample of the reference population, exactly."""
    theta = rng.choice([-1, 1], size=d + 1) / math.sqrt(d + 1)
    X = np.clip(spread * rng.normal(size=(n, d)), -1, 1)
    y = theta[0] + X @ theta[1:] + scale * rng.normal(size=n)
    model = DPQuantileRegressor(
        level, epsilon=epsilon, feature_bounds=(-1, 1), target_bounds=(-1, 1), mechanism=mechanism
    ).fit(X, y)
    off = model.coef_ - theta[1:]
    mean = theta[0] - model.intercept_
    variance = scale**2 + spread**2 * off @ off
    best = scale * math.exp(-(ndtri(level) ** 2) / 2) / math.sqrt(2 * math.pi)
    std = math.sqrt(variance)  # of a normal residual, whose expected pinball loss follows
    return (mean * (level - norm.cdf(-mean / std)) + std * norm.pdf(mean / std)) / best - 1


def linear_run(rng, n, d, spread, mechanism, epsilon, delta, scale):
    """Relative excess squared error of one fit to a fresh sample of the reference population,
    exactly.
    """
    theta = rng.choice([-1, 1], size=d + 1) / math.sqrt(d + 1)
    X = np.clip(spread * rng.normal(size=(n, d)), -1, 1)
    y = theta[0] + X @ theta[1:] + scale * rng.normal(size=n)
    limits = {"feature_bounds": (-1, 1), "target_bounds": (-1, 1)}
    model = DPLinearRegression(
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        random_state=rng.integers(10**6),
        **limits,
    ).fit(X, y)
    off = model.coef_ - theta[1:]
    return ((model.intercept_ - theta[0]) ** 2 + spread**2 * off @ off) / scale**2


@pytest.mark.parametrize(
    ("n", "d", "epsilon", "delta", "mechanism"),
    [
        (4000, 3, 1.0, 1e-6, "gradient"),
        (20_000, 10, 0.5, 1e-6, "gradient"),
        (8000, 5, 1.0, 0.0, "output"),
        (20_000, 2, 1.0, 1e-6, "output"),
    ],
)
def test_linear_forecasts_agree_with_simulations(n, d, epsilon, delta, mechanism):
    """Seeded, so the same on every run; medians of nine fits within a factor of 2.5."""
    budget = PureDP(epsilon) if delta == 0 else ApproxDP(epsilon, delta)
    outlook = plan("linear", n, d, budget, residual_scale=0.1, feature_spread=0.3)
    rng = np.random.default_rng(5)
    runs = [linear_run(rng, n, d, 0.3, mechanism, epsilon, delta, 0.1) for _ in range(9)]
    ratio = np.median(runs) / forecast(outlook, mechanism).excess_risk
    assert 1 / 2.5 < ratio < 2.5


def hazard_run(rng, n, d, epsilon):
    """Excess log loss of one fit of five periods, record by record of fresh rows, in nats."""
    X, fresh = (0.3 * rng.normal(size=(rows, d)).clip(-3, 3) for rows in (n, 4000))
    theta = rng.choice([-1, 1], size=d) * math.sqrt(2 / d) / 0.3
    events = rng.random((n, 5)) < expit((X @ theta)[:, None] - 1.5)
    time = np.where(events.any(axis=1), events.argmax(axis=1) + 0.5, 9.0)
    model = DPDiscreteHazard(
        range(1, 6), epsilon=epsilon, feature_bounds=(-1, 1), random_state=rng.integers(10**6)
    )
    survival = model.fit(X, time).predict_survival(fresh)
    best = np.cumprod(1 - np.tile(expit((fresh @ theta)[:, None] - 1.5), (1, 5)), axis=1)
    return lost_by_outcome(
        *(-np.diff(each, axis=1, prepend=1.0, append=0.0) for each in (best, survival))
    )


def ordinal_run(rng, n, d, epsilon):
    """The same of five ordered levels."""
    X, fresh = (0.3 * rng.normal(size=(rows, d)).clip(-3, 3) for rows in (n, 4000))
    theta = rng.choice([-1, 1], size=d) * math.sqrt(2 / d) / 0.3
    cuts = np.array([-1.5, -0.3, 0.7, 2.0])
    y = np.digitize(X @ theta + rng.logistic(size=n), cuts)
    model = DPOrdinalRegression(
        epsilon=epsilon,
        feature_bounds=(-1, 1),
        classes=[0, 1, 2, 3, 4],
        random_state=rng.integers(10**6),
    ).fit(X, y)
    above = expit((fresh @ theta)[:, None] - cuts)
    return lost_by_outcome(
        -np.diff(above, axis=1, prepend=1.0, append=0.0), model.predict_proba(fresh)
    )


def lost_by_outcome(best, found):
    """Return the mean Kullback-Leibler divergence of probabilities from the best ones."""
    return float((best * np.log(best / np.maximum(found, 1e-12))).sum(axis=1).mean())


@pytest.mark.parametrize(("task", "run"), [("hazard", hazard_run), ("ordinal", ordinal_run)])
@pytest.mark.parametrize(
    ("n", "d", "epsilon"), [(5000, 10, 2.0), (20_000, 5, 1.0), (20_000, 20, 0.5)]
)
def test_forecasts_of_common_coefficients_agree_with_simulations(task, run, n, d, epsilon):
    """Seeded, so the same on every run; medians of five fits within a factor of 4, as the studio
    says.
    """
    rng = np.random.default_rng(3)
    runs = [run(rng, n, d, epsilon) for _ in range(5)]
    ratio = np.median(runs) / plan(task, n, d, ApproxDP(epsilon, 1e-6)).best.excess_risk
    assert 1 / 4 < ratio < 4


def test_tasks_without_pure_epsilon_say_so():
    with pytest.raises(ValueError, match=r"hazard.*delta above 0"):
        plan("hazard", 1000, 3, PureDP(1.0))


def test_a_plan_for_people_counts_people(tmp_path):
    schema = tmp_path / "s.toml"
    schema.write_text('[features]\na = [0, 1]\n[person]\ncolumn = "who"\n[target]\nt = [0, 1]\n')
    found = CliRunner().invoke(
        app, ["plan", "--rows", "900", "--schema", str(schema), "--task", "linear"]
    )
    assert found.exit_code == 0, found.output
    assert "900 people" in found.stdout


def logistic_run(rng, n, d, spread, mechanism, epsilon):
    """Excess logistic loss of one fit, over 4,000 fresh rows with exact probabilities."""
    theta = rng.choice([-1, 1], size=d) * math.sqrt(2 / d) / spread
    constant = rng.choice([-1, 1])
    X = np.clip(spread * rng.normal(size=(n, d)), -1, 1)
    y = (rng.random(n) < expit(X @ theta + constant)).astype(int)
    model = DPLogisticRegression(
        epsilon=epsilon, feature_bounds=(-1, 1), mechanism=mechanism, classes=[0, 1]
    ).fit(X, y)
    fresh = spread * rng.normal(size=(4000, d))
    p = expit(fresh @ theta + constant)
    margins = model.decision_function(fresh)
    loss = np.logaddexp(0, -margins) + (1 - p) * margins
    return float(np.mean(loss + p * np.log(p) + (1 - p) * np.log1p(-p)))


def drawn_setting(rng):
    """Draw a task, a mechanism and a problem; return the prediction and a function that
    simulates one fit.
    """
    n = int(10 ** rng.uniform(3.3, 3.9))
    d = int(rng.integers(2, 9))
    spread = float(rng.uniform(0.15, 0.33))
    epsilon = float(10 ** rng.uniform(-0.3, 0.7))
    mechanism = str(rng.choice(["objective", "output", "gradient"]))
    budget = ApproxDP(epsilon, 1e-6)
    if rng.random() < 0.5:
        level = float(rng.choice([0.25, 0.5, 0.75, 0.9]))
        scale = float(10 ** rng.uniform(-1.7, -0.7))
        outlook = plan(
            "quantile", n, d, budget, quantile=level, residual_scale=scale, feature_spread=spread
        )

        def run():
            return quantile_run(rng, n, d, spread, mechanism, epsilon, level, scale)
    else:
        outlook = plan("logistic", n, d, budget, feature_spread=spread)

        def run():
            return logistic_run(rng, n, d, spread, mechanism, epsilon)

    return (
        forecast(outlook, mechanism).excess_risk,
        run,
        (outlook.task, mechanism, n, d, spread, epsilon),
    )


def ratio_of(predicted, run):
    """Return simulated over predicted risk: 16 fits, and 160 more where those are not clear
    enough.
    """
    risks = [run() for _ in range(16)]
    if not 1 / 1.5 < np.mean(risks) / predicted < 1.5:
        risks += [run() for _ in range(160)]
    return np.mean(risks) / predicted


def settings_beyond_the_factor(seed):
    rng = np.random.default_rng(seed)
    beyond = []
    for _ in range(12):
        predicted, run, setting = drawn_setting(rng)
        ratio = ratio_of(predicted, run)
        factor = 5 if setting[1] == "gradient" else 2
        if not 1 / factor <= ratio <= factor:
            beyond.append(f"seed {seed}, {setting}: simulated over predicted is {ratio:.3g}")
    return beyond


@pytest.mark.slow
def test_predictions_are_within_a_factor_of_simulations():
    """Settings drawn afresh in every run, and others if one is beyond the factor: 2, or 5 for noisy
    descents.

    Forecasts of descents were fitted to other simulations, with a standard deviation of at most
    0.45 in the logarithm: a factor of 5 is 3.5 of them away.

    Simulated over predicted risk lay between 0.69 and 1.38 in 164 settings drawn like this, with a
    standard deviation of 0.144 in its logarithm around -0.05. A factor of 2 is then 4.5 standard
    deviations away: for normal logarithms twelve settings fail with a probability of at most 12 *
    4e-6 = 5e-5, descents among them with 12 / 3 * 5e-4 = 2e-3, and three independent dozens with
    8e-9. Predictions that are off by a factor of 2.5 (6 for descents) fail in all. Seeds of a
    failure are printed.
    """
    first = settings_beyond_the_factor(np.random.SeedSequence().entropy)
    if first:
        second = settings_beyond_the_factor(np.random.SeedSequence().entropy)
        third = second and settings_beyond_the_factor(np.random.SeedSequence().entropy)
        assert not third, [*first, *second, *third]


@pytest.mark.parametrize("task", ["quantile", "linear", "logistic", "hazard", "ordinal"])
def test_default_fits_lose_no_more_than_a_constant(task):
    default = MECHANISMS.get(task, ("gradient",))[0]
    rates = [{"class_rate": rate} for rate in (0.003, 0.03, 0.5)] if task == "logistic" else [{}]
    for rows, more in itertools.product((100, 2000, 50_000), rates):
        outlook = plan(task, rows, 10, ApproxDP(0.5, 1e-6), **more)
        assert forecast(outlook, default).excess_risk <= outlook.constant.excess_risk
        assert (
            outlook.constant.excess_risk == plan(task, 7, 10, BUDGET, **more).constant.excess_risk
        )


def test_a_constant_loses_less_where_labels_are_rare():
    """The excess of the share of positive labels, by simulation: 3e6 margins know it to 1 %."""
    intercept = logistic_excess_intercept(0.03)
    margins = intercept + math.sqrt(2) * np.random.default_rng(0).normal(size=3_000_000)
    best = expit(margins)
    entropy = -np.mean(best * np.log(best) + (1 - best) * np.log1p(-best))
    constant = -(0.03 * math.log(0.03) + 0.97 * math.log(0.97))
    assert logistic_constant_excess(intercept) == pytest.approx(constant - entropy, rel=0.02)


def test_other_tasks_are_refused_with_the_nearest():
    for task, near in (("auc", "logistic"), ("robust-regression", "linear")):
        result = CliRunner().invoke(app, ["plan", "--rows", "9", "--features", "2", "--task", task])
        assert result.exit_code == 2
        assert f"Got '{task}' instead. The nearest is {near}." in result.output


def test_command_line():
    runner = CliRunner()
    shown = runner.invoke(app, ["plan", "--rows", "5000", "--features", "3", "--accuracy", "0.02"])
    assert shown.exit_code == 0
    assert "without privacy" in shown.output
    assert "a constant" in shown.output
    assert "nearly constant" not in shown.output
    rare = [
        "plan",
        "--rows",
        "2000",
        "--features",
        "9",
        "--task",
        "logistic",
        "--class-rate",
        "0.03",
    ]
    assert "Expect predictions that are nearly constant" in runner.invoke(app, rare).output
    result = runner.invoke(
        app,
        [
            "plan",
            "--rows",
            "5000",
            "--features",
            "3",
            "--task",
            "newsvendor",
            "--underage-cost",
            "3",
            "--json",
        ],
    )
    content = json.loads(result.output)
    expected = plan("quantile", 5000, 3, BUDGET, quantile=0.75, wanted=0.05)
    assert content["forecasts"][0]["excess_risk"] == expected.best.excess_risk
    assert content["forecasts"][0]["samples_needed"] == expected.best.samples_needed


def test_privacy_is_free_from_a_budget_on():
    """At the budget found the risk is about twice that of sampling; below it more, and on the
    command line the same.
    """
    outlook = plan("quantile", 5000, 4, BUDGET, quantile=0.75)
    free = outlook.free_budget()
    below, at, above = outlook.curve([free / 1.2, free, 2 * free])[outlook.best.mechanism]
    sampling = outlook.without_privacy.excess_risk
    assert above < at <= 2 * sampling < below
    shown = CliRunner().invoke(
        app, ["plan", "--rows", "5000", "--features", "4", "--quantile", "0.75"]
    )
    assert f"From epsilon = {free:.2g} on" in shown.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--task", "lasso"],
        ["--task", "logistic", "--quantile", "0.5"],
        ["--task", "newsvendor", "--overage-cost", "-1"],
        ["--epsilon", "1", "--mu", "1"],
    ],
)
def test_wrong_options_exit_with_one_line(arguments):
    result = CliRunner().invoke(app, ["plan", "--rows", "100", "--features", "2", *arguments])
    assert result.exit_code == 2
    assert "error:" in result.output
    assert "Traceback" not in result.output
