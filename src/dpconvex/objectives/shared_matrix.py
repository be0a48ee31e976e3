"""The part of a loss that all records have in common: a public matrix inside the norm, the link alone their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpconvex.engine.compensated import CompensatedSum
from dpconvex.losses.pointwise import PointwiseLoss
from dpconvex.losses.structured import VectorLoss, link_parts
from dpconvex.types import Array

__all__ = ["LinkAlone", "SharedNorm"]


@dataclass(frozen=True)
class LinkAlone:
    """The loss of the last residual, of records that have no other row of their own."""

    link: PointwiseLoss

    def value(self, u: Array, level: Array | None = None) -> Array:
        """Value of every record."""
        return link_parts(self.link, u[:, 0])[0]

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """Slope of every record."""
        return link_parts(self.link, u[:, 0])[1][:, None]

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Curvature of every record, shape (n, 1, 1)."""
        return link_parts(self.link, u[:, 0])[2][:, None, None]

    def derivatives(self, u: Array, level: Array | None = None) -> tuple[Array, Array]:
        """Slope and curvature."""
        return self.gradient(u), self.hessian(u)


class SharedNorm:
    """``P(theta) = g(-M theta)`` without the link: what each record adds to the sum of losses, the same for all.

    Parameters
    ----------
    matrix : array of shape (m, d)
        M; public.
    loss : VectorLoss
        g, with a link in its last residual.
    """

    def __init__(self, matrix: npt.ArrayLike, loss: VectorLoss) -> None:
        self.matrix, self.loss = np.array(matrix, dtype=np.float64), loss

    def _padded(self, residuals: Array) -> Array:
        return np.append(residuals, 0.0)[None]

    def value(self, theta: Array) -> float:
        """P."""
        assert self.loss.link is not None, "the bounds say so"
        u = self._padded(-(self.matrix @ theta))
        return float(self.loss.value(u)[0] - link_parts(self.loss.link, u[:, -1])[0][0])

    def gradient(self, theta: Array) -> Array:
        """``-M^T g'``."""
        slopes = self.loss.gradient(self._padded(-(self.matrix @ theta)))[0, :-1]
        return np.asarray(-(slopes @ self.matrix))

    def hessian(self, theta: Array) -> Array:
        """``M^T g'' M``."""
        bends = self.loss.hessian(self._padded(-(self.matrix @ theta)))[0, :-1, :-1]
        return np.asarray(self.matrix.T @ bends @ self.matrix)

    def refined_gradient(self, theta: Array, shift: Array) -> tuple[Array, float]:
        """Return ``-M^T g'`` at ``theta + shift`` with residuals to twice the digits, and the size of these."""
        from dpconvex.engine.mapping import margins_with_error

        z, correction = np.empty(len(self.matrix)), np.empty(len(self.matrix))
        margins_with_error(self.matrix, theta, z, correction)
        u = -(z + (correction + self.matrix @ shift))
        slopes = self.loss.gradient(self._padded(u))[0, :-1]
        return CompensatedSum(-slopes, self.matrix).value, float(np.linalg.norm(u))
