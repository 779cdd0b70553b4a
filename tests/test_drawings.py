"""Drawings: graphs that say what the plan does, as graphviz's text, as SVG, and charts."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxremat.detail import Detail, Origin
from fxremat.drawings import charts, graphs
from fxremat.drawings.dot import quote, to_dot
from fxremat.drawings.layout import layered
from fxremat.drawings.levels import baseline_levels, thinned
from fxremat.drawings.style import EDGES, NODES
from fxremat.drawings.svg import to_svg
from fxremat.errors import OptionError
from fxremat.explain import Explainer
from fxremat.mincut import minimum_cut
from fxremat.planner import Planner
from fxremat.plans import Plan
from fxremat.problem import Kind, Phase, Problem
from fxremat.solvers.pool import Point
from fxremat.solvers.starts import just_in_time
from fxremat.timeline import replay
from tests.problems import BEST, chain, either, flat_prices, held, two_outputs
from tests.steps import curve, half
from tests.strategies import problems

SVG = "{http://www.w3.org/2000/svg}"
ALL = [graphs.joint_graph, graphs.flow_network, graphs.forward_graph, graphs.backward_graph]


def plan_of(
    problem: Problem, schedule: list[int], origins: dict[str, Origin] | None = None
) -> Plan:
    planner = Planner(Detail(problem, origins or {}), "toy")
    return planner.plan(Point.of(problem, schedule), None)


def saving(problem: Problem, *names: str) -> Plan:
    """The plan that saves these and rebuilds the rest once."""
    kept = {i for i, v in enumerate(problem.values) if v.name in names}
    return plan_of(problem, just_in_time(problem, kept))


def index_of(problem: Problem, *names: str) -> list[int]:
    known = {op.name: i for i, op in enumerate(problem.ops)}
    return [known[name] for name in names]


def twice() -> Plan:
    """The chain with nothing saved: a is built for c, b and itself, b for c and itself."""
    problem = chain()
    runs = ["fa", "fb", "fc", "c_back", "fa", "fb", "b_back", "fa", "a_back", "output"]
    return plan_of(problem, index_of(problem, *runs))


def kinds(graph: nx.DiGraph) -> dict[str, str]:
    return dict(graph.nodes(data="kind"))


def edges(graph: nx.DiGraph, kind: str) -> set[tuple[str, str]]:
    return {(tail, head) for tail, head, k in graph.edges(data="kind") if k == kind}


# The joint graph.


def test_joint_graph_by_hand() -> None:
    """With c saved, b is made again by fa and fb, and a with it."""
    graph = graphs.joint_graph(saving(chain(), "c"))
    found = kinds(graph)
    assert [found[f"op:{n}"] for n in ("fa", "fb", "fc")] == ["recomputed", "recomputed", "saved"]
    assert found["op:a_back"] == "gradient"  # it is what the backward returns
    assert found["op:b_back"] == "backward"
    assert found["value:t"] == "tangent"
    assert "op:output" not in graph
    assert edges(graph, "saved") == {("op:fc", "op:c_back")}
    assert edges(graph, "recomputed") == {
        ("op:fb", "op:b_back"),
        ("op:fa", "op:a_back"),
        ("op:fa", "op:fb"),
    }
    assert edges(graph, "value") == {
        ("op:fb", "op:fc"),
        ("op:c_back", "op:b_back"),
        ("op:b_back", "op:a_back"),
    }
    assert graph.edges["op:fc", "op:c_back"]["bytes"] == 3
    assert graph.nodes["op:fa"]["half"] == "forward"
    assert graph.nodes["op:b_back"]["half"] == graph.nodes["value:t"]["half"] == "backward"


def test_ops_of_the_inputs_alone_stand_where_they_run() -> None:
    late = graphs.joint_graph(saving(either(), "y"))
    assert late.nodes["op:slope"]["half"] == "backward"
    assert late.nodes["op:slope"]["kind"] == "late"
    early = graphs.joint_graph(saving(either(), "e"))
    assert early.nodes["op:slope"]["half"] == "forward"
    assert early.nodes["op:slope"]["kind"] == "saved"
    assert edges(early, "saved") == {("op:slope", "op:y_back")}


def test_outputs_cross_the_cut_for_nothing() -> None:
    graph = graphs.joint_graph(saving(held(), "y"))
    assert edges(graph, "held") == {("op:fy", "op:fz"), ("op:fy", "op:z_back")}
    assert graph.nodes["op:fy"]["kind"] == "output"


def test_an_edge_stands_for_all_that_one_op_hands_to_another() -> None:
    problem = two_outputs()
    graph = graphs.joint_graph(saving(problem, "p", "q", "u"))
    (out,) = [d for *_, d in graph.edges(data=True) if d["values"] == ("p",)]
    assert (out["kind"], out["bytes"]) == ("saved", 3)


# The halves.


def test_each_run_is_a_node_of_the_backward() -> None:
    graph = graphs.backward_graph(twice())
    runs = [n for n in graph if n.startswith("op:")]
    assert runs == [
        f"op:{n}"
        for n in ("fa", "fb", "fc", "c_back", "fa #2", "fb #2", "b_back", "fa #3", "a_back")
    ]
    assert set(graph.pred["op:fb #2"]) == {"op:fa #2"}
    assert set(graph.pred["op:a_back"]) == {"op:fa #3", "op:b_back", "value:x"}
    assert graph.nodes["op:fa #3"]["kind"] == "recomputed"
    assert graph.nodes["op:fa #3"]["runs"] == 3
    assert "value:a" not in graph


def test_saved_values_enter_the_backward() -> None:
    graph = graphs.backward_graph(saving(chain(), "c"))
    assert graph.nodes["value:c"]["kind"] == "saved"
    assert set(graph.succ["value:c"]) == {"op:c_back"}
    assert graph.edges["value:c", "op:c_back"]["cut"]
    assert edges(graph, "recomputed") >= {("op:fa", "op:fb"), ("op:fb", "op:b_back")}


def test_the_forward_runs_hoisted_ops() -> None:
    graph = graphs.forward_graph(saving(either(), "e"))
    assert [n for n in graph if n.startswith("op:")] == ["op:matmul", "op:tanh", "op:slope"]
    assert graph.nodes["op:slope"]["kind"] == "saved"
    assert set(graph.pred["op:slope"]) == {"op:tanh"}


# The flow network.


@pytest.mark.parametrize(
    ("make", "saved", "again", "value"), BEST, ids=[best[0].__name__ for best in BEST]
)
def test_paid_arcs_by_hand(make: object, saved: set[str], again: set[str], value: float) -> None:
    assert callable(make)
    problem: Problem = make()
    cut = minimum_cut(problem, flat_prices(problem))
    plan = plan_of(problem, just_in_time(problem, set(cut.saved)))
    graph = graphs.flow_network(plan)
    paid = {(t, h) for t, h, d in graph.edges(data=True) if d["paid"]}
    ops = {h for t, h in paid if t == "source" and h.startswith("op:")}
    values = {h for t, h in paid if t.startswith("op:")}
    assert ops == {f"op:{n}" for n in again}
    assert values == {f"value:{n}" for n in saved}
    # What the cut costs at its own prices, from the arcs of ours.
    seconds = math.fsum(graph.edges["source", op]["capacity"] for op in ops)
    nbytes = sum(graph.nodes[v]["bytes"] for v in values if graph.nodes[v]["kind"] != "output")
    assert seconds + nbytes == value


def test_a_repeat_is_paid_each_time() -> None:
    graph = graphs.flow_network(twice())
    assert graph.edges["source", "op:fa"]["times"] == 3
    assert graph.edges["source", "op:fc"]["times"] == 1
    assert graph.graph["paid"] == 3 * 1 + 2 * 2 + 9


def test_the_price_is_that_of_the_bound() -> None:
    plan = half()
    graph = graphs.flow_network(plan)
    dual = Planner.of(plan).solver.bound.at(plan.predicted_peak)
    assert graph.graph["price"] == dual.price > 0
    assert any("lower bound" in note for note in graph.graph["notes"])
    spare = graphs.flow_network(curve()[0])
    assert 0 < spare.graph["price"] < dual.price / 100
    assert any("not short" in note for note in spare.graph["notes"])


# All of them, for any plan.


@settings(max_examples=80, deadline=None)
@given(problems(rules=False), st.data())
def test_graphs_agree_with_the_replay(problem: Problem, data: st.DataObject) -> None:
    count = st.integers(0, len(problem.values) - 1)
    kept = data.draw(st.sets(count, max_size=len(problem.values)))
    schedule = just_in_time(problem, kept)
    line = replay(problem, schedule)
    plan = plan_of(problem, schedule)
    named = {problem.values[v].name for v in line.saved}

    joint = graphs.joint_graph(plan)
    crossing = {v for *_, d in joint.edges(data=True) if d["kind"] == "saved" for v in d["values"]}
    # An edge of several values has the kind of the one that matters most.
    assert crossing >= named
    assert {n for n, k in kinds(joint).items() if k == "recomputed"} == {
        f"op:{name}" for name in plan.repeats
    }

    forward = graphs.forward_graph(plan)
    assert [forward.nodes[n]["label"] for n in forward if n[:3] == "op:"] == list(plan.forward)

    backward = graphs.backward_graph(plan)
    runs = [n for n in backward if n.startswith("op:")]
    assert [re.sub(r" #\d+$", "", n[3:]) for n in runs] == list(plan.schedule)[:-1]
    entering = {d["label"] for _, d in backward.nodes(data=True) if d["kind"] == "saved"} & {
        v.name for v in problem.values
    }
    assert {
        n[6:] for n, k in kinds(backward).items() if n[:6] == "value:" and k == "saved"
    } == named
    assert entering >= named

    network = graphs.flow_network(plan)
    sides = dict(network.nodes(data="side"))
    again = Counter(op for op in schedule if problem.ops[op].phase is not Phase.BACKWARD)
    for tail, head, arc in network.edges(data=True):
        crosses = sides[tail] == "source" and sides[head] == "sink"
        assert crosses <= arc["paid"], (tail, head)
        assert not (crosses and math.isinf(arc["capacity"])), (tail, head)
    assert {n for n, s in sides.items() if s == "sink" and n[:3] == "op:"} <= {
        f"op:{problem.ops[op].name}" for op in again
    }
    for graph in (joint, network, forward, backward):
        assert nx.is_directed_acyclic_graph(graph)
        assert set(kinds(graph).values()) <= set(NODES)
        assert {k for *_, k in graph.edges(data="kind")} <= set(EDGES)
        ET.fromstring(to_svg(graph))
        statements(to_dot(graph))


@settings(max_examples=40, deadline=None)
@given(problems(either=False, early=False), st.data())
def test_what_is_paid_is_time_and_bytes(problem: Problem, data: st.DataObject) -> None:
    """Also where ops run again more than once."""
    schedule = list(just_in_time(problem, data.draw(st.sets(st.integers(0, 9)))))
    for index in data.draw(st.lists(st.sampled_from(problem.forward), max_size=3)):
        schedule.insert(0, index)
    plan = plan_of(problem, schedule)
    graph = graphs.flow_network(plan)
    drawn = {h[3:] for t, h in graph.edges if t == "source"}
    names = Counter(name for name in plan.recomputed if name in drawn)
    seconds = {op.name: op.seconds for op in problem.ops}
    want = math.fsum(n * seconds[name] for name, n in names.items())
    values = {v.name for v in plan.saved} & {n[6:] for n in graph if n[:6] == "value:"}
    want += graph.graph["price"] * sum(v.nbytes for v in plan.saved if v.name in values)
    assert math.isclose(graph.graph["paid"], want, rel_tol=1e-9, abs_tol=1e-12)


def test_a_plan_from_a_file_draws_the_same() -> None:
    again = Plan.from_json(half().to_json())
    for make in ALL:
        assert to_dot(make(half())) == to_dot(make(again))
        assert to_svg(make(half())) == to_svg(make(again))


def test_a_plan_without_detail_cannot_be_drawn() -> None:
    for make in ALL:
        with pytest.raises(OptionError, match="holds no detail"):
            make(replace(half(), detail=None))


# Graphviz's language.

TOKEN = re.compile(r'\s*(?:("(?:[^"\\\n]|\\.)*")|([A-Za-z_]\w*|-?\d+(?:\.\d+)?)|(->|[{}\[\];,=]))')


def tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        assert match is not None, text[at : at + 60]
        found.append(match.group(0).strip())
        at = match.end()
    return found


def statements(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Nodes and edges of a text in the part of graphviz's grammar that is written; strict."""
    left = tokens(text)
    nodes: list[str] = []
    arrows: list[tuple[str, str]] = []

    def take(*wanted: str) -> str:
        token = left.pop(0)
        assert not wanted or token in wanted, (token, left[:5])
        return token

    def name() -> str:
        token = take()
        assert re.fullmatch(r'".*"|\w+|-?[\d.]+', token, re.DOTALL), token
        return token

    def attributes() -> None:
        take("[")
        while True:
            name()
            take("=")
            name()
            if take(",", "]") == "]":
                return

    def block() -> None:
        take("{")
        while left[0] != "}":
            if left[0] == "subgraph":
                take()
                name()
                block()
                continue
            first = name()
            if left[0] == "->":
                take()
                arrows.append((first, name()))
            elif first not in ("graph", "node", "edge"):
                nodes.append(first)
            attributes()
            take(";")
        take("}")

    take("digraph")
    name()
    block()
    assert not left
    return nodes, arrows


