"""Private selection among candidates: the address under which users import it."""

from dpconvex.assessment.selection import AUCScore, DPSelect, RowScore, SelectionCertificate

__all__ = ["AUCScore", "DPSelect", "RowScore", "SelectionCertificate"]
