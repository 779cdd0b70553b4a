"""A plan as one HTML file: no network, no server, opens from disk."""

from .html import to_html

__all__ = ["to_html"]
