"""The code that Inductor generates: what of a graph it keeps in memory, and the peak of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch._inductor.codegen.wrapper import (
    AllocateLine,
    ExternKernelAllocLine,
    ExternKernelOutLine,
    FreeIfNotReusedLine,
    FreeLine,
    ReuseLine,
)
from torch._inductor.ir import Buffer, IRNode, MultiOutput, MultiOutputLayout, NoneLayout

from passes.inductor.ops import is_external

__all__ = ["Compiled", "Workspace", "workspace_of"]

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
        return sorted(bool(g.is_backward) for g in self.graphs) == [False, True]

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
        if not self.both:
            return None
        forward, backward = sorted(self.graphs, key=lambda g: bool(g.is_backward))
        return (
            _peak(forward, {}, self.workspace),
            _peak(backward, handed_over, self.workspace),
        )


def workspace_of(kernel: Any, workspace: Workspace) -> int:
    """Bytes that an external kernel of Inductor holds while it runs, by the ops it stands for.

    Those that are known to run as such kernels are asked; where there are none, all of them.
    """
    origins = list(kernel.get_origins())
    known = [node for node in origins if is_external(node)]
    return max(map(workspace, known or origins), default=0)


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
            extra = workspace_of(line.node, workspace)
            for name, size in _made(graph, line.node):
                hold(name, size)
        elif isinstance(line, ExternKernelOutLine):
            extra = workspace_of(line.node, workspace)
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
    name, made = kernel.get_name(), [kernel]
    if isinstance(kernel.layout, NoneLayout):
        return []
    if isinstance(kernel.layout, MultiOutputLayout):
        outputs = [b for b in graph.buffers if isinstance(b, MultiOutput)]
        made = [b for b in outputs if any(_is_named(i, name) for i in b.inputs)]
    return [(b.get_name(), _nbytes(graph, b)) for b in made]


def _is_named(node: Any, name: str) -> bool:
    return isinstance(node, IRNode) and node.get_name() == name


def _nbytes(graph: Any, node: Any) -> int:
    length = graph.sizevars.optimization_hint(graph.get_allocation_storage_size(node), fallback=0)
    return int(length) * int(node.get_dtype().itemsize)
