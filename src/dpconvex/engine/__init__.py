"""Engines: sums over rows in memory, by non-zeros, or on a cluster."""

from dpconvex.engine.memory_rows import MemoryRows
from dpconvex.engine.rows import ClusterLostError, EngineError, RowMap, SourceChangedError

__all__ = ["ClusterLostError", "EngineError", "MemoryRows", "RowMap", "SourceChangedError"]
