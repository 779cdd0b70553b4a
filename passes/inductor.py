"""Inductor as the inner compiler, held to the plan's order, with the peak of what it made.

Inductor fuses, reorders and lays out anew, so a plan made for the ops of a graph is not quite what
runs. Five things keep it honest:

* ``layout_optimization`` is off: it copies all weights of convolutions to another layout at the
  start of the forward and holds the copies to its end, and on CPUs gradients of some networks
  (a diffusers UNet) come out wrong with it;
* kernels that only read the same are not fused across an external kernel, such as a product: that
  would hold what the later one makes, often a recomputed value, from where the earlier one runs;
* after fusion the kernels are ordered by the plan: of several orders (Inductor's own, its
  memory-saving ones, and the plan's by first and by last op of a kernel) the one with the lowest
  peak is taken, workspaces of external kernels included;
* ``allow_buffer_reuse`` is off: it keeps a buffer that is done with for a later one of its size,
  through moments at which the external kernels' workspaces, unknown to Inductor, make the peak;
* the generated code is replayed to the byte, so that a plan states what it will really hold.

Every private name of Inductor that fxremat uses is in this file. Tried with torch 2.13.0.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.wrapper import (
    AllocateLine,
    ExternKernelAllocLine,
    ExternKernelOutLine,
    FreeIfNotReusedLine,
    FreeLine,
    ReuseLine,
)
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import (
    CustomGraphPass,
    CustomPartitionerFn,
    CustomSchedulerPass,
)
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.ir import Buffer, IRNode, MultiOutput, MultiOutputLayout, NoneLayout
from torch._inductor.lowering import fallbacks
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

__all__ = ["Compiled", "compile_with_inductor", "decompositions", "is_external"]

Halves = tuple[fx.GraphModule, fx.GraphModule]
Partition = Callable[..., Halves]
Workspace = Callable[[fx.Node], int]


@dataclass
class Compiled:
    """What Inductor made of one graph.

    Attributes:
        run: the compiled callable.
        graphs: the lowered graphs, forward and backward.
        workspace: bytes that an op holds while it runs as an external kernel.
    """

    run: Callable[..., Any] | None = None
    graphs: list[Any] = field(default_factory=list)
    workspace: Workspace = field(default=lambda node: 0)

    @property
    def both(self) -> bool:
        """Whether forward and backward have been lowered, none of them taken from a cache."""
        sides = sorted(bool(g.is_backward) for g in self.graphs)
        return sides == [False, True]

    @property
    def kept(self) -> frozenset[str]:
        """Names of graph nodes to whose results the code gives memory of their own."""
        return frozenset(
            origin.name
            for graph in self.graphs
            for line in graph.wrapper_code.lines
            if isinstance(line, AllocateLine) and isinstance(line.node, Buffer)
            if (origin := line.node.get_origin_node()) is not None
        )

    def peaks(self, handed_over: dict[str, int]) -> tuple[int, int] | None:
        """Most bytes that forward and backward hold at once, or None if not both are known.

        Args:
            handed_over: bytes of the backward's inputs that are freed after their last use, by
                name; others are held by the caller.
        """
        forward = [g for g in self.graphs if not g.is_backward]
        backward = [g for g in self.graphs if g.is_backward]
        if len(forward) != 1 or len(backward) != 1:
            return None
        return (
            _peak(forward[0], {}, self.workspace),
            _peak(backward[0], handed_over, self.workspace),
        )


def compile_with_inductor(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    partition: Partition,
    workspace: Workspace,
    before: Callable[[fx.Graph], None] = lambda graph: None,
    key: str | None = None,
    realize: bool = False,
) -> Compiled:
    """Compile with Inductor, its decompositions and joint-graph passes, split by ``partition``.

    Args:
        module: the graph that Dynamo captured; it is not changed.
        example_inputs: its inputs.
        partition: splits the joint graph, as AOTAutograd asks for it.
        workspace: bytes that an op holds while it runs as an external kernel.
        before: is shown the joint graph as traced, before Inductor's own passes drop aliases.
        key: stands in torch's cache keys for all that the partition and the order of kernels
            depend on beside the graph; None leaves the caches off.
        realize: give memory to what several kernels read and compute from more than one value. By
            itself Inductor lets each of them compute it, for which all those values stay.
    """
    found = Compiled(workspace=workspace)
    patches: dict[str, Any] = {
        "custom_partitioner_fn": _Partitioner(partition, key),
        "joint_custom_pre_pass": _Shown(before, key),
        "layout_optimization": False,
        "reorder_for_peak_memory": False,  # _Ordering does it, with the plan's order among others
        "_post_fusion_custom_pass": _Ordering(found, key),
        "allow_buffer_reuse": False,
    }
    if realize:
        patches["realize_reads_threshold"] = 1
    copied = fx.Graph()
    copied.output(copied.graph_copy(module.graph, {}))
    fresh = fx.GraphModule(module, copied)
    fresh.meta.update(module.meta)

    # A lazy backward would be compiled, and judged, only when it is first run.
    settings = {"force_non_lazy_backward_lowering": True}
    if key is None:
        settings["enable_autograd_cache"] = False
    with functorch_config.patch(settings), V.set_choices_handler(_near(V.choices)):
        found.run = cast(
            "Callable[..., Any]",
            compile_fx(fresh, example_inputs, config_patches=patches),
        )
    return found


def _near(choices: InductorChoices) -> InductorChoices:
    """Inductor's choices, but for fusions across an external kernel of what depends on neither."""
    kind = type(choices)
    places: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()

    def near(scheduler: Any, one: Any, other: Any, shared: int) -> bool:
        if scheduler not in places:
            nodes = (n for fused in scheduler.nodes for n in fused.get_nodes())
            places[scheduler] = sorted(n.min_order for n in nodes if n.is_extern())
        begin, end = sorted((one, other), key=lambda node: int(node.min_order))
        found = places[scheduler]
        if bisect(found, begin.max_order) < bisect(found, end.min_order):
            return False
        return bool(kind.can_fuse_horizontal(scheduler, one, other, shared))

    made: Any = object.__new__(type("Near", (kind,), {"can_fuse_horizontal": staticmethod(near)}))
    made.__dict__.update(choices.__dict__)
    return cast("InductorChoices", made)


