"""``dpconvex plan`` and ``dpconvex studio``: the accuracy to expect of a private fit, before any
data.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli import output_and_errors as output
from dpconvex.cli import task_options
from dpconvex.cli.ledger import open_ledger
from dpconvex.cli.task_options import COLUMNS, ROWS, number_option, text_option
from dpconvex.inputs import InputError
from dpconvex.inputs.schema_file import read_schema

if TYPE_CHECKING:
    from rich.table import Table

    from dpconvex.planning import Forecast, Forecasts

PLANNED = (
    "quantile",
    "newsvendor",
    "linear",
    "poisson",
    "gamma",
    "tweedie",
    "logistic",
    "hazard",
    "ordinal",
)
RESIDUAL_SCALE = (
    "Public guess: standard deviation of residuals over half the target's range; of "
    "a rate, over the mean."
)
FEATURE_SPREAD = "Public guess: standard deviation of a column over its bound."


_SHARED = (
    "epsilon",
    "delta",
    "mu",
    "neighbors",
    "quantile",
    "underage_cost",
    "overage_cost",
    "row_norm",
)


@task_options.with_options(_SHARED)
def plan(
    settings: task_options.Settings,
    rows: Annotated[
        int, text_option("Number of rows, or of people if the schema names them.", names=ROWS[::-1])
    ],
    features: Annotated[
        int | None, text_option("Columns; or give a schema.", names=COLUMNS[::-1])
    ] = None,
    schema: Annotated[
        Path | None, text_option("Schema: columns and row norm.", names=task_options.SCHEMA)
    ] = None,
    task: Annotated[
        str | None, text_option(f"{', '.join(PLANNED)}; as for `fit` by default.")
    ] = None,
    accuracy: Annotated[
        float | None, number_option("Excess risk you want; 0.05 by default.")
    ] = None,
    residual_scale: Annotated[float | None, number_option(RESIDUAL_SCALE)] = None,
    feature_spread: Annotated[float | None, number_option(FEATURE_SPREAD)] = None,
    class_rate: Annotated[
        float | None, number_option("Public guess: share of a class, for logistic.")
    ] = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Predict the accuracy of a private fit and the rows it needs, from public facts alone.

    No data are read. Predictions hold for a population whose columns and residuals are spread as
    you guess; without guesses, for an average over plausible ones.
    """
    if (features is None) == (schema is None):
        raise InputError("Give either --features or --feature-bounds.")
    classes = 2
    people = False
    if schema is not None:
        known = read_schema(schema)
        people = known.person is not None  # who are then counted, as by `certify`
        task = task or task_options.default_task(known)
        task_options.check_task_target(task, known)
        declared = None if known.target is None else known.target.classes
        classes = 2 if declared is None else len(declared)
        features = len(known.names)
        settings["row_norm"] = (
            known.row_norm if settings["row_norm"] is None else settings["row_norm"]
        )
    assert features is not None
    task = task or "quantile"
    unit = "people" if people else "rows"
    level = _planned_quantile_level(task, {**settings, "class_rate": class_rate})
    from dpconvex.inputs.settings import resolve_budget_setting
    from dpconvex.planning import plan as forecast_risk
    from dpconvex.privacy import GaussianDP

    guarantee = resolve_budget_setting(
        settings["epsilon"], settings["delta"], settings["mu"], "plan"
    )
    with output.output_progress("Predicting"):
        found = forecast_risk(
            "quantile" if task == "newsvendor" else task,
            rows,
            features,
            guarantee,
            quantile=level,
            neighbors=settings["neighbors"] or "replace_one",
            row_norm=settings["row_norm"],
            residual_scale=residual_scale,
            feature_spread=feature_spread,
            class_rate=class_rate,
            n_classes=classes,
            people=people,
            wanted=0.05 if accuracy is None else accuracy,
        )
    if json_:
        output.print_json(_plan_as_json(found))
        return
    screen = output.output_console()
    screen.print(_plan_table(found, unit))
    screen.print(f"Excess risk: {found.quantity}.", markup=False)
    if (free := found.free_budget()) is not None:
        name = "mu" if isinstance(guarantee, GaussianDP) else "epsilon"
        screen.print(
            f"From {name} = {free:.2g} on, privacy adds less to it than sampling does.",
            markup=False,
        )
    if found.best.excess_risk > 0.5 * found.constant.excess_risk:
        screen.print(
            "Expect predictions that are nearly constant. A constant has an excess risk of "
            f"{found.constant.excess_risk:.3g}; all columns together can gain no more than that. "
            f"More {unit}, a larger budget or fewer columns help.",
            markup=False,
        )


