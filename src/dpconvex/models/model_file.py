"""Model files: fitted estimators as JSON that is safe to load from strangers.

A file holds public things only: the class by name, its parameters, what was released, and the
certificate. Loading checks every field, builds the estimator from its parameters, verifies the
certificate and refuses a file whose parts do not agree. It proves consistency, not origin: it is
not a signature.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier

from dpconvex.core.certificate import Certificate, CertificateError, refuse_malformed_certificate
from dpconvex.core.checks import MOST_FEATURES, check_positive
from dpconvex.core.description import describe, rebuild_description
from dpconvex.core.linear_bounds import LinearRecord
from dpconvex.core.noise_source import SAMPLERS
from dpconvex.inputs.labels import declared_label_set
from dpconvex.inputs.people_and_weights import PersonUnit, check_class_weight
from dpconvex.inputs.public_table import PublicTable, fitted_schema, pipeline_steps
from dpconvex.inputs.schema import Schema
from dpconvex.inputs.schema_file import parse_schema, schema_to_dict
from dpconvex.inputs.settings import (
    Classifier,
    Fitted,
    Label,
    classifies,
    fitted_names,
    resolve_kernel_setting,
)
from dpconvex.losses import DiscreteHazard
from dpconvex.mechanisms.mechanism import certified_kind
from dpconvex.models.saved_kinds import ESTIMATORS, INTERVALS, SavedIntervals
from dpconvex.system.atomic_files import write_file_atomically
from dpconvex.types import Array
from dpconvex.version import __version__

FORMAT = "dpconvex-model-1"
INTERVALS_FORMAT = "dpconvex-intervals-1"
LARGEST_FILE = 64 * 2**20
# Signs that JSON is made of: a value takes up to a hundred times its length in memory, and few of
# them are needed.
_MOST_SIGNS = {b",": 2**22, b'"': 2**21, b"[": 2**17, b"{": 2**17}
_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# Tools of one process, not facts about the model.
NOT_SAVED = ("ledger", "random_state", "verbose")
# Parameters that may be objects of classes of the user. Of a mechanism, the certificate states what
# matters. A kernel is missing only where none was used. A loss is never missing: nobody could
# compare it with the certificate's.
OMITTABLE = ("kernel", "mechanism")
# Errors that wrong values raise while an estimator or certificate is rebuilt from them.
REBUILDING = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
_INTERVALS_CLASS = "DPConformal"

Content = Mapping[str, Any]  # of a file: JSON


class ModelFileError(ValueError):
    """A model cannot be saved, or a file is not a consistent model."""


@dataclass(frozen=True)
class ModelFile:
    """The fitted estimator or intervals of a file, and how to read tables for it (or None)."""

    estimator: Fitted
    schema: Schema | None = None


def known_estimators() -> list[str]:
    """Return the names of the classes that a file may name; no class is loaded for it."""
    return ESTIMATORS.known()


def _estimator_named(name: str) -> type[Fitted]:
    load = ESTIMATORS.find(name)
    assert load is not None, "the name was checked"
    return load()


def _intervals() -> SavedIntervals:
    found = INTERVALS.find(_INTERVALS_CLASS)
    assert found is not None, "the package registers its intervals"
    return found


# Writing


def save_model(
    estimator: Any, path: str | os.PathLike[str], *, schema: PublicTable | Schema | None = None
) -> None:
    """Write a fitted estimator to a JSON file.

    Parameters
    ----------
    estimator : estimator
        Fitted; its ledger and random_state are not saved. Or
        :class:`~dpconvex.intervals.DPConformal`, or a pipeline of a :class:`PublicTable` and one of
        them.
    path : str or path-like
        Replaced at once when the file is complete, so a crash leaves no half of it. A link is an
        error.
    schema : PublicTable or Schema, optional
        How tables are read for this model; by default that of the pipeline, or the one the model
        was loaded with.

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
    write_file_atomically(path, model_file_content(estimator, schema=schema))


def model_file_content(estimator: Any, *, schema: PublicTable | Schema | None = None) -> bytes:
    """Return what :func:`save_model` writes, once it is checked that it can be loaded."""
    text = model_text(estimator, schema=schema)
    try:
        parse_model(json.loads(text))
    except ModelFileError as error:
        raise ModelFileError(
            f"This model cannot be saved, because the file could not be loaded: {error} "
            "Fit again if parameters were set after the fit."
        ) from error
    _check_model_size(text.encode())
    return f"{text}\n".encode()