@pytest.mark.parametrize("make", ALL)
def test_dot_has_each_node_and_edge_once(make: object) -> None:
    assert callable(make)
    graph: nx.DiGraph = make(half())
    nodes, arrows = statements(to_dot(graph))
    assert sorted(nodes) == sorted(quote(n) for n in graph)
    assert sorted(arrows) == sorted((quote(t), quote(h)) for t, h in graph.edges)


NASTY = 'a"b\\n\\<&>]]>\x07\nλ'


def nasty() -> Plan:
    origins = {"a": Origin("aten.x", "f32[1]", NASTY + ".0", NASTY, NASTY), "fa": Origin(NASTY, "")}
    problem = chain()
    values = tuple(replace(v, name=NASTY) if v.name == "b" else v for v in problem.values)
    return plan_of(
        replace(problem, values=values), just_in_time(problem, {problem.ops[0].outputs[0]}), origins
    )


@pytest.mark.parametrize("make", ALL)
def test_odd_names_do_no_harm(make: object) -> None:
    assert callable(make)
    graph: nx.DiGraph = make(nasty())
    nodes, _ = statements(to_dot(graph))
    assert len(nodes) == len(graph)
    ET.fromstring(to_svg(graph))


def test_quoting() -> None:
    assert quote('say "x\\"') == '"say \\"x\\\\\\""'
    assert quote("two\nlines") == '"two\\nlines"'
    assert quote("bell\x07") == '"bell "'


