"""The printed parameters: phased methods held against ours, risks against the sums that they are the least of."""

import math

import pytest

from dpconvex.losses import Pinball
from dpconvex.mechanisms import PhasedERM, PhasedSGD
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex_reproduction.quantile_sco.presets import (
    Problem,
    objective_preset,
    phased_erm_preset,
    phased_sgd_preset,
    sgd_preset,
)

SMOOTH = convolve(Pinball(0.7), LogisticKernel(), 0.5)


@pytest.mark.parametrize(("method", "preset"), [(PhasedERM, phased_erm_preset), (PhasedSGD, phased_sgd_preset)])
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
    for i, (term, needed) in enumerate(zip(certificate.noise.values(), exact.noise.values(), strict=True), start=1):
        assert term["std"] == pytest.approx(chosen.std(i, told))
        assert term["std"] > needed["std"]
    with pytest.raises(ValueError, match="published noise"):
        printed.certify(bounds, ApproxDP(30.0, 0.5))
    with pytest.raises(ValueError, match="ApproxDP only"):
        printed.certify(bounds, GaussianDP(1.0))


def test_risks_are_the_least_of_their_sums():
    """The sums of the proofs of Theorems 3.4 and 3.6, at the prescribed parameters and beside them."""
    told, n, d = Problem(0.7, 0.8, 1e-6, row_norm=2.0, coef_norm=3.0), 500, 4
    slope, kernel = told.lipschitz, told.kernel
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
