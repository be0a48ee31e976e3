"""Which tasks there are, and the options that they share between fit and certify.

A task is one entry of :data:`TASKS`; an option is one entry of :data:`OPTIONS` and is passed to the
estimator as the parameter of the same name.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpconvex.cli.errors import OPTION_NAMES, one_line, reports_errors
from dpconvex.inputs.errors import InputError

if TYPE_CHECKING:
    from dpconvex.inputs.estimator_protocols import Label, Model


Settings = dict[str, Any]  # options that were given, by name; None for the others


@dataclass(frozen=True)
class Task:
    """What a task fits.

    Attributes
    ----------
    estimator : str
        Name of the class, importable from dpconvex.
    labels : bool
        Whether the target is a label rather than a number.
    """

    estimator: str
    labels: bool = False

    @property
    def kind(self) -> type[Model]:
        """The estimator's class."""
        import dpconvex

        return getattr(dpconvex, self.estimator)

    @property
    def parameters(self) -> set[str]:
        """Names of the class's constructor parameters."""
        return set(inspect.signature(self.kind).parameters)


TASKS: dict[str, Task] = {
    "quantile": Task("DPQuantileRegressor"),
    "newsvendor": Task("DPNewsvendor"),
    "linear": Task("DPLinearRegression"),
    "svm": Task("DPLinearSVC", labels=True),
    "logistic": Task("DPLogisticRegression", labels=True),
    "auc": Task("DPAUCClassifier", labels=True),
    "top-rank": Task("DPTopRankClassifier", labels=True),
    "tilted": Task("DPTiltedClassifier", labels=True),
    "tilted-regression": Task("DPTiltedRegressor"),
    "robust": Task("DPRobustClassifier", labels=True),
    "robust-regression": Task("DPRobustRegressor"),
}

BUDGET, MODEL = "Privacy budget", "Model"

# name of the parameter -> type, help, group
OPTIONS: dict[str, tuple[type, str, str]] = {
    "epsilon": (float, "Budget epsilon; 1 by default.", BUDGET),
    "delta": (float, "Budget delta; 1e-6 by default, 0 for pure epsilon-DP.", BUDGET),
    "mu": (float, "Budget of Gaussian DP instead of epsilon, for mechanisms that offer it.", BUDGET),
    "neighbors": (str, "replace_one (default) or add_or_remove_one.", BUDGET),
    "nominal_samples": (int, "Public number of rows, with add_or_remove_one.", BUDGET),
    "invalid_rows": (
        str,
        "error (default), which is visible, or ignore: rows with missing or infinite values or unknown labels "
        "count nowhere.",
        BUDGET,
    ),
    "mechanism": (str, "How noise is added; auto by default.", BUDGET),
    "quantile": (str, "Quantile level, between 0 and 1, or several for one fit: 0.1,0.5,0.9; 0.5 by default.", MODEL),
    "underage_cost": (float, "Cost of one unit too few; 1 by default.", MODEL),
    "overage_cost": (float, "Cost of one unit too many; 1 by default.", MODEL),
    "tilt": (float, "How much more large losses count; 1 by default, 0 is their mean.", MODEL),
    "share": (float, "In place of a tilt: which share of losses counts, the worst ones.", MODEL),
    "radius": (float, "How far an adversary moves a row, in mapped units; 0.1 by default.", MODEL),
    "norm": (str, "Norm of the adversary's radius: l2 (default) or linf.", MODEL),
    "loss": (str, "Loss of a tilted, robust or top-rank model.", MODEL),
    "top": (int, "How many negative records of highest score positive ones should beat; 100 by default.", MODEL),
    "min_positive": (int, "Public lower bound on the number of positive records.", MODEL),
    "min_negative": (int, "Public lower bound on the number of negative records.", MODEL),
    "label_private": (bool, "Whether labels are private; yes by default.", MODEL),
    "classes": (
        list[str],
        "The labels, separated by commas or one by one; by default those found in the data. The last of two in sorted "
        "order is the positive one.",
        MODEL,
    ),
    "inference": (
        bool,
        "Whether to pay for confidence intervals of the coefficients (linear, quantile, logistic); no by default.",
        MODEL,
    ),
    "alpha": (float, "Penalty; by default chosen from public facts.", MODEL),
    "bandwidth": (float, "Smoothing bandwidth; by default chosen from public facts.", MODEL),
    "kernel": (str, "Smoothing kernel; logistic by default.", MODEL),
    "row_norm": (float, "Bound on a row's influence, in mapped units.", MODEL),
    "coef_bound": (float, "Bound on the norm of the mapped coefficients.", MODEL),
    "fit_intercept": (bool, "Whether to fit an intercept; yes by default.", MODEL),
}

