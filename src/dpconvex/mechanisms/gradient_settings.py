"""What every noisy descent is told, checked: its budget, how its losses are smoothed, which levels it finds."""

from __future__ import annotations

import math

from dpconvex.checks import check_number
from dpconvex.losses import Pinball
from dpconvex.mechanisms.gradient_course import Course
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import CertificateError, Parameters
from dpconvex.privacy.description import describe, rebuild
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.smoothing import Kernel

__all__ = ["MASS", "check_levels", "check_smoothing", "mass_share", "total_mu"]

MASS = 0.01  # share of a count of all votes, where records may count less than whole ones
# Where rows may be ignored all scales hang on it: its noise is at most a fiftieth of the records, or a quarter is paid.
_SEEN, _MOST = 50.0, 0.25


def total_mu(guarantee: Guarantee, owner: str) -> float:
    """Return the Gaussian DP budget that a guarantee allows."""
    try:
        return guarantee.as_gaussian().mu
    except ValueError:
        raise ValueError(
            f"{owner} offers GaussianDP and ApproxDP with delta above 0. Got {guarantee!r} instead. "
            "For pure epsilon use objective or output perturbation."
        ) from None


def mass_share(size: float) -> float:
    """Return the share of ``mu^2`` of a count of the rows that are not ignored, of ``size = n mu``."""
    return max(MASS, min(_MOST, (_SEEN / size) ** 2))


def check_smoothing(settings: Parameters) -> None:
    """Refuse settings that no run could have had: slopes keep their range only if a density averages them."""
    told = {"ranking", "raw_target"}
    given = set(settings) - ({"levels", "targets"} if "levels" in settings else set())
    if {*given, *told} != {"steps", "geometry", "bandwidth", "kernel", *told}:
        raise CertificateError("The certificate's settings are not those of a noisy descent.")
    kernel, width = rebuild(settings["kernel"]), settings["bandwidth"]
    if not isinstance(kernel, Kernel) or kernel.dim != 1 or describe(kernel) != settings["kernel"]:
        raise CertificateError("The certificate's kernel is not a density of one variable.")
    if width is not None:
        allowed = "None or a finite number above 0"
        check_number("bandwidth", "The certificate", width, allowed, 0, math.inf, low_open=True)


def check_levels(
    settings: Parameters, course: Course, bounds: LinearBounds, named: object = None
) -> None:
    """Refuse levels that are not those of the settings or `named` ones, or of another loss than the pinball loss.

    Slopes of a pinball loss are within 1/2 of their middle whatever its level, so the stated loss may be that of any.
    """
    stated = (settings.get("levels", []), settings.get("targets", 1))
    if stated != (list(course.levels), course.targets):
        raise CertificateError("The certificate's course is not that of its settings: see levels.")
    if course.levels and named is not None and named != list(course.levels):
        raise CertificateError(
            "The certificate's course is not that of its 'quantile': see levels."
        )
    if "levels" in settings and not (course.levels and course.private):
        raise CertificateError("Several levels are found in released coordinates only.")
    if course.levels and type(bounds.loss) is not Pinball:
        raise CertificateError("Several levels are those of the pinball loss.")
