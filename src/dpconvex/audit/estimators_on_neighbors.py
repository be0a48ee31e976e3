"""Audits of whole estimators: fits on two tiny neighbouring data sets, for each relation of a
certificate.
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from dpconvex.audit.attacks import DEFAULT_CONFIDENCE, AuditResult, Claim, Sampler, audit
from dpconvex.core.certificate import Certificate, PrivacyWarning
from dpconvex.core.checks import parameter_error
from dpconvex.inputs.settings import Model
from dpconvex.types import Array


@dataclass(frozen=True, eq=False)
class NeighborPair:
    """Two data sets that differ in one record, or in one person."""

    name: str  # what the differing record does
    first: tuple[Array, ...]  # (X, y), or (X, y, groups) where people are protected
    second: tuple[Array, ...]


def neighbor_pairs(
    X: ArrayLike,
    y: ArrayLike,
    record: ArrayLike,
    targets: tuple[float, float],
    relation: str = "replace_one",
) -> Iterator[NeighborPair]:
    """Yield the pairs of neighbouring tables on which an estimator's calibration is most likely to
    break.

    Row 0 of (X, y) is the differing record, the other rows stay. Where it is replaced, the pairs
    are: ``mirror``, the record against its negative at the same target; ``target``, the same record
    with the target at opposite extremes (the worst case with an intercept; for classifiers a label
    flip); ``both``, mirror and opposite target together. Where labels stay, it is mirrored at
    either label; where records come and go, it is there or not.

    Parameters
    ----------
    X, y : array of shape (n, d) and (n,)
        Base data. Row 0 is the one that differs.
    record, targets : array of shape (d,), tuple of two numbers
        Features of the differing record, at the influence bound, and target extremes, or the two
        labels.
    relation : {"replace_one", "replace_one_keeping_label", "add_or_remove_one"}
        What a certificate's ``neighbors`` states.
    """
    X = np.array(X, dtype=np.float64)
    y = np.array(y)
    record = np.asarray(record, dtype=np.float64)
    if X.ndim != 2 or len(X) < 1 or record.shape != X.shape[1:]:
        raise ValueError(
            "The 'record' parameter of neighbor_pairs must have one entry per column of X, and X "
            f"at least one row. Got shapes {record.shape} and {X.shape} instead."
        )
    low, high = targets

    def data(features: Array, target: float) -> tuple[Array, Array]:
        rows = X.copy()
        values = y.copy()
        rows[0] = features
        values[0] = target
        return rows, values

    if relation == "replace_one":
        yield NeighborPair("mirror", data(record, high), data(-record, high))
        yield NeighborPair("target", data(record, high), data(record, low))
        yield NeighborPair("both", data(record, high), data(-record, low))
    elif relation == "replace_one_keeping_label":
        yield NeighborPair("mirror, high", data(record, high), data(-record, high))
        yield NeighborPair("mirror, low", data(record, low), data(-record, low))
    elif relation == "add_or_remove_one":
        for name, target in (("high", high), ("low", low)):
            rows, values = data(record, target)
            yield NeighborPair(f"presence, {name}", (rows, values), (rows[1:], values[1:]))
    else:
        allowed = "'replace_one', 'replace_one_keeping_label' or 'add_or_remove_one'"
        raise parameter_error("relation", "neighbor_pairs", allowed, repr(relation))


def check_neighbor_pair(pair: NeighborPair, relation: str, rows_per_person: int = 1) -> None:
    """Raise unless the two data sets are neighbours: an attack on others would refute a claim
    that nobody made.
    """
    # Where they have identifiers, they may differ in one person; and else in so many rows.
    persons = len(pair.first) == 3
    first, second = (
        _people_of_table(*data) if persons else _records(*data)
        for data in (pair.first, pair.second)
    )
    gone = list((first - second).elements())
    come = list((second - first).elements())
    most = 1 if persons else rows_per_person
    if relation == "add_or_remove_one":
        neighbours = len(gone) + len(come) <= most
    else:
        neighbours = len(gone) == len(come) <= most
        if relation == "replace_one_keeping_label":
            neighbours = neighbours and [label for _, label in gone] == [y for _, y in come]
    if not neighbours:
        raise ValueError(
            f"The pair {pair.name!r} must be two neighbouring data sets in the sense of the "
            f"claim, {relation!r}. Got {len(gone)} records that only the first has and "
            f"{len(come)} that only the second has, or another label."
        )


def _people_of_table(X: ArrayLike, y: ArrayLike, groups: ArrayLike) -> Counter[Any]:
    names = np.asarray(groups)
    (X, y) = (np.asarray(X), np.asarray(y))
    return Counter(
        frozenset(_records(X[names == name], y[names == name]).items()) for name in np.unique(names)
    )


def _records(X: ArrayLike, y: ArrayLike) -> Counter[Any]:
    X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y)
    return Counter((row.tobytes(), target.tobytes()) for row, target in zip(X, y, strict=True))


# Attributes of estimators and paid transformers that hold released numbers.
_RELEASED = ("coef_", "intercept_", "released_", "low_", "high_")


def released_numbers(model: object) -> Array:
    """Return every number that a fitted model gives out, coefficients first."""
    return np.array(
        [x for name in _RELEASED for x in _flatten_estimator_outputs(getattr(model, name, ()))],
        np.float64,
    )


def _flatten_estimator_outputs(value: object) -> list[float]:
    if isinstance(value, dict):
        return [x for name in sorted(value) for x in _flatten_estimator_outputs(value[name])]
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in _flatten_estimator_outputs(part)]
    numbers = np.asarray(value)
    return numbers.ravel().tolist() if numbers.dtype.kind in "biuf" else []


def fitted_estimator_outputs(estimator: Model, data: tuple[Array, ...], count: int) -> Array:
    """Return everything that ``count`` fresh clones release, without a seed as in production:
    one row for each fit.
    """
    seeded = "random_state" in estimator.get_params(deep=False)
    outputs = []
    for _ in range(count):
        copy = clone(estimator)
        if seeded:
            copy.set_params(random_state=None)
        with warnings.catch_warnings():  # an audit is not about the cost of privacy
            warnings.simplefilter("ignore", PrivacyWarning)
            outputs.append(released_numbers(_fit_estimator(copy, data)))
    return np.asarray(outputs, dtype=np.float64)


def _fit_estimator(model: Model, data: tuple[Array, ...]) -> Any:
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

    Every released number is tested: coefficients, intercept and ``released_``, together, one by
    one, and bit by bit where the certificate covers floating point; see
    :func:`dpconvex.audit.audit` for the statistics and the bound. Fits draw noise as in production:
    a ``random_state`` of the estimator is ignored, and no two audits are alike.

    Parameters
    ----------
    estimator : estimator
        An unfitted dpconvex estimator without a ledger: every run is a fit.
    pair : NeighborPair
        The two data sets, see :func:`neighbor_pairs`; neighbours in the sense of the estimator's
        certificate.
    runs : int, default=2_000
        Fits per data set. A few thousand catch gross errors: noise several times too small.
    guarantee : guarantee or Certificate, optional
        The claim; by default the ``certificate_`` of a fit on the first data set.
    delta, confidence, rng
        As in :func:`dpconvex.audit.audit`.
    """
    if estimator.ledger is not None:
        allowed = "None, because every run would be charged"
        raise parameter_error(
            "ledger",
            "the audited estimator",
            allowed,
            "a ledger",
            "Audit a clone on invented data.",
        )
    certificate = _fit_estimator(clone(estimator), pair.first).certificate_
    of_model = isinstance(
        certificate, Certificate
    )  # not of a selection, of intervals or of a transformer
    relation = getattr(certificate, "neighbors", "replace_one")
    check_neighbor_pair(pair, relation, certificate.bounds.rows_per_person if of_model else 1)

    def sampler(data: tuple[Array, ...]) -> Sampler:
        return lambda count, rng: fitted_estimator_outputs(estimator, data, count)

    claim = certificate if guarantee is None else guarantee
    bits = of_model and certificate.failure_probability is not None
    samplers = sampler(pair.first), sampler(pair.second)
    return audit(*samplers, claim, runs, delta=delta, confidence=confidence, rng=rng, bits=bits)
