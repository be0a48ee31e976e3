"""DP-SGD by Opacus."""

from __future__ import annotations

from dpconvex_reproduction.bench.remote import RemoteSGD
from dpconvex_reproduction.peers.environments import OPACUS


class Opacus(RemoteSGD):
    """Opacus' privacy engine on a linear layer, noise by its default accountant."""

    name = "Opacus DP-SGD"
    environment = OPACUS
    worker = "opacus_worker.py"


METHODS = (Opacus(),)
