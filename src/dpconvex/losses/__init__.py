"""Losses of one record: value, derivatives in the margin, and the constants privacy needs."""

from dpconvex.losses.pairwise import PairHinge, PairLogistic, PairSquared, PairSquaredHinge
from dpconvex.losses.pointwise import (
    Absolute,
    Hinge,
    Huber,
    KinkedLoss,
    Logistic,
    Loss,
    Pinball,
    PointwiseLoss,
    ReLU,
    Scaled,
    SoftThreshold,
    Squared,
)
from dpconvex.losses.structured import Bowl, L1Norm, L1WithLink, PiecewiseLinear, VectorLoss

__all__ = [
    "Absolute", "Bowl", "Hinge", "Huber", "KinkedLoss", "L1Norm", "L1WithLink", "Logistic", "Loss", "PairHinge",
    "PairLogistic", "PairSquared", "PairSquaredHinge", "PiecewiseLinear", "Pinball", "PointwiseLoss", "ReLU", "Scaled",
    "SoftThreshold", "Squared", "VectorLoss",
]  # fmt: skip
