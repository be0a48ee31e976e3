"""Bounds: constants of one record, intercept and influence weights included."""

import math

import pytest

from dpconvex.losses import Logistic
from dpconvex.privacy import LinearBounds


def facts(**changes):
    given = {
        "n_samples": 100,
        "n_features": 3,
        "loss": Logistic(),
        "row_norm": 1.0,
        "max_norm": 2.0,
        "alpha": 0.1,
    }
    return LinearBounds(**{**given, **changes})


def test_formulas_written_out():
    bounds = facts()
    assert bounds.dimension == 4
    assert bounds.lipschitz == pytest.approx(math.sqrt(2))
    assert bounds.curvature_factor == pytest.approx(max(2.0, 0.5 + 2.0))
    assert bounds.smoothness == pytest.approx(0.25 * 2.5)
    assert bounds.curvature_ratio == pytest.approx(0.25 * 2.5 / 10)
    assert bounds.minimiser_sensitivity() == pytest.approx(2 * math.sqrt(2) / 10)
    assert bounds.minimiser_sensitivity(1e-3) == pytest.approx(2 * math.sqrt(2) / 10 + 2e-2)
    add = facts(neighbors="add_or_remove_one")
    assert add.minimiser_sensitivity() == pytest.approx(math.sqrt(2) / 10)
    assert add.gradient_sum_sensitivity() == pytest.approx(math.sqrt(2))
    assert bounds.gradient_sum_sensitivity() == pytest.approx(2 * math.sqrt(2))


def test_rows_that_cannot_reach_the_influence_bound_use_their_own_length():
    short = facts(row_norm=5.0, max_norm=2.0)
    assert short.lipschitz == pytest.approx(math.sqrt(5))
    assert short.curvature_factor == pytest.approx(5.0)


def test_without_intercept_the_constant_goes():
    bounds = facts(fit_intercept=False)
    assert bounds.dimension == 3
    assert bounds.lipschitz == pytest.approx(1.0)
    assert bounds.curvature_factor == pytest.approx(2.0)


def test_tolerance_grows_where_doubles_cannot_resolve_it():
    usual = facts(n_samples=1000)
    assert usual.solver_tolerance() == pytest.approx(1e-10 * usual.lipschitz)
    huge = facts(n_samples=10**9, alpha=0.25 * 2.5 / (10**9 * 0.5))
    assert huge.solver_tolerance() > 1e-6 * huge.lipschitz


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_samples": 0}, "'n_samples'"),
        ({"n_samples": 10.0}, "'n_samples'"),
        ({"n_features": 0}, "'n_features'"),
        ({"row_norm": 0.0}, "'row_norm'"),
        ({"max_norm": math.inf}, "'max_norm'"),
        ({"alpha": -1.0}, "'alpha'"),
        ({"neighbors": "both"}, "'neighbors'"),
    ],
)
def test_impossible_facts_are_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        facts(**changes)


def test_no_penalty_means_no_sensitivity():
    with pytest.raises(ValueError, match="strong convexity"):
        facts(alpha=0.0).minimiser_sensitivity()
