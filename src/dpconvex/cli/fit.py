"""``dpconvex fit`` and ``dpconvex certify``."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.errors import explain
from dpconvex.cli.options import TASKS, Settings, build, find_task, label_kind, parse_classes, with_model_options
from dpconvex.cli.outputs import check_model_output, check_output, ledger_files, print_unsaved
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.dask_files import matching_files
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.files import read_training_file
from dpconvex.inputs.opening import check_file, table_format
from dpconvex.inputs.release_file import ReleaseFacts, read_release
from dpconvex.inputs.schema import Schema
from dpconvex.inputs.schema_parsing import check_delimiter, check_encoding, read_schema

if TYPE_CHECKING:
    from dpconvex.inputs.estimator_protocols import Fitted, Model
    from dpconvex.privacy.ledger.ledger import Ledger

TaskOption = Annotated[
    str | None,
    typer.Option(help=f"What to fit: {', '.join(TASKS)}; by default quantile, or logistic for a target of classes."),
]
PersonOption = Annotated[
    str | None, typer.Option(help="Column that names people: what is promised is promised to each with all rows.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
ENGINE = "Engine"
# Other commands' names for the same facts are taken too.
ROWS, COLUMNS = ("--n-samples", "--rows"), ("--n-features", "--features")
SCHEMA = ("--feature-bounds", "--schema")
SCHEMA_HELP = "Schema: TOML file with public bounds, categories and dates; see `dpconvex bounds init`."
FILE = "Data file"
DelimiterOption = Annotated[
    str | None, typer.Option(help="What separates fields; by default seen in the header.", rich_help_panel=FILE)
]
EncodingOption = Annotated[
    str | None, typer.Option(help="Encoding of the file, like latin-1; UTF-8 by default.", rich_help_panel=FILE)
]
LineBreaksOption = Annotated[
    bool,
    typer.Option(
        "--line-breaks",
        help="Quoted fields may hold line breaks, as with line_breaks = true in a schema.",
        rich_help_panel=FILE,
    ),
]


def register_commands(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(fit)
    app.command()(certify)


@with_model_options
def fit(
    settings: Settings,
    data: Annotated[
        Path, typer.Argument(help="CSV (also .gz or .zip) or Parquet file; with --engine dask a pattern of files.")
    ],
    feature_bounds: Annotated[Path, typer.Option(*SCHEMA, help=SCHEMA_HELP)],
    out: Annotated[Path, typer.Option(help="Where to write the model (JSON).")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier model of that name.")] = False,
    task: TaskOption = None,
    target: Annotated[str | None, typer.Option(help="Column to learn; by default that of [target].")] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to charge; see `dpconvex ledger init`.")] = None,
    dataset: Annotated[str, typer.Option(help="Which budget of the ledger.")] = "default",
    report: Annotated[Path | None, typer.Option(help="Where to write a report for people (HTML).")] = None,
    release: Annotated[
        Path | None, typer.Option(help="TOML file that says who publishes the model and why, for the report.")
    ] = None,
    registry: Annotated[
        Path | None, typer.Option(help="Where to write an entry for the OpenDP registry of deployments (YAML).")
    ] = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    engine: Annotated[
        str, typer.Option(help="memory, or dask for tables larger than memory.", rich_help_panel=ENGINE)
    ] = "memory",
    scheduler: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler whose workers see the files.", rich_help_panel=ENGINE),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            help="Memory for --engine dask, like 2GB; half of the machine's by default.", rich_help_panel=ENGINE
        ),
    ] = None,
    person: PersonOption = None,
    json_: JsonOption = False,
) -> None:
    """Fit a private model to a table and write it as JSON.

    Run `dpconvex bounds check` first: how many cells the schema cannot read is private, and not said here. Everything
    that is checked is checked before the budget is charged. What is printed and written may be published: it is public
    or covered by the guarantee.
    """
    if task is not None:
        find_task(task)
    table_format(data)
    if engine not in ("memory", "dask"):
        raise InputError(f"The engine must be memory or dask. Got {engine!r} instead.")
    if engine == "memory" and (scheduler is not None or memory_limit is not None):
        raise InputError("--scheduler and --memory-limit go with --engine dask.")
    inputs = {"data": data, "schema": feature_bounds, "release file": release}
    inputs |= ledger_files(ledger)
    check_model_output(out, inputs, overwrite)
    inputs |= {"model": out}
    if report is not None:
        check_output(report, "report", inputs)
    if registry is not None:
        check_output(registry, "registry entry", {**inputs, "report": report})
    schema = with_file_options(read_schema(feature_bounds).for_target(target), delimiter, encoding)
    assert schema.target is not None
    task = task or default_task(schema)
    person = person or schema.person
    if person is not None and engine != "memory":
        raise InputError("People are told apart with --engine memory only. In Python, fit takes groups with Dask.")
    facts = release_facts(release, schema.target.name)
    if engine == "memory":
        check_file(data)
    else:
        matching_files(data)
    # From here on there is something to do: what it takes seconds to load is loaded now.
    from dpconvex.inputs.settings import ignores_invalid, least_rows
    from dpconvex.models.file import save_model
    from dpconvex.reports.terminal import certificate_table, coefficient_table, coefficients

    note_line_breaks(schema)
    account = None if ledger is None else open_ledger(ledger, dataset)
    model = _build(task, settings, schema, ledger=account)
    labels, kind = TASKS[task].labels, label_kind(getattr(model, "classes", None))
    ignored, least = ignores_invalid(model), least_rows(model.neighbors)
    if ignored:
        # Whatever the rows hold: how many are invalid is private.
        typer.echo(
            "note: nothing here tells how many rows are ignored, or whether all are. `dpconvex bounds check` counts "
            "them for your eyes only, before a fit is paid for.",
            err=True,
        )
    if engine == "dask":
        fitted = _fit_pieces(model, data, schema, labels, kind, ignored, scheduler, memory_limit)
    else:
        with progress(f"Reading {data.name}"):
            X, y, people = read_training_file(data, schema, labels, kind, ignored, least, person)
        with progress("Fitting"):
            fitted = model.fit(X, y.to_numpy(), groups=people)
    try:
        check_model_output(out, {}, overwrite)  # a fit beside this one may have been faster
        save_model(fitted, out, schema=schema)
    except Exception as error:  # whatever it is: the model is paid for
        print_unsaved(fitted, schema, out, error)
    try:
        if report is not None:
            from dpconvex.reports import write_report

            with progress("Writing the report"):
                write_report(fitted, report, release=facts)
        if registry is not None:
            from dpconvex.reports.registry import write_registry_entry

            write_registry_entry(fitted, registry, facts)
    except OSError as error:
        raise InputError(
            f"{explain(error)[0]} The model is written to {str(out)!r}, and the budget is spent: do not fit again. "
            f"Make room, and run `dpconvex report {out} --out FILE`, with --registry FILE for an entry."
        ) from error
    if json_:
        print_json(
            {
                "model": str(out),
                "task": task,
                "report": None if report is None else str(report),
                "registry": None if registry is None else str(registry),
                "feature_names": schema.names,
                **coefficients(fitted),
                "warnings": list(fitted.certificate_.warnings),
                "certificate": json.loads(fitted.certificate_.to_json()),
            }
        )
        return
    screen = console()
    screen.print(certificate_table(fitted.certificate_))
    screen.print(coefficient_table(fitted))
    screen.print(f"Written to {out}", markup=False)
    # Always: how many there are is private.
    screen.print(
        "Cells that the schema cannot read count as missing, silently: `dpconvex bounds check` counts them, for your "
        "eyes only.",
        markup=False,
    )
    if report is not None:
        screen.print(f"Report written to {report}", markup=False)
    if registry is not None:
        screen.print(f"Registry entry written to {registry}", markup=False)
    if account is not None:
        screen.print(f"Ledger: {account.remaining()}.", markup=False)


@with_model_options
def certify(
    settings: Settings,
    n_samples: Annotated[int, typer.Option(*ROWS, help="Number of rows, or of people where they are named.")],
    task: TaskOption = None,
    n_features: Annotated[int | None, typer.Option(*COLUMNS, help="Number of columns, without a schema.")] = None,
    n_classes: Annotated[
        int | None, typer.Option(help="Number of classes; by default that of --classes, or 2.")
    ] = None,
    feature_bounds: Annotated[Path | None, typer.Option(*SCHEMA, help=SCHEMA_HELP)] = None,
    person: PersonOption = None,
    json_: JsonOption = False,
) -> None:
    """Print the certificate of a fit before any data is read.

    With the schema, options and number of rows of a fit it is the certificate of that fit.
    """
    if (n_features is None) == (feature_bounds is None):
        raise InputError("Give either --n-features or --feature-bounds.")
    if n_features is not None:
        task = task or "quantile"
        model, width = build(task, settings), n_features
    elif feature_bounds is not None:
        schema = read_schema(feature_bounds)
        task, person = task or default_task(schema), person or schema.person
        model, width = _build(task, settings, schema), len(schema.names)
    assert task is not None
    if n_classes is not None and not TASKS[task].labels:
        raise InputError(f"The task {task} has no option --n-classes.")
    more = {} if n_classes is None else {"n_classes": n_classes}
    if person is not None:
        more["groups"] = True  # the number of rows is then one of people
    certificate = model.certify(n_samples, width, **more)
    if json_:
        typer.echo(certificate.to_json())
    else:
        from dpconvex.reports.terminal import certificate_table

        console().print(certificate_table(certificate))


def default_task(schema: Schema) -> str:
    """Return the task that a schema's target is for."""
    classes = schema.target is not None and schema.target.classes is not None
    return "logistic" if classes else "quantile"


