"""Bounds of an objective of one's own: no mean over records is needed, only constants that its author declares."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.checks import check_count, check_number
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.description import Facts

__all__ = ["DeclaredBounds"]


@dataclass(frozen=True)
class DeclaredBounds(Bounds):
    r"""Public facts of ``F(theta) = f(theta; data) + (alpha/2) ||theta||^2`` for any convex f, which may be no mean.

    Whatever the data, f is L-Lipschitz and, where minimisers lie, F is ``L_F``-Lipschitz. Two data sets then have
    minimisers within ``min(2 L, L_F) / alpha``: their gradients differ by at most ``2 L`` everywhere, and at the
    minimiser of one the other's whole gradient is at most ``L_F``. Any two data sets count as neighbours here, so that
    the promise covers every relation, and the number of records does not help; a mean deserves
    :class:`~dpconvex.privacy.bounds.linear.LinearBounds`.

    Parameters
    ----------
    n_samples : int
        Public number of records, for the record.
    n_features : int
        Number of coefficients.
    slope : float
        L, as declared.
    curvature : float
        Largest eigenvalue of the Hessian of f, as declared.
    whole_slope : float, optional
        ``L_F``, as declared; ``2 L`` by default, since ``||alpha theta|| <= L`` at minimisers.
    alpha : float
        Strength of the penalty.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation that the certificate states.
    name : str
        What the objective is called in the certificate.

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

    def __post_init__(self) -> None:
        self._check_shared()
        check_count("n_features", "DeclaredBounds", self.n_features, 1)
        self._check_positive("slope", "curvature")
        if self.whole_slope is not None:
            allowed = "None or a finite number above 0"
            check_number("whole_slope", "DeclaredBounds", self.whole_slope, allowed, 0, math.inf, low_open=True)
        if not isinstance(self.name, str) or len(self.name) > 200:
            raise TypeError("The 'name' parameter of DeclaredBounds must be a short text. Got something else instead.")

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``."""
        return {
            "objective": self.name,
            "alpha": self.alpha,
            "n_features": self.n_features,
            "slope": self.slope,
            "curvature": self.curvature,
        }

    @property
    def dimension(self) -> int:
        """Number of coefficients."""
        return self.n_features

    @property
    def lipschitz(self) -> float:
        """L."""
        return float(self.slope)

    @property
    def smoothness(self) -> float:
        """The declared curvature."""
        return float(self.curvature)

    @property
    def rank(self) -> int:
        """All coefficients."""
        return self.n_features

    def gradient_sum_sensitivity(self) -> float:
        """``n min(2 L, L_F)``: F counts as a mean over n records."""
        largest = 2 * self.lipschitz
        if self.whole_slope is not None:
            largest = min(largest, self.whole_slope)
        return self.n_samples * largest

    def solver_tolerance(self, tilt: float = 0.0) -> float:
        """Return the public tolerance on ``||gradient of F||``, as for means of this curvature over alpha."""
        return self._resolvable(self.curvature / self.alpha if self.alpha > 0 else 0.0, tilt)

    def tilt_scale(self, epsilon: float, delta: float) -> float:
        """Refuse: the theorems of objective perturbation are about one record's share of a mean."""
        raise ValueError(
            "Objective perturbation needs a mean over records. Use OutputPerturbation with DeclaredBounds."
        )
