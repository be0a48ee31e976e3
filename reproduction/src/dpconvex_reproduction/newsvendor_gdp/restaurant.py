"""Table 2: what a restaurant in Stuttgart pays for too much and too little lamb, with and
without privacy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpconvex import DPNewsvendor
from dpconvex.engine import RowMap
from dpconvex_reproduction.datasets import load_restaurant_lamb
from dpconvex_reproduction.datasets.dataset import Dataset
from dpconvex_reproduction.exhibit import Cell, Check, PrivacyLine, Row, Study, select, summarise
from dpconvex_reproduction.newsvendor_gdp.algorithm import algorithm_1, calibrated_std, noise_std
from dpconvex_reproduction.newsvendor_gdp.comparison import all_not_worse, paired, settle_steps
from dpconvex_reproduction.newsvendor_gdp.line_search import line_search_descent
from dpconvex_reproduction.newsvendor_gdp.privacy_lines import privacy_lines
from dpconvex_reproduction.newsvendor_gdp.published import BUDGETS, RESTAURANT_COSTS
from dpconvex_reproduction.newsvendor_gdp.reference import smoothed_fit
from dpconvex_reproduction.newsvendor_gdp.simulation import OURS, PLAIN, PRINTED

__all__ = ["STUDY", "judge", "measure_splits", "privacy", "table"]

Array = NDArray[np.float64]

HOLDING = 30.0
PENALTIES = tuple(RESTAURANT_COSTS)
DAYS = 736
TEST_DAYS = 184
SPLITS = 100
BLOCK = 10
#: Constant steps of the sound version in mapped units; the best one in hindsight counts.
CONSTANT_STEPS = (0.4, 0.8, 1.2, 1.6, 2.4, 3.2, 4.8)
# Public bounds of the five columns and of demand, as the loader states them: holiday, two lags,
# rain, temperature.
BOUNDS = (np.array([0.0, 0.0, 0.0, 0.0, -20.0]), np.array([1.0, 100.0, 100.0, 40.0, 40.0]))
DEMAND = (0.0, 100.0)


def _cost(penalty: float, orders: Array, demand: Array) -> float:
    short = np.maximum(demand - orders, 0)
    left = np.maximum(orders - demand, 0)
    return float(np.mean(penalty * short + HOLDING * left))


def _with_constant(X: Array) -> Array:
    return np.column_stack([np.ones(len(X)), X])


def _orders(
    X: Array, y: Array, fresh: Array, penalty: float, seed: int
) -> Iterator[tuple[str, str, float | None, float | None, Array]]:
    """Yield algorithm, variant, budget, constant step and orders for fresh days, all from the
    same past days.
    """
    level = penalty / (penalty + HOLDING)
    theta = smoothed_fit(X, y, level, unit=float(y.std()))
    yield PLAIN, "not private", None, None, _with_constant(fresh) @ theta
    # As printed: columns and demand standardised by the data's own moments, the step searched on
    # the data.
    centre = X.mean(axis=0)
    spread = X.std(axis=0)
    middle = y.mean()
    scale = y.std()
    rows, new = (_with_constant((part - centre) / spread) for part in (X, fresh))
    stds = [noise_std(level, mu) for mu in BUDGETS]
    rng = np.random.default_rng([seed, 1])
    betas = line_search_descent(rows, (y - middle) / scale, level, stds, rng)
    for mu, beta in zip(BUDGETS, betas, strict=True):
        yield PRINTED, "paper", mu, None, middle + scale * (new @ beta)
    # Soundly: mapped by the public bounds that DPNewsvendor is told, a constant step.
    row_map = RowMap.from_bounds(X.shape[1], BOUNDS)
    shift = np.array(row_map.shift)
    factor = np.array(row_map.scale)
    mapped, new = ((np.clip(part, *BOUNDS) - shift) * factor for part in (X, fresh))
    middle = sum(DEMAND) / 2
    scale = (DEMAND[1] - DEMAND[0]) / 2
    for mu in BUDGETS:
        rng = np.random.default_rng([seed, 1])
        std = calibrated_std(level, mu)
        target = (y - middle) / scale
        candidates = algorithm_1(mapped, target, level, mu, CONSTANT_STEPS, rng, std=std)
        for step, beta in zip(CONSTANT_STEPS, candidates, strict=True):
            yield PRINTED, "sound", mu, step, middle + scale * (_with_constant(new) @ beta)
        model = _model(penalty, mu).set_params(random_state=seed).fit(X, y)
        yield OURS, "dpconvex", mu, None, model.predict(fresh)


def _model(penalty: float, mu: float) -> DPNewsvendor:
    return DPNewsvendor(penalty, HOLDING, mu=mu, feature_bounds=BOUNDS, target_bounds=DEMAND)


def measure_splits(data: Dataset, cell: Cell) -> list[Row]:
    """Return the cost on the test days of every split and penalty in a block."""
    X, y = (np.asarray(part[-DAYS:], dtype=np.float64) for part in (data.X, data.y))
    table = []
    for split in range(cell["first"], cell["first"] + cell["splits"]):
        order = np.random.default_rng(split).permutation(len(y))
        test = order[:TEST_DAYS]
        train = order[TEST_DAYS:]
        for penalty in PENALTIES:
            for algorithm, variant, mu, step, orders in _orders(
                X[train], y[train], X[test], penalty, split
            ):
                row: Row = {
                    "penalty": penalty,
                    "mu": mu,
                    "seed": split,
                    "algorithm": algorithm,
                    "variant": variant,
                    "cost": _cost(penalty, orders, y[test]),
                }
                table.append(row if step is None else {**row, "step": step})
    return table


def measure(cell: Cell) -> list[Row]:
    """Measure a block of splits of the restaurant's days."""
    return measure_splits(load_restaurant_lamb(), cell)


