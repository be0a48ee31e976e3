"""The release file: who publishes a model, of what, why and until when, in TOML; checked for form only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from dpconvex.inputs.errors import InputError
from dpconvex.inputs.toml_text import parse_toml

__all__ = ["FIELDS", "ReleaseFacts", "parse_release", "read_release"]

#: What each field asks, in the order in which reports show them.
FIELDS = {
    "name": "Name of the release",
    "controller": "Who is responsible for the data",
    "author": "Who made the release",
    "contact": "Whom to ask",
    "purpose": "What the model is for",
    "audience": "Who will see the model",
    "legal_basis": "On what legal ground the data are processed",
    "target": "Column that was learned",
    "data_source": "Where the data come from",
    "region": "Region that the data are about",
    "sector": "Sector",
    "collected": "When the data were collected",
    "unit": "Whom one row stands for (one word: patient, household)",
    "published": "Date of publication",
    "review_by": "When this release is looked at again",
    "budget_reason": "Why this budget is right",
    "security": "How the data and the run are protected",
}
_LONGEST, _LARGEST_FILE = 2000, 2**18


@dataclass(frozen=True)
class ReleaseFacts:
    """What a release file says; an empty string is a field that was left out. See `FIELDS` for what they mean."""

    name: str = ""
    controller: str = ""
    author: str = ""
    contact: str = ""
    purpose: str = ""
    audience: str = ""
    legal_basis: str = ""
    target: str = ""
    data_source: str = ""
    region: str = ""
    sector: str = ""
    collected: str = ""
    unit: str = ""
    published: str = ""
    review_by: str = ""
    budget_reason: str = ""
    security: str = ""


def read_release(path: Path) -> ReleaseFacts:
    """Read and check a release file."""
    if not path.is_file():
        raise InputError(f"The release file {str(path)!r} is not a file.")
    if os.path.getsize(path) > _LARGEST_FILE:
        raise InputError(f"The release file is larger than {_LARGEST_FILE // 2**10} KiB.")
    try:
        data = parse_toml(path.read_bytes().decode("utf-8"))
    except ValueError:
        # No detail: should somebody pass the data here, no part of it is shown.
        raise InputError('The release file must be TOML in UTF-8, such as name = "...".') from None
    return parse_release(data)


def parse_release(data: Mapping[str, object]) -> ReleaseFacts:
    """Check the content of a release file: fields at its top, or in a table [release]."""
    inner = data.get("release", data)
    if not isinstance(inner, Mapping) or (inner is not data and len(data) > 1):
        raise InputError("The release file must hold its fields at the top, or in [release] alone.")
    found = {}
    for name, value in inner.items():
        if name not in FIELDS:
            raise InputError(
                f"The release file may have the fields {list(FIELDS)}. Got {name[:50]!r} instead. Rename or remove it."
            )
        if isinstance(value, date):
            value = value.isoformat()
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise InputError(
                f"The field '{name}' of the release file must be text of at most {_LONGEST} characters, or a date."
            )
        found[name] = value.strip()
    return ReleaseFacts(**found)
