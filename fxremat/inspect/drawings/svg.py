"""Graphs of :mod:`fxremat.inspect.drawings.graphs` as SVG, without graphviz.

A joint graph is drawn as a valley: its forward on the left going down, its backward on the right
going up, and what the backward reads of the forward across. Any other graph goes down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import networkx as nx

from fxremat.inspect.drawings.layout import HEIGHT, Layout, Point, layered
from fxremat.inspect.drawings.style import EDGES, NODES
from fxremat.inspect.templates import fill

__all__ = ["to_svg"]

LETTER, SMALL = 6.1, 5.2  # width of a letter of a label, and of the line below it
LONGEST = 30  # letters of a label
VALLEY = 190.0  # between forward and backward
STUB = 24.0  # what an arc from the source or to the sink takes beside its box
MARGIN = 24.0
LEAST = 720.0  # width of a drawing, so that its title fits
BAND = 16.0  # width of the edge with most bytes, where edges are as thick as their bytes


def to_svg(graph: nx.DiGraph, *, bare: bool = False) -> str:
    """The graph as the text of an SVG file, the same for the same graph.

    Boxes and edges have tooltips. The background is its own, so that it can be read in light and
    dark surroundings. Source and sink of a flow network are drawn beside each box that they reach.

    Args:
        graph: the graph.
        bare: without title, legend and looks: for a page that has these (``looks.svg``).
    """
    boxes = _part(graph, [n for n, form in graph.nodes(data="form") if form != "hub"])
    widths = _widths(boxes, 2 * STUB if len(boxes) < len(graph) else 0.0)
    halves = {half for _, half in boxes.nodes(data="half")}
    layout = _valley(boxes, widths) if len(halves) > 1 else _laid_out(boxes, widths)
    width = max(layout.width + 2 * MARGIN, 0.0 if bare else LEAST)
    legend = [] if bare else _legend(graph, width)
    lines = 1 + max((entry["line"] for entry in legend), default=-1)
    head = 0.0 if bare else 30.0 + 17 * len(graph.graph["notes"]) + 20 * lines
    most = max((d.get("bytes", 0) for *_, d in graph.edges(data=True) if d["cut"]), default=0)
    return fill(
        "graph.svg",
        bare=bare,
        title=graph.graph["title"],
        notes=graph.graph["notes"],
        legend=legend,
        left=(width - layout.width) / 2,
        head=head + MARGIN,
        width=width,
        height=layout.height + head + 2 * MARGIN,
        edges=_edges(graph, layout, widths, most if graph.name == "modules" else 0),
        boxes=[_box(data, layout.centres[n], widths[n]) for n, data in boxes.nodes(data=True)],
        stubs=list(_stubs(graph, layout, widths)),
    )


# Where things stand.


def _part(graph: nx.DiGraph, nodes: Iterable[str]) -> nx.DiGraph:
    """A part of a graph, in the graph's order, without edges that lead back."""
    chosen, part = set(nodes), nx.DiGraph()
    part.add_nodes_from((n, d) for n, d in graph.nodes(data=True) if n in chosen)
    part.add_edges_from(
        (t, h) for t, h, d in graph.edges(data=True) if {t, h} <= chosen and not d.get("back")
    )
    return part


def _laid_out(part: nx.DiGraph, widths: Mapping[str, float]) -> Layout:
    """Lay out a part: what comes from outside at the left, what leaves at the right."""
    sides = {}
    for node, data in part.nodes(data=True):
        if data["form"] == "value" and not part.pred[node] and len(part.succ[node]) < 2:
            sides[node] = -1
        elif data["kind"] == "gradient" and not part.succ[node]:
            sides[node] = 1
    return layered(part, widths, sides)


def _valley(graph: nx.DiGraph, widths: Mapping[str, float]) -> Layout:
    down, up = (
        _laid_out(_part(graph, [n for n, h in graph.nodes(data="half") if h == half]), widths)
        for half in ("forward", "backward")
    )
    height = max(down.height, up.height)
    down, up = _stretched(down, height), _stretched(up, height)
    right = down.width + VALLEY
    up = up.moved(lambda p: (p[0] + right, height - p[1]), height)
    centres, lanes = {**down.centres, **up.centres}, {**down.lanes, **up.lanes}
    return Layout(centres, lanes, right + up.width, height)


def _stretched(layout: Layout, height: float) -> Layout:
    """A layout with its layers moved apart to fill a height."""
    room = layout.height - HEIGHT
    factor = (height - HEIGHT) / room if room > 0 else 1.0
    return layout.moved(lambda p: (p[0], HEIGHT / 2 + (p[1] - HEIGHT / 2) * factor), height)