def _fit_pieces(
    model: Model,
    data: Path,
    schema: Schema,
    labels: bool,
    kind: str | None,
    ignored: bool,
    scheduler: str | None,
    memory_limit: str | None,
) -> Fitted:
    """Fit on files that are read piece by piece, in every pass over the data."""
    try:
        import dask.dataframe  # noqa: F401
    except ImportError:
        raise InputError("--engine dask needs Dask: install it with `pip install 'dpconvex[dask]'`.") from None
    from dpconvex.engine.dask.schedule import watching
    from dpconvex.engine.threads import available_cores
    from dpconvex.inputs.dask_files import dask_cluster_for_files, memory_bytes, plan_pieces, read_file_partitions

    plan = plan_pieces(matching_files(data), schema, memory_bytes(memory_limit), available_cores())

    # The number of rows, which that of parts follows.
    private = model.neighbors == "add_or_remove_one"

    def report(done: int, total: int) -> None:
        # The first pass only: how many follow depends on the data.
        if done == total:
            say("Fitting")
        elif not private:
            say(f"Reading: {done} of {total} parts")

    with dask_cluster_for_files(scheduler, plan.threads), progress("Reading") as say, watching(report):
        return model.fit(*read_file_partitions(plan, schema, labels, kind, ignored))


def with_file_options(schema: Schema, delimiter: str | None, encoding: str | None) -> Schema:
    """Return the schema with what the command line says of the file."""
    file = schema.file
    if delimiter is not None:
        file = replace(file, delimiter=check_delimiter(delimiter))
    if encoding is not None:
        file = replace(file, encoding=check_encoding(encoding))
    if file.decimal == file.delimiter:
        raise InputError(
            f"The option --delimiter must not be the schema's decimal sign. Got {delimiter!r} for both. Change one."
        )
    return replace(schema, file=file)


