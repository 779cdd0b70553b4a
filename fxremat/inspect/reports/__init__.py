"""A plan as one HTML file: no network, no server, opens from disk."""

from fxremat.inspect.reports.html import to_html, write_report

__all__ = ["to_html", "write_report"]
