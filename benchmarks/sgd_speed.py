"""Stochastic descent with n^2 steps, against what numpy needs to draw its normals alone, on one
core.

n = 5000, so 25,000,000 steps of one record each, with 3 and with 51 coefficients, as in the
quantile-regression paper, which reports 1,575 and 1,600 seconds. Both sides run on one thread and
are timed by the processor time they take, in slices, one after the other, so that a machine that is
busy for a moment slows down both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import Measurement
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Pinball
from dpconvex.mechanisms import NoisySGD
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve

ROWS = 5000
SLICES = 10


def processor_time(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def measure_dimension(dimension: int) -> Measurement:
    rng = np.random.default_rng(0)
    features = dimension - 1
    X = rng.uniform(-1, 1, size=(ROWS, features))
    y = X @ rng.normal(size=features) / math.sqrt(features) + 0.3 * rng.normal(size=ROWS)
    loss = convolve(Pinball(0.7), LogisticKernel(), 0.1)
    row_map = RowMap.from_bounds(features, (-1.0, 1.0))
    objective = EmpiricalObjective(MemoryRows(X, y, row_map, threads=1), loss, 0.0)
    bounds = LinearBounds(ROWS, features, loss, row_map.row_norm, row_map.max_norm)
    steps = ROWS**2 // SLICES
    mechanism = NoisySGD(steps=steps, step_size=1e-4)
    certificate = mechanism.certify(bounds, ApproxDP(1.0, 1e-2))
    mechanism.release(objective, NoisySGD(steps=100).certify(bounds, ApproxDP(1.0, 1e-2)))
    generator = np.random.default_rng()
    buffer = np.empty((65536 // dimension, dimension))

    def draw() -> None:
        for start in range(0, steps, len(buffer)):
            generator.standard_normal(out=buffer[: steps - start])

    ours = drawing = 0.0
    for _ in range(SLICES):
        drawing += processor_time(draw)
        ours += processor_time(lambda: mechanism.release(objective, certificate))
    detail = f"{SLICES * steps:,} steps {ours:.2f} s, their normals {drawing:.2f} s"
    return Measurement(f"SGD, d={dimension}, time over normals", ours / drawing, 1.5, detail=detail)


def run() -> Iterator[Measurement]:
    yield measure_dimension(3)
    yield measure_dimension(51)
