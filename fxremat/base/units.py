"""How sizes, times, numbers of things, errors and tables are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["count", "error_line", "format_bytes", "format_seconds", "table"]


def format_bytes(n: int) -> str:
    """Write a number of bytes in binary units: ``format_bytes(1536) == "1.5 KiB"``."""
    size, units = float(abs(n)), ["KiB", "MiB", "GiB", "TiB"]
    if size < 1024:
        return f"{n} B"
    unit = "B"
    # 1023.95 would be written as 1024.0, so it moves on to the next unit.
    while size >= 1023.95 and units:
        size, unit = size / 1024, units.pop(0)
    return f"{'-' if n < 0 else ''}{size:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """Write a time in a unit that suits it: ``format_seconds(0.0031) == "3.1 ms"``."""
    if not math.isfinite(seconds):
        return "forever"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0 s"


def count(number: int, what: str) -> str:
    """A number of things: ``count(2, "op") == "2 ops"``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def error_line(error: BaseException) -> str:
    """An error in one line: its type, and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in lines; the first column to the left, the others to the right."""
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *rest in cells:
        texts = (text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *texts]).rstrip())
    return "\n".join(lines)
