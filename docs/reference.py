"""The API reference: public names of each package, from their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from html import escape
from types import ModuleType
from typing import Any

PACKAGES = [
    "dpconvex",
    "dpconvex.words",
    "dpconvex.selection",
    "dpconvex.preprocessing",
    "dpconvex.privacy",
    "dpconvex.mechanisms",
    "dpconvex.losses",
    "dpconvex.smoothing",
    "dpconvex.objectives",
    "dpconvex.solvers",
    "dpconvex.engine",
    "dpconvex.defaults",
    "dpconvex.audit",
    "dpconvex.datasets",
]
_SECTIONS = {
    "Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes", "Examples", "Privacy", "See Also",
    "References", "Warnings",
}  # fmt: skip
_LISTS = {"Parameters", "Attributes", "Returns", "Yields", "Raises"}

Colored = Callable[[str, str], str]


def render_package(module: ModuleType, colored: Colored) -> tuple[str, list[str]]:
    """Return the page of a package, and the public names on it."""
    names = [name for name in sorted(module.__all__, key=str.lower) if not name.startswith("_")]
    parts = [f"<h1>{module.__name__}</h1>", render_docstring(module.__doc__ or "", colored)]
    for name in names:
        value = getattr(module, name)
        parts.append(f'<h2 id="{name}"><code>{name}</code></h2>')
        if inspect.isclass(value):
            parts.append(_class(name, value, colored))
        elif callable(value):
            parts.append(_signature(name, value))
            parts.append(render_docstring(inspect.getdoc(value) or "", colored))
        else:
            shown = repr(value)
            parts.append(
                f"<pre>{escape(shown if len(shown) < 500 else shown[:500] + ' ...')}</pre>"
            )
    return "\n".join(parts), names


def _signature(name: str, value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    # Types are in the docstrings, in words.
    bare = [entry.replace(annotation=entry.empty) for entry in found.parameters.values()]
    arguments = str(found.replace(parameters=bare, return_annotation=found.empty))
    # The address of a default is no part of its meaning.
    arguments = re.sub(r"<([\w. ]+?) at 0x[0-9a-f]+>", r"<\1>", arguments)
    return f'<pre class="signature">{escape(name + arguments)}</pre>'


def _class(name: str, value: type, colored: Colored) -> str:
    parts = [_signature(name, value), render_docstring(inspect.getdoc(value) or "", colored)]
    for member, entry in sorted(_members(value).items()):
        text = inspect.getdoc(entry) or ""
        if isinstance(entry, property):
            head = f'<pre class="signature">{escape(member)}</pre>'
        else:
            head = _signature(member, entry)
        parts.append(f'<div class="member">{head}{render_docstring(text, colored)}</div>')
    return "\n".join(parts)


def _members(value: type) -> dict[str, Any]:
    """Return the documented public methods and properties that this project defines."""
    found: dict[str, Any] = {}
    for owner in reversed(value.__mro__):
        if not owner.__module__.startswith("dpconvex"):
            continue
        for name, entry in vars(owner).items():
            entry = getattr(entry, "__func__", entry)
            usable = inspect.isfunction(entry) or isinstance(entry, property)
            if usable and not name.startswith("_") and inspect.getdoc(entry):
                found[name] = entry
    return found


def render_docstring(text: str, colored: Colored) -> str:
    """Return a numpydoc docstring as HTML."""
    parts = []
    for title, lines in _split(inspect.cleandoc(text).split("\n")):
        if title:
            parts.append(f"<h4>{title}</h4>")
        parts.append(_entries(lines) if title in _LISTS else _paragraphs(lines, colored))
    return "\n".join(parts)


def _split(lines: list[str]) -> list[tuple[str, list[str]]]:
    sections: list[tuple[str, list[str]]] = [("", [])]
    skip = False
    for number, line in enumerate(lines):
        if skip:
            skip = False
            continue
        under = lines[number + 1] if number + 1 < len(lines) else ""
        if line.strip() in _SECTIONS and re.fullmatch(r"-{3,}", under.strip()):
            sections.append((line.strip(), []))
            skip = True
        else:
            sections[-1][1].append(line)
    return sections


def _inline(text: str) -> str:
    """Return one paragraph with code and roles marked."""
    text = escape(text)
    text = re.sub(r":(?:class|func|meth|mod|data):`~?\.?([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r":math:`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"``([^`]+)``", r"<code>\1</code>", text)
    text = re.sub(r"(?<![\w`])`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", text)


def _entries(lines: list[str]) -> str:
    """Return a list of parameters: a name and type, and indented words."""
    parts: list[str] = []
    words: list[str] = []

    def close() -> None:
        if words:
            parts.append(f"<dd>{_inline(' '.join(words))}</dd>")
            words.clear()

    for line in lines:
        if not line.strip():
            continue
        if not line.startswith(" "):
            close()
            parts.append(f"<dt>{_inline(line)}</dt>")
        else:
            words.append(line.strip())
    close()
    return f"<dl>{''.join(parts)}</dl>" if parts else ""


def _paragraphs(lines: list[str], colored: Colored) -> str:
    parts = []
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        if not block.strip():
            continue
        if block.lstrip().startswith(">>>"):
            parts.append(f"<pre>{colored(inspect.cleandoc(block), 'pycon')}</pre>")
        elif all(line.startswith("    ") for line in block.split("\n") if line):
            parts.append(f"<pre>{escape(inspect.cleandoc(block))}</pre>")
        elif block.lstrip().startswith("- "):
            items = re.split(r"\n(?=- )", block.strip())
            inside = "".join(f"<li>{_inline(item[2:])}</li>" for item in items)
            parts.append(f"<ul>{inside}</ul>")
        else:
            parts.append(f"<p>{_inline(block)}</p>")
    return "\n".join(parts)
