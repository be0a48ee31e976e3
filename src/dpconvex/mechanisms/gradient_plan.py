r"""What noisy gradient descent will release, decided from public facts alone.

Every release is a vector of sums plus Gaussian noise, so the whole run is Gaussian DP with
``mu^2 = sum of releases * (sensitivity / std)^2``; a phase with share ``q`` of ``mu^2`` and ``k`` releases has
``std = sensitivity sqrt(k / q) / mu``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scipy.special import ndtri

from dpconvex.privacy.bounds import LinearBounds
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.guarantees import check_number
from dpconvex.privacy.terms import NoiseTerm

from .search import SEARCH_STEPS
from .symmetric import entries


@dataclass(frozen=True)
class Effort:
    """How much a run finds out about the data before the fit proper: more, the more the data can pay for.

    Attributes
    ----------
    error : float
        Largest predicted relative error for which this effort is worth its price.
    rounds : int
        Rounds of private geometry; 0 where noise would hide it.
    geometry : float
        Their share of ``mu^2``.
    reach : float
        Influence bound in units of ``sqrt(n_features)``.
    rough_steps : int
        Steps of a rough fit that finds the residual scale; 0 to do without.
    steps : int
        Steps of the fit proper.
    """

    error: float
    rounds: int
    geometry: float
    reach: float
    rough_steps: int
    steps: int


_KINKED = (
    Effort(0.03, rounds=2, geometry=0.12, reach=1.2, rough_steps=30, steps=30),
    Effort(0.15, rounds=1, geometry=0.12, reach=1.0, rough_steps=15, steps=15),
    Effort(0.4, rounds=1, geometry=0.12, reach=0.8, rough_steps=0, steps=20),
    Effort(math.inf, rounds=0, geometry=0.0, reach=1.0, rough_steps=0, steps=20),
)
_SMOOTH = (
    Effort(0.2, rounds=2, geometry=0.12, reach=1.2, rough_steps=0, steps=20),
    Effort(math.inf, rounds=1, geometry=0.15, reach=1.0, rough_steps=0, steps=20),
)
_STEPS_FROM_AFAR = 40  # where no released coordinates shorten the way
# Mapped targets lie in [-1, 1], and so does the root mean square of a good prediction: the norm of its coefficients in
# white coordinates.
_RADIUS = 1.0
_ROUGH_SHARE, _SCALE_SHARE = 0.2, 0.05

# Sums are formed in the rows' own coordinates and then mapped: where whitening stretches a direction by 1e6, rounding
# of the sum is worth about 1e-7 of the sensitivity.
_ROUNDING = 1 + 1e-6

_NORMAL_PEAK = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Phase:
    """Several releases of one kind.

    Attributes
    ----------
    releases : int
        How many vectors are released.
    share : float
        Share of ``mu^2``.
    sensitivity : float
        l2 sensitivity of one of them.
    dimension : int
        Numbers per release.
    """

    releases: int
    share: float
    sensitivity: float
    dimension: int

    def std(self, mu: float) -> float:
        """Return the noise per coordinate of a run that may spend ``mu``."""
        return self.term(mu).scale

    def term(self, mu: float) -> NoiseTerm:
        """Return the noise of a run that may spend ``mu``."""
        each = mu * math.sqrt(self.share / self.releases)
        std = released_scale(each, self.sensitivity, self.dimension)
        return NoiseTerm("gaussian", std, self.sensitivity, self.dimension, "sum", self.releases)


@dataclass(frozen=True)
class Course:
    """The public choices of a run, which its certificate states.

    Attributes
    ----------
    phases : tuple of str
        Names of the releases, in order of execution.
    rounds : int
        Rounds of private geometry; 0 where the rows' own influence bound gives the coordinates.
    reach : float
        Influence bound in units of ``sqrt(n_features)`` after private geometry.
    finds_scale : bool
        Whether a rough fit and a private residual scale come before the fit proper.
    relative_error : float
        Predicted error of the fit in units of the residual scale.
    radius : float
        Iterates of a noisy fit are kept within this norm; None for no limit.
    """

    phases: tuple[str, ...]
    rounds: int
    reach: float
    finds_scale: bool
    relative_error: float
    radius: float | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Course:
        """Return the course that a certificate states, after checks."""
        course = cls(**{**data, "phases": tuple(data["phases"])})
        if (
            type(course.rounds) is not int
            or course.rounds < 0
            or type(course.finds_scale) is not bool
        ):
            raise ValueError("The stated rounds of geometry must be an integer of at least 0.")
        for name in ("reach", "relative_error", "radius"):
            value = getattr(course, name)
            if name != "radius" or value is not None:
                check_number(name, "Course", value, "a number above 0", 0, math.inf, low_open=True)
        paid = {
            "gradients": True,
            "lengths": course.rounds > 0,
            "moments": course.rounds > 0,
            "rough gradients": course.finds_scale,
            "residuals": course.finds_scale,
        }
        wrong = [name for name, used in paid.items() if (name in course.phases) != used]
        if wrong or not set(course.phases) <= {*paid, "constant part"}:
            raise ValueError(
                f"What a run uses must be paid for where it is stated, and only there: {wrong}."
            )
        return course

    def to_dict(self) -> dict[str, Any]:
        """Return the choices as plain data."""
        return {**asdict(self), "phases": list(self.phases)}


@dataclass(frozen=True)
class GradientPlan:
    """A course and what each of its releases spends.

    Attributes
    ----------
    phases : dict of str to Phase
        In order of execution.
    course : Course
        The public choices between them.
    """

    phases: dict[str, Phase]
    course: Course


def level_of(loss: Any) -> float:
    """Return the quantile level that a loss's slopes stand for: ``high / (high - low)``; 1/2 for margin losses."""
    if loss.kind == "margin":
        return 0.5
    low, high = loss.slope_range
    return float(high / (high - low))


