r"""Noisy gradient descent with every choice in the user's hands: what `NoisyGradientDescent` runs once one is made.

    beta <- beta - step_size C [ (sum_i slope_i(x_i . beta) v_i + std * normal) / n + alpha C beta ],
    v_i = C x_i min(1, B / ||C x_i||),     C = covariance^{-1/2}

T times from ``start``; the last iterate is returned, or the mean of the later half. With the smoothed pinball loss this
is noisy smoothed gradient descent for the newsvendor under Gaussian DP, Algorithm 1 of its paper, with its B, T, step,
start and known covariance; the default of `NoisyGradientDescent` chooses all of them and needs less noise.
"""

from __future__ import annotations

import math

import numpy as np

from dpconvex.checks import check_count, check_number
from dpconvex.core.coordinates import Coordinates
from dpconvex.core.queries import Query
from dpconvex.core.release import PrivateRows
from dpconvex.core.slopes import Slope
from dpconvex.fit.config import total_mu
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, CertificateError, Parameters
from dpconvex.privacy.description import Facts, rebuild
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.smoothing import convolve
from dpconvex.types import Array

__all__ = ["PLAIN", "check_plain", "descend_plainly", "plain_calibration", "plain_settings"]


PLAIN = "plain-gradient"
_OWNER = "NoisyGradientDescent"
_STEPS = 10  # where none are given
_AVERAGED = 0.5


def plain_settings(
    bounds: LinearBounds,
    step_size: float | None,
    start: object,
    covariance: object,
    average: bool,
    truncation: float | None,
) -> Facts:
    """Return the checked public choices of a run; raises on what is not public data of the right shape."""
    positive = "None or a finite number above 0"
    size = bounds.dimension
    chosen: Facts = {"average": average}
    if not isinstance(average, bool):
        raise TypeError(f"The 'average' parameter of {_OWNER} must be True or False. Got {average!r} instead.")
    if truncation is not None:
        truncation = check_number("truncation", _OWNER, truncation, positive, 0, math.inf, low_open=True)
    chosen["truncation"] = truncation
    chosen["start"] = [0.0] * size if start is None else _numbers("start", start, (size,)).tolist()
    chosen["covariance"] = None
    if covariance is not None:
        matrix = _numbers("covariance", covariance, (size, size))
        if not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix)[0] <= 0:
            raise ValueError(
                f"The 'covariance' parameter of {_OWNER} must be symmetric and positive definite. "
                "Got another matrix instead."
            )
        if truncation is None:
            raise ValueError(
                f"The 'truncation' parameter of {_OWNER} must be given with a covariance: rows are bounded where they "
                "are white. Got None instead. The square root of the number of coefficients is usual."
            )
        chosen["covariance"] = matrix.tolist()
    if step_size is None:
        # Slopes turn by their range over a width of about 1 in mapped units; a row of norm B then bends by B^2.
        low, high = bounds.loss.slope_range
        step_size = 1.0 / ((high - low) * max(1.0, (_longest(bounds, chosen) / math.sqrt(size)) ** 2))
    chosen["step_size"] = check_number("step_size", _OWNER, step_size, positive, 0, math.inf, low_open=True)
    return chosen


def _numbers(name: str, given: object, shape: tuple[int, ...]) -> Array:
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.shape != shape or not np.isfinite(array).all() or np.abs(array).max(initial=0.0) > 1e50:
        raise ValueError(
            f"The '{name}' parameter of {_OWNER} must be None or finite numbers of shape {shape}, in mapped units with "
            f"the intercept first. Got shape {array.shape} instead."
        )
    return array


def _longest(bounds: LinearBounds, plain: Parameters) -> float:
    """Return the bound on the norm of ``v_i``."""
    if plain["truncation"] is not None:
        return float(plain["truncation"])
    return bounds.lipschitz / float(bounds.loss.lipschitz)


def _check_run(bounds: LinearBounds, settings: Parameters, plain: Parameters, std: float) -> int:
    """Return the steps; raise if iterates could overflow, where slopes are no numbers any more."""
    steps = _STEPS if settings["steps"] is None else check_count("steps", _OWNER, settings["steps"])
    turn = 1.0
    if plain["covariance"] is not None:
        turn = 1.0 / float(np.linalg.eigvalsh(np.array(plain["covariance"]))[0])
    longest = float(bounds.loss.lipschitz) * _longest(bounds, plain) * bounds.n_samples
    longest = (longest + std * (math.sqrt(bounds.dimension) + 40)) / bounds.n_samples
    rate = plain["step_size"]
    if not (rate * bounds.alpha * turn <= 2 and steps * rate * math.sqrt(turn) * longest < 1e100):
        raise ValueError(
            f"The 'step_size' parameter of {_OWNER} must be so small that steps cannot overflow: at most 2 / alpha in "
            f"white coordinates. Got {rate!r} instead. Use a smaller step."
        )
    return steps


def plain_calibration(bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    """Derive the noise of every step: ``std = sqrt(T) D / mu``, D the sensitivity of a sum of gradients."""
    if not math.isfinite(bounds.lipschitz):
        raise ValueError(
            f"{_OWNER} needs a loss of bounded slope, but {type(bounds.loss).__name__} has lipschitz=inf. "
            "Use Huber(width) in its place."
        )
    settings, plain = parameters["gradient"], parameters["plain"]
    mu = total_mu(guarantee, _OWNER) / math.sqrt(parameters.get("problems", 1))
    query = Query("vector", float(bounds.loss.lipschitz) * _longest(bounds, plain), bounds.dimension)
    steps = _STEPS if settings["steps"] is None else check_count("steps", _OWNER, settings["steps"])
    term = query.term(bounds, mu, steps)
    _check_run(bounds, settings, plain, term.scale)
    return Calibration({"gradients": term})


def check_plain(certificate: Certificate) -> None:
    """Raise on stated choices that are not public data of the right shape."""
    stated = certificate.parameters["plain"]
    if stated["start"] is None:  # a strange file may name any number of columns
        raise CertificateError("The certificate does not say where its descent starts.")
    names = ("step_size", "start", "covariance", "average", "truncation")
    plain_settings(certificate.bounds, **{name: stated[name] for name in names})


def descend_plainly(rows: PrivateRows, certificate: Certificate) -> Array:
    """Return the last iterate, or the mean of the later half."""
    bounds, plain = certificate.bounds, certificate.parameters["plain"]
    settings, steps = certificate.parameters["gradient"], rows.terms["gradients"].releases
    loss, width = bounds.loss, settings["bandwidth"]
    if width is not None and not math.isfinite(loss.smoothness):
        loss = convolve(loss, rebuild(settings["kernel"]), width)
    turn = np.eye(bounds.dimension)
    if plain["covariance"] is not None:
        values, axes = np.linalg.eigh(np.array(plain["covariance"]))
        turn = (axes / np.sqrt(values)) @ axes.T
    coordinates = Coordinates(turn, int(bounds.fit_intercept), added_length=0.0)
    theta, kept = np.array(plain["start"], dtype=np.float64), np.zeros(bounds.dimension)
    first_kept = steps - (max(1, round(_AVERAGED * steps)) if plain["average"] else 1)
    for step in range(steps):
        total = rows.slope_sum("gradients", theta, Slope(loss), coordinates) / bounds.n_samples
        theta = theta - plain["step_size"] * (turn @ (total + bounds.alpha * (turn @ theta)))
        if step >= first_kept:
            kept += theta
    return kept / (steps - first_kept)