def _planned_quantile_level(task: str, settings: task_options.Settings) -> float | list[float]:
    """Return the quantile level to plan for, that of its costs for a newsvendor; raise for
    options of other tasks.
    """
    if task not in PLANNED:
        raise InputError(
            f"The task of plan must be one of {list(PLANNED)}: there are no forecasts of others. "
            f"Got {task!r} instead. The nearest is "
            f"{'logistic' if task_options.find_task(task).labels else 'linear'}."
        )
    owners = {
        "quantile": "quantile",
        "underage_cost": "newsvendor",
        "overage_cost": "newsvendor",
        "class_rate": "logistic",
    }
    foreign = [
        name for name, owner in owners.items() if settings[name] is not None and task != owner
    ]
    if foreign:
        flags = ["--" + name.replace("_", "-") for name in foreign]
        raise InputError(f"The task {task} has no option {', '.join(flags)}.")
    if task != "newsvendor":
        given = settings["quantile"]
        return 0.5 if given is None else task_options.parse_numbers_option("quantile", given)
    costs = settings["underage_cost"], settings["overage_cost"]
    underage, overage = (1.0 if cost is None else cost for cost in costs)
    if not all(math.isfinite(cost) and cost > 0 for cost in (underage, overage)):
        raise InputError("The costs of a newsvendor must be finite numbers above 0.")
    return underage / (underage + overage)


def _plan_table(found: Forecasts, unit: str) -> Table:
    from dpconvex.reports.wording import guarantee_wording

    rows = []
    for forecast in (*found.forecasts, found.constant, found.without_privacy):
        name = {"none": "without privacy", "constant": "a constant"}.get(forecast.mechanism)
        needed = forecast.samples_needed
        beyond = "no number" if forecast.mechanism == "constant" else "beyond a billion"
        risk = (
            f"{forecast.excess_risk:.3g}" if math.isfinite(forecast.excess_risk) else "cannot run"
        )
        rows.append((name or forecast.mechanism, risk, beyond if needed is None else f"{needed:,}"))
    title = (
        f"{found.n_samples:,} {unit}, {found.n_features} columns\n"
        f"{guarantee_wording(found.guarantee)}"
    )
    return output.output_table(
        ("mechanism", "excess risk", f"{unit} for {found.wanted:g}"), rows, title
    )


def _plan_as_json(found: Forecasts) -> dict[str, object]:
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
        "free_budget": found.free_budget(),
    }


@output.reports_errors
def studio(
    ledger: Annotated[Path | None, typer.Option(help="Ledger whose timeline is shown.")] = None,
    dataset: task_options.DatasetOption = "default",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; a free one by default.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    json_: task_options.JsonOption = False,
) -> None:
    """Open a local page to plan a fit: sliders for rows, columns and budget, forecasts, the
    attacker's odds.

    It reads no training rows, and nothing leaves this machine. Stop it with Ctrl-C.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"The option --port must be from 0 to 65535. Got {port} instead.")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise InputError(
            "The studio needs a small server: install it with `pip install 'dpconvex[studio]'`."
        ) from None
    from dpconvex.reports.studio_server import serve_studio

    account = None if ledger is None else open_ledger(ledger, dataset)

    with tempfile.TemporaryDirectory(prefix="dpconvex-studio-") as folder:

        def opened(address: str) -> None:
            if json_:
                output.print_json({"address": address})
                sys.stdout.flush()  # whoever reads it waits for it
            else:
                output.output_console().print(
                    f"The studio is at {address}", markup=False, soft_wrap=True
                )
                output.output_console().print("The address works once. Stop with Ctrl-C.")
            if browser:
                import webbrowser

                webbrowser.open(studio_redirect_page(address, Path(folder)).as_uri())

        serve_studio(account, port, opened)


def studio_redirect_page(address: str, folder: Path) -> Path:
    """Write a page that only its owner can read and that leads to an address."""
    # A browser's command line, with what it is told to open, can be read by everybody on the
    # machine.
    page = folder / "open.html"
    handle = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(
            '<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; '
            f'url={address}"><title>dpconvex studio</title><a href="{address}">dpconvex studio</a>'
        )
    return page
