"""Run every benchmark module of this folder and print one table."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import benchmarks
from benchmarks import Measurement


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
        f"{module:<14} {measurement.name:<58} {measurement.value:>9.3g}  {bar:<8} "
        f"{verdict:<7} {measurement.detail}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="modules to run, all by default")
    names = parser.parse_args().names or modules()
    print(f"{'module':<14} {'measurement':<58} {'value':>9}  {'bar':<8} {'':<7} detail")
    missed = 0
    for name in names:
        for measurement in importlib.import_module(f"benchmarks.{name}").run():
            print(row(name, measurement), flush=True)
            missed += not measurement.passed
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
