"""Tasks, and the options that commands share.

A task is one entry of :data:`TASKS`; an option of a model is one entry of :data:`OPTIONS` and is
passed to the estimator as the parameter of the same name.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpconvex.cli.output_and_errors import OPTION_NAMES, one_line, reports_errors, say
from dpconvex.inputs import InputError
from dpconvex.inputs.csv_reader import CSVFormat, check_csv_delimiter, check_csv_encoding
from dpconvex.inputs.schema import Schema
from dpconvex.inputs.schema_file import read_schema
from dpconvex.reports.release_file import ReleaseFileFacts, read_release_file

if TYPE_CHECKING:
    from dpconvex.inputs.settings import Label, Model

Settings = dict[str, Any]  # options that were given, by name; None for the others


@dataclass(frozen=True)
class Task:
    """Name of an estimator of dpconvex, and whether its target is a label rather than a number."""

    estimator: str
    labels: bool = False

    @property
    def kind(self) -> type[Model]:
        """The estimator's class."""
        import dpconvex

        kind: type[Model] = getattr(dpconvex, self.estimator)
        return kind

    @property
    def parameters(self) -> set[str]:
        """Names of the class's constructor parameters."""
        return set(inspect.signature(self.kind).parameters)


TASKS: dict[str, Task] = {
    "quantile": Task("DPQuantileRegressor"),
    "newsvendor": Task("DPNewsvendor"),
    "linear": Task("DPLinearRegression"),
    "poisson": Task("DPPoissonRegressor"),
    "gamma": Task("DPGammaRegressor"),
    "tweedie": Task("DPTweedieRegressor"),
    "hazard": Task("DPDiscreteHazard"),
    "svm": Task("DPLinearSVC", labels=True),
    "logistic": Task("DPLogisticRegression", labels=True),
    "ordinal": Task("DPOrdinalRegression", labels=True),
    "auc": Task("DPAUCClassifier", labels=True),
    "top-rank": Task("DPTopRankClassifier", labels=True),
    "tilted": Task("DPTiltedClassifier", labels=True),
    "tilted-regression": Task("DPTiltedRegressor"),
    "robust": Task("DPRobustClassifier", labels=True),
    "robust-regression": Task("DPRobustRegressor"),
}

_USUAL_FILE = CSVFormat()
BUDGET = "Privacy budget"
MODEL = "Model"
FILE = "Data file"

# name of the parameter -> type, help, group
OPTIONS: dict[str, tuple[type, str, str]] = {
    "epsilon": (float, "Budget epsilon; 1 by default.", BUDGET),
    "delta": (float, "Budget delta; 1e-6 by default, 0 for pure epsilon-DP.", BUDGET),
    "mu": (
        float,
        "Budget of Gaussian DP instead of epsilon, for mechanisms that offer it.",
        BUDGET,
    ),
    "neighbors": (str, "replace_one (default) or add_or_remove_one.", BUDGET),
    "nominal_samples": (int, "Public number of rows, with add_or_remove_one.", BUDGET),
    "invalid_rows": (
        str,
        "error (default), which is visible, or ignore: rows with missing or infinite values or "
        "unknown labels count nowhere.",
        BUDGET,
    ),
    "mechanism": (str, "How noise is added; auto by default.", BUDGET),
    "quantile": (
        str,
        "Quantile level, between 0 and 1, or several for one fit: 0.1,0.5,0.9; 0.5 by default.",
        MODEL,
    ),
    "power": (
        float,
        "Power of the mean that the variance of a Tweedie model grows with, 1 to 2; 1.5 by "
        "default.",
        MODEL,
    ),
    "rate_bounds": (
        str,
        "Public range of the means of poisson, gamma and tweedie: 0.1,50; wide by default.",
        MODEL,
    ),
    "underage_cost": (float, "Cost of one unit too few; 1 by default.", MODEL),
    "overage_cost": (float, "Cost of one unit too many; 1 by default.", MODEL),
    "horizons": (str, "Ends of the periods of survival, separated by commas: 1,2,3,6,12.", MODEL),
    "tilt": (float, "How much more large losses count; 1 by default, 0 is their mean.", MODEL),
    "share": (float, "In place of a tilt: which share of losses counts, the worst ones.", MODEL),
    "radius": (float, "How far an adversary moves a row, in mapped units; 0.1 by default.", MODEL),
    "norm": (str, "Norm of the adversary's radius: l2 (default) or linf.", MODEL),
    "loss": (str, "Loss of a tilted, robust or top-rank model.", MODEL),
    "top": (
        int,
        "How many negative records of highest score positive ones should beat; 100 by default.",
        MODEL,
    ),
    "min_positive": (int, "Public lower bound on the number of positive records.", MODEL),
    "min_negative": (int, "Public lower bound on the number of negative records.", MODEL),
    "label_private": (bool, "Whether labels are private; yes by default.", MODEL),
    "classes": (
        list[str],
        "The labels, separated by commas or one by one; by default those found in the data. The "
        "last of two in sorted order is the positive one; levels of ordinal are in this order, "
        "from the lowest on.",
        MODEL,
    ),
    "inference": (
        bool,
        "Whether to pay for confidence intervals of the coefficients (linear, poisson, gamma, "
        "tweedie, quantile, logistic); no by default.",
        MODEL,
    ),
    "alpha": (float, "Penalty; by default chosen from public facts.", MODEL),
    "bandwidth": (float, "Smoothing bandwidth; by default chosen from public facts.", MODEL),
    "kernel": (str, "Smoothing kernel; logistic by default.", MODEL),
    "row_norm": (float, "Bound on the norm of a row, in mapped units.", MODEL),
    "coef_bound": (float, "Bound on the norm of the mapped coefficients.", MODEL),
    "fit_intercept": (bool, "Whether to fit an intercept; yes by default.", MODEL),
}
OPTION_NAMES.update(OPTIONS)

