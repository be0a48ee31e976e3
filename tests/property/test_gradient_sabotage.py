"""Noisy descent that uses what it did not pay for: coupled runs on neighbouring data must catch it."""

import math

import numpy as np
import pytest
from coupled_runs import differences, facts, pair

from dpconvex.engine import MemoryRows
from dpconvex.losses import Pinball
from dpconvex.mechanisms import column_ranges, gradient_plan
from dpconvex.mechanisms import gradient_geometry as geometry
from dpconvex.mechanisms.gradient_run import PrivateDescent
from dpconvex.mechanisms.quantile_descent import QuantileDescent
from dpconvex.mechanisms.several_quantiles import SeveralQuantiles
from dpconvex.objectives.slopes import WeightedSlope
from dpconvex.privacy import LinearBounds


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
