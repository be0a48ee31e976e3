"""The constants that noise is calibrated from are never exceeded, on any loss we can build."""

from itertools import pairwise

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpconvex.losses import (
    Absolute,
    Hinge,
    Huber,
    KinkedLoss,
    Logistic,
    Pinball,
    ReLU,
    Scaled,
    SoftThreshold,
)
from dpconvex.smoothing import KERNELS, UniformKernel, convolve, moreau

PROFILE = settings(derandomize=True, deadline=None, max_examples=150)

numbers = st.floats(-50, 50, allow_nan=False)
widths = st.floats(1e-3, 20)
gaps = st.floats(1e-3, 10)


@st.composite
def kinked(draw):
    """Losses with one to five kinks at any distance, or a named one."""
    named = st.one_of(
        st.floats(1e-6, 1 - 1e-6).map(Pinball),
        widths.map(SoftThreshold),
        st.sampled_from([Absolute(), ReLU(), Hinge()]),
    )
    if draw(st.booleans()):
        loss = draw(named)
        return Scaled(loss, draw(widths)) if draw(st.booleans()) else loss
    count = draw(st.integers(1, 5))
    knots = draw(numbers) + np.cumsum(draw(st.lists(gaps, min_size=count, max_size=count)))
    steps = draw(st.lists(gaps, min_size=count + 1, max_size=count + 1))
    slopes = draw(st.floats(-20, 5)) + np.cumsum(steps)
    kind = draw(st.sampled_from(["residual", "margin"]))
    return KinkedLoss(knots, slopes, draw(numbers), kind)


@st.composite
def smoothed(draw):
    """A kinked loss and what convolution or the Moreau envelope makes of it."""
    loss = draw(kinked())
    if draw(st.booleans()):
        return loss, convolve(loss, draw(st.sampled_from(list(KERNELS.values()))), draw(widths))
    return loss, moreau(loss, draw(widths))


any_loss = st.one_of(
    kinked(), smoothed().map(lambda pair: pair[1]), widths.map(Huber), st.just(Logistic())
)


@PROFILE
@given(loss=any_loss, y=numbers, z=st.lists(numbers, min_size=2, max_size=30), sign=st.booleans())
def test_lipschitz_and_smoothness_bound_every_difference(loss, y, z, sign):
    if loss.kind == "margin":
        y = 1.0 if sign else -1.0
    z = np.unique(np.asarray(z))
    step = np.diff(z)
    value = loss.value(y, z)
    gradient = loss.gradient(y, z)
    rounding = 1e-13 * (1 + np.max(np.abs(value)))
    assert np.all(np.abs(np.diff(value)) <= loss.lipschitz * step + rounding)
    assert np.all(np.abs(gradient) <= loss.lipschitz * (1 + 1e-14))
    assert np.all(np.diff(gradient) >= -1e-14 * (1 + loss.lipschitz))
    if np.isfinite(loss.smoothness):
        # A gradient near the end of a bend carries rounding of b * (u - knot).
        slack = 1e-13 * (1 + loss.lipschitz + 200 * loss.smoothness)
        assert np.all(np.diff(gradient) <= loss.smoothness * step + slack)
        curvature = loss.curvature(y, z)
        assert np.all((curvature >= 0) & (curvature <= loss.smoothness * (1 + 1e-14)))


@PROFILE
@given(loss=any_loss, y=numbers, z=st.lists(numbers, min_size=2, max_size=30), sign=st.booleans())
def test_tangents_stay_below(loss, y, z, sign):
    if loss.kind == "margin":
        y = 1.0 if sign else -1.0
    z = np.asarray(z)
    value = loss.value(y, z)
    gradient = loss.gradient(y, z)
    tangents = value[:, None] + gradient[:, None] * (z[None, :] - z[:, None])
    assert np.all(tangents <= value[None, :] + 1e-12 * (1 + np.max(np.abs(tangents))))


@PROFILE
@given(pair=smoothed(), u=st.lists(numbers, min_size=1, max_size=30))
def test_smoothed_loss_is_within_its_gap(pair, u):
    loss, smooth = pair
    u = np.asarray(u)
    error = smooth.value_at(u) - loss.value_at(u)
    rounding = 1e-13 * (1 + np.max(np.abs(loss.value_at(u))))
    from_above = hasattr(smooth, "kernel")
    error = error if from_above else -error
    assert np.all(error >= -rounding)
    assert np.all(error <= smooth.approximation_gap + rounding)


def places_of_curvature(knots, width):
    """Return where a convolution may bend most: points of every gap between knots, and of every
    piece of uniform laws.

    A grid over all knots would step over a bend between two that are close.
    """
    gaps = [np.linspace(low, high, 2001) for low, high in pairwise(knots)]
    edges = np.unique([(knot - width, knot, knot + width) for knot in knots])
    return np.concatenate([*gaps, edges, (edges[:-1] + edges[1:]) / 2])


@PROFILE
@given(pair=smoothed())
def test_constants_are_attained(pair):
    loss, smooth = pair
    ends = smooth.slope_at(np.array([-1e6, 1e6]))
    assert np.isclose(np.max(np.abs(ends)), smooth.lipschitz, rtol=1e-14)
    kinks = loss.piecewise_linear
    bends = np.asarray(kinks.knots)[:, None]
    if not hasattr(smooth, "kernel"):
        middle = (np.asarray(kinks.slopes[:-1]) + np.asarray(kinks.slopes[1:])) / 2
        bends = bends + middle[:, None] / smooth.smoothness
        assert np.max(smooth.curvature_at(bends)) == smooth.smoothness
        return
    # For several kinks the declared number is an upper bound by cells between knots, 1024 to a gap.
    # No place has all that a cell is charged with where a uniform law ends, and another begins,
    # inside of it.
    if isinstance(smooth.kernel, UniformKernel) and len(kinks.knots) > 1:
        apart = np.abs(np.subtract.outer(kinks.knots, kinks.knots)) - 2 * smooth.bandwidth
        assume(not np.any((apart > -1e-9) & (apart < np.max(np.diff(kinks.knots)) / 1000)))
    attained = np.max(smooth.curvature_at(places_of_curvature(kinks.knots, smooth.bandwidth)))
    assert attained >= smooth.smoothness * (1 - 1e-14 if len(kinks.knots) == 1 else 0.99)
    assert np.max(smooth.value_at(bends) - loss.value_at(bends)) <= smooth.approximation_gap * (
        1 + 1e-12
    ) + 1e-12 * (1 + np.max(np.abs(loss.value_at(bends))))
