"""The studio: a local page to choose a budget, check a schema, read a ledger and verify a model; no row is read."""

from dpconvex.reports.studio.server import Studio, serve

__all__ = ["Studio", "serve"]
