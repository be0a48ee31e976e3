"""Objectives as solvers see them, the terms that all share (ridge and linear term), and
objectives of one's own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Protocol, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from dpconvex.core.checks import check_number
from dpconvex.core.pointwise_losses import Loss
from dpconvex.core.rows import Rows
from dpconvex.types import Array

UNIT = 2.0**-53  # relative error of one rounding
LOSS_ULPS = 16  # a loss's slope is taken to be computed within this many roundings of its bound


class Objective(Protocol):
    """A smooth, strongly convex function of theta."""

    @property
    def dim(self) -> int:
        """Number of coefficients."""

    @property
    def strong_convexity(self) -> float:
        """Lower bound of the curvature."""

    def gradient(self, theta: Array) -> Array:
        """Gradient at theta."""

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """Value and gradient at theta."""

    def rounding_allowance(self, theta: Array) -> float:
        """Bound of the norm of the floating-point error of `gradient`."""


class ExtendedObjective(Objective, Protocol):
    """What an objective may offer beyond that, or a part of it: ask with :func:`offers`."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def gradient_bound(self) -> float:
        """Bound of the gradient norm of the mean of losses."""

    @property
    def kink_width(self) -> float:
        """Margin over which the loss turns."""

    def value(self, theta: Array) -> float:
        """Value at theta."""

    def hessian(self, theta: Array) -> Array:
        """Hessian at theta; its accuracy decides about speed only."""

    def refined_gradient(self, theta: Array, offset: Array | None = None) -> tuple[Array, float]:
        """Gradient at ``theta + offset`` with twice the digits, and a bound of the norm of its
        error.
        """

    def with_linear(self, linear: npt.ArrayLike) -> Objective:
        """Return the objective with ``<linear, theta>`` added."""

    def subsample(self, rows: int) -> ExtendedObjective:
        """Return the objective of about so many rows."""

    def margin_scale(self, theta: Array) -> float:
        """Scale on which the data term varies."""

    def smoothed(self, width: float) -> ExtendedObjective:
        """Return the objective with a loss that turns over at least this width: a warm start."""


def offers(objective: Objective, name: str) -> TypeGuard[ExtendedObjective]:
    """Return whether the objective offers a method by this name, and what goes with it."""
    return hasattr(objective, name)


def exact_difference(y: Array, z: Array, correction: Array) -> Array:
    """Return ``y - (z + correction)`` within a rounding of itself."""
    rounded = y - z
    lost = (y - (rounded + (y - rounded))) + ((y - rounded) - z)
    return rounded + (lost - correction)


def exact_objective_margins(block: Array, theta: Array) -> tuple[Array, Array]:
    """Return the margins ``block @ theta`` rounded, and what the rounding lost."""
    from dpconvex.engine.compensated_kernels import dense_margins_with_error

    z = np.empty(len(block))
    correction = np.empty(len(block))
    dense_margins_with_error(block, theta, z, correction)
    return z, correction