def cells(quick: bool) -> list[Cell]:
    """List blocks of the paper's 100 partitions; a quick run has them all."""
    return [{"first": first, "splits": BLOCK} for first in range(0, SPLITS, BLOCK)]


STUDY = Study("newsvendor-gdp/restaurant", cells, measure, data=("yaz_lamb.npz",))


def _settled(rows: list[Row]) -> list[Row]:
    return settle_steps(rows, ("penalty", "mu"), "cost")


def table(rows: list[Row]) -> list[Row]:
    """Return mean costs by penalty, budget and algorithm, their surplus over no privacy, and the
    published ones.
    """
    lines = summarise(_settled(rows), ["penalty", "mu", "algorithm", "variant", "step"], "cost")
    for line in lines:
        (plain,) = select(lines, penalty=line["penalty"], algorithm=PLAIN)
        line["surplus %"] = 100 * (line["cost"] / plain["cost"] - 1)
        if line["variant"] in ("paper", "not private"):
            published = RESTAURANT_COSTS[line["penalty"]]
            line["published"] = published[line["mu"]]
            line["published surplus %"] = 100 * (published[line["mu"]] / published[None] - 1)
    return sorted(lines, key=lambda line: (line["penalty"], -(line["mu"] or 9)))


def judge(rows: list[Row]) -> list[Check]:
    """Hold what the paper says of Table 2, and its numbers, against the runs."""
    settled = _settled(rows)
    lines = table(rows)
    printed = select(lines, variant="paper")
    ours = select(lines, algorithm=OURS)
    plain = select(lines, algorithm=PLAIN)
    order: list[Row] = []
    for more, less in zip((None, *BUDGETS), BUDGETS, strict=False):
        left = {"algorithm": PLAIN} if more is None else {"variant": "paper", "mu": more}
        order += paired(settled, left, {"variant": "paper", "mu": less}, ["penalty"], "cost")
    holds, evidence = all_not_worse(order)
    words = "budgets next to each other, the larger against the smaller, by penalty"
    checks = [
        Check("Cost grows as the budget shrinks", holds, f"{words}: {evidence}"),
        _within(
            "Private costs are at most 2 % above the cost without privacy",
            printed,
            "surplus %",
            "paper",
        ),
    ]
    for words, chosen in (("without privacy", plain), ("with privacy", printed)):
        ratios = [line["published"] / line["cost"] for line in chosen]
        near = sum(abs(ratio - 1) <= 0.03 for ratio in ratios)
        checks.append(
            Check(
                f"Published costs {words} are ours to 3 %",
                0 < near == len(ratios),
                f"{near} of {len(ratios)}; published over ours {min(ratios):.3f} to "
                f"{max(ratios):.3f}",
            )
        )
    for rival, words in (
        ("sound", "the sound version of Algorithm 1"),
        ("paper", "Algorithm 1 searching its step and scaling by the data unpaid"),
    ):
        comparison = paired(
            settled, {"algorithm": OURS}, {"variant": rival}, ["penalty", "mu"], "cost"
        )
        holds, evidence = all_not_worse(comparison)
        checks.append(
            Check(
                f"DPNewsvendor is not worse than {words}, in every cell",
                holds,
                evidence,
                "dpconvex",
            )
        )
    within = "DPNewsvendor's costs are at most 2 % above the cost without privacy"
    return [*checks, _within(within, ours, "surplus %", "dpconvex")]


def _within(statement: str, lines: list[Row], key: str, about: str) -> Check:
    values = [line[key] for line in lines]
    small = sum(value <= 2 for value in values)
    evidence = f"{small} of {len(values)} cells; {min(values):.1f} to {max(values):.1f} %"
    return Check(statement, 0 < small == len(values), evidence, about)  # type: ignore[arg-type]


def privacy() -> list[PrivacyLine]:
    """State the privacy of one row, and what that means for one day."""
    levels = [penalty / (penalty + HOLDING) for penalty in PENALTIES]
    model = _model(PENALTIES[0], BUDGETS[0])
    step = (
        "The step is the best of a few in hindsight, which no private run could know: it "
        "flatters this variant."
    )
    lines = privacy_lines(
        levels, DAYS - TEST_DAYS, len(BOUNDS[0]), model, step, scaled_by_data=True
    )
    days = [
        PrivacyLine(
            f"{algorithm}, a whole day",
            variant,
            "mu per row",
            "per day at most " + ", ".join(f"{3 * mu:g} where {mu:g} is spent" for mu in BUDGETS),
            "A day's demand is the target of one row and a lag in two others: replacing the day "
            "replaces three rows, and Gaussian DP grows with their number.",
        )
        for algorithm, variant in ((f"{PRINTED}, a public step", "sound"), (OURS, "dpconvex"))
    ]
    return [*lines, *days]
