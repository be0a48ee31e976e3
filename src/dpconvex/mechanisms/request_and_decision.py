"""The two carriers of a fit: what is asked, and what was decided; public facts, no data.

An estimator states a :class:`FitRequest`: its checked settings, the loss and the public facts. A
mechanism turns it into a :class:`FitDecision`: the certificate, the objects that the run uses, and
how rows and targets are mapped. Nothing in between is packed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from dpconvex.core.bounds import Bounds
from dpconvex.core.certificate import Certificate
from dpconvex.core.description import DescribableLoss, Facts
from dpconvex.core.guarantees import Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.rows import RowMap
from dpconvex.losses import SeveralMarginLoss, VectorLoss
from dpconvex.smoothing import Kernel, convolve, convolve_vector

if TYPE_CHECKING:
    from dpconvex.mechanisms.mechanism import PrivateMechanism

AnyBounds = TypeVar("AnyBounds", bound=Bounds)

#: What estimators ask for, and who it is for in words.
TASKS = {
    "quantiles": "quantiles",
    "means": "means by least squares",
    "classes": "classes",
    "rates": "rates",
    "ranking": "rankings",
    "shared coefficients": "several margins that share coefficients",
    "matrices": "records that are matrices",
    "risk measures": "objectives that are no sum over records",
}


@dataclass(frozen=True)
class FitRequest:
    """What is asked of a fit: checked public facts and settings, in mapped units.

    Targets are mapped to ``(y - target_shift) * target_scale``. What the user left open is None;
    the mechanism chooses it.

    Attributes
    ----------
    owner : str
        Class of the estimator, for messages.
    parameters, last_parameters : dict
        Settings that the certificate states in front of those of the mechanism, and behind them.
    row_map : RowMap
        How rows are mapped to their bounds; None for records that are matrices.
    task : str
        What is fitted, a key of :data:`TASKS`.
    bounds : Bounds
        Public facts with the loss itself and no penalty.
    smooth_loss : loss, optional
        Smooth loss of bounded slope that stands in for the loss itself; None where a mechanism
        smooths it as it needs.
    joint_loss : loss, optional
        Loss of several classes in one fit, for mechanisms that carry several margins.
    problems : int
        Number of problems that are solved on the same rows, one for each of several classes.
    levels, targets : tuple of float, int
        Quantiles that one run finds, of one target or of one target each; empty for one quantile.
    raw_target : bool
        Whether no bounds of the target are public.
    ranking : bool
        Whether only the order of margins matters.
    inference : bool
        Whether the fit pays for confidence intervals.
    curves : list, optional
        Columns that are penalised as smooth curves: first column, number of columns, strength.
    envelope : callable, optional
        Turns a convolved loss into the Moreau envelope of the same curvature, where that is asked.
    find_length : bool
        Whether the unit in which rows are measured may be found privately.
    states_bandwidth : bool
        Whether the certificate states the bandwidth, in the target's units.
    """

    owner: str
    guarantee: Guarantee
    n_samples: int  # public number of records
    n_features: int
    neighbors: str
    parameters: Facts
    people: bool = False
    rows_per_person: int = 1
    weighted_rows: bool = False
    ignored_rows: bool = False
    seeded: bool = False
    row_map: RowMap = None  # type: ignore[assignment]
    target_shift: float = 0.0
    target_scale: float = 1.0
    task: str = "means"
    bounds: Any = None
    alpha: float | None = None
    bandwidth: float | None = None
    kernel: Kernel | None = None
    smooth_loss: DescribableLoss | None = None
    joint_loss: SeveralMarginLoss | None = None
    problems: int = 1
    levels: tuple[float, ...] = ()
    targets: int = 1
    raw_target: bool = False
    ranking: bool = False
    inference: bool = False
    curves: Sequence[Sequence[float]] | None = None
    envelope: Callable[[Any], Any] | None = None
    find_length: bool = False
    states_bandwidth: bool = False
    last_parameters: Facts = field(default_factory=dict)

    def bounds_of(
        self, kind: Callable[..., AnyBounds], loss: DescribableLoss, **own: object
    ) -> AnyBounds:
        """Return bounds of this kind for this loss, with these facts of their own."""
        row_map = self.row_map
        longest = row_map.max_norm
        return kind(
            n_samples=self.n_samples,
            n_features=row_map.n_features,
            loss=loss,
            row_norm=row_map.row_norm,
            max_norm=longest
            if math.isfinite(longest)
            else row_map.row_norm,  # else rows are shortened
            fit_intercept=row_map.fit_intercept,
            neighbors=self.neighbors,
            people=self.people,
            rows_per_person=self.rows_per_person,
            weighted_rows=self.weighted_rows,
            **own,
        )

    def linear_bounds(self, loss: DescribableLoss) -> LinearBounds:
        """Return the bounds of a linear model with this loss and no penalty."""
        return self.bounds_of(LinearBounds, loss, alpha=0.0, ignored_rows=self.ignored_rows)

    def smoothed(self, loss: Any, bandwidth: float | None) -> Any:
        """Return a loss convolved over a bandwidth, or its envelope where that is asked; the loss
        as it is without a bandwidth.
        """
        if bandwidth is not None and self.kernel is not None:
            pointwise = not isinstance(loss, VectorLoss)
            loss = (convolve if pointwise else convolve_vector)(loss, self.kernel, bandwidth)
        return loss if self.envelope is None else self.envelope(loss)


@dataclass(frozen=True)
class FitDecision:
    """Everything decided from public facts alone, before the ledger is charged.

    The certificate states ``settings`` as plain data; the run uses the object. Targets are mapped
    to ``(y - target_shift) * target_scale``.
    """

    mechanism: PrivateMechanism
    certificate: Certificate
    settings: Any = None  # of the kind that the mechanism's run takes; None where it needs none
    row_map: RowMap = None  # type: ignore[assignment]  # records that are matrices have none
    target_shift: float = 0.0
    target_scale: float = 1.0
    targets: int = 1  # that one run takes, of the same rows
    predicted_risk: float = math.inf  # infinite where none is needed
