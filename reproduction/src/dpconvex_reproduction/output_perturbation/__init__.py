"""Output perturbation: its algorithms as printed, and Tables 1 to 6 with a simulation for each
class.
"""

from dpconvex_reproduction.output_perturbation.algorithms import (
    PrintedNoise,
    algorithm_1,
    algorithm_1_tilted,
    algorithm_6,
    algorithm_8,
)

__all__ = ["PrintedNoise", "algorithm_1", "algorithm_1_tilted", "algorithm_6", "algorithm_8"]
