"""Files of prediction intervals: that of their estimator, the calibration's certificate, and the threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from sklearn.base import clone

from dpconvex.core.evaluation_certificate import EvaluationCertificate
from dpconvex.inputs.settings import resolve_guarantee
from dpconvex.intervals.conformal import COUNTS, ConformalCertificate, DPConformal, thresholds
from dpconvex.models.parsing import REBUILDING, ModelFileError
from dpconvex.privacy.certificates.rules import CertificateError
from dpconvex.privacy.guarantees import guarantee_from_dict

__all__ = ["content_of", "rebuild_intervals"]

Content = Mapping[str, Any]

_BUDGET = ("epsilon", "delta", "mu")
_SAVED = ("coverage", "calibration_share", "score_bound", *_BUDGET)
_FIELDS = {"format", "version", "parameters", "threshold", "calibration", "model"}


def content_of(intervals: DPConformal) -> dict[str, object]:
    """Return what the file of fitted intervals holds beside its format, its version and its estimator's content."""
    calibration = intervals.certificate_.calibration
    plain = {name: value for name, value in asdict(calibration).items() if name != "guarantee"}
    reach = intervals.threshold_
    return {
        "parameters": {name: getattr(intervals, name) for name in _SAVED},
        "threshold": reach if math.isfinite(reach) else None,
        "calibration": {**plain, "guarantee": calibration.guarantee.to_dict()},
    }


def rebuild_intervals(data: Content, model: Any) -> DPConformal:
    """Return the intervals that a file stands for, after all checks; ``model`` is what its estimator's part holds."""
    if set(data) != _FIELDS:
        wrong = sorted(set(data) ^ _FIELDS)[:10]
        raise ModelFileError(f"A file of intervals must have the fields {sorted(_FIELDS)}. Check {wrong}.")
    if data["version"] != data["model"]["version"]:
        raise ModelFileError("The 'version' of a file of intervals must be that of its model.")
    parameters, plain = data["parameters"], data["calibration"]
    if not isinstance(parameters, dict) or set(parameters) != set(_SAVED):
        raise ModelFileError(f"The file's 'parameters' must be those of intervals: {_SAVED}.")
    try:
        calibration = _calibration(plain)
        own = any(parameters[name] is not None for name in _BUDGET)
        template = clone(model).set_params(**dict.fromkeys(_BUDGET) if own else {})
        found = DPConformal(template, **parameters)
        certificate = ConformalCertificate(model.certificate_, calibration)
        certificate.verify()
        _check(found, certificate)
        _set_fitted(found, certificate, model, data["threshold"])
    except ModelFileError:
        raise
    except CertificateError as error:
        raise ModelFileError(f"The certificate of the intervals is not valid. {error}") from error
    except REBUILDING as error:
        raise ModelFileError("The file of intervals is malformed.") from error
    return found


def _calibration(plain: Content) -> EvaluationCertificate:
    if not isinstance(plain, dict) or set(plain) != {item.name for item in fields(EvaluationCertificate)}:
        raise ModelFileError("The file's 'calibration' must be the certificate of a calibration.")
    return EvaluationCertificate(**{**plain, "guarantee": guarantee_from_dict(plain["guarantee"])})


def _check(intervals: DPConformal, certificate: ConformalCertificate) -> None:
    """Raise unless the certificates are about a split and a calibration as the parameters say."""
    calibration = certificate.calibration
    training, held = certificate.fit.bounds.n_samples, calibration.n_samples
    model = intervals._model()
    stated = (calibration.mechanism, calibration.statistic, calibration.releases)
    if (
        stated != ("conformal", "counts", COUNTS)
        or intervals._parts(training + held) != (training, held)
        or calibration.sampler.startswith("seeded") != certificate.fit.sampler.startswith("seeded")
        or model.neighbors != certificate.neighbors
        or resolve_guarantee(model.epsilon, model.delta, model.mu, "DPConformal") != certificate.guarantee
    ):
        raise ModelFileError("The certificates of the intervals do not follow from the parameters.")
    intervals._wanted(calibration)  # raises where so few rows could not show the coverage


def _set_fitted(intervals: DPConformal, certificate: ConformalCertificate, model: Any, reach: object) -> None:
    if reach is not None and type(reach) not in (int, float):
        raise ModelFileError("The file's 'threshold' must be a number, or null for an infinite one.")
    threshold = math.inf if reach is None else float(reach)  # type: ignore[arg-type]
    grid = thresholds(intervals._bound())
    if math.isfinite(threshold) and not np.isclose(grid, threshold, rtol=1e-9, atol=0).any():
        raise ModelFileError("The file's 'threshold' is none of those that are looked for.")
    intervals.estimator_, intervals.certificate_ = model, certificate
    intervals.threshold_ = threshold
    intervals.n_features_in_ = model.n_features_in_
    for name in ("feature_names_in_", "schema_"):
        if hasattr(model, name):
            setattr(intervals, name, getattr(model, name))
