"""The parameters of the newsvendor paper's Theorem 2, its hidden constants taken to be 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.mechanisms import NoisyGradientDescent

__all__ = ["DescentPreset", "theorem_2"]


@dataclass(frozen=True)
class DescentPreset:
    """What Theorem 2 prescribes for Algorithm 1.

    Attributes
    ----------
    bandwidth, truncation, step_size : float
        The smoothing width, B, and the step.
    steps : int
        T.
    std : float
        ``2 max(tau, 1 - tau) B sqrt(T) / mu``, the noise on the sum.
    enough : bool
        Whether ``n >= sqrt(T) (p + log n) / (mu f_l)``.
    error : float
        ``step sqrt(T) (p + log n) / (mu n) + sqrt(p log(n) / n) / f_l``: the order of the
        coefficients' error.
    """

    bandwidth: float
    truncation: float
    step_size: float
    steps: int
    std: float
    enough: bool
    error: float

    @property
    def mechanism(self) -> NoisyGradientDescent:
        """Algorithm 1 with these parameters and public step sizes, from 0, the last iterate
        returned.
        """
        return NoisyGradientDescent(
            steps=self.steps, step_size=self.step_size, truncation=self.truncation, average=False
        )


def theorem_2(
    n_samples: int,
    dimension: int,
    mu: float,
    quantile: float = 0.5,
    lowest_density: float = 0.5,
    highest_density: float = 0.5,
) -> DescentPreset:
    r"""Return ``((p + log n)/n)^(1/4)``, ``B = sqrt(p + log n)``, ``T = ceil(log n)``, and the
    largest step allowed.

    The step is ``1 / max(2 f_u, f_l + max(tau, 1 - tau))``.

    Parameters
    ----------
    n_samples, dimension : int
        Rows, and coefficients with the intercept.
    mu, quantile : float
        Gaussian DP budget and service level.
    lowest_density, highest_density : float
        f_l and f_u, bounds on the density of the demand's noise.

    Examples
    --------
    >>> found = theorem_2(400, 5, 0.9)
    >>> round(found.bandwidth, 4), round(found.truncation, 4), found.steps
    (0.4071, 3.3153, 6)
    """
    size = dimension + math.log(n_samples)
    logs = math.log(n_samples)
    steep = max(quantile, 1 - quantile)
    steps = math.ceil(logs)
    truncation = math.sqrt(size)
    root = math.sqrt(steps)
    step = 1 / max(2 * highest_density, lowest_density + steep)
    error = step * root * size / (mu * n_samples)
    error += math.sqrt(dimension * logs / n_samples) / lowest_density
    return DescentPreset(
        bandwidth=(size / n_samples) ** 0.25,
        truncation=truncation,
        step_size=step,
        steps=steps,
        std=2 * steep * truncation * root / mu,
        enough=n_samples >= root * size / (mu * lowest_density),
        error=error,
    )
