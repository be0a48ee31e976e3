"""Engines: sums over rows in memory, by non-zeros, or on a cluster."""

from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.rows import ClusterLostError, EngineError, RowMap, SourceChangedError

__all__ = ["ClusterLostError", "EngineError", "MemoryRows", "RowMap", "SourceChangedError"]
