"""What a charge costs as the ledger grows: the time must not depend on the number of charges.

The entries before the measured ones are written in one transaction, without a flush for each. The
rest of a charge's time is the flushes of a durable commit, so the bar is on the ratio, and a check
of the whole file is shown beside it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks import Measurement
from dpconvex.core.guarantees import GaussianDP
from dpconvex.privacy.ledger import Ledger

SIZES = (100, 10_000, 100_000)
CHARGES = 40


def grow(ledger: Ledger, entries: int) -> None:
    """Bring a ledger to a number of entries by copies of its first charge."""
    record = ledger._log.verify()[1][-1]
    with ledger._log.append() as snapshot:
        while snapshot.number + len(snapshot.added) < entries + 1:
            snapshot.add(record)


def run() -> Iterator[Measurement]:
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        for entries in SIZES:
            ledger = Ledger(Path(folder) / f"{entries}.db", mu=1.0)
            ledger.charge(GaussianDP(1e-4), description="DPQuantileRegressor.fit")
            grow(ledger, entries)
            measured = []
            for _ in range(CHARGES):
                start = time.perf_counter()
                ledger.charge(GaussianDP(1e-4), description="DPQuantileRegressor.fit")
                measured.append(time.perf_counter() - start)
            times[entries] = median(measured)
            yield Measurement(f"a charge after {entries:,}", 1e3 * times[entries], detail="ms")
            start = time.perf_counter()
            ledger.check()
            yield Measurement(
                f"a check of {entries:,}", 1e3 * (time.perf_counter() - start), detail="ms"
            )
    ratio = times[SIZES[-1]] / times[SIZES[0]]
    yield Measurement(
        f"a charge after {SIZES[-1]:,} against one after {SIZES[0]}", ratio, 2.0, at_most=True
    )
