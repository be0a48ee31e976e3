"""``dpconvex predict`` and ``dpconvex score``: a model on rows of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dpconvex.cli import task_options
from dpconvex.cli.ledger import open_ledger, remaining_budget
from dpconvex.cli.output_and_errors import (
    json_text,
    keep_elsewhere,
    output_console,
    output_progress,
    paying,
    print_json,
    reports_errors,
    reserved_outputs,
)
from dpconvex.cli.task_options import number_option, text_option
from dpconvex.inputs import InputError
from dpconvex.inputs.table_files import check_table_file, table_file_format, write_table_file

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from dpconvex.assessment.evaluation import PrivateScore
    from dpconvex.inputs.schema import Schema
    from dpconvex.inputs.settings import Classifier, Fitted
    from dpconvex.models.model_file import ModelFile
    from dpconvex.privacy.ledger import Ledger

METRICS = (
    "pinball, cost, absolute, squared, deviance, accuracy, log_loss, auc, concordance, brier, "
    "calibration, coverage, residuals."
)
ModelArgument = Annotated[Path, typer.Argument(help="Model file written by `dpconvex fit`.")]


def read_model_to_predict(path: Path) -> ModelFile:
    """Return what a model file holds."""
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not a file.")
    from dpconvex.models.model_file import read_model

    return read_model(path)


def refuse_to_score_intervals(model: object) -> None:
    """Raise if a file holds prediction intervals instead of a model."""
    if hasattr(model, "predict_interval"):
        raise InputError(
            "This command takes model files of `dpconvex fit`. Got one of prediction intervals "
            "instead. Use dpconvex.load_model in Python."
        )


def _schema_to_predict_by(content: ModelFile, function: str, needs_target: bool = False) -> Schema:
    """Return the schema that a model file reads tables by, or raise with the function to use
    instead.
    """
    if content.schema is None or (needs_target and content.schema.target is None):
        raise InputError(
            "The model file does not say how to read tables: it was not written by `dpconvex "
            f"fit`. Use {function} in Python."
        )
    return content.schema


@reports_errors
def predict(
    model: ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(help="CSV (also .gz or .zip) or Parquet file with the model's columns."),
    ],
    out: Annotated[Path, typer.Option(help="Where to write predictions (CSV or Parquet).")],
    keep: Annotated[
        list[str] | None, typer.Option("--id", help="Column to keep; may be repeated.")
    ] = None,
    all_columns: Annotated[
        bool, typer.Option("--all-columns", help="Keep all columns of the table.")
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Add what a classifier decides by, one per class.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of every class.")
    ] = False,
    delimiter: task_options.DelimiterOption = None,
    encoding: task_options.EncodingOption = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Predict for every row of a table, in its order.

    Missing values follow the rules of the model's schema; a row whose rule is to be invalid has an
    empty prediction.
    """
    for path in (data, out):
        table_file_format(path)
    check_table_file(data)
    inputs = {"data": data, "model": model}
    with reserved_outputs({"predictions": out}, inputs) as reserved:
        content = read_model_to_predict(model)
        refuse_to_score_intervals(content.estimator)
        schema = task_options.with_file_options(
            _schema_to_predict_by(content, "dpconvex.load_model"), delimiter, encoding
        )
        import polars as pl

        from dpconvex.inputs.records import told_of_records
        from dpconvex.inputs.table_files import open_table_file, read_feature_file

        with (
            told_of_records(content.estimator, encoded=True),
            output_progress(f"Predicting for {data.name}"),
        ):
            columns = list(dict.fromkeys(keep or []))
            if all_columns:
                columns = open_table_file(data, schema.file).names
            rows, kept = read_feature_file(data, schema, columns)
            found = prediction_columns(content.estimator, rows, scores, probabilities)
            known = set(kept.columns)
            taken = [name for name in found.columns if name in known]
            if taken:
                raise InputError(
                    f"The data have a column {taken[0]!r} already, which predictions are written "
                    "to. Rename it, or name the columns to keep with --id."
                )
            table = pl.DataFrame([*kept.get_columns(), *found.get_columns()])
            write_table_file(table, out, blank_lines=True, write=reserved["predictions"].write)
    empty = int(found.to_series().null_count())
    if json_:
        print_json({"predictions": str(out), "rows": found.height, "empty": empty})
    else:
        more = f", {empty:,} of them empty for want of a value" if empty else ""
        output_console().print(
            f"Written to {out}: {found.height:,} predictions{more}", markup=False
        )