class _Keyed:
    """Part of Inductor's configuration, which it copies for each graph and pickles for its keys.

    All copies report to one place; what is pickled is the key.
    """

    key: str | None

    def uuid(self) -> Any | None:
        """What this depends on, or None to leave the caches off."""
        return self.key

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (f"{type(self).__name__} {self.uuid()}",)


class _Shown(_Keyed, CustomGraphPass):
    """Shows the joint graph as traced, then lets the user's own pass have it."""

    def __init__(self, before: Callable[[fx.Graph], None], key: str | None) -> None:
        self.before, self.key = before, key
        own = inductor_config.joint_custom_pre_pass
        self.own = own if isinstance(own, (tuple, list)) else () if own is None else (own,)

    def __call__(self, graph: fx.Graph) -> None:
        self.before(graph)
        for own in self.own:
            own(graph)

    def uuid(self) -> Any | None:
        owns = [getattr(own, "uuid", lambda: None)() for own in self.own]
        return None if self.key is None or None in owns else (self.key, *owns)


class _Partitioner(_Keyed, CustomPartitionerFn):
    """Splits the joint graph."""

    def __init__(self, partition: Partition, key: str | None) -> None:
        self.partition, self.key = partition, key

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Halves:
        return self.partition(gm, joint_inputs, **kwargs)