def normal_height(level: float) -> float:
    """Return the density of a standard normal law at its quantile."""
    return _NORMAL_PEAK * math.exp(-(float(ndtri(level)) ** 2) / 2)


def plan_gradient(bounds: LinearBounds, mu: float, settings: Mapping[str, Any]) -> GradientPlan:
    """Choose phases, shares and numbers of steps from public facts.

    Parameters
    ----------
    bounds : LinearBounds
        Public facts.
    mu : float
        Total Gaussian DP budget.
    settings : mapping
        ``steps`` (None or int), ``geometry`` ("private" or "given") and ``bandwidth`` (mapped, or None).
    """
    private = settings["geometry"] == "private"
    kinked = bounds.loss.kind == "residual" and not math.isfinite(bounds.loss.smoothness)

    def relative_error(reach: float, share: float) -> float:
        moving, constant = descent_sensitivities(bounds, private, reach)
        low, high = bounds.loss.slope_range
        noise = (moving + constant) / (mu * math.sqrt(share) * bounds.n_samples)
        height = (high - low) * normal_height(level_of(bounds.loss))
        return math.sqrt(bounds.dimension) * noise / height

    share = 0.63 if private else 0.75
    expected = relative_error(1.2, share)
    efforts = _KINKED if kinked else _SMOOTH
    # The last one also where budgets so small that they overflow expect nothing at all.
    effort = next((e for e in efforts if expected < e.error), efforts[-1])
    finds_scale = effort.rough_steps > 0 and settings["bandwidth"] is None
    rounds = effort.rounds if private else 0
    phases: dict[str, Phase] = {}
    left = 1.0
    if rounds:
        left -= effort.geometry
        phases["lengths"] = Phase(
            rounds * SEARCH_STEPS, 0.15 * effort.geometry, bounds.count_sensitivity(), 1
        )
        phases["moments"] = Phase(
            rounds,
            0.85 * effort.geometry,
            bounds.moment_sensitivity(),
            entries(bounds.dimension),
        )
    moving, constant = descent_sensitivities(bounds, rounds > 0, effort.reach)
    if finds_scale:
        left -= _ROUGH_SHARE + _SCALE_SHARE
        phases["rough gradients"] = Phase(
            effort.rough_steps, _ROUGH_SHARE, moving, bounds.dimension
        )
        phases["residuals"] = Phase(SEARCH_STEPS, _SCALE_SHARE, bounds.count_sensitivity(), 1)
    steps = settings["steps"]
    if steps is None:
        near = finds_scale or (private and bounds.loss.kind != "margin")
        steps = effort.steps if near else _STEPS_FROM_AFAR
    if constant > 0:
        # Noise adds up over both parts: total variance is smallest with shares in proportion to sensitivity.
        split = constant / (moving + constant)
        phases["constant part"] = Phase(1, split * left, constant, bounds.dimension)
        left *= 1 - split
    phases["gradients"] = Phase(steps, left, moving, bounds.dimension)
    share = left if constant == 0 else left / (1 - constant / (moving + constant))
    error = relative_error(effort.reach, share)
    radius = None if effort.rough_steps or settings["bandwidth"] is not None else _RADIUS
    course = Course(tuple(phases), rounds, effort.reach, finds_scale, error, radius)
    return GradientPlan(phases, course)


def descent_sensitivities(bounds: LinearBounds, private: bool, reach: float) -> tuple[float, float]:
    """Return the sensitivities of the moving and constant gradient parts in the coordinates of the descent."""
    influence = math.sqrt(bounds.n_features)
    if private:
        moving, constant = bounds.split_sensitivity(reach * influence, least_weight=0.0)
        return moving * _ROUNDING, constant * _ROUNDING
    return bounds.split_sensitivity(influence)
