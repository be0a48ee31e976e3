"""What estimators of whole residual vectors share: a record is a matrix and a vector of targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, field, replace
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import check_count
from dpconvex.engine.dask.partitions import loosen
from dpconvex.estimators.base import CommonFacts, PrivateModel, Stated
from dpconvex.estimators.linear import finite_predictions
from dpconvex.estimators.parameters import estimator
from dpconvex.inputs.people import Ballot, Records
from dpconvex.inputs.settings import ignores_invalid, least_rows, optional_positive, resolve_kernel
from dpconvex.losses.structured import VectorLoss
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives.objective import Objective
from dpconvex.objectives.structured import StructuredObjective, StructuredRecords
from dpconvex.planning.matrices import choose_matrix_mechanism
from dpconvex.planning.request import Request
from dpconvex.privacy.bounds.structured import StructuredBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.smoothing import ExponentialKernel, Kernel, convolve_vector
from dpconvex.types import Array

__all__ = ["StructuredModel", "read_numbers", "without_invalid"]


_BLOCK = 10_000  # records whose values are looked at together


@estimator
class StructuredModel(PrivateModel):
    """What the estimators of this module share; subclasses say which loss (``_loss``)."""

    #: Input is a stack of matrices, which two-dimensional checks of estimators cannot provide.
    takes_matrices: ClassVar[bool] = True

    _: KW_ONLY
    bandwidth: float | None = None
    kernel: str | Kernel = "gaussian"

    coef_: Array = field(init=False)

    def _loss(self, outputs: int) -> VectorLoss:
        raise AttributeError(f"{type(self).__name__} does not say which loss it fits.")

    def _public_facts(self, records: Records, n_features: int) -> CommonFacts:
        """Check the settings that both estimators have; raises before data are read or budget is spent."""
        owner = type(self).__name__
        norm = optional_positive("operator_norm", self.get_params(deep=False)["operator_norm"], owner)
        if norm is None:
            raise ValueError(
                f"The 'operator_norm' parameter of {owner} must be a finite number above 0. Got None instead."
            )
        common = self._common_facts(records, n_features)
        bound, invalid = (common.parameters[name] for name in ("coef_bound", "invalid_rows"))
        parameters = {"coef_bound": bound, "operator_norm": norm, "invalid_rows": invalid}
        return replace(common, parameters=parameters)

    def _stated(self, certificate: Certificate, facts: CommonFacts) -> Stated:
        """Return, by name, what a certificate says of this estimator's own settings and what it should say."""
        owner, loss = type(self).__name__, certificate.bounds.loss
        expected = self._loss(loss.outputs)
        smooth = hasattr(loss, "kernel")
        if smooth:
            kernel = self._kernel(loss.outputs)
            expected = convolve_vector(expected, kernel, loss.bandwidth)
        stated = {"kind of bounds": (type(certificate.bounds), StructuredBounds), "loss": (loss, expected)}
        bandwidth = optional_positive("bandwidth", self.bandwidth, owner)
        if bandwidth is not None:
            stated["bandwidth"] = (loss.bandwidth if smooth else None, bandwidth)
        return stated

    def _kernel(self, outputs: int) -> Kernel:
        """Return the kernel that a name or object stands for; by name, the exponential one is that of m dimensions."""
        if isinstance(self.kernel, str) and self.kernel == "exponential":
            loss = self._loss(outputs)
            return ExponentialKernel(loss.outputs - (loss.link is not None))
        return resolve_kernel(self.kernel, type(self).__name__)

    def _bounds(self, facts: CommonFacts, n_features: int, n_outputs: int) -> StructuredBounds:
        """Return the public facts of a fit, with the kinked loss."""
        return StructuredBounds(
            n_samples=facts.n_samples,
            n_features=int(n_features),
            loss=self._loss(check_count("n_outputs", f"{type(self).__name__}.certify", n_outputs)),
            operator_norm=facts.parameters["operator_norm"],
            neighbors=self.neighbors,
        )

    def _plan(self, records: Records, n_features: int, n_outputs: int) -> Plan:
        """Decide everything from public facts."""
        owner = type(self).__name__
        facts = self._public_facts(records, n_features)
        request = Request(
            facts.guarantee,
            self._bounds(facts, n_features, n_outputs),
            self._kernel(n_outputs),
            optional_positive("alpha", self.alpha, owner),
            optional_positive("bandwidth", self.bandwidth, owner),
        )
        chosen = choose_matrix_mechanism(self.mechanism, request, owner)
        certificate = chosen.mechanism.certify(
            chosen.bounds,
            facts.guarantee,
            {**facts.parameters, **chosen.parameters},
            seeded=self.random_state is not None,
        )
        return Plan(chosen.mechanism, certificate)

    def certify(self, n_samples: int, n_features: int, n_outputs: int = 1) -> Certificate:
        """Return the certificate of a fit, before any data.

        Parameters
        ----------
        n_samples : int
            Number of records; ignored in favour of ``nominal_samples`` under add-or-remove-one.
        n_features : int
            Number d of coefficients.
        n_outputs : int
            Number m of rows of a record.

        Returns
        -------
        Certificate
            Equal to ``certificate_`` after a fit on data of this shape.
        """
        return self._plan(Records(n_samples), n_features, n_outputs).certificate

    def fit(self, A: ArrayLike, Y: ArrayLike) -> Self:
        """Fit privately.

        Parameters
        ----------
        A : array of shape (n_samples, n_outputs, n_features)
            Matrices; records of larger norm than ``operator_norm`` are scaled down as a whole.
        Y : array of shape (n_samples, n_outputs)
            Targets.

        Returns
        -------
        self
        """
        return self._fit(A, Y)

    def _read(self, A: object, Y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        owner, ignored, least = (type(self).__name__, ignores_invalid(self), least_rows(self.neighbors))
        matrices = read_numbers("A", A, 3, owner, least, finite=not ignored, narrow=True)
        targets = read_numbers("Y", Y, 2, owner, least, finite=not ignored, narrow=True)
        if targets.shape != matrices.shape[:2]:
            raise ValueError(
                f"The A and Y given to {owner} must have shapes (n, m, d) and (n, m). "
                f"Got {matrices.shape} and {targets.shape} instead."
            )
        n_samples, self.n_outputs_, self.n_features_in_ = matrices.shape
        if ignored:
            matrices, targets = without_invalid(matrices, targets)
        return matrices, [targets], (n_samples, self.n_features_in_, self.n_outputs_)

    def _objectives(self, A: object, targets: Sequence[object], plan: Plan, ballot: Ballot) -> Sequence[Objective]:
        bounds, limit = plan.certificate.bounds, _target_limit(plan.certificate)
        return [
            StructuredObjective(
                self._records(cast(Array, A), cast(Array, Y), bounds, limit),
                bounds.loss,
                bounds.alpha,
                divisor=bounds.n_samples,
            )
            for Y in targets
        ]

    def _records(self, A: Array, Y: Array, bounds: StructuredBounds, limit: float) -> StructuredRecords:
        """Return the records, scaled to the bounds."""
        link = bounds.loss.link
        return StructuredRecords(
            A,
            Y,
            bounds.operator_norm,
            bounds.link_norm,
            target_limit=limit,
            shared=bounds.shared,
            labelled=link is not None and link.kind != "residual",
        )

    def _store(self, coefficients: list[Array], plan: Plan) -> None:
        (self.coef_,) = coefficients
        self.intercept_ = 0.0

    def predict(self, A: ArrayLike) -> Array:
        """Return ``A @ coef_``.

        Parameters
        ----------
        A : array of shape (n_samples, n_outputs, n_features)
            Matrices; used as they are.

        Returns
        -------
        array of shape (n_samples, n_outputs)
        """
        check_is_fitted(self)
        owner = type(self).__name__
        matrices = read_numbers("A", A, 3, owner)
        if matrices.shape[2] != self.n_features_in_:
            raise ValueError(
                f"A has {matrices.shape[2]} features, but {owner} is expecting {self.n_features_in_} features as input."
            )
        return finite_predictions(matrices, self.coef_)

    def score(self, A: ArrayLike, Y: ArrayLike) -> float:
        """Return minus the mean loss: larger is better."""
        residuals = read_numbers("Y", Y, 2, type(self).__name__) - self.predict(A)
        return -float(self._loss(residuals.shape[1]).value(residuals).mean())

    def _summary_facts(self) -> list[tuple[str, str]]:
        bounds, parameters = self.certificate_.bounds, self.certificate_.parameters
        facts = [("outputs", f"{bounds.loss.outputs} per record"), ("operator norm", f"{bounds.operator_norm:.4g}")]
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


def _target_limit(certificate: Certificate) -> float:
    """Return the public bound to which targets are clamped: margins hardly ever come near it.

    Bounds on the noise below are exceeded with negligible probability; if one is, or if there are far more records than
    the nominal number, targets are clamped a little early, which costs no privacy.
    """
    bounds, terms = certificate.bounds, certificate.noise
    n = bounds.n_samples
    if "gradients" in terms:
        descent = certificate.parameters.get("descent") or certificate.parameters["sgd"]
        longest = bounds.whole_lipschitz + terms["gradients"].largest / descent.get("batch_size", n)
        return float(2 * bounds.longest * descent["steps"] * descent["step_size"] * longest + 1)
    tilt = terms["objective"].largest / n if "objective" in terms else 0.0
    return float(bounds.target_reach(tilt))


def without_invalid(matrices: Array, targets: Array) -> tuple[Array, Array]:
    """Return records with zeros in place of every one that holds NaN or infinity: their gradient is 0 everywhere."""
    valid = np.asarray(np.isfinite(matrices).all(axis=(1, 2)) & np.isfinite(targets).all(axis=1))
    return np.where(valid[:, None, None], matrices, 0.0), np.where(valid[:, None], targets, 0.0)


def read_numbers(
    name: str, data: object, axes: int, owner: str, least: int = 1, finite: bool = True, narrow: bool = False
) -> Array:
    """Return checked float64 data, float32 as it is where it may be narrow; errors never quote a value."""
    shape = {1: "(n,)", 2: "(n, m)", 3: "(n, m, d)"}[axes]
    problem = f"The {name} given to {owner} must be finite numbers of shape {shape}."
    if issparse(data):
        raise TypeError(
            f"{problem} A record is a matrix here, and sparse data was passed. Use "
            f"{name}.toarray().reshape{shape}, or DPQuantileRegressor for sparse rows."
        )
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(
            f"{problem} Got a masked array instead, whose masked values would be used. Use {name}.filled(value) with a "
            "public value."
        )
    try:
        kind = np.asarray(data)
        if not finite:
            kind = loosen(kind)
        if kind.dtype.kind not in "fiub":
            raise TypeError(problem)
        with np.errstate(all="ignore"):
            as_it_is = narrow and kind.dtype == np.float32
            array = kind if as_it_is else np.asarray(kind, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{problem} Got another type instead.") from None
    if array.ndim != axes or 0 in array.shape[1:] or len(array) < least:
        raise ValueError(f"{problem} Got shape {array.shape} instead.")
    blocks = (array[start : start + _BLOCK] for start in range(0, len(array), _BLOCK))
    if finite and not all(np.isfinite(block).all() for block in blocks):
        raise ValueError(f"{problem} Got NaN or infinity instead.")
    return array
