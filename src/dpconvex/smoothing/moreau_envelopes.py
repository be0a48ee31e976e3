r"""Moreau envelopes: losses smoothed from below by an infimal convolution with a parabola.

Of a residual vector, ``e(x) = inf_u g(u) + (c/2) ||x - u||^2`` is convex, has the loss's Lipschitz
constant L, is c-smooth and lies below g by at most ``L^2 / (2 c)``; by duality it is the largest
``<y, x> - g*(y) - ||y||^2 / (2 c)`` over the conjugate's domain, and the maximiser y is its
gradient. With the Huber potential of curvature b and width w, ``c = b / w``, it is the same if
``b >= L``.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np

from dpconvex.core.block_products import transform_block
from dpconvex.core.checks import check_positive, parameter_error
from dpconvex.core.convolution import SmoothedLoss
from dpconvex.core.pointwise_losses import Huber, PointwiseLoss, Squared
from dpconvex.losses import vector_losses as vectors
from dpconvex.losses.scaled_and_clamped import Scaled
from dpconvex.types import Array, ScalarOrArray

POTENTIALS = ("energy", "huber")
_MOST_SUBSETS = 20_000
_SLACK = 1e-9  # of weights, and of pieces above, in units of the loss


@dataclass(frozen=True)
class MoreauLoss(SmoothedLoss):
    """``e(u) = inf_v c(v) + (b/2) (u - v)**2`` for a piecewise-linear ``c``; see :func:`moreau`.

    With knots ``k_i``, heights ``c(k_i)``, slopes ``s_i`` and
    ``g_i = clip(b (u - k_i), s_i, s_{i+1})``:

    - ``e(u) = max_i c(k_i) + g_i * (u - k_i) - g_i**2 / (2 b)``
    - ``e'(u) = s_0 + sum_i (g_i - s_i)``: ``s_i`` between ``k_{i-1} + s_i / b`` and
      ``k_i + s_i / b``, and ``b (u - k_i)`` from there to ``k_i + s_{i+1} / b``
    - ``e''(u) = b`` on these closed bends and 0 elsewhere
    """

    loss: PointwiseLoss
    modulus: float

    def __post_init__(self) -> None:
        # Checked here and not in moreau: a loss read back from a file passes through here too.
        remedy = "A larger value is closer to the loss and less smooth."
        object.__setattr__(
            self, "modulus", check_positive("smoothness", "moreau", self.modulus, remedy)
        )
        allowed = "piecewise linear, Squared or Huber"
        got = type(self.loss).__name__
        if not isinstance(self.loss, PointwiseLoss):
            remedy = "Write it as KinkedLoss(knots, slopes)."
            raise parameter_error("loss", "moreau", allowed, got, remedy, kind=TypeError)
        if self.loss.piecewise_linear is None:
            known = (
                f"and it is already smooth (smoothness={self.loss.smoothness:g}): use it as it is."
            )
            raise parameter_error(
                "loss", "moreau", allowed, got, f"Its envelope has no closed form here, {known}"
            )

    @property
    def smoothness(self) -> float:
        """``b``, attained on every bend."""
        return self.modulus

    @property
    def approximation_gap(self) -> float:
        """``sup (c - e) = lipschitz**2 / (2 b)``."""
        return self.lipschitz**2 / (2.0 * self.modulus)

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """Moreau envelope ``e(u)`` for float64 ``u``."""
        shape = self.shape
        b = self.modulus
        value = np.float64(-np.inf)
        for i, (knot, height) in enumerate(zip(shape.knots, shape.heights, strict=True)):
            distance = u - knot
            slope = np.clip(b * distance, shape.slopes[i], shape.slopes[i + 1])
            value = np.maximum(value, slope * (distance - slope * (0.5 / b)) + height)
        return value

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """Slope ``e'(u)`` of the Moreau envelope for float64 ``u``."""
        shape = self.shape
        b = self.modulus
        total = np.clip(b * (u - shape.knots[0]), shape.slopes[0], shape.slopes[1])
        for i in range(1, len(shape.knots)):
            low = shape.slopes[i]
            high = shape.slopes[i + 1]
            total = total + (np.clip(b * (u - shape.knots[i]), low, high) - low)
        return total

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """Curvature ``e''(u)`` of the Moreau envelope for float64 ``u``; on the closed bends
        ``b``.
        """
        shape = self.shape
        b = self.modulus
        bent = np.False_
        for i, knot in enumerate(shape.knots):
            slope = b * (u - knot)
            bent = bent | ((slope >= shape.slopes[i]) & (slope <= shape.slopes[i + 1]))
        return np.where(bent, b, 0.0)


