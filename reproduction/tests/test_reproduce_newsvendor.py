"""The newsvendor paper's exhibits on tiny runs: rows, tables, checks that can fail, figures,
privacy.
"""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.special import ndtr

from dpconvex_reproduction.catalogue import exhibits
from dpconvex_reproduction.datasets.dataset import Dataset
from dpconvex_reproduction.exhibit import select
from dpconvex_reproduction.newsvendor_gdp import (
    attack,
    attack_checks,
    comparison,
    regret_figures,
    restaurant,
    simulation,
    smoothed_losses,
    tradeoffs,
)
from dpconvex_reproduction.newsvendor_gdp.algorithm import (
    STEPS,
    algorithm_1,
    calibrated_std,
    noise_std,
    true_mu,
)
from dpconvex_reproduction.newsvendor_gdp.line_search import line_search_descent
from dpconvex_reproduction.newsvendor_gdp.published import BUDGETS, REGRETS, RESTAURANT_COSTS
from dpconvex_reproduction.newsvendor_gdp.reference import smoothed_fit

pytestmark = pytest.mark.slow

VARIANTS = {"paper", "sound", "dpconvex", "not private"}


@pytest.fixture(scope="module")
def simulated():
    laws = ("normal", "t3", "mixture")
    cells = [{"law": law, "n": 400, "first": 0, "repeats": 2} for law in laws]
    cells.append({"law": "normal", "n": 100, "first": 0, "repeats": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "PILOTS", 2)
        rows = [row for cell in cells for row in simulation.measure(cell)]
        simulation.pilot_step.cache_clear()
    return rows


@pytest.fixture(scope="module")
def served():
    rng = np.random.default_rng(0)
    n = restaurant.DAYS
    low, high = restaurant.BOUNDS
    X = low + (high - low) * rng.beta(2, 4, (n, 5))
    y = np.clip(10 + 0.3 * X[:, 1] + 0.2 * X[:, 2] + 8 * rng.standard_normal(n), 0, 100)
    names = ("holiday", "lag7", "lag14", "rain", "temperature")
    data = Dataset("invented", X, y, names, "lamb", "", "", "", restaurant.BOUNDS)
    return restaurant.measure_splits(data, {"first": 0, "splits": 2})


@pytest.fixture(scope="module")
def curves_and_attacks():
    rows = [row for cell in tradeoffs.cells(True) for row in tradeoffs.measure(cell)]
    runs = {"paper": 150, "sound": 4000, "dpconvex": 3}
    rows += [attack.attack(variant, mu, n, 0) for variant, n in runs.items() for mu in BUDGETS]
    return rows


def altered(rows, value, factor, **wanted):
    """Return the rows with a value multiplied where they match."""
    chosen = {id(row) for row in select(rows, **wanted)}
    return [{**row, value: row[value] * factor} if id(row) in chosen else row for row in rows]


def holding(checks):
    return {check.statement: check.holds for check in checks}


def flips(judge, rows, changed):
    """Return the statements whose verdict differs between two sets of rows."""
    before = holding(judge(rows))
    after = holding(judge(changed))
    assert set(before) == set(after)
    return {statement for statement in before if before[statement] != after[statement]}


def spread_by_budget(rows, budgets=(0.9, 0.5, 0.3)):
    """Return the rows with regrets of the printed algorithm far apart, growing along the given
    budgets.
    """
    levels = {(mu, "paper"): 10.0**k for k, mu in enumerate(budgets)} | {(None, "not private"): 0.1}
    return [
        {**row, "regret": levels[key] * (1 + 0.01 * row["seed"])}
        if (key := (row["mu"], row["variant"])) in levels
        else row
        for row in rows
    ]


def draws(draw, rows):
    figure = Figure()
    draw(rows, figure)
    return len(figure.axes)


def test_the_catalogue_lists_figures_2_to_9_and_both_tables():
    listed = exhibits("newsvendor-gdp")
    labels = [f"Figure {k}" for k in range(2, 10)] + ["Table 1", "Table 2"]
    assert [exhibit.label for exhibit in listed] == labels
    for exhibit in listed:
        for study in exhibit.studies:
            quick = study.cells(True)
            full = study.cells(False)
            assert all(cell in full for cell in quick)


def test_sound_noise_is_the_printed_formula_unrounded_and_spends_mu_exactly():
    for quantile in (0.25, 0.5, 0.8):
        for mu in BUDGETS:
            std = calibrated_std(quantile, mu)
            assert std == pytest.approx(4 * max(quantile, 1 - quantile) * math.sqrt(STEPS) / mu)
            assert math.ceil(std) == noise_std(quantile, mu)
            assert true_mu(quantile, std) == pytest.approx(mu)
            assert true_mu(quantile, std, "add_or_remove_one") == pytest.approx(mu / 2)


def test_simulated_rows_have_every_variant_and_are_finite(simulated):
    assert {row["variant"] for row in simulated} == VARIANTS
    assert all(row["regret"] >= -1e-12 and math.isfinite(row["distance"]) for row in simulated)
    assert {row["step"] for row in simulated if row["variant"] == "sound"} <= set(
        simulation.CONSTANT_STEPS
    )


def test_curves(simulated):
    rows = select(simulated, law="normal")
    assert {line["n"] for line in regret_figures.table_of_curves(rows)} == {100, 400}
    assert draws(regret_figures.draw_curves, rows) == 18
    falling, rising = (altered(rows, "regret", 1e4, n=n) for n in (100, 400))
    assert any("Regrets fall" in s for s in flips(regret_figures.judge_curves, falling, rising))
    ordered = spread_by_budget(rows)
    broken = spread_by_budget(rows, (0.9, 0.3, 0.5))
    assert any(
        "ordered by budget" in s for s in flips(regret_figures.judge_curves, ordered, broken)
    )


def test_boxes(simulated):
    rows = select(simulated, law="t3")
    lines = regret_figures.table_of_boxes(rows)
    assert {line["variant"] for line in lines} == VARIANTS
    assert draws(regret_figures.draw_boxes, rows) == 3
    rising = spread_by_budget(rows)
    assert holding(regret_figures.judge_boxes(rising))[
        "The median regret grows with every step towards more privacy"
    ]
    falling = altered(rising, "regret", 1e-9, mu=0.3, variant="paper")
    assert any(
        "median regret grows" in s for s in flips(regret_figures.judge_boxes, rising, falling)
    )


def test_table_of_regrets_stands_beside_the_published(simulated):
    rows = select(simulated, n=400)
    lines = regret_figures.table_of_regrets(rows)
    (line,) = select(lines, law="t3", quantile="all", variant="paper", mu=0.3)
    assert (line["published"], line["published std"]) == REGRETS["t3"][0.3]
    bad = altered(rows, "regret", 1e3, algorithm=simulation.OURS)
    good = altered(rows, "regret", 1e-3, algorithm=simulation.OURS)
    assert sum("bounds alone" in s for s in flips(regret_figures.judge_regrets, good, bad)) == 2
    heavy = altered(rows, "regret", 100, law="t3")
    light = altered(rows, "regret", 0.01, law="t3")
    light = altered(light, "regret", 0.01, law="mixture")
    assert any("Heavy tails" in s for s in flips(regret_figures.judge_regrets, light, heavy))


def test_restaurant_rows_tables_and_checks(served):
    assert {row["variant"] for row in served} == VARIANTS
    assert all(math.isfinite(row["cost"]) and row["cost"] > 0 for row in served)
    lines = restaurant.table(served)
    (line,) = select(lines, penalty=90.0, variant="not private")
    assert line["published"] == RESTAURANT_COSTS[90.0][None]
    dear = altered(served, "cost", 2.0, variant="paper")
    even = altered(served, "cost", 0.3, variant="paper")
    assert any("2 % above" in s for s in flips(restaurant.judge, even, dear))
    ours = flips(
        restaurant.judge,
        altered(served, "cost", 0.1, algorithm=simulation.OURS),
        altered(served, "cost", 9.0, algorithm=simulation.OURS),
    )
    assert len(ours) == 3
    assert restaurant.STUDY.data == ("yaz_lamb.npz",)


def test_smoothed_losses():
    rows = [row for cell in smoothed_losses.cells(True) for row in smoothed_losses.measure(cell)]
    assert all(check.holds for check in smoothed_losses.judge(rows))
    assert len(smoothed_losses.table(rows)) == 3 * 17
    assert draws(smoothed_losses.draw, rows) == 3
    bent = [
        {**row, "loss": row["loss"] + 0.1 * math.sin(5 * row["u"])}
        if row["algorithm"] == "convolution" and row["variant"] == "paper"
        else row
        for row in rows
    ]
    assert len(flips(smoothed_losses.judge, rows, bent)) == 3


def test_an_attack_refutes_the_line_search_and_attains_the_curve_of_a_public_step(
    curves_and_attacks,
):
    """Bounds on mu are wrong with probability 1e-6 each; half the sound noise would be caught at
    mu = 0.9.
    """
    rows = curves_and_attacks
    found = holding(attack_checks.judge(rows))
    assert not found[
        "An attack does not refute the promised mu of Algorithm 1 with its line search"
    ]
    assert sum(found.values()) == len(found) - 1
    for mu in BUDGETS:
        assert select(rows, variant="paper", mu=mu, runs=150)[0]["mu_at_least"] > 1
        sound = select(rows, variant="sound", mu=mu, runs=4000)[0]
        assert sound["mu_at_least"] <= mu
        # Five standard deviations of 4000 tosses around the curve at the middle threshold.
        assert sound["type_one"] == pytest.approx(sound["type_two"], abs=0.06)
    assert draws(tradeoffs.draw, rows) == 2
    # Five seeds of one variant are five bounds, each of which may be wrong.
    more = [row for row in rows if row["variant"] == "dpconvex" and "runs" in row] * 4
    words = {check.statement: check.evidence for check in attack_checks.judge(rows + more)}
    assert (
        "1 - 3e-06)"
        in words["An attack does not refute the promised mu of Algorithm 1 with a public step"]
    )
    ours = words["An attack does not refute the promised mu of DPNewsvendor"]
    assert "15 bounds, all of them right with confidence 1 - 1.5e-05" in ours
    # Three runs notice little: what they would have noticed is said, and is far above the promise.
    assert "the attack finds nothing" in ours
    assert "would have noticed" in ours
    assert attack_checks.noticed_mu(0.3, 3) > 5
    leaky = altered(rows, "mu_at_least", 100, variant="sound")
    assert any("public step" in s for s in flips(attack_checks.judge, rows, leaky))


@pytest.mark.parametrize(("promised", "runs"), [(0.9, 300), (0.3, 300), (0.5, 4000)])
def test_what_an_attack_would_have_noticed_it_notices_in_nine_of_ten_cases(promised, runs):
    """Exact for its counts; a mu a tenth smaller is noticed less often."""
    rng = np.random.default_rng(0)

    def share(mu):
        hits = rng.binomial(runs, ndtr(mu / 2), 2000)
        false_hits = rng.binomial(runs, ndtr(-mu / 2), 2000)
        return np.mean(
            [
                attack.smallest_mu(*pair, runs) > promised
                for pair in zip(hits, false_hits, strict=True)
            ]
        )

    mu = attack_checks.noticed_mu(promised, runs)
    # Five standard deviations of 2000 tosses.
    assert share(mu) > 0.9 - 5 * (0.09 / 2000) ** 0.5
    assert share(0.85 * mu) < 0.9


def test_privacy_is_computed_and_certificates_verify():
    lines = {(line.variant, line.algorithm): line for line in regret_figures.privacy()}
    assert [variant for variant, _ in lines] == ["paper", "paper", "sound", "dpconvex"]
    searched, printed, sound, ours = lines.values()
    assert "refuted" in searched.true
    assert "0.791 where 0.9 is claimed" in printed.true or "0.791 to" in printed.true
    assert "0.9 where 0.9 is claimed" in sound.true
    assert ours.true == "as claimed: mu = 0.9, 0.5, 0.3"
    assert "moments" not in searched.why + printed.why


def test_a_day_has_a_budget_only_where_a_row_has_one():
    lines = restaurant.privacy()
    days = [line for line in lines if "per day" in line.true]
    assert [line.variant for line in days] == ["sound", "dpconvex"]
    assert all("at most 2.7 where 0.9 is spent" in line.true for line in days)
    # The scaling by the data's own moments is in everything said of the paper's version.
    assert ["own moments" in line.why for line in lines] == [True, True] + [False] * 4


def test_steps_are_settled_in_hindsight_and_comparisons_pair_seeds():
    rows = [
        {"mu": 1, "step": step, "seed": seed, "variant": "sound", "regret": regret + seed}
        for step, regret in ((1.0, 5.0), (2.0, 3.0))
        for seed in (0, 1, 2)
    ]
    kept = comparison.settle_steps(rows, ["mu"], "regret")
    assert {row["step"] for row in kept} == {2.0}
    other = [{"mu": 1, "seed": s, "variant": "paper", "regret": 3.1 + s} for s in (0, 1, 2)]
    (line,) = comparison.paired(
        kept + other, {"variant": "paper"}, {"variant": "sound"}, ["mu"], "regret"
    )
    assert not line["not_worse"]  # worse by 0.1 on every seed, though seeds differ by more
    assert line["difference"] == pytest.approx(0.1)


def test_without_noise_the_line_search_finds_the_smoothed_minimiser():
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.8, 0.8, (500, 2))  # short rows, so that nothing is truncated
    y = 1 + X @ [0.5, -0.3] + 0.3 * rng.standard_normal(500)
    rows = np.column_stack([np.ones(500), X])
    found = line_search_descent(rows, y, 0.7, [0.0], rng, steps=200)[0]
    assert found == pytest.approx(smoothed_fit(X, y, 0.7), abs=1e-3)
    constant = algorithm_1(X, y, 0.7, 1.0, [1.0], rng, steps=400, std=0.0)[0]
    assert found == pytest.approx(constant, abs=1e-3)
