r"""Questions about records that may be answered with noise, and how far neighbouring tables can
move each answer.

A query is data: a kind, a bound on what one record adds, and the number of its coordinates. One
lemma per kind gives its sensitivity; a certificate states the queries of a run with their noise,
and

    mu^2 = sum over queries of uses (sensitivity / std)^2

is the whole proof of every mechanism that releases sums. All lemmas assume that what a record adds
is a function of that record, of public numbers and of earlier answers alone;
:mod:`dpconvex.core.private_rows` sees to that.

What is counted, summed or multiplied with a row is data, too, never a function of the caller:
statistics and scores by their names, slopes and factors of losses of the library, smoothed or not,
or of the loss that the certificate states.

An octave is an interval from one power of two to the next, a signed octave one of numbers or of
their negatives: histograms of signed octaves find a scale where bounds are loose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core import certificate as certificates
from dpconvex.core.block_products import limit_slopes
from dpconvex.core.bounds import Bounds
from dpconvex.core.calibration import calibrated_release_scale
from dpconvex.core.certificate import (
    Certificate,
    CertificateError,
    CertificateProof,
    CertifiedNoise,
)
from dpconvex.core.convolution import ConvolvedLoss
from dpconvex.core.description import describe, rebuild_description
from dpconvex.core.guarantees import Guarantee, compose_guarantee
from dpconvex.core.pointwise_losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    PointwiseLoss,
    ReLU,
    SoftThreshold,
)
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.core.several_margin_losses import (
    CrammerSinger,
    DiscreteHazard,
    ProportionalOdds,
    SeveralMarginLoss,
    Softmax,
)
from dpconvex.core.smoothing_kernels import (
    EpanechnikovKernel,
    GaussianKernel,
    LaplacianKernel,
    LogisticKernel,
    UniformKernel,
)
from dpconvex.core.summation import (
    MANY_ROWS,
    most_summed_rows,
    relative_rounding_error,
    summation_rounding_error,
)
from dpconvex.core.tweedie_loss import Tweedie
from dpconvex.types import Array

KINDS = ("count", "histogram", "vector", "second moments", "limited sum")
STATISTICS = ("target", "label", "length", "residual", "margin", "distance", "slope")
SCORES = ("residual",)

_ROUNDING_SHARE = 1e-3  # of a vector's sensitivity: what rounding of its sum may add to it

_REGISTERED = (Absolute, Hinge, Huber, Logistic, Pinball, ReLU, SoftThreshold, Tweedie)
_SEVERAL = (CrammerSinger, DiscreteHazard, ProportionalOdds, Softmax)
_KERNELS = (EpanechnikovKernel, GaussianKernel, LaplacianKernel, LogisticKernel, UniformKernel)
# of slopes: products with lengths neither under- nor overflow
_SMALLEST = 1e-100
_LARGEST = 1e100
#: How rows of norm l count beyond the norm c: ``min(1, c / l)``, its square, or with slopes limited
#: to ``c / l`` times the largest one.
WEIGHTINGS = ("weight", "square", "clip")
QueryLoss = PointwiseLoss | Tweedie


@dataclass(frozen=True)
class Query:
    r"""A sum query of bounded sensitivity (count, histogram, vector, second moments, limited sum).

    Parameters
    ----------
    kind : {"count", "histogram", "vector", "second moments", "limited sum"}
        What is summed over records; see Notes.
    bound : float, default=1
        Bound on what one record adds, in the unit that the question names; for a histogram the
        number of bins that every record is in, one for each column.
    dimension : int, default=1
        Numbers per answer.

    Notes
    -----
    Privacy: let k be the number of rows that change at once, and c = 2 under replace-one and 1
    under add-or-remove-one. Weights of a row lie in [0, 1], those of a person's rows sum to at most
    1, and an ignored row has the weight 0: what a record adds lies in the convex hull of 0 and of
    what a whole row adds, so that every bound below holds for rows, people and ignored rows alike.

    ============== ================================================= ==============================
    kind           one record adds                                   sensitivity
    ============== ================================================= ==============================
    count          a number in ``[-t, 1 - t]``, ``0 <= t <= 1``      ``k``
    histogram      1 in one bin of each of b columns                 ``k sqrt(c b)``
    vector         a vector of norm at most b                        ``k c b`` and rounding
    second moments ``v v^T`` with ``||v|| <= b``, Frobenius norm     ``k sqrt(c) b^2`` and rounding
    limited sum    a number in ``[-b, b]``                           ``k c b`` and rounding
    ============== ================================================= ==============================

    Second moments: ``||v v^T - u u^T||^2 = ||v||^4 + ||u||^4 - 2 (u . v)^2 <= 2 b^4``. By label,
    the matrices of the labels stacked, the same holds without the last term. Rounding: two computed
    sums err everywhere, see :func:`largest_query_cancellation` and
    :func:`dpconvex.core.summation.summation_rounding_error`.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import LinearBounds
    >>> bounds = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> Query("count").sensitivity(bounds)
    1.0
    >>> round(Query("histogram", 3, 48).sensitivity(bounds), 4)
    2.4495
    """

    kind: str
    bound: float = 1.0
    dimension: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(
                f"The kind of a query must be one of {list(KINDS)}. Got {self.kind!r} instead."
            )
        if not (type(self.bound) in (int, float) and 0 < self.bound < math.inf):
            raise ValueError(
                f"The bound of a query must be a finite number above 0. Got {self.bound!r} instead."
            )
        if self.kind == "count" and (self.bound, self.dimension) != (1, 1):
            raise ValueError("A count is one number, to which a record adds at most 1.")
        if type(self.dimension) is not int or self.dimension < 1:
            raise ValueError(
                f"The dimension of a query must be a positive integer. Got {self.dimension!r} "
                "instead."
            )

    @classmethod
    def moments(cls, size: int) -> Query:
        """Return the query of second moments of vectors of this size and of norm at most 1."""
        return cls("second moments", 1.0, size * (size + 1) // 2)  # entries of a symmetric matrix

    def sensitivity(self, bounds: Bounds) -> float:
        """Return the query's sensitivity: how far, in l2 norm, its sums over two neighbouring
        tables are apart.
        """
        many = bounds.rows_per_person
        changed = bounds.changed_records
        if self.kind == "count":
            # The product of a level with the sum of weights, and the difference, are rounded once
            # each.
            number = most_summed_rows(bounds.n_samples, bounds.neighbors)
            return many * (1.0 + (number * 2.0**-51 if bounds.ignored_rows else 0.0))
        if self.kind == "histogram":
            return many * math.sqrt(changed * self.bound)
        if self.kind == "second moments":
            size = most_summed_rows(bounds.n_samples, bounds.neighbors)
            error = summation_rounding_error(
                size, bounds.dimension, self.bound**2, people=bounds.people
            )
            return many * math.sqrt(changed) * self.bound**2 + 2 * error
        size = bounds.dimension if self.kind == "vector" else 1
        # A thousandth, or what cannot be avoided; blocks are as long as the size of what is added
        # allows.
        share = max(_ROUNDING_SHARE, 1 / _allowed_query_cancellation(bounds, size))
        return many * changed * self.bound * (1 + share)

    def calibrated_noise(self, bounds: Bounds, mu: float, uses: int = 1) -> CertifiedNoise:
        """Return the Gaussian noise with which so many answers together are mu-Gaussian DP."""
        moved = self.sensitivity(bounds)
        std = calibrated_release_scale(mu / math.sqrt(uses), moved, self.dimension)
        return CertifiedNoise(
            "gaussian",
            std,
            moved,
            self.dimension,
            "sum",
            uses,
            query=self.kind,
            record_bound=self.bound,
        )


def largest_query_cancellation(bounds: Bounds) -> float:
    r"""Return how large ``K = || |M| |M^-1| ||`` may be for a map M that is applied to sums of
    vectors.

    A sum errs, coordinate by coordinate, by at most ``e = k u / (1 - k u)`` times the sum of the
    terms' sizes, and so does its product with M. A record adds ``x = M^-1 u`` with ``||u|| <= b``,
    so the terms' sizes, mapped by ``|M|``, have norm at most ``K b``, and the computed sum of n
    records errs by at most ``n e K b``. Two neighbours' sums move apart by twice that, which is at
    most a share r of ``c b``, that of :meth:`Query.sensitivity`, for ``K <= r c / (2 n e)``.
    """
    allowed = _allowed_query_cancellation(bounds, bounds.dimension)
    return max(_ROUNDING_SHARE, 1 / allowed) * allowed


def _allowed_query_cancellation(bounds: Bounds, size: int) -> float:
    """Return ``c / (2 n e)`` for a query's sums, for every number of rows that rounding is paid
    for.
    """
    number = most_summed_rows(bounds.n_samples, bounds.neighbors)
    rows = MANY_ROWS if bounds.people else number
    error = relative_rounding_error(rows, size, bounds.most_additions(rows))
    return bounds.changed_records / (2 * number * error)


def pack_query_matrix(matrix: Array) -> Array:
    """Return the entries on and above the diagonal, those above times ``sqrt(2)``: a vector of the
    same norm.

    Released as one vector, noise of std s gives the matrix noise of std s on its diagonal and
    ``s / sqrt(2)`` beside it.
    """
    rows, columns = np.triu_indices(matrix.shape[0])
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2)))


def unpack_query_matrix(vector: Array, size: int) -> Array:
    """Undo :func:`pack_query_matrix`."""
    rows, columns = np.triu_indices(size)
    matrix = np.empty((size, size))
    matrix[rows, columns] = vector / np.where(rows == columns, 1.0, math.sqrt(2))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def prove_queries(certificate: Certificate) -> CertificateProof:
    """Compose the stated queries: the one proof of every mechanism that releases sums and nothing
    else.

    The sensitivity of every query follows from its kind and bound;
    :class:`~dpconvex.core.private_rows.PrivateRows` answers no query that the certificate does not
    state.
    """
    bounds = certificate.bounds
    terms = list(certificate.noise.items())
    if not terms:
        raise CertificateError("The certificate states no releases.")
    for name, term in terms:
        query = Query(term.query, term.record_bound, term.dimension)
        certificate.term(name, query.sensitivity(bounds), query.dimension, "sum", term.releases)
    pure = {term.distribution for _, term in terms} == {"l2-laplace"}
    problems = certificate.problems
    compose = (
        certificates.compose_certified_pure if pure else certificates.compose_certified_gaussian
    )
    total: Guarantee = compose(term for _, term in terms)
    total = total if problems == 1 else compose_guarantee(total, problems)
    theorem = (
        f"{'C' if pure else 'Gaussian DP c'}omposition of released sums, "
        f"{bounds.neighbors.replace('_', '-')}"
    )
    return CertificateProof(total, theorem)


@dataclass(frozen=True)
class QueryStatistic:
    """A number of every record that may be counted.

    By name: the target; -1 for a positive label and 0 for others; the base-2 logarithm of a row's
    norm ("length") in coordinates; residual ``y - z`` or margin ``z = x . theta`` at public or
    released coefficients theta of mapped rows; the base-2 logarithm of the distance
    ``|z - centre|``; the derivative in z of a registered loss there ("slope").
    """

    name: str
    theta: ArrayLike | None = None
    centre: float = 0.0
    coordinates: Coordinates | None = None
    loss: QueryLoss | None = None


@dataclass(frozen=True)
class QueryScore:
    """A number of every record, at most 1 in size, that may be summed; theta and limit are public
    or released.

    "residual" is ``clip((y - z) / limit, -1, 1)`` with the margin ``z = x . theta``.
    """

    name: str
    theta: ArrayLike
    limit: float


@dataclass(frozen=True)
class QuerySlope:
    """Derivative ``c'(u)`` of the loss in its argument (``u = y - z`` or ``y z``), less ``offset``;
    multiplies the row.

    Sums are gradients in theta: of ``-(c' - offset) x``, or of ``y (c' - offset) x``. Without a
    loss the slope is 1, or the label (``by_label``); ``weighting`` says how long rows count, see
    `WEIGHTINGS`. Larger slopes than ``limit`` count as the limit.
    """

    loss: QueryLoss | None
    offset: float = 0.0
    weighting: str = "weight"
    by_label: bool = False
    limit: float = math.inf

    @property
    def largest(self) -> float:
        """Largest size of the query's slope."""
        if self.loss is None:
            return 1.0
        if not self.offset:
            return min(float(self.loss.lipschitz), self.limit)
        low, high = self.loss.slope_range
        return min(max(abs(low - self.offset), abs(high - self.offset)), self.limit)

    def __call__(self, y: Array, z: Array, w: Array) -> tuple[Array]:
        """Return the weighted slopes of a block, none beyond its bound; what is not a number
        counts as 0.
        """
        if self.loss is None:
            return (w * np.clip(y, -1.0, 1.0) if self.by_label else w,)
        slopes = self.loss.gradient(y, z)
        if self.offset:
            slopes = (
                slopes + self.offset if self.loss.kind == "residual" else slopes - self.offset * y
            )
        return (limit_slopes(slopes, self.largest, w, self.weighting == "clip"),)


