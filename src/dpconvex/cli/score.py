"""``dpconvex score``: how good a model is on private rows, as a number that may be published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import (
    DelimiterOption,
    EncodingOption,
    JsonOption,
    note_line_breaks,
    open_ledger,
    with_file_options,
)
from dpconvex.cli.options import BUDGET, number_option
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.opening import check_file, table_format


def register_commands(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(score)


@reports_errors
def score(
    model: Annotated[Path, typer.Argument(help="Model file written by `dpconvex fit`.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with rows the fit has not seen.")],
    metric: Annotated[
        str | None,
        typer.Option(
            help="pinball, cost, absolute, squared, accuracy, log_loss, auc, calibration, coverage, residuals."
        ),
    ] = None,
    epsilon: Annotated[float | None, number_option("Budget epsilon; 1 by default.", BUDGET)] = None,
    delta: Annotated[float | None, number_option("Budget delta; 1e-6 by default.", BUDGET)] = None,
    mu: Annotated[float | None, number_option("Budget of Gaussian DP instead.", BUDGET)] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to charge, in full.")] = None,
    dataset: Annotated[str, typer.Option(help="Which budget of the ledger.")] = "default",
    quantile: Annotated[float | None, number_option("Which level to score, of a model with several.")] = None,
    residual_bound: Annotated[float | None, number_option("Residuals beyond it count as that far.")] = None,
    person: Annotated[
        str | None, typer.Option(help="Column that names people: each counts once, with all its rows.")
    ] = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    json_: JsonOption = False,
) -> None:
    """Score a model on private rows: with noise, an interval and a promise of its own.

    A score without noise is not private: it is computed nowhere here.
    """
    table_format(data)
    check_file(data)
    if not model.is_file():
        raise InputError(f"{str(model)!r} is not a file.")
    from dpconvex.models.file import read_model

    content = read_model(model)
    schema, estimator = content.schema, content.estimator
    if schema is None or schema.target is None:
        raise InputError(
            "The model file does not say how to read tables: it was not written by `dpconvex fit`. "
            "Use dpconvex.evaluation.private_score in Python."
        )
    schema = with_file_options(schema, delimiter, encoding)
    note_line_breaks(schema)
    person = person or schema.person
    from dpconvex.cli.options import label_kind
    from dpconvex.evaluation import private_score
    from dpconvex.inputs.files import read_training_file

    account = None if ledger is None else open_ledger(ledger, dataset)
    classes = getattr(estimator, "classes_", None)
    labels, kind = classes is not None, None if classes is None else label_kind(classes.tolist())
    with progress(f"Scoring on {data.name}"):
        X, y, people = read_training_file(data, schema, labels, kind, True, 1, person)
        found = private_score(
            estimator, X, y.to_numpy(), metric, epsilon, delta, mu, account,
            groups=people, quantile=quantile, residual_bound=residual_bound,
        )  # fmt: skip
    if json_:
        print_json(
            {
                "metric": found.metric,
                "value": None if found.curve else found.value,
                "interval": None if found.curve else list(found.interval),
                "level": found.level,
                "rows": found.rows,
                "curve": {name: values.tolist() for name, values in found.curve.items()},
                "guarantee": json.loads(json.dumps(found.certificate.guarantee.to_dict())),
            }
        )
        return
    console().print(str(found), markup=False)
    for name, values in found.curve.items():
        shown = ", ".join(f"{value:.3g}" for value in values)
        console().print(f"  {name}: {shown}", markup=False)
    if account is not None:
        console().print(f"Ledger: {account.remaining()}.", markup=False)