OPTION_NAMES.update(OPTIONS)


def number_option(text: str, group: str | None = None, **more: Any) -> Any:
    """Return an option that is a number, whose refusal shows what was given."""
    return typer.Option(
        help=text, rich_help_panel=group, show_default=False, parser=_number, metavar="<float>", **more
    )  # fmt: skip


def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{one_line(str(text))!r} is no number. Use a point, and nothing between thousands: 0.3."
        ) from None


def find_task(name: str) -> Task:
    """Return the task of this name, or raise."""
    if name not in TASKS:
        raise InputError(f"The task must be one of {list(TASKS)}. Got {name!r} instead.")
    return TASKS[name]


def build(task_name: str, settings: Settings, **more: object) -> Model:
    """Return the task's estimator with the options that were given."""
    task = find_task(task_name)
    given = {name: value for name, value in settings.items() if value is not None}
    foreign = sorted(set(given) - task.parameters)
    if foreign:
        flags = ["--" + name.replace("_", "-") for name in foreign]
        raise InputError(f"The task {task_name} has no option {', '.join(flags)}.")
    if "classes" in given:
        given["classes"] = parse_classes(given["classes"])
    if "quantile" in given:
        given["quantile"] = parse_levels(given["quantile"])
    return task.kind(**given, **{k: v for k, v in more.items() if k in task.parameters})


def parse_levels(words: str) -> float | list[float]:
    """Return the level of --quantile, or the levels where there are commas."""
    try:
        levels = [float(word) for word in words.split(",")]
    except ValueError:
        raise InputError(
            "The option --quantile must be a number between 0 and 1, or several: --quantile 0.1,0.5,0.9. "
            f"Got {words!r} instead."
        ) from None
    return levels if "," in words else levels[0]


def parse_classes(words: list[str]) -> list[int] | list[str]:
    """Return the labels of --classes: whole numbers where all of them are, else text."""
    labels = [word.strip() for word in (words[0].split(",") if len(words) == 1 else words)]
    if len(labels) < 2 or "" in labels or len(set(labels)) < len(labels):
        raise InputError(
            "The option --classes must be at least two different labels: --classes no,yes or "
            "--classes no --classes yes."
        )
    whole = all(re.fullmatch("[+-]?[0-9]{1,18}", label) for label in labels)
    return [int(label) for label in labels] if whole else labels


def label_kind(classes: Sequence[Label] | None) -> str | None:
    """Return how labels are to be read where they are declared: "whole" or "text"."""
    if classes is None:
        return None
    return "whole" if all(isinstance(label, int) for label in classes) else "text"


def with_model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all model options; it receives them as the dictionary ``settings``."""
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        settings = {name: arguments.pop(name) for name in OPTIONS}
        # A list that was not given is empty.
        settings = {name: None if value == [] else value for name, value in settings.items()}
        return command(settings=settings, **arguments)

    fixed = [parameter for name, parameter in own.parameters.items() if name != "settings"]
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                kind | None,
                number_option(text, group)
                if kind is float
                else typer.Option(help=text, rich_help_panel=group, show_default=False),
            ],
        )
        for name, (kind, text, group) in OPTIONS.items()
    ]
    fixed = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in fixed]
    run.__signature__ = inspect.Signature(fixed + shared)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in fixed + shared}
    del run.__wrapped__
    return reports_errors(run)
