"""Coupled runs on neighbouring data: what noisy descent releases never differs by more than was paid for.

The first run draws noise as usual. The second is made to release the same numbers, so both take the same path, as in
the proof of adaptive composition. Then (i) the sums behind the releases may differ by at most the claimed sensitivity,
each, and by ``mu`` together; (ii) what comes out must be equal to the last bit, or something was used that was not
released.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball
from dpconvex.mechanisms import NoisyGradientDescent, geometry, gradient, search
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import GaussianDP, LinearBounds, NoiseSource

PROFILE = settings(max_examples=80, derandomize=True, deadline=None)
LOSSES = [Pinball(0.5), Pinball(0.9), Pinball(0.2), Absolute(), Huber(0.3), Logistic(), Hinge()]


class Release:
    """Stands for a noise vector; hands the sum that it is added to over to the run."""

    __array_ufunc__ = None  # numpy arrays leave the addition to us

    def __init__(self, run, std, size):
        self.run, self.std, self.size = run, std, size

    def __getitem__(self, index):
        assert self.size == 1
        assert index == 0
        return self

    def __radd__(self, value):
        return self.run.release(value, self.std)


class Coupled(NoiseSource):
    """Records what is released; a follower releases what its leader did."""

    def __init__(self, seed, leader=None):
        super().__init__(seed)
        self.leader, self.log = leader, []

    def gaussian(self, std, size):
        return Release(self, std, size)

    def release(self, value, std):
        exact = np.array(value, dtype=float)
        if self.leader is None:
            noise = std * self.generator.standard_normal(exact.shape)
            out = exact + (noise + noise.T) / 2 if exact.ndim == 2 else exact + noise
        else:
            out = self.leader.log[len(self.log)][1]
        self.log.append((exact, out, std))
        return out.copy() if out.ndim else float(out)


@pytest.fixture(autouse=True)
def matrices_are_released_whole(monkeypatch):
    """The noise on a matrix is built from a vector of draws; here it is one release (checked in unit tests)."""

    def symmetric(size, std, noise):
        return Release(noise, std, size * size)

    monkeypatch.setattr(geometry, "_symmetric_noise", symmetric)


def run(X, y, bounds, row_map, certificate, leader=None):
    rows = MemoryRows(X, y, row_map, threads=1)
    objective = EmpiricalObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)
    noise = Coupled(0, leader)
    theta = NoisyGradientDescent().release(objective, certificate, noise)
    return theta, noise


def phases_in_order(certificate, log):
    """Name every release of a log by its phase: standard deviation and size tell them apart."""
    names = []
    for exact, _, std in log:
        fits = [
            name
            for name, term in certificate.noise.items()
            if term["std"] == std and term["dimension"] == exact.size
        ]
        assert len(fits) == 1, "a release that the certificate does not list"
        names.append(fits[0])
    return names


def differences(first, second, bounds, row_map, certificate):
    """Return the largest difference per phase over its sensitivity, and the mu that was spent."""
    theta, leader = run(*first, bounds, row_map, certificate)
    same, follower = run(*second, bounds, row_map, certificate, leader)
    assert np.array_equal(theta, same), "the result depends on something that was not released"
    names = phases_in_order(certificate, leader.log)
    assert len(leader.log) == len(follower.log)
    for name, term in certificate.noise.items():
        assert names.count(name) == term["releases"]
    ratios = dict.fromkeys(certificate.noise, 0.0)
    spent = 0.0
    for name, (mine, _, std), (theirs, _, other) in zip(
        names, leader.log, follower.log, strict=True
    ):
        assert std == other
        change = mine - theirs
        if name == "moments" and bounds.fit_intercept:
            change[0, 0] = 0.0  # the number of rows: noised like the rest, and used nowhere
        size = float(np.linalg.norm(change))
        ratios[name] = max(ratios[name], size / certificate.noise[name]["sensitivity"])
        spent += (size / std) ** 2
    return ratios, math.sqrt(spent)


def facts(loss, n, d, mu, *, intercept, row_norm, neighbors, how, steps=None, alpha=0.0):
    row_map = RowMap.from_bounds(d, (-1.0, 1.0), row_norm=row_norm, fit_intercept=intercept)
    bounds = LinearBounds(
        n, d, loss, row_map.row_norm, row_map.max_norm, intercept, alpha, neighbors
    )
    mechanism = NoisyGradientDescent(steps=steps, geometry=how)
    parameters = {"gradient": mechanism.settings()}
    return row_map, bounds, mechanism.certify(bounds, GaussianDP(mu), parameters)


@st.composite
def problems(draw):
    loss = draw(st.sampled_from(LOSSES))
    n, d = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    value = st.sampled_from([-3.0, -1.0, -0.5, -0.01, 0.0, 0.02, 0.5, 1.0, 3.0])
    signs = st.sampled_from([-1.0, 1.0])
    target = signs if loss.kind == "margin" else st.sampled_from([-1e6, -1.0, 0.1, 1.0, 1e6])
    X = np.array([[draw(value) for _ in range(d)] for _ in range(n + 1)])
    y = np.array([draw(target) for _ in range(n + 1)])
    public = {
        "intercept": draw(st.booleans()),
        "row_norm": draw(st.sampled_from([None, 0.3, 5.0])),
        "neighbors": draw(st.sampled_from(["replace_one", "add_or_remove_one"])),
        "how": draw(st.sampled_from(["private", "given"])),
        "alpha": draw(st.sampled_from([0.0, 0.1])),
    }
    # With a large budget even a handful of rows affords private coordinates and scale.
    return loss, X, y, draw(st.sampled_from([0.5, 20.0, 1e4])), public


@given(problem=problems())
@PROFILE
def test_coupled_runs_spend_at_most_the_budget(problem):
    loss, X, y, mu, public = problem
    n, d = len(y) - 1, X.shape[1]
    row_map, bounds, certificate = facts(loss, n, d, mu, **public)
    # Replace row 1 by the extra record, or have that record as well.
    rows = [0, n, *range(2, n)] if public["neighbors"] == "replace_one" else slice(None)
    ratios, spent = differences((X[:-1], y[:-1]), (X[rows], y[rows]), bounds, row_map, certificate)
    assert max(ratios.values()) <= 1 + 1e-9
    assert spent <= mu * (1 + 1e-9)


@given(
    seed=st.integers(0, 10_000),
    loss=st.sampled_from(LOSSES),
    neighbors=st.sampled_from(["replace_one", "add_or_remove_one"]),
    stretch=st.sampled_from([1.0, 1e3, 1e6]),
)
@PROFILE
def test_gradient_parts_in_random_coordinates(seed, loss, neighbors, stretch):
    """Whatever invertible matrix geometry comes up with, influence stays bounded in its coordinates."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 4)), 5
    row_map, bounds, certificate = facts(
        loss, n, d, 1.0, intercept=True, row_norm=None, neighbors=neighbors, how="private"
    )
    X = rng.choice([-1.0, -0.3, 0.3, 1.0], size=(n + 1, d))
    y = rng.choice([-1.0, 1.0], size=n + 1) * (1.0 if loss.kind == "margin" else 1e3)
    matrix = np.eye(d + 1)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    matrix[1:, 1:] = turn @ np.diag(stretch ** rng.uniform(-1, 1, size=d)) @ turn.T
    matrix[1:, 0] = rng.normal(size=d)
    coordinates = geometry.Coordinates(matrix, math.sqrt(d), 1)
    phi, width = rng.normal(size=d + 1) / stretch, 0.3 if loss.kinks is not None else 0.0
    moving, constant = bounds.split_sensitivity(math.sqrt(d), least_weight=0.0)
    sums = []
    kept = slice(1, n) if neighbors == "add_or_remove_one" else [n, *range(1, n)]
    for rows in (slice(0, n), kept):
        mapped = MemoryRows(X[rows], y[rows], row_map, threads=1)
        mapped.sum(lambda block, y, w: (w.sum(),))  # own weights are computed and kept first
        noise = Coupled(0)
        descent = gradient._Descent(
            EmpiricalObjective(mapped, loss, 0.0, divisor=n), certificate, noise
        )
        descent.rows = mapped.reweighted(coordinates.weights)
        descent._constant_part(coordinates)
        still = noise.log[0][0] if noise.log else np.zeros(1)
        sums.append((descent._moving_sum(coordinates, phi, width), still))
    change = [np.linalg.norm(a - b) for a, b in zip(*sums, strict=True)]
    assert change[0] <= moving * (1 + 1e-6)
    assert change[1] <= constant * (1 + 1e-6)


