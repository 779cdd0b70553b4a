"""Graphs of :mod:`fxremat.drawings.graphs` as SVG, without graphviz.

A joint graph is drawn as a valley: its forward on the left going down, its backward on the right
going up, and what the backward reads of the forward across. Any other graph goes down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import networkx as nx

from fxremat.drawings.layout import Box, Layout, Point, layered
from fxremat.drawings.style import BACKGROUND, EDGES, INK, MUTED, NODES
from fxremat.drawings.words import tooltip

__all__ = ["to_svg"]

LETTER, SMALL = 6.1, 5.2  # width of a letter of a label, and of the line below it
HEIGHT = 32.0  # of a box
LONGEST = 30  # letters of a label
MARGIN = 24.0
VALLEY = 190.0  # between forward and backward
STUB = 24.0  # what an arc from the source or to the sink takes beside its box
LEAST = 720.0  # width of a drawing, so that its title fits
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class _Scene:
    """What is to be drawn, and where."""

    graph: nx.DiGraph
    boxes: Mapping[str, Box]
    paths: Mapping[tuple[str, str], str]
    width: float
    height: float


def to_svg(graph: nx.DiGraph) -> str:
    """The graph as the text of an SVG file, the same for the same graph.

    Boxes and edges have tooltips. The background is its own, so that it can be read in light and
    dark surroundings. Source and sink of a flow network are drawn beside each box that they reach.
    """
    scene = _valley(graph) if _halves(graph) else _downwards(graph)
    width = max(scene.width + 2 * MARGIN, LEAST)
    head = _Header(graph, width)
    height = scene.height + head.height + 2 * MARGIN
    root = ET.Element("svg", _sized(width, height), xmlns="http://www.w3.org/2000/svg")
    ET.SubElement(root, "title").text = _clean(graph.graph.get("title", graph.name))
    ET.SubElement(root, "style").text = _css()
    root.append(_markers())
    ET.SubElement(root, "rect", width="100%", height="100%", fill=BACKGROUND)
    head.draw(root)
    left = (width - scene.width) / 2
    body = ET.SubElement(root, "g", transform=f"translate({_n(left)},{_n(head.height + MARGIN)})")
    _draw_edges(body, scene)
    for node, box in scene.boxes.items():
        _draw_node(body, scene.graph.nodes[node], box)
    if graph.graph.get("hubs"):
        _draw_stubs(body, graph, scene.boxes)
    return ET.tostring(root, encoding="unicode") + "\n"


def _halves(graph: nx.DiGraph) -> bool:
    return len({half for _, half in graph.nodes(data="half")}) > 1


# Scenes.


def _downwards(graph: nx.DiGraph) -> _Scene:
    hubs = [n for n, form in graph.nodes(data="form") if form == "hub"]
    drawn = graph.subgraph([n for n in graph if n not in hubs]) if hubs else graph
    layout = _laid_out(graph, drawn)
    paths = {
        e: _path(layout.boxes[e[0]], layout.lanes.get(e, ()), layout.boxes[e[1]])
        for e in drawn.edges
    }
    return _Scene(drawn, layout.boxes, paths, layout.width, layout.height)


def _valley(graph: nx.DiGraph) -> _Scene:
    sides = {
        half: graph.subgraph([n for n, h in graph.nodes(data="half") if h == half])
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
    return _Scene(graph, boxes, paths, down.width + VALLEY + up.width, height)


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
        text = max(len(_short(data["label"])) * LETTER, len(data.get("facts", "")) * SMALL)
        found[node] = max(44.0, text + 16.0) + room
    return found


# Edges.


def _path(tail: Box, lanes: Iterable[Point], head: Box) -> str:
    """A smooth line from one box to the next, through the lanes of a long edge."""
    sign = 1.0 if head.y >= tail.y else -1.0
    half = sign * HEIGHT / 2
    x, y = tail.x, tail.y + half
    parts = [f"M{_n(x)} {_n(y)}"]
    for lane_x, lane_y in lanes:
        parts.append(_bend(x, y, lane_x, lane_y - half) + f"V{_n(lane_y + half)}")
        x, y = lane_x, lane_y + half
    parts.append(_bend(x, y, head.x, head.y - half - sign * 3.0))
    return "".join(parts)


def _bend(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(x - to_x) < 0.05:
        return f"V{_n(to_y)}"
    middle = (y + to_y) / 2
    return f"C{_n(x)} {_n(middle)} {_n(to_x)} {_n(middle)} {_n(to_x)} {_n(to_y)}"


def _across(tail: Box, head: Box) -> str:
    """A line from the right of one box to the left of another one, or the other way round."""
    sign = 1.0 if head.x >= tail.x else -1.0
    x, to_x = tail.x + sign * tail.width / 2, head.x - sign * (head.width / 2 + 3.0)
    reach = max(40.0, abs(to_x - x) / 2) * sign
    start, end = f"{_n(x)} {_n(tail.y)}", f"{_n(to_x)} {_n(head.y)}"
    return f"M{start}C{_n(x + reach)} {_n(tail.y)} {_n(to_x - reach)} {_n(head.y)} {end}"


def _draw_edges(parent: ET.Element, scene: _Scene) -> None:
    """Draw the edges, those that matter last, so on top."""
    order = list(reversed(EDGES))
    rank = {kind: i for i, kind in enumerate(("given", "endless", "value", "finite"))}
    edges = sorted(scene.paths, key=lambda e: rank.get(scene.graph.edges[e]["kind"], len(order)))
    for edge in edges:
        data = scene.graph.edges[edge]
        kind = data["kind"]
        looks = {"class": f"e e-{kind}", "marker-end": f"url(#a-{kind})"}
        drawn = ET.SubElement(parent, "path", looks, d=scene.paths[edge])
        ET.SubElement(drawn, "title").text = _clean(tooltip(data))


# Nodes.


def _draw_node(parent: ET.Element, data: Mapping[str, Any], box: Box) -> None:
    group = ET.SubElement(parent, "g", {"class": f"n n-{data['kind']}"})
    ET.SubElement(group, "title").text = _clean(tooltip(data))
    width = box.width - (2 * STUB if data.get("side") else 0.0)
    radius = HEIGHT / 2 if data["form"] == "value" else 4.0
    place = {"x": _n(box.x - width / 2), "y": _n(box.y - HEIGHT / 2), "rx": _n(radius)}
    ET.SubElement(group, "rect", place, width=_n(width), height=_n(HEIGHT))
    x, facts = _n(box.x), data.get("facts", "")
    y = box.y - 2.5 if facts else box.y + 3.5
    ET.SubElement(group, "text", x=x, y=_n(y)).text = _clean(_short(data["label"]))
    if facts:
        ET.SubElement(group, "text", {"class": "f"}, x=x, y=_n(box.y + 10)).text = _clean(facts)


def _draw_stubs(parent: ET.Element, graph: nx.DiGraph, boxes: Mapping[str, Box]) -> None:
    """Draw arcs from the source at the left of boxes, and arcs to the sink at their right."""
    for tail, head, data in graph.edges(data=True):
        if tail == "source":
            box = boxes[head]
            x = box.x - box.width / 2
            _stub(parent, data, "S", x + 7, (x + 14, x + STUB - 3), box.y)
        elif head == "sink":
            box = boxes[tail]
            x = box.x + box.width / 2
            _stub(parent, data, "T", x - 7, (x - STUB, x - 17), box.y)


def _stub(
    parent: ET.Element,
    data: Mapping[str, Any],
    letter: str,
    x: float,
    ends: tuple[float, float],
    y: float,
) -> None:
    group = ET.SubElement(parent, "g", {"class": f"s e-{data['kind']}"})
    ET.SubElement(group, "title").text = _clean(tooltip(data))
    ET.SubElement(group, "circle", cx=_n(x), cy=_n(y), r="7")
    ET.SubElement(group, "text", x=_n(x), y=_n(y + 3)).text = letter
    marker = {"marker-end": f"url(#a-{data['kind']})", "class": f"e e-{data['kind']}"}
    ET.SubElement(group, "path", marker, d=f"M{_n(ends[0])} {_n(y)}H{_n(ends[1])}")


# Around it.


class _Header:
    """Title, notes and legend."""

    def __init__(self, graph: nx.DiGraph, width: float) -> None:
        self.title: str = graph.graph.get("title", graph.name)
        self.notes: tuple[str, ...] = graph.graph.get("notes", ())
        if graph.graph.get("hubs"):
            self.notes += ("S is the source, T is the sink",)
        nodes = {kind for _, kind in graph.nodes(data="kind")}
        edges = {kind for *_, kind in graph.edges(data="kind")}
        self.entries = [
            *((True, k, s.meaning) for k, s in NODES.items() if k in nodes - {"source", "sink"}),
            *((False, k, s.meaning) for k, s in EDGES.items() if k in edges),
        ]
        self._spots = self._place(width)
        lines = 1 + max((y for _, y in self._spots), default=-1)
        self.height = MARGIN + 26 + 17 * len(self.notes) + 20 * lines

    def _place(self, width: float) -> list[tuple[float, int]]:
        """Where each entry of the legend stands: x, and its line."""
        x, line, found = MARGIN, 0, []
        for _, _, text in self.entries:
            wide = 36 + len(text) * LETTER + 14
            if x + wide > width - MARGIN and x > MARGIN:
                x, line = MARGIN, line + 1
            found.append((x, line))
            x += wide
        return found

    def draw(self, parent: ET.Element) -> None:
        """Draw it at the top."""
        place = {"x": _n(MARGIN), "y": _n(MARGIN + 10), "class": "t"}
        ET.SubElement(parent, "text", place).text = _clean(self.title)
        for number, note in enumerate(self.notes):
            place = {"x": _n(MARGIN), "y": _n(MARGIN + 30 + 17 * number), "class": "note"}
            ET.SubElement(parent, "text", place).text = _clean(note)
        top = MARGIN + 30 + 17 * len(self.notes)
        for (is_node, kind, text), (x, line) in zip(self.entries, self._spots, strict=True):
            y = top + 20 * line
            if is_node:
                group = ET.SubElement(parent, "g", {"class": f"n n-{kind}"})
                box = {"x": _n(x), "y": _n(y - 6), "width": "28", "height": "12", "rx": "3"}
                ET.SubElement(group, "rect", box)
            else:
                looks = {"class": f"e e-{kind}", "marker-end": f"url(#a-{kind})"}
                ET.SubElement(parent, "path", looks, d=f"M{_n(x)} {_n(y)}h25")
            place = {"x": _n(x + 34), "y": _n(y + 3.5), "class": "note"}
            ET.SubElement(parent, "text", place).text = text


def _css() -> str:
    """The looks of all kinds."""
    rules = [
        f"text{{font:10px {FONT};fill:{INK};text-anchor:middle}}",
        f".f{{font-size:8.5px;fill:{MUTED}}}",
        ".t{font:600 15px system-ui,sans-serif;text-anchor:start}",
        f".note{{font-family:system-ui,sans-serif;text-anchor:start;fill:{MUTED}}}",
        ".e{fill:none}.e:hover{stroke-width:4}.n:hover rect{stroke-width:3}",
        f".s circle{{fill:{BACKGROUND}}}.s text{{font-size:8px}}",
    ]
    for kind, style in NODES.items():
        dashes = f";stroke-dasharray:{style.dashes}" if style.dashes else ""
        look = f"fill:{style.fill};stroke:{style.line};stroke-width:{style.width}{dashes}"
        rules.append(f".n-{kind} rect{{{look}}}")
    for kind, style in EDGES.items():
        dashes = f";stroke-dasharray:{style.dashes}" if style.dashes else ""
        rules.append(f".e-{kind}{{stroke:{style.line};stroke-width:{style.width}{dashes}}}")
    return "".join([*rules, ".s text{stroke:none}.s circle{stroke-dasharray:none}"])


def _markers() -> ET.Element:
    """An arrowhead for each kind of edge."""
    defs = ET.Element("defs")
    for kind, style in EDGES.items():
        looks = {"id": f"a-{kind}", "viewBox": "0 0 8 8", "refX": "5", "refY": "4"}
        sized = {"markerWidth": "7", "markerHeight": "7", "markerUnits": "userSpaceOnUse"}
        marker = ET.SubElement(defs, "marker", {**looks, **sized, "orient": "auto"})
        ET.SubElement(marker, "path", d="M0 0L8 4L0 8z", fill=style.line)
    return defs


def _sized(width: float, height: float) -> dict[str, str]:
    return {"width": _n(width), "height": _n(height), "viewBox": f"0 0 {_n(width)} {_n(height)}"}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _clean(text: str) -> str:
    """Text without what XML cannot hold."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _n(number: float) -> str:
    """A number of pixels, as short as it can be."""
    return f"{number:.1f}".removesuffix(".0")
