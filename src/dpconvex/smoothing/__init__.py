"""Loss to loss: kinked losses made smooth, from above or from below."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

# At once: it is named like its module.
from dpconvex.smoothing.moreau import MoreauLoss, moreau

if TYPE_CHECKING:
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
    from dpconvex.smoothing.multivariate import SmoothedL1, SmoothedMax, SmoothedProfile, convolve_vector
    from dpconvex.smoothing.pieces_moreau import PiecesMoreau
    from dpconvex.smoothing.polyhedral import SmoothedFacets
    from dpconvex.smoothing.vector_moreau import VectorMoreau, moreau_vector
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "BowlMoreau": "bowl_moreau",
            "ConvolvedLoss": "convolution",
            "EpanechnikovKernel": "kernels",
            "ExponentialKernel": "kernels",
            "GaussianKernel": "kernels",
            "KERNELS": "kernels",
            "Kernel": "kernels",
            "LaplacianKernel": "kernels",
            "LogisticKernel": "kernels",
            "MixtureKernel": "mixture",
            "PiecesMoreau": "pieces_moreau",
            "SmoothedFacets": "polyhedral",
            "SmoothedL1": "multivariate",
            "SmoothedMax": "multivariate",
            "SmoothedProfile": "multivariate",
            "UniformKernel": "kernels",
            "VectorMoreau": "vector_moreau",
            "convolve": "convolution",
            "convolve_vector": "multivariate",
            "moreau_vector": "vector_moreau",
        },
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
