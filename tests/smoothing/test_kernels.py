"""Kernels against integrals of their densities in high precision."""

import math

import mpmath
import numpy as np
import pytest

from dpconvex.smoothing import (
    KERNELS,
    EpanechnikovKernel,
    ExponentialKernel,
    GaussianKernel,
    LaplacianKernel,
    LogisticKernel,
    UniformKernel,
)

ALL_KERNELS = [*KERNELS.values(), ExponentialKernel(dim=1)]

DENSITIES = {
    "GaussianKernel": lambda s: mpmath.exp(-s * s / 2) / mpmath.sqrt(2 * mpmath.pi),
    "LogisticKernel": lambda s: mpmath.exp(-s) / (1 + mpmath.exp(-s)) ** 2,
    "UniformKernel": lambda s: mpmath.mpf(1) / 2 if s <= 1 else mpmath.mpf(0),
    "EpanechnikovKernel": lambda s: 3 * (1 - s * s) / 4 if s <= 1 else mpmath.mpf(0),
    "LaplacianKernel": lambda s: mpmath.exp(-s) / 2,
    "ExponentialKernel": lambda s: mpmath.exp(-s) / 2,
}
COMPACT = {"UniformKernel", "EpanechnikovKernel"}


def density(kernel, s):
    return DENSITIES[type(kernel).__name__](abs(mpmath.mpf(s)))


def tail_integral(kernel, start, weight):
    """``integral_start^inf weight(s) pdf(s) ds`` for ``start >= 0``."""
    start = mpmath.mpf(start)
    if type(kernel).__name__ in COMPACT:
        if start >= 1:
            return mpmath.mpf(0)
        return mpmath.quad(lambda s: weight(s) * density(kernel, s), [start, 1])
    # Substituting s = start + r keeps the integrand's scale near 1 for every start.
    scale = density(kernel, start)
    cuts = [0, 0.5, 1, 2, 4, 8, 16, 32, 64, 160]
    integrand = lambda r: weight(start + r) * density(kernel, start + r) / scale  # noqa: E731
    return scale * mpmath.quad(integrand, cuts)


@pytest.fixture(autouse=True)
def _precision():
    with mpmath.workdps(40):
        yield


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_moments_and_peak(kernel):
    assert float(2 * tail_integral(kernel, 0, lambda s: 1)) == pytest.approx(1, rel=1e-15)
    assert kernel.mean_abs == pytest.approx(
        float(2 * tail_integral(kernel, 0, lambda s: s)), rel=1e-15
    )
    second = float(2 * tail_integral(kernel, 0, lambda s: s * s))
    assert kernel.second_moment == pytest.approx(second, rel=1e-15)
    assert kernel.peak == pytest.approx(float(density(kernel, 0)), rel=1e-15)
    t = np.linspace(-8, 8, 4001)
    assert np.max(kernel.pdf(t)) == pytest.approx(kernel.peak, rel=1e-15)


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_pdf_and_cdf(kernel):
    for t in (0.0, 0.3, 0.99, 1.0, 1.7, 6.0, 20.0, 30.0):
        exact = density(kernel, t)
        upper = tail_integral(kernel, t, lambda s: 1)
        for sign in (-1, 1):
            assert kernel.pdf(sign * t) == pytest.approx(float(exact), rel=2e-13, abs=0)
        assert kernel.cdf(t) == pytest.approx(float(1 - upper), rel=1e-15)
        assert kernel.cdf(-t) == pytest.approx(float(upper), rel=2e-13, abs=1e-300)


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_gap_keeps_its_digits_down_to_underflow(kernel):
    for t in (0.0, 1e-9, 0.01, 0.5, 0.99, 1 - 1e-9, 1.0, 1.5, 4.0, 9.0, 20.0, 30.0, 36.9):
        exact = 2 * tail_integral(kernel, t, lambda s, t=t: s - mpmath.mpf(t))
        for sign in (-1, 1):
            assert kernel.gap(sign * t) == pytest.approx(float(exact), rel=1e-12, abs=0)
            value = abs(t) + kernel.gap(sign * t)
            assert value == pytest.approx(float(abs(mpmath.mpf(t)) + exact), rel=1e-15)


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_extreme_arguments_are_exact_and_silent(kernel):
    t = np.array([1e3, 1e8, 1e155, 1e300])
    t = np.concatenate([-t[::-1], t])
    np.testing.assert_array_equal(np.abs(t) + kernel.gap(t), np.abs(t))
    np.testing.assert_array_equal(kernel.gap(t), 0.0)
    np.testing.assert_array_equal(kernel.pdf(t), 0.0)
    np.testing.assert_array_equal(kernel.cdf(t), t > 0)


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_pdf_decreases_away_from_zero_and_cdf_increases(kernel):
    t = np.linspace(0, 45, 20001)
    assert np.all(np.diff(kernel.pdf(t)) <= 0)
    assert np.all(np.diff(kernel.cdf(t)) >= 0)
    np.testing.assert_array_equal(kernel.pdf(-t), kernel.pdf(t))


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_scalars_and_lists(kernel):
    for method in (kernel.pdf, kernel.cdf, kernel.gap):
        assert np.shape(method(1)) == ()
        assert method([[0, 1, 2]]).shape == (1, 3)
        assert method(np.zeros(2, dtype=np.float32)).dtype == np.float64


