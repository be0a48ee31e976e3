"""Other packages on the same data in the same run: times, ratios, and passes over X.

statsmodels, quantes and diffprivlib are optional. Each is looked for next to dpconvex, or in the
environment whose Python is named by ``DPCONVEX_BENCH_STATSMODELS``, ``DPCONVEX_BENCH_QUANTES`` or
``DPCONVEX_BENCH_DIFFPRIVLIB``; a package that is not found is skipped, which is said.

Ours ends with a certified gradient; others stop by their own rules. quantes solves the same
smoothed problem without ridge, statsmodels and scikit-learn the kinked one, diffprivlib the same
private problem by its own mechanism.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import Measurement, Skipped, best_time, one_time
from benchmarks.solver_speed import ALPHA, BANDWIDTH, QUANTILE, RELATIVE, make_data, scipy_run
from dpconvex import DPLogisticRegression
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.solvers import Newton

N = 20_000
D = 20
SETUP = """
import sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
data = np.load(sys.argv[1])
X, y, labels = data["X"], data["y"], data["labels"]
"""
FITS = {
    "statsmodels": f"""
from statsmodels.regression.quantile_regression import QuantReg
rows = np.column_stack([np.ones(len(y)), X])
def fit(): QuantReg(y, rows).fit(q={QUANTILE})
""",
    "quantes": f"""
from quantes.linear import low_dim
def fit(): low_dim(X, y, intercept=True).fit(tau={QUANTILE}, h={BANDWIDTH}, kernel="Logistic")
""",
    "diffprivlib": """
from diffprivlib.models import LogisticRegression
def fit(): LogisticRegression(epsilon=1.0, data_norm=1.0, max_iter=1000).fit(X, labels)
""",
}
TIMING = """
times = []
while len(times) < 3 and sum(times) < 2:
    begin = time.perf_counter()
    fit()
    times.append(time.perf_counter() - begin)
print(min(times))
"""


def interpreter(package: str) -> str | None:
    """Return the Python that has a package."""
    named = os.environ.get(f"DPCONVEX_BENCH_{package.upper()}")
    if named:
        return named
    return sys.executable if importlib.util.find_spec(package) else None


def seconds(command: list[str]) -> float:
    """Return the time that a command prints, with one BLAS thread or all, whichever is faster.

    On a busy machine many threads wait for each other; that must not count against a rival.
    """
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **single})
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    found = float(done.stdout.split()[-1])
    with contextlib.suppress(subprocess.SubprocessError):
        limit = 20 + 5 * found
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit)
        found = min(found, float(done.stdout.split()[-1]))
    return found


def against(
    package: str, what: str, ours: Callable[[], object], data: dict[str, np.ndarray], passes: str
) -> Iterator[Measurement | Skipped]:
    """Compare with a package in a process of its own; ours is timed right before and after."""
    python = interpreter(package)
    if python is None:
        variable = f"DPCONVEX_BENCH_{package.upper()}"
        yield Skipped(
            package, f"pip install {package}, or set {variable} to the Python that has it"
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "data.npz"
        np.savez(place, **data)
        before = best_time(ours)
        try:
            theirs = seconds([python, "-c", SETUP + FITS[package] + TIMING, str(place)])
        except RuntimeError as error:
            yield Skipped(package, f"it failed: {error}")
            return
        mine = max(before, best_time(ours))
    yield Measurement(
        f"{what} / {package}, n=2e4 d=20",
        mine / theirs,
        detail=f"{mine:.3f} s{passes} / {theirs:.3f} s",
    )


def run() -> Iterator[Measurement | Skipped]:
    X, y = make_data(N, D, 1.0)
    loss = convolve(Pinball(QUANTILE), LogisticKernel(), BANDWIDTH)
    row_map = RowMap.from_bounds(D, (-5.0, 5.0))
    counted: list[float] = []

    def ours() -> object:
        objective = EmpiricalObjective(MemoryRows(X, y, row_map), loss, ALPHA)
        found = Newton().solve(objective, np.zeros(D + 1), RELATIVE * objective.gradient_bound)
        counted.append(objective.passes)
        return found

    ours()
    passes = f" ({counted[-1]:.1f} passes over X)"
    objective = EmpiricalObjective(MemoryRows(X, y, row_map), loss, ALPHA)
    before = best_time(ours)
    theirs = scipy_run(*objective.rows.mapped(), RELATIVE * objective.gradient_bound)
    mine = max(before, one_time(ours))
    yield Measurement(
        "Newton / scipy L-BFGS-B, n=2e4 d=20",
        mine / theirs.seconds,
        detail=f"{mine:.3f} s{passes} / {theirs.seconds:.3f} s ({theirs.evaluations} passes)",
    )
    labels = np.where(X[:, 0] + np.random.default_rng(1).logistic(size=N) > 0, 1, 0)
    short = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    data = {"X": X, "y": y, "labels": labels}
    for package in ("statsmodels", "quantes"):
        yield from against(package, "Newton", ours, data, passes)

    def private() -> object:
        # Not seeded: what is timed is what is used.
        return DPLogisticRegression(epsilon=1.0, delta=0.0, row_norm=1.0).fit(short, labels)

    private()
    yield from against("diffprivlib", "private logistic fit", private, {**data, "X": short}, "")
