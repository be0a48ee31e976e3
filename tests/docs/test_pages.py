"""Pages tell the truth: their code and commands run, print what they say, and their links lead
somewhere.
"""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
from pages import DOCS, PAGES, ROOT, blocks, commands, is_slow, name_of, run_page
from typer.main import get_command

import dpconvex
from dpconvex.cli import app

COMMANDS = get_command(app)
PACKAGES = re.findall(r"^   (dpconvex\S*)$", (DOCS / "reference/index.md").read_text(), re.M)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=name_of)
def test_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run_page(page, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if any(
            is_slow(words)
            for kind, text in blocks(page)
            if kind == "console"
            for words, _ in commands(text)
        )
    ],
    ids=name_of,
)
def test_a_page_with_long_commands_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run_page(page, capsys, slow=True)


def test_session_of_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "README.md"
    session = [
        words for kind, text in blocks(page) if kind == "console" for words, _ in commands(text)
    ]
    assert [words[1] for words in session] == ["demo", "fit", "verify", "predict", "reproduce"]
    run_page(page, capsys)
    assert len((tmp_path / "orders.csv").read_text().splitlines()) == 5_001


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target and not target.split("/")[-1].endswith(".rst"):
            assert (page.parent / target).exists(), target
        elif target.startswith("api/"):
            package, _, name = target[len("api/") : -len(".rst")].rpartition(".")
            assert name in importlib.import_module(package).__all__, target
        elif target.endswith(".rst") and "index" not in target:  # of the gallery
            assert (ROOT / "examples" / target.split("/")[-1]).with_suffix(".py").exists(), target


def inline_commands(page):
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.S | re.M)
    return re.findall(r"`(dpconvex [a-z][^`]*)`", text)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_sentences_exist(page):
    for line in inline_commands(page):
        command = COMMANDS
        for word in line.split()[1:]:
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
        options = {
            name for entry in command.params for name in (*entry.opts, *entry.secondary_opts)
        }
        assert line.split()[1] in ("COMMAND", *COMMANDS.commands), line
        if command.name == "reproduce":  # its options are those of a distribution of its own
            continue
        for option in re.findall(r"(?<!\S)--[a-z-]+", line):
            assert option in options or option == "--help", line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_targets_and_benchmarks_exist(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", text, re.M)) <= {
        pair for target in targets for pair in ((target, ""), ("", target))
    }
    for name in re.findall(r"python -m benchmarks ([a-z_]+)", text):
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_documented(package):
    module = importlib.import_module(package)
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