def pair(d, high, low, record, other):
    """Two data sets of three rows that differ in the last."""
    base = np.tile(np.linspace(-0.5, 0.5, d), (2, 1))
    first = np.vstack([base, record]), np.array([0.1, -0.1, high])
    second = np.vstack([base, other]), np.array([0.1, -0.1, low])
    return first, second


@pytest.mark.parametrize("how", ["private", "given"])
@pytest.mark.parametrize("loss", [Pinball(0.9), Pinball(0.5), Huber(0.3), Hinge()])
def test_gradient_sensitivity_is_attained(loss, how):
    """A record at the influence bound against the same with the opposite target, or label."""
    extreme = 1.0 if loss.kind == "margin" else 1e6
    d, row_norm = 2, None if how == "private" else 0.5
    row_map, bounds, certificate = facts(
        loss, 3, d, 2.0, intercept=True, row_norm=row_norm, neighbors="replace_one", how=how
    )
    record = np.full(d, 0.5 / math.sqrt(d)) if how == "given" else np.ones(d)
    first, second = pair(d, extreme, -extreme, record, record)
    ratios, spent = differences(first, second, bounds, row_map, certificate)
    assert spent <= 2.0 * (1 + 1e-9)
    # The hinge saturates only far from the origin, and private weights are below 1 for long rows.
    least = 0.95 if how == "given" and loss.kind == "residual" else 0.4
    assert ratios["gradients"] >= least
    if how == "given" and loss == Pinball(0.5):
        assert spent >= 0.99 * 2.0  # nothing but gradients was released: all of mu is needed


