"""Project files: what contributors and packagers rely on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_no_term_of_the_glossary_is_explained_twice():
    text = (ROOT / "docs/reference/glossary.md").read_text()
    rows = re.findall(r"^\| ([^*|]+) \| [^|]+ \|$", text, re.M)
    assert len(rows) > 10
    assert len(set(rows)) == len(rows)


def test_actions_are_pinned():
    """An action is named by its commit: a tag can be moved."""
    used = [
        line
        for path in (ROOT / ".github/workflows").glob("*.yml")
        for line in re.findall(r"uses: (\S+)", path.read_text())
    ]
    assert len(used) >= 5
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", line)] == []


@pytest.mark.parametrize(
    "target",
    [
        *("lint", "test", "docs", "dist", "slow", "lowest", "newest"),
        *("coverage", "mutants", "workflows", "sbom"),
    ],
)
def test_workflows_run_the_makefile(target):
    texts = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    assert f"make {target}" in texts or f"{target}," in texts or f"{target}]" in texts
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_the_conda_recipe_asks_for_what_the_project_asks_for():
    recipe = (ROOT / "conda/recipe.yaml").read_text()
    run = recipe[recipe.index("  run:") : recipe.index("tests:")]
    asked = {line.replace(" ", "") for line in re.findall(r"- (.+)", run)} - {"python>=3.11"}
    assert asked == set(PROJECT["dependencies"])
    assert PROJECT["requires-python"] == ">=3.11"
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/dpconvex/version.py").read_text())
    assert f'version: "{version[1]}"' in recipe
