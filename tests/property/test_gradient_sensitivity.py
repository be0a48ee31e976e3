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
from dpconvex.mechanisms import (
    NoisyGradientDescent,
    column_ranges,
    gradient,
    gradient_plan,
)
from dpconvex.mechanisms import gradient_geometry as geometry
from dpconvex.mechanisms.gradient_run import PrivateDescent, gradient_sum
from dpconvex.mechanisms.quantile_descent import QuantileDescent
from dpconvex.mechanisms.several_quantiles import SeveralQuantiles
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.empirical import SeveralTargets
from dpconvex.objectives.slopes import ClippedSlope, WeightedSlope
from dpconvex.privacy import GaussianDP, LinearBounds, NoiseSource
from dpconvex.smoothing import LogisticKernel, convolve

PROFILE = settings(max_examples=80, derandomize=True, deadline=None)
LOSSES = [Pinball(0.5), Pinball(0.9), Pinball(0.2), Absolute(), Huber(0.3), Logistic(), Hinge()]


class Coupled(NoiseSource):
    """Records what is released; a follower releases what its leader did."""

    def __init__(self, seed, leader=None):
        super().__init__(seed)
        self.leader, self.log = leader, []

    def add_gaussian(self, value, std):
        exact = np.array(value, dtype=float)
        if self.leader is None:
            out = exact + std * self.generator.standard_normal(exact.shape)
        else:
            out = self.leader.log[len(self.log)][1]
        self.log.append((exact, out, std))
        return out.copy()


def run(X, y, bounds, row_map, certificate, leader=None):
    targets = y.T if y.ndim == 2 else [y]
    rows = [MemoryRows(X, target, row_map, threads=1) for target in targets]
    made = (bounds.loss, bounds.alpha, bounds.n_samples)
    objective = SeveralTargets(rows, *made) if len(rows) > 1 else EmpiricalObjective(rows[0], *made)
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
        size = float(np.linalg.norm(mine - theirs))
        ratios[name] = max(ratios[name], size / certificate.noise[name]["sensitivity"])
        spent += (size / std) ** 2
    return ratios, math.sqrt(spent)


def facts(
    loss, n, d, mu, *, intercept, row_norm, neighbors, how, steps=None, alpha=0.0, ranking=False,
    raw=False, levels=(), targets=1,
):  # fmt: skip
    mechanism = NoisyGradientDescent(steps=steps, geometry=how)
    known = None if raw else (-1.0, 1.0)
    row_map = RowMap.from_bounds(d, known, row_norm=row_norm, fit_intercept=intercept)
    row_map = mechanism.mapped(row_map)
    bounds = LinearBounds(
        n, d, loss, row_map.row_norm, row_map.max_norm, intercept, alpha, neighbors
    )
    chosen = mechanism.settings(levels=levels, targets=targets)
    parameters = {"gradient": chosen | ({"ranking": True} if ranking else {})}
    if raw and how == "private":
        parameters["gradient"]["raw_target"] = True
    return row_map, bounds, mechanism.certify(bounds, GaussianDP(mu), parameters)


