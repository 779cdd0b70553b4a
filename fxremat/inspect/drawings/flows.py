"""The flow network of the choice that a plan makes, with the plan's cut."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx

from fxremat.base.budget import format_bytes
from fxremat.base.units import format_seconds
from fxremat.inspect.drawings.facts import Facts
from fxremat.inspect.explain import Explainer
from fxremat.plans.plan import Plan
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.mincut.network import Arc, Prices, build

__all__ = ["flow_network"]

# Where nothing has to be recomputed memory costs nothing. A price this much below that at which
# all values cost a step keeps arcs apart without changing any choice.
TINY = 1e-6


def flow_network(plan: Plan, explainer: Explainer | None = None) -> nx.DiGraph:
    """The network of :mod:`fxremat.solver.mincut.network` with the arcs that the plan pays for.

    Nodes have ``side``: "source" or "sink". Arcs have ``capacity`` in seconds (infinite where they
    may not be cut), ``reason``, ``paid`` and ``times``: how often the plan pays, more than once
    where an op runs again more than once. The graph has ``price``, in seconds per byte, and
    ``paid``, the sum of all that is paid. Not in it is what a network cannot price: runs that the
    forward makes for the backward's sake (REPLAY_SUPPORT ops, hoisted ones), and when bytes are
    live.

    Args:
        plan: a plan with its context.
        explainer: one of that plan, if there is one already.

    Raises:
        OptionError: if the plan has no context.
    """
    facts = Facts(plan, explainer)
    problem = facts.context.priced
    price, source = _price(facts)
    graph = nx.DiGraph(name="network", title="Flow network: what the cut pays for", hubs=True)
    graph.add_node("source", **_hub("source"))
    graph.add_node("sink", **_hub("sink"))
    needed = frozenset(v for reads in facts.reads for v in reads)
    # Names of values and ops may be the same, so each has its word before it.
    for arc in build(problem, _prices(problem, price)).arcs:
        for end in (arc.tail, arc.head):
            if end not in graph:
                graph.add_node(end, **_node(facts, end, needed))
        if arc.head != "sink" and not arc.tail.startswith("value:"):
            graph.nodes[arc.head]["facts"] = _charge(facts, arc)
        graph.add_edge(arc.tail, arc.head, **_arc(arc, _times(facts, arc, needed)))
    total = math.fsum(d["capacity"] * d["times"] for _, _, d in graph.edges(data=True) if d["paid"])
    graph.graph.update(price=price, paid=total, notes=(*facts.notes(), _priced(price, source)))
    return graph


def _price(facts: Facts) -> tuple[float, str]:
    """A price of memory in seconds per byte, and where it is from."""
    plan, solver = facts.plan, facts.explainer.planner.solver
    problem = solver.problem
    price = solver.bound.at(plan.predicted_peak).price
    if price > 0:
        return price, "that of the lower bound on time at the plan's peak"
    less = plan.baseline_peak - plan.predicted_peak
    if plan.recompute_seconds > 0 and less > 0:
        return plan.recompute_seconds / less, "the recompute time by the bytes that it takes off"
    total = sum(v.nbytes for v in problem.values if v.kind is Kind.COMPUTED)
    return (
        TINY * (problem.step_seconds or 1.0) / (total or 1),
        "next to nothing, since memory is not short",
    )


def _priced(price: float, source: str) -> str:
    return f"saving costs {format_seconds(price * 2**20)} a MiB: {source}"


def _prices(problem: Problem, price: float) -> Prices:
    """Seconds for ops, but for those that every plan runs in the backward; a price for bytes."""
    return Prices(
        tuple(0.0 if i in problem.required else op.seconds for i, op in enumerate(problem.ops)),
        tuple(price * v.nbytes for v in problem.values),
    )


def _times(facts: Facts, arc: Arc, needed: frozenset[int]) -> int:
    """How often the plan pays for an arc."""
    kind, _, name = arc.head.partition(":")
    if arc.tail == "source" and kind == "op":
        index = facts.context.op_index[name]
        late = facts.problem.ops[index].phase is Phase.DEFERRABLE and index in facts.in_backward
        return facts.runs.get(index, 0) or int(late)
    if kind != "value":
        return 0
    found = needed if arc.tail == "source" else facts.saved
    return int(facts.context.value_index[name] in found)


def _arc(arc: Arc, times: int) -> dict[str, Any]:
    endless = math.isinf(arc.capacity)
    kind = "endless" if endless else "finite"
    if times:
        kind = "paid" if arc.capacity else "free"
    price = "never" if endless else format_seconds(arc.capacity)
    return {
        "kind": kind,
        "capacity": arc.capacity,
        "paid": times > 0,
        "times": times,
        "cut": times > 0,
        "reason": arc.reason,
        "facts": f"{price}, paid {times} times" if times > 1 else price,
    }


def _charge(facts: Facts, arc: Arc) -> str:
    """The price of an op or of a value, for its box."""
    price = "never" if math.isinf(arc.capacity) else format_seconds(arc.capacity)
    kind, _, name = arc.head.partition(":")
    if kind == "op":
        return f"run again: {price}"
    value = facts.problem.values[facts.context.value_index[name]]
    if value.kind is Kind.INPUT and not value.unsaveable:
        return "there anyway"
    return f"save {format_bytes(value.nbytes)}: {price}"


def _hub(name: str) -> dict[str, Any]:
    return {"label": name, "form": "hub", "kind": name, "side": name, "facts": "", "module": ""}


def _node(facts: Facts, node: str, needed: frozenset[int]) -> dict[str, Any]:
    kind, _, name = node.partition(":")
    if kind == "op":
        index = facts.context.op_index[name]
        again = index in facts.runs or (
            index in facts.in_backward and facts.problem.ops[index].phase is Phase.DEFERRABLE
        )
        drawn = facts.op_kind(index)
        drawn = "fixed" if facts.problem.ops[index].fixed else "forward" if not again else drawn
        return facts.op_node(index, side="sink" if again else "source", kind=drawn)
    index = facts.context.value_index[name]
    there = index in needed
    return facts.value_node(
        index, side="sink" if there else "source", kind=_drawn(facts, index, there)
    )


def _drawn(facts: Facts, index: int, needed: bool) -> str:
    value = facts.problem.values[index]
    if value.kind is Kind.INPUT:
        return "input"
    if not needed:
        return "unneeded"
    if index in facts.saved:
        return "output" if value.is_output else "saved"
    return "recomputed" if facts.problem.producer[index] in facts.runs else "late"
