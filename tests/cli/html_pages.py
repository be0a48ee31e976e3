"""What is wrong with an HTML page: broken links, pictures without words, requests to other machines."""

from __future__ import annotations

import re
from functools import lru_cache
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


@lru_cache(maxsize=200)
def anchors(text: str) -> frozenset[str]:
    """Return the ids of a page."""
    reader = _Reader()
    reader.feed(text)
    return frozenset(reader.ids)


def problems(path: Path, alone: bool = False) -> list[str]:
    """Return what is wrong with a page.

    Parameters
    ----------
    path : Path
        The file; links are followed relative to it. Links to other sites are not followed, but nothing may be
        loaded from them.
    alone : bool
        Whether the page must not need any other file.
    """
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
    for source in reader.sources:
        if "//" in source or (alone and not source.startswith("data:")):
            found.append(f"loads {source}")
        elif not source.startswith("data:") and not (path.parent / source).is_file():
            found.append(f"needs {source}, which is not there")
    for link in reader.links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        place = path.parent / target if target else path
        if alone and target:
            found.append(f"links to another file, {link}")
        elif not place.is_file():
            found.append(f"links to {link}, which is not there")
        elif anchor and place.suffix == ".html":
            known = set(reader.ids) if place == path else anchors(place.read_text("utf-8"))
            if anchor not in known:
                found.append(f"links to {link}, which has no such place")
    return found
