"""Drawings as graphs: they say what the plan does."""

from __future__ import annotations

import math
import re
from collections import Counter
from xml.etree import ElementTree as ET

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxremat.inspect.drawings import graphs
from fxremat.inspect.drawings.dot import to_dot
from fxremat.inspect.drawings.flows import flow_network
from fxremat.inspect.drawings.style import EDGES, NODES
from fxremat.inspect.drawings.svg import to_svg
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.problem.replay import replay
from fxremat.problem.types import Phase, Problem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.seeds.cuts import just_in_time
from tests.drawn import ALL, edges, kinds, plan_of, saving, twice
from tests.graphviz import statements
from tests.problems import BEST, chain, either, flat_prices, held, two_outputs
from tests.steps import curve, half
from tests.strategies import problems

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
    cut = Cutter(problem).cut(flat_prices(problem))
    plan = plan_of(problem, just_in_time(problem, set(cut.saved)))
    graph = flow_network(plan)
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
    graph = flow_network(twice())
    assert graph.edges["source", "op:fa"]["times"] == 3
    assert graph.edges["source", "op:fc"]["times"] == 1
    assert graph.graph["paid"] == 3 * 1 + 2 * 2 + 9


def test_the_price_is_that_of_the_bound() -> None:
    plan = half()
    graph = flow_network(plan)
    dual = Planner.of(plan).solver.bound.at(plan.predicted_peak)
    assert graph.graph["price"] == dual.price > 0
    assert any("lower bound" in note for note in graph.graph["notes"])
    spare = flow_network(curve()[0])
    assert 0 < spare.graph["price"] < dual.price / 100
    assert any("not short" in note for note in spare.graph["notes"])


# All of them, for any plan.


@settings(max_examples=80)
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
    assert [re.sub(r" #\d+$", "", n[3:]) for n in runs] == list(plan.backward_schedule)[:-1]
    entering = {d["label"] for _, d in backward.nodes(data=True) if d["kind"] == "saved"} & {
        v.name for v in problem.values
    }
    assert {
        n[6:] for n, k in kinds(backward).items() if n[:6] == "value:" and k == "saved"
    } == named
    assert entering >= named

    network = flow_network(plan)
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


@settings(max_examples=40)
@given(problems(either=False, early=False), st.data())
def test_what_is_paid_is_time_and_bytes(problem: Problem, data: st.DataObject) -> None:
    """Also where ops run again more than once."""
    schedule = list(just_in_time(problem, data.draw(st.sets(st.integers(0, 9)))))
    for index in data.draw(st.lists(st.sampled_from(problem.forward), max_size=3)):
        schedule.insert(0, index)
    plan = plan_of(problem, schedule)
    graph = flow_network(plan)
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
