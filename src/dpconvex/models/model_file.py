"""Reading the content of a model file: every part is checked, derived again, and refused where parts do not agree."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier

from dpconvex.checks import MOST_FEATURES, check_positive
from dpconvex.inputs import InputError
from dpconvex.inputs.labels import declared_classes
from dpconvex.inputs.people import PrivacyUnit, check_class_weight
from dpconvex.inputs.public_table import PublicTable
from dpconvex.inputs.schema import Schema, parse_schema, schema_to_dict
from dpconvex.inputs.settings import Classifier, Fitted, Label, resolve_kernel
from dpconvex.mechanisms.gradient_descent import stated_farthest
from dpconvex.privacy.certificate import Certificate, CertificateError
from dpconvex.privacy.description import describe, rebuild
from dpconvex.privacy.noise import SAMPLERS
from dpconvex.version import __version__
from dpconvex.whole_files import write_whole

__all__ = [
    "FORMAT",
    "INTERVALS",
    "ModelFile",
    "ModelFileError",
    "REBUILDING",
    "interval_files",
    "json_object",
    "load_model",
    "model_text",
    "parse_certificate",
    "parse_model",
    "read_json",
    "read_model",
    "save_model",
]

Content = Mapping[str, Any]  # of a file: JSON

FORMAT, INTERVALS = "dpconvex-model-1", "dpconvex-intervals-1"
# Tools of one process, not facts about the model.
NOT_SAVED = ("ledger", "random_state", "verbose")
# Parameters that may be objects of classes of the user. Of a mechanism, the certificate states what matters. A kernel
# is missing only where none was used. A loss is never missing: nobody could compare it with the certificate's.
# Parameters that estimators did not have when the format was made.
LATER = {"rows_per_person", "person_weight", "class_weight"}
OMITTABLE = ("kernel", "mechanism")
#: Mechanisms that weight rows which others shorten for want of feature bounds.
_WEIGHTED = ("gradient", "plain-gradient")
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "format": str,
    "version": str,
    "estimator": str,
    "parameters": dict,
    "omitted": list,
    "n_features": int,
    "feature_names": (list, type(None)),
    "columns": (dict, type(None)),
    "coef": list,
    "intercept": (int, float, list),
    "classes": (list, type(None)),
    "released": dict,
    "certificate": dict,
}
# What wrong values raise while an estimator or certificate is rebuilt from them.
REBUILDING = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


class ModelFileError(ValueError):
    """A model cannot be saved, or a file is not a consistent model."""


# The room of the estimators. By name, like a plug-in: this room is below it and knows nothing of it.
_ESTIMATORS = "dpconvex.estimators"
# The room of intervals around a model, likewise.
_INTERVALS_BY = "dpconvex.intervals"


def known_estimators() -> list[str]:
    """Return the names of the classes that a file may name; nothing is loaded for it."""
    return sorted(name for name in import_module(_ESTIMATORS).__all__ if name.startswith("DP"))


def estimator_named(name: str) -> type[Fitted]:
    """Return the class of this name, one of :func:`known_estimators`."""
    return cast(type[Fitted], getattr(import_module(_ESTIMATORS), name))


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds: the fitted estimator or intervals, and how to read tables for it (or None)."""

    estimator: Fitted
    schema: Schema | None = None


def parse_model(data: Content) -> ModelFile:
    """Return what the content of a model file stands for, after all checks."""
    # Absurd numbers of a stranger overflow on the way to being refused; that is no news.
    with np.errstate(all="ignore"):
        if data.get("format") != INTERVALS:
            return _parse(data)
        inner = data.get("model")
        if not isinstance(inner, dict):
            raise ModelFileError("A file of intervals must hold the 'model' that they are around.")
        model = _parse(inner)
        return ModelFile(interval_files().rebuild_intervals(data, model.estimator), model.schema)


def interval_files() -> Any:
    """Return the module that writes and reads what intervals add to a model's file."""
    return import_module(_INTERVALS_BY)


