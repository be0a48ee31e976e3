"""The compared algorithms run as printed, and with a generous budget they find the coefficients."""

import math

import numpy as np
import pytest

from dpconvex_reproduction.quantile_sco import RIVALS, Problem
from dpconvex_reproduction.quantile_sco.presets import sgd_preset

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", RIVALS)
def test_finds_the_coefficients(name):
    rng = np.random.default_rng(0)
    n = 2000
    rows = np.column_stack([np.ones(n), rng.uniform(-1, 1, size=(n, 2))])
    target = np.array([1.0, 0.5, -0.3])
    targets = rows @ target + 0.2 * rng.normal(size=n)
    problem = Problem(0.5, 1000.0, 1e-2, np.sqrt(3), 2.0)
    found = RIVALS[name](rows, targets, problem, rng)
    assert np.linalg.norm(found - target) < 0.35
    noisy = RIVALS[name](rows, targets, Problem(0.5, 0.01, 1e-2, np.sqrt(3), 2.0), rng)
    assert np.linalg.norm(noisy - target) > np.linalg.norm(found - target)


def test_sgd_preset_is_theorem_3_4():
    preset = sgd_preset(100, 3, Problem(0.7, 1.0, 1e-2, row_norm=10.0, coef_norm=25.0))
    slope = 7.0
    std = 7.0 * math.sqrt(8 * math.log(100))
    square = 2 * 49e6 + (3 * std**2 + 49 + 2 * math.log(2) * 25 / 2) * 1e4 + 2 * 49 * 100
    assert preset.std == pytest.approx(std)
    assert preset.step_size == pytest.approx(25 / math.sqrt(square))
    assert preset.bandwidth == pytest.approx(preset.step_size * 25 / 2)
    assert slope * preset.steps == 70_000
