"""Private choice among candidates under one stated total budget."""

from dpconvex.privacy.certificates.selection import SelectionCertificate
from dpconvex.scores import AUCScore, RowScore
from dpconvex.selection.select import DPSelect

__all__ = ["AUCScore", "DPSelect", "RowScore", "SelectionCertificate"]
