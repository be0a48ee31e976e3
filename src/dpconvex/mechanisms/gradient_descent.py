r"""Noisy gradient descent: noise enters during solving, under Gaussian DP.

By default it is :mod:`dpconvex.fit`, approximate Newton iterations: each noisy gradient is
evaluated at the posterior mean of the minimiser given all earlier ones. With a step, start,
covariance or truncation it is the plain algorithm,

    beta <- beta - step_size C [ (sum_i slope_i(x_i . beta) v_i + std * normal) / n + alpha C beta
    ], v_i = C x_i min(1, B / ||C x_i||), C = covariance^{-1/2}

T times from ``start``; the last iterate is returned, or the mean of the later half. With the
smoothed pinball loss this is Algorithm 1 of the newsvendor's paper, with its B, T, step, start and
known covariance. Records that are matrices have steps of their own, with kinked losses as they are:

    theta <- (theta - rate * (sum of gradients + std * normal) / n) / (1 + rate * alpha)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core import certificate as certificates
from dpconvex.core.bounds import Bounds
from dpconvex.core.certificate import (
    Certificate,
    CertificateCalibration,
    CertificateProof,
    Parameters,
)
from dpconvex.core.checks import check_count, check_number, parameter_error
from dpconvex.core.description import Facts, describe, rebuild_description
from dpconvex.core.guarantees import Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import Query, QuerySlope, prove_queries
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.core.rows import CLIP_LIMIT, RAW_CLIP_LIMIT, Rows
from dpconvex.core.threads import single_threaded_blas
from dpconvex.fit.fit_plan import FitConfig, gaussian_budget, plan_fit
from dpconvex.fit.private_fit import PrivateFit
from dpconvex.fit.several_quantiles import SeveralQuantiles
from dpconvex.losses import Pinball, Squared
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    average_mechanism_iterates,
    check_mechanism_slope,
)
from dpconvex.objectives.objective import RowObjective
from dpconvex.objectives.structured_objective import StructuredObjective
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.releases.private_matrices import PrivateMatrices
from dpconvex.smoothing import Kernel, LogisticKernel, convolve
from dpconvex.types import Array

PLAIN = "plain-gradient"
AVERAGED = 0.5  # share of the iterates, the last ones, that are averaged
_OWNER = "NoisyGradientDescent"
_PLAIN_STEPS = 10  # where none are given
_SETTINGS = {"steps", "bandwidth", "kernel", "ranking", "raw_target", "levels", "targets", "smooth"}


@certificates.calibrates("gradient")
def calibrate_gradient_descent(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> CertificateCalibration:
    """Derive the noise of every release; composed over all of them and all problems, they spend
    exactly ``mu``.
    """
    if type(bounds.loss) is not Squared and not math.isfinite(bounds.loss.lipschitz):
        check_mechanism_slope(bounds, _OWNER)  # raises
    mu = gaussian_budget(guarantee, _OWNER) / math.sqrt(parameters.get("problems", 1))
    inference = {"inference": True} if parameters.get("inference", False) else {}
    plan = plan_fit(bounds, mu, {**parameters["gradient"], **inference})
    return CertificateCalibration(
        plan.calibrated_noise(bounds, mu), stated={"fit": plan.config.stated()}
    )


@certificates.proves("gradient")
def prove_gradient_descent(certificate: Certificate) -> CertificateProof:
    """Compose the stated sums."""
    certificate.check_bounds(LinearBounds, several=True)
    bounds = certificate.bounds
    parameters = certificate.parameters
    settings = parameters["gradient"]
    config = FitConfig(**parameters["fit"])
    check_gradient_smoothing(settings)
    stated = settings.get("levels", []), settings.get("targets", 1)
    named = parameters.get("quantile", list(config.levels))
    if stated != (list(config.levels), config.targets) or (config.levels and named != stated[0]):
        raise certificates.CertificateError(
            "The certificate's fit is not that of its settings: see levels."
        )
    if config.levels and type(bounds.loss) is not Pinball:
        raise certificates.CertificateError("Several levels are those of the pinball loss.")
    parts = [rows for rows in (config.geometry_rows, config.early_rows) if rows is not None]
    if parts and (bounds.neighbors != "replace_one" or max(parts) > bounds.n_samples):
        raise certificates.CertificateError(
            "Which rows are a part of them is public only where their number is."
        )
    return prove_queries(certificate)


def check_gradient_smoothing(settings: Parameters) -> None:
    """Refuse settings that no run could have had: slopes keep their range only if a density
    averages them.
    """
    if not {"steps", "bandwidth", "kernel"} <= set(settings) <= _SETTINGS:
        raise certificates.CertificateError(
            "The certificate's settings are not those of a noisy descent."
        )
    kernel = rebuild_description(settings["kernel"])
    width = settings["bandwidth"]
    if not isinstance(kernel, Kernel) or kernel.dim != 1 or describe(kernel) != settings["kernel"]:
        raise certificates.CertificateError(
            "The certificate's kernel is not a density of one variable."
        )
    if width is not None:
        allowed = "None or a finite number above 0"
        check_number("bandwidth", "The certificate", width, allowed, 0, math.inf, low_open=True)


@dataclass(frozen=True)
class NoisyGradientDescent(PrivateMechanism):
    r"""The private fit: noisy gradients, each evaluated at the posterior mean of the minimiser
    given all earlier ones.

    Parameters
    ----------
    steps : int, optional
        Fine rounds of gradients; by default 4 to 16, by the loss.
    step_size, truncation, start, covariance : optional
        Public choices, in mapped units with the intercept first: the rate of every step, the bound
        B on the norm of a record's row where it is white, the first iterate, and the known
        second-moment matrix of the rows. Any of them, or ``average=False``, asks for the plain
        algorithm of this module (10 steps by default).
    average : bool, default=True
        Whether the plain algorithm averages the later iterates; False returns the last one.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or
    add-or-remove-one. Step sizes, bandwidths and numbers of steps are public or follow from what
    was released and paid for.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP, LinearBounds
    >>> bounds = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.0)
    >>> certificate = NoisyGradientDescent().certify(bounds, ApproxDP(1.0, 1e-6))
    >>> certificate.mechanism, certificate.guarantee
    ('gradient', ApproxDP(epsilon=1.0, delta=1e-06))
    """

    steps: int | None = None
    step_size: float | None = None
    truncation: float | None = None
    start: ArrayLike | None = None
    covariance: ArrayLike | None = None
    average: bool = True
    name: ClassVar[str] = "gradient"
    takes_rows = True

    def settings(
        self,
        bandwidth: float | None = None,
        kernel: Kernel | None = None,
        levels: Sequence[float] = (),
        targets: int = 1,
    ) -> Facts:
        """Return the public parameters of a run of gradient descent.

        ``bandwidth`` is in mapped units, None to find one; ``kernel`` is logistic by default.
        ``levels`` are those of several quantiles in one run, of one target or of one target each.
        """
        steps = None if self.steps is None else check_count("steps", _OWNER, self.steps)
        if levels and self.plain:
            raise ValueError(
                "NoisyGradientDescent finds several quantiles in released coordinates only. Got "
                "a plain descent instead. Use NoisyGradientDescent() or fit one quantile at a "
                "time."
            )
        several = {"levels": list(levels), "targets": targets} if levels else {}
        return {
            "steps": steps,
            "bandwidth": bandwidth,
            "kernel": describe(kernel or LogisticKernel()),
            **several,
        }

    @property
    def clip_limit(self) -> float:
        """Where columns without bounds are clipped, as long rows are weighted."""
        return CLIP_LIMIT if self.plain else RAW_CLIP_LIMIT

    @property
    def plain(self) -> bool:
        """Whether one of the plain algorithm's choices was made."""
        given = (self.step_size, self.truncation, self.start, self.covariance)
        return self.average is not True or any(choice is not None for choice in given)

    def certify(
        self,
        bounds: Bounds,
        guarantee: Guarantee,
        parameters: Parameters | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate of noisy gradient descent from public facts."""
        chosen = dict(parameters or {})
        plain = self.plain
        chosen.setdefault("gradient", self.settings())
        if plain:
            choices = self.step_size, self.start, self.covariance, self.average, self.truncation
            chosen["plain"] = plain_descent_settings(cast(LinearBounds, bounds), *choices)
        return Certificate.issue(PLAIN if plain else self.name, bounds, guarantee, chosen, seeded)

    def _run(
        self,
        objective: RowObjective | list[Rows],
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        """Return private coefficients by gradient descent; what was released on the way goes
        into ``record``.
        """
        rows_by_target = objective if isinstance(objective, list) else [objective.rows]
        check_descent_rows(rows_by_target, certificate)
        rows = PrivateRows(rows_by_target, certificate, noise)
        if certificate.mechanism == PLAIN:
            return run_plain_descent(rows, certificate)
        config = FitConfig(**certificate.parameters["fit"])
        low, high = certificate.parameters.get("target_bounds") or (1.0, 1.0)
        origin = (low + high) / (low - high) if low <= 0 <= high else None  # where 0 is mapped to
        settings = certificate.parameters["gradient"]
        smoothing = rebuild_description(settings["kernel"]), settings["bandwidth"]
        if config.levels:
            return SeveralQuantiles(rows, config, *smoothing, record, origin).run().T
        found = PrivateFit(rows, config, *smoothing, record, origin).run()
        return found.T if found.ndim == 2 else found


def check_descent_rows(rows_by_target: list[Rows], certificate: Certificate) -> None:
    """Raise unless rows are those that a descent's certificate was issued for; only public facts
    are compared.

    Those of every target: all of them are weighted by the lengths of the first one's rows.
    """
    bounds = certificate.bounds
    several = certificate.parameters["gradient"].get("targets", 1)
    counted = bounds.neighbors == "replace_one"
    stated = {
        "targets": several,
        **bounds.row_facts,
        **({"n_records": bounds.n_samples} if counted else {}),
    }
    comparisons: list[Facts] = [{"targets": len(rows_by_target)}]
    for rows in rows_by_target:
        comparisons.append(
            {
                "own_weights": rows.own_weights,
                **rows.row_map.public_facts,
                "n_records": rows.n_records,
            }
        )
    for name, found in ((name, found) for found in comparisons for name in stated if name in found):
        value = stated[name]
        if not math.isclose(value, found[name], rel_tol=1e-12):
            raise ValueError(
                "The rows given to a release must be those of its certificate. They have "
                f"{name}={found[name]!r}, but the certificate was issued for {name}={value!r}."
            )


def stated_farthest(certificate: Certificate) -> float:
    """Return where a certified fit clipped columns without bounds: further up where it found
    their scales.
    """
    return RAW_CLIP_LIMIT if certificates.finds_column_scales(certificate) else CLIP_LIMIT


def _check_descent_steps(settings: Parameters) -> tuple[int, float]:
    """Return number and size of the steps on matrices, or raise."""
    owner = "StructuredGradientDescent"
    allowed = "a finite number above 0"
    step_size = check_number(
        "step_size", owner, settings["step_size"], allowed, 0, math.inf, low_open=True
    )
    return check_count("steps", owner, settings["steps"]), step_size


@certificates.calibrates("structured-gradient")
def calibrate_structured_descent(
    bounds: StructuredBounds, guarantee: Guarantee, parameters: Parameters
) -> CertificateCalibration:
    r"""Derive the noise of every step: ``std = sqrt(steps) D / mu``, D the sensitivity of a sum of
    gradients.

    ``D = 2 L`` under replace-one and ``L`` under add-or-remove-one; ``steps`` releases of a
    Gaussian mechanism of ``mu / sqrt(steps)`` each compose to ``mu``.
    """
    if not isinstance(bounds, StructuredBounds):
        raise TypeError(
            "StructuredGradientDescent needs StructuredBounds. "
            f"Got {type(bounds).__name__} instead. Use NoisyGradientDescent for linear models."
        )
    mu = gaussian_budget(guarantee, "StructuredGradientDescent")
    steps, _ = _check_descent_steps(parameters["descent"])
    query = Query("vector", bounds.whole_lipschitz, bounds.dimension)
    return CertificateCalibration({"gradients": query.calibrated_noise(bounds, mu, steps)})


@certificates.proves("structured-gradient")
def prove_structured_descent(certificate: Certificate) -> CertificateProof:
    """Compose the stated sums of gradients."""
    certificate.check_bounds(StructuredBounds)
    return prove_queries(certificate)


@dataclass(frozen=True)
class StructuredGradientDescent(PrivateMechanism):
    r"""Descend along noisy sums of gradients of residual vectors and average the later iterates.

    Parameters
    ----------
    steps : int, default=100
        Number of steps.
    step_size : float, optional
        Rate; by default ``0.2 / (longest row * lipschitz)``, for coefficients of order 1.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or
    add-or-remove-one. Steps and rate are public.
    """

    steps: int = 100
    step_size: float | None = None
    name: ClassVar[str] = "structured-gradient"

    def settings(self, bounds: StructuredBounds) -> Facts:
        """Return the public parameters of a run, all chosen."""
        default = 0.2 / (bounds.longest * bounds.whole_lipschitz)
        chosen = {
            "steps": self.steps,
            "step_size": default if self.step_size is None else self.step_size,
        }
        return dict(zip(chosen, _check_descent_steps(chosen), strict=True))

    def _chosen(self, bounds: StructuredBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault("descent", self.settings(bounds))
        return parameters

    def _run(
        self,
        objective: StructuredObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        """Return the mean of the descent's later iterates: its noise is that of one release,
        whatever the steps.
        """
        steps, rate = _check_descent_steps(certificate.parameters["descent"])
        rows = PrivateMatrices(objective, certificate, noise)
        bounds = certificate.bounds

        def take_step(theta: Array) -> Array:
            total = rows.gradient_sum("gradients", theta)
            # An implicit step on the penalty: stable whatever alpha and the rate.
            return np.asarray((theta - rate * total / bounds.n_samples) / (1 + rate * bounds.alpha))

        with single_threaded_blas():  # the products are small: threads would wait for each other
            return average_mechanism_iterates(
                take_step, np.zeros(bounds.dimension), steps, max(1, round(AVERAGED * steps))
            )


def plain_descent_settings(
    bounds: LinearBounds,
    step_size: float | None,
    start: object,
    covariance: object,
    average: bool,
    truncation: float | None,
) -> Facts:
    """Return the checked public choices of a plain run; raise on what is not public data of the
    right shape.
    """
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
    chosen["start"] = (
        [0.0] * size if start is None else _finite_descent_array("start", start, (size,)).tolist()
    )
    chosen["covariance"] = None
    if covariance is not None:
        matrix = _finite_descent_array("covariance", covariance, (size, size))
        if not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix)[0] <= 0:
            raise parameter_error(
                "covariance", _OWNER, "symmetric and positive definite", "another matrix"
            )
        if truncation is None:
            raise ValueError(
                f"The 'truncation' parameter of {_OWNER} must be given with a covariance: rows "
                "are bounded where they are white. Got None instead. The square root of the "
                "number of coefficients is usual."
            )
        chosen["covariance"] = matrix.tolist()
    if step_size is None:
        # Slopes turn by their range over a width of about 1 in mapped units; a row of norm B then
        # bends by B^2.
        low, high = bounds.loss.slope_range
        step_size = 1.0 / (
            (high - low) * max(1.0, (_descent_norm_bound(bounds, chosen) / math.sqrt(size)) ** 2)
        )
    chosen["step_size"] = check_number(
        "step_size", _OWNER, step_size, positive, 0, math.inf, low_open=True
    )
    return chosen


def _finite_descent_array(name: str, given: object, shape: tuple[int, ...]) -> Array:
    """Return finite numbers of a shape as an array, or raise."""
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if (
        array.shape != shape
        or not np.isfinite(array).all()
        or np.abs(array).max(initial=0.0) > 1e50
    ):
        allowed = (
            f"None or finite numbers of shape {shape}, in mapped units with the intercept first"
        )
        raise parameter_error(name, _OWNER, allowed, f"shape {array.shape}")
    return array


def _descent_norm_bound(bounds: LinearBounds, plain: Parameters) -> float:
    """Return the bound on the norm of ``v_i``."""
    if plain["truncation"] is not None:
        return float(plain["truncation"])
    return bounds.lipschitz / float(bounds.loss.lipschitz)


def _check_descent_overflow(
    bounds: LinearBounds, steps: int, plain: Parameters, std: float
) -> None:
    """Raise if iterates could overflow, where slopes are no numbers any more."""
    turn = 1.0
    if plain["covariance"] is not None:
        turn = 1.0 / float(np.linalg.eigvalsh(np.array(plain["covariance"]))[0])
    longest = float(bounds.loss.lipschitz) * _descent_norm_bound(bounds, plain) * bounds.n_samples
    longest = (longest + std * (math.sqrt(bounds.dimension) + 40)) / bounds.n_samples
    rate = plain["step_size"]
    if not (rate * bounds.alpha * turn <= 2 and steps * rate * math.sqrt(turn) * longest < 1e100):
        allowed = "so small that steps cannot overflow: at most 2 / alpha in white coordinates"
        raise parameter_error("step_size", _OWNER, allowed, repr(rate), "Use a smaller step.")


@certificates.calibrates(PLAIN)
def calibrate_plain_descent(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> CertificateCalibration:
    """Derive the noise of every step: ``std = sqrt(T) D / mu``, D the sensitivity of a sum of
    gradients.
    """
    check_mechanism_slope(bounds, _OWNER)
    settings = parameters["gradient"]
    plain = parameters["plain"]
    mu = gaussian_budget(guarantee, _OWNER) / math.sqrt(parameters.get("problems", 1))
    query = Query(
        "vector",
        float(bounds.loss.lipschitz) * _descent_norm_bound(bounds, plain),
        bounds.dimension,
    )
    steps = (
        _PLAIN_STEPS
        if settings["steps"] is None
        else check_count("steps", _OWNER, settings["steps"])
    )
    term = query.calibrated_noise(bounds, mu, steps)
    _check_descent_overflow(bounds, steps, plain, term.scale)
    return CertificateCalibration({"gradients": term})


@certificates.proves(PLAIN)
def prove_plain_descent(certificate: Certificate) -> CertificateProof:
    """Compose the stated sums of gradients, of choices that are public data of the right shape."""
    certificate.check_bounds(LinearBounds, several=True)
    check_gradient_smoothing(certificate.parameters["gradient"])
    stated = certificate.parameters["plain"]
    if stated["start"] is None:  # a strange file may name any number of columns
        raise certificates.CertificateError(
            "The certificate does not say where its descent starts."
        )
    names = ("step_size", "start", "covariance", "average", "truncation")
    plain_descent_settings(certificate.bounds, **{name: stated[name] for name in names})
    return prove_queries(certificate)


def run_plain_descent(rows: PrivateRows, certificate: Certificate) -> Array:
    """Return the last iterate, or the mean of the later half."""
    bounds = certificate.bounds
    plain = certificate.parameters["plain"]
    settings = certificate.parameters["gradient"]
    steps = rows.terms["gradients"].releases
    loss = bounds.loss
    width = settings["bandwidth"]
    if width is not None and not math.isfinite(loss.smoothness):
        loss = convolve(loss, rebuild_description(settings["kernel"]), width)
    turn = np.eye(bounds.dimension)
    if plain["covariance"] is not None:
        values, axes = np.linalg.eigh(np.array(plain["covariance"]))
        turn = (axes / np.sqrt(values)) @ axes.T
    coordinates = Coordinates(turn, int(bounds.fit_intercept), constant_norm=0.0)

    def take_step(theta: Array) -> Array:
        total = rows.slope_sum("gradients", theta, QuerySlope(loss), coordinates) / bounds.n_samples
        return np.asarray(
            theta - plain["step_size"] * (turn @ (total + bounds.alpha * (turn @ theta)))
        )

    averaged = max(1, round(AVERAGED * steps)) if plain["average"] else 1
    return average_mechanism_iterates(
        take_step, np.array(plain["start"], dtype=np.float64), steps, averaged
    )