# SVG.


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


# Charts.


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_charts_are_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    for name in ("one", "two"):
        charts.timeline_chart(half(), tmp_path / f"{name}t{suffix}")
        charts.frontier_chart(curve(), tmp_path / f"{name}f{suffix}", half())
    for kind in "tf":
        one, two = ((tmp_path / f"{n}{kind}{suffix}").read_bytes() for n in ("one", "two"))
        assert one == two
        assert one.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


def test_charts_say_what_they_show(tmp_path: Path) -> None:
    charts.timeline_chart(half(), tmp_path / "t.svg")
    charts.frontier_chart(curve(), tmp_path / "f.svg", half())
    timeline, frontier = ((tmp_path / f"{n}.svg").read_text() for n in "tf")
    for word in ("saved", "recomputed", "gradients", "without recomputing", "budget", "forward"):
        assert f">{word}" in timeline.replace("> ", ">"), word
    for word in ("knee", "this plan", "full", "sqrt", "selective", "no plan can be here"):
        assert word in frontier, word


ELSEWHERE = """
import sys, matplotlib
from pathlib import Path
from fxremat.plans import Plan
from fxremat.drawings import charts, graphs, dot, svg
folder = Path(sys.argv[1])
plan = Plan.load(folder / "plan.json")
matplotlib.rcParams["font.size"] = 31.0
charts.timeline_chart(plan, folder / "timeline.svg")
print(matplotlib.rcParams["font.size"], "matplotlib.pyplot" in sys.modules)
for make in (graphs.joint_graph, graphs.flow_network, graphs.backward_graph):
    graph = make(plan)
    (folder / f"{graph.name}.txt").write_text(dot.to_dot(graph) + svg.to_svg(graph))
"""


