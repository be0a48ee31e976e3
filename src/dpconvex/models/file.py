"""Model files: fitted estimators as JSON that is safe to load from strangers.

A file holds public things only: the class by name, its parameters, what was released, and the
certificate. Loading builds the estimator from its parameters, derives the certificate again and
refuses a file whose parts do not agree. It proves consistency, not origin: it is not a signature.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.inputs.public_table import PublicTable
from dpconvex.inputs.schema import Schema
from dpconvex.inputs.schema_writing import schema_to_dict
from dpconvex.models.parsing import (
    FORMAT,
    INTERVALS,
    NOT_SAVED,
    ModelFile,
    ModelFileError,
    estimator_named,
    interval_files,
    known_estimators,
    parse_certificate,
    parse_model,
)
from dpconvex.privacy.description import describe
from dpconvex.version import __version__
from dpconvex.whole_files import write_whole

__all__ = [
    "ModelFile",
    "ModelFileError",
    "json_object",
    "load_model",
    "model_text",
    "parse_certificate",
    "parse_model",
    "read_json",
    "read_model",
    "save_model",
]

LARGEST_FILE = 64 * 2**20
# Signs that JSON is made of: a value takes up to a hundred times its length in memory, and few of them are needed.
_MOST_SIGNS = {b",": 2**22, b'"': 2**21, b"[": 2**17, b"{": 2**17}
_HALVES, _HALVES_LEFT = re.compile(rb"\\u[dD][89a-fA-F]"), re.compile("[\ud800-\udfff]")


def save_model(estimator: Any, path: str | os.PathLike[str], *, schema: PublicTable | Schema | None = None) -> None:
    """Write a fitted estimator to a JSON file.

    Parameters
    ----------
    estimator : estimator
        Fitted; its ledger and random_state are not saved. Or :class:`~dpconvex.intervals.DPConformal`, or a pipeline of
        a :class:`PublicTable` and one of them.
    path : str or path-like
        Replaced at once when the file is complete, so a crash leaves no half of it. A link is an error.
    schema : PublicTable or Schema, optional
        How tables are read for this model; by default that of the pipeline, or the one the model was loaded with.

    Notes
    -----
    Privacy: everything that is written is public or covered by the model's certificate. Parameters
    that are objects of the user's own classes are left out, and listed as omitted.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> from dpconvex import DPQuantileRegressor, load_model, save_model
    >>> model = DPQuantileRegressor(0.9, feature_bounds=(0, 1), target_bounds=(0, 1))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.json"
    >>> save_model(model.fit(np.eye(50), np.ones(50)), path)
    >>> bool(np.all(load_model(path).coef_ == model.coef_))
    True
    """
    text = model_text(estimator, schema=schema)
    name = type(_taken_apart(estimator, schema)[0]).__name__
    try:
        parse_model(json.loads(text))
    except ModelFileError as error:
        raise ModelFileError(
            f"This {name} cannot be saved, because the file could not be loaded: {error} "
            "Fit again if parameters were set after the fit."
        ) from error
    _check_size(text.encode())
    write_whole(path, f"{text}\n".encode())


def model_text(estimator: Any, *, schema: PublicTable | Schema | None = None) -> str:
    """Return what :func:`save_model` writes, before it is checked that it can be loaded."""
    estimator, schema = _taken_apart(estimator, schema)
    name = type(estimator).__name__
    if not hasattr(estimator, "certificate_") and (name == "DPConformal" or _may_be_saved(estimator)):
        raise ModelFileError(f"This {name} is not fitted: there is nothing to save. Call fit first.")
    try:
        content = _content_with_intervals(estimator, schema)
        return json.dumps(content, indent=1, allow_nan=False)
    except ModelFileError:
        raise
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"This {name} holds values that are not plain, finite data, so it cannot be saved."
        ) from error


def _may_be_saved(estimator: Any) -> bool:
    """Whether an estimator is one of ours, not of a class derived from one."""
    name = type(estimator).__name__
    return name in known_estimators() and estimator_named(name) is type(estimator)


def _taken_apart(model: Any, table: PublicTable | Schema | None) -> tuple[Any, Schema | None]:
    """Return the estimator and how it reads tables."""
    steps = [step for _, step in getattr(model, "steps", [])]
    if len(steps) == 2 and isinstance(steps[0], PublicTable) and table is None:
        table, model = steps
    if isinstance(table, PublicTable):
        table = table._parsed()
    return model, getattr(model, "schema_", None) if table is None else table


def _content_with_intervals(estimator: Any, schema: Schema | None) -> dict[str, object]:
    """Return what a file holds: a model, or intervals with the model that they are around."""
    name = type(estimator).__name__
    if name == "DPConformal":
        more = _plain(interval_files().content_of(estimator))
        model = _content(estimator.estimator_, schema)
        return {"format": INTERVALS, "version": __version__, **more, "model": model}  # type: ignore[dict-item]
    if not _may_be_saved(estimator):
        raise ModelFileError(
            f"The 'estimator' parameter of save_model must be one of {sorted([*known_estimators(), 'DPConformal'])}. "
            f"Got {name} instead."
        )
    return _content(estimator, schema)


def _parameters(estimator: Fitted) -> tuple[dict[str, object], list[str]]:
    """Return the parameters that are plain data, and the names of the others."""
    parameters: dict[str, object] = {}
    omitted: list[str] = []
    for key, value in estimator.get_params(deep=False).items():
        if key in NOT_SAVED:
            continue
        try:
            pairs = key == "class_weight" and isinstance(value, Mapping)
            parameters[key] = _plain(list(map(list, value.items())) if pairs else value)
            json.dumps(parameters[key], allow_nan=False)
        except (TypeError, ValueError):
            parameters.pop(key, None)
            omitted.append(key)
    return parameters, omitted


def _content(estimator: Fitted, schema: Schema | None) -> dict[str, object]:
    """Return what a model's file holds, as plain data."""
    parameters, omitted = _parameters(estimator)
    names = getattr(estimator, "feature_names_in_", None)
    classes = getattr(estimator, "classes_", None)
    products = getattr(estimator, "product_names_", None)
    return {
        "format": FORMAT,
        "version": __version__,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "omitted": omitted,
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(item) for item in names],
        "columns": None if schema is None else schema_to_dict(schema),
        "coef": _plain(np.asarray(estimator.coef_)),
        "intercept": _plain(np.asarray(estimator.intercept_)),
        "classes": None if classes is None else _plain(np.asarray(classes)),
        "released": _plain(estimator.released_),
        **({} if products is None else {"product_names": list(products)}),
        "certificate": json.loads(estimator.certificate_.to_json()),
    }


