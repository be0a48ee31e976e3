"""Mechanisms: certified from public facts, then run on data that fit the certificate."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, TypeGuard, cast

import numpy as np

from dpconvex.core.bounds import Bounds
from dpconvex.core.certificate import (
    Certificate,
    CertificateCalibration,
    CertificateProof,
    plain_parameters,
)
from dpconvex.core.checks import parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP
from dpconvex.core.mechanism_rules import (
    Carries,
    MechanismRule,
    Parameters,
    register_mechanism_rule,
)
from dpconvex.core.noise_source import NoiseSource, Seed
from dpconvex.core.rows import RowMap
from dpconvex.core.stated_names import StatedNames, load_all_names
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.releases.perturbed_minimiser import check_minimised_objective
from dpconvex.solvers.certified_descent import Solver
from dpconvex.types import Array

AVERAGED = 0.5  # share of a descent's iterates, the last ones, that are averaged

#: The class of every mechanism that certificates can name.
MECHANISMS: StatedNames[type[PrivateMechanism]] = StatedNames()


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
    """A mechanism, which owns all facts about itself; one class in one file.

    A subclass with a ``name`` is registered, so that certificates can name it. It writes
    :meth:`calibrate`, :meth:`prove` and :meth:`_run`, states in ``carries`` what its proof covers,
    and :meth:`prepare` only where the default does not do. Its fields are its public parameters.

    Attributes
    ----------
    name : str
        Name in certificates.
    word : str
        What users write for it, ``mechanism="..."``; its name if it is not given, and none where
        it is empty.
    carries : Carries
        What the proof covers: all else is refused.
    fits : frozenset of str, optional
        Tasks that the mechanism is offered for, keys of :data:`TASKS`; by default all that it
        carries.
    guarantees : tuple of kinds of guarantees
        Guarantees that the mechanism offers: PureDP, ApproxDP with delta above 0, GaussianDP.
    takes_rows : bool
        Whether a run takes rows in place of an objective: a list of them with each target, to ask
        :class:`~dpconvex.core.private_rows.PrivateRows` about.
    takes_partitions : bool
        Whether a run only asks for sums over rows, which may then lie in partitions of Dask.
    offers_intervals, offers_curves : bool
        Whether a run releases what confidence intervals need, and whether it penalises curves.
    limits_slopes : bool
        Whether a run limits what a record adds, so that a loss may have slopes without a bound.
    noise_enters, method : str
        Where noise enters, in a few words, and how coefficients are found, for a reader without
        training.
    quantities : dict of str to str
        What each noise term is added to, in words; other names speak for themselves.
    """

    name: ClassVar[str]
    word: ClassVar[str]
    carries: ClassVar[Carries] = Carries()
    fits: ClassVar[frozenset[str] | None] = None
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (PureDP, ApproxDP, GaussianDP)
    takes_rows: ClassVar[bool] = False
    takes_partitions: ClassVar[bool] = False
    offers_intervals: ClassVar[bool] = False
    offers_curves: ClassVar[bool] = False
    limits_slopes: ClassVar[bool] = False
    noise_enters: ClassVar[str] = ""
    method: ClassVar[str] = "Random noise was added as the certificate states."
    quantities: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Register a mechanism with a name of its own: its rule, and the class for its word."""
        super().__init_subclass__()
        if "name" not in vars(cls):
            return
        if "word" not in vars(cls):
            cls.word = cls.name
        if cls.__module__.partition(".")[0] != "dpconvex":
            load_all_names()  # so that no name of the library is taken, whatever is loaded
        owner = f"{cls.__module__}.{cls.__qualname__}"
        register_mechanism_rule(
            cls.name, MechanismRule(cls.calibrate, cls.prove, cls.carries, owner)
        )
        MECHANISMS.add(cls.name, cls)

    # What a mechanism writes.

    @classmethod
    def calibrate(
        cls, bounds: Any, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        """Derive noise from public facts and from the parameters that the certificate states."""
        raise AttributeError(f"{cls.__name__} has no method 'calibrate'.")

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Return what stated noise proves; trusts nothing but the certificate."""
        raise AttributeError(f"{cls.__name__} has no method 'prove'.")

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide a fit, from what is asked.

        The default takes the loss as it is, convolved where a bandwidth is given, or the smooth
        loss that stands in for it; and the user's penalty, or none.
        """
        loss = request.bounds.loss
        if request.smooth_loss is not None and not self.limits_slopes:
            loss = request.smooth_loss
        else:
            loss = request.smoothed(loss, request.bandwidth)
        bounds = replace(request.bounds, loss=loss, alpha=request.alpha or 0.0)
        return self.decide(request, bounds, bandwidth=request.bandwidth)

    def _chosen(self, bounds: Any, guarantee: Guarantee, parameters: Facts) -> Facts:
        """Return the parameters that a certificate states, with those of the mechanism's own: by
        default its fields.
        """
        own = {item.name: getattr(self, item.name) for item in fields(cast(Any, self))}
        for name in sorted(set(own) & set(parameters)):
            if own[name] != parameters[name]:
                raise ValueError(
                    f"The field {name!r} of {type(self).__name__} has the name of a setting that "
                    "the certificate states already. Choose another name."
                )
        return {**parameters, **own}

    def _run(self, *run: Any, **more: Any) -> Array:
        """Return coefficients to which the certificate's noise was added.

        A mechanism writes it with the arguments ``(objective, certificate, noise, record)``, of
        which ``record`` takes what else was released, and a fifth one where
        :meth:`stated_settings` are an object.
        """
        raise AttributeError(f"{type(self).__name__} has no method '_run'.")

    def stated_settings(self, certificate: Certificate) -> Any:
        """Return the settings of a run that a certificate states, as the object that a run takes;
        None where a run reads the certificate itself.
        """
        return None

    # What follows from it.

    def certify(
        self,
        bounds: Any,
        guarantee: Guarantee,
        parameters: Parameters | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate from public facts."""
        return self._issue(bounds, guarantee, parameters, seeded)[0]

    def _issue(
        self, bounds: Any, guarantee: Guarantee, parameters: Parameters | None, seeded: bool
    ) -> tuple[Certificate, Any]:
        """Return the certificate, and what its calibration decided besides."""
        chosen = plain_parameters(self._chosen(bounds, guarantee, dict(parameters or {})))
        calibration = self.calibrate(bounds, guarantee, chosen)
        certificate = Certificate.issue(
            self.name, bounds, guarantee, chosen, seeded, calibration=calibration
        )
        return certificate, calibration.decided

    def decide(
        self,
        request: FitRequest,
        bounds: Any,
        parameters: Parameters | None = None,
        *,
        settings: Any = None,
        bandwidth: float | None = None,
        predicted_risk: float = math.inf,
    ) -> FitDecision:
        """Return the decision for these bounds and public parameters; the last step of
        :meth:`prepare`.

        ``bandwidth`` is in mapped units, and ``settings`` the object that a run takes.
        """
        stated = {**request.parameters, **(parameters or {})}
        if bandwidth is not None and request.states_bandwidth:
            stated["bandwidth"] = bandwidth / request.target_scale
        stated |= request.last_parameters
        certificate, decided = self._issue(bounds, request.guarantee, stated, request.seeded)
        return FitDecision(
            self,
            certificate,
            decided if settings is None else settings,
            None if request.row_map is None else self.mapped_by(request.row_map),
            request.target_shift,
            request.target_scale,
            request.targets,
            predicted_risk,
        )

    def mapped_by(self, row_map: RowMap) -> RowMap:
        """Return how this mechanism maps rows, of which ``row_map`` says the public bounds."""
        return row_map

    @classmethod
    def stated_map(cls, certificate: Certificate, row_map: RowMap) -> RowMap:
        """Return how a certified run mapped rows, of which ``row_map`` says the public bounds."""
        return row_map

    @classmethod
    def is_for(cls, task: str) -> bool:
        """Return whether the mechanism is offered for a task."""
        return cls.fits is None or task in cls.fits

    @classmethod
    def named_for(cls, request: FitRequest) -> PrivateMechanism:
        """Return the mechanism that its word stands for in a request."""
        return cls()

    def adapted_to(self, request: FitRequest) -> PrivateMechanism:
        """Return the mechanism that stands for this one in a request: usually itself."""
        return self

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Seed | NoiseSource = None,
        record: Facts | None = None,
        settings: Any = None,
    ) -> Array:
        """Return private coefficients; see :meth:`Mechanism.release`.

        A descent also takes, in place of an objective, the rows alone: a list of them with each of
        their targets. ``settings`` are those that were decided with the certificate; without them
        a run reads what the certificate states.
        """
        if not (self.takes_rows and isinstance(objective, list)):
            check_minimised_objective(objective, certificate)
        released: Facts = {} if record is None else record
        settings = self.stated_settings(certificate) if settings is None else settings
        more = () if settings is None else (settings,)
        return self._run(objective, certificate, NoiseSource.of(rng), released, *more)

    @classmethod
    def matrix_target_limit(cls, certificate: Certificate, settings: object) -> float:
        """Return the public bound to which targets of records that are matrices are clamped:
        margins hardly ever come near it.

        A margin that does, because noise exceeded a bound or because there are far more records
        than their nominal number, is clamped a little early, which costs no privacy.
        """
        if not certificate.bounds.alpha > 0:
            raise AttributeError(
                f"{cls.__name__} has no method 'matrix_target_limit', which says how far its "
                "margins may lie. Write it, or give alpha above 0."
            )
        return float(certificate.bounds.target_reach(0.0))

    # What readers of a certificate are told.

    @classmethod
    def stated_choices(cls, certificate: Certificate) -> Parameters:
        """Return what a certificate states of the levels, targets, kernel, curves and ranking of a
        run; empty for a mechanism to which they are no choices of its own.
        """
        return {}

    @classmethod
    def may_smooth_level(cls, level: float, quantile: float) -> bool:
        """Return whether a run may smooth the loss of a level for a quantile: of its own alone."""
        return level == quantile

    @classmethod
    def coefficient_noise(cls, certificate: Certificate) -> tuple[float, bool] | None:
        """Return the standard deviation of the noise in a mapped coefficient, and whether it is
        exact or an upper bound of the root mean square; None where it depends on the data.
        """
        return None


def resolve_mechanism(mechanism: object, owner: str) -> PrivateMechanism:
    """Return the mechanism that ``mechanism`` (an instance or a word) stands for.

    An instance must own all facts that a fit asks for; the error names the one that it lacks.
    """
    if isinstance(mechanism, str):
        found = [kind for kind in known_mechanism_kinds() if kind.word == mechanism]
        if found:
            return min(found, key=lambda kind: kind.name != mechanism)()
    elif not isinstance(mechanism, type):
        mechanism = mechanism.resolved() if hasattr(mechanism, "resolved") else mechanism
        if isinstance(mechanism, PrivateMechanism):
            check_complete(mechanism, owner)
            return mechanism
        if hasattr(mechanism, "certify") and hasattr(mechanism, "release"):
            raise parameter_error(
                "mechanism",
                owner,
                "derived from dpconvex.mechanisms.PrivateMechanism, which says what it carries and "
                "how it prepares a fit",
                f"{type(mechanism).__name__}, which has neither",
                "Derive it from PrivateMechanism.",
                kind=TypeError,
            )
    words = sorted({kind.word for kind in known_mechanism_kinds() if kind.word})
    raise parameter_error(
        "mechanism", owner, f"one of {['auto', *words]} or a mechanism object", repr(mechanism)
    )


def check_complete(mechanism: PrivateMechanism, owner: str) -> None:
    """Raise unless a mechanism has a name and wrote what has no default."""
    kind = type(mechanism)
    lacking = [
        method
        for method in ("calibrate", "prove", "_run")
        if inspect.getattr_static(kind, method) is inspect.getattr_static(PrivateMechanism, method)
    ]
    if not hasattr(kind, "name"):
        lacking.insert(0, "name")
    if lacking:
        raise parameter_error(
            "mechanism",
            owner,
            f"a mechanism that defines {', '.join(map(repr, lacking))}",
            f"{kind.__name__}, which does not",
            "CONTRIBUTING.md of dpconvex has a recipe.",
            kind=TypeError,
        )


def known_mechanism_kinds() -> list[type[PrivateMechanism]]:
    """Return the classes of all mechanisms that certificates can name, in the order of names."""
    found = (MECHANISMS.find(name) for name in MECHANISMS.known())
    return [kind for kind in found if kind is not None]


def certified_kind(certificate: Certificate) -> type[PrivateMechanism]:
    """Return the class of the mechanism that a certificate names."""
    kind = MECHANISMS.find(certificate.mechanism)
    return PrivateMechanism if kind is None else kind


def mechanism_with_word(word: str, task: str) -> type[PrivateMechanism] | None:
    """Return the class of the mechanism that users call by a word and that fits a task, or None."""
    for kind in known_mechanism_kinds():
        if word and kind.word == word and kind.is_for(task):
            return kind
    return None


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


def longest_descent_margin(
    certificate: Certificate, steps: int, step_size: float, batch_size: int
) -> float:
    """Return a public bound on the margins of a descent on matrices from 0: twice its path, and
    room for the targets.
    """
    bounds = certificate.bounds
    noise = certificate.noise["gradients"].norm_upper_bound / batch_size
    longest = bounds.whole_lipschitz + noise
    return float(2 * bounds.longest * steps * step_size * longest + 1)


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
