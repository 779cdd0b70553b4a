"""How times and numbers of things are written; bytes are in :mod:`fxremat.base.budget`."""

from __future__ import annotations

import math

__all__ = ["count", "error_line", "format_seconds"]


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
