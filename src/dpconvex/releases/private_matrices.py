"""Gaussian mechanism for sums of gradients over records that are matrices."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dpconvex.core.certificate import Certificate
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.private_rows import PrivateAnswers, checked_finite_array
from dpconvex.objectives.structured_objective import StructuredObjective
from dpconvex.types import Array


class PrivateMatrices:
    """A handle on the records of a structured objective, which are matrices of bounded operator
    norm.

    Privacy: a record adds a vector of norm at most ``bounds.whole_lipschitz``, whatever the
    coefficients.
    """

    def __init__(
        self, objective: StructuredObjective, certificate: Certificate, noise: NoiseSource
    ) -> None:
        self.bounds = certificate.bounds
        self.terms = certificate.noise
        self._objective = objective
        self._answers = PrivateAnswers(certificate.noise, noise)

    def gradient_sum(self, name: str, theta: ArrayLike) -> Array:
        """Return the sum of the records' gradients at ``theta``, plus noise."""
        term = self._answers.claim(
            name, ("vector",), self.bounds.dimension, self.bounds.whole_lipschitz
        )
        point = checked_finite_array(theta, self.bounds.dimension)
        return self._answers.release(term, self._objective.gradient_sum(point))
