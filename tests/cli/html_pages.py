"""What is wrong with a page that has to stand alone: broken links, pictures without words, needs
of other files.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "link", "img", "br", "hr", "input", "line", "circle", "rect", "polyline", "path"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.problems: list[str] = []
        self._picture: set[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in _VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        for name in ("src", "srcset", "data", "poster"):
            if given.get(name):
                self.sources.append(str(given[name]))
        if tag == "link":
            self.sources.append(str(given.get("href", "")))
        if tag == "script":
            self.problems.append("has a script")
        if tag == "img" and not (given.get("alt") or "").strip():
            self.problems.append("has an image without alt text")
        if tag == "svg":
            self._picture = set()
            if given.get("role") != "img" or not given.get("aria-labelledby"):
                self.problems.append("has an SVG without role and label")
        elif self._picture is not None and tag in ("title", "desc"):
            self._picture.add(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            if self._picture != {"title", "desc"}:
                self.problems.append("has an SVG without title or description")
            self._picture = None
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"closes <{tag}> that is not open")


def problems(path: Path) -> list[str]:
    """Return what is wrong with a page that must not need any other file, nor a script."""
    text = path.read_text(encoding="utf-8")
    reader = _Reader()
    reader.feed(text)
    found = list(reader.problems)
    if reader.open:
        found.append(f"leaves open {reader.open}")
    if len(set(reader.ids)) < len(reader.ids):
        found.append("has an id twice")
    if re.search(r"@import|url\(", text):
        found.append("loads something from its style sheet")
    found += [f"loads {source}" for source in reader.sources if not source.startswith("data:")]
    for link in reader.links:
        target, _, anchor = link.partition("#")
        if target:
            found.append(f"links to another file, {link}")
        elif anchor not in reader.ids:
            found.append(f"links to {link}, which has no such place")
    return found
