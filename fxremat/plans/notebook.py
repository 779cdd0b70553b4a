"""Plans and frontiers as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["lines_as_table", "table"]


def lines_as_table(text: str, width: int) -> str:
    """Lines of a name and its text as a table.

    Args:
        text: lines; one that begins with blanks belongs to the name above.
        width: of the names, in characters.
    """
    return table((), [(line[:width].strip(), line[width:].strip()) for line in text.splitlines()])


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table; everything in it is escaped."""
    titles = "".join(f"<th>{escape(str(cell))}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<tr>{titles}</tr>' if head else ''}{body}</table>"
