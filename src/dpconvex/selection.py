"""Private selection: the public address of `dpconvex.selection`."""

from dpconvex.assessment.selection import AUCScore, DPSelect, RowScore, SelectionCertificate

__all__ = ['AUCScore', 'DPSelect', 'RowScore', 'SelectionCertificate']
