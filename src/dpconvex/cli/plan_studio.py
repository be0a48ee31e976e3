"""``dpconvex plan`` and ``dpconvex studio``: the accuracy to expect of a private fit, before any data."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.ledger import open_ledger
from dpconvex.cli.options import (
    BUDGET,
    COLUMNS,
    ROWS,
    SCHEMA,
    DatasetOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    MuOption,
    check_target,
    default_task,
    find_task,
    number_option,
    parse_levels,
    text_option,
)
from dpconvex.cli.output import check_output, console, print_json, progress, reports_errors
from dpconvex.inputs import InputError
from dpconvex.inputs.schema import read_schema
from dpconvex.whole_files import write_whole

if TYPE_CHECKING:
    from rich.table import Table

    from dpconvex.planning import Forecast, Forecasts

PLANNED = ("quantile", "newsvendor", "linear", "logistic")


@reports_errors
def plan(
    rows: Annotated[
        int,
        text_option(
            "Number of rows, or with [person] in the schema of people, that you have or expect.", names=ROWS[::-1]
        ),
    ],
    features: Annotated[
        int | None,
        text_option(
            "Number of columns, indicators of categories counted one by one; or give a schema.", names=COLUMNS[::-1]
        ),
    ] = None,
    schema: Annotated[
        Path | None, text_option("Schema, which says the columns and the largest norm of a row.", names=SCHEMA)
    ] = None,
    task: Annotated[
        str | None,
        text_option("quantile (default), newsvendor, linear, or logistic (default for a target of classes)."),
    ] = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    mu: MuOption = None,
    neighbors: Annotated[str, text_option("replace_one (default) or add_or_remove_one.", BUDGET)] = "replace_one",
    quantile: Annotated[
        str | None, text_option("Quantile level, or several of one fit: 0.1,0.5,0.9; 0.5 by default.")
    ] = None,
    underage_cost: Annotated[float | None, number_option("Newsvendor: cost of one unit too few.")] = None,
    overage_cost: Annotated[float | None, number_option("Newsvendor: cost of one unit too many.")] = None,
    accuracy: Annotated[
        float | None, number_option("Excess risk you want, to find the rows it needs; 0.05 by default.")
    ] = None,
    residual_scale: Annotated[
        float | None, number_option("Public guess: standard deviation of residuals over half the target's range.")
    ] = None,
    feature_spread: Annotated[
        float | None, number_option("Public guess: standard deviation of a column over its bound.")
    ] = None,
    class_rate: Annotated[
        float | None, number_option("Logistic: public guess of the share of the rarer or any one class.")
    ] = None,
    row_norm: Annotated[float | None, number_option("Bound on the norm of a row, in mapped units.")] = None,
    plot: Annotated[Path | None, text_option("Draw accuracy against the budget to this file (SVG).")] = None,
    json_: JsonOption = False,
) -> None:
    """Predict the accuracy of a private fit and the rows it needs, from public facts alone.

    No data are read. Predictions hold for a population whose columns and residuals are spread as you guess; without
    guesses, for an average over plausible ones.
    """
    if (features is None) == (schema is None):
        raise InputError("Give either --features or --feature-bounds.")
    classes, people = 2, False
    if schema is not None:
        known = read_schema(schema)
        people = known.person is not None  # who are then counted, as by `certify`
        task = task or default_task(known)
        check_target(task, known)
        declared = None if known.target is None else known.target.classes
        classes = 2 if declared is None else len(declared)
        features, row_norm = len(known.names), known.row_norm if row_norm is None else row_norm
    assert features is not None
    task, unit = task or "quantile", "people" if people else "rows"
    levels = None if quantile is None else parse_levels(quantile)
    level = _quantile_level(task, levels, underage_cost, overage_cost, class_rate)
    if plot is not None:
        check_output(plot, "plot")
    from dpconvex.inputs.settings import resolve_guarantee
    from dpconvex.planning import plan as forecast_risk

    guarantee = resolve_guarantee(epsilon, delta, mu, "plan")
    with progress("Predicting"):
        found = forecast_risk(
            "quantile" if task == "newsvendor" else task,
            rows,
            features,
            guarantee,
            quantile=level,
            neighbors=neighbors,
            row_norm=row_norm,
            residual_scale=residual_scale,
            feature_spread=feature_spread,
            class_rate=class_rate,
            n_classes=classes,
            people=people,
            wanted=0.05 if accuracy is None else accuracy,
        )
        if plot is not None:
            from dpconvex.reports.charts import accuracy_chart, standalone
            from dpconvex.reports.facts import forecast_accuracy

            write_whole(plot, standalone(accuracy_chart(forecast_accuracy(found))).encode())
    if json_:
        print_json(_plain_forecasts(found))
        return
    screen = console()
    screen.print(_forecast_table(found, unit))
    screen.print(f"Excess risk: {found.quantity}.", markup=False)
    if found.best.excess_risk > 0.5 * found.constant.excess_risk:
        screen.print(
            "Expect predictions that are nearly constant. A constant has an excess risk of "
            f"{found.constant.excess_risk:.3g}; all columns together can gain no more than that. More {unit}, a "
            "larger budget or fewer columns help.",
            markup=False,
        )
    if plot is not None:
        screen.print(f"Plot written to {plot}", markup=False)


def _quantile_level(
    task: str,
    quantile: float | list[float] | None,
    underage: float | None,
    overage: float | None,
    class_rate: float | None,
) -> float | list[float]:
    """Return the quantile level, which for a newsvendor follows from its costs; raise for options of other tasks."""
    if task not in PLANNED:
        raise InputError(
            f"The task of plan must be one of {list(PLANNED)}: there are no forecasts of others. Got {task!r} "
            f"instead. The nearest is {'logistic' if find_task(task).labels else 'linear'}."
        )
    foreign = [
        flag
        for flag, value, owner in (
            ("--quantile", quantile, "quantile"),
            ("--underage-cost", underage, "newsvendor"),
            ("--overage-cost", overage, "newsvendor"),
            ("--class-rate", class_rate, "logistic"),
        )
        if value is not None and task != owner
    ]
    if foreign:
        raise InputError(f"The task {task} has no option {', '.join(foreign)}.")
    if task != "newsvendor":
        return 0.5 if quantile is None else quantile
    costs = [1.0 if cost is None else cost for cost in (underage, overage)]
    if not all(math.isfinite(cost) and cost > 0 for cost in costs):
        raise InputError("The costs of a newsvendor must be finite numbers above 0.")
    return costs[0] / (costs[0] + costs[1])


def _forecast_table(found: Forecasts, unit: str) -> Table:
    """Return the forecasts as a table for a terminal."""
    from rich.table import Table

    from dpconvex.reports.wording import describe_guarantee

    words = describe_guarantee(found.guarantee)
    table = Table("mechanism", title=f"{found.n_samples:,} {unit}, {found.n_features} columns\n{words}")
    for head in ("excess risk", f"{unit} for {found.wanted:g}"):
        table.add_column(head, justify="right")
    for forecast in (*found.forecasts, found.constant, found.without_privacy):
        name = {"none": "without privacy", "constant": "a constant"}.get(forecast.mechanism)
        needed = forecast.samples_needed
        beyond = "no number" if forecast.mechanism == "constant" else "beyond a billion"
        table.add_row(
            name or forecast.mechanism,
            f"{forecast.excess_risk:.3g}" if math.isfinite(forecast.excess_risk) else "cannot run",
            beyond if needed is None else f"{needed:,}",
        )
    return table


def _plain_forecasts(found: Forecasts) -> dict[str, object]:
    """Return the forecasts as plain data."""

    def plain(forecast: Forecast) -> dict[str, object]:
        risk = forecast.excess_risk
        return {**asdict(forecast), "excess_risk": risk if math.isfinite(risk) else None}

    return {
        "task": found.task,
        "rows": found.n_samples,
        "features": found.n_features,
        "guarantee": found.guarantee.to_dict(),
        "neighbors": found.neighbors,
        "unit": found.unit,
        "quantity": found.quantity,
        "wanted": found.wanted,
        "forecasts": [plain(forecast) for forecast in found.forecasts],
        "without_privacy": plain(found.without_privacy),
        "constant": plain(found.constant),
    }


@reports_errors
def studio(
    ledger: Annotated[Path | None, typer.Option(help="Ledger whose timeline is shown.")] = None,
    dataset: DatasetOption = "default",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; a free one by default.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Open a local page to plan a fit: sliders for rows, columns and budget, forecasts, the attacker's odds.

    It reads no training rows, and nothing leaves this machine. Stop it with Ctrl-C.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"The option --port must be from 0 to 65535. Got {port} instead.")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise InputError("The studio needs a small server: install it with `pip install 'dpconvex[studio]'`.") from None
    from dpconvex.reports.studio_server import serve

    account = None if ledger is None else open_ledger(ledger, dataset)

    with tempfile.TemporaryDirectory(prefix="dpconvex-studio-") as folder:

        def opened(address: str) -> None:
            console().print(f"The studio is at {address}", markup=False, soft_wrap=True)
            console().print("The address works once. Stop with Ctrl-C.")
            if browser:
                import webbrowser

                webbrowser.open(redirecting_page(address, Path(folder)).as_uri())

        serve(account, port, opened)


def redirecting_page(address: str, folder: Path) -> Path:
    """Write a page that only its owner can read and that leads to an address.

    A browser's command line, with what it is told to open, can be read by everybody on the machine.
    """
    page = folder / "open.html"
    handle = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(
            f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">'
            f'<title>dpconvex studio</title><a href="{address}">dpconvex studio</a>'
        )
    return page
