"""Prediction intervals that cover, and their files."""

from dpconvex.intervals.conformal import ConformalCertificate, DPConformal

__all__ = ["ConformalCertificate", "DPConformal"]
