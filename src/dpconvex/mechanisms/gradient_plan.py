r"""What noisy gradient descent will release, decided from public facts alone.

Every release is a vector of sums plus Gaussian noise, so the whole run is Gaussian DP with
``mu^2 = sum of releases * (sensitivity / std)^2``; a phase with share ``q`` of ``mu^2`` and ``k`` releases has
``std = sensitivity sqrt(k / q) / mu``.

Effort varies continuously with ``n mu / dimension``, the number of records per coefficient that noise leaves: shares,
clips and progress are smooth functions of it, and what is found out costs what it is worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri

from dpconvex.privacy.bounds import LinearBounds

from .geometry import LENGTH_BINS, OCTAVES

TARGET_BINS = 64
MARGIN_BINS = 16

# Sums are formed in the rows' own coordinates and then mapped: where whitening stretches a direction by 1e5, rounding
# of the sum is worth about 1e-7 of the sensitivity.
_ROUNDING = 1 + 1e-6
_NORMAL_PEAK = 1 / math.sqrt(2 * math.pi)

CENTRE_STEPS, SCALE_STEPS, SHIFT_STEPS, RANGE_STEPS = 24, 12, 16, 8
TUNE: dict[str, Any] = {
    "few": 80.0, "geometry": 0.12, "scales": 0.02, "targets": 0.04, "targets_few": 0.4,
    "residuals": 0.04, "residuals_few": 0.2, "rough": 0.45, "rough_median": 0.3,
    "steps": 20, "clip": 0.5, "clip_at": 100.0, "clip_power": 0.5,
    "m_geometry": 0.12, "m_steps": 30, "m_clip": 0.5, "m_clip_at": 2000.0, "m_clip_power": 0.5,
    "m_clip_low": 10.0, "trust": 300.0, "m_trust": 300.0, "floor_low": 5.0, "m_floor_low": 40.0, "m_cal": 0.08, "m_cal_few": 0.1, "m_labels": 0.02, "m_labels_few": 0.5,
}


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
        """Return the noise per coordinate."""
        return self.sensitivity * math.sqrt(self.releases / self.share) / mu


@dataclass(frozen=True)
class GradientPlan:
    """The phases of a run and the public choices between them.

    Attributes
    ----------
    phases : dict of str to Phase
        In order of execution.
    private : bool
        Whether coordinates are released; otherwise the rows' own influence bound gives them.
    clip : float
        Bound on a record's gradient in units of a typical row, for slopes of at most 1.
    records : float
        ``n mu / dimension``: records per coefficient that noise leaves.
    """

    phases: dict[str, Phase]
    private: bool
    clip: float
    records: float
    floor: float = 0.5
    trust: float = 1.0


def level_of(loss: Any) -> float:
    """Return the quantile level that a loss's slopes stand for: ``high / (high - low)``; 1/2 for margin losses."""
    if loss.kind == "margin":
        return 0.5
    low, high = loss.slope_range
    return float(high / (high - low))


def normal_height(level: float) -> float:
    """Return the density of a standard normal law at its quantile."""
    return _NORMAL_PEAK * math.exp(-(float(ndtri(level)) ** 2) / 2)


