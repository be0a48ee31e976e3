"""Private linear regression: least squares with bounded influence."""

from __future__ import annotations

from dataclasses import replace

from dpconvex.estimators.base import Stated
from dpconvex.estimators.coefficient_intervals import WithIntervals
from dpconvex.estimators.linear import PrivateLinearRegressor, PublicFacts, kept_share_facts
from dpconvex.estimators.parameters import estimator
from dpconvex.inputs.people import Records
from dpconvex.inputs.settings import optional_positive
from dpconvex.losses import Huber, Squared
from dpconvex.mechanisms import NoisyGradientDescent, OutputPerturbation
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.mechanisms.plan import Plan
from dpconvex.planning.linear_preset import linear_preset
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import PureDP

__all__ = ["DPLinearRegression"]

_WIDTH = 0.5  # of the Huber loss of output perturbation, in units of half the target's range
_MECHANISMS = {"gradient": NoisyGradientDescent, "output": OutputPerturbation}


@estimator
class DPLinearRegression(WithIntervals, PrivateLinearRegressor):
    r"""Linear least squares under differential privacy.

    Estimates the minimiser of ``(1/n) sum_i w_i (y_i - x_i . theta)^2 / 2 + (alpha/2) ||theta||^2``, rows and targets
    mapped by public bounds, with weights ``w_i`` of at most 1 that bound the influence of long rows, and residuals
    limited to a few times their private scale, or further where released counts show that their tails are not alike and
    the limit would move their mean. All limits open as n grows; with ``inference=True`` they are wide from the start. A
    private mean of the residuals corrects the intercept, but for fits with intervals.

    Parameters
    ----------
    target_bounds : pair (low, high), optional
        Public range of the target; sets the scale, clips nothing. Without it the scale is found privately; with
        ``mechanism="output"`` targets should be of order 1.
    alpha : float, optional
        Penalty on the mapped coefficients; none by default, where noise is met by shrinkage instead.
    mechanism : str or Mechanism, default="auto"
        ``"gradient"`` (the private fit; columns without ``feature_bounds`` find their sizes),
        or ``"output"`` for the Huber loss of a width of a
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
        Further quantities that were released on the way: ``residual_scale`` is that of the residuals, and
        ``residual_limit`` what they were limited to, in mapped units.

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

    def _stated(self, certificate: Certificate, facts: PublicFacts) -> Stated:
        plain = Squared() if certificate.mechanism == "gradient" else Huber(_WIDTH)
        return {
            **super()._stated(certificate, facts),
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (certificate.bounds.loss, plain),
        }

    def _chosen(self, facts: PublicFacts) -> Mechanism:
        if isinstance(self.mechanism, str):
            name = self.mechanism
            if name == "auto":
                name = "output" if isinstance(facts.guarantee, PureDP) else "gradient"
            if name in _MECHANISMS:
                return _MECHANISMS[name]()
        elif isinstance(self.mechanism, (NoisyGradientDescent, OutputPerturbation)):
            return self.mechanism
        raise ValueError(
            f"The 'mechanism' parameter of {type(self).__name__} must be one of {['auto', *_MECHANISMS]} or an object "
            f"of theirs. Got {self.mechanism!r} instead."
        )

    def _plan(self, records: Records, n_features: int) -> Plan:
        facts = self._public_facts(records, n_features)
        mechanism = self._chosen(facts)
        alpha = optional_positive("alpha", self.alpha, type(self).__name__)
        row_map = facts.row_map
        if isinstance(mechanism, NoisyGradientDescent):
            row_map = mechanism.mapped(row_map)
            bounds = facts.linear_bounds(Squared(), alpha or 0.0, self.neighbors)
            bounds = replace(bounds, max_norm=row_map.max_norm)
        else:
            bounds = facts.linear_bounds(Huber(_WIDTH), 0.0, self.neighbors)
            if alpha is None:
                alpha = linear_preset(bounds, facts.guarantee, radius=1.0).alpha
            bounds = replace(bounds, alpha=alpha)
        parameters = dict(facts.parameters)
        if isinstance(mechanism, NoisyGradientDescent):
            parameters["gradient"] = mechanism.settings()
            if self.target_bounds is None:
                parameters["gradient"]["raw_target"] = True
        if self.inference:
            if not isinstance(mechanism, NoisyGradientDescent):
                raise ValueError(
                    f"The 'inference' parameter of {type(self).__name__} needs the mechanism 'gradient', which "
                    "offers Gaussian DP and (epsilon, delta)-DP. Give delta above 0, or leave it at False."
                )
            self._check_inference(facts, "squares")
            parameters = {**parameters, "inference": True}
        certificate = mechanism.certify(bounds, facts.guarantee, parameters, seeded=self.random_state is not None)
        return Plan(mechanism, certificate, row_map, facts.target_shift, facts.target_scale)

    def _summary_facts(self) -> list[tuple[str, str]]:
        return kept_share_facts(self.released_)
