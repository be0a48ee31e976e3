"""Build the documentation into site/: pages, API reference and gallery, without network.

    python docs/build.py [--out site] [--without-pictures]

Pages are README.md, docs/*.md and what `dpconvex reproduce` wrote into docs/reproduction; the reference comes from
docstrings; the gallery runs examples/*.py. Every link is checked at the end, and a broken one fails the build.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

from check_pages import problems  # noqa: E402
from reference import PACKAGES, render_package  # noqa: E402

# Source of a page -> its words in the menu, in order; other pages follow with their titles.
MENU = {
    "README.md": "Start here",
    "docs/choosing.md": "Choosing epsilon and bounds",
    "docs/cli.md": "Command line",
    "docs/privacy.md": "What a certificate means",
}
EVIDENCE = Path("docs/reproduction")  # its index is in the menu, the pages of its folders are not
DATA = "DPCONVEX_DATA"  # where real data are; examples that need them are shown without pictures if it is not set
FORMATTER = HtmlFormatter(nowrap=True, style="default")


@dataclass(frozen=True)
class Page:
    """A page of the site.

    Attributes
    ----------
    source : Path
        Relative to the root of the repository.
    target : str
        Name of the HTML file.
    title : str
        First heading.
    text : str
        Markdown.
    """

    source: Path
    target: str
    title: str
    text: str

    @property
    def listed(self) -> bool:
        """Whether the menu shows it."""
        return EVIDENCE not in self.source.parent.parents


def page_target(source: Path) -> str:
    """Return the name of the HTML file of a page; those in folders carry their folders' names."""
    if source.name == "README.md":
        return "index.html"
    folders = source.parent.parts[1:]
    stem = "-".join((*folders, source.stem)).lower()
    return stem.removesuffix("-index") + ".html"


def read_pages() -> list[Page]:
    """Return README and all Markdown pages, in the order of the menu."""
    sources = [Path(name) for name in MENU]
    sources += sorted(
        path.relative_to(ROOT)
        for path in DOCS.glob("*.md")
        if path.relative_to(ROOT) not in sources and path.name != "gallery.md"
    )
    evidence = (path.relative_to(ROOT) for path in (ROOT / EVIDENCE).rglob("*.md"))
    sources += sorted(evidence, key=lambda path: (path.parent, path.name))
    sources += [Path("docs/gallery.md"), Path("CONTRIBUTING.md"), Path("CHANGELOG.md")]
    pages = []
    for source in sources:
        text = (ROOT / source).read_text(encoding="utf-8")
        found = re.search(r"^# (.+)$", text, re.M)
        title = found.group(1) if found else source.stem
        pages.append(Page(source, page_target(source), title.replace("`", ""), text))
    return pages


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.strip().replace(" ", "-")


def colored(code: str, language: str) -> str:
    """Return code as HTML with colours where the language is known."""
    try:
        lexer = get_lexer_by_name(language or "text")
    except ClassNotFound:
        return escape(code)
    return str(highlight(code, lexer, FORMATTER))


def render_markdown(text: str, rewrite: Any) -> str:
    """Return Markdown as HTML, with anchors at headings, links and pictures sent through ``rewrite``."""
    reader = MarkdownIt("commonmark", {"highlight": lambda code, name, _: colored(code, name)})
    reader.enable("table")
    tokens = reader.parse(text)
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            name = slug(tokens[number + 1].content.replace("`", ""))
            seen[name] = seen.get(name, -1) + 1
            token.attrSet("id", name if not seen[name] else f"{name}-{seen[name]}")
        for child in token.children or []:
            if child.type == "link_open":
                child.attrSet("href", rewrite(str(child.attrGet("href"))))
            elif child.type == "image":
                child.attrSet("src", rewrite(str(child.attrGet("src"))))
    return str(reader.renderer.render(tokens, reader.options, {}))


def link_rewriter(page: Page, pages: list[Page], out: Path) -> Any:
    """Return a function from links between files of the repository to links between pages."""
    targets = {other.source: other.target for other in pages}

    def rewrite(link: str) -> str:
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            return link
        place, mark, anchor = link.partition("#")
        source = Path(os.path.normpath(page.source.parent / place))
        if source in targets:
            return targets[source] + mark + anchor
        if source.parent == Path("examples") and source.suffix == ".py":
            return f"gallery.html#{source.stem}"
        # Anything else of the repository is copied, so that the site stands alone.
        name = "-".join(source.parts)
        copy = out / "files" / name
        if not (ROOT / source).is_file():
            raise SystemExit(f"{page.source} links to {link}, which is not there")
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / source, copy)
        return f"files/{name}"

    return rewrite


