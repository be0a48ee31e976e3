"""``dpconvex plan``: the accuracy to expect of a private fit, and the rows it needs, before any data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import SCHEMA, JsonOption, check_target, default_task
from dpconvex.cli.options import BUDGET, find_task, number_option, parse_levels
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.schema_parsing import read_schema

if TYPE_CHECKING:
    from rich.table import Table

    from dpconvex.planning import Forecast, RiskPlan

PLANNED = ("quantile", "newsvendor", "linear", "logistic")
PICTURES = (".png", ".svg", ".pdf")


def register_commands(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(plan)


def _option(text: str, group: str | None = None, names: tuple[str, ...] = ()) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=group, show_default=False)


@reports_errors
def plan(
    rows: Annotated[
        int,
        _option(
            "Number of rows, or with [person] in the schema of people, that you have or expect.",
            names=("--rows", "--n-samples"),
        ),
    ],
    features: Annotated[
        int | None,
        _option(
            "Number of columns, indicators of categories counted one by one; or give a schema.",
            names=("--features", "--n-features"),
        ),
    ] = None,
    schema: Annotated[
        Path | None, _option("Schema, which says the columns and how long a row can be.", names=SCHEMA)
    ] = None,
    task: Annotated[
        str | None, _option("quantile (default), newsvendor, linear, or logistic (default for a target of classes).")
    ] = None,
    epsilon: Annotated[float | None, number_option("Budget epsilon; 1 by default.", BUDGET)] = None,
    delta: Annotated[float | None, number_option("Budget delta; 1e-6 by default.", BUDGET)] = None,
    mu: Annotated[float | None, number_option("Budget of Gaussian DP instead.", BUDGET)] = None,
    neighbors: Annotated[str, _option("replace_one (default) or add_or_remove_one.", BUDGET)] = "replace_one",
    quantile: Annotated[
        str | None, _option("Quantile level, or several of one fit: 0.1,0.5,0.9; 0.5 by default.")
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
    row_norm: Annotated[float | None, number_option("Bound on a row's influence, in mapped units.")] = None,
    plot: Annotated[Path | None, _option("Draw accuracy against epsilon to this file (png, svg, pdf).")] = None,
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
    level = _level(task, levels, underage_cost, overage_cost, class_rate)
    if plot is not None:
        _check_picture(plot)
    from dpconvex.inputs.settings import resolve_guarantee
    from dpconvex.planning import plan as predict_risk

    guarantee = resolve_guarantee(epsilon, delta, mu, "plan")
    with progress("Predicting"):
        outlook = predict_risk(
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
            draw(outlook, plot)
    if json_:
        print_json(_as_data(outlook, plot))
        return
    screen = console()
    screen.print(_table(outlook, unit))
    screen.print(f"Excess risk: {outlook.quantity}.", markup=False)
    if outlook.best.excess_risk > 0.5 * outlook.constant.excess_risk:
        screen.print(
            f"Expect little more than a constant: all that columns can gain over it is "
            f"{outlook.constant.excess_risk:.3g}. More {unit}, a larger budget or fewer columns help.",
            markup=False,
        )
    if plot is not None:
        screen.print(f"Picture: {plot}", markup=False)


def _level(
    task: str,
    quantile: float | list[float] | None,
    underage: float | None,
    overage: float | None,
    class_rate: float | None = None,
) -> float | list[float]:
    """Return the quantile level; a newsvendor's follows from its costs."""
    if task not in PLANNED:
        near = f" The nearest is {'logistic' if find_task(task).labels else 'linear'}."
        raise InputError(
            f"The task of plan must be one of {list(PLANNED)}: there are no forecasts of others. Got {task!r} "
            f"instead.{near}"
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


def _check_picture(path: Path) -> None:
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"The picture must be one of {list(PICTURES)}. Got {path.suffix!r} instead.")
    if not path.parent.is_dir():
        raise InputError(f"The picture cannot be written to {str(path)!r}.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError(
            "A picture needs matplotlib: install it with `pip install 'dpconvex[plots]'`, or leave out --plot."
        ) from None


def _table(outlook: RiskPlan, unit: str) -> Table:
    from rich.table import Table

    from dpconvex.reports.terminal import guarantee_in_words

    promise = guarantee_in_words(outlook.guarantee)
    title = f"{outlook.n_samples:,} {unit}, {outlook.n_features} columns\n{promise}"
    table = Table(title=title)
    table.add_column("mechanism")
    table.add_column("excess risk", justify="right")
    table.add_column(f"{unit} for {outlook.wanted:g}", justify="right")
    for forecast in (*outlook.forecasts, outlook.constant, outlook.without_privacy):
        name = {"none": "without privacy", "constant": "a constant"}.get(forecast.mechanism)
        needed = forecast.samples_needed
        beyond = "no number" if forecast.mechanism == "constant" else "beyond a billion"
        table.add_row(
            name or forecast.mechanism,
            f"{forecast.excess_risk:.3g}" if math.isfinite(forecast.excess_risk) else "cannot run",
            beyond if needed is None else f"{needed:,}",
        )
    return table


def _as_data(outlook: RiskPlan, plot: Path | None) -> dict[str, object]:
    def plain(forecast: Forecast) -> dict[str, object]:
        risk = forecast.excess_risk
        return {
            "mechanism": forecast.mechanism,
            "excess_risk": risk if math.isfinite(risk) else None,
            "samples_needed": forecast.samples_needed,
        }

    return {
        "task": outlook.task,
        "rows": outlook.n_samples,
        "features": outlook.n_features,
        "guarantee": outlook.guarantee.to_dict(),
        "neighbors": outlook.neighbors,
        "unit": outlook.unit,
        "quantity": outlook.quantity,
        "wanted": outlook.wanted,
        "forecasts": [plain(forecast) for forecast in outlook.forecasts],
        "without_privacy": plain(outlook.without_privacy),
        "constant": plain(outlook.constant),
        "plot": None if plot is None else str(plot),
    }


def draw(outlook: RiskPlan, path: Path) -> None:
    """Draw the predictions to a file, whose ending says in which format."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    outlook.plot(axes)
    figure.savefig(path, dpi=150)
    plt.close(figure)
