"""The exponential mechanism on a grid: its law, its sensitivity by brute force, localisation,
and refusals.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Logistic, Pinball
from dpconvex.mechanisms import ExponentialMechanism
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, Certificate, CertificateError, LinearBounds, PureDP
from dpconvex.releases.exponential_choices import (
    SCORE_GRID,
    exponential_loss_scores,
    exponential_loss_spread,
)


def objective(X, y, loss, alpha=0.0, row_norm=1.0):
    d = X.shape[1]
    return EmpiricalObjective(
        MemoryRows(X, y, RowMap(d, row_norm=row_norm, fit_intercept=False)), loss, alpha
    )


def bounds(n, d, loss, alpha=0.0, neighbors="replace_one"):
    return LinearBounds(
        n,
        d,
        loss,
        row_norm=1.0,
        max_norm=1.0,
        fit_intercept=False,
        alpha=alpha,
        neighbors=neighbors,
    )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_neighbour_moves_two_scores_further_apart(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    loss = [Pinball(0.9), Logistic(), Absolute()][seed % 3]
    X = rng.normal(size=(5, d)) * 3
    y = rng.choice([-1.0, 1.0], size=5)
    other = X.copy()
    z = y.copy()
    other[0] = -X[0]
    z[0] = -y[0]
    if loss.kind == "residual":
        y[0] = 10 ** rng.uniform(-1, 12)
        z[0] = -(10 ** rng.uniform(-1, 12))
    radius = 10 ** rng.uniform(-1, 1)
    centre = rng.normal(size=d)
    grid = rng.normal(size=(40, d))
    grid /= np.maximum(1.0, np.linalg.norm(grid, axis=1))[:, None]
    grid[:20] /= np.linalg.norm(grid[:20], axis=1)[:, None]
    candidates = centre + radius * grid
    for neighbors in ("replace_one", "add_or_remove_one"):
        facts = bounds(5, d, loss, 0.3, neighbors)
        sides = [(X, y), (other, z) if neighbors == "replace_one" else (X[1:], y[1:])]
        scores = [
            exponential_loss_scores(objective(*side, loss, 0.3), facts, candidates, centre, radius)
            for side in sides
        ]
        moved = scores[0] - scores[1]
        assert moved.max() - moved.min() <= exponential_loss_spread(facts)


def test_the_spread_is_attained():
    X = np.array([[1.0]])
    y = np.array([1e6])
    facts = bounds(1, 1, Absolute())
    candidates = np.array([[-1.0], [1.0]])
    first = exponential_loss_scores(
        objective(X, y, Absolute()), facts, candidates, np.zeros(1), 1.0
    )
    second = exponential_loss_scores(
        objective(X, -y, Absolute()), facts, candidates, np.zeros(1), 1.0
    )
    moved = first - second
    assert moved.max() - moved.min() == exponential_loss_spread(facts) == 4 * SCORE_GRID


def test_draws_have_the_law_of_the_scores():
    # Chi-square with 8 degrees of freedom: above 44 with a probability of 6e-7.
    rng = np.random.default_rng(0)
    X = np.full((40, 1), 1.0)
    y = rng.normal(size=40) * 0.3 + 0.4
    facts = bounds(40, 1, Absolute())
    mechanism = ExponentialMechanism(points=9)
    certificate = mechanism.certify(facts, PureDP(1.5))
    F = objective(X, y, Absolute())
    noise = np.random.default_rng(1)
    drawn = np.array([mechanism.release(F, certificate, noise)[0] for _ in range(3000)])
    grid = np.linspace(-1, 1, 9)
    gains = -np.abs(y[:, None] - grid).sum(axis=0)
    law = np.exp(1.5 * gains / 4)
    expected = 3000 * law / law.sum()
    counts = np.array([(np.abs(drawn - w) < 1e-9).sum() for w in grid])
    assert counts.sum() == 3000
    assert ((counts - expected) ** 2 / expected).sum() < 44
    wrong = np.exp(3.0 * gains / 4)  # twice the budget is caught
    assert ((counts - 3000 * wrong / wrong.sum()) ** 2 / (3000 * wrong / wrong.sum())).sum() > 44


def test_localised_draws_come_near_the_minimiser():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2)) * 0.5
    y = np.where(rng.random(4000) < 1 / (1 + np.exp(-X @ [4.0, -2.0])), 1.0, -1.0)
    F = objective(X, y, Logistic(), 0.01)
    facts = bounds(4000, 2, Logistic(), 0.01)
    best = F.value(np.linalg.lstsq(X, y, rcond=None)[0] * 3)
    gaps = {}
    for localise in (False, True):
        mechanism = ExponentialMechanism(radius=10.0, points=41, localise=localise)
        certificate = mechanism.certify(facts, PureDP(2.0))
        certificate.verify()
        assert certificate.guarantee == PureDP(2.0)
        record = {}
        theta = mechanism.release(F, certificate, 0, record)
        assert ("centre" in record) == localise
        gaps[localise] = F.value(theta) - best
    assert gaps[True] < 0.05


@pytest.mark.parametrize("points", [2, 9])
def test_localised_draws_stay_in_the_ball(points):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.full(200, 40.0)
    for radius in (0.3, 1e-3):
        mechanism = ExponentialMechanism(radius=radius, points=points, localise=True)
        certificate = mechanism.certify(bounds(200, 2, Absolute(), 0.01), PureDP(1.0))
        F = objective(X, y, Absolute(), 0.01)
        noise = np.random.default_rng(1)
        drawn = np.array([mechanism.release(F, certificate, noise) for _ in range(50)])
        assert np.linalg.norm(drawn, axis=1).max() <= radius
        assert len(np.unique(drawn, axis=0)) > 1


def one_row_each(X, y, loss, facts, candidates, centre, radius):
    """The scores of every record, computed where it is alone, added up; and those of the
    penalty.
    """
    alone = [
        exponential_loss_scores(
            objective(x[None], t[None], loss, 0.3), facts, candidates, centre, radius
        )
        for x, t in zip(X, y, strict=True)
    ]
    nobody = objective(np.zeros((0, X.shape[1])), np.zeros(0), loss, 0.3)
    penalty = exponential_loss_scores(nobody, facts, candidates, centre, radius)
    return sum(score - penalty for score in alone) + penalty


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("loss", [Absolute(), Pinball(0.9), Logistic()])
def test_what_a_record_scores_depends_on_that_record_alone(d, loss):
    # A far centre: the last bit of a margin is many steps of a score.
    rng = np.random.default_rng(d)
    n = 201
    X = rng.normal(size=(n, d))
    y = rng.choice([-1.0, 1.0], size=n)
    centre = 1e10 * rng.normal(size=d)
    radius = 2.0
    candidates = centre + radius * rng.uniform(-1, 1, (60, d)) / math.sqrt(d)
    facts = bounds(n, d, loss, 0.3, "add_or_remove_one")
    together = [
        exponential_loss_scores(
            objective(X[:m], y[:m], loss, 0.3), facts, candidates, centre, radius
        )
        for m in (1, 2, 3, n)
    ]
    for found, m in zip(together, (1, 2, 3, n), strict=True):
        expected = one_row_each(X[:m], y[:m], loss, facts, candidates, centre, radius)
        np.testing.assert_array_equal(found, expected)


def test_stated_budgets_must_add_up():
    certificate = ExponentialMechanism(localise=True).certify(
        bounds(100, 2, Logistic(), 0.1), PureDP(1.0)
    )
    edits = (
        lambda tree: tree["parameters"].update(draw_epsilon=0.6),
        lambda tree: tree["noise"]["release"].update(scale=tree["noise"]["release"]["scale"] / 2),
        lambda tree: tree["noise"].clear(),
        lambda tree: tree["parameters"]["grid"].update(localise=False),
        lambda tree: tree["bounds"].update(n_features=4),
    )
    for edit in edits:
        tree = json.loads(certificate.to_json())
        edit(tree)
        with pytest.raises(CertificateError):
            Certificate.from_json(json.dumps(tree)).verify()


def test_refusals():
    with pytest.raises(ValueError, match="at most 3 coefficients"):
        ExponentialMechanism().certify(bounds(100, 4, Logistic()), PureDP(1.0))
    with pytest.raises(ValueError, match="PureDP"):
        ExponentialMechanism().certify(bounds(100, 2, Logistic()), ApproxDP(1.0, 1e-6))
    with pytest.raises(ValueError, match="localise"):
        ExponentialMechanism(localise=True).certify(bounds(100, 2, Logistic()), PureDP(1.0))
    for radius in (0.0, math.inf):
        with pytest.raises(ValueError, match="radius"):
            ExponentialMechanism(radius=radius).certify(bounds(100, 2, Logistic()), PureDP(1.0))
