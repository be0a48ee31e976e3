"""``dpconvex audit``: attack an estimator on invented data, or a mechanism of the user's own,
and bound its epsilon.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli import task_options
from dpconvex.cli.output_and_errors import (
    VERIFICATION,
    output_console,
    output_table,
    print_json,
    reserved_outputs,
)
from dpconvex.cli.task_options import COLUMNS, ROWS, text_option
from dpconvex.inputs import InputError

if TYPE_CHECKING:
    import numpy as np

    from dpconvex.audit import AuditResult
    from dpconvex.core.certificate import Certificate
    from dpconvex.core.guarantees import Guarantee
    from dpconvex.types import Array

    Sampler = Callable[[int, np.random.Generator], Array]
    Attacks = dict[str, tuple[Sampler, Sampler]]  # by name, the runs on either data set

SAMPLER = (
    "Audit your own mechanism instead: MODULE:FUNCTION, where FUNCTION(which, count, rng) "
    "returns count outputs on the first (0) or second (1) of two neighbouring data sets."
)
FEWEST = 100
MOST = 1_000_000
_BUDGET = {"epsilon", "delta", "mu"}
_FAR_TARGET = 1e3  # targets far beyond their range: slopes are at their largest


@task_options.with_model_options
def audit(
    settings: task_options.Settings,
    task: task_options.TaskOption = "quantile",
    sampler: Annotated[str | None, text_option(SAMPLER)] = None,
    n_samples: Annotated[
        int, typer.Option(*ROWS, help="Rows of the invented data.", min=4, max=100_000)
    ] = 20,
    n_features: Annotated[
        int, typer.Option(*COLUMNS, help="Columns of invented data.", min=1, max=1_000)
    ] = 1,
    seconds: Annotated[float, typer.Option(help="Time to spend on runs.", min=0.1)] = 60.0,
    runs: Annotated[
        int, typer.Option(help="Most runs per data set and attack.", min=FEWEST, max=MOST)
    ] = 100_000,
    confidence: Annotated[
        float, typer.Option(help="Probability that a true claim is not refuted.")
    ] = 1 - 1e-6,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the invented data, and of your own sampler.", min=0)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Where to draw the trade-off curves (SVG).")
    ] = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Attack a mechanism on neighbouring data sets and prove a lower bound on its epsilon.

    Runs it again and again on invented data, so it costs no budget. An audit never proves privacy:
    it refutes false claims. Fits draw their noise as in production, whatever the seed, and every
    released number is tested. Exit code 4 if the claim is refuted.
    """
    if not 0.5 < confidence < 1:
        raise InputError("The option --confidence must be a number between 0.5 and 1.")
    if not math.isfinite(seconds):
        raise InputError("The option --seconds must be a finite number.")
    with reserved_outputs({"plot": plot}, {}) as reserved:
        import numpy as np

        from dpconvex.inputs.settings import resolve_budget_setting

        rng = np.random.default_rng(seed)
        if sampler is None:
            certificate, attacks = _audited_task(
                task or "quantile", settings, n_samples, n_features, rng
            )
            guarantee = certificate.guarantee
            # Where the certificate covers floating point, last binary digits are attacked too.
            bits = certificate.failure_probability is not None
        else:
            foreign = sorted(name for name in set(settings) - _BUDGET if settings[name] is not None)
            if foreign:
                raise InputError(
                    f"A sampler of your own has no option --{foreign[0].replace('_', '-')}."
                )
            guarantee = resolve_budget_setting(
                settings["epsilon"], settings["delta"], settings["mu"], owner="audit"
            )
            attacks = {"sampler": _audited_function(sampler)}
            bits = False
        results = _run_attacks(attacks, guarantee, seconds, runs, confidence, rng, bits, json_)
        passed = all(result.passed for result in results.values())
        worst = max(
            results.values(),
            key=lambda result: result.epsilon_lower_bound / max(result.epsilon, 1e-12),
        )
        if plot is not None:
            reserved["plot"].write(_plot_audit_tradeoffs(worst, guarantee).encode())
        if json_:
            plain = {name: _audit_result_as_json(result) for name, result in results.items()}
            print_json(
                {
                    "claim": guarantee.to_dict(),
                    "confidence": confidence,
                    "passed": passed,
                    "attacks": plain,
                }
            )
        else:
            _print_audit_results(results, guarantee, confidence)
            if plot is not None:
                output_console().print(f"Trade-off curves written to {plot}", markup=False)
        if not passed:
            raise typer.Exit(VERIFICATION)


