"""``dpconvex audit``: attack an estimator, or a mechanism of the user's own, and bound its epsilon."""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dpconvex.audit import (
    AuditResult,
    audit,
    epsilon_from_probabilities,
    neighbor_pairs,
)
from dpconvex.audit.confidence import clopper_pearson_lower, clopper_pearson_upper
from dpconvex.audit.estimator import fitted_outputs
from dpconvex.cli.errors import VERIFICATION
from dpconvex.cli.fit import COLUMNS, ROWS, JsonOption, TaskOption, check_output
from dpconvex.cli.options import build, find_task, with_model_options
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.settings import resolve_guarantee
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.words.terminal import console, guarantee_in_words, print_json

Array = NDArray[np.float64]
Draw = Callable[[int, np.random.Generator], Array]

FEWEST, MOST = 100, 1_000_000
_BUDGET = {"epsilon", "delta", "mu"}
_FAR = 1e3  # targets far beyond their range: slopes are at their largest


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("audit")(audit_command)


@with_model_options
def audit_command(
    settings: dict[str, Any],
    task: TaskOption = "quantile",
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Audit your own mechanism instead: MODULE:FUNCTION, where FUNCTION(which, count, rng) returns "
            "count outputs on the first (0) or second (1) of two neighbouring data sets.",
            show_default=False,
        ),
    ] = None,
    n_samples: Annotated[
        int, typer.Option(*ROWS, help="Rows of the invented data.", min=4, max=100_000)
    ] = 20,
    n_features: Annotated[
        int, typer.Option(*COLUMNS, help="Columns of the invented data.", min=1, max=1_000)
    ] = 1,
    seconds: Annotated[float, typer.Option(help="Time to spend on runs.", min=0.1)] = 60.0,
    runs: Annotated[
        int, typer.Option(help="Most runs per data set and attack.", min=FEWEST, max=MOST)
    ] = 100_000,
    confidence: Annotated[
        float, typer.Option(help="Probability that a true claim is not refuted.")
    ] = 1 - 1e-6,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the invented data, and of your own sampler.", min=0),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Where to draw the trade-off curves (SVG).")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Attack a mechanism on neighbouring data sets and prove a lower bound on its epsilon.

    Runs it again and again on invented data, so it costs no budget. An audit never proves privacy:
    it refutes false claims. Fits draw their noise as in earnest, whatever the seed, and every
    released number is looked at. Exit code 4 if the claim is refuted.
    """
    if not 0.5 < confidence < 1:
        raise InputError("The option --confidence must be a number between 0.5 and 1.")
    if not math.isfinite(seconds):
        raise InputError("The option --seconds must be a finite number.")
    if plot is not None:
        check_output(plot, "plot")
    rng = np.random.default_rng(seed)
    if sampler is None:
        certificate, attacks = _attacks_on_task(task, settings, n_samples, n_features, rng)
        guarantee = certificate.guarantee
        # Where the certificate covers floating point, bits are no excuse.
        bits = certificate.failure_probability is not None
    else:
        foreign = sorted(name for name in set(settings) - _BUDGET if settings[name] is not None)
        if foreign:
            flag = "--" + foreign[0].replace("_", "-")
            raise InputError(f"A sampler of your own has no option {flag}.")
        budget = (settings["epsilon"], settings["delta"], settings["mu"])
        guarantee = resolve_guarantee(*budget, owner="audit")
        attacks, bits = {"sampler": _own_sampler(sampler)}, False
    results = {}
    # The attacks are wrong together at most as often as the confidence says.
    each = 1 - (1 - confidence) / len(attacks)
    with _progress(seconds, not json_) as tick:
        for name, pair in attacks.items():
            pools = _draw(pair, runs, seconds / len(attacks), rng, tick, name)
            count = len(pools[0])
            if count < FEWEST:
                raise InputError(
                    f"The attack {name!r} made {count} runs in its share of the time, and needs {FEWEST}. Give "
                    f"--seconds {math.ceil(seconds * FEWEST / max(count, 1) * 1.5)}, or fewer rows or columns."
                )
            results[name] = audit(
                _from_pool(pools[0]),
                _from_pool(pools[1]),
                guarantee,
                count,
                confidence=each,
                rng=rng,
                bits=bits,
            )
    worst = max(
        results.values(), key=lambda result: result.epsilon_lower_bound / max(result.epsilon, 1e-12)
    )
    if plot is not None:
        plot.write_text(_plot(worst, guarantee), encoding="utf-8")
    if json_:
        print_json(_plain(results, guarantee, confidence))
    else:
        _show(results, guarantee, confidence)
        if plot is not None:
            console().print(f"Trade-off curves written to {plot}", markup=False)
    if not all(result.passed for result in results.values()):
        raise typer.Exit(VERIFICATION)


def _attacks_on_task(
    task: str, settings: dict[str, Any], rows: int, columns: int, rng: np.random.Generator
) -> tuple[Certificate, dict[str, tuple[Draw, Draw]]]:
    """Return the estimator's certificate, and for each attack the fits on its two data sets."""
    labels = find_task(task).labels
    if settings.get("classes") is not None:
        raise InputError("The invented data have labels of their own: leave out --classes.")
    more: dict[str, Any] = {"feature_bounds": (-1.0, 1.0), "target_bounds": (-1.0, 1.0)}
    if labels:
        more["classes"] = [0, 1]
    estimator = build(task, settings, **more)
    X = rng.uniform(-1, 1, (rows, columns))
    y = np.arange(rows) % 2 if labels else rng.uniform(-1, 1, rows)
    targets = (0, 1) if labels else (-_FAR, _FAR)
    certificate = estimator.certify(rows, columns)
    pairs = neighbor_pairs(X, y, np.ones(columns), targets, certificate.neighbors)

    def fits(data: tuple[Array, Array]) -> Draw:
        return lambda count, generator: fitted_outputs(estimator, data, count)

    return certificate, {pair.name: (fits(pair.first), fits(pair.second)) for pair in pairs}


def _own_sampler(path: str) -> tuple[Draw, Draw]:
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
    with Progress(
        console=screen, transient=True, disable=not (shown and screen.is_terminal)
    ) as bar:
        task = bar.add_task("Attacking", total=seconds)
        yield lambda step, words: bar.update(task, advance=step, description=words)


def _provable(result: AuditResult) -> float:
    """Return the largest epsilon that this many runs could prove at the audited delta."""
    error = (1 - result.confidence) / 2
    low = clopper_pearson_lower(result.runs, result.runs, error)
    high = clopper_pearson_upper(0, result.runs, error)
    return float(epsilon_from_probabilities(low, high, result.delta))


def _plain(
    results: dict[str, AuditResult], guarantee: Guarantee, confidence: float
) -> dict[str, Any]:
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


def _show(results: dict[str, AuditResult], guarantee: Guarantee, confidence: float) -> None:
    table = Table(title=f"Attacks on the claim {guarantee_in_words(guarantee)}")
    heads = (
        "attack",
        "runs",
        "at delta",
        "claimed epsilon",
        "proved: at least",
        "provable",
        "verdict",
    )
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
            results.values(),
            key=lambda result: -1.0 if result.detectable_noise is None else result.detectable_noise,
        )
        screen.print(
            "No attack refutes the claim. That proves no privacy: the certificate does. These runs would have caught "
            f"{sharpest.would_have_caught()}."
        )
    else:
        screen.print(
            f"The claim is false, except with probability {wrong:.1g}.",
            style="bold red",
            markup=False,
        )


def _plot(result: AuditResult, guarantee: Guarantee) -> str:
    from dpconvex.words.charts import Axis, Curve, line_chart, standalone

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
