"""How often confidence intervals of private coefficients hold what they are about, and how long
they are.

Laws of least squares and of the median: normal errors; Student's with 3 degrees of freedom (heavy);
a centred log-normal law (skewed); the same with a spread of ``exp(0.3 x)`` in the first column, as
wealth has; normal ones whose spread is ``0.3 + 0.7 |x|`` (unequal); two flags that 1 % of the rows
have (flags). Laws of classes: a logistic law (normal); columns with the tails of Student's law
(heavy); 5 % of positive labels (skewed); flags. Intervals are about the coefficients that rows were
drawn with, which are those of ordinary least squares, too.

Over 200 fits, intervals of 95 % should hold 93 to 98 % of a cell's coefficients, and those of no
single column less than 90 % of them. Lengths are relative to intervals without privacy of the same
rows: sandwich ones of least squares and of logistic regression, and those that know the density of
the errors for the median. Of normal errors, those of least squares should be at most 1.3 times as
long as sampling and the known noise of a fit without intervals make them.

    python -m benchmarks.inference --fits 200 --tasks linear --results inference.json

Results are kept in a file: what is interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks import Measurement
from dpconvex import DPLinearRegression, DPLogisticRegression, DPQuantileRegressor
from dpconvex.fit.fit_plan import FitConfig, planned_gradient_noise

Array = NDArray[np.float64]

FITS = 200
REACH = 5.0
TARGET = (-20, 20)
ALLOWANCE = 1.3
COLUMN_FLOOR = 0.9
LAWS = {
    "linear": ("normal", "heavy", "skewed", "wealth", "unequal", "flags"),
    "median": ("normal", "heavy", "skewed", "unequal", "flags"),
    "logistic": ("normal", "heavy", "skewed", "flags"),
}
SHAPES = [(n, d, epsilon) for n in (5_000, 20_000) for d in (5, 20) for epsilon in (1.0, 3.0)]
Cell = tuple[str, str, int, int, float]


def made(
    task: str, law: str, rng: np.random.Generator, n: int, d: int
) -> tuple[Array, Array, Array, Array]:
    """Rows, targets, true coefficients, and the density of each row's error at 0."""
    X = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(n, 1))
    if law == "flags":
        X[:, -2:] = rng.random((n, 2)) < 0.01
    if law == "heavy" and task == "logistic":
        X[:, ::2] = rng.standard_t(3, size=X[:, ::2].shape)
    X = X.clip(-REACH, REACH)
    truth = 0.7 * np.linspace(1, -1, d) / math.sqrt(d / 5)
    score = X @ truth
    if task == "logistic":
        shift = 3.6 if law == "skewed" else 0.5
        return X, (rng.random(n) < expit(score - shift)).astype(float), truth, np.ones(n)
    spread = np.ones(n)
    density = 1 / math.sqrt(2 * math.pi)
    error = rng.normal(size=n)
    if law == "heavy":
        error = rng.standard_t(3, n)
        density = 2 / (math.pi * math.sqrt(3))
    if law in ("skewed", "wealth"):
        error = np.exp(error) - (math.exp(0.5) if task == "linear" else 1.0)
        spread = np.exp(0.3 * X[:, 0]) if law == "wealth" else spread
    if law == "unequal":
        spread = 0.3 + 0.7 * np.abs(X[:, 0])
    return X, 2 + score + spread * error, truth, density / spread


def plain_errors(task: str, X: Array, y: Array, density: Array) -> Array:
    """Standard errors without privacy of the same rows."""
    A = np.column_stack([np.ones(len(X)), X])
    theta = np.zeros(A.shape[1])
    if task == "median":
        H = (A * density[:, None]).T @ A
        S = A.T @ A / 4
    elif task == "linear":
        H = A.T @ A
        theta = np.linalg.solve(H, A.T @ y)
        scores = A * (y - A @ theta)[:, None]
        S = scores.T @ scores
    else:
        for _ in range(8):
            chance = expit(A @ theta)
            H = (A * (chance * (1 - chance))[:, None]).T @ A
            theta = theta - np.linalg.solve(H, A.T @ (chance - y))
        scores = A * (y - expit(A @ theta))[:, None]
        S = scores.T @ scores
    inverse = np.linalg.inv(H)
    return np.sqrt(np.diag(inverse @ S @ inverse))[1:]


