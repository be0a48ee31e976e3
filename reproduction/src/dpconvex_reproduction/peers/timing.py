"""Seconds that each method takes for one fit of the same data, on one thread, with nothing
beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from sklearn.linear_model import QuantileRegressor

from dpconvex import DPQuantileRegressor
from dpconvex.losses import Pinball
from dpconvex_reproduction.exhibit import Cell, Check, Row, Study
from dpconvex_reproduction.peers import diffprivlib_peer
from dpconvex_reproduction.peers.classifiers import MODELS
from dpconvex_reproduction.peers.clipped_sgd import SETTINGS, descend, noise_std
from dpconvex_reproduction.peers.problems import DELTA, Problem, files, load
from dpconvex_reproduction.peers.quantiles import fit_statsmodels

__all__ = ["TIME", "fitting", "judge", "table"]

_EPSILON = 1.0
_QUANTILE = 0.5
_DATA = {
    "logistic": ("a9a", "covtype"),
    "svm": ("a9a", "covtype"),
    "quantile": ("bike", "census_wages"),
}
#: Method -> variant; DP-SGD is timed without the accounting of its noise.
_METHODS = {
    "logistic": ("dpconvex", *SETTINGS, "diffprivlib, as documented", "scikit-learn"),
    "svm": ("dpconvex", *SETTINGS, "scikit-learn"),
    "quantile": ("dpconvex", *SETTINGS, "scikit-learn", "statsmodels"),
}
_REPEATS = 3
_BLOCKS = 3


def _cells(quick: bool) -> list[Cell]:
    return [
        {"task": task, "data": data, "method": method, "block": block}
        for task, names in _DATA.items()
        for data in names
        for method in _METHODS[task]
        for block in range(1 if quick else _BLOCKS)
    ]


def measure(cell: Cell) -> list[Row]:
    """Fit some times, after a first fit that loads compiled code."""
    problem = load(cell["data"])
    method = cell["method"]
    # scikit-learn's default solver of quantile regression takes the better part of a minute.
    slow = cell["task"] == "quantile" and method == "scikit-learn"
    repeats = 1 if slow else _REPEATS
    if method.startswith("diffprivlib"):
        data = {"X": problem.mapped(problem.X), "y": problem.y}
        data |= {"X_test": data["X"][:10], "y_test": data["y"][:10]}
        asked = [(diffprivlib_peer.WAYS[0], _EPSILON, seed) for seed in range(repeats)]
        answers = diffprivlib_peer.fits(data, problem.row_norm, asked)
        seconds = [answer["seconds"] for answer in answers]
    else:
        fit = fitting(problem, cell["task"], method)
        if not slow:
            fit(0)
        seconds = []
        for seed in range(1, repeats + 1):
            started = time.perf_counter()
            fit(seed)
            seconds.append(time.perf_counter() - started)
    variant = {"dpconvex": "dpconvex", "scikit-learn": "not private", "statsmodels": "not private"}
    rows, columns = problem.X.shape
    return [
        {
            "task": cell["task"],
            "data": problem.name,
            "rows": rows,
            "columns": columns,
            "algorithm": method,
            "variant": variant.get(method, "peer"),
            "block": cell["block"],
            "repeat": number,
            "seconds": value,
        }
        for number, value in enumerate(seconds)
    ]


def fitting(problem: Problem, task: str, method: str) -> Callable[[int], Any]:
    """Return a function of a seed that fits once, from what its user would have in hand."""
    if method in SETTINGS:
        setting = SETTINGS[method]
        rows = problem.with_constant(problem.X)
        shift, scale = problem.target_map
        targets = (problem.y - shift) * scale
        loss = Pinball(_QUANTILE) if task == "quantile" else MODELS[task][1]
        std = noise_std(setting.rate(len(rows)), setting.steps(len(rows)), _EPSILON, DELTA)
        return lambda seed: descend(
            rows, targets, loss, setting, [std], np.random.default_rng(seed)
        )
    if method == "statsmodels":
        return lambda seed: fit_statsmodels(problem, _QUANTILE)
    if method == "scikit-learn":
        mapped = problem.mapped(problem.X)
        exact = QuantileRegressor(quantile=_QUANTILE, alpha=0)
        model = exact if task == "quantile" else MODELS[task][2]
        return lambda seed: model.fit(mapped, problem.y)
    facts: dict[str, Any] = {
        "epsilon": _EPSILON,
        "delta": DELTA,
        "feature_bounds": problem.feature_bounds,
    }
    if task == "quantile":
        facts |= {"quantile": _QUANTILE, "target_bounds": problem.target_bounds}
    ours = DPQuantileRegressor if task == "quantile" else MODELS[task][0]
    return lambda seed: ours(**facts, random_state=seed).fit(problem.X, problem.y)


def table(rows: list[Row]) -> list[Row]:
    """Return the median seconds of every method and how many times ours it takes."""
    names = ("task", "data", "rows", "columns", "algorithm", "variant")
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row["seconds"])
    medians = {key: median(values) for key, values in groups.items()}
    ours = {key[:4]: value for key, value in medians.items() if key[-1] == "dpconvex"}
    return [
        {
            **dict(zip(names, key, strict=True)),
            "median seconds": value,
            "times ours": value / ours[key[:4]] if key[:4] in ours else float("nan"),
            "fits": len(groups[key]),
        }
        for key, value in medians.items()
    ]


def judge(rows: list[Row]) -> list[Check]:
    """Return whether ours is as fast as each other method, within timing noise of a quarter."""
    lines = [line for line in table(rows) if line["variant"] != "dpconvex"]
    judged = []
    for variant, words in (("peer", "private peer"), ("not private", "fit without privacy")):
        faced = [line for line in lines if line["variant"] == variant]
        if not faced:
            continue
        slower = [line for line in faced if line["times ours"] < 0.8]
        evidence = f"{len(faced) - len(slower)} of {len(faced)}" + "".join(
            f"; slower than {line['algorithm']} on {line['data']} ({line['task']}): "
            f"{line['median seconds']:.2g} s are {line['times ours']:.2g} of ours"
            for line in slower
        )
        judged.append(
            Check(
                f"Our default takes at most 1.25 times as long as every {words}",
                not slower,
                evidence,
                about="dpconvex",
            )
        )
    return judged


TIME = Study(
    "peers/time",
    _cells,
    measure,
    files(tuple(dict.fromkeys(name for names in _DATA.values() for name in names))),
    timed=True,
)
