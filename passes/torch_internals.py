"""The private torch names that fxremat reaches, in one place.

When a new torch moves one of them, this is the file to mend. Inductor's names are in
``passes.inductor``, imported only when Inductor is the inner compiler. Names that torch has kept
for years (``torch.utils._pytree``, ``torch._ops.OpOverload``) are used directly.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from functorch.compile import make_boxed_func  # type: ignore[import-untyped]
from torch import fx
from torch._C import DispatchKey
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.eval_frame import OptimizedModule
from torch._functorch._aot_autograd.graph_compile import is_opaque_node
from torch._functorch.partitioners import _extract_fwd_bwd_modules
from torch._functorch.partitioners import _is_backward_state as is_backward_state
from torch._guards import CompileContext
from torch._library.utils import is_impure
from torch._ops import OpOverload, OpOverloadPacket
from torch._prims.rng_prims import run_with_rng_state
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = [
    "MEMORY_BUDGET",
    "FakeTensor",
    "FakeTensorMode",
    "StorageWeakRef",
    "backward_has_run",
    "boxed",
    "breaks_off",
    "compile_with_aot",
    "copied",
    "extract_modules",
    "graph_module",
    "impure",
    "is_backward_state",
    "is_compiled",
    "is_compiled_backward",
    "is_opaque_node",
    "is_recompile",
    "only_views",
    "run_op_by_op",
    "run_with_rng_state",
    "saved_tensors_are_packed",
    "storage_key",
]

MEMORY_BUDGET = "_region_activation_memory_budget"  # of torch.fx.traceback, in meta["custom"]
TRIED_WITH = ("2.13.0",)


def warn_if_untried(version: str) -> None:
    """Warn that private names may have moved if fxremat was not tried with a version of torch."""
    if version.partition("+")[0] not in TRIED_WITH:
        warnings.warn(
            f"fxremat was tried with torch {', '.join(TRIED_WITH)}, not with {version}; it uses "
            "private names of torch's compiler, which may have moved or changed their meaning. "
            "Install a torch that was tried, or check peaks and gradients against eager's",
            stacklevel=2,
        )


warn_if_untried(torch.__version__)


def storage_key(tensor: torch.Tensor) -> int:
    """A key equal for tensors that share a storage, valid while one of them is alive."""
    return int(tensor.untyped_storage()._cdata)


def impure(node: fx.Node) -> bool:
    """Whether torch counts a call as having an effect beyond its result, random draws included."""
    assert not isinstance(node.target, str)  # only call_function nodes are asked about
    return bool(is_impure(node.target, args=node.args, kwargs=node.kwargs, impure_random=True))


def only_views(node: fx.Node) -> bool:
    """Whether an op returns its first input's storage whatever was traced for it.

    Inductor's passes trace what they insert by itself, in storages of its own. Composite ops that
    view or copy, such as ``reshape``, are excluded.
    """
    target = node.target
    if not isinstance(target, OpOverload) or not target.is_view or not node.all_input_nodes:
        return False
    return not target.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether ``torch.compile`` made a module, or ``module.compile()`` changed it."""
    return isinstance(module, OptimizedModule) or module._compiled_call_impl is not None


