"""Graphs of :mod:`fxremat.inspect.drawings.graphs` as SVG, without graphviz.

A joint graph is drawn as a valley: its forward on the left going down, its backward on the right
going up, and what the backward reads of the forward across. Any other graph goes down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

import networkx as nx

from fxremat.inspect.drawings.layout import Box
from fxremat.inspect.drawings.legend import MARGIN, Header, arrowheads, looks
from fxremat.inspect.drawings.scenes import HEIGHT, STUB, Scene, scene
from fxremat.inspect.drawings.style import BACKGROUND, EDGES
from fxremat.inspect.drawings.words import clean, px, short, tooltip

__all__ = ["to_svg"]

LEAST = 720.0  # width of a drawing, so that its title fits


def to_svg(graph: nx.DiGraph) -> str:
    """The graph as the text of an SVG file, the same for the same graph.

    Boxes and edges have tooltips. The background is its own, so that it can be read in light and
    dark surroundings. Source and sink of a flow network are drawn beside each box that they reach.
    """
    drawn = scene(graph)
    width = max(drawn.width + 2 * MARGIN, LEAST)
    head = Header(graph, width)
    height = drawn.height + head.height + 2 * MARGIN
    root = ET.Element("svg", _sized(width, height), xmlns="http://www.w3.org/2000/svg")
    ET.SubElement(root, "title").text = clean(graph.graph.get("title", graph.name))
    ET.SubElement(root, "style").text = looks()
    root.append(arrowheads())
    ET.SubElement(root, "rect", width="100%", height="100%", fill=BACKGROUND)
    head.draw(root)
    left = (width - drawn.width) / 2
    body = ET.SubElement(root, "g", transform=f"translate({px(left)},{px(head.height + MARGIN)})")
    _draw_edges(body, drawn)
    for node, box in drawn.boxes.items():
        _draw_node(body, drawn.graph.nodes[node], box)
    if graph.graph.get("hubs"):
        _draw_stubs(body, graph, drawn.boxes)
    return ET.tostring(root, encoding="unicode") + "\n"


def _draw_edges(parent: ET.Element, drawn: Scene) -> None:
    """Draw the edges, those that matter last, so on top."""
    edges = drawn.graph.edges
    for edge in sorted(drawn.paths, key=lambda e: EDGES[edges[e]["kind"]].width):
        data = edges[edge]
        look = {"class": f"e e-{data['kind']}", "marker-end": f"url(#a-{data['kind']})"}
        line = ET.SubElement(parent, "path", look, d=drawn.paths[edge])
        ET.SubElement(line, "title").text = clean(tooltip(data))


# Nodes.


def _draw_node(parent: ET.Element, data: Mapping[str, Any], box: Box) -> None:
    group = ET.SubElement(parent, "g", {"class": f"n n-{data['kind']}"})
    ET.SubElement(group, "title").text = clean(tooltip(data))
    width = box.width - (2 * STUB if data.get("side") else 0.0)
    radius = HEIGHT / 2 if data["form"] == "value" else 4.0
    place = {"x": px(box.x - width / 2), "y": px(box.y - HEIGHT / 2), "rx": px(radius)}
    ET.SubElement(group, "rect", place, width=px(width), height=px(HEIGHT))
    x, facts = px(box.x), data.get("facts", "")
    y = box.y - 2.5 if facts else box.y + 3.5
    ET.SubElement(group, "text", x=x, y=px(y)).text = clean(short(data["label"]))
    if facts:
        ET.SubElement(group, "text", {"class": "f"}, x=x, y=px(box.y + 10)).text = clean(facts)


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
    ET.SubElement(group, "title").text = clean(tooltip(data))
    ET.SubElement(group, "circle", cx=px(x), cy=px(y), r="7")
    ET.SubElement(group, "text", x=px(x), y=px(y + 3)).text = letter
    marker = {"marker-end": f"url(#a-{data['kind']})", "class": f"e e-{data['kind']}"}
    ET.SubElement(group, "path", marker, d=f"M{px(ends[0])} {px(y)}H{px(ends[1])}")


def _sized(width: float, height: float) -> dict[str, str]:
    return {"width": px(width), "height": px(height), "viewBox": f"0 0 {px(width)} {px(height)}"}
