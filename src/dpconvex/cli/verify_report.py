"""``dpconvex verify`` and ``dpconvex report``: a model file without data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpconvex.cli import output_and_errors as output
from dpconvex.cli.ledger import open_ledger
from dpconvex.cli.predict_score import (
    ModelArgument,
    read_model_to_predict,
    refuse_to_score_intervals,
)
from dpconvex.cli.task_options import (
    DatasetOption,
    JsonOption,
    RegistryOption,
    ReleaseOption,
    release_facts,
)
from dpconvex.inputs import InputError


@output.reports_errors
def verify(
    file: Annotated[Path, typer.Argument(help="Model file or certificate (JSON).")],
    json_: JsonOption = False,
) -> None:
    """Check that a model file or certificate is consistent: its noise suffices for its promise.

    Derives everything again from the public facts. Exit code 4 if anything does not follow. It
    proves consistency, not origin: a certificate is not a signature.
    """
    if not file.is_file():
        raise InputError(f"{str(file)!r} is not a file.")
    from dpconvex.core.certificate import FORMAT, CertificateError
    from dpconvex.models.model_file import (
        ModelFileError,
        parse_certificate_file,
        parse_model,
        read_model_json,
    )
    from dpconvex.reports.summary import certificate_summary_table

    try:
        content = read_model_json(file)
        if content.get("format") == FORMAT:
            kind = "certificate"
            certificate = parse_certificate_file(content)
        else:
            model = parse_model(content).estimator
            # The fit's certificate is shown: the calibration of intervals, on rows of its own,
            # promises the same.
            inner = getattr(model, "estimator_", model)
            kind = "model" if inner is model else "model with intervals"
            certificate = inner.certificate_
    except (ModelFileError, CertificateError) as error:
        if json_:
            output.print_json({"verified": False, "reason": str(error)})
            raise typer.Exit(output.VERIFICATION) from None
        raise
    if json_:
        plain = json.loads(certificate.to_json())
        warned = list(certificate.warnings)
        output.print_json(
            {"verified": True, "kind": kind, "warnings": warned, "certificate": plain}
        )
        return
    screen = output.output_console()
    screen.print(
        f"Verified: the guarantee of this {kind} follows from its public facts.", style="bold green"
    )
    numbers = "" if kind == "certificate" else "the coefficients, which no file can prove, and "
    screen.print(f"Not checked: {numbers}who wrote it. This is no signature.")
    screen.print(certificate_summary_table(certificate))
    if certificate.sampler.startswith("seeded"):
        screen.print("Its noise was seeded, for tests: it protects nobody.", style="bold red")


@output.reports_errors
def report(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(help="Where to write the report (HTML).")],
    release: ReleaseOption = None,
    registry: RegistryOption = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger of the data, whose charges the report shows.")
    ] = None,
    dataset: DatasetOption = "default",
    json_: JsonOption = False,
) -> None:
    """Write a report on a model for people: what was released, and what an attacker can learn.

    Reads the model file only, checks it as `verify` does, and needs no data. The page is one HTML
    file without scripts that refers to no other file.
    """
    inputs = {"model": model, "release file": release, **output.ledger_files(ledger)}
    outputs = {"report": out, "registry entry": registry}
    with output.reserved_outputs(outputs, inputs) as reserved:
        content = read_model_to_predict(model)
        refuse_to_score_intervals(content.estimator)
        from dpconvex.reports import render_report

        target = None if content.schema is None else content.schema.target
        facts = release_facts(release, None if target is None else target.name)
        account = None if ledger is None else open_ledger(ledger, dataset)
        page = render_report(content.estimator, account, release=facts)
        reserved["report"].write(page.encode())
        if registry is not None:
            from dpconvex.reports.nist_registry import registry_entry_content

            reserved["registry entry"].write(registry_entry_content(content.estimator, facts))
    if json_:
        output.print_json(
            {"report": str(out), "registry": None if registry is None else str(registry)}
        )
        return
    output.output_console().print(f"Report written to {out}", markup=False)
    if registry is not None:
        output.output_console().print(f"Registry entry written to {registry}", markup=False)
