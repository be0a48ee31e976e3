"""Losses of one record: value, derivatives in the margin, and the constants privacy needs.

>>> losses = [
...     Pinball(0.9),
...     Absolute(),
...     Huber(0.5),
...     Squared(),
...     SoftThreshold(1.0),
...     Hinge(),
...     ReLU(),
...     Logistic(),
... ]
>>> [round(float(loss.value(1.0, -1.0)), 2) for loss in losses]
[1.8, 2.0, 0.88, 2.0, 1.0, 2.0, 2.0, 1.31]
"""

from dpconvex.core.pointwise_losses import (
    Absolute,
    Hinge,
    Huber,
    KinkedLoss,
    Logistic,
    Loss,
    Pinball,
    PointwiseLoss,
    ReLU,
    SoftThreshold,
    Squared,
)
from dpconvex.core.several_margin_losses import (
    CrammerSinger,
    DiscreteHazard,
    ProportionalOdds,
    SeveralMarginLoss,
    Softmax,
)
from dpconvex.core.stated_names import describable, register_described
from dpconvex.core.tweedie_loss import Tweedie
from dpconvex.losses.pair_losses import PairHinge, PairLogistic, PairSquared, PairSquaredHinge
from dpconvex.losses.scaled_and_clamped import Scaled
from dpconvex.losses.vector_losses import Bowl, L1Norm, L1WithLink, PiecewiseLinear, VectorLoss

__all__ = [
    "Absolute",
    "Bowl",
    "CrammerSinger",
    "DiscreteHazard",
    "Hinge",
    "Huber",
    "KinkedLoss",
    "L1Norm",
    "L1WithLink",
    "Logistic",
    "Loss",
    "PairHinge",
    "PairLogistic",
    "PairSquared",
    "PairSquaredHinge",
    "PiecewiseLinear",
    "Pinball",
    "PointwiseLoss",
    "ProportionalOdds",
    "ReLU",
    "Scaled",
    "SeveralMarginLoss",
    "SoftThreshold",
    "Softmax",
    "Squared",
    "Tweedie",
    "VectorLoss",
    "describable",
]

register_described(globals(), __all__)
