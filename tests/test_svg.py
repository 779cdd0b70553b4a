"""Drawings as SVG: valid, complete, laid out without overlaps."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from xml.etree import ElementTree as ET

import networkx as nx
import pytest

from fxremat.inspect.drawings import graphs
from fxremat.inspect.drawings.layout import layered
from fxremat.inspect.drawings.svg import to_svg
from tests.drawn import ALL, saving
from tests.problems import chain
from tests.steps import half

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("make", ALL)
def test_svg_has_each_node_and_edge(make: object) -> None:
    assert callable(make)
    graph: nx.DiGraph = make(half())
    root = ET.fromstring(to_svg(graph))
    (body,) = [g for g in root.findall(f"{SVG}g") if "transform" in g.attrib]
    boxes = [g for g in body.findall(f"{SVG}g") if g.get("class", "").startswith("n ")]
    stubs = [g for g in body.findall(f"{SVG}g") if g.get("class", "").startswith("s ")]
    hubs = {"source", "sink"} & set(graph)
    assert len(boxes) == len(graph) - len(hubs)
    assert len(body.findall(f"{SVG}path")) + len(stubs) == graph.number_of_edges()
    titles = {g.findtext(f"{SVG}title", "").split("\n")[0] for g in boxes}
    assert titles == {d["label"] for n, d in graph.nodes(data=True) if n not in hubs}
    assert all(p.find(f"{SVG}title") is not None for p in body.findall(f"{SVG}path"))
    width, height = (float(root.attrib[k]) for k in ("width", "height"))
    dx, dy = map(float, re.findall(r"[\d.]+", body.attrib["transform"]))
    for rect in (g.find(f"{SVG}rect") for g in boxes):
        assert rect is not None
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        assert 0 <= x + dx <= x + dx + w <= width
        assert 0 <= y + dy <= y + dy + h <= height


def test_tooltips_say_why() -> None:
    text = to_svg(graphs.flow_network(saving(chain(), "c")))
    titles = [t.text or "" for t in ET.fromstring(text).iter(f"{SVG}title")]
    assert any("9 s" in t and "fc: recomputed" in t for t in titles)
    assert any("c: saved" in t for t in titles)
    assert any("never" in t and "fb: reads a when recomputed" in t for t in titles)


def test_the_valley_goes_down_and_up() -> None:
    root = ET.fromstring(to_svg(graphs.joint_graph(saving(chain(), "c"))))
    place: dict[str, tuple[float, float]] = {}
    for group in root.iter(f"{SVG}g"):
        rect, label = group.find(f"{SVG}rect"), group.findtext(f"{SVG}title", "").split("\n")[0]
        if rect is not None and label:
            place[label] = (float(rect.attrib["x"]), float(rect.attrib["y"]))
    assert place["fa"][1] < place["fb"][1] < place["fc"][1]
    assert place["c_back"][1] > place["b_back"][1] > place["a_back"][1]
    assert all(place[f"{n}_back"][0] > place[f"f{n}"][0] + 100 for n in "abc")


def wide(layers: int, width: int) -> nx.DiGraph:
    """A ladder with steps that skip layers."""
    graph = nx.DiGraph()
    for layer in range(layers):
        for i in range(width):
            graph.add_node(f"{layer}.{i}")
            for back in (1, 1 + i, 7 * i):
                if 0 < back <= layer:
                    graph.add_edge(f"{layer - back}.{(i * 5 + back) % width}", f"{layer}.{i}")
    return graph


@pytest.mark.parametrize(("layers", "width"), [(12, 5), (800, 5)])
def test_boxes_do_not_overlap_and_edges_go_down(layers: int, width: int) -> None:
    graph = wide(layers, width)
    layout = layered(graph, {n: 60.0 + len(n) for n in graph}, 30.0, {"0.0": 1})
    rows: dict[float, list[tuple[float, float]]] = {}
    for box in layout.boxes.values():
        assert 0 <= box.x - box.width / 2 <= box.x + box.width / 2 <= layout.width + 1e-6
        rows.setdefault(box.y, []).append((box.x - box.width / 2, box.x + box.width / 2))
    for row in rows.values():
        assert all(a[1] <= b[0] or b[1] <= a[0] for a, b in combinations(row, 2))
    for tail, head in graph.edges:
        assert layout.layers[tail] < layout.layers[head]
    for (tail, head), points in layout.lanes.items():
        assert len(points) == layout.layers[head] - layout.layers[tail] - 1
        heights = [layout.boxes[tail].y, *(y for _, y in points), layout.boxes[head].y]
        assert heights == sorted(heights)


def test_a_tree_is_drawn_without_crossings() -> None:
    """Children are given in an order that crosses; the sweeps undo it."""
    graph = nx.DiGraph([("r", "a"), ("r", "b"), ("b", "b1"), ("b", "b2"), ("a", "a1"), ("a", "a2")])
    boxes = layered(graph, dict.fromkeys(graph, 40.0), 30.0, {}).boxes
    for one, two in (("a", "b"), ("b", "a")):
        if boxes[one].x < boxes[two].x:
            assert max(boxes[f"{one}{i}"].x for i in (1, 2)) < min(
                boxes[f"{two}{i}"].x for i in (1, 2)
            )


def test_loose_parts_stand_where_they_run() -> None:
    """Ops that touch nothing else are not all put on top."""
    graph = nx.DiGraph()
    for i in range(10):
        nx.add_path(graph, [f"main{i}", f"main{i + 1}"])
        nx.add_path(graph, [f"count{i}", f"store{i}"])
    layers = layered(graph, dict.fromkeys(graph, 40.0), 30.0, {}).layers
    assert max(Counter(layers.values()).values()) <= 4
    assert layers["count1"] < layers["count8"]