@st.composite
def problems(draw):
    loss = draw(st.sampled_from(LOSSES))
    n, d = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    raw = draw(st.booleans())
    sizes = [-3.0, -1.0, -0.5, -0.01, 0.0, 0.02, 0.5, 1.0, 3.0]
    value = st.sampled_from([-1e30, -5e4, 1e-9, 1990.0, 1999.0, 2024.0, 2024.0] if raw else sizes)
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
        "ranking": loss.kind == "margin" and draw(st.booleans()),
        "raw": raw,
    }
    if type(loss) is Pinball and public["how"] == "private":
        public["levels"] = draw(st.sampled_from([(), (0.1, 0.5, 0.9), (0.5, 0.5)]))
        public["targets"] = draw(st.sampled_from([1, max(1, len(public["levels"]))]))
        if public["targets"] > 1:
            more = [[draw(target) for _ in y] for _ in range(public["targets"] - 1)]
            y = np.column_stack([y, *more])
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
    stretch=st.sampled_from([1.0, 1e3, 1e5]),
    clip=st.sampled_from([0.1, 0.5, 3.0]),
)
@PROFILE
def test_clipped_and_weighted_gradients_in_random_coordinates(seed, loss, neighbors, stretch, clip):
    """Whatever matrix geometry comes up with: rows, targets and labels at their extremes, both ways to bound."""
    rng = np.random.default_rng(seed)
    d, n, lead = int(rng.integers(1, 4)), 5, int(rng.integers(0, 2))
    row_map, bounds, _ = facts(
        loss, n, d, 1.0, intercept=bool(lead), row_norm=None, neighbors=neighbors, how="private"
    )
    X = rng.choice([-1.0, -0.3, 0.0, 0.3, 1.0], size=(n + 1, d))
    y = rng.choice([-1.0, 1.0], size=n + 1) * (1.0 if loss.kind == "margin" else 1e3)
    if rng.random() < 0.3:
        X[n] = X[0]  # the same row with another target or label
    matrix = np.eye(d + lead)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    matrix[lead:, lead:] = turn @ np.diag(stretch ** rng.uniform(-1, 1, size=d)) @ turn.T
    matrix[lead:, :lead] = rng.normal(size=(d, lead))
    frame = geometry.Coordinates(matrix, lead, 1.7, np.ones(d + lead))
    phi = rng.normal(size=d + lead) / stretch
    smooth = convolve(loss, LogisticKernel(), 0.3) if loss.kinks is not None else loss
    ways = {
        loss.lipschitz: (
            WeightedSlope(smooth),
            lambda lengths: np.minimum(1.0, clip * 1.7 / lengths),
        )
    }
    if loss.kind == "margin":
        ways = {loss.lipschitz: (ClippedSlope(smooth), lambda lengths: clip * 1.7 / lengths)}
    else:
        low, high = loss.slope_range
        ways[(high - low) / 2] = (WeightedSlope(smooth, (low + high) / 2), ways[loss.lipschitz][1])
    kept = slice(1, n) if neighbors == "add_or_remove_one" else [n, *range(1, n)]
    for largest, (slope, bounded) in ways.items():
        sums = []
        for chosen in (slice(0, n), kept):
            rows = MemoryRows(X[chosen], y[chosen], row_map, threads=1)
            rows = rows.reweighted(frame.store_lengths).rescaled(bounded)
            sums.append(gradient_sum(rows, frame, phi, slope))
        change = np.linalg.norm(sums[0] - sums[1])
        assert change <= bounds.gradient_sensitivity(clip, largest) * (1 + 1e-12)


