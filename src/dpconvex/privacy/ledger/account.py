r"""What a budget has been charged, and whether it allows more: a privacy filter.

A budget of (epsilon, delta) is first spent at face value, within ``E = sum epsilon_i <= epsilon`` and
``D = sum delta_i <= delta``. Its first Gaussian charge finds (e, d) = (epsilon - E, delta - D) left and turns it, for
good, into an account where Gaussian charges add up in squares, ``S = sum mu_i^2``:

- as long as all charges since are Gaussian, within ``gaussian_delta(e, sqrt(S)) <= d / 2``;
- from the first charge since that is taken at face value, within ``E' + a + (b + 1/2) S <= e`` and ``D' <= 2 d / 5``
  (E' and D' the sums since), where ``a = e / 3`` and ``exp(-2 a b) = d / 10``.

A pure charge may stand as a Gaussian one of ``mu = 2 Phi^-1(1 / (1 + exp(-epsilon)))``. A budget in mu takes charges
with ``sum mu_i^2 <= mu^2`` and no others; one with ``composition="sums"`` takes epsilons and deltas at face value only.

Privacy
-------
Whatever is granted keeps the budget, although every charge, and its kind, may be chosen in view of all results so far.

*Gaussian charges.* A release that is mu_i-GDP is a function of one Gaussian observation (Blackwell), hence of a
Brownian motion with drift 0 or 1, by neighbour, that is watched for mu_i^2 units of time. So is a pure one: randomised
response is the sign of an observation. How long to watch next depends on what was seen, but no watch goes on beyond the
time ``mu^2``, so everything released is a function of the path until then, for which its end is sufficient: mu-GDP.

*At face value.* Suppose that every strategy of k charges with (e, d) left is (e, d)-DP. One that begins with a charge
(a, b) and goes on with k more, its laws P_x and Q_x after the result x, has
``P(O) <= int min(1, exp(e - a) Q_x(O)) dP_1(x) + (d - b) <= exp(e) Q(O) + b + (d - b)``. It remains to show that a
strategy that begins with a Gaussian charge is (e, d)-DP.

*Mixtures.* Let O be an event. The part of it without a charge at face value is one of Gaussian charges only:
``P(O_1) <= exp(e) Q(O_1) + d / 2``. In the other part, a release at (epsilon_i, delta_i) is epsilon_i-DP but for a coin
that shows everything with probability delta_i: some coin does with probability 2 d / 5 at most. The loss of the
Gaussian part at time S is a Brownian motion plus S / 2 under P, and exceeds ``a + (b + 1/2) S`` at any time at all with
probability ``exp(-2 a b) = d / 10``. Otherwise the whole loss is at most ``E' + a + (b + 1/2) S <= e``. Hence
``P(O_2) <= exp(e) Q(O_2) + 2 d / 5 + d / 10``.

Without the a, which pays for being right at all times at once, the choice after a first result between so much in
epsilon and so much in mu would be worth more than either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

from scipy.special import expit, log_ndtr, ndtri

from dpconvex.privacy.bounds.base import RECORD
from dpconvex.privacy.calibration import gaussian_mu
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP
from dpconvex.privacy.profiles import gaussian_delta

DEFAULT_DELTA = 1e-6
COMPOSITIONS = ("gaussian", "sums")
# A total above the budget by no more than this factor is rounding: 10 charges of 0.1 fit into 1.
ROUNDING = 1e-12
# Below this epsilon, what it costs in mu is taken from the tangent at 0, which is above it.
_SMALL_EPSILON = 1e-4
# Parts of delta: for Gaussian charges alone, for those at face value beside them, and for the line above both.
_ALONE, _BESIDE, _LINE = 0.5, 0.4, 0.1
# Part of epsilon that the line starts with. Any number would do: it only has to be fixed.
_START = 1 / 3

# A sum and what rounding took from it.
Total = tuple[float, float]


def pure_mu(epsilon: float) -> float:
    """Return the smallest mu for which epsilon-DP implies mu-Gaussian DP.

    ``2 Phi^-1(exp(epsilon) / (1 + exp(epsilon)))``: the trade-off curves meet at the corner of randomised response.

    Examples
    --------
    >>> round(pure_mu(1.0), 6)
    1.232035
    """
    if epsilon < _SMALL_EPSILON:
        return math.sqrt(math.pi / 2) * epsilon
    return -2 * float(ndtri(expit(-epsilon)))


def pure_epsilon(mu: float) -> float:
    """Return an epsilon, hardly below the largest one, with ``pure_mu(epsilon) <= mu``."""
    if mu < _SMALL_EPSILON:
        return (1 - 1e-8) * math.sqrt(2 / math.pi) * mu
    return (1 - 1e-8) * float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))


@dataclass(frozen=True)
class Remaining:
    """What is left of a budget.

    A charge of ``ApproxDP(epsilon, delta)``, of ``PureDP(epsilon)``, or of ``GaussianDP(mu)`` is certain to be granted:
    one of them, not one after another.

    Attributes
    ----------
    epsilon, delta : float
        Left for charges that state them.
    mu : float
        Left for Gaussian charges; 0 if none is allowed.
    spent_epsilon : float
        Total epsilon so far, at ``budget_delta`` (1e-6 for a budget in mu).
    budget_epsilon, budget_delta, budget_mu : float or None
        The whole budget: the first two, or the last.
    charges : int
        Number of granted charges.
    """

    epsilon: float
    delta: float
    mu: float
    spent_epsilon: float
    budget_epsilon: float | None
    budget_delta: float | None
    budget_mu: float | None
    charges: int

    def __str__(self) -> str:
        """Return a clause that people understand without knowing how charges are added."""
        left = f"epsilon {self.epsilon:.4g} and delta {self.delta:.3g}"
        room = f"one more release of up to {left}"
        if self.mu > 0:
            delta = self.budget_delta or DEFAULT_DELTA
            epsilon = GaussianDP(self.mu).epsilon(delta)
            room = (
                f"one more default fit, whose noise is Gaussian, of up to epsilon {epsilon:.4g} at delta {delta:g} "
                f"(mu {self.mu:.4g}), or instead for a release of another kind, such as a score, of up to {left}"
            )
        whole = f"epsilon {self.budget_epsilon or 0:g} and delta {self.budget_delta or 0:g}"
        if self.budget_mu is not None:
            whole = f"mu {self.budget_mu:g}"
        return f"there is room for {room}. The whole budget is {whole}; releases so far: {self.charges:,}"


@dataclass(frozen=True)
class Cost:
    """What a charge adds to the totals: either epsilon and delta, or the square of mu."""

    epsilon: float = 0.0
    delta: float = 0.0
    mu_squared: float = 0.0


@dataclass(frozen=True)
class Account:
    """A budget and the totals of its charges.

    Attributes
    ----------
    epsilon, delta, mu : float or None
        The budget: either the first two or the last.
    composition : {"gaussian", "sums"}
        Whether Gaussian charges of a budget of (epsilon, delta) add up in squares.
    spent_epsilon, spent_delta, spent_mu_squared : (float, float)
        E + E', D + D' and S, each with the rounding error of its sum.
    turned : (float, float) or None
        The (e, d) that the first Gaussian charge found.
    mixed : bool
        Whether a charge since then was taken at face value.
    charges : int
        How many there were.
    neighbors : str or None
        The relation under which all of them hold; None before the first.
    unit : str
        Whom all of them are promises to, once there are any.
    """

    epsilon: float | None
    delta: float | None
    mu: float | None
    composition: str = "gaussian"
    spent_epsilon: Total = (0.0, 0.0)
    spent_delta: Total = (0.0, 0.0)
    spent_mu_squared: Total = (0.0, 0.0)
    turned: tuple[float, float] | None = None
    mixed: bool = False
    charges: int = 0
    neighbors: str | None = None
    unit: str = RECORD

    @classmethod
    def from_dict(cls, state: Facts) -> Account:
        """Rebuild an account from :meth:`to_dict`, perhaps by way of JSON; raise ValueError if it is none."""
        values: Facts = {name: tuple(value) if isinstance(value, list) else value for name, value in state.items()}
        found = cls(**values)
        if not found._may_be():
            raise ValueError("These are no totals of a budget.")
        return found

    def _may_be(self) -> bool:
        """Whether all fields are of their kinds and within their ranges."""
        in_mu = self.mu is not None
        whole, delta = (self.mu, 0.0) if in_mu else (self.epsilon, self.delta)
        totals = (self.spent_epsilon, self.spent_delta, self.spent_mu_squared)
        return (
            (not in_mu or (self.epsilon is None and self.delta is None))
            and _is_number(whole)
            and _is_number(delta)
            and cast(float, whole) > 0
            and 0 <= cast(float, delta) < 1
            and self.composition in COMPOSITIONS
            and all(_is_pair(total, infinite=True) for total in totals)
            and (self.turned is None or _is_pair(self.turned))
            and type(self.mixed) is bool
            and (self.turned is not None or not self.mixed)
            and type(self.charges) is int
            and self.charges >= 0
            and isinstance(self.neighbors, (str, type(None)))
            and isinstance(self.unit, str)
        )

    def to_dict(self) -> Facts:
        """Return the account as plain data; the unit where it is not a record, which older files do not name."""
        return {name: value for name, value in vars(self).items() if (name, value) != ("unit", RECORD)}

    def cost(self, guarantee: Guarantee, mu: float | None = None) -> Cost:
        """Return what a release would be charged now: the first way that the budget allows, or else the last.

        Parameters
        ----------
        guarantee : PureDP, ApproxDP or GaussianDP
            What the release promises.
        mu : float or None
            The release is mu-Gaussian DP as well.
        """
        ways = self._ways(guarantee, mu)
        return next((way for way in ways if self.charged(way, "").within_budget()), ways[-1])

    def _ways(self, guarantee: Guarantee, mu: float | None) -> list[Cost]:
        if isinstance(guarantee, GaussianDP):
            face = Cost(epsilon=math.inf) if guarantee.mu > 0 else Cost()
            mu = guarantee.mu if mu is None else min(mu, guarantee.mu)
        else:
            face = Cost(guarantee.epsilon_bound, guarantee.delta(math.inf))
            if face.delta == 0:
                known = pure_mu(face.epsilon)
                mu = known if mu is None else min(mu, known)
        squares = Cost(mu_squared=math.inf if mu is None else mu * mu)
        if self.mu is not None:
            return [squares]
        if self.composition == "sums" or not self.delta or mu is None:
            return [face]
        if self.turned is not None:
            return [face, squares] if self.mixed and face.delta == 0 else [squares, face]
        if isinstance(guarantee, GaussianDP):
            # It may also take all that is left, at face value: nothing is kept for later charges.
            e, d = self._unspent()
            if e > 0 and d > 0 and gaussian_delta(e * (1 + ROUNDING), mu) <= d:
                return [squares, Cost(e, d)]
            return [squares]
        # A mu that says less than the guarantee is not where its epsilon and delta come from.
        implied = face.delta > 0 and gaussian_delta(face.epsilon, mu) <= face.delta
        return [squares, face] if implied else [face]

    def charged(self, cost: Cost, neighbors: str, unit: str = RECORD) -> Account:
        """Return the account with one more charge, whether or not the budget allows it."""
        turned = self.turned
        if turned is None and self.mu is None and cost.mu_squared > 0:
            turned = self._unspent()
        return replace(
            self,
            spent_epsilon=_add(self.spent_epsilon, cost.epsilon),
            spent_delta=_add(self.spent_delta, cost.delta),
            spent_mu_squared=_add(self.spent_mu_squared, cost.mu_squared),
            turned=turned,
            mixed=self.mixed or (self.turned is not None and cost.epsilon + cost.delta > 0),
            charges=self.charges + 1,
            neighbors=self.neighbors or neighbors,
            unit=self.unit if self.charges else unit,
        )

    def _unspent(self) -> tuple[float, float]:
        """Return what the sums of epsilons and deltas leave; below 0 if it is overspent."""
        assert self.epsilon is not None
        assert self.delta is not None
        return self.epsilon - self.spent_epsilon[0], self.delta - self.spent_delta[0]

    def within_budget(self) -> bool:
        """Return whether the charges so far keep the budget."""
        squared = self.spent_mu_squared[0]
        if self.mu is not None:
            return squared <= self.mu * self.mu * (1 + ROUNDING)
        assert self.epsilon is not None
        assert self.delta is not None
        if self.turned is None:
            deltas = self.spent_delta[0] <= self.delta * (1 + ROUNDING)
            return deltas and self.spent_epsilon[0] <= self.epsilon * (1 + ROUNDING)
        e, d = self.turned
        if not (e > 0 and d > 0):
            return False
        if not self.mixed:
            return gaussian_delta(e * (1 + ROUNDING), math.sqrt(squared)) <= _ALONE * d
        epsilon, delta = self._left_beside()
        return epsilon >= -ROUNDING * self.epsilon and delta >= -ROUNDING * self.delta

    def _left_beside(self) -> tuple[float, float]:
        """Return what is left at face value beside Gaussian charges; below 0 if it is overspent."""
        assert self.turned is not None
        epsilon, delta = self._unspent()
        start, slope = self._line()
        kept = start + slope * self.spent_mu_squared[0]
        return epsilon - kept, delta - (1 - _BESIDE) * self.turned[1]

    def _line(self) -> tuple[float, float]:
        """Return a and b + 1/2."""
        assert self.turned is not None
        e, d = self.turned
        start = _START * e
        return start, math.log(1 / (_LINE * d)) / (2 * start) + 0.5

    def epsilon_at(self, delta: float) -> float:
        """Return the total epsilon at ``delta``, for charges that were fixed beforehand."""
        left = delta - self.spent_delta[0]
        if left < -ROUNDING * delta:
            return math.inf
        mu = math.sqrt(self.spent_mu_squared[0])
        if mu == 0 or math.isinf(mu):
            return self.spent_epsilon[0] + mu
        return self.spent_epsilon[0] + GaussianDP(mu).epsilon(left)

    def total(self) -> Guarantee:
        """Return one guarantee for all charges: Gaussian if all were, else at the budget's delta."""
        if self.mu is not None or (self.turned is not None and self.spent_epsilon[0] == 0):
            return GaussianDP(math.sqrt(self.spent_mu_squared[0]))
        epsilon = self.epsilon_at(self.delta or 0.0)
        return ApproxDP(epsilon, self.delta) if self.delta else PureDP(epsilon)

    def remaining(self) -> Remaining:
        """Return what is left, in words and numbers for people."""
        epsilon, delta, mu = self._left()
        return Remaining(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            spent_epsilon=self.epsilon_at(DEFAULT_DELTA if self.delta is None else self.delta),
            budget_epsilon=self.epsilon,
            budget_delta=self.delta,
            budget_mu=self.mu,
            charges=self.charges,
        )

    def _left(self) -> tuple[float, float, float]:
        squared = self.spent_mu_squared[0]
        if self.mu is not None:
            mu = math.sqrt(max(0.0, self.mu * self.mu - squared))
            return pure_epsilon(mu), 0.0, mu
        e, d = self.turned or self._unspent()
        if self.turned is not None and not (e > 0 and d > 0):
            return 0.0, 0.0, 0.0
        if self.mixed:
            epsilon, delta = self._left_beside()
            mu = math.sqrt(max(0.0, epsilon) / self._line()[1])
            return max(0.0, epsilon), max(0.0, delta), mu
        mu = 0.0
        if self.composition == "gaussian" and e > 0 and d > 0:
            whole = gaussian_mu(e, _ALONE * d)
            mu = math.sqrt(max(0.0, whole * whole - squared))
        if self.turned is None:
            return max(0.0, e), max(0.0, d), mu
        epsilon, delta = self._left_beside()
        pure = pure_epsilon(mu)
        return (epsilon, delta, mu) if epsilon > pure else (pure, 0.0, mu)


def _is_number(value: object, infinite: bool = False) -> bool:
    """Whether a value is a number that squares do not take out of range: charges that no budget allows are infinite."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and (abs(value) < 1e100 or (infinite and value == math.inf))  # type: ignore[arg-type]


def _is_pair(value: object, infinite: bool = False) -> bool:
    """Whether a value is a pair of numbers: what is left, or with ``infinite`` a sum and its rounding error."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return _is_number(value[0], infinite) and _is_number(value[1]) and (not infinite or value[0] >= 0)


def _add(total: Total, value: float) -> Total:
    """Add without losing what rounding takes, so that many small charges sum up to what they are."""
    if value == 0:
        return total
    if math.isinf(value) or math.isinf(total[0]):
        return math.inf, 0.0
    rounded = math.fsum((*total, value))
    return rounded, math.fsum((*total, value, -rounded))
