"""``dpconvex audit``: attack an estimator, or a mechanism of the user's own, and bound its epsilon."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from dpconvex.cli.errors import VERIFICATION
from dpconvex.cli.fit import COLUMNS, ROWS, JsonOption, TaskOption
from dpconvex.cli.options import Settings, with_model_options
from dpconvex.cli.outputs import check_output
from dpconvex.cli.screen import console, print_json
from dpconvex.inputs.errors import InputError
from dpconvex.whole_files import write_whole

FEWEST, MOST = 100, 1_000_000
_BUDGET = {"epsilon", "delta", "mu"}


def register_commands(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("audit")(audit_command)


@with_model_options
def audit_command(
    settings: Settings,
    task: TaskOption = "quantile",
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Audit your own mechanism instead: MODULE:FUNCTION, where FUNCTION(which, count, rng) returns "
            "count outputs on the first (0) or second (1) of two neighbouring data sets.",
            show_default=False,
        ),
    ] = None,
    n_samples: Annotated[int, typer.Option(*ROWS, help="Rows of the invented data.", min=4, max=100_000)] = 20,
    n_features: Annotated[int, typer.Option(*COLUMNS, help="Columns of the invented data.", min=1, max=1_000)] = 1,
    seconds: Annotated[float, typer.Option(help="Time to spend on runs.", min=0.1)] = 60.0,
    runs: Annotated[int, typer.Option(help="Most runs per data set and attack.", min=FEWEST, max=MOST)] = 100_000,
    confidence: Annotated[float, typer.Option(help="Probability that a true claim is not refuted.")] = 1 - 1e-6,
    seed: Annotated[int | None, typer.Option(help="Seed of the invented data, and of your own sampler.", min=0)] = None,
    plot: Annotated[Path | None, typer.Option(help="Where to draw the trade-off curves (SVG).")] = None,
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
    import numpy as np

    from dpconvex.cli.attacks import (
        Limits,
        attacks_on_task,
        own_sampler,
        plain_results,
        plot_tradeoffs,
        run_attacks,
        show_results,
    )
    from dpconvex.inputs.settings import resolve_guarantee

    rng = np.random.default_rng(seed)
    if sampler is None:
        certificate, attacks = attacks_on_task(task or "quantile", settings, n_samples, n_features, rng)
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
        attacks, bits = {"sampler": own_sampler(sampler)}, False
    limits = Limits(runs, seconds, confidence, bits)
    results = run_attacks(attacks, guarantee, limits, rng, shown=not json_)
    worst = max(results.values(), key=lambda result: result.epsilon_lower_bound / max(result.epsilon, 1e-12))
    if plot is not None:
        write_whole(plot, plot_tradeoffs(worst, guarantee).encode())
    if json_:
        print_json(plain_results(results, guarantee, confidence))
    else:
        show_results(results, guarantee, confidence)
        if plot is not None:
            console().print(f"Trade-off curves written to {plot}", markup=False)
    if not all(result.passed for result in results.values()):
        raise typer.Exit(VERIFICATION)
