"""What an audit found: the verdict with the counts it rests on, and the empirical trade-off curve."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpconvex.types import Array


@dataclass(frozen=True)
class TradeoffCurve:
    """Empirical errors of the threshold tests that tell the two data sets apart.

    Attributes
    ----------
    type_one : array
        Rate of the event on the data set where it is rare, in increasing order.
    type_two : array
        Rate of its absence on the data set where it is likely. Privacy keeps
        ``type_two >= claim.tradeoff(type_one)`` up to sampling error.
    """

    type_one: Array
    type_two: Array


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes
    ----------
    passed : bool
        False when ``epsilon_lower_bound > epsilon``: the claim is refuted.
    epsilon_lower_bound : float
        Lower confidence bound on the true epsilon at ``delta``.
    epsilon : float
        The claimed epsilon at ``delta``.
    delta : float
        The point of the claimed profile that came closest to (or furthest beyond) refutation.
    confidence : float
        Probability that the lower bound is right, whatever the mechanism.
    statistic : str
        ``"projection"``, ``"deviation"`` (distance of the projection from its centre), ``"number 3"`` (the fourth
        number of the output alone), ``"last bit of number 3"`` or ``"custom"``.
    threshold : float
        The event is ``statistic > threshold`` or ``statistic <= threshold``.
    direction : str
        ``"above"`` or ``"below"`` the threshold.
    likely : str
        ``"first"`` or ``"second"``: the data set on which the event is likelier.
    likely_hits, rare_hits : int
        Counts of the event on the evaluation runs of the two data sets.
    runs : int
        Evaluation runs per data set, which the bound rests on.
    selection_runs : int
        Runs per data set spent on choosing the event.
    detectable_noise : float or None
        What size of defect this run could have seen: noise below this share of what was drawn would most likely have
        been refuted. 0 means missing noise only, None that not even this is certain.
    tradeoff : TradeoffCurve
        Errors of all thresholds of the chosen statistic and direction.
    """

    passed: bool
    epsilon_lower_bound: float
    epsilon: float
    delta: float
    confidence: float
    statistic: str
    threshold: float
    direction: str
    likely: str
    likely_hits: int
    rare_hits: int
    runs: int
    selection_runs: int
    detectable_noise: float | None
    tradeoff: TradeoffCurve = field(repr=False, compare=False)

    def summary(self) -> str:
        """Readable account of the result, one fact per line."""
        verdict = "consistent with the claim" if self.passed else "CLAIM REFUTED"
        other = "second" if self.likely == "first" else "first"
        lines = [
            f"Privacy audit: {verdict}",
            f"  claimed epsilon      {self.epsilon:.4g} at delta = {self.delta:.3g}",
            f"  epsilon lower bound  {self.epsilon_lower_bound:.4g} "
            f"(wrong with probability at most {1.0 - self.confidence:.1e})",
            f"  event                {self.statistic} {self.direction} {self.threshold:.6g}",
            f"  seen                 {self.likely_hits} times on the {self.likely} data set, "
            f"{self.rare_hits} on the {other}",
            f"  runs per data set    {self.runs} counted, {self.selection_runs} for selection",
            f"  would have caught    {self.would_have_caught()}",
        ]
        return "\n".join(lines)

    __str__ = summary

    def would_have_caught(self) -> str:
        """Return in words what size of defect this run could have seen."""
        if self.detectable_noise is None:
            return "no defect for certain: more runs see more"
        if self.detectable_noise < 0.01:
            return "missing noise only"
        return f"noise below {self.detectable_noise:.2g} of what was drawn"
