"""Convolution and Moreau smoothing against integrals and minimisations done from scratch."""

import pickle

import mpmath
import numpy as np
import pytest

from dpconvex.losses import (
    Absolute,
    Hinge,
    Huber,
    KinkedLoss,
    Logistic,
    Loss,
    Pinball,
    ReLU,
    Scaled,
    SoftThreshold,
    Squared,
)
from dpconvex.smoothing import (
    KERNELS,
    ConvolvedLoss,
    ExponentialKernel,
    GaussianKernel,
    LogisticKernel,
    MoreauLoss,
    UniformKernel,
    convolve,
    moreau,
)

THREE_KINKS = KinkedLoss((-1.5, 0.0, 2.0), (-2.0, -0.5, 0.25, 3.0), height=1.0)
KINKED_LOSSES = [
    Pinball(0.5),
    Pinball(0.9),
    Absolute(),
    ReLU(),
    SoftThreshold(0.5),
    Hinge(),
    THREE_KINKS,
    Scaled(Pinball(0.75), 4.0),
]
KERNEL_NAMES = list(KERNELS)
BANDWIDTHS = [0.05, 0.8]

# The losses once more, written for mpmath straight from their definitions.
positive = lambda u: u if u > 0 else mpmath.mpf(0)  # noqa: E731
ORACLES = {
    Pinball(0.9): lambda u: mpmath.mpf(0.9) * positive(u) + (1 - mpmath.mpf(0.9)) * positive(-u),
    Hinge(): lambda u: positive(1 - u),
    SoftThreshold(0.5): lambda u: positive(abs(u) - mpmath.mpf(0.5)),
    THREE_KINKS: lambda u: (
        mpmath.mpf(1)
        - 2 * (u + mpmath.mpf(1.5))
        + mpmath.mpf(1.5) * positive(u + mpmath.mpf(1.5))
        + mpmath.mpf(0.75) * positive(u)
        + mpmath.mpf(2.75) * positive(u - 2)
    ),
}
DENSITIES = {
    "gaussian": (lambda v: mpmath.npdf(v), 60),
    "logistic": (lambda v: mpmath.exp(-abs(v)) / (1 + mpmath.exp(-abs(v))) ** 2, 160),
    "uniform": (lambda v: mpmath.mpf(0.5), 1),
    "epanechnikov": (lambda v: mpmath.mpf(0.75) * (1 - v * v), 1),
    "laplacian": (lambda v: mpmath.exp(-abs(v)) / 2, 160),
    "exponential": (lambda v: mpmath.exp(-abs(v)) / 2, 160),
}


def expectation(function, knots, name, u, bandwidth):
    """``E function(u + bandwidth * v)`` by quadrature cut at the knots and at the density's."""
    density, reach = DENSITIES[name]
    u = mpmath.mpf(u)
    bandwidth = mpmath.mpf(bandwidth)
    cuts = {-reach, 0, reach, *(c for s in (1, 3, 8, 20) for c in (-s, s) if s < reach)}
    cuts |= {t for t in ((mpmath.mpf(k) - u) / bandwidth for k in knots) if abs(t) < reach}
    return mpmath.quad(lambda v: function(u + bandwidth * v) * density(v), sorted(cuts))


