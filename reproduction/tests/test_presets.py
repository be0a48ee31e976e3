"""Printed presets against the papers' formulas written down a second time, and against numbers the papers imply."""

import math

import pytest

from dpconvex.losses import L1Norm, L1WithLink, Logistic
from dpconvex.smoothing import ExponentialKernel, GaussianKernel, UniformKernel
from dpconvex_reproduction.auc_erm.presets import AUCProblem, theorem_3, theorem_4, theorem_5, theorem_7
from dpconvex_reproduction.convolution_objective_perturbation.convolution_objective import printed_constants
from dpconvex_reproduction.convolution_objective_perturbation.presets import kernel_smoothness, lemma_3_3, theorem_3_2
from dpconvex_reproduction.newsvendor_gdp.algorithm import true_mu
from dpconvex_reproduction.newsvendor_gdp.presets import theorem_2
from dpconvex_reproduction.output_perturbation.presets import (
    OutputProblem,
    theorem_3_1,
    theorem_5_1,
    theorem_5_2,
    theorem_5_3,
)
from dpconvex_reproduction.output_perturbation.presets import theorem_3_2 as smooth_preset


def test_penalties_of_the_auc_paper():
    pure = AUCProblem(400, 600, 10, 0.5, lipschitz=2.0, smoothness=3.0, diameter=1.5, norm=4.0, failure=0.1)
    n, pairs, logs = 1000, 240_000, math.log(10)
    first = 3 ** (1 / 3) * (2 * 1.5 * n * 10) ** (2 / 3) / (4 * 0.5 * pairs) ** (2 / 3)
    second = 2 * 1.5 * math.sqrt(logs) * n**1.5 / (4 * pairs)
    assert theorem_3(pure).alpha == pytest.approx(min(first, second))
    assert theorem_4(pure).alpha == pytest.approx(1.5**1.6 * 3**0.8 * (n * 10) ** 0.4 / (pairs * 0.5 * 4) ** 0.4)
    root = math.sqrt(100 + n * logs * 0.25)
    found = theorem_5(pure)
    assert found.alpha == pytest.approx(2 * 1.5 * n * root / (pairs * 0.5 * 4))
    assert found.applies == (2 * root / (2 * 1.5 * 4) >= 3)
    approximate = AUCProblem(400, 600, 10, 0.5, 1e-5, 2.0, 3.0, 1.5, 4.0, 0.1)
    noise = math.sqrt((math.sqrt(math.log(1e5)) + math.sqrt(0.5)) ** 2 * 10 + n * logs * 0.25)
    assert theorem_5(approximate).alpha == pytest.approx(2 * 1.5 * n * noise / (pairs * 0.5 * 4))
    assert theorem_7(approximate).alpha == pytest.approx(8 * 2 * 1.5 * noise / (0.5 * n * 4))
    assert theorem_4(approximate).alpha == pytest.approx(
        1.5 ** (4 / 3) * 3 ** (2 / 3) * logs ** (1 / 3) * n / (pairs * 4) ** (2 / 3)
    )
    with pytest.raises(ValueError, match="delta"):
        theorem_7(pure)


def test_remarks_do_not_know_the_norm():
    unknown = AUCProblem(400, 600, 10, 0.5, 1e-5, norm=None)
    known = AUCProblem(400, 600, 10, 0.5, 1e-5, norm=1.0)
    for preset, remark in ((theorem_3, "Remark 1"), (theorem_5, "Remark 2"), (theorem_7, "Remark 3")):
        assert preset(unknown).theorem == remark
        assert preset(unknown).alpha == preset(known).alpha
        assert preset(unknown).rate == pytest.approx(4 * preset(known).rate)


def test_the_parameters_of_theorem_2():
    found = theorem_2(2000, 6, 0.5, quantile=0.8)
    assert true_mu(0.8, found.std, steps=found.steps, truncation=found.truncation) == pytest.approx(0.5)
    assert found.step_size == pytest.approx(1 / 1.3)
    assert found.enough
    assert not theorem_2(10, 6, 0.01).enough
    assert found.mechanism.plain
    assert (found.mechanism.steps, found.mechanism.truncation) == (8, found.truncation)


def test_a_link_of_no_slope_leaves_the_constants_of_the_norm():
    plain = printed_constants(L1Norm(3), 1000, 5, 1.0, 1e-5, radius=2.0)
    assert theorem_3_2(3, 1.0, 0.0, 1.0, 1.0, 1e-5) == pytest.approx(plain.std)
    loss = L1WithLink(2, Logistic())
    found = lemma_3_3(loss, 10_000, 5, 1.0, 1e-6, radius=1.0, row_norm=2.0)
    penalty = found.alpha / 2
    assert penalty == pytest.approx((1 / found.bandwidth + 0.25 * 4) * 3 / 10_000)  # step 1
    wide = lemma_3_3(loss, 10_000, 5, 1.0, 1e-6, radius=1.0, row_norm=2.0, kernel=ExponentialKernel(2))
    assert wide.bandwidth == pytest.approx(math.sqrt(6) * found.bandwidth)
    assert kernel_smoothness(GaussianKernel(2), 2) == 1.0
    with pytest.raises(ValueError, match="Table 1"):
        kernel_smoothness(UniformKernel(), 2)


def test_tilted_and_adversarial_bounds_meet_the_plain_ones():
    problem = OutputProblem(1.0, 1.0, 1000, 5, 1.0, strong_convexity=0.1, smoothness=1.0)
    assert theorem_5_1(problem, 0.0, 3.0).excess_risk == theorem_3_1(problem).excess_risk
    assert theorem_5_2(problem, 0.0, 3.0).excess_risk == pytest.approx(smooth_preset(problem).excess_risk)
    grown = theorem_5_2(problem, 0.5, 1.0).excess_risk / smooth_preset(problem).excess_risk
    assert grown == pytest.approx(math.e * (1 + 0.5))  # C^2 and (beta + tilt L^2) / beta
    assert theorem_5_3(problem).excess_risk == smooth_preset(problem).excess_risk
