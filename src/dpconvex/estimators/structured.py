"""Estimators of structured losses, of whole residual vectors: a record is a matrix and a vector
of targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, field, replace
from functools import partial
from numbers import Real
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import check_count, data_error, parameter_error
from dpconvex.core.pointwise_losses import Huber, Logistic, PointwiseLoss
from dpconvex.core.row_weights import RowWeights
from dpconvex.engine.dask.partitions import partition_objects_to_numbers
from dpconvex.estimators.linear import linear_predictions
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import PrivateModel, StatedSettings
from dpconvex.inputs.containers import (
    is_plain_container,
    objects_of,
    read_array,
    read_records,
    read_rows,
    read_target_numbers,
    undeclared_width,
)
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.records import are_of_table, check_table_setting, told_of_records
from dpconvex.inputs.settings import (
    check_optional_positive,
    invalid_rows_setting,
    least_rows,
    resolve_kernel_setting,
)
from dpconvex.inputs.training_data import shape_of_data
from dpconvex.losses.vector_losses import Bowl, L1Norm, L1WithLink, PiecewiseLinear, VectorLoss
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.objective import Objective
from dpconvex.objectives.structured_objective import StructuredObjective, StructuredRecords
from dpconvex.planning.mechanism_choice import decide_fit
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.smoothing import ExponentialKernel, Kernel, convolve_vector, moreau_vector
from dpconvex.types import Array

_BLOCK = 10_000  # records whose values are looked at together
_SHAPES = {1: "(n,)", 2: "(n, m)", 3: "(n, m, d)"}


@with_parameters
class PrivateStructuredModel(PrivateModel):
    """Base of the estimators of this module; subclasses give the loss (``_loss``).

    Parameters
    ----------
    operator_norm : float, default=1.0
        Bound on the spectral norm of a record's matrix; longer records are scaled down as a whole,
        which weights them. A value at or below the usual norm is best: noise is proportional to it.
        Defaults are made for coefficients of order 1.
    bandwidth : float, optional
        Smoothing bandwidth in units of scaled residuals; by default that of smallest predicted
        risk, for descents none.
    kernel : str or Kernel, default="gaussian"
        Smoothing kernel.
    smoothing : {"convolution", "moreau"}, default="convolution"
        Smooth from above by convolution, or from below by the Moreau envelope of the same
        curvature.
    mechanism : {"auto", "objective", "gradient", "output", "sgd"} or Mechanism
        How noise is added; "auto" takes the one with the smallest predicted risk, from public
        facts.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Coefficients.

    Notes
    -----
    An invalid record that is ignored becomes zeros, matrix and targets: its loss is the same for
    all coefficients. Matrices must then be an array, whose shape is public; targets may be a list,
    read record by record.

    Privacy: public are the shape of A (a nominal number of records under add-or-remove-one) and all
    parameters.
    """

    #: Input is a stack of matrices, which two-dimensional checks of estimators cannot provide.
    takes_matrices = True

    _: KW_ONLY
    bandwidth: float | None = None
    kernel: str | Kernel = "gaussian"
    smoothing: str = "convolution"

    coef_: Array = field(init=False)

    def _loss(self, outputs: int) -> VectorLoss:
        raise AttributeError(f"{type(self).__name__} does not say which loss it fits.")

    def _public_facts(self, privacy_unit: PersonUnit, n_features: int) -> FitRequest:
        owner = type(self).__name__
        norm = check_optional_positive(
            "operator_norm", self.get_params(deep=False)["operator_norm"], owner
        )
        if norm is None:
            raise parameter_error("operator_norm", owner, "a finite number above 0", "None")
        facts = super()._public_facts(privacy_unit, n_features)
        return replace(facts, parameters={**facts.parameters, "operator_norm": norm})

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        owner = type(self).__name__
        loss = certificate.bounds.loss
        width = certificate.parameters.get("bandwidth")
        expected = self._loss(loss.outputs)
        if width is not None:
            expected = self._smoothed_loss(
                expected, convolve_vector(expected, self._kernel(loss.outputs), width)
            )
        stated = {
            "kind of bounds": (type(certificate.bounds), StructuredBounds),
            "loss": (loss, expected),
        }
        bandwidth = check_optional_positive("bandwidth", self.bandwidth, owner)
        if bandwidth is not None:
            stated["bandwidth"] = (width, bandwidth)
        return stated

    def _smoothed_loss(self, kinked: VectorLoss, convolved: VectorLoss) -> VectorLoss:
        """Return the loss that a structured estimator fits: the convolved one, or an envelope of
        the same curvature.
        """
        if self.smoothing not in ("convolution", "moreau"):
            owner = type(self).__name__
            raise parameter_error(
                "smoothing", owner, "'convolution' or 'moreau'", repr(self.smoothing)
            )
        if self.smoothing == "convolution":
            return convolved
        if not math.isfinite(convolved.smoothness):
            raise ValueError(
                f"The 'smoothing' parameter of {type(self).__name__} is 'moreau', but nothing is "
                "smoothed: give a bandwidth, or use the mechanism 'objective' or 'output'."
            )
        return moreau_vector(cast(Any, kinked), "energy", float(convolved.smoothness))

    def _kernel(self, outputs: int) -> Kernel:
        if isinstance(self.kernel, str) and self.kernel == "exponential":
            loss = self._loss(outputs)
            return ExponentialKernel(loss.outputs - (loss.link is not None))
        return resolve_kernel_setting(self.kernel, type(self).__name__)

    def _bounds(
        self, facts: FitRequest, n_features: int, n_outputs: int, **own: Any
    ) -> StructuredBounds:
        return StructuredBounds(
            n_samples=facts.n_samples,
            n_features=int(n_features),
            loss=self._loss(check_count("n_outputs", f"{type(self).__name__}.certify", n_outputs)),
            operator_norm=facts.parameters["operator_norm"],
            neighbors=self.neighbors,
            **own,
        )

    def _plan(self, privacy_unit: PersonUnit, n_features: int, n_outputs: int) -> FitDecision:
        owner = type(self).__name__
        facts = self._public_facts(privacy_unit, n_features)
        alpha, bandwidth = (
            check_optional_positive(name, getattr(self, name), owner)
            for name in ("alpha", "bandwidth")
        )
        bounds = self._bounds(facts, n_features, n_outputs)
        request = replace(
            facts,
            task="matrices",
            bounds=bounds,
            kernel=self._kernel(n_outputs),
            alpha=alpha,
            bandwidth=bandwidth,
            states_bandwidth=True,
            envelope=None
            if self.smoothing == "convolution"
            else partial(self._smoothed_loss, bounds.loss),
        )
        return decide_fit(self.mechanism, request)

    def certify(
        self, n_samples: int, n_features: int, n_outputs: int = 1, *, table: bool = False
    ) -> Certificate:
        """Return the certificate of a structured fit, before any data: equal to ``certificate_``
        after such a fit.

        Parameters
        ----------
        n_samples, n_features, n_outputs : int
            Number of records (``nominal_samples`` under add-or-remove-one), of coefficients, and of
            rows of a record.
        table : bool, default=False
            Whether the fit will be given a dataframe, the types of whose columns are then assumed
            public.
        """
        of_table = check_table_setting(table, f"{type(self).__name__}.certify")
        unit = PersonUnit(n_samples, of_table=of_table)
        return self._plan(unit, n_features, n_outputs).certificate

    def fit(self, A: ArrayLike, Y: ArrayLike) -> Self:
        """Fit the structured model privately.

        Parameters
        ----------
        A, Y : arrays of shape (n_samples, n_outputs, n_features) and (n_samples, n_outputs)
            Matrices and targets; records of larger norm than ``operator_norm`` are scaled down as a
            whole.
        """
        return self._fit(A, Y)

    def _axes(self) -> int:
        return 3

    def _declared_columns(self) -> int | None:
        """Return the number of columns that a parameter declares, if there is one."""
        return None

    def _read(self, A: object, Y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        owner = type(self).__name__
        axes = self._axes()
        ignored = invalid_rows_setting(self)
        least = least_rows(self.neighbors)
        matrices = read_structured_numbers(
            "A", A, axes, owner, least, not ignored, narrow=True, width=self._declared_columns()
        )
        rows = matrices.shape[1] if axes == 3 else None
        targets = read_structured_numbers(
            "Y", Y, axes - 1, owner, least, not ignored, narrow=axes == 3, width=rows
        )
        if targets.shape != matrices.shape[:-1]:
            wanted = "(n, m, d) and (n, m)" if axes == 3 else "(n, d) and (n,)"
            raise ValueError(
                f"The A and Y given to {owner} must have shapes {wanted}. "
                f"Got {matrices.shape} and {targets.shape} instead."
            )
        if axes == 2:
            matrices = matrices[:, None, :]
            targets = targets[:, None]
        n_samples, self.n_outputs_, self.n_features_in_ = matrices.shape
        if ignored:
            matrices, targets = without_invalid(matrices, targets)
        return matrices, [targets], (n_samples, self.n_features_in_, self.n_outputs_)

    def _objectives(
        self, A: object, targets: Sequence[object], plan: FitDecision, weights: RowWeights | None
    ) -> Sequence[Objective]:
        bounds = plan.certificate.bounds
        limit = plan.mechanism.matrix_target_limit(plan.certificate, plan.settings)
        (Y,) = targets
        records = self._records(cast(Array, A), cast(Array, Y), bounds, limit)
        return [StructuredObjective(records, bounds.loss, bounds.alpha, divisor=bounds.n_samples)]

    def _records(
        self, A: Array, Y: Array, bounds: StructuredBounds, limit: float
    ) -> StructuredRecords:
        link = bounds.loss.link
        norms = (bounds.operator_norm, bounds.link_norm)
        labelled = link is not None and link.kind != "residual"
        return StructuredRecords(
            A, Y, *norms, target_limit=limit, shared=bounds.shared, labelled=labelled
        )

    def _store(self, coefficients: list[Array], plan: FitDecision) -> None:
        (self.coef_,) = coefficients
        self.intercept_ = 0.0

    def predict(self, A: ArrayLike) -> Array:
        """Return a structured model's ``A @ coef_`` of all rows of a record; with a shared
        matrix, of its one row.
        """
        check_is_fitted(self)
        owner = type(self).__name__
        matrices = read_structured_numbers("A", A, self._axes(), owner)
        if matrices.shape[-1] != self.n_features_in_:
            raise ValueError(
                f"A has {matrices.shape[-1]} features, but {owner} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return linear_predictions(matrices, self.coef_)

    def score(self, A: ArrayLike, Y: ArrayLike) -> float:
        """Return minus the mean loss: larger is better."""
        residuals = read_structured_numbers("Y", Y, 2, type(self).__name__) - self.predict(A)
        return -float(self._loss(residuals.shape[1]).value(residuals).mean())

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds = self.certificate_.bounds
        parameters = self.certificate_.parameters
        facts = [
            ("outputs", f"{bounds.loss.outputs} per record"),
            ("operator norm", f"{bounds.operator_norm:.4g}"),
        ]
        if "bandwidth" in parameters:
            facts.append(("bandwidth", f"{parameters['bandwidth']:.4g}"))
        return facts

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


def without_invalid(matrices: Array, targets: Array) -> tuple[Array, Array]:
    """Return records with zeros in place of every one that holds NaN or infinity: their gradient
    is 0 everywhere.
    """
    valid = np.asarray(np.isfinite(matrices).all(axis=(1, 2)) & np.isfinite(targets).all(axis=1))
    return np.where(valid[:, None, None], matrices, 0.0), np.where(valid[:, None], targets, 0.0)


def read_structured_numbers(
    name: str,
    data: Any,
    axes: int,
    owner: str,
    least: int = 1,
    finite: bool = True,
    narrow: bool = False,
    width: int | None = None,
) -> Array:
    """Return structured records' numbers, checked, float32 where they may be narrow; errors
    never quote a value.

    Unless they must be finite, every record is read by itself, into rows of the public ``width``
    where records are rows.
    """
    shape = _SHAPES[axes]
    problem = f"The {name} given to {owner} must be finite numbers of shape {shape}."
    if issparse(data):
        raise TypeError(
            f"{problem} A record is a matrix here, and sparse data was passed. Use "
            f"{name}.toarray().reshape{shape}, or DPQuantileRegressor for sparse rows."
        )
    if finite and isinstance(data, np.ma.MaskedArray):
        raise TypeError(
            f"{problem} Got a masked array instead, whose masked values would be used. Use "
            f"{name}.filled(value) with a public value."
        )
    if not finite:
        data = _structured_records(name, data, axes, owner, width)
    try:
        array = np.asarray(data) if finite else partition_objects_to_numbers(data)
        if array.dtype.kind not in "fiub":
            raise TypeError(problem)
        if not (narrow and array.dtype == np.float32):
            with np.errstate(all="ignore"):
                array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{problem} Got another type instead.") from None
    if array.ndim != axes or 0 in array.shape[1:] or len(array) < least:
        raise ValueError(f"{problem} Got shape {array.shape} instead.")
    blocks = (array[start : start + _BLOCK] for start in range(0, len(array), _BLOCK))
    if finite and not all(np.isfinite(block).all() for block in blocks):
        raise ValueError(f"{problem} Got NaN or infinity instead.")
    return array


def _structured_records(
    name: str, data: Any, axes: int, owner: str, width: int | None
) -> NDArray[Any]:
    """Return records of which some may be invalid as an array; raise where nothing declares its
    shape.
    """
    plain = is_plain_container(data)
    if plain and (axes == 3 or (axes == 2 and width is None)):
        what = "rows and columns" if axes == 3 else "columns"
        raise undeclared_width(name, data, owner, what)
    array = objects_of(read_records(name, data, owner)) if plain else read_array(name, data, owner)
    if array.dtype.kind != "O" or array.ndim != 1:
        return array
    if axes == 1:
        return read_target_numbers(array)
    return array if axes == 3 or width is None else read_rows(array, width)


@with_parameters
class DPMedian(PrivateStructuredModel):
    r"""Coefficients of several outputs at once, by least absolute deviations, under differential
    privacy.

    Minimises ``F(theta) = (1/n) sum_i ||Y_i - A_i theta||_1 + (alpha/2) ||theta||^2``, smoothed by
    convolution where the mechanism needs that. A record is scaled as a whole by
    ``min(1, operator_norm / ||A||)``, which weights it and leaves the meaning of theta as it is.

    Examples
    --------
    >>> from dpconvex import DPMedian
    >>> certificate = DPMedian(operator_norm=4.0).certify(1000, n_features=5, n_outputs=3)
    >>> certificate.guarantee, certificate.bounds.rank
    (ApproxDP(epsilon=1.0, delta=1e-06), 3)
    >>> certificate.verify()
    """

    operator_norm: float = 1.0

    def _loss(self, outputs: int) -> VectorLoss:
        return L1Norm(outputs)


@with_parameters
class DPPiecewiseLinear(PrivateStructuredModel):
    r"""Coefficients that minimise a maximum of affine functions of the residuals, under
    differential privacy.

    Minimises ``F(theta) = (1/n) sum_i max_p (<a_p, Y_i - A_i theta> + b_p) + (alpha/2)
    ||theta||^2``, smoothed by convolution where the mechanism needs that.

    Parameters
    ----------
    slopes : array of shape (P, n_outputs), optional
        The vectors a_p; by default plus and minus the unit vectors: the largest absolute residual.
    offsets : array of shape (P,), optional
        The numbers b_p; 0 by default.

    Examples
    --------
    >>> from dpconvex import DPPiecewiseLinear
    >>> model = DPPiecewiseLinear([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.0, 0.0])
    >>> round(model.certify(1000, n_features=5, n_outputs=2).bounds.lipschitz, 6)
    1.414214
    """

    slopes: ArrayLike | None = None
    offsets: ArrayLike | None = None
    operator_norm: float = 1.0

    def _loss(self, outputs: int) -> VectorLoss:
        slopes = self.slopes
        if slopes is None:
            slopes = np.concatenate([np.eye(outputs), -np.eye(outputs)])
        loss = PiecewiseLinear(slopes, self.offsets)  # type: ignore[arg-type]
        if loss.outputs != outputs:
            allowed = f"vectors of length {outputs}, one entry per output"
            raise parameter_error("slopes", type(self).__name__, allowed, f"length {loss.outputs}")
        return loss


LINKS = {"logistic": Logistic(), "huber": Huber(1.0)}


@with_parameters
class DPL1Link(PrivateStructuredModel):
    r"""Coefficients that minimise ``||A theta||_1 + h(z^T theta)``, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i ||Y_i - A_i theta||_1 + h(y_i, z_i . theta) + (alpha/2)
    ||theta||^2``, the norm smoothed by convolution. With a public ``matrix`` in place of the A_i it
    is a generalised linear model with the penalty ``||matrix theta||_1``, and the penalty costs no
    noise.

    Parameters
    ----------
    link : {"logistic", "huber"} or loss, default="logistic"
        The function h: a smooth pointwise loss of bounded slope, of ``y - z . theta`` or, for
        margin losses, of ``y (z . theta)`` with labels -1 and +1.
    matrix : float or array of shape (m, n_features), optional
        PUBLIC matrix of the norm; a number stands for that multiple of the identity. Then
        ``fit(X, y)`` takes rows and targets. Without it ``fit(A, Y)`` takes the A_i with z_i as the
        last row, and their targets.
    operator_norm : float, default=1.0
        Bound on the spectral norm of A_i; longer ones are scaled down as a whole. Not used with
        ``matrix``.
    link_norm : float, default=1.0
        Bound on the norm of z; longer rows are scaled down, with the target of a residual link.

    Notes
    -----
    There is no intercept: give a constant column. Labels beyond -1 and +1 are clipped.

    Privacy: public are the shape of the data (a nominal number of records under add-or-remove-one),
    ``matrix`` and all parameters. A shared matrix is offered under replace-one, where its term is
    the same for neighbours and cancels
    (:class:`~dpconvex.privacy.bounds.structured_bounds.StructuredBounds`).

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

    def _link_loss(self) -> PointwiseLoss:
        if isinstance(self.link, PointwiseLoss):
            return self.link
        if isinstance(self.link, str) and self.link in LINKS:
            return LINKS[self.link]
        raise parameter_error(
            "link",
            type(self).__name__,
            f"one of {list(LINKS)} or a smooth pointwise loss",
            repr(self.link),
        )

    def _shared_matrix(self, n_features: int) -> Array | None:
        if self.matrix is None:
            return None
        try:
            matrix = np.array(self.matrix, dtype=np.float64)
        except (TypeError, ValueError):
            matrix = np.array(np.nan)
        if matrix.ndim == 0:
            matrix = float(matrix) * np.eye(n_features)
        if (
            matrix.ndim != 2
            or matrix.shape[1] != n_features
            or not np.isfinite(matrix).all()
            or not matrix.any()
        ):
            allowed = f"None, a number other than 0, or finite numbers of shape (m, {n_features})"
            raise parameter_error("matrix", type(self).__name__, allowed, "another shape or value")
        return matrix

    def _loss(self, outputs: int) -> VectorLoss:
        if outputs < 2:
            raise ValueError(
                f"The records of {type(self).__name__} must have at least two rows: those of the "
                f"norm, and that of the link. Got {outputs} instead. Give 'matrix' for a penalty "
                "that all records share."
            )
        return L1WithLink(outputs - 1, self._link_loss())

    def _bounds(
        self, facts: FitRequest, n_features: int, n_outputs: int, **own: Any
    ) -> StructuredBounds:
        norm = check_optional_positive("link_norm", self.link_norm, type(self).__name__)
        shared = self._shared_matrix(n_features)
        own |= {"link_norm": 1.0 if norm is None else norm, "shared": _as_tuples(shared)}
        return super()._bounds(
            facts, n_features, n_outputs if shared is None else len(shared) + 1, **own
        )

    def _public_facts(self, privacy_unit: PersonUnit, n_features: int) -> FitRequest:
        facts = super()._public_facts(privacy_unit, n_features)
        shared = self._shared_matrix(n_features)
        if shared is None:
            return facts
        norm = float(np.linalg.norm(shared, 2)) * (1 + 1e-12)
        return replace(facts, parameters={**facts.parameters, "operator_norm": norm})

    def _kernel(self, outputs: int) -> Kernel:
        return super()._kernel(max(2, outputs))

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        stated = super()._stated(certificate, facts)
        bounds = certificate.bounds
        stated["shared matrix"] = (
            bounds.shared,
            _as_tuples(self._shared_matrix(bounds.n_features)),
        )
        stated["operator_norm"] = (bounds.operator_norm, facts.parameters["operator_norm"])
        stated["link_norm"] = (bounds.link_norm, self.link_norm)
        return stated

    def fit(self, A: ArrayLike, Y: ArrayLike) -> Self:
        """Fit the structured model with a link privately.

        Parameters
        ----------
        A, Y : arrays of shape (n_samples, m + 1, n_features) and (n_samples, m + 1)
            Matrices, the last row of each being z, and targets; labels for margin links. With a
            shared matrix of shape (n_samples, n_features) and (n_samples,): the rows z alone, and
            targets of the link.
        """
        return self._fit(A, Y)

    def _axes(self) -> int:
        return 3 if self.matrix is None else 2

    def _declared_columns(self) -> int | None:
        shape = shape_of_data(self.matrix) or ()
        return shape[1] if len(shape) == 2 else None

    def _read(self, A: object, Y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        matrices, targets, (n_samples, n_features, n_outputs) = super()._read(A, Y)
        shared = self._shared_matrix(n_features)
        self.n_outputs_ = n_outputs if shared is None else len(shared) + 1
        return matrices, targets, (n_samples, n_features, self.n_outputs_)

    def score(self, A: ArrayLike, Y: ArrayLike) -> float:
        """Return minus the structured mean loss, the shared penalty excluded: larger is better."""
        check_is_fitted(self)
        link = self._link_loss()
        if self.matrix is not None:
            y = read_structured_numbers("Y", Y, 1, type(self).__name__)
            return -float(np.mean(link.value(y, self.predict(A))))
        predicted = self.predict(A)
        Y = read_structured_numbers("Y", Y, 2, type(self).__name__)
        norm = np.abs(Y[:, :-1] - predicted[:, :-1]).sum(axis=1)
        return -float(np.mean(norm + link.value(Y[:, -1], predicted[:, -1])))


def _as_tuples(matrix: Array | None) -> tuple[tuple[float, ...], ...] | None:
    return None if matrix is None else tuple(map(tuple, matrix.tolist()))


@with_parameters
class DPBowl(PrivateStructuredModel):
    r"""Coefficients that minimise ``(||Y - A theta||_1 - level)^+``, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i (||Y_i - A_i theta||_1 - level_i)^+ + (alpha/2)
    ||theta||^2``, smoothed by convolution where the mechanism needs that: residuals within a
    record's level cost nothing.

    Notes
    -----
    Smoothing takes at most three outputs and the Gaussian or exponential kernel.

    Privacy: as for :class:`DPMedian`; levels are private, a part of the record, and scaled with it.

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
        """Fit the structured bowl privately.

        Parameters
        ----------
        A, Y : arrays of shape (n_samples, n_outputs, n_features) and (n_samples, n_outputs)
            Matrices and targets.
        level : float or array of shape (n_samples,), default=0.0
            Sizes of residuals that cost nothing, a private part of every record.
        """
        with told_of_records(self, of_table=are_of_table(self, Y, level)):
            return self._fit(A, (Y, level))

    def _read(self, A: object, Y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        targets, level = cast(tuple[object, ArrayLike], Y)
        stack, read, shape = super()._read(A, targets)
        owner = type(self).__name__
        ignored = invalid_rows_setting(self)
        if isinstance(level, (Real, np.ndarray, np.generic)) and np.ndim(level) == 0:
            level = np.full(shape[0], level)
        levels = read_structured_numbers(
            "level", level, 1, owner, least_rows(self.neighbors), finite=not ignored
        )
        if len(levels) != shape[0]:
            raise data_error(
                "level", owner, "a number or have one entry per record", "another length"
            )
        matrices = cast(Array, stack)
        stacked = np.column_stack([cast(Array, read[0]), levels])
        if ignored:
            matrices, stacked = without_invalid(matrices, stacked)
        return matrices, [stacked], shape

    def _records(
        self, A: Array, Y: Array, bounds: StructuredBounds, limit: float
    ) -> StructuredRecords:
        return StructuredRecords(
            A, Y[:, :-1], bounds.operator_norm, level=Y[:, -1], target_limit=limit
        )

    def score(self, A: ArrayLike, Y: ArrayLike, level: ArrayLike = 0.0) -> float:
        """Return minus the mean loss: larger is better."""
        residuals = read_structured_numbers("Y", Y, 2, type(self).__name__) - self.predict(A)
        levels = np.broadcast_to(np.asarray(level, dtype=np.float64), len(residuals))
        return -float(self._loss(residuals.shape[1]).value(residuals, levels).mean())