def model_text(estimator: Any, *, schema: PublicTable | Schema | None = None) -> str:
    """Return what :func:`save_model` writes, before it is checked that it can be loaded."""
    steps = pipeline_steps(estimator)
    if len(steps) == 2 and isinstance(steps[0], PublicTable) and schema is None:
        schema, estimator = steps
    if isinstance(schema, PublicTable):
        schema = schema._parsed()
    if schema is None:
        schema = fitted_schema(estimator)
    name = type(estimator).__name__
    intervals = name == _INTERVALS_CLASS
    # One of ours, not of a class derived from one.
    if not intervals and not (
        name in known_estimators() and _estimator_named(name) is type(estimator)
    ):
        raise ModelFileError(
            "The 'estimator' parameter of save_model must be one of "
            f"{sorted([*known_estimators(), _INTERVALS_CLASS])}. Got {name} instead."
        )
    if "certificate_" not in vars(estimator):
        raise ModelFileError(
            f"This {name} is not fitted: there is nothing to save. Call fit first."
        )
    try:
        content = _model_content(estimator.estimator_ if intervals else estimator, schema)
        if intervals:
            own: Any = _plain_model_data(_intervals().content(estimator))
            content = {"format": INTERVALS_FORMAT, "version": __version__, **own, "model": content}
        return json.dumps(content, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"This {name} holds values that are not plain, finite data, so it cannot be saved."
        ) from error


def _model_content(estimator: Fitted, schema: Schema | None) -> dict[str, object]:
    parameters: dict[str, object] = {}
    omitted: list[str] = []
    for key, value in estimator.get_params(deep=False).items():
        if key in NOT_SAVED:
            continue
        try:
            # Labels may be numbers, which are no keys of JSON.
            pairs = key == "class_weight" and isinstance(value, Mapping)
            plain = _plain_model_data(list(map(list, value.items())) if pairs else value)
            json.dumps(plain, allow_nan=False)
            parameters[key] = plain
        except (TypeError, ValueError):
            omitted.append(key)
    names = fitted_names(estimator)
    classes = estimator.classes_ if classifies(estimator) else None
    return {
        "format": FORMAT,
        "version": __version__,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "omitted": omitted,
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(item) for item in names],
        "product_names": _plain_model_data(vars(estimator).get("product_names_")),
        "columns": None if schema is None else schema_to_dict(schema.for_other_files),
        "coef": _plain_model_data(np.asarray(estimator.coef_)),
        "intercept": _plain_model_data(np.asarray(estimator.intercept_)),
        "classes": _plain_model_data(classes),
        "released": _plain_model_data(estimator.released_),
        "certificate": json.loads(estimator.certificate_.to_json()),
    }


def _plain_model_data(value: object) -> object:
    """Return JSON-ready data of equal value; raises TypeError for what is not plain."""
    if hasattr(value, "to_numpy"):  # a series of a dataframe
        value = value.to_numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain_model_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain_model_data(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    described = describe(value)
    if not isinstance(described, dict) or described.get("class") == "DeclaredLoss":
        raise TypeError(f"{type(value).__name__} is not plain data.")
    return described


# Reading JSON


def load_model(path: str | os.PathLike[str]) -> Any:
    """Return the fitted estimator that a file written by :func:`save_model` holds, ready to
    predict.

    The file at ``path`` may come from a stranger: nothing in it is executed. Its certificate is
    verified and follows from its parameters; a ModelFileError says that the file is malformed or
    that its parts do not agree.
    """
    return read_model(path).estimator


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Return everything a model file holds; see :func:`load_model`."""
    return parse_model(read_model_json(path))


def read_model_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the object in a strict JSON file; see :func:`model_json_object`."""
    with open(path, "rb") as file:
        return model_json_object(file.read(LARGEST_FILE + 1))


def model_json_object(raw: bytes) -> dict[str, Any]:
    """Return the object in strict JSON: no NaN, no repeated keys, at most 64 MiB and 4 million
    numbers.
    """
    _check_model_size(raw)
    try:
        data = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_finite_float,
            parse_float=_finite_float,
        )
    except ModelFileError:
        raise
    except (ValueError, RecursionError):  # among them UnicodeDecodeError and JSONDecodeError
        raise ModelFileError("The file must be valid JSON in UTF-8.") from None
    if not isinstance(data, dict):
        raise ModelFileError("The file must hold a JSON object.")
    # Half a character, which JSON can spell: it could be read and never be written.
    if _SURROGATES.search(raw) and _LONE_SURROGATES.search(json.dumps(data, ensure_ascii=False)):
        raise ModelFileError("The file must be valid JSON in UTF-8.")
    return data


