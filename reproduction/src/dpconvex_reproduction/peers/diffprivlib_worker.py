"""Fits of diffprivlib's logistic regression; run as a script by the interpreter of its own
environment.

Usage: ``python diffprivlib_worker.py data.npz requests.json answers.npz``. Each request has
``epsilon``, ``seed``, ``data_norm``, ``fit_intercept`` and ``constant`` (whether rows ``(1, x)``
take the place of rows ``x``); all rows are divided by ``divisor``. The answer holds the scores of
the test rows and the seconds of each fit.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from typing import Any


def main() -> None:
    """Answer the requests."""
    import numpy as np

    models = importlib.import_module("diffprivlib.models")
    warnings.simplefilter("ignore")  # its solver often stops at the limit of its iterations
    with np.load(sys.argv[1]) as file:
        data = {name: file[name] for name in file.files}
    with open(sys.argv[2], encoding="utf-8") as text:
        requests = json.load(text)

    def rows(X: Any, request: dict[str, Any]) -> Any:
        shown = np.concatenate([np.ones((len(X), 1)), X], axis=1) if request["constant"] else X
        return shown / request["divisor"]

    scores = []
    seconds = []
    for request in requests:
        model = models.LogisticRegression(
            epsilon=request["epsilon"],
            data_norm=request["data_norm"],
            fit_intercept=request["fit_intercept"],
            random_state=request["seed"],
        )
        X = rows(data["X"], request)
        started = time.perf_counter()
        model.fit(X, data["y"])
        seconds.append(time.perf_counter() - started)
        scores.append(model.decision_function(rows(data["X_test"], request)))
    np.savez(sys.argv[3], scores=np.array(scores), seconds=np.array(seconds))


if __name__ == "__main__":
    main()
