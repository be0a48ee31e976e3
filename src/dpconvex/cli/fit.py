"""``dpconvex fit`` and ``dpconvex certify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli import output_and_errors as output
from dpconvex.cli import task_options
from dpconvex.cli.ledger import open_ledger, remaining_budget
from dpconvex.cli.task_options import COLUMNS, ROWS, text_option
from dpconvex.inputs import InputError
from dpconvex.inputs.schema import Schema
from dpconvex.inputs.table_files import (
    check_table_file,
    matching_files,
    read_training_file,
    table_file_format,
)

if TYPE_CHECKING:
    from dpconvex.inputs.settings import Fitted, Model
    from dpconvex.privacy.ledger import Ledger
    from dpconvex.reports.release_file import ReleaseFileFacts
    from dpconvex.system.atomic_files import ReservedName

ENGINE = "Engine"


@task_options.with_model_options
def fit(
    settings: task_options.Settings,
    data: Annotated[
        Path,
        typer.Argument(
            help="CSV (also .gz, .zip) or Parquet file, or a pattern of files for Dask."
        ),
    ],
    feature_bounds: Annotated[
        Path, typer.Option(*task_options.SCHEMA, help=task_options.SCHEMA_HELP)
    ],
    out: Annotated[Path, typer.Option(help="Where to write the model (JSON).")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier model of that name.")
    ] = False,
    task: task_options.TaskOption = None,
    target: Annotated[
        str | None, typer.Option(help="Column to learn; by default that of [target].")
    ] = None,
    formula: task_options.FormulaOption = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger to charge; see `dpconvex ledger init`.")
    ] = None,
    dataset: task_options.DatasetOption = "default",
    report: Annotated[
        Path | None, typer.Option(help="Where to write a report for people (HTML).")
    ] = None,
    release: task_options.ReleaseOption = None,
    registry: task_options.RegistryOption = None,
    delimiter: task_options.DelimiterOption = None,
    encoding: task_options.EncodingOption = None,
    engine: Annotated[
        str, text_option("memory (default), or dask for tables larger than memory.", ENGINE)
    ] = "memory",
    scheduler: Annotated[
        str | None, text_option("Address of a Dask scheduler that sees the files.", ENGINE)
    ] = None,
    memory_limit: Annotated[
        str | None, text_option("Memory for Dask, like 2GB; by default half.", ENGINE)
    ] = None,
    person: task_options.PersonOption = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Fit a private model to a table and write it as JSON.

    Run `dpconvex bounds check` first: how many cells the schema cannot read is private, and not
    said here. Everything that is checked is checked before the budget is charged. What is printed
    and written may be published: it is public or covered by the guarantee.
    """
    if task is not None:
        task_options.find_task(task)
    table_file_format(data)
    if engine not in ("memory", "dask"):
        raise InputError(f"The engine must be memory or dask. Got {engine!r} instead.")
    if engine == "memory" and (scheduler is not None or memory_limit is not None):
        raise InputError("--scheduler and --memory-limit go with --engine dask.")
    inputs = {
        "data": data,
        "schema": feature_bounds,
        "release file": release,
        **output.ledger_files(ledger),
    }
    outputs = {"model": out, "report": report, "registry entry": registry}
    with output.reserved_outputs(outputs, inputs, overwrite) as reserved:
        schema = task_options.read_task_schema(feature_bounds, formula).for_target(target)
        schema = task_options.with_file_options(schema, delimiter, encoding)
        assert schema.target is not None
        task = task or task_options.default_task(schema)
        person = person or schema.person
        if person is not None and engine != "memory":
            raise InputError(
                "People are told apart with --engine memory only. In Python, fit takes groups with "
                "Dask."
            )
        facts = task_options.release_facts(release, schema.target.name)
        if engine == "memory":
            check_table_file(data)
        else:
            matching_files(data)
        # Modules that take seconds to load are loaded only now: wrong options are refused at once.
        from dpconvex.inputs.records import told_of_records
        from dpconvex.inputs.settings import invalid_rows_setting, least_rows

        account = None if ledger is None else open_ledger(ledger, dataset)
        model = task_options.build_task_for_schema(task, settings, schema, ledger=account)
        labels = task_options.TASKS[task].labels
        kind = task_options.task_label_kind(getattr(model, "classes", None))
        ignored = invalid_rows_setting(model)
        least = least_rows(model.neighbors)
        _check_declared_rows(schema, model, None)
        if ignored:
            # Said whatever the rows hold: how many are invalid is private.
            output.say(
                "note: nothing here tells how many rows are ignored, or whether all are. `dpconvex "
                "bounds check` counts them for your eyes only, before a fit is paid for."
            )
        with output.paying() as work:
            if engine == "dask":
                fitted = _fit_with_dask(
                    model, data, schema, labels, kind, ignored, scheduler, memory_limit
                )
            else:
                with output.output_progress(f"Reading {data.name}"):
                    X, y, people = read_training_file(
                        data, schema, labels, kind, ignored, least, person
                    )
                told = told_of_records(model, True, schema.file.rows)
                with output.output_progress("Fitting"), told:
                    fitted = model.fit(X, y.to_numpy(), groups=people)
            folders = [path.absolute().parent for path in (out, ledger) if path is not None]
            output.save_paid_model(fitted, schema, reserved["model"], work, folders)
            _write_reports(fitted, facts, reserved, out)
            _print_fit(fitted, schema, task, outputs, account, json_)


