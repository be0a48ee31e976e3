"""How many labels are positive, and what all records count for.

Noisy counts of labels: one as planned, more where a label could be absent.

A constant that says so costs hardly anything where it is true, and every doubt about it counts several times; nor is
there a direction to be found among labels that are all the same. So while the rarer label could be absent, steps that
were planned for the descent count labels instead, and if half of them are gone all later releases do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.rows import Rows
from dpconvex.mechanisms.gradient_margins import expected_label_share
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

_ABSENT = 3.0  # in units of the noise: a count that may as well be 0
_TURNED = 0.5  # share of the steps after which the descent is not begun any more
_MIDDLE = 0.5  # share around which labels are counted first, where counts are centred
_LEAST_MASS = 0.01  # of the number of records: they count for at least so much, noise or not
_STEPS = ("early gradients", "gradients")
_LATER = (*_STEPS, "margin range", "margins")  # phases, as far as a course has them


def positive_share(
    rows: Rows,
    n_samples: float,
    terms: Mapping[str, NoiseTerm],
    noise: NoiseSource,
    centred: bool = False,
) -> tuple[float, int]:
    """Return what is to be expected of the share of positive labels, and how many steps of the descent counted.

    If that is all of them, the other phases were used up as well.

    Parameters
    ----------
    rows : engine
        Mapped rows; the sensitivity of "labels" is how far a count of them changes between neighbours.
    n_samples : float
        Number of records, public or released.
    terms : mapping
        Noise of the certificate, by phase.
    noise : NoiseSource
        Where noise comes from.
    centred : bool
        Whether the number of records is a released one, so that centred counts are asked for: first around 1/2, then
        around the share that was found (:class:`~dpconvex.mechanisms.quantile_search.Counting`).
    """
    (positive, every), std = rows.sum_targets(_count_labels), terms["labels"].scale
    share = _MIDDLE if centred else 0.0
    above = noise.add_gaussian(np.array([positive - share * every]), std)
    found = share * n_samples + float(above[0])
    if (
        centred
    ):  # an error of the number of records counts as far as the share is from where it was asked
        std = math.hypot(std, terms["mass"].scale * min(1.0, abs(found / n_samples - share)))
    steps, counted = sum(terms[name].releases for name in _STEPS if name in terms), 0
    later = [name for name in _LATER if name in terms for _ in range(terms[name].releases)]
    for name in later:
        if min(found, n_samples - found) >= _ABSENT * std and counted <= _TURNED * steps:
            break
        moved = terms["labels"].sensitivity
        if centred:
            share = min(max(found / n_samples, 0.0), 1.0)
        more, error = _count_instead(positive - share * every, moved, terms[name], noise)
        more += share * n_samples
        found += (more - found) / (1 + (error / std) ** 2)
        std /= math.hypot(1, std / error)
        counted += name in _STEPS
    return expected_label_share(found / n_samples, std / n_samples, n_samples), counted


def noisy_label_share(
    rows: Rows, n_samples: float, term: NoiseTerm, noise: NoiseSource, centred: bool
) -> float:
    """Return the noisy share of positive labels, of one count that is centred around 1/2 or not."""
    (positive, every), share = rows.sum_targets(_count_labels), _MIDDLE if centred else 0.0
    return share + float(noise.add(np.array([positive - share * every]), term)[0]) / n_samples


def count_votes(rows: Rows, n_samples: int, term: NoiseTerm, noise: NoiseSource) -> float:
    """Return what all records count for: a noisy number, at least a hundredth of theirs."""
    _, every = rows.sum_targets(_count_labels)
    found = float(noise.add(np.array([every]), term)[0])
    return min(max(found, _LEAST_MASS * n_samples), float(n_samples))


def _count_instead(
    count: float, moved: float, term: NoiseTerm, noise: NoiseSource
) -> tuple[float, float]:
    """Return a noisy count and its noise, released in place of a vector.

    In the first coordinate is the count in units in which it moves, as `moved` says between neighbours, as far as the
    certificate allows for what it stands for; a millionth less, which pays for rounding the product.
    """
    unit = (1 - 2.0**-20) * term.sensitivity / moved
    vector = np.zeros(term.dimension)
    vector[0] = unit * count
    return float(noise.add_gaussian(vector, term.scale)[0]) / unit, term.scale / unit


def _count_labels(
    y: NDArray[np.float64], w: NDArray[np.float64], v: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the votes for positive labels, and all votes."""
    return float(v @ (y > 0)), float(v.sum())
