r"""Exponential mechanism on a public grid of coefficients, for up to three of them; pure epsilon.

Every point w of a grid in a ball of radius R around a public or released centre c gets a whole
score,

    s(w) = -sum_i round(G w_i (loss_i(w) - loss_i(c)) / (L R)) - round(G n (alpha/2) (||w||^2 -
    ||c||^2) / (L R))

with G = 2^16 steps for what one record can change at most, and w is drawn exactly with probability
proportional to ``exp(epsilon s(w) / spread)``. Rounding is by record, so that sums are whole
numbers and no floating-point error adds to their sensitivity. With ``localise`` half of epsilon
first releases the minimiser by output perturbation, and the other half draws from what a smaller
ball around it shares with the whole one: for strongly convex objectives the risk then shrinks with
``(d / epsilon)^2``.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from dpconvex.core import certificate as certificates
from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import Guarantee, PureDP
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.mechanisms.mechanism import PrivateMechanism, check_mechanism_slope
from dpconvex.mechanisms.output_perturbation import OutputPerturbation
from dpconvex.objectives import EmpiricalObjective
from dpconvex.releases.exponential_choices import ExponentialChoices
from dpconvex.releases.perturbed_minimiser import PerturbedMinimiser
from dpconvex.types import Array

_OWNER = "ExponentialMechanism"
_MOST_DIMENSIONS = 3
_MOST_POINTS = 201  # along one axis
_LIMIT = 2**31  # records: sums of scores must stay within 64 bits


@dataclass(frozen=True)
class GridSettings:
    """What a draw from a grid uses; its certificate states the same as plain data."""

    radius: float
    points: int  # along one axis
    localise: bool
    shrinkage: float


def _exponential_grid_settings(bounds: LinearBounds, stated: Parameters) -> GridSettings:
    """Return the settings of a grid that a draw can have, or raise."""
    if bounds.dimension > _MOST_DIMENSIONS:
        raise ValueError(
            f"{_OWNER} needs at most {_MOST_DIMENSIONS} coefficients, the intercept included: a "
            f"grid has exponentially many points. Got {bounds.dimension} instead. Use 'objective' "
            "or 'output'."
        )
    check_mechanism_slope(bounds, _OWNER)
    if bounds.n_samples > _LIMIT:
        raise ValueError(
            f"{_OWNER} needs at most {_LIMIT} records. Got {bounds.n_samples} instead."
        )
    allowed = "a finite number above 0"
    radius = check_number("radius", _OWNER, stated["radius"], allowed, 0, 1e50, low_open=True)
    points = check_count("points", _OWNER, stated["points"], 2, _MOST_POINTS)
    shrinkage = check_number(
        "shrinkage", _OWNER, stated["shrinkage"], allowed, 0, 1e6, low_open=True
    )
    if not isinstance(stated["localise"], bool):
        raise TypeError(
            f"The 'localise' parameter of {_OWNER} must be True or False. Got something else "
            "instead."
        )
    if stated["localise"] and not bounds.alpha > 0:
        raise ValueError(
            f"The 'localise' parameter of {_OWNER} must be False without a penalty: a minimiser "
            "is released first, which needs strong convexity. Give alpha, or localise=False."
        )
    return GridSettings(radius, points, stated["localise"], shrinkage)


@dataclass(frozen=True)
class ExponentialMechanism(PrivateMechanism):
    r"""Draw coefficients from a public grid in proportion to ``exp(epsilon score / spread)``; up to
    three of them.

    Parameters
    ----------
    radius : float, default=1.0
        R: no coefficients that are drawn are longer, in mapped units.
    points : int, default=41
        Points of the grid along one axis, at most 201.
    localise : bool, default=False
        Whether half of epsilon releases the minimiser first and the grid covers what lies within R
        and within ``shrinkage * sensitivity * d / epsilon`` of it (needs alpha above 0).
    shrinkage : float, default=4.0
        See above, with the first half's epsilon: noise of that law is longer with a probability
        below ``d exp(-shrinkage)``.

    Notes
    -----
    Privacy: pure epsilon-DP under replace-one or add-or-remove-one, drawn exactly. Public: bounds,
    loss, alpha, number of rows (nominal under add-or-remove-one), and the parameters above.

    Examples
    --------
    >>> from dpconvex.losses import Absolute
    >>> from dpconvex.privacy import LinearBounds, PureDP
    >>> bounds = LinearBounds(1000, 1, Absolute(), row_norm=1.0, max_norm=1.0)
    >>> ExponentialMechanism(points=101).certify(bounds, PureDP(1.0)).theorem
    'exponential mechanism on a public grid around 0, replace-one'
    """

    radius: float = 1.0
    points: int = 41
    localise: bool = False
    shrinkage: float = 4.0
    name: ClassVar[str] = "exponential"
    word: ClassVar[str] = ""
    fits: ClassVar[frozenset[str]] = frozenset()  # no estimator with it has been tested
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (PureDP,)
    quantities: ClassVar[dict[str, str]] = {"release": "coefficients"}

    @classmethod
    def calibrate(
        cls, bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        """Derive the budgets of the draw and, where it is localised, the noise of the point it is
        localised around.
        """
        if not isinstance(guarantee, PureDP):
            raise ValueError(
                f"{_OWNER} offers PureDP. Got {guarantee!r} instead. Use epsilon with delta=0, or "
                "another mechanism."
            )
        if not _exponential_grid_settings(bounds, parameters["grid"]).localise:
            return CertificateCalibration({}, stated={"draw_epsilon": guarantee.epsilon_bound})
        half = guarantee.epsilon_bound / 2
        first = OutputPerturbation.calibrate(bounds, PureDP(half), {})
        return CertificateCalibration(first.noise, first.solver_tolerance, {"draw_epsilon": half})

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Add what the draw costs to what the released centre costs."""
        bounds = certificate.bounds
        stated = certificate.parameters
        localise = _exponential_grid_settings(bounds, stated["grid"]).localise
        draw = check_number(
            "draw_epsilon",
            _OWNER,
            stated["draw_epsilon"],
            "a number above 0",
            0,
            math.inf,
            low_open=True,
        )
        relation = bounds.neighbors.replace("_", "-")
        spent = draw
        if localise:
            certificate.check_terms("release")
            tolerance = certificate.check_tolerance()
            moved = bounds.minimiser_sensitivity(tolerance)
            stated_tolerance = certificate.solver_tolerance
            term = certificate.term(
                "release", moved, bounds.dimension, "coefficients", tolerance=stated_tolerance
            )
            if term.distribution != "l2-laplace":
                raise certificates.CertificateError(
                    "The certificate's centre is not released with l2-Laplace noise."
                )
            spent += certificates.compose_certified_pure([term]).epsilon_bound
        else:
            certificate.check_terms()
        where = "around a released minimiser" if localise else "around 0"
        return CertificateProof(
            PureDP(spent), f"exponential mechanism on a public grid {where}, {relation}"
        )

    def _chosen(self, bounds: LinearBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        grid = asdict(self)
        _exponential_grid_settings(bounds, grid)
        parameters.setdefault("grid", grid)
        return parameters

    def stated_settings(self, certificate: Certificate) -> GridSettings:
        """Return the settings that a certificate states, as the object that a run takes."""
        return _exponential_grid_settings(certificate.bounds, certificate.parameters["grid"])

    def _run(
        self,
        objective: EmpiricalObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
        settings: GridSettings,
    ) -> Array:
        bounds = certificate.bounds
        centre = np.zeros(bounds.dimension)
        radius = settings.radius
        limit = radius
        if settings.localise:
            centre = PerturbedMinimiser(objective, certificate, noise).release()
            longest = radius * (1 - 1e-12)  # a product may round up
            centre = centre * min(1.0, longest / max(float(np.linalg.norm(centre)), 1e-300))
            record["centre"] = centre.copy()
            spread = certificate.noise["release"].scale * bounds.dimension
            radius = min(radius, settings.shrinkage * spread)
        candidates = centre + radius * _exponential_unit_grid(bounds.dimension, settings.points)
        candidates = candidates[np.linalg.norm(candidates, axis=1) <= limit]
        choices = ExponentialChoices(certificate.parameters["draw_epsilon"], 1, noise)
        return choices.coefficients(objective, bounds, candidates, centre, radius)


def _exponential_unit_grid(dimension: int, points: int) -> Array:
    """Return the points of a grid in the ball of radius 1; its middle is always one of them."""
    grid = np.stack(
        np.meshgrid(*[np.linspace(-1.0, 1.0, points)] * dimension, indexing="ij"), axis=-1
    )
    grid = grid.reshape(-1, dimension)
    lengths = np.linalg.norm(grid, axis=1)
    return np.vstack([np.zeros((1, dimension)), grid[(lengths > 0) & (lengths <= 1.0)]])
