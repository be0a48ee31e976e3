"""DP-SGD by jax-privacy; run as a script by the interpreter of its own environment.

Usage: ``python jax_privacy_worker.py data.npz requests.json answers.npz``.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import time
import warnings
from typing import Any

import numpy as np


@functools.lru_cache(maxsize=64)
def noise_multiplier(epsilon: float, delta: float, batch: int, steps: int, rows: int) -> float:
    """Return the noise that its own accountant finds sufficient."""
    accounting: Any = importlib.import_module("jax_privacy.accounting")
    accountant = accounting.analysis.DpsgdTrainingAccountant(
        accounting.accountants.PldAccountantConfig()
    )
    return float(
        accounting.calibrate.calibrate_noise_multiplier(
            target_epsilon=epsilon,
            accountant=accountant,
            batch_sizes=batch,
            num_updates=steps,
            num_samples=rows,
            target_delta=delta,
            tol=1e-3,
        )
    )


def main() -> None:
    """Answer the requests."""
    warnings.simplefilter("ignore")
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    clipping: Any = importlib.import_module("jax_privacy.clipping")
    selection: Any = importlib.import_module("jax_privacy.batch_selection")
    noise: Any = importlib.import_module("jax_privacy.noise_addition")
    with np.load(sys.argv[1]) as file:
        data = {name: file[name].astype(np.float32) for name in file.files}
    with open(sys.argv[2], encoding="utf-8") as text:
        requests = json.load(text)
    rows = data["X"]
    targets = data["y"]
    n = len(rows)

    def loss(task: str, level: Any) -> Any:
        def one(theta: Any, x: Any, y: Any) -> Any:
            z = x @ theta
            if task == "logistic":
                return jax.nn.softplus(-y * z).mean()
            if task == "linear":
                return ((z - y) ** 2).mean() / 2
            return jnp.maximum(level * (y - z), (level - 1) * (y - z)).mean()

        return one

    scores = []
    seconds = []
    gradients = {}
    for request in requests:
        started = time.perf_counter()
        batch = min(request["batch"], n)
        steps = round(request["epochs"] * n / batch)
        multiplier = noise_multiplier(request["epsilon"], request["delta"], batch, steps, n)
        kind = (request["task"], request["quantile"], request["clip"])
        if kind not in gradients:
            gradients[kind] = jax.jit(
                clipping.clipped_grad(
                    loss(*kind[:2]), l2_clip_norm=request["clip"], batch_argnums=(1, 2)
                )
            )
        privatizer = noise.gaussian_privatizer(
            stddev=multiplier * request["clip"], prng_key=request["seed"]
        )
        theta = jnp.zeros(rows.shape[1], dtype=jnp.float32)
        state = privatizer.init(theta)
        update = jax.jit(privatizer.update)
        batches = selection.CyclicPoissonSampling(sampling_prob=batch / n, iterations=steps)
        width = batch + 8 * int(batch**0.5) + 8  # of compiled batches; rows that pad them are zeros
        for chosen in batches.batch_iterator(n, rng=request["seed"]):
            padded = -(-max(len(chosen), 1) // width) * width
            x = np.zeros((padded, rows.shape[1]), dtype=np.float32)
            y = np.zeros(padded, dtype=np.float32)
            x[: len(chosen)] = rows[chosen]
            y[: len(chosen)] = targets[chosen]
            total, state = update(gradients[kind](theta, x, y), state)
            theta = theta - request["rate"] / batch * total
        theta = np.asarray(theta)
        seconds.append(time.perf_counter() - started)
        scores.append(data["X_test"] @ theta)
    np.savez(sys.argv[3], scores=np.array(scores), seconds=np.array(seconds))


if __name__ == "__main__":
    main()
