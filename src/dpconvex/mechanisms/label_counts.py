"""How many labels are positive, and what all records count for.

Noisy counts of labels: one as planned, more where a label could be absent.

A constant that says so costs hardly anything where it is true, and every doubt about it counts several times; nor is
there a direction to be found among labels that are all the same. So while the rarer label could be absent, steps that
were planned for the descent count labels instead, and if half of them are gone all later releases do.
"""

from __future__ import annotations

import math

from dpconvex.core.release import PrivateRows, Statistic
from dpconvex.mechanisms.gradient_margins import expected_label_share

_ABSENT = 3.0  # in units of the noise: a count that may as well be 0
_TURNED = 0.5  # share of the steps after which the descent is not begun any more
_MIDDLE = 0.5  # share around which labels are counted first, where counts are centred
_LEAST_MASS = 0.01  # of the number of records: they count for at least so much, noise or not
_STEPS = ("early gradients", "gradients")
_LATER = (*_STEPS, "margin range", "margins")  # phases, as far as a course has them


def positive_share(rows: PrivateRows, n_samples: float) -> tuple[float, int]:
    """Return what is to be expected of the share of positive labels, and how many steps of the descent counted.

    If that is all of them, the other phases were used up as well.

    Parameters
    ----------
    rows : PrivateRows
        Whose certificate has the term "labels" and those of a descent along margins.
    n_samples : float
        Number of records, public or released.
    """
    terms, std, ignored = rows.terms, rows.count_std("labels"), rows.bounds.void_rows
    share = _MIDDLE if ignored else 0.0
    found = count_positive(rows, "labels", n_samples, share)
    if (
        ignored
    ):  # an error of the number of records counts as far as the share is from where it was asked
        std = math.hypot(std, terms["mass"].scale * min(1.0, abs(found / n_samples - share)))
    steps, counted = sum(terms[name].releases for name in _STEPS if name in terms), 0
    later = [name for name in _LATER if name in terms for _ in range(terms[name].releases)]
    for name in later:
        if min(found, n_samples - found) >= _ABSENT * std and counted <= _TURNED * steps:
            break
        if ignored:
            share = min(max(found / n_samples, 0.0), 1.0)
        more, error = count_positive(rows, name, n_samples, share), rows.count_std(name)
        found += (more - found) / (1 + (error / std) ** 2)
        std /= math.hypot(1, std / error)
        counted += name in _STEPS
    return expected_label_share(found / n_samples, std / n_samples, n_samples), counted


def count_positive(rows: PrivateRows, name: str, n_samples: float, share: float = 0.0) -> float:
    """Return a noisy number of records with positive labels, by a count that is centred at a share."""
    return share * n_samples + rows.count(name, Statistic("label"), -0.5, share)


def noisy_label_share(rows: PrivateRows, name: str, n_samples: float) -> float:
    """Return the noisy share of positive labels, of one count that is centred around 1/2 where rows may be ignored."""
    share = _MIDDLE if rows.bounds.void_rows else 0.0
    return count_positive(rows, name, n_samples, share) / n_samples


def count_votes(rows: PrivateRows, name: str, n_samples: int) -> float:
    """Return what all records count for: a noisy number, at least a hundredth of theirs."""
    found = rows.count(name, Statistic("target"), math.inf)
    return min(max(found, _LEAST_MASS * n_samples), float(n_samples))