class _Ordering(_Keyed, CustomSchedulerPass):
    """Orders the kernels of a graph after fusion, and takes note of the graph."""

    def __init__(self, found: Compiled, key: str | None) -> None:
        self.found, self.key = found, key

    def __call__(self, nodes: list[Any]) -> list[Any]:
        if not nodes:
            return nodes
        self.found.graphs.append(V.graph)
        scheduler = nodes[0].scheduler
        inputs = OrderedSet(V.graph.graph_inputs.keys())
        outputs = OrderedSet(V.graph.get_output_names())
        _, freeable = prepare_planning_info(
            nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, inputs, outputs
        )
        extra = {node: self._extra(node) for node in nodes}

        def peak(order: list[Any]) -> int:
            _, levels = estimate_peak_memory(order, freeable, outputs)
            return max(n + extra[o] for n, o in zip(levels, order, strict=False))

        return min(_orders(nodes, scheduler, freeable, outputs), key=peak)

    def _extra(self, node: Any) -> int:
        """Workspace of the external kernels that a scheduler node runs."""
        kernels = [n for n in node.get_nodes() if n.is_extern()]
        return max((_held(k.node, self.found.workspace) for k in kernels), default=0)


def _held(kernel: Any, workspace: Workspace) -> int:
    return max((workspace(origin) for origin in kernel.get_origins()), default=0)


def _peak(graph: Any, inputs: dict[str, int], workspace: Workspace) -> int:
    """Most bytes live at once while the generated code runs.

    The code is a list of lines that allocate, call, reuse and free; it is replayed to the byte.
    """
    live = {name: inputs.get(name, 0) for name in graph.graph_inputs}
    level = most = sum(live.values())

    def hold(name: str, size: int) -> None:
        nonlocal level
        level += size - live.get(name, 0)
        live[name] = size

    for line in graph.wrapper_code.lines:
        extra = 0
        if isinstance(line, AllocateLine):
            hold(line.node.get_name(), _nbytes(graph, line.node))
        elif isinstance(line, ExternKernelAllocLine):
            extra = _held(line.node, workspace)
            for name, size in _made(graph, line.node):
                hold(name, size)
        elif isinstance(line, ExternKernelOutLine):
            extra = _held(line.node, workspace)
        elif isinstance(line, ReuseLine):
            live[line.reused_as.get_name()] = live.pop(line.node.get_name(), 0)
        elif isinstance(line, FreeLine) or (
            isinstance(line, FreeIfNotReusedLine) and not line.is_reused
        ):
            level -= live.pop(line.node.get_name(), 0)
        most = max(most, level + extra)
    return most


def _made(graph: Any, kernel: Any) -> list[tuple[str, int]]:
    """Buffers that an external kernel allocates itself."""
    if not isinstance(kernel.layout, MultiOutputLayout):
        return (
            []
            if isinstance(kernel.layout, NoneLayout)
            else [(kernel.get_name(), _nbytes(graph, kernel))]
        )
    name = kernel.get_name()
    outputs = [
        b
        for b in graph.buffers
        if isinstance(b, MultiOutput)
        and name in [i.get_name() for i in b.inputs if isinstance(i, IRNode)]
    ]
    return [(b.get_name(), _nbytes(graph, b)) for b in outputs]


def _nbytes(graph: Any, node: Any) -> int:
    length = graph.sizevars.optimization_hint(graph.get_allocation_storage_size(node), fallback=0)
    return int(length) * int(node.get_dtype().itemsize)


def _orders(nodes: list[Any], scheduler: Any, freeable: Any, outputs: Any) -> list[list[Any]]:
    """Candidate orders, all of them legal; none moves a collective past another."""
    place = {node.name: index for index, node in enumerate(V.graph.graph.nodes)}
    spans = {node: _span(node, place) for node in nodes}
    found = [
        _by_key(nodes, {n: s[0] for n, s in spans.items()}),
        _by_key(nodes, {n: s[1] for n, s in spans.items()}),
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


def is_external(node: fx.Node) -> bool:
    """Whether Inductor calls ATen's own kernel for an op, whose workspace then counts."""
    aten = torch.ops.aten
    kept = (aten.convolution, aten.mm, aten.addmm, aten.bmm, aten.baddbmm)
    packet = getattr(node.target, "overloadpacket", None)
    return node.target in fallbacks or packet in fallbacks or packet in kept


def decompositions() -> dict[Any, Callable[..., Any]]:
    """How Inductor takes ops apart before it compiles them."""
    return dict(select_decomp_table())