def extract_modules(
    joint: fx.GraphModule,
    saved: Sequence[fx.Node],
    saved_sizes: Sequence[fx.Node],
    saved_objects: Sequence[fx.Node],
    num_fwd_outputs: int,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Cut a joint graph at the saved nodes, in the order of arguments that AOTAutograd expects.

    Forward outputs: the user's, saved tensors, symbolic sizes. Backward inputs: symbolic sizes,
    saved tensors, tangents. torch's own function knows the rest of that contract.
    """
    state = filter(is_backward_state, joint.graph.find_nodes(op="placeholder"))
    handed = [*saved, *state]  # the state of the user's hooks; torch sorts it out
    saved_nodes = map(list, (handed, saved_sizes, saved_objects))  # torch changes the lists
    halves = _extract_fwd_bwd_modules(joint, *saved_nodes, num_fwd_outputs=num_fwd_outputs)
    return halves[0], halves[1]


def graph_module(root: fx.GraphModule, graph: fx.Graph) -> fx.GraphModule:
    """A module over ``graph`` with ``root``'s attributes and meta; its code is made when run."""
    module = _LazyGraphModule(root, graph)
    module.meta.update(root.meta)
    return module


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A module whose graph may be changed, with nodes of the same names; weights are shared."""
    graph = fx.Graph(tracer_cls=module.graph._tracer_cls)
    output = graph.output(graph.graph_copy(module.graph, {}))
    output.meta = dict(module.graph.output_node().meta)
    graph.set_codegen(copy.copy(module.graph._codegen))
    return graph_module(module, graph)


def is_compiled_backward(node: Any) -> bool:
    """Whether a node of autograd is the backward of a graph that AOTAutograd has compiled."""
    return type(node).__name__ == "CompiledFunctionBackward"


def backward_has_run(node: Any) -> bool:
    """Whether a node of autograd has given its saved tensors away. No hooks of the user's run."""
    try:
        node._raw_saved_tensors  # noqa: B018
    except RuntimeError:
        return True
    return False


def saved_tensors_are_packed() -> bool:
    """Whether ``torch.autograd.graph.saved_tensors_hooks`` are in force."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def breaks_off(module: fx.GraphModule) -> bool:
    """Whether Dynamo goes on with another graph after one, since it could not take them as one."""
    reason = getattr(module, "compile_subgraph_reason", None)
    return bool(getattr(reason, "graph_break", False))


def is_recompile() -> bool:
    """Whether torch now compiles code that it has compiled before, for other inputs."""
    now = CompileContext.current_compile_id()
    return now is not None and bool(now.frame_compile_id)


def run_op_by_op(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A callable that runs a graph op by op and frees each value after its last use.

    It takes its inputs as a list that it empties, so that they too are freed when used up.
    """
    return boxed_nop(module, list(inputs))


def boxed(run: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that takes its inputs as a list that it empties; one that does is left alone."""
    return run if getattr(run, "_boxed_call", False) else make_boxed_func(run)


def compile_with_aot(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    compiler: Callable[..., Any],
    partition: Callable[..., tuple[fx.GraphModule, fx.GraphModule]],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """Trace forward and backward, split, and compile both halves.

    Args:
        module: the graph that Dynamo captured.
        example_inputs: its inputs.
        compiler: makes a callable of a half and its inputs.
        partition: splits the joint graph, as AOTAutograd asks for it.
        decompositions: how ops are taken apart; None leaves them all whole.
    """
    make = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=compiler,
        partition_fn=partition,
        decompositions=dict(decompositions or {}),
        keep_inference_input_mutations=True,
    )
    with _whole_ops() if decompositions is None else nullcontext():
        return make(module, example_inputs)


@contextmanager
def _whole_ops() -> Iterator[None]:
    """Trace ops as the ones that eager runs.

    torch registers Python decompositions for tracing that no table of decompositions turns off.
    Interpolation gathers by index then, and its backward scatters: a UNet run op by op took a tenth
    longer for it. Margin losses give other results, some of them wrong ones. They are set aside
    while a graph is traced: only tracing looks at them, and ``torch.compile`` lets one thread trace
    at a time.
    """
    aside = {op: dict(op.py_kernels) for op in _taken_apart()}
    for op in aside:
        for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd):
            op.py_kernels.pop(key, None)
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in aside.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


# Dropout's parts give the same bits with a smaller mask. Batch norm as a whole writes to its
# running statistics, which its schema hides: run again, it would update them again. Recurrences
# run as one kernel of a library; its workspace is opaque, so none could be made up for a trial.
APART = frozenset(
    ("dropout", "cudnn_batch_norm", "native_batch_norm", "gru", "lstm", "rnn_relu", "rnn_tanh")
)


@cache
def _taken_apart() -> tuple[OpOverload[..., Any], ...]:
    names = (n for n in dir(torch.ops.aten) if n not in APART)
    packets = [p for n in names if isinstance(p := getattr(torch.ops.aten, n), OpOverloadPacket)]
    overloads = [getattr(p, o) for p in packets for o in p.overloads()]
    return tuple(op for op in overloads if DispatchKey.Autograd in op.py_kernels)
