r"""Convolution smoothing of losses of a residual vector: ``g_h(u) = E g(u + h v)``.

Constants. Let ``p`` be the largest density of one coordinate of the kernel (Gaussian
``1/sqrt(2 pi)``, Laplacian ``1/2``, exponential ``Gamma(m/2) / (2 sqrt(pi) Gamma((m+1)/2))``).
Along a unit vector e the slope of ``g`` turns by at most ``W_e = sup <g', e> - inf <g', e>``, and
the kernel integrated over the lines parallel to e, each at its highest point, is at most p: for
radial kernels that is the density of a coordinate at 0, for the Laplacian one half of
``E |<signs, e>| <= 1``. Hence ``<e, g_h'' e> <= W_e p / h``. For ``||u||_1`` the Hessian is
diagonal and ``2 p / h`` exact; for a maximum of affine pieces ``W_e`` is at most the diameter of
the slopes. In theta the bound is multiplied by ``||A||^2``.

Errors. A Gauss-Legendre rule of n nodes on [-1, 1] errs by at most
``64 M r^{-2n} / (15 (1 - r^{-2}))`` for a function bounded by M in the ellipse of radius r, where
on a panel of half-length H the imaginary part of the argument is at most ``b = H (r - 1/r) / 2``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln, ndtr

from dpconvex.core.block_products import block_margins, transform_block
from dpconvex.core.checks import check_positive, parameter_error
from dpconvex.core.convolution import ConvolvedLoss
from dpconvex.core.smoothing_kernels import ExponentialKernel, GaussianKernel, Kernel
from dpconvex.core.threads import available_cores, in_threads
from dpconvex.losses import Bowl, KinkedLoss, L1Norm, L1WithLink, PiecewiseLinear, VectorLoss
from dpconvex.losses.max_affine import MaxAffineFacets, find_max_affine_facets
from dpconvex.losses.vector_losses import SmoothedVectorLoss, link_parts
from dpconvex.smoothing.mixture_and_marginal_kernels import MixtureKernel, marginal_kernel
from dpconvex.types import Array

_PANEL = 3.0  # length of a panel in standard deviations
# Maxima along orthonormal directions.
_REACH = 7.5  # deviations: the normal law leaves 3e-14 beyond
_NODES = (16, 24, 32, 48, 64, 96)
_FINE = 1e-12  # error of a gradient that the rule aims at
_MOST_PIECES = 1000  # constants take the square of that
_BLOCK = 256  # records handed to a thread at a time
# Maxima in two or three directions.
_FACET_REACH = 8.5  # exp(-reach^2 / 2) is 2e-16
_FACET_NODES = 16
_MOST_FACET_PIECES = 40  # facets are looked for among triples
_FACET_BLOCK = 64
_LOG_STEP = 0.45  # of the mixture: the rule errs by exp(-pi^2 / step)


def _convolution_panel_error(nodes: int, growth: int, offset: float, bound: float) -> float:
    """Bound the error on a panel for integrands of size
    ``bound exp(growth (b^2 / 2 + offset))``.
    """
    half = _PANEL / 2
    radius = np.linspace(1.05, 12.0, 400)
    imaginary = half * (radius - 1 / radius) / 2
    log_bound = growth * (imaginary**2 / 2 + offset) - 2 * nodes * np.log(radius)
    log_bound += np.log(64 / 15 / (1 - radius**-2) * half * bound)
    return math.exp(float(log_bound.min()))


def _run_blocks(part: Callable[[slice], None], rows: int, size: int) -> None:
    starts = range(0, rows, size)
    list(in_threads(lambda start: part(slice(start, start + size)), starts, available_cores()))


class ConvolvedVectorLoss(SmoothedVectorLoss):
    """The checks that all convolved losses share."""

    kernel: Kernel
    bandwidth: float

    def _check_convolution(self, kinds: tuple[type, ...]) -> None:
        owner = "convolve_vector"
        if not isinstance(self.loss, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            got = type(self.loss).__name__
            raise parameter_error(
                "loss", type(self).__name__, names, got, f"Use {owner}.", kind=TypeError
            )
        if not isinstance(self.kernel, Kernel):
            got = type(self.kernel).__name__
            raise parameter_error(
                "kernel", owner, "a kernel such as GaussianKernel()", got, kind=TypeError
            )
        size = self.loss.outputs - (self.loss.link is not None)
        if self.kernel.dim not in (1, size):
            raise ValueError(
                f"The 'kernel' parameter of {owner} must have dim=1 (a product of its law) or "
                f"dim={size}. Got dim={self.kernel.dim} instead."
            )
        remedy = "For no smoothing use the loss itself with noisy gradient descent."
        number = check_positive("bandwidth", owner, self.bandwidth, remedy)
        object.__setattr__(self, "bandwidth", number)


class _IntegratedVectorLoss(ConvolvedVectorLoss):
    """A convolved loss whose value, gradient and Hessian come from one pass of a quadrature
    rule.
    """

    def _convolved_parts(
        self, u: Array, level: Array | None, order: int
    ) -> tuple[Array, Array, Array]:
        """Return value, gradient and Hessian of every row; those above ``order`` need not be
        right.
        """
        raise NotImplementedError

    def value(self, u: Array, level: Array | None = None) -> Array:
        return self._convolved_parts(u, level, 0)[0]

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        return self._convolved_parts(u, level, 1)[1]

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        return self._convolved_parts(u, level, 2)[2]


@dataclass(frozen=True)
class SmoothedFacets(_IntegratedVectorLoss):
    r"""A maximum of affine pieces in two or three directions of any angles, or the bowl of two or
    three residuals.

    ``g(u) = <a_1, u> + max_p (<c_p, x> + b_p)`` with ``x = B^T u`` for an orthonormal basis B of
    the span of the slopes' differences. A radial kernel on R^m acts on x as its own law of r = 2 or
    3 coordinates, and for the normal law, with the probabilities and measures of
    :mod:`dpconvex.smoothing.compiled_integrals`,

        g_h'  = sum_p a_p P(piece p is the largest at u + h v)
        g_h   = sum_p (<a_p, u> + b_p) P(p) + h sum_facets jump pdf(d) measure(facet)
        g_h'' = (1/h) sum_facets jump n n^T pdf(d) measure(facet)

    The exponential kernel is a mixture of normal laws, ``v = sqrt(2 G) normal`` with G of the law
    Gamma((m + 1)/2) (its characteristic function ``(1 + w^2)^{-(m+1)/2}`` is ``E exp(-G w^2)``),
    taken at the nodes of a trapezoidal rule in ``log G``. The mixture of these nodes *is* the
    kernel that is used, so its constants are exact; gradients differ from those of the exponential
    law by 1e-7.
    """

    loss: PiecewiseLinear | Bowl
    kernel: GaussianKernel | ExponentialKernel | MixtureKernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check_convolution((PiecewiseLinear, Bowl))
        mixed = isinstance(self.kernel, MixtureKernel) and self.kernel.dim > 1
        if not (mixed or isinstance(self.kernel, (GaussianKernel, ExponentialKernel))):
            allowed = (
                "Gaussian, exponential or a mixture of Gaussian ones for pieces that turn "
                "in several directions"
            )
            remedy = (
                "Use GaussianKernel(), ExponentialKernel(m), or MixtureKernel of GaussianKernel(m)."
            )
            raise parameter_error(
                "kernel", "convolve_vector", allowed, type(self.kernel).__name__, remedy
            )
        if isinstance(self.kernel, ExponentialKernel) and self.kernel.dim != self.loss.outputs:
            raise ValueError(
                f"The 'kernel' parameter of convolve_vector must have dim={self.loss.outputs}: a "
                f"product of exponential laws is the Laplacian kernel. Got {self.kernel!r} "
                "instead."
            )
        if self.loss.slope_dimension > 3:
            raise ValueError(
                "The 'loss' parameter of convolve_vector must turn in at most three directions "
                f"unless they are orthonormal. Got {self.loss.slope_dimension} instead. Use noisy "
                "gradient descent, which needs no smoothing."
            )
        count = 2**self.loss.size + 1 if isinstance(self.loss, Bowl) else len(self.loss.slopes)
        if count > _MOST_FACET_PIECES:
            raise ValueError(
                f"The 'loss' parameter of convolve_vector must have at most {_MOST_FACET_PIECES} "
                f"pieces in several directions that are not orthonormal. Got {count} instead. Use "
                "noisy gradient descent, which needs no smoothing."
            )

    @cached_property
    def _scales(self) -> tuple[Array, Array]:
        """Factors on the bandwidth and weights of the normal laws that make up the kernel."""
        if isinstance(self.kernel, GaussianKernel):
            return np.ones(1), np.ones(1)
        if isinstance(self.kernel, MixtureKernel):
            return np.array(self.kernel.widths), np.array(self.kernel.weights)
        shape = (self.loss.outputs + 1) / 2
        left = math.floor((-26.0 / shape) / _LOG_STEP)
        logs = _LOG_STEP * np.arange(left, math.ceil(3.8 / _LOG_STEP))
        weights = np.exp(shape * logs - np.exp(logs) - gammaln(shape))
        return np.sqrt(2.0 * np.exp(logs)), weights / weights.sum()

    @cached_property
    def smoothness(self) -> float:
        """``W p / h``: diameter of the slopes times the largest density of a coordinate, over
        the bandwidth.
        """
        factors, weights = self._scales
        peak = GaussianKernel().peak * float(weights @ (1.0 / factors))
        return self.loss.diameter * peak / self.bandwidth

    @cached_property
    def approximation_gap(self) -> float:
        """``L h E||v||``, and for pieces at most ``h max ||a_p - a_1|| E max_p normal``: the
        smaller bound.
        """
        factors, weights = self._scales
        mean = float(weights @ factors)
        size = self.loss.outputs
        length = math.sqrt(2) * math.exp(gammaln((size + 1) / 2) - gammaln(size / 2))
        return self.bandwidth * mean * min(self.loss.lipschitz, self.loss.diameter) * length

    @cached_property
    def gradient_error(self) -> float:
        r"""Bound the error of the convolved loss's ``gradient``: the rule's, with a bound M of the
        integrands.

        With ``(1 - exp(-x/2)) / x = int_0^{1/2} exp(-x t) dt`` and
        ``E(r) = sqrt(2/pi) int_0^1 exp(-r^2 t^2 / 2) dt`` both integrands are at most
        ``reach e^{b^2/2} / 2`` there. Every edge adds that, and 1e-14 for what lies beyond the
        reach and for rounding, times its facet's jump.
        """
        facets = self._convolved_shape[0]
        panels = math.ceil(2 * _FACET_REACH / _PANEL)
        edge = panels * _convolution_panel_error(_FACET_NODES, 1, 0.0, _FACET_REACH / 2) + 1e-14
        jumps = facets.jumps[facets.edges[:, 0].astype(int)]
        return float(jumps.sum()) * edge / (2 * math.pi)

    @cached_property
    def _convolved_shape(self) -> tuple[MaxAffineFacets, Array, Array, Array, float]:
        """Facets of the convolved loss, basis, shared slope, and mean slope and offset at
        infinity.
        """
        if isinstance(self.loss, Bowl):
            signs = self.loss.sign_vectors
            slopes = np.vstack([np.zeros(self.loss.size), signs])
            offsets = np.append(0.0, -np.ones(len(signs)))
        else:
            slopes = np.array(self.loss.slopes)
            offsets = np.array(self.loss.offsets)
        shared = slopes[0]
        _, sizes, axes = np.linalg.svd(slopes - shared, full_matrices=False)
        basis = axes[: max(2, int((sizes > 1e-12 * sizes[0]).sum()))].T
        inner = (slopes - shared) @ basis
        facets = find_max_affine_facets(inner, offsets)
        # Far out in the middle of a cell the slope is that of the cell: what facets leave there is
        # the rest.
        directions = np.random.default_rng(0).normal(size=(1000, basis.shape[1]))
        ranked = np.sort(directions @ inner.T / np.linalg.norm(directions, axis=1)[:, None], axis=1)
        direction = directions[int(np.argmax(ranked[:, -1] - ranked[:, -2]))]
        piece = int(np.argmax(inner @ direction))
        far = 1e6 * (1 + np.abs(facets.offsets).max()) * direction[None] / np.linalg.norm(direction)
        slope, constant, _, _ = _convolved_facet_sums(far, np.ones(1), facets)
        return facets, basis, shared, inner[piece] - slope[0], float(offsets[piece] - constant[0])

    def _convolved_parts(
        self, u: Array, level: Array | None, order: int
    ) -> tuple[Array, Array, Array]:
        facets, basis, shared, outer, height = self._convolved_shape
        # A level below 0 is never reached by the norm: the bowl is then the norm, shifted.
        bowl = isinstance(self.loss, Bowl)
        levels = np.zeros(len(u)) if level is None else np.maximum(level, 0.0)
        scale = levels if bowl else np.ones(len(u))
        x = transform_block(u, basis)
        value = block_margins(u, shared)
        gradient = np.zeros_like(x)
        hessian = np.zeros((*x.shape, x.shape[1]))
        for factor, weight in zip(*self._scales, strict=True):
            h = self.bandwidth * factor
            slopes, constants, heights, bends = _convolved_facet_sums(x / h, scale / h, facets)
            slopes += outer
            value += weight * (
                (slopes * x).sum(axis=1) + scale * (height + constants) + h * heights
            )
            gradient += weight * slopes
            hessian += (weight / h) * bends
        if bowl and level is not None:
            value += levels - level
        return value, shared + transform_block(gradient, basis.T), basis @ hessian @ basis.T


def _convolved_facet_sums(
    x: Array, scale: Array, facets: MaxAffineFacets
) -> tuple[Array, Array, Array, Array]:
    from dpconvex.smoothing.compiled_integrals import facet_integral_sums

    n, size = x.shape
    x = np.ascontiguousarray(x)
    slopes = np.empty((n, size))
    bends = np.empty((n, size, size))
    constants = np.empty(n)
    heights = np.empty(n)
    rule = np.polynomial.legendre.leggauss(_FACET_NODES)

    def part(rows: slice) -> None:
        facet_integral_sums(
            x[rows],
            scale[rows],
            *facets,
            _FACET_REACH,
            _PANEL,
            *rule,
            slopes[rows],
            constants[rows],
            heights[rows],
            bends[rows],
        )

    _run_blocks(part, n, _FACET_BLOCK)
    return slopes, constants, heights, bends


@dataclass(frozen=True)
class SmoothedL1(ConvolvedVectorLoss):
    """``sum_j E|u_j + h v_j|``, plus the link where there is one: closed forms for every kernel.

    Only the law of one coordinate of the kernel enters, its `marginal_kernel`.
    """

    loss: L1Norm | L1WithLink
    kernel: Kernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check_convolution((L1Norm, L1WithLink))

    @cached_property
    def _law(self) -> Kernel:
        return marginal_kernel(self.kernel)

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
        return np.asarray(
            value if self.link is None else value + link_parts(self.link, u[:, -1])[0]
        )

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``2 cdf(u_j / h) - 1``, and the slope of the link."""
        slopes: Array = 2.0 * self._law.cdf(u / self.bandwidth) - 1.0
        if self.link is not None:
            slopes[:, -1] = link_parts(self.link, u[:, -1])[1]
        return slopes

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Diagonal, ``2 pdf(u_j / h) / h``."""
        bends = (2.0 / self.bandwidth) * self._law.pdf(u / self.bandwidth)
        if self.link is not None:
            bends[:, -1] = link_parts(self.link, u[:, -1])[2]
        return np.asarray(bends[:, :, None] * np.eye(u.shape[1]))


@dataclass(frozen=True)
class SmoothedProfile(ConvolvedVectorLoss):
    """A maximum of affine pieces that differ along one direction only (two pieces always do):
    closed forms.

    ``g(u) = <a_1, u> + c(<d, u>)`` with a kinked ``c`` of one variable; the kernel acts along d.
    """

    loss: PiecewiseLinear
    kernel: Kernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check_convolution((PiecewiseLinear,))
        if self.loss.profile is None:
            raise ValueError(
                "The 'loss' parameter of SmoothedProfile must have slopes that differ along one "
                "direction. Use convolve_vector."
            )

    @cached_property
    def _curve(self) -> tuple[ConvolvedLoss, Array, Array]:
        """``c_h``, d and a_1."""
        assert self.loss.profile is not None, "checked at construction"
        shape, axis = self.loss.profile
        base = KinkedLoss(shape.knots, shape.slopes, shape.height)
        return (
            ConvolvedLoss(base, marginal_kernel(self.kernel), self.bandwidth),
            axis,
            np.array(self.loss.slopes[0]),
        )

    @cached_property
    def smoothness(self) -> float:
        """``sup c_h''``."""
        return self._curve[0].smoothness

    @cached_property
    def approximation_gap(self) -> float:
        """That of the profile."""
        return self._curve[0].approximation_gap

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``<a_1, u> + c_h(<d, u>)`` of every row."""
        curve, axis, shared = self._curve
        return np.asarray(block_margins(u, shared) + curve.value_at(block_margins(u, axis)))

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``a_1 + c_h' d``."""
        curve, axis, shared = self._curve
        return shared + np.multiply.outer(curve.slope_at(block_margins(u, axis)), axis)

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """``c_h'' d d^T``."""
        curve, axis, _ = self._curve
        return np.multiply.outer(curve.curvature_at(block_margins(u, axis)), np.outer(axis, axis))


