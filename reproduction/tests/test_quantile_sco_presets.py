"""The printed parameters of the phased methods, held against ours."""

import math

import pytest

from dpconvex.losses import Pinball
from dpconvex.mechanisms import PhasedERM, PhasedSGD
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex_reproduction.quantile_sco.presets import Problem, phased_erm_preset, phased_sgd_preset

SMOOTH = convolve(Pinball(0.7), LogisticKernel(), 0.5)


@pytest.mark.parametrize(
    ("method", "preset"), [(PhasedERM, phased_erm_preset), (PhasedSGD, phased_sgd_preset)]
)
def test_published_constants(method, preset):
    """Printed noise suffices where it is issued, is more than needed, and a claim that it misses is refused."""
    bounds = LinearBounds(5000, 2, SMOOTH, 1.0, 1.0)
    told = Problem(0.5, 1.0, 1e-2, row_norm=2 * bounds.lipschitz, coef_norm=2.0)
    chosen = preset(5000, 3, told)
    c = 4 if method is PhasedERM else 2
    step = 2.0 / bounds.lipschitz * min(4 / math.sqrt(5000), 1 / (c * math.sqrt(3 * math.log(100))))
    assert chosen.step_size == pytest.approx(step)
    assert chosen.phases == 12
    printed = method(chosen.step_size, phases=5, noise="published")
    certificate = printed.certify(bounds, ApproxDP(1.0, 1e-2))
    exact = method(chosen.step_size, phases=5).certify(bounds, ApproxDP(1.0, 1e-2))
    for i, (term, needed) in enumerate(
        zip(certificate.noise.values(), exact.noise.values(), strict=True), start=1
    ):
        assert term["std"] == pytest.approx(chosen.std(i, told))
        assert term["std"] > needed["std"]
    with pytest.raises(ValueError, match="published noise"):
        printed.certify(bounds, ApproxDP(30.0, 0.5))
    with pytest.raises(ValueError, match="ApproxDP only"):
        printed.certify(bounds, GaussianDP(1.0))
