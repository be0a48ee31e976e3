"""What audits of mechanisms share: samplers of whole releases, and certificates that announce
other noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpconvex.privacy import GaussianDP, NoiseSource


def releases_of(mechanism, objective, certificate):
    """Return a sampler of what a mechanism releases, noise source included."""

    def sample(count, rng):
        noise = NoiseSource(rng)
        return np.array([mechanism.release(objective, certificate, noise) for _ in range(count)])

    return sample


def with_noise(certificate, factor):
    """Return the certificate with all noise scaled, which its claim no longer covers.

    It says that it was verified: the handle on rows would refuse it.
    """
    noise = {
        name: replace(term, scale=factor * term.scale) for name, term in certificate.noise.items()
    }
    weak = replace(certificate, noise=noise)
    object.__setattr__(weak, "verify", lambda: None)
    return weak


def phase_claim(certificate, name, uses=None):
    """Return what is promised of one phase alone, all of its releases or some."""
    term = certificate.noise[name]
    uses = term.releases if uses is None else uses
    return GaussianDP(np.sqrt(uses) * term.sensitivity / term.scale)


class Heard(NoiseSource):
    """Keeps every exact value, its answer and its noise; a follower answers what its leader did."""

    def __init__(self, rng, leader=None):
        super().__init__(rng)
        self.leader = leader
        self.log = []

    def add(self, value, term):
        exact = np.array(value, dtype=np.float64)
        if self.leader is None:
            answer = super().add(exact, term)
        else:
            answer = self.leader.log[len(self.log)][1]
        self.log.append((exact, answer, term.scale))
        return np.array(answer)


def loss_samplers(mechanism, objectives, certificate):
    """Return samplers of the privacy loss of whole transcripts: no attack on all that is released
    is better.

    The loss is the logarithm of how much likelier all answers are with the first table. How likely
    they are with the other one is told by a run on it with the answers frozen, as in the proof of
    adaptive composition.
    """

    def sampler(mine, other, sign):
        def one(rng):
            here = Heard(rng)
            mechanism.release(mine, certificate, here)
            there = Heard(rng, here)
            mechanism.release(other, certificate, there)
            return sign * sum(
                float(np.square(answer - apart).sum() - np.square(answer - exact).sum())
                / (2 * std**2)
                for (exact, answer, std), (apart, _, _) in zip(here.log, there.log, strict=True)
            )

        return lambda count, rng: np.array([one(rng) for _ in range(count)])

    first, second = objectives
    return sampler(first, second, 1.0), sampler(second, first, -1.0)
