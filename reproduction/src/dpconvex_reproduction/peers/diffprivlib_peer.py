r"""diffprivlib's logistic regression in an environment of its own, and the privacy it truly has.

diffprivlib 0.6.6 does not import with current scikit-learn; :mod:`environments` says where it
lives.

Its logistic regression minimises ``J(theta) + <b, theta>`` with ``b`` of density
``exp(-|b| epsilon_p / (2R))``, R the norm of a row with its constant, ``Lambda = 1/C`` and
``epsilon_p = epsilon - 2 log(1 + R/(4 Lambda))``; where that is not positive it takes
``epsilon_p = epsilon/2`` and raises Lambda to ``p = R / (4 (e^{epsilon/4} - 1))``. The proof needs
the curvature ``R^2/4`` in the place of ``R/4``, and a penalty on every coefficient; its own
intercept is left out of ``1/C`` and has what was added alone, ``p - 1/C``: see
:func:`true_epsilon`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.peers import diffprivlib_worker
from dpconvex_reproduction.peers.environments import DIFFPRIVLIB

__all__ = ["WAYS", "fits", "scores", "true_epsilon"]

#: How rows are handed over. "as documented": mapped rows, their public norm as ``data_norm``, its
#: own intercept. "sound": rows ``(1, x)`` divided by their public norm, so that R = 1 and the
#: constant is penalised like the rest.
WAYS = ("as documented", "sound")


def scores(
    data: dict[str, NDArray[Any]], row_norm: float, requests: Sequence[tuple[str, float, int]]
) -> dict[str, NDArray[Any]]:
    """Fit and return log-odds of the larger label.

    Parameters
    ----------
    data : dict
        ``X``, ``y``, ``X_test``, rows mapped, without a constant.
    row_norm : float
        Public bound on the norm of a row.
    requests : sequence of (way, epsilon, seed)
        What to fit; the way is one of :data:`WAYS`.

    Returns
    -------
    dict
        ``scores`` of shape (requests, test rows) and ``seconds``.
    """
    full = math.hypot(1.0, row_norm)
    asked = [
        {
            "epsilon": epsilon,
            "seed": seed,
            "data_norm": 1.0 if way == "sound" else row_norm,
            "fit_intercept": way != "sound",
            "constant": way == "sound",
            "divisor": full if way == "sound" else 1.0,
        }
        for way, epsilon, seed in requests
    ]
    return DIFFPRIVLIB.ask(diffprivlib_worker.__file__, data, asked)


def fits(
    data: dict[str, NDArray[Any]], row_norm: float, requests: Sequence[tuple[str, float, int]]
) -> list[dict[str, float]]:
    """Fit as :func:`scores` does and return ``accuracy`` on ``y_test`` and ``seconds`` of each."""
    answers = scores(data, row_norm, requests)
    right = np.where(answers["scores"] > 0, 1.0, -1.0) == data["y_test"]
    return [
        {"accuracy": float(accuracy), "seconds": float(seconds)}
        for accuracy, seconds in zip(right.mean(axis=1), answers["seconds"], strict=True)
    ]


def true_epsilon(way: str, epsilon: float, row_norm: float) -> float:
    """Return the epsilon that can be proven under replace-one for an exact minimiser, C = 1; inf if
    there is no proof.

    With noise of scale ``2R / epsilon_p`` and a penalty Lambda on every coefficient it is
    ``epsilon_p + log(1 + R^2 / (4 Lambda))``. Its own intercept has a penalty of ``p - 1`` where p
    was raised, and none otherwise: ``epsilon/2 + log(1 + (1/(p - 1) + r^2/p) / 4)`` with r the norm
    of a row without the constant.

    Examples
    --------
    >>> round(true_epsilon("as documented", 1.0, 14**0.5), 4)
    1.2563
    >>> true_epsilon("sound", 1.0, 3.0) <= 1.0 < true_epsilon("as documented", 1.0, 3.0)
    True
    >>> true_epsilon("as documented", 5.0, 1.0)
    inf
    """
    norm = 1.0 if way == "sound" else math.hypot(1.0, row_norm)
    left = epsilon - 2 * math.log1p(norm / 4)
    if left > 0:
        # The first case: its own intercept has no penalty at all.
        return left + math.log1p(norm * norm / 4) if way == "sound" else math.inf
    penalty = norm / (4 * math.expm1(epsilon / 4))  # above 2 wherever it is raised
    if way == "sound":
        return epsilon / 2 + math.log1p(norm * norm / (4 * penalty))
    return epsilon / 2 + math.log1p((1 / (penalty - 1) + row_norm * row_norm / penalty) / 4)
