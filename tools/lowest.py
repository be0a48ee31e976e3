"""Print the oldest versions that both distributions allow, one pin a line: constraints of
``make lowest``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = (ROOT / "pyproject.toml", ROOT / "reproduction" / "pyproject.toml")
# `make lowest` runs the tests: what builds pages or checks style may be as new as it is.
EXTRAS = ("dask", "plots", "studio")
GROUPS = ("test",)
# Versions of what they need in turn that came long after them, and warn of their use.
CONTEMPORARIES = ("pyparsing<3.3",)  # of matplotlib 3.10


def lowest(requirement: str) -> str | None:
    """Return the pin of a requirement's lower bound, or None if it has none.

    Examples
    --------
    >>> lowest("dask[dataframe]>=2025.3")
    'dask==2025.3'
    >>> lowest("dp-accounting>=0.6,<0.7")
    'dp-accounting==0.6'
    >>> lowest("ruff")
    """
    name = re.match(r"[\w.-]+", requirement)
    bound = re.search(r">=\s*([\w.]+)", requirement)
    return f"{name[0]}=={bound[1]}" if name and bound and name[0] != "dpconvex" else None


def pins() -> list[str]:
    """Return the pins of all dependencies, and of the extras and groups that tests use."""
    asked: list[str] = []
    for path in PROJECTS:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
        project = settings["project"]
        groups = settings.get("dependency-groups", {})
        extras = project.get("optional-dependencies", {})
        asked += [
            *project["dependencies"],
            *(line for name in EXTRAS for line in extras.get(name, ())),
            *(line for name in GROUPS for line in groups.get(name, ())),
        ]
    return sorted({pin for line in asked if (pin := lowest(line))} | set(CONTEMPORARIES))


if __name__ == "__main__":
    print(*pins(), sep="\n")
