"""The tutorial does what it says: its schema is read, its commands and its Python run, its numbers hold."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

from dpconvex.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
DATA = Path(os.environ.get("DPCONVEX_DATA", "none")) / "adult.csv.gz"


def commands(block: str) -> list[tuple[list[str], str]]:
    """Return the commands of a block, and what each is said to print."""
    found: list[tuple[list[str], str]] = []
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((shlex.split(line[2:])[1:], ""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


@pytest.mark.skipif(not DATA.is_file(), reason="needs adult.csv.gz in DPCONVEX_DATA")
def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copy(DATA, tmp_path / "adult.csv.gz")
    command, names = get_command(app), {"__name__": "page"}
    seen = {"toml": 0, "console": 0, "py": 0}
    for kind, block in re.findall(r"```(toml|console|py)\n(.*?)```", PAGE.read_text(), re.S):
        seen[kind] += 1
        if kind == "toml":
            Path(re.match(r"# (\S+)", block).group(1)).write_text(block)
        elif kind == "py":
            exec(compile(block, str(PAGE), "exec"), names)
        else:
            for words, told in commands(block):
                with pytest.raises(SystemExit) as end:
                    command.main(words, prog_name="dpconvex")
                printed = capsys.readouterr()
                assert end.value.code in (0, None), printed.err
                assert told in printed.out
    assert min(seen.values()) >= 1
    accuracy = names["accuracy"]
    for kind in ("private, Python", "private, command line"):
        # Half a point: the spread over fits is a tenth of that.
        assert accuracy[kind] > accuracy["without privacy"] - 0.005
    page = (tmp_path / "report.html").read_text()
    assert "occupation=Exec-managerial" in page
