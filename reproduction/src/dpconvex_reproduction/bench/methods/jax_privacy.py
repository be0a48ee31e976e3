"""DP-SGD by jax-privacy."""

from __future__ import annotations

from dpconvex_reproduction.bench.remote import RemoteSGD
from dpconvex_reproduction.peers.environments import JAX_PRIVACY


class JaxPrivacy(RemoteSGD):
    """jax-privacy's clipped gradients, Poisson batches and Gaussian privatizer, noise by its PLD
    accountant.
    """

    name = "jax-privacy DP-SGD"
    environment = JAX_PRIVACY
    worker = "jax_privacy_worker.py"


METHODS = (JaxPrivacy(),)
