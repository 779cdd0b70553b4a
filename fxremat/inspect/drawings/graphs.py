"""A plan as networkx graphs: the joint graph with the cut, and its halves as the plan runs them.

Nodes are named ``op:NAME`` and ``value:NAME``. Every node has the attributes ``label``, ``form``
("op", "value" or "hub"), ``kind`` (see :data:`fxremat.inspect.drawings.style.NODES`), ``bytes`` of
what it makes, ``seconds`` of one run, ``runs`` beyond what every plan must do, ``module``,
``facts``, a line of text, and ``tip``: all that is known, in lines. Every edge has ``kind`` (see
:data:`fxremat.inspect.drawings.style.EDGES`), ``values``, ``bytes``, ``cut``, ``facts``, ``tip``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import networkx as nx

from fxremat.inspect.drawings.attributes import edge, op_kind, op_node, value_node
from fxremat.inspect.step import PlannedStep
from fxremat.plans.plan import Plan
from fxremat.plans.words import headline
from fxremat.problem.types import Kind, Phase

__all__ = ["HALVES", "backward_graph", "forward_graph", "joint_graph"]


def joint_graph(plan: Plan, step: PlannedStep | None = None) -> nx.DiGraph:
    """The joint graph as it was traced, with the cut that the plan makes.

    One node an op, inputs and tangents; ``half`` says where it stands. An edge has ``cut`` if the
    backward, or an op that it runs again, reads the saved copy of a computed value there.

    Args:
        plan: the plan.
        step: what the plan runs, if that has been read off it already.
    """
    step = step or PlannedStep(plan)
    graph = _empty("joint", "Joint graph: what is saved, what is recomputed", plan)
    positions: dict[int, list[int]] = {}
    for position, index in enumerate(step.schedule):
        positions.setdefault(index, []).append(position)
    shown = _shown(step)
    for index in shown:
        op = step.problem.ops[index]
        late = index in positions and op.phase is not Phase.FORWARD and index not in step.in_forward
        graph.add_node(f"op:{op.name}", **op_node(step, index, half=HALVES[late]))
    for index in shown:
        _joint_edges(graph, step, index, positions.get(index, ()))
    for node, form in list(graph.nodes(data="form")):
        if form == "value":
            readers = {graph.nodes[reader]["half"] for reader in graph.succ[node]}
            graph.nodes[node]["half"] = HALVES["forward" not in readers]
    return graph


HALVES = ("forward", "backward")


def _shown(step: PlannedStep) -> list[int]:
    """All ops but the one that only returns the gradients.

    REPLAY_SUPPORT ops are no part of what was traced: they are left out where the plan does not run
    them.
    """
    ops, ran = step.problem.ops, step.in_forward
    known = (*step.problem.forward, *step.problem.backward)
    found = (i for i in known if ops[i].phase is not Phase.REPLAY_SUPPORT or i in ran)
    return [i for i in found if i not in step.returning]


def _joint_edges(graph: nx.DiGraph, step: PlannedStep, index: int, runs: Sequence[int]) -> None:
    """Add what an op reads, one edge for each op that makes any of it."""
    op, producer = step.problem.ops[index], step.problem.producer
    head = f"op:{op.name}"
    read = dict.fromkeys([*op.inputs, *(op.replay_inputs if runs else ())])
    kinds = {value: _kind(step, value, runs) for value in read}
    order = ("saved", "held", "recomputed", "value", "given")
    by_maker = sorted(read, key=lambda v: (producer[v], order.index(kinds[v])))
    for maker, made in groupby(by_maker, key=producer.__getitem__):
        values = list(made)
        if maker >= 0:
            tail = f"op:{step.problem.ops[maker].name}"
            graph.add_edge(tail, head, **edge(step, values, kinds[values[0]]))
            continue
        for value in values:
            graph.add_edge(_given(graph, step, value), head, **edge(step, [value], "given"))


def _kind(step: PlannedStep, value: int, positions: Sequence[int]) -> str:
    """What the edge of a value is to an op that the backward runs at these positions."""
    known = step.problem.values[value]
    if known.kind is not Kind.COMPUTED:
        return "given"
    made = [step.reads[p][value] for p in positions]
    if any(start < 0 for start in made):
        return "held" if known.is_output else "saved"
    again = step.problem.producer[value] in step.runs
    return "recomputed" if made and again else "value"


def forward_graph(plan: Plan, step: PlannedStep | None = None) -> nx.DiGraph:
    """The forward as the plan runs it, one node an op, in order; see :func:`joint_graph`."""
    step = step or PlannedStep(plan)
    graph = _empty("forward", "Forward: what it hands on", plan)
    for position, index in enumerate(step.forward):
        op = step.problem.ops[index]
        graph.add_node(f"op:{op.name}", **op_node(step, index, position=position))
        for value in op.inputs:
            maker = step.problem.producer[value]
            made = f"op:{step.problem.ops[maker].name}" if maker >= 0 else ""
            _join(graph, step, made or _given(graph, step, value), f"op:{op.name}", value)
    return graph


def backward_graph(plan: Plan, step: PlannedStep | None = None) -> nx.DiGraph:
    """The backward as the plan runs it, one node a run, in order; see :func:`joint_graph`.

    The second run of an op is ``op:NAME #2``. What is saved, held or handed in has its own node.
    """
    step = step or PlannedStep(plan)
    graph = _empty("backward", "Backward: what is read, what is computed again", plan)
    seen: dict[int, int] = {}
    nodes: list[str] = []
    for position, index in enumerate(i for i in step.schedule if i not in step.returning):
        op = step.problem.ops[index]
        seen[index] = seen.get(index, 0) + 1
        label = op.name if seen[index] == 1 else f"{op.name} #{seen[index]}"
        first = op.phase is Phase.DEFERRABLE and seen[index] == 1 and index not in step.in_forward
        kind = "late" if first else op_kind(step, index)
        nodes.append(f"op:{label}")
        graph.add_node(nodes[-1], **op_node(step, index, kind, label=label, position=position))
        for value, start in step.reads[position].items():
            tail = nodes[start] if start >= 0 else _given(graph, step, value)
            _join(graph, step, tail, nodes[-1], value)
    return graph


def _given(graph: nx.DiGraph, step: PlannedStep, value: int) -> str:
    """The node of a value that is there without any op of this graph."""
    name = f"value:{step.problem.values[value].name}"
    if name not in graph:
        graph.add_node(name, **value_node(step, value))
    return name


def _join(graph: nx.DiGraph, step: PlannedStep, tail: str, head: str, value: int) -> None:
    """Add a value to the edge between two nodes of one half."""
    drawn = graph.nodes[tail]
    kind = {"saved": "saved", "output": "held"}.get(drawn["kind"], "given")
    if drawn["form"] == "op":
        again = drawn["kind"] == "recomputed" and graph.name == "backward"
        kind = "recomputed" if again else "value"
    found = graph.edges[tail, head]["values"] if graph.has_edge(tail, head) else ()
    values = [*(step.context.value_index[v] for v in found), value]
    graph.add_edge(tail, head, **edge(step, values, kind))


def _empty(name: str, title: str, plan: Plan) -> nx.DiGraph:
    return nx.DiGraph(name=name, title=title, notes=headline(plan))
