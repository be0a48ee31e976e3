"""Bounds of losses of residual vectors, whose records are matrices, and of objectives that a
user declares himself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.core.bounds import EPS, FINEST, LINEAR_BEYOND, ROUNDINGS, Bounds
from dpconvex.core.checks import check_number
from dpconvex.core.description import Facts
from dpconvex.core.summation import sum_depth
from dpconvex.losses import VectorLoss

# Records of matrices that are summed at a time: fewer roundings in a row than in one long sum.
SUMMED_RECORDS = 4096


@dataclass(frozen=True)
class StructuredBounds(Bounds, stated=True):
    r"""Public facts of a loss ``g(Y - A theta)``, or ``g(Y - A theta) + c(y - <z, theta>)`` with a
    link.

    Records satisfy ``||A|| <= operator_norm`` (spectral norm) and ``||z|| <= link_norm``, so that
    one record has::

        lipschitz  = operator_norm   * sup ||g'||  + link_norm   * sup |c'|
        smoothness = operator_norm^2 * sup ||g''|| + link_norm^2 * sup |c''|

    with ``sup ||g'|| = sqrt(m)`` for the l1 norm and the bowl and ``max_p ||a_p||`` for affine
    pieces. Every gradient of a record lies in the span of the rows of A, and of z: a fixed subspace
    of dimension ``rank``.

    Parameters
    ----------
    n_samples, n_features, alpha, neighbors
        As in :class:`~dpconvex.privacy.LinearBounds`.
    loss : VectorLoss
        The loss of a residual vector; smooth for objective perturbation.
    operator_norm, link_norm : float
        Bounds on the spectral norm of a record's matrix without the row of the link, and on that
        row; 0 without one.
    shared : m vectors of length d, optional
        A PUBLIC matrix that is A in every record: an l1-regularised generalised linear model. Its
        term is then the same for neighbours under replace-one and cancels from every difference of
        gradients and of Hessians, so that ``lipschitz = link_norm sup |c'|``,
        ``smoothness = link_norm^2 sup |c''|`` and ``rank = 1``: the noise is that of the link
        alone. In sum form the common term is convex, so the curvature that a changed record is
        compared with stays at least ``n alpha``. Under add-or-remove-one a record brings or takes
        its share of it: refused.

    Examples
    --------
    >>> from dpconvex.losses import L1Norm
    >>> from dpconvex.smoothing import GaussianKernel, convolve_vector
    >>> loss = convolve_vector(L1Norm(3), GaussianKernel(3), 0.5)
    >>> facts = StructuredBounds(1000, 30, loss, operator_norm=2.0, alpha=0.1)
    >>> round(facts.lipschitz, 6), round(facts.smoothness, 6), facts.rank
    (3.464102, 6.383076, 3)
    """

    n_samples: int
    n_features: int
    loss: VectorLoss
    operator_norm: float
    link_norm: float = 0.0
    alpha: float = 0.0
    neighbors: str = "replace_one"
    shared: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        owner = "StructuredBounds"
        self._check_bounds_fields()
        if not isinstance(self.loss, VectorLoss):
            raise self._wrong(
                "loss", "a loss of residual vectors such as L1Norm(3)", error=TypeError
            )
        self._check_positive("operator_norm")
        check_number(
            "link_norm", owner, self.link_norm, "a finite number of at least 0", 0, math.inf
        )
        if (self.loss.link is None) != (self.link_norm == 0):
            raise self._wrong("link_norm", "above 0 for a loss with a link and 0 otherwise")
        if self.shared is not None:
            self._check_shared_matrix()

    def _check_shared_matrix(self) -> None:
        """Raise unless the matrix that structured records share is public and of their size."""
        owner = "The 'shared' parameter of StructuredBounds must be"
        rows = self.loss.outputs - 1
        if self.loss.link is None or self.neighbors != "replace_one":
            raise ValueError(
                f"{owner} None unless the loss has a link and the relation is replace_one: only "
                "then is the shared term the same for neighbours."
            )
        matrix = np.array(self.shared, dtype=np.float64)
        wanted = (rows, self.n_features)
        if matrix.shape != wanted or not np.isfinite(matrix).all():
            raise ValueError(
                f"{owner} {rows} vectors of {wanted[1]} finite numbers. Got shape {matrix.shape} "
                "instead."
            )
        if np.linalg.norm(matrix, 2) > self.operator_norm * (1 + 1e-9):
            raise self._wrong("operator_norm", "at least the norm of the shared matrix")
        object.__setattr__(self, "shared", tuple(map(tuple, matrix.tolist())))

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have."""
        names = ("shared", "loss", "alpha", "n_features", "operator_norm", "link_norm")
        kind = "mean of losses of residual vectors"
        return self._facts(kind, *names, linear_term=False, divisor=self.n_samples)

    def most_additions(self, n_rows: int) -> int:
        """Return through how many additions a number passes where blocks of records are summed."""
        in_a_block = min(n_rows, SUMMED_RECORDS) * self.loss.outputs
        return in_a_block + sum_depth(-(-n_rows // SUMMED_RECORDS))

    @property
    def _link_constants(self) -> tuple[float, float]:
        """``link_norm sup |c'|`` and ``link_norm^2 sup |c''|``."""
        link = self.loss.link
        norm = self.link_norm
        return (
            (0.0, 0.0)
            if link is None
            else (norm * float(link.lipschitz), norm**2 * float(link.smoothness))
        )

    @property
    def lipschitz(self) -> float:
        """``operator_norm sup ||g'|| + link_norm sup |c'|``; the first part is 0 where its
        matrix is shared.
        """
        return self.whole_lipschitz if self.shared is None else self._link_constants[0]

    @property
    def whole_lipschitz(self) -> float:
        """Bound on the norm of one record's whole gradient, whether or not part of it is shared."""
        return self._link_constants[0] + self.operator_norm * float(self.loss.lipschitz)

    @property
    def smoothness(self) -> float:
        """``operator_norm^2 sup ||g''|| + link_norm^2 sup |c''|``; the first part is 0 where its
        matrix is shared.
        """
        whole = self.shared is None or not math.isfinite(self.loss.smoothness)
        return self.whole_smoothness if whole else self._link_constants[1]

    @property
    def whole_smoothness(self) -> float:
        """Bound on one record's whole curvature, whether or not part of it is shared."""
        return self.operator_norm**2 * float(self.loss.smoothness) + self._link_constants[1]

    @property
    def rank(self) -> int:
        """``min(rows of a record, d)``; 1 makes it a generalised linear model, and so does a
        shared matrix.
        """
        if self.shared is not None:
            return 1
        return min(int(self.loss.outputs), self.n_features)

    @property
    def longest(self) -> float:
        """Largest norm of any row of a record."""
        return max(self.operator_norm, self.link_norm)

    def solver_tolerance(self, linear_norm: float = 0.0) -> float:
        r"""Return the public bound on a structured ``||gradient of F||``.

        ``max(1e-10 L, eps ((d + 64) kappa n (L + t) + 64 m d L)) + 4 operator_norm e``: as for
        linear models, with room for the roundings of dot products of length d, and
        ``e = gradient_error`` of the loss's quadrature rule; ``max(10, 2e6 / n)`` times that where
        the number of records is private.
        """
        curvature = (
            self.whole_smoothness / self.alpha if self.alpha > 0 else math.inf
        )  # kappa n, whole
        condition = (curvature if math.isfinite(curvature) else 0.0) * (
            self.whole_lipschitz + linear_norm
        )
        size = ROUNDINGS * self.loss.outputs * self.dimension * self.whole_lipschitz
        resolvable = EPS * ((self.dimension + ROUNDINGS) * condition + size)
        rule = 4 * self.operator_norm * float(self.loss.gradient_error)
        return self._reserve * (max(FINEST * self.whole_lipschitz, resolvable) + rule)

    def target_reach(self, linear_norm: float = 0.0) -> float:
        """Return a public bound beyond which structured targets are clamped: no minimiser's margins
        come near it.

        ``alpha ||theta|| <= L + t`` at a minimiser, ``t = linear_norm``, so
        ``|a . theta| <= ||a|| (L + t) / alpha``; with as much room again, and forty times the width
        over which the loss turns.
        """
        margin = self.longest * (self.whole_lipschitz + linear_norm) / self.alpha
        curvature = float(self.loss.smoothness)
        width = float(self.loss.lipschitz) / curvature if 0 < curvature < math.inf else 0.0
        return 2 * margin + LINEAR_BEYOND * width + 1


@dataclass(frozen=True)
class DeclaredBounds(Bounds, stated=True):
    r"""Public facts of ``F(theta) = f(theta; data) + (alpha/2) ||theta||^2`` for any convex f,
    which may be no mean.

    Whatever the data, f is L-Lipschitz and, where minimisers lie, F is ``L_F``-Lipschitz. Two data
    sets then have minimisers within ``min(2 L, L_F) / alpha``: their gradients differ by at most
    ``2 L`` everywhere, and at the minimiser of one the other's whole gradient is at most ``L_F``.
    Any two data sets count as neighbours here, so that the promise covers every relation, and the
    number of records does not help; a mean deserves
    :class:`~dpconvex.core.linear_bounds.LinearBounds`.

    Parameters
    ----------
    n_samples, n_features : int
        Public number of records, for the record, and of coefficients.
    slope, curvature, whole_slope : float
        As declared: L, the largest eigenvalue of the Hessian of f, and ``L_F``, by default ``2 L``
        since ``||alpha theta|| <= L`` at minimisers.
    alpha, neighbors, name
        Strength of the penalty, and the relation and name of the objective that the certificate
        states.

    Examples
    --------
    >>> DeclaredBounds(100, 2, slope=1.0, curvature=4.0, alpha=0.5).minimiser_sensitivity()
    4.0
    """

    n_samples: int
    n_features: int
    slope: float
    curvature: float
    whole_slope: float | None = None
    alpha: float = 0.0
    neighbors: str = "replace_one"
    name: str = "an objective of one's own"
    loss = None
    sums_records = False

    def __post_init__(self) -> None:
        self._check_bounds_fields()
        self._check_positive("slope", "curvature")
        if self.whole_slope is not None:
            self._check_positive("whole_slope", allowed="None or a finite number above 0")
        if not isinstance(self.name, str) or len(self.name) > 200:
            raise TypeError(
                "The 'name' parameter of DeclaredBounds must be a short text. Got something else "
                "instead."
            )

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have."""
        return self._facts(self.name, "alpha", "n_features", "slope", "curvature")

    @property
    def lipschitz(self) -> float:
        """L."""
        return float(self.slope)

    @property
    def smoothness(self) -> float:
        """The declared curvature."""
        return float(self.curvature)

    def gradient_sum_sensitivity(self) -> float:
        """``n min(2 L, L_F)``: F counts as a mean over n records."""
        largest = 2 * self.lipschitz
        if self.whole_slope is not None:
            largest = min(largest, self.whole_slope)
        return self.n_samples * largest

    def solver_tolerance(self, linear_norm: float = 0.0) -> float:
        """Return the public tolerance on ``||gradient of F||``, as for means of this curvature
        over alpha.
        """
        return self._resolvable(self.curvature / self.alpha if self.alpha > 0 else 0.0, linear_norm)
