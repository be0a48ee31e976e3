"""The library stands alone: the reproduction of the papers and what draws pictures are asked for
kindly.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dpconvex
from dpconvex.cli import main

SOURCE = Path(dpconvex.__file__).parent
REPRODUCTION_PACKAGE = "dpconvex_reproduction"


def imported(text: str) -> set[str]:
    """Return the first names of everything that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_neither_the_library_nor_its_tests_import_the_reproduction():
    assert REPRODUCTION_PACKAGE in imported(
        f"def f():\n    from {REPRODUCTION_PACKAGE}.peers import x\n"
    )
    files = [*SOURCE.rglob("*.py"), *Path(__file__).parents[1].rglob("*.py")]
    assert len(files) > 100
    assert [str(path) for path in files if REPRODUCTION_PACKAGE in imported(path.read_text())] == []


def test_nothing_makes_environments_or_installs():
    named = {"venv", "ensurepip", "pip", "subprocess"}
    assert [str(path) for path in SOURCE.rglob("*.py") if named & imported(path.read_text())] == []


def refusal(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--list"], ["all", "--quick"], ["--help"]])
def test_without_the_reproduction_its_command_says_how_to_install_it(words, monkeypatch, capsys):
    monkeypatch.setattr("dpconvex.cli.demo_reproduce.REPRODUCTION_PACKAGE", "no_such_package")
    assert "pip install dpconvex-reproduction" in refusal(["reproduce", *words], capsys)
