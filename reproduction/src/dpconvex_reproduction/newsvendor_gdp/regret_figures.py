"""Figures 4 to 9 and Table 1: summaries, checks and drawings of the simulation."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np

from dpconvex.datasets import NewsvendorPopulation
from dpconvex_reproduction.drawing import ERRORS, OTHERS, curves, finish, panels
from dpconvex_reproduction.drawing import OURS as OUR_COLOR
from dpconvex_reproduction.exhibit import Check, PrivacyLine, Row, select, summarise
from dpconvex_reproduction.newsvendor_gdp.comparison import all_not_worse, paired
from dpconvex_reproduction.newsvendor_gdp.privacy_lines import privacy_lines
from dpconvex_reproduction.newsvendor_gdp.published import BUDGETS, REGRETS
from dpconvex_reproduction.newsvendor_gdp.simulation import (
    BOXED,
    COEFFICIENTS,
    INFORMED,
    LEVELS,
    OURS,
    PLAIN,
    PRINTED,
    SIZES,
    certified_model,
)

__all__ = [
    "draw_boxes",
    "draw_curves",
    "judge_boxes",
    "judge_curves",
    "judge_regrets",
    "privacy",
    "table_of_boxes",
    "table_of_curves",
    "table_of_regrets",
]

_CELL = ("law", "n", "quantile", "mu")
_PAPER = {"algorithm": PRINTED, "variant": "paper"}
_SOUND = {"algorithm": PRINTED, "variant": "sound"}
_PLAIN = {"algorithm": PLAIN}
_KINDS = ("algorithm", "variant", "step")
_RIVALRIES = (
    (INFORMED, _SOUND, "told what Algorithm 1 knows, is not worse than its sound version"),
    (OURS, _SOUND, "with bounds alone, is not worse than the sound version of Algorithm 1"),
    (OURS, _PAPER, "with bounds alone, is not worse than Algorithm 1 searching its step unpaid"),
)


def privacy() -> list[PrivacyLine]:
    """State the privacy of the simulation's algorithms at n = 400."""
    model = certified_model(0.5, BUDGETS[0])
    step = "The step was chosen on other samples of the same law, so it is public."
    return privacy_lines(LEVELS, BOXED, COEFFICIENTS - 1, model, step)


def table_of_curves(rows: list[Row]) -> list[Row]:
    """Return mean regret and estimation error by level, budget, algorithm and sample size."""
    keys = ["quantile", "mu", *_KINDS, "n"]
    distances = {
        tuple(line[key] for key in keys): line["distance"]
        for line in summarise(rows, keys, "distance")
    }
    lines = summarise(rows, keys, "regret")
    for line in lines:
        line["estimation error"] = distances[tuple(line[key] for key in keys)]
    return sorted(lines, key=lambda line: (line["quantile"], -(line["mu"] or 9), line["variant"]))


def _fall(rows: list[Row], value: str) -> list[Row]:
    """Say for every line of a figure whether it falls from each sample size to the next, within
    noise.
    """
    lines = []
    series = summarise(rows, ["quantile", "mu", "n"], value)
    for quantile, mu in dict.fromkeys((line["quantile"], line["mu"]) for line in series):
        path = sorted(select(series, quantile=quantile, mu=mu), key=lambda line: line["n"])
        steps = [
            b[value] <= a[value] + 2 * float(np.hypot(a["error"], b["error"]))
            for a, b in pairwise(path)
        ]
        falls = bool(steps) and all(steps) and path[-1][value] < path[0][value]
        lines.append({"quantile": quantile, "mu": mu, "falls": falls})
    return lines


def _order(rows: list[Row], by: list[str], value: str) -> list[Row]:
    """Compare each budget with the next smaller one, and the largest with no privacy."""
    lines: list[Row] = []
    for more, less in zip((None, *BUDGETS), BUDGETS, strict=False):
        left = {**_PLAIN} if more is None else {**_PAPER, "mu": more}
        lines += paired(rows, left, {**_PAPER, "mu": less}, by, value)
    return lines


def _ordered(lines: list[Row], words: str) -> tuple[bool, str]:
    holds, evidence = all_not_worse(lines)
    return holds, f"{words}: {evidence}"


def _ours(rows: list[Row]) -> list[Check]:
    checks = []
    for name, rival, words in _RIVALRIES:
        lines = paired(rows, {"algorithm": name}, rival, _CELL, "regret")
        holds, evidence = all_not_worse(lines)
        lost = [line for line in lines if line["standing"] == "worse"]
        if lost:
            evidence += f"; it loses up to n mu = {max(line['n'] * line['mu'] for line in lost):g}"
        checks.append(Check(f"DPNewsvendor, {words}, in every cell", holds, evidence, "dpconvex"))
    return checks


