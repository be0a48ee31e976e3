"""What ``mechanism="auto"`` chooses from, and what it does with candidates that a budget rules out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dpconvex.mechanisms import (
    NoisyGradientDescent,
    ObjectivePerturbation,
    OutputPerturbation,
    resolve_mechanism,
)
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.privacy.guarantees import Guarantee, PureDP

__all__ = ["auto_candidates", "feasible", "named_mechanism"]

Plan = TypeVar("Plan")


def auto_candidates(guarantee: Guarantee) -> list[Mechanism]:
    """Return what ``"auto"`` chooses from: noisy descent, or for pure epsilon what offers that.

    Noisy descent needs no penalty, keeps to a private constant where columns cannot pay for their noise, and is
    consistent; perturbed objectives were ahead of it only between some 50 and 100 records after noise.
    """
    if isinstance(guarantee, PureDP):
        return [ObjectivePerturbation(), OutputPerturbation()]
    return [NoisyGradientDescent()]


def feasible(candidates: Iterable[Mechanism], plan: Callable[[Mechanism], Plan]) -> list[Plan]:
    """Return the plans of the candidates that this budget and these settings allow.

    Raises
    ------
    ValueError
        If none is left: what the first one said.
    """
    plans: list[Plan] = []
    refusals: list[ValueError] = []
    for candidate in candidates:
        try:
            plans.append(plan(candidate))
        except ValueError as error:
            refusals.append(error)
    if not plans:
        raise refusals[0]
    return plans


def named_mechanism(mechanism: Any, allowed: Iterable[str], owner: str) -> Any:
    """Return the mechanism that a user named, or raise if this estimator cannot use it."""
    found = resolve_mechanism(mechanism, owner)
    if found.name not in allowed:
        raise ValueError(
            f"The 'mechanism' parameter of {owner} must be one of {['auto', *allowed]} or an object of theirs. "
            f"Got {mechanism!r} instead."
        )
    return found
