"""Audit a whole estimator: fit it many times on two tiny neighbouring data sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.audit.attacks import Claim, Sampler, audit
from dpconvex.audit.bounds import DEFAULT_CONFIDENCE
from dpconvex.audit.result import AuditResult

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NeighborPair:
    """Two data sets that differ in one record.

    Attributes
    ----------
    name : str
        What the differing record does.
    first, second : tuple (X, y)
        The neighbouring data sets.
    """

    name: str
    first: tuple[Array, Array]
    second: tuple[Array, Array]


def neighbor_pairs(
    X: ArrayLike, y: ArrayLike, record: ArrayLike, targets: tuple[float, float]
) -> Iterator[NeighborPair]:
    """Yield the replace-one pairs in which a calibration is most likely to break.

    Row 0 of (X, y) is replaced, the other rows stay. The pairs are: ``mirror``, the record against
    its negative at the same target; ``target``, the same record with the target at opposite
    extremes (the worst case with an intercept; for classifiers a label flip); ``both``, mirror and
    opposite target together.

    Parameters
    ----------
    X, y : array of shape (n, d) and (n,)
        Base data. Row 0 is the one that is replaced.
    record : array of shape (d,)
        Features of the differing record, at the influence bound.
    targets : tuple of two numbers
        Target extremes, or the two labels.
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
        rows, values = X.copy(), y.copy()
        rows[0], values[0] = features, target
        return rows, values

    yield NeighborPair("mirror", data(record, high), data(-record, high))
    yield NeighborPair("target", data(record, high), data(record, low))
    yield NeighborPair("both", data(record, high), data(-record, low))


def fitted_outputs(
    estimator: Any, data: tuple[Any, Any], count: int, rng: np.random.Generator
) -> Array:
    """Released coefficients of ``count`` independent fits, shape (count, number of coefficients).

    Every fit is a fresh clone; if the estimator has a ``random_state`` it is drawn from ``rng``.
    """
    from sklearn.base import clone

    seeded = "random_state" in estimator.get_params(deep=False)
    outputs = []
    for _ in range(count):
        copy = clone(estimator)
        if seeded:
            copy.set_params(random_state=int(rng.integers(2**31 - 1)))
        copy.fit(*data)
        released = [np.ravel(copy.coef_), np.ravel(getattr(copy, "intercept_", ()))]
        outputs.append(np.concatenate(released))
    return np.asarray(outputs, dtype=np.float64)


def audit_estimator(
    estimator: Any,
    pair: NeighborPair,
    runs: int = 2_000,
    *,
    guarantee: Claim | None = None,
    delta: float | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    rng: np.random.Generator | int | None = None,
) -> AuditResult:
    """Try to refute an estimator's certificate by fitting it on two neighbouring data sets.

    The statistic is the projection of ``(coef_, intercept_)`` on the difference of their means,
    learnt on the selection runs; see :func:`dpconvex.audit.audit` for the bound.

    Parameters
    ----------
    estimator : estimator
        An unfitted dpconvex estimator without a ledger: every run is a fit. Give ``alpha`` and
        ``bandwidth`` explicitly, or each fit works out their defaults anew.
    pair : NeighborPair
        The two data sets, see :func:`neighbor_pairs`.
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
    generator = np.random.default_rng(rng)
    if getattr(estimator, "ledger", None) is not None:
        raise ValueError(
            "The 'ledger' parameter of the audited estimator must be None, because every run "
            "would be charged. Got a ledger instead. Audit a clone on invented data."
        )
    if guarantee is None:
        from sklearn.base import clone

        guarantee = clone(estimator).fit(*pair.first).certificate_

    def sampler(data: tuple[Any, Any]) -> Sampler:
        return lambda count, rng: fitted_outputs(estimator, data, count, rng)

    return audit(
        sampler(pair.first),
        sampler(pair.second),
        guarantee,
        runs,
        delta=delta,
        confidence=confidence,
        rng=generator,
    )
