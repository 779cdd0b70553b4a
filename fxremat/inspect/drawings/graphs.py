"""A plan as networkx graphs: the joint graph with the cut, and its halves as the plan runs them.

Nodes are named ``op:NAME`` and ``value:NAME``. Every node has the attributes ``label``, ``form``
("op", "value" or "hub"), ``kind`` (see :data:`fxremat.inspect.drawings.style.NODES`), ``bytes`` of
what it makes, ``seconds`` of one run, ``runs`` beyond what every plan must do, ``op``, ``shape``,
``module``, ``source``, ``reason`` and ``facts``, a line of text. Every edge has ``kind`` (see
:data:`fxremat.inspect.drawings.style.EDGES`), ``values``, ``bytes``, ``cut``, ``reason`` and
``facts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import networkx as nx

from fxremat.inspect.drawings.facts import Facts
from fxremat.inspect.drawings.flows import flow_network
from fxremat.inspect.explain import Explainer
from fxremat.plans.plan import Plan
from fxremat.problem.types import Kind, Phase

__all__ = ["backward_graph", "flow_network", "forward_graph", "joint_graph"]


def joint_graph(plan: Plan, explainer: Explainer | None = None) -> nx.DiGraph:
    """The joint graph as it was traced, with the cut that the plan makes.

    One node an op, inputs and tangents; ``half`` says where it stands. An edge has ``cut`` if the
    backward, or an op that it runs again, reads the saved copy of a computed value there.

    Args:
        plan: a plan with its context.
        explainer: one of that plan, if there is one already.

    Raises:
        OptionError: if the plan has no context.
    """
    facts = Facts(plan, explainer)
    graph = _empty("joint", "Joint graph: what is saved, what is recomputed", facts)
    problem = facts.problem
    positions = _positions(facts.schedule)
    shown = _shown(facts)
    for index in shown:
        late = index in positions and problem.ops[index].phase is not Phase.FORWARD
        half = "backward" if late and index not in facts.in_forward else "forward"
        graph.add_node(f"op:{problem.ops[index].name}", **facts.op_node(index, half=half))
    for index in shown:
        _joint_edges(graph, facts, index, positions.get(index, ()))
    for node, form in list(graph.nodes(data="form")):
        if form == "value":
            readers = {graph.nodes[reader]["half"] for reader in graph.succ[node]}
            graph.nodes[node]["half"] = "forward" if "forward" in readers else "backward"
    return graph


def _shown(facts: Facts) -> list[int]:
    """All ops but the one that only returns the gradients.

    REPLAY_SUPPORT ops are no part of what was traced: they are left out where the plan does not run
    them.
    """
    problem = facts.problem
    ran = facts.in_forward
    return [
        index
        for index in (*problem.forward, *problem.backward)
        if index not in facts.returning
        and (problem.ops[index].phase is not Phase.REPLAY_SUPPORT or index in ran)
    ]


def _joint_edges(graph: nx.DiGraph, facts: Facts, index: int, positions: Sequence[int]) -> None:
    """Add what an op reads, one edge for each op that makes any of it."""
    op = facts.problem.ops[index]
    head = f"op:{op.name}"
    read = [*op.inputs, *(op.replay_inputs if positions else ())]
    read = list(dict.fromkeys(read))
    kinds = {value: _kind(facts, value, positions) for value in read}
    order = ("saved", "held", "recomputed", "value", "given")
    by_maker = sorted(read, key=lambda v: (facts.problem.producer[v], order.index(kinds[v])))
    for maker, made in groupby(by_maker, key=lambda v: facts.problem.producer[v]):
        values = list(made)
        if maker >= 0:
            kind = kinds[values[0]]
            edge = facts.edge(values, kind, cut=kind in ("saved", "held"))
            graph.add_edge(f"op:{facts.problem.ops[maker].name}", head, **edge)
            continue
        for value in values:
            tail = _given(graph, facts, value)
            graph.add_edge(tail, head, **facts.edge([value], "given"))


def _kind(facts: Facts, value: int, positions: Sequence[int]) -> str:
    """What the edge of a value is to an op that the backward runs at these positions."""
    known = facts.problem.values[value]
    if known.kind is not Kind.COMPUTED:
        return "given"
    made = [facts.reads[p][value] for p in positions]
    if any(start < 0 for start in made):
        return "held" if known.is_output else "saved"
    again = facts.problem.producer[value] in facts.runs
    return "recomputed" if made and again else "value"


def _given(graph: nx.DiGraph, facts: Facts, value: int) -> str:
    """The node of a value that is there without any op of this graph."""
    known = facts.problem.values[value]
    name = f"value:{known.name}"
    if name not in graph:
        graph.add_node(name, **facts.value_node(value))
    return name


def forward_graph(plan: Plan, explainer: Explainer | None = None) -> nx.DiGraph:
    """The forward as the plan runs it, one node an op, in order.

    Args:
        plan: a plan with its context.
        explainer: one of that plan, if there is one already.

    Raises:
        OptionError: if the plan has no context.
    """
    facts = Facts(plan, explainer)
    graph = _empty("forward", "Forward: what it hands on", facts)
    for position, index in enumerate(facts.forward):
        op = facts.problem.ops[index]
        graph.add_node(f"op:{op.name}", **facts.op_node(index, position=position))
        for value in op.inputs:
            maker = facts.problem.producer[value]
            tail = f"op:{facts.problem.ops[maker].name}" if maker >= 0 else None
            _join(graph, facts, tail or _given(graph, facts, value), f"op:{op.name}", value)
    return graph


def _join(graph: nx.DiGraph, facts: Facts, tail: str, head: str, value: int) -> None:
    """Add a value to the edge between two nodes."""
    drawn = graph.nodes[tail]
    kind = {"saved": "saved", "output": "held"}.get(drawn["kind"], "given")
    if drawn["form"] == "op":
        kind = "recomputed" if drawn["kind"] == "recomputed" else "value"
    if graph.name == "forward" and kind == "recomputed":
        kind = "value"
    found = graph.edges[tail, head]["values"] if graph.has_edge(tail, head) else ()
    values = [*(facts.context.value_index[v] for v in found), value]
    graph.add_edge(tail, head, **facts.edge(values, kind, cut=kind in ("saved", "held")))


def backward_graph(plan: Plan, explainer: Explainer | None = None) -> nx.DiGraph:
    """The backward as the plan runs it, one node a run, in order.

    The second run of an op is ``op:NAME #2``. What is saved, held or handed in has its own node.

    Args:
        plan: a plan with its context.
        explainer: one of that plan, if there is one already.

    Raises:
        OptionError: if the plan has no context.
    """
    facts = Facts(plan, explainer)
    graph = _empty("backward", "Backward: what is read, what is computed again", facts)
    seen: dict[int, int] = {}
    nodes: list[str] = []
    for position, index in enumerate(facts.schedule):
        op = facts.problem.ops[index]
        seen[index] = seen.get(index, 0) + 1
        label = op.name if seen[index] == 1 else f"{op.name} #{seen[index]}"
        node = f"op:{label}"
        first = op.phase is Phase.DEFERRABLE and seen[index] == 1 and index not in facts.in_forward
        kind = "late" if first else facts.op_kind(index)
        graph.add_node(node, **facts.op_node(index, label=label, position=position, kind=kind))
        nodes.append(node)
        for value, start in facts.reads[position].items():
            tail = nodes[start] if start >= 0 else _given(graph, facts, value)
            _join(graph, facts, tail, node, value)
    return graph


def _positions(schedule: Sequence[int]) -> dict[int, list[int]]:
    """At which positions each op runs."""
    found: dict[int, list[int]] = {}
    for position, index in enumerate(schedule):
        found.setdefault(index, []).append(position)
    return found


def _empty(name: str, title: str, facts: Facts) -> nx.DiGraph:
    return nx.DiGraph(name=name, title=title, notes=facts.notes())