def is_kinked(loss: Any) -> bool:
    """Whether a loss of residuals has a kink, so that its steps need a scale from the data."""
    return bool(loss.kind == "residual" and not math.isfinite(loss.smoothness))


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
    if settings["geometry"] == "given":
        return _plan_given(bounds, mu, settings)
    size = bounds.n_samples * mu
    records = size / bounds.dimension
    kinked = is_kinked(bounds.loss)
    t = TUNE
    few = 1 / (1 + (size / t["few"]) ** 1.5)
    trust = 1 / (1 + t["trust" if kinked else "m_trust"] / records)
    geometry = t["geometry" if kinked else "m_geometry"] * (1 - 0.8 * few)
    scales = t["scales"]
    phases = _geometry_phases(bounds, geometry, scales, trust)
    left = 1.0 - geometry - scales
    counts, count, numbers = bounds.histogram_sensitivity(), bounds.count_sensitivity(), bounds.dimension
    if kinked:
        clip = t["clip"] * (1 + records / t["clip_at"]) ** t["clip_power"]
        steps = settings["steps"] or t["steps"]
        low, high = bounds.loss.slope_range
        moving = bounds.gradient_sensitivity(clip, (high - low) / 2) * _ROUNDING
        whole = bounds.gradient_sensitivity(clip) * _ROUNDING
        targets = t["targets"] + t["targets_few"] * few
        residuals = t["residuals"] + t["residuals_few"] * few
        phases["octaves"] = Phase(1, 0.2 * targets, counts, TARGET_BINS)
        phases["targets"] = Phase(CENTRE_STEPS + SCALE_STEPS, 0.8 * targets, count, 1)
        phases["residuals"] = Phase(SCALE_STEPS + SHIFT_STEPS, residuals, count, 1)
        left -= targets + residuals
        rough = left * (t["rough"] if level_of(bounds.loss) != 0.5 else t["rough_median"])
        phases["rough gradients"] = Phase(steps, rough, moving, numbers)
        left -= rough
    else:
        clip = t["m_clip"] * (1 + records / t["m_clip_at"]) ** t["m_clip_power"]
        clip /= math.sqrt(1 + t["m_clip_low"] / records)
        steps = settings["steps"] or t["m_steps"]
        whole = bounds.gradient_sensitivity(clip) * _ROUNDING
        if bounds.loss.kind == "margin":
            labels = t["m_labels"] + t["m_labels_few"] * few
            margins = t["m_cal"] + t["m_cal_few"] * few
            phases["labels"] = Phase(1, labels, count, 1)
            phases["margin range"] = Phase(2 * RANGE_STEPS, 0.4 * margins, count, 1)
            phases["margins"] = Phase(1, 0.6 * margins, counts, 2 * MARGIN_BINS)
            left -= labels + margins
    phases["gradients"] = Phase(steps, left, whole, numbers)
    floor = 0.5 * math.sqrt(1 + t["floor_low" if kinked else "m_floor_low"] / records)
    return GradientPlan(phases, True, clip, records, floor, trust)


def _geometry_phases(
    bounds: LinearBounds, share: float, scales: float, trust: float
) -> dict[str, Phase]:
    """Plan scales, lengths and two rounds of moments, of which the second costs what it is trusted."""
    size = bounds.dimension
    counts = bounds.histogram_sensitivity()
    columns = bounds.histogram_sensitivity(bounds.n_features)
    moments, numbers, second = bounds.moment_sensitivity(), size * (size + 1) // 2, 0.45 * trust
    return {
        "scales": Phase(1, scales, columns, OCTAVES * bounds.n_features),
        "lengths": Phase(3, 0.1 * share, counts, LENGTH_BINS),
        "moments": Phase(1, (0.9 - second) * share, moments, numbers),
        "finer moments": Phase(1, second * share, moments, numbers),
    }


def _plan_given(bounds: LinearBounds, mu: float, settings: Mapping[str, Any]) -> GradientPlan:
    """Plan for coordinates that the influence bound gives: the constant part once, then gradients."""
    moving, constant = bounds.split_sensitivity(math.sqrt(bounds.n_features))
    phases: dict[str, Phase] = {}
    left = 1.0
    if constant > 0:
        # Noise adds up over both parts: total variance is smallest with shares in proportion to sensitivity.
        split = constant / (moving + constant)
        phases["constant part"] = Phase(1, split, constant, bounds.dimension)
        left -= split
    phases["gradients"] = Phase(settings["steps"] or 40, left, moving, bounds.dimension)
    records = bounds.n_samples * mu / bounds.dimension
    return GradientPlan(phases, False, math.inf, records)
