r"""Plain noisy gradient descent: noise enters during solving, under Gaussian DP.

    beta <- beta - step_size C [ (sum_i slope_i(x_i . beta) v_i + std * normal) / n + alpha C beta
    ], v_i = C x_i min(1, B / ||C x_i||), C = covariance^{-1/2}

T times from ``start``; the last iterate is returned, or the mean of the later half. With the
smoothed pinball loss this is Algorithm 1 of the newsvendor's paper, with its B, T, step, start and
known covariance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.certificate import (
    Certificate,
    CertificateCalibration,
    CertificateError,
    CertificateProof,
    finds_column_scales,
)
from dpconvex.core.checks import check_count, check_number, parameter_error
from dpconvex.core.description import Facts, rebuild_description
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import Query, QuerySlope, prove_queries
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.core.rows import CLIP_LIMIT, RAW_CLIP_LIMIT, RowMap, Rows
from dpconvex.fit.fit_plan import gaussian_budget
from dpconvex.fit.plausible_answers import plausible_answer
from dpconvex.mechanisms.mechanism import (
    AVERAGED,
    PrivateMechanism,
    average_mechanism_iterates,
    check_mechanism_slope,
)
from dpconvex.mechanisms.private_fit import (
    EVERY_STEP,
    STEP_BY_STEP,
    check_convolution_is_asked,
    check_descent_rows,
    check_gradient_smoothing,
    descent_settings,
)
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.objective import RowObjective
from dpconvex.smoothing import Kernel, LogisticKernel, convolve
from dpconvex.types import Array

_OWNER = "NoisyGradientDescent"
_STEPS = 10  # where none are given


@dataclass(frozen=True)
class PlainDescentSettings:
    """What a run of the plain descent uses; its certificate states the same as plain data."""

    average: bool
    truncation: float | None
    start: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...] | None
    step_size: float
    kernel: Kernel
    bandwidth: float | None

    def stated(self) -> Facts:
        """Return the choices of a plain run as its certificate states them."""
        covariance = self.covariance
        return {
            "average": self.average,
            "truncation": self.truncation,
            "start": list(self.start),
            "covariance": None if covariance is None else [list(row) for row in covariance],
            "step_size": self.step_size,
        }


@dataclass(frozen=True)
class PlainDescent(PrivateMechanism):
    r"""Noisy gradient descent with public steps, start and coordinates, as papers write it.

    Parameters
    ----------
    steps : int, optional
        Number of steps, 10 by default.
    step_size, truncation, start, covariance : optional
        Public choices, in mapped units with the intercept first: the rate of every step, the bound
        B on the norm of a record's row where it is white, the first iterate, and the known
        second-moment matrix of the rows.
    average : bool, default=True
        Whether the later iterates are averaged; False returns the last one.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or
    add-or-remove-one. All parameters are public.
    """

    steps: int | None = None
    step_size: float | None = None
    truncation: float | None = None
    start: ArrayLike | None = None
    covariance: ArrayLike | None = None
    average: bool = True
    name: ClassVar[str] = "plain-gradient"
    word: ClassVar[str] = ""  # users ask for it by the parameters of NoisyGradientDescent
    carries: ClassVar[Carries] = Carries(ignored_rows=True, problems=True)
    fits: ClassVar[frozenset[str]] = frozenset(
        {"quantiles", "means", "classes", "rates", "ranking"}
    )
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (ApproxDP, GaussianDP)
    takes_rows: ClassVar[bool] = True
    noise_enters: ClassVar[str] = EVERY_STEP
    method: ClassVar[str] = STEP_BY_STEP
    quantities: ClassVar[dict[str, str]] = {"gradients": "gradients of the middle rounds"}

    @classmethod
    def calibrate(
        cls, bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        """Derive the noise of every step: ``std = sqrt(T) D / mu``, D the sensitivity of a sum of
        gradients.
        """
        check_mechanism_slope(bounds, _OWNER)
        steps = parameters["gradient"]["steps"]
        plain = parameters["plain"]
        mu = gaussian_budget(guarantee, _OWNER) / math.sqrt(parameters.get("problems", 1))
        query = Query(
            "vector",
            float(bounds.loss.lipschitz) * _descent_norm_bound(bounds, plain["truncation"]),
            bounds.dimension,
        )
        steps = _STEPS if steps is None else check_count("steps", _OWNER, steps)
        term = query.calibrated_noise(bounds, mu, steps)
        _check_descent_overflow(bounds, steps, plain, term.scale)
        return CertificateCalibration({"gradients": term})

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Compose the stated sums of gradients, of choices that are public data of the right
        shape.
        """
        stated = certificate.parameters["plain"]
        check_gradient_smoothing(certificate.parameters["gradient"])
        if stated["start"] is None:  # a strange file may name any number of columns
            raise CertificateError("The certificate does not say where its descent starts.")
        names = ("step_size", "start", "covariance", "average", "truncation")
        checked_plain_choices(certificate.bounds, **{name: stated[name] for name in names})
        return prove_queries(certificate)

    def adapted_to(self, request: FitRequest) -> PlainDescent:
        """Return itself; raise where several quantiles are asked."""
        refuse_several_quantiles(request.levels)
        return self

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide the descent: the loss as it is, the user's penalty or none."""
        check_convolution_is_asked(request)
        bounds = replace(
            request.bounds,
            alpha=request.alpha or 0.0,
            max_norm=self.mapped_by(request.row_map).max_norm,
        )
        kernel = request.kernel or LogisticKernel()
        stated = descent_settings(self.steps, request.bandwidth, kernel)
        if request.ranking:
            stated["ranking"] = True
        settings = PlainDescentSettings(
            **self._choices(bounds), kernel=kernel, bandwidth=request.bandwidth
        )
        return self.decide(
            request, bounds, {"gradient": stated}, bandwidth=request.bandwidth, settings=settings
        )

    def _choices(self, bounds: LinearBounds) -> dict[str, Any]:
        """Return the checked public choices of a run with these bounds."""
        return checked_plain_choices(
            bounds, self.step_size, self.start, self.covariance, self.average, self.truncation
        )

    def _chosen(self, bounds: LinearBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault("gradient", descent_settings(self.steps))
        settings = PlainDescentSettings(
            **self._choices(bounds), kernel=LogisticKernel(), bandwidth=None
        )
        return {**parameters, "plain": settings.stated()}

    def stated_settings(self, certificate: Certificate) -> PlainDescentSettings:
        """Return the settings that a certificate states, as the object that a run takes."""
        stated = certificate.parameters["gradient"]
        plain = certificate.parameters["plain"]
        covariance = plain["covariance"]
        return PlainDescentSettings(
            plain["average"],
            plain["truncation"],
            tuple(plain["start"]),
            None if covariance is None else tuple(map(tuple, covariance)),
            plain["step_size"],
            rebuild_description(stated["kernel"]),
            stated["bandwidth"],
        )

    @classmethod
    def stated_choices(cls, certificate: Certificate) -> Parameters:
        """Return the settings of the descent that a certificate states."""
        settings: Parameters = certificate.parameters["gradient"]
        return settings

    def mapped_by(self, row_map: RowMap) -> RowMap:
        """Clip columns without bounds, which are taken to be of order 1, and weight long rows."""
        return row_map.weighted(CLIP_LIMIT)

    @classmethod
    def stated_map(cls, certificate: Certificate, row_map: RowMap) -> RowMap:
        """Return how a certified run mapped rows."""
        return row_map.weighted(RAW_CLIP_LIMIT if finds_column_scales(certificate) else CLIP_LIMIT)

    def _run(
        self,
        objective: RowObjective | list[Rows],
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
        settings: PlainDescentSettings,
    ) -> Array:
        """Return the last iterate, or the mean of the later half."""
        rows_by_target = objective if isinstance(objective, list) else [objective.rows]
        check_descent_rows(rows_by_target, certificate)
        rows = PrivateRows(rows_by_target, certificate, noise)
        bounds = certificate.bounds
        steps = rows.terms["gradients"].releases
        loss = bounds.loss
        if settings.bandwidth is not None and not math.isfinite(loss.smoothness):
            loss = convolve(loss, settings.kernel, settings.bandwidth)
        turn = np.eye(bounds.dimension)
        if settings.covariance is not None:
            values, axes = np.linalg.eigh(np.array(settings.covariance))
            turn = (axes / np.sqrt(values)) @ axes.T
        coordinates = Coordinates(turn, int(bounds.fit_intercept), constant_norm=0.0)

        def take_step(theta: Array) -> Array:
            answer = rows.slope_sum("gradients", theta, QuerySlope(loss), coordinates)
            mean = plausible_answer(answer, rows.terms["gradients"], bounds) / bounds.n_samples
            return np.asarray(
                theta - settings.step_size * (turn @ (mean + bounds.alpha * (turn @ theta)))
            )

        averaged = max(1, round(AVERAGED * steps)) if settings.average else 1
        start = np.array(settings.start, dtype=np.float64)
        return average_mechanism_iterates(take_step, start, steps, averaged)


def refuse_several_quantiles(levels: Sequence[float]) -> None:
    """Raise where several quantiles are asked of the plain descent."""
    if levels:
        raise ValueError(
            "NoisyGradientDescent finds several quantiles in released coordinates only. Got a "
            "plain descent instead. Use NoisyGradientDescent() or fit one quantile at a time."
        )


def checked_plain_choices(
    bounds: LinearBounds,
    step_size: float | None,
    start: object,
    covariance: object,
    average: bool,
    truncation: float | None,
) -> dict[str, Any]:
    """Return the checked public choices of a plain run, by the names of its settings; raise on what
    is not public data of the right shape.
    """
    positive = "None or a finite number above 0"
    size = bounds.dimension
    if not isinstance(average, bool):
        raise TypeError(
            f"The 'average' parameter of {_OWNER} must be True or False. Got {average!r} instead."
        )
    if truncation is not None:
        truncation = check_number(
            "truncation", _OWNER, truncation, positive, 0, math.inf, low_open=True
        )
    first = [0.0] * size
    if start is not None:
        first = _finite_descent_array("start", start, (size,)).tolist()
    known = None
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
        known = tuple(map(tuple, matrix.tolist()))
    if step_size is None:
        # Slopes turn by their range over a width of about 1 in mapped units; a row of norm B then
        # bends by B^2.
        low, high = bounds.loss.slope_range
        longest = _descent_norm_bound(bounds, truncation)
        step_size = 1.0 / ((high - low) * max(1.0, (longest / math.sqrt(size)) ** 2))
    step_size = check_number("step_size", _OWNER, step_size, positive, 0, math.inf, low_open=True)
    return {
        "average": average,
        "truncation": truncation,
        "start": tuple(first),
        "covariance": known,
        "step_size": step_size,
    }


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


def _descent_norm_bound(bounds: LinearBounds, truncation: float | None) -> float:
    """Return the bound on the norm of ``v_i``."""
    if truncation is not None:
        return float(truncation)
    return bounds.lipschitz / float(bounds.loss.lipschitz)


def _check_descent_overflow(
    bounds: LinearBounds, steps: int, plain: Parameters, std: float
) -> None:
    """Raise if iterates could overflow, where slopes are no numbers any more."""
    turn = 1.0
    if plain["covariance"] is not None:
        turn = 1.0 / float(np.linalg.eigvalsh(np.array(plain["covariance"]))[0])
    longest = _descent_norm_bound(bounds, plain["truncation"])
    longest = float(bounds.loss.lipschitz) * longest * bounds.n_samples
    longest = (longest + std * (math.sqrt(bounds.dimension) + 40)) / bounds.n_samples
    rate = plain["step_size"]
    if not (rate * bounds.alpha * turn <= 2 and steps * rate * math.sqrt(turn) * longest < 1e100):
        allowed = "so small that steps cannot overflow: at most 2 / alpha in white coordinates"
        raise parameter_error("step_size", _OWNER, allowed, repr(rate), "Use a smaller step.")
