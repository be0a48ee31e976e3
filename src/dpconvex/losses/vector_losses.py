r"""Losses of a whole residual vector: a record is a matrix A and a vector Y, and
``u = Y - A theta``.

The loss of a record is ``g(u)`` for a convex ``g`` on R^m, so that its gradient in theta is
``-A^T g'(u)`` and its Hessian ``A^T g''(u) A``. All are kinked;
:mod:`dpconvex.smoothing.vector_convolution` smooths them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.checks import check_count, parameter_error
from dpconvex.core.pointwise_losses import PointwiseLoss, PointwisePiecewiseLinear, that_of_the_loss
from dpconvex.losses.max_affine import CentredAffinePieces, group_affine_pieces, max_affine_envelope
from dpconvex.types import Array

_MOST_CENTRES = 32  # pieces up to which each of them is tried as a centre


class VectorLoss(ABC):
    """A convex function ``g`` of the residual vector, one record per row of ``u``.

    Subclasses give ``outputs`` (m), ``lipschitz`` (``sup ||g'||``), ``smoothness`` (largest
    eigenvalue of ``g''``, ``inf`` if kinked), and the three evaluations. ``level`` is a further
    number per record, for losses that use one.
    """

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number m of residuals of a record."""

    @property
    def link(self) -> PointwiseLoss | None:
        """Pointwise loss of the last residual, or None; it has a norm bound of its own."""
        return None

    @property
    def uses_level(self) -> bool:
        """Whether a record brings a number besides A and Y."""
        return False

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """``sup ||g'(u)||_2``, the link excluded."""

    @property
    def smoothness(self) -> float:
        """``sup ||g''(u)||``, the link excluded; ``inf`` for a kinked loss."""
        return math.inf

    @property
    def gradient_error(self) -> float:
        """Bound on the norm of what a quadrature rule leaves out of ``g'``; 0 for closed forms."""
        return 0.0

    @abstractmethod
    def value(self, u: Array, level: Array | None = None) -> Array:
        """``g(u)`` of every row."""

    @abstractmethod
    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``g'(u)`` of every row; at a kink some subgradient."""

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """``g''(u)`` of every row, shape (n, m, m); 0 for a kinked loss."""
        rows, width = np.shape(u)
        return np.zeros((rows, width, width))


class SmoothedVectorLoss(VectorLoss):
    """A smooth approximation of a loss: residuals, link, level and Lipschitz constant are those
    of the loss.
    """

    loss: VectorLoss
    outputs = that_of_the_loss("outputs")
    link = that_of_the_loss("link")
    uses_level = that_of_the_loss("uses_level")
    lipschitz = that_of_the_loss("lipschitz")  # averages of gradients are not longer


class _VectorSignLoss(VectorLoss):
    """A loss whose gradient in m residuals consists of signs: ``sup ||g'|| = sqrt(m)``."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_count("size", type(self).__name__, self.size))

    @property
    def outputs(self) -> int:
        return self.size

    @property
    def lipschitz(self) -> float:
        return math.sqrt(self.size)


@dataclass(frozen=True)
class L1Norm(_VectorSignLoss):
    """``g(u) = ||u||_1``: medians of several outputs at once.

    Parameters
    ----------
    size : int
        Number m of residuals of a record.
    """

    size: int

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``||u||_1`` of every row."""
        return np.asarray(np.abs(u).sum(axis=-1))

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """Signs; 0 at a kink."""
        return np.sign(u)


