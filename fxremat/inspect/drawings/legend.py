"""What stands around a drawing: its title, what its kinds mean, and what they look like."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import networkx as nx

from fxremat.inspect.drawings.scenes import LETTER
from fxremat.inspect.drawings.style import BACKGROUND, EDGES, INK, MUTED, NODES
from fxremat.inspect.drawings.words import clean, px

__all__ = ["MARGIN", "Header", "arrowheads", "looks"]

MARGIN = 24.0
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Header:
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
        place = {"x": px(MARGIN), "y": px(MARGIN + 10), "class": "t"}
        ET.SubElement(parent, "text", place).text = clean(self.title)
        for number, note in enumerate(self.notes):
            place = {"x": px(MARGIN), "y": px(MARGIN + 30 + 17 * number), "class": "note"}
            ET.SubElement(parent, "text", place).text = clean(note)
        top = MARGIN + 30 + 17 * len(self.notes)
        for (is_node, kind, text), (x, line) in zip(self.entries, self._spots, strict=True):
            y = top + 20 * line
            if is_node:
                group = ET.SubElement(parent, "g", {"class": f"n n-{kind}"})
                box = {"x": px(x), "y": px(y - 6), "width": "28", "height": "12", "rx": "3"}
                ET.SubElement(group, "rect", box)
            else:
                looks = {"class": f"e e-{kind}", "marker-end": f"url(#a-{kind})"}
                ET.SubElement(parent, "path", looks, d=f"M{px(x)} {px(y)}h25")
            place = {"x": px(x + 34), "y": px(y + 3.5), "class": "note"}
            ET.SubElement(parent, "text", place).text = text


def looks() -> str:
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


def arrowheads() -> ET.Element:
    """An arrowhead for each kind of edge."""
    defs = ET.Element("defs")
    for kind, style in EDGES.items():
        looks = {"id": f"a-{kind}", "viewBox": "0 0 8 8", "refX": "5", "refY": "4"}
        sized = {"markerWidth": "7", "markerHeight": "7", "markerUnits": "userSpaceOnUse"}
        marker = ET.SubElement(defs, "marker", {**looks, **sized, "orient": "auto"})
        ET.SubElement(marker, "path", d="M0 0L8 4L0 8z", fill=style.line)
    return defs