def parse_certificate(data: Content) -> Certificate:
    """Return a verified certificate from the content of its file, or raise CertificateError."""
    try:
        with np.errstate(all="ignore"):
            certificate = Certificate.from_json(json.dumps(data))
            certificate.verify()
    except CertificateError:
        raise
    except REBUILDING as error:
        raise CertificateError("The certificate is malformed.") from error
    return certificate


def _parse(data: Content) -> ModelFile:
    _check_fields(data)
    # The size of everything that follows is that of numbers which stand in the file.
    _check_shapes(data)
    try:
        certificate = parse_certificate(data["certificate"])
    except CertificateError as error:
        raise ModelFileError(f"The model's certificate is not valid. {error}") from error
    model = _rebuild_estimator(data)
    _check_certificate(model, certificate, data)
    named = data["parameters"].get("feature_bounds")
    if isinstance(named, dict) and list(named) != data["feature_names"]:
        raise ModelFileError("The model file's 'feature_bounds' do not name its 'feature_names'.")
    _set_fitted(model, certificate, data)
    schema = _schema_from_dict(data)
    if schema is not None:
        model.schema_ = schema
    return ModelFile(model, schema)


def _check_fields(data: Content) -> None:
    if data.get("format") != FORMAT:
        raise ModelFileError(f"A model file must have the format {FORMAT!r}.")
    if set(data) - {"product_names"} != set(_FIELDS):
        wrong = sorted(set(data) ^ set(_FIELDS))[:10]
        raise ModelFileError(f"A model file must have the fields {sorted(_FIELDS)}. Check {wrong}.")
    for name, kind in _FIELDS.items():
        if not isinstance(data[name], kind) or isinstance(data[name], bool):
            raise ModelFileError(f"The model file's '{name}' has the wrong type.")
    if re.fullmatch(r"[0-9a-z.+!-]{0,64}", data["version"]) is None:
        raise ModelFileError("The model file's 'version' must be that of a release, like '0.1.0'.")
    if data["estimator"] not in known_estimators():
        raise ModelFileError(f"The model file's 'estimator' must be one of {known_estimators()}.")
    if not 1 <= data["n_features"] <= MOST_FEATURES:
        raise ModelFileError(f"The model file's 'n_features' must be from 1 to {MOST_FEATURES:,}.")
    names = data["feature_names"]
    if names is not None:
        _check_names("feature_names", names)
        if len(names) != data["n_features"]:
            raise ModelFileError("The model file's 'feature_names' do not match 'n_features'.")
    if "product_names" in data:
        _check_names("product_names", data["product_names"])
        table = data["estimator"] == "DPNewsvendor" and isinstance(data["intercept"], list)
        if not table or len(data["product_names"]) != len(data["intercept"]):
            raise ModelFileError("The model file's 'product_names' do not match its products.")


def _check_names(name: str, values: object) -> None:
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    if texts != values or len(set(texts)) < len(texts):
        raise ModelFileError(f"The model file's '{name}' must be a list of different strings.")


def _rebuild_estimator(data: Content) -> Fitted:
    """Return an unfitted estimator with the file's parameters."""
    kind = estimator_named(data["estimator"])
    allowed = set(kind().get_params(deep=False)) - set(NOT_SAVED)
    parameters, omitted = data["parameters"], data["omitted"]
    _check_names("omitted", omitted)
    if not set(omitted) <= set(OMITTABLE):
        raise ModelFileError(
            f"The model file's 'omitted' may name {sorted(OMITTABLE)} only: whatever else is missing, nothing can be "
            "checked."
        )
    # Older files do not name what they could not have set.
    later = LATER & allowed - set(omitted)
    if set(parameters) | set(omitted) | later != allowed or set(parameters) & set(omitted):
        raise ModelFileError(
            f"The model file's 'parameters' and 'omitted' must name the parameters of {data['estimator']}, each once."
        )
    try:
        values = {name: _rebuilt(name, value) for name, value in parameters.items()}
        _check_settings(values, data["estimator"])
        return kind(**values)
    except REBUILDING as error:
        raise ModelFileError("The model file's 'parameters' are malformed.") from error


