"""Run every benchmark module of this folder, print one table and write it as JSON."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pkgutil
import platform
import sys
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks import RESULTS, Measurement, Skipped
from dpconvex_reproduction.fingerprint import now


def modules() -> list[str]:
    """Names of the benchmark modules: those that are not private and not this one."""
    return [
        module.name
        for module in pkgutil.iter_modules(benchmarks.__path__)
        if not module.name.startswith("_")
    ]


def row(module: str, measurement: Measurement) -> str:
    bar = "-"
    if measurement.bar is not None:
        bar = f"{'<=' if measurement.at_most else '>='} {measurement.bar:g}"
    verdict = "ok" if measurement.passed else "MISSED"
    if measurement.bar is None:
        verdict = ""
    return (
        f"{module:<14} {measurement.name:<58} {measurement.value:>9.3g}  {bar:<8} {verdict:<7} "
        f"{measurement.detail}"
    )


def busy_cores(seconds: float = 2.0) -> float:
    """Return how many cores others kept busy meanwhile; nan where /proc/stat does not tell."""

    def busy() -> float:
        words = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
        user, nice, system, _, _, interrupts, soft, stolen = (float(word) for word in words)
        return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")

    try:
        before = busy()
        time.sleep(seconds)
        return (busy() - before) / seconds
    except (OSError, ValueError):
        return float("nan")


def machine() -> dict[str, Any]:
    """Describe the machine and what else runs on it, without which times mean nothing."""
    packages = ("numpy", "scipy", "scikit-learn", "numba", "dask", "polars", "statsmodels")
    versions = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((x.split(":")[1].strip() for x in lines if "model name" in x), processor)
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": versions,
        "busy": busy_cores(),
        "made": now(),
    }


def write(path: Path, described: dict[str, Any], table: list[Any], skipped: list[Any]) -> None:
    """Write what was measured so far."""
    content = {"machine": described, "measurements": table, "skipped": skipped}
    path.write_text(json.dumps(content, indent=2, default=float))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="modules to run, all by default")
    parser.add_argument("--json", type=Path, default=RESULTS / "benchmarks.json")
    options = parser.parse_args()
    names = options.names or modules()
    described = machine()
    print(
        f"{described['processor']}, {described['cores']} cores, {described['busy']:.1f} of them "
        "busy with other work"
    )
    print(f"{'module':<14} {'measurement':<58} {'value':>9}  {'bar':<8} {'':<7} detail")
    missed = 0
    table: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    options.json.parent.mkdir(exist_ok=True)
    for name in names:
        for measurement in importlib.import_module(f"benchmarks.{name}").run():
            if isinstance(measurement, Skipped):
                print(f"{name:<14} skipped {measurement.name}: {measurement.how}", flush=True)
                skipped.append({"module": name, **asdict(measurement)})
                continue
            print(row(name, measurement), flush=True)
            missed += not measurement.passed
            table.append({"module": name, **asdict(measurement), "passed": measurement.passed})
            write(options.json, described, table, skipped)
    described["busy at the end"] = busy_cores()
    write(options.json, described, table, skipped)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