class RidgeObjective:
    """A data term plus ``(alpha/2) ||theta||^2``.

    Subclasses give the data term: ``value_and_gradient``, ``hessian`` and ``rounding_allowance``.
    """

    def __init__(self, dim: int, alpha: float) -> None:
        self.dim = int(dim)
        self.alpha = check_number(
            "alpha", type(self).__name__, alpha, "a finite number >= 0", 0, math.inf
        )

    @property
    def strong_convexity(self) -> float:
        """Lower bound of the curvature of F, from the ridge alone."""
        return self.alpha

    def value(self, theta: npt.ArrayLike) -> float:
        """F(theta)."""
        return self.value_and_gradient(theta)[0]

    def gradient(self, theta: npt.ArrayLike) -> Array:
        """Gradient of F."""
        return self.value_and_gradient(theta)[1]

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient."""
        raise AttributeError(f"{type(self).__name__} has no data term.")

    def _refined_point(
        self, theta: npt.ArrayLike, offset: npt.ArrayLike | None
    ) -> tuple[Array, Array, float, float, float]:
        """Return the objective's theta and offset as arrays, their norms, and the error of
        margins of unit rows.
        """
        theta = np.asarray(theta, dtype=np.float64)
        shift = np.zeros(self.dim) if offset is None else np.asarray(offset, dtype=np.float64)
        size = float(np.linalg.norm(theta))
        moved = float(np.linalg.norm(shift))
        return (
            theta,
            shift,
            size,
            moved,
            (4 * self.dim * UNIT) ** 2 * size + (self.dim + 6) * UNIT * moved,
        )

    def _penalty(self, theta: Array) -> float:
        return float(0.5 * self.alpha * (theta @ theta))

    def _value(self, data: float, theta: Array) -> float:
        return float(data) + self._penalty(theta)

    def _gradient(self, data: Array, theta: Array) -> Array:
        return np.asarray(data + self.alpha * theta)

    def _hessian(self, data: Array) -> Array:
        data[np.diag_indices_from(data)] += self.alpha
        return data


class LinearTermObjective(RidgeObjective):
    """A ridged objective plus ``<b, theta>`` with ``b = linear``, in mean form (divided by N)."""

    linear: Array

    def _checked_linear_term(self, vector: npt.ArrayLike) -> Array:
        checked = np.array(vector, dtype=np.float64)
        if checked.shape != (self.dim,):
            raise ValueError(
                f"The 'linear' parameter of {type(self).__name__} must have shape ({self.dim},). "
                f"Got shape {checked.shape} instead."
            )
        return checked

    def with_linear(self, linear: npt.ArrayLike) -> Self:
        """Return the objective with ``<linear, theta>`` added (mean form: divided by N)."""
        other = copy.copy(self)
        other.linear = self.linear + self._checked_linear_term(linear)
        return other

    def _penalty(self, theta: Array) -> float:
        return super()._penalty(theta) + float(self.linear @ theta)

    def _gradient(self, data: Array, theta: Array) -> Array:
        return super()._gradient(data, theta) + self.linear


class RowObjective(RidgeObjective):
    """A ridged objective whose data term is made of losses of mapped rows, divided by ``divisor``.

    Labels of margin losses are clipped to [-1, 1]: by construction, because an error would depend
    on the data.
    """

    def __init__(self, rows: Rows, loss: Loss, alpha: float, divisor: float | None = None) -> None:
        super().__init__(rows.dim, alpha)
        if divisor is not None:
            check_number(
                "divisor", type(self).__name__, divisor, "positive", 0, math.inf, low_open=True
            )
        self.rows = rows.with_labels() if loss.kind == "margin" else rows
        self.loss = loss
        self.divisor = float(rows.n_records if divisor is None else divisor)

    @property
    def n_rows(self) -> int:
        """Number of rows summed over."""
        return self.rows.n_rows

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of: people whose rows share one weight, or the
        rows themselves.
        """
        return self.rows.n_records

    @property
    def _share(self) -> float:
        return self.n_records / self.divisor

    def _facts(self, objective: str) -> dict[str, object]:
        return {
            "objective": objective,
            "loss": self.loss,
            "alpha": self.alpha,
            "divisor": self.divisor,
            **self.rows.row_map.public_facts,
            "own_weights": bool(self.rows.own_weights),
        }


class CentredObjective:
    """``v -> F(centre + v)`` with gradients that know v to all its digits.

    Rounding a coefficient to float64 already changes the gradient by its curvature times the
    rounding. With many more rows than the nominal number that is more than a tolerance may be;
    around a fixed centre near the minimiser the coefficients are known far better.
    """

    def __init__(self, objective: ExtendedObjective, centre: Array) -> None:
        self.objective = objective
        self.centre = np.array(centre, dtype=np.float64)
        self.dim = int(objective.dim)
        self.strong_convexity = float(objective.strong_convexity)
        self._seen: tuple[bytes, Array, float] | None = None

    def _refined(self, offset: npt.ArrayLike) -> tuple[Array, float]:
        offset = np.asarray(offset, dtype=np.float64)
        key = offset.tobytes()
        if self._seen is None or self._seen[0] != key:
            self._seen = (key, *self.objective.refined_gradient(self.centre, offset))
        return self._seen[1], self._seen[2]

    def gradient(self, offset: npt.ArrayLike) -> Array:
        """Gradient of F at ``centre + offset``."""
        return self._refined(offset)[0]

    def value_and_gradient(self, offset: npt.ArrayLike) -> tuple[float, Array]:
        """F, whose value only guides line searches, and its gradient."""
        return float(
            self.objective.value(self.centre + np.asarray(offset, dtype=np.float64))
        ), self.gradient(offset)

    def hessian(self, offset: npt.ArrayLike) -> Array:
        """Hessian of F; its accuracy decides about speed only."""
        return np.asarray(self.objective.hessian(self.centre + np.asarray(offset)))

    def hessian_diagonal(self, offset: npt.ArrayLike) -> Array:
        """Diagonal of the Hessian."""
        if not hasattr(self.objective, "hessian_diagonal"):
            return np.diag(self.hessian(offset))
        return np.asarray(self.objective.hessian_diagonal(self.centre + np.asarray(offset)))

    def rounding_allowance(self, offset: npt.ArrayLike) -> float:
        """Bound of the norm of the error of `gradient`."""
        return self._refined(offset)[1]


