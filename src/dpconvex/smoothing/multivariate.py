r"""Convolution smoothing of losses of a residual vector: ``g_h(u) = E g(u + h v)``.

Constants. Let ``p`` be the largest density of one coordinate of the kernel (Gaussian ``1/sqrt(2 pi)``, Laplacian
``1/2``, exponential ``Gamma(m/2) / (2 sqrt(pi) Gamma((m+1)/2))``). Along a unit vector e the slope of ``g`` turns by at
most ``W_e = sup <g', e> - inf <g', e>``, and the kernel integrated over the lines parallel to e, each at its highest
point, is at most p: for radial kernels that is the density of a coordinate at 0, for the Laplacian one half of
``E |<signs, e>| <= 1``. Hence ``<e, g_h'' e> <= W_e p / h``. For ``||u||_1`` the Hessian is diagonal and ``2 p / h``
exact; for a maximum of affine pieces ``W_e`` is at most the diameter of the slopes. In theta the bound is multiplied by
``||A||^2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from dpconvex.engine.blocks import placed_rows, row_margins
from dpconvex.losses.interface import PointwiseLoss
from dpconvex.losses.pointwise import KinkedLoss
from dpconvex.losses.structured import Bowl, L1Norm, L1WithLink, PiecewiseLinear, VectorLoss, link_parts
from dpconvex.smoothing.convolution import ConvolvedLoss
from dpconvex.smoothing.kernels import GaussianKernel, Kernel
from dpconvex.smoothing.marginals import marginal
from dpconvex.smoothing.polyhedral import SmoothedFacets
from dpconvex.smoothing.smoothed import Smoothed
from dpconvex.types import Array

__all__ = ["SmoothedL1", "SmoothedMax", "SmoothedProfile", "convolve_vector"]


_REACH = 7.5  # the normal law leaves 3e-14 beyond
_PANEL = 3.0  # length of a panel in standard deviations
_NODES = (16, 24, 32, 48, 64, 96)
_FINE = 1e-12  # error of a gradient that the rule aims at
_MOST_PIECES = 1000  # in several directions: constants take the square of that
_BLOCK = 256  # records handed to a thread at a time


@dataclass(frozen=True)
class SmoothedL1(Smoothed):
    """``sum_j E|u_j + h v_j|``, plus the link where there is one: closed forms for every kernel.

    Only the law of one coordinate of the kernel enters, see :func:`~dpconvex.smoothing.marginals.marginal`.
    """

    loss: L1Norm | L1WithLink
    kernel: Kernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check((L1Norm, L1WithLink))

    @cached_property
    def _law(self) -> Kernel:
        return marginal(self.kernel)

    @cached_property
    def smoothness(self) -> float:
        """``2 p / h``, attained at ``u_j = 0``."""
        return 2.0 * self._law.peak / self.bandwidth

    @cached_property
    def approximation_gap(self) -> float:
        """``sup (g_h - g) = m h E|v_1|``, attained at 0."""
        return self.loss.size * self.bandwidth * self._law.mean_abs

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``g_h(u)`` of every row."""
        x = u[:, : self.loss.size]
        smooth = np.abs(x) + self.bandwidth * self._law.gap(x / self.bandwidth)
        value = smooth.sum(axis=1)
        return value if self.link is None else value + link_parts(self.link, u[:, -1])[0]

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``2 cdf(u_j / h) - 1``, and the slope of the link."""
        slopes = 2.0 * self._law.cdf(u / self.bandwidth) - 1.0
        if self.link is not None:
            slopes[:, -1] = link_parts(self.link, u[:, -1])[1]
        return slopes

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Diagonal, ``2 pdf(u_j / h) / h``."""
        bends = (2.0 / self.bandwidth) * self._law.pdf(u / self.bandwidth)
        if self.link is not None:
            bends[:, -1] = link_parts(self.link, u[:, -1])[2]
        return bends[:, :, None] * np.eye(u.shape[1])


@dataclass(frozen=True)
class SmoothedProfile(Smoothed):
    """A maximum of affine pieces that differ along one direction only (two pieces always do): closed forms.

    ``g(u) = <a_1, u> + c(<d, u>)`` with a kinked ``c`` of one variable; the kernel acts along d.
    """

    loss: PiecewiseLinear
    kernel: Kernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check((PiecewiseLinear,))
        if self.loss.profile is None:
            raise ValueError(
                "The 'loss' parameter of SmoothedProfile must have slopes that differ along one direction. "
                "Use convolve_vector."
            )

    @cached_property
    def _curve(self) -> PointwiseLoss:
        kinks = self.loss.profile
        assert kinks is not None, "checked at construction"
        base = KinkedLoss(kinks.knots, kinks.slopes, kinks.height)
        return ConvolvedLoss(base, marginal(self.kernel), self.bandwidth)

    @cached_property
    def smoothness(self) -> float:
        """``sup c_h''``."""
        return self._curve.smoothness

    @cached_property
    def approximation_gap(self) -> float:
        """That of the profile."""
        return self._curve.approximation_gap  # type: ignore[attr-defined]

    def _position(self, u: Array) -> Array:
        return row_margins(u, self.loss.profile_axis[0])

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``<a_1, u> + c_h(<d, u>)`` of every row."""
        shared = row_margins(u, self.loss.profile_axis[1])
        return np.asarray(shared + self._curve.value_at(self._position(u)))

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``a_1 + c_h' d``."""
        axis, shared = self.loss.profile_axis
        return shared + np.multiply.outer(self._curve.slope_at(self._position(u)), axis)

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """``c_h'' d d^T``."""
        axis = self.loss.profile_axis[0]
        bends = self._curve.curvature_at(self._position(u))
        return np.multiply.outer(bends, np.outer(axis, axis))


