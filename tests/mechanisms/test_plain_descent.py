"""Noisy descent with the user's own steps, start, truncation and covariance: the printed
algorithm, and its noise.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dpconvex import DPNewsvendor, load_model, save_model
from dpconvex.core.noise_source import NoiseSource
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Pinball
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import Certificate, CertificateError, GaussianDP, LinearBounds

TAU = 0.7
WIDTH = 0.3
TRUNCATION = 2.0
STEPS = 12
P = 4


def problem(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, P - 1))])
    return X, X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.3 * rng.normal(size=n)


def mechanism(**choices):
    options = {"steps": STEPS, "step_size": 0.8, "average": False, "truncation": TRUNCATION}
    return NoisyGradientDescent(**{**options, **choices})


def certified(chosen, n, mu=1.0, neighbors="replace_one"):
    bounds = LinearBounds(
        n, P, Pinball(TAU), row_norm=50.0, max_norm=50.0, fit_intercept=False, neighbors=neighbors
    )
    from dpconvex.smoothing import GaussianKernel

    return chosen.certify(
        bounds, GaussianDP(mu), {"gradient": chosen.settings(WIDTH, GaussianKernel())}
    )


def objective(X, y):
    row_map = RowMap(P, row_norm=50.0, fit_intercept=False)
    return EmpiricalObjective(MemoryRows(X, y, row_map), Pinball(TAU), 0.0)


def printed(X, y, beta, rates, turn, noise):
    """The paper's update, written down a second time."""
    for rate, g in zip(rates, noise, strict=True):
        white = X @ turn
        short = white / np.maximum(1.0, np.linalg.norm(white, axis=1) / TRUNCATION)[:, None]
        slopes = ndtr((X @ beta - y) / WIDTH) - TAU
        beta = beta - rate / len(y) * turn @ (slopes @ short + g)
    return beta


@pytest.mark.parametrize("white", [False, True])
def test_it_is_the_printed_algorithm(white):
    X, y = problem()
    start = np.array([0.5, 0.0, 0.0, 0.1])
    covariance = X.T @ X / len(X) + 0.1 * np.eye(P)  # a public matrix, for the purpose of the test
    chosen = mechanism(start=start, covariance=covariance if white else None)
    certificate = certified(chosen, len(y), mu=1e9)
    found = chosen.release(objective(X, y), certificate, 0)
    turn = np.eye(P)
    if white:
        values, axes = np.linalg.eigh(covariance)
        turn = axes @ np.diag(values**-0.5) @ axes.T
    expected = printed(X, y, start, [0.8] * STEPS, turn, np.zeros((STEPS, P)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_noise_is_that_of_the_paper():
    certificate = certified(mechanism(), 1000, mu=0.5)
    term = certificate.noise["gradients"]
    assert term.releases == STEPS
    # A thousandth pays for rounding.
    printed = 2 * TAU * TRUNCATION * math.sqrt(STEPS) / 0.5
    assert term.scale == pytest.approx(1.001 * printed, rel=1e-6)
    certificate.verify()
    added = certified(mechanism(), 1000, mu=0.5, neighbors="add_or_remove_one").noise["gradients"]
    assert added.scale == pytest.approx(term.scale / 2, rel=1e-5)


class Exact(NoiseSource):
    """A source that notes what noise is added to, and adds none."""

    def __init__(self):
        super().__init__(np.random.default_rng(0))
        self.sums = []

    def add(self, value, term):
        self.sums.append(np.array(value))
        return np.array(value)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_neighbour_moves_a_sum_further_than_stated(seed):
    rng = np.random.default_rng(seed)
    X, y = problem(7, seed)
    X = X * 10 ** rng.uniform(-1, 2, size=(7, 1))
    other = X.copy()
    z = y.copy()
    other[0] = -X[0] if seed % 3 else rng.normal(size=P) * 5
    z[0] = rng.choice([-1e6, 1e6]) if seed % 2 else rng.normal()
    white = rng.normal(size=(P, P))
    chosen = mechanism(
        steps=1, start=rng.normal(size=P), covariance=white @ white.T + 0.01 * np.eye(P)
    )
    for neighbors in ("replace_one", "add_or_remove_one"):
        certificate = certified(chosen, 7, neighbors=neighbors)
        sides = [(X, y), (other, z)] if neighbors == "replace_one" else [(X, y), (X[1:], y[1:])]
        sums = []
        for side in sides:
            source = Exact()
            chosen.release([objective(*side).rows], certificate, source, {})
            sums.append(source.sums[0])
        moved = np.linalg.norm(sums[0] - sums[1])
        assert moved <= certificate.noise["gradients"].sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("white", [False, True])
def test_a_row_more_flips_no_slope_of_another(white):
    """Targets on their own predictions at a public start: a product of matrices rounds 3 rows
    otherwise than 4.
    """
    d = 8
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, d))
    start = rng.normal(size=d)
    bounds = LinearBounds(
        4,
        d,
        Pinball(TAU),
        row_norm=50.0,
        max_norm=50.0,
        fit_intercept=False,
        neighbors="add_or_remove_one",
    )
    turn = rng.normal(size=(d, d))
    covariance = turn @ turn.T + np.eye(d) if white else None
    chosen = mechanism(steps=1, start=start, covariance=covariance)
    certificate = chosen.certify(bounds, GaussianDP(1.0), {"gradient": chosen.settings(None, None)})
    row_map = RowMap(d, row_norm=50.0, fit_intercept=False)

    def exact(rows, y):
        source = Exact()
        objective = EmpiricalObjective(MemoryRows(rows, y, row_map), Pinball(TAU), 0.0)
        chosen.release([objective.rows], certificate, source, {})
        return source.sums[0]

    stated = certificate.noise["gradients"].sensitivity
    for n in range(1, 9):
        for y in (X[:n] @ start, np.array([row @ start for row in X[:n]])):
            alone = sum(exact(X[i : i + 1], y[i : i + 1]) for i in range(n))
            np.testing.assert_allclose(exact(X[:n], y), alone, atol=1e-12)
            moved = np.linalg.norm(exact(X[:n], y) - exact(X[: n - 1], y[: n - 1]))
            assert moved <= stated


