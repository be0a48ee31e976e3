"""Settings of estimators that only output perturbation can release."""

from __future__ import annotations

import math
from typing import Any

from dpconvex.mechanisms import OutputPerturbation

__all__ = ["count_classes", "only_output", "resolve_loss"]


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


def count_classes(model: Any, n_classes: int | None) -> dict[str, Any]:
    """Return the public parameters that follow from the label set; raise for fewer than two classes."""
    if n_classes is None:
        n_classes = len(model.classes_)
    if isinstance(n_classes, bool) or not isinstance(n_classes, int) or n_classes < 2:
        raise ValueError(
            f"The 'n_classes' parameter of {type(model).__name__}.certify must be an integer of at least 2. "
            f"Got {n_classes!r} instead."
        )
    return {
        "n_classes": n_classes,
        "label_set": "assumed public" if model.classes is None else "given",
        "problems": 1 if n_classes == 2 else n_classes,
    }