def difference(function, u, step):
    coefficients = {1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
    steps = ((c, j * step) for j, c in coefficients.items())
    return sum(c * (function(u + s) - function(u - s)) for c, s in steps) / step


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("loss", ORACLES, ids=repr)
def test_convolution_is_the_expectation(loss, name):
    with mpmath.workdps(30):
        for u, h in [(0.0, 0.25), (0.3, 0.25), (1.0625, 0.125), (-1.4, 2.0), (0.7, 1e-3)]:
            smooth = convolve(loss, KERNELS[name], h)
            exact = expectation(ORACLES[loss], loss.piecewise_linear.knots, name, u, h)
            assert smooth.value_at(np.float64(u)) == pytest.approx(
                float(exact), rel=1e-12, abs=1e-26
            )


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("loss", ORACLES, ids=repr)
def test_far_from_the_knots_smoothing_changes_nothing(loss, name):
    for u, h in [(1e5, 1e-3), (-1e5, 1e-3), (1e8, 1.0), (-1e8, 1.0)]:
        smooth = convolve(loss, KERNELS[name], h)
        with mpmath.workdps(40):
            exact = float(ORACLES[loss](mpmath.mpf(u)))
        assert smooth.value_at(np.float64(u)) == pytest.approx(exact, rel=1e-15, abs=0)
        assert smooth.slope_at(np.float64(u)) == pytest.approx(float(loss.slope_at(u)), abs=1e-15)
        assert smooth.curvature_at(np.float64(u)) == 0.0


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("loss", KINKED_LOSSES, ids=repr)
def test_convolved_derivatives_in_z(loss, name):
    smooth = convolve(loss, KERNELS[name], 0.7)
    # Points away from where compact kernels end, u = knot +- 0.7.
    u = np.array([-3.1, -1.77, -1.03, -0.4, -0.05, 0.13, 0.42, 0.9, 1.45, 2.2, 3.6])
    for y in (-1.0, 1.0):
        z = u * y if loss.kind == "margin" else y - u
        gradient = difference(lambda z, y=y: smooth.value(y, z), z, 4e-3)
        np.testing.assert_allclose(smooth.gradient(y, z), gradient, atol=1e-10)
        curvature = difference(lambda z, y=y: smooth.gradient(y, z), z, 4e-3)
        np.testing.assert_allclose(smooth.curvature(y, z), curvature, atol=1e-10)


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("loss", KINKED_LOSSES, ids=repr)
def test_convolution_constants_hold_and_are_attained(loss, name, bandwidth):
    kernel = KERNELS[name]
    smooth = convolve(loss, kernel, bandwidth)
    kinks = loss.piecewise_linear
    u = np.unique(np.concatenate([np.linspace(-8, 8, 20001), kinks.knots]))
    above = smooth.value_at(u) - loss.value_at(u)
    assert np.all(above >= 0)
    assert np.all(above <= smooth.approximation_gap * (1 + 1e-12))
    assert smooth.approximation_gap == pytest.approx(
        bandwidth * kernel.mean_abs * sum(kinks.weights)
    )
    assert np.all(np.diff(smooth.slope_at(u)) >= -1e-15)
    assert np.all(smooth.curvature_at(u) >= 0)

    slopes = np.abs(smooth.slope_at(np.concatenate([u, [-1e8, 1e8]])))
    assert smooth.lipschitz == loss.lipschitz
    assert np.max(slopes) == pytest.approx(loss.lipschitz, rel=4e-16)

    curvature = np.max(smooth.curvature_at(u))
    assert curvature <= smooth.smoothness
    if len(kinks.knots) == 1:
        assert curvature == pytest.approx(smooth.smoothness, rel=1e-15)
        assert np.max(above) == pytest.approx(smooth.approximation_gap, rel=1e-15)
        expected = 2 * kinks.weights[0] * kernel.peak / bandwidth
        assert smooth.smoothness == pytest.approx(expected, rel=1e-15)
    else:
        # Certified from above; tight up to the width of its cells.
        assert curvature >= smooth.smoothness * 0.98
        assert smooth.smoothness <= 2 * sum(kinks.weights) * kernel.peak / bandwidth


def test_smoothness_of_distant_kinks_is_the_larger_not_the_sum():
    smooth = convolve(SoftThreshold(1.0), GaussianKernel(), 0.05)
    assert smooth.smoothness == pytest.approx(GaussianKernel().peak / 0.05, rel=1e-6)
    overlapping = convolve(SoftThreshold(0.01), UniformKernel(), 1.0)
    assert overlapping.smoothness == pytest.approx(2 * UniformKernel().peak)


def test_convolution_tends_to_the_loss():
    u = np.linspace(-3, 3, 61)
    for loss in KINKED_LOSSES:
        smooth = convolve(loss, LogisticKernel(), 1e-9)
        np.testing.assert_allclose(smooth.value_at(u), loss.value_at(u), atol=2e-8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Logistic(), LogisticKernel(), 0.1), ValueError, "'loss' .* already smooth .*=0.25"),
        ((Squared(), LogisticKernel(), 0.1), ValueError, "already smooth"),
        (("pinball", LogisticKernel(), 0.1), TypeError, "'loss' .* Got str instead. .*KinkedLoss"),
        ((Hinge(), "logistic", 0.1), TypeError, r"'kernel' .* LogisticKernel\(\)"),
        ((Hinge(), GaussianKernel(2), 0.1), ValueError, r"dim=1. Got .* GaussianKernel\(dim=1\)"),
        ((Hinge(), ExponentialKernel(2), 0.1), ValueError, "dim=1"),
        ((Hinge(), LogisticKernel(), 0.0), ValueError, "'bandwidth' parameter of convolve"),
        ((Hinge(), LogisticKernel(), -1.0), ValueError, "Got -1.0 instead"),
        ((Hinge(), LogisticKernel(), np.nan), ValueError, "Got nan instead"),
        ((Hinge(), LogisticKernel(), np.inf), ValueError, "'bandwidth'"),
        ((Hinge(), LogisticKernel(), None), TypeError, "'bandwidth' .* Got NoneType instead"),
        ((Hinge(), LogisticKernel(), 5e-324), ValueError, "larger bandwidth"),
    ],
)
def test_convolve_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        convolve(*arguments)


def test_direct_construction_is_checked_too():
    """Certificates rebuild losses from files: a negative bandwidth must not give constants."""
    with pytest.raises(ValueError, match="'bandwidth'"):
        ConvolvedLoss(Hinge(), LogisticKernel(), -1.0)
    with pytest.raises(ValueError, match="already smooth"):
        ConvolvedLoss(Logistic(), LogisticKernel(), 1.0)
    with pytest.raises(ValueError, match="'smoothness'"):
        MoreauLoss(Hinge(), -1.0)
    with pytest.raises(ValueError, match="already smooth"):
        MoreauLoss(Logistic(), 1.0)


