"""Fits of diffprivlib's logistic regression; run as a script by the interpreter of its own environment.

Usage: ``python diffprivlib_worker.py data.npz requests.json``. Each request has ``epsilon``, ``seed``, ``data_norm``,
``fit_intercept`` and ``constant`` (whether rows ``(1, x)`` take the place of rows ``x``); all rows are divided by
``divisor``. The answer, one record per request with test accuracy and seconds, is printed as JSON.
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

    answers = []
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
        seconds = time.perf_counter() - started
        accuracy = model.score(rows(data["X_test"], request), data["y_test"])
        answers.append({"accuracy": float(accuracy), "seconds": seconds})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
