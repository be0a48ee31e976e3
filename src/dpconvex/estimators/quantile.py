"""Quantile regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import d2_pinball_score

from dpconvex.estimators.linear import PrivateLinearRegressor, WithIntervals, kept_share_facts
from dpconvex.estimators.parameters import estimator
from dpconvex.estimators.private_model import PublicFacts, StatedSettings
from dpconvex.inputs.people import PrivacyUnit
from dpconvex.inputs.settings import (
    check_optional_positive,
    check_quantile_level,
    check_quantile_levels,
    is_sequence,
    resolve_kernel,
)
from dpconvex.losses import Pinball
from dpconvex.mechanisms.mechanism import Plan
from dpconvex.planning.forecasts import may_be_level
from dpconvex.planning.mechanism_choice import Choice, Request, choose_quantile_mechanism
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificate import Certificate
from dpconvex.privacy.description import describe
from dpconvex.smoothing import ConvolvedLoss, Kernel, MoreauLoss, convolve
from dpconvex.types import Array


@estimator
class PrivateQuantileModel(PrivateLinearRegressor):
    """Base of fits of conditional quantiles; subclasses give the levels (``_wanted``)."""

    _: KW_ONLY
    bandwidth: float | None = None
    kernel: str | Kernel = "logistic"
    smoothing: str = "convolution"

    def _wanted(self, n_targets: int | None = None) -> float | tuple[float, ...]:
        """Return the quantile level to fit, or several, checked; ``n_targets`` of a table of targets."""
        raise AttributeError(f"{type(self).__name__} does not say which quantile it fits.")

    def _targets(self, levels: tuple[float, ...]) -> int:
        """Return how many targets several levels are of."""
        return 1

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> StatedSettings:
        kernel = resolve_kernel(self.kernel, type(self).__name__)
        named = certificate.parameters.get("quantile")
        wanted = self._wanted(len(named) if isinstance(named, list) else None)
        level, levels = _widest(wanted), wanted if isinstance(wanted, tuple) else ()
        loss, parameters = certificate.bounds.loss, certificate.parameters
        smooth = isinstance(loss, ConvolvedLoss)
        base = loss.loss if smooth or isinstance(loss, MoreauLoss) else loss
        planned = parameters.get("gradient", {})
        bandwidth = check_optional_positive("bandwidth", self.bandwidth, type(self).__name__)
        stated = {
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (base, Pinball(level)),
            "quantile": (named, wanted),
            "levels": (planned.get("levels", []), list(levels) if len(levels) > 1 else []),
            "targets": (planned.get("targets", 1), self._targets(levels)),
            "kernel": (describe(loss.kernel) if smooth else planned.get("kernel", describe(kernel)), describe(kernel)),
        }
        envelopes = self._envelopes(type(self).__name__)
        if isinstance(loss, MoreauLoss):
            stated["kind of smoothing"] = (envelopes, True)
            width = parameters["bandwidth"] * facts.target_scale
            stated["smoothing"] = (loss, _envelope(Pinball(level), kernel, width))
        elif smooth or "gradient" in parameters:
            stated["kind of smoothing"] = (envelopes, False)
        if smooth:
            stated["smoothing"] = (loss.bandwidth / facts.target_scale, parameters["bandwidth"])
            if certificate.mechanism == "objective" and bandwidth is None:
                # Smoothing moves quantiles, so the level that is smoothed may be another one, within limits.
                near = type(base) is Pinball and may_be_level(base.quantile, level)
                stated["loss"] = (near, True)
        if bandwidth is not None:
            stated["bandwidth"] = (parameters.get("bandwidth"), bandwidth)
        return stated

    def _plan(self, records: PrivacyUnit, n_features: int, n_targets: int | None = None) -> Plan:
        owner = type(self).__name__
        wanted = self._wanted(n_targets)
        quantile, levels = _widest(wanted), wanted if isinstance(wanted, tuple) else ()
        facts = self._public_facts(records, n_features)
        bandwidth = check_optional_positive("bandwidth", self.bandwidth, owner, unit=1 / facts.target_scale)
        request = Request(
            kernel=resolve_kernel(self.kernel, owner),
            guarantee=facts.guarantee,
            bounds=facts.linear_bounds(Pinball(quantile), self.neighbors),
            alpha=check_optional_positive("alpha", self.alpha, owner),
            bandwidth=None if bandwidth is None else bandwidth * facts.target_scale,
            levels=levels if len(levels) > 1 else (),
            targets=self._targets(levels),
            row_map=facts.row_map,
            raw_target=facts.parameters["target_bounds"] is None,
        )
        chosen = choose_quantile_mechanism(self.mechanism, request, owner)
        if self._envelopes(owner):
            chosen = _with_envelope(chosen, quantile, owner)
        named = list(wanted) if isinstance(wanted, tuple) else wanted
        parameters = {"quantile": named, **chosen.parameters}
        if chosen.bandwidth is not None:
            parameters["bandwidth"] = chosen.bandwidth / facts.target_scale
        return self._certified_plan(facts, chosen.mechanism, chosen.bounds, parameters)

    def _envelopes(self, owner: str) -> bool:
        """Return whether kinks are rounded by a Moreau envelope, checked."""
        if self.smoothing not in ("convolution", "moreau"):
            raise ValueError(
                f"The 'smoothing' parameter of {owner} must be 'convolution' or 'moreau'. Got {self.smoothing!r} "
                "instead."
            )
        return self.smoothing == "moreau"

    def _store(self, coefficients: list[Array], plan: Plan) -> None:
        if isinstance(plan.certificate.parameters["quantile"], list):
            self.coef_, self.intercept_ = self._in_user_units(list(np.atleast_2d(coefficients[0])), plan)
        else:
            super()._store(coefficients, plan)

    def _summary_facts(self) -> list[tuple[str, str]]:
        parameters = self.certificate_.parameters
        levels = np.atleast_1d(parameters["quantile"])
        name = "quantile" if len(levels) == 1 else "quantiles"
        facts = [(name, ", ".join(f"{level:g}" for level in levels))]
        if "bandwidth" in parameters:
            facts.append(("bandwidth", f"{parameters['bandwidth']:.4g} (target's units)"))
        return [*facts, *kept_share_facts(self.released_)]


def _widest(wanted: float | tuple[float, ...]) -> float:
    """Return the level whose loss stands for several: the one that is furthest from the middle."""
    return max(wanted, key=lambda level: abs(level - 0.5)) if isinstance(wanted, tuple) else wanted


def _envelope(loss: Pinball, kernel: Kernel, width: float) -> MoreauLoss:
    """Return the Moreau envelope with the curvature that convolution over this width would have."""
    return MoreauLoss(loss, convolve(loss, kernel, width).smoothness)


def _with_envelope(chosen: Choice, level: float, owner: str) -> Choice:
    """Return a choice whose smoothed loss is an envelope of the same curvature: noise and penalty stay as they are."""
    if chosen.mechanism.name == "gradient":
        raise ValueError(
            f"The 'smoothing' parameter of {owner} must be 'convolution' for mechanism 'gradient', which descends "
            "along convolved slopes. Got 'moreau' instead. Use 'objective', 'output', 'sgd' or a phased one."
        )
    bounds = cast(LinearBounds, chosen.bounds)
    loss = bounds.loss
    if not isinstance(loss, ConvolvedLoss):  # kinked: nothing is smoothed, or by the mechanism itself
        return chosen
    smooth = _envelope(Pinball(level), loss.kernel, loss.bandwidth)
    return replace(chosen, bounds=replace(bounds, loss=smooth))


@estimator
class DPQuantileRegressor(WithIntervals, PrivateQuantileModel):
    r"""Linear quantile regression under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i w_i loss(y_i - x_i . theta) + (alpha/2) ||theta||^2`` where ``loss`` is the
    pinball loss convolved with a kernel, rows and targets are mapped by public bounds, and the intercept is part of
    the row and of the penalty.

    Parameters
    ----------
    quantile : float or sequence of float, default=0.5
        Quantile level, between 0 and 1, or several in increasing order: one fit, one budget, one certificate. They
        share all that is found out about rows and target, so that nine levels err little more than one
        (:doc:`/howto/curves`).

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column names, all
    parameters. Everything that ends with an underscore is covered by the guarantee and may be published.

    Examples
    --------
    >>> from dpconvex import DPQuantileRegressor
    >>> model = DPQuantileRegressor(0.9, epsilon=1.0, feature_bounds=(0, 10), target_bounds=(0, 50))
    >>> certificate = model.certify(n_samples=10_000, n_features=3)
    >>> certificate.guarantee
    ApproxDP(epsilon=1.0, delta=1e-06)
    >>> certificate.verify()
    """

    quantile: float | Sequence[float] = 0.5

    def _wanted(self, n_targets: int | None = None) -> float | tuple[float, ...]:
        owner = type(self).__name__
        if is_sequence(self.quantile):
            return check_quantile_levels(cast(Sequence[float], self.quantile), owner)
        return check_quantile_level(self.quantile, owner)

    def predict(self, X: object) -> NDArray[np.float64]:
        """Return predictions, in the target's units.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
            Rows; used as they are, without clipping.

        Returns
        -------
        array of shape (n_samples,), or (n_samples, n_levels)
            Of several levels each row is sorted, so that quantiles never cross. Lines of noisy coefficients may; the
            sorted ones are never further from the true quantiles, and sorting costs no privacy.
        """
        found = self._linear(X)
        return found if found.ndim == 1 else np.sort(found, axis=1)

    def _problem_name(self, problem: int) -> str:
        return f"quantile {np.atleast_1d(np.asarray(self.quantile))[problem]:g}"

    def _plan(self, records: PrivacyUnit, n_features: int, n_targets: int | None = None) -> Plan:
        if self.inference is False:
            return super()._plan(records, n_features, n_targets)
        level, facts = self._wanted(n_targets), self._public_facts(records, n_features)
        if isinstance(level, tuple):
            raise ValueError(
                f"The 'quantile' parameter of {type(self).__name__} must be one level with inference=True. Got "
                f"{len(level)} levels instead. Fit one model per level, each with a part of the budget."
            )
        return self._interval_plan(facts, Pinball(level), {"quantile": level})

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the D² of the pinball loss: 1 is perfect, 0 is as good as the constant quantile.

        Of several levels, the mean over them.
        """
        found = self.predict(X)
        found = found[:, None] if found.ndim == 1 else found
        scores = [
            d2_pinball_score(y, column, alpha=level, sample_weight=sample_weight)
            for column, level in zip(found.T, np.atleast_1d(np.asarray(self.quantile)), strict=True)
        ]
        return float(np.mean(scores))
