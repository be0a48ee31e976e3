"""What a certificate's own facts say against it: nothing here needs data, and no noise depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpconvex.privacy.guarantees import ApproxDP

if TYPE_CHECKING:
    from dpconvex.privacy.certificates.certificate import Certificate

__all__ = ["LargeDeltaWarning", "PrivacyWarning", "finds_units", "large_delta", "unbounded_columns"]


class PrivacyWarning(UserWarning):
    """A fit promises, or will be worth, less than it seems; said from public facts alone, before the charge."""


class LargeDeltaWarning(PrivacyWarning):
    """Delta is above one in the number of records."""


def large_delta(certificate: Certificate) -> str | None:
    """Return what is wrong with a delta above ``1 / n``, or None."""
    guarantee, rows = certificate.guarantee, certificate.bounds.n_samples
    if not isinstance(guarantee, ApproxDP) or guarantee.delta_bound * rows <= 1:
        return None
    return (
        f"The delta of {guarantee.delta_bound:g} is above 1/n = {1 / rows:.2g}: publishing one record in full, chosen "
        "by chance, keeps such a promise. Use a delta far below 1/n."
    )


def finds_units(certificate: Certificate) -> bool:
    """Return whether sizes of columns without public bounds are found privately."""
    return bool(certificate.parameters.get("fit", {}).get("max_octaves", 0) > 0)


def unbounded_columns(certificate: Certificate) -> str | None:
    """Return what is wrong with columns without public bounds, or None."""
    if certificate.parameters.get("feature_bounds", ()) is not None:
        return None
    if finds_units(certificate):
        return None
    return (
        f"Without feature_bounds the mechanism {certificate.mechanism!r} takes every column to hold numbers from about "
        "-1 to 1: one of far larger numbers, such as an income, makes predictions useless. Give public bounds of the "
        "columns."
    )
