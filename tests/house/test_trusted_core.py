"""The trusted core: how many lines a reader of a default fit's certificate has to believe, and
who may hold rows.
"""

from __future__ import annotations

import ast
from pathlib import Path

import dpconvex

SOURCE = Path(dpconvex.__file__).parent
#: What a default fit of rows in memory rests on: sums, slopes, noise, certificate.
TRUSTED = (
    *(f"core/{name}" for name in ("row_coordinates", "queries", "private_rows")),
    *(f"privacy/noise/{name}" for name in ("noise_source", "normal_and_laplace")),
    *(f"privacy/bounds/{name}" for name in ("__init__", "linear")),
    *(f"privacy/{name}" for name in ("certificate", "calibration", "guarantees", "description")),
    *(f"engine/{name}" for name in ("rows", "block_products", "dense_kernels", "memory_rows")),
    *(f"engine/{name}" for name in ("person_identifiers", "row_weights", "summation", "threads")),
    *(f"losses/{name}" for name in ("pointwise", "several_margins", "tweedie")),
    *(f"smoothing/{name}" for name in ("convolution", "kernels")),
)


def test_the_page_lists_every_trusted_file():
    """What is trusted is listed on a page, so that a change of the list is a change of the page."""
    page = (SOURCE.parents[1] / "docs/explanation/trusted-core.md").read_text()
    listed = [name for name in TRUSTED if f"`{name}.py`" in page or f"`{name}`" in page]
    rooms = [
        room for room in ("privacy/noise/", "privacy/bounds/", "engine/") if f"`{room}`" in page
    ]
    missing = [name for name in TRUSTED if name not in listed and not name.startswith(tuple(rooms))]
    assert missing == []


def drawing_calls(text: str) -> list[str]:
    """Return calls that add noise or draw it."""
    names = {"add_gaussian", "add_l2_laplace", "draw", "gaussian", "l2_laplace"}
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in names or (node.func.attr == "add" and owner.endswith("noise")):
                found.append(f"{owner}.{node.func.attr}")
    return found


def test_mechanisms_add_no_noise():
    """Only the core calls the gate: no mechanism, estimator or evaluation adds noise itself."""
    rooms = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in MAY]
    found = {
        str(path.relative_to(SOURCE)): calls
        for path in rooms
        if (calls := drawing_calls(path.read_text()))
    }
    assert not found


#: The core, and the gate itself; audits draw the noise of the laws that they attack.
MAY = {"core", "privacy", "audit"}


def test_a_call_of_the_gate_is_seen():
    """What the test above would catch."""
    assert drawing_calls("self.noise.add(exact, term)") == ["self.noise.add"]
    assert drawing_calls("noise.add_gaussian(exact, 1.0)") == ["noise.add_gaussian"]
    assert not drawing_calls("found.add(3)")
