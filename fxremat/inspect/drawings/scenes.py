"""Where the parts of a drawing stand, in pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from fxremat.inspect.drawings.layout import Box, Layout, Point, layered
from fxremat.inspect.drawings.words import px, short

__all__ = ["HEIGHT", "LETTER", "STUB", "Scene", "scene"]

LETTER, SMALL = 6.1, 5.2  # width of a letter of a label, and of the line below it
HEIGHT = 32.0  # of a box
VALLEY = 190.0  # between forward and backward
STUB = 24.0  # what an arc from the source or to the sink takes beside its box


@dataclass(frozen=True)
class Scene:
    """What is to be drawn, and where.

    Attributes:
        graph: what is drawn, without source and sink.
        boxes: where each node stands.
        paths: for each edge its line, as SVG writes it.
        width: of the whole, in pixels.
        height: of the whole, in pixels.
    """

    graph: nx.DiGraph
    boxes: Mapping[str, Box]
    paths: Mapping[tuple[str, str], str]
    width: float
    height: float


def scene(graph: nx.DiGraph) -> Scene:
    """Lay out a graph: two halves as a valley, any other one downwards."""
    halves = {half for _, half in graph.nodes(data="half")}
    return _valley(graph) if len(halves) > 1 else _downwards(graph)


def _downwards(graph: nx.DiGraph) -> Scene:
    hubs = [n for n, form in graph.nodes(data="form") if form == "hub"]
    drawn = _part(graph, [n for n in graph if n not in hubs]) if hubs else graph
    layout = _laid_out(graph, drawn)
    paths = {
        e: _path(layout.boxes[e[0]], layout.lanes.get(e, ()), layout.boxes[e[1]])
        for e in drawn.edges
    }
    return Scene(drawn, layout.boxes, paths, layout.width, layout.height)


def _valley(graph: nx.DiGraph) -> Scene:
    sides = {
        half: _part(graph, [n for n, h in graph.nodes(data="half") if h == half])
        for half in ("forward", "backward")
    }
    down = _laid_out(graph, sides["forward"])
    up = _laid_out(graph, sides["backward"])
    height = max(down.height, up.height)
    down = _stretched(down, height)
    up = _turned(_stretched(up, height), down.width + VALLEY, height)
    boxes = {**down.boxes, **up.boxes}
    lanes = {**down.lanes, **up.lanes}
    paths = {}
    for tail, head in graph.edges:
        if graph.nodes[tail]["half"] == graph.nodes[head]["half"]:
            paths[tail, head] = _path(boxes[tail], lanes.get((tail, head), ()), boxes[head])
        else:
            paths[tail, head] = _across(boxes[tail], boxes[head])
    return Scene(graph, boxes, paths, down.width + VALLEY + up.width, height)


def _part(graph: nx.DiGraph, nodes: list[str]) -> nx.DiGraph:
    """A part of a graph, in the graph's order; that of ``graph.subgraph`` differs between runs."""
    part = nx.DiGraph()
    part.add_nodes_from((n, graph.nodes[n]) for n in nodes)
    part.add_edges_from((t, h, d) for t, h, d in graph.edges(data=True) if t in part and h in part)
    return part


def _stretched(layout: Layout, height: float) -> Layout:
    """A layout with its layers moved apart to fill a height."""
    room = layout.height - HEIGHT
    factor = (height - HEIGHT) / room if room > 0 else 1.0

    def y(old: float) -> float:
        return HEIGHT / 2 + (old - HEIGHT / 2) * factor

    return _moved(layout, lambda p: (p[0], y(p[1])), height)


def _turned(layout: Layout, right: float, height: float) -> Layout:
    """A layout upside down, and to the right."""
    return _moved(layout, lambda p: (p[0] + right, height - p[1]), height)


def _moved(layout: Layout, move: Callable[[Point], Point], height: float) -> Layout:
    moved = {n: move((b.x, b.y)) for n, b in layout.boxes.items()}
    boxes = {n: Box(*moved[n], b.width, b.height) for n, b in layout.boxes.items()}
    lanes = {e: tuple(move(p) for p in points) for e, points in layout.lanes.items()}
    return Layout(boxes, lanes, layout.layers, layout.width, height)


def _laid_out(graph: nx.DiGraph, drawn: nx.DiGraph) -> Layout:
    """Lay out a part of a graph: what comes from outside at the left, what leaves at the right."""
    sides = {}
    for node, data in drawn.nodes(data=True):
        if data["form"] == "value" and not drawn.pred[node] and len(drawn.succ[node]) < 2:
            sides[node] = -1
        elif data["kind"] == "gradient" and not drawn.succ[node]:
            sides[node] = 1
    return layered(drawn, _widths(graph, drawn), HEIGHT, sides)


def _widths(graph: nx.DiGraph, drawn: nx.DiGraph) -> dict[str, float]:
    """Widths of the boxes; source and sink, where they are not drawn, take room on both sides."""
    room = 2 * STUB if graph.graph.get("hubs") else 0.0
    found = {}
    for node, data in drawn.nodes(data=True):
        text = max(len(short(data["label"])) * LETTER, len(data.get("facts", "")) * SMALL)
        found[node] = max(44.0, text + 16.0) + room
    return found


# Edges.


def _path(tail: Box, lanes: Iterable[Point], head: Box) -> str:
    """A smooth line from one box to the next, through the lanes of a long edge."""
    sign = 1.0 if head.y >= tail.y else -1.0
    half = sign * HEIGHT / 2
    x, y = tail.x, tail.y + half
    parts = [f"M{px(x)} {px(y)}"]
    for lane_x, lane_y in lanes:
        parts.append(_bend(x, y, lane_x, lane_y - half) + f"V{px(lane_y + half)}")
        x, y = lane_x, lane_y + half
    parts.append(_bend(x, y, head.x, head.y - half - sign * 3.0))
    return "".join(parts)


def _bend(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(x - to_x) < 0.05:
        return f"V{px(to_y)}"
    middle = (y + to_y) / 2
    return f"C{px(x)} {px(middle)} {px(to_x)} {px(middle)} {px(to_x)} {px(to_y)}"


def _across(tail: Box, head: Box) -> str:
    """A line from the right of one box to the left of another one, or the other way round."""
    sign = 1.0 if head.x >= tail.x else -1.0
    x, to_x = tail.x + sign * tail.width / 2, head.x - sign * (head.width / 2 + 3.0)
    reach = max(40.0, abs(to_x - x) / 2) * sign
    start, end = f"{px(x)} {px(tail.y)}", f"{px(to_x)} {px(head.y)}"
    return f"M{start}C{px(x + reach)} {px(tail.y)} {px(to_x - reach)} {px(head.y)} {end}"
