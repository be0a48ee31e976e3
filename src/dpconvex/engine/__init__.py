"""Where sums over rows are computed."""

from dpconvex.engine.failures import ClusterLostError, EngineError, SourceChangedError
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import RowMap

__all__ = ["ClusterLostError", "EngineError", "MemoryRows", "RowMap", "SourceChangedError"]
