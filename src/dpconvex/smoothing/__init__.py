"""Smoothing: kinked losses made smooth, from above by convolution or from below by Moreau
envelopes.

>>> from dpconvex.losses import Absolute
>>> from dpconvex.smoothing import (
...     EpanechnikovKernel,
...     GaussianKernel,
...     LaplacianKernel,
...     LogisticKernel,
...     UniformKernel,
... )
>>> from dpconvex.smoothing import convolve
>>> kernels = (
...     GaussianKernel(),
...     LogisticKernel(),
...     UniformKernel(),
...     EpanechnikovKernel(),
...     LaplacianKernel(),
... )
>>> [round(float(convolve(Absolute(), kernel, 0.5).value(0.0, 0.0)), 3) for kernel in kernels]
[0.399, 0.693, 0.25, 0.188, 0.5]
"""

from dpconvex.core.convolution import ConvolvedLoss, convolve
from dpconvex.core.smoothing_kernels import (
    KERNELS,
    EpanechnikovKernel,
    ExponentialKernel,
    GaussianKernel,
    Kernel,
    LaplacianKernel,
    LogisticKernel,
    UniformKernel,
)
from dpconvex.core.stated_names import register_described
from dpconvex.smoothing.mixture_and_marginal_kernels import MixtureKernel
from dpconvex.smoothing.moreau_envelopes import (
    BowlMoreau,
    MoreauLoss,
    PiecesMoreau,
    VectorMoreau,
    moreau,
    moreau_vector,
)
from dpconvex.smoothing.vector_convolution import (
    SmoothedFacets,
    SmoothedL1,
    SmoothedMax,
    SmoothedProfile,
    convolve_vector,
)

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

register_described(globals(), __all__)
