"""Runs behind Figures 1 to 3 and Table 2: AUC on the test part for every epsilon and noise seed.

All variants see the same rows, the same budget and the same seeds. A seed fixes the noise; data and
split are fixed, as in the paper, whose 60 runs repeat the randomised training.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpconvex import DPAUCClassifier
from dpconvex_reproduction.auc_erm.problems import LOSSES, ROW_NORM, problem
from dpconvex_reproduction.auc_erm.tuning import (
    BUDGETS,
    delta_of,
    minimisers,
    no_pert_penalty,
    objective_penalty,
    objective_release,
    output_penalty,
    output_release,
)
from dpconvex_reproduction.datasets import load_http, load_ijcnn1, load_satimage
from dpconvex_reproduction.exhibit import Cell, Row, Study

__all__ = ["DATA", "DEFAULT", "EPSILONS", "LEAST_SQUARES", "OBJECTIVE", "OUTPUT", "TABLE"]

#: Section 6.1.
EPSILONS = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
REPEATS = 60
DATA = ("ijcnn1", "satimage", "http")
FILES = tuple(f"{name}.npz" for name in DATA)
#: Seeds of a cell, so that it takes seconds, and cells of a quick run: few where rows are many and
#: fits take long.
_CHUNKS = {"ijcnn1": 15, "satimage": 30, "http": 12}
_QUICK = {"ijcnn1": 2, "satimage": 2, "http": 1}


def _seeds(quick: bool) -> list[Cell]:
    """Return data sets with the first and the number of seeds of a cell."""
    cells = []
    for name in DATA:
        starts = range(0, REPEATS, _CHUNKS[name])
        for start in list(starts)[: _QUICK[name] if quick else None]:
            cells.append({"data": name, "start": start, "seeds": _CHUNKS[name]})
    return cells


def _row(cell: Cell, budget: str, epsilon: float, **more: Any) -> Row:
    facts = problem(cell["data"]).facts
    return {
        "data": cell["data"],
        "n": facts.rows,
        "d": facts.features,
        "budget": budget,
        "epsilon": epsilon,
        "delta": delta_of(budget, facts),
        **more,
    }


def _runs(cell: Cell) -> range:
    return range(cell["start"], cell["start"] + cell["seeds"])


def _output(cell: Cell, loss: str) -> list[Row]:
    """Run Algorithm 1 with both constants and budgets, and the minimiser without noise."""
    name = cell["data"]
    task = problem(name)
    points = minimisers(name, loss)
    counts = task.facts.positive, task.facts.negative
    plain = no_pert_penalty(name, loss)
    best = task.score(points[plain])
    rows = []
    for budget in BUDGETS:
        label = "Output-Pert" if budget == "pure" else "Output-Pert-Delta"
        delta = delta_of(budget, task.facts)
        for epsilon in EPSILONS:
            if cell["start"] == 0:
                about: Row = {"algorithm": "No-Pert", "variant": "not private", "loss": loss}
                rows.append(
                    _row(cell, budget, epsilon, **about, penalty=plain, seed=None, auc=best)
                )
            for variant in ("paper", "sound"):
                penalty = output_penalty(name, loss, budget, variant)
                about = {"algorithm": label, "variant": variant, "loss": loss, "penalty": penalty}
                for seed in _runs(cell):
                    released = output_release(
                        points[penalty],
                        variant,
                        task.facts,
                        loss,
                        penalty,
                        epsilon,
                        delta,
                        seed,
                        counts,
                    )
                    auc = task.score(released)
                    rows.append(_row(cell, budget, epsilon, **about, seed=seed, auc=auc))
    return rows


def measure_output(cell: Cell) -> list[Row]:
    """Run Algorithm 1 with the logistic loss."""
    return _output(cell, "logistic")


def _default(cell: Cell, budget: str, algorithm: str, **settings: Any) -> list[Row]:
    task = problem(cell["data"])
    labels = np.where(task.positive, 1, -1)
    rows = []
    for epsilon in EPSILONS:
        row = _row(cell, budget, epsilon, algorithm=algorithm, variant="dpconvex")
        for seed in _runs(cell):
            model = DPAUCClassifier(
                epsilon=epsilon,
                delta=row["delta"],
                row_norm=ROW_NORM,
                min_positive=task.facts.min_positive,
                min_negative=task.facts.min_negative,
                random_state=seed,
                **settings,
            )
            model.fit(task.rows, labels)
            rows.append(
                {**row, "loss": model.loss, "seed": seed, "auc": task.score(model.coef_.ravel())}
            )
    return rows


def measure_least_squares(cell: Cell) -> list[Row]:
    """Run Algorithm 1 and our estimator with the least squares loss."""
    rows = _output(cell, "least squares")
    for budget in BUDGETS:
        ending = "" if budget == "pure" else "-Delta"
        rows += _default(cell, budget, f"DPAUCClassifier squared{ending}", loss="squared")
    return [{**row, "loss": "least squares"} for row in rows]


def measure_objective(cell: Cell) -> list[Row]:
    """Run Algorithm 2 with one kind of constants."""
    name = cell["data"]
    budget = cell["budget"]
    variant = cell["variant"]
    task = problem(name)
    objective = task.objective(LOSSES["logistic"])
    penalty = objective_penalty(name, budget, variant)
    label = "Obj-Pert" if budget == "pure" else "Obj-Pert-Delta"
    about = {"algorithm": label, "variant": variant, "loss": "logistic", "penalty": penalty}
    rows = []
    for epsilon in EPSILONS:
        row = _row(cell, budget, epsilon, **about)
        for seed in _runs(cell):
            released = objective_release(
                objective, variant, task.facts, penalty, epsilon, row["delta"], seed
            )
            rows.append({**row, "seed": seed, "auc": task.score(released)})
    return rows


def measure_default(cell: Cell) -> list[Row]:
    """Run our estimator without any tuning; with pure epsilon also with the hinge, whose slope
    is smaller.
    """
    rows = _default(cell, cell["budget"], "DPAUCClassifier")
    if cell["budget"] == "pure":
        rows += _default(cell, "pure", "DPAUCClassifier hinge", loss="hinge")
    return rows


def measure_table(cell: Cell) -> list[Row]:
    """Count rows, features and classes of a data set as it is distributed."""
    loaders = {"ijcnn1": load_ijcnn1, "satimage": load_satimage, "http": load_http}
    data = loaders[cell["data"]]()
    top = data.y.max()
    positive = int((data.y == top).sum())
    negative = int((data.y != top).sum())
    row = {
        "data": cell["data"],
        "n": len(data.y),
        "d": data.X.shape[1],
        "positive": positive,
        "negative": negative,
    }
    if data.y_test is not None:
        positive += int((data.y_test == top).sum())
        negative += int((data.y_test != top).sum())
    return [{**row, "all_positive": positive, "all_negative": negative}]


def _objective_cells(quick: bool) -> list[Cell]:
    return [
        {**cell, "budget": budget, "variant": variant}
        for cell in _seeds(quick)
        for budget in BUDGETS
        for variant in ("paper", "sound")
    ]


def _default_cells(quick: bool) -> list[Cell]:
    return [{**cell, "budget": budget} for cell in _seeds(quick) for budget in BUDGETS]


def _table_cells(quick: bool) -> list[Cell]:
    return [{"data": name} for name in DATA]


OUTPUT = Study("auc-erm/output", _seeds, measure_output, FILES)
OBJECTIVE = Study("auc-erm/objective", _objective_cells, measure_objective, FILES)
DEFAULT = Study("auc-erm/default", _default_cells, measure_default, FILES)
LEAST_SQUARES = Study("auc-erm/least-squares", _seeds, measure_least_squares, FILES)
TABLE = Study("auc-erm/data", _table_cells, measure_table, FILES)