@dataclass(frozen=True)
class SmoothedMax(Smoothed):
    r"""A maximum of affine pieces along orthonormal directions, or a bowl, under the Gaussian kernel.

    The pieces are ``<c, u> + max(floor, groups)`` with groups along orthonormal vectors ``d_k``
    (:class:`~dpconvex.losses.structured.Pieces`; the largest absolute residual, the bowl of two residuals), so that the
    K numbers ``<d_k, u + h v>`` are independent and normal.

    One-dimensional integrals by Gauss-Legendre panels give value, gradient and Hessian; records near one group only
    take closed forms. ``gradient_error`` bounds what the rule leaves out of the gradient.
    """

    loss: PiecewiseLinear | Bowl
    kernel: GaussianKernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check((PiecewiseLinear, Bowl))
        if isinstance(self.loss, PiecewiseLinear) and len(self.loss.slopes) > _MOST_PIECES:
            raise ValueError(
                f"The 'loss' parameter of convolve_vector must have at most {_MOST_PIECES} pieces in several "
                f"directions. Got {len(self.loss.slopes)} instead."
            )
        if not isinstance(self.kernel, GaussianKernel):
            raise ValueError(
                "The 'kernel' parameter of convolve_vector must be Gaussian for pieces in several directions. "
                f"Got {type(self.kernel).__name__} instead. Use GaussianKernel()."
            )
        if not self.loss.orthonormal:
            raise ValueError(
                "The 'loss' parameter of SmoothedMax must have pieces along orthonormal directions. "
                "Use convolve_vector."
            )

    @cached_property
    def smoothness(self) -> float:
        """``W / (sqrt(2 pi) h)``, W the diameter of the slopes."""
        return self.loss.diameter * GaussianKernel().peak / self.bandwidth

    @cached_property
    def _steepest(self) -> float:
        return max(max(group.rise, group.fall) for group in self.loss.pieces.groups)

    @cached_property
    def approximation_gap(self) -> float:
        """``h max_k slope_k sqrt(2 log(2 K)) >= sup (g_h - g)``: the mean of the largest of 2 K normal variables."""
        count = len(self.loss.pieces.groups)
        return self.bandwidth * self._steepest * math.sqrt(2 * math.log(2 * count))

    @cached_property
    def gradient_error(self) -> float:
        r"""Bound on the norm of the error of ``gradient``.

        A Gauss-Legendre rule of n nodes on [-1, 1] errs by at most ``64 M r^{-2n} / (15 (1 - r^{-2}))`` for a function
        bounded by M in the ellipse of radius r. On a panel of half-length H deviations of the slowest group the
        argument's imaginary part stays below ``b = H (r - 1/r) / 2`` deviations, where normal distribution functions
        and densities grow by at most ``e^{b^2/2}``. What lies beyond the reach adds ``4 K`` times the tail.
        """
        return self._rule_error(self._nodes)

    @cached_property
    def _nodes(self) -> int:
        """Nodes of a panel: the more groups, the steeper the products that are integrated."""
        return next((n for n in _NODES if self._rule_error(n) <= _FINE), _NODES[-1])

    def _rule_error(self, nodes: int) -> float:
        groups = self.loss.pieces.groups
        count, half = len(groups), _PANEL / 2
        slopes = [slope for group in groups for slope in (group.rise, group.fall) if slope > 0]
        panels = math.ceil(2 * _REACH * max(slopes) / (min(slopes) * _PANEL)) + 1
        radius = np.linspace(1.05, 12.0, 400)
        imaginary = half * (radius - 1 / radius) / 2
        log_bound = count * (imaginary**2 / 2 + math.log(2)) - 2 * nodes * np.log(radius)
        log_bound += np.log(64 / 15 / (1 - radius**-2) * half * panels)
        rule = math.exp(float(log_bound.min())) * GaussianKernel().peak
        tail = 4 * count * float(ndtr(-_REACH))
        return math.sqrt(count) * max(slopes) * (rule + tail)

    def _lines(self) -> tuple[Array, Array, Array, Array]:
        groups = self.loss.pieces.groups
        columns = [[group.rise, group.high, group.fall, group.low] for group in groups]
        rise, high, fall, low = np.array(columns).T.copy()
        return rise, high, fall, low

    def _integrals(self, u: Array, level: Array | None, order: int) -> tuple[Array, Array, Array]:
        from dpconvex.engine.threads import available_cores, in_threads
        from dpconvex.smoothing.max_integrals import expected_max

        pieces = self.loss.pieces
        t = placed_rows(u, pieces.directions.T)
        n, count = t.shape
        floor = np.full(n, pieces.floor) if level is None else np.array(level, dtype=np.float64)
        value, gradient, hessian = np.empty(n), np.empty((n, count)), np.empty((n, count, count))
        nodes, weights = np.polynomial.legendre.leggauss(self._nodes)
        lines = self._lines()

        def part(start: int) -> None:
            rows = slice(start, start + _BLOCK)
            expected_max(
                t[rows], floor[rows], *lines, self.bandwidth, _REACH, _PANEL, nodes, weights, order,
                value[rows], gradient[rows], hessian[rows],
            )  # fmt: skip

        list(in_threads(part, range(0, n, _BLOCK), available_cores()))
        return value, gradient, hessian

    def _levels(self, u: Array, level: Array | None) -> Array | None:
        if not self.uses_level:
            return None
        # A level below 0 is never reached by the norm: the bowl is then the norm, shifted.
        return np.zeros(len(u)) if level is None else np.maximum(level, 0.0)

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``g_h(u)`` of every row."""
        value = self._integrals(u, self._levels(u, level), 0)[0]
        value += row_margins(u, np.array(self.loss.pieces.centre))
        return value if level is None else value - level

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``c + D^T`` times the gradient of the expected maximum."""
        slopes = self._integrals(u, self._levels(u, level), 1)[1]
        return np.array(self.loss.pieces.centre) + placed_rows(slopes, self.loss.pieces.directions)

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """``D^T`` times the Hessian of the expected maximum times ``D``."""
        return self.derivatives(u, level)[1]

    def derivatives(self, u: Array, level: Array | None = None) -> tuple[Array, Array]:
        """Gradient and Hessian from one pass of the same rule."""
        directions = self.loss.pieces.directions
        _, slopes, bends = self._integrals(u, self._levels(u, level), 2)
        gradient = np.array(self.loss.pieces.centre) + placed_rows(slopes, directions)
        return gradient, directions.T @ bends @ directions


