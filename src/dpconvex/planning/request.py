"""What a user asks for, what ``mechanism="auto"`` chooses from, and what was chosen: the same for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dpconvex.engine.rows import RowMap
from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms import NoisyGradientDescent, ObjectivePerturbation, OutputPerturbation, resolve_mechanism
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import Guarantee, PureDP
from dpconvex.smoothing import Kernel

__all__ = ["Choice", "Request", "choose_mechanism"]

AnyBounds = TypeVar("AnyBounds", bound=Bounds)


@dataclass(frozen=True)
class Request(Generic[AnyBounds]):
    """What the user wants, in mapped units.

    Attributes
    ----------
    guarantee : Guarantee
        Budget of all problems together.
    bounds : Bounds
        Public facts with the plain loss and no penalty.
    kernel : Kernel or None
        Smoothing of a kinked loss.
    alpha, bandwidth : float or None
        Fixed by the user, or left to us.
    smooth_loss : PointwiseLoss or None
        What stands for the plain loss of a classifier where the objective must be smooth.
    problems : int
        1, or one per class of more than two.
    levels : tuple of float
        Of several quantiles that one run finds; empty for a single one.
    targets : int
        1, or one target for each of the levels.
    row_map : RowMap or None
        How rows are mapped, from which a mechanism may depart where feature bounds are missing.
    raw_target : bool
        Whether no bounds of the target are public.
    """

    guarantee: Guarantee
    bounds: AnyBounds
    kernel: Kernel | None
    alpha: float | None
    bandwidth: float | None
    smooth_loss: PointwiseLoss | None = None
    problems: int = 1
    levels: tuple[float, ...] = ()
    targets: int = 1
    row_map: RowMap | None = None
    raw_target: bool = False


@dataclass(frozen=True)
class Choice:
    """A mechanism, the facts it certifies, and the risk predicted for it; infinite where none is predicted."""

    mechanism: Mechanism
    bounds: Bounds
    predicted_risk: float
    parameters: Facts = field(default_factory=dict)
    bandwidth: float | None = None


Chooser = Callable[[Any, Request[Any]], Choice]


def choose_mechanism(
    mechanism: object, request: Request[AnyBounds], choosers: Mapping[str, Chooser], owner: str
) -> Choice:
    """Return what suits the mechanism that was named, or for ``"auto"`` the smallest predicted risk.

    ``"auto"`` chooses from noisy descent alone, or for pure epsilon from what offers that. Noisy descent needs no
    penalty, keeps to a private constant where columns cannot pay for their noise, and is consistent; perturbed
    objectives were ahead of it only between some 50 and 100 records after noise.

    Raises
    ------
    ValueError
        If this budget and these settings allow no candidate: what the first one said.
    """
    if not (isinstance(mechanism, str) and mechanism == "auto"):
        found = resolve_mechanism(mechanism, owner)
        if found.name not in choosers:
            raise ValueError(
                f"The 'mechanism' parameter of {owner} must be one of {['auto', *choosers]} or an object of theirs. "
                f"Got {mechanism!r} instead."
            )
        return choosers[found.name](found, request)
    candidates: Iterable[Mechanism] = [NoisyGradientDescent()]
    if isinstance(request.guarantee, PureDP):
        candidates = [ObjectivePerturbation(), OutputPerturbation()]
    choices: list[Choice] = []
    refusals: list[ValueError] = []
    for candidate in candidates:
        try:
            choices.append(choosers[candidate.name](candidate, request))
        except ValueError as error:
            refusals.append(error)
    if not choices:
        raise refusals[0]
    return min(choices, key=lambda choice: choice.predicted_risk)
