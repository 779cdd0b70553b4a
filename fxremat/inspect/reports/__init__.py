"""A plan as one HTML file: no network, no server, opens from disk."""

from fxremat.inspect.reports.html import to_html

__all__ = ["to_html"]