def test_opposite_rows_attain_the_sensitivity():
    X, y = problem(7)
    X[0] = 100.0
    y[0] = 1e6
    other = X.copy()
    other[0] = -100.0
    chosen = mechanism(steps=1)
    certificate = certified(chosen, 7)
    sums = []
    for rows in (X, other):
        source = Exact()
        chosen.release(objective(rows, y), certificate, source, {})
        sums.append(source.sums[0])
    moved = np.linalg.norm(sums[0] - sums[1])
    stated = certificate.noise["gradients"].sensitivity
    assert moved == pytest.approx(stated / 1.001, rel=1e-6)
    assert moved > 0.5 * stated * (1 + 1e-6)  # half the noise would not do


def test_halved_noise_and_other_facts_are_refused():
    certificate = certified(mechanism(), 100)
    for edit in (
        lambda tree: tree["noise"]["gradients"].update(
            scale=tree["noise"]["gradients"]["scale"] / 2
        ),
        lambda tree: tree["parameters"]["plain"].update(truncation=2 * TRUNCATION),
        lambda tree: tree["parameters"]["gradient"].update(steps=2 * STEPS),
        lambda tree: tree["parameters"]["plain"].update(covariance=[[0.0] * P] * P),
    ):
        tree = json.loads(certificate.to_json())
        edit(tree)
        with pytest.raises((CertificateError, ValueError)):
            Certificate.from_json(json.dumps(tree)).verify()


def test_through_an_estimator(tmp_path):
    X, y = problem(400)
    model = DPNewsvendor(
        3.0,
        1.0,
        mu=2.0,
        feature_bounds=(-4, 4),
        target_bounds=(-4, 6),
        bandwidth=1.0,
        random_state=0,
        mechanism=NoisyGradientDescent(steps=15, step_size=1.0, average=False),
    ).fit(X[:, 1:], y)
    assert model.certificate_.mechanism == "plain-gradient"
    model.certificate_.verify()
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").certificate_ == model.certificate_


def test_refusals():
    for choices, match in (
        ({"covariance": np.eye(3)}, "shape"),
        ({"covariance": -np.eye(P)}, "positive definite"),
        ({"covariance": np.eye(P), "truncation": None}, "truncation"),
        ({"start": [1.0]}, "start"),
        ({"average": 0.5}, "average"),
        ({"step_size": 1e200}, "overflow"),
    ):
        with pytest.raises((ValueError, TypeError), match=match):
            certified(mechanism(**choices), 100)
