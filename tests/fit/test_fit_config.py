"""The plan of a fit: shares of the whole budget, few releases, limits that open without jumps.
Public facts only.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dpconvex.fit.fit_plan import (
    FitConfig,
    fit_kind_of_loss,
    plan_fit,
    planned_gradient_noise,
    planned_mass_share,
    planned_quantile_level,
    small_budget_weight,
)
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball, ReLU, Squared
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.privacy import LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve

LOSSES = [Pinball(0.5), Pinball(0.9), Huber(0.3), Logistic(), Hinge(), Squared()]
SETTINGS = NoisyGradientDescent().settings()
SIZES = np.unique(np.geomspace(20, 1e7, 270).astype(int)).tolist()


def facts(loss, n, d=3, **more):
    return LinearBounds(n, d, loss, math.sqrt(d), math.sqrt(d), **more)


@pytest.mark.parametrize("mu", [1e-9, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("rows", [{}, {"weighted_rows": True}, {"ignored_rows": True}])
def test_shares_sum_to_one_and_something_is_left_for_every_phase(loss, rows, mu):
    choices = [{}, {"inference": True}, {"raw_target": True}, {"ranking": True}]
    if type(loss) is Pinball:
        choices += [{"levels": (0.1, 0.5, 0.9)}, {"levels": (0.1, 0.9), "targets": 2}]
    for n in (1, 5, 50, 5_000, 10**7):
        for d in (1, 30, 3000):
            for chosen in choices:
                if chosen.get("inference") and "weighted_rows" in rows:
                    continue
                plan = plan_fit(facts(loss, n, d, **rows), mu, {**SETTINGS, **chosen})
                assert plan.shares.keys() == plan.queries.keys()
                assert min(plan.shares.values()) > 0
                assert math.fsum(plan.shares.values()) == pytest.approx(1)
                assert plan.shares["gradients"] > 1e-3
                assert ("mass" in plan.shares) == bool(rows)


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_one_fit_has_at_most_60_releases_in_10_lines(loss, neighbors):
    for n, d, mu in itertools.product((50, 5_000, 10**7), (1, 50, 3000), (0.01, 1.0, 100.0)):
        for rows in ({}, {"weighted_rows": True}, {"ignored_rows": True}):
            bounds = facts(loss, n, d, neighbors=neighbors, **rows)
            queries = plan_fit(bounds, mu, SETTINGS).queries
            assert sum(number for _, number in queries.values()) <= 60 + bool(rows)
            assert len(queries) <= 10 + bool(rows)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_effort_varies_without_jumps(loss):
    """Shares and limits move by a few per cent when the number of rows does by five; late rounds
    begin small.
    """
    plans = [plan_fit(facts(loss, n), 0.3, SETTINGS) for n in SIZES]
    for plan, larger in itertools.pairwise(plans):
        assert larger.queries.keys() - plan.queries.keys() <= {"curvature", "late gradients"}
        for name, share in larger.shares.items():
            before = plan.shares.get(name, 0.0)
            assert 0.85 * before < share < 1.18 * before + 0.012
            assert name not in plan.queries or larger.queries[name][1] == plan.queries[name][1]
    assert "curvature" not in plans[0].queries
    assert "curvature" in plans[-1].queries


@pytest.mark.parametrize("name", ["clip", "late_clip", "width", "radius_multiple"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_limits_open_with_records(loss, name):
    """More rows, more budget, or fewer columns never tighten a limit, so that a fit is
    consistent.
    """
    found = [getattr(plan_fit(facts(loss, n), 0.3, SETTINGS).config, name) for n in SIZES]
    assert found == sorted(found)
    assert found[-1] > 2 * found[0] or (name == "width" and type(loss) is not Squared)
    assert found[-1] < 1e3
    richer = [
        getattr(plan_fit(facts(loss, 5000), mu, SETTINGS).config, name) for mu in (0.1, 1, 10)
    ]
    assert richer == sorted(richer)
    narrower = [
        getattr(plan_fit(facts(loss, 5000, d), 1.0, SETTINGS).config, name) for d in (50, 9, 1)
    ]
    assert narrower == sorted(narrower)


def test_noise_of_gradients_falls_with_budget_and_rows():
    for loss in LOSSES:
        for first, second in itertools.pairwise([(500, 0.1), (500, 0.3), (5000, 0.3), (5000, 3.0)]):
            noise = []
            for n, mu in (first, second):
                bounds = facts(loss, n)
                plan = plan_fit(bounds, mu, SETTINGS)
                noise.append(
                    planned_gradient_noise(plan.config, plan.calibrated_noise(bounds, mu), bounds)
                )
            assert noise[1] < noise[0]


def test_parts_of_the_rows_are_public_and_grow_with_them():
    for loss in (Pinball(0.5), Logistic()):
        parts = [plan_fit(facts(loss, n), 1.0, SETTINGS).config for n in (10_000, 10**6, 10**8)]
        assert parts[0].geometry_rows is parts[0].early_rows is None
        assert 30_000 < parts[1].geometry_rows <= parts[2].geometry_rows < 210_000
        assert parts[1].early_rows < parts[2].early_rows < 10**8
        private = facts(loss, 10**8, neighbors="add_or_remove_one")
        config = plan_fit(private, 1.0, SETTINGS).config
        assert config.geometry_rows is config.early_rows is None


def test_intervals_are_of_all_rows_and_released_curvature():
    config = plan_fit(facts(Squared(), 10**7), 1.0, {**SETTINGS, "inference": True}).config
    assert config.geometry_rows is config.early_rows is None
    assert config.width >= 10  # limits open with the records per coefficient
    few = plan_fit(facts(Squared(), 30), 0.1, {**SETTINGS, "inference": True})
    assert {"curvature", "late gradients", "scores", "limits"} <= set(few.queries)
    assert few.config.width < 2.5 < config.width


def test_levels_share_and_state_what_they_share():
    one = plan_fit(facts(Pinball(0.5), 5000), 1.0, SETTINGS)
    levels = (0.1, 0.5, 0.9)
    for targets in (1, 3):
        plan = plan_fit(
            facts(Pinball(0.5), 5000), 1.0, {**SETTINGS, "levels": levels, "targets": targets}
        )
        assert plan.config.fits == 3
        assert plan.queries["gradients"][1] == 3 * one.queries["gradients"][1]
        assert plan.queries["rough gradients"][1] == targets * one.queries["rough gradients"][1]
        assert plan.queries["columns"][1] == 1
        assert "mean row" in plan.queries
        assert plan.config.records_per_coefficient < one.config.records_per_coefficient
        stated = plan.config.stated()
        assert stated["levels"] == list(levels)
        assert FitConfig(**stated) == plan.config
    medians = plan_fit(
        facts(Pinball(0.5), 5000), 1.0, {**SETTINGS, "levels": (0.5, 0.5), "targets": 2}
    )
    assert "mean row" not in medians.queries  # of which none needs it


@pytest.mark.parametrize(
    "wrong",
    [
        {"records_per_coefficient": 0.0},
        {"records_per_coefficient": math.inf},
        {"records_per_coefficient": math.nan},
        {"clip": -1.0},
        {"width": 0.0},
        {"late_clip": "1"},
        {"geometry_rows": 0},
        {"geometry_rows": 2.5},
        {"early_rows": True},
        {"max_octaves": -1},
        {"max_octaves": 1.0},
        {"ranking": 1},
        {"inference": None},
        {"raw_target": "yes"},
        {"levels": (0.0, 0.5)},
        {"levels": (0.5, 1.0)},
        {"levels": ("a",)},
        {"levels": (0.1, 0.9), "targets": 3},
        {"targets": 2},
        {"eigenvalue_floor": math.nan},
        {"radius_multiple": 0},
    ],
)
def test_choices_are_checked(wrong):
    """What a certificate states is read from files of strangers."""
    with pytest.raises((ValueError, TypeError)):
        FitConfig(**{"records_per_coefficient": 10.0, **wrong})


def test_kinds_and_levels_of_losses():
    smooth = convolve(Pinball(0.9), LogisticKernel(), 0.1)
    kinds = {
        "margin": [Logistic(), Hinge(), convolve(Hinge(), LogisticKernel(), 0.1)],
        "squares": [Squared()],
        "quantile": [Pinball(0.9), Absolute(), ReLU()],
        "smooth": [Huber(0.3), smooth],
    }
    for kind, losses in kinds.items():
        assert {fit_kind_of_loss(loss) for loss in losses} == {kind}
    levels = [
        planned_quantile_level(loss)
        for loss in (Pinball(0.9), smooth, Absolute(), Squared(), Hinge())
    ]
    assert levels == pytest.approx([0.9, 0.9, 0.5, 0.5, 0.5])
    assert 0 < planned_quantile_level(ReLU()) < 1  # one-sided: near the end, and not there


def test_columns_are_looked_for_as_far_as_they_may_reach():
    assert plan_fit(facts(Squared(), 10, 7), 1.0, SETTINGS).config.max_octaves == 0
    assert (
        plan_fit(LinearBounds(10, 4, Squared(), 1.0, 2 * 1024.0), 1.0, SETTINGS).config.max_octaves
        == 10
    )


def test_few_records_are_a_constant():
    sizes = np.geomspace(1e-6, 1e9, 200)
    shares = [small_budget_weight(size) for size in sizes]
    assert shares == sorted(shares, reverse=True)
    assert small_budget_weight(80.0) == 0.5
    assert shares[-1] < 1e-6 < 0.999 < shares[0]
    for size in sizes:  # at least min(0.25, (50 / (n mu))^2)
        assert 0.25 >= planned_mass_share(size) >= min(0.25, (50 / size) ** 2)


def test_ignored_rows_leave_shares_of_the_rest_alone():
    plain, ignored = (
        plan_fit(replace(facts(Pinball(0.7), 5000), ignored_rows=void), 1.0, SETTINGS).shares
        for void in (False, True)
    )
    left = 1 - ignored["mass"]
    for name, share in plain.items():
        assert ignored[name] == pytest.approx(left * share, rel=1e-6)
