"""Test pinball loss of linear quantile regression: ours, plain DP-SGD, scikit-learn and
statsmodels without privacy.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import mean_pinball_loss

from dpconvex import DPQuantileRegressor
from dpconvex.losses import Pinball
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.peers.classifiers import block_seeds, blocks
from dpconvex_reproduction.peers.clipped_sgd import SETTINGS, descend, noise_std
from dpconvex_reproduction.peers.problems import (
    DELTA,
    EPSILONS,
    QUANTILES,
    REGRESSION,
    Problem,
    files,
    load,
)

__all__ = ["QUANTILE", "REFERENCE", "STATSMODELS", "fit_statsmodels", "measure_problem", "relative"]

#: Without privacy, exact: what every loss is divided by.
REFERENCE = "scikit-learn QuantileRegressor"


def _cells(quick: bool) -> list[Cell]:
    return [
        {"data": data, "quantile": quantile, "block": block}
        for data in REGRESSION
        for quantile in QUANTILES
        for block in blocks(quick)
    ]


def _once(quick: bool) -> list[Cell]:
    return [{"data": data, "quantile": quantile} for data in REGRESSION for quantile in QUANTILES]


def _row(
    problem: Problem, quantile: float, epsilon: float | None, name: str, variant: str, seed: int
) -> Row:
    return {
        "data": problem.name,
        "quantile": quantile,
        "epsilon": epsilon,
        "algorithm": name,
        "variant": variant,
        "seed": seed,
    }


def measure(cell: Cell) -> list[Row]:
    """Fit ours and DP-SGD for every epsilon and the seeds of a block; the first block adds what
    needs no seed.
    """
    problem = load(cell["data"])
    quantile = cell["quantile"]
    rows = measure_problem(problem, quantile, block_seeds(cell["block"]), EPSILONS)
    return rows + (unseeded(problem, quantile) if cell["block"] == 0 else [])


def measure_problem(
    problem: Problem, quantile: float, seeds: Sequence[int], epsilons: Sequence[float]
) -> list[Row]:
    """Return the test loss of our default and of DP-SGD in both settings, in the target's units."""
    rows = []
    for epsilon in epsilons:
        for seed in seeds:
            fitted = DPQuantileRegressor(
                quantile,
                epsilon=epsilon,
                delta=DELTA,
                feature_bounds=problem.feature_bounds,
                target_bounds=problem.target_bounds,
                random_state=seed,
            ).fit(problem.X, problem.y)
            row = _row(problem, quantile, epsilon, "DPQuantileRegressor", "dpconvex", seed)
            rows.append({**row, "loss": _loss(problem, quantile, fitted.predict(problem.X_test))})
    train = problem.with_constant(problem.X)
    test = problem.with_constant(problem.X_test)
    shift, scale = problem.target_map
    n = len(train)
    for number, (name, setting) in enumerate(SETTINGS.items()):
        stds = [noise_std(setting.rate(n), setting.steps(n), e, DELTA) for e in epsilons]
        for seed in seeds:
            rng = np.random.default_rng([seed, number])
            targets = (problem.y - shift) * scale
            chains = descend(train, targets, Pinball(quantile), setting, stds, rng)
            for epsilon, theta in zip(epsilons, chains, strict=True):
                row = _row(problem, quantile, epsilon, name, "sound", seed)
                loss = _loss(problem, quantile, test @ theta / scale + shift)
                rows.append({**row, "loss": loss})
    return rows


def _loss(problem: Problem, quantile: float, predicted: NDArray[Any]) -> float:
    return float(mean_pinball_loss(problem.y_test, predicted, alpha=quantile))


def unseeded(problem: Problem, quantile: float) -> list[Row]:
    """Return the test loss of the exact fit without privacy, and of the best constant."""
    # The interior-point method finds the same optimum as the default in a tenth of its time.
    exact = QuantileRegressor(quantile=quantile, alpha=0, solver="highs-ipm")
    exact.fit(problem.mapped(problem.X), problem.y)
    predictions = {
        REFERENCE: exact.predict(problem.mapped(problem.X_test)),
        "constant": np.full(len(problem.y_test), np.quantile(problem.y, quantile)),
    }
    return [
        {
            **_row(problem, quantile, None, name, "not private", 0),
            "loss": _loss(problem, quantile, predicted),
        }
        for name, predicted in predictions.items()
    ]


def fit_statsmodels(problem: Problem, quantile: float) -> NDArray[np.float64]:
    """Return statsmodels' coefficients of the mapped rows, the constant first.

    Raises
    ------
    RuntimeError
        If statsmodels is not installed.
    """
    try:
        peer = importlib.import_module("statsmodels.regression.quantile_regression")
    except ImportError as error:
        raise RuntimeError("statsmodels is not installed.") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops at the limit of its iterations, close enough
        fitted = peer.QuantReg(problem.y, problem.with_constant(problem.X)).fit(q=quantile)
    return np.asarray(fitted.params, dtype=float)


def measure_statsmodels(cell: Cell) -> list[Row]:
    """Fit statsmodels once."""
    problem = load(cell["data"])
    quantile = cell["quantile"]
    theta = fit_statsmodels(problem, quantile)
    row = _row(problem, quantile, None, "statsmodels QuantReg", "not private", 0)
    loss = _loss(problem, quantile, problem.with_constant(problem.X_test) @ theta)
    return [{**row, "loss": loss}]


def relative(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with ``ratio``, the loss over that of the exact fit without privacy.

    Examples
    --------
    >>> exact = {"data": "a", "quantile": 0.5, "algorithm": REFERENCE, "loss": 2.0}
    >>> relative([exact, {"data": "a", "quantile": 0.5, "algorithm": "ours", "loss": 3.0}])[1][
    ...     "ratio"
    ... ]
    1.5
    """
    exact = {(r["data"], r["quantile"]): r["loss"] for r in rows if r["algorithm"] == REFERENCE}
    return [
        {**row, "ratio": row["loss"] / exact[row["data"], row["quantile"]]}
        for row in rows
        if (row["data"], row["quantile"]) in exact
    ]


_FILES = files(REGRESSION)
QUANTILE = Study("peers/quantile", _cells, measure, _FILES)
#: Its cells fail where statsmodels is not installed: the page says so.
STATSMODELS = Study("peers/statsmodels", _once, measure_statsmodels, _FILES)