def test_constant_part_and_moments_are_attained():
    """Mirrored records: the constant part moves by 2 U, the moments by their full Frobenius sensitivity."""
    d = 2
    row_map, bounds, certificate = facts(
        Pinball(0.9), 3, d, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    first, second = pair(d, 0.0, 0.0, np.ones(d), -np.ones(d))
    ratios, _ = differences(first, second, bounds, row_map, certificate)
    assert ratios["moments"] >= 0.95
    assert ratios["constant part"] >= 0.95
    row_map, bounds, certificate = facts(
        Pinball(0.9), 3, d, 2.0, intercept=True, row_norm=None,
        neighbors="add_or_remove_one", how="given",
    )  # fmt: skip
    shorter = first[0][:-1], first[1][:-1]
    ratios, _ = differences(first, shorter, bounds, row_map, certificate)
    assert ratios["constant part"] == pytest.approx(1.0, abs=1e-9)


def test_counts_are_attained():
    """A long row against a short one, and a residual of 0 against a huge one."""
    n = 20
    row_map, bounds, certificate = facts(
        Pinball(0.5), n, 1, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    X, y = np.full((n, 1), 0.5), np.zeros(n)
    X[: n // 2] = -0.5
    other_X, other_y = X.copy(), y.copy()
    X[-1], y[-1] = 1.0, 1e3
    other_X[-1] = 1e-3
    ratios, _ = differences((X, y), (other_X, other_y), bounds, row_map, certificate)
    assert ratios["lengths"] == 1.0
    assert ratios["residuals"] == 1.0


def test_logistic_sensitivity_is_attained():
    """The moving part of a logistic gradient knows no label: two rows on both sides of a steep separator attain it."""
    row_map, _, certificate = facts(
        Logistic(), 1, 1, 1.0, intercept=True, row_norm=None, neighbors="replace_one", how="given"
    )
    coordinates = geometry.given_coordinates(1, True, 1.0)
    sums = []
    for x in (1.0, 0.999):
        rows = MemoryRows(np.full((1, 1), x), np.ones(1), row_map, threads=1)
        objective = EmpiricalObjective(rows, Logistic(), 0.0)
        descent = gradient._Descent(objective, certificate, Coupled(0))
        sums.append(descent._moving_sum(coordinates, np.array([-0.9995e6, 1e6]), 0.0))
    claimed = certificate.noise["gradients"]["sensitivity"]
    assert 0.999 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed


def sabotage_weights(monkeypatch):
    monkeypatch.setattr(geometry.Coordinates, "weights", lambda self, block, w: np.ones(len(block)))


def sabotage_moments(monkeypatch):
    exact = geometry._moment_sums
    monkeypatch.setattr(
        geometry, "_moment_sums", lambda rows, frame, radius: 4 * exact(rows, frame, radius)
    )


def sabotage_relation(monkeypatch):
    """Claim the add-or-remove sensitivities under replace-one."""

    def half(self, *arguments, **options):
        full = honest(self, *arguments, **options)
        return full[0] / 2, full[1] / 2

    honest = LinearBounds.split_sensitivity
    monkeypatch.setattr(LinearBounds, "split_sensitivity", half)


def sabotage_count(monkeypatch):
    monkeypatch.setattr(LinearBounds, "count_sensitivity", lambda self: 0.5)


def sabotage_release(monkeypatch):
    """Use the residual scale without noise."""

    def unpaid(rows, statistic, *rest):
        search.private_median(rows, statistic, *rest)
        (total,) = rows.sum(lambda block, y, w: (statistic(block, y, w).sum(),))
        return float(min(1.0, max(1e-2, total / rows.n_rows)))

    monkeypatch.setattr(gradient, "private_median", unpaid)


def sabotage_rows(monkeypatch):
    """Divide by the true number of rows, which is private when records come and go."""
    original = gradient._Descent.__init__

    def init(self, *arguments):
        original(self, *arguments)
        self.n = self.rows.n_rows

    monkeypatch.setattr(gradient._Descent, "__init__", init)


@pytest.mark.parametrize(
    ("sabotage", "neighbors"),
    [
        (sabotage_weights, "replace_one"),
        (sabotage_moments, "replace_one"),
        (sabotage_relation, "replace_one"),
        (sabotage_count, "replace_one"),
        (sabotage_release, "replace_one"),
        (sabotage_rows, "add_or_remove_one"),
    ],
)
def test_sabotage_is_caught(monkeypatch, sabotage, neighbors):
    """Every unpaid use breaks equality of the results; every understated sensitivity is exceeded."""

    def survives():
        row_map, bounds, certificate = facts(
            Pinball(0.9), 3, 2, 1e4, intercept=True, row_norm=None, neighbors=neighbors,
            how="private",
        )  # fmt: skip
        ones = np.ones(2)
        tests = [
            pair(2, 1e3, -1e3, ones, ones),
            pair(2, 0.3, 0.0, ones, -ones),
            pair(2, 1e3, 0.0, ones, 1e-3 * ones),
        ]
        for first, second in tests:
            if neighbors == "add_or_remove_one":
                second = first[0][:-1], first[1][:-1]
            try:
                ratios, _ = differences(first, second, bounds, row_map, certificate)
            except AssertionError:
                return False
            if max(ratios.values()) > 1 + 1e-9:
                return False
        return True

    assert survives()
    sabotage(monkeypatch)
    assert not survives()