@dataclass(frozen=True)
class QuerySlopes:
    r"""Slopes ``s_ij`` of a loss of several margins; ``weighting`` as in `WEIGHTINGS`.

    With its row u in the coordinates, a record adds ``s_i u_i^T`` (lift "separate"), of norm
    ``||s_i|| ||u_i||``, or ``(s_i, (sum_j s_ij) u_i)`` ("common"), of norm at most
    ``sqrt(||s_i||^2 + (sum_j s_ij)^2 ||u_i||^2)``. One factor shortens it to the bound: the
    vector's lemma. Sums err margin by margin as one vector's, and so does the whole.
    """

    loss: SeveralMarginLoss
    weighting: str = "clip"


@dataclass(frozen=True)
class QueryFactor:
    """The number of every record by whose square second moments are weighted.

    By kind, with L and B the loss's bounds: "slope" ``w l' / L``, "curvature" ``sqrt(w l'' / B)``,
    or "inside", ``sqrt(w)`` for residuals of at most ``width`` and 0 for others. ``weighting`` is
    "weight" or "square". With a loss, ``width`` above 0 limits slopes: larger ones count as it, in
    place of L, and curvatures there as 0; curvatures larger than ``most`` count as it, in place of
    B.
    """

    kind: str
    loss: QueryLoss | None = None
    width: float = 0.0
    weighting: str = "weight"
    most: float = math.inf

    def __call__(self, y: Array, z: Array, w: Array) -> Array:
        """Return the factors of a block."""
        if self.loss is None:
            return np.where(np.abs(y - z) <= self.width, np.sqrt(w), 0.0)
        if self.kind == "slope":
            largest = min(float(self.loss.lipschitz), self.width or math.inf)
            return np.asarray(w * np.clip(self.loss.gradient(y, z), -largest, largest) / largest)
        most = min(float(self.loss.smoothness), self.most)
        curvatures = np.asarray(np.sqrt(w * np.minimum(self.loss.curvature(y, z), most) / most))
        return (
            np.where(np.abs(self.loss.gradient(y, z)) <= self.width, curvatures, 0.0)
            if self.width
            else curvatures
        )


