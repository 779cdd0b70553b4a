"""Graphs of :mod:`fxremat.inspect.drawings.graphs` as text for graphviz."""

from __future__ import annotations

import networkx as nx

from fxremat.inspect.templates import fill

__all__ = ["to_dot"]


def to_dot(graph: nx.DiGraph) -> str:
    """The graph in graphviz's language, the same for the same graph.

    Ops stand in a cluster for each block of modules, in each half. ``dot -Tsvg`` draws it; large
    graphs take it a while, :func:`fxremat.inspect.drawings.svg.to_svg` does not.

    >>> graph = nx.DiGraph(name="tiny", title="tiny", notes=())
    >>> graph.add_node("op:a", label="a", form="op", kind="forward", facts="", tip="", module="")
    >>> print(to_dot(graph).splitlines()[0])
    digraph "tiny" {
    """
    clusters: dict[str, list[str]] = {}
    for node, data in graph.nodes(data=True):
        name, half = _block(data["module"]), data.get("half", "")
        label = f"{name} ({half})" if name and half else name
        clusters.setdefault(label, []).append(node)
    title = "\n".join((graph.graph["title"], *graph.graph["notes"]))
    return fill("graph.dot", graph=graph, title=title, clusters=clusters.items())


def _block(module: str) -> str:
    """The part of a module path up to the first number, or its first two names.

    >>> _block("network.layers.0.attend.1"), _block("loss"), _block("a.b.c")
    ('network.layers.0', 'loss', 'a.b')
    """
    parts = module.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), 1)
    return ".".join(parts[: number + 1])
