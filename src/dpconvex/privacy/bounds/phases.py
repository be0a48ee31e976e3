r"""Phases of a run in which every record is in one phase at most, and how far one record moves what
a phase releases.

Phase i has ``n_i = n / 2^i`` records and the step ``step / decay^i``. Two data sets that differ in
one record differ in one phase: what earlier phases release is the same, later phases only process
what that phase released. So every phase may spend the whole budget, and nothing is composed. This
holds for any assignment of records that is independent of what they hold, hence for a random one.

Where the number of rows is private a permutation would not do: one record more moves others to
other phases. There every record is in phase i with probability ``2^-i``, by a draw of its own, and
a phase divides by its nominal ``n_i``. With the draws of all other records held fixed, a record
that is added or removed changes one phase, whose sum it moves by at most L. A single pass over the
records stays with replace-one: the rounding errors of its steps add up, and no public number bounds
how many steps there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from dpconvex.core.checks import check_number
from dpconvex.core.linear_bounds import LinearBounds

PERMUTED = "random permutation"
DRAWN = "independent draws"

_UNIT = 2.0**-53  # relative error of one rounding


@dataclass(frozen=True)
class Phase:
    """One phase, from public facts: ``n_i`` records and the step ``step / decay^i``."""

    records: int
    step: float

    @property
    def anchor(self) -> float:
        """Strength of the tie to the point of the phase before, ``2 / (step_i n_i)``."""
        return 2 / (self.step * self.records)


@dataclass(frozen=True)
class PhaseSettings:
    """What a run in phases uses; its certificate states the same as plain data."""

    phases: int
    step_size: float
    decay: float
    radius: float
    assignment: str

    @classmethod
    def read(cls, stated: Mapping[str, Any]) -> PhaseSettings:
        """Return the settings that a certificate states."""
        return cls(**{item.name: stated[item.name] for item in fields(cls)})

    def stated(self) -> dict[str, Any]:
        """Return the settings as a certificate states them."""
        return dict(vars(self))


def phases_of(n_samples: int, settings: PhaseSettings) -> list[Phase]:
    """Return the phases that the settings stand for."""
    count = settings.phases
    step = settings.step_size
    decay = settings.decay
    if type(count) is not int or not 1 <= count < n_samples.bit_length():
        raise ValueError(f"The number of phases must be from 1 to log2 of the rows. Got {count!r}.")
    check_number("step_size", "phases_of", step, "a number above 0", 0, math.inf, low_open=True)
    check_number("decay", "phases_of", decay, "a finite number of at least 1", 1, math.inf)
    return [Phase(n_samples >> i, step / decay**i) for i in range(1, count + 1)]


def phase_names(phases: list[Phase]) -> list[str]:
    """Return what the phases' noise terms are called."""
    return [f"phase {i}" for i in range(1, len(phases) + 1)]


def assignment_for(neighbors: str) -> str:
    """Return how records come to phases under a relation."""
    return PERMUTED if neighbors == "replace_one" else DRAWN


def checked_radius(radius: object, owner: str) -> float:
    """Return the radius of the ball on which released points are projected, or raise."""
    return check_number(
        "radius", owner, radius, "a finite number above 0", 0, math.inf, low_open=True
    )


def anchored_phase_bounds(bounds: LinearBounds, phase: Phase) -> LinearBounds:
    r"""Return the bounds of a phase that minimises its objective, tied to the point of the phase
    before.

    ``(1/n_i) sum f + (alpha/2) ||theta||^2 + ||theta - theta_prev||^2 / (step_i n_i)`` is
    s-strongly convex with ``s = alpha + 2 / (step_i n_i)``: the sensitivity is
    ``2 L / (s n_i) + 2 t / s``, and ``L step_i + t step_i n_i`` without a penalty, t the tolerance
    on the norm of the gradient. Half of the first term where a record is added or removed: the
    phase's sum is divided by the nominal ``n_i``.
    """
    return replace(bounds, n_samples=phase.records, alpha=bounds.alpha + phase.anchor)


def anchored_phase_tolerance(local: LinearBounds, radius: float) -> float:
    """Return the tolerance that float64 can certify for a phase around a point of norm up to
    ``radius``.
    """
    if math.isfinite(local.smoothness):
        usual = local.solver_tolerance()
        curvature = local.smoothness
    else:
        smooth = local.envelope_smoothness()
        usual = local.envelope_tolerance(smooth)
        curvature = smooth * local.curvature_factor
    return max(usual, 256 * 2 * _UNIT * (local.alpha + curvature) * radius)


def phase_pass_sensitivity(bounds: LinearBounds, settings: PhaseSettings, phase: Phase) -> float:
    r"""Bound how far the mean of the iterates of one phase's pass of gradient steps moves with one
    record.

    ``2 L step_i``, plus a bound on rounding; raises where steps do not contract. Proof: a step
    ``theta - e (grad f + alpha theta)`` with f convex and b-smooth and ``e <= 2 / (b + alpha)``
    never takes two points further apart, since with ``g`` the difference of the gradients of the
    convex (b + alpha)-smooth function ``f + (alpha/2) ||.||^2`` and D that of the points
    ``<g, D> >= ||g||^2 / (b + alpha)``, so ``||D - e g||^2 = ||D||^2 - 2 e <g, D> + e^2 ||g||^2 <=
    ||D||^2 - e (2 / (b + alpha) - e) ||g||^2 <= ||D||^2``. Two data sets that differ in the record
    of step t share all iterates up to t; step t takes them apart by at most
    ``e ||grad f - grad f'|| <= 2 L e``; later steps use the same records and do not increase that.
    Every iterate, and so every average of iterates, moves by at most ``2 L e``.
    """
    curvature = bounds.smoothness + bounds.alpha
    if not math.isfinite(curvature):
        loss = type(bounds.loss).__name__
        raise ValueError(
            f"PhasedSGD needs a smooth loss, but {loss} has smoothness=inf. Use "
            f"convolve({loss}(...), kernel, bandwidth), moreau({loss}(...), smoothness) or "
            "PhasedERM()."
        )
    if not phase.step * curvature <= 2:
        raise ValueError(
            "The 'step_size' parameter of PhasedSGD must be at most "
            f"{settings.decay * 2 / curvature:.4g} here: beyond, a step can take two points "
            f"further apart. Got {settings.step_size!r} instead. Use a smaller step or a wider "
            "bandwidth."
        )
    # Every step rounds by at most a few units of the largest coefficient it can meet, in both runs.
    radius = checked_radius(settings.radius, "PhasedSGD")
    largest_norm = radius + phase.records * phase.step * bounds.lipschitz
    rounding = 2 * phase.records * _UNIT * (2 * bounds.dimension + 30) * largest_norm
    return 2 * bounds.lipschitz * phase.step + rounding