def registered_query_slope(slope: QuerySlope, stated: object) -> QuerySlope:
    """Return a slope made anew from plain data, or raise: no subclass, no function of the
    caller.
    """
    if slope.weighting not in WEIGHTINGS:
        raise ValueError(
            f"The weighting of a slope must be one of {list(WEIGHTINGS)}. Got {slope.weighting!r} "
            "instead."
        )
    loss = None if slope.loss is None else registered_query_loss(slope.loss, stated)
    weighting = WEIGHTINGS[
        WEIGHTINGS.index(slope.weighting)
    ]  # text of the caller's own may equal anything
    own = QuerySlope(loss, float(slope.offset), weighting, bool(slope.by_label), float(slope.limit))
    if not _SMALLEST <= own.largest <= _LARGEST:
        raise ValueError("The slope of a released sum must be bounded. Use Huber(width).")
    return own


def registered_query_slopes(slopes: QuerySlopes) -> QuerySlopes:
    """Return slopes of several margins made anew from plain data, or raise."""
    if type(slopes.loss) not in _SEVERAL:
        raise TypeError(
            "The slopes of a released sum must be those of a loss of several margins of "
            f"dpconvex.losses. Got {type(slopes.loss).__name__} instead."
        )
    weighting = registered_query_slope(QuerySlope(None, weighting=slopes.weighting), None).weighting
    return QuerySlopes(rebuild_description(describe(slopes.loss)), weighting)


