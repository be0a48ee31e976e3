"""The output-perturbation paper's presets and tables, by hand-computed values."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpconvex_reproduction.output_perturbation import algorithm_1, algorithm_6, algorithm_8
from dpconvex_reproduction.output_perturbation.paper_tables import (
    excess_risk_bound,
    solver_iterations,
    table,
)
from dpconvex_reproduction.output_perturbation.presets import (
    OutputProblem,
    gaussian_factor,
    output_preset,
    proposition_4_1,
    proposition_4_2,
    proposition_4_3,
    proposition_4_4,
    theorem_3_1,
    theorem_3_2,
    theorem_3_4,
    theorem_3_5,
)

pytestmark = pytest.mark.slow

BASE = OutputProblem(2.0, 3.0, 1000, 10, epsilon=0.5, strong_convexity=0.1, smoothness=5.0)
R = 10 / (0.5 * 1000)


def test_gaussian_factor_by_hand():
    c = math.sqrt(math.log(2 / (math.sqrt(1 + 16e-5) - 1)))
    assert gaussian_factor(1.0, 1e-5) == pytest.approx(c + math.sqrt(c * c + 1))
    assert gaussian_factor(1.0, 1e-5) / math.sqrt(2) == pytest.approx(4.6089, abs=1e-3)


def test_presets_for_a_mean_by_hand():
    first = theorem_3_1(BASE)
    assert first.accuracy == pytest.approx(4 / (0.1 * 1000) * min(1 / 1000, 10 / 0.5))
    assert first.excess_risk == pytest.approx(9 * 40 * R)
    second = theorem_3_2(BASE)
    assert second.accuracy == pytest.approx(40 / 1000**2 * min(50 * (10 / 0.5) ** 2, 1))
    assert second.excess_risk == pytest.approx(26 * 50 * 40 * R**2)
    third = theorem_3_4(BASE)
    assert third.alpha == pytest.approx(2 / (3 * math.sqrt(1 + 1 / R)))
    assert third.accuracy == pytest.approx(6 * R**1.5 / (1 + 20) ** 2)
    assert third.excess_risk == pytest.approx(49 * 6 * math.sqrt(R))
    fourth = theorem_3_5(BASE)
    assert fourth.alpha == pytest.approx((5 * 4 / 9) ** (1 / 3) * R ** (2 / 3))
    size = 5 ** (1 / 3) * 2 ** (2 / 3) * 3 ** (4 / 3)
    assert fourth.excess_risk == pytest.approx(65 * size * R ** (2 / 3))
    paper = 2 ** (4 / 3) * 3 ** (2 / 3) / 5 ** (1 / 3) * (0.5 / 10) ** (2 / 3) / 1000 ** (4 / 3)
    assert fourth.accuracy == pytest.approx(min(paper, size * R ** (2 / 3)))


def test_presets_for_a_population_by_hand():
    assert proposition_4_1(BASE).excess_risk == pytest.approx(2 * 40 * (1 / 1000 + R))
    assert proposition_4_2(BASE).excess_risk == pytest.approx(40 * (2 / 1000 + 4 * 50 * R**2))
    size = 5 ** (1 / 3) * 2 ** (2 / 3) * 3 ** (4 / 3)
    root = 1 / math.sqrt(1000)
    assert proposition_4_3(BASE).alpha == pytest.approx(2 / 3 * (math.sqrt(R) + root))
    assert proposition_4_4(BASE).alpha == pytest.approx(
        (5 * 4 / 9) ** (1 / 3) * (R ** (2 / 3) + root)
    )
    for delta, convex, smooth in ((0.0, 127, 83), (1e-6, 19, 43)):
        problem = replace(BASE, delta=delta)
        ratio = problem.ratio
        convex_risk = 6 * (convex * math.sqrt(ratio) + root / 2)
        assert proposition_4_3(problem).excess_risk == pytest.approx(convex_risk)
        assert proposition_4_4(problem).excess_risk == pytest.approx(
            size * (11 * root + smooth * ratio ** (2 / 3))
        )


def test_presets_choose_their_theorem():
    names = {
        (0.1, 5.0): ("Theorem 3.2", "Proposition 4.2"),
        (0.1, math.inf): ("Theorem 3.1", "Proposition 4.1"),
        (0.0, 5.0): ("Theorem 3.5", "Proposition 4.4"),
        (0.0, math.inf): ("Theorem 3.4", "Proposition 4.3"),
    }
    for (convexity, smoothness), (empirical, population) in names.items():
        problem = replace(BASE, strong_convexity=convexity, smoothness=smoothness)
        assert output_preset(problem).theorem == empirical
        assert output_preset(problem, population=True).theorem == population
        for delta in (0.0, 1e-6):
            for mean in (True, False):
                preset = output_preset(replace(problem, delta=delta, mean=mean))
                assert min(preset.alpha, preset.accuracy, preset.excess_risk) > 0
    with pytest.raises(ValueError, match="mean=False"):
        proposition_4_1(replace(BASE, mean=False))
    with pytest.raises(ValueError, match="strong convexity"):
        theorem_3_1(replace(BASE, strong_convexity=0.0))
    with pytest.raises(ValueError, match="smoothness"):
        theorem_3_2(replace(BASE, smoothness=math.inf))


def test_conditions_say_when_bounds_are_trivial():
    hopeless = replace(BASE, n_samples=10)
    assert not output_preset(hopeless).nontrivial
    assert excess_risk_bound(hopeless) == 6.0
    rich = replace(BASE, n_samples=10**7)
    assert output_preset(rich).nontrivial
    assert excess_risk_bound(rich) == pytest.approx(theorem_3_2(rich).excess_risk)
    assert excess_risk_bound(rich, population=True) > excess_risk_bound(rich) / 26 * 4


def test_bounds_fall_with_more_data_and_budget():
    for problem in (BASE, replace(BASE, strong_convexity=0.0), replace(BASE, delta=1e-6)):
        for population in (False, True):
            risks = [
                excess_risk_bound(replace(problem, n_samples=n), population)
                for n in (10, 10**3, 10**5, 10**7)
            ]
            assert risks == sorted(risks, reverse=True)
            assert risks[-1] < risks[0]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_accuracy_leaves_the_noise_at_its_order(delta):
    """Stopping at the preset's gap adds at most a factor 1 + sqrt(2) to the sensitivity of a
    strongly convex mean.

    For convex means the gap's share of the expected excess, L E||z||, must not exceed the bound
    claimed: with the accuracy printed for delta > 0 it would, by a factor spread/epsilon.
    """
    problem = replace(BASE, delta=delta, n_samples=10**6, smoothness=math.inf)
    exact = algorithm_1(problem, 0.0).sensitivity
    assert algorithm_1(problem, theorem_3_1(problem).accuracy).sensitivity <= 2.42 * exact
    convex = replace(problem, strong_convexity=0.0, dimension=400)
    preset = theorem_3_4(convex)
    share = 2 * math.sqrt(2 * preset.accuracy / preset.alpha)
    assert convex.lipschitz * share * convex.spread / convex.epsilon <= preset.excess_risk
    printed = convex.lipschitz * convex.radius * convex.ratio**1.5
    share = 2 * math.sqrt(2 * printed / preset.alpha)
    assert convex.lipschitz * share * convex.spread / convex.epsilon > preset.excess_risk


def test_tables():
    for number in range(1, 7):
        problem = replace(BASE, delta=0.0 if number % 2 else 1e-6)
        rows = table(number, problem)
        assert [row.function_class for row in rows] == [
            "strongly convex",
            "smooth strongly convex",
            "convex",
            "smooth convex",
        ]
        for row in rows:
            assert 0 < row.excess_risk <= 6.0
            assert 0 < row.runtime < math.inf
            assert row.nontrivial or "<=" in row.condition
        assert len(table(number, replace(problem, strong_convexity=0.0))) == 2
        assert len(table(number, replace(problem, smoothness=math.inf))) == 2
    strong, smooth, convex, _ = table(5, BASE)
    assert strong.runtime == 10 * 1000**2
    assert smooth.runtime == pytest.approx(10 * (1000 + math.sqrt(50 * 1000)))
    assert strong.excess_risk == pytest.approx(40 * R)
    assert convex.excess_risk == pytest.approx(6 * math.sqrt(R))
    with pytest.raises(ValueError, match="1, 2, 3, 4, 5 or 6"):
        table(7, BASE)
    with pytest.raises(ValueError, match="Table 2 is for delta > 0"):
        table(2, BASE)


def test_iteration_counts():
    preset = theorem_3_2(BASE)
    fast = solver_iterations(BASE, preset, "accelerated")
    expected = math.sqrt(50) * math.log((0.1 + 5.0) * 9 / (2 * preset.accuracy))
    assert fast == pytest.approx(expected)
    assert solver_iterations(BASE, preset, "subgradient") == pytest.approx(
        2 * 4 / (0.1 * preset.accuracy)
    )
    assert solver_iterations(BASE, preset, "katyusha") > 1000
    with pytest.raises(ValueError, match="'solver' parameter"):
        solver_iterations(BASE, preset, "newton")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lipschitz": 0.0}, "'lipschitz'"),
        ({"delta": 0.5}, "'delta'"),
        ({"smoothness": 0.01}, "'smoothness'"),
        ({"dimension": 0}, "'dimension'"),
    ],
)
def test_problem_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        replace(BASE, **change)


def test_printed_algorithms_by_hand():
    problem = replace(BASE, delta=1e-5)
    factor = gaussian_factor(0.5, 1e-5) / (math.sqrt(2) * 0.5)
    one = algorithm_1(problem, 0.02)
    assert one.sensitivity == pytest.approx(2 * 2 / (0.1 * 1000) + 2 * math.sqrt(0.4))
    assert one.std == pytest.approx(one.sensitivity * factor)
    six = algorithm_6(problem, 0.2, 0.02)
    assert six.sensitivity == pytest.approx(2 * 2.6 / (0.2 * 1000) + 2 * math.sqrt(0.2))
    assert six.std == pytest.approx(six.sensitivity * factor / math.sqrt(2))
    assert algorithm_8(problem, 0.02).sensitivity == pytest.approx(0.04 / 1 + 0.4)
    assert algorithm_8(BASE, 0.02).sensitivity == pytest.approx(0.04 + 2 * math.sqrt(0.4))
    assert one.add(np.zeros(4), np.random.default_rng(0)).shape == (4,)