def moreau(loss: PointwiseLoss, smoothness: float) -> MoreauLoss | Scaled:
    """Smooth a loss from below: ``e(u) = inf_v c(v) + (smoothness / 2) (u - v)**2``.

    The result is convex, has the loss's own Lipschitz constant, curvature at most ``smoothness``,
    and lies below the loss by at most ``lipschitz**2 / (2 * smoothness)``. Closed forms only:

    - piecewise-linear losses: see :class:`MoreauLoss`;
    - ``Squared()``: ``s * u**2 / 2`` with ``s = smoothness / (1 + smoothness)``;
    - ``Huber(width)``: ``s * Huber(width / s)`` with the same ``s``.

    Parameters
    ----------
    loss : piecewise-linear loss, Squared, Huber, or Scaled of a piecewise-linear loss
        The loss to smooth.
    smoothness : float
        Curvature of the parabola, positive.

    Examples
    --------
    >>> from dpconvex.losses import Absolute
    >>> from dpconvex.smoothing import moreau
    >>> envelope = moreau(Absolute(), smoothness=2.0)
    >>> float(envelope.value(0.25, 0.0)), float(envelope.value(3.0, 0.0))
    (0.0625, 2.75)
    """
    if isinstance(loss, Squared | Huber):
        modulus = check_positive(
            "smoothness", "moreau", smoothness, "A larger value is closer to the loss."
        )
        factor = modulus / (1.0 + modulus)
        outer = Squared() if isinstance(loss, Squared) else Huber(loss.width / factor)
        return Scaled(outer, factor)
    return MoreauLoss(loss, smoothness)


@dataclass(frozen=True)
class _QuadraticEnvelope(vectors.SmoothedVectorLoss):
    """An envelope with the parabola of curvature ``c = modulus``, of a loss of one class."""

    loss: vectors.VectorLoss
    modulus: float
    loss_class: ClassVar[type[vectors.VectorLoss]]

    def __post_init__(self) -> None:
        owner = type(self).__name__
        wanted = self.loss_class.__name__
        if not isinstance(self.loss, self.loss_class):
            raise parameter_error("loss", owner, wanted, type(self.loss).__name__, kind=TypeError)
        number = check_positive(
            "modulus", owner, self.modulus, "A larger one is closer to the loss."
        )
        object.__setattr__(self, "modulus", number)

    @property
    def smoothness(self) -> float:
        """``c``."""
        return self.modulus

    @property
    def approximation_gap(self) -> float:
        """``L^2 / (2 c) >= sup (g - e)``."""
        return float(self.lipschitz**2 / (2 * self.modulus))


