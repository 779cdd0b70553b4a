"""Frozen dataclasses as JSON text and back; an error names the path of the field that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

__all__ = ["decode", "encode"]

T = TypeVar("T")
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def encode(parts: Mapping[str, object], shown: tuple[str, ...] = ()) -> str:
    """Parts as one JSON object, each on a line of its own; those named by ``shown`` on several."""
    lines = []
    for name, part in parts.items():
        text = msgspec.json.encode(part)
        if name in shown:
            text = msgspec.json.format(text, indent=1).replace(b"\n", b"\n ")
        lines.append(f' "{name}": {text.decode()}')
    return "{\n" + ",\n".join(lines) + "\n}"


def decode(text: str, kind: type[T], what: str, upgrades: Mapping[int, Upgrade]) -> T:
    """Read a dataclass from JSON text that has a ``format`` beside its fields.

    Args:
        text: the text.
        kind: the dataclass.
        what: what it is called in errors, such as ``"a plan"``.
        upgrades: how each format that can be read becomes the last one.

    Raises:
        ValueError: if the text is something else, or a field is missing or of another type.
    """
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"not {what}, nor any JSON: {error}") from error
    number = data.get("format") if isinstance(data, dict) else None
    upgrade = upgrades.get(number) if isinstance(number, int) else None
    if upgrade is None:
        raise ValueError(f"not {what} of format {max(upgrades)}; write it again with to_json()")
    try:
        return msgspec.convert(upgrade(data), kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not {what}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not {what} of format {number}: {error!r}") from error
