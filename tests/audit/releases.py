"""What audits of mechanisms share: samplers of whole releases, and certificates that announce other noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpconvex.privacy import NoiseSource


def releases_of(mechanism, objective, certificate):
    """Return a sampler of what a mechanism releases, noise source included."""

    def sample(count, rng):
        noise = NoiseSource(rng)
        return np.array([mechanism.release(objective, certificate, noise) for _ in range(count)])

    return sample


def with_noise(certificate, factor):
    """Return the certificate with all noise scaled, which its claim no longer covers."""
    noise = {
        name: replace(term, scale=factor * term.scale) for name, term in certificate.noise.items()
    }
    return replace(certificate, noise=noise)
