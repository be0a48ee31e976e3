"""What a mechanism is, and how a user names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.bounds import Bounds
from dpconvex.privacy.certificate import Certificate
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource


class Mechanism(Protocol):
    """A way to release a minimiser privately: certified from public facts, then run on data."""

    @property
    def name(self) -> str:
        """The name under which the mechanism's calibration is registered."""

    def certify(
        self,
        bounds: Bounds,
        guarantee: Guarantee,
        parameters: Mapping[str, Any] | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate; sees no data."""

    def release(
        self, objective: Any, certificate: Certificate, noise: NoiseSource
    ) -> NDArray[np.float64]:
        """Return private coefficients of ``objective`` with the certificate's noise."""


def resolve_mechanism(mechanism: Any, owner: str) -> Mechanism:
    """Return the mechanism that ``mechanism`` (an instance or a name) stands for."""
    from .objective import ObjectivePerturbation
    from .output import OutputPerturbation

    names: dict[str, Any] = {"objective": ObjectivePerturbation, "output": OutputPerturbation}
    if isinstance(mechanism, str) and mechanism in names:
        return names[mechanism]()
    if hasattr(mechanism, "certify") and hasattr(mechanism, "release"):
        return mechanism
    raise ValueError(
        f"The 'mechanism' parameter of {owner} must be one of {['auto', *names]} or a mechanism object. "
        f"Got {mechanism!r} instead."
    )
