"""Noise: one gate for every number that is released, exact on a public grid."""

from dpconvex.privacy.noise.exponential_sampler import exponential_mechanism
from dpconvex.privacy.noise.noise_source import (
    EXACT,
    FAILURE_PROBABILITY,
    FLOATING_POINT,
    SAMPLERS,
    SEEDED,
    TAIL_PROBABILITY,
    NoiseSource,
    Words,
    on_grid,
)

__all__ = [
    "EXACT",
    "FAILURE_PROBABILITY",
    "FLOATING_POINT",
    "SAMPLERS",
    "SEEDED",
    "TAIL_PROBABILITY",
    "NoiseSource",
    "Words",
    "exponential_mechanism",
    "on_grid",
]
