"""Errors of the graph passes; the whole tree is drawn in ``fxremat.base.errors``."""

from __future__ import annotations


class RematError(Exception):
    """Base of every error that fxremat raises on purpose."""


class _NodeError(RematError):
    """An error at a node.

    Attributes:
        node: name of the node at fault, or None.
        why: the cause in words.
    """

    def __init__(self, why: str, node: str | None = None) -> None:
        super().__init__(f"{node}: {why}" if node else why)
        self.node = node
        self.why = why


class GraphError(_NodeError):
    """A graph cannot be taken as it is."""


class RewriteError(_NodeError):
    """A plan does not fit the graph that it is applied to."""
