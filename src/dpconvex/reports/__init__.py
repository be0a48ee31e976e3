"""Reports for people: a private model on one page, with what an attacker can learn from it."""

from typing import TYPE_CHECKING

from dpconvex.system.lazy_imports import on_demand

if TYPE_CHECKING:
    from dpconvex.reports.report import render_report, write_report
else:
    __getattr__, __dir__ = on_demand(
        __name__, {"render_report": "report", "write_report": "report"}
    )

__all__ = ["render_report", "write_report"]
