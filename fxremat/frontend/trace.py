"""The joint graph of a training step, without running it and without its memory.

Dynamo and AOTAutograd trace a module on fake tensors, which have sizes, strides and devices but
no data. The trace ends when the joint graph of forward and backward is there, so no op ever runs:
a transformer of 32 layers and 7 billion parameters takes about 90 MB and 12 s on one core.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from fxremat.base.errors import GraphError, OptionError
from passes import torch_internals

__all__ = ["trace_joint"]

Joint = tuple[fx.GraphModule, int]


class _Enough(Exception):
    """Ends the trace: what was wanted has been seen."""


def trace_joint(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    decompositions: bool,
    joint_passes: bool = False,
) -> Joint:
    """Trace one training step of a module to its joint graph.

    Args:
        module: with real weights, built on the "meta" device, or under ``FakeTensorMode``; it is
            not changed. Tensors on "meta" are traced as if they were on the CPU.
        args: what the module is called with; tensors may be real, "meta" or fake.
        kwargs: the same, by name.
        decompositions: take composite ops apart as Inductor does; False leaves them whole, as
            ``inner="eager"`` does.
        joint_passes: run Inductor's passes over the joint graph too: with ``decompositions`` this
            is what the backend gets with ``inner="inductor"``.

    Returns:
        The joint graph as AOTAutograd hands it to a partitioner, with fake tensors as its values,
        and how many of its outputs are the forward's.

    Raises:
        GraphError: if the step cannot be traced as one graph, or nothing in it needs a gradient.
        OptionError: for ``joint_passes`` without ``decompositions``.

    Example:
        >>> import torch
        >>> with torch.device("meta"):
        ...     big, batch = torch.nn.Linear(10**6, 10**6), torch.randn(8, 10**6)
        >>> joint, outputs = trace_joint(big, (batch,), decompositions=False)
        >>> outputs, [n.name for n in joint.graph.nodes][:3]
        (1, ['primals_1', 'primals_2', 'primals_3'])
    """
    called, args, kwargs = _without_meta(module, tuple(args), dict(kwargs or {}))
    compile_graph = _compiler(decompositions, joint_passes)
    found: list[Joint] = []

    def partition(joint: fx.GraphModule, _: Any, *, num_fwd_outputs: int, **__: Any) -> Any:
        found.append((joint, num_fwd_outputs))
        raise _Enough

    def backend(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        if any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs):
            compile_graph(graph, inputs, partition)
        raise _Enough

    step = torch.compile(called, backend=backend, fullgraph=True, dynamic=False)
    try:
        with torch.enable_grad():
            step(*args, **kwargs)
    except Exception as error:
        if not found:
            raise _refusal(error) from error
    if not found:
        raise GraphError("the module calls no op on a tensor, so there is no step to trace")
    return found[0]


def _compiler(decompositions: bool, joint_passes: bool) -> Callable[..., object]:
    """What takes a graph of Dynamo, its inputs and a partitioner, and calls the partitioner."""
    if not decompositions:
        if joint_passes:
            raise OptionError("Inductor's passes take decomposed graphs: give decompositions=True")
        return lambda graph, inputs, cut: torch_internals.compile_with_aot(graph, inputs, _end, cut)
    from passes import inductor  # slow to import

    if joint_passes:
        return lambda graph, inputs, cut: inductor.compile_with_inductor(
            graph, inputs, cut, lambda node: 0
        )
    table = inductor.decompositions()
    return lambda graph, inputs, cut: torch_internals.compile_with_aot(
        graph, inputs, _end, cut, table
    )


def _end(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """The compiler of a graph without a backward, which goes to no partitioner."""
    raise _Enough


def _refusal(error: Exception) -> GraphError:
    cause = getattr(error, "inner_exception", error)  # torch wraps what a backend raises
    if isinstance(cause, _Enough):
        return GraphError(
            "nothing in the step needs a gradient; give a module with trainable parameters whose "
            "result depends on them"
        )
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    first = lines[0] if lines else type(cause).__name__
    why = [line for line in lines if line.startswith("Explanation: ")]  # where Dynamo has one
    return GraphError(
        f"the step cannot be traced as one graph: {'. '.join([first, *why[:1]])} "
        "(torch.compile(module, fullgraph=True) shows where)"
    )


def _without_meta(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The same module and arguments with fake CPU tensors in place of those on "meta"."""
    mode = torch_internals.FakeTensorMode()
    made: dict[int, Any] = {}  # by identity, so that tied weights stay tied

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type != "meta":
            return value
        if id(value) not in made:
            made[id(value)] = _fake(value, mode)
        return made[id(value)]

    kept = (v for m in module.modules() for v in vars(m).values() if isinstance(v, torch.Tensor))
    tensors = [*module.parameters(), *module.buffers(), *kept]
    replaced = {id(t): fake(t) for t in tensors}
    if made:
        module = copy.deepcopy(module, replaced)  # copies what is not in there: no weights
    return module, pytree.tree_map(fake, args), pytree.tree_map(fake, kwargs)


def _fake(tensor: torch.Tensor, mode: Any) -> torch.Tensor:
    with mode:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)
