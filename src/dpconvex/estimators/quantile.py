"""Private quantile regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_pinball_score
from sklearn.utils import Tags

from dpconvex.defaults.forecast_quantile import may_be_level
from dpconvex.defaults.quantile import choose_quantile_mechanism
from dpconvex.defaults.request import Request
from dpconvex.estimators.linear import Plan, PrivateLinearModel, PublicFacts, kept_facts, rows_for
from dpconvex.inputs.settings import optional_positive, quantile_level, resolve_kernel
from dpconvex.losses import Pinball
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.description import describe
from dpconvex.smoothing import ConvolvedLoss


class DPQuantileRegressor(RegressorMixin, PrivateLinearModel):
    r"""Linear quantile regression under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i w_i loss(y_i - x_i . theta) + (alpha/2) ||theta||^2`` where ``loss`` is the
    pinball loss convolved with a kernel, rows and targets are mapped by public bounds, and the intercept is part of
    the row and of the penalty.

    Parameters
    ----------
    quantile : float, default=0.5
        Quantile level, between 0 and 1.
    epsilon, delta : float, optional
        Budget for (epsilon, delta)-DP; 1.0 and 1e-6 by default, ``delta=0`` asks for pure epsilon-DP.
    mu : float, optional
        Budget for Gaussian DP, instead of epsilon and delta, with a mechanism that offers it.
    neighbors : {"replace_one", "add_or_remove_one"}
        What may differ between two data sets that must look alike.
    nominal_samples : int, optional
        Public guess of the number of rows; required with ``add_or_remove_one``, where the true number is private.
    feature_bounds : pair (low, high), optional
        Public bounds of the columns, scalars or one value per column; values beyond are clipped. Columns whose bounds
        contain 0 are divided by ``max(|low|, |high|)``, others are centred to [-1, 1].
    target_bounds : pair (low, high), optional
        Public range of the target; sets the scale, clips nothing. Without it targets should be of order 1.
    row_norm : float, optional
        Bound on a row's influence in mapped units, ``sqrt(n_features)`` by default (1 without feature bounds).
        Longer rows are weighted down.
    fit_intercept : bool, default=True
        Whether to fit a (penalised) intercept.
    alpha, bandwidth : float, optional
        Penalty, and smoothing bandwidth in the target's units. By default those with the smallest predicted risk,
        from public facts.
    coef_bound : float, optional
        Bound on the norm of the mapped coefficients, enforced by a projection of the released ones.
    kernel : str or Kernel, default="logistic"
        Smoothing kernel: logistic, gaussian, uniform, epanechnikov or laplacian.
    mechanism : str or Mechanism, default="auto"
        How noise is added: "objective", "output", "gradient", "sgd", "phased-erm", "phased-sgd" or a mechanism object;
        "auto" takes "gradient", or for pure epsilon the one of the first two with the smallest predicted risk.
    invalid_rows : {"error", "ignore"}
        What becomes of a row with NaN or infinity. "error" refuses the data, which is visible and not covered by the
        guarantee; "ignore" counts it as a fixed public record of loss 0.
    sampler : {"auto", "exact"}
        Where noise is drawn: by dpconvex, exactly on a public grid, or "exact" by opendp, on the same grid and about
        20 microseconds a number.
    ledger : Ledger, optional
        Budget of the data set; charged before noise is drawn.
    random_state : int, Generator or RandomState, optional
        Fixes the noise, for tests: such a fit is not private, and its certificate says so.
    verbose : int, default=0
        Print progress that depends on public facts only.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Coefficients in the user's units.
    intercept_ : float
        Intercept in the user's units.
    certificate_ : Certificate
        What is guaranteed, and why.
    released_ : dict
        Further quantities that were released on the way.

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

    def __init__(
        self,
        quantile: float = 0.5,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        neighbors: str = "replace_one",
        nominal_samples: int | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        fit_intercept: bool = True,
        alpha: float | None = None,
        bandwidth: float | None = None,
        coef_bound: float | None = None,
        kernel: Any = "logistic",
        mechanism: Any = "auto",
        invalid_rows: str = "error",
        sampler: str = "auto",
        ledger: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.quantile = quantile
        self.epsilon = epsilon
        self.delta = delta
        self.mu = mu
        self.neighbors = neighbors
        self.nominal_samples = nominal_samples
        self.feature_bounds = feature_bounds
        self.target_bounds = target_bounds
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.bandwidth = bandwidth
        self.coef_bound = coef_bound
        self.kernel = kernel
        self.mechanism = mechanism
        self.invalid_rows = invalid_rows
        self.sampler = sampler
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _level(self) -> float:
        """Return the quantile level to fit, checked."""
        return quantile_level(self.quantile, type(self).__name__)

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> dict[str, tuple[Any, Any]]:
        kernel, level = resolve_kernel(self.kernel, type(self).__name__), self._level()
        loss, parameters = certificate.bounds.loss, certificate.parameters
        smooth = isinstance(loss, ConvolvedLoss)
        base = loss.loss if smooth else loss
        planned = parameters.get("gradient", {}).get("kernel", describe(kernel))
        bandwidth = optional_positive("bandwidth", self.bandwidth, type(self).__name__)
        stated = {
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (base, Pinball(level)),
            "quantile": (parameters.get("quantile"), level),
            "kernel": (describe(loss.kernel) if smooth else planned, describe(kernel)),
        }
        if smooth:
            stated["smoothing"] = (loss.bandwidth / facts.target_scale, parameters["bandwidth"])
            if certificate.mechanism == "objective" and bandwidth is None:
                # Smoothing moves quantiles, so the level that is smoothed may be another one, within limits.
                near = type(base) is Pinball and may_be_level(base.quantile, level)
                stated["loss"] = (near, True)
        if bandwidth is not None:
            stated["bandwidth"] = (parameters.get("bandwidth"), bandwidth)
        return stated

    def _plan(self, n_samples: int, n_features: int) -> Plan:
        owner = type(self).__name__
        quantile = self._level()
        facts = self._public_facts(n_samples, n_features)
        bandwidth = optional_positive(
            "bandwidth", self.bandwidth, owner, unit=1 / facts.target_scale
        )
        request = Request(
            kernel=resolve_kernel(self.kernel, owner),
            guarantee=facts.guarantee,
            bounds=facts.linear_bounds(Pinball(quantile), 0.0, self.neighbors),
            alpha=optional_positive("alpha", self.alpha, owner),
            bandwidth=None if bandwidth is None else bandwidth * facts.target_scale,
            own_influence=self.row_norm is not None,
            weighted_norm=facts.row_map.weighted().max_norm,
        )
        chosen = choose_quantile_mechanism(self.mechanism, request, owner)
        parameters = {**facts.parameters, "quantile": quantile, **chosen.parameters}
        if chosen.bandwidth is not None:
            parameters["bandwidth"] = chosen.bandwidth / facts.target_scale
        certificate = chosen.mechanism.certify(
            chosen.bounds, facts.guarantee, parameters, seeded=self.random_state is not None
        )
        row_map = rows_for(chosen.mechanism, facts.row_map)
        return Plan(chosen.mechanism, certificate, row_map, facts.target_shift, facts.target_scale)

    def _summary_facts(self) -> list[tuple[str, str]]:
        parameters = self.certificate_.parameters
        facts = [("quantile", f"{parameters['quantile']:g}")]
        if "bandwidth" in parameters:
            facts.append(("bandwidth", f"{parameters['bandwidth']:.4g} (target's units)"))
        return [*facts, *kept_facts(self.released_)]

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the fitted conditional quantile.

        Parameters
        ----------
        X : array or dataframe of shape (n_samples, n_features)
            Rows; used as they are, without clipping.

        Returns
        -------
        array of shape (n_samples,)
        """
        return self._linear(X)

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the D² of the pinball loss: 1 is perfect, 0 is as good as the constant quantile."""
        return float(
            d2_pinball_score(y, self.predict(X), alpha=self.quantile, sample_weight=sample_weight)
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags
