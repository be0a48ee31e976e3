"""Deviance with a log link: derivatives, convexity, constants that are attained, and numbers far
out.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_tweedie_deviance

from dpconvex.core.description import describe, rebuild_description
from dpconvex.losses import Loss, Tweedie

POWERS = [1.0, 1.2, 1.5, 1.9, 2.0]
LOSSES = [Tweedie(power, -3.0, 1.5, 4.0) for power in POWERS]
RESPONSES = np.array([0.0, 0.3, 2.0, 4.0])


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradient_and_curvature_are_derivatives_in_z(loss):
    z = np.array([-5.0, -2.9, -1.0, 0.0, 0.7, 1.4, 2.0])  # off the ends of the range
    y = RESPONSES[:, None]
    step = 1e-4
    slope = (loss.value(y, z + step) - loss.value(y, z - step)) / (2 * step)
    np.testing.assert_allclose(loss.gradient(y, z), slope, rtol=1e-6, atol=1e-7)
    curvature = (loss.gradient(y, z + step) - loss.gradient(y, z - step)) / (2 * step)
    np.testing.assert_allclose(loss.curvature(y, z), curvature, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_value_is_half_the_deviance_of_scikit_learn(loss):
    """Within the range, up to what does not depend on the mean."""
    for y in (0.5, 1.0, 3.0):
        z = np.linspace(-2.9, 1.4, 7)
        half = np.array(
            [mean_tweedie_deviance([y], [mean], power=loss.power) / 2 for mean in np.exp(z)]
        )
        np.testing.assert_allclose(
            loss.value(y, z) - loss.value(y, z[0]), half - half[0], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_convex_with_bounds_that_are_attained(loss):
    z = np.linspace(-8, 6, 4001)
    slopes = np.array([loss.gradient(y, z) for y in np.linspace(0, loss.most, 41)])
    curvatures = np.array([loss.curvature(y, z) for y in np.linspace(0, loss.most, 41)])
    assert (np.diff(slopes, axis=1) >= -1e-14).all()
    assert (curvatures >= 0).all()
    assert (slopes.min(), slopes.max()) == pytest.approx(loss.slope_range, rel=1e-12)
    assert np.abs(slopes).max() == pytest.approx(loss.lipschitz, rel=1e-12)
    assert 0.99 * loss.smoothness <= curvatures.max() <= loss.smoothness * (1 + 1e-12)


@given(
    st.floats(1, 2),
    st.floats(-60, 59),
    st.floats(0, 1),
    st.floats(-25, 25),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False),
)
def test_no_target_and_no_margin_exceeds_the_constants(power, low, share, size, y, z):
    loss = Tweedie(power, low, min(59.9, low + 1e-3 + 40 * share), float(np.exp(size)))
    with np.errstate(all="ignore"):
        slope = float(loss.gradient(y, z))
        curvature = float(loss.curvature(y, z))
    assert abs(slope) <= loss.lipschitz * (1 + 1e-12)
    assert 0 <= curvature <= loss.smoothness * (1 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_one_element_is_the_same_in_every_array(loss):
    """What a record adds is the same bit by bit, wherever it stands and however many there are."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 6, 1001)
    z = rng.uniform(-5, 3, 1001)
    for method in (loss.value, loss.gradient, loss.curvature):
        whole = method(y, z)
        for size in (1, 2, 3, 7, 8, 9, 64, 1000):
            np.testing.assert_array_equal(
                np.concatenate(
                    [method(y[i : i + size], z[i : i + size]) for i in range(0, 1001, size)]
                ),
                whole,
            )


def test_description_and_protocol():
    loss = Tweedie(1.5, -3, 1.5, 4)
    assert isinstance(loss, Loss)
    assert rebuild_description(describe(loss)) == loss


@pytest.mark.parametrize(
    "wrong",
    [
        {"power": 0.5},
        {"power": 2.5},
        {"power": float("nan")},
        {"low": 2.0},
        {"low": -1e9},
        {"high": float("inf")},
        {"most": 0.0},
        {"most": float("nan")},
        {"power": "1"},
    ],
)
def test_numbers_that_have_no_bounds_are_refused(wrong):
    with pytest.raises((ValueError, TypeError), match="Tweedie must be"):
        Tweedie(**{"power": 1.5, "low": -3.0, "high": 1.5, "most": 4.0, **wrong})
