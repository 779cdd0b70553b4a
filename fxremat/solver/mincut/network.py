"""The flow network of the save-or-recompute choice, with a reason on every arc.

A forward value that the backward needs is either saved, or its op is recomputed, and a recomputed
op needs all of its own inputs. That is a closure problem (Picard, "Maximal closure of a graph",
1976), and so a minimum cut. Nodes are ops and values. On the source side of a cut a value is not
needed in the backward and an op is not recomputed; on the sink side they are. An arc is paid for
when its tail is on the source side and its head on the sink side:

================  ===============================================  ================================
arc               paid when                                        capacity
================  ===============================================  ================================
source -> op      the op is recomputed                             its price; infinite if fixed
op -> output      the value is needed, its op is not recomputed:   its price; infinite if
                  the value is saved                               unsaveable; zero if an output
source -> input   an input of the step is needed                   zero; infinite if unsaveable
input -> op       the op is recomputed without its input           infinite
value -> sink     the backward reads a value that is not needed    infinite
================  ===============================================  ================================

An op with several outputs is one node: it is recomputed once for all of them. ``DEFERRABLE`` ops
are treated like forward ops; the caller gives them the price of their first run in the backward,
which is zero seconds. Tangents and values made by backward ops are not part of the network, nor is
anything that no chain of recomputes from the backward can reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from fxremat.problem.types import Kind, Phase, Problem

__all__ = ["SINK", "SOURCE", "Arc", "Network", "Prices", "Slot", "build", "charges", "slots"]

SOURCE, SINK = 0, 1  # node numbers; op i is 2 + i, value i is 2 + number of ops + i


@dataclass(frozen=True)
class Prices:
    """What the choices cost.

    Attributes:
        recompute: for each op of the problem the price of recomputing it, in seconds.
        save: for each value of the problem the price of saving it, in seconds.
    """

    recompute: tuple[float, ...]
    save: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Arc:
    """One arc of the network.

    Attributes:
        tail: "source", "op:NAME" or "value:NAME".
        head: "sink", "op:NAME" or "value:NAME".
        capacity: price in seconds; ``math.inf`` if the arc may not be cut.
        reason: what cutting it means or why it may not be cut, as "name: reason".
    """

    tail: str
    head: str
    capacity: float
    reason: str


@dataclass(frozen=True)
class Network:
    """All arcs, in the order of the problem."""

    arcs: tuple[Arc, ...]

    def to_networkx(self) -> nx.DiGraph:
        """The network for networkx, where an arc without a ``capacity`` is infinite."""
        graph = nx.DiGraph()
        graph.add_nodes_from(("source", "sink"))
        for arc in self.arcs:
            graph.add_edge(arc.tail, arc.head, reason=arc.reason)
            if math.isfinite(arc.capacity):
                graph.edges[arc.tail, arc.head]["capacity"] = arc.capacity
        return graph


@dataclass(frozen=True, slots=True)
class Slot:
    """An arc before its price is known.

    Attributes:
        tail: node number.
        head: node number.
        charge: index of its capacity in what :func:`charges` returns.
        reason: as in :class:`Arc`.
    """

    tail: int
    head: int
    charge: int
    reason: str


def build(problem: Problem, prices: Prices) -> Network:
    """The network of a problem at the given prices.

    >>> from fxremat.problem import Op, Phase, Problem, Value
    >>> problem = Problem(
    ...     values=(Value("y", 512), Value("dy", 512)),
    ...     ops=(Op("sin", (), (0,), 1e-6), Op("cos", (0,), (1,), 1e-6, phase=Phase.BACKWARD)),
    ...     forward=(0,),
    ...     backward=(1,),
    ... )
    >>> for arc in build(problem, Prices(recompute=(3.0, 0.0), save=(2.0, 0.0))).arcs:
    ...     print(f"{arc.tail} -> {arc.head}: {arc.capacity} ({arc.reason})")
    source -> op:sin: 3.0 (sin: recomputed)
    op:sin -> value:y: 2.0 (y: saved)
    value:y -> sink: inf (cos: reads y in the backward)

    Raises:
        ValueError: if the prices do not fit the problem, or if two ops or two values that
            take part have the same name.
    """
    names = [f"op:{op.name}" for op in problem.ops] + [f"value:{v.name}" for v in problem.values]
    names = ["source", "sink", *names]
    found = slots(problem)
    seen: dict[str, int] = {}
    for node in (n for slot in found for n in (slot.tail, slot.head)):
        if seen.setdefault(names[node], node) != node:
            raise ValueError(f"{names[node]} stands for two nodes; give every op and value a name")
    capacity = charges(problem, prices)
    return Network(
        tuple(Arc(names[s.tail], names[s.head], float(capacity[s.charge]), s.reason) for s in found)
    )


def charges(problem: Problem, prices: Prices) -> NDArray[np.float64]:
    """All capacities that occur, in seconds: ops, values, zero, infinity.

    Raises:
        ValueError: if a price is missing, negative or not finite.
    """
    for what, given, wanted in (
        ("recompute", len(prices.recompute), len(problem.ops)),
        ("save", len(prices.save), len(problem.values)),
    ):
        if given != wanted:
            raise ValueError(f"prices.{what} has {given} entries; the problem needs {wanted}")
    result = np.array((*prices.recompute, *prices.save, 0.0, math.inf), dtype=np.float64)
    bad = ~((result[:-1] >= 0.0) & np.isfinite(result[:-1]))
    if bad.any():
        where = int(bad.argmax())
        price = result[where]
        part = problem.ops[where].name if where < len(problem.ops) else None
        name = part or problem.values[where - len(problem.ops)].name
        raise ValueError(
            f"the price of {name} is {price}; prices are finite and not negative "
            "(forbid a choice through Op.fixed or Value.unsaveable)"
        )
    return result


def slots(problem: Problem) -> tuple[Slot, ...]:
    """The arcs of a problem without their prices, in a fixed order."""
    readers = _readers(problem)
    values, ops = _reached(problem, frozenset(readers))
    count = len(problem.ops)
    free = count + len(problem.values)
    never = free + 1
    found: list[Slot] = []
    for index in ops:
        op = problem.ops[index]
        node = 2 + index
        if op.fixed:
            why = f"{op.name}: may not be recomputed ({op.fixed})"
            found.append(Slot(SOURCE, node, never, why))
            continue
        found.append(Slot(SOURCE, node, index, f"{op.name}: recomputed"))
        for value in (*op.inputs, *op.replay_inputs):
            why = f"{op.name}: reads {problem.values[value].name} when recomputed"
            found.append(Slot(2 + count + value, node, never, why))
    for index in values:
        node = 2 + count + index
        producer = problem.producer[index]
        tail = SOURCE if producer < 0 else 2 + producer
        charge, why = _saving(problem, index)
        found.append(Slot(tail, node, charge, f"{problem.values[index].name}: {why}"))
        if index in readers:
            why = f"{readers[index]}: reads {problem.values[index].name} in the backward"
            found.append(Slot(node, SINK, never, why))
    return tuple(found)


def _saving(problem: Problem, index: int) -> tuple[int, str]:
    """Where the price of saving a value stands, and what it means.

    An input that is unsaveable (the forward overwrites it, say) is not free: the rule comes first.
    """
    value = problem.values[index]
    free = len(problem.ops) + len(problem.values)
    if value.unsaveable:
        return free + 1, f"may not be saved ({value.unsaveable})"
    if value.kind is Kind.INPUT:
        return free, "exists anyway"
    if value.is_output:
        return free, "held by the caller anyway"
    return len(problem.ops) + index, "saved"


def _readers(problem: Problem) -> dict[int, str]:
    """The forward values that backward ops read, each with the name of the first such op."""
    found: dict[int, str] = {}
    for index in problem.backward:
        for value in problem.ops[index].inputs:
            producer = problem.producer[value]
            backward = producer >= 0 and problem.ops[producer].phase is Phase.BACKWARD
            if not backward and problem.values[value].kind is not Kind.TANGENT:
                found.setdefault(value, problem.ops[index].name)
    return found


def _reached(problem: Problem, needed: frozenset[int]) -> tuple[list[int], list[int]]:
    """Values and ops from which the backward is reachable through recomputable ops."""
    values, ops = set(needed), set[int]()
    stack = list(needed)
    while stack:
        producer = problem.producer[stack.pop()]
        if producer < 0 or producer in ops:
            continue
        ops.add(producer)
        if not problem.ops[producer].fixed:
            op = problem.ops[producer]
            fresh = {*op.inputs, *op.replay_inputs} - values
            values |= fresh
            stack.extend(fresh)
    return sorted(values), sorted(ops)
