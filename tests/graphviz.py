"""A strict reader of graphviz's language, for tests of what we write in it."""

from __future__ import annotations

import re

TOKEN = re.compile(r'\s*(?:("(?:[^"\\\n]|\\.)*")|([A-Za-z_]\w*|-?\d+(?:\.\d+)?)|(->|[{}\[\];,=]))')


def tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        assert match is not None, text[at : at + 60]
        found.append(match.group(0).strip())
        at = match.end()
    return found


def statements(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Nodes and edges of a text in the part of graphviz's grammar that is written; strict."""
    left = tokens(text)
    nodes: list[str] = []
    arrows: list[tuple[str, str]] = []

    def take(*wanted: str) -> str:
        token = left.pop(0)
        assert not wanted or token in wanted, (token, left[:5])
        return token

    def name() -> str:
        token = take()
        assert re.fullmatch(r'".*"|\w+|-?[\d.]+', token, re.DOTALL), token
        return token

    def attributes() -> None:
        take("[")
        while True:
            name()
            take("=")
            name()
            if take(",", "]") == "]":
                return

    def block() -> None:
        take("{")
        while left[0] != "}":
            if left[0] == "subgraph":
                take()
                name()
                block()
                continue
            first = name()
            if left[0] == "->":
                take()
                arrows.append((first, name()))
            elif first not in ("graph", "node", "edge"):
                nodes.append(first)
            attributes()
            take(";")
        take("}")

    take("digraph")
    name()
    block()
    assert not left
    return nodes, arrows
