"""Tables and figures, in order."""

from __future__ import annotations

from dpconvex.experiments.exhibit import Exhibit

EXHIBITS: tuple[Exhibit, ...] = ()
