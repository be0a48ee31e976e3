"""Reports for people: a private model on one page, with what an attacker can learn from it."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
    from dpconvex.reports.html import render_report, write_report
else:
    __getattr__, __dir__ = on_demand(__name__, {"render_report": "html", "write_report": "html"})

__all__ = ["render_report", "write_report"]
