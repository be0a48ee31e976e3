"""The work behind ``dpconvex audit``: invented data, runs for as long as there is time, and what they proved."""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dpconvex.audit import AuditResult, audit, epsilon_from_probabilities, neighbor_pairs
from dpconvex.audit.confidence import clopper_pearson_lower, clopper_pearson_upper
from dpconvex.audit.estimator import fitted_outputs
from dpconvex.cli.options import Settings, build, find_task
from dpconvex.cli.screen import console
from dpconvex.inputs.errors import InputError
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.reports.terminal import guarantee_in_words
from dpconvex.types import Array

Draw = Callable[[int, np.random.Generator], Array]

FEWEST = 100
_FAR = 1e3  # targets far beyond their range: slopes are at their largest


@dataclass(frozen=True)
class Limits:
    """Runs and time of an audit, its confidence, and whether last binary digits are attacked too."""

    runs: int
    seconds: float
    confidence: float
    bits: bool


def run_attacks(
    attacks: dict[str, tuple[Draw, Draw]], guarantee: Guarantee, limits: Limits, rng: np.random.Generator, shown: bool
) -> dict[str, AuditResult]:
    """Run every attack for its share of the time, and audit what came out.

    The attacks are wrong together at most as often as the confidence says.
    """
    results = {}
    each = 1 - (1 - limits.confidence) / len(attacks)
    with _progress(limits.seconds, shown) as tick:
        for name, pair in attacks.items():
            pools = _draw(pair, limits.runs, limits.seconds / len(attacks), rng, tick, name)
            count = len(pools[0])
            if count < FEWEST:
                raise InputError(
                    f"The attack {name!r} made {count} runs in its share of the time, and needs {FEWEST}. Give "
                    f"--seconds {math.ceil(limits.seconds * FEWEST / max(count, 1) * 1.5)}, or fewer rows or columns."
                )
            first, second = map(_from_pool, pools)
            results[name] = audit(first, second, guarantee, count, confidence=each, rng=rng, bits=limits.bits)
    return results


def attacks_on_task(
    task: str, settings: Settings, rows: int, columns: int, rng: np.random.Generator
) -> tuple[Certificate, dict[str, tuple[Draw, Draw]]]:
    """Return the estimator's certificate, and for each attack the fits on its two data sets."""
    labels = find_task(task).labels
    if settings.get("classes") is not None:
        raise InputError("The invented data have labels of their own: leave out --classes.")
    more: dict[str, object] = {"feature_bounds": (-1.0, 1.0), "target_bounds": (-1.0, 1.0)}
    if labels:
        more["classes"] = [0, 1]
    estimator = build(task, settings, **more)
    X = rng.uniform(-1, 1, (rows, columns))
    y = np.arange(rows) % 2 if labels else rng.uniform(-1, 1, rows)
    targets = (0, 1) if labels else (-_FAR, _FAR)
    certificate = estimator.certify(rows, columns)
    pairs = neighbor_pairs(X, y, np.ones(columns), targets, certificate.neighbors)

    def fits(data: tuple[Array, ...]) -> Draw:
        return lambda count, generator: fitted_outputs(estimator, data, count)

    return certificate, {pair.name: (fits(pair.first), fits(pair.second)) for pair in pairs}


