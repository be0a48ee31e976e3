"""Logistic regression by diffprivlib, as its documentation says and as its formula can be
proven.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.bench.method import REPLACE, Budget
from dpconvex_reproduction.bench.problems import BenchProblem
from dpconvex_reproduction.bench.remote import RemoteMethod
from dpconvex_reproduction.peers import diffprivlib_worker
from dpconvex_reproduction.peers.diffprivlib_peer import true_epsilon
from dpconvex_reproduction.peers.environments import DIFFPRIVLIB

_TURN = 2 * math.log1p(0.25)  # where its formula changes, for rows no longer than 1


def epsilon_to_ask(epsilon: float) -> float:
    """Return the most that may be asked of it for a proof of ``epsilon``, where rows are no longer
    than 1.

    Examples
    --------
    >>> [
    ...     round(true_epsilon("sound", epsilon_to_ask(epsilon), 0.0), 9)
    ...     for epsilon in (0.1, 0.3, 0.5, 4.0)
    ... ]
    [0.1, 0.3, 0.5, 4.0]
    """
    return epsilon + _TURN / 2 if epsilon > 0.75 * _TURN else 4 / 3 * epsilon


class Diffprivlib(RemoteMethod):
    """Rows ``(1, x)`` divided by their public length, for which its formula proves the whole
    budget.
    """

    name = "diffprivlib"
    relations = (REPLACE,)
    environment = DIFFPRIVLIB
    worker = str(Path(diffprivlib_worker.__file__))
    way = "sound"

    def arrays(self, problem: BenchProblem) -> dict[str, NDArray[Any]]:
        """Return mapped rows without a constant; the worker adds it."""
        return {
            "X": problem.mapped(problem.X),
            "y": problem.y,
            "X_test": problem.mapped(problem.X_test),
        }

    def request(
        self, problem: BenchProblem, budget: Budget, seed: int, setting: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a request."""
        sound = self.way == "sound"
        return {
            "epsilon": epsilon_to_ask(budget.epsilon) if sound else budget.epsilon,
            "seed": seed,
            "data_norm": 1.0 if sound else problem.row_norm,
            "fit_intercept": not sound,
            "constant": sound,
            "divisor": float(np.hypot(1.0, problem.row_norm)) if sound else 1.0,
        }

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return what can be proven of its formula."""
        asked = epsilon_to_ask(budget.epsilon) if self.way == "sound" else budget.epsilon
        proven = true_epsilon(self.way, asked, problem.row_norm)
        words = (
            "nothing is proven"
            if np.isinf(proven)
            else f"({proven:.3g}, 0)-DP is proven for an exact minimiser"
        )
        promise = f"promises ({asked:.3g}, 0)-DP, {budget.relation}"
        return f"{promise}; {words}, and its solver stops after 100 iterations"


class DiffprivlibAsDocumented(Diffprivlib):
    """Its own intercept and the row norm as ``data_norm``."""

    name = "diffprivlib, as documented"
    way = "as documented"


METHODS = (Diffprivlib(), DiffprivlibAsDocumented())
