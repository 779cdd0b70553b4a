"""What drawings say of nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fxremat.base.budget import format_bytes
from fxremat.base.units import count, format_seconds

__all__ = ["block", "clean", "px", "short", "tooltip"]

LONGEST = 30  # letters of a label


def block(module: str) -> str:
    """The part of a module path up to the first number, or its first two names.

    >>> block("network.layers.0.attend.1"), block("loss"), block("a.b.c")
    ('network.layers.0', 'loss', 'a.b')
    """
    parts = module.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), 1)
    return ".".join(parts[: number + 1])


def tooltip(data: Mapping[str, Any]) -> str:
    """All that is known of a node or an edge, in lines."""
    lines = _of_edge(data) if "values" in data or "capacity" in data else _of_node(data)
    return "\n".join(line for line in lines if line)


def _of_node(data: Mapping[str, Any]) -> list[str]:
    shape, module, source = (data.get(k, "") for k in ("shape", "module", "source"))
    costs = []
    if data.get("bytes"):
        costs.append(format_bytes(data["bytes"]))
    if data["form"] == "op" and "seconds" in data:
        costs.append(format_seconds(data["seconds"]))
    runs = data.get("runs", 0)
    return [
        data["label"],
        f"{data.get('op', '')} -> {shape}" if shape else data.get("op", ""),
        ", ".join(costs),
        f"in {module}" if module else "",
        f"at {source}" if source else "",
        f"runs again {count(runs, 'time')}" if runs else "",
        data.get("reason", ""),
    ]


def _of_edge(data: Mapping[str, Any]) -> list[str]:
    return [", ".join(data.get("values", ())), data.get("facts", ""), data.get("reason", "")]


def short(text: str) -> str:
    """A label that is not too long for a box."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def clean(text: str) -> str:
    """Text without what XML cannot hold."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def px(number: float) -> str:
    """A number of pixels, as short as it can be: ``px(2.04) == "2"``."""
    return f"{number:.1f}".removesuffix(".0")
