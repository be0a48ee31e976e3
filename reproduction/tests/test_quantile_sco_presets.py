"""The printed parameters: phased methods held against ours, risks against the sums that they are
the least of.
"""

import math

import numpy as np
import pytest
from scipy import integrate, optimize

from dpconvex.losses import Pinball
from dpconvex.mechanisms import PhasedERM, PhasedSGD
from dpconvex.privacy import ApproxDP, LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex_reproduction.quantile_sco.presets import (
    Problem,
    estimation_bound,
    newsvendor_cost,
    objective_preset,
    phased_erm_preset,
    phased_sgd_preset,
    sgd_preset,
    smoothing_risk,
)

SMOOTH = convolve(Pinball(0.7), LogisticKernel(), 0.5)


@pytest.mark.parametrize(
    ("method", "preset"), [(PhasedERM, phased_erm_preset), (PhasedSGD, phased_sgd_preset)]
)
def test_published_constants(method, preset):
    """The printed noise is more than the certificate of the same steps needs."""
    bounds = LinearBounds(5000, 2, SMOOTH, 1.0, 1.0)
    told = Problem(0.5, 1.0, 1e-2, row_norm=2 * bounds.lipschitz, coef_norm=2.0)
    chosen = preset(5000, 3, told)
    c = 4 if method is PhasedERM else 2
    step = 2.0 / bounds.lipschitz * min(4 / math.sqrt(5000), 1 / (c * math.sqrt(3 * math.log(100))))
    assert chosen.step_size == pytest.approx(step)
    assert chosen.phases == 12
    exact = method(chosen.step_size, phases=5).certify(bounds, ApproxDP(1.0, 1e-2))
    for i, needed in enumerate(exact.noise.values(), start=1):
        assert chosen.std(i, told) > needed["std"]


def test_risks_are_the_least_of_their_sums():
    """The sums of the proofs of Theorems 3.4 and 3.6, at the prescribed parameters and beside
    them.
    """
    told = Problem(0.7, 0.8, 1e-6, row_norm=2.0, coef_norm=3.0)
    n = 500
    d = 4
    slope = told.lipschitz
    kernel = told.kernel
    bend = kernel.peak * told.row_norm**2

    def sgd(step):
        parts = slope**2 * (1 + n**2) / n + slope**2 / 2 + d * chosen.std**2 / 2
        parts += kernel.mean_abs * bend / 4
        return parts * step + told.coef_norm**2 / (2 * n**2 * step)

    chosen = sgd_preset(n, d, told)
    assert chosen.risk == pytest.approx(sgd(chosen.step_size))
    assert chosen.risk < min(sgd(0.9 * chosen.step_size), sgd(1.1 * chosen.step_size))
    assert chosen.stability < chosen.risk
    assert 2 / chosen.step_size == pytest.approx(bend / chosen.bandwidth)  # Lemma 3.3 asks for it

    def perturbed(penalty):
        smoothing = kernel.mean_abs * bend / (2 * penalty * n * told.epsilon)
        noise = d * found.std**2 / (n**2 * penalty)
        return 2 * slope**2 / (n * penalty) + noise + penalty * told.coef_norm**2 + smoothing

    found = objective_preset(1, n, d, told)
    assert found.risk == pytest.approx(perturbed(found.alpha / 2))
    assert found.risk < min(perturbed(0.45 * found.alpha), perturbed(0.55 * found.alpha))
    assert objective_preset(2, n, d, told).risk < found.risk