def test_another_process_draws_the_same(tmp_path: Path) -> None:
    """Whatever its hash seed and its user's settings for charts; these and windows stay alone."""
    half().save(tmp_path / "plan.json")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["31.0", "False"]
    charts.timeline_chart(half(), tmp_path / "here.svg")
    assert (tmp_path / "timeline.svg").read_bytes() == (tmp_path / "here.svg").read_bytes()
    for make in (graphs.joint_graph, graphs.flow_network, graphs.backward_graph):
        graph = make(half())
        assert (tmp_path / f"{graph.name}.txt").read_text() == to_dot(graph) + to_svg(graph)


def test_charts_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draws: list[Callable[[], None]] = [
        lambda: charts.timeline_chart(half(), tmp_path / "t.svg"),
        lambda: charts.frontier_chart(curve(), tmp_path / "f.svg"),
    ]
    for draw in draws:
        with pytest.raises(OptionError, match=r"pip install fxremat\[pictures\]"):
            draw()


def test_charts_refuse_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"an \.svg or a \.png"):
        charts.timeline_chart(half(), tmp_path / "t.pdf")
    with pytest.raises(OptionError, match="cannot be written"):
        charts.frontier_chart(curve(), tmp_path / "none" / "f.svg")


@pytest.mark.parametrize("most", [10, 37, 10_000])
def test_bands_add_up_to_the_levels(most: int) -> None:
    line = Explainer(half()).occupancy
    bands = thinned(line, most)
    assert len(bands.positions) <= max(most, 2)
    assert line.peak in bands.positions or max(line.levels[p] for p in bands.positions) == max(
        line.levels
    )
    for i, position in enumerate(bands.positions):
        total = sum(levels[i] for levels in bands.parts.values()) + bands.workspace[i]
        assert total == line.levels[position]


def test_the_baseline_stands_over_the_plan() -> None:
    plan = half()
    found = baseline_levels(plan)
    assert max(n for _, n in found) == plan.baseline_peak
    positions = [p for p, _ in found]
    assert positions == sorted(set(positions))
    assert positions[-1] == len(plan.forward) + len(plan.schedule) - 1


def test_inputs_and_tangents_have_words_for_their_kinds() -> None:
    assert {str(k) for k in Kind if k is not Kind.COMPUTED} <= set(NODES)
