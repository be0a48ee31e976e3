"""What choosing among candidates costs: the certificate of a selection, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from dpconvex.checks import check_count, check_number
from dpconvex.privacy.bounds.scores import RELATIONS, AUCScoreBounds, RowScoreBounds, ScoreBounds
from dpconvex.privacy.calibration import gaussian_mu, released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import CertificateError, Promise
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, covered_epsilon, per_problem
from dpconvex.privacy.noise import EXACT, SEEDED
from dpconvex.privacy.profiles import gaussian_delta

__all__ = ["SelectionCertificate", "repeat_and_select_mu", "share_budget"]

_STEPS = 14  # of the bisection for mu, which ends within a thousandth on the safe side
_ROUNDING = 1 + 1e-9  # another platform's rounding of the same formula
_MOST_REPEATS = 1e9


@lru_cache(maxsize=256)
def repeat_and_select_epsilon(mu: float, delta: float, mean_repeats: float) -> float:
    """Return the epsilon at ``delta`` of releasing the best of a geometric number of runs, each of them mu-GDP."""
    from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    # Shape 1 is the geometric law: at least one run.
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(1 / mu), mean_repeats, 1.0))
    return float(accountant.get_epsilon(delta))


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
    high = gaussian_mu(epsilon, delta)
    low = high / 16
    while repeat_and_select_epsilon(low, delta, mean_repeats) > epsilon:
        low, high = low / 16, low
        if low < 1e-9:
            raise ValueError(
                f"No run fits epsilon={epsilon!r} and delta={delta!r} with {mean_repeats:g} repeats. "
                "Use a larger budget or strategy='exponential'."
            )
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        fits = repeat_and_select_epsilon(middle, delta, mean_repeats) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def share_budget(
    guarantee: Guarantee, strategy: str, candidates: int, mean_repeats: float | None, basic: bool = False
) -> tuple[str, Guarantee, float]:
    """Return the strategy, what each fit may spend, and the mean number of fits.

    Parameters
    ----------
    guarantee : PureDP, ApproxDP or GaussianDP
        The total.
    strategy : {"auto", "exponential", "repeat"}
        ``"auto"`` takes the one that leaves each fit more.
    candidates : int
        How many there are.
    mean_repeats : float or None
        Mean number of runs of ``"repeat"``; twice the number of candidates by default.
    basic : bool, default=False
        Whether fits share epsilon and delta by basic composition, for mechanisms that do not offer Gaussian DP such as
        objective perturbation; rules out ``"repeat"``.
    """
    if basic and strategy != "repeat":
        return "exponential", per_problem(guarantee, candidates), float(candidates)
    repeats = float(2 * candidates) if mean_repeats is None else float(mean_repeats)
    options = {"exponential": (per_problem(_composable(guarantee), candidates), float(candidates))}
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
    return strategy, *options[strategy]


@dataclass(frozen=True)
class SelectionCertificate(Promise):
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
        The split; nominal where the number of rows is private.
    neighbors : str
        The relation that every candidate's certificate states: ``"replace_one"``, ``"replace_one_keeping_label"`` or
        ``"add_or_remove_one"``.
    score : RowScoreBounds or AUCScoreBounds
        Public facts that bound what one record changes in a score.
    noise : dict
        How the choice is protected: the ``epsilon`` of the exponential mechanism, or the standard deviation ``std`` of
        the noise on each run's score, in units of the score's sensitivity.
    fits : tuple of Certificate
        What a fit of each candidate promises.
    label_set : str or None
        Whether the label set was ``"given"`` or is ``"assumed public"``; None for regressions.
    sampler : str
        Where the randomness of the choice comes from; says so if it was seeded, which is not private.
    """

    guarantee: Guarantee
    strategy: str
    candidates: int
    per_fit: Guarantee
    mean_repeats: float
    training_rows: int
    validation_rows: int
    neighbors: str
    score: ScoreBounds
    noise: dict[str, float]
    fits: tuple[Certificate, ...] = field(repr=False)
    label_set: str | None = None
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
        """Derive the relation from the candidates' certificates and the noise of the choice from the guarantee."""
        basic = bool(fits) and isinstance(fits[0].guarantee, ApproxDP)
        strategy, per_fit, repeats = share_budget(guarantee, strategy, len(fits), mean_repeats, basic)
        if isinstance(per_fit, GaussianDP) and strategy == "repeat":
            noise = {"std": released_scale(per_fit.mu, 1.0, 1)}
        else:
            noise = {"epsilon": covered_epsilon(guarantee)}
        certificate = cls(
            guarantee, strategy, len(fits), per_fit, repeats, training_rows, validation_rows,
            _common_relation(fits), score, noise, tuple(fits), label_set,
            SEEDED if seeded else EXACT,
        )  # fmt: skip
        certificate._check()
        return certificate

    @property
    def theorem(self) -> str:
        """Why the total holds."""
        apart = f"training and validation rows are disjoint, {self.neighbors.replace('_', '-')}"
        if self.strategy == "repeat":
            return (
                "Renyi DP of repeating and selecting with a geometric number of runs, mean "
                f"{self.mean_repeats:g}; {apart}"
            )
        return (
            f"composition of {self.candidates} fits on the training rows, in parallel with the exponential mechanism "
            f"on the validation rows; {apart}"
        )

    def verify(self) -> None:
        """Check that the candidates' certificates and the stated noise of the choice suffice for the guarantee.

        Raises
        ------
        CertificateError
            Naming what does not follow.
        """
        self._check()
        for certificate in self.fits:
            certificate.verify()

    @property
    def unit(self) -> str:
        """Whom the promise is made to: as the candidates' certificates say."""
        return str(self.fits[0].unit)

    def _check(self) -> None:
        """Raise unless the guarantee follows from what is stated, the candidates' certificates believed."""
        try:
            self._check_fields()
            fits, choice = self._repeats() if self.strategy == "repeat" else self._composes()
        except CertificateError:
            raise
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise CertificateError(f"The selection's certificate is malformed: {error}") from error
        if not fits:
            raise CertificateError("The selection's 'per_fit' spends more than its guarantee.")
        if not choice:
            raise CertificateError("The selection's 'noise' is too small for its guarantee.")

    def _check_fields(self) -> None:
        """Raise unless every stated fact is one that a selection can state."""
        for name in ("candidates", "training_rows", "validation_rows"):
            check_count(name, "a selection", getattr(self, name), 1)
        _number("mean_repeats", self.mean_repeats, 1.0, _MOST_REPEATS)
        allowed: dict[str, tuple[object, ...]] = {
            "strategy": ("exponential", "repeat"),
            "neighbors": RELATIONS,
            "sampler": (EXACT, SEEDED),
            "label_set": (None, "given", "assumed public"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise CertificateError(f"The selection's '{name}' must be one of {values}.")
        for name in ("guarantee", "per_fit"):
            if not isinstance(getattr(self, name), (PureDP, ApproxDP, GaussianDP)):
                raise CertificateError(f"The selection's '{name}' must be a guarantee.")
        if not isinstance(self.score, (RowScoreBounds, AUCScoreBounds)):
            raise CertificateError("The selection's 'score' must state its bounds.")
        type(self.score)(**vars(self.score))  # its own checks, if it was not made by them
        if set(self.noise) != {"std" if self.strategy == "repeat" else "epsilon"}:
            raise CertificateError("The selection's 'noise' is not that of its strategy.")
        if len({fit.unit for fit in self.fits}) > 1 or any(fit.bounds.rows_per_person > 1 for fit in self.fits):
            raise CertificateError(
                "The selection's 'fits' must all promise to one record, or all to one person whose rows share one "
                "vote: rows of a person with several votes would be in both parts."
            )
        stated = (self.per_fit, self.neighbors, self.training_rows)
        fits = [(fit.guarantee, fit.neighbors, fit.bounds.n_samples) for fit in self.fits]
        if len(fits) != self.candidates or any(fit != stated for fit in fits):
            raise CertificateError(
                "The selection's 'fits' must certify as many fits as there are candidates, each with the stated "
                "'per_fit', 'neighbors' and 'training_rows'."
            )

    def _composes(self) -> tuple[bool, bool]:
        """Return whether all fits together, and the exponential mechanism, each keep the guarantee."""
        if self.mean_repeats != self.candidates:
            raise CertificateError("The selection's 'mean_repeats' must be its 'candidates'.")
        choice = _number("epsilon", self.noise["epsilon"], 0.0, math.inf)
        return (
            _suffices(self.per_fit, self.candidates, self.guarantee),
            choice <= covered_epsilon(self.guarantee) * _ROUNDING,
        )

    def _repeats(self) -> tuple[bool, bool]:
        """Return whether repeating keeps the guarantee with runs of ``per_fit``, and the score's noise keeps that."""
        total, each = self.guarantee, self.per_fit
        if not isinstance(total, ApproxDP) or not isinstance(each, GaussianDP):
            raise CertificateError("Repeated selection turns Gaussian DP into (epsilon, delta)-DP.")
        std = _number("std", self.noise["std"], 0.0, math.inf)
        cost = repeat_and_select_epsilon(each.mu, total.delta_bound, float(self.mean_repeats))
        fits = cost <= total.epsilon_bound * _ROUNDING
        return fits, std * _ROUNDING >= released_scale(each.mu, 1.0, 1)


def _common_relation(fits: Sequence[Certificate]) -> str:
    """Return the neighbouring relation that all candidates promise, or raise if there is none."""
    relations = sorted({fit.neighbors for fit in fits})
    if len(relations) != 1:
        raise ValueError(
            "The candidates of DPSelect must all promise the same neighbouring relation: what they spend does not add "
            f"up otherwise. Got {relations} instead. Set what decides it, such as 'label_private', on the estimator."
        )
    return relations[0]


def _number(name: str, value: object, low: float, high: float) -> float:
    return check_number(name, "a selection", value, f"a finite number of at least {low:g}", low, high)  # fmt: skip


def _suffices(each: Guarantee, times: int, total: Guarantee) -> bool:
    """Return whether so many releases on the same rows keep a guarantee together."""
    if isinstance(each, GaussianDP):
        mu = each.mu * math.sqrt(times)
        if isinstance(total, GaussianDP):
            return mu <= total.mu * _ROUNDING
        if isinstance(total, PureDP):
            return mu == 0
        return gaussian_delta(total.epsilon_bound, mu) <= total.delta_bound * _ROUNDING
    delta = 0.0 if isinstance(each, PureDP) else each.delta_bound
    if isinstance(total, GaussianDP):  # pure epsilon-DP is Gaussian DP as well
        covered = covered_epsilon(GaussianDP(total.mu / math.sqrt(times)))
        return delta == 0 and each.epsilon_bound <= covered * _ROUNDING
    allowed = 0.0 if isinstance(total, PureDP) else total.delta_bound
    within = each.epsilon_bound * times <= total.epsilon_bound * _ROUNDING
    return within and delta * times <= allowed * _ROUNDING


def _composable(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee in the language in which fits compose best."""
    if isinstance(guarantee, ApproxDP):
        return GaussianDP(gaussian_mu(guarantee.epsilon_bound, guarantee.delta_bound))
    return guarantee


def _strength(guarantee: Guarantee) -> float:
    return guarantee.mu if isinstance(guarantee, GaussianDP) else guarantee.epsilon_bound