def judge_curves(rows: list[Row]) -> list[Check]:
    """Hold the trends of Figures 4 to 6 against the runs."""
    shown = [row for row in rows if row["variant"] in ("paper", "not private")]
    checks = []
    for value, words in (("distance", "Estimation errors"), ("regret", "Regrets")):
        lines = _fall(shown, value)
        checks.append(
            Check(
                f"{words} fall as the number of observations grows",
                bool(lines) and all(line["falls"] for line in lines),
                f"{sum(line['falls'] for line in lines)} of {len(lines)} lines, within two "
                "standard errors",
            )
        )
    order = _order(rows, ["law", "n", "quantile"], "regret")
    checks.append(
        Check(
            "Less privacy, less regret: the curves are ordered by budget at every sample size",
            *_ordered(order, "neighbouring curves, the one with more budget against the other"),
        )
    )
    return [*checks, *_ours(rows)]


def draw_curves(rows: list[Row], figure: Any) -> None:
    """Draw estimation errors above regrets, a row of panels per level, a column per budget,
    logarithmic.
    """
    shown = [
        {**row, "who": "not private" if row["algorithm"] == PLAIN else row["algorithm"]}
        for row in rows
    ]
    kinds = (("distance", "estimation error"), ("regret", "regret"))
    axes = panels(figure, len(BUDGETS), 2 * len(LEVELS), height=2.0, sharex=True, sharey="row")
    for row, ((value, words), level) in enumerate(product(kinds, LEVELS)):
        for ax, mu in zip(axes[row], BUDGETS, strict=True):
            here = [each for each in select(shown, quantile=level) if each["mu"] in (None, mu)]
            ax.set(yscale="log")
            curves(ax, here, "n", value, series=("who", "variant"))
        axes[row, 0].set_ylabel(f"{words},\nlevel {level:g}")
    for ax, mu in zip(axes[0], BUDGETS, strict=True):
        ax.set_title(f"mu = {mu:g}")
    for ax in axes[-1]:
        ax.set(xlabel="observations n", xticks=SIZES[::2])
    finish(figure, axes, columns=5, note=ERRORS)


def table_of_boxes(rows: list[Row]) -> list[Row]:
    """Return quartiles of the regret by level, budget and algorithm."""
    lines = []
    for key in dict.fromkeys(
        tuple(row.get(k) for k in ("quantile", "mu", *_KINDS)) for row in rows
    ):
        wanted = dict(zip(("quantile", "mu", *_KINDS), key, strict=True))
        regrets = [row["regret"] for row in select(rows, **wanted)]
        low, middle, high = map(float, np.quantile(regrets, [0.25, 0.5, 0.75]))
        lines.append(
            {
                **wanted,
                "lower quartile": low,
                "median": middle,
                "upper quartile": high,
                "largest": max(regrets),
                "repeats": len(regrets),
            }
        )
    return sorted(lines, key=lambda line: (line["quantile"], -(line["mu"] or 9), line["variant"]))


def _spread(line: Row) -> float:
    return float(line["upper quartile"] - line["lower quartile"])


def judge_boxes(rows: list[Row]) -> list[Check]:
    """Hold the box plots of Figures 7 to 9 against the runs: medians and widths by budget."""
    lines = table_of_boxes(rows)
    ordered = 0
    wider = 0
    steps = 0
    for level in LEVELS:
        path = [
            *select(lines, quantile=level, algorithm=PLAIN),
            *(
                line
                for mu in BUDGETS
                for line in select(lines, quantile=level, mu=mu, variant="paper")
            ),
        ]
        for a, b in pairwise(path):
            steps += 1
            ordered += int(a["median"] < b["median"])
            wider += int(_spread(a) < _spread(b))
    medians = []
    for name, rival, words in _RIVALRIES:
        pairs = [
            (a["median"], b["median"])
            for a in select(lines, algorithm=name)
            for b in select(lines, **rival, quantile=a["quantile"], mu=a["mu"])
        ]
        better = sum(bool(a <= b) for a, b in pairs)
        medians.append(
            Check(
                f"DPNewsvendor, {words}, by the median regret in every cell",
                0 < better == len(pairs),
                f"at most the rival's in {better} of {len(pairs)} cells, ratio of medians "
                f"{min((a / b for a, b in pairs), default=math.nan):.2f} to "
                f"{max((a / b for a, b in pairs), default=math.nan):.2f}",
                "dpconvex",
            )
        )
    return [
        Check(
            "The median regret grows with every step towards more privacy",
            0 < steps == ordered,
            f"{ordered} of {steps} steps",
        ),
        Check(
            "So does the spread between the quartiles",
            0 < steps == wider,
            f"{wider} of {steps} steps",
        ),
        *medians,
    ]


