"""The trusted core is a folder: what a default fit trusts, all of it, and nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np

import dpconvex
from dpconvex import (
    DPDiscreteHazard,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
)

SOURCE = Path(dpconvex.__file__).parent
CORE = SOURCE / "core"
FILES = {path.name for path in CORE.glob("*.py")} - {"__init__.py"}


def imported_modules(text: str) -> set[str]:
    """Return the modules that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_core_imports_nothing_of_the_other_rooms():
    for path in CORE.glob("*.py"):
        ours = {name for name in imported_modules(path.read_text()) if name.startswith("dpconvex")}
        rooms = {name.split(".")[1] for name in ours}
        assert rooms <= {"core", "types"}, path.name


def files_entered(run) -> set[str]:
    """Return the files of the core of which a run enters a function, compiled ones included."""
    found = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent == CORE:
            found.add(path.name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def default_fits() -> None:
    """Fit what has its own slopes: quantiles, squares, margins, rates, several margins; people."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = X.sum(axis=1)
    public = {"feature_bounds": (-1, 1)}
    DPQuantileRegressor(target_bounds=(-2, 2), **public).fit(X, y)
    DPLinearRegression(target_bounds=(-2, 2), **public).fit(X, y, groups=np.arange(300) // 2)
    DPLogisticRegression(classes=[0, 1], **public).fit(X, (y > 0).astype(int))
    DPPoissonRegressor(target_bounds=(0, 4), **public).fit(X, y + 2)
    DPDiscreteHazard((0.5, 1.0), **public).fit(X, np.abs(y) + 0.1).certificate_.verify()


#: Loaded by every fit, with compiled functions or constants alone: no Python function is entered.
COMPILED = {"dense_kernels.py"}


def test_default_fits_enter_every_file_of_the_core():
    """A file that none of them needs is not trusted by them, and belongs elsewhere."""
    assert FILES - files_entered(default_fits) <= COMPILED


def test_the_page_lists_the_files():
    page = (SOURCE.parents[1] / "docs/explanation/trusted-core.md").read_text()
    table = page[page.index("| files in `core/`") :]
    assert sorted(name for name in FILES if f"`{name}`" not in table) == []


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
MAY = {"core", "releases", "audit"}


def test_a_call_of_the_gate_is_seen():
    """What the test above would catch."""
    assert drawing_calls("self.noise.add(exact, term)") == ["self.noise.add"]
    assert drawing_calls("noise.add_gaussian(exact, 1.0)") == ["noise.add_gaussian"]
    assert not drawing_calls("found.add(3)")