def own_sampler(path: str) -> tuple[Draw, Draw]:
    """Return the user's function on each of the two data sets."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise InputError("The option --sampler must be MODULE:FUNCTION, for instance mine:sample.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), name)
    except Exception as error:
        raise InputError(
            f"The sampler cannot be imported: {type(error).__name__}. Set DPCONVEX_DEBUG=1 to see why."
        ) from error
    if not callable(function):
        raise InputError(f"The sampler {name!r} is not a function.")

    def on(which: int) -> Draw:
        def draw(count: int, rng: np.random.Generator) -> Array:
            try:
                return np.asarray(function(which, count, rng), dtype=np.float64)
            except Exception as error:
                raise InputError(
                    f"The sampler failed with {type(error).__name__}. Set DPCONVEX_DEBUG=1 to see why."
                ) from error

        return draw

    return on(0), on(1)


def _draw(
    pair: tuple[Draw, Draw],
    most: int,
    seconds: float,
    rng: np.random.Generator,
    tick: Callable[[float, str], None],
    name: str,
) -> list[Array]:
    """Return as many outputs on both data sets as there is time for; how many depends on time alone."""
    for draw in pair:  # the first run compiles
        draw(1, rng)
    pools: list[list[Array]] = [[], []]
    start, last, done, batch = time.perf_counter(), 0.0, 0, 8
    while done < most:
        batch = min(batch, most - done)
        for draw, pool in zip(pair, pools, strict=True):
            outputs = draw(batch, rng)
            if outputs.ndim not in (1, 2) or len(outputs) != batch:
                raise InputError(
                    f"A sampler must return one output for each of {batch} runs. Got shape {outputs.shape} instead."
                )
            pool.append(outputs)
        done += batch
        elapsed = time.perf_counter() - start
        tick(elapsed - last, f"{name}: {done:,} runs")
        step, last = elapsed - last, elapsed
        # Stop where another batch would not end in time; batches grow to a tenth of it.
        if elapsed + step > seconds:
            break
        if step < seconds / 20:
            batch *= 2
    tick(max(0.0, seconds - last), f"{name}: {done:,} runs")
    return [np.concatenate(pool) for pool in pools]


def _from_pool(pool: Array) -> Draw:
    """Return a sampler that hands out the outputs in order, each once."""
    place = 0

    def draw(count: int, rng: np.random.Generator) -> Array:
        nonlocal place
        place += count
        return pool[place - count : place]

    return draw


@contextmanager
def _progress(seconds: float, shown: bool) -> Iterator[Callable[[float, str], None]]:
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not (shown and screen.is_terminal)) as bar:
        task = bar.add_task("Attacking", total=seconds)
        yield lambda step, words: bar.update(task, advance=step, description=words)


def _provable(result: AuditResult) -> float:
    """Return the largest epsilon that this many runs could prove at the audited delta."""
    error = (1 - result.confidence) / 2
    low = clopper_pearson_lower(result.runs, result.runs, error)
    high = clopper_pearson_upper(0, result.runs, error)
    return float(epsilon_from_probabilities(low, high, result.delta))


def plain_results(results: dict[str, AuditResult], guarantee: Guarantee, confidence: float) -> dict[str, object]:
    """Return the results as plain data."""
    return {
        "claim": guarantee.to_dict(),
        "confidence": confidence,
        "passed": all(result.passed for result in results.values()),
        "attacks": {
            name: {
                "passed": result.passed,
                "epsilon_lower_bound": result.epsilon_lower_bound,
                "epsilon_claimed": result.epsilon,
                "delta": result.delta,
                "runs": result.runs + result.selection_runs,
                "provable": _provable(result),
                "detectable_noise": result.detectable_noise,
                "statistic": result.statistic,
            }
            for name, result in results.items()
        },
    }


def show_results(results: dict[str, AuditResult], guarantee: Guarantee, confidence: float) -> None:
    """Print a table of the results, and what they mean."""
    table = Table(title=f"Attacks on the claim {guarantee_in_words(guarantee)}")
    heads = ("attack", "runs", "at delta", "claimed epsilon", "proved: at least", "provable", "verdict")
    for head in heads:
        table.add_column(head, justify="left" if head in ("attack", "verdict") else "right")
    for name, result in results.items():
        table.add_row(
            name,
            f"{result.runs + result.selection_runs:,}",
            f"{result.delta:.2g}",
            f"{result.epsilon:.4g}",
            f"{result.epsilon_lower_bound:.4g}",
            f"{_provable(result):.4g}",
            "consistent" if result.passed else "REFUTED",
        )
    screen = console()
    screen.print(table)
    wrong = 1 - confidence
    if all(result.passed for result in results.values()):
        sharpest = max(
            results.values(), key=lambda result: -1.0 if result.detectable_noise is None else result.detectable_noise
        )
        screen.print(
            "No attack refutes the claim. That proves no privacy: the certificate does. These runs would have caught "
            f"{sharpest.would_have_caught()}."
        )
    else:
        screen.print(f"The claim is false, except with probability {wrong:.1g}.", style="bold red", markup=False)


def plot_tradeoffs(result: AuditResult, guarantee: Guarantee) -> str:
    """Return a drawing of the claimed and the empirical trade-off."""
    from dpconvex.reports.charts import Axis, Curve, line_chart, standalone

    x = np.sin(np.linspace(0, math.pi / 2, 121)) ** 2
    claimed = np.asarray(guarantee.tradeoff(x))
    return standalone(
        line_chart(
            "Claimed and empirical trade-off curves",
            "The attack's errors, counted, against the smallest errors that the claim allows. A claim is refuted "
            f"where the attack lies below it beyond sampling error. Proved: epsilon of at least "
            f"{result.epsilon_lower_bound:.4g} at delta {result.delta:.2g}, claimed {result.epsilon:.4g}.",
            [
                Curve("the claim allows no less", x.tolist(), claimed.tolist()),
                Curve("the strongest attack", result.tradeoff.type_one.tolist(), result.tradeoff.type_two.tolist()),
                Curve("guessing", [0.0, 1.0], [1.0, 0.0], dashed=True),
            ],
            Axis("false alarms", 0, 1, form="{:.0%}".format),
            Axis("misses", 0, 1, form="{:.0%}".format),
        )
    )  # fmt: skip
