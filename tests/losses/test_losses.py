"""Losses: one list drives derivatives, convexity and limits; then each loss's own values."""

import math
import pickle

import numpy as np
import pytest

from dpconvex.core.pointwise_losses import PointwisePiecewiseLinear
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

TWO_KINKS = KinkedLoss(knots=(-1.0, 0.5), slopes=(-2.0, 0.25, 3.0), height=0.75)
MARGIN_KINKS = KinkedLoss(knots=(0.0, 1.0), slopes=(-2.0, -1.0, 0.0), height=1.0, kind="margin")

KINKED_LOSSES = [
    Pinball(0.5),
    Pinball(0.9),
    Pinball(0.05),
    Absolute(),
    ReLU(),
    SoftThreshold(0.4),
    Hinge(),
    TWO_KINKS,
    MARGIN_KINKS,
    Scaled(Pinball(0.75), 4.0),
]
SMOOTH_LOSSES = [Logistic(), Huber(0.8), Huber(3.0), Squared(), Scaled(Logistic(), 2.5)]
ALL_LOSSES = KINKED_LOSSES + SMOOTH_LOSSES

# Off every knot and every end of a Huber parabola, so that two-sided differences are meaningful.
POINTS = np.array([-7.3, -2.17, -1.31, -0.63, -0.27, 0.11, 0.71, 1.23, 2.61, 8.9])


def targets(loss):
    return np.array([-1.0, 1.0]) if loss.kind == "margin" else np.array([-0.6, 0.0, 0.037])


