"""Noise: one gate for every number that is released, exact on a public grid."""

from dpconvex.privacy.noise.choice import choose
from dpconvex.privacy.noise.gate import (
    EXACT,
    FAILURE_PROBABILITY,
    FLOATING_POINT,
    SAMPLERS,
    SEEDED,
    TAIL_PROBABILITY,
    NoiseSource,
    on_grid,
)
from dpconvex.privacy.noise.random_words import Words

__all__ = [
    "EXACT",
    "FAILURE_PROBABILITY",
    "FLOATING_POINT",
    "SAMPLERS",
    "SEEDED",
    "TAIL_PROBABILITY",
    "NoiseSource",
    "Words",
    "choose",
    "on_grid",
]
