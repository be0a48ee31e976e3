"""DP-SGD by Opacus; run as a script by the interpreter of its own environment.

Usage: ``python opacus_worker.py data.npz requests.json answers.npz``.
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
    torch: Any = importlib.import_module("torch")
    opacus: Any = importlib.import_module("opacus")
    utils: Any = importlib.import_module("opacus.accountants.utils")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with np.load(sys.argv[1]) as file:
        data = {name: torch.tensor(file[name], dtype=torch.float32) for name in file.files}
    with open(sys.argv[2], encoding="utf-8") as text:
        requests = json.load(text)
    rows = data["X"]
    targets = data["y"]

    class Rows(torch.utils.data.TensorDataset):
        """Rows that are fetched a batch at a time, which is ten times as fast as one by one."""

        def __getitems__(self, places: list[int]) -> Any:
            return rows[places], targets[places]

    sets = Rows(rows, targets)

    def loss(request: dict[str, Any], z: Any, y: Any) -> Any:
        if request["task"] == "logistic":
            return torch.nn.functional.softplus(-y * z).mean()
        if request["task"] == "linear":
            return ((z - y) ** 2).mean() / 2
        level = request["quantile"]
        return torch.maximum(level * (y - z), (level - 1) * (y - z)).mean()

    # The same noise as of `make_private_with_epsilon`, which would search for it again with every
    # seed.
    multipliers: dict[tuple[float, ...], float] = {}
    scores = []
    seconds = []
    for request in requests:
        torch.manual_seed(request["seed"])
        started = time.perf_counter()
        model = torch.nn.Linear(rows.shape[1], 1, bias=False)  # the constant is a column
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=request["rate"])
        size = min(request["batch"], len(rows))
        loader = torch.utils.data.DataLoader(sets, batch_size=size, collate_fn=lambda batch: batch)
        engine = opacus.PrivacyEngine()
        spent = (request["epsilon"], request["delta"], request["epochs"], 1 / len(loader))
        if spent not in multipliers:
            multipliers[spent] = utils.get_noise_multiplier(
                target_epsilon=spent[0],
                target_delta=spent[1],
                sample_rate=spent[3],
                epochs=spent[2],
                accountant=engine.accountant.mechanism(),
            )
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=multipliers[spent],
            max_grad_norm=request["clip"],
        )
        for _ in range(request["epochs"]):
            for x, y in loader:
                if not len(x):
                    continue
                optimizer.zero_grad()
                loss(request, model(x)[:, 0], y).backward()
                optimizer.step()
        seconds.append(time.perf_counter() - started)
        with torch.no_grad():
            scores.append(model(data["X_test"])[:, 0].numpy())
    np.savez(sys.argv[3], scores=np.array(scores), seconds=np.array(seconds))


if __name__ == "__main__":
    main()
