"""Loss to loss: kinked losses made smooth, from above or from below."""

from dpconvex.smoothing.bowl_moreau import BowlMoreau
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
from dpconvex.smoothing.mixture import MixtureKernel
from dpconvex.smoothing.moreau import MoreauLoss, moreau
from dpconvex.smoothing.multivariate import (
    SmoothedL1,
    SmoothedMax,
    SmoothedProfile,
    convolve_vector,
)
from dpconvex.smoothing.pieces_moreau import PiecesMoreau
from dpconvex.smoothing.polyhedral import SmoothedFacets
from dpconvex.smoothing.vector_moreau import VectorMoreau, moreau_vector

__all__ = [
    "KERNELS",
    "BowlMoreau",
    "ConvolvedLoss",
    "EpanechnikovKernel",
    "ExponentialKernel",
    "GaussianKernel",
    "Kernel",
    "LaplacianKernel",
    "LogisticKernel",
    "MixtureKernel",
    "MoreauLoss",
    "PiecesMoreau",
    "SmoothedFacets",
    "SmoothedL1",
    "SmoothedMax",
    "SmoothedProfile",
    "UniformKernel",
    "VectorMoreau",
    "convolve",
    "convolve_vector",
    "moreau",
    "moreau_vector",
]