def note_line_breaks(schema: Schema) -> None:
    """Say what line breaks within fields mean for the guarantee."""
    if schema.file.line_breaks:
        typer.echo(
            "note: with line_breaks = true a record with an open quote changes how those below it are read, and the "
            "guarantee does not cover that. Use it for files that a program wrote with quotes doubled.",
            err=True,
        )


def check_target(task: str, schema: Schema, named: bool = False) -> None:
    """Raise unless a task learns what the schema's target is; its labels may be named elsewhere."""
    labels = find_task(task).labels
    declared = schema.target.classes if schema.target is not None else None
    if declared is not None and not labels:
        of_labels = [name for name, known in TASKS.items() if known.labels]
        raise InputError(
            f"The task {task} learns numbers, but the schema's [target] has classes. Use one of {of_labels}, or give "
            "[target] a range: column = [low, high]."
        )
    if labels and schema.target_bounds is not None and not named:
        of_numbers = [name for name, known in TASKS.items() if not known.labels]
        raise InputError(
            f"The task {task} learns labels, but the schema's [target] has a range: it is a number. Its values "
            f"would be taken for labels and published. Use one of {of_numbers}, or name the labels: "
            'column = {classes = ["no", "yes"]} in [target], or --classes.'
        )


def _build(task: str, settings: Settings, schema: Schema, **more: object) -> Model:
    """Return the estimator for a schema, whose classes and row norm hold unless options say otherwise."""
    check_target(task, schema, named=settings.get("classes") is not None)
    declared = schema.target.classes if schema.target is not None else None
    if not TASKS[task].labels and schema.target_bounds is None:
        typer.echo("warning: the schema has no [target] range, so targets are taken to be of order 1.", err=True)
    settings = dict(settings)
    given = settings.get("classes")
    if declared is not None and given is None:
        settings["classes"] = list(declared)
    elif declared is not None and set(map(str, parse_classes(list(given or [])))) != set(declared):
        raise InputError(
            f"The option --classes must be the classes of the schema's [target], {list(declared)}. Got others instead. "
            "Leave it out."
        )
    if settings.get("row_norm") is None:
        settings["row_norm"] = schema.row_norm
    return build(task, settings, feature_bounds=schema.feature_bounds, target_bounds=schema.target_bounds, **more)


def release_facts(path: Path | None, target: str | None) -> ReleaseFacts:
    """Return what a release file says, with the column that was learned."""
    facts = ReleaseFacts() if path is None else read_release(path)
    return facts if facts.target else replace(facts, target=target or "")


def open_ledger(path: Path, dataset: str) -> Ledger:
    """Return an existing budget."""
    if not os.path.lexists(path):
        raise InputError(
            f"There is no ledger at {str(path)!r}. Create it with `dpconvex ledger init {path} --epsilon 1`."
        )
    from dpconvex.privacy.ledger.ledger import Ledger

    return Ledger(path, dataset)
