"""A private middle and scale of the target, from a histogram of octaves and noisy counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.rows import Rows
from dpconvex.mechanisms.gradient_plan import NORMAL_SCALE, TARGET_BINS, TARGET_STEPS
from dpconvex.mechanisms.quantile_location import Belief, private_location
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

__all__ = ["TARGET_BINS", "TARGET_STEPS", "private_target"]

Array = NDArray[np.float64]


def private_target(
    rows: Rows, n_samples: int, terms: Mapping[str, NoiseTerm], noise: NoiseSource
) -> tuple[float, float]:
    """Return a private median of the target, and the scale of a normal law as dense there.

    Parameters
    ----------
    rows : engine
        Mapped rows.
    n_samples : int
        Public number of records.
    terms : mapping
        Noise of "octaves" and "targets".
    noise : NoiseSource
        Where noise comes from.
    """
    low, high = _target_range(rows, n_samples, terms["octaves"], noise)
    width = high - low
    belief = Belief(low, high, 2.0**-18 * width, width / 4)
    below = rows.counter(_target_of)
    middle, scale = private_location(
        below, 0.5, belief, TARGET_STEPS, terms["targets"].scale, n_samples, noise
    )
    return middle, min(NORMAL_SCALE * scale, width / 2)


def _target_range(
    rows: Rows, n_samples: int, term: NoiseTerm, noise: NoiseSource
) -> tuple[float, float]:
    """Return a bracket of the targets: octaves that surely hold some, or the public range."""
    sizes = np.concatenate([[0.0], 2.0 ** np.linspace(-16, 15, TARGET_BINS // 2)])
    edges = np.concatenate([-sizes[:0:-1], sizes])

    def part(y: Array, w: Array, v: Array) -> tuple[Array]:
        places = np.searchsorted(edges[1:-1], y, side="right")
        return (np.asarray(np.bincount(places, v, minlength=edges.size - 1), np.float64),)

    (exact,) = rows.sum_targets(part)
    counts = noise.add(np.asarray(exact), term)
    sure = np.flatnonzero(counts > 4 * term.scale)
    if not sure.size or counts[sure].sum() < 0.5 * n_samples:
        return -1.0, 1.0
    return float(edges[sure[0]]), float(edges[sure[-1] + 1])


def _target_of(y: Array, w: Array) -> Array:
    return y
