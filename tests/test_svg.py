"""Drawings as SVG: valid, complete, laid out without overlaps."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from xml.etree import ElementTree as ET

import networkx as nx
import pytest

from fxremat.inspect.drawings import folding, graphs
from fxremat.inspect.drawings.flows import flow_network
from fxremat.inspect.drawings.layout import SPAN, layered
from fxremat.inspect.drawings.svg import to_svg
from fxremat.problem.context import Origin
from fxremat.solver.seeds.cuts import just_in_time
from tests.drawn import ALL, plan_of, saving
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
    text = to_svg(flow_network(saving(chain(), "c")))
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
    widths = {n: 60.0 + len(n) for n in graph}
    layout = layered(graph, widths, {"0.0": 1})
    rows: dict[float, list[tuple[float, float]]] = {}
    for node, (x, y) in layout.centres.items():
        left, right = x - widths[node] / 2, x + widths[node] / 2
        assert -1e-6 <= left <= right <= layout.width + 1e-6
        rows.setdefault(y, []).append((left, right))
    for row in rows.values():
        assert all(a[1] <= b[0] or b[1] <= a[0] for a, b in combinations(row, 2))
    steps = sorted(rows)
    layer = {node: steps.index(y) for node, (_, y) in layout.centres.items()}
    broken = 0
    for tail, head in graph.edges:
        assert layer[tail] < layer[head]
        points = layout.lanes.get((tail, head), ())
        broken += bool(points)
        if layer[head] - layer[tail] <= SPAN:
            assert [y for _, y in points] == steps[layer[tail] + 1 : layer[head]]
    assert broken


def test_a_tree_is_drawn_without_crossings() -> None:
    """Children are given in an order that crosses; the sweeps undo it."""
    graph = nx.DiGraph([("r", "a"), ("r", "b"), ("b", "b1"), ("b", "b2"), ("a", "a1"), ("a", "a2")])
    place = layered(graph, dict.fromkeys(graph, 40.0), {}).centres
    first, last = sorted("ab", key=lambda n: place[n][0])
    assert max(place[f"{first}{i}"][0] for i in (1, 2)) < min(
        place[f"{last}{i}"][0] for i in (1, 2)
    )


def test_loose_parts_stand_where_they_run() -> None:
    """Ops that touch nothing else are not all put on top."""
    graph = nx.DiGraph()
    for i in range(10):
        nx.add_path(graph, [f"main{i}", f"main{i + 1}"])
        nx.add_path(graph, [f"count{i}", f"store{i}"])
    heights = {n: y for n, (_, y) in layered(graph, dict.fromkeys(graph, 40.0), {}).centres.items()}
    assert max(Counter(heights.values()).values()) <= 4
    assert heights["count1"] < heights["count8"]


# Folded by module.


def test_folding_keeps_all_that_crosses_the_cut() -> None:
    joint = graphs.joint_graph(half())
    cut = {v for *_, d in joint.edges(data=True) if d["kind"] == "saved" for v in d["values"]}
    graph = folding.folded(joint, {""})
    assert {n for n in graph if n.startswith("module:")} == {
        f"module:{m}:{half}" for m in ("layers", "mixes") for half in ("forward", "backward")
    }
    crossing = [d for *_, d in graph.edges(data=True) if d["kind"] == "saved"]
    assert {v for d in crossing for v in d["values"]} <= cut
    sizes = {v.name: v.nbytes for v in half().saved}
    assert all(d["bytes"] == sum(sizes[v] for v in d["values"]) for d in crossing)
    ops = [d for _, d in joint.nodes(data=True) if d["form"] == "op"]
    assert sum(d["seconds"] for _, d in graph.nodes(data=True)) == pytest.approx(
        sum(d["seconds"] for d in ops)
    )


def test_inside_a_module_are_its_parts_and_what_they_touch() -> None:
    joint = graphs.joint_graph(half())
    graph = folding.folded(joint, {"", "layers", "layers.1"}, "layers.1")
    names = set(graph)
    assert {"module:layers.1.0:forward", "module:layers.1.1:backward"} <= names
    assert "module:mixes:forward" in names  # it reads what the module makes
    assert not any(n.startswith("module:layers.3") for n in names)
    everything = folding.folded(
        joint,
        {d["module"] for _, d in joint.nodes(data=True)}
        | {"", "layers", "mixes"}
        | {f"layers.{i}" for i in range(4)},
    )
    assert set(everything) == {n for n, form in joint.nodes(data="form") if form == "op"}


def test_a_module_that_runs_twice_is_drawn_with_an_edge_back() -> None:
    origins = {n: Origin("toy", "", "again") for n in ("fa", "fc")}
    problem = chain()
    plan = plan_of(problem, just_in_time(problem, set()), origins)
    graph = folding.folded(graphs.joint_graph(plan), {""})
    assert graph.edges["op:fb", "module:again:forward"]["back"]
    assert not graph.edges["module:again:forward", "op:fb"]["back"]
    ET.fromstring(to_svg(graph))
