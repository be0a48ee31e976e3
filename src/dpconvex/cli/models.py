"""``dpconvex predict``, ``dpconvex verify`` and ``dpconvex report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dpconvex.cli.errors import VERIFICATION, reports_errors
from dpconvex.cli.fit import DelimiterOption, EncodingOption, JsonOption, open_ledger, release_facts, with_file_options
from dpconvex.cli.outputs import check_output, ledger_files
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.opening import check_file, table_format, write_table

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from dpconvex.inputs.estimator_protocols import Classifier, Fitted
    from dpconvex.models.file import ModelFile
    from dpconvex.privacy.certificates.certificate import Certificate


def register_commands(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(predict)
    app.command()(verify)
    app.command()(report)


@reports_errors
def predict(
    model: Annotated[Path, typer.Argument(help="Model file written by `dpconvex fit`.")],
    data: Annotated[Path, typer.Argument(help="CSV (also .gz or .zip) or Parquet file with the model's columns.")],
    out: Annotated[Path, typer.Option(help="Where to write predictions (CSV or Parquet).")],
    keep: Annotated[
        list[str] | None, typer.Option("--id", help="Column to write beside the predictions; may be repeated.")
    ] = None,
    all_columns: Annotated[
        bool, typer.Option("--all-columns", help="Write all columns of the data beside them.")
    ] = False,
    scores: Annotated[bool, typer.Option("--scores", help="Add what a classifier decides by, one per class.")] = False,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every class.")] = False,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    json_: JsonOption = False,
) -> None:
    """Predict for every row of a table, in its order.

    Missing values follow the rules of the model's schema; a row whose rule is to be invalid has an empty prediction.
    """
    for path in (data, out):
        table_format(path)
    check_file(data)
    check_output(out, "predictions", {"data": data, "model": model})
    if keep and all_columns:
        raise InputError("Give either --id or --all-columns.")
    content = _read(model)
    if content.schema is None:
        raise InputError(
            "The model file does not say how to read tables: it was not written by `dpconvex fit`. "
            "Use dpconvex.load_model in Python."
        )
    import polars as pl

    from dpconvex.inputs.files import read_feature_file

    schema = with_file_options(content.schema, delimiter, encoding)
    with progress(f"Predicting for {data.name}"):
        rows, kept = read_feature_file(data, schema, None if all_columns else keep or [])
        found = prediction_columns(content.estimator, rows, scores, probabilities)
        taken = [name for name in found.columns if name in kept.columns]
        if taken:
            raise InputError(
                f"The data have a column {taken[0]!r} already, which predictions are written to. Rename it, or name "
                "the columns to keep with --id."
            )
        write_table(pl.DataFrame([*kept.get_columns(), *found.get_columns()]), out)
    empty = int(found.to_series().null_count())
    if json_:
        print_json({"predictions": str(out), "rows": found.height, "empty": empty})
    else:
        more = f", {empty:,} of them empty for want of a value" if empty else ""
        console().print(f"Written to {out}: {found.height:,} predictions{more}", markup=False)


def prediction_columns(estimator: Fitted, rows: np.ndarray, scores: bool, probabilities: bool) -> pl.DataFrame:
    """Return predictions, and on request scores and probabilities; null where a row is invalid."""
    import numpy as np
    import polars as pl

    valid = np.isfinite(rows).all(axis=1)
    names = [str(name) for name in estimator.feature_names_in_]
    # A model predicts for at least one row: zeros stand for none.
    usable = rows[valid] if valid.any() else np.zeros((1, rows.shape[1]))
    frame = pl.DataFrame(usable, schema=names, orient="row")
    found: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        predicted = estimator.predict(frame)
        if predicted.ndim == 1:
            found["prediction"] = predicted
        else:  # of several levels
            levels = np.asarray(estimator.get_params()["quantile"])
            found |= {f"prediction={level:g}": predicted[:, k] for k, level in enumerate(levels)}
        classifier = cast("Classifier", estimator)
        if scores:
            _needs(estimator, "decision_function", "--scores")
            margins = np.asarray(classifier.decision_function(frame))
            if margins.ndim == 1:
                found["score"] = margins
            else:
                for label, column in zip(classifier.classes_, margins.T, strict=True):
                    found[f"score={label}"] = column
        if probabilities:
            _needs(estimator, "predict_proba", "--probabilities")
            shares = classifier.predict_proba(frame)
            for label, column in zip(classifier.classes_, shares.T, strict=True):
                found[f"probability={label}"] = column
    for column in found.values():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise InputError("The model's coefficients are so large that predictions overflow.")
    places = np.cumsum(valid) - 1
    picked = pl.Series(np.where(valid, np.maximum(places, 0), 0))
    mask = pl.Series(valid)
    return pl.DataFrame(
        {
            name: pl.Series(column).gather(picked).zip_with(mask, pl.Series([None] * len(valid)))
            for name, column in found.items()
        }
    )


def _needs(estimator: Fitted, method: str, option: str) -> None:
    if not hasattr(estimator, method):
        raise InputError(f"This model, a {type(estimator).__name__}, has nothing for {option}.")


@reports_errors
def verify(
    file: Annotated[Path, typer.Argument(help="Model file or certificate (JSON).")], json_: JsonOption = False
) -> None:
    """Check that a model file or certificate is consistent: its noise suffices for its promise.

    Derives everything again from the public facts. Exit code 4 if anything does not follow. It
    proves consistency, not origin: a certificate is not a signature.
    """
    _check_there(file)
    from dpconvex.models.file import ModelFileError
    from dpconvex.privacy.certificates.rules import CertificateError
    from dpconvex.reports.terminal import certificate_table

    try:
        kind, certificate = _verified(file)
    except (ModelFileError, CertificateError) as error:
        if json_:
            print_json({"verified": False, "reason": str(error)})
            raise typer.Exit(VERIFICATION) from None
        raise
    if json_:
        plain = json.loads(certificate.to_json())
        found = {"verified": True, "kind": kind, "warnings": list(certificate.warnings)}
        print_json({**found, "certificate": plain})
        return
    screen = console()
    screen.print(f"Verified: the guarantee of this {kind} follows from its public facts.", style="bold green")
    screen.print(
        "Not checked: "
        + ("" if kind == "certificate" else "the coefficients, which no file can prove, and ")
        + "who wrote it. This is no signature."
    )
    screen.print(certificate_table(certificate))
    if certificate.sampler.startswith("seeded"):
        screen.print("Its noise was seeded, for tests: it protects nobody.", style="bold red")


@reports_errors
def report(
    model: Annotated[Path, typer.Argument(help="Model file written by `dpconvex fit`.")],
    out: Annotated[Path, typer.Option(help="Where to write the report (HTML).")],
    release: Annotated[Path | None, typer.Option(help="TOML file that says who publishes the model and why.")] = None,
    registry: Annotated[
        Path | None, typer.Option(help="Where to write an entry for the OpenDP registry of deployments (YAML).")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger of the data, whose charges the report shows.")] = None,
    dataset: Annotated[str, typer.Option(help="Which budget of the ledger.")] = "default",
    json_: JsonOption = False,
) -> None:
    """Write a report on a model for people: what was released, and what an attacker can learn.

    Reads the model file only, checks it as `verify` does, and needs no data. The page is one HTML
    file without scripts that refers to no other file.
    """
    inputs = {"model": model, "release file": release, **ledger_files(ledger)}
    check_output(out, "report", inputs)
    if registry is not None:
        check_output(registry, "registry entry", {**inputs, "report": out})
    content = _read(model)
    from dpconvex.reports import write_report

    target = None if content.schema is None else content.schema.target
    facts = release_facts(release, None if target is None else target.name)
    book = None if ledger is None else open_ledger(ledger, dataset)
    write_report(content.estimator, out, book, release=facts)
    if registry is not None:
        from dpconvex.reports.registry import write_registry_entry

        write_registry_entry(content.estimator, registry, facts)
    if json_:
        entry = None if registry is None else str(registry)
        print_json({"report": str(out), "registry": entry})
        return
    console().print(f"Report written to {out}", markup=False)
    if registry is not None:
        console().print(f"Registry entry written to {registry}", markup=False)


def _read(path: Path) -> ModelFile:
    """Return what a model file holds; files may name the estimators once these are loaded."""
    _check_there(path)
    from dpconvex.models.file import read_model

    content = read_model(path)
    if hasattr(content.estimator, "predict_interval"):
        raise InputError(
            "This command takes model files of `dpconvex fit`. Got one of prediction intervals instead. Use "
            "dpconvex.load_model in Python."
        )
    return content


def _verified(path: Path) -> tuple[str, Certificate]:
    from dpconvex.models.file import parse_certificate, parse_model, read_json
    from dpconvex.privacy.certificates.certificate import FORMAT

    content = read_json(path)
    if content.get("format") != FORMAT:
        model = parse_model(content).estimator
        # What promises are made of is the fit's: the calibration, on rows of its own, promises the same.
        inner = getattr(model, "estimator_", model)
        return ("model" if inner is model else "model with intervals"), inner.certificate_
    return "certificate", parse_certificate(content)


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not a file.")
