"""The default mechanism: the private fit, noisy sums of which a model is post-processing.

The fit itself is :mod:`dpconvex.fit`: approximate Newton iterations, each noisy gradient evaluated
at the posterior mean of the minimiser given all earlier ones. Here is what surrounds it: how it is
calibrated, what its noise proves, and that a run holds nothing but the handle of the trusted core.
Certificates name it ``"gradient"``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dpconvex.core.certificate import (
    Certificate,
    CertificateCalibration,
    CertificateError,
    CertificateProof,
    finds_column_scales,
)
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts, describe, rebuild_description
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import prove_queries
from dpconvex.core.rows import CLIP_LIMIT, RAW_CLIP_LIMIT, RowMap, Rows
from dpconvex.fit.fit_plan import FitConfig, gaussian_budget, plan_fit
from dpconvex.fit.private_fit import PrivateFit
from dpconvex.fit.several_quantiles import SeveralQuantiles
from dpconvex.losses import Pinball, Squared
from dpconvex.mechanisms.mechanism import PrivateMechanism, check_mechanism_slope
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.objective import RowObjective
from dpconvex.smoothing import Kernel, LogisticKernel
from dpconvex.types import Array

_OWNER = "NoisyGradientDescent"
_STATED = {"steps", "bandwidth", "kernel", "ranking", "raw_target", "levels", "targets", "smooth"}

#: How coefficients are found, for a reader who has never heard of it.
STEP_BY_STEP = (
    "The coefficients were found step by step. In every step each record says in which direction "
    "it would move them, with a weight of at most a fixed limit. The answers are added up, "
    "random noise is added to the total, and only the noisy total is used."
)
EVERY_STEP = "noise is added in every step of the solver"


@dataclass(frozen=True)
class PrivateFitSettings:
    """What a run of the private fit uses; its certificate states the same as plain data.

    A bandwidth is in mapped units, None for multiples of released scales; ``origin`` is the mapped
    target of 0, None where that is not within public bounds.
    """

    config: FitConfig
    kernel: Kernel
    bandwidth: float | None = None
    origin: float | None = None


@dataclass(frozen=True)
class PrivateFitMechanism(PrivateMechanism):
    r"""The private fit: noisy gradients, each evaluated at the posterior mean of the minimiser
    given all earlier ones.

    Parameters
    ----------
    steps : int, optional
        Fine rounds of gradients; by default 4 to 16, by the loss.

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
    >>> certificate = PrivateFitMechanism().certify(bounds, ApproxDP(1.0, 1e-6))
    >>> certificate.mechanism, certificate.guarantee
    ('gradient', ApproxDP(epsilon=1.0, delta=1e-06))
    """

    steps: int | None = None
    name: ClassVar[str] = "gradient"
    carries: ClassVar[Carries] = Carries(
        weights=True,
        people=True,
        ignored_rows=True,
        problems=True,
        several_margins=True,
        levels=True,
    )
    fits: ClassVar[frozenset[str]] = frozenset(
        {"quantiles", "means", "classes", "rates", "ranking", "shared coefficients"}
    )
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (ApproxDP, GaussianDP)
    takes_rows: ClassVar[bool] = True
    takes_partitions: ClassVar[bool] = True
    offers_intervals: ClassVar[bool] = True
    offers_curves: ClassVar[bool] = True
    limits_slopes: ClassVar[bool] = True
    noise_enters: ClassVar[str] = EVERY_STEP
    method: ClassVar[str] = (
        f"{STEP_BY_STEP} The scales of the columns were measured in the same way."
    )
    quantities: ClassVar[dict[str, str]] = {
        "mass": "number of valid records",
        "columns": "range and centre of each column",
        "lengths": "median row norm",
        "moments": "second moments of the columns",
        "labels": "number of labels, or of outcomes, of each kind",
        "octaves": "order of magnitude of the target",
        "targets": "location and scale of the target",
        "mean row": "mean row, shared by all levels",
        "rough gradients": "gradients of the first rounds",
        "residuals": "location and scale of the residuals",
        "margins": "histogram of the margins",
        "gradients": "gradients of the middle rounds",
        "curvature": "curvature of the loss",
        "late gradients": "gradients of the last rounds",
        "scores": "covariance of the gradients, for intervals",
        "limits": "number of limited residuals, for intervals",
    }

    @classmethod
    def calibrate(
        cls, bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        """Plan the fit and derive the noise of every release; composed over all of them and all
        problems, they spend exactly ``mu``.
        """
        if type(bounds.loss) is not Squared and not math.isfinite(bounds.loss.lipschitz):
            check_mechanism_slope(bounds, _OWNER)  # raises
        mu = gaussian_budget(guarantee, _OWNER) / math.sqrt(parameters.get("problems", 1))
        inference = {"inference": True} if parameters.get("inference", False) else {}
        plan = plan_fit(bounds, mu, {**parameters["gradient"], **inference})
        return CertificateCalibration(
            plan.calibrated_noise(bounds, mu),
            stated={"fit": plan.config.stated()},
            decided=plan.config,
        )

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Compose the stated sums."""
        bounds = certificate.bounds
        parameters = certificate.parameters
        settings = parameters["gradient"]
        config = FitConfig(**parameters["fit"])
        check_gradient_smoothing(settings)
        stated = settings.get("levels", []), settings.get("targets", 1)
        named = parameters.get("quantile", list(config.levels))
        levels_differ = config.levels and named != stated[0]
        if stated != (list(config.levels), config.targets) or levels_differ:
            raise CertificateError("The certificate's fit is not that of its settings: see levels.")
        if config.levels and type(bounds.loss) is not Pinball:
            raise CertificateError("Several levels are those of the pinball loss.")
        parts = [rows for rows in (config.geometry_rows, config.early_rows) if rows is not None]
        if parts and (bounds.neighbors != "replace_one" or max(parts) > bounds.n_samples):
            raise CertificateError(
                "Which rows are a part of them is public only where their number is."
            )
        return prove_queries(certificate)

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide the fit from what is asked; the plan is made once, by the calibration."""
        check_convolution_is_asked(request)
        parameters: Facts = {}
        bounds = replace(
            request.bounds,
            alpha=request.alpha or 0.0,
            max_norm=self.mapped_by(request.row_map).max_norm,
        )
        if request.joint_loss is not None:  # one fit of all classes
            bounds = replace(bounds, loss=request.joint_loss)
            parameters["problems"] = 1
        kernel = request.kernel or LogisticKernel()
        stated = descent_settings(
            self.steps, request.bandwidth, kernel, request.levels, request.targets
        )
        if request.ranking:
            stated["ranking"] = True
        if request.raw_target:
            stated["raw_target"] = True
        if request.curves is not None:
            stated["smooth"] = request.curves
        parameters["gradient"] = stated
        decision = self.decide(request, bounds, parameters, bandwidth=request.bandwidth)
        settings = PrivateFitSettings(
            decision.settings, kernel, request.bandwidth, mapped_zero(request.parameters)
        )
        return replace(decision, settings=settings)

    def _chosen(self, bounds: LinearBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault("gradient", descent_settings(self.steps))
        return parameters

    def stated_settings(self, certificate: Certificate) -> PrivateFitSettings:
        """Return the settings that a certificate states, as the object that a run takes."""
        parameters = certificate.parameters
        stated = parameters["gradient"]
        return PrivateFitSettings(
            FitConfig(**parameters["fit"]),
            rebuild_description(stated["kernel"]),
            stated["bandwidth"],
            mapped_zero(parameters),
        )

    @classmethod
    def stated_choices(cls, certificate: Certificate) -> Parameters:
        """Return the settings of the descent that a certificate states."""
        settings: Parameters = certificate.parameters["gradient"]
        return settings

    def mapped_by(self, row_map: RowMap) -> RowMap:
        """Clip columns without bounds at a public limit, far away, and weight long rows: the fit
        finds the columns' scales.
        """
        return row_map.weighted(RAW_CLIP_LIMIT)

    @classmethod
    def stated_map(cls, certificate: Certificate, row_map: RowMap) -> RowMap:
        """Return how a certified run mapped rows: further up where it found their scales."""
        return row_map.weighted(RAW_CLIP_LIMIT if finds_column_scales(certificate) else CLIP_LIMIT)

    def _run(
        self,
        objective: RowObjective | list[Rows],
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
        settings: PrivateFitSettings,
    ) -> Array:
        """Return private coefficients; what was released on the way goes into ``record``."""
        rows_by_target = objective if isinstance(objective, list) else [objective.rows]
        check_descent_rows(rows_by_target, certificate)
        rows = PrivateRows(rows_by_target, certificate, noise)
        kind = SeveralQuantiles if settings.config.levels else PrivateFit
        fit = kind(
            rows, settings.config, settings.kernel, settings.bandwidth, record, settings.origin
        )
        found = fit.run()
        return found.T if found.ndim == 2 else found


def descent_settings(
    steps: int | None,
    bandwidth: float | None = None,
    kernel: Kernel | None = None,
    levels: Sequence[float] = (),
    targets: int = 1,
) -> Facts:
    """Return the public parameters of a noisy descent, as its certificate states them.

    ``bandwidth`` is in mapped units, None to find one; ``kernel`` is logistic by default.
    ``levels`` are those of several quantiles in one run, of one target or of one target each.
    """
    several = {"levels": list(levels), "targets": targets} if levels else {}
    return {
        "steps": None if steps is None else check_count("steps", _OWNER, steps),
        "bandwidth": bandwidth,
        "kernel": describe(kernel or LogisticKernel()),
        **several,
    }


def mapped_zero(parameters: Parameters) -> float | None:
    """Return the mapped target of 0, where that is within the public bounds of the target."""
    low, high = parameters.get("target_bounds") or (1.0, 1.0)
    if not low <= 0 <= high:
        return None
    return 0.0 if parameters.get("through_origin", False) else (low + high) / (low - high)


def check_convolution_is_asked(request: FitRequest) -> None:
    """Refuse a fit along Moreau envelopes: a noisy descent goes along convolved slopes."""
    if request.envelope is not None:
        raise ValueError(
            f"The 'smoothing' parameter of {request.owner} must be 'convolution' for mechanism "
            "'gradient', which descends along convolved slopes. Got 'moreau' instead. Use "
            "'objective', 'output', 'sgd' or a phased one."
        )


def check_gradient_smoothing(settings: Parameters) -> None:
    """Refuse settings that no run could have had: slopes keep their range only if a density
    averages them.
    """
    if not {"steps", "bandwidth", "kernel"} <= set(settings) <= _STATED:
        raise CertificateError("The certificate's settings are not those of a noisy descent.")
    kernel = rebuild_description(settings["kernel"])
    width = settings["bandwidth"]
    if not isinstance(kernel, Kernel) or kernel.dim != 1 or describe(kernel) != settings["kernel"]:
        raise CertificateError("The certificate's kernel is not a density of one variable.")
    if width is not None:
        allowed = "None or a finite number above 0"
        check_number("bandwidth", "The certificate", width, allowed, 0, math.inf, low_open=True)


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
