"""Estimators as dataclasses whose fields are their parameters, each documented once.

scikit-learn reads the parameters from the signature that Python derives, and type checkers know them. A parameter or
attribute that a class does not document itself is described by the docstring of the base class nearest to it.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(eq_default=False)
def estimator(kind: type[Kind]) -> type[Kind]:
    """Make a class an estimator whose fields are its parameters; a public one is documented in full."""
    kind = dataclass(eq=False, repr=False)(kind)
    if kind.__name__.startswith("DP"):
        kind.__doc__ = _complete_docstring(kind)
    return kind


def _complete_docstring(kind: type) -> str:
    """Return the docstring of a class with the parameters and attributes that its bases describe."""
    head, sections = _split_docstring(kind)
    parameters: dict[str, str] = {}
    attributes: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        of_base = _split_docstring(base)[1]
        parameters |= _describe_names(of_base.get("Parameters", ""))
        attributes |= _describe_names(of_base.get("Attributes", ""))
    entries = [parameters[name] for name in inspect.signature(kind).parameters]
    sections["Parameters"] = "\n".join(dict.fromkeys(entries))  # one entry may describe two names
    sections["Attributes"] = "\n".join(attributes.values())
    order = [name for name in ("Parameters", "Attributes", "Notes", "Examples") if name in sections]
    return "\n\n".join([head, *(f"{name}\n{'-' * len(name)}\n{sections[name]}" for name in order)]) + "\n"


def _split_docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return the text before the sections of a class's docstring, and its sections by name."""
    text = inspect.cleandoc(vars(kind).get("__doc__") or "")
    head, *parts = re.split(r"^(Parameters|Attributes|Notes|Examples)\n-+\n", text, flags=re.MULTILINE)
    return head.strip(), {name: part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)}


def _describe_names(section: str) -> dict[str, str]:
    """Return the entry of each name that a section of a docstring describes."""
    entries = [entry.strip() for entry in re.split(r"^(?=\w)", section, flags=re.MULTILINE) if entry]
    return {name: entry for entry in entries for name in re.findall(r"\w+", re.split(" :|\n", entry)[0])}
