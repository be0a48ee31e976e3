"""Pages of the documentation as tests read them: their blocks of code, their commands, and a
runner for both.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from dpconvex.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Written by commands that have tests of their own, or by the build.
WRITTEN = ("reproduction", "gallery", "api")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(
        path
        for path in sorted(DOCS.rglob("*.md"))
        if not {*WRITTEN} & {*path.relative_to(DOCS).parts}
    ),
]
# What these print does not depend on noise, so that pages can be held to it.
CENSUS = Path(os.environ.get("DPCONVEX_DATA", "")) / "adult.csv.gz"
CERTAIN = ("split", "demo", "bounds", "certify", "ledger init", "plan", "verify", "predict")
SLOW = ("--engine", "--seconds")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return (language, text) of every block of code, those inside lists too."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```", page.read_text(encoding="utf-8"), re.S | re.M)
    return [(language, dedent(text)) for _, language, text in found]


def commands(text: str) -> list[tuple[list[str], str]]:
    """Return (words, documented output) of every command of a console block."""
    parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.M)[1:]
    return [(shlex.split(line), output) for line, _, output in (p.partition("\n") for p in parts)]


def is_slow(words: list[str]) -> bool:
    return any(option in words for option in SLOW)


def run_page(page: Path, capsys: pytest.CaptureFixture[str], slow: bool = False) -> int:
    """Run a page's Python and commands in order, in the working directory; return how many ran."""
    names: dict[str, object] = {"__name__": "page"}
    texts = blocks(page)
    shown = [commands(text) for language, text in texts if language == "console"]
    if shown and not any("demo" in words for block in shown for words, _ in block):
        run_command(["dpconvex", "demo", "--files", "."], "", capsys)
    if CENSUS.name in page.read_text(encoding="utf-8"):
        if not CENSUS.is_file():
            pytest.skip(f"needs {CENSUS.name} in DPCONVEX_DATA")
        shutil.copy(CENSUS, CENSUS.name)
    count = 0
    for language, text in texts:
        first = text.partition("\n")[0]
        if re.fullmatch(r"# \w+\.(py|toml)", first):
            Path(first[2:]).write_text(text)
        elif language == "python":
            exec(compile(text, str(page), "exec", dont_inherit=True), names)
            count += 1
        elif language == "console":
            for words, output in commands(text):
                if slow or not is_slow(words):
                    run_command(words, output, capsys)
                    count += 1
    return count


def run_command(words: list[str], output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command; what the page says it prints must be there where noise does not decide it."""
    if words[0] == "sed":
        subprocess.run(words, check=True)
        return
    assert words[0] == "dpconvex", words
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    printed = capsys.readouterr()
    fails = output.startswith("error:") or "REFUTED" in output
    assert (ended.value.code != 0) == fails, (words, printed.err)
    if " ".join(words[1:3]).startswith(CERTAIN) or output.startswith("error:"):
        real = _plain(printed.out + printed.err)
        for part in re.split(r"\.\.\.", output):
            assert _plain(part) in real, (words, part)


def _plain(text: str) -> str:
    """Return text without line breaks, which depend on the width of a terminal."""
    return "".join(text.split())
