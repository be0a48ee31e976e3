"""Private explainable boosting by interpret; run as a script by the interpreter of its own
environment.

Usage: ``python ebm_worker.py data.npz requests.json answers.npz``.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from typing import Any

import numpy as np


def main() -> None:
    """Answer the requests."""
    warnings.simplefilter("ignore")
    privacy: Any = importlib.import_module("interpret.privacy")
    pandas: Any = importlib.import_module("pandas")
    with np.load(sys.argv[1]) as file:
        data = {name: file[name] for name in file.files}
    with open(sys.argv[2], encoding="utf-8") as text:
        requests = json.load(text)

    def frame(X: Any, types: list[str]) -> Any:
        columns: dict[str, Any] = {}
        for k, kind in enumerate(types):
            values = X[:, k]
            columns[f"f{k}"] = [f"c{int(v)}" for v in values] if kind == "nominal" else values
        return pandas.DataFrame(columns)

    scores = []
    seconds = []
    for request in requests:
        types = request["types"]
        low_high = {int(k): tuple(bounds) for k, bounds in request["bounds"].items()}
        options = {
            "epsilon": request["epsilon"],
            "delta": request["delta"],
            "feature_types": types,
            "privacy_bounds": low_high,
            "random_state": request["seed"],
            "n_jobs": 1,
        }
        X = data["X"].copy()
        for k, (low, high) in low_high.items():
            X[:, k] = np.clip(X[:, k], low, high)
        started = time.perf_counter()
        if request["task"] == "logistic":
            model = privacy.DPExplainableBoostingClassifier(**options)
        else:
            low, high = request["target_bounds"]
            model = privacy.DPExplainableBoostingRegressor(
                **options, privacy_target_min=low, privacy_target_max=high
            )
        model.fit(frame(X, types), data["y"])
        seconds.append(time.perf_counter() - started)
        test = frame(data["X_test"], types)
        if request["task"] == "logistic":
            scores.append(np.asarray(model.decision_function(test), dtype=float))
        else:
            scores.append(np.asarray(model.predict(test), dtype=float))
    np.savez(sys.argv[3], scores=np.array(scores), seconds=np.array(seconds))


if __name__ == "__main__":
    main()
