"""Noise: one gate for every number that is released, exact on a public grid."""

from .choice import choose, choose_quantile
from .gate import (
    EXACT,
    FAILURE_PROBABILITY,
    FLOATING_POINT,
    SAMPLERS,
    SEEDED,
    NoiseSource,
    on_grid,
)
from .words import Words

__all__ = [
    "EXACT",
    "FAILURE_PROBABILITY",
    "FLOATING_POINT",
    "SAMPLERS",
    "SEEDED",
    "NoiseSource",
    "Words",
    "choose",
    "choose_quantile",
    "on_grid",
]