def difference(function, z, step):
    """Central difference of order 6."""
    coefficients = {1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
    return (
        sum(c * (function(z + j * step) - function(z - j * step)) for j, c in coefficients.items())
        / step
    )


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_gradient_and_curvature_are_derivatives_in_z(loss):
    y = targets(loss)[:, None]
    z = POINTS[None, :] if loss.kind == "margin" else y - POINTS[None, :]
    gradient = difference(lambda z: loss.value(y, z), z, 1e-2)
    np.testing.assert_allclose(loss.gradient(y, z), gradient, rtol=1e-9, atol=1e-9)
    curvature = difference(lambda z: loss.gradient(y, z), z, 1e-2)
    np.testing.assert_allclose(loss.curvature(y, z), curvature, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_value_is_convex_and_gradient_increases(loss):
    z = np.linspace(-6, 6, 2001)
    for y in targets(loss):
        value = loss.value(y, z)
        assert np.all(value[:-2] + value[2:] - 2 * value[1:-1] >= -1e-12)
        assert np.all(np.diff(loss.gradient(y, z)) >= -1e-15)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_shapes_types_and_protocol(loss):
    assert isinstance(loss, Loss)
    for method in (loss.value, loss.gradient, loss.curvature):
        assert np.shape(method(1.0, 0.3)) == ()
        out = method(np.array([[1], [-1]], dtype=np.int8), np.zeros(5, dtype=np.float32))
        assert out.shape == (2, 5)
        assert out.dtype == np.float64
        assert method([1, -1], [0.25, 0.5]).shape == (2,)
    z = np.array([0.5, -2.0])
    kept = z.copy()
    loss.value(1.0, z), loss.gradient(1.0, z), loss.curvature(1.0, z)
    np.testing.assert_array_equal(z, kept)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
def test_frozen_hashable_and_picklable(loss):
    loss.value(1.0, 0.3)
    copy = pickle.loads(pickle.dumps(loss))
    assert copy == loss
    assert hash(copy) == hash(loss)
    with pytest.raises(AttributeError):
        loss.extra = 1


@pytest.mark.parametrize("loss", [loss for loss in ALL_LOSSES if loss != Squared()], ids=repr)
def test_extreme_margins_are_finite_and_asymptotically_linear(loss):
    u = np.array([-1e8, 1e8])
    value = loss.value_at(u)
    slope = loss.slope_at(u)
    assert np.all(np.isfinite(value))
    np.testing.assert_allclose(value, slope * u, rtol=1e-7, atol=20.0)


def test_values_by_hand():
    assert Pinball(0.9).value(3.0, 1.0) == pytest.approx(1.8)
    assert Pinball(0.9).value(1.0, 3.0) == pytest.approx(0.2)
    assert ReLU().value(3.0, 1.0) == 2.0
    assert ReLU().value(1.0, 3.0) == 0.0
    assert Absolute().value(-1.0, 3.0) == 4.0
    assert SoftThreshold(0.5).value(2.0, 0.0) == 1.5
    assert SoftThreshold(0.5).value(0.0, 0.4) == 0.0
    assert Hinge().value(-1.0, 0.5) == 1.5
    assert Hinge().value(1.0, 1e8) == 0.0
    assert Logistic().value(1.0, 0.0) == pytest.approx(math.log(2), rel=1e-15)
    assert Logistic().value(-1.0, 800.0) == 800.0
    assert Logistic().value(1.0, 40.0) == pytest.approx(math.exp(-40), rel=1e-14)
    assert Huber(2.0).value(1.0, 0.0) == 0.5
    assert Huber(2.0).value(0.0, 5.0) == 8.0
    assert Squared().value(3.0, 1.0) == 2.0


def test_gradient_at_a_kink_is_the_midpoint():
    assert Pinball(0.9).gradient(1.0, 1.0) == pytest.approx(-0.4)
    assert Hinge().gradient(-1.0, -1.0) == 0.5
    assert ReLU().gradient(0.0, 0.0) == -0.5
    assert TWO_KINKS.slope_at(np.float64(0.5)) == pytest.approx((0.25 + 3.0) / 2)
    assert not np.any(Hinge().curvature(1.0, np.ones(3)))


@pytest.mark.parametrize(
    ("loss", "lipschitz", "smoothness"),
    [
        (Pinball(0.9), 0.9, math.inf),
        (Pinball(0.05), 0.95, math.inf),
        (Absolute(), 1.0, math.inf),
        (ReLU(), 1.0, math.inf),
        (SoftThreshold(2.0), 1.0, math.inf),
        (Hinge(), 1.0, math.inf),
        (TWO_KINKS, 3.0, math.inf),
        (Logistic(), 1.0, 0.25),
        (Huber(0.3), 0.3, 1.0),
        (Squared(), math.inf, 1.0),
        (Scaled(Huber(0.5), 3.0), 1.5, 3.0),
    ],
    ids=repr,
)
def test_declared_constants(loss, lipschitz, smoothness):
    assert loss.lipschitz == lipschitz
    assert loss.smoothness == smoothness


@pytest.mark.parametrize("loss", KINKED_LOSSES, ids=repr)
def test_weighted_absolute_value_form(loss):
    shape = loss.piecewise_linear
    u = np.linspace(-5, 5, 101)
    written = shape.slope * u
    for weight, knot in zip(shape.weights, shape.knots, strict=True):
        written = written + weight * np.abs(u - knot)
    np.testing.assert_allclose(
        np.ptp(loss.value_at(u) - written), 0.0, atol=1e-13
    )  # up to a constant


def test_own_losses_from_lists_are_equal():
    loss = KinkedLoss([-1, 1], [-2.5, 1.5, 2.5], height=1.0)
    assert loss.value_at(np.float64(0.0)) == pytest.approx(2.5)
    assert loss == KinkedLoss((-1.0, 1.0), (-2.5, 1.5, 2.5), 1.0)
    assert hash(loss) == hash(KinkedLoss((-1.0, 1.0), (-2.5, 1.5, 2.5), 1.0))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Pinball(0.0), ValueError, "'quantile' parameter of Pinball .* Got 0.0 instead"),
        (lambda: Pinball(1.0), ValueError, "strictly between 0 and 1. Got 1.0 instead"),
        (lambda: Pinball("0.5"), TypeError, "'quantile' .* Got str instead"),
        (lambda: Pinball(math.nan), ValueError, "Got nan instead"),
        (lambda: Huber(-1), ValueError, "'width' parameter of Huber .* Squared"),
        (lambda: SoftThreshold(0), ValueError, "Absolute"),
        (lambda: Scaled(Hinge(), math.inf), ValueError, "'factor' parameter of Scaled"),
        (lambda: Scaled("hinge", 1.0), TypeError, "'loss' parameter of Scaled .* Got str"),
        (lambda: KinkedLoss((0.0,), (1.0, -1.0)), ValueError, "'slopes' .* increasing"),
        (lambda: KinkedLoss((1.0, 0.0), (0, 1, 2)), ValueError, "'knots' .* increasing"),
        (lambda: KinkedLoss((), (1.0,)), ValueError, "'knots'"),
        (lambda: KinkedLoss((0.0,), (0, 1, 2)), ValueError, "one entry more"),
        (lambda: KinkedLoss((0.0,), (0, 1), math.nan), ValueError, "'height'"),
        (lambda: KinkedLoss((0.0,), (0, 1), kind="pair"), ValueError, "'kind' .* 'margin'"),
        (lambda: PointwisePiecewiseLinear((0.0,), (0.0, math.inf)), ValueError, "finite"),
    ],
)
def test_errors_name_parameter_rule_and_remedy(build, error, message):
    with pytest.raises(error, match=message):
        build()
