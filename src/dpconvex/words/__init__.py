"""Reports for people: a private model on one page, with what an attacker can learn from it."""

from dpconvex.words.html import render_report, write_report

__all__ = ["render_report", "write_report"]
