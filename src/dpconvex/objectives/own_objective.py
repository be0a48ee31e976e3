"""An objective of one's own: a convex function of the coefficients that may be no mean over records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpconvex.objectives.objective import UNIT, RidgeObjective
from dpconvex.types import Array

_FINE = 1e-13  # of the slope: the error of a gradient where none is declared


class OwnObjective(RidgeObjective):
    r"""``F(theta) = f(theta) + (alpha/2) ||theta||^2`` for a function of the user's.

    Parameters
    ----------
    evaluate : callable
        ``theta -> (f(theta), gradient of f)``; reads the private data. f is convex, differentiable, and on all
        admissible data its gradient is not longer than ``slope`` and turns by no more than ``curvature``.
    dim : int
        Number of coefficients.
    alpha : float
        Ridge, above 0.
    slope, curvature : float
        The declared constants: public, and true whatever the data. The guarantee rests on them.
    n_rows : int
        Number of records, as in the bounds.
    hessian : callable, optional
        ``theta -> Hessian of f``; by default differences of gradients. It decides about speed alone.
    gradient_error : float, optional
        Bound on the norm of the floating-point error of the gradient of f; ``1e-13 slope`` by default.
    name : str
        As in the bounds.

    Notes
    -----
    Privacy: pass it to :class:`~dpconvex.mechanisms.OutputPerturbation` with
    :class:`~dpconvex.privacy.DeclaredBounds` of the same constants. ``evaluate`` must not raise: an error would depend
    on private data.

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
        self, evaluate: Callable[[Array], tuple[float, Array]], dim: int, alpha: float, slope: float, curvature: float,
        n_rows: int, hessian: Callable[[Array], Array] | None = None, gradient_error: float | None = None,
        name: str = "an objective of one's own",
    ) -> None:  # fmt: skip
        super().__init__(dim, alpha)
        self._evaluate, self._curve = evaluate, hessian
        self.slope, self.curvature = float(slope), float(curvature)
        self.gradient_bound, self.smoothness = self.slope, self.curvature + self.alpha
        self.gradient_error = _FINE * self.slope if gradient_error is None else float(gradient_error)
        self.name, self.n_rows = name, int(n_rows)

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        constants = {"slope": self.slope, "curvature": self.curvature}
        return {"objective": self.name, "alpha": self.alpha, "n_features": self.dim, **constants}

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient."""
        theta = np.asarray(theta, dtype=np.float64)
        value, gradient = self._evaluate(theta)
        return self._value(value, theta), self._gradient(np.asarray(gradient, dtype=np.float64), theta)

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of F."""
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
        """Bound the norm of the error of `gradient`: what was declared, and a few roundings of the ridge."""
        size = float(np.linalg.norm(theta))
        return 1.01 * self.gradient_error + 4 * UNIT * (self.slope + self.alpha * size)
