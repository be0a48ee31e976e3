"""Audit a whole estimator: fit it many times on two tiny neighbouring data sets, as it is fitted in earnest."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dpconvex.audit.attacks import Claim, Sampler, audit
from dpconvex.audit.confidence import DEFAULT_CONFIDENCE
from dpconvex.audit.neighbors import NeighborPair, check_pair
from dpconvex.audit.result import AuditResult
from dpconvex.inputs.estimator_protocols import Model
from dpconvex.privacy.certificates.concerns import PrivacyWarning
from dpconvex.types import Array

# What estimators and paid transformers give out.
_RELEASED = ("coef_", "intercept_", "released_", "low_", "high_", "mean_", "covariance_")


def released_numbers(model: object) -> Array:
    """Return every number that a fitted model gives out, coefficients first."""
    return np.array([x for name in _RELEASED for x in _flat(getattr(model, name, ()))], np.float64)


def _flat(value: object) -> list[float]:
    if isinstance(value, dict):
        return [x for name in sorted(value) for x in _flat(value[name])]
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in _flat(part)]
    numbers = np.asarray(value)
    return numbers.ravel().tolist() if numbers.dtype.kind in "biuf" else []


def fitted_outputs(estimator: Model, data: tuple[Array, ...], count: int) -> Array:
    """Everything that ``count`` independent fits release, shape (count, numbers per fit).

    Every fit is a fresh clone without a ``random_state``: noise comes from where it comes from in earnest.
    """
    from sklearn.base import clone

    seeded = "random_state" in estimator.get_params(deep=False)
    outputs = []
    for _ in range(count):
        copy = clone(estimator)
        if seeded:
            copy.set_params(random_state=None)
        with warnings.catch_warnings():  # what privacy costs is not what an audit is about
            warnings.simplefilter("ignore", PrivacyWarning)
            outputs.append(released_numbers(_fitted(copy, data)))
    return np.asarray(outputs, dtype=np.float64)


def _fitted(model: Model, data: tuple[Array, ...]) -> Any:
    """Return the model, fitted to (X, y) or to (X, y, groups)."""
    more = {"groups": data[2]} if len(data) == 3 else {}
    return model.fit(*data[:2], **more)


def audit_estimator(
    estimator: Model,
    pair: NeighborPair,
    runs: int = 2_000,
    *,
    guarantee: Claim | None = None,
    delta: float | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    rng: np.random.Generator | int | None = None,
) -> AuditResult:
    """Try to refute an estimator's certificate by fitting it on two neighbouring data sets.

    Looked at is every released number: coefficients, intercept and ``released_``, together, one by one, and bit by bit
    where the certificate covers floating point; see :func:`dpconvex.audit.audit` for the statistics and the bound.
    Fits draw noise as they do in earnest: a ``random_state`` of the estimator is ignored, and no two audits are alike.

    Parameters
    ----------
    estimator : estimator
        An unfitted dpconvex estimator without a ledger: every run is a fit. Give ``alpha`` and
        ``bandwidth`` explicitly, or each fit works out their defaults anew.
    pair : NeighborPair
        The two data sets, see :func:`neighbor_pairs`; neighbours in the sense of the estimator's certificate.
    runs : int, default=2_000
        Fits per data set. A few thousand catch gross errors (noise several times too small);
        audit the calibrated scalar mechanism for fine ones.
    guarantee : guarantee or Certificate, optional
        The claim; by default the ``certificate_`` of a fit on the first data set.
    delta, confidence, rng
        As in :func:`dpconvex.audit.audit`.

    Returns
    -------
    AuditResult
        ``passed`` is False if the claim is refuted.
    """
    from sklearn.base import clone

    if getattr(estimator, "ledger", None) is not None:
        raise ValueError(
            "The 'ledger' parameter of the audited estimator must be None, because every run "
            "would be charged. Got a ledger instead. Audit a clone on invented data."
        )
    certificate = _fitted(clone(estimator), pair.first).certificate_
    bounds = getattr(certificate, "bounds", None)
    relation = getattr(certificate, "neighbors", "replace_one")
    check_pair(pair, relation, getattr(bounds, "rows_per_person", 1))

    def sampler(data: tuple[Array, ...]) -> Sampler:
        return lambda count, rng: fitted_outputs(estimator, data, count)

    return audit(
        sampler(pair.first),
        sampler(pair.second),
        certificate if guarantee is None else guarantee,
        runs,
        delta=delta,
        confidence=confidence,
        rng=rng,
        bits=getattr(certificate, "failure_probability", None) is not None,
    )
