"""TOML from strangers: what would take the parser long is refused before it begins."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from dpconvex.inputs.errors import InputError

__all__ = ["parse_toml"]

MOST_PARTS = 8  # of a dotted key; a schema needs four, and the parser's work grows with the square
# Strings of all kinds, which may lack their end, and comments.
_TEXT = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\[^\n]|[^"\\\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a text, or raise ``InputError``, or the parser's ``TOMLDecodeError``."""
    if _LONG_KEY.search(_TEXT.sub("_", text)):
        raise InputError(
            f"A dotted key of TOML must have at most {MOST_PARTS} parts. Got more instead. Write tables as [name]."
        )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError("TOML that is nested too deeply is not read. Write tables as [name].") from None