def _run_attacks(
    attacks: Attacks,
    guarantee: Guarantee,
    seconds: float,
    runs: int,
    confidence: float,
    rng: np.random.Generator,
    bits: bool,
    quiet: bool,
) -> dict[str, AuditResult]:
    """Return what every attack of an audit proves, each in its share of the time."""
    from dpconvex.audit import audit as audit_samplers

    results = {}
    # All attacks together are wrong at most as often as the confidence says.
    each = 1 - (1 - confidence) / len(attacks)
    with _audit_progress_bar(seconds, shown=not quiet) as tick:
        for name, pair in attacks.items():
            outputs = _run_audit_for(pair, runs, seconds / len(attacks), rng, tick, name)
            count = len(outputs[0])
            if count < FEWEST:
                raise InputError(
                    f"The attack {name!r} made {count} runs in its share of the time, and needs "
                    f"{FEWEST}. Give --seconds "
                    f"{math.ceil(seconds * FEWEST / max(count, 1) * 1.5)}, or fewer rows or "
                    "columns."
                )
            first, second = map(_replay_audit_outputs, outputs)
            results[name] = audit_samplers(
                first, second, guarantee, count, confidence=each, rng=rng, bits=bits
            )
    return results


def _audited_task(
    task: str, settings: task_options.Settings, rows: int, columns: int, rng: np.random.Generator
) -> tuple[Certificate, Attacks]:
    """Return the estimator's certificate, and for each attack the fits on its two invented data
    sets.
    """
    import numpy as np

    from dpconvex.audit import neighbor_pairs
    from dpconvex.audit.estimators_on_neighbors import fitted_estimator_outputs

    labels = task_options.find_task(task).labels
    if settings.get("classes") is not None:
        raise InputError("The invented data have labels of their own: leave out --classes.")
    more = {
        "feature_bounds": (-1.0, 1.0),
        "target_bounds": (-1.0, 1.0),
        **({"classes": [0, 1]} if labels else {}),
    }
    estimator = task_options.build_task(task, settings, **more)
    X = rng.uniform(-1, 1, (rows, columns))
    y = np.arange(rows) % 2 if labels else rng.uniform(-1, 1, rows)
    targets = (0, 1) if labels else (-_FAR_TARGET, _FAR_TARGET)
    certificate = estimator.certify(rows, columns)
    pairs = neighbor_pairs(X, y, np.ones(columns), targets, certificate.neighbors)

    def fits(data: tuple[Array, ...]) -> Sampler:
        return lambda count, generator: fitted_estimator_outputs(estimator, data, count)

    return certificate, {pair.name: (fits(pair.first), fits(pair.second)) for pair in pairs}


