"""The report: one self-contained HTML page. `page.page` makes it from `Report`."""

from offline.report.content import Report
from offline.report.page import page

__all__ = ["Report", "page"]
