"""Reading the fake tensors of a graph: sizes as ints, storages, and the signature of an op.

Sizes may be symbolic. Then their hint counts, the size that was seen when the graph was traced;
reading it adds no guard. A size that depends on data has no hint: its upper bound counts, or a
guess where there is none, see :func:`unbounded`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Node, map_arg
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    guarding_hint_or_throw,
    optimization_hint,
)
from torch.types import py_sym_types
from torch.utils import _pytree as pytree

from fxremat.base.errors import CostError
from passes.node_utils import tensors_in
from passes.torch_internals import storage_key

__all__ = [
    "hint",
    "is_symbolic",
    "is_view",
    "layout",
    "outside_fakes",
    "signature",
    "span",
    "storage_bytes",
    "tensors_read",
    "unbounded",
    "values_given",
]

GUESS = 4096  # for a size that depends on data and has no bound
HUGE = 2**48  # a bound above this is none


@contextlib.contextmanager
def outside_fakes() -> Iterator[None]:
    """Run the body with real tensors: no fake mode, gradients or autocast."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(unset_fake_temporarily())
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def hint(size: Any) -> int:
    """A size, symbolic or not, as an int."""
    if isinstance(size, int):
        return size
    told = _told(size)
    return int(optimization_hint(size, fallback=GUESS)) if told is None else told


def unbounded(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a size that depends on data and is not bounded."""
    return any(isinstance(s, torch.SymInt) and _told(s) is None for s in tensor.shape)


def _told(size: torch.SymInt) -> int | None:
    """The size that was seen or, where it depends on data, its upper bound if it has one."""
    try:
        return int(guarding_hint_or_throw(size))
    except GuardOnDataDependentSymNode:
        upper = size.node.shape_env.bound_sympy(size.node.expr).upper
        return max(int(upper), 0) if upper.is_number and upper < HUGE else None


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Whether a size, stride or offset of a tensor is a symbol."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return any(isinstance(n, torch.SymInt) for n in numbers)


def storage_bytes(tensor: torch.Tensor, rounding: int = 1, more: int = 0) -> int:
    """Bytes that the allocator hands out for a tensor's storage.

    Args:
        tensor: fake or real; a view counts as the whole storage that it looks at.
        rounding: granularity of the allocator in bytes; an empty storage stays 0.
        more: bytes that the storage is known to have beyond what was traced.

    Raises:
        CostError: if the tensor has no storage (a sparse one).
    """
    try:
        size = hint(tensor.untyped_storage().nbytes()) + more
    except NotImplementedError as error:
        raise CostError(
            f"a {type(tensor).__name__} of layout {tensor.layout} has no storage of its own, so "
            "its bytes cannot be told; keep it out of the compiled region"
        ) from error
    return -(-size // rounding) * rounding


def tensors_read(node: Node) -> list[torch.Tensor]:
    """The fake tensors among a node's inputs, each node's once, in order of appearance."""
    return [t for n in node.all_input_nodes for t in tensors_in(n.meta.get("val"))]


def values_given(node: Node, read: Callable[[Any], Any]) -> tuple[Any, dict[str, Any]]:
    """Positional and keyword arguments of a node, by their traced values.

    Args:
        node: of an ATen graph with fake values.
        read: applied to each tensor, size or constant among them, those in lists as well.
    """
    given = map_arg((node.args, dict(node.kwargs)), lambda n: n.meta.get("val"))
    args, kwargs = pytree.tree_map(read, given)
    return args, kwargs


def is_view(node: Node) -> bool:
    """Whether a node only looks at storages that exist: a view, or an item of a tuple.

    Besides the ops whose schema says so there are those that return an input's storage
    in fact, such as ``_unsafe_view``. An op that writes into its input is none.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return "getitem" in getattr(node.target, "__name__", "")
    if node.target.is_view:
        return True
    made = tensors_in(node.meta.get("val"))
    if not made or node.target._schema.is_mutable:
        return False
    try:
        given = {storage_key(t) for t in tensors_read(node)}
        return all(storage_key(t) in given for t in made)
    except NotImplementedError:  # no storage
        return False


def signature(node: Node) -> str:
    """What the cost of a node depends on: op, scalars, and the tensors that it reads.

    Of these sizes, strides, offset, dtype and device, and what their storages have room for: an op
    that writes into a view, made functional, returns all that the view is one of.
    """
    inner = ",".join(_text(a) for a in node.args)
    named = ",".join(f"{k}={_text(a)}" for k, a in node.kwargs.items())
    return f"{node.target}({inner};{named}){_aliases(node)}"


def _text(arg: Any) -> str:
    if isinstance(arg, Node):
        return _text(arg.meta["val"]) if "val" in arg.meta else f"<{arg.target}>"
    if isinstance(arg, torch.Tensor):
        return _tensor(arg)
    if isinstance(arg, (tuple, list)):
        return "[" + ",".join(_text(a) for a in arg) + "]"
    if isinstance(arg, torch.SymInt):
        return str(hint(arg))
    return "<symbol>" if isinstance(arg, py_sym_types) else str(arg)


def _tensor(tensor: torch.Tensor) -> str:
    head = f"{str(tensor.dtype)[6:]} {tensor.device.type}"
    if tensor.layout is not torch.strided:
        return f"{head} {tensor.layout} {[hint(s) for s in tensor.shape]}"
    size, stride, offset, count = layout(tensor)
    beyond = f"/{count}" if count > offset + span(size, stride) else ""
    return f"{head}{size}{stride}+{offset}{beyond}"


def layout(tensor: torch.Tensor) -> tuple[list[int], list[int], int, int]:
    """Sizes, strides and offset of a tensor, and how many elements its storage has room for."""
    size, stride = [hint(s) for s in tensor.shape], [hint(s) for s in tensor.stride()]
    count = hint(tensor.untyped_storage().nbytes()) // tensor.element_size()
    return size, stride, hint(tensor.storage_offset()), count


def span(size: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last of a tensor."""
    return 1 + sum((s - 1) * d for s, d in zip(size, stride, strict=True)) if all(size) else 0


def _aliases(node: Node) -> str:
    """Which inputs are the same data: that decides how many bytes are read."""
    tensors = tensors_read(node)
    if len(tensors) < 2:
        return ""
    try:
        keys = [storage_key(t) for t in tensors]
    except NotImplementedError:  # no storage
        return ""
    return "" if len(set(keys)) == len(keys) else str([keys.index(k) for k in keys])
