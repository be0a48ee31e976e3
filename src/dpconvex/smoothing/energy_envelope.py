"""What Moreau envelopes ``e(x) = inf_u g(u) + (c/2) ||x - u||^2`` of kinked losses have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpconvex.checks import check_positive
from dpconvex.losses.structured import VectorLoss

__all__ = ["EnergyEnvelope"]


@dataclass(frozen=True)
class EnergyEnvelope(VectorLoss):
    """Envelope of a loss of one kind: as steep as the loss, c-smooth, and at most ``L^2 / (2 c)`` below it."""

    loss: VectorLoss
    modulus: float
    kind: ClassVar[type[VectorLoss]]

    def __post_init__(self) -> None:
        owner, wanted = type(self).__name__, self.kind.__name__
        if not isinstance(self.loss, self.kind):
            raise TypeError(
                f"The 'loss' parameter of {owner} must be {wanted}. Got {type(self.loss).__name__} instead."
            )
        number = check_positive("modulus", owner, self.modulus, "A larger one is closer to the loss.")
        object.__setattr__(self, "modulus", number)

    @property
    def outputs(self) -> int:
        """That of the loss."""
        return self.loss.outputs

    @property
    def lipschitz(self) -> float:
        """That of the loss."""
        return self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """``c``."""
        return self.modulus

    @property
    def approximation_gap(self) -> float:
        """``L^2 / (2 c) >= sup (g - e)``."""
        return self.lipschitz**2 / (2 * self.modulus)
