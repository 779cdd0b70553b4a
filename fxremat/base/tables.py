"""Plain tables on the standard output."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["print_table"]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column to the left, the others to the right."""
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        first, *rest = zip(line, widths, strict=True)
        texts = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
        print("  ".join(texts).rstrip(), flush=True)
