"""The site: every page is in its menu, answers are where a newcomer looks, examples run; with
Sphinx, it builds.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import runpy
import subprocess
import sys

import matplotlib as mpl
import pytest
from pages import DOCS, PAGES, ROOT, name_of

import dpconvex

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
INDEX = (DOCS / "reference" / "index.md").read_text()
PACKAGES = re.findall(r"^   (dpconvex\S*)$", INDEX, re.M)


def menu(page):
    """Return the documents that a page's menus list."""
    found = []
    for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.S):
        entries = [line for line in block.splitlines() if line and not line.startswith(":")]
        found += [re.sub(r".*<(.*)>", r"\1", entry) for entry in entries]
    return [(page.parent / entry).resolve() for entry in found]


def test_every_page_is_in_one_menu():
    pages = [page for page in PAGES if DOCS in page.parents]
    listed = [entry for page in pages for entry in menu(page)]
    assert len(listed) == len(set(listed))
    written = {
        DOCS / "reproduction" / "index",
        DOCS / "reproduction" / "bench" / "index",
        DOCS / "gallery" / "index",
    }
    expected = {page.with_suffix("") for page in pages} - {DOCS / "index"}
    assert set(listed) == expected | written


def test_every_public_package_has_its_reference():
    rooms = {path.parent.name for path in (ROOT / "src" / "dpconvex").glob("*/__init__.py")}
    inner = {
        "assessment",
        "cli",
        "core",
        "estimators",
        "fit",
        "inputs",
        "models",
        "releases",
        "risk",
        "system",
    }  # their names are in dpconvex, or not public
    files = {path.stem for path in (ROOT / "src" / "dpconvex").glob("[a-z]*.py")}
    files -= {"types", "version"}
    assert {name.rpartition(".")[2] for name in PACKAGES} - {"dpconvex"} == (rooms - inner) | files


@pytest.mark.parametrize(
    ("question", "page", "answer"),
    [
        ("choose epsilon", "howto/epsilon", "read epsilon off this table"),
        ("delta mean", "explanation/epsilon-delta", "the chance that the promise fails"),
        ("give categories", "howto/categories", "[categories]"),
        ("verify a model", "howto/verify", "dpconvex verify model.json"),
        ("better where", "evidence/peers", "losses first"),
    ],
)
def test_the_first_page_leads_to_the_answer(question, page, answer):
    cards = re.findall(r"grid-item-card\} (.*?)\n:link: (\S+)", (DOCS / "index.md").read_text())
    assert [link for words, link in cards if question in words] == [page]
    start = (DOCS / f"{page}.md").read_text()[:3_500]
    assert answer in start


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_draw(path, tmp_path, monkeypatch):
    """In this process, with fewer repeats: a new one spends most of its time on imports."""
    mpl.use("Agg", force=True)
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    quick = {
        "FITS": "1",
        "ROWS": "2_000",
        "SHARES": "(0.0, 0.3)",
        "REPEATS": "1",
        "POINTS": "2",
        "COLUMNS": "(1, 5)",
        "FACTORS": "(0.5, 2.0)",
        "TILTS": "(0.0, 2.0)",
        "RADII": "(0.0, 0.1)",
    }
    source = path.read_text()
    for name, value in quick.items():
        source = re.sub(rf"^{name} = .*$", f"{name} = {value}", source, flags=re.M)
    copy = tmp_path / path.name
    copy.write_text(source)
    runpy.run_path(str(copy), run_name="__main__")
    assert plt.get_fignums()
    plt.close("all")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_have_a_title_and_words(path):
    title, rule, _, *words = path.read_text().splitlines()[1:]
    assert rule == "=" * len(title)
    assert len(words[0]) > 40


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_needs_no_other_machine(tmp_path):
    for name in ("sphinx", "numpydoc", "myst_parser", "sphinx_gallery", "pydata_sphinx_theme"):
        pytest.importorskip(name)
    command = [
        "-m",
        "sphinx",
        "--fail-on-warning",
        "-q",
        "-d",
        tmp_path / "trees",
        DOCS,
        tmp_path / "site",
    ]
    subprocess.run([sys.executable, *map(str, command)], check=True)
    pages = list((tmp_path / "site").rglob("*.html"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=\"(https?:)?//", text), page
    written = {page.name for page in pages}
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            room = "dpconvex" if name in dpconvex.__all__ else package
            assert name.startswith("_") or f"{room}.{name}.html" in written
    for page in PAGES:
        if DOCS in page.parents:
            target = tmp_path / "site" / page.relative_to(DOCS).with_suffix(".html")
            assert target.exists(), name_of(page)
