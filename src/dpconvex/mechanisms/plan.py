"""What a fit will do, decided once from public facts before data are read."""

from __future__ import annotations

from dataclasses import dataclass

from dpconvex.engine.rows import RowMap
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.privacy.certificates.certificate import Certificate

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """Everything a fit will do.

    Attributes
    ----------
    mechanism : Mechanism
        Runs the fit.
    certificate : Certificate
        What it guarantees.
    row_map : RowMap or None
        How a raw row becomes a bounded one; records that are matrices have none.
    target_shift, target_scale : float
        Targets are mapped to ``(y - shift) * scale``.
    """

    mechanism: Mechanism
    certificate: Certificate
    row_map: RowMap | None = None
    target_shift: float = 0.0
    target_scale: float = 1.0
