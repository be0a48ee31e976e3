"""Private fits of losses of whole residual vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.estimators.matrix_records import StructuredModel
from dpconvex.estimators.parameters import estimator
from dpconvex.losses.structured import L1Norm, PiecewiseLinear, VectorLoss

__all__ = ["DPMedian", "DPPiecewiseLinear"]


@estimator
class DPMedian(StructuredModel):
    r"""Coefficients of several outputs at once, by least absolute deviations, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i ||Y_i - A_i theta||_1 + (alpha/2) ||theta||^2``, smoothed by convolution where
    the mechanism needs that. A record is scaled as a whole by ``min(1, operator_norm / ||A||)``, which weights it and
    leaves the meaning of theta as it is.

    Parameters
    ----------
    operator_norm : float, default=1.0
        Bound on the spectral norm of a record's matrix; longer records count with a smaller
        weight. A value at or below the usual norm is best: noise is proportional to it. Defaults are made for
        coefficients of order 1.
    alpha, bandwidth : float, optional
        Penalty, and smoothing bandwidth in units of scaled residuals. By default those with the smallest predicted
        risk, from public facts.
    kernel : str or Kernel, default="gaussian"
        Smoothing kernel.
    mechanism : {"auto", "objective", "gradient"} or Mechanism
        How noise is added; "auto" takes the one with the smallest predicted risk, from public facts.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        Coefficients.
    certificate_ : Certificate
        What is guaranteed, and why.
    released_ : dict
        Further quantities that were released on the way.

    Notes
    -----
    An invalid record that is ignored becomes zeros, matrix and targets: its loss is the same for all coefficients.

    Privacy: public are the shape of A (a nominal number of records under add-or-remove-one) and all parameters.

    Examples
    --------
    >>> from dpconvex import DPMedian
    >>> certificate = DPMedian(operator_norm=4.0).certify(1000, n_features=5, n_outputs=3)
    >>> certificate.guarantee, certificate.bounds.rank
    (ApproxDP(epsilon=1.0, delta=1e-06), 3)
    >>> certificate.verify()
    """

    operator_norm: float = 1.0

    def _loss(self, outputs: int) -> VectorLoss:
        return L1Norm(outputs)


@estimator
class DPPiecewiseLinear(StructuredModel):
    r"""Coefficients that minimise a maximum of affine functions of the residuals, under differential privacy.

    Minimises ``F(theta) = (1/n) sum_i max_p (<a_p, Y_i - A_i theta> + b_p) + (alpha/2) ||theta||^2``, smoothed by
    convolution where the mechanism needs that.

    Parameters
    ----------
    slopes : array of shape (P, n_outputs), optional
        The vectors a_p; by default plus and minus the unit vectors: the largest absolute residual.
    offsets : array of shape (P,), optional
        The numbers b_p; 0 by default.
    operator_norm : float, default=1.0
        Bound on the spectral norm of a record's matrix; longer records are scaled down as a whole, targets included.
    alpha, bandwidth, kernel, mechanism
        As for :class:`DPMedian`.

    Attributes
    ----------
    coef_, certificate_, released_
        As for :class:`DPMedian`.

    Notes
    -----
    An invalid record that is ignored becomes zeros, matrix and targets: its loss is the same for all coefficients.

    Privacy: public are the shape of A (a nominal number of records under add-or-remove-one) and all parameters.

    Examples
    --------
    >>> from dpconvex import DPPiecewiseLinear
    >>> model = DPPiecewiseLinear([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.0, 0.0])
    >>> round(model.certify(1000, n_features=5, n_outputs=2).bounds.lipschitz, 6)
    1.414214
    """

    slopes: ArrayLike | None = None
    offsets: ArrayLike | None = None
    operator_norm: float = 1.0

    def _loss(self, outputs: int) -> VectorLoss:
        slopes = self.slopes
        if slopes is None:
            slopes = np.concatenate([np.eye(outputs), -np.eye(outputs)])
        loss = PiecewiseLinear(slopes, self.offsets)  # type: ignore[arg-type]
        if loss.outputs != outputs:
            raise ValueError(
                f"The 'slopes' parameter of {type(self).__name__} must be vectors of length {outputs}, one entry per "
                f"output. Got length {loss.outputs} instead."
            )
        return loss
