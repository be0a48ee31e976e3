r"""Steps and rows of noisy smoothed gradient descent: Theorems 4 and 5, Propositions 3 to 5, Lemmas
5 to 7.

Distances are in the norm of the features' second moments. The theorems hold on events whose sizes
are ``delta_0`` (how far differences of the empirical loss are from their means, per distance) and
``delta_1`` (the same of gradients); Proposition 4 gives their order. Nothing here is a guarantee of
privacy: that is Theorem 1, and a certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpconvex.smoothing import GaussianKernel, Kernel

__all__ = [
    "DescentFacts",
    "largest_noise",
    "proposition_3",
    "proposition_4",
    "proposition_5",
    "rows_for_descent",
    "summed_noise",
    "theorem_4",
    "theorem_5",
]


def largest_noise(dimension: int, steps: int, z: float) -> float:
    """``sqrt(p) + sqrt(2 (log T + z))``: no noise vector of T is longer, but for a probability
    ``e^-z`` (Lemma 5).
    """
    return math.sqrt(dimension) + math.sqrt(2 * (math.log(steps) + z))


def summed_noise(dimension: int, shrinkage: float, z: float) -> float:
    """``p/(1 - r) + 2 sqrt(p z / (1 - r^2)) + 2 z``: bounds ``sum_t r^t ||g_t||^2`` but for
    ``e^-z`` (Lemma 5).
    """
    spread = 2 * math.sqrt(dimension * z / (1 - shrinkage**2))
    return dimension / (1 - shrinkage) + spread + 2 * z


@dataclass(frozen=True)
class DescentFacts:
    """What the theorems know of a problem and of its descent.

    Attributes
    ----------
    dimension : int
        p, the intercept included.
    mu, quantile : float
        Gaussian DP budget, and tau.
    least_density, most_density, density_slope : float
        f_l, f_u and l_0 of the demand's noise near 0.
    truncation, step_size, bandwidth : float
        B, eta_0 and the bandwidth.
    kernel : Kernel
        Of the smoothing.
    """

    dimension: int
    mu: float
    quantile: float
    least_density: float
    most_density: float
    density_slope: float
    truncation: float
    step_size: float
    bandwidth: float
    kernel: Kernel = field(default_factory=GaussianKernel)

    def __post_init__(self) -> None:
        if (
            not 0
            < self.bandwidth
            <= self.least_density / (2 * self.density_slope * self.kernel.mean_abs)
        ):
            raise ValueError(
                "The theorems need a bandwidth of at most f_l / (2 l_0 k_1). Use a smaller one."
            )
        if not 0 < self.step_size <= 1 / (2 * self.most_density):
            raise ValueError(
                "The theorems need a step size of at most 1 / (2 f_u). Use a smaller one."
            )

    @property
    def steepest(self) -> float:
        """``max(tau, 1 - tau)``."""
        return max(self.quantile, 1 - self.quantile)

    @property
    def curvature(self) -> float:
        """``phi_1 = (f_l - l_0 k_1 h) / 2``."""
        return (self.least_density - self.density_slope * self.kernel.mean_abs * self.bandwidth) / 2

    @property
    def bias(self) -> float:
        """``b* <= l_0 k_2 h^2 / 2``, the gradient of the smoothed loss at the optimum."""
        return self.density_slope * self.kernel.second_moment * self.bandwidth**2 / 2

    def std(self, steps: int) -> float:
        """``sigma = 2 max(tau, 1 - tau) B sqrt(T) / mu`` of Theorem 1."""
        return 2 * self.steepest * self.truncation * math.sqrt(steps) / self.mu


@dataclass(frozen=True)
class DescentBound:
    """What a theorem says of a number of rows.

    Attributes
    ----------
    steps : int
        T that it asks for.
    rows : float
        Least number of rows at these steps, (19) or (22); the statement holds if there are as many.
    error : float
        ``r*`` of (20): the distance from the optimum but for ``2 e^-z``; of Theorem 5 it is 1.
    private_error : float
        ``r`` of (21): the distance from the minimiser without privacy; infinite for Theorem 5.
    """

    steps: int
    rows: float
    error: float
    private_error: float


def _margin(facts: DescentFacts, deltas: tuple[float, float]) -> tuple[float, float, float]:
    """Return ``Delta``, ``r_0`` and ``r_1``; infinite radii where (18) fails."""
    first, second = deltas
    margin = facts.curvature - first - facts.bias
    if margin <= 0 or first + second > facts.curvature:
        return 0.0, math.inf, math.inf
    return margin, (first + facts.bias) / facts.curvature, (first + second) / facts.curvature


def theorem_4(
    facts: DescentFacts, n_samples: int, deltas: tuple[float, float], z: float
) -> DescentBound:
    """Return steps, rows and errors of a descent that starts within 1 of the optimum.

    ``T = 3 log n / log(1/(1 - e))``, ``e = eta phi_1``; rows
    ``sigma (sqrt(p) + sqrt(2 (log T + z))) / Delta``; ``r*^2 = 1/n^2 + (1 + 1/e) ((2 p/e + 3 z)
    (eta sigma/n)^2 + max(r_0, r_1)^2)``, and with ``r = r* + r_0`` the second error's square is
    ``r^2/n + (1 + 1/e) (2 p/e + 3 z) (eta sigma/n)^2``.
    """
    if facts.step_size > 1 / (facts.least_density + facts.steepest):
        raise ValueError(
            "Theorem 4 needs a step size of at most 1 / (f_l + max(tau, 1 - tau)). Use a smaller "
            "one."
        )
    margin, r0, r1 = _margin(facts, deltas)
    e = facts.step_size * facts.curvature
    steps = math.ceil(3 * math.log(n_samples) / -math.log1p(-e))
    std = facts.std(steps)
    p = facts.dimension
    if margin == 0:
        return DescentBound(steps, math.inf, math.inf, math.inf)
    noise = (2 * p / e + 3 * z) * (facts.step_size * std / n_samples) ** 2
    error = math.sqrt(1 / n_samples**2 + (1 + 1 / e) * (noise + max(r0, r1) ** 2))
    private = math.sqrt((error + r0) ** 2 / n_samples + (1 + 1 / e) * noise)
    return DescentBound(steps, std * largest_noise(p, steps, z) / margin, error, private)


def theorem_5(
    facts: DescentFacts, distance: float, deltas: tuple[float, float], z: float
) -> DescentBound:
    """Return the steps ``T_0 = R_0^2 / (eta Delta)`` and rows (22) after which a far start is
    within 1 of the optimum.

    ``distance`` is R_0, above 1; Lemma 7's rows, ``(e-1)/(4-e) (2 tau B + 1) max(1, eta/R_0)^2 T_0
    B_{T_0} sigma``, are among those asked for.
    """
    margin, _, _ = _margin(facts, deltas)
    if margin == 0 or not distance > 1 or facts.step_size > 1:
        return DescentBound(0, math.inf, math.inf, math.inf)
    steps = max(2, math.ceil(distance**2 / (facts.step_size * margin)))
    std = facts.std(steps)
    eta = facts.step_size
    slope = facts.steepest * facts.truncation + 0.25
    noise = largest_noise(facts.dimension, steps, z)
    near = (2 * distance + slope * (steps + 1) * eta) / margin
    share = (math.e - 1) / (4 - math.e)
    rows = 2 * noise * std * max(near, share * slope * steps)
    within = (
        share
        * (2 * facts.steepest * facts.truncation + 1)
        * max(1.0, eta / distance) ** 2
        * steps
        * noise
        * std
    )
    return DescentBound(steps, max(rows, within), 1.0, math.inf)


def proposition_3(
    facts: DescentFacts, distance: float, deltas: tuple[float, float]
) -> tuple[float, float]:
    """Return between which numbers the excess empirical loss lies at a distance from the optimum,
    at least 1/n.

    From (15): ``phi_1 r^2 - (delta_0 + b*) r`` up to 1 and ``(phi_1 - delta_0 - b*) r`` beyond; and
    from (17), with the gradient at the optimum of at most ``delta_1 + b*``:
    ``f_u r^2 + (delta_1 + b*) r``.
    """
    first, second = deltas
    lower = facts.curvature * distance * min(distance, 1.0) - (first + facts.bias) * distance
    return lower, facts.most_density * distance**2 + (second + facts.bias) * distance


def proposition_4(
    facts: DescentFacts, n_samples: int, z: float, spread: float = 1.0, constant: float = 1.0
) -> tuple[float, float, float, float]:
    """Return ``B``, ``delta_0``, ``delta_1`` and the Hessian's deviation, all but for a probability
    ``5 e^-z``.

    B is Lemma 4's ``1 + v (sqrt(p - 1) + sqrt(2 (z + log n)))`` for rows of sub-Gaussian spread v;
    the others have the printed orders with ``constant`` in the place of absolute constants: good
    for ratios, not for levels.
    """
    p = facts.dimension
    n = n_samples
    v = spread
    width = facts.bandwidth
    longest = 1 + v * (math.sqrt(p - 1) + math.sqrt(2 * (z + math.log(n))))
    logs = p * math.log(n / width) + z
    loss = constant * v * math.sqrt((p + math.log2(n) + z) / n)
    gradient = (
        constant * v * math.sqrt(logs / n)
        + (facts.most_density * width + 2 * facts.kernel.peak) / n
    )
    share = logs / (n * width)
    hessian = constant * (
        v**2 * (math.sqrt(share) + share) + 2 * v * math.sqrt(p + math.log(n) + z) / n**2
    )
    return longest, loss, gradient, hessian


def proposition_5(
    facts: DescentFacts, fourth_moment: float = 3.0, spread: float = 1.0, z: float = 1.0
) -> tuple[float, float]:
    """Return ``r_loc = h / (16 max(m_4, 3)^(1/4) v)`` and the order of rows
    ``sqrt(m_4) v^2 (p + z) / h`` it needs.
    """
    radius = facts.bandwidth / (16 * max(fourth_moment, 3.0) ** 0.25 * spread)
    return radius, math.sqrt(fourth_moment) * spread**2 * (facts.dimension + z) / facts.bandwidth


def rows_for_descent(
    facts: DescentFacts, error: float, z: float = 3.0, constant: float = 1.0
) -> tuple[int, DescentBound]:
    """Return the least power of 1.1 of rows with which Theorem 4 brings the error below a wanted
    one, and its bound.

    ``delta_0`` and ``delta_1`` are those of Proposition 4 with a constant of one's own; ValueError
    beyond 1e15 rows.
    """
    n = 100.0
    while n < 1e15:
        _, first, second, _ = proposition_4(facts, math.ceil(n), z, constant=constant)
        bound = theorem_4(facts, math.ceil(n), (first, second), z)
        if bound.error <= error and n >= bound.rows:
            return math.ceil(n), bound
        n *= 1.1
    raise ValueError("No number of rows up to 1e15 suffices. Use a larger error or budget.")
