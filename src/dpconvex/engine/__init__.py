"""Where sums over rows are computed."""

from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import RowMap

__all__ = ["MemoryRows", "RowMap"]
