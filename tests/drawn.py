"""Plans to draw, and the graphs of them, for tests of drawings."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx

from fxremat.inspect.drawings import graphs
from fxremat.inspect.drawings.flows import flow_network
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context, Origin
from fxremat.problem.types import Problem
from fxremat.solver.pareto import Point
from fxremat.solver.seeds.cuts import just_in_time
from tests.problems import chain

ALL = [graphs.joint_graph, flow_network, graphs.forward_graph, graphs.backward_graph]
NASTY = 'a"b\\n\\<&>]]>\x07\nλ'


def plan_of(
    problem: Problem, schedule: list[int], origins: dict[str, Origin] | None = None
) -> Plan:
    planner = Planner(Context(problem, origins or {}), "toy")
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


def nasty() -> Plan:
    origins = {"a": Origin("aten.x", "f32[1]", NASTY + ".0", NASTY, NASTY), "fa": Origin(NASTY, "")}
    problem = chain()
    values = tuple(replace(v, name=NASTY) if v.name == "b" else v for v in problem.values)
    return plan_of(
        replace(problem, values=values), just_in_time(problem, {problem.ops[0].outputs[0]}), origins
    )
