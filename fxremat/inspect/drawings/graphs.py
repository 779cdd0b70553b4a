"""A plan as networkx graphs: the joint graph with the cut, and its halves as the plan runs them.

Nodes are named ``op:NAME`` and ``value:NAME``. Every node has the attributes ``label``, ``form``
("op", "value" or "hub"), ``kind`` (see :data:`fxremat.inspect.drawings.style.NODES`), ``bytes`` of
what it makes, ``seconds`` of one run, ``runs`` beyond what every plan must do, ``module``,
``facts``, a line of text, and ``tip``: all that is known, in lines. Every edge has ``kind`` (see
:data:`fxremat.inspect.drawings.style.EDGES`), ``values``, ``bytes``, ``cut``, ``facts``, ``tip``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import networkx as nx

from fxremat.base.budget import format_bytes
from fxremat.base.units import count, format_seconds
from fxremat.inspect.step import PlannedStep
from fxremat.plans.plan import Plan
from fxremat.plans.words import headline
from fxremat.problem.types import Kind, Op, Phase

__all__ = ["backward_graph", "folded", "forward_graph", "joint_graph", "op_kind", "op_node"]
__all__ += ["value_node"]


def joint_graph(plan: Plan, step: PlannedStep | None = None) -> nx.DiGraph:
    """The joint graph as it was traced, with the cut that the plan makes.

    One node an op, inputs and tangents; ``half`` says where it stands. An edge has ``cut`` if the
    backward, or an op that it runs again, reads the saved copy of a computed value there.

    Args:
        plan: a plan with its context.
        step: what the plan runs, if that has been read off it already.

    Raises:
        OptionError: if the plan has no context.
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
            graph.add_edge(tail, head, **_edge(step, values, kinds[values[0]]))
            continue
        for value in values:
            graph.add_edge(_given(graph, step, value), head, **_edge(step, [value], "given"))


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
    graph.add_edge(tail, head, **_edge(step, values, kind))


def folded(joint: nx.DiGraph, opened: Collection[str], within: str = "") -> nx.DiGraph:
    """The joint graph with the ops of each module that is not opened drawn as one box in each half.

    Inputs are left out. An edge that leads back, since a module runs twice, has ``back``. Boxes
    of modules have ``fold``, the path of the module.

    Args:
        joint: what :func:`joint_graph` makes.
        opened: paths of modules that are opened, "" among them.
        within: path of a module: only it and what touches it is shown; "" for all.
    """
    members = _members(joint)
    halves = [f"module:{within}:{half}" for half in HALVES]
    inside = [op for half in halves for op in members.get(half, ())]
    touching = {(t, h): d for t, h, d in joint.out_edges(inside, data=True)}
    touching |= {(t, h): d for t, h, d in joint.in_edges(inside, data=True)}
    place: dict[str, str] = {}
    for node in (*inside, *(end for edge in touching for end in edge)):
        data = joint.nodes[node]
        if data["form"] == "op":
            place[node] = _fold(node, data["module"], data["half"], opened)
    edges: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (tail, head), data in touching.items():
        if tail in place and head in place and place[tail] != place[head]:
            edges.setdefault((place[tail], place[head]), []).append(data)
    graph = nx.DiGraph(name="modules", title=within or "The joint graph by module", notes=())
    shown = set(place.values())
    for name in members:
        if name in shown:
            graph.add_node(name, **_box(joint, name, members[name]))
    order = {name: i for i, name in enumerate(graph)}
    for (tail, head), merged in edges.items():
        graph.add_edge(tail, head, back=order[tail] > order[head], **_merged(merged))
    return graph


@lru_cache(maxsize=1)
def _members(joint: nx.DiGraph) -> dict[str, list[str]]:
    """The ops of each module in each half, and each op by itself, in the order of the graph."""
    found: dict[str, list[str]] = {}
    for node, data in joint.nodes(data=True):
        if data["form"] == "op":
            found.setdefault(node, []).append(node)
            for module in ("", *_prefixes(data["module"])):
                found.setdefault(f"module:{module}:{data['half']}", []).append(node)
    return found


def _prefixes(module: str) -> list[str]:
    """A module and all that it is part of, the outermost first."""
    parts = module.split(".") if module else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _fold(node: str, module: str, half: str, opened: Collection[str]) -> str:
    """The outermost module around an op that is not opened, or the op itself."""
    closed = next((m for m in _prefixes(module) if m not in opened), "")
    return f"module:{closed}:{half}" if closed else node


def _box(joint: nx.DiGraph, name: str, members: Sequence[str]) -> dict[str, Any]:
    """The attributes of a box that stands for some ops of one half."""
    if not name.startswith("module:"):
        return dict(joint.nodes[name])
    module, half = name.removeprefix("module:").rsplit(":", 1)
    ops = [joint.nodes[m] for m in members]
    seconds = sum(d["seconds"] for d in ops)
    again = sum(d["seconds"] * d["runs"] for d in ops)
    kinds = [k for k in ("recomputed", "saved", half) if any(d["kind"] == k for d in ops)]
    more = f", {format_seconds(again)} again" if again else ""
    facts = f"{format_seconds(seconds)}{more}"
    return {
        "label": module,
        "form": "op",
        "kind": kinds[0] if kinds else half,
        "bytes": sum(d["bytes"] for d in ops),
        "seconds": seconds,
        "runs": sum(d["runs"] for d in ops),
        "module": module,
        "half": half,
        "fold": module,
        "facts": facts,
        "tip": f"{count(len(ops), 'op')} of the {half}\n{facts}",
    }