def model_of(
    task: str, epsilon: float, inference: bool = True, **more: object
) -> DPLinearRegression:
    """The estimator of a task."""
    facts = {"epsilon": epsilon, "feature_bounds": (-REACH, REACH), "inference": inference, **more}
    if task == "logistic":
        return DPLogisticRegression(**facts)
    return (DPLinearRegression if task == "linear" else DPQuantileRegressor)(
        target_bounds=TARGET, **facts
    )


def known_length(n: int, d: int, epsilon: float) -> float:
    """Length by sampling and the known noise of a fit without intervals, over that of sampling:
    unit errors.
    """
    certificate = model_of("linear", epsilon, inference=False).certify(n, d)
    config = FitConfig(**certificate.parameters["fit"])
    return math.hypot(
        1, planned_gradient_noise(config, certificate.noise, certificate.bounds) * math.sqrt(n)
    )


def one_fit(cell: Cell, seed: int) -> tuple[list[int], list[float]]:
    """Which intervals hold their coefficient, and their lengths over those without privacy."""
    task, law, n, d, epsilon = cell
    X, y, truth, density = made(task, law, np.random.default_rng([seed, n, d]), n, d)
    found = (
        model_of(task, epsilon, random_state=seed).fit(X, y).confidence_interval().reshape(-1, 2)
    )
    held = (found[:, 0] <= truth) & (truth <= found[:, 1])
    lengths = (found[:, 1] - found[:, 0]) / (2 * 1.959964 * plain_errors(task, X, y, density))
    return held.astype(int).tolist(), np.round(lengths, 3).tolist()


def run(
    cell: Cell, fits: int, results: dict[str, list[tuple[list[int], list[float]]]]
) -> list[Measurement]:
    """What a cell shows, with as many new fits as it lacks."""
    task, law, n, d, epsilon = cell
    name = f"{task}, {law}, {n:,} rows, {d} columns, epsilon {epsilon:g}"
    try:
        model_of(task, epsilon).certify(n, d)
    except ValueError as refusal:
        return [Measurement(f"{name}: refused", 0.0, detail=str(refusal))]
    done = results.setdefault(name, [])
    done += [one_fit(cell, seed) for seed in range(len(done), fits)]
    held = np.array([fit[0] for fit in done])
    lengths = np.array([fit[1] for fit in done])
    share = float(held.mean())
    middle = float(np.median(lengths, axis=0).mean())
    columns = held.mean(axis=0)
    longest = np.median(lengths, axis=0).max()
    detail = f"length {middle:.2f}, longest column {longest:.2f}"
    found = [
        Measurement(
            f"{name}: held", share, 0.93, at_most=False, detail=f"{detail}, {len(done)} fits"
        ),
        Measurement(f"{name}: held at most", share, 0.98),
        Measurement(
            f"{name}: worst column",
            float(columns.min()),
            COLUMN_FLOOR,
            False,
            f"column {columns.argmin()}",
        ),
    ]
    if (task, law) == ("linear", "normal"):
        found.append(
            Measurement(f"{name}: length", middle, ALLOWANCE * known_length(n, d, epsilon))
        )
    return found


def measure(
    fits: int = FITS, tasks: tuple[str, ...] = tuple(LAWS), results: Path | None = None
) -> Iterator[Measurement]:
    """Yield coverage and relative length, cell by cell; cells whose rows are too few say so."""
    known = json.loads(results.read_text()) if results is not None and results.exists() else {}
    for task in tasks:
        for law in LAWS[task]:
            for shape in SHAPES:
                yield from run((task, law, *shape), fits, known)
                if results is not None:
                    results.write_text(json.dumps(known))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=FITS)
    parser.add_argument("--tasks", nargs="+", default=list(LAWS), choices=list(LAWS))
    parser.add_argument("--results", type=Path)
    chosen = parser.parse_args()
    for found in measure(chosen.fits, tuple(chosen.tasks), chosen.results):
        if "held at most" not in found.name:
            limit = (
                f" (at {'most' if found.at_most else 'least'} {found.bar:.2f})"
                if found.bar is not None
                else ""
            )
            print(f"{found.name:<64} {found.value:6.3f}{limit}  {found.detail}", flush=True)
