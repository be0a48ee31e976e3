"""Private fits of an l1 norm with a link, generalised linear models with an l1 penalty among them, and of bowls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dpconvex.estimators.base import CommonFacts, Stated
from dpconvex.estimators.linear import finite_predictions
from dpconvex.estimators.matrix_records import StructuredModel, read_numbers, without_invalid
from dpconvex.estimators.parameters import estimator
from dpconvex.inputs.people import Records
from dpconvex.inputs.settings import ignores_invalid, least_rows, optional_positive
from dpconvex.losses.interface import PointwiseLoss
from dpconvex.losses.pointwise import Huber, Logistic
from dpconvex.losses.structured import Bowl, L1WithLink, VectorLoss
from dpconvex.objectives.structured import StructuredRecords
from dpconvex.privacy.bounds.structured import StructuredBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.smoothing import Kernel
from dpconvex.types import Array

__all__ = ["DPBowl", "DPL1Link"]


LINKS = {"logistic": Logistic(), "huber": Huber(1.0)}


@estimator
class DPL1Link(StructuredModel):
    r"""Coefficients that minimise ``||A theta||_1 + h(z^T theta)``, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i ||Y_i - A_i theta||_1 + h(y_i, z_i . theta) + (alpha/2) ||theta||^2``, the norm
    smoothed by convolution. With a public ``matrix`` in place of the A_i it is a generalised linear model with the
    penalty ``||matrix theta||_1``, and the penalty costs no noise.

    Parameters
    ----------
    link : {"logistic", "huber"} or loss, default="logistic"
        The function h: a smooth pointwise loss of bounded slope, of ``y - z . theta`` or, for margin losses, of
        ``y (z . theta)`` with labels -1 and +1.
    matrix : float or array of shape (m, n_features), optional
        PUBLIC matrix of the norm; a number stands for that multiple of the identity. Then ``fit(X, y)`` takes rows and
        targets. Without it ``fit(A, Y)`` takes the A_i with z_i as the last row, and their targets.
    operator_norm : float, default=1.0
        Bound on the spectral norm of A_i; longer ones are scaled down as a whole. Not used with ``matrix``.
    link_norm : float, default=1.0
        Bound on the norm of z; longer rows are scaled down, with the target of a residual link.
    alpha, bandwidth, kernel, mechanism
        As for :class:`DPMedian`; the bandwidth is in units of ``A theta``.

    Attributes
    ----------
    coef_, certificate_, released_
        As for :class:`DPMedian`.

    Notes
    -----
    There is no intercept: give a constant column. Labels beyond -1 and +1 are clipped.

    Privacy: public are the shape of the data (a nominal number of records under add-or-remove-one), ``matrix`` and all
    parameters. A shared matrix is offered under replace-one, where its term is the same for neighbours and cancels
    (:class:`~dpconvex.privacy.bounds.structured.StructuredBounds`).

    Examples
    --------
    >>> from dpconvex import DPL1Link
    >>> certificate = DPL1Link(matrix=0.01).certify(1000, n_features=5)
    >>> certificate.bounds.rank, certificate.bounds.lipschitz
    (1, 1.0)
    >>> certificate.verify()
    """

    link: str | PointwiseLoss = "logistic"
    matrix: float | ArrayLike | None = None
    operator_norm: float = 1.0
    link_norm: float = 1.0

    def _link(self) -> PointwiseLoss:
        if isinstance(self.link, PointwiseLoss):
            return self.link
        if isinstance(self.link, str) and self.link in LINKS:
            return LINKS[self.link]
        raise ValueError(
            f"The 'link' parameter of {type(self).__name__} must be one of {list(LINKS)} or a smooth pointwise loss. "
            f"Got {self.link!r} instead."
        )

    def _shared(self, n_features: int) -> Array | None:
        """Return the public matrix, checked."""
        if self.matrix is None:
            return None
        try:
            matrix = np.array(self.matrix, dtype=np.float64)
        except (TypeError, ValueError):
            matrix = np.array(np.nan)
        if matrix.ndim == 0:
            matrix = float(matrix) * np.eye(n_features)
        if matrix.ndim != 2 or matrix.shape[1] != n_features or not np.isfinite(matrix).all() or not matrix.any():
            raise ValueError(
                f"The 'matrix' parameter of {type(self).__name__} must be None, a number other than 0, or finite "
                f"numbers of shape (m, {n_features}). Got another shape or value instead."
            )
        return matrix

    def _loss(self, outputs: int) -> VectorLoss:
        if outputs < 2:
            raise ValueError(
                f"The records of {type(self).__name__} must have at least two rows: those of the norm, and that of the "
                f"link. Got {outputs} instead. Give 'matrix' for a penalty that all records share."
            )
        return L1WithLink(outputs - 1, self._link())

    def _bounds(self, facts: CommonFacts, n_features: int, n_outputs: int) -> StructuredBounds:
        norm = optional_positive("link_norm", self.link_norm, type(self).__name__)
        shared = self._shared(n_features)
        return StructuredBounds(
            n_samples=facts.n_samples,
            n_features=int(n_features),
            loss=self._loss(n_outputs if shared is None else len(shared) + 1),
            operator_norm=facts.parameters["operator_norm"],
            link_norm=1.0 if norm is None else norm,
            neighbors=self.neighbors,
            shared=None if shared is None else tuple(map(tuple, shared.tolist())),
        )

    def _public_facts(self, records: Records, n_features: int) -> CommonFacts:
        facts, shared = super()._public_facts(records, n_features), self._shared(n_features)
        if shared is None:
            return facts
        norm = float(np.linalg.norm(shared, 2)) * (1 + 1e-12)
        return replace(facts, parameters={**facts.parameters, "operator_norm": norm})

    def _kernel(self, outputs: int) -> Kernel:
        return super()._kernel(max(2, outputs))

    def _stated(self, certificate: Certificate, facts: CommonFacts) -> Stated:
        stated = super()._stated(certificate, facts)
        bounds = certificate.bounds
        shared = self._shared(bounds.n_features)
        expected = None if shared is None else tuple(map(tuple, shared.tolist()))
        stated["shared matrix"] = (bounds.shared, expected)
        stated["operator_norm"] = (bounds.operator_norm, facts.parameters["operator_norm"])
        stated["link_norm"] = (bounds.link_norm, self.link_norm)
        return stated

    def fit(self, A: ArrayLike, Y: ArrayLike) -> Self:
        """Fit privately.

        Parameters
        ----------
        A : array of shape (n_samples, m + 1, n_features), or (n_samples, n_features) with a shared matrix
            Matrices, the last row of each being z; or the rows z alone.
        Y : array of shape (n_samples, m + 1) or (n_samples,)
            Targets of all rows, or of the link alone; for margin links labels.

        Returns
        -------
        self
        """
        return self._fit(A, Y)

    def _read(self, A: object, Y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        owner, ignored = type(self).__name__, ignores_invalid(self)
        least = least_rows(self.neighbors)
        if self.matrix is None:
            return super()._read(A, Y)
        rows = read_numbers("A", A, 2, owner, least, finite=not ignored, narrow=True)
        labels = read_numbers("Y", Y, 1, owner, least, finite=not ignored)
        if len(rows) != len(labels):
            raise ValueError(
                f"The A and Y given to {owner} must have shapes (n, d) and (n,). "
                f"Got {rows.shape} and {labels.shape} instead."
            )
        matrices, targets = rows[:, None, :], labels[:, None]
        if ignored:
            matrices, targets = without_invalid(matrices, targets)
        n_samples, self.n_features_in_ = rows.shape
        shared = self._shared(self.n_features_in_)
        assert shared is not None, "there is a matrix"
        self.n_outputs_ = len(shared) + 1
        shape = (n_samples, self.n_features_in_, self.n_outputs_)
        return matrices, [targets], shape

    def predict(self, A: ArrayLike) -> Array:
        """Return ``A @ coef_``: of all rows of a record, or with a shared matrix of the row alone."""
        check_is_fitted(self)
        if self.matrix is None:
            return super().predict(A)
        owner = type(self).__name__
        rows = read_numbers("A", A, 2, owner)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"A has {rows.shape[1]} features, but {owner} is expecting {self.n_features_in_} features as input."
            )
        return finite_predictions(rows, self.coef_)

    def score(self, A: ArrayLike, Y: ArrayLike) -> float:
        """Return minus the mean loss, the shared penalty excluded: larger is better."""
        check_is_fitted(self)
        link = self._link()
        if self.matrix is not None:
            y = read_numbers("Y", Y, 1, type(self).__name__)
            return -float(np.mean(link.value(y, self.predict(A))))
        predicted, Y = self.predict(A), read_numbers("Y", Y, 2, type(self).__name__)
        norm = np.abs(Y[:, :-1] - predicted[:, :-1]).sum(axis=1)
        return -float(np.mean(norm + link.value(Y[:, -1], predicted[:, -1])))


@estimator
class DPBowl(StructuredModel):
    r"""Coefficients that minimise ``(||Y - A theta||_1 - level)^+``, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i (||Y_i - A_i theta||_1 - level_i)^+ + (alpha/2) ||theta||^2``, smoothed by
    convolution where the mechanism needs that: residuals within a record's level cost nothing.

    Parameters
    ----------
    operator_norm : float, default=1.0
        Bound on the spectral norm of a record's matrix; longer records are weighted down, their levels too.
    alpha, bandwidth, kernel, mechanism
        As for :class:`DPMedian`; smoothing takes at most three outputs and the Gaussian or exponential kernel.

    Attributes
    ----------
    coef_, certificate_, released_
        As for :class:`DPMedian`.

    Notes
    -----
    Privacy: levels are private, a part of the record. Public are the shape of A (a nominal number of records under
    add-or-remove-one) and all parameters.

    Examples
    --------
    >>> from dpconvex import DPBowl
    >>> certificate = DPBowl(operator_norm=2.0).certify(1000, n_features=5, n_outputs=2)
    >>> round(certificate.bounds.lipschitz, 4)
    2.8284
    >>> certificate.verify()
    """

    operator_norm: float = 1.0

    def _loss(self, outputs: int) -> VectorLoss:
        return Bowl(outputs)

    def fit(self, A: ArrayLike, Y: ArrayLike, level: ArrayLike = 0.0) -> Self:
        """Fit privately.

        Parameters
        ----------
        A : array of shape (n_samples, n_outputs, n_features)
            Matrices.
        Y : array of shape (n_samples, n_outputs)
            Targets.
        level : float or array of shape (n_samples,), default=0.0
            Sizes of residuals that cost nothing, a private part of every record.

        Returns
        -------
        self
        """
        return self._fit(A, (Y, level))

    def _read(self, A: object, Y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        targets, level = cast(tuple[object, ArrayLike], Y)
        stack, read, shape = super()._read(A, targets)
        owner, ignored = type(self).__name__, ignores_invalid(self)
        if np.ndim(level) == 0:
            level = np.full(shape[0], level)
        least = least_rows(self.neighbors)
        levels = read_numbers("level", level, 1, owner, least, finite=not ignored)
        if len(levels) != shape[0]:
            raise ValueError(
                f"The level given to {owner} must be a number or have one entry per record. Got another length instead."
            )
        matrices, stacked = cast(Array, stack), np.column_stack([cast(Array, read[0]), levels])
        if ignored:
            matrices, stacked = without_invalid(matrices, stacked)
        return matrices, [stacked], shape

    def _records(self, A: Array, Y: Array, bounds: StructuredBounds, limit: float) -> StructuredRecords:
        return StructuredRecords(A, Y[:, :-1], bounds.operator_norm, level=Y[:, -1], target_limit=limit)

    def score(self, A: ArrayLike, Y: ArrayLike, level: ArrayLike = 0.0) -> float:
        """Return minus the mean loss: larger is better."""
        residuals = read_numbers("Y", Y, 2, type(self).__name__) - self.predict(A)
        levels = np.broadcast_to(np.asarray(level, dtype=np.float64), len(residuals))
        return -float(self._loss(residuals.shape[1]).value(residuals, levels).mean())
