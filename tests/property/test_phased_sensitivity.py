"""Brute force over neighbours never beats a phase's sensitivity, and attains it where it is
tight.
"""

from dataclasses import replace

import numpy as np
import pytest
from brute_force import drawn_records
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball
from dpconvex.mechanisms import PhasedERM, PhasedSGD
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import GaussianDP, LinearBounds
from dpconvex.privacy.bounds.phases import Phase, PhaseSettings, phases_of
from dpconvex.releases.perturbed_minimiser import phase_minimiser, records_of_minimisers
from dpconvex.smoothing import LogisticKernel, UniformKernel, convolve, moreau

PROFILE = settings(max_examples=60, derandomize=True, deadline=None)

SMOOTH = [
    Logistic(),
    Huber(0.3),
    convolve(Pinball(0.8), LogisticKernel(), 0.1),
    convolve(Hinge(), UniformKernel(), 0.2),
    moreau(Absolute(), 3.0),
]


def phase_output(mechanism, X, y, bounds, row_map, start):
    """What noise is added to in the first phase, all records being in it."""
    certificate = mechanism.certify(bounds, GaussianDP(1.0))
    term = certificate.noise["phase 1"]
    objective = EmpiricalObjective(MemoryRows(X, y, row_map, threads=1), bounds.loss, bounds.alpha)
    settings = PhaseSettings.read(certificate.parameters[mechanism.name])
    (phase,) = phases_of(bounds.n_samples, settings)
    chosen = np.arange(len(X))
    point = phase_minimiser(
        objective,
        certificate,
        phase,
        term.tolerance,
        chosen,
        start,
        None,
        settings.radius,
        mechanism.one_pass,
    )
    return point, term.sensitivity


@st.composite
def cases(draw, losses):
    loss, X, y = draw(drawn_records(losses))
    n = len(X) - 1
    d = X.shape[1]
    alpha = draw(st.sampled_from([0.0, 0.3]))
    row_norm = draw(st.sampled_from([0.5, 1.0, 2.0]))
    row_map = RowMap.from_bounds(d, (-1.0, 1.0), row_norm=row_norm)
    # A phase holds half of the rows that the certificate speaks of.
    bounds = LinearBounds(2 * n, d, loss, row_norm, row_map.max_norm, alpha=alpha)
    start = np.array([draw(st.sampled_from([-2.0, 0.0, 0.7])) for _ in range(d + 1)])
    position = draw(st.integers(0, n - 1))
    return bounds, row_map, X, y, start, position


def moved(mechanism, case):
    bounds, row_map, X, y, start, position = case
    n = len(X) - 1
    other = np.arange(n)
    other[position] = n
    first, sensitivity = phase_output(mechanism, X[:n], y[:n], bounds, row_map, start)
    second, _ = phase_output(mechanism, X[other], y[other], bounds, row_map, start)
    return float(np.linalg.norm(first - second)), sensitivity


@PROFILE
@given(cases(SMOOTH), st.sampled_from([0.05, 0.5, 0.999]))
def test_one_pass_never_beats_the_bound(case, share):
    """Up to the longest contractive step."""
    bounds = case[0]
    longest = 8.0 / (bounds.smoothness + bounds.alpha)
    distance, sensitivity = moved(PhasedSGD(step_size=share * longest, phases=1), case)
    assert distance <= sensitivity


@PROFILE
@given(cases([*SMOOTH, Pinball(0.8), Hinge()]), st.sampled_from([0.01, 1.0, 30.0]))
def test_anchored_minimiser_never_beats_the_bound(case, step):
    distance, sensitivity = moved(PhasedERM(step_size=step, phases=1), case)
    assert distance <= sensitivity


@PROFILE
@given(cases([*SMOOTH, Pinball(0.8), Hinge()]), st.sampled_from([0.01, 1.0, 30.0]))
def test_a_record_more_never_beats_the_bound(case, step):
    """The phase with one record less, down to none, divided by the same nominal number."""
    bounds, row_map, X, y, start, position = case
    bounds = replace(bounds, neighbors="add_or_remove_one")
    mechanism = PhasedERM(step_size=step, phases=1)
    first, sensitivity = phase_output(mechanism, X, y, bounds, row_map, start)
    kept = np.arange(len(X)) != position
    second, _ = phase_output(mechanism, X[kept], y[kept], bounds, row_map, start)
    assert np.linalg.norm(first - second) <= sensitivity
    both = mechanism.certify(replace(bounds, neighbors="replace_one"), GaussianDP(1.0))
    assert sensitivity <= 0.6 * both.noise["phase 1"].sensitivity


def test_one_record_more_changes_one_phase():
    """Draws of their own: with those of others held fixed, no other record changes its phase."""
    phases = [Phase(8 >> i, 1.0) for i in range(3)]
    for seed in range(50):
        few, many = (
            records_of_minimisers(phases, "independent draws", n, np.random.default_rng(seed))
            for n in (20, 21)
        )
        assert sum(not np.array_equal(a, b[b < 20]) for a, b in zip(few, many, strict=True)) == 0
        assert sum(20 in b for b in many) <= 1
    parts = records_of_minimisers(phases, "independent draws", 80_000, np.random.default_rng(0))
    sizes = [len(part) for part in parts]
    # Ten standard deviations: false alarms below 1e-20.
    assert np.abs(np.array(sizes) / 80_000 - [0.5, 0.25, 0.125]).max() < 0.018


@pytest.mark.parametrize("method", [PhasedERM, PhasedSGD])
def test_the_bound_is_attained(method):
    """One record, its target at opposite extremes: the point moves by L step or 2 L step
    exactly.
    """
    row_map = RowMap.from_bounds(1, (-1.0, 1.0))
    bounds = LinearBounds(2, 1, Huber(0.1), 1.0, 1.0)
    X = np.ones((2, 1))
    y = np.array([50.0, -50.0])
    case = bounds, row_map, X, y, np.zeros(2), 0
    distance, sensitivity = moved(method(step_size=1.0, phases=1), case)
    assert distance == pytest.approx(sensitivity, rel=1e-6)
    factor = 1 if method is PhasedERM else 2
    assert distance == pytest.approx(factor * bounds.lipschitz / 4, rel=1e-6)


def test_steps_that_are_too_long_do_beat_it():
    """Why steps are limited: beyond 2 / smoothness two runs drift apart."""
    loss = Huber(1.0)
    X = np.ones((40, 1))
    y = np.zeros(40)
    # two runs, a small distance apart, on the same records
    first = 0.0
    second = 1e-3
    step = 2.5 / (loss.smoothness * 1.0)
    for row, target in zip(X, y, strict=True):
        first -= step * float(loss.gradient(target, row[0] * first)) * row[0]
        second -= step * float(loss.gradient(target, row[0] * second)) * row[0]
    assert abs(first - second) > 2 * 1e-3
