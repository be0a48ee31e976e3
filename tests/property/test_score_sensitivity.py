"""What one record can change in a candidate's score: every neighbour of tiny tables, and what a
wrong bound misses.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from types import SimpleNamespace

import numpy as np
import pytest

from dpconvex.assessment.selection import (
    AUCScore,
    RowScore,
    SelectionAccuracy,
    SelectionResidualScore,
)
from dpconvex.privacy.bounds.scores import AUCScoreBounds, RowScoreBounds
from dpconvex.releases.exponential_choices import SCORE_GRID

RELATIONS = ("replace_one", "replace_one_keeping_label", "add_or_remove_one")
# The response is the feature itself, so that tables are lists of (response, target).
MODEL = SimpleNamespace(
    predict=lambda X: X[:, 0],
    decision_function=lambda X: X[:, 0],
    classes_=np.array([0, 1]),
    certificate_=SimpleNamespace(parameters={"quantile": 0.8}),
)


def steps(score, rows, neighbors):
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return score.steps(MODEL, table[:, :1], table[:, 1], neighbors)


def largest_changes(score, records, most, sensitivity_of=None):
    """Return the largest change of the score over all neighbours of tables of at most
    ``most + 1`` records.
    """
    largest = dict.fromkeys(RELATIONS, 0)
    for neighbors in RELATIONS:
        for size in range(most + 1):
            for rest in combinations_with_replacement(records, size):
                without = steps(score, rest, sensitivity_of or neighbors)
                with_one = [steps(score, (*rest, z), sensitivity_of or neighbors) for z in records]
                if neighbors == "add_or_remove_one":
                    changes = [abs(value - without) for value in with_one]
                else:
                    flips = neighbors == "replace_one"
                    changes = [
                        abs(a - b)
                        for (z, a), (w, b) in product(zip(records, with_one, strict=True), repeat=2)
                        if flips or z[1] == w[1]
                    ]
                largest[neighbors] = max(largest[neighbors], *changes)
    return largest


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (2, 3), (3, 2)])
def test_no_neighbour_moves_the_auc_by_more_than_its_sensitivity(counts):
    records = list(product((0.0, 1.0, 2.0), (0.0, 1.0)))
    largest = largest_changes(AUCScore(*counts), records, 5)
    assert max(largest.values()) <= SCORE_GRID
    assert min(largest.values()) >= SCORE_GRID - 1  # and each bound is attained


def test_the_bound_for_kept_labels_does_not_cover_flips():
    records = list(product((0.0, 1.0, 2.0), (0.0, 1.0)))
    largest = largest_changes(AUCScore(2, 2), records, 4, "replace_one_keeping_label")
    assert largest["replace_one_keeping_label"] <= SCORE_GRID
    assert largest["replace_one"] > 1.3 * SCORE_GRID


def test_margins_that_are_no_numbers_rank_last():
    records = list(product((-np.inf, 0.0, 1.0, np.inf, np.nan), (0.0, 1.0)))
    assert max(largest_changes(AUCScore(2, 2), records, 3).values()) <= SCORE_GRID
    good = ((1.0, 1.0), (0.0, 0.0))
    for harm in ((np.nan, 1.0), (np.nan, 0.0)):
        assert steps(AUCScore(1, 1), (*good, harm), "replace_one") == SCORE_GRID // 2


@pytest.mark.parametrize(
    "score",
    [
        SelectionAccuracy(),
        SelectionResidualScore(2.0),
        RowScore(lambda target, response: -abs(target - response), low=-1.0, high=0.0),
        RowScore(lambda target, response: 1 / (target - response), low=-7.0, high=3.0),
        RowScore(lambda target, response: [][int(target)]),
        RowScore(lambda target, response: 1e300 * target if response else "no number"),
    ],
)
def test_no_neighbour_moves_a_sum_over_rows_by_more_than_one(score):
    values = (-np.inf, -1e308, 0.4, 1.0, np.nan)
    records = list(product(values, repeat=2))
    assert max(largest_changes(score, records, 1).values()) <= SCORE_GRID
    for record in records:  # a record that is added lowers no score
        assert 0 <= steps(score, (record,), "add_or_remove_one") <= SCORE_GRID


def test_the_largest_change_of_a_sum_is_attained():
    assert largest_changes(SelectionAccuracy(), [(0.0, 0.0), (1.0, 0.0)], 1) == dict.fromkeys(
        RELATIONS, SCORE_GRID
    )


def test_a_score_of_your_own_sees_one_row_at_a_time():
    seen = []

    def score(target, response):
        seen.append((np.ndim(target), np.ndim(response)))
        return 1.0

    assert steps(RowScore(score), [(1.0, 2.0)] * 3, "replace_one") == 3 * SCORE_GRID
    assert seen == [(0, 0)] * 3


def test_no_rows_score_nothing():
    for score in (SelectionAccuracy(), AUCScore(1, 1), RowScore(lambda *row: 1.0)):
        assert steps(score, [], "add_or_remove_one") == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RowScoreBounds(1.0, 1.0),
        lambda: RowScoreBounds(0.0, np.inf),
        lambda: RowScoreBounds(np.nan, 1.0),
        lambda: AUCScoreBounds(0, 5),
        lambda: AUCScoreBounds(1e-6, 5),
        lambda: AUCScoreBounds(True, 5),
        lambda: AUCScoreBounds(1, 5).sensitivity("one of them"),
    ],
)
def test_bounds_that_say_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        wrong()