def _check_model_size(raw: bytes) -> None:
    """Raise if a file would take more time or memory to parse than a model needs."""
    if len(raw) > LARGEST_FILE:
        raise ModelFileError(f"The file is larger than {LARGEST_FILE // 2**20} MiB.")
    if any(raw.count(sign) > most for sign, most in _MOST_SIGNS.items()):
        raise ModelFileError("The file holds more values, texts, lists or objects than any model.")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ModelFileError("The file must not repeat a key.")
    return content


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ModelFileError("The file must not hold NaN or infinite numbers.")
    return value


# Checking the content


def _is_names(value: object) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(item, str) for item in value)
        and len(set(value)) == len(value)
    )


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool)


_NONE = type(None)
# By field: whether a value may stand there, and the allowed ones in words.
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "format": (lambda value: value == FORMAT, repr(FORMAT)),
    "version": (
        lambda value: (
            isinstance(value, str) and re.fullmatch(r"[0-9a-z.+!-]{0,64}", value) is not None
        ),
        "that of a release, like '0.1.0'",
    ),
    "estimator": (lambda value: value in known_estimators(), "one of the estimators of dpconvex"),
    "parameters": (_is(dict), "an object"),
    "omitted": (
        lambda value: _is_names(value) and set(value) <= set(OMITTABLE),
        f"names among {list(OMITTABLE)}",
    ),
    "n_features": (
        lambda value: type(value) is int and 1 <= value <= MOST_FEATURES,
        f"an integer from 1 to {MOST_FEATURES:,}",
    ),
    "feature_names": (
        lambda value: value is None or _is_names(value),
        "null or a list of different strings",
    ),
    "product_names": (
        lambda value: value is None or _is_names(value),
        "null or a list of different strings",
    ),
    "columns": (_is(dict, _NONE), "null or an object"),
    "coef": (_is(list), "a list"),
    "intercept": (_is(int, float, list), "a number or a list"),
    "classes": (_is(list, _NONE), "null or a list"),
    "released": (_is(dict), "an object"),
    "certificate": (_is(dict), "an object"),
}


def _require_of_model_file(holds: object, sentence: str) -> None:
    """Raise unless a condition holds; the sentence says what the file's part must be."""
    if not holds:
        raise ModelFileError(f"The model file's {sentence}.")


@contextmanager
def _refusing_model_file(sentence: str) -> Iterator[None]:
    """Turn errors of values that a stranger wrote into one sentence about the file."""
    try:
        yield
    except ModelFileError:
        raise
    except REBUILDING as error:
        raise ModelFileError(f"The model file's {sentence}.") from error


def parse_model(data: Content) -> ModelFile:
    """Return what the content of a model file stands for, after all checks."""
    # Absurd numbers of a stranger overflow on the way to being refused; that is no news.
    with np.errstate(all="ignore"):
        if data.get("format") != INTERVALS_FORMAT:
            return _parse_model(data)
        inner = data.get("model")
        if not isinstance(inner, dict):
            raise ModelFileError("A file of intervals must hold the 'model' that they are around.")
        model = _parse_model(inner)
        return ModelFile(_intervals().rebuild(data, model.estimator), model.schema)


def parse_certificate_file(data: Content) -> Certificate:
    """Return a verified certificate from the content of its file, or raise CertificateError."""
    with refuse_malformed_certificate("The certificate is malformed"), np.errstate(all="ignore"):
        certificate = Certificate.from_json(json.dumps(data))
        certificate.verify()
    return certificate


