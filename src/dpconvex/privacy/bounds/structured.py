"""Public facts of models whose records are matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.checks import check_count, check_number
from dpconvex.losses import VectorLoss
from dpconvex.privacy.bounds.base import EPS, FINEST, LINEAR_BEYOND, ROUNDINGS, Bounds
from dpconvex.privacy.description import Facts

__all__ = ["StructuredBounds"]


@dataclass(frozen=True)
class StructuredBounds(Bounds):
    r"""Public facts of a loss ``g(Y - A theta)``, or ``g(Y - A theta) + c(y - <z, theta>)`` with a link.

    Records satisfy ``||A|| <= operator_norm`` (spectral norm) and ``||z|| <= link_norm``, so that one record has::

        lipschitz  = operator_norm   * sup ||g'||  + link_norm   * sup |c'|
        smoothness = operator_norm^2 * sup ||g''|| + link_norm^2 * sup |c''|

    with ``sup ||g'|| = sqrt(m)`` for the l1 norm and the bowl and ``max_p ||a_p||`` for affine pieces. Every gradient
    of a record lies in the span of the rows of A, and of z: a fixed subspace of dimension ``rank``.

    Parameters
    ----------
    n_samples : int
        Public number of records (nominal under add-or-remove-one).
    n_features : int
        Number d of coefficients.
    loss : VectorLoss
        The loss of a residual vector; smooth for objective perturbation.
    operator_norm : float
        Bound on the spectral norm of a record's matrix, the row of the link excluded.
    link_norm : float
        Bound on the row of the link; 0 without one.
    alpha : float
        Strength of the penalty ``(alpha/2) ||theta||^2``.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.
    shared : m vectors of length d, optional
        A PUBLIC matrix that is A in every record: an l1-regularised generalised linear model. Its term is then the same
        for neighbours under replace-one and cancels from every difference of gradients and of Hessians, so that
        ``lipschitz = link_norm sup |c'|``, ``smoothness = link_norm^2 sup |c''|`` and ``rank = 1``: the noise is that
        of the link alone. In sum form the common term is convex, so the curvature that a changed record is compared
        with stays at least ``n alpha``. Under add-or-remove-one a record brings or takes its share of it: refused.

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
        self._check_shared()
        check_count("n_features", owner, self.n_features, 1)
        if not isinstance(self.loss, VectorLoss):
            raise TypeError(
                f"The 'loss' parameter of {owner} must be a loss of residual vectors such as L1Norm(3). "
                f"Got {type(self.loss).__name__} instead."
            )
        self._check_positive("operator_norm")
        check_number("link_norm", owner, self.link_norm, "a finite number of at least 0", 0, math.inf)
        if (self.loss.link is None) != (self.link_norm == 0):
            raise ValueError(
                f"The 'link_norm' parameter of {owner} must be above 0 for a loss with a link and 0 otherwise. "
                f"Got {self.link_norm!r} instead."
            )

        if self.shared is not None:
            self._check_shared_matrix()

    def _check_shared_matrix(self) -> None:
        owner = "StructuredBounds"
        if self.loss.link is None or self.neighbors != "replace_one":
            raise ValueError(
                f"The 'shared' parameter of {owner} must be None unless the loss has a link and the relation is "
                "replace_one: only then is the shared term the same for neighbours."
            )
        matrix = np.array(self.shared, dtype=np.float64)
        if matrix.shape != (self.loss.outputs - 1, self.n_features) or not np.isfinite(matrix).all():
            raise ValueError(
                f"The 'shared' parameter of {owner} must be {self.loss.outputs - 1} vectors of {self.n_features} "
                f"finite numbers. Got shape {matrix.shape} instead."
            )
        if np.linalg.norm(matrix, 2) > self.operator_norm * (1 + 1e-9):
            raise ValueError(
                f"The 'operator_norm' parameter of {owner} must be at least the norm of the shared matrix. "
                f"Got {self.operator_norm!r} instead."
            )
        object.__setattr__(self, "shared", tuple(map(tuple, matrix.tolist())))

    def to_dict(self) -> Facts:
        """Return the public facts as plain data."""
        facts = super().to_dict()
        if self.shared is None:  # a fact that certificates without it do not state
            del facts["shared"]
        return facts

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``."""
        return {
            "shared": self.shared,
            "objective": "mean of losses of residual vectors",
            "loss": self.loss,
            "alpha": self.alpha,
            "linear_term": False,
            "divisor": self.n_samples,
            "n_features": self.n_features,
            "operator_norm": self.operator_norm,
            "link_norm": self.link_norm,
        }

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.n_features

    @property
    def lipschitz(self) -> float:
        """``operator_norm sup ||g'|| + link_norm sup |c'|``; the first part is 0 where its matrix is shared."""
        return self._slope + self._common_slope * (self.shared is None)

    @property
    def _slope(self) -> float:
        link = self.loss.link
        return 0.0 if link is None else self.link_norm * float(link.lipschitz)

    @property
    def _common_slope(self) -> float:
        return self.operator_norm * float(self.loss.lipschitz)

    @property
    def whole_lipschitz(self) -> float:
        """Bound on the norm of one record's whole gradient, whether or not part of it is shared."""
        return self._slope + self._common_slope

    @property
    def smoothness(self) -> float:
        """``operator_norm^2 sup ||g''|| + link_norm^2 sup |c''|``; the first part is 0 where its matrix is shared."""
        return self._bend if self.shared is not None and math.isfinite(self._common_bend) else self.whole_smoothness

    @property
    def _bend(self) -> float:
        link = self.loss.link
        return 0.0 if link is None else self.link_norm**2 * float(link.smoothness)

    @property
    def _common_bend(self) -> float:
        return self.operator_norm**2 * float(self.loss.smoothness)

    @property
    def whole_smoothness(self) -> float:
        """Bound on one record's whole curvature, whether or not part of it is shared."""
        return self._common_bend + self._bend

    @property
    def rank(self) -> int:
        """``min(rows of a record, d)``; 1 makes it a generalised linear model, and so does a shared matrix."""
        if self.shared is not None:
            return 1
        return min(int(self.loss.outputs), self.n_features)

    @property
    def longest(self) -> float:
        """Largest norm of any row of a record."""
        return max(self.operator_norm, self.link_norm)

    def solver_tolerance(self, tilt: float = 0.0) -> float:
        r"""Return the public tolerance on ``||gradient of F||``.

        ``max(1e-10 L, eps ((d + 64) kappa n (L + tilt) + 64 m d L)) + 4 operator_norm e``: as for linear models, with
        room for the roundings of dot products of length d, and ``e = gradient_error`` of the loss's quadrature rule;
        ``max(10, 2e6 / n)`` times that where the number of records is private.
        """
        bend = self.whole_smoothness / self.alpha if self.alpha > 0 else math.inf  # kappa n, whole
        condition = (bend if math.isfinite(bend) else 0.0) * (self.whole_lipschitz + tilt)
        size = ROUNDINGS * self.loss.outputs * self.dimension * self.whole_lipschitz
        resolvable = EPS * ((self.dimension + ROUNDINGS) * condition + size)
        rule = 4 * self.operator_norm * float(self.loss.gradient_error)
        return self._reserve * (max(FINEST * self.whole_lipschitz, resolvable) + rule)

    def target_reach(self, tilt: float = 0.0) -> float:
        """Return a public bound beyond which targets are clamped: no minimiser's margins come near it.

        ``alpha ||theta|| <= L + tilt`` at a minimiser, so ``|a . theta| <= ||a|| (L + tilt) / alpha``; with as much
        room again, and forty times the width over which the loss turns.
        """
        margin = self.longest * (self.whole_lipschitz + tilt) / self.alpha
        bend = float(self.loss.smoothness)
        width = float(self.loss.lipschitz) / bend if 0 < bend < math.inf else 0.0
        return 2 * margin + LINEAR_BEYOND * width + 1