def _merged(edges: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The attributes of an edge that stands for several, of the kind that matters most."""
    order = ("saved", "held", "recomputed", "value")
    kind, *_ = sorted((d["kind"] for d in edges), key=order.index)
    sizes = {d["values"]: d["bytes"] for d in edges if d["kind"] == kind}
    values = tuple(dict.fromkeys(v for names in sizes for v in names))
    nbytes = sum(sizes.values())
    named = ", ".join(values[:6]) + (f", {len(values) - 6} more" if len(values) > 6 else "")
    return {
        "values": values,
        "bytes": nbytes,
        "kind": kind,
        "cut": kind in ("saved", "held"),
        "facts": format_bytes(nbytes),
        "tip": f"{kind}: {format_bytes(nbytes)} in {count(len(values), 'value')}\n{named}",
    }


# Attributes of nodes and edges.


def op_kind(step: PlannedStep, index: int) -> str:
    """The kind of an op, in the words of :data:`fxremat.inspect.drawings.style.NODES`."""
    op = step.problem.ops[index]
    made = [step.problem.values[v] for v in op.outputs]
    if op.phase is Phase.BACKWARD:
        return "gradient" if step.returned.intersection(op.outputs) else "backward"
    if index in step.runs:
        return "recomputed"
    if any(v in step.handed_on and not step.problem.values[v].is_output for v in op.outputs):
        return "saved"
    if any(v.is_output for v in made):
        return "output"
    if op.phase is Phase.FORWARD or index in step.in_forward:
        return "forward"
    return "late" if index in step.in_backward else "unused"


def op_node(step: PlannedStep, index: int, kind: str = "", **more: Any) -> dict[str, Any]:
    """Attributes of a node that stands for an op."""
    op = step.problem.ops[index]
    nbytes = sum(step.problem.values[v].nbytes for v in op.outputs)
    runs, time = step.runs.get(index, 0), format_seconds(op.seconds)
    costs = f"{format_bytes(nbytes)}, {time}" if nbytes else time
    again = f"runs again {count(runs, 'time')}" if runs else ""
    return {
        "label": op.name,
        "form": "op",
        "kind": kind or op_kind(step, index),
        "bytes": nbytes,
        "seconds": op.seconds,
        "runs": runs,
        "module": step.context.origin(op.name).module,
        "facts": f"{format_bytes(nbytes)}, {time}",
        "tip": _tip(step, op.name, costs, again, _why(step, op)),
        **more,
    }


def _why(step: PlannedStep, op: Op) -> str:
    """Why an op's results are saved or recomputed."""
    if not op.outputs or op.phase is Phase.BACKWARD:
        return ""
    return _reason(step, min(op.outputs, key=lambda v: v not in step.handed_on))


def _reason(step: PlannedStep, value: int) -> str:
    return step.decisions[step.problem.values[value].name].reason


def value_node(step: PlannedStep, index: int, kind: str = "", **more: Any) -> dict[str, Any]:
    """Attributes of a node that stands for a value."""
    value = step.problem.values[index]
    origin = step.context.origin(value.name)
    computed, size = value.kind is Kind.COMPUTED, format_bytes(value.nbytes)
    plain = ("output" if value.is_output else "saved") if computed else str(value.kind)
    return {
        "label": value.name,
        "form": "value",
        "kind": kind or plain,
        "bytes": value.nbytes,
        "seconds": 0.0,
        "runs": 0,
        "module": origin.module,
        "facts": size if computed else origin.shape,
        "tip": _tip(step, value.name, size if value.nbytes else "", _reason(step, index)),
        **more,
    }


def _tip(step: PlannedStep, name: str, *said: str) -> str:
    """All that is known of a node besides its label, in lines."""
    origin = step.context.origin(name)
    lines = [
        f"{origin.op} -> {origin.shape}" if origin.shape else origin.op,
        f"in {origin.module}" if origin.module else "",
        f"at {origin.source}" if origin.source else "",
        *said,
    ]
    return "\n".join(line for line in lines if line)


def _edge(step: PlannedStep, values: Sequence[int], kind: str) -> dict[str, Any]:
    """Attributes of an edge that stands for values that one op makes and another one reads."""
    names = tuple(step.problem.values[v].name for v in values)
    nbytes = sum(step.problem.values[v].nbytes for v in values)
    why = _reason(step, values[0]) if kind in ("saved", "recomputed", "held") else ""
    return {
        "values": names,
        "bytes": nbytes,
        "kind": kind,
        "cut": kind in ("saved", "held"),
        "facts": format_bytes(nbytes),
        "tip": "\n".join(line for line in (", ".join(names), format_bytes(nbytes), why) if line),
    }


def _empty(name: str, title: str, plan: Plan) -> nx.DiGraph:
    return nx.DiGraph(name=name, title=title, notes=headline(plan))