def _parse_model(data: Content) -> ModelFile:
    if data.get("format") == FORMAT and set(data) != set(_FIELDS):
        wrong = sorted(set(data) ^ set(_FIELDS))[:10]
        raise ModelFileError(f"A model file must have the fields {sorted(_FIELDS)}. Check {wrong}.")
    for name, (allows, allowed) in _FIELDS.items():
        _require_of_model_file(allows(data.get(name)), f"'{name}' must be {allowed}")
    # The size of everything that follows is that of numbers which stand in the file.
    coef, intercept = _read_model_coefficients(data)
    try:
        certificate = parse_certificate_file(data["certificate"])
    except CertificateError as error:
        raise ModelFileError(f"The model's certificate is not valid. {error}") from error
    model = _rebuild_model_estimator(data)
    # What was chosen for the user (mechanism, penalty, smoothing, noise) is the certificate's own
    # matter: it is verified as stated, whatever this version would choose.
    with _refusing_model_file("'parameters' do not allow a private fit"):
        pairs = _stated_model_facts(model, certificate, data)
        wrong = sorted(
            name for name, (found, value) in pairs.items() if not _same_model_value(found, value)
        )
    if wrong:
        raise ModelFileError(
            f"The model's certificate does not follow from its parameters: check {wrong}."
        )
    classes = data["classes"]
    names = data["feature_names"]
    products = data["product_names"]
    _require_of_model_file(
        (classes is not None) == is_classifier(model),
        "'classes' must be there for classifiers, and only there",
    )
    if classes is not None:
        _check_model_classes(cast(Classifier, model), certificate, classes)
        cast(Classifier, model).classes_ = np.array(classes)
    _check_model_releases(data["released"], certificate, np.atleast_2d(coef).shape)
    if isinstance(certificate.bounds.loss, DiscreteHazard):
        _check_survival_releases(data["released"], certificate.bounds.loss, float(intercept))
    through_origin = certificate.parameters.get("through_origin", False)
    _require_of_model_file(
        not (through_origin and intercept.any()),
        "'intercept' must be 0, as its certificate says with 'through_origin'",
    )
    model.n_features_in_ = data["n_features"]
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    if products is not None:
        model.product_names_ = products  # type: ignore[attr-defined]
    model.coef_ = coef
    model.intercept_ = intercept if intercept.ndim else float(intercept)
    model.released_ = data["released"]
    model.certificate_ = certificate
    if data["columns"] is None:
        return ModelFile(model)
    with _refusing_model_file("'columns' are malformed"):
        model.schema_ = parse_schema(data["columns"])
    _require_of_model_file(
        model.schema_.names == names, "'columns' do not lead to its 'feature_names'"
    )
    return ModelFile(model, model.schema_)


def _read_model_coefficients(data: Content) -> tuple[Array, Array]:
    """Return coefficients and intercept in the shape that the numbers of columns, classes and
    levels imply.
    """
    width, classes, names, products = (
        data[name] for name in ("n_features", "classes", "feature_names", "product_names")
    )
    rows = None if classes is None else 1 if len(classes) == 2 else len(classes)
    parameters = data["certificate"].get("parameters")
    levels = parameters.get("quantile") if isinstance(parameters, dict) else None
    if isinstance(levels, list):  # several quantiles, or products
        rows = len(levels)
    coef, intercept = (_finite_model_array(name, data[name]) for name in ("coef", "intercept"))
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = (
        ((width,), ()) if rows is None else ((rows, width), (rows,))
    )
    ordered = data["estimator"] == "DPOrdinalRegression"
    if ordered:
        shapes = (width,), (len(classes or ()) - 1,)
    _require_of_model_file(
        (coef.shape, intercept.shape) == shapes, "'coef' and 'intercept' do not match 'n_features'"
    )
    if ordered:
        _require_of_model_file(
            (np.diff(intercept) <= 0).all(), "'intercept' must fall from level to level"
        )
    _require_of_model_file(
        names is None or len(names) == width, "'feature_names' do not match 'n_features'"
    )
    table = data["estimator"] == "DPNewsvendor" and intercept.shape == (len(products or ()),)
    _require_of_model_file(products is None or table, "'product_names' do not match its products")
    return coef, intercept


def _finite_model_array(name: str, value: object) -> Array:
    """Return an array of floats; booleans, text, ragged lists and infinities are refused."""
    plain = [value]
    while plain and all(isinstance(item, list) for item in plain):
        plain = [inner for item in plain if isinstance(item, list) for inner in item]
    _require_of_model_file(
        all(type(item) in (int, float) for item in plain), f"'{name}' must hold numbers"
    )
    with _refusing_model_file(f"'{name}' must be an array of numbers"):
        array = np.array(cast(ArrayLike, value), dtype=np.float64)
    _require_of_model_file(np.isfinite(array).all(), f"'{name}' must hold finite numbers")
    return array