def test_convolving_twice_is_refused():
    with pytest.raises(ValueError, match="already smooth"):
        convolve(convolve(Hinge(), LogisticKernel(), 0.1), LogisticKernel(), 0.1)


@pytest.mark.parametrize("smoothness", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("loss", KINKED_LOSSES, ids=repr)
def test_moreau_is_the_infimum(loss, smoothness):
    envelope = moreau(loss, smoothness)
    kinks = loss.piecewise_linear
    u = np.linspace(-9.9, 10.1, 201)[:, None]
    grid = np.linspace(-30, 30, 6001)[None, :]
    # The minimiser is a knot, or a point where some slope balances the parabola.
    stationary = u - np.asarray(kinks.slopes)[None, :] / smoothness
    candidates = np.concatenate(
        [np.broadcast_to(kinks.knots, (len(u), len(kinks.knots))), stationary], axis=1
    )
    brute = np.min(loss.value_at(grid) + smoothness / 2 * (u - grid) ** 2, axis=1)
    exact = np.min(loss.value_at(candidates) + smoothness / 2 * (u - candidates) ** 2, axis=1)
    value = envelope.value_at(u[:, 0])
    np.testing.assert_allclose(value, exact, atol=1e-13)
    assert np.all(value <= brute + 1e-13)
    np.testing.assert_allclose(value, brute, atol=2e-2 * loss.lipschitz)


@pytest.mark.parametrize("smoothness", [0.3, 7.0])
@pytest.mark.parametrize("loss", KINKED_LOSSES, ids=repr)
def test_moreau_constants_hold_and_are_attained(loss, smoothness):
    envelope = moreau(loss, smoothness)
    u = np.linspace(-20, 20, 40001)
    below = loss.value_at(u) - envelope.value_at(u)
    assert np.all(below >= -1e-13)
    assert np.max(below) == pytest.approx(envelope.approximation_gap, rel=1e-11)
    assert envelope.approximation_gap == pytest.approx(loss.lipschitz**2 / (2 * smoothness))
    assert np.max(np.abs(envelope.slope_at(u))) == pytest.approx(loss.lipschitz, rel=4e-16)
    assert envelope.lipschitz == loss.lipschitz
    assert np.max(envelope.curvature_at(u)) == envelope.smoothness == smoothness
    steepest = np.max(np.diff(envelope.slope_at(u)) / np.diff(u))
    assert steepest == pytest.approx(smoothness, rel=1e-9)
    assert np.all(np.diff(envelope.slope_at(u)) >= -1e-14)


@pytest.mark.parametrize("loss", [*KINKED_LOSSES, Huber(0.6), Squared()], ids=repr)
def test_moreau_derivatives_in_z(loss):
    envelope = moreau(loss, 1.7)
    u = np.array([-4.03, -2.41, -1.21, -0.83, -0.111, 0.093, 0.237, 0.87, 1.91, 2.83, 5.3])
    for y in (-1.0, 1.0):
        z = u * y if loss.kind == "margin" else y - u
        gradient = difference(lambda z, y=y: envelope.value(y, z), z, 2e-3)
        np.testing.assert_allclose(envelope.gradient(y, z), gradient, atol=1e-10)
        curvature = difference(lambda z, y=y: envelope.gradient(y, z), z, 2e-3)
        np.testing.assert_allclose(envelope.curvature(y, z), curvature, atol=1e-10)


@pytest.mark.parametrize("loss", [Squared(), Huber(0.7), Huber(3.0)], ids=repr)
def test_moreau_of_smooth_losses_is_the_infimum(loss):
    grid = np.linspace(-12, 12, 240001)
    for smoothness in (0.4, 2.5):
        envelope = moreau(loss, smoothness)
        assert envelope.lipschitz == pytest.approx(loss.lipschitz)
        assert envelope.smoothness == pytest.approx(smoothness / (1 + smoothness))
        for u in np.linspace(-6, 6, 13):
            brute = np.min(loss.value_at(grid) + smoothness / 2 * (u - grid) ** 2)
            assert envelope.value_at(u) == pytest.approx(brute, abs=1e-8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Logistic(), 1.0), ValueError, "no closed form here, and it is already smooth"),
        (("hinge", 1.0), TypeError, "'loss' .* Got str instead"),
        ((Hinge(), 0.0), ValueError, "'smoothness' parameter of moreau .* Got 0.0 instead"),
        ((Hinge(), np.inf), ValueError, "'smoothness'"),
    ],
)
def test_moreau_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        moreau(*arguments)


@pytest.mark.parametrize(
    "build",
    [lambda: convolve(Hinge(), LogisticKernel(), 1), lambda: moreau(THREE_KINKS, np.float64(2.0))],
)
def test_smoothed_losses_are_values(build):
    loss = build()
    assert isinstance(loss, Loss)
    assert loss.value(1.0, np.zeros((2, 3))).shape == (2, 3)
    assert np.shape(loss.curvature(1.0, 0.0)) == np.shape(loss.gradient(1.0, 0.0)) == ()
    copy = pickle.loads(pickle.dumps(loss))
    assert copy == build()
    assert hash(copy) == hash(build())
    assert "np.float64" not in repr(loss)
