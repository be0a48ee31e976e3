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
from dpconvex.privacy.guarantees import GaussianDP, Guarantee, PureDP

__all__ = ["auto_candidates", "feasible", "named_mechanism"]

Plan = TypeVar("Plan")


def auto_candidates(guarantee: Guarantee) -> list[Mechanism]:
    """Return the mechanisms that offer this kind of guarantee; of equals the first is taken."""
    if not isinstance(guarantee, PureDP):
        return [NoisyGradientDescent()]
    candidates: list[Mechanism] = [OutputPerturbation()]
    if not isinstance(guarantee, GaussianDP):
        candidates.insert(0, ObjectivePerturbation())
    if not isinstance(guarantee, PureDP):
        candidates.insert(0, NoisyGradientDescent())
    return candidates


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