def _write_reports(
    fitted: Fitted, facts: ReleaseFileFacts, reserved: dict[str, ReservedName], out: Path
) -> None:
    """Write the report and the registry entry that were asked for."""
    try:
        if "report" in reserved:
            from dpconvex.reports import render_report

            with output.output_progress("Writing the report"):
                reserved["report"].write(render_report(fitted, release=facts).encode())
        if "registry entry" in reserved:
            from dpconvex.reports.nist_registry import registry_entry_content

            reserved["registry entry"].write(registry_entry_content(fitted, facts))
    except OSError as error:
        raise InputError(
            f"{output.explain_error(error)[0]} Do not fit again. Make room, and run `dpconvex "
            f"report {out} --out FILE`, with --registry FILE for an entry."
        ) from error


def _print_fit(
    fitted: Fitted,
    schema: Schema,
    task: str,
    outputs: dict[str, Path | None],
    account: Ledger | None,
    json_: bool,
) -> None:
    """Print what was fitted, what it promises, and where it is."""
    from dpconvex.reports.summary import (
        certificate_summary_table,
        coefficient_summary_table,
        summary_coefficients,
    )

    if json_:
        written = {
            name.split()[0]: None if path is None else str(path) for name, path in outputs.items()
        }
        said = {
            "task": task,
            "feature_names": schema.names,
            "warnings": list(fitted.certificate_.warnings),
        }
        certificate = json.loads(fitted.certificate_.to_json())
        output.print_json(
            {**written, **said, **summary_coefficients(fitted), "certificate": certificate}
        )
        return
    screen = output.output_console()
    screen.print(certificate_summary_table(fitted.certificate_))
    screen.print(coefficient_summary_table(fitted))
    screen.print(f"Written to {outputs['model']}", markup=False)
    # Always: how many there are is private.
    screen.print(
        "Cells that the schema cannot read count as missing, silently: `dpconvex bounds check` "
        "counts them, for your eyes only.",
        markup=False,
    )
    for name in ("report", "registry entry"):
        if outputs[name] is not None:
            screen.print(f"{name.capitalize()} written to {outputs[name]}", markup=False)
    if account is not None:
        screen.print(remaining_budget(account), markup=False)


@task_options.with_model_options
def certify(
    settings: task_options.Settings,
    n_samples: Annotated[
        int, typer.Option(*ROWS, help="Number of rows, or of people where they are named.")
    ],
    task: task_options.TaskOption = None,
    n_features: Annotated[
        int | None, text_option("Number of columns, without a schema.", names=COLUMNS)
    ] = None,
    n_classes: Annotated[
        int | None, text_option("Number of classes; by default that of --classes, or 2.")
    ] = None,
    feature_bounds: Annotated[
        Path | None, typer.Option(*task_options.SCHEMA, help=task_options.SCHEMA_HELP)
    ] = None,
    formula: task_options.FormulaOption = None,
    person: task_options.PersonOption = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Print the certificate of a fit before any data is read.

    With the schema, options and number of rows of a fit it is the certificate of that fit.
    """
    if feature_bounds is None and n_features is not None:
        task = task or "quantile"
        model = task_options.build_task(task, settings)
        width = n_features
        table = False
    elif feature_bounds is not None and n_features is None:
        schema = task_options.read_task_schema(feature_bounds, formula)
        task = task or task_options.default_task(schema)
        person = person or schema.person
        model = task_options.build_task_for_schema(task, settings, schema)
        width = len(schema.names)
        table = True
        _check_declared_rows(schema, model, None if person is not None else n_samples)
    else:
        raise InputError("Give either --n-features or --feature-bounds.")
    if n_classes is not None and not task_options.TASKS[task].labels:
        raise InputError(f"The task {task} has no option --n-classes.")
    more: dict[str, object] = {"table": table}
    if n_classes is not None:
        more["n_classes"] = n_classes
    if person is not None:
        more["groups"] = True  # the number of rows is then one of people
    certificate = model.certify(n_samples, width, **more)
    if json_:
        output.print_text(certificate.to_json())
    else:
        from dpconvex.reports.summary import certificate_summary_table

        output.output_console().print(certificate_summary_table(certificate))


def _check_declared_rows(schema: Schema, model: Model, n_samples: int | None) -> None:
    """Raise unless a schema's number of records, if it declares one, is public and that of a fit
    of so many.
    """
    from dpconvex.inputs.records import refuse_expected_records

    declared = schema.file.rows
    refuse_expected_records(declared, model.neighbors)
    if declared is not None and n_samples is not None and n_samples != declared:
        raise InputError(
            f"The option --n-samples must be {declared:,}, as the schema says by rows in [file]. "
            f"Got {n_samples:,} instead."
        )


def _fit_with_dask(
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
        raise InputError(
            "--engine dask needs Dask: install it with `pip install 'dpconvex[dask]'`."
        ) from None
    from dpconvex.core.threads import available_cores
    from dpconvex.engine.dask.schedule import watch_schedule
    from dpconvex.inputs.records import told_of_records
    from dpconvex.inputs.table_files import (
        dask_cluster_for_files,
        file_memory_limit,
        read_file_partitions,
        split_files,
    )

    pieces, threads = split_files(
        matching_files(data), schema, file_memory_limit(memory_limit), available_cores()
    )

    # The number of rows, which that of parts follows.
    private = model.neighbors == "add_or_remove_one"

    def report(done: int, total: int) -> None:
        # The first pass only: how many follow depends on the data.
        if done == total:
            say("Fitting")
        elif not private:
            say(f"Reading: {done} of {total} parts")

    with (
        dask_cluster_for_files(scheduler, threads),
        output.output_progress("Reading") as say,
        watch_schedule(report),
        told_of_records(model, True, schema.file.rows),
    ):
        return model.fit(*read_file_partitions(pieces, schema, labels, kind, ignored))
