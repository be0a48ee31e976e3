"""Parameter choices: the papers' by theorem, and ours by predicted risk. No data enters this package."""

from .quantile_presets import QuantilePreset, theorem_3_6
from .quantile_risk import Prescription, objective_prescription

__all__ = ["Prescription", "QuantilePreset", "objective_prescription", "theorem_3_6"]