def prediction_columns(
    estimator: Fitted, rows: np.ndarray, scores: bool, probabilities: bool
) -> pl.DataFrame:
    """Return predictions, and on request scores and probabilities; null where a row is invalid."""
    import numpy as np
    import polars as pl

    valid = np.isfinite(rows).all(axis=1)
    names = [str(name) for name in estimator.feature_names_in_]
    # A model predicts for at least one row: zeros stand for none.
    usable = rows[valid] if valid.any() else np.zeros((1, rows.shape[1]))
    frame = pl.DataFrame(usable, schema=names, orient="row")
    classifier = cast("Classifier", estimator)
    for asked, method, option in (
        (scores, "decision_function", "--scores"),
        (probabilities, "predict_proba", "--probabilities"),
    ):
        if asked and not hasattr(estimator, method):
            raise InputError(f"This model, a {type(estimator).__name__}, has nothing for {option}.")
    found: dict[str, np.ndarray] = {}
    with np.errstate(all="ignore"):
        predicted = estimator.predict(frame)
        if predicted.ndim == 1:
            found["prediction"] = predicted
        else:  # of several levels
            levels = np.asarray(estimator.get_params()["quantile"])
            found |= {f"prediction={level:g}": predicted[:, k] for k, level in enumerate(levels)}
        if scores:
            margins = np.asarray(classifier.decision_function(frame))
            if margins.ndim == 1:
                found["score"] = margins
            else:
                found |= {
                    f"score={label}": margins[:, k] for k, label in enumerate(classifier.classes_)
                }
        if probabilities:
            shares = classifier.predict_proba(frame)
            found |= {
                f"probability={label}": shares[:, k] for k, label in enumerate(classifier.classes_)
            }
    for column in found.values():
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise InputError("The model's coefficients are so large that predictions overflow.")
    # Rows that are not valid get null.
    picked = pl.Series(np.maximum(np.cumsum(valid) - 1, 0))
    mask = pl.Series(valid)
    empty = pl.Series([None] * len(valid))
    return pl.DataFrame(
        {name: pl.Series(each).gather(picked).zip_with(mask, empty) for name, each in found.items()}
    )


def _residual_bound_option(given: str | None) -> float | str | None:
    if given is None or given == "private":
        return given
    try:
        return float(given)
    except ValueError:
        raise InputError(
            f"The option --residual-bound must be a number or private. Got {given!r} instead."
        ) from None


@task_options.with_options(("epsilon", "delta", "mu"))
def score(
    settings: task_options.Settings,
    model: ModelArgument,
    data: Annotated[
        Path, typer.Argument(help="CSV or Parquet file with rows the fit has not seen.")
    ],
    metric: Annotated[str | None, text_option(METRICS)] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to charge, in full.")] = None,
    dataset: task_options.DatasetOption = "default",
    quantile: Annotated[
        float | None, number_option("Which level to score, of a model with several.")
    ] = None,
    residual_bound: Annotated[
        str | None,
        text_option("Residuals beyond it count as that far; private pays for a range that fits."),
    ] = None,
    person: Annotated[
        str | None, text_option("Column that names people: each counts once, with all rows.")
    ] = None,
    rows: Annotated[
        int | None,
        text_option("Public number of rows: a file with another number is refused."),
    ] = None,
    delimiter: task_options.DelimiterOption = None,
    encoding: task_options.EncodingOption = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Score a model on private rows: with noise, an interval and a guarantee of its own.

    A score without noise is not private: it is computed nowhere here.
    """
    table_file_format(data)
    check_table_file(data)
    content = read_model_to_predict(model)
    estimator = content.estimator
    schema = _schema_to_predict_by(content, "dpconvex.evaluation.private_score", needs_target=True)
    schema = task_options.with_file_options(schema, delimiter, encoding)
    from dpconvex.assessment.evaluation import private_score
    from dpconvex.inputs.records import require_expected_records, told_of_records
    from dpconvex.inputs.table_files import read_training_file

    account = None if ledger is None else open_ledger(ledger, dataset)
    classes = getattr(estimator, "classes_", None)
    labels = classes is not None
    kind = None if classes is None else task_options.task_label_kind(classes.tolist())
    with paying() as work:
        told = told_of_records(estimator, encoded=True)
        with told, output_progress(f"Scoring on {data.name}"):
            X, y, people = read_training_file(
                data, schema, labels, kind, True, 1, person or schema.person
            )
            require_expected_records(X.height, rows)
            found = private_score(
                estimator,
                X,
                y.to_numpy(),
                metric,
                ledger=account,
                groups=people,
                quantile=quantile,
                residual_bound=_residual_bound_option(residual_bound),
                verbose=1,
                **settings,
            )
        try:
            _print_score(found, account, json_)
        except BaseException:  # whatever it is: the score is paid for
            folders = [] if ledger is None else [ledger.absolute().parent]
            text = json_text(_score_as_json(found))
            work.kept = keep_elsewhere(text, "score", "score", folders)
            raise


def _score_as_json(found: PrivateScore) -> dict[str, object]:
    single = {"value": found.value, "interval": list(found.interval)}
    facts: dict[str, object] = {
        "metric": found.metric,
        "level": found.level,
        "rows": found.rows,
        "limits": list(found.limits),
    }
    facts |= dict.fromkeys(single) if found.curve else single
    curve = {name: values.tolist() for name, values in found.curve.items()}
    return {**facts, "curve": curve, "guarantee": found.certificate.guarantee.to_dict()}


def _print_score(found: PrivateScore, account: Ledger | None, json_: bool) -> None:
    if json_:
        print_json(_score_as_json(found))
        return
    screen = output_console()
    screen.print(str(found), markup=False)
    for name, values in found.curve.items():
        screen.print(f"  {name}: {', '.join(f'{value:.3g}' for value in values)}", markup=False)
    if account is not None:
        screen.print(remaining_budget(account), markup=False)