def convolve_vector(loss: VectorLoss, kernel: Kernel, bandwidth: float) -> VectorLoss:
    """Smooth a kinked loss of a residual vector from above: ``g_h(u) = E g(u + bandwidth * v)``, v ~ kernel.

    The result is convex, has the loss's own Lipschitz constant, and lies above the loss by at most its
    ``approximation_gap``.

    Parameters
    ----------
    loss : L1Norm, L1WithLink, PiecewiseLinear or Bowl
        The loss to smooth.
    kernel : Kernel
        Of dimension m, or of dimension 1 for the product of m such laws. l1 norms take every kernel, and so do pieces
        that differ along one direction; pieces that turn in two or three directions, and the bowls of two and three
        residuals, take the Gaussian and the exponential kernel; pieces along orthonormal directions the Gaussian one.
    bandwidth : float
        Positive, in the units of the residuals.

    Returns
    -------
    VectorLoss
        With finite smoothness.

    Privacy
    -------
    Lipschitz and smoothness are functions of loss, kernel and bandwidth alone: public if the bandwidth is.

    Notes
    -----
    Exact to rounding, whatever the angles between the slopes; the rest is refused: pieces that turn in four and more
    directions that are not orthonormal, bowls of four and five residuals, and for pieces in several directions kernels
    that are not radial, such as the Laplacian one. A refusal follows from loss, kernel and number of residuals, which
    are public, and comes when a certificate is asked for, before data are read: nothing about records can be learned
    from it. :func:`moreau_vector` smooths all of these from below, and noisy descent needs no smoothing.

    Examples
    --------
    >>> smooth = convolve_vector(L1Norm(3), GaussianKernel(3), 0.5)
    >>> round(smooth.lipschitz, 6), round(smooth.smoothness, 6)
    (1.732051, 1.595769)
    """
    if isinstance(loss, (L1Norm, L1WithLink)):
        return SmoothedL1(loss, kernel, bandwidth)
    if isinstance(loss, PiecewiseLinear) and loss.profile is not None:
        return SmoothedProfile(loss, kernel, bandwidth)
    if isinstance(loss, (PiecewiseLinear, Bowl)):
        plain = loss.orthonormal and (isinstance(kernel, GaussianKernel) or loss.turns > 3)
        kind = SmoothedMax if plain else SmoothedFacets
        return kind(loss, kernel, bandwidth)  # type: ignore[arg-type]
    raise TypeError(
        "The 'loss' parameter of convolve_vector must be L1Norm, L1WithLink, PiecewiseLinear or Bowl. "
        f"Got {type(loss).__name__} instead."
    )