@dataclass(frozen=True)
class SmoothedMax(_IntegratedVectorLoss):
    r"""A maximum of affine pieces along orthonormal directions, or a bowl, under the Gaussian
    kernel.

    The pieces are ``<c, u> + max(floor, groups)`` with groups along orthonormal vectors ``d_k``
    (:class:`~dpconvex.losses.max_affine.CentredAffinePieces`), so that the K numbers
    ``<d_k, u + h v>`` are independent and normal. One-dimensional integrals by Gauss-Legendre
    panels give value, gradient and Hessian; records near one group only take closed forms.
    """

    loss: PiecewiseLinear | Bowl
    kernel: GaussianKernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check_convolution((PiecewiseLinear, Bowl))
        if isinstance(self.loss, PiecewiseLinear) and len(self.loss.slopes) > _MOST_PIECES:
            raise ValueError(
                f"The 'loss' parameter of convolve_vector must have at most {_MOST_PIECES} pieces "
                f"in several directions. Got {len(self.loss.slopes)} instead."
            )
        if not isinstance(self.kernel, GaussianKernel):
            allowed = "Gaussian for pieces in several directions"
            remedy = "Use GaussianKernel()."
            raise parameter_error(
                "kernel", "convolve_vector", allowed, type(self.kernel).__name__, remedy
            )
        if not self.loss.orthonormal:
            raise ValueError(
                "The 'loss' parameter of SmoothedMax must have pieces along orthonormal "
                "directions. Use convolve_vector."
            )

    @cached_property
    def smoothness(self) -> float:
        """``W / (sqrt(2 pi) h)``, W the diameter of the slopes."""
        return self.loss.diameter * GaussianKernel().peak / self.bandwidth

    @cached_property
    def approximation_gap(self) -> float:
        """``h max_k slope_k sqrt(2 log(2 K)) >= sup (g_h - g)``: the mean of the largest of 2 K
        normal variables.
        """
        groups = self.loss.pieces.groups
        steepest = max(max(group.rise, group.fall) for group in groups)
        return self.bandwidth * steepest * math.sqrt(2 * math.log(2 * len(groups)))

    @cached_property
    def gradient_error(self) -> float:
        """Bound the error of the convolved maximum's ``gradient``: the rule's, and the tail's.

        Panels are measured in deviations of the slowest group. With an imaginary part of at most b
        deviations normal distribution functions and densities grow by at most ``e^{b^2/2}``. The
        tail beyond the reach adds ``4 K`` times its probability.
        """
        return self._convolution_rule_error(self._nodes)

    @cached_property
    def _nodes(self) -> int:
        """Nodes of a panel: the more groups, the steeper the products that are integrated."""
        return next((n for n in _NODES if self._convolution_rule_error(n) <= _FINE), _NODES[-1])

    def _convolution_rule_error(self, nodes: int) -> float:
        groups = self.loss.pieces.groups
        count = len(groups)
        slopes = [slope for group in groups for slope in (group.rise, group.fall) if slope > 0]
        panels = math.ceil(2 * _REACH * max(slopes) / (min(slopes) * _PANEL)) + 1
        rule = _convolution_panel_error(nodes, count, math.log(2), panels) * GaussianKernel().peak
        tail = 4 * count * float(ndtr(-_REACH))
        return math.sqrt(count) * max(slopes) * (rule + tail)

    def _convolution_integrals(
        self, u: Array, level: Array | None, order: int
    ) -> tuple[Array, Array, Array]:
        from dpconvex.smoothing.compiled_integrals import expected_max_integral

        pieces = self.loss.pieces
        t = transform_block(u, pieces.directions.T)
        n, count = t.shape
        floor = np.full(n, pieces.floor) if level is None else np.array(level, dtype=np.float64)
        value = np.empty(n)
        gradient = np.empty((n, count))
        hessian = np.empty((n, count, count))
        nodes, weights = np.polynomial.legendre.leggauss(self._nodes)
        lines = np.array(
            [[group.rise, group.high, group.fall, group.low] for group in pieces.groups]
        )
        rise, high, fall, low = lines.T.copy()

        def part(rows: slice) -> None:
            expected_max_integral(
                t[rows],
                floor[rows],
                rise,
                high,
                fall,
                low,
                self.bandwidth,
                _REACH,
                _PANEL,
                nodes,
                weights,
                order,
                value[rows],
                gradient[rows],
                hessian[rows],
            )

        _run_blocks(part, n, _BLOCK)
        return value, gradient, hessian

    def _convolved_parts(
        self, u: Array, level: Array | None, order: int
    ) -> tuple[Array, Array, Array]:
        """Convolve with the expected maximum m of x = D u: ``<c, u> + m``, ``c + D^T m'`` and
        ``D^T m'' D``.
        """
        levels = None
        if (
            self.uses_level
        ):  # one below 0 is never reached by the norm: the bowl is then the norm, shifted
            levels = np.zeros(len(u)) if level is None else np.maximum(level, 0.0)
        value, slopes, bends = self._convolution_integrals(u, levels, order)
        centre = np.array(self.loss.pieces.centre)
        directions = self.loss.pieces.directions
        value += block_margins(u, centre)
        value = value if level is None else value - level
        hessian = directions.T @ bends @ directions if order == 2 else bends
        return value, centre + transform_block(slopes, directions), hessian


