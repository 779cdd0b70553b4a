"""Which kernels of Inductor are fused, and in what order they run."""

from __future__ import annotations

import heapq
from bisect import bisect
from typing import Any, cast
from weakref import WeakKeyDictionary

from torch._inductor.choices import InductorChoices
from torch._inductor.memory import (
    estimate_peak_memory,
    prepare_planning_info,
    topological_sort_bfs,
    topological_sort_dfs,
    topological_sort_lpmf,
)
from torch._inductor.utils import contains_collective
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from passes.inductor.code import Workspace, workspace_of

__all__ = ["fusing_only_near", "in_best_order"]


def fusing_only_near(choices: InductorChoices) -> InductorChoices:
    """Inductor's choices without horizontal fusions across an external kernel.

    A horizontal fusion joins two kernels of which none reads the other. Joined across a matrix
    product, say, the later result would be computed, and live, from before it.
    """
    kind = type(choices)
    places: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()

    def fuses(scheduler: Any, one: Any, other: Any, shared: int) -> bool:
        if scheduler not in places:
            nodes = (n for fused in scheduler.nodes for n in fused.get_nodes())
            places[scheduler] = sorted(n.min_order for n in nodes if n.is_extern())
        begin, end = sorted((one, other), key=lambda node: int(node.min_order))
        found = places[scheduler]
        if bisect(found, begin.max_order) < bisect(found, end.min_order):
            return False
        return bool(kind.can_fuse_horizontal(scheduler, one, other, shared))

    made: Any = object.__new__(type("Near", (kind,), {"can_fuse_horizontal": staticmethod(fuses)}))
    made.__dict__.update(choices.__dict__)
    return cast("InductorChoices", made)


def in_best_order(nodes: list[Any], workspace: Workspace) -> list[Any]:
    """The kernels of a graph in the order that has the lowest peak of those that are tried.

    Args:
        nodes: scheduler nodes after fusion, at least one.
        workspace: bytes that an op holds while it runs as an external kernel.
    """
    scheduler = nodes[0].scheduler
    inputs = OrderedSet(V.graph.graph_inputs.keys())
    outputs = OrderedSet(V.graph.get_output_names())
    _, freeable = prepare_planning_info(
        nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, inputs, outputs
    )
    extra = {node: _extra(node, workspace) for node in nodes}

    def peak(order: list[Any]) -> int:
        _, levels = estimate_peak_memory(order, freeable, outputs)
        return max(n + extra[o] for n, o in zip(levels, order, strict=False))

    return min(_orders(nodes, scheduler, freeable, outputs), key=peak)


def _extra(node: Any, workspace: Workspace) -> int:
    """Workspace of the external kernels that a scheduler node runs."""
    kernels = [n for n in node.get_nodes() if n.is_extern()]
    return max((workspace_of(k.node, workspace) for k in kernels), default=0)


def _orders(nodes: list[Any], scheduler: Any, freeable: Any, outputs: Any) -> list[list[Any]]:
    """Candidate orders, all of them legal; none moves a collective past another."""
    place = {node.name: index for index, node in enumerate(V.graph.graph.nodes)}
    spans = {node: _span(node, place) for node in nodes}
    found = [
        *(_by_key(nodes, {n: span[end] for n, span in spans.items()}) for end in (0, 1)),
        topological_sort_lpmf(nodes, freeable, scheduler.name_to_buf, outputs),
        topological_sort_bfs(nodes),
        topological_sort_dfs(nodes),
    ]
    return [nodes, *(order for order in found if _collectives(order) == _collectives(nodes))]


def _collectives(nodes: list[Any]) -> list[Any]:
    return [node for node in nodes if contains_collective(node)]


def _span(node: Any, place: dict[str, int]) -> tuple[int, int]:
    """Places in the plan of the first and the last op that a kernel runs."""
    found = [
        place[origin.name]
        for inner in node.get_nodes()
        if inner.node is not None
        for origin in inner.node.get_origins()
        if origin.name in place
    ]
    return (min(found), max(found)) if found else (0, 0)


def _by_key(nodes: list[Any], key: dict[Any, int]) -> list[Any]:
    """The topological order that takes the ready kernel with the smallest key."""
    rank = {node: index for index, node in enumerate(nodes)}
    waiting = {node: len(node.mpi_node.pred_nodes) for node in nodes}
    ready = [(key[n], rank[n], n) for n in nodes if not waiting[n]]
    heapq.heapify(ready)
    order: list[Any] = []
    while ready:
        _, _, node = heapq.heappop(ready)
        order.append(node)
        for after in node.mpi_node.succ_nodes:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (key[after], rank[after], after))
    assert len(order) == len(nodes), "the kernels depend on each other in a circle"
    return order
