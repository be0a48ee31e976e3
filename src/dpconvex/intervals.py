"""Conformal intervals: the public address of `dpconvex.intervals`."""

from dpconvex.assessment.conformal_intervals import ConformalCertificate, DPConformal

__all__ = ['ConformalCertificate', 'DPConformal']