def test_a_look_at_some_rows_keeps_to_the_sensitivities(monkeypatch):
    """Geometry of a public part of the rows: the record that differs is in it, or not."""
    for name in ("_LOOK_LEAST", "_LOOK_MOST"):
        monkeypatch.setattr(gradient_plan, name, 4)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(12, 2)), rng.uniform(-1, 1, size=12)
    row_map, bounds, certificate = facts(
        Pinball(0.9), 12, 2, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    for changed in range(12):
        other_X, other_y = X.copy(), y.copy()
        other_X[changed], other_y[changed] = -1.0, 1e3
        ratios, spent = differences((X, y), (other_X, other_y), bounds, row_map, certificate)
        assert max(ratios.values()) <= 1 + 1e-9
        assert spent <= 1e4 * (1 + 1e-9)


def test_the_clip_is_attained_by_a_label_flip():
    """A long row far on the wrong side, with one label and with the other."""
    row_map, bounds, _ = facts(
        Logistic(), 1, 1, 1.0, intercept=True, row_norm=None, neighbors="replace_one", how="private"
    )
    frame = geometry.Coordinates(np.diag([1.0, 50.0]), 1, 2.0, np.ones(2))
    sums = []
    for label in (-1.0, 1.0):
        rows = MemoryRows(np.ones((1, 1)), np.array([label]), row_map, threads=1)
        rows = rows.reweighted(frame.store_lengths).rescaled(lambda lengths: 0.5 * 2.0 / lengths)
        sums.append(gradient_sum(rows, frame, np.zeros(2), ClippedSlope(Logistic())))
    claimed = bounds.gradient_sensitivity(0.5, 1.0)
    assert 0.998 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed


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
    # The hinge saturates only far from the origin; private coordinates weight long rows.
    least = 0.95 if how == "given" and loss.kind == "residual" else 0.3
    assert ratios["gradients"] >= least
    if how == "given" and loss == Pinball(0.5):
        assert spent >= 0.99 * 2.0  # nothing but gradients was released: all of mu is needed


def test_the_constant_part_is_attained():
    """Mirrored records, and one record more or less, where the influence bound gives the coordinates."""
    d = 2
    row_map, bounds, certificate = facts(
        Pinball(0.9), 3, d, 2.0, intercept=True, row_norm=None,
        neighbors="add_or_remove_one", how="given",
    )  # fmt: skip
    first, _ = pair(d, 0.0, 0.0, np.ones(d), -np.ones(d))
    shorter = first[0][:-1], first[1][:-1]
    ratios, _ = differences(first, shorter, bounds, row_map, certificate)
    assert ratios["constant part"] == pytest.approx(1.0, abs=2e-3)  # a thousandth pays for rounding


@pytest.mark.parametrize("targets", [1, 3])
def test_several_levels_attain_their_sensitivities(targets):
    """A record gets the opposite targets, which every level's sums feel, or the opposite row, which their sum does."""
    n, levels = 20, (0.1, 0.5, 0.9)
    # With much budget the first phases see, and with little rows are clipped.
    much, little = (
        facts(
            Pinball(0.9), n, 1, mu, intercept=True, row_norm=None, neighbors="replace_one",
            how="private", levels=levels, targets=targets,
        )
        for mu in (1e4, 1.0)
    )  # fmt: skip
    X = np.where(np.arange(n) < n // 2, -0.5, 0.5)[:, None]
    y = np.zeros((n, targets))

    def with_last(x, target):
        features, demands = (
            np.vstack([X[:-1], [[x]]]),
            np.vstack([y[:-1], np.full(targets, target)]),
        )
        return features, demands if targets > 1 else demands[:, 0]

    def ratios(one, other, public):
        row_map, bounds, certificate = public
        found, spent = differences(with_last(*one), with_last(*other), bounds, row_map, certificate)
        assert spent <= certificate.guarantee.mu * (1 + 1e-9)
        return found

    found = ratios((1.0, 1e3), (1.0, -1e3), much)
    for phase in ("octaves", "targets", "residuals"):
        assert found[phase] == pytest.approx(1.0, abs=1e-12)
    certificate = much[-1]
    assert certificate.noise["residuals"].releases == 20 * len(levels)
    assert certificate.noise["targets"].releases == 16 * targets
    found = ratios((1.0, 1e6), (1.0, -1e6), little)
    for phase in ("rough gradients", "early gradients", "gradients"):
        assert 0.9 < found[phase] <= 1
    assert 0.5 < ratios((1.0, 0.0), (-1.0, 0.0), little)["constant part"] <= 1
    assert certificate.noise["gradients"].sensitivity == pytest.approx(
        certificate.noise["constant part"].sensitivity / 2
    )


def test_counts_and_histograms_are_attained():
    """A long row against a short one, targets and residuals in other bins, a label flip."""
    n = 20
    X, y = np.full((n, 1), 0.5), np.zeros(n)
    X[: n // 2] = -0.5
    other_X, other_y = X.copy(), y.copy()
    X[-1], y[-1] = 1.0, 1e3
    other_X[-1], other_y[-1] = 1e-3, -1e3
    row_map, bounds, certificate = facts(
        Pinball(0.5), n, 1, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    ratios, _ = differences((X, y), (other_X, other_y), bounds, row_map, certificate)
    for phase in ("scales", "octaves", "targets", "residuals"):
        assert ratios[phase] == pytest.approx(1.0, abs=1e-12)
    assert ratios["lengths"] > 0.99
    years = np.where(np.arange(n) % 2, 1990.0, 2024.0)[:, None]
    row_map, bounds, certificate = facts(
        Pinball(0.5), n, 1, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private", raw=True,
    )  # fmt: skip
    changed = np.vstack([years[:-1], [[-1e9]]])
    ratios, _ = differences((years, y), (changed, other_y), bounds, row_map, certificate)
    for phase in ("scales", "places", "octaves"):
        assert ratios[phase] == pytest.approx(1.0, abs=1e-12)
    row_map, bounds, certificate = facts(
        Logistic(), n, 1, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    ratios, _ = differences((X, y), (X, np.r_[y[:-1], -y[-1]]), bounds, row_map, certificate)
    assert ratios["labels"] == 1.0
    assert ratios["margins"] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
def test_counts_in_place_of_vectors_are_attained(neighbors, ranking):
    """Labels that are all the same, and one that is not: what follows counts them, and costs all that was planned."""
    row_map, bounds, certificate = facts(
        Logistic(), 20, 3, 0.5, intercept=True, row_norm=None, neighbors=neighbors, how="private",
        ranking=ranking,
    )  # fmt: skip
    X, y = np.full((20, 3), 0.5), -np.ones(20)
    other = (X, np.r_[y[:-1], 1.0])
    if neighbors == "add_or_remove_one":
        other = (np.vstack([X, X[:1]]), np.r_[y, 1.0])
    ratios, _ = differences((X, y), other, bounds, row_map, certificate)
    for phase in {"early gradients", "gradients", "margin range", "margins"} & set(ratios):
        assert 1 - 2e-6 < ratios[phase] <= 1


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
    assert 0.998 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed


def sabotage_lengths(monkeypatch):
    monkeypatch.setattr(
        geometry.Coordinates, "store_lengths", lambda self, block, w: np.full(len(block), 0.1)
    )


def sabotage_moments(monkeypatch):
    exact = geometry._moment_sums
    monkeypatch.setattr(
        geometry, "_moment_sums", lambda rows, frame, radius: 1e4 * exact(rows, frame, radius)
    )


def sabotage_relation(monkeypatch):
    """Claim the add-or-remove sensitivities under replace-one."""
    honest = LinearBounds.gradient_sensitivity
    monkeypatch.setattr(
        LinearBounds,
        "gradient_sensitivity",
        lambda self, clip, slope: honest(self, clip, slope) / 2,
    )


def sabotage_count(monkeypatch):
    monkeypatch.setattr(LinearBounds, "count_sensitivity", lambda self: 0.5)


def test_a_choice_of_rows_by_what_they_hold_is_caught(monkeypatch):
    """Geometry of rows that depend on all of them: replacing one exchanges many."""
    for name in ("_LOOK_LEAST", "_LOOK_MOST"):
        monkeypatch.setattr(gradient_plan, name, 4)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(12, 2)), rng.uniform(-1, 1, size=12)
    other_X = X.copy()
    other_X[3] = 0.0
    row_map, bounds, certificate = facts(
        Pinball(0.9), 12, 2, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip

    def largest_ratio():
        try:
            ratios, _ = differences((X, y), (other_X, y), bounds, row_map, certificate)
        except AssertionError:
            return math.inf
        return max(ratios.values())

    assert largest_ratio() <= 1 + 1e-9

    def by_content(self, count):
        draw = np.random.default_rng(int(1e6 * np.abs(self._raw).sum()))
        return self.take(np.sort(draw.permutation(self.n_rows)[:count]))

    monkeypatch.setattr(MemoryRows, "part", by_content)
    assert largest_ratio() > 1 + 1e-9


def sabotage_release(monkeypatch):
    """Use the residual scale without noise."""
    honest = QuantileDescent._residuals

    def unpaid(self, phi, scale, level):
        _, shift = honest(self, phi, scale, level)
        theta = self.frame.to_rows(phi)
        (total,) = self.rows.sum(lambda block, y, w: (np.abs(y - block @ theta).sum(),))
        return float(min(1.0, max(1e-2, total / self.rows.n_rows))), shift

    monkeypatch.setattr(QuantileDescent, "_residuals", unpaid)


def sabotage_rows(monkeypatch):
    """Divide by the true number of rows, which is private when records come and go."""
    original = PrivateDescent.__init__

    def init(self, *arguments):
        original(self, *arguments)
        self.n = self.rows.n_rows

    monkeypatch.setattr(PrivateDescent, "__init__", init)


def sabotage_centring(monkeypatch):
    """Descend along slopes of up to the level, though slopes of up to 1/2 were paid for."""
    monkeypatch.setattr(
        "dpconvex.mechanisms.quantile_descent.WeightedSlope",
        lambda loss, offset=0.0: WeightedSlope(loss, -offset),
    )


def sabotage_mean_row(monkeypatch):
    """Use the sum of the rows without noise."""
    honest = SeveralQuantiles._mean_row

    def unpaid(self, rows):
        honest(self, rows)
        (total,) = rows.combine(np.zeros(rows.dim), lambda y, z, w: (w,))
        return self.frame.of_sum(total) / self.mass

    monkeypatch.setattr(SeveralQuantiles, "_mean_row", unpaid)


def sabotage_levels(monkeypatch):
    """Pay for the residuals of one level."""
    honest = SeveralQuantiles._residuals

    def several(self, phi, scale, level):
        honest(self, phi, scale, level)
        return honest(self, phi, scale, level)

    monkeypatch.setattr(SeveralQuantiles, "_residuals", several)


def sabotage_places(monkeypatch):
    """Centre columns around where their numbers are, without noise."""
    monkeypatch.setattr(column_ranges, "_centred", lambda rows, mass, lead, sizes, std, noise: (
        noise.add_gaussian(np.zeros(64 * sizes.size), std),
        column_ranges.ColumnUnits(sizes, rows.sum(lambda block, y, w: (block[:, lead:].sum(0),))[0]),
    )[1])  # fmt: skip


@pytest.mark.parametrize(
    ("sabotage", "neighbors"),
    [
        (sabotage_centring, "several levels"),
        (sabotage_mean_row, "several levels"),
        (sabotage_levels, "several levels"),
        (sabotage_lengths, "replace_one"),
        (sabotage_moments, "replace_one"),
        (sabotage_relation, "replace_one"),
        (sabotage_count, "replace_one"),
        (sabotage_release, "replace_one"),
        (sabotage_places, "replace_one"),
        (sabotage_rows, "add_or_remove_one"),
    ],
)
def test_sabotage_is_caught(monkeypatch, sabotage, neighbors):
    """Every unpaid use breaks equality of the results; every understated sensitivity is exceeded."""

    levels, relation = (), neighbors
    if neighbors == "several levels":
        levels, relation = (0.1, 0.9), "replace_one"

    def survives():
        row_map, bounds, certificate = facts(
            Pinball(0.9), 3, 2, 1e4, intercept=True, row_norm=None, neighbors=relation,
            how="private", levels=levels, raw=sabotage is sabotage_places,
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