def _widths(boxes: nx.DiGraph, room: float) -> dict[str, float]:
    """Widths of the boxes; source and sink, where they are not drawn, take room on both sides."""
    found = {}
    for node, data in boxes.nodes(data=True):
        text = max(len(_short(data["label"])) * LETTER, len(data["facts"]) * SMALL)
        found[node] = max(44.0, text + 16.0) + room
    return found


# What is drawn there.


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _box(data: Mapping[str, Any], centre: Point, width: float) -> dict[str, Any]:
    inner = width - (2 * STUB if data.get("side") else 0.0)
    top = {"x": centre[0] - inner / 2, "y": centre[1] - HEIGHT / 2}
    round_ = HEIGHT / 2 if data["form"] == "value" else 4.0
    known = {k: data[k] for k in ("label", "kind", "facts", "tip")} | {"fold": data.get("fold")}
    size = {"width": inner, "height": HEIGHT, "radius": round_}
    return {**known, **top, **size, "middle": centre[0], "text": _short(data["label"])}


def _edges(
    graph: nx.DiGraph, layout: Layout, widths: Mapping[str, float], most: int
) -> list[dict[str, Any]]:
    """The edges, those that matter last, so on top."""
    found = []
    for tail, head, data in graph.edges(data=True):
        if tail not in layout.centres or head not in layout.centres:
            continue
        a, b = layout.centres[tail], layout.centres[head]
        if graph.nodes[tail].get("half") == graph.nodes[head].get("half"):
            path = _path([a, *layout.lanes.get((tail, head), ()), b])
        else:
            path = _across(a, b, widths[tail] / 2, widths[head] / 2)
        band = 1.2 + BAND * data["bytes"] / most if most and data["cut"] else 0.0
        found.append({"kind": data["kind"], "tip": data["tip"], "path": path, "band": band})
    return sorted(found, key=lambda e: EDGES[e["kind"]].width)


def _path(points: list[Point]) -> str:
    """A smooth line from one box to the next, through the lanes of a long edge."""
    sign = 1.0 if points[-1][1] >= points[0][1] else -1.0
    half = sign * HEIGHT / 2
    x, y = points[0][0], points[0][1] + half
    parts = [f"M{x:.1f} {y:.1f}"]
    for number, (to_x, to_y) in enumerate(points[1:], 2):
        end = to_y - half - (3.0 * sign if number == len(points) else 0.0)  # room for the arrowhead
        if abs(x - to_x) < 0.05:
            parts.append(f"V{end:.1f}")
        else:
            middle = (y + end) / 2
            parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {end:.1f}")
        x, y = to_x, to_y + half
        parts.append(f"V{y:.1f}")
    return "".join(parts[:-1])


def _across(tail: Point, head: Point, from_side: float, to_side: float) -> str:
    """A line from the right of one box to the left of another one, or the other way round."""
    sign = 1.0 if head[0] >= tail[0] else -1.0
    x, to_x = tail[0] + sign * from_side, head[0] - sign * (to_side + 3.0)
    reach = max(40.0, abs(to_x - x) / 2) * sign
    bend = f"{x + reach:.1f} {tail[1]:.1f} {to_x - reach:.1f} {head[1]:.1f}"
    return f"M{x:.1f} {tail[1]:.1f}C{bend} {to_x:.1f} {head[1]:.1f}"


def _stubs(
    graph: nx.DiGraph, layout: Layout, widths: Mapping[str, float]
) -> Iterable[dict[str, Any]]:
    """Arcs from the source at the left of boxes, and arcs to the sink at their right."""
    for tail, head, data in graph.edges(data=True):
        if tail == "source" or head == "sink":
            node, letter = (head, "S") if tail == "source" else (tail, "T")
            x, y = layout.centres[node]
            left = x - widths[node] / 2 if letter == "S" else x + widths[node] / 2 - STUB
            yield {"kind": data["kind"], "tip": data["tip"], "letter": letter, "x": left, "y": y}


def _legend(graph: nx.DiGraph, width: float) -> list[dict[str, Any]]:
    """What the kinds of nodes and edges mean, in lines."""
    nodes = {k for _, k in graph.nodes(data="kind")} - {"source", "sink"}
    edges = {k for *_, k in graph.edges(data="kind")}
    entries = [(f"n n-{k}", k, s.meaning) for k, s in NODES.items() if k in nodes]
    entries += [(f"e e-{k}", k, s.meaning) for k, s in EDGES.items() if k in edges]
    x, line = MARGIN, 0
    found: list[dict[str, Any]] = []
    for look, kind, text in entries:
        wide = 36 + len(text) * LETTER + 14
        if x + wide > width - MARGIN and x > MARGIN:
            x, line = MARGIN, line + 1
        found.append({"look": look, "kind": kind, "text": text, "x": x, "line": line})
        x += wide
    return found
