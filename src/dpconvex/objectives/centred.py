"""An objective as a function of the distance from a point, where float64 has digits to spare."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpconvex.objectives.objective import Refinable
from dpconvex.types import Array

__all__ = ["CentredObjective"]


class CentredObjective:
    """``v -> F(centre + v)`` with gradients that know v to all its digits.

    Rounding a coefficient to float64 already changes the gradient by its curvature times the
    rounding. With many more rows than the nominal number that is more than a tolerance may be;
    around a fixed centre the coefficients are known far better.

    Parameters
    ----------
    objective : EmpiricalObjective or alike
        Offers ``refined_gradient(theta, offset)``.
    centre : array of shape (dim,)
        Near the minimiser.
    """

    def __init__(self, objective: Refinable, centre: Array) -> None:
        self.objective = objective
        self.centre = np.array(centre, dtype=np.float64)
        self.dim = int(objective.dim)
        self.strong_convexity = float(objective.strong_convexity)
        self._seen: tuple[bytes, Array, float] | None = None

    def _refined(self, offset: Array) -> tuple[Array, float]:
        key = offset.tobytes()
        if self._seen is None or self._seen[0] != key:
            self._seen = (key, *self.objective.refined_gradient(self.centre, offset))
        return self._seen[1], self._seen[2]

    def gradient(self, offset: npt.ArrayLike) -> Array:
        """Gradient of F at ``centre + offset``."""
        return self._refined(np.asarray(offset, dtype=np.float64))[0]

    def value_and_gradient(self, offset: npt.ArrayLike) -> tuple[float, Array]:
        """F, whose value only guides line searches, and its gradient."""
        offset = np.asarray(offset, dtype=np.float64)
        return float(self.objective.value(self.centre + offset)), self.gradient(offset)

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
        return self._refined(np.asarray(offset, dtype=np.float64))[1]