@dataclass(frozen=True)
class BowlMoreau(_QuadraticEnvelope):
    """Envelope of a bowl in closed form, for any number of residuals; build it with
    :func:`moreau_vector`.

    The conjugate of the bowl is ``l max_j |y_j|`` where no ``|y_j|`` is above 1, so that ``e(x)``
    is the largest ``<y, x> - l s - ||y||^2 / (2 c)`` over ``|y_j| <= s <= 1``. For a given s this
    is ``y = clip(c x, -s, s)``, and the best s has ``sum_j (c |x_j| - s)^+ = c l``: water-filling
    from the largest down.
    """

    loss: vectors.Bowl
    loss_class = vectors.Bowl

    def _height(self, u: Array, level: Array | None) -> tuple[Array, Array]:
        levels = np.zeros(len(u)) if level is None else np.maximum(level, 0.0)
        sizes = -np.sort(-self.modulus * np.abs(u), axis=1)
        water = (np.cumsum(sizes, axis=1) - self.modulus * levels[:, None]) / np.arange(
            1, u.shape[1] + 1
        )
        # The best number of clipped residuals has the highest level: one more below it would lower
        # the mean.
        return np.clip(water.max(axis=1), 0.0, 1.0), levels

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``<y, u> - l s - ||y||^2 / (2 c)``; a level below 0 shifts the norm."""
        s, levels = self._height(u, level)
        y = np.clip(self.modulus * u, -s[:, None], s[:, None])
        found = (y * u).sum(axis=1) - levels * s - np.square(y).sum(axis=1) / (2 * self.modulus)
        return np.asarray(found if level is None else found + (levels - level))

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``y = clip(c u, -s, s)``."""
        s, _ = self._height(u, level)
        return np.clip(self.modulus * u, -s[:, None], s[:, None])

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Hessian of a bowl's envelope: ``c`` on free residuals; clipped ones move together
        while ``0 < s < 1``.
        """
        s, _ = self._height(u, level)
        clipped = self.modulus * np.abs(u) >= s[:, None]
        free = np.where(clipped, 0.0, self.modulus)[:, :, None] * np.eye(u.shape[1])
        signs = np.where(clipped, np.sign(u), 0.0)
        moving = (s > 0) & (s < 1)
        share = np.where(moving, self.modulus / np.maximum(clipped.sum(axis=1), 1), 0.0)
        return np.asarray(free + share[:, None, None] * signs[:, :, None] * signs[:, None, :])


@dataclass(frozen=True)
class PiecesMoreau(_QuadraticEnvelope):
    """Envelope of a maximum of affine pieces, exact; build it with :func:`moreau_vector`.

    By duality ``e(x)`` is the largest ``sum_p l_p (<a_p, x> + b_p) - ||sum_p l_p a_p||^2 / (2 c)``
    over weights ``l >= 0`` that sum to 1. Weights may be taken on at most m + 1 pieces, so every
    such subset is tried: its stationary weights solve a small linear system, and the ones that are
    not negative and leave no piece above win.
    """

    loss: vectors.PiecewiseLinear
    loss_class = vectors.PiecewiseLinear

    def __post_init__(self) -> None:
        super().__post_init__()
        pieces = len(self.loss.slopes)
        if sum(math.comb(pieces, size) for size in range(1, self._most + 1)) > _MOST_SUBSETS:
            raise ValueError(
                "The 'loss' parameter of moreau_vector must have fewer pieces: their subsets are "
                f"tried one by one. Got {pieces} pieces of {self.outputs} residuals instead."
            )

    @property
    def _most(self) -> int:
        return min(int(self.outputs) + 1, len(self.loss.slopes))

    @cached_property
    def _envelope_systems(self) -> list[tuple[list[int], Array]]:
        """Subsets of affinely independent pieces, and the inverse of the envelope's stationary
        system of each.
        """
        slopes = np.array(self.loss.slopes)
        found: list[tuple[list[int], Array]] = []
        for size in range(1, self._most + 1):
            for subset in map(list, combinations(range(len(slopes)), size)):
                block = slopes[subset]
                if size > 1 and np.linalg.matrix_rank(block[1:] - block[0]) < size - 1:
                    continue
                matrix = np.zeros((size + 1, size + 1))
                matrix[:size, :size] = block @ block.T / self.modulus
                matrix[:size, size] = matrix[size, :size] = 1.0
                found.append((subset, np.asarray(np.linalg.inv(matrix), dtype=np.float64)))
        return found

    def _solve_envelope(self, u: Array) -> tuple[Array, Array, Array]:
        """Return the envelope's value, gradient and subset's index of every row."""
        slopes = np.array(self.loss.slopes)
        offsets = np.array(self.loss.offsets)
        heights = transform_block(u, slopes.T) + offsets
        n = len(u)
        value = np.full(n, -np.inf)
        gradient = np.zeros_like(u)
        chosen = np.zeros(n, dtype=int)
        worst = np.full(n, np.inf)
        scale = 1.0 + np.abs(heights).max(axis=1)
        for index, (subset, inverse) in enumerate(self._envelope_systems):
            size = len(subset)
            right = np.column_stack([heights[:, subset], np.ones(n)])
            solved = transform_block(right, inverse.T)
            weights = solved[:, :size]
            level = solved[:, size]
            mean = transform_block(weights, slopes[subset])
            # How far it is from optimal: a negative weight, or a piece above the common level.
            reached = transform_block(mean, slopes.T) / self.modulus + level[:, None]
            above = (heights - reached).max(axis=1) / scale
            wrong = np.maximum(-weights.min(axis=1), above)
            better = wrong < np.maximum(worst - _SLACK, 0.0) if index else np.ones(n, dtype=bool)
            found = (weights * heights[:, subset]).sum(axis=1) - np.square(mean).sum(axis=1) / (
                2 * self.modulus
            )
            value = np.where(better, found, value)
            gradient = np.where(better[:, None], mean, gradient)
            chosen = np.where(better, index, chosen)
            worst = np.where(better, wrong, worst)
        return value, gradient, chosen

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``e(u)`` of every row."""
        return self._solve_envelope(u)[0]

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """The maximising mean slope."""
        return self._solve_envelope(u)[1]

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """``c`` times the projection on the directions in which the active pieces differ, where
        it exists.
        """
        slopes = np.array(self.loss.slopes)
        chosen = self._solve_envelope(u)[2]
        found = np.zeros((*u.shape, u.shape[1]))
        for index in np.unique(chosen):
            block = slopes[self._envelope_systems[index][0]]
            differences = block[1:] - block[0]
            if len(differences):
                basis = np.linalg.svd(differences, full_matrices=False)[2]
                found[chosen == index] = self.modulus * basis.T @ basis
        return found


