"""Certificate of a private selection among candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from dpconvex.core.calibration import calibrated_release_scale, gaussian_mu
from dpconvex.core.certificate import (
    Certificate,
    CertificateError,
    CertifiedPromise,
    certified_guarantee_follows,
    refuse_malformed_certificate,
    require,
)
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.guarantees import (
    ApproxDP,
    GaussianDP,
    Guarantee,
    PureDP,
    compose_guarantee,
    guarantee_per_problem,
    guaranteed_pure_epsilon,
    pure_guarantee_mu,
)
from dpconvex.core.noise_source import EXACT, SEEDED
from dpconvex.privacy.bounds.scores import RELATIONS, AUCScoreBounds, RowScoreBounds, ScoreBounds

_PLATFORM = 1 + 1e-9  # another platform's rounding of the same formula
_BISECTIONS = 14  # for the mu of one run, which ends within a thousandth on the safe side
_MOST_REPEATS = 1e9


@lru_cache(maxsize=256)
def selection_certificate_epsilon(mu: float, delta: float, mean_repeats: float) -> float:
    """Return the epsilon at ``delta`` of releasing the best of a geometric number of runs, each
    of them mu-GDP.
    """
    from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    # Shape 1 is the geometric distribution: at least one run.
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), mean_repeats, 1.0))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=128)
def selection_certificate_mu(epsilon: float, delta: float, mean_repeats: float) -> float:
    """Return the largest mu of one run, to a thousandth, at which repeating and selecting is
    (epsilon, delta)-DP.
    """
    high = gaussian_mu(epsilon, delta)
    low = high / 16
    while selection_certificate_epsilon(low, delta, mean_repeats) > epsilon:
        low, high = low / 16, low
        if low < 1e-9:
            raise ValueError(
                f"No run fits epsilon={epsilon!r} and delta={delta!r} with {mean_repeats:g} "
                "repeats. Use a larger budget or strategy='exponential'."
            )
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        fits = selection_certificate_epsilon(middle, delta, mean_repeats) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def selection_certificate_shares(
    guarantee: Guarantee,
    strategy: str,
    candidates: int,
    mean_repeats: float | None,
    basic: bool = False,
) -> tuple[str, Guarantee, float]:
    """Return the strategy, what each fit may spend, and the mean number of fits (by default twice
    the candidates).

    The strategy ``"auto"`` takes the one that leaves each fit more. With ``basic``, fits share
    epsilon and delta by basic composition, for mechanisms that do not offer Gaussian DP; this rules
    out ``"repeat"``.
    """
    if basic and strategy != "repeat":
        return "exponential", guarantee_per_problem(guarantee, candidates), float(candidates)
    repeats = float(2 * candidates) if mean_repeats is None else float(mean_repeats)
    # (epsilon, delta) composes best as Gaussian DP.
    whole = guarantee.as_gaussian() if isinstance(guarantee, ApproxDP) else guarantee
    each = guarantee_per_problem(whole, candidates)
    if isinstance(guarantee, ApproxDP) and strategy != "exponential":
        mu = selection_certificate_mu(guarantee.epsilon_bound, guarantee.delta_bound, repeats)
        if strategy == "repeat" or (isinstance(each, GaussianDP) and mu > each.mu):
            return "repeat", GaussianDP(mu), repeats
    elif strategy == "repeat":
        raise ValueError(
            "The 'strategy' parameter of DPSelect must be 'exponential' or 'auto' with this "
            "budget: 'repeat' needs epsilon with delta above 0."
        )
    return "exponential", each, float(candidates)


@dataclass(frozen=True)
class SelectionCertificate(CertifiedPromise):
    """Privacy claim of a selection as a whole, from public facts."""

    guarantee: Guarantee  # the total, for everything that is released
    strategy: str  # "exponential" or "repeat"
    candidates: int  # how many there are
    per_fit: Guarantee  # what each fit on the training rows spends
    mean_repeats: float  # mean number of runs; that of "exponential" is the number of candidates
    training_rows: int  # of the split; nominal where the number of rows is private
    validation_rows: int
    neighbors: str  # the relation that every candidate's certificate states
    score: ScoreBounds  # public facts that bound what one record changes in a score
    # The epsilon of the exponential mechanism, or the std of the noise on each run's score in units
    # of its sensitivity.
    noise: dict[str, float]
    fits: tuple[Certificate, ...] = field(repr=False)  # what a fit of each candidate promises
    label_set: str | None = (
        None  # whether it was "given" or is "assumed public"; None for regressions
    )
    # where the randomness of the choice comes from: EXACT, or SEEDED, which is not private
    sampler: str = EXACT

    @classmethod
    def issue(
        cls,
        guarantee: Guarantee,
        strategy: str,
        mean_repeats: float | None,
        training_rows: int,
        validation_rows: int,
        score: ScoreBounds,
        fits: Sequence[Certificate],
        *,
        label_set: str | None = None,
        seeded: bool = False,
    ) -> SelectionCertificate:
        """Derive a selection certificate's relation from its candidates' and the choice's noise
        from the guarantee.
        """
        relations = sorted({fit.neighbors for fit in fits})
        if len(relations) != 1:
            raise ValueError(
                "The candidates of DPSelect must all promise the same neighbouring relation: "
                f"what they spend does not add up otherwise. Got {relations} instead. Set what "
                "decides it, such as 'label_private', on the estimator."
            )
        basic = isinstance(fits[0].guarantee, ApproxDP)
        strategy, per_fit, repeats = selection_certificate_shares(
            guarantee, strategy, len(fits), mean_repeats, basic
        )
        if isinstance(per_fit, GaussianDP) and strategy == "repeat":
            noise = {"std": calibrated_release_scale(per_fit.mu, 1.0, 1)}
        else:
            noise = {"epsilon": guaranteed_pure_epsilon(guarantee)}
        certificate = cls(
            guarantee,
            strategy,
            len(fits),
            per_fit,
            repeats,
            training_rows,
            validation_rows,
            relations[0],
            score,
            noise,
            tuple(fits),
            label_set,
            SEEDED if seeded else EXACT,
        )
        certificate._check()
        return certificate

    @property
    def theorem(self) -> str:
        """Why the selection's total holds."""
        apart = f"training and validation rows are disjoint, {self.neighbors.replace('_', '-')}"
        if self.strategy == "repeat":
            law = f"a geometric number of runs, mean {self.mean_repeats:g}"
            return f"Renyi DP of repeating and selecting with {law}; {apart}"
        return (
            f"composition of {self.candidates} fits on the training rows, in parallel with the "
            f"exponential mechanism on the validation rows; {apart}"
        )

    @property
    def unit(self) -> str:
        """Whom the promise is made to: as the candidates' certificates say."""
        return str(self.fits[0].unit)

    def gaussian_mu(self) -> None:
        """Return None: a ledger composes a selection from its guarantee."""

    def verify(self) -> None:
        """Check that the candidates' certificates and the stated noise suffice for the
        guarantee, or raise.
        """
        self._check()
        for certificate in self.fits:
            certificate.verify()

    def _check(self) -> None:
        with refuse_malformed_certificate("The selection's certificate is malformed"):
            self._check_fields()
            fits, choice = (
                self._selection_repeats()
                if self.strategy == "repeat"
                else self._selection_composes()
            )
        require(fits, "The selection's 'per_fit' spends more than its guarantee.")
        require(choice, "The selection's 'noise' is too small for its guarantee.")

    def _check_fields(self) -> None:
        """Raise unless every stated fact is one that a selection can state."""
        for name in ("candidates", "training_rows", "validation_rows"):
            check_count(name, "a selection", getattr(self, name))
        check_number(
            "mean_repeats",
            "a selection",
            self.mean_repeats,
            "a number from 1 to 1e9",
            1.0,
            _MOST_REPEATS,
        )
        (noise,) = self.noise.values()
        check_number("noise", "a selection", noise, "a finite number of at least 0", 0.0, math.inf)
        allowed: dict[str, tuple[object, ...]] = {
            "strategy": ("exponential", "repeat"),
            "neighbors": RELATIONS,
            "sampler": (EXACT, SEEDED),
            "label_set": (None, "given", "assumed public"),
        }
        for name, values in allowed.items():
            require(
                getattr(self, name) in values, f"The selection's '{name}' must be one of {values}."
            )
        for guarantee in (self.guarantee, self.per_fit):
            claimed = isinstance(guarantee, (PureDP, ApproxDP, GaussianDP))
            require(claimed, "The selection's 'guarantee' and 'per_fit' must be guarantees.")
        bounded = isinstance(self.score, (RowScoreBounds, AUCScoreBounds))
        require(bounded, "The selection's 'score' must state its bounds.")
        type(self.score)(**vars(self.score))  # its own checks, if it was not made by them
        noise_name = "std" if self.strategy == "repeat" else "epsilon"
        require(
            set(self.noise) == {noise_name}, "The selection's 'noise' is not that of its strategy."
        )
        alike = len({fit.unit for fit in self.fits}) <= 1 and all(
            fit.bounds.rows_per_person <= 1 for fit in self.fits
        )
        require(
            alike,
            "The selection's 'fits' must all promise to one record, or all to one person whose "
            "rows have weight 1 together: otherwise rows of a person would be in both parts.",
        )
        stated = (self.per_fit, self.neighbors, self.training_rows)
        fits = [(fit.guarantee, fit.neighbors, fit.bounds.n_samples) for fit in self.fits]
        require(
            len(fits) == self.candidates and all(fit == stated for fit in fits),
            "The selection's 'fits' must certify as many fits as there are candidates, each with "
            "the stated 'per_fit', 'neighbors' and 'training_rows'.",
        )

    def _selection_composes(self) -> tuple[bool, bool]:
        """Return whether all fits of a selection, and the exponential mechanism, each keep the
        guarantee.
        """
        require(
            self.mean_repeats == self.candidates,
            "The selection's 'mean_repeats' must be its 'candidates'.",
        )
        each = self.per_fit
        if isinstance(self.guarantee, GaussianDP) and isinstance(each, PureDP):
            each = GaussianDP(pure_guarantee_mu(each.epsilon_bound))
        fits = certified_guarantee_follows(self.guarantee, compose_guarantee(each, self.candidates))
        return fits, self.noise["epsilon"] <= guaranteed_pure_epsilon(self.guarantee) * _PLATFORM

    def _selection_repeats(self) -> tuple[bool, bool]:
        """Return whether repeated selection keeps the guarantee with runs of ``per_fit``, and
        the score's noise too.
        """
        total = self.guarantee
        each = self.per_fit
        if not isinstance(total, ApproxDP) or not isinstance(each, GaussianDP):
            raise CertificateError("Repeated selection turns Gaussian DP into (epsilon, delta)-DP.")
        cost = selection_certificate_epsilon(each.mu, total.delta_bound, float(self.mean_repeats))
        fits = cost <= total.epsilon_bound * _PLATFORM
        return fits, self.noise["std"] * _PLATFORM >= calibrated_release_scale(each.mu, 1.0, 1)
