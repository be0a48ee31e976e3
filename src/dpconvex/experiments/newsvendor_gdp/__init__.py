"""The newsvendor under Gaussian DP: its algorithm as printed, Figures 2 to 9, Tables 1 and 2."""

from .algorithm import STEPS, TRUNCATION, algorithm_1, noise_std, paper_bandwidth

__all__ = ["STEPS", "TRUNCATION", "algorithm_1", "noise_std", "paper_bandwidth"]
