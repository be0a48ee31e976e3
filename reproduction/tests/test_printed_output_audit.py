"""Audits of the output-perturbation paper's Algorithms 6 and 8 as printed: both are caught.

Every audit is wrong about a correct claim with probability at most 1e-6.
"""

import math

import pytest

from dpconvex.audit import audit
from dpconvex.core.calibration import gaussian_delta
from dpconvex.losses import Huber
from dpconvex.privacy import ApproxDP, LinearBounds
from dpconvex_reproduction.output_perturbation import algorithm_1, algorithm_6, algorithm_8
from dpconvex_reproduction.output_perturbation.presets import OutputProblem

pytestmark = pytest.mark.slow

ALPHA = 0.5
BOUNDS = LinearBounds(1, 1, Huber(0.1), 1.0, 1.0, alpha=ALPHA)
# One record with a far target has its minimiser at the loss's slope over alpha, on either side.
DISTANCE = 2 * BOUNDS.lipschitz / ALPHA


def problem(epsilon, delta, radius=1e-3):
    return OutputProblem(
        BOUNDS.lipschitz, radius, 1, 2, epsilon, delta, strong_convexity=ALPHA, smoothness=10.0
    )


def attack(distance, std, claim, runs):
    first, second = (
        lambda count, rng, mean=mean: rng.normal(mean, std, count) for mean in (0.0, distance)
    )
    return audit(first, second, claim, runs=runs, rng=0)


def test_algorithm_6_as_printed_is_caught():
    """Its density has 2 epsilon^2 for epsilon^2: a standard deviation too small by sqrt(2)."""
    printed = algorithm_6(problem(1.0, 1e-5), ALPHA, accuracy=1e-18)
    assert gaussian_delta(1.0, DISTANCE / printed.std) > 7e-5
    for (epsilon, delta), runs in (((5.0, 1e-2), 400_000), ((3.0, 1e-3), 2_000_000)):
        printed = algorithm_6(problem(epsilon, delta), ALPHA, accuracy=1e-18)
        assert not attack(DISTANCE, printed.std, ApproxDP(epsilon, delta), runs).passed
        # With the density put right the same attack finds nothing.
        mended = math.sqrt(2) * printed.std
        assert attack(DISTANCE, mended, ApproxDP(epsilon, delta), runs).passed


@pytest.mark.parametrize("gap", [0.01, 0.1])
def test_algorithm_8_as_printed_is_caught(gap):
    """It pays 2 gap / mu for points that may lie 2 sqrt(2 gap / mu) further apart."""
    claim = ApproxDP(1.0, 1e-5)
    many = 1000  # records: the minimisers themselves then move little
    small = OutputProblem(BOUNDS.lipschitz, 1.0, many, 2, 1.0, 1e-5, strong_convexity=ALPHA)
    reach = 2 * small.lipschitz / (ALPHA * many) + 2 * math.sqrt(2 * gap / ALPHA)
    assert not attack(reach, algorithm_8(small, gap).std, claim, 100_000).passed
    assert attack(reach, algorithm_1(small, gap).std, claim, 100_000).passed