def draw_boxes(rows: list[Row], figure: Any) -> None:
    """Draw boxes by budget, one panel per level."""
    axes = panels(figure, len(LEVELS), sharey=True)
    kinds = (
        ("Algorithm 1, paper", _PAPER, OTHERS[0], 0.8),
        ("Algorithm 1, sound", _SOUND, OTHERS[0], 0.3),
        ("DPNewsvendor, dpconvex", {"algorithm": OURS}, OUR_COLOR, 0.8),
        ("DPNewsvendor told B and bandwidth, dpconvex", {"algorithm": INFORMED}, OUR_COLOR, 0.3),
    )
    for ax, level in zip(axes[0], LEVELS, strict=True):
        chosen = select(rows, quantile=level)
        plain = [row["regret"] for row in select(chosen, **_PLAIN)]
        _boxes(ax, [plain], [0.0], OTHERS[5], 0.6, "smoothed fit, not private")
        for index, (label, wanted, color, alpha) in enumerate(kinds):
            groups = [[row["regret"] for row in select(chosen, **wanted, mu=mu)] for mu in BUDGETS]
            places = [1.0 + k + 0.2 * (index - 1.5) for k in range(len(BUDGETS))]
            _boxes(ax, groups, places, color, alpha, label)
        ax.set(title=f"level {level:g}", yscale="log", xlim=(-0.5, len(BUDGETS) + 0.5))
        ax.set_xticks(range(len(BUDGETS) + 1), ["not\nprivate", *(f"{mu:g}" for mu in BUDGETS)])
        ax.set_xlabel("budget mu")
    axes[0, 0].set_ylabel("regret")
    finish(
        figure,
        axes,
        columns=3,
        note="Boxes: quartiles; whiskers: 1.5 times their distance; points: runs beyond.",
    )


def _boxes(
    ax: Any, groups: list[list[float]], places: list[float], color: str, alpha: float, label: str
) -> None:
    drawn = ax.boxplot(
        groups,
        positions=places,
        widths=0.17,
        patch_artist=True,
        manage_ticks=False,
        flierprops={"marker": ".", "markersize": 2, "markeredgecolor": color},
        medianprops={"color": "black"},
    )
    for box in drawn["boxes"]:
        box.set(facecolor=color, alpha=alpha)
    drawn["boxes"][0].set_label(label)


def _theory(law: str, quantile: float) -> float:
    """Return ``p tau (1 - tau) / (2 n f)``, the leading term of the regret without privacy at n
    = 400.
    """
    population = NewsvendorPopulation(COEFFICIENTS, law, quantile)
    point = float(population.theta_star[0] - population.location[0])

    def normal(std: float) -> float:
        return math.exp(-((point / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))

    if law == "t3":
        density = 2 / (math.pi * math.sqrt(3)) * (1 + point**2 / 3) ** -2
    else:
        density = normal(1) if law == "normal" else 0.9 * normal(1) + 0.1 * normal(10)
    return COEFFICIENTS * quantile * (1 - quantile) / (2 * BOXED * density)


def table_of_regrets(rows: list[Row]) -> list[Row]:
    """Return mean and standard deviation by law, level and budget, with the published ones
    beside them.
    """
    pooled = [{**row, "quantile": "all"} for row in rows]
    lines = summarise([*rows, *pooled], ["law", "quantile", "mu", "algorithm", "variant"], "regret")
    for line in lines:
        if line["variant"] in ("paper", "not private"):
            line["published"], line["published std"] = REGRETS[line["law"]][line["mu"]]
        if line["variant"] == "not private" and line["quantile"] != "all":
            line["theory"] = _theory(line["law"], line["quantile"])
    return sorted(lines, key=lambda line: (line["law"], str(line["quantile"]), -(line["mu"] or 9)))


def judge_regrets(rows: list[Row]) -> list[Check]:
    """Hold what the paper says of Table 1, and its numbers, against the runs."""
    lines = table_of_regrets(rows)
    order = _order(rows, ["law", "quantile"], "regret")
    shown = [line for line in lines if line["quantile"] != "all" and line["variant"] == "paper"]
    steady = [line["std"] / line["regret"] for line in shown]
    heavy = [
        line["regret"] / normal["regret"]
        for line in shown
        if line["law"] != "normal"
        for normal in select(shown, law="normal", quantile=line["quantile"], mu=line["mu"])
    ]
    checks = [
        Check(
            "Regret grows as the budget shrinks",
            *_ordered(
                order,
                "budgets next to each other, the larger against the smaller, by law and level",
            ),
        ),
        Check(
            "Regrets vary little at n = 400: their standard deviation is below their mean",
            bool(steady) and max(steady) < 1,
            f"at most {max(steady):.2f} of the mean; {sum(x < 1 for x in steady)} of "
            f"{len(steady)} cells",
        ),
        Check(
            "Heavy tails do little harm: at most twice the regret under normal errors",
            bool(heavy) and max(heavy) <= 2,
            f"ratio {min(heavy):.2f} to {max(heavy):.2f}",
        ),
    ]
    for variant, words in (("paper", "private"), ("not private", "not private")):
        ratios = [
            line["published"] / line["regret"]
            for line in select(lines, quantile="all", variant=variant)
        ]
        near = sum(0.5 <= ratio <= 2 for ratio in ratios)
        checks.append(
            Check(
                f"Published means, {words}: within a factor of two of ours over all levels",
                0 < near == len(ratios),
                f"{near} of {len(ratios)}; published over ours {min(ratios):.2f} to "
                f"{max(ratios):.2f}",
            )
        )
    return [*checks, *_ours(rows)]