def _check_settings(values: Mapping[str, object], owner: str) -> None:
    """Raise where a setting is none that a fit takes, although the certificate may have no use for it."""
    for name in ("alpha", "bandwidth"):
        if values.get(name) is not None:
            check_positive(name, owner, values[name], "")
    if "kernel" in values:
        resolve_kernel(values["kernel"], owner)
    for name in ("fit_intercept", "inference", "label_private"):
        if not isinstance(values.get(name, True), bool):
            raise TypeError(f"The '{name}' parameter of {owner} must be True or False.")


def _rebuilt(name: str, value: object) -> object:
    """Return a parameter as an estimator takes it; weights of classes stand as pairs, since labels may be numbers."""
    if name == "class_weight" and isinstance(value, list):
        return _unique_pairs(value)
    if name == "feature_bounds":  # by name, or a pair
        return value
    return rebuild(value) if isinstance(value, dict) else value


def _unique_pairs(pairs: list[Any]) -> dict[Label, float]:
    found = {label: weight for label, weight in pairs}
    if len(found) < len(pairs):
        raise ValueError("A label is there twice.")
    return found


def _check_certificate(model: Fitted, certificate: Certificate, data: Content) -> None:
    """Raise unless the certificate is about the estimator that the parameters describe.

    What was chosen for the user (mechanism, penalty, smoothing, noise) is the certificate's own matter: it is verified
    as stated, whatever this version would choose.
    """
    try:
        pairs = _stated_facts(model, certificate, data)
        wrong = sorted(name for name, (found, value) in pairs.items() if not _same(found, value))
    except REBUILDING as error:
        raise ModelFileError("The model file's 'parameters' do not allow a private fit.") from error
    if wrong:
        raise ModelFileError(f"The model's certificate does not follow from its parameters: check {wrong}.")


def _stated_facts(model: Fitted, certificate: Certificate, data: Content) -> dict[str, tuple[object, object]]:
    """Return, by name, what the certificate says and what the parameters say."""
    bounds, width = certificate.bounds, data["n_features"]
    facts = model._public_facts(PrivacyUnit.stated_by(bounds), width)
    pairs = {
        "n_features": (bounds.n_features, width),
        "guarantee": (certificate.guarantee, facts.guarantee),
        "n_samples": (bounds.n_samples, facts.n_samples),
        "neighbors": (bounds.neighbors, model.neighbors),
        "sampler": (model.sampler in SAMPLERS, True),
        **{name: (certificate.parameters.get(name), value) for name, value in facts.parameters.items()},
    }
    given = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if value is not None and name not in data["omitted"]
    }
    # Facts of the certificate that are parameters of the estimator under the same name.
    for item in fields(bounds):
        if item.name in given and item.name not in ("loss", "coef_bound", "row_norm"):
            pairs[item.name] = (getattr(bounds, item.name), given[item.name])
    mechanism = data["parameters"].get("mechanism", "auto")
    if mechanism != "auto":
        named = certificate.mechanism
        for family in ("auc-", "structured-", "plain-"):
            named = named.removeprefix(family)
        pairs["mechanism"] = (named, mechanism)
    if hasattr(facts, "row_map"):
        pairs["fit_intercept"] = (getattr(bounds, "fit_intercept", False), facts.row_map.fit_intercept)
    if "max_norm" in {item.name for item in fields(bounds)}:
        pairs["row_norm"] = (bounds.row_norm, facts.row_map.row_norm)
        longest = facts.max_norm
        if certificate.mechanism in _WEIGHTED:
            longest = facts.row_map.weighted(stated_farthest(certificate)).max_norm
        pairs["max_norm"] = (bounds.max_norm, longest)
    pairs.update(model._stated(certificate, facts))
    if "kernel" in data["omitted"]:
        # One of the library's own would stand in the file, and no other can stand in a certificate.
        pairs["kernel"] = (_uses_kernel(certificate), False)
    return pairs


