"""Noisy gradient descent under the name that users write: the private fit, or a plain algorithm.

``NoisyGradientDescent()`` is the default,
:class:`~dpconvex.mechanisms.private_fit.PrivateFitMechanism`. With a step size, start, covariance,
truncation or ``average=False`` it is the algorithm of a paper,
:class:`~dpconvex.mechanisms.plain_descent.PlainDescent`. Both are mechanisms of their own, in one
file each; this class only chooses between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from dpconvex.core.bounds import Bounds
from dpconvex.core.certificate import Certificate
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import Guarantee
from dpconvex.core.mechanism_rules import Parameters
from dpconvex.core.noise_source import NoiseSource, Seed
from dpconvex.core.rows import CLIP_LIMIT, RAW_CLIP_LIMIT
from dpconvex.mechanisms.plain_descent import PlainDescent, refuse_several_quantiles
from dpconvex.mechanisms.private_fit import PrivateFitMechanism, descent_settings
from dpconvex.smoothing import Kernel
from dpconvex.types import Array


@dataclass(frozen=True)
class NoisyGradientDescent:
    r"""The private fit: noisy gradients, each evaluated at the posterior mean of the minimiser
    given all earlier ones.

    Parameters
    ----------
    steps : int, optional
        Fine rounds of gradients; by default 4 to 16, by the loss.
    step_size, truncation, start, covariance : optional
        Public choices, in mapped units with the intercept first: the rate of every step, the bound
        B on the norm of a record's row where it is white, the first iterate, and the known
        second-moment matrix of the rows. Any of them, or ``average=False``, asks for the plain
        algorithm of :mod:`dpconvex.mechanisms.plain_descent` (10 steps by default).
    average : bool, default=True
        Whether the plain algorithm averages the later iterates; False returns the last one.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or
    add-or-remove-one. Step sizes, bandwidths and numbers of steps are public or follow from what
    was released and paid for.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP, LinearBounds
    >>> bounds = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.0)
    >>> certificate = NoisyGradientDescent().certify(bounds, ApproxDP(1.0, 1e-6))
    >>> certificate.mechanism, certificate.guarantee
    ('gradient', ApproxDP(epsilon=1.0, delta=1e-06))
    >>> NoisyGradientDescent(average=False).certify(bounds, ApproxDP(1.0, 1e-6)).mechanism
    'plain-gradient'
    """

    steps: int | None = None
    step_size: float | None = None
    truncation: float | None = None
    start: ArrayLike | None = None
    covariance: ArrayLike | None = None
    average: bool = True
    name: ClassVar[str] = "gradient"

    @property
    def plain(self) -> bool:
        """Whether one of the plain algorithm's choices was made."""
        given = (self.step_size, self.truncation, self.start, self.covariance)
        return self.average is not True or any(choice is not None for choice in given)

    def resolved(self) -> PrivateFitMechanism | PlainDescent:
        """Return the mechanism that these parameters ask for."""
        return PlainDescent(**vars(self)) if self.plain else PrivateFitMechanism(self.steps)

    @property
    def clip_limit(self) -> float:
        """Where columns without bounds are clipped, as long rows are weighted."""
        return CLIP_LIMIT if self.plain else RAW_CLIP_LIMIT

    def settings(
        self,
        bandwidth: float | None = None,
        kernel: Kernel | None = None,
        levels: Sequence[float] = (),
        targets: int = 1,
    ) -> Facts:
        """Return the public parameters of a run of gradient descent, as a certificate states them.

        ``bandwidth`` is in mapped units, None to find one; ``kernel`` is logistic by default.
        ``levels`` are those of several quantiles in one run, of one target or of one target each.
        """
        if self.plain:
            refuse_several_quantiles(levels)
        return descent_settings(self.steps, bandwidth, kernel, levels, targets)

    def certify(
        self,
        bounds: Bounds,
        guarantee: Guarantee,
        parameters: Parameters | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate of noisy gradient descent from public facts."""
        return self.resolved().certify(bounds, guarantee, parameters, seeded)

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Seed | NoiseSource = None,
        record: Facts | None = None,
    ) -> Array:
        """Return private coefficients by the descent that the certificate was issued for."""
        kind = PlainDescent if certificate.mechanism == PlainDescent.name else PrivateFitMechanism
        return kind().release(objective, certificate, rng, record)
