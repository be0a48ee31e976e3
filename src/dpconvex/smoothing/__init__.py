"""Loss to loss: kinked losses made smooth, from above or from below."""

from dpconvex.smoothing.convolution import ConvolvedLoss, convolve
from dpconvex.smoothing.kernels import (
    KERNELS,
    EpanechnikovKernel,
    ExponentialKernel,
    GaussianKernel,
    Kernel,
    LaplacianKernel,
    LogisticKernel,
    UniformKernel,
)
from dpconvex.smoothing.moreau import MoreauLoss, moreau

__all__ = [
    "KERNELS",
    "ConvolvedLoss",
    "EpanechnikovKernel",
    "ExponentialKernel",
    "GaussianKernel",
    "Kernel",
    "LaplacianKernel",
    "LogisticKernel",
    "MoreauLoss",
    "UniformKernel",
    "convolve",
    "moreau",
]
