r"""Noisy gradient descent with every choice in the user's hands: what `NoisyGradientDescent` runs once one is made.

    beta <- beta - step_size C [ (sum_i slope_i(x_i . beta) v_i + std * normal) / n + alpha C beta ],
    v_i = w_i C x_i min(1, B / ||w_i C x_i||),     C = covariance^{-1/2}

T times from ``start``; the last iterate is returned, or the mean of the later half. With the smoothed pinball loss this
is noisy smoothed gradient descent for the newsvendor under Gaussian DP, Algorithm 1 of its paper, with its B, T, step,
start and known covariance; the default of `NoisyGradientDescent` chooses all of them and needs less noise.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_count, check_number
from dpconvex.engine.blocks import placed_rows, row_margins, row_squares
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.summation_order import accumulate, sum_depth
from dpconvex.mechanisms.gradient_settings import check_smoothing, total_mu
from dpconvex.objectives.objective import OverRows
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, Parameters, Proof, calibrates, proves
from dpconvex.privacy.certificates.terms import NoiseTerm, gaussian_total
from dpconvex.privacy.description import Facts, rebuild
from dpconvex.privacy.guarantees import Guarantee, together
from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.summation import most_summed_rows, summation_error
from dpconvex.smoothing import convolve

__all__ = ["PLAIN", "descend_plainly", "plain_settings"]

Array = NDArray[np.float64]

PLAIN = "plain-gradient"
_OWNER = "NoisyGradientDescent"
_STEPS = 10  # where none are given
_AVERAGED = 0.5
_BLOCK = 4096  # rows summed at a time: fewer roundings in a row than one long sum


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
        raise TypeError(
            f"The 'average' parameter of {_OWNER} must be True or False. Got {average!r} instead."
        )
    if truncation is not None:
        truncation = check_number(
            "truncation", _OWNER, truncation, positive, 0, math.inf, low_open=True
        )
    chosen["truncation"] = truncation
    chosen["start"] = _numbers("start", start, (size,), np.zeros(size)).tolist()
    chosen["covariance"] = None
    if covariance is not None:
        matrix = _numbers("covariance", covariance, (size, size), np.eye(size))
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
        step_size = 1.0 / (
            (high - low) * max(1.0, (_longest(bounds, chosen) / math.sqrt(size)) ** 2)
        )
    chosen["step_size"] = check_number(
        "step_size", _OWNER, step_size, positive, 0, math.inf, low_open=True
    )
    return chosen


def _numbers(name: str, given: object, shape: tuple[int, ...], default: Array) -> Array:
    if given is None:
        return default
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if (
        array.shape != shape
        or not np.isfinite(array).all()
        or np.abs(array).max(initial=0.0) > 1e50
    ):
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


def _moved(bounds: LinearBounds, plain: Parameters) -> float:
    r"""Return how far a computed sum of gradients moves with one record.

    ``2 s B`` under replace-one and ``s B`` under add-or-remove-one, s the largest slope: attained by opposite rows at
    the same slope. Without a truncation the sums are those of the bounds. Rounding is paid for on either side.
    """
    longest = _longest(bounds, plain)
    exact = bounds.gradient_sum_sensitivity()
    if plain["truncation"] is not None:
        exact = bounds.changed_records * float(bounds.loss.lipschitz) * longest
    rows = most_summed_rows(bounds.n_samples, bounds.neighbors)
    largest = float(bounds.loss.lipschitz) * longest
    # Terms are products of matrices and vectors too: dimension more roundings each.
    additions = min(rows, _BLOCK) + sum_depth(-(-rows // _BLOCK)) + 4 * bounds.dimension
    return exact + 2 * summation_error(rows, bounds.dimension, largest, additions)


def _sum(multiples: Array, rows: Array) -> Array:
    """Return ``multiples @ rows``, block by block and then pairwise."""
    parts = (
        (multiples[start : start + _BLOCK] @ rows[start : start + _BLOCK],)
        for start in range(0, len(rows), _BLOCK)
    )
    return np.asarray(accumulate(parts)[0]) if len(rows) else np.zeros(rows.shape[1])


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


@calibrates(PLAIN)
def calibrate_plain(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of every step: ``std = sqrt(T) D / mu``, D the sensitivity of a sum of gradients."""
    if not math.isfinite(bounds.lipschitz):
        raise ValueError(
            f"{_OWNER} needs a loss of bounded slope, but {type(bounds.loss).__name__} has lipschitz=inf. "
            "Use Huber(width) in its place."
        )
    settings, plain = parameters["gradient"], parameters["plain"]
    steps = _STEPS if settings["steps"] is None else check_count("steps", _OWNER, settings["steps"])
    mu = total_mu(guarantee, _OWNER) / math.sqrt(parameters.get("problems", 1))
    moved = _moved(bounds, plain)
    std = released_scale(mu / math.sqrt(steps), moved, bounds.dimension)
    _check_run(bounds, settings, plain, std)
    return Calibration(
        {"gradients": NoiseTerm("gaussian", std, moved, bounds.dimension, "sum", steps)}
    )


