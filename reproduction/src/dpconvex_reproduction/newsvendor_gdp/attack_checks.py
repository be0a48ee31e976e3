"""Checks of Figure 3: the curves, what attacks refute, and which mu they would have noticed."""

from __future__ import annotations

from typing import Literal

from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom

from dpconvex_reproduction.exhibit import Check, Row, select
from dpconvex_reproduction.newsvendor_gdp import tradeoffs
from dpconvex_reproduction.newsvendor_gdp.attack import smallest_mu
from dpconvex_reproduction.newsvendor_gdp.published import BUDGETS

__all__ = ["judge", "noticed_mu"]

_MISSED = 0.1  # share of attacks that may miss the mu that they are said to notice
_ATTACKED: tuple[tuple[str, Literal["paper", "dpconvex"], str], ...] = (
    ("paper", "paper", "Algorithm 1 with its line search"),
    ("sound", "dpconvex", "Algorithm 1 with a public step"),
    ("dpconvex", "dpconvex", "DPNewsvendor"),
)


def noticed_mu(promised: float, runs: int) -> float:
    """Return a true mu that an attack refutes the promise of in nine of ten cases, were its test
    the best one.

    The best test at the middle threshold has two errors ``Phi(-mu / 2)``. Hits and false hits are
    those that 95 of 100 attacks beat each.

    Examples
    --------
    >>> noticed_mu(0.5, 300) > noticed_mu(0.5, 3000) > 0.5
    True
    """

    def excess(mu: float) -> float:
        hits = int(binom.ppf(_MISSED / 2, runs, ndtr(mu / 2)))
        return smallest_mu(hits, runs - hits, runs) - promised

    # A thousandth: counts are whole numbers, so the excess has steps.
    return float(brentq(excess, promised, 20.0, xtol=1e-3)) if excess(20.0) > 0 else float("inf")


def _by_promise(values: dict[float, float]) -> str:
    return ", ".join(f"{value:.2f} where {mu:g} is promised" for mu, value in values.items())


def _attack(name: str, about: Literal["paper", "dpconvex"], rows: list[Row]) -> Check:
    statement = f"An attack does not refute the promised mu of {name}"
    if not rows:
        return Check(statement, False, "no attack was run", about)
    worst = {mu: max(row["mu_at_least"] for row in select(rows, mu=mu)) for mu in BUDGETS}
    holds = all(worst[mu] <= mu for mu in BUDGETS)
    found = (
        f"mu is at least {_by_promise(worst)}"
        if any(worst.values())
        else "the attack finds nothing"
    )
    # Each bound is wrong with probability at most 1e-6; all that the largest is taken over count.
    found += f" ({len(rows)} bounds, all of them right with confidence 1 - {1e-6 * len(rows):.2g})"
    if holds:
        least = {
            mu: noticed_mu(mu, min(row["runs"] for row in select(rows, mu=mu))) for mu in BUDGETS
        }
        found += (
            f"; it would have noticed, in nine of ten cases if no test is better, a true mu of "
            f"{_by_promise(least)}; of smaller ones it says nothing"
        )
    return Check(statement, holds, found, about)


def judge(rows: list[Row]) -> list[Check]:
    """Hold the figure's curves against the numbers, and every promise against the attack on it."""
    attacks = [row for row in rows if "mu_at_least" in row]
    return tradeoffs.judge(rows) + [
        _attack(name, about, select(attacks, variant=variant)) for variant, about, name in _ATTACKED
    ]
