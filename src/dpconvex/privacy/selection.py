"""What choosing among candidates costs: the certificate of a selection, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import log_ndtr

from .calibration import gaussian_mu
from .certificate import CertificateError
from .guarantees import ApproxDP, GaussianDP, Guarantee, per_problem
from .noise import FLOATING_POINT, SEEDED

__all__ = ["SelectionCertificate", "repeat_and_select_mu", "selection_epsilon"]

_STEPS = 14  # of the bisection for mu, which ends within a thousandth on the safe side


@lru_cache(maxsize=128)
def repeat_and_select_mu(epsilon: float, delta: float, mean_repeats: float) -> float:
    """Return the largest ``mu`` of one run (to a thousandth) at which repeating and selecting is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta : float
        The total.
    mean_repeats : float
        Mean of the geometric law of the number of runs.
    """
    from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    def cost(mu: float) -> float:
        accountant = RdpAccountant()
        # Shape 1 is the geometric law: at least one run.
        accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), mean_repeats, 1.0))
        return float(accountant.get_epsilon(delta))

    high = gaussian_mu(epsilon, delta)
    low = high / 16
    while cost(low) > epsilon:
        low, high = low / 16, low
        if low < 1e-9:
            raise ValueError(
                f"No run fits epsilon={epsilon!r} and delta={delta!r} with {mean_repeats:g} repeats. "
                "Use a larger budget or strategy='exponential'."
            )
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    return low


@dataclass(frozen=True)
class SelectionCertificate:
    """What a selection promises as a whole, from public facts.

    Attributes
    ----------
    guarantee : PureDP, ApproxDP or GaussianDP
        The total, for everything that is released.
    strategy : str
        ``"exponential"`` or ``"repeat"``.
    candidates : int
        How many there are.
    per_fit : PureDP or GaussianDP
        What each fit on the training rows spends.
    mean_repeats : float
        Mean number of runs; that of ``"exponential"`` is the number of candidates.
    training_rows, validation_rows : int
        The split, by position.
    sampler : str
        Where the randomness of the choice comes from; says so if it was seeded, which is not private.
    neighbors : str
        Always ``"replace_one"``.
    """

    guarantee: Guarantee
    strategy: str
    candidates: int
    per_fit: Guarantee
    mean_repeats: float
    training_rows: int
    validation_rows: int
    sampler: str = FLOATING_POINT
    neighbors: str = "replace_one"

    @classmethod
    def issue(
        cls,
        guarantee: Guarantee,
        strategy: str,
        candidates: int,
        mean_repeats: float | None,
        training_rows: int,
        validation_rows: int,
        seeded: bool = False,
    ) -> SelectionCertificate:
        """Derive what each fit may spend; ``"auto"`` takes the strategy that leaves it more."""
        repeats = float(2 * candidates) if mean_repeats is None else float(mean_repeats)
        per_fit = per_problem(_composable(guarantee), candidates)
        options = {"exponential": (per_fit, float(candidates))}
        if isinstance(guarantee, ApproxDP) and strategy != "exponential":
            mu = repeat_and_select_mu(guarantee.epsilon_bound, guarantee.delta_bound, repeats)
            options["repeat"] = (GaussianDP(mu), repeats)
        elif strategy == "repeat":
            raise ValueError(
                "The 'strategy' parameter of DPSelect must be 'exponential' or 'auto' with this budget: 'repeat' needs "
                "epsilon with delta above 0."
            )
        if strategy == "auto":
            strategy = max(options, key=lambda name: _strength(options[name][0]))
        per_fit, repeats = options[strategy]
        sampler = SEEDED if seeded else FLOATING_POINT
        return cls(
            guarantee, strategy, candidates, per_fit, repeats, training_rows, validation_rows, sampler
        )  # fmt: skip

    @property
    def theorem(self) -> str:
        """Why the total holds."""
        if self.strategy == "repeat":
            return (
                "Renyi DP of repeating and selecting with a geometric number of runs, mean "
                f"{self.mean_repeats:g}; training and validation rows are disjoint"
            )
        return (
            f"composition of {self.candidates} fits on the training rows, in parallel with the exponential mechanism "
            "on the validation rows"
        )

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at which (epsilon, delta)-DP follows."""
        return self.guarantee.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows."""
        return self.guarantee.delta(epsilon)

    def verify(self) -> None:
        """Derive again what each fit may spend, and raise CertificateError if this says something else."""
        again = SelectionCertificate.issue(
            self.guarantee,
            self.strategy,
            self.candidates,
            self.mean_repeats,
            self.training_rows,
            self.validation_rows,
            self.sampler == SEEDED,
        )
        if again != self:
            raise CertificateError("The selection's 'per_fit' does not follow from its total.")


def _composable(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee in the language in which fits compose best."""
    if isinstance(guarantee, ApproxDP):
        return GaussianDP(gaussian_mu(guarantee.epsilon_bound, guarantee.delta_bound))
    return guarantee


def _strength(guarantee: Guarantee) -> float:
    return guarantee.mu if isinstance(guarantee, GaussianDP) else guarantee.epsilon_bound


def selection_epsilon(guarantee: Guarantee) -> float:
    """Return the epsilon of an exponential mechanism that is covered by a guarantee.

    Pure epsilon-DP is mu-GDP if ``exp(epsilon) / (1 + exp(epsilon)) <= Phi(mu / 2)``: both curves then pass the
    diagonal at one point, and the Gaussian one is convex.
    """
    if isinstance(guarantee, GaussianDP):
        half = guarantee.mu / 2
        return float(log_ndtr(half) - log_ndtr(-half))
    return guarantee.epsilon_bound