# Other commands' names for the same facts are taken too.
ROWS = ("--n-samples", "--rows")
COLUMNS = ("--n-features", "--features")
SCHEMA = ("--feature-bounds", "--schema")
SCHEMA_HELP = (
    "Schema: TOML file with public bounds, categories and dates; see `dpconvex bounds init`."
)
TaskOption = Annotated[
    str | None,
    typer.Option(
        help=f"What to fit: {', '.join(TASKS)}; by default quantile, or logistic for a target of "
        "classes."
    ),
]
FormulaOption = Annotated[
    str | None,
    typer.Option(
        help='Terms of the model, of columns of the schema: "wage ~ educ + log(exper) + C(region)".'
    ),
]
PersonOption = Annotated[
    str | None,
    typer.Option(help="Column that names people: the guarantee is for each person with all rows."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DatasetOption = Annotated[str, typer.Option(help="Which budget of the ledger.")]
ReleaseOption = Annotated[
    Path | None,
    typer.Option(help="TOML file that says who publishes the model and why, for the report."),
]
RegistryOption = Annotated[
    Path | None,
    typer.Option(help="Where to write an entry for the OpenDP registry of deployments (YAML)."),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        help="What separates fields; by default seen in the header.", rich_help_panel=FILE
    ),
]
EncodingOption = Annotated[
    str | None,
    typer.Option(
        help="Encoding of the file, like latin-1; UTF-8 by default.", rich_help_panel=FILE
    ),
]


def text_option(text: str, group: str | None = None, names: tuple[str, ...] = ()) -> Any:
    """Return an option without a shown default."""
    return typer.Option(*names, help=text, rich_help_panel=group, show_default=False)


def number_option(text: str, group: str | None = None) -> Any:
    """Return an option that is a number, whose refusal shows what was given."""
    return typer.Option(
        help=text,
        rich_help_panel=group,
        show_default=False,
        parser=_parse_number_option,
        metavar="<float>",
    )


def _parse_number_option(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{one_line(str(text))!r} is no number. Use a point, and nothing between thousands: "
            "0.3."
        ) from None


def find_task(name: str) -> Task:
    """Return the task of this name, or raise."""
    if name not in TASKS:
        raise InputError(f"The task must be one of {list(TASKS)}. Got {name!r} instead.")
    return TASKS[name]


def default_task(schema: Schema) -> str:
    """Return the task that a schema's target is for."""
    classes = schema.target is not None and schema.target.classes is not None
    return "logistic" if classes else "quantile"


def check_task_target(task: str, schema: Schema, named: bool = False) -> None:
    """Raise unless a task learns what the schema's target is; its labels may be named elsewhere."""
    labels = find_task(task).labels
    declared = schema.target.classes if schema.target is not None else None
    if declared is not None and not labels:
        of_labels = [name for name, known in TASKS.items() if known.labels]
        raise InputError(
            f"The task {task} learns numbers, but the schema's [target] has classes. Use one of "
            f"{of_labels}, or give [target] a range: column = [low, high]."
        )
    if labels and schema.target_bounds is not None and not named:
        of_numbers = [name for name, known in TASKS.items() if not known.labels]
        raise InputError(
            f"The task {task} learns labels, but the schema's [target] has a range: it is a "
            "number. Its values would be taken for labels and published. Use one of "
            f"{of_numbers}, or name the labels: "
            'column = {classes = ["no", "yes"]} in [target], or --classes.'
        )


def build_task(task_name: str, settings: Settings, **more: object) -> Model:
    """Return the task's estimator with the options that were given."""
    task = find_task(task_name)
    given = {name: value for name, value in settings.items() if value is not None}
    foreign = sorted(set(given) - task.parameters)
    if foreign:
        flags = ["--" + name.replace("_", "-") for name in foreign]
        raise InputError(f"The task {task_name} has no option {', '.join(flags)}.")
    if "classes" in given:
        given["classes"] = parse_classes_option(given["classes"])
    for name in {"horizons", "rate_bounds", "quantile"} & set(given):
        given[name] = parse_numbers_option(name, given[name])
    return task.kind(**given, **{k: v for k, v in more.items() if k in task.parameters})


def build_task_for_schema(task: str, settings: Settings, schema: Schema, **more: object) -> Model:
    """Return the estimator for a schema, whose classes and row norm hold unless options say
    otherwise.
    """
    given = settings.get("classes")
    check_task_target(task, schema, named=given is not None)
    declared = schema.target.classes if schema.target is not None else None
    if (task == "hazard") != (schema.target is not None and schema.target.event is not None):
        raise InputError(
            "The task hazard, and no other, needs the column of events in the schema: "
            'time = {event = "died"} in [target].'
        )
    if not TASKS[task].labels and schema.target_bounds is None and task != "hazard":
        say(
            "warning: the schema has no [target] range: the default mechanism spends a part of its "
            "budget on the scale of the target, others take targets to be of order 1."
        )
    if (
        declared is not None
        and given is not None
        and set(map(str, parse_classes_option(list(given)))) != set(declared)
    ):
        raise InputError(
            "The option --classes must be the classes of the schema's [target], "
            f"{list(declared)}. Got others instead. Leave it out."
        )
    settings = dict(settings)
    if declared is not None and given is None:
        settings["classes"] = list(declared)
    if settings.get("row_norm") is None:
        settings["row_norm"] = schema.row_norm
    if schema.smooth:  # refused where a task has no such penalty
        settings["smooth"] = schema.smooth
    return build_task(
        task,
        settings,
        feature_bounds=schema.feature_bounds,
        target_bounds=schema.target_bounds,
        **more,
    )


def parse_numbers_option(name: str, words: str) -> float | list[float]:
    """Return the numbers of an option that takes several; a single quantile level as it is."""
    try:
        numbers = [float(word) for word in words.split(",")]
    except ValueError:
        example = "0.1,0.5,0.9" if name == "quantile" else "1,2"
        flag = "--" + name.replace("_", "-")
        raise InputError(
            f"The option {flag} must be numbers: {flag} {example}. Got {words!r} instead."
        ) from None
    return numbers[0] if name == "quantile" and len(numbers) == 1 else numbers


def parse_classes_option(words: list[str]) -> list[int] | list[str]:
    """Return the labels of the task's --classes option: whole numbers where all of them are,
    else text.
    """
    labels = [word.strip() for word in (words[0].split(",") if len(words) == 1 else words)]
    if len(labels) < 2 or "" in labels or len(set(labels)) < len(labels):
        raise InputError(
            "The option --classes must be at least two different labels: --classes no,yes or "
            "--classes no --classes yes."
        )
    whole = all(re.fullmatch("[+-]?[0-9]{1,18}", label) for label in labels)
    return [int(label) for label in labels] if whole else labels


def task_label_kind(classes: Sequence[Label] | None) -> str | None:
    """Return how labels are to be read where they are declared: "whole" or "text"."""
    if classes is None:
        return None
    return "whole" if all(isinstance(label, int) for label in classes) else "text"


def read_task_schema(path: Path, formula: str | None) -> Schema:
    """Return the schema of a file, or the one that a formula makes of it."""
    schema = read_schema(path)
    if formula is None:
        return schema
    from dpconvex.inputs.formula import formula_schema

    return formula_schema(schema, formula)


def file_format_options(
    delimiter: str | None, encoding: str | None, file: CSVFormat = _USUAL_FILE
) -> CSVFormat:
    """Return how a file is read: as its schema says, if there is one, but for what the command
    line says.
    """
    if delimiter is not None:
        file = replace(file, delimiter=check_csv_delimiter(delimiter))
    if encoding is not None:
        file = replace(file, encoding=check_csv_encoding(encoding))
    if file.decimal == file.delimiter:
        raise InputError(
            f"The option --delimiter must not be the schema's decimal sign. Got {delimiter!r} for "
            "both. Change one."
        )
    return file


def with_file_options(schema: Schema, delimiter: str | None, encoding: str | None) -> Schema:
    """Return the schema with what the command line says of the file."""
    return replace(schema, file=file_format_options(delimiter, encoding, schema.file))


def release_facts(path: Path | None, target: str | None) -> ReleaseFileFacts:
    """Return what a release file says, with the column that was learned."""
    facts = ReleaseFileFacts() if path is None else read_release_file(path)
    return facts if facts.target else replace(facts, target=target or "")


def with_options(names: Iterable[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command these options of models, as the dictionary
    ``settings``.
    """

    def decorate_with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**arguments: Any) -> Any:
            settings = {name: arguments.pop(name) for name in names}
            # A list that was not given is empty.
            settings = {name: None if value == [] else value for name, value in settings.items()}
            return command(settings=settings, **arguments)

        own = inspect.signature(command, eval_str=True).parameters
        parameters = [
            each.replace(kind=each.KEYWORD_ONLY) for name, each in own.items() if name != "settings"
        ]
        for name in names:
            kind, text, group = OPTIONS[name]
            option = number_option(text, group) if kind is float else text_option(text, group)
            parameters.append(
                inspect.Parameter(
                    name,
                    parameters[0].kind,
                    default=None,
                    annotation=Annotated[kind | None, option],
                )
            )
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del run.__wrapped__
        return reports_errors(run)

    return decorate_with_options


with_model_options = with_options(OPTIONS)
