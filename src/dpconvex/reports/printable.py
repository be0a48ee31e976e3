"""Text of strangers where it is shown or written: signs that cannot be seen are spelled out.

A column's name or a charge's description may hold signs that move a terminal's cursor, turn the
direction of writing round, or may not stand in YAML and TOML.
"""

from __future__ import annotations

import json
import unicodedata

__all__ = ["printable_on_page", "printable_quote", "printable_text"]


def printable_text(text: str, kept: str = "") -> str:
    r"""Return text whose signs can all be seen; others are escaped, like ``\x1b``, but for the
    ones that are kept.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if _is_seen(sign) or sign in kept else _escape_sign(sign, r"\x{:02x}") for sign in text
    )


def printable_on_page(value: object) -> object:
    """Return what a template shows: text whose signs can be seen, but for line breaks and those
    that join letters.
    """
    return printable_text(value, "\n\t\u200c\u200d") if type(value) is str else value


def printable_quote(value: object) -> str:
    r"""Return a text, number or list of them as JSON, YAML and TOML alike write it, text in
    double quotes.
    """
    plain = json.dumps(value, ensure_ascii=False)
    return "".join(sign if _is_seen(sign) else _escape_sign(sign, r"\u{:04x}") for sign in plain)


def _is_seen(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _escape_sign(sign: str, short: str) -> str:
    code = ord(sign)
    if code < 0x100:
        return short.format(code)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