def _rebuild_model_estimator(data: Content) -> Fitted:
    owner = data["estimator"]
    parameters = data["parameters"]
    omitted = data["omitted"]
    kind = _estimator_named(owner)
    allowed = set(kind().get_params(deep=False)) - set(NOT_SAVED)
    named = set(parameters) | set(omitted) == allowed and not set(parameters) & set(omitted)
    _require_of_model_file(
        named, f"'parameters' and 'omitted' must name the parameters of {owner}, each once"
    )
    bounds = parameters.get("feature_bounds")
    by_name = not isinstance(bounds, dict) or list(bounds) == data["feature_names"]
    _require_of_model_file(by_name, "'feature_bounds' do not name its 'feature_names'")
    with _refusing_model_file("'parameters' are malformed"):
        # Bounds may be an object by name of column; another object describes a loss or kernel.
        values = {
            name: rebuild_description(value)
            if isinstance(value, dict) and name != "feature_bounds"
            else value
            for name, value in parameters.items()
        }
        if isinstance(values.get("class_weight"), list):
            values["class_weight"] = {label: weight for label, weight in parameters["class_weight"]}
            unique = len(values["class_weight"]) == len(parameters["class_weight"])
            _require_of_model_file(unique, "'class_weight' must name each label once")
        # Settings that a fit refuses, although the certificate may have no use for them.
        for name in ("alpha", "bandwidth"):
            if values.get(name) is not None:
                check_positive(name, owner, values[name], "")
        if "kernel" in values:
            resolve_kernel_setting(values["kernel"], owner)
        for name in ("fit_intercept", "inference", "label_private"):
            _require_of_model_file(
                isinstance(values.get(name, True), bool),
                f"parameter '{name}' must be true or false",
            )
        return kind(**values)


def _stated_model_facts(
    model: Fitted, certificate: Certificate, data: Content
) -> dict[str, tuple[object, object]]:
    bounds = certificate.bounds
    width = data["n_features"]
    settings = model.get_params(deep=False)
    facts = model._public_facts(
        PersonUnit(bounds.n_samples, bounds.people, bounds.rows_per_person, bounds.weighted_rows),
        width,
    )
    if "through_origin" in facts.parameters and "through_origin" not in certificate.parameters:
        # A fit without an intercept that was saved by an early version went through the middle of
        # the bounds, and its file keeps that meaning.
        del facts.parameters["through_origin"]
        facts = model._mapped_facts(facts, width, facts.row_map.row_norm, False)
    rows_per_person = settings.get("rows_per_person", 1)
    person_weight = settings.get("person_weight", "equal")
    by_rows = bounds.weighted_rows and not bounds.people
    pairs = {
        "n_features": (bounds.n_features, width),
        "guarantee": (certificate.guarantee, facts.guarantee),
        "n_samples": (bounds.n_samples, facts.n_samples),
        "neighbors": (bounds.neighbors, model.neighbors),
        "sampler": (model.sampler in SAMPLERS, True),
        **{
            name: (certificate.parameters.get(name), value)
            for name, value in facts.parameters.items()
            if name != "records"  # which no parameter of an estimator decides
        },
    }
    # Facts of the certificate that are parameters of the estimator under the same name.
    given = {
        name
        for name, value in settings.items()
        if value is not None and name not in data["omitted"]
    }
    for item in fields(bounds):
        if item.name in given - {"loss", "coef_bound", "row_norm"}:
            pairs[item.name] = (getattr(bounds, item.name), settings[item.name])
    pairs["rows_per_person"] = (
        (int, bounds.rows_per_person),
        (type(rows_per_person), rows_per_person),
    )
    pairs["person_weight"] = (
        person_weight == "equal" or (person_weight == "rows" and by_rows),
        True,
    )
    mechanism = data["parameters"].get("mechanism", "auto")
    if mechanism != "auto":
        pairs["mechanism"] = (certified_kind(certificate).word, mechanism)
    if facts.row_map is not None:
        stated = isinstance(bounds, LinearRecord) and bounds.fit_intercept
        pairs["fit_intercept"] = (stated, facts.row_map.fit_intercept)
    if "max_norm" in {item.name for item in fields(bounds)}:
        pairs["row_norm"] = (bounds.row_norm, facts.row_map.row_norm)
        longest = certified_kind(certificate).stated_map(certificate, facts.row_map).max_norm
        pairs["max_norm"] = (
            bounds.max_norm,
            longest if math.isfinite(longest) else facts.row_map.row_norm,
        )
    pairs.update(model._stated(certificate, facts))
    if "kernel" in data["omitted"]:
        # One of the library's own would stand in the file, and no other can stand in a certificate.
        pairs["kernel"] = (
            hasattr(bounds.loss, "kernel")
            or "kernel" in certified_kind(certificate).stated_choices(certificate),
            False,
        )
    return pairs


