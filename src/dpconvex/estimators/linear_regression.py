"""Private linear regression: least squares with bounded influence."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, replace

import numpy as np
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import check_number
from dpconvex.defaults.linear_preset import linear_preset
from dpconvex.estimators.base import Stated
from dpconvex.estimators.linear import (
    PrivateLinearRegressor,
    PublicFacts,
    kept_share_facts,
)
from dpconvex.estimators.parameters import estimator
from dpconvex.inputs.people import Records
from dpconvex.inputs.settings import optional_positive
from dpconvex.losses import Huber, Squared
from dpconvex.mechanisms import LeastSquares, OutputPerturbation
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.mechanisms.plan import Plan
from dpconvex.objectives.objective import Array
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import PureDP

__all__ = ["DPLinearRegression"]

_WIDTH = 0.5  # of the Huber loss of output perturbation, in units of half the target's range
_ENOUGH = 50.0  # records per coefficient that noise must leave for intervals
_MECHANISMS = {"least-squares": LeastSquares, "output": OutputPerturbation}


@estimator
class DPLinearRegression(PrivateLinearRegressor):
    r"""Linear least squares under differential privacy.

    Estimates the minimiser of ``(1/n) sum_i w_i (y_i - x_i . theta)^2 / 2 + (alpha/2) ||theta||^2``, rows and targets
    mapped by public bounds, with weights ``w_i`` of at most 1 that bound the influence of long rows, and residuals
    limited to a few times their private scale. Both limits open as n grows.

    Parameters
    ----------
    target_bounds : pair (low, high), optional
        Public range of the target; sets the scale, clips nothing. Without it targets should be of order 1.
    alpha : float, optional
        Penalty on the mapped coefficients; none by default, where noise is met by shrinkage instead.
    inference : bool, default=False
        Whether to pay for what :meth:`confidence_interval` needs: a fifth of the budget. Shrinkage is then off and
        limits are wide from the start.
    mechanism : str or Mechanism, default="auto"
        ``"least-squares"`` (private moments in white coordinates), or ``"output"`` for the Huber loss of a width of a
        quarter of the target's range; ``"auto"`` takes the second for pure epsilon.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Coefficients in the user's units.
    intercept_ : float
        Intercept in the user's units.
    certificate_ : Certificate
        What is guaranteed, and why.
    released_ : dict
        Further quantities that were released on the way: ``residual_scale`` is that of the residuals in mapped units.

    Notes
    -----
    Privacy: public are the shape of X (a nominal number of rows under add-or-remove-one), column names, all
    parameters. Everything that ends with an underscore is covered by the guarantee and may be published.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (20_000, 2)); y = 3 + X @ [1.0, -0.5] + rng.normal(0, 1, 20_000)
    >>> model = DPLinearRegression(epsilon=1.0, feature_bounds=(0, 10), target_bounds=(-10, 20), random_state=0)
    >>> model.fit(X, y).coef_.round(1)
    array([ 1. , -0.5])
    """

    _: KW_ONLY
    inference: bool = False

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> Stated:
        plain = Squared() if certificate.mechanism == "least-squares" else Huber(_WIDTH)
        return {
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (certificate.bounds.loss, plain),
            "inference": (certificate.parameters.get("inference", False), self.inference),
        }

    def _chosen(self, facts: PublicFacts, records: Records) -> Mechanism:
        if isinstance(self.mechanism, str):
            name = self.mechanism
            if name == "auto":
                name = "output" if isinstance(facts.guarantee, PureDP) else "least-squares"
                if name == "least-squares" and records != Records(records.count):
                    raise ValueError(
                        f"{type(self).__name__} counts every row in full, and offers no groups, rows_per_person or "
                        "weights. Use DPQuantileRegressor(0.5), or mechanism='output', which is far less accurate."
                    )
            if name in _MECHANISMS:
                return _MECHANISMS[name]()
        elif isinstance(self.mechanism, (LeastSquares, OutputPerturbation)):
            return self.mechanism
        raise ValueError(
            f"The 'mechanism' parameter of {type(self).__name__} must be one of {['auto', *_MECHANISMS]} or an object "
            f"of theirs. Got {self.mechanism!r} instead."
        )

    def _plan(self, records: Records, n_features: int) -> Plan:
        facts = self._public_facts(records, n_features)
        mechanism = self._chosen(facts, records)
        alpha = optional_positive("alpha", self.alpha, type(self).__name__)
        row_map = facts.row_map
        if isinstance(mechanism, LeastSquares):
            row_map = row_map.weighted()
            bounds = facts.linear_bounds(Squared(), alpha or 0.0, self.neighbors)
            longest = row_map.max_norm
            bounds = replace(
                bounds, max_norm=longest if math.isfinite(longest) else bounds.max_norm
            )
        else:
            bounds = facts.linear_bounds(Huber(_WIDTH), 0.0, self.neighbors)
            if alpha is None:
                alpha = linear_preset(bounds, facts.guarantee, radius=1.0).alpha
            bounds = replace(bounds, alpha=alpha)
        parameters = facts.parameters
        if self.inference:
            if not isinstance(mechanism, LeastSquares):
                raise ValueError(
                    f"The 'inference' parameter of {type(self).__name__} needs the mechanism 'least-squares', which "
                    "offers Gaussian DP and (epsilon, delta)-DP. Give delta above 0, or leave it at False."
                )
            if alpha is not None:
                raise ValueError(
                    f"The 'alpha' parameter of {type(self).__name__} must be None with inference=True: intervals are "
                    f"about coefficients without a penalty. Got {self.alpha!r} instead."
                )
            parameters = {**parameters, "inference": True}
        certificate = mechanism.certify(
            bounds, facts.guarantee, parameters, seeded=self.random_state is not None
        )
        return Plan(mechanism, certificate, row_map, facts.target_shift, facts.target_scale)

    def _store(self, coefficients: list[Array], plan: Plan) -> None:
        super()._store(coefficients, plan)
        covariance = self.released_.pop("covariance", None)
        if covariance is not None:
            # The map to the user's units is affine: its matrix is what it does to unit vectors.
            units = np.vstack([np.zeros(len(covariance)), np.eye(len(covariance))])
            found = self._in_user_units(list(units), plan)
            rows = np.array([np.append(coef, intercept) for coef, intercept in found])
            jacobian = rows[1:] - rows[0]
            self.released_["covariance"] = jacobian.T @ np.asarray(covariance) @ jacobian

    def confidence_interval(self, level: float = 0.95) -> Array:
        """Return intervals of the coefficients that cover sampling and privacy noise.

        They are about the minimiser of the population's loss with the same limits on rows and residuals: the
        coefficients of the linear model where errors are symmetric, and close to least squares where they are not.

        Parameters
        ----------
        level : float, default=0.95
            Probability that an interval holds its coefficient, over the draw of rows and noise, for large n.

        Returns
        -------
        array of shape (n_features, 2)
            In the user's units, in the order of ``coef_``.
        """
        check_is_fitted(self)
        owner = type(self).__name__
        level = check_number("level", owner, level, "a number between 0 and 1", 0, 1, low_open=True)
        covariance = self.released_.get("covariance")
        if covariance is None:
            raise ValueError(
                f"{owner}.confidence_interval needs what a fit with inference=True pays for. Got a fit without it."
            )
        bounds = self.certificate_.bounds
        mu = self.certificate_.gaussian_mu() or 0.0
        if bounds.n_samples * mu < _ENOUGH * bounds.dimension:
            rows = math.ceil(_ENOUGH * bounds.dimension / mu)
            raise ValueError(
                f"Intervals are not available: {bounds.n_samples:,} rows and this budget leave too few records for "
                f"{bounds.dimension} coefficients. About {rows:,} rows would do, or a larger budget in proportion."
            )
        spread = np.sqrt(np.maximum(np.diag(np.asarray(covariance))[:-1], 0.0))
        reach = float(norm.ppf((1 + level) / 2)) * spread
        return np.column_stack([self.coef_ - reach, self.coef_ + reach])

    def _summary_facts(self) -> list[tuple[str, str]]:
        return kept_share_facts(self.released_)
