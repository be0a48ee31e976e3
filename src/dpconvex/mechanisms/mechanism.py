"""What a mechanism is, and how a user names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.certificate import Certificate
from dpconvex.privacy.guarantees import Guarantee


class Mechanism(Protocol):
    """A way to release a minimiser privately: certified from public facts, then run on data."""

    @property
    def name(self) -> str:
        """The name under which the mechanism's calibration is registered."""

    def certify(
        self,
        bounds: Any,
        guarantee: Guarantee,
        parameters: Mapping[str, Any] | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate; sees no data."""

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Any = None,
        record: dict[str, Any] | None = None,
    ) -> NDArray[np.float64]:
        """Return private coefficients of ``objective`` with the certificate's noise.

        ``rng`` is a :class:`NoiseSource`, a seed or generator, or None for the operating system's entropy;
        ``record`` takes what is released on the way.
        """


def resolve_mechanism(mechanism: Any, owner: str) -> Mechanism:
    """Return the mechanism that ``mechanism`` (an instance or a name) stands for."""
    from .gradient import NoisyGradientDescent
    from .objective import ObjectivePerturbation
    from .output import OutputPerturbation
    from .phased import PhasedERM, PhasedSGD
    from .stochastic import NoisySGD

    names: dict[str, Any] = {
        "objective": ObjectivePerturbation,
        "output": OutputPerturbation,
        "gradient": NoisyGradientDescent,
        "sgd": NoisySGD,
        "phased-erm": PhasedERM,
        "phased-sgd": PhasedSGD,
    }
    if isinstance(mechanism, str) and mechanism in names:
        return names[mechanism]()
    offers = hasattr(mechanism, "certify") and hasattr(mechanism, "release")
    if offers and not isinstance(mechanism, type):
        return mechanism
    raise ValueError(
        f"The 'mechanism' parameter of {owner} must be one of {['auto', *names]} or a mechanism object. "
        f"Got {mechanism!r} instead."
    )
