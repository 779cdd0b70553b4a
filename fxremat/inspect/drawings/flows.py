"""The flow network of the choice that a plan makes, with the plan's cut."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx

from fxremat.base.units import format_bytes, format_seconds
from fxremat.inspect.drawings.attributes import op_kind, op_node, value_node
from fxremat.inspect.explain import Explainer
from fxremat.plans.plan import Plan
from fxremat.plans.words import headline
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.mincut.network import Arc, Prices, build

__all__ = ["flow_network"]

# Where nothing has to be recomputed memory costs nothing. A price this much below that at which
# all values cost a step keeps arcs apart without changing any choice.
TINY = 1e-6


def flow_network(plan: Plan, step: Explainer | None = None) -> nx.DiGraph:
    """The network of :mod:`fxremat.solver.mincut.network` with the arcs that the plan pays for.

    Nodes have ``side``: "source" or "sink". Arcs have ``capacity`` in seconds (infinite where they
    may not be cut), ``paid`` and ``times``: how often the plan pays, more than once where an op
    runs again more than once. The graph has ``price``, in seconds per byte, and ``paid``, the sum
    of all that is paid. Not in it is what a network cannot price: runs that the forward makes for
    the backward's sake (REPLAY_SUPPORT ops, hoisted ones), and when bytes are live.

    Args:
        plan: the plan.
        step: what has been read off the plan already.
    """
    step = step or Explainer(plan)
    problem = step.context.priced
    price, source = _price(step)
    priced = f"saving costs {format_seconds(price * 2**20)} a MiB: {source}"
    graph = nx.DiGraph(
        name="network",
        title="Flow network: what the cut pays for",
        notes=(*headline(plan), priced, "S is the source, T is the sink"),
        price=price,
    )
    for hub in ("source", "sink"):
        looks = {"label": hub, "kind": hub, "side": hub, "facts": "", "module": "", "tip": ""}
        graph.add_node(hub, form="hub", **looks)
    needed = frozenset(v for reads in step.reads for v in reads)
    # Names of values and ops may be the same, so each has its word before it.
    for arc in build(problem, _prices(problem, price)):
        for end in (arc.tail, arc.head):
            if end not in graph:
                graph.add_node(end, **_node(step, end, needed))
        if arc.head != "sink" and not arc.tail.startswith("value:"):
            graph.nodes[arc.head]["facts"] = _charge(step, arc)
        graph.add_edge(arc.tail, arc.head, **_arc(arc, _times(step, arc, needed)))
    arcs = (d for _, _, d in graph.edges(data=True) if d["paid"])
    graph.graph["paid"] = math.fsum(d["capacity"] * d["times"] for d in arcs)
    return graph


def _price(step: Explainer) -> tuple[float, str]:
    """A price of memory in seconds per byte, and where it is from."""
    plan, solver = step.plan, step.planner.solver
    problem = solver.problem
    price = solver.bound.at(plan.predicted_peak).price
    if price > 0:
        return price, "that of the lower bound on time at the plan's peak"
    less = plan.baseline_peak - plan.predicted_peak
    if plan.recompute_seconds > 0 and less > 0:
        return plan.recompute_seconds / less, "the recompute time by the bytes that it takes off"
    total = sum(v.nbytes for v in problem.values if v.kind is Kind.COMPUTED)
    seconds = TINY * (problem.step_seconds or 1.0)
    return seconds / (total or 1), "next to nothing, since memory is not short"


def _prices(problem: Problem, price: float) -> Prices:
    """Seconds for ops, but for those that every plan runs in the backward; a price for bytes."""
    return Prices(
        tuple(0.0 if i in problem.required else op.seconds for i, op in enumerate(problem.ops)),
        tuple(price * v.nbytes for v in problem.values),
    )


def _deferred(step: Explainer, op: int) -> bool:
    """Whether an op of the inputs alone runs in the backward."""
    return step.problem.ops[op].phase is Phase.DEFERRABLE and op in step.in_backward


def _times(step: Explainer, arc: Arc, needed: frozenset[int]) -> int:
    """How often the plan pays for an arc."""
    kind, _, name = arc.head.partition(":")
    if arc.tail == "source" and kind == "op":
        index = step.context.op_index[name]
        return step.runs.get(index, 0) or int(_deferred(step, index))
    if kind != "value":
        return 0
    found = needed if arc.tail == "source" else step.handed_on
    return int(step.context.value_index[name] in found)


def _arc(arc: Arc, times: int) -> dict[str, Any]:
    endless = math.isinf(arc.capacity)
    price = "never" if endless else format_seconds(arc.capacity)
    facts = f"{price}, paid {times} times" if times > 1 else price
    kind = "endless" if endless else "finite"
    if times:
        kind = "paid" if arc.capacity else "free"
    return {
        "kind": kind,
        "capacity": arc.capacity,
        "paid": times > 0,
        "times": times,
        "cut": times > 0,
        "facts": facts,
        "tip": f"{facts}\n{arc.reason}",
    }


def _charge(step: Explainer, arc: Arc) -> str:
    """The price of an op or of a value, for its box."""
    price = "never" if math.isinf(arc.capacity) else format_seconds(arc.capacity)
    kind, _, name = arc.head.partition(":")
    if kind == "op":
        return f"run again: {price}"
    value = step.problem.values[step.context.value_index[name]]
    if value.kind is Kind.INPUT and not value.unsaveable:
        return "there anyway"
    return f"save {format_bytes(value.nbytes)}: {price}"


def _node(step: Explainer, node: str, needed: frozenset[int]) -> dict[str, Any]:
    kind, _, name = node.partition(":")
    if kind == "op":
        index = step.context.op_index[name]
        again = index in step.runs or _deferred(step, index)
        drawn = op_kind(step, index) if again else "forward"
        drawn = "fixed" if step.problem.ops[index].fixed else drawn
        return op_node(step, index, drawn, side="sink" if again else "source")
    index = step.context.value_index[name]
    side = "sink" if index in needed else "source"
    return value_node(step, index, _value_kind(step, index, index in needed), side=side)


def _value_kind(step: Explainer, index: int, needed: bool) -> str:
    value = step.problem.values[index]
    if value.kind is Kind.INPUT:
        return "input"
    if not needed:
        return "unneeded"
    if index in step.handed_on:
        return "output" if value.is_output else "saved"
    return "recomputed" if step.problem.producer[index] in step.runs else "late"
