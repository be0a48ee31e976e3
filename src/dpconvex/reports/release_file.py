"""Release file in TOML: who publishes a model, of what, why and until when; checked for form
only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path

from dpconvex.inputs import InputError
from dpconvex.inputs.schema_file import parse_schema_toml

_LONGEST = 2000
_LARGEST_FILE = 2**18


def _asks(question: str) -> str:
    """Return the field of a dataclass, empty by default, with the question that it answers."""
    return field(default="", metadata={"question": question})


@dataclass(frozen=True)
class ReleaseFileFacts:
    """Statements of a release file about itself, in the order of reports; an empty string was
    left out.
    """

    name: str = _asks("Name of the release")
    controller: str = _asks("Who is responsible for the data")
    author: str = _asks("Who made the release")
    contact: str = _asks("Whom to ask")
    purpose: str = _asks("What the model is for")
    audience: str = _asks("Who will see the model")
    legal_basis: str = _asks("On what legal ground the data are processed")
    target: str = _asks("Column that was learned")
    data_source: str = _asks("Where the data come from")
    region: str = _asks("Region that the data are about")
    sector: str = _asks("Sector")
    collected: str = _asks("When the data were collected")
    unit: str = _asks("Whom one row stands for (one word: patient, household)")
    published: str = _asks("Date of publication")
    review_by: str = _asks("When this release is looked at again")
    budget_reason: str = _asks("Why this budget is right")
    security: str = _asks("How the data and the run are protected")


#: Question of each field.
FIELDS: dict[str, str] = {item.name: item.metadata["question"] for item in fields(ReleaseFileFacts)}


def read_release_file(path: Path) -> ReleaseFileFacts:
    """Read and check a release file."""
    if not path.is_file():
        raise InputError(f"The release file {str(path)!r} is not a file.")
    if os.path.getsize(path) > _LARGEST_FILE:
        raise InputError(f"The release file is larger than {_LARGEST_FILE // 2**10} KiB.")
    try:
        data = parse_schema_toml(path.read_bytes().decode("utf-8"))
    except ValueError:
        # No detail: should somebody pass the data here, no part of it is shown.
        raise InputError('The release file must be TOML in UTF-8, such as name = "...".') from None
    return parse_release_file(data)


def parse_release_file(data: Mapping[str, object]) -> ReleaseFileFacts:
    """Check the content of a release file: fields at its top, or in a table [release]."""
    inner = data.get("release", data)
    if not isinstance(inner, Mapping) or (inner is not data and len(data) > 1):
        raise InputError("The release file must hold its fields at the top, or in [release] alone.")
    found = {}
    for name, value in inner.items():
        if name not in FIELDS:
            raise InputError(
                f"The release file may have the fields {list(FIELDS)}. Got {name[:50]!r} instead. "
                "Rename or remove it."
            )
        if isinstance(value, date):
            value = value.isoformat()
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise InputError(
                f"The field '{name}' of the release file must be text of at most {_LONGEST} "
                "characters, or a date."
            )
        found[name] = value.strip()
    return ReleaseFileFacts(**found)