def example_words(path: Path) -> tuple[str, str]:
    """Return the first line of an example's docstring, and the rest."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first, _, rest = text.partition("\n")
    return first.rstrip("."), rest.strip()


def examples() -> list[Path]:
    """Return the runnable examples."""
    return sorted((ROOT / "examples").glob("*.py"))


def gallery_markdown() -> str:
    """Return docs/gallery.md: what each example shows, and how to run it."""
    parts = [
        "# Gallery\n",
        "Every example is one file that runs on its own; the site shows its pictures and its code.\n",
    ]
    for path in examples():
        title, rest = example_words(path)
        rest = rest.replace("``", "`")
        parts.append(f"## {path.stem}\n\n**{title}.** {rest}\n")
        parts.append(f"[examples/{path.name}](../examples/{path.name})\n")
    return "\n".join(parts)


def quick_options(path: Path, folder: Path, points: int = 5) -> list[str]:
    """Return options that make an example quick and send its pictures to a folder."""
    source = path.read_text(encoding="utf-8")
    options = ["--out", str(folder)] if '"--out"' in source else []
    if '"--quick"' in source:
        options += ["--quick"]
    elif '"--points"' in source:
        options += ["--points", str(points)]
    return options


def run_example(path: Path, folder: Path) -> tuple[list[Path], str]:
    """Run an example, and return its pictures and what it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(path), *quick_options(path, folder)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if ended.returncode and DATA in ended.stderr:
        return [], f"Needs data files: set {DATA}."
    if ended.returncode:
        raise SystemExit(f"{path.name} failed:\n{ended.stderr}")
    printed = "\n".join(line for line in ended.stdout.splitlines() if str(folder) not in line)
    return sorted(folder.glob("*.png")), printed


def gallery_html(out: Path, with_pictures: bool) -> str:
    """Return the gallery: words, pictures and code of every example."""
    parts = ["<h1>Gallery</h1>", "<p>Every example is one file that runs on its own.</p>"]
    for path in examples():
        title, rest = example_words(path)
        words = MarkdownIt("commonmark").render(rest.replace("``", "`"))
        parts.append(f'<h2 id="{path.stem}">{escape(title)}</h2>{words}')
        if with_pictures:
            pictures, printed = run_example(path, out / "gallery" / path.stem)
            for picture in pictures:
                place = picture.relative_to(out).as_posix()
                parts.append(f'<img src="{place}" alt="{escape(title, quote=True)}">')
            if printed.strip():
                parts.append(f"<pre>{escape(printed)}</pre>")
        code = colored(path.read_text(encoding="utf-8"), "python")
        parts.append(f"<details><summary>{path.name}</summary><pre>{code}</pre></details>")
    return "\n".join(parts)


def frame(title: str, body: str, here: str, pages: list[Page]) -> str:
    """Return a whole HTML page with the menu."""

    def item(target: str, words: str) -> str:
        kind = ' class="here"' if target == here else ""
        return f'<a href="{target}"{kind}>{escape(words)}</a>'

    menu = [
        "<p>Guide</p>",
        *(item(p.target, MENU.get(str(p.source), p.title)) for p in pages if p.listed),
    ]
    menu += ["<p>Reference</p>", item("api.html", "All names")]
    menu += [item(f"api-{name}.html", words) for name, words in package_titles()]
    style = (DOCS / "site.css").read_text(encoding="utf-8") + FORMATTER.get_style_defs("pre")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<div class="frame">\n<nav aria-label="pages">{"".join(menu)}</nav>\n'
        f"<main>\n{body}\n</main>\n</div>\n</body>\n</html>\n"
    )


def package_titles() -> list[tuple[str, str]]:
    """Return (name of the page, name of the module) of the documented packages."""
    return [(name.replace(".", "-"), name) for name in PACKAGES]


def build(out: Path, with_pictures: bool = True) -> list[Path]:
    """Write the site and return its pages; raises SystemExit if a link is broken."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    pages = read_pages()
    written = {}
    for page in pages:
        if page.target == "gallery.html":
            body = gallery_html(out, with_pictures)
        else:
            body = render_markdown(page.text, link_rewriter(page, pages, out))
        written[page.target] = frame(page.title, body, page.target, pages)
    index = ["<h1>All public names</h1>"]
    for target, name in package_titles():
        module = importlib.import_module(name)
        body, names = render_package(module, colored)
        written[f"api-{target}.html"] = frame(name, body, f"api-{target}.html", pages)
        links = ", ".join(
            f'<a href="api-{target}.html#{entry}"><code>{entry}</code></a>' for entry in names
        )
        summary = escape((module.__doc__ or "").strip().split("\n")[0])
        index.append(f'<h2 id="{target}">{name}</h2><p>{summary}</p><p>{links}</p>')
    written["api.html"] = frame("All public names", "\n".join(index), "api.html", pages)
    for target, text in written.items():
        (out / target).write_text(text, encoding="utf-8")
    paths = [out / target for target in written]
    wrong = [f"{path.name} {problem}" for path in paths for problem in problems(path)]
    if wrong:
        raise SystemExit("The site is broken:\n" + "\n".join(wrong))
    return paths


def main() -> None:
    """Build from the command line."""
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    parser.add_argument("--without-pictures", action="store_true", help="do not run the examples")
    arguments = parser.parse_args()
    (DOCS / "gallery.md").write_text(gallery_markdown(), encoding="utf-8")
    paths = build(arguments.out, not arguments.without_pictures)
    print(f"{len(paths)} pages in {arguments.out}, all links lead somewhere")


if __name__ == "__main__":
    main()