def convolve_vector(loss: VectorLoss, kernel: Kernel, bandwidth: float) -> VectorLoss:
    """Smooth a kinked loss of a residual vector from above: ``g_h(u) = E g(u + bandwidth * v)``, v
    ~ kernel.

    The result is convex, has the loss's own Lipschitz constant, and lies above the loss by at most
    its ``approximation_gap``.

    Parameters
    ----------
    loss : L1Norm, L1WithLink, PiecewiseLinear or Bowl
        The loss to smooth.
    kernel : Kernel
        Of dimension m, or of dimension 1 for the product of m such laws. l1 norms take every
        kernel, and so do pieces that differ along one direction; pieces that turn in two or three
        directions, and the bowls of two and three residuals, take the Gaussian and the exponential
        kernel, and mixtures of ``GaussianKernel(m)`` of your own; pieces along orthonormal
        directions the Gaussian one.
    bandwidth : float
        Positive, in the units of the residuals.

    Privacy
    -------
    Lipschitz and smoothness are functions of loss, kernel and bandwidth alone: public if the
    bandwidth is.

    Notes
    -----
    Exact to rounding, whatever the angles between the slopes; the rest is refused: pieces that turn
    in four and more directions that are not orthonormal, bowls of four and five residuals, and for
    pieces in several directions kernels that are not radial, such as the Laplacian one. A refusal
    follows from loss, kernel and number of residuals, which are public, and comes when a
    certificate is asked for, before data are read: nothing about records can be learned from it.
    :func:`moreau_vector` smooths all of these from below, and noisy descent needs no smoothing.

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
        plain = loss.orthonormal and (
            isinstance(kernel, GaussianKernel) or loss.slope_dimension > 3
        )
        kind = SmoothedMax if plain else SmoothedFacets
        return kind(loss, kernel, bandwidth)  # type: ignore[arg-type]
    allowed = "L1Norm, L1WithLink, PiecewiseLinear or Bowl"
    raise parameter_error("loss", "convolve_vector", allowed, type(loss).__name__, kind=TypeError)
