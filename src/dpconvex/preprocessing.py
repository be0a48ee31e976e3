"""Preprocessing by public facts: the address under which users import it."""

from dpconvex.inputs.preprocessing import DPQuantileBounds, PreprocessingCertificate, PublicTable

__all__ = ["DPQuantileBounds", "PreprocessingCertificate", "PublicTable"]