def registered_query_factor(factor: QueryFactor, stated: object) -> QueryFactor:
    """Return a factor made anew from plain data, or raise."""
    if factor.weighting not in ("weight", "square"):
        raise ValueError(
            f"The weighting of a factor must be 'weight' or 'square'. Got {factor.weighting!r} "
            "instead."
        )
    weighting = WEIGHTINGS[WEIGHTINGS.index(factor.weighting)]
    if factor.kind == "inside":
        return QueryFactor("inside", None, float(factor.width), weighting)
    if factor.kind not in ("slope", "curvature") or factor.loss is None:
        raise ValueError(
            f"A factor must be the slope or curvature of a loss, or 'inside'. Got {factor.kind!r} "
            "instead."
        )
    loss = registered_query_loss(factor.loss, stated)
    return QueryFactor(str(factor.kind), loss, float(factor.width), weighting, float(factor.most))


def registered_query_loss(loss: QueryLoss, stated: object) -> QueryLoss:
    """Return a loss of the library made anew from its numbers, or the one that the certificate
    states.
    """
    if loss is stated:
        return loss
    inner = loss.loss if type(loss) is ConvolvedLoss else loss
    if type(loss) is ConvolvedLoss and type(loss.kernel) not in _KERNELS:
        raise TypeError(
            "The kernel of a released sum's slope must be one of dpconvex.smoothing. "
            f"Got {type(loss.kernel).__name__} instead."
        )
    if type(inner) not in _REGISTERED and inner is not stated:
        raise TypeError(
            "The slope of a released sum must be that of a loss of dpconvex.losses or of the "
            f"certificate. Got {type(inner).__name__} instead."
        )
    if type(inner) not in _REGISTERED:
        own = cast(ConvolvedLoss, loss)
        kernel = rebuild_description(describe(own.kernel))
        return ConvolvedLoss(cast(PointwiseLoss, inner), kernel, float(own.bandwidth))
    return cast(QueryLoss, rebuild_description(describe(loss)))