@dataclass(frozen=True)
class VectorMoreau(vectors.SmoothedVectorLoss):
    r"""Generalised envelope ``inf_u ||u||_1 + w phi((x - u) / w)`` of the l1 norm; build it with
    :func:`moreau_vector`.

    It is ``sup <x, y> - w phi*(y)`` over ``||y||_inf <= 1`` and ``b / w``-smooth, from below, for
    the potentials

    - ``"energy"``: ``phi(x) = (b/2) ||x||^2``;
    - ``"huber"``: the same for ``||x|| <= 1`` and ``b ||x|| - b/2`` beyond. Its conjugate is that
      of the energy on ``||y|| <= b``, so for ``b >= sqrt(m)`` the envelope is the same.

    A link, which is smooth, stays as it is.
    """

    loss: vectors.L1Norm | vectors.L1WithLink
    potential: str
    curvature: float
    width: float

    def __post_init__(self) -> None:
        owner = "moreau_vector"
        if not isinstance(self.loss, vectors.L1Norm | vectors.L1WithLink):
            raise parameter_error(
                "loss", owner, "L1Norm or L1WithLink", type(self.loss).__name__, kind=TypeError
            )
        curvature, width = _checked_potential(self.loss, self.potential, self.curvature, self.width)
        object.__setattr__(self, "curvature", curvature)
        object.__setattr__(self, "width", width)

    @property
    def smoothness(self) -> float:
        """``b / w``."""
        return self.curvature / self.width

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """The dual maximiser ``y = clip(b u / w, -1, 1)``, and the slope of the link."""
        slopes = np.clip(u * self.smoothness, -1.0, 1.0)
        if self.link is not None:
            slopes[:, -1] = vectors.link_parts(self.link, u[:, -1])[1]
        return np.asarray(slopes)

    def value(self, u: Array, level: Array | None = None) -> Array:
        """Value ``<u, y> - w phi*(y)`` of the envelope, and the link."""
        linked = 0.0 if self.link is None else vectors.link_parts(self.link, u[:, -1])[0]
        u = u[:, : self.loss.size]
        y = np.clip(u * self.smoothness, -1.0, 1.0)
        return np.asarray(
            (u * y).sum(axis=1) - np.square(y).sum(axis=1) / (2 * self.smoothness) + linked
        )

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Hessian of the envelope: ``b / w`` on residuals that are not clipped, and the
        curvature of the link.
        """
        bends = self.smoothness * (np.abs(u) * self.smoothness <= 1)
        if self.link is not None:
            bends[:, -1] = vectors.link_parts(self.link, u[:, -1])[2]
        return np.asarray(bends[:, :, None] * np.eye(u.shape[1]))


def moreau_vector(
    loss: vectors.L1Norm | vectors.L1WithLink | vectors.PiecewiseLinear | vectors.Bowl,
    potential: str = "energy",
    curvature: float = 1.0,
    width: float = 1.0,
) -> VectorMoreau | PiecesMoreau | BowlMoreau:
    """Smooth a kinked loss by a generalised Moreau envelope:
    ``inf_u g(u) + width phi((x - u) / width)``.

    Parameters
    ----------
    loss : L1Norm, L1WithLink, PiecewiseLinear or Bowl
        The loss to smooth; a link is smooth already and stays.
    potential : {"energy", "huber"}
        The function phi.
    curvature : float
        Its curvature b; for "huber" at least the loss's Lipschitz constant, ``sqrt(m)`` for the l1
        norm.
    width : float
        w; the smoothness is ``curvature / width``.

    Examples
    --------
    >>> from dpconvex.losses import L1Norm
    >>> envelope = moreau_vector(L1Norm(1), "energy", width=0.5)
    >>> envelope.value(np.array([[0.25], [3.0]])).tolist()
    [0.0625, 2.75]
    """
    if not isinstance(loss, vectors.PiecewiseLinear | vectors.Bowl):
        return VectorMoreau(loss, potential, curvature, width)
    bend, width = _checked_potential(loss, potential, curvature, width)
    return (
        BowlMoreau(loss, bend / width)
        if isinstance(loss, vectors.Bowl)
        else PiecesMoreau(loss, bend / width)
    )


def _checked_potential(
    loss: vectors.VectorLoss, potential: str, curvature: float, width: float
) -> tuple[float, float]:
    """Return curvature and width, or raise unless the potential's conjugate exists at every
    slope of the loss.
    """
    owner = "moreau_vector"
    start = "Use 1.0 for a start."
    if potential not in POTENTIALS:
        raise parameter_error("potential", owner, f"one of {list(POTENTIALS)}", repr(potential))
    bend = check_positive("curvature", owner, curvature, start)
    if potential == "huber" and bend < loss.lipschitz * (1 - 1e-12):
        allowed = (
            f"at least {loss.lipschitz:g}, the loss's Lipschitz constant, for the potential 'huber'"
        )
        raise parameter_error("curvature", owner, allowed, repr(curvature))
    return bend, check_positive("width", owner, width, start)
