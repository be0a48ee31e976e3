"""Test accuracy of linear classifiers: ours, plain DP-SGD, diffprivlib, and scikit-learn without
privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from dpconvex import DPLinearSVC, DPLogisticRegression
from dpconvex.losses import Hinge, Logistic
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.peers import diffprivlib_peer
from dpconvex_reproduction.peers.clipped_sgd import SETTINGS, descend, noise_std
from dpconvex_reproduction.peers.problems import (
    CLASSIFICATION,
    DELTA,
    EPSILONS,
    Problem,
    files,
    load,
)

__all__ = ["BLOCK", "DIFFPRIVLIB", "LOGISTIC", "MODELS", "SVM", "block_seeds", "measure_problem"]

#: Seeds that one cell covers; a full run has four blocks, a quick one has the first.
BLOCK = 5
_BLOCKS = 4

#: Our estimator, the loss that DP-SGD descends, and scikit-learn's model without privacy.
MODELS: dict[str, tuple[Any, Any, Any]] = {
    "logistic": (DPLogisticRegression, Logistic(), LogisticRegression(max_iter=1000)),
    "svm": (DPLinearSVC, Hinge(), LinearSVC()),
}


def block_seeds(block: int) -> range:
    """Return the seeds of a block."""
    return range(BLOCK * block, BLOCK * (block + 1))


def blocks(quick: bool) -> range:
    """Return the blocks of seeds of a run."""
    return range(1 if quick else _BLOCKS)


def _cells(model: str, quick: bool) -> list[Cell]:
    return [
        {"data": data, "model": model, "block": block}
        for data in CLASSIFICATION
        for block in blocks(quick)
    ]


def _logistic_cells(quick: bool) -> list[Cell]:
    return _cells("logistic", quick)


def _svm_cells(quick: bool) -> list[Cell]:
    return _cells("svm", quick)


def _diffprivlib_cells(quick: bool) -> list[Cell]:
    return [
        {"data": data, "way": way, "block": block}
        for data in CLASSIFICATION
        for way in diffprivlib_peer.WAYS
        for block in blocks(quick)
    ]


def measure(cell: Cell) -> list[Row]:
    """Fit ours and DP-SGD for every epsilon and the seeds of a block; the first block adds what
    needs no seed.
    """
    problem = load(cell["data"])
    rows = measure_problem(problem, cell["model"], block_seeds(cell["block"]), EPSILONS)
    return rows + (unseeded(problem, cell["model"]) if cell["block"] == 0 else [])


def measure_problem(
    problem: Problem, model: str, seeds: Sequence[int], epsilons: Sequence[float]
) -> list[Row]:
    """Return the accuracy of our default and of DP-SGD in both settings."""
    estimator, loss, _ = MODELS[model]
    rows: list[Row] = []

    def add(name: str, variant: str, epsilon: float, seed: int, accuracy: float) -> None:
        rows.append(
            {
                "data": problem.name,
                "epsilon": epsilon,
                "algorithm": name,
                "variant": variant,
                "seed": seed,
                "accuracy": float(accuracy),
            }
        )

    for epsilon in epsilons:
        for seed in seeds:
            fitted = estimator(
                epsilon=epsilon,
                delta=DELTA,
                feature_bounds=problem.feature_bounds,
                random_state=seed,
            ).fit(problem.X, problem.y)
            accuracy = fitted.score(problem.X_test, problem.y_test)
            add(estimator.__name__, "dpconvex", epsilon, seed, accuracy)
    train = problem.with_constant(problem.X)
    test = problem.with_constant(problem.X_test)
    n = len(train)
    for number, (name, setting) in enumerate(SETTINGS.items()):
        stds = [noise_std(setting.rate(n), setting.steps(n), e, DELTA) for e in epsilons]
        for seed in seeds:
            rng = np.random.default_rng([seed, number])
            chains = descend(train, problem.y, loss, setting, stds, rng)
            right = np.where(test @ chains.T > 0, 1.0, -1.0) == problem.y_test[:, None]
            for epsilon, accuracy in zip(epsilons, right.mean(axis=0), strict=True):
                add(name, "sound", epsilon, seed, accuracy)
    return rows


def unseeded(problem: Problem, model: str) -> list[Row]:
    """Return the accuracy of scikit-learn without privacy, and of always naming the larger
    class.
    """
    plain = MODELS[model][2]
    plain.fit(problem.mapped(problem.X), problem.y)
    accuracies = {
        f"scikit-learn {type(plain).__name__}": plain.score(
            problem.mapped(problem.X_test), problem.y_test
        ),
        "larger class": max(np.mean(problem.y_test == label) for label in (-1, 1)),
    }
    return [
        {
            "data": problem.name,
            "epsilon": None,
            "algorithm": name,
            "variant": "not private",
            "seed": 0,
            "accuracy": float(accuracy),
        }
        for name, accuracy in accuracies.items()
    ]


def measure_diffprivlib(cell: Cell) -> list[Row]:
    """Fit diffprivlib for every epsilon and the seeds of a block."""
    problem = load(cell["data"])
    data = {
        "X": problem.mapped(problem.X),
        "y": problem.y,
        "X_test": problem.mapped(problem.X_test),
        "y_test": problem.y_test,
    }
    asked = [(cell["way"], epsilon, s) for epsilon in EPSILONS for s in block_seeds(cell["block"])]
    answers = diffprivlib_peer.fits(data, problem.row_norm, asked)
    return [
        {
            "data": problem.name,
            "epsilon": epsilon,
            "algorithm": "diffprivlib",
            "variant": way,
            "seed": seed,
            "accuracy": answer["accuracy"],
        }
        for (way, epsilon, seed), answer in zip(asked, answers, strict=True)
    ]


_FILES = files(CLASSIFICATION)
LOGISTIC = Study("peers/logistic", _logistic_cells, measure, _FILES)
SVM = Study("peers/svm", _svm_cells, measure, _FILES)
#: Its cells fail where diffprivlib is not installed: the page says how to, and the next run tries
#: again.
DIFFPRIVLIB = Study("peers/diffprivlib", _diffprivlib_cells, measure_diffprivlib, _FILES)
