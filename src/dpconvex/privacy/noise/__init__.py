"""Noise: one gate for every number that is released, exact on a public grid."""

from .choice import choose
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
    "on_grid",
]
