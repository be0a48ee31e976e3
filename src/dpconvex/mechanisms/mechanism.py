"""Mechanisms: certified from public facts, then run on data that fit the certificate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeGuard

import numpy as np

from dpconvex.core.bounds import Bounds
from dpconvex.core.certificate import Certificate, Parameters
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import ApproxDP, Guarantee, PureDP
from dpconvex.core.noise_source import NoiseSource, Seed
from dpconvex.core.rows import RowMap
from dpconvex.releases.perturbed_minimiser import check_minimised_objective
from dpconvex.solvers.certified_descent import Solver
from dpconvex.types import Array


class Mechanism(Protocol):
    """A way to release coefficients privately: certified from public facts, then run on data."""

    @property
    def name(self) -> str:
        """The name under which the mechanism's calibration is registered."""

    def certify(
        self,
        bounds: Any,
        guarantee: Guarantee,
        parameters: Parameters | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate; sees no data."""

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Seed | NoiseSource = None,
        record: Facts | None = None,
    ) -> Array:
        """Run the mechanism: return private coefficients of ``objective`` with the certificate's
        noise.

        ``rng`` is a :class:`NoiseSource`, a seed or generator, or None for the operating system's
        entropy; ``record`` takes what is released on the way.

        Privacy: a seed or generator is for tests. Whoever knows it can undo the noise, whatever the
        certificate says of the sampler, unless it was issued with ``seeded=True``. Leave ``rng``
        out for a private release.
        """


class PrivateMechanism:
    """A mechanism of the package: certificate from public facts, objective checked against it,
    run.
    """

    name: ClassVar[str]
    takes_rows: ClassVar[bool] = False

    def certify(
        self,
        bounds: Any,
        guarantee: Guarantee,
        parameters: Parameters | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate from public facts."""
        chosen = self._chosen(bounds, guarantee, dict(parameters or {}))
        return Certificate.issue(self.name, bounds, guarantee, chosen, seeded)

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Seed | NoiseSource = None,
        record: Facts | None = None,
    ) -> Array:
        """Return private coefficients; see :meth:`Mechanism.release`.

        A descent also takes, in place of an objective, the rows alone: a list of them with each of
        their targets.
        """
        if not (self.takes_rows and isinstance(objective, list)):
            check_minimised_objective(objective, certificate)
        released: Facts = {} if record is None else record
        return self._run(objective, certificate, NoiseSource.of(rng), released)

    def _chosen(self, bounds: Any, guarantee: Guarantee, parameters: Facts) -> Facts:
        """Return the parameters of a run, with those that this mechanism chooses."""
        return parameters

    def _run(
        self, objective: Any, certificate: Certificate, noise: NoiseSource, record: Facts
    ) -> Array:
        """Return coefficients to which the certificate's noise was added; ``record`` takes what
        else was released.
        """
        raise NotImplementedError


def check_mechanism_slope(bounds: Bounds, owner: str) -> None:
    """Raise unless the loss has a finite Lipschitz constant."""
    if not math.isfinite(bounds.lipschitz):
        raise ValueError(
            f"{owner} needs a loss of bounded slope, but {loss_name(bounds)} has lipschitz=inf. "
            "Use Huber(width) in its place."
        )


def is_pure(guarantee: Guarantee) -> TypeGuard[PureDP | ApproxDP]:
    """Return whether a guarantee has no delta and is not Gaussian: noise is then l2-Laplace."""
    return isinstance(guarantee, PureDP) or (
        isinstance(guarantee, ApproxDP) and guarantee.delta_bound == 0
    )


def loss_name(bounds: Any) -> str:
    """Return the name of the loss's class, for messages."""
    return type(bounds.loss).__name__


def check_mechanism_records(bounds: Bounds, owner: str) -> None:
    """Raise where several records change at once: a person's rows would be in several batches or
    phases.
    """
    if bounds.rows_per_person > 1:
        raise ValueError(
            f"{owner} needs rows_per_person=1, because a person's rows would be in several "
            f"batches or phases. Got {bounds.rows_per_person} instead. Give groups with "
            "person_weight='equal', or use 'gradient', 'objective' or 'output'."
        )


def average_mechanism_iterates(
    take_step: Callable[[Array], Array], theta: Array, steps: int, averaged: int
) -> Array:
    """Return the mean of the last ``averaged`` iterates of a descent from ``theta``."""
    total = np.zeros_like(theta)
    for step in range(steps):
        theta = take_step(theta)
        if step >= steps - averaged:
            total += theta
    return np.asarray(total / averaged)


@dataclass(frozen=True)
class MechanismPlan:
    """Everything decided from public facts alone, before the ledger is charged.

    Records that are matrices have no ``row_map``. Targets are mapped to
    ``(y - target_shift) * target_scale``.
    """

    mechanism: Mechanism
    certificate: Certificate
    row_map: RowMap | None = None
    target_shift: float = 0.0
    target_scale: float = 1.0


# Methods of scipy.optimize.minimize that work with values and gradients.
SCIPY_METHODS = ("BFGS", "CG", "L-BFGS-B", "Newton-CG", "SLSQP", "TNC", "trust-constr")


def check_mechanism_solver(solver: object, owner: str) -> None:
    """Raise unless a mechanism can run this solver, which is public; what the solver does is
    not.
    """
    if isinstance(solver, str):
        if solver.lower() in (name.lower() for name in SCIPY_METHODS):
            return
    elif solver is None or callable(solver) or isinstance(solver, Solver):
        return
    got = repr(solver) if isinstance(solver, str) else type(solver).__name__
    raise ValueError(
        f"The 'solver' parameter of {owner} must be None, an object with solve(objective, start, "
        f"tolerance), a callable of these, or one of {list(SCIPY_METHODS)}. Got {got} instead."
    )
