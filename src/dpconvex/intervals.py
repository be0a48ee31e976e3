"""Conformal prediction intervals: the address under which users import them."""

from dpconvex.assessment.conformal_intervals import ConformalCertificate, DPConformal

__all__ = ["ConformalCertificate", "DPConformal"]
