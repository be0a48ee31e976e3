"""A handle on records that are matrices: noisy sums of their gradients."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.core.release import Answers, finite_numbers
from dpconvex.objectives.structured import StructuredObjective
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import CertificateError
from dpconvex.privacy.noise import NoiseSource

__all__ = ["PrivateMatrices"]


class PrivateMatrices:
    """A handle on the records of a structured objective.

    Parameters
    ----------
    objective : StructuredObjective
        Its records are bounded in operator norm, its loss in slope.
    certificate : Certificate
        Which sums may be asked, how often, and with which noise.
    noise : NoiseSource
        Where noise comes from.

    Notes
    -----
    Privacy: a record adds a vector of norm at most ``bounds.whole_lipschitz``, whatever the coefficients.
    """

    def __init__(self, objective: StructuredObjective, certificate: Certificate, noise: NoiseSource) -> None:
        self.bounds, self.terms = certificate.bounds, certificate.noise
        self._objective, self._answers = objective, Answers(certificate.noise, noise)

    def gradient_sum(self, name: str, theta: ArrayLike) -> NDArray[np.float64]:
        """Return the sum of the records' gradients at ``theta``, plus noise."""
        term = self._answers.claim(name, ("vector",), self.bounds.dimension)
        if term.bound < self.bounds.whole_lipschitz:
            raise CertificateError(f"The certificate's {name!r} is for smaller gradients.")
        point = finite_numbers(theta, self.bounds.dimension)
        return self._answers.release(term, self._objective.gradient_sum(point))
