"""``dpconvex predict``, ``dpconvex verify`` and ``dpconvex report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.errors import VERIFICATION, reports_errors
from dpconvex.cli.fit import JsonOption, check_output, release_facts
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.files import check_file, read_feature_file, table_format, write_predictions

if TYPE_CHECKING:
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
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the model's columns.")],
    out: Annotated[Path, typer.Option(help="Where to write predictions (CSV or Parquet).")],
    json_: JsonOption = False,
) -> None:
    """Predict for every row of a table; the file written has one column, prediction."""
    for path in (data, out):
        table_format(path)
    check_file(data)
    check_output(out, "predictions", {"data": data, "model": model})
    content = _read(model)
    import numpy as np

    if content.columns is None:
        raise InputError(
            "The model file does not say how to read tables: it was not written by `dpconvex fit`. "
            "Use dpconvex.load_model in Python."
        )
    with progress(f"Predicting for {data.name}"):
        rows = read_feature_file(data, content.columns)
        with np.errstate(all="ignore"):
            predictions = content.estimator.predict(rows)
        if predictions.dtype.kind == "f" and not np.isfinite(predictions).all():
            raise InputError("The model's coefficients are so large that predictions overflow.")
        write_predictions(predictions, out)
    if json_:
        print_json({"predictions": str(out), "rows": len(predictions)})
    else:
        console().print(f"Written to {out}: {len(predictions):,} predictions", markup=False)


@reports_errors
def verify(
    file: Annotated[Path, typer.Argument(help="Model file or certificate (JSON).")],
    json_: JsonOption = False,
) -> None:
    """Check that a model file or certificate is consistent: its noise suffices for its promise.

    Derives everything again from the public facts. Exit code 4 if anything does not follow. It
    proves consistency, not origin: a certificate is not a signature.
    """
    _check_there(file)
    from dpconvex.models.file import ModelFileError
    from dpconvex.privacy.certificates.rules import CertificateError
    from dpconvex.words.terminal import certificate_table

    try:
        kind, certificate = _verified(file)
    except (ModelFileError, CertificateError) as error:
        if json_:
            print_json({"verified": False, "reason": str(error)})
            raise typer.Exit(VERIFICATION) from None
        raise
    if json_:
        plain = json.loads(certificate.to_json())
        print_json({"verified": True, "kind": kind, "certificate": plain})
        return
    screen = console()
    screen.print(f"Verified: this {kind} follows from its public facts.", style="bold green")
    screen.print(certificate_table(certificate))
    if certificate.sampler.startswith("seeded"):
        screen.print("Its noise was seeded, for tests: it protects nobody.", style="bold red")


@reports_errors
def report(
    model: Annotated[Path, typer.Argument(help="Model file written by `dpconvex fit`.")],
    out: Annotated[Path, typer.Option(help="Where to write the report (HTML).")],
    release: Annotated[
        Path | None, typer.Option(help="TOML file that says who publishes the model and why.")
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(help="Where to write an entry for the OpenDP registry of deployments (YAML)."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Write a report on a model for people: what was released, and what an attacker can learn.

    Reads the model file only, checks it as `verify` does, and needs no data. The page is one HTML
    file without scripts that refers to no other file.
    """
    inputs = {"model": model, "release file": release}
    check_output(out, "report", inputs)
    if registry is not None:
        check_output(registry, "registry entry", {**inputs, "report": out})
    content = _read(model)
    from dpconvex.words import write_report

    columns = content.columns
    facts = release_facts(release, None if columns is None else columns.target)
    write_report(content.estimator, out, release=facts)
    if registry is not None:
        from dpconvex.words.registry import write_registry_entry

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

    return read_model(path)


def _verified(path: Path) -> tuple[str, Certificate]:
    from dpconvex.models.file import parse_certificate, parse_model, read_json
    from dpconvex.privacy.certificates.certificate import FORMAT

    content = read_json(path)
    if content.get("format") != FORMAT:
        return "model", parse_model(content).estimator.certificate_
    return "certificate", parse_certificate(content)


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not a file.")
