r"""Generalised Moreau envelopes of the l1 norm, for comparison with convolution.

``e(x) = inf_u ||u||_1 + w phi((x - u) / w)``, which by duality is ``sup <x, y> - w phi*(y)`` over ``||y||_inf <= 1``;
the maximiser y is the gradient. Such an envelope is convex, ``sqrt(m)``-Lipschitz, ``b / w``-smooth for a
b-smooth ``phi``, and satisfies ``-w sup phi* <= e - ||.||_1 <= w phi(0)``, the supremum over ``||y|| <= sqrt(m)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.checks import check_positive
from dpconvex.losses.structured import Bowl, L1Norm, PiecewiseLinear, VectorLoss
from dpconvex.smoothing.bowl_moreau import BowlMoreau
from dpconvex.smoothing.pieces_moreau import PiecesMoreau
from dpconvex.types import Array

__all__ = ["POTENTIALS", "VectorMoreau", "moreau_vector"]


POTENTIALS = ("energy", "huber", "hellinger")


@dataclass(frozen=True)
class VectorMoreau(VectorLoss):
    r"""Envelope of the l1 norm with one of three potentials of curvature b; build it with :func:`moreau_vector`.

    - ``"energy"``: ``phi(x) = (b/2) ||x||^2``, from below;
    - ``"huber"``: the same for ``||x|| <= 1`` and ``b ||x|| - b/2`` beyond. Its conjugate is that of the energy on
      ``||y|| <= b``, so for ``b >= sqrt(m)`` the envelope is the same;
    - ``"hellinger"``: ``phi(x) = b sqrt(1 + ||x||^2)``, ``phi*(y) = -sqrt(b^2 - ||y||^2)``, from above.
    """

    loss: L1Norm
    potential: str
    curvature: float
    width: float

    def __post_init__(self) -> None:
        owner = "moreau_vector"
        if not isinstance(self.loss, L1Norm):
            raise TypeError(f"The 'loss' parameter of {owner} must be L1Norm. Got {type(self.loss).__name__} instead.")
        if self.potential not in POTENTIALS:
            raise ValueError(
                f"The 'potential' parameter of {owner} must be one of {list(POTENTIALS)}. "
                f"Got {self.potential!r} instead."
            )
        for name in ("curvature", "width"):
            number = check_positive(name, owner, getattr(self, name), "Use 1.0 for a start.")
            object.__setattr__(self, name, number)
        least = math.sqrt(self.loss.size) * (1 - 1e-12)
        if self.potential != "energy" and self.curvature < least:
            raise ValueError(
                f"The 'curvature' parameter of {owner} must be at least sqrt(m) for the potential "
                f"{self.potential!r}: its conjugate must exist at every slope of the loss. "
                f"Got {self.curvature!r} instead."
            )

    @property
    def outputs(self) -> int:
        """M."""
        return self.loss.outputs

    @property
    def lipschitz(self) -> float:
        """``sqrt(m)``."""
        return self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """``b / w``."""
        return self.curvature / self.width

    def _scaling(self, u: Array) -> tuple[Array, Array]:
        """Return ``s`` with ``y = clip(s u, -1, 1)``, and which coordinates are clipped.

        Adding a coordinate to the clipped ones never lowers ``s``, so m rounds find them all.
        """
        clipped = np.zeros(u.shape, dtype=bool)
        for _ in range(u.shape[1] + 1):
            free = np.where(clipped, 0.0, u)
            left = np.maximum(self.curvature**2 - clipped.sum(axis=1), 0.0)
            s = np.sqrt(left / (self.width**2 + np.square(free).sum(axis=1)))
            clipped = clipped | (s[:, None] * np.abs(u) >= 1)
        return s, clipped

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """The dual maximiser y."""
        if self.potential != "hellinger":
            return np.clip(u * self.smoothness, -1.0, 1.0)
        s, clipped = self._scaling(u)
        return np.where(clipped, np.sign(u), s[:, None] * u)

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``<u, y> - w phi*(y)``."""
        y = self.gradient(u)
        square = np.square(y).sum(axis=1)
        if self.potential != "hellinger":
            return (u * y).sum(axis=1) - square / (2 * self.smoothness)
        root = np.sqrt(np.maximum(self.curvature**2 - square, 0.0))
        return (u * y).sum(axis=1) + self.width * root

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Derivative of y where it exists: the identity on free coordinates, less a rank-one part for Hellinger."""
        eye = np.eye(u.shape[1])
        if self.potential != "hellinger":
            return (self.smoothness * (np.abs(u) * self.smoothness <= 1))[:, :, None] * eye
        s, clipped = self._scaling(u)
        free = np.where(clipped, 0.0, u)
        outer = free[:, :, None] * free[:, None, :]
        outer /= (self.width**2 + np.square(free).sum(axis=1))[:, None, None]
        return s[:, None, None] * (np.where(clipped, 0.0, 1.0)[:, :, None] * eye - outer)


def moreau_vector(
    loss: L1Norm | PiecewiseLinear | Bowl, potential: str = "energy", curvature: float = 1.0, width: float = 1.0
) -> VectorMoreau | PiecesMoreau | BowlMoreau:
    """Smooth a kinked loss by a generalised Moreau envelope: ``inf_u g(u) + width phi((x - u) / width)``.

    Parameters
    ----------
    loss : L1Norm, PiecewiseLinear or Bowl
        The loss to smooth; affine pieces and bowls take the first two potentials.
    potential : {"energy", "huber", "hellinger"}
        The function phi.
    curvature : float
        Its curvature b; at least the loss's Lipschitz constant, ``sqrt(m)`` for the l1 norm, for the last two.
    width : float
        w.

    Returns
    -------
    VectorMoreau, PiecesMoreau or BowlMoreau
        With smoothness ``curvature / width``.

    Examples
    --------
    >>> envelope = moreau_vector(L1Norm(1), "energy", width=0.5)
    >>> envelope.value(np.array([[0.25], [3.0]])).tolist()
    [0.0625, 2.75]
    """
    if isinstance(loss, PiecewiseLinear):
        return PiecesMoreau(loss, _modulus(loss, potential, curvature, width))
    if isinstance(loss, Bowl):
        return BowlMoreau(loss, _modulus(loss, potential, curvature, width))
    return VectorMoreau(loss, potential, curvature, width)


def _modulus(loss: PiecewiseLinear | Bowl, potential: str, curvature: float, width: float) -> float:
    owner = "moreau_vector"
    if potential not in ("energy", "huber"):
        raise ValueError(
            f"The 'potential' parameter of {owner} must be 'energy' or 'huber' for affine pieces and bowls. "
            f"Got {potential!r} instead. 'hellinger' has closed forms for L1Norm only."
        )
    sizes = [
        check_positive(*pair, "Use 1.0 for a start.")
        for pair in (("curvature", owner, curvature), ("width", owner, width))
    ]
    if potential == "huber" and sizes[0] < loss.lipschitz * (1 - 1e-12):
        raise ValueError(
            f"The 'curvature' parameter of {owner} must be at least {loss.lipschitz:g}, the loss's Lipschitz constant, "
            f"for the potential 'huber'. Got {curvature!r} instead."
        )
    return sizes[0] / sizes[1]
