"""Losses of one record: value, derivatives in the margin, and the constants privacy needs."""

from dpconvex.losses.interface import Loss, PointwiseLoss
from dpconvex.losses.kinks import Kinks
from dpconvex.losses.pointwise import (
    Absolute,
    Hinge,
    Huber,
    KinkedLoss,
    Logistic,
    Pinball,
    ReLU,
    Scaled,
    SoftThreshold,
    Squared,
)

__all__ = [
    "Absolute",
    "Hinge",
    "Huber",
    "KinkedLoss",
    "Kinks",
    "Logistic",
    "Loss",
    "Pinball",
    "PointwiseLoss",
    "ReLU",
    "Scaled",
    "SoftThreshold",
    "Squared",
]
