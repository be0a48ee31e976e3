"""jax-privacy's canary auditor; run as a script by the interpreter of its own environment.

Usage: ``python canaries_worker.py data.npz requests.json answers.npz``. A request names two arrays
of scores, of canaries that were in and of those that were out, a significance and a delta. The
answer has the two lower bounds on epsilon.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np


def main() -> None:
    """Answer the requests."""
    auditing: Any = importlib.import_module("jax_privacy.auditing")
    with np.load(sys.argv[1]) as file:
        data = {name: file[name] for name in file.files}
    with open(sys.argv[2], encoding="utf-8") as text:
        requests = json.load(text)
    found = []
    for request in requests:
        auditor = auditing.CanaryScoreAuditor(data[request["in"]], data[request["out"]])
        settings = {"significance": request["significance"], "delta": request["delta"]}
        bound = auditor.epsilon_one_run if request["one_run"] else auditor.epsilon_clopper_pearson
        found.append(float(bound(**settings)))
    np.savez(sys.argv[3], epsilon=np.array(found))


if __name__ == "__main__":
    main()
