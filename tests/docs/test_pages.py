"""Pages tell the truth: their Python runs, their links lead somewhere, every public name is documented."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import dpconvex

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
PACKAGES = [
    "",
    ".losses",
    ".smoothing",
    ".privacy",
    ".mechanisms",
    ".solvers",
    ".audit",
    ".datasets",
    ".defaults",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_documented(package):
    module = importlib.import_module("dpconvex" + package)
    assert inspect.getdoc(module)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name


@pytest.mark.parametrize(
    "name", [name for name in dpconvex.__all__ if hasattr(getattr(dpconvex, name), "fit")]
)
def test_docstrings_name_every_parameter(name):
    kind = getattr(dpconvex, name)
    text = inspect.getdoc(kind)
    missing = [
        parameter
        for parameter in inspect.signature(kind).parameters
        if not re.search(rf"\b{parameter}\b", text)
    ]
    assert not missing
    assert "Privacy" in text
