"""The report: one HTML page with everything in it, readable without a network. `page.page` makes it from `Report`."""

from offline.report.content import Report
from offline.report.page import page

__all__ = ["Report", "page"]