def load_model(path: str | os.PathLike[str]) -> Any:
    """Return the fitted estimator that a file written by :func:`save_model` holds.

    Parameters
    ----------
    path : str or path-like
        The file. It may come from a stranger: nothing in it is executed.

    Returns
    -------
    estimator
        Ready to predict; its certificate is verified and follows from its parameters.

    Raises
    ------
    ModelFileError
        If the file is malformed or its parts do not agree.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> from dpconvex import DPLinearRegression, load_model, save_model
    >>> fitted = DPLinearRegression(feature_bounds=(0, 1), target_bounds=(0, 1)).fit(np.eye(50), np.ones(50))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.json"
    >>> save_model(fitted, path)
    >>> model = load_model(path)
    >>> model.certificate_.verify()
    >>> bool((model.predict(np.eye(50)) == fitted.predict(np.eye(50))).all())
    True
    """
    return read_model(path).estimator


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Return everything a model file holds; see :func:`load_model`."""
    return parse_model(read_json(path))


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the object in a strict JSON file; see :func:`json_object`."""
    with open(path, "rb") as file:
        return json_object(file.read(LARGEST_FILE + 1))


def json_object(raw: bytes) -> dict[str, Any]:
    """Return the object in strict JSON: no NaN, no repeated keys, at most 64 MiB and 4 million numbers."""
    _check_size(raw)
    try:
        data = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite_float
        )
    except ModelFileError:
        raise
    except (ValueError, RecursionError):  # among them UnicodeDecodeError and JSONDecodeError
        raise ModelFileError("The file must be valid JSON in UTF-8.") from None
    if not isinstance(data, dict):
        raise ModelFileError("The file must hold a JSON object.")
    # Half a sign, which JSON can spell: it could be read and never be written.
    if _HALVES.search(raw) and _HALVES_LEFT.search(json.dumps(data, ensure_ascii=False)):
        raise ModelFileError("The file must be valid JSON in UTF-8.")
    return data


def _check_size(raw: bytes) -> None:
    """Raise if a file would take more time or memory to parse than a model needs."""
    if len(raw) > LARGEST_FILE:
        raise ModelFileError(f"The file is larger than {LARGEST_FILE // 2**20} MiB.")
    if any(raw.count(sign) > most for sign, most in _MOST_SIGNS.items()):
        raise ModelFileError("The file holds more values, texts, lists or objects than any model.")


def _plain(value: object) -> object:
    """Return JSON-ready data of equal value; raises TypeError for what is not plain."""
    if hasattr(value, "to_numpy"):  # a series of a dataframe
        value = value.to_numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, range):
        value = list(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    described = describe(value)
    if not isinstance(described, dict) or described.get("class") == "DeclaredLoss":
        raise TypeError(f"{type(value).__name__} is not plain data.")
    return described


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ModelFileError("The file must not repeat a key.")
    return content


def _refuse_constant(_: str) -> float:
    raise ModelFileError("The file must not hold NaN or infinite numbers.")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ModelFileError("The file must not hold NaN or infinite numbers.")
    return value