@proves(PLAIN)
def prove_plain(certificate: Certificate) -> Proof:
    """Compose the stated sums of gradients."""
    bounds, settings = certificate.bounds, certificate.parameters["gradient"]
    certificate.check_bounds(LinearBounds, several=True)
    certificate.check_terms("gradients")
    check_smoothing(settings)
    stated = certificate.parameters["plain"]
    plain = plain_settings(bounds, **{name: stated[name] for name in _NAMES})
    steps = _check_run(bounds, settings, plain, certificate.noise["gradients"].scale)
    term = certificate.term("gradients", _moved(bounds, plain), bounds.dimension, "sum", steps)
    relation = bounds.neighbors.replace("_", "-")
    theorem = f"Gaussian DP composition of released sums, {relation}"
    return Proof(together(gaussian_total([term]), certificate.problems), theorem)


_NAMES = ("step_size", "start", "covariance", "average", "truncation")


def descend_plainly(objective: OverRows, certificate: Certificate, noise: NoiseSource) -> Array:
    """Return the last iterate, or the mean of the later half."""
    bounds, plain = certificate.bounds, certificate.parameters["plain"]
    settings, term = certificate.parameters["gradient"], certificate.noise["gradients"]
    loss, width = bounds.loss, settings["bandwidth"]
    if width is not None and not math.isfinite(loss.smoothness):
        loss = convolve(loss, rebuild(settings["kernel"]), width)
    # Rows of other engines are refused before: they are turned and shortened one by one.
    rows, targets, weights = cast(MemoryRows, objective.rows).mapped()
    turn = np.eye(bounds.dimension)
    if plain["covariance"] is not None:
        values, axes = np.linalg.eigh(np.array(plain["covariance"]))
        turn = (axes / np.sqrt(values)) @ axes.T
    # Row by row: a product of matrices rounds a row by how many others there are, and a kinked slope jumps with it.
    with np.errstate(all="ignore"):
        bounded = weights[:, None] * placed_rows(rows, turn)
        if plain["truncation"] is not None:
            lengths = np.sqrt(row_squares(bounded)) * (1 + 1e-12)
            bounded *= np.minimum(1.0, plain["truncation"] / np.maximum(lengths, 1e-300))[:, None]
    # A row that overflows counts for nothing, whoever else is there.
    bounded[~np.isfinite(bounded).all(axis=1)] = 0.0
    theta, kept = np.array(plain["start"], dtype=np.float64), np.zeros(bounds.dimension)
    first_kept = term.releases - (
        max(1, round(_AVERAGED * term.releases)) if plain["average"] else 1
    )
    for step in range(term.releases):
        with np.errstate(all="ignore"):
            slopes = np.nan_to_num(loss.gradient(targets, row_margins(rows, theta)), nan=0.0)
        total = noise.add(_sum(slopes, bounded), term) / bounds.n_samples
        theta = theta - plain["step_size"] * (turn @ (total + bounds.alpha * (turn @ theta)))
        if step >= first_kept:
            kept += theta
    return kept / (term.releases - first_kept)
