"""Settings of estimators that only output perturbation can release."""

from __future__ import annotations

import math
from typing import Any

from dpconvex.mechanisms import OutputPerturbation

__all__ = ["only_output", "resolve_loss"]


def only_output(mechanism: Any, owner: str) -> OutputPerturbation:
    """Return the output perturbation that ``mechanism`` stands for, or raise."""
    if isinstance(mechanism, OutputPerturbation):
        return mechanism
    if isinstance(mechanism, str) and mechanism in ("auto", "output"):
        return OutputPerturbation()
    raise ValueError(
        f"The 'mechanism' parameter of {owner} must be 'auto', 'output' or an OutputPerturbation object: its objective "
        f"is no sum of rank-one records. Got {mechanism!r} instead."
    )


def resolve_loss(loss: Any, named: dict[str, Any], kind: str, owner: str) -> Any:
    """Return the smooth loss that a name or object stands for, or raise."""
    if isinstance(loss, str) and loss in named:
        return named[loss]
    fits = getattr(loss, "kind", None) == kind and hasattr(loss, "value")
    if fits and math.isfinite(loss.smoothness) and math.isfinite(loss.lipschitz):
        return loss
    raise ValueError(
        f"The 'loss' parameter of {owner} must be one of {list(named)} or a smooth {kind} loss of bounded slope. "
        f"Got {loss!r} instead. Smooth a kinked loss with convolve(loss, kernel, bandwidth)."
    )