def _same_model_value(found: object, expected: object) -> bool:
    """Compare numbers to a relative 1e-9 (another platform's rounding), the rest exactly."""
    if isinstance(expected, (list, tuple)):
        sequences = isinstance(found, (list, tuple)) and len(found) == len(expected)
        return sequences and all(map(_same_model_value, cast(list[object], found), expected))
    if isinstance(expected, float) and not isinstance(found, bool):
        return isinstance(found, (int, float)) and math.isclose(found, expected, rel_tol=1e-9)
    return bool(found == expected)


def _check_model_releases(
    released: dict[str, Any], certificate: Certificate, shape: tuple[int, ...]
) -> None:
    """Raise unless what else was released can be used as such: intervals only where a
    certificate pays for them.
    """
    records = released.get("problems", [released])
    listed = isinstance(records, list) and all(isinstance(record, dict) for record in records)
    complete = listed and ("problems" not in released or len(records) == shape[0])
    _require_of_model_file(complete, "'released' must have a record of each problem")
    if "problems" in released:
        records = [
            {name: value for name, value in released.items() if name != "problems"},
            *records,
        ]
    for record in records:
        for name, value in record.items():
            # Numbers only: words of a stranger would stand in a report as if they had been
            # released.
            _require_of_model_file(
                re.fullmatch("[a-z_]{1,40}", name), "'released' must have names of small letters"
            )
            number = _finite_model_array(name, value).ndim == 0
            _require_of_model_file(number or name != "kept_share", "'kept_share' must be a number")
        if "covariance" not in record:
            continue
        paid = certificate.parameters.get("inference") is True
        _require_of_model_file(
            paid, "'covariance' is not covered by its certificate, which is without inference"
        )
        found = _finite_model_array("covariance", record["covariance"])
        square = found.shape == (shape[1] + 1,) * 2
        symmetric = square and np.allclose(found, found.T, atol=1e-9 * np.abs(found).max())
        _require_of_model_file(
            symmetric,
            "'covariance' must be a symmetric matrix of the coefficients and the intercept",
        )
        _require_of_model_file(
            (np.diag(found) >= 0).all(), "'covariance' must have no variance below 0"
        )


def _check_survival_releases(
    released: dict[str, Any], loss: DiscreteHazard, intercept: float
) -> None:
    """Raise unless a model of survival has the baseline and the shares that it predicts with."""
    baseline = _finite_model_array("baseline", released.get("baseline"))
    _require_of_model_file(
        baseline.shape == (loss.margins,) and float(baseline[0]) == intercept,
        "'baseline' must have a number for each period, the first of which is its 'intercept'",
    )
    shares = _finite_model_array("outcome_shares", released.get("outcome_shares"))
    _require_of_model_file(
        shares.shape == (loss.outcomes,) and (shares > 0).all(),
        "'outcome_shares' must have a share above 0 for each outcome",
    )


def _check_model_classes(model: Classifier, certificate: Certificate, classes: list[Label]) -> None:
    owner = type(model).__name__
    ordered = model._ordered_classes
    _require_of_model_file(
        len({type(item) for item in classes}) == 1, "'classes' must be labels of one kind"
    )
    with _refusing_model_file("'classes' must be different plain labels"):
        found = declared_label_set(classes, owner)
    # Numbers beyond 64 bits are of another kind.
    _require_of_model_file(
        found is not None and found.dtype.kind in "biufU",
        "'classes' must be labels that an array holds",
    )
    given = ordered and model.classes is not None  # levels in an order of their own
    _require_of_model_file(given or classes == sorted(classes), "'classes' must be sorted")
    as_many = len(classes) == certificate.parameters.get("n_classes")
    _require_of_model_file(as_many, "'classes' are not as many as its certificate says")
    with _refusing_model_file("parameter 'classes' is malformed"):
        declared = declared_label_set(model.classes, owner, ordered)
    with _refusing_model_file("parameter 'class_weight' is none that a fit takes"):
        check_class_weight(model.class_weight, classes, owner)
    same = declared is None or declared.tolist() == classes
    _require_of_model_file(same, "'classes' differ from its parameter 'classes'")