def _audited_function(path: str) -> tuple[Sampler, Sampler]:
    import numpy as np

    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise InputError("The option --sampler must be MODULE:FUNCTION, for instance mine:sample.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), name)
    except Exception as error:
        raise InputError(
            f"The sampler cannot be imported: {type(error).__name__}. Set DPCONVEX_DEBUG=1 to see "
            "why."
        ) from error
    if not callable(function):
        raise InputError(f"The sampler {name!r} is not a function.")

    def audited_on(which: int) -> Sampler:
        def sample(count: int, rng: np.random.Generator) -> Array:
            try:
                return np.asarray(function(which, count, rng), dtype=np.float64)
            except Exception as error:
                raise InputError(
                    f"The sampler failed with {type(error).__name__}. Set DPCONVEX_DEBUG=1 to see "
                    "why."
                ) from error

        return sample

    return audited_on(0), audited_on(1)


def _run_audit_for(
    pair: tuple[Sampler, Sampler],
    most: int,
    seconds: float,
    rng: np.random.Generator,
    tick: Callable[[float, str], None],
    name: str,
) -> list[Array]:
    """Return as many outputs on both data sets as there is time for; how many depends on time
    alone.
    """
    import numpy as np

    for sample in pair:  # the first run compiles
        sample(1, rng)
    pools: list[list[Array]] = [[], []]
    start = time.perf_counter()
    last = 0.0
    done = 0
    batch = 8
    while done < most:
        batch = min(batch, most - done)
        for sample, pool in zip(pair, pools, strict=True):
            outputs = sample(batch, rng)
            if outputs.ndim not in (1, 2) or len(outputs) != batch:
                raise InputError(
                    f"A sampler must return one output for each of {batch} runs. Got shape "
                    f"{outputs.shape} instead."
                )
            pool.append(outputs)
        done += batch
        elapsed = time.perf_counter() - start
        tick(elapsed - last, f"{name}: {done:,} runs")
        step = elapsed - last
        last = elapsed
        # Stop where another batch would not end in time; batches grow to a tenth of it.
        if elapsed + step > seconds:
            break
        if step < seconds / 20:
            batch *= 2
    tick(max(0.0, seconds - last), f"{name}: {done:,} runs")
    return [np.concatenate(pool) for pool in pools]


def _replay_audit_outputs(outputs: Array) -> Sampler:
    """Return a sampler that hands out the outputs in order, each once."""
    used = 0

    def sample(count: int, rng: np.random.Generator) -> Array:
        nonlocal used
        used += count
        return outputs[used - count : used]

    return sample


@contextmanager
def _audit_progress_bar(seconds: float, shown: bool) -> Iterator[Callable[[float, str], None]]:
    """Show the time that has passed, to people only, and yield a function that adds to it."""
    from rich.console import Console
    from rich.progress import Progress

    screen = Console(stderr=True)
    with Progress(
        console=screen, transient=True, disable=not (shown and screen.is_terminal)
    ) as bar:
        task = bar.add_task("Attacking", total=seconds)
        yield lambda step, words: bar.update(task, advance=step, description=words)


def _provable_epsilon(result: AuditResult) -> float:
    """Return the largest epsilon that this many runs could prove at the audited delta."""
    from dpconvex.audit import epsilon_lower_bound

    return float(
        epsilon_lower_bound(
            result.runs, result.runs, 0, result.runs, result.delta, result.confidence
        )
    )


def _audit_result_as_json(result: AuditResult) -> dict[str, object]:
    return {
        "passed": result.passed,
        "epsilon_lower_bound": result.epsilon_lower_bound,
        "epsilon_claimed": result.epsilon,
        "delta": result.delta,
        "runs": result.runs + result.selection_runs,
        "provable": _provable_epsilon(result),
        "detectable_noise": result.detectable_noise,
        "statistic": result.statistic,
    }


def _print_audit_results(
    results: dict[str, AuditResult], guarantee: Guarantee, confidence: float
) -> None:
    from dpconvex.reports.wording import guarantee_wording

    rows = []
    for name, result in results.items():
        verdict = "consistent" if result.passed else "REFUTED"
        runs = result.runs + result.selection_runs
        epsilons = (result.epsilon, result.epsilon_lower_bound, _provable_epsilon(result))
        rows.append(
            (
                name,
                verdict,
                f"{runs:,}",
                f"{result.delta:.2g}",
                *(f"{epsilon:.4g}" for epsilon in epsilons),
            )
        )
    heads = (
        "attack",
        "verdict",
        "runs",
        "at delta",
        "claimed epsilon",
        "proved: at least",
        "provable",
    )
    screen = output_console()
    screen.print(
        output_table(heads, rows, f"Attacks on the claim {guarantee_wording(guarantee)}", left=2)
    )
    if not all(result.passed for result in results.values()):
        words = f"The claim is false, except with probability {1 - confidence:.1g}."
        screen.print(words, style="bold red", markup=False)
        return
    sharpest = max(
        results.values(),
        key=lambda each: -1 if each.detectable_noise is None else each.detectable_noise,
    )
    screen.print(
        "No attack refutes the claim. That proves no privacy: the certificate does. These runs "
        f"would have caught {sharpest.would_have_caught()}."
    )


def _plot_audit_tradeoffs(result: AuditResult, guarantee: Guarantee) -> str:
    from dpconvex.reports.charts import ChartCurve, standalone_svg, tradeoff_chart

    words = (
        "The attack's errors, counted, against the smallest errors that the claim allows. A "
        "claim is refuted where the attack lies below it beyond sampling error. Proved: epsilon "
        f"of at least {result.epsilon_lower_bound:.4g} at delta {result.delta:.2g}, claimed "
        f"{result.epsilon:.4g}."
    )
    found = result.tradeoff
    strongest = ChartCurve("the strongest attack", found.type_one.tolist(), found.type_two.tolist())
    return standalone_svg(tradeoff_chart(words, guarantee, [strongest]))