def _uses_kernel(certificate: Certificate) -> bool:
    return hasattr(certificate.bounds.loss, "kernel") or "gradient" in certificate.parameters


def _same(found: object, expected: object) -> bool:
    """Compare numbers to a relative 1e-9 (another platform's rounding), the rest exactly."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return False
        return all(map(_same, found, expected))
    if isinstance(expected, float) and not isinstance(found, bool):
        return isinstance(found, (int, float)) and math.isclose(found, expected, rel_tol=1e-9)
    return bool(found == expected)


def _check_shapes(data: Content) -> None:
    """Raise unless coefficients and intercept have the shape that the numbers of columns, classes and levels imply."""
    width, classes = data["n_features"], data["classes"]
    rows = None if classes is None else 1 if len(classes) == 2 else len(classes)
    parameters = data["certificate"].get("parameters")
    levels = parameters.get("quantile") if isinstance(parameters, dict) else None
    if isinstance(levels, list):  # several quantiles, or products
        rows = len(levels)
    shapes = ((width,), ()) if rows is None else ((rows, width), (rows,))
    found = tuple(_finite_array(name, data[name]).shape for name in ("coef", "intercept"))
    if found != shapes:
        raise ModelFileError("The model file's 'coef' and 'intercept' do not match 'n_features'.")


def _check_people(model: Fitted, certificate: Certificate) -> None:
    """Raise unless the settings about people are those that the certificate is about."""
    bounds = certificate.bounds
    rule = getattr(model, "person_weight", "equal")
    each = getattr(model, "rows_per_person", 1)
    stated = getattr(bounds, "rows_per_person", 1)
    if type(each) is not int or each != stated or rule not in ("equal", "rows"):
        raise ModelFileError("The model file's 'person_weight' or 'rows_per_person' is not that of its certificate.")
    by_rows = getattr(bounds, "weighted_rows", False) and not getattr(bounds, "people", False)
    if rule == "rows" and not by_rows:
        raise ModelFileError("The model file's 'person_weight' is not that of its certificate.")


def _set_fitted(model: Fitted, certificate: Certificate, data: Content) -> None:
    _check_people(model, certificate)
    coef, intercept = (_finite_array(name, data[name]) for name in ("coef", "intercept"))
    width = data["n_features"]
    classes = data["classes"]
    if (classes is not None) != is_classifier(model):
        raise ModelFileError("The model file must hold 'classes' for classifiers only.")
    if classes is not None:
        classifier = cast(Classifier, model)
        _check_classes(classifier, certificate, classes)
        classifier.classes_ = np.array(classes)
    model.n_features_in_ = width
    if data["feature_names"] is not None:
        model.feature_names_in_ = np.array(data["feature_names"], dtype=object)
    if "product_names" in data:
        model.product_names_ = data["product_names"]  # type: ignore[attr-defined]
    model.coef_ = coef
    model.intercept_ = float(intercept) if intercept.ndim == 0 else intercept
    _check_released(data["released"], certificate, np.atleast_2d(coef).shape)
    model.released_ = data["released"]
    model.certificate_ = certificate


def _check_released(released: dict[str, Any], certificate: Certificate, shape: tuple[int, ...]) -> None:
    """Raise unless what else was released can be used as such: intervals only where a certificate pays for them."""
    records = released.get("problems", [released])
    listed = isinstance(records, list) and all(isinstance(record, dict) for record in records)
    if not listed or ("problems" in released and len(records) != shape[0]):
        raise ModelFileError("The model file's 'released' must have a record of each problem.")
    shared = {name: value for name, value in released.items() if name != "problems"}
    for name, value in chain(*(record.items() for record in (shared, *records))):
        # Numbers only: words of a stranger would stand in a report as if they had been released.
        if re.fullmatch("[a-z_]{1,40}", name) is None:
            raise ModelFileError("The model file's 'released' must have names of small letters.")
        if _finite_array(name, value).ndim and name == "kept_share":
            raise ModelFileError("The model file's 'kept_share' must be a number.")
    for record in records:
        if "covariance" not in record:
            continue
        if certificate.parameters.get("inference") is not True:
            raise ModelFileError(
                "The model file's 'covariance' is not covered by its certificate, which is without inference."
            )
        found = _finite_array("covariance", record["covariance"])
        square = found.shape == (shape[1] + 1,) * 2
        if not square or not np.allclose(found, found.T, atol=1e-9 * np.abs(found).max()):
            raise ModelFileError(
                "The model file's 'covariance' must be a symmetric matrix of the coefficients and the intercept."
            )
        if (np.diag(found) < 0).any():
            raise ModelFileError("The model file's 'covariance' must have no variance below 0.")


def _check_classes(model: Classifier, certificate: Certificate, classes: list[Label]) -> None:
    """Raise unless the classes are a sorted label set, the certificate's and the parameter's."""
    owner = type(model).__name__
    if len({type(item) for item in classes}) > 1:
        raise ModelFileError("The model file's 'classes' must be labels of one kind.")
    try:
        found = declared_classes(classes, owner)
    except (TypeError, ValueError) as error:
        raise ModelFileError("The model file's 'classes' must be different plain labels.") from error
    if found is None or found.dtype.kind not in "biufU":  # numbers beyond 64 bits
        raise ModelFileError("The model file's 'classes' must be labels that an array holds.")
    if classes != sorted(classes):
        raise ModelFileError("The model file's 'classes' must be sorted.")
    if len(classes) != certificate.parameters.get("n_classes"):
        raise ModelFileError("The model file's 'classes' are not as many as its certificate says.")
    try:
        declared = declared_classes(model.classes, owner)
    except (TypeError, ValueError) as error:
        raise ModelFileError("The model file's parameter 'classes' is malformed.") from error
    try:
        check_class_weight(getattr(model, "class_weight", None), classes, owner)
    except (TypeError, ValueError) as error:
        raise ModelFileError("The model file's parameter 'class_weight' is none that a fit takes.") from error
    if declared is not None and declared.tolist() != classes:
        raise ModelFileError("The model file's 'classes' differ from its parameter 'classes'.")


def _finite_array(name: str, value: object) -> np.ndarray:
    """Return an array of floats; booleans, text, ragged lists and infinities are refused."""
    plain = [value]
    while plain and all(isinstance(item, list) for item in plain):
        plain = [inner for item in plain if isinstance(item, list) for inner in item]
    if not all(type(item) in (int, float) for item in plain):
        raise ModelFileError(f"The model file's '{name}' must hold numbers.")
    try:
        array = np.array(cast(ArrayLike, value), dtype=np.float64)
    except (ValueError, OverflowError):
        raise ModelFileError(f"The model file's '{name}' must be an array of numbers.") from None
    if not np.isfinite(array).all():
        raise ModelFileError(f"The model file's '{name}' must hold finite numbers.")
    return array


def _schema_from_dict(data: Content) -> Schema | None:
    """Return the schema by which the model reads tables; it must lead to the model's columns."""
    plain = data["columns"]
    if plain is None:
        return None
    try:
        schema = parse_schema(_with_bounds(plain, data["parameters"].get("feature_bounds")))
    except (InputError, *REBUILDING) as error:
        raise ModelFileError("The model file's 'columns' are malformed.") from error
    if schema.names != data["feature_names"]:
        raise ModelFileError("The model file's 'columns' do not lead to its 'feature_names'.")
    return schema


def _with_bounds(plain: Content, bounds: Any) -> Content:
    """Return the tables of a schema; a file that lists names of features only has their bounds elsewhere."""
    if not isinstance(plain.get("features"), list):
        return plain
    _check_names("columns", plain["features"])
    ends = [side if isinstance(side, list) else [side] * len(plain["features"]) for side in bounds]
    return {
        "features": dict(zip(plain["features"], map(list, zip(*ends, strict=True)), strict=False)),
        "categories": plain["categories"],
        "target": {plain["target"]: {}},
    }


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
