"""Compiling one graph with Inductor, split by a plan and run in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import (
    CustomGraphPass,
    CustomPartitionerFn,
    CustomSchedulerPass,
)
from torch._inductor.virtualized import V
from torch.fx.experimental._backward_state import BackwardState

from passes.inductor.code import Compiled, Workspace
from passes.inductor.kernels import fusing_only_near, in_best_order
from passes.torch_internals import copied

__all__ = ["compile_with_inductor"]

Halves = tuple[fx.GraphModule, fx.GraphModule]
Partition = Callable[..., Halves]


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
        realize: materialize what several kernels read and what is computed from several values.
            By default each consumer inlines it, keeping all its inputs alive.
    """
    found = Compiled(workspace=workspace)

    def order(kernels: list[Any]) -> list[Any]:
        if not kernels:
            return kernels
        found.graphs.append(V.graph)
        return in_best_order(kernels, workspace)

    patches: dict[str, Any] = {
        "custom_partitioner_fn": _Partitioner(partition, key),
        "joint_custom_pre_pass": _shown(before, key),
        "layout_optimization": False,
        "reorder_for_peak_memory": False,  # order() does it, with the plan's order among others
        "_post_fusion_custom_pass": _SchedulerPass(order, key),
        "allow_buffer_reuse": False,
    }
    if realize:
        patches["realize_reads_threshold"] = 1
    # A lazy backward would be compiled, and judged, only when it is first run. With hooks of the
    # user's it has to be: Inductor refuses it, and compiled autograd takes the graph itself.
    hooked = any(isinstance(i, BackwardState) for i in example_inputs)
    settings = {"force_non_lazy_backward_lowering": not hooked}
    if key is None:
        settings["enable_autograd_cache"] = False
    with functorch_config.patch(settings), V.set_choices_handler(fusing_only_near(V.choices)):
        found.run = cast(
            "Callable[..., Any]",
            compile_fx(copied(module), example_inputs, config_patches=patches),
        )
    return found


class _Keyed:
    """Part of Inductor's configuration, which it copies for each graph and pickles for its keys.

    All copies call one function; what is pickled is the key, or None to leave the caches off.
    """

    def __init__(self, call: Callable[..., Any], key: Any) -> None:
        self.call, self.key = call, key

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def uuid(self) -> Any | None:
        return self.key

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (f"{type(self).__name__} {self.key}",)


class _GraphPass(_Keyed, CustomGraphPass):
    pass


class _Partitioner(_Keyed, CustomPartitionerFn):
    pass


class _SchedulerPass(_Keyed, CustomSchedulerPass):
    pass


def _shown(before: Callable[[fx.Graph], None], key: str | None) -> _GraphPass:
    """Shows the joint graph as traced, then lets the user's own passes have it."""
    own = inductor_config.joint_custom_pre_pass
    passes = own if isinstance(own, (tuple, list)) else () if own is None else (own,)
    keys = [key, *(getattr(each, "uuid", lambda: None)() for each in passes)]

    def show(graph: fx.Graph) -> None:
        before(graph)
        for each in passes:
            each(graph)

    return _GraphPass(show, None if None in keys else tuple(keys))
