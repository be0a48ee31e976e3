"""A released score: its value, its interval and its curve, from released and public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dpconvex.core.evaluation_certificate import ROW_WEIGHT, EvaluationCertificate
from dpconvex.core.pairs import CLASS_WEIGHT
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PrivateScore", "described_score"]


_DRAWS = 5_000  # of the noise, for intervals


@dataclass(frozen=True)
class PrivateScore:
    """A released score.

    Attributes
    ----------
    metric : str
        What was measured.
    value : float
        The score with its noise; NaN for ``"calibration"`` and ``"residuals"``, which are curves.
    interval : pair of float
        Where the score without noise lies, with probability ``level`` over the noise. It says nothing about how the
        score would differ on other rows.
    level : float
        Of the interval.
    curve : dict of str to array
        ``"calibration"``: ``predicted`` (middles of bins), ``observed`` shares of positive rows, ``low``, ``high`` and
        ``rows``. ``"residuals"``: ``edges`` of bins, ``share``, ``low`` and ``high``. Empty otherwise.
    certificate : EvaluationCertificate
        What the release promises.
    rows : float
        Number of rows (or people) that the score is over, those that hold no missing value: released with noise.
    """

    metric: str
    value: float
    interval: tuple[float, float]
    level: float
    certificate: EvaluationCertificate = field(repr=False)
    curve: dict[str, Array] = field(default_factory=dict, repr=False)
    rows: float = math.nan

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        if self.curve:
            return f"{self.metric}, {self.certificate.guarantee!r}"
        low, high = self.interval
        return (
            f"{self.metric} {self.value:.4g} (without noise between {low:.4g} and {high:.4g} with probability "
            f"{self.level:g}) over about {self.rows:.4g} valid rows, {self.certificate.guarantee!r}"
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the released curve, or the score with its interval; needs matplotlib."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        if self.metric == "calibration":
            x, y = self.curve["predicted"], self.curve["observed"]
            ax.plot([0, 1], [0, 1], color="0.7", linewidth=1)
            ax.errorbar(x, y, _bars(y, self.curve["low"], self.curve["high"]), fmt="o", capsize=3)
            ax.set(xlabel="predicted probability", ylabel="share of positive rows")
        elif self.metric == "residuals":
            ax.stairs(self.curve["share"], self.curve["edges"], fill=True, alpha=0.5)
            ax.set(xlabel="target minus prediction", ylabel="share of rows")
        else:
            bars = _bars(np.array([self.value]), np.array([self.interval[0]]), np.array([self.interval[1]]))
            ax.errorbar([0], [self.value], bars, fmt="o", capsize=4)
            ax.set(xticks=[0], xticklabels=[self.metric], ylabel="score")
        return ax


def _bars(middle: Array, low: Array, high: Array) -> Array:
    return np.maximum(np.array([middle - low, high - middle]), 0.0)


def described_score(
    released: Array, certificate: EvaluationCertificate, metric: str, limits: tuple[float, float], n: int, level: float
) -> PrivateScore:
    """Return the released score with its interval: from here on nothing but released and public numbers."""
    n = max(1, n)  # nobody may be named
    shown = (1 - level) / 2, (1 + level) / 2
    possible = released - _draws(certificate)
    if certificate.statistic == "histogram":
        curve, rows = _curve(released, possible, metric, limits, shown), float(released.sum())
        return PrivateScore(metric, math.nan, (math.nan, math.nan), level, certificate, curve, rows)
    low, high = limits
    if metric == "auc":
        low, high = 0.0, 1.0

    def score(vector: Array) -> Array:
        if metric == "auc":
            classes = np.clip(vector[..., 1:] / CLASS_WEIGHT, 1.0, max(1.0, n - 1.0))
            return np.asarray(0.5 + vector[..., 0] * (n - 1) / classes.prod(axis=-1))
        share = 0.5 + vector[..., 0] / np.maximum(vector[..., 1] / ROW_WEIGHT, 1.0)
        return np.asarray(low + (high - low) * share)

    ends = np.clip(np.quantile(score(possible), shown), low, high)
    value = float(np.clip(score(released), low, high))
    rows = float(released[1:].sum() / (CLASS_WEIGHT if metric == "auc" else ROW_WEIGHT))
    interval = (float(ends[0]), float(ends[1]))
    return PrivateScore(metric, value, interval, level, certificate, rows=rows)


def _draws(certificate: EvaluationCertificate) -> Array:
    """Return draws of the noise's law: public, and the same for everybody."""
    rng = np.random.default_rng(0)
    size = (_DRAWS, certificate.dimension)
    draws = rng.standard_normal(size)
    if certificate.distribution == "gaussian":
        return draws * certificate.scale
    lengths = rng.gamma(certificate.dimension, certificate.scale, (_DRAWS, 1))
    return draws / np.linalg.norm(draws, axis=1, keepdims=True) * lengths


def _curve(
    released: Array, possible: Array, metric: str, limits: tuple[float, float], shown: tuple[float, float]
) -> dict[str, Array]:
    """Return a calibration curve or a histogram of residuals, with intervals."""
    counts = np.maximum(released, 0.0)
    if metric == "residuals":
        rows = max(1.0, float(counts.sum()))
        low, high = np.quantile(np.maximum(possible, 0.0) / rows, shown, axis=0)
        edges = np.linspace(*limits, len(released) + 1)
        return {"edges": edges, "share": counts / rows, "low": low, "high": high}
    bins = len(released) // 2

    def observed(vector: Array) -> Array:
        rest, positive = np.maximum(vector[..., :bins], 0.0), np.maximum(vector[..., bins:], 0.0)
        with np.errstate(all="ignore"):
            return np.asarray(np.nan_to_num(positive / (rest + positive), nan=0.5))

    low, high = np.quantile(observed(possible), shown, axis=0)
    return {
        "predicted": (np.arange(bins) + 0.5) / bins,
        "observed": observed(released),
        "low": low,
        "high": high,
        "rows": counts[:bins] + counts[bins:],
    }