def test_density_in_the_plane_integrates_to_one():
    # Midpoints of a grid on [-24, 24]^2; the cusp of the radial kernel at 0 sets the accuracy.
    edge = (np.arange(960) + 0.5) / 20 - 24
    points = np.stack(np.meshgrid(edge, edge), axis=-1)
    for kernel in (GaussianKernel(2), LaplacianKernel(2), ExponentialKernel(2)):
        assert kernel.pdf(points).sum() / 400 == pytest.approx(1, abs=3e-4)


def test_peaks_in_higher_dimension():
    assert GaussianKernel(5).peak == pytest.approx((2 * math.pi) ** -2.5)
    assert LaplacianKernel(5).peak == pytest.approx(2.0**-5)
    # The normaliser in three dimensions is the surface 4 pi times Gamma(3) = 2.
    assert ExponentialKernel(3).peak == pytest.approx(1 / (8 * math.pi))
    assert ExponentialKernel(1).peak == LaplacianKernel().peak == 0.5


@pytest.mark.parametrize("kernel_class", [GaussianKernel, LaplacianKernel, ExponentialKernel])
def test_one_dimensional_questions_are_refused_in_higher_dimension(kernel_class):
    kernel = kernel_class(dim=3)
    for ask in (kernel.cdf, kernel.gap):
        with pytest.raises(ValueError, match=r"'dim' parameter .* Got 3 instead"):
            ask(0.0)
    with pytest.raises(ValueError, match="'dim' parameter"):
        _ = kernel.mean_abs
    with pytest.raises(ValueError, match="last axis of length 3"):
        kernel.pdf(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"positive integer .*Got 0 instead"):
        kernel_class(dim=0)
    with pytest.raises(ValueError, match=r"positive integer .*Got 2\.0 instead"):
        kernel_class(dim=2.0)


def test_kernels_are_values():
    assert GaussianKernel() == GaussianKernel(dim=np.int64(1))
    assert hash(LogisticKernel()) == hash(LogisticKernel())
    assert UniformKernel() != EpanechnikovKernel()
    assert KERNELS["logistic"] == LogisticKernel()


def test_a_mixture_is_the_mixture_of_its_parts():
    from dpconvex.core.description import describe, rebuild_description
    from dpconvex.losses import Pinball
    from dpconvex.smoothing import GaussianKernel, MixtureKernel, UniformKernel, convolve

    kernel = MixtureKernel((GaussianKernel(), UniformKernel()), (3.0, 1.0), (0.5, 2.0))
    v, step = np.linspace(-12, 12, 400_001, retstep=True)
    density = kernel.pdf(v)
    assert density.sum() * step == pytest.approx(1, abs=1e-5)
    assert (v**2 * density).sum() * step == pytest.approx(kernel.second_moment, rel=1e-5)
    assert density.max() == pytest.approx(kernel.peak)
    for t in (0.0, 0.4, 1.5):
        assert abs(t) + kernel.gap(t) == pytest.approx(
            (np.abs(t + v) * density).sum() * step, abs=1e-5
        )
        assert kernel.cdf(t) == pytest.approx(density[v <= t].sum() * step, abs=1e-4)
    loss = convolve(Pinball(0.8), kernel, 0.3)
    assert rebuild_description(describe(loss)) == loss
    assert loss.smoothness == pytest.approx(kernel.peak / 0.3)
    for wrong in (
        ((), ()),
        ((ExponentialKernel(2),), (1.0,)),
        ((GaussianKernel(),), (-1.0,)),
        ((GaussianKernel(),), (1, 2)),
    ):
        with pytest.raises((TypeError, ValueError), match="MixtureKernel"):
            MixtureKernel(*wrong)
