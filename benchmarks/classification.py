"""Private classifiers: accuracy on a9a against diffprivlib, speed against scikit-learn without privacy.

diffprivlib 0.6.6 does not import with current scikit-learn, so it runs in an environment of its own, which is made on
first use next to this file (needs the package index); without it the rival's rows are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks import Measurement
from dpconvex import DPLinearSVC, DPLogisticRegression
from dpconvex.datasets import load_a9a

BARS = {0.1: 0.80, 0.5: 0.84, 1.0: 0.845}
SEEDS = 5

_PEER = Path(__file__).parent / ".diffprivlib"
_PINS = ["diffprivlib==0.6.6", "scikit-learn==1.6.1", "scipy==1.14.1", "numpy==2.2.6"]
_PEER_SCRIPT = """
import json, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from diffprivlib.models import LogisticRegression
data = np.load(sys.argv[1])
means = {}
for epsilon in json.loads(sys.argv[2]):
    scores = []
    for seed in range(int(sys.argv[3])):
        # rows of a9a have 14 ones
        model = LogisticRegression(epsilon=epsilon, data_norm=14 ** 0.5, random_state=seed)
        scores.append(model.fit(data["X"], data["y"]).score(data["X_test"], data["y_test"]))
    means[epsilon] = float(np.mean(scores))
print(json.dumps(means))
"""


def peer_accuracy(data: object) -> dict[float, float]:
    """Return diffprivlib's mean test accuracy by epsilon, or nothing if it cannot be installed."""
    python = _PEER / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(_PEER)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", *_PINS]
            subprocess.run(install, check=True, capture_output=True)
        file = _PEER / "a9a.npz"
        arrays = {name: getattr(data, name) for name in ("X", "y", "X_test", "y_test")}
        np.savez(file, **arrays)
        command = [str(python), "-c", _PEER_SCRIPT, str(file), json.dumps(list(BARS)), str(SEEDS)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (subprocess.CalledProcessError, OSError):
        return {}
    return {float(epsilon): value for epsilon, value in json.loads(out).items()}


def accuracy() -> Iterator[Measurement]:
    data = load_a9a()
    plain = LogisticRegression(max_iter=1000).fit(data.X, data.y).score(data.X_test, data.y_test)
    peer = peer_accuracy(data)
    for classifier in (DPLogisticRegression, DPLinearSVC):
        for epsilon, bar in BARS.items():
            scores = []
            for seed in range(SEEDS):
                model = classifier(epsilon=epsilon, feature_bounds=(0, 1), random_state=seed)
                scores.append(model.fit(data.X, data.y).score(data.X_test, data.y_test))
            detail = (
                f"sd {np.std(scores):.4f}, not private {plain:.4f}, {model.certificate_.mechanism}"
            )
            if epsilon in peer:
                detail += f", diffprivlib {peer[epsilon]:.3f}"
            wanted = (
                max(bar, peer.get(epsilon, 0.0)) if classifier is DPLogisticRegression else None
            )
            name = f"{classifier.__name__} a9a accuracy, epsilon {epsilon:g}"
            yield Measurement(name, float(np.mean(scores)), wanted, at_most=False, detail=detail)


def speed(n: int = 1_000_000, d: int = 50) -> Iterator[Measurement]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.where(X @ rng.normal(size=d) / np.sqrt(d) + rng.logistic(size=n) > 0, 1.0, -1.0)
    private = DPLogisticRegression(epsilon=1.0, mechanism="objective", feature_bounds=(-5, 5))
    private.fit(X[:20_000], y[:20_000])  # compiles

    def seconds(model: object) -> float:
        start = time.perf_counter()
        model.fit(X, y)  # type: ignore[attr-defined]
        return time.perf_counter() - start

    ours = min(seconds(private) for _ in range(2))
    theirs = min(seconds(LogisticRegression()) for _ in range(2))
    yield Measurement(
        f"private / non-private logistic fit, n={n:,}, d={d}",
        ours / theirs,
        1.0,
        detail=f"{ours:.2f} s / {theirs:.2f} s",
    )


def run() -> Iterator[Measurement]:
    yield from accuracy()
    yield from speed()
