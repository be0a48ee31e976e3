"""Preprocessing: the public address of `dpconvex.preprocessing`."""

from dpconvex.inputs.preprocessing import DPQuantileBounds, PreprocessingCertificate, PublicTable

__all__ = ['DPQuantileBounds', 'PreprocessingCertificate', 'PublicTable']
