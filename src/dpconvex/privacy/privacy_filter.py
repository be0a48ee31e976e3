r"""Privacy filter: the charges of a budget so far, and whether it allows one more.

A budget of (epsilon, delta) first adds up what charges state, within
``E = sum epsilon_i <= epsilon`` and ``D = sum delta_i <= delta``. Its first Gaussian charge finds
(e, d) = (epsilon - E, delta - D) left. From then on Gaussian charges add up in squares,
``S = sum mu_i^2``:

- as long as all charges since are Gaussian, within ``gaussian_delta(e, sqrt(S)) <= d / 2``;
- from the first other charge since, within ``E' + a + (b + 1/2) S <= e`` and ``D' <= 2 d / 5`` (E'
  and D' the sums since), where ``a = e / 3`` and ``exp(-2 a b) = d / 10``.

A pure charge may stand as a Gaussian one of ``mu = 2 Phi^-1(1 / (1 + exp(-epsilon)))``. A budget in
mu takes charges with ``sum mu_i^2 <= mu^2`` and no others; one with ``composition="sums"`` adds
stated epsilons and deltas only.

Privacy
-------
Whatever is granted keeps the budget, although every charge, and its kind, may be chosen in view of
all results so far.

*Gaussian charges.* A release that is mu_i-GDP is a function of one Gaussian observation
(Blackwell), hence of a Brownian motion with drift 0 or 1, by neighbour, that is observed for mu_i^2
units of time. So is a pure one: randomised response is the sign of an observation. How long to
observe next depends on what was seen, but nothing is observed beyond the time ``mu^2``, so
everything released is a function of the path until then, for which its end is sufficient: mu-GDP.

*Sums of epsilons and deltas.* Suppose that every strategy of k charges with (e, d) left is (e,
d)-DP. One that begins with a charge (a, b) and goes on with k more, its distributions P_x and Q_x
after the result x, has ``P(O) <= int min(1, exp(e - a) Q_x(O)) dP_1(x) + (d - b) <= exp(e) Q(O) + b
+ (d - b)``. It remains to show that a strategy that begins with a Gaussian charge is (e, d)-DP.

*Mixtures.* Let O be an event. The part of it in which all charges are Gaussian has
``P(O_1) <= exp(e) Q(O_1) + d / 2``. In the other part, a release at (epsilon_i, delta_i) is
epsilon_i-DP but for a coin that shows everything with probability delta_i: some coin does with
probability 2 d / 5 at most. The privacy loss of the Gaussian charges at time S is a Brownian motion
plus S / 2 under P, and exceeds ``a + (b + 1/2) S`` at any time at all with probability
``exp(-2 a b) = d / 10``. Otherwise the whole loss is at most ``E' + a + (b + 1/2) S <= e``. Hence
``P(O_2) <= exp(e) Q(O_2) + 2 d / 5 + d / 10``.

Without the a, which pays for being right at all times at once, the choice after a first result
between so much in epsilon and so much in mu would be worth more than either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpconvex.core import guarantees
from dpconvex.core.bounds import RECORD
from dpconvex.core.calibration import gaussian_delta, gaussian_mu
from dpconvex.core.description import Facts

DEFAULT_DELTA = 1e-6
COMPOSITIONS = ("gaussian", "sums")
# A total above the budget by no more than this factor is rounding: 10 charges of 0.1 fit into 1.
ROUNDING = 1e-12
# Parts of delta: for Gaussian charges alone, for others beside them, and for the line above the
# Gaussian loss.
_GAUSSIAN_PART = 0.5
_OTHER_PART = 0.4
_LINE_PART = 0.1
# Part of epsilon that the line starts with. Any number would do: it only has to be fixed.
_LINE_START = 1 / 3

Total = tuple[float, float]  # a sum, and what rounding took from it


@dataclass(frozen=True)
class FilterRemaining:
    """The rest of a budget.

    A charge of ``ApproxDP(epsilon, delta)``, of ``PureDP(epsilon)``, or of ``GaussianDP(mu)`` is
    certain to be granted: one of them, not one after another.
    """

    epsilon: float  # left, like delta, for charges that state them
    delta: float
    mu: float  # left for Gaussian charges; 0 if none is allowed
    spent_epsilon: float  # total so far, at budget_delta (1e-6 for a budget in mu)
    budget_epsilon: float | None  # the whole budget: epsilon and delta, or mu
    budget_delta: float | None
    budget_mu: float | None
    charges: int  # granted so far

    def __str__(self) -> str:
        """Return a clause that people understand without knowing how charges are added."""
        whole = f"epsilon {self.budget_epsilon or 0:g} and delta {self.budget_delta or 0:g}"
        if self.budget_mu is not None:
            whole = f"mu {self.budget_mu:g}"
        left = f"epsilon {self.epsilon:.4g} and delta {self.delta:.3g}"
        if self.mu > 0:
            delta = self.budget_delta or DEFAULT_DELTA
            epsilon = guarantees.GaussianDP(self.mu).epsilon(delta)
            left = (
                f"epsilon {epsilon:.4g} at delta {delta:g} (mu {self.mu:.4g}) if its noise is "
                "Gaussian, like that of a default fit. Any other release, such as a score, may "
                f"spend {left} instead"
            )
        return (
            f"the next release may spend {left}. The whole budget is {whole}; releases so far: "
            f"{self.charges:,}"
        )


@dataclass(frozen=True)
class FilterCost:
    """Amounts that a charge adds to the totals: either epsilon and delta, or the square of mu."""

    epsilon: float = 0.0
    delta: float = 0.0
    mu_squared: float = 0.0


@dataclass(frozen=True)
class PrivacyFilter:
    """A budget, (epsilon, delta) or mu, and the totals of its charges: E + E', D + D' and S of
    the docstring above.
    """

    epsilon: float | None
    delta: float | None
    mu: float | None
    composition: str = "gaussian"  # or "sums", where Gaussian charges do not add up in squares
    spent_epsilon: Total = (0.0, 0.0)
    spent_delta: Total = (0.0, 0.0)
    spent_mu_squared: Total = (0.0, 0.0)
    before_gaussian: tuple[float, float] | None = (
        None  # the (e, d) that the first Gaussian charge found
    )
    mixed: bool = False  # whether a charge since then was not Gaussian
    charges: int = 0
    neighbors: str | None = None  # the relation under which all charges hold; None before the first
    unit: str = RECORD  # whom all charges are promises to, once there are any

    @classmethod
    def from_dict(cls, state: Facts) -> PrivacyFilter:
        """Rebuild a filter from its fields, perhaps by way of JSON; raise ValueError if they are
        none of a budget.
        """
        values: Facts = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in state.items()
        }
        found = cls(**values)
        in_mu = found.mu is not None
        valid = (
            (
                found.epsilon is None and found.delta is None
                if in_mu
                else _is_number(found.delta, 0, 1)
            )
            and _is_number(found.mu if in_mu else found.epsilon, 0)
            and (found.mu or found.epsilon)
            and found.composition in COMPOSITIONS
            and all(
                _is_pair(total, 0)
                for total in (found.spent_epsilon, found.spent_delta, found.spent_mu_squared)
            )
            and (found.before_gaussian is None or _is_pair(found.before_gaussian))
            and type(found.mixed) is bool
            and (found.before_gaussian is not None or not found.mixed)
            and type(found.charges) is int
            and found.charges >= 0
            and isinstance(found.neighbors, (str, type(None)))
            and isinstance(found.unit, str)
        )
        if not valid:
            raise ValueError("These are no totals of a budget.")
        return found

    def cost(self, guarantee: guarantees.Guarantee, mu: float | None = None) -> FilterCost:
        """Return what a release, perhaps mu-Gaussian DP too, would be charged: the first allowed
        cost, or the last.
        """
        costs = self._possible_filter_costs(guarantee, mu)
        return next((cost for cost in costs if self.charged(cost, "").within_budget()), costs[-1])

    def _possible_filter_costs(
        self, guarantee: guarantees.Guarantee, mu: float | None
    ) -> list[FilterCost]:
        """Return the costs by which the filter may count a release: as stated, and by its mu."""
        if isinstance(guarantee, guarantees.GaussianDP):
            stated = FilterCost(epsilon=math.inf) if guarantee.mu > 0 else FilterCost()
            mu = guarantee.mu if mu is None else min(mu, guarantee.mu)
        else:
            stated = FilterCost(guarantee.epsilon_bound, guarantee.delta_bound)
            if stated.delta == 0:
                known = guarantees.pure_guarantee_mu(stated.epsilon)
                mu = known if mu is None else min(mu, known)
        squares = FilterCost(mu_squared=math.inf if mu is None else mu * mu)
        if self.mu is not None:
            return [squares]
        if self.composition == "sums" or not self.delta or mu is None:
            return [stated]
        if self.before_gaussian is not None:
            return [stated, squares] if self.mixed and stated.delta == 0 else [squares, stated]
        if isinstance(guarantee, guarantees.GaussianDP):
            # It may also take all that is left, in epsilon and delta: nothing is kept for later
            # charges.
            e, d = self._unspent()
            whole = e > 0 and d > 0 and gaussian_delta(e * (1 + ROUNDING), mu) <= d
            return [squares, FilterCost(e, d)] if whole else [squares]
        # A mu that says less than the guarantee is not where its epsilon and delta come from.
        implied = stated.delta > 0 and gaussian_delta(stated.epsilon, mu) <= stated.delta
        return [squares, stated] if implied else [stated]

    def charged(self, cost: FilterCost, neighbors: str, unit: str = RECORD) -> PrivacyFilter:
        """Return the filter after one more charge, whether or not the budget allows it."""
        left = self.before_gaussian
        if left is None and self.mu is None and cost.mu_squared > 0:
            left = self._unspent()
        return replace(
            self,
            spent_epsilon=_add_filter_charge(self.spent_epsilon, cost.epsilon),
            spent_delta=_add_filter_charge(self.spent_delta, cost.delta),
            spent_mu_squared=_add_filter_charge(self.spent_mu_squared, cost.mu_squared),
            before_gaussian=left,
            mixed=self.mixed
            or (self.before_gaussian is not None and cost.epsilon + cost.delta > 0),
            charges=self.charges + 1,
            neighbors=self.neighbors or neighbors,
            unit=self.unit if self.charges else unit,
        )

    def _unspent(self) -> tuple[float, float]:
        """Return what the sums of epsilons and deltas leave; below 0 if it is overspent."""
        return (self.epsilon or 0.0) - self.spent_epsilon[0], (
            self.delta or 0.0
        ) - self.spent_delta[0]

    def within_budget(self) -> bool:
        """Return whether the charges that the filter has seen keep the budget."""
        squared = self.spent_mu_squared[0]
        if self.mu is not None:
            return squared <= self.mu * self.mu * (1 + ROUNDING)
        whole_epsilon = self.epsilon or 0.0
        whole_delta = self.delta or 0.0
        if self.before_gaussian is None:
            deltas = self.spent_delta[0] <= whole_delta * (1 + ROUNDING)
            return deltas and self.spent_epsilon[0] <= whole_epsilon * (1 + ROUNDING)
        e, d = self.before_gaussian
        if not (e > 0 and d > 0):
            return False
        if not self.mixed:
            return gaussian_delta(e * (1 + ROUNDING), math.sqrt(squared)) <= _GAUSSIAN_PART * d
        epsilon, delta = self._left_beside_gaussian()
        return epsilon >= -ROUNDING * whole_epsilon and delta >= -ROUNDING * whole_delta

    def _left_beside_gaussian(self) -> tuple[float, float]:
        """Return the epsilon and delta that are left beside Gaussian charges; below 0 if
        overspent.
        """
        epsilon, delta = self._unspent()
        start, slope = self._line()
        reserved = (1 - _OTHER_PART) * (self.before_gaussian or (0.0, 0.0))[1]
        return epsilon - (start + slope * self.spent_mu_squared[0]), delta - reserved

    def _line(self) -> tuple[float, float]:
        """Return a and b + 1/2."""
        e, d = self.before_gaussian or self._unspent()
        start = _LINE_START * e
        return start, math.log(1 / (_LINE_PART * d)) / (2 * start) + 0.5

    def epsilon_at(self, delta: float) -> float:
        """Return the total epsilon at ``delta``, for charges that were fixed beforehand."""
        left = delta - self.spent_delta[0]
        if left < -ROUNDING * delta:
            return math.inf
        mu = math.sqrt(self.spent_mu_squared[0])
        return self.spent_epsilon[0] + (guarantees.GaussianDP(mu).epsilon(left) if mu else 0.0)

    def total(self) -> guarantees.Guarantee:
        """Return one guarantee for all charges: Gaussian if all were, else at the budget's
        delta.
        """
        if self.mu is not None or (self.before_gaussian is not None and self.spent_epsilon[0] == 0):
            return guarantees.GaussianDP(math.sqrt(self.spent_mu_squared[0]))
        epsilon = self.epsilon_at(self.delta or 0.0)
        return (
            guarantees.ApproxDP(epsilon, self.delta) if self.delta else guarantees.PureDP(epsilon)
        )

    def remaining(self) -> FilterRemaining:
        """Return what the filter has left, in words and numbers for people."""
        return FilterRemaining(
            *self._left_in_filter(),
            spent_epsilon=self.epsilon_at(DEFAULT_DELTA if self.delta is None else self.delta),
            budget_epsilon=self.epsilon,
            budget_delta=self.delta,
            budget_mu=self.mu,
            charges=self.charges,
        )

    def _left_in_filter(self) -> tuple[float, float, float]:
        """Return the epsilon and delta that the filter has left, and the mu."""
        squared = self.spent_mu_squared[0]
        if self.mu is not None:
            mu = math.sqrt(max(0.0, self.mu * self.mu - squared))
            return pure_epsilon(mu), 0.0, mu
        e, d = self.before_gaussian or self._unspent()
        if self.before_gaussian is not None and not (e > 0 and d > 0):
            return 0.0, 0.0, 0.0
        if self.mixed:
            epsilon, delta = self._left_beside_gaussian()
            mu = math.sqrt(max(0.0, epsilon) / self._line()[1])
            return max(0.0, epsilon), max(0.0, delta), mu
        mu = 0.0
        if self.composition == "gaussian" and e > 0 and d > 0:
            whole = gaussian_mu(e, _GAUSSIAN_PART * d)
            mu = math.sqrt(max(0.0, whole * whole - squared))
        if self.before_gaussian is None:
            return max(0.0, e), max(0.0, d), mu
        epsilon, delta = self._left_beside_gaussian()
        pure = pure_epsilon(mu)
        return (epsilon, delta, mu) if epsilon > pure else (pure, 0.0, mu)


def pure_epsilon(mu: float) -> float:
    """Return an epsilon, hardly below the largest one, with
    ``pure_guarantee_mu(epsilon) <= mu``.
    """
    return (1 - 1e-8) * guarantees.guaranteed_pure_epsilon(guarantees.GaussianDP(mu))


def _is_number(value: object, low: float = -1e100, high: float = 1e100) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < high


def _is_pair(value: object, low: float = -1e100) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and _is_number(value[0], low) and _is_number(value[1])  # type: ignore[index]


def _add_filter_charge(total: Total, value: float) -> Total:
    """Add without losing what rounding takes, so that many small charges sum up to what they
    are.
    """
    if value == 0:
        return total
    if math.isinf(value):
        return math.inf, 0.0
    rounded = math.fsum((*total, value))
    return rounded, math.fsum((*total, value, -rounded))
