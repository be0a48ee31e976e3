"""What estimators of whole residual vectors share: a record is a matrix and a vector of targets."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import check_count
from dpconvex.defaults.structured_risk import descent_choice, structured_objective_choice
from dpconvex.engine.dask.partitions import loosen
from dpconvex.estimators.linear import finite_predictions, unwarned
from dpconvex.inputs.settings import (
    INVALID_ROWS,
    ignores_invalid,
    least_rows,
    noise_source,
    optional_positive,
    resolve_guarantee,
    resolve_kernel,
    resolve_samples,
)
from dpconvex.losses.structured import VectorLoss
from dpconvex.mechanisms.objective import ObjectivePerturbation
from dpconvex.mechanisms.structured_gradient import StructuredGradientDescent
from dpconvex.objectives.structured import StructuredObjective, StructuredRecords
from dpconvex.privacy.bounds.structured import StructuredBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import GaussianDP, Guarantee, PureDP
from dpconvex.smoothing import Kernel, convolve_vector
from dpconvex.words.summary import Summary, written_summary

__all__ = ["StructuredModel"]

Array = NDArray[np.float64]

_MECHANISMS = ("auto", "objective", "gradient")


@dataclass(frozen=True)
class RecordFacts:
    """The checked settings of an estimator: budget, public number of records, parameters to state."""

    guarantee: Guarantee
    n_samples: int
    parameters: dict[str, Any]


class StructuredModel(BaseEstimator):
    """What the estimators of this module share; subclasses say which loss (``_loss``)."""

    #: Input is a stack of matrices, which two-dimensional checks of estimators cannot provide.
    takes_matrices = True

    coef_: Array

    def _loss(self, outputs: int) -> VectorLoss:
        raise AttributeError(f"{type(self).__name__} does not say which loss it fits.")

    def _public_facts(self, n_samples: int, n_features: int) -> RecordFacts:
        """Check the settings that both estimators have; raises before data are read or budget is spent."""
        owner = type(self).__name__
        for name, value in (("n_samples", n_samples), ("n_features", n_features)):
            check_count(name, f"{owner}.certify", value)
        norm = optional_positive("operator_norm", self.operator_norm, owner)
        if norm is None:
            raise ValueError(
                f"The 'operator_norm' parameter of {owner} must be a finite number above 0. Got None instead."
            )
        return RecordFacts(
            guarantee=resolve_guarantee(self.epsilon, self.delta, self.mu, owner),
            n_samples=resolve_samples(self.neighbors, self.nominal_samples, n_samples, owner),
            parameters={
                "coef_bound": optional_positive("coef_bound", self.coef_bound, owner),
                "operator_norm": norm,
                "invalid_rows": INVALID_ROWS["ignore" if ignores_invalid(self) else "error"],
            },
        )

    def _stated(self, certificate: Certificate, facts: RecordFacts) -> dict[str, tuple[Any, Any]]:
        """Return, by name, what a certificate says of this estimator's own settings and what it should say."""
        owner, loss = type(self).__name__, certificate.bounds.loss
        expected = self._loss(loss.outputs)
        smooth = hasattr(loss, "kernel")
        if smooth:
            kernel = resolve_kernel(self.kernel, owner)
            expected = convolve_vector(expected, kernel, loss.bandwidth)
        stated = {
            "kind of bounds": (type(certificate.bounds), StructuredBounds),
            "loss": (loss, expected),
        }
        bandwidth = optional_positive("bandwidth", self.bandwidth, owner)
        if bandwidth is not None:
            stated["bandwidth"] = (loss.bandwidth if smooth else None, bandwidth)
        return stated

    def _plan(self, n_samples: int, n_features: int, n_outputs: int) -> tuple[Any, Certificate]:
        """Decide everything from public facts."""
        owner = type(self).__name__
        facts = self._public_facts(n_samples, n_features)
        bounds = StructuredBounds(
            n_samples=facts.n_samples,
            n_features=int(n_features),
            loss=self._loss(check_count("n_outputs", f"{owner}.certify", n_outputs)),
            operator_norm=facts.parameters["operator_norm"],
            neighbors=self.neighbors,
        )
        mechanism, bounds, chosen = self._choose(bounds, facts.guarantee, owner)
        certificate = mechanism.certify(
            bounds,
            facts.guarantee,
            {**facts.parameters, **chosen},
            seeded=self.random_state is not None,
        )
        return mechanism, certificate

    def _choose(
        self, bounds: StructuredBounds, guarantee: Guarantee, owner: str
    ) -> tuple[Any, StructuredBounds, dict[str, Any]]:
        """Return the mechanism, the facts it certifies and its parameters: smallest predicted risk wins."""
        kernel = resolve_kernel(self.kernel, owner)
        alpha = optional_positive("alpha", self.alpha, owner)
        bandwidth = optional_positive("bandwidth", self.bandwidth, owner)
        known = {"objective": ObjectivePerturbation(), "gradient": StructuredGradientDescent()}
        mechanism = self.mechanism
        if isinstance(mechanism, str) and mechanism in known:
            mechanism = known[mechanism]
        if isinstance(mechanism, ObjectivePerturbation):
            return self._objective(mechanism, bounds, guarantee, kernel, alpha, bandwidth)[1:]
        if isinstance(mechanism, StructuredGradientDescent):
            return self._gradient(mechanism, bounds, guarantee, kernel, alpha, bandwidth)[1:]
        if not (isinstance(mechanism, str) and mechanism == "auto"):
            raise ValueError(
                f"The 'mechanism' parameter of {owner} must be one of {list(_MECHANISMS)}, ObjectivePerturbation or "
                f"StructuredGradientDescent. Got {mechanism!r} instead."
            )
        plans: list[Any] = []
        if not isinstance(guarantee, PureDP):
            plans.append((self._gradient, known["gradient"]))
        if not isinstance(guarantee, GaussianDP):
            plans.append((self._objective, known["objective"]))
        choices = [
            plan(found, bounds, guarantee, kernel, alpha, bandwidth) for plan, found in plans
        ]
        return min(choices, key=lambda choice: choice[0])[1:]

    @staticmethod
    def _objective(
        mechanism: ObjectivePerturbation,
        bounds: StructuredBounds,
        guarantee: Guarantee,
        kernel: Kernel,
        alpha: float | None,
        bandwidth: float | None,
    ) -> tuple[float, Any, StructuredBounds, dict[str, Any]]:
        if alpha is None or bandwidth is None:
            found = structured_objective_choice(kernel, bounds, guarantee, alpha, bandwidth)
            alpha, bandwidth = found.alpha, found.bandwidth
            predicted = found.predicted_excess
        else:
            predicted = math.inf
        loss = convolve_vector(bounds.loss, kernel, bandwidth)
        facts = replace(bounds, loss=loss, alpha=alpha)
        return predicted, mechanism, facts, {"bandwidth": bandwidth}

    @staticmethod
    def _gradient(
        mechanism: StructuredGradientDescent,
        bounds: StructuredBounds,
        guarantee: Guarantee,
        kernel: Kernel,
        alpha: float | None,
        bandwidth: float | None,
    ) -> tuple[float, Any, StructuredBounds, dict[str, Any]]:
        found = descent_choice(bounds, guarantee, mechanism.steps)
        if mechanism.step_size is None:
            mechanism = replace(mechanism, step_size=found.step_size)
        facts = replace(bounds, alpha=alpha or 0.0)
        chosen: dict[str, Any] = {}
        if bandwidth is not None:
            facts = replace(facts, loss=convolve_vector(bounds.loss, kernel, bandwidth))
            chosen["bandwidth"] = bandwidth
        return found.predicted_excess, mechanism, facts, chosen

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
        return self._plan(n_samples, n_features, n_outputs)[1]

    def fit(self, A: ArrayLike, Y: ArrayLike) -> Any:
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
        owner = type(self).__name__
        ignored, least = ignores_invalid(self), least_rows(self.neighbors)
        with unwarned() if ignored else nullcontext():
            matrices = _read("A", A, 3, owner, least, finite=not ignored)
            targets = _read("Y", Y, 2, owner, least, finite=not ignored)
        if targets.shape != matrices.shape[:2]:
            raise ValueError(
                f"The A and Y given to {owner} must have shapes (n, m, d) and (n, m). "
                f"Got {matrices.shape} and {targets.shape} instead."
            )
        n_samples, n_outputs, n_features = matrices.shape
        # The number of records counts where it is public.
        mechanism, certificate = self._plan(max(1, n_samples), n_features, n_outputs)
        bounds = certificate.bounds
        limit = _target_limit(certificate)
        if ignored:
            matrices, targets = _without_invalid(matrices, targets)
        with unwarned():
            records = StructuredRecords(matrices, targets, bounds.operator_norm, target_limit=limit)
        objective = StructuredObjective(
            records, bounds.loss, bounds.alpha, divisor=bounds.n_samples
        )
        noise = noise_source(self, certificate)
        if self.verbose:
            print(f"{owner}: {certificate.mechanism}, {certificate.guarantee!r}")
        if self.ledger is not None:
            # Durable before noise is drawn: a crash from here on costs budget, never privacy.
            self.ledger.charge(
                certificate.guarantee,
                mu=certificate.gaussian_mu(),
                mechanism=certificate.mechanism,
                description=f"{owner}.fit",
                neighbors=certificate.neighbors,
            )
        released: dict[str, Any] = {}
        with unwarned():
            theta = mechanism.release(objective, certificate, noise, released)
        bound = certificate.parameters["coef_bound"]
        if bound is not None:  # a projection of what was released: no privacy cost
            theta = theta * min(1.0, bound / max(float(np.linalg.norm(theta)), 1e-300))
        self.coef_ = theta
        self.intercept_ = 0.0
        self.n_features_in_ = n_features
        self.n_outputs_ = n_outputs
        self.certificate_ = certificate
        self.released_ = released
        return self

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
        matrices = _read("A", A, 3, owner)
        if matrices.shape[2] != self.n_features_in_:
            raise ValueError(
                f"A has {matrices.shape[2]} features, but {owner} is expecting {self.n_features_in_} features as input."
            )
        return finite_predictions(matrices, self.coef_)

    def score(self, A: ArrayLike, Y: ArrayLike) -> float:
        """Return minus the mean loss: larger is better."""
        residuals = _read("Y", Y, 2, type(self).__name__) - self.predict(A)
        return -float(self._loss(residuals.shape[1]).value(residuals).mean())

    def summary(self) -> Summary:
        """Return a table for people: what was fitted, what it guarantees, what came out."""
        check_is_fitted(self)
        bounds, given = self.certificate_.bounds, self.certificate_.parameters
        size = [
            ("records (public)", f"{bounds.n_samples:,}, {bounds.loss.outputs} outputs each"),
            ("operator norm", f"{bounds.operator_norm:.4g}"),
        ]
        facts = [("bandwidth", f"{given['bandwidth']:.4g}")] if "bandwidth" in given else []
        coefficients = [(f"theta{k}", value) for k, value in enumerate(self.coef_)]
        return Summary(written_summary(self, size, facts, [("coefficient", coefficients)]))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
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
        descent = certificate.parameters["descent"]
        longest = bounds.lipschitz + terms["gradients"].largest / n
        return float(2 * bounds.longest * descent["steps"] * descent["step_size"] * longest + 1)
    return float(bounds.target_reach(terms["objective"].largest / n))


def _without_invalid(matrices: Array, targets: Array) -> tuple[Array, Array]:
    """Return records with zeros in place of every one that holds NaN or infinity: their gradient is 0 everywhere."""
    valid = np.asarray(np.isfinite(matrices).all(axis=(1, 2)) & np.isfinite(targets).all(axis=1))
    return np.where(valid[:, None, None], matrices, 0.0), np.where(valid[:, None], targets, 0.0)


def _read(
    name: str, data: Any, axes: int, owner: str, least: int = 1, finite: bool = True
) -> Array:
    """Return checked float64 data; errors never quote a value."""
    shape = {2: "(n, m)", 3: "(n, m, d)"}[axes]
    problem = f"The {name} given to {owner} must be finite numbers of shape {shape}."
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
            array = np.asarray(kind, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{problem} Got another type instead.") from None
    if array.ndim != axes or 0 in array.shape[1:] or len(array) < least:
        raise ValueError(f"{problem} Got shape {array.shape} instead.")
    if finite and not np.isfinite(array).all():
        raise ValueError(f"{problem} Got NaN or infinity instead.")
    return array
