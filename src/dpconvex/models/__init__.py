"""Fitted models as JSON files that are safe to load from strangers."""
