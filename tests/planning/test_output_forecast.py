"""Penalties of output perturbation: predicted risks, and the bound of linear models."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Huber, Logistic, Pinball
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import EmpiricalObjective
from dpconvex.planning import linear_preset, output_prescription
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds, NoiseSource, PureDP
from dpconvex.risk.excess_risk import quantile_excess, reference_moment


def test_prescription_balances_penalty_and_noise():
    bounds = LinearBounds(20_000, 4, Pinball(0.5), 2.0, 2.0)
    chosen = output_prescription(0.5, bounds, ApproxDP(1.0, 1e-6))
    assert (chosen.bandwidth, chosen.level) == (0.0, 0.5)
    for factor in (0.25, 4.0):
        other = output_prescription(0.5, bounds, ApproxDP(1.0, 1e-6), alpha=factor * chosen.alpha)
        assert other.excess_risk > chosen.excess_risk
    richer = output_prescription(0.5, replace(bounds, n_samples=10**6), ApproxDP(1.0, 1e-6))
    assert richer.alpha < chosen.alpha
    assert richer.excess_risk < chosen.excess_risk
    pure = output_prescription(0.5, bounds, PureDP(1.0))
    assert pure.alpha > 0


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Pinball(0.7)])
@pytest.mark.parametrize("guarantee", [ApproxDP(1.0, 1e-6), PureDP(1.0), GaussianDP(0.5)])
def test_linear_preset_is_a_bound_and_its_minimum(loss, guarantee):
    """The noise part, checked on 2000 draws: the mean of a bounded-variance excess, 10 standard
    errors allowed.
    """
    n = 2000
    d = 3
    radius = 2.0
    facts = LinearBounds(n, d, loss, 1.0, math.sqrt(d))
    chosen = linear_preset(facts, guarantee, radius)
    certificate = OutputPerturbation().certify(replace(facts, alpha=chosen.alpha), guarantee)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    y = X @ np.full(d, radius / math.sqrt(d)) + 0.2 * rng.standard_normal(n)
    if loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    rows = MemoryRows(X, y, RowMap.from_bounds(d, (-1.0, 1.0), row_norm=1.0))
    objective = EmpiricalObjective(rows, loss, chosen.alpha)
    plain = EmpiricalObjective(rows, loss, 0.0)
    point = OutputPerturbation().minimise(objective, certificate)
    term = certificate.noise["release"]
    draws = NoiseSource(1)
    add = draws.add_gaussian if term["distribution"] == "gaussian" else draws.add_l2_laplace
    size = term.get("std", term.get("scale"))
    risks = np.array([plain.value(add(point, size)) for _ in range(2000)])
    noise_part = chosen.excess_risk - chosen.alpha * radius**2 / 2
    error = 10 * risks.std() / math.sqrt(len(risks))
    assert risks.mean() - plain.value(point) <= 1.02 * noise_part + error
    for factor in (0.5, 2.0):
        std = size * math.sqrt(1 if "std" in term else d + 2) / factor
        noise = facts.lipschitz * std * math.sqrt(2 / math.pi)
        if math.isfinite(facts.smoothness):
            noise = min(noise, facts.smoothness * std**2 / 2)
        assert factor * chosen.alpha * radius**2 / 2 + noise > 0.99 * chosen.excess_risk


def test_prediction_matches_the_reference_population():
    """Mean excess of 40 releases on the reference population, within a factor 2 of the prediction.

    A release's excess has a relative spread below 1.2, so the mean of 40 is off by a factor 2 with
    probability far below 1e-6; a wrong unit of the noise (n, alpha or the moment) would be off by
    more.
    """
    rng = np.random.default_rng(0)
    n = 20_000
    d = 4
    s = 0.2
    quantile = 0.7
    bounds = LinearBounds(n, d, Pinball(quantile), 2.0, 2.0)
    chosen = output_prescription(quantile, bounds, GaussianDP(0.5))
    bounds = replace(bounds, alpha=chosen.alpha)
    moment = reference_moment(bounds)
    X = math.sqrt(3 * moment) * rng.uniform(-1, 1, (n, d))
    truth = np.full(d + 1, 1 / math.sqrt(d + 1))
    noise = s * rng.standard_normal(n)
    y = truth[0] + X @ truth[1:] + noise
    rows = MemoryRows(X, y, RowMap.from_bounds(d, (-1.0, 1.0), row_norm=2.0))
    objective = EmpiricalObjective(rows, bounds.loss, bounds.alpha)
    plain = EmpiricalObjective(rows, bounds.loss, 0.0)
    mechanism = OutputPerturbation()
    certificate = mechanism.certify(bounds, GaussianDP(0.5), seeded=True)
    point = mechanism.minimise(objective, certificate)
    term = certificate.noise["release"]
    draws = NoiseSource(1)
    risks = [plain.value(draws.add_gaussian(point, term["std"])) for _ in range(40)]
    z = 0.5244005127080407  # normal quantile of 0.7
    best = plain.value(truth + np.eye(d + 1)[0] * s * z)
    seen = np.mean(risks) / best - 1
    predicted = quantile_excess(
        quantile, d + 1, moment, s, alpha=bounds.alpha, release_std=term["std"]
    )
    assert 0.5 < seen / float(predicted) < 2.0
