"""Brute force over neighbours never beats the tilted minimiser's sensitivity, and attains it
where it is tight.
"""

import math
from dataclasses import fields

import numpy as np
import pytest
from brute_force import certified, check_move, drawn_records, minimiser
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.losses import Hinge, Huber, Logistic
from dpconvex.privacy import LinearBounds, TiltedBounds
from dpconvex.smoothing import LogisticKernel, convolve

PROFILE = settings(max_examples=60, derandomize=True, deadline=None)
LOSSES = [Logistic(), Huber(0.3), Huber(2.0), convolve(Hinge(), LogisticKernel(), 0.1)]


def facts(loss, n, d, alpha, tilt, row_norm=1.0, wall=None, fit_intercept=True):
    return certified(
        TiltedBounds, loss, n, d, row_norm, fit_intercept, alpha=alpha, tilt=tilt, coef_bound=wall
    )


@st.composite
def neighbours(draw):
    loss, X, y = draw(drawn_records(LOSSES, most=5))
    alpha = draw(st.sampled_from([0.02, 0.3, 2.0]))
    tilt = draw(st.sampled_from([0.0, 0.1, 1.0, 8.0, 100.0]))
    row_norm = draw(st.sampled_from([0.5, 1.0, 2.0]))
    wall = draw(st.sampled_from([None, 0.3, 3.0]))
    return loss, X, y, alpha, tilt, row_norm, wall


@PROFILE
@given(neighbours())
def test_replace_one_never_beats_the_bound(case):
    loss, X, y, alpha, tilt, row_norm, wall = case
    row_map, certificate = facts(loss, len(X) - 1, X.shape[1], alpha, tilt, row_norm, wall)
    check_move(X, y, row_map, certificate)


@pytest.mark.parametrize("exponent", [0.5, 2.0])
def test_the_bound_is_attained_with_a_tilt(exponent):
    """All but one record at the bottom of the loss range with the full slope, one at its top with
    the opposite slope.

    With a narrow Huber loss the range of the losses is ``width (1 + R)`` up to ``width^2 / 2``,
    which a record with residual -width attains at the minimiser -R. The rest of the bound is tight
    because the minimiser hardly moves.
    """
    width = 0.002
    reach = 0.5
    n = 20_000
    alpha = width / reach
    tilt = exponent / (width * (1 + reach))
    row_map, certificate = facts(Huber(width), n, 1, alpha, tilt, fit_intercept=False)
    bounds = certificate.bounds
    assert bounds.radius == pytest.approx(reach)
    assert math.exp(bounds.tilt * bounds.loss_range) == pytest.approx(math.exp(exponent), rel=0.01)
    X = np.ones((n, 1))
    y = np.full(n, -reach - width)
    first = minimiser(X, y, row_map, certificate)
    y[0] = 1.0
    second = minimiser(X, y, row_map, certificate)
    ratio = np.linalg.norm(first - second) / bounds.minimiser_sensitivity()
    assert 0.99 <= ratio <= 1 + 1e-9
    # Not with the sensitivity of a mean, which the tilt exceeds by C:
    mean = LinearBounds(**{f.name: getattr(bounds, f.name) for f in fields(LinearBounds)})
    plain = mean.minimiser_sensitivity()
    assert np.linalg.norm(first - second) > 0.98 * math.exp(exponent) * plain


def test_the_bound_is_attained_by_one_record():
    row_map, certificate = facts(Huber(0.1), 1, 1, 5.0, 10.0)
    X = np.ones((1, 1))
    first, second = (minimiser(X, np.array([y]), row_map, certificate) for y in (1.0, -1.0))
    exact = certificate.bounds.minimiser_sensitivity()
    assert np.linalg.norm(first - second) == pytest.approx(exact, rel=1e-6)


def test_too_large_a_tilt_is_bounded_by_the_ball():
    """One record against many: at a huge tilt it decides alone, and the ball's diameter is the
    bound that is left.
    """
    row_map, certificate = facts(Huber(0.1), 50, 1, 1.0, 1e5, fit_intercept=False)
    bounds = certificate.bounds
    assert bounds.minimiser_sensitivity() == pytest.approx(2 * bounds.radius)
    X = np.ones((50, 1))
    y = np.full(50, -0.05)
    y[0] = -1.0
    first = minimiser(X, y, row_map, certificate)
    y[0] = 1.0
    second = minimiser(X, y, row_map, certificate)
    distance = np.linalg.norm(first - second)
    assert 0.9 * 2 * bounds.radius <= distance <= bounds.minimiser_sensitivity(1e-6)


@PROFILE
@given(
    st.floats(1e-3, 10),
    st.integers(1, 10**6),
    st.floats(0, 1e3),
    st.floats(0, 1e-2),
    st.sampled_from([None, 0.5, 5.0]),
)
def test_the_sensitivity_is_ordered(alpha, n, tilt, tolerance, wall):
    """More tilt, fewer rows or a worse solver never lower it; a mean's sensitivity is below it,
    a diameter above.
    """

    def bound(n, tilt):
        return TiltedBounds(n, 2, Logistic(), 1.0, 1.0, alpha=alpha, tilt=tilt, coef_bound=wall)

    at = bound(n, tilt)
    value = at.minimiser_sensitivity(tolerance)
    assert value <= bound(n, 2 * tilt).minimiser_sensitivity(tolerance) * (1 + 1e-12)
    assert bound(2 * n, tilt).minimiser_sensitivity(tolerance) <= value * (1 + 1e-12)
    assert at.minimiser_sensitivity(2 * tolerance) >= value
    assert value <= 2 * at.radius + 2 * tolerance / alpha + 1e-12 * value
    plain = min(2 * at.lipschitz / (n * alpha), 2 * at.radius)
    assert value >= plain * (1 - 1e-12)
    # Never above the general bound of objectives that are no means, (L + alpha R) / alpha.
    assert value <= at.lipschitz / alpha + at.radius + 2 * tolerance / alpha + 1e-9 * value
