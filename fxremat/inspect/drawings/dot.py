"""Graphs of :mod:`fxremat.inspect.drawings.graphs` as text for graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import networkx as nx

from fxremat.inspect.drawings.style import BACKGROUND, EDGES, INK, MUTED, NODES
from fxremat.inspect.drawings.words import block, clean, tooltip

__all__ = ["to_dot"]

EFFORT = 2  # of graphviz's simplex, by nodes; without a limit it takes minutes for large graphs


def to_dot(graph: nx.DiGraph) -> str:
    """The graph in graphviz's language, the same for the same graph.

    Ops stand in a cluster for each block of modules, in each half. ``dot -Tsvg`` draws it; large
    graphs take it a while, :func:`fxremat.inspect.drawings.svg.to_svg` does not.

    >>> graph = nx.DiGraph(name="tiny", title="tiny", notes=())
    >>> graph.add_node("op:a", label="a", form="op", kind="forward")
    >>> print(to_dot(graph).splitlines()[0])
    digraph "tiny" {
    """
    title = "\n".join((graph.graph.get("title", ""), *graph.graph.get("notes", ())))
    looks = {"label": title, "labelloc": "t", "bgcolor": BACKGROUND, "fontcolor": INK}
    lines = [
        f"digraph {quote(graph.name)} {{",
        f"  graph [{_pairs(looks)}, fontname=Helvetica, rankdir=TB, nodesep=0.2, ranksep=0.3];",
        f"  graph [nslimit={EFFORT}, nslimit1={EFFORT}];",
        f"  node [fontname=Helvetica, fontsize=11, margin={quote('0.12,0.05')}];",
        "  edge [fontname=Helvetica, fontsize=9, arrowsize=0.6];",
        *_clustered(graph),
        *(f"  {_edge(graph, *edge)}" for edge in graph.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def quote(text: object) -> str:
    r"""A string of graphviz's language that shows this text as it is.

    >>> print(quote('a "b"'))
    "a \"b\""
    """
    escaped = clean(str(text)).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _pairs(attributes: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={quote(value)}" for name, value in attributes.items())


def _clustered(graph: nx.DiGraph) -> Iterator[str]:
    """The nodes, those of one block of modules in one half together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node, data in graph.nodes(data=True):
        groups.setdefault((data.get("half", ""), block(data.get("module", ""))), []).append(node)
    for number, ((half, name), nodes) in enumerate(groups.items()):
        if not name:
            yield from (f"  {_node(node, graph.nodes[node])}" for node in nodes)
            continue
        label = f"{name} ({half})" if half else name
        yield f"  subgraph cluster_{number} {{"
        looks = {"label": label, "color": "#d0d7de", "fontcolor": MUTED, "style": "rounded"}
        yield f"    graph [{_pairs(looks)}];"
        yield from (f"    {_node(node, graph.nodes[node])}" for node in nodes)
        yield "  }"


def _node(node: str, data: Mapping[str, Any]) -> str:
    style = NODES[data["kind"]]
    text = data["label"] + (f"\n{data['facts']}" if data.get("facts") else "")
    form = {"op": "box", "value": "ellipse", "hub": "circle"}[data["form"]]
    looks = {
        "label": text,
        "shape": form,
        "style": "filled,dashed" if style.dashes else "filled",
        "color": style.line,
        "fillcolor": style.fill,
        "fontcolor": INK,
        "penwidth": style.width,
        "tooltip": tooltip(data),
    }
    return f"{quote(node)} [{_pairs(looks)}];"


def _edge(graph: nx.DiGraph, tail: str, head: str) -> str:
    data = graph.edges[tail, head]
    style = EDGES[data["kind"]]
    looks: dict[str, object] = {"color": style.line, "penwidth": style.width}
    if style.dashes:
        looks["style"] = "dashed"
    if data.get("cut"):
        looks |= {"label": data.get("facts", ""), "fontcolor": style.line}
    looks["tooltip"] = tooltip(data)
    return f"{quote(tail)} -> {quote(head)} [{_pairs(looks)}];"
