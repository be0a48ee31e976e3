"""Many rows of many people through Dask: time and peak memory of a fit with ``groups``.

``python benchmarks/people_scale.py --rows 20_000_000 --people 1_000_000`` makes its table block by
block, so that nothing but the fit is in memory.
"""

from __future__ import annotations

import argparse
import resource
import time

import dask.array as da
import numpy as np

from dpconvex import DPLogisticRegression

COLUMNS = 10
CHUNK = 500_000


def block(number: int, rows: int, people: int) -> np.ndarray:
    """Return features, label and identifier of a block of rows."""
    rng = np.random.default_rng(number)
    ids = (people * rng.random(rows) ** 2).astype(np.int64)  # a few have many rows
    X = rng.normal(size=(rows, COLUMNS))
    y = rng.random(rows) < 1 / (1 + np.exp(-X @ np.linspace(1, -1, COLUMNS)))
    return np.column_stack([X, y, ids])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--people", type=int, default=1_000_000)
    options = parser.parse_args()
    blocks = -(-options.rows // CHUNK)

    def made(block_info: dict) -> np.ndarray:  # type: ignore[type-arg]
        place = block_info[None]["chunk-location"][0]
        return block(place, CHUNK, options.people)

    table = da.map_blocks(made, chunks=((CHUNK,) * blocks, (COLUMNS + 2,)), dtype=float)
    begun = time.perf_counter()
    model = DPLogisticRegression(epsilon=1.0, feature_bounds=(-5, 5), classes=[0, 1])
    model.fit(table[:, :COLUMNS], table[:, COLUMNS], groups=table[:, COLUMNS + 1])
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{blocks * CHUNK:,} rows of {model.certificate_.bounds.n_samples:,} people: "
        f"{seconds:.0f} s, peak {peak:.2f} GB, first coefficient {model.coef_[0, 0]:.3f} (1 "
        "without noise)"
    )


if __name__ == "__main__":
    main()
