r"""Convolution of maxima of affine functions that turn in two or three directions: exact for directions of any kind.

``g(u) = <a_1, u> + max_p (<c_p, x> + b_p)`` with ``x = B^T u`` for an orthonormal basis B of the span of the slopes'
differences. A radial kernel on R^m acts on x as its own law of r = 2 or 3 coordinates, and for the normal law

    g_h'  = sum_p a_p P(piece p is the largest at u + h v)
    g_h   = sum_p (<a_p, u> + b_p) P(p) + h sum_facets jump pdf(d) measure(facet)
    g_h'' = (1/h) sum_facets jump n n^T pdf(d) measure(facet)

with the probabilities and measures of :mod:`dpconvex.smoothing.facet_integrals`. The exponential kernel is a mixture of
normal laws, ``v = sqrt(2 G) normal`` with G of the law Gamma((m + 1)/2) (its characteristic function
``(1 + w^2)^{-(m+1)/2}`` is ``E exp(-G w^2)``), taken at the nodes of a trapezoidal rule in ``log G``. The mixture of
these nodes *is* the kernel that is used, so its constants are exact; gradients differ from those of the
exponential law by 1e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from dpconvex.engine.blocks import placed_rows, row_margins
from dpconvex.losses.facets import Facets, find_facets
from dpconvex.losses.structured import Bowl, PiecewiseLinear
from dpconvex.smoothing.kernels import ExponentialKernel, GaussianKernel
from dpconvex.smoothing.smoothed import Smoothed
from dpconvex.types import Array

__all__ = ["SmoothedFacets"]


_REACH = 8.5  # exp(-reach^2 / 2) is 2e-16
_PANEL = 3.0  # length of a panel in standard deviations
_NODES = 16
_MOST_PIECES = 40  # facets are looked for among triples
_BLOCK = 64  # records handed to a thread at a time
_LOG_STEP = 0.45  # of the mixture: the rule errs by exp(-pi^2 / step)


def mixture(kernel: ExponentialKernel | GaussianKernel, size: int) -> tuple[Array, Array]:
    """Return factors on the bandwidth and weights of the normal laws that make up a kernel in R^size."""
    if isinstance(kernel, GaussianKernel):
        return np.ones(1), np.ones(1)
    shape = (size + 1) / 2
    left = math.floor((-26.0 / shape) / _LOG_STEP)
    logs = _LOG_STEP * np.arange(left, math.ceil(3.8 / _LOG_STEP))
    weights = np.exp(shape * logs - np.exp(logs) - gammaln(shape))
    return np.sqrt(2.0 * np.exp(logs)), weights / weights.sum()


@dataclass(frozen=True)
class SmoothedFacets(Smoothed):
    """A maximum of affine pieces in two or three directions, or the bowl of three residuals; Gaussian or exponential.

    Build it with :func:`~dpconvex.smoothing.convolve_vector`.
    """

    loss: PiecewiseLinear | Bowl
    kernel: GaussianKernel | ExponentialKernel
    bandwidth: float

    def __post_init__(self) -> None:
        self._check((PiecewiseLinear, Bowl))
        if not isinstance(self.kernel, (GaussianKernel, ExponentialKernel)):
            raise ValueError(
                "The 'kernel' parameter of convolve_vector must be Gaussian or exponential for pieces that turn in "
                f"several directions. Got {type(self.kernel).__name__} instead. Use GaussianKernel() or "
                "ExponentialKernel(m)."
            )
        if isinstance(self.kernel, ExponentialKernel) and self.kernel.dim != self.loss.outputs:
            raise ValueError(
                f"The 'kernel' parameter of convolve_vector must have dim={self.loss.outputs}: a product of "
                f"exponential laws is the Laplacian kernel. Got {self.kernel!r} instead."
            )
        if self.loss.turns > 3:
            raise ValueError(
                "The 'loss' parameter of convolve_vector must turn in at most three directions unless they are "
                f"orthonormal. Got {self.loss.turns} instead. Use noisy gradient descent, which needs no smoothing."
            )
        count = 2**self.loss.size + 1 if isinstance(self.loss, Bowl) else len(self.loss.slopes)
        if count > _MOST_PIECES:
            raise ValueError(
                f"The 'loss' parameter of convolve_vector must have at most {_MOST_PIECES} pieces in several "
                f"directions that are not orthonormal. Got {count} instead. Use noisy gradient descent, which needs no "
                "smoothing."
            )

    @cached_property
    def _scales(self) -> tuple[Array, Array]:
        return mixture(self.kernel, self.loss.outputs)

    @cached_property
    def smoothness(self) -> float:
        """``W p / h``: diameter of the slopes times the largest density of a coordinate, over the bandwidth."""
        factors, weights = self._scales
        peak = GaussianKernel().peak * float(weights @ (1.0 / factors))
        return self.loss.diameter * peak / self.bandwidth

    @cached_property
    def approximation_gap(self) -> float:
        """``L h E||v||``, and for pieces at most ``h max ||a_p - a_1|| E max_p normal``: the smaller bound."""
        factors, weights = self._scales
        mean = float(weights @ factors)
        size = self.loss.outputs
        length = math.sqrt(2) * math.exp(gammaln((size + 1) / 2) - gammaln(size / 2))
        return self.bandwidth * mean * min(self.loss.lipschitz, self.loss.diameter) * length

    @cached_property
    def gradient_error(self) -> float:
        r"""Bound on the norm of the error of ``gradient``.

        A Gauss-Legendre rule of n nodes on [-1, 1] errs by at most ``64 M r^{-2n} / (15 (1 - r^{-2}))`` for a function
        bounded by M in the ellipse of radius r; there s has an imaginary part of at most ``b = H (r - 1/r) / 2`` on a
        panel of half-length H. With ``(1 - exp(-x/2)) / x = int_0^{1/2} exp(-x t) dt`` and
        ``E(r) = sqrt(2/pi) int_0^1 exp(-r^2 t^2 / 2) dt`` both integrands are at most ``reach e^{b^2/2} / 2`` there.
        Every edge adds that, and 1e-14 for what lies beyond the reach and for rounding, times its facet's jump.
        """
        facets, half = self._shape[0], _PANEL / 2
        radius = np.linspace(1.05, 12.0, 400)
        imaginary = half * (radius - 1 / radius) / 2
        log_bound = imaginary**2 / 2 - 2 * _NODES * np.log(radius)
        log_bound += np.log(64 / 15 / (1 - radius**-2) * half * _REACH / 2)
        panels = math.ceil(2 * _REACH / _PANEL)
        edge = panels * math.exp(float(log_bound.min())) + 1e-14
        jumps = facets.jumps[facets.edges[:, 0].astype(int)]
        return float(jumps.sum()) * edge / (2 * math.pi)

    @cached_property
    def _shape(self) -> tuple[Facets, Array, Array, Array, float]:
        """Facets, basis, shared slope, and mean slope and offset at infinity."""
        slopes, offsets = self._pieces()
        shared = slopes[0]
        _, sizes, axes = np.linalg.svd(slopes - shared, full_matrices=False)
        basis = axes[: max(2, int((sizes > 1e-12 * sizes[0]).sum()))].T
        inner = (slopes - shared) @ basis
        facets = find_facets(inner, offsets)
        # Far out in the middle of a cell the slope is that of the cell: what facets leave there is the rest.
        directions = np.random.default_rng(0).normal(size=(1000, basis.shape[1]))
        ranked = np.sort(directions @ inner.T / np.linalg.norm(directions, axis=1)[:, None], axis=1)
        way = directions[int(np.argmax(ranked[:, -1] - ranked[:, -2]))]
        piece = int(np.argmax(inner @ way))
        place = 1e6 * (1 + np.abs(facets.places).max()) * way[None] / np.linalg.norm(way)
        slope, constant, _, _ = _sums(place, np.ones(1), facets)
        return facets, basis, shared, inner[piece] - slope[0], float(offsets[piece] - constant[0])

    def _pieces(self) -> tuple[Array, Array]:
        if isinstance(self.loss, Bowl):
            bits = (np.arange(2**self.loss.size)[:, None] >> np.arange(self.loss.size)) & 1
            signs = 1.0 - 2.0 * bits
            return np.vstack([np.zeros(self.loss.size), signs]), np.append(0.0, -np.ones(len(signs)))
        return np.array(self.loss.slopes), np.array(self.loss.offsets)

    def _parts(self, u: Array, level: Array | None) -> tuple[Array, Array, Array]:
        facets, basis, shared, outer, height = self._shape
        # A level below 0 is never reached by the norm: the bowl is then the norm, shifted.
        bowl = isinstance(self.loss, Bowl)
        levels = np.zeros(len(u)) if level is None else np.maximum(level, 0.0)
        stretch = levels if bowl else np.ones(len(u))
        x = placed_rows(u, basis)
        value, gradient = row_margins(u, shared), np.zeros_like(x)
        hessian = np.zeros((*x.shape, x.shape[1]))
        for factor, weight in zip(*self._scales, strict=True):
            h = self.bandwidth * factor
            slopes, constants, heights, bends = _sums(x / h, stretch / h, facets)
            slopes += outer
            value += weight * ((slopes * x).sum(axis=1) + stretch * (height + constants) + h * heights)
            gradient += weight * slopes
            hessian += (weight / h) * bends
        if bowl and level is not None:
            value += levels - level
        return value, shared + placed_rows(gradient, basis.T), basis @ hessian @ basis.T

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``g_h(u)`` of every row."""
        return self._parts(u, level)[0]

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``sum_p a_p P(p)`` of every row."""
        return self._parts(u, level)[1]

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Densities on facets."""
        return self._parts(u, level)[2]

    def derivatives(self, u: Array, level: Array | None = None) -> tuple[Array, Array]:
        """Gradient and Hessian from one pass."""
        return self._parts(u, level)[1:]


def _sums(x: Array, scale: Array, facets: Facets) -> tuple[Array, Array, Array, Array]:
    from dpconvex.engine.threads import available_cores, in_threads
    from dpconvex.smoothing.facet_integrals import facet_sums

    n, size = x.shape
    x = np.ascontiguousarray(x)
    slopes, bends = np.empty((n, size)), np.empty((n, size, size))
    constants, heights = np.empty(n), np.empty(n)
    rule = np.polynomial.legendre.leggauss(_NODES)
    parts = (facets.normals, facets.places, facets.jumps, facets.arcs, facets.edges)

    def part(start: int) -> None:
        rows = slice(start, start + _BLOCK)
        facet_sums(
            x[rows], scale[rows], *parts, _REACH, _PANEL, *rule,
            slopes[rows], constants[rows], heights[rows], bends[rows],
        )  # fmt: skip

    list(in_threads(part, range(0, n, _BLOCK), available_cores()))
    return slopes, constants, heights, bends