_FINE = 1e-13  # of the slope: the error of a gradient where none is declared


class OwnObjective(RidgeObjective):
    r"""``F(theta) = f(theta) + (alpha/2) ||theta||^2`` for a function of the user's.

    Parameters
    ----------
    evaluate : callable
        ``theta -> (f(theta), gradient of f)``; reads the private data. f is convex, differentiable,
        and on all admissible data its gradient is not longer than ``slope`` and turns by no more
        than ``curvature``.
    dim : int
        Number of coefficients.
    alpha : float
        Ridge, above 0.
    slope, curvature : float
        The declared constants: public, and true whatever the data. The guarantee rests on them.
    n_rows : int
        Number of records, as in the bounds.
    hessian : callable, optional
        ``theta -> Hessian of f``; by default differences of gradients. It decides about speed
        alone.
    gradient_error : float, optional
        Bound on the norm of the floating-point error of the gradient of f; ``1e-13 slope`` by
        default.
    name : str
        As in the bounds.

    Notes
    -----
    Privacy: pass it to :class:`~dpconvex.mechanisms.OutputPerturbation` with
    :class:`~dpconvex.privacy.DeclaredBounds` of the same constants. ``evaluate`` must not raise: an
    error would depend on private data.

    Examples
    --------
    The smoothed largest absolute residual, which is no mean:

    >>> from dpconvex.mechanisms import OutputPerturbation
    >>> from dpconvex.privacy import DeclaredBounds, PureDP
    >>> X, y, width = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5, -0.5]), 0.5
    >>> def evaluate(theta):
    ...     residuals = np.concatenate([y - X @ theta, X @ theta - y])
    ...     weights = np.exp((residuals - residuals.max()) / width)
    ...     value = residuals.max() + width * np.log(weights.mean())
    ...     return value, np.concatenate([-X, X]).T @ (weights / weights.sum())
    >>> F = OwnObjective(evaluate, dim=2, alpha=1.0, slope=1.0, curvature=2.0, n_rows=2)
    >>> bounds = DeclaredBounds(2, 2, slope=1.0, curvature=2.0, alpha=1.0)
    >>> certificate = OutputPerturbation().certify(bounds, PureDP(50.0))
    >>> OutputPerturbation().release(F, certificate).shape
    (2,)
    """

    def __init__(
        self,
        evaluate: Callable[[Array], tuple[float, Array]],
        dim: int,
        alpha: float,
        slope: float,
        curvature: float,
        n_rows: int,
        hessian: Callable[[Array], Array] | None = None,
        gradient_error: float | None = None,
        name: str = "an objective of one's own",
    ) -> None:
        super().__init__(dim, alpha)
        self._evaluate = evaluate
        self._curve = hessian
        self.slope = float(slope)
        self.curvature = float(curvature)
        self.gradient_bound = self.slope
        self.smoothness = self.curvature + self.alpha
        self.gradient_error = (
            _FINE * self.slope if gradient_error is None else float(gradient_error)
        )
        self.name = name
        self.n_rows = int(n_rows)

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        constants = {"slope": self.slope, "curvature": self.curvature}
        return {"objective": self.name, "alpha": self.alpha, "n_features": self.dim, **constants}

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient."""
        theta = np.asarray(theta, dtype=np.float64)
        value, gradient = self._evaluate(theta)
        return self._value(value, theta), self._gradient(
            np.asarray(gradient, dtype=np.float64), theta
        )

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of an objective of one's own."""
        theta = np.asarray(theta, dtype=np.float64)
        if self._curve is not None:
            return self._hessian(np.array(self._curve(theta), dtype=np.float64))
        step = 1e-6 * max(1.0, float(np.abs(theta).max(initial=0.0)))
        rows = [
            (self._evaluate(theta + step * e)[1] - self._evaluate(theta - step * e)[1]) / (2 * step)
            for e in np.eye(self.dim)
        ]
        return self._hessian(0.5 * (np.array(rows) + np.array(rows).T))

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the error of `gradient`: what was declared, and a few roundings of
        the ridge.
        """
        size = float(np.linalg.norm(theta))
        return 1.01 * self.gradient_error + 4 * UNIT * (self.slope + self.alpha * size)
