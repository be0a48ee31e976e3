r"""diffprivlib's logistic regression in an environment of its own, and the privacy it truly has.

diffprivlib 0.6.6 does not import with current scikit-learn, so it has an environment in the cache folder
(``XDG_CACHE_HOME`` or ``~/.cache``). Only ``dpconvex reproduce --install-peers`` makes it, from the package index.

Its logistic regression minimises ``J(theta) + <b, theta>`` with ``b`` of density ``exp(-|b| epsilon_p / (2R))``, R the
norm of a row with its constant, ``Lambda = 1/C`` and ``epsilon_p = epsilon - 2 log(1 + R/(4 Lambda))``; where that is
not positive it takes ``epsilon_p = epsilon/2`` and raises Lambda to ``p = R / (4 (e^{epsilon/4} - 1))``. The proof
needs the curvature ``R^2/4`` in the place of ``R/4``, and a penalty on every coefficient; its own intercept is left out
of ``1/C`` and has what was added alone, ``p - 1/C``: see :func:`true_epsilon`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.peers import diffprivlib_worker

__all__ = ["PINS", "WAYS", "environment", "fits", "install", "true_epsilon"]

PINS = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "scipy==1.14.1", "numpy==2.2.6")

#: How rows are handed over. "as documented": mapped rows, their public norm as ``data_norm``, its own intercept.
#: "sound": rows ``(1, x)`` divided by their public norm, so that R = 1 and the constant is penalised like the rest.
WAYS = ("as documented", "sound")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpconvex"


_INSIDE = Path("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _home() -> Path:
    digest = hashlib.sha256(" ".join((sys.version, *PINS)).encode()).hexdigest()[:12]
    return _cache() / f"diffprivlib-{digest}"


def environment() -> Path:
    """Return the interpreter that has diffprivlib.

    Raises
    ------
    RuntimeError
        If there is none; the message says how to make it.
    """
    python = _home() / _INSIDE
    if not python.exists():
        raise RuntimeError(
            "diffprivlib is not installed. It needs an environment of its own: "
            "`dpconvex reproduce --install-peers` makes it from the package index."
        )
    return python


def install() -> Path:
    """Make the environment of diffprivlib if there is none, and return its interpreter.

    Raises
    ------
    RuntimeError
        If it cannot be installed; the message says why.
    """
    home = _home()
    if (home / _INSIDE).exists():
        return home / _INSIDE
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as workshop:
            made = Path(workshop) / "environment"
            run = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
            run([sys.executable, "-m", "venv", str(made)])
            options = ("install", "--quiet", "--retries", "1", "--timeout", "15")
            run([str(made / _INSIDE), "-m", "pip", *options, *PINS])
            if not home.exists():  # somebody else may have been faster
                made.rename(home)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        raise RuntimeError(f"diffprivlib could not be installed: {' '.join(said[-1:])}") from error
    except OSError as error:
        if not (home / _INSIDE).exists():
            raise RuntimeError(f"diffprivlib could not be installed: {error}") from error
    return home / _INSIDE


def fits(
    data: dict[str, NDArray[Any]], row_norm: float, requests: Sequence[tuple[str, float, int]]
) -> list[dict[str, float]]:
    """Fit and score.

    Parameters
    ----------
    data : dict
        ``X``, ``y``, ``X_test``, ``y_test``, rows mapped, without a constant.
    row_norm : float
        Public bound on the norm of a row.
    requests : sequence of (way, epsilon, seed)
        What to fit; the way is one of :data:`WAYS`.

    Returns
    -------
    list of dict
        ``accuracy`` and ``seconds`` of each.
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
    python = environment()
    with tempfile.TemporaryDirectory() as folder:
        arrays, questions = Path(folder) / "data.npz", Path(folder) / "requests.json"
        np.savez(arrays, **data)  # type: ignore[arg-type]
        questions.write_text(json.dumps(asked), encoding="utf-8")
        command = [str(python), str(diffprivlib_worker.__file__), str(arrays), str(questions)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"diffprivlib failed: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    answers: list[dict[str, float]] = json.loads(done.stdout)
    return answers


def true_epsilon(way: str, epsilon: float, row_norm: float) -> float:
    """Return the epsilon that can be proven under replace-one for an exact minimiser, C = 1; inf if there is no proof.

    With noise of scale ``2R / epsilon_p`` and a penalty Lambda on every coefficient it is
    ``epsilon_p + log(1 + R^2 / (4 Lambda))``. Its own intercept has a penalty of ``p - 1`` where p was raised, and
    none otherwise: ``epsilon/2 + log(1 + (1/(p - 1) + r^2/p) / 4)`` with r the norm of a row without the constant.

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
