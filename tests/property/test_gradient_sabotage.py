"""Noisy descent that uses what it did not pay for: coupled runs on neighbouring data must catch
it.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from coupled_runs import differences, facts, pair

from dpconvex.core import private_rows
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex.core.queries import Query, QuerySlope
from dpconvex.core.row_coordinates import RowNorms
from dpconvex.engine import MemoryRows
from dpconvex.fit import constants, private_fit
from dpconvex.fit.gradient_rounds import GradientRounds
from dpconvex.fit.private_fit import PrivateFit
from dpconvex.fit.several_quantiles import SeveralQuantiles
from dpconvex.losses import Pinball
from dpconvex.privacy import CertificateError


def sabotage_lengths(monkeypatch):
    monkeypatch.setattr(RowNorms, "__call__", lambda self, block, w: np.full(len(block), 0.1))


def sabotage_moments(monkeypatch):
    exact = private_rows._private_moment_sums
    monkeypatch.setattr(
        private_rows,
        "_private_moment_sums",
        lambda rows, frame, radius: 1e4 * exact(rows, frame, radius),
    )


def sabotage_relation(monkeypatch):
    """Claim the add-or-remove sensitivities under replace-one."""
    honest = Query.sensitivity

    def half(self, records):
        return honest(self, records) / (2 if self.kind == "vector" else 1)

    monkeypatch.setattr(Query, "sensitivity", half)


def sabotage_count(monkeypatch):
    honest = Query.sensitivity

    def half(self, records):
        return 0.5 if self.kind == "count" else honest(self, records)

    monkeypatch.setattr(Query, "sensitivity", half)


def test_a_choice_of_rows_by_what_they_hold_is_caught(monkeypatch):
    """Geometry of rows that depend on all of them: replacing one exchanges many."""
    monkeypatch.setattr(constants, "GEOMETRY_ROWS", (4, 4))
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(12, 2))
    y = rng.uniform(-1, 1, size=12)
    other_X = X.copy()
    other_X[3] = 0.0
    row_map, bounds, certificate = facts(
        Pinball(0.9),
        12,
        2,
        1e4,
        intercept=True,
        row_norm=None,
        neighbors="replace_one",
    )

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
    honest = PrivateFit._locate_residuals

    def unpaid(self, phi, scale, level):
        shift, unsure, _ = honest(self, phi, scale, level)
        theta = self.frame.row_coefficients(phi)
        rows = self.rows._rows._rows
        (total,) = rows.sum(lambda block, y, w: (np.abs(y - block @ theta).sum(),))
        return shift, unsure, float(min(1.0, max(1e-2, total / rows.n_rows)))

    monkeypatch.setattr(PrivateFit, "_locate_residuals", unpaid)


def sabotage_rows(monkeypatch):
    """Divide by the true number of rows, which is private when records come and go."""
    original = PrivateFit.__init__

    def init(self, *arguments):
        original(self, *arguments)
        self.mass = float(self.rows._rows._rows.n_rows)

    monkeypatch.setattr(PrivateFit, "__init__", init)


def sabotage_curvature(monkeypatch):
    """Divide gradients by a curvature without noise."""
    honest = GradientRounds._release_curvature

    def unpaid(self, phi, loss):
        found = honest(self, phi, loss)
        (total,) = self.rows._rows._rows.sum(lambda block, y, w: (block.T @ block,))
        return found + self.frame.matrix @ total @ self.frame.matrix.T

    monkeypatch.setattr(GradientRounds, "_release_curvature", unpaid)


def sabotage_bins(monkeypatch):
    """Pay for the histogram of one column, and answer with those of all."""
    honest = Query.sensitivity

    def of_one(self, bounds):
        return honest(replace(self, bound=1) if self.kind == "histogram" else self, bounds)

    monkeypatch.setattr(Query, "sensitivity", of_one)


def sabotage_centring(monkeypatch):
    """Say that slopes are at most 1/2, and answer with slopes of up to the level."""
    monkeypatch.setattr(QuerySlope, "largest", 0.5)

    def turned(slope, stated):
        return QuerySlope(slope.loss, -slope.offset, slope.weighting)

    monkeypatch.setattr(private_rows, "registered_query_slope", turned)


def sabotage_mean_row(monkeypatch):
    """Use the sum of the rows without noise."""
    honest = SeveralQuantiles._release_mean_row

    def unpaid(self):
        honest(self)
        rows = self.rows._rows._rows
        (total,) = rows.combine(np.zeros(rows.dim), lambda y, z, w: (w,))
        return self.frame.transform_sum(total) / self.mass

    monkeypatch.setattr(SeveralQuantiles, "_release_mean_row", unpaid)


def sabotage_levels(monkeypatch):
    """Pay for the residuals of one level."""
    honest = SeveralQuantiles._locate_residuals

    def several(self, phi, scale, level):
        honest(self, phi, scale, level)
        return honest(self, phi, scale, level)

    monkeypatch.setattr(SeveralQuantiles, "_locate_residuals", several)
    claim = PrivateAnswers.claim

    def uncounted(self, *asked, **more):
        self.used.clear()
        return claim(self, *asked, **more)

    monkeypatch.setattr(PrivateAnswers, "claim", uncounted)


def sabotage_centres(monkeypatch):
    """Centre columns around where their numbers are, without noise."""
    honest = private_fit.release_row_geometry

    def unpaid(rows, config, mass):
        found = honest(rows, config, mass)
        (total,) = rows._rows._rows.sum(lambda block, y, w: (block[:, 1:].sum(axis=0),))
        matrix = found.matrix.copy()
        matrix[1:, 0] -= 1e-3 * matrix[1:, 1:] @ total
        return replace(found, matrix=matrix)

    monkeypatch.setattr(private_fit, "release_row_geometry", unpaid)


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
        (sabotage_centres, "replace_one"),
        (sabotage_curvature, "replace_one"),
        (sabotage_bins, "replace_one"),
        (sabotage_rows, "add_or_remove_one"),
    ],
)
def test_sabotage_is_caught(monkeypatch, sabotage, neighbors):
    """Every unpaid use breaks equality of the results; every understated sensitivity is
    exceeded.
    """

    levels = ()
    relation = neighbors
    if neighbors == "several levels":
        levels = (0.1, 0.9)
        relation = "replace_one"

    def survives():
        row_map, bounds, certificate = facts(
            Pinball(0.9),
            3,
            2,
            1e4,
            intercept=True,
            row_norm=None,
            neighbors=relation,
            levels=levels,
        )
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
            except (AssertionError, CertificateError):
                return False
            if max(ratios.values()) > 1 + 1e-9:
                return False
        return True

    assert survives()
    sabotage(monkeypatch)
    assert not survives()