def test_lemmas_of_the_estimation_error_bound_simulated_distances():
    """One coefficient, rows of 1, uniform residuals: minimisers by root finding, apart from the
    lemmas.

    40 samples; the sampling lemma may fail on 1 in 20 of them and is held against the 0.9 quantile:
    a false alarm needs four or more failures of it, and its constants leave a factor of ten.
    """
    told = Problem(0.5, 1.0, 1e-6, row_norm=1.0, coef_norm=1.0)
    n = 100_000
    truth = 0.4
    preset = objective_preset(1, n, 1, told)
    facts = {"least_density": 0.5, "density_slope": 0.1, "least_eigenvalue": 1.0}
    smoothing, privacy, sampling = estimation_bound(n, 1, told, **facts)
    loss = convolve(Pinball(0.5), told.kernel, preset.bandwidth)
    rng = np.random.default_rng(0)
    moved = []
    drawn = []
    for _ in range(40):
        residuals = rng.uniform(-1, 1, n)  # density 1/2
        grid = np.quantile(residuals, np.linspace(0, 1, 2001))  # a sample's law, for speed

        def slope(theta, noise=0.0, grid=grid):
            gradient = float(loss.gradient(truth + grid, np.full(grid.size, theta)).mean())
            return gradient + preset.alpha * theta + noise / n

        penalised = optimize.brentq(slope, -3, 3)
        noise = rng.normal(0, preset.std)
        moved.append(
            abs(optimize.brentq(lambda theta, s=slope, b=noise: s(theta, b), -30, 30) - penalised)
        )
        drawn.append(
            abs(penalised - truth)
        )  # uniform residuals: the smoothed solution is the true one
    assert np.mean(moved) <= privacy
    assert np.quantile(drawn, 0.9) <= sampling
    assert sampling <= 60 * max(drawn)
    assert smoothing < sampling
    assert estimation_bound(50, 1, told, **facts)[2] == math.inf
    # A thousandth of the root is no root: the cubic is negative below it.
    more = estimation_bound(4 * n, 1, told, **facts)
    assert more[1] < privacy
    assert more[2] < sampling


def test_the_cost_of_a_newsvendor_is_the_risk_in_units_of_both_costs():
    """By the definition: the cost of one order is ``c_u (y - q)^+ + c_o (q - y)^+``, the sum
    times the pinball loss.
    """
    told = Problem(0.75, 1.0, 1e-6, row_norm=1.0, coef_norm=1.0)
    demand, order = np.random.default_rng(0).normal(size=(2, 50))
    cost = 3 * np.maximum(demand - order, 0) + np.maximum(order - demand, 0)
    factor = float(np.mean(cost / Pinball(0.75).value(demand, order)))
    assert newsvendor_cost("sgd", 1000, 3, told, (3.0, 1.0)) == pytest.approx(
        factor * sgd_preset(1000, 3, told).risk
    )
    plain = newsvendor_cost("objective", 1000, 3, told, (3.0, 1.0))
    assert plain == pytest.approx(factor * objective_preset(2, 1000, 3, told).risk)
    # What part 2 of Theorem 3.6 adds at a population with residuals beyond 1/2: the mean gap, at
    # most h^2 E[1/|u|].
    preset = objective_preset(2, 1000, 3, told)
    loss = convolve(Pinball(0.75), told.kernel, preset.bandwidth)
    gap = integrate.quad(
        lambda u: float(loss.value(u, 0.0) - Pinball(0.75).value(u, 0.0)), 0.5, 1.5
    )[0]
    added = smoothing_risk(1000, 3, told, math.log(3))
    assert gap <= added
    total = newsvendor_cost("objective", 1000, 3, told, (3.0, 1.0), math.log(3))
    assert total == pytest.approx(plain + 4 * added)
    with pytest.raises(ValueError, match="c_u"):
        newsvendor_cost("sgd", 1000, 3, told, (1.0, 1.0))


def test_part_2_assumes_what_no_regression_of_section_4_has():
    """``E[1/|u|]`` of residuals with a density of 1/2 near 0: 0.5 log(1/t) beyond t, without
    end.
    """
    cut = [integrate.quad(lambda u: 1 / u, t, 1)[0] for t in (1e-2, 1e-4, 1e-8)]
    assert np.diff(cut) == pytest.approx([math.log(100), math.log(1e4)], rel=1e-6)
