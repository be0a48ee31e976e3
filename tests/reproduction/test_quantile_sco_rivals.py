"""The compared algorithms run as printed, and with a generous budget they find the coefficients."""

import numpy as np
import pytest

from dpconvex.experiments.quantile_sco import RIVALS, Problem


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
