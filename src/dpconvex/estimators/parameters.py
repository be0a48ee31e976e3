"""Estimators as dataclasses whose fields are their parameters, each documented once.

scikit-learn reads the parameters from the signature that Python derives, and type checkers know
them. What a class does not document itself, parameters, attributes or notes, is described by the
docstring of the base nearest to it.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(eq_default=False)
def with_parameters(kind: type[Kind]) -> type[Kind]:
    """Make a class an estimator whose fields are its parameters; a public one is documented in
    full.
    """
    kind = dataclass(eq=False, repr=False)(kind)
    if kind.__name__.startswith("DP"):
        kind.__doc__ = _document_parameters(kind)
    return kind


def _document_parameters(kind: type) -> str:
    """Return the docstring of a class with the parameters and attributes that its bases
    describe.
    """
    head, sections = _split_docstring(kind)
    parameters: dict[str, str] = {}
    attributes: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        of_base = _split_docstring(base)[1]
        parameters |= _describe_names(of_base.get("Parameters", ""))
        attributes |= _describe_names(of_base.get("Attributes", ""))
        sections |= (
            {"Notes": of_base["Notes"]}
            if "Notes" in of_base and base.__module__.startswith("dpconvex")
            else {}
        )
    entries = [parameters[name] for name in inspect.signature(kind).parameters]
    sections["Parameters"] = "\n".join(dict.fromkeys(entries))  # one entry may describe two names
    sections["Attributes"] = "\n".join(dict.fromkeys(attributes.values()))
    order = [name for name in ("Parameters", "Attributes", "Notes", "Examples") if name in sections]
    return (
        "\n\n".join([head, *(f"{name}\n{'-' * len(name)}\n{sections[name]}" for name in order)])
        + "\n"
    )


def _split_docstring(kind: type) -> tuple[str, dict[str, str]]:
    text = inspect.cleandoc(vars(kind).get("__doc__") or "")
    head, *parts = re.split(
        r"^(Parameters|Attributes|Notes|Examples)\n-+\n", text, flags=re.MULTILINE
    )
    return head.strip(), {
        name: part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)
    }


def _describe_names(section: str) -> dict[str, str]:
    entries = [
        entry.strip() for entry in re.split(r"^(?=\w)", section, flags=re.MULTILINE) if entry
    ]
    return {
        name: entry for entry in entries for name in re.findall(r"\w+", re.split(" :|\n", entry)[0])
    }