@dataclass(frozen=True)
class L1WithLink(_VectorSignLoss):
    r"""``g(u) = ||(u_1, ..., u_m)||_1 + c(u_{m+1})``: an l1 norm of ``A theta`` and a link
    ``h(<z, theta>)``.

    The last row of a record's matrix is ``z``. With ``A`` the same in all records this is an
    l1-regularised generalised linear model; with some rows of a common matrix, a grouped one.
    Residual links read ``c`` at ``u = y - z . theta``. Margin links read it at ``-u``: give the row
    ``y z`` and the target 0.

    Parameters
    ----------
    size : int
        Number m of rows inside the norm.
    pointwise : Loss
        The link; smooth, with bounded slope.
    """

    size: int
    pointwise: PointwiseLoss

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self.pointwise).__name__
        if not isinstance(self.pointwise, PointwiseLoss):
            raise parameter_error(
                "pointwise",
                "L1WithLink",
                "a pointwise loss such as Logistic()",
                name,
                kind=TypeError,
            )
        if not (
            math.isfinite(self.pointwise.lipschitz) and math.isfinite(self.pointwise.smoothness)
        ):
            raise ValueError(
                "The 'pointwise' parameter of L1WithLink must have bounded slope and curvature. "
                f"Got {name} instead. Use Huber(width), Logistic() or a convolved loss."
            )

    @property
    def outputs(self) -> int:
        """M + 1."""
        return self.size + 1

    @property
    def link(self) -> PointwiseLoss:
        """The loss of the last residual."""
        return self.pointwise

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``||u_{1..m}||_1 + c`` of every row."""
        return np.asarray(np.abs(u[:, :-1]).sum(axis=-1) + link_parts(self.pointwise, u[:, -1])[0])

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """Signs, and the slope of the link in ``u_{m+1}``."""
        slopes = np.sign(u)
        slopes[:, -1] = link_parts(self.pointwise, u[:, -1])[1]
        return slopes


def link_parts(link: PointwiseLoss, u: Array) -> tuple[Array, Array, Array]:
    """Return value, first and second derivative of the link in its residual."""
    if link.kind == "residual":
        return link.value_at(u), link.slope_at(u), link.curvature_at(u)
    return link.value_at(-u), -link.slope_at(-u), link.curvature_at(-u)


@dataclass(frozen=True)
class PiecewiseLinear(VectorLoss):
    """``g(u) = max_p <a_p, u> + b_p``.

    Parameters
    ----------
    slopes : sequence of P vectors of length m
        The vectors a_p, at least two different ones.
    offsets : sequence of P floats, optional
        The numbers b_p; 0 by default.

    Examples
    --------
    >>> loss = PiecewiseLinear([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> loss.value(np.array([[0.5, -2.0]])).tolist(), loss.lipschitz
    ([2.0], 1.0)
    """

    slopes: tuple[tuple[float, ...], ...]
    offsets: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        slopes = _check_structured_parameter("slopes", self.slopes, 2)
        offsets = np.zeros(len(slopes)) if self.offsets is None else self.offsets
        offsets = _check_structured_parameter("offsets", offsets, 1)
        if len(offsets) != len(slopes):
            raise ValueError(
                "The 'offsets' parameter of PiecewiseLinear must have one entry per slope, "
                f"{len(slopes)}. Got {len(offsets)} instead."
            )
        if not np.ptp(slopes, axis=0).any():
            raise ValueError(
                "The 'slopes' parameter of PiecewiseLinear must hold at least two different "
                "vectors. Got one instead. A linear loss has no minimiser."
            )
        object.__setattr__(self, "slopes", tuple(tuple(row) for row in slopes.tolist()))
        object.__setattr__(self, "offsets", tuple(offsets.tolist()))

    @cached_property
    def _slopes(self) -> Array:
        return np.array(self.slopes)

    @cached_property
    def _offsets(self) -> Array:
        return np.array(self.offsets)

    @property
    def outputs(self) -> int:
        """M."""
        return len(self.slopes[0])

    @cached_property
    def lipschitz(self) -> float:
        """``max_p ||a_p||``."""
        return float(np.linalg.norm(self._slopes, axis=1).max())

    @cached_property
    def diameter(self) -> float:
        """``max ||a_p - a_q||``: how far the slope can turn along any direction."""
        return max(
            float(np.linalg.norm(self._slopes - slope, axis=1).max()) for slope in self._slopes
        )

    @cached_property
    def pieces(self) -> CentredAffinePieces:
        """The vector loss's pieces around the centre that makes the directions nearest to
        orthonormal.
        """
        slopes = self._slopes
        # Any centre will do; with many pieces, looking for the best one costs more than it gains.
        own = slopes if len(slopes) <= _MOST_CENTRES else ()
        centres = [np.zeros(self.outputs), *own, slopes.mean(axis=0)]
        candidates = [group_affine_pieces(slopes, self._offsets, centre) for centre in centres]
        return min(
            candidates, key=lambda pieces: (round(pieces.direction_norm, 9), len(pieces.groups))
        )

    @cached_property
    def orthonormal(self) -> bool:
        """Whether the pieces lie along orthonormal directions, seen from some centre."""
        return self.pieces.direction_norm <= 1 + 1e-9

    @cached_property
    def slope_dimension(self) -> int:
        """Number of directions in which slopes differ."""
        sizes = np.linalg.svd(self._slopes - self._slopes[0], compute_uv=False)
        return int((sizes > 1e-12 * sizes[0]).sum())

    @cached_property
    def profile(self) -> tuple[PointwisePiecewiseLinear, Array] | None:
        """``c`` and d of ``g(u) = <a_1, u> + c(<d, u>)`` if all slopes differ along one
        direction d, else None.
        """
        differences = self._slopes - self._slopes[0]
        _, sizes, axes = np.linalg.svd(differences, full_matrices=False)
        if len(sizes) > 1 and sizes[1] > 1e-12 * sizes[0]:
            return None
        return max_affine_envelope(differences @ axes[0], self._offsets), axes[0]

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``max_p <a_p, u> + b_p`` of every row."""
        return np.asarray(self._vector_loss_heights(u).max(axis=1))

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """The slope of the first piece that attains the maximum."""
        return np.asarray(self._slopes[self._vector_loss_heights(u).argmax(axis=1)])

    def _vector_loss_heights(self, u: Array) -> Array:
        """``<a_p, u> + b_p`` of every vector u and piece."""
        # One product after the other: which piece is the highest must not depend on how many rows
        # there are, as the rounding of a product of matrices does.
        heights = np.tile(self._offsets, (len(u), 1))
        for column, slopes in zip(u.T, self._slopes.T, strict=True):
            heights += column[:, None] * slopes
        return heights


def _check_structured_parameter(name: str, values: ArrayLike, axes: int) -> Array:
    shape = "finite numbers" if axes == 1 else "vectors of one length, of finite numbers"
    problem = f"The '{name}' parameter of PiecewiseLinear must be a sequence of {shape}."
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{problem} Got another shape or type instead.") from error
    if array.ndim != axes or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(
            f"{problem} Got shape {array.shape} or a value that is not finite instead."
        )
    return array


@dataclass(frozen=True)
class Bowl(_VectorSignLoss):
    """``g(u) = (||u||_1 - level)^+``, with a level for each record (0 where none is given).

    Parameters
    ----------
    size : int
        Number m of residuals, at most 5: the l1 ball has ``2^m`` facets.
    """

    size: int
    uses_level: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size > 5:
            raise parameter_error(
                "size",
                "Bowl",
                "at most 5",
                f"{self.size}",
                "The number of facets doubles with every residual.",
            )

    @property
    def diameter(self) -> float:
        """``2 sqrt(m)``: opposite facets."""
        return 2 * math.sqrt(self.size)

    @property
    def orthonormal(self) -> bool:
        """True for one and two residuals: the normals of the facets are then orthogonal."""
        return self.size <= 2

    @property
    def slope_dimension(self) -> int:
        """M."""
        return self.size

    @cached_property
    def sign_vectors(self) -> Array:
        """The ``2^m`` vectors a of ``||u||_1 = max <a, u>``."""
        bits = (np.arange(2**self.size)[:, None] >> np.arange(self.size)) & 1
        return np.array(1.0 - 2.0 * bits, dtype=np.float64)

    @cached_property
    def pieces(self) -> CentredAffinePieces:
        """``||u||_1`` as the maximum over sign vectors, in opposite pairs."""
        return group_affine_pieces(self.sign_vectors, np.zeros(2**self.size), np.zeros(self.size))

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``(||u||_1 - level)^+`` of every row."""
        return np.asarray(
            np.maximum(np.abs(u).sum(axis=-1) - (0.0 if level is None else level), 0.0)
        )

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """Signs outside the ball, 0 inside."""
        outside = np.abs(u).sum(axis=-1) > (0.0 if level is None else level)
        return np.asarray(np.sign(u) * outside[:, None])
